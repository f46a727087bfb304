//! Scenarios: a machine, a workload and what goes wrong, all drawn from one seed.

mod agreement;
mod bay;
mod convergence;
mod drive_volume;
mod life;
mod locks;
mod one_drive;
mod one_server;
mod readers;
mod record;
mod ring;
mod server;
mod taken;

use crate::executor::{Executor, Failure, Limits};
use crate::random::Stream;
use std::time::Duration;

/// What a run that broke no promise did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    pub trace: u64,
    pub steps: u64,
    /// Virtual time.
    pub time: Duration,
    pub requests: u64,
}

#[derive(Clone, Copy)]
pub struct Scenario {
    pub name: &'static str,
    run: fn(&Executor, Stream) -> Result<u64, Failure>,
}

/// All there are. Each seed runs one, chosen by the seed.
pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "one_drive", run: one_drive::run },
    Scenario { name: "one_server", run: one_server::run },
    Scenario { name: "operated", run: one_server::run_operated },
    Scenario { name: "ring", run: ring::run },
    Scenario { name: "long_ring", run: ring::run_long },
    Scenario { name: "leaving", run: ring::run_leaving },
    Scenario { name: "stripes", run: ring::run_stripes },
    Scenario { name: "long_stripes", run: ring::run_long_stripes },
    Scenario { name: "plexes", run: ring::run_plexes },
    Scenario { name: "fencing", run: ring::run_fencing },
    Scenario { name: "encrypted", run: ring::run_encrypted },
    Scenario { name: "ranges", run: ring::run_ranges },
    Scenario { name: "imported", run: ring::run_imported },
    Scenario { name: "quorum", run: ring::run_quorum },
];

impl Scenario {
    pub fn of_seed(seed: u64) -> Scenario {
        *Stream::new(seed).fork().pick(SCENARIOS)
    }

    pub fn named(name: &str) -> Option<Scenario> {
        SCENARIOS.iter().copied().find(|scenario| scenario.name == name)
    }

    /// `verbose` prints what happens as it happens.
    pub fn run(self, seed: u64, verbose: bool) -> Result<Report, Failure> {
        let mut random = Stream::new(seed);
        let executor = Executor::new(random.draw(), Limits::default(), verbose);
        let requests = (self.run)(&executor, random.fork())?;
        let core = executor.core();
        Ok(Report { trace: executor.trace_hash(), steps: core.steps(), time: core.now(), requests })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn every_scenario_repeats_step_for_step_from_its_seed() {
        for scenario in SCENARIOS {
            for seed in 0..6 {
                let first = scenario.run(seed, false).unwrap_or_else(|f| panic!("{} {seed}: {f}", scenario.name));
                assert_eq!(scenario.run(seed, false), Ok(first), "{} {seed}", scenario.name);
            }
        }
    }

    #[test]
    fn a_run_leaves_nothing_in_memory() {
        // An engine and its volumes once held each other: every simulated process stayed, with all that its drives held.
        for scenario in SCENARIOS {
            for seed in 0..6 {
                let executor = Executor::new(seed, Limits::default(), false);
                let core = Rc::downgrade(executor.core());
                (scenario.run)(&executor, Stream::new(seed))
                    .unwrap_or_else(|f| panic!("{} {seed}: {f}", scenario.name));
                drop(executor);
                assert_eq!(core.strong_count(), 0, "{} {seed}", scenario.name);
            }
        }
    }
}
