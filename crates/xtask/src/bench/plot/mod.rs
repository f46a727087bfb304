//! Plots, as SVG images: [`bars`] side by side, and [`lines`] over time. [`jobs`] has the suite's jobs as bars.

pub mod bars;
pub mod jobs;
pub mod lines;

pub const COLOURS: [&str; 4] = ["#9a9a9a", "#1f77b4", "#d98032", "#3a923a"];

const LEFT: f64 = 60.0;
const TOP: f64 = 60.0;
const HEIGHT: f64 = 300.0;
const BELOW: f64 = 40.0;

/// Where a text stands relative to its point.
#[derive(Clone, Copy)]
enum Anchor {
    Start,
    Middle,
    End,
}

/// An image that is being drawn, from the title down.
struct Canvas {
    image: String,
    width: f64,
    /// The value at the top of the scale, which begins at 0.
    ceiling: f64,
}

impl Canvas {
    fn new(title: &str, subtitle: &str, width: f64, ceiling: f64) -> Canvas {
        let image = format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {total}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
<text x="{LEFT}" y="20" font-size="15">{title}</text>
<text x="{LEFT}" y="38" fill="#666">{subtitle}</text>
"##,
            total = TOP + HEIGHT + BELOW,
            title = escape(title),
            subtitle = escape(subtitle),
        );
        Canvas { image, width, ceiling }
    }

    /// The height of a value on the image.
    fn y(&self, value: f64) -> f64 {
        TOP + HEIGHT * (1.0 - value / self.ceiling)
    }

    /// A line across at each step of the scale, darker at `mark`.
    fn scale(&mut self, step: f64, mark: Option<f64>) {
        for at in 0..=(self.ceiling / step) as u32 {
            let value = f64::from(at) * step;
            let colour = if mark.is_some_and(|mark| (mark - value).abs() < step / 100.0) { "#333" } else { "#ddd" };
            let (y, right) = (self.y(value), self.width);
            self.line((LEFT, y), (right, y), &format!("stroke=\"{colour}\""));
            let text = if step < 1.0 { format!("{value:.1}") } else { short(value) };
            self.text((LEFT - 8.0, y + 4.0), Anchor::End, "", &text);
        }
    }

    /// What the colours stand for, at the right.
    fn legend(&mut self, names: &[&str]) {
        for (place, (name, colour)) in names.iter().zip(COLOURS).enumerate() {
            let x = self.width - 130.0 * (names.len() - place) as f64;
            self.image += &format!("<rect x=\"{x}\" y=\"12\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\n");
            self.text((x + 15.0, 21.0), Anchor::Start, "", name);
        }
    }

    fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, style: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escape(text);
        self.image += &format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {style}>{text}</text>\n");
    }

    fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), style: &str) {
        self.image += &format!("<line x1=\"{x1:.1}\" x2=\"{x2:.1}\" y1=\"{y1:.1}\" y2=\"{y2:.1}\" {style}/>\n");
    }

    fn finish(self) -> String {
        self.image + "</svg>\n"
    }
}

fn short(value: f64) -> String {
    if value >= 10_000.0 { format!("{:.0}k", value / 1000.0) } else { format!("{value:.0}") }
}

/// A step of 1, 2 or 5 times a power of ten, of which at most ten reach the value.
fn step_for(value: f64) -> f64 {
    let tenth = (value / 10.0).max(f64::MIN_POSITIVE);
    let power = 10f64.powf(tenth.log10().floor());
    let step = [1.0, 2.0, 5.0].into_iter().map(|times| times * power).find(|step| *step >= tenth * 0.999);
    step.unwrap_or(power * 10.0)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_at_most_ten() {
        for (value, step) in [(1.0, 0.1), (10.0, 1.0), (11.0, 2.0), (3900.0, 500.0), (6000.0, 1000.0), (95.0, 10.0)] {
            assert!((step_for(value) - step).abs() < step / 1000.0, "{value}: {}", step_for(value));
        }
    }
}
