//! What the paper plots: sequential requests beside plain stripes (figures 3 and 4), and many clients (figures 5 and 6).

use super::drives::{CHUNKS, CLIENTS};
use crate::bench::plot::bars::{Bar, Bars, Group};
use crate::bench::plot::lines::{Lines, Series};
use crate::bench::suite::{Job, Run};
use crate::bench::targets::{Quantity, median_of, ratio};

const SYSTEMS: [&str; 2] = ["ec:2+1", "ec:4+2"];
/// What the paper has of plain stripes: of RAAC on the nodes of its storage, and of a distributed RAID-5 with read-modify-write.
const PAPER: [(&str, Option<f64>, Option<f64>); 4] = [
    ("read-1m-q16", Some(0.61), None),
    ("read-64k-q16", Some(1.0), None),
    ("write-1m-q16", Some(0.9), Some(0.6)),
    ("write-64k-q16", Some(1.1), Some(0.4)),
];

/// All in multiples of a plain stripe.
pub fn chunks(runs: &[Run], when: &str) -> String {
    let group = |job: &Job| {
        let bar = |height: Option<f64>| height.map(|height| Bar { height, label: format!("{height:.2}") });
        let paper = PAPER.iter().find(|(name, ..)| *name == job.name);
        let ours = SYSTEMS.map(|system| bar(ratio(runs, system, "stripe", job.name, Quantity::Mebibytes)));
        let theirs = [paper.and_then(|paper| paper.1), paper.and_then(|paper| paper.2)].map(bar);
        Group { name: job.name.to_owned(), remark: String::new(), bars: ours.into_iter().chain(theirs).collect() }
    };
    let bars = Bars {
        title: "Sequential requests in multiples of plain stripes",
        subtitle: &format!("drives of 30 MiB/s, {when}; code alone allows 0.67 of writes"),
        series: &["ec:2+1", "ec:4+2", "paper: RAAC", "paper: RAID-5"],
        groups: CHUNKS.iter().map(group).collect(),
    };
    bars.svg()
}

pub fn clients(runs: &[Run], when: &str) -> String {
    let points = |system: &str| {
        let point = |job: &Job| {
            let clients = job.clients.parse().ok()?;
            Some((clients, median_of(runs, system, job.name, Quantity::Mebibytes)?))
        };
        CLIENTS.iter().filter_map(point).collect()
    };
    let series = ["stripe", "ec:2+1", "ec:4+2"].map(|name| Series { name, points: points(name) });
    let lines = Lines {
        title: "Writes of many clients that fit no stripe, MiB/s",
        subtitle: &format!("drives of 30 MiB/s, {when}"),
        across: "clients",
        series: series.into(),
        moments: Vec::new(),
        levels: Vec::new(),
    };
    lines.svg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_has_a_place_beside_the_papers() {
        assert!(CHUNKS.iter().all(|job| PAPER.iter().any(|(name, ..)| *name == job.name)));
        let image = chunks(&[], "today");
        assert!(image.contains("0.61") && !image.contains("NaN"), "{image}");
    }
}
