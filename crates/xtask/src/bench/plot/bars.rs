//! Groups of bars, one bar of each for a series.

use super::{Anchor, BELOW, COLOURS, Canvas, HEIGHT, LEFT, TOP};

const BAR: f64 = 30.0;
const GAP: f64 = 36.0;
/// Room for the name of a group.
const NARROWEST: f64 = 110.0;

pub struct Bars<'a> {
    pub title: &'a str,
    pub subtitle: &'a str,
    /// At most four.
    pub series: &'a [&'a str],
    pub groups: Vec<Group>,
}

pub struct Group {
    pub name: String,
    /// What is said below the name.
    pub remark: String,
    /// One for each series, if it was measured.
    pub bars: Vec<Option<Bar>>,
}

pub struct Bar {
    /// 1 is what all are compared with.
    pub height: f64,
    /// What stands on it.
    pub label: String,
}

impl Bars<'_> {
    pub fn svg(&self) -> String {
        let group = (BAR * self.series.len() as f64 + GAP).max(NARROWEST);
        let width = (LEFT + group * self.groups.len() as f64).max(LEFT + 130.0 * (self.series.len() + 3) as f64);
        let mut canvas = Canvas::new(self.title, self.subtitle, width, self.ceiling());
        canvas.scale(0.5, Some(1.0));
        for (place, Group { name, remark, bars }) in self.groups.iter().enumerate() {
            let middle = LEFT + group * (place as f64 + 0.5);
            let start = middle - BAR * self.series.len() as f64 / 2.0;
            for (number, (bar, colour)) in bars.iter().zip(COLOURS).enumerate() {
                let Some(Bar { height, label }) = bar else { continue };
                draw(&mut canvas, start + BAR * number as f64, *height, label, colour);
            }
            let base = TOP + HEIGHT;
            canvas.text((middle, base + 16.0), Anchor::Middle, "font-size=\"11\"", name);
            canvas.text((middle, base + BELOW - 10.0), Anchor::Middle, "font-size=\"10\" fill=\"#666\"", remark);
        }
        canvas.legend(self.series);
        canvas.finish()
    }

    /// The highest bar, rounded up to a half, and never below one.
    fn ceiling(&self) -> f64 {
        let heights = self.groups.iter().flat_map(|group| group.bars.iter().flatten().map(|bar| bar.height));
        (heights.fold(1.0, f64::max) * 2.0).ceil() / 2.0 + 0.1
    }
}

fn draw(canvas: &mut Canvas, x: f64, height: f64, label: &str, colour: &str) {
    let (top, thickness) = (canvas.y(height), BAR - 3.0);
    let tall = TOP + HEIGHT - top;
    canvas.image +=
        &format!("<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{thickness}\" height=\"{tall:.1}\" fill=\"{colour}\"/>\n");
    let style = "font-size=\"9\" stroke=\"white\" stroke-width=\"3\" paint-order=\"stroke\"";
    canvas.text((x + thickness / 2.0, top - 4.0), Anchor::Middle, style, label);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(height: f64) -> Option<Bar> {
        Some(Bar { height, label: format!("{height}x") })
    }

    fn bars(groups: Vec<Group>) -> Bars<'static> {
        Bars { title: "a title", subtitle: "a < b", series: &["one", "two", "three"], groups }
    }

    #[test]
    fn bars_are_as_high_as_what_was_measured_and_others_are_left_out() {
        let group = Group { name: "g".into(), remark: "IOPS".into(), bars: vec![bar(1.0), None, bar(0.5)] };
        let image = bars(vec![group]).svg();
        let heights: Vec<f64> = image
            .lines()
            .filter(|line| line.starts_with("<rect x=") && line.contains("width=\"27\""))
            .map(|line| line.split("height=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(heights.len(), 2);
        assert!((heights[0] / heights[1] - 2.0).abs() < 0.01, "{heights:?}");
        assert!(image.contains("a &lt; b") && image.contains(">0.5x<") && image.ends_with("</svg>\n"));
    }

    #[test]
    fn the_scale_reaches_above_the_highest_bar() {
        assert_eq!(bars(Vec::new()).ceiling(), 1.1);
        let group = Group { name: "g".into(), remark: String::new(), bars: vec![bar(1.0), bar(1.7)] };
        assert_eq!(bars(vec![group]).ceiling(), 2.1);
    }
}
