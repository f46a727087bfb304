//! `cargo xtask sim`: simulated histories, as many at once as there are cores.
//!
//! The simulator itself is the binary of crates/sim. It runs every seed it's asked for, tells of each that failed in a
//! paragraph that opens with `seed N failed`, and ends with status 1 if there was one.

use crate::failure::Failure;
use crate::process;
use crate::workspace::Workspace;
use clap::Args;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The seeds that are run every time, before any others: crates/sim/src/kept.rs.
const KEPT: &str = "--kept";

/// Many seeds may take all night; something that takes longer is a hang.
const LIMIT: Duration = Duration::from_secs(24 * 3600);

#[derive(Args)]
pub struct Options {
    /// How many histories
    #[arg(long, default_value_t = 1000, conflicts_with = "seed")]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0, conflicts_with = "seed")]
    first: u64,
    /// This one only
    #[arg(long)]
    seed: Option<u64>,
    /// More arguments for the simulator, such as --scenario NAME or, with --seed, --trace
    #[arg(last = true)]
    more: Vec<String>,
}

/// How a number of seeds went.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    /// The smallest seed that failed, if the simulator lived to name one, and what it said of it.
    Failed {
        seed: Option<u64>,
        said: String,
    },
}

pub fn run(workspace: &Workspace, options: &Options) -> Result<(), Failure> {
    let simulator = workspace.binary("sim")?;
    if let Some(seed) = options.seed {
        let mut one = Command::new(&simulator);
        one.args(["--seed", &seed.to_string()]).args(&options.more);
        return if process::pass_through(&mut one)?.success() { Ok(()) } else { Err(Failure::Reported) };
    }
    let began = Instant::now();
    let outcome = with_kept(&simulator, options.first, options.seeds, LIMIT, &options.more)?;
    let took = began.elapsed().as_secs_f32();
    match outcome {
        Outcome::Passed => {
            let last = (options.first + options.seeds).saturating_sub(1);
            println!("simulator: the kept seeds and {} to {last} passed ({took:.1} s)", options.first);
            Ok(())
        }
        Outcome::Failed { said, .. } => {
            println!("{}\nsimulator: FAILED ({took:.1} s)", said.trim_end());
            Err(Failure::Reported)
        }
    }
}

/// The same as [`many`], after the kept ones.
pub fn with_kept(
    simulator: &Path,
    first: u64,
    seeds: u64,
    limit: Duration,
    more: &[String],
) -> Result<Outcome, Failure> {
    let more: Vec<String> = std::iter::once(KEPT.to_owned()).chain(more.iter().cloned()).collect();
    many(simulator, first, seeds, limit, &more)
}

/// Runs `seeds` histories from `first` on, on every core. `more` are further arguments for the simulator.
pub fn many(simulator: &Path, first: u64, seeds: u64, limit: Duration, more: &[String]) -> Result<Outcome, Failure> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut run = Command::new(simulator);
    for (option, value) in [("--first", first), ("--seeds", seeds), ("--jobs", cores as u64)] {
        run.args([option, &value.to_string()]);
    }
    let ended = process::capture(run.args(more), limit)?;
    Ok(outcome(ended.status.success(), &ended.output()))
}

fn outcome(succeeded: bool, output: &str) -> Outcome {
    if succeeded {
        return Outcome::Passed;
    }
    let first = paragraphs(output).min_by_key(|(seed, _)| *seed);
    let (seed, mut said) = first.map_or((None, output.trim().to_owned()), |(seed, said)| (Some(seed), said));
    let others = paragraphs(output).count().saturating_sub(1);
    if others > 0 {
        said += &format!("\n{others} more seeds failed");
    }
    Outcome::Failed { seed, said }
}

/// The failed seeds in the simulator's output, each with all that was said of it.
fn paragraphs(output: &str) -> impl Iterator<Item = (u64, String)> {
    let seed_of = |line: &str| line.strip_prefix("seed ")?.split_once(" failed")?.0.parse().ok();
    let mut lines = output.lines().peekable();
    std::iter::from_fn(move || {
        let (seed, opening) = lines.find_map(|line| Some((seed_of(line)?, line)))?;
        let mut said = opening.to_owned();
        while let Some(line) = lines.next_if(|line| !line.is_empty() && seed_of(line).is_none()) {
            said += "\n";
            said += line;
        }
        Some((seed, said))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "seed 12 failed, scenario a\nblock 3 went back in time\nreplay: cargo xtask sim --seed 12

seed 4 failed, scenario b
panicked
seed 5 failed, scenario b

20 seeds, 3 failed, 1.0 s
";

    #[test]
    fn each_failed_seed_comes_with_what_was_said_of_it() {
        let found: Vec<_> = paragraphs(OUTPUT).collect();
        assert_eq!(found.iter().map(|(seed, _)| *seed).collect::<Vec<_>>(), [12, 4, 5]);
        assert!(found[0].1.ends_with("--seed 12"));
        assert_eq!(found[1].1, "seed 4 failed, scenario b\npanicked");
        assert_eq!(paragraphs("stack overflow\nseeds 1 failed\nseed x failed").count(), 0);
    }

    #[test]
    fn the_smallest_failed_seed_is_reported_and_the_others_are_counted() {
        let said = "seed 4 failed, scenario b\npanicked\n2 more seeds failed".into();
        assert_eq!(outcome(false, OUTPUT), Outcome::Failed { seed: Some(4), said });
    }

    #[test]
    fn a_crash_is_a_failure_without_a_seed() {
        assert_eq!(outcome(false, "stack overflow\n"), Outcome::Failed { seed: None, said: "stack overflow".into() });
        assert_eq!(outcome(true, "20 seeds, 0 failed"), Outcome::Passed);
    }
}
