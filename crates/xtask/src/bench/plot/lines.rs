//! Lines over time, with moments and levels marked.

use super::{Anchor, COLOURS, Canvas, HEIGHT, LEFT, TOP, short, step_for};

const WIDTH: f64 = 860.0;
const RIGHT: f64 = 20.0;

pub struct Lines<'a> {
    pub title: &'a str,
    pub subtitle: &'a str,
    /// What the horizontal axis counts, as `seconds`.
    pub across: &'a str,
    /// At most four.
    pub series: Vec<Series<'a>>,
    /// What happened when.
    pub moments: Vec<(f64, &'a str)>,
    /// Values to compare with.
    pub levels: Vec<(f64, &'a str)>,
}

pub struct Series<'a> {
    pub name: &'a str,
    /// In the order of time.
    pub points: Vec<(f64, f64)>,
}

impl Lines<'_> {
    pub fn svg(&self) -> String {
        let times = || self.series.iter().flat_map(|series| series.points.iter().map(|(time, _)| *time));
        let moments = || self.moments.iter().map(|(time, _)| *time);
        let first = times().chain(moments()).fold(f64::INFINITY, f64::min).min(0.0);
        let last = times().chain(moments()).fold(first + 1.0, f64::max);
        let x = |time: f64| LEFT + (WIDTH - LEFT - RIGHT) * (time - first) / (last - first);
        let values = self.series.iter().flat_map(|series| series.points.iter().map(|(_, value)| *value));
        let highest = values.chain(self.levels.iter().map(|(value, _)| *value)).fold(0.0, f64::max).max(0.1);
        let mut canvas = Canvas::new(self.title, self.subtitle, WIDTH, highest * 1.1);
        canvas.scale(step_for(highest), None);
        self.draw_time(&mut canvas, (first, last), x);
        for (value, name) in &self.levels {
            let y = canvas.y(*value);
            canvas.line((LEFT, y), (WIDTH, y), "stroke=\"#666\" stroke-dasharray=\"2 4\"");
            canvas.text((WIDTH - 4.0, y - 4.0), Anchor::End, "font-size=\"10\" fill=\"#666\"", name);
        }
        for (place, (time, name)) in self.moments.iter().enumerate() {
            canvas.line((x(*time), TOP), (x(*time), TOP + HEIGHT), "stroke=\"#b03030\" stroke-dasharray=\"5 3\"");
            let y = TOP + HEIGHT - 8.0 - 14.0 * place as f64;
            canvas.text((x(*time) + 4.0, y), Anchor::Start, "font-size=\"11\" fill=\"#b03030\"", name);
        }
        // The first colour is for what others are compared with.
        for (series, colour) in self.series.iter().zip(COLOURS.iter().skip(self.skipped())) {
            let place = |(time, value): &(f64, f64)| format!("{:.1},{:.1}", x(*time), canvas.y(*value));
            let points: Vec<String> = series.points.iter().map(place).collect();
            canvas.image += &format!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>\n",
                points.join(" ")
            );
        }
        if self.series.len() > 1 {
            canvas.legend(&self.series.iter().map(|series| series.name).collect::<Vec<_>>());
        }
        canvas.finish()
    }

    /// A single line isn't grey.
    fn skipped(&self) -> usize {
        usize::from(self.series.len() == 1)
    }

    fn draw_time(&self, canvas: &mut Canvas, (first, last): (f64, f64), x: impl Fn(f64) -> f64) {
        let step = step_for(last - first);
        let base = TOP + HEIGHT;
        let mut time = (first / step).ceil() * step;
        while time <= last {
            canvas.line((x(time), base), (x(time), base + 4.0), "stroke=\"#333\"");
            let text = if time < 0.0 { format!("-{}", short(-time)) } else { short(time) };
            canvas.text((x(time), base + 17.0), Anchor::Middle, "font-size=\"11\"", &text);
            time += step;
        }
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        canvas.text((middle, base + 33.0), Anchor::Middle, "font-size=\"11\" fill=\"#666\"", self.across);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: Vec<(f64, f64)>) -> Lines<'static> {
        Lines {
            title: "Throughput",
            subtitle: "",
            across: "seconds",
            series: vec![Series { name: "one", points }],
            moments: vec![(0.0, "added")],
            levels: vec![(100.0, "before & after")],
        }
    }

    #[test]
    fn a_line_goes_through_its_points_from_left_to_right() {
        let image = line(vec![(-10.0, 100.0), (0.0, 50.0), (10.0, 200.0)]).svg();
        let drawn = image.split("points=\"").nth(1).unwrap().split('"').next().unwrap();
        let points: Vec<(f64, f64)> = drawn
            .split(' ')
            .map(|point| point.split_once(',').unwrap())
            .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
            .collect();
        assert_eq!((points[0].0, points[2].0), (LEFT, WIDTH - RIGHT));
        assert!((points[1].0 - (points[0].0 + points[2].0) / 2.0).abs() < 0.2, "{points:?}");
        // More is higher up.
        assert!(points[2].1 < points[0].1 && points[0].1 < points[1].1, "{points:?}");
        assert!(image.contains(">added<") && image.contains("before &amp; after"));
    }

    #[test]
    fn nothing_measured_is_still_an_image() {
        let image = line(Vec::new()).svg();
        assert!(!image.contains("NaN") && !image.contains("inf"), "{image}");
    }
}
