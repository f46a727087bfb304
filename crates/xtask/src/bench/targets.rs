//! What the results must reach, and whether they do.

use super::suite::Run;

pub const NBDKIT: &str = "nbdkit-file";
pub const STRIPE: &str = "tepal-stripe";
pub const MIRROR: &str = "tepal-mirror:2";
pub const CHAINED: &str = "tepal-chained";
pub const CEPH: &str = "ceph-rbd";

/// Waking up a few times a second is rest; more is polling.
const IDLE_PERCENT: f64 = 0.1;
const RESTART_MS: f64 = 2000.0;
const SEEDS_SECONDS: f64 = 300.0;
const READ_CPU_US: f64 = 18.0;
const WRITE_CPU_US: f64 = 45.0;

/// What is measured beside the jobs; None where it was not.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    /// Of one core, by all processes of the cluster, with nobody connected.
    pub idle_percent: Option<f64>,
    pub resident_mib: Option<f64>,
    /// Median time from the start of a killed server to an answered read.
    pub restart_ms: Option<f64>,
    /// 1,000 simulated histories.
    pub seeds_seconds: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    pub what: String,
    pub bound: Bound,
    pub measured: Option<f64>,
}

impl Target {
    pub fn verdict(&self) -> &'static str {
        let met = |measured: f64| match self.bound {
            Bound::AtLeast(bound) => measured >= bound,
            Bound::AtMost(bound) => measured <= bound,
        };
        match self.measured {
            None => "not measured",
            Some(measured) if met(measured) => "ok",
            Some(_) => "MISSED",
        }
    }

    pub fn is_missed(&self) -> bool {
        self.verdict() == "MISSED"
    }
}

/// The quantities that jobs are compared by.
#[derive(Clone, Copy)]
pub enum Quantity {
    Iops,
    Mebibytes,
    MedianLatency,
    /// The 99th percentile.
    HighLatency,
    Cpu,
}

impl Quantity {
    pub fn of(self, run: &Run) -> Option<f64> {
        match self {
            Quantity::Iops => Some(run.iops),
            Quantity::Mebibytes => Some(run.mebibytes),
            Quantity::MedianLatency => Some(run.p50_us),
            Quantity::HighLatency => Some(run.p99_us),
            Quantity::Cpu => run.cpu_us,
        }
    }

    pub fn unit(self) -> &'static str {
        match self {
            Quantity::Iops => "IOPS",
            Quantity::Mebibytes => "MiB/s",
            Quantity::MedianLatency => "median latency",
            Quantity::HighLatency => "99th percentile of latency",
            Quantity::Cpu => "processor time",
        }
    }
}

/// The median over the repetitions of one job on one system.
pub fn median_of(runs: &[Run], system: &str, job: &str, quantity: Quantity) -> Option<f64> {
    let of_job = runs.iter().filter(|run| run.system == system && run.job == job);
    median(of_job.filter_map(|run| quantity.of(run)).collect())
}

pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        even if even % 2 == 0 => Some((values[middle - 1] + values[middle]) / 2.0),
        _ => Some(values[middle]),
    }
}

/// One system's median in multiples of another's.
pub fn ratio(runs: &[Run], system: &str, to: &str, job: &str, quantity: Quantity) -> Option<f64> {
    let other = median_of(runs, to, job, quantity).filter(|other| *other > 0.0)?;
    Some(median_of(runs, system, job, quantity)? / other)
}

