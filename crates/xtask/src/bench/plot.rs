//! The plot: for each job a group of bars, one a system, in multiples of nbdkit.

use super::suite::{JOBS, Run};
use super::targets::{NBDKIT, Quantity, median_of, ratio};

const COLOURS: [&str; 3] = ["#9a9a9a", "#1f77b4", "#d98032"];

const BAR: f64 = 30.0;
const GAP: f64 = 36.0;
const LEFT: f64 = 60.0;
const TOP: f64 = 60.0;
const HEIGHT: f64 = 300.0;
const BELOW: f64 = 40.0;

/// An SVG image of at most three systems.
pub fn svg(runs: &[Run], systems: &[&str], subtitle: &str) -> String {
    let group = BAR * systems.len() as f64 + GAP;
    let width = LEFT + group * JOBS.len() as f64;
    let ceiling = ceiling(runs, systems);
    let y = |value: f64| TOP + HEIGHT * (1.0 - value / ceiling);
    let mut image = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {total}" font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
<text x="{LEFT}" y="20" font-size="15">Throughput in multiples of nbdkit file (more is better)</text>
<text x="{LEFT}" y="38" fill="#666">{subtitle}</text>
"##,
        total = TOP + HEIGHT + BELOW,
        subtitle = escape(subtitle),
    );
    for step in 0..=(ceiling * 2.0) as u32 {
        let value = f64::from(step) / 2.0;
        let (line, text) = (y(value), y(value) + 4.0);
        let stroke = if value == 1.0 { "#333" } else { "#ddd" };
        image +=
            &format!("<line x1=\"{LEFT}\" x2=\"{width}\" y1=\"{line:.1}\" y2=\"{line:.1}\" stroke=\"{stroke}\"/>\n");
        image += &format!("<text x=\"{}\" y=\"{text:.1}\" text-anchor=\"end\">{value:.1}</text>\n", LEFT - 8.0);
    }
    for (place, job) in JOBS.iter().enumerate() {
        let start = LEFT + GAP / 2.0 + group * place as f64;
        for (bar, (system, colour)) in systems.iter().zip(COLOURS).enumerate() {
            let quantity = quantity(job.name);
            let (Some(times), Some(absolute)) =
                (ratio(runs, system, NBDKIT, job.name, quantity), median_of(runs, system, job.name, quantity))
            else {
                continue;
            };
            let (x, top) = (start + BAR * bar as f64, y(times));
            let (thickness, tall) = (BAR - 3.0, TOP + HEIGHT - top);
            image += &format!(
                "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{thickness}\" height=\"{tall:.1}\" fill=\"{colour}\"/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"9\" stroke=\"white\" \
                 stroke-width=\"3\" paint-order=\"stroke\">{}</text>\n",
                x + thickness / 2.0,
                top - 4.0,
                short(absolute),
            );
        }
        let middle = start + (group - GAP) / 2.0;
        let unit = if is_sequential(job.name) { "MiB/s" } else { "IOPS" };
        let base = TOP + HEIGHT;
        image += &format!(
            "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"11\">{}</text>\n\
             <text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"10\" fill=\"#666\">{unit}</text>\n",
            base + 16.0,
            job.name,
            base + 30.0,
        );
    }
    for (place, (system, colour)) in systems.iter().zip(COLOURS).enumerate() {
        let x = width - 130.0 * (systems.len() - place) as f64;
        image += &format!("<rect x=\"{x}\" y=\"12\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\n");
        image += &format!("<text x=\"{}\" y=\"21\">{system}</text>\n", x + 15.0);
    }
    image + "</svg>\n"
}

/// The top of the scale: the highest bar, rounded up to a half, and never below one.
fn ceiling(runs: &[Run], systems: &[&str]) -> f64 {
    let bars = JOBS
        .iter()
        .flat_map(|job| systems.iter().filter_map(|system| ratio(runs, system, NBDKIT, job.name, quantity(job.name))));
    (bars.fold(1.0, f64::max) * 2.0).ceil() / 2.0 + 0.1
}

fn quantity(job: &str) -> Quantity {
    if is_sequential(job) { Quantity::Mebibytes } else { Quantity::Iops }
}

fn is_sequential(job: &str) -> bool {
    job.contains("1m")
}

fn short(value: f64) -> String {
    if value >= 10_000.0 { format!("{:.0}k", value / 1000.0) } else { format!("{value:.0}") }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::targets::{MIRROR, STRIPE};

    const SYSTEMS: [&str; 3] = [NBDKIT, STRIPE, MIRROR];

    fn run(system: &str, job: &str, iops: f64) -> Run {
        Run {
            system: system.into(),
            job: job.into(),
            repetition: 1,
            iops,
            mebibytes: 1.0,
            p50_us: 1.0,
            p99_us: 1.0,
            cpu_us: None,
        }
    }

    #[test]
    fn each_measured_median_is_a_bar_whose_height_is_its_ratio() {
        let runs = [run(NBDKIT, "randread-4k-q1", 20_000.0), run(STRIPE, "randread-4k-q1", 10_000.0)];
        let image = svg(&runs, &SYSTEMS, "a < b");
        let heights: Vec<f64> = image
            .lines()
            .filter(|line| line.starts_with("<rect x=") && line.contains("width=\"27\""))
            .map(|line| line.split("height=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
            .collect();
        assert_eq!(heights.len(), 2);
        assert!((heights[0] / heights[1] - 2.0).abs() < 0.01, "{heights:?}");
        assert!(image.contains("a &lt; b") && image.contains(">20k<") && image.ends_with("</svg>\n"));
    }

    #[test]
    fn the_scale_reaches_above_the_highest_bar() {
        assert_eq!(ceiling(&[], &SYSTEMS), 1.1);
        assert_eq!(ceiling(&[run(NBDKIT, "randrw-4k-q32", 10.0), run(MIRROR, "randrw-4k-q32", 17.0)], &SYSTEMS), 2.1);
    }
}
