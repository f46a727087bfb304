//! The first small write to an extent after a snapshot, which takes a slot but copies nothing, beside one on a volume that has no
//! snapshots.

use super::load::Load;
use super::{Found, Row, settle};
use crate::bench::suite::{Job, Suite};
use crate::bench::systems::Tepal;
use crate::bench::targets::{Bound, Target, median};
use crate::failure::Failure;
use std::path::Path;

const SIZE: &str = "256M";
const DRIVE_SIZE: &str = "8G";
/// One block at the beginning of each extent: 4 KiB are written, and 60 KiB passed over.
const WRITES: Job = Job { name: "first-write-4k-q1", rw: "write:60k", block: "4k", depth: "1", clients: "1" };
const ONCE: &str = "--io_size=16M";
/// Not counted: what has to be made ready is made ready.
const WARM_UP: u32 = 1;

const TIMES: f64 = 1.3;

/// Medians of passes, in microseconds: without snapshots, and each after a snapshot.
struct Measured {
    passes_us: Vec<(f64, f64)>,
}

pub fn measure(program: &Path, repetitions: u32) -> Result<Found, Failure> {
    let shape = ["--servers", "4", "--drives", "1"];
    let volumes = ["plain", "kept"].map(|name| format!("{name}={SIZE},layout=chained"));
    let tepal = Tepal::start(program, &shape, DRIVE_SIZE, &volumes)?;
    let suite = Suite { seconds: 0, size: SIZE.into(), program: None };
    for volume in ["plain", "kept"] {
        suite.fill(&tepal.disk(volume))?;
    }
    settle();
    let pass = |volume: &str| {
        let ios = Load::once(&WRITES, &tepal.disk(volume), SIZE, &[ONCE])?;
        let median = median(ios.iter().map(|io| io.took_us).collect());
        median.ok_or(Failure::Usage("fio has written nothing".into()))
    };
    let mut passes_us = Vec::new();
    for repetition in 0..repetitions + WARM_UP {
        tepal.manage(&["snapshot", "create", &format!("kept@{repetition}")])?;
        // Nobody is always the first.
        let (plain, kept) = if repetition % 2 == 0 {
            let plain = pass("plain")?;
            (plain, pass("kept")?)
        } else {
            let kept = pass("kept")?;
            (pass("plain")?, kept)
        };
        if repetition >= WARM_UP {
            passes_us.push((plain, kept));
        }
    }
    Ok(Measured { passes_us }.found())
}

impl Measured {
    fn found(&self) -> Found {
        let (plain, kept): (Vec<f64>, Vec<f64>) = self.passes_us.iter().copied().unzip();
        let ratios = self.passes_us.iter().map(|(plain, kept)| kept / plain).collect();
        let targets = vec![Target {
            what: "first 4K write to an extent after a snapshot: median latency, of that without a snapshot".into(),
            bound: Bound::AtMost(TIMES),
            measured: median(ratios),
        }];
        let markdown = format!(
            "\n## The first write after a snapshot\n\n4 KiB, one at a time, once to each extent of {SIZE} that was filled before, on two \
             `chained` volumes in turn: {:.0} us (median) on one without snapshots, {:.0} us on one of which a snapshot was taken before each \
             of {} passes.\n",
            median(plain.clone()).unwrap_or_default(),
            median(kept.clone()).unwrap_or_default(),
            self.passes_us.len(),
        );
        let mut rows = Row::numbered("small-writes", "p50_us_without", &plain);
        rows.extend(Row::numbered("small-writes", "p50_us_after_snapshot", &kept));
        Found { targets, markdown, rows, plots: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_compared_for_the_machine_drifts() {
        let found = Measured { passes_us: vec![(100.0, 120.0), (200.0, 240.0), (100.0, 240.0)] }.found();
        assert_eq!(found.targets[0].measured, Some(1.2));
        assert_eq!(found.rows.len(), 6);
    }
}