/// One system's figure in multiples of another's.
type Comparison = (&'static str, &'static str, &'static str, Quantity, Bound);

fn compare(runs: &[Run], comparisons: &[Comparison]) -> Vec<Target> {
    let target = |&(system, to, job, quantity, bound): &Comparison| Target {
        what: format!("{system} {job}: {} in multiples of {to}", quantity.unit()),
        bound,
        measured: ratio(runs, system, to, job, quantity),
    };
    comparisons.iter().map(target).collect()
}

/// Of one server.
pub fn of_one_server(runs: &[Run], extra: &Extra) -> Vec<Target> {
    use Bound::{AtLeast, AtMost};
    use Quantity::{Iops, Mebibytes, MedianLatency};
    let mut targets = compare(
        runs,
        &[
            (STRIPE, NBDKIT, "randread-4k-q32", Iops, AtLeast(1.0)),
            (STRIPE, NBDKIT, "randread-4k-q1", MedianLatency, AtMost(1.2)),
            (STRIPE, NBDKIT, "read-1m-q8", Mebibytes, AtLeast(1.0)),
            (STRIPE, NBDKIT, "randwrite-4k-q32", Iops, AtLeast(0.65)),
            (STRIPE, NBDKIT, "write-1m-q8", Mebibytes, AtLeast(0.7)),
            (MIRROR, NBDKIT, "randread-4k-q32", Iops, AtLeast(1.0)),
            (MIRROR, NBDKIT, "randread-4k-q1", MedianLatency, AtMost(1.2)),
            (MIRROR, NBDKIT, "read-1m-q8", Mebibytes, AtLeast(1.0)),
            (MIRROR, STRIPE, "randwrite-4k-q1", Iops, AtLeast(0.5)),
            (MIRROR, STRIPE, "randwrite-4k-q32", Iops, AtLeast(0.5)),
            (MIRROR, STRIPE, "write-1m-q8", Mebibytes, AtLeast(0.5)),
        ],
    );
    let plain = |what: &str, bound, measured| Target { what: what.into(), bound: AtMost(bound), measured };
    targets.push(plain("idle: percent of one core", IDLE_PERCENT, extra.idle_percent));
    targets.push(plain("restart after kill -9 under load, ms until a read answers", RESTART_MS, extra.restart_ms));
    targets.push(plain("1,000 simulator seeds, s", SEEDS_SECONDS, extra.seeds_seconds));
    targets
}

/// Of four servers.
pub fn of_a_ring(runs: &[Run]) -> Vec<Target> {
    use Bound::{AtLeast, AtMost};
    use Quantity::{Cpu, Iops, Mebibytes, MedianLatency};
    let mut targets = compare(
        runs,
        &[
            (CHAINED, CEPH, "randwrite-4k-q32", Iops, AtLeast(8.0)),
            (CHAINED, CEPH, "randread-4k-q32", Iops, AtLeast(4.0)),
            (CHAINED, CEPH, "randread-4k-q1", MedianLatency, AtMost(0.7)),
            (CHAINED, CEPH, "write-1m-q8", Mebibytes, AtLeast(4.0)),
            (CHAINED, NBDKIT, "randread-4k-q32", Iops, AtLeast(0.5)),
            (CHAINED, NBDKIT, "read-1m-q8", Mebibytes, AtLeast(0.5)),
        ],
    );
    for (job, bound) in [("randread-4k-q32", READ_CPU_US), ("randwrite-4k-q32", WRITE_CPU_US)] {
        targets.push(Target {
            what: format!("{CHAINED} {job}: us of a core for each, all server processes"),
            bound: AtMost(bound),
            measured: median_of(runs, CHAINED, job, Cpu),
        });
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(system: &str, job: &str, iops: f64, p50_us: f64) -> Run {
        Run {
            system: system.into(),
            job: job.into(),
            repetition: 1,
            iops,
            mebibytes: iops / 256.0,
            p50_us,
            p99_us: p50_us,
            cpu_us: None,
        }
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        let cases =
            [(vec![], None), (vec![3.0], Some(3.0)), (vec![9.0, 1.0, 2.0], Some(2.0)), (vec![1.0, 4.0], Some(2.5))];
        for (values, expected) in cases {
            assert_eq!(median(values), expected);
        }
    }

    #[test]
    fn a_bound_that_is_met_exactly_is_met() {
        let cases = [
            (Bound::AtLeast(1.0), Some(1.0), "ok"),
            (Bound::AtLeast(1.0), Some(0.99), "MISSED"),
            (Bound::AtMost(1.2), Some(1.2), "ok"),
            (Bound::AtMost(1.2), Some(1.21), "MISSED"),
            (Bound::AtMost(1.2), None, "not measured"),
        ];
        for (bound, measured, verdict) in cases {
            assert_eq!(Target { what: "x".into(), bound, measured }.verdict(), verdict);
        }
    }

    #[test]
    fn targets_compare_medians_of_the_same_job() {
        let job = "randread-4k-q32";
        let runs = [
            run(NBDKIT, job, 100.0, 10.0),
            run(NBDKIT, job, 300.0, 10.0),
            run(NBDKIT, job, 200.0, 10.0),
            run(NBDKIT, "randread-4k-q1", 1.0, 20.0),
            run(STRIPE, job, 220.0, 10.0),
            run(STRIPE, "randread-4k-q1", 1.0, 30.0),
        ];
        let targets = of_one_server(&runs, &Extra { idle_percent: Some(0.0), ..Extra::default() });
        let verdicts: Vec<_> = targets.iter().map(|target| (target.measured, target.verdict())).collect();
        assert_eq!(verdicts[0], (Some(1.1), "ok"));
        assert_eq!(verdicts[1], (Some(1.5), "MISSED"));
        assert_eq!(verdicts[2], (None, "not measured"));
        assert!(targets.iter().any(|target| target.what.starts_with("idle") && target.verdict() == "ok"));
    }

    #[test]
    fn nothing_is_a_multiple_of_nothing() {
        let runs = [run(NBDKIT, "a", 0.0, 0.0), run(STRIPE, "a", 1.0, 1.0)];
        assert_eq!(ratio(&runs, STRIPE, NBDKIT, "a", Quantity::Iops), None);
        assert_eq!(ratio(&runs, STRIPE, MIRROR, "a", Quantity::Iops), None);
    }
}
