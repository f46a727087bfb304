//! The suite's jobs: for each a group of bars, one a system, in multiples of nbdkit.

use super::bars::{Bar, Bars, Group};
use super::short;
use crate::bench::suite::{JOBS, Run};
use crate::bench::targets::{NBDKIT, Quantity, median_of, ratio};

pub fn svg(runs: &[Run], systems: &[&str], subtitle: &str) -> String {
    let group = |name: &str| {
        let is_sequential = name.contains("1m");
        let quantity = if is_sequential { Quantity::Mebibytes } else { Quantity::Iops };
        let bar = |system: &&str| {
            let height = ratio(runs, system, NBDKIT, name, quantity)?;
            Some(Bar { height, label: short(median_of(runs, system, name, quantity)?) })
        };
        let remark = if is_sequential { "MiB/s" } else { "IOPS" };
        Group { name: name.into(), remark: remark.into(), bars: systems.iter().map(bar).collect() }
    };
    let groups = JOBS.iter().map(|job| group(job.name)).collect();
    Bars { title: "Throughput in multiples of nbdkit file (more is better)", subtitle, series: systems, groups }.svg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::targets::STRIPE;

    #[test]
    fn each_measured_median_is_a_bar_with_its_figure() {
        let run = |system: &str, iops| Run {
            system: system.into(),
            job: "randread-4k-q1".into(),
            repetition: 1,
            iops,
            mebibytes: 1.0,
            p50_us: 1.0,
            p99_us: 1.0,
            cpu_us: None,
        };
        let image = svg(&[run(NBDKIT, 20_000.0), run(STRIPE, 10_000.0)], &[NBDKIT, STRIPE], "medians");
        assert_eq!(image.matches("width=\"27\"").count(), 2);
        assert_eq!(image.matches(">10k<").count() + image.matches(">20k<").count(), 2);
    }
}
