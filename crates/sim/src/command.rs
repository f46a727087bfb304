//! The command `sim`: every seed is a run of its own; a failure prints what to type to see it again. With `--kept` the kept
//! seeds come first.

use crate::executor::Failure;
use crate::kept::KEPT;
use crate::scenario::{Report, SCENARIOS, Scenario};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const USAGE: &str = "usage: sim --seeds N [--first S] [--jobs J] [--kept] [--scenario NAME]
       sim --seed S [--scenario NAME] [--trace]";

#[derive(Debug, PartialEq, Eq)]
struct Arguments {
    first: u64,
    seeds: u64,
    jobs: u64,
    scenario: Option<String>,
    trace: bool,
    kept: bool,
}

impl Arguments {
    fn kept(&self) -> u64 {
        if self.kept { KEPT.len() as u64 } else { 0 }
    }

    fn runs(&self) -> u64 {
        self.kept() + self.seeds
    }

    /// The kept seeds, then the others.
    fn run(&self, index: u64) -> (Scenario, u64) {
        match index.checked_sub(self.kept()) {
            None => (KEPT[index as usize].scenario(), KEPT[index as usize].seed),
            Some(nth) => {
                let seed = self.first.wrapping_add(nth);
                let named = self.scenario.as_deref().and_then(Scenario::named);
                (named.unwrap_or_else(|| Scenario::of_seed(seed)), seed)
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum UsageError {
    #[error("'{0}' is not known")]
    Unknown(String),
    #[error("{0} wants a value")]
    NoValue(String),
    #[error("'{value}' is not a number, which {option} wants")]
    NoNumber { option: String, value: String },
    #[error("there is no scenario '{0}'")]
    NoScenario(String),
    #[error("say --seeds N, --seed S or --kept")]
    Nothing,
}

fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Arguments, UsageError> {
    let mut parsed = Arguments { first: 0, seeds: 0, jobs: 1, scenario: None, trace: false, kept: false };
    let mut arguments = arguments.into_iter();
    while let Some(option) = arguments.next() {
        if option == "--trace" {
            parsed.trace = true;
            continue;
        }
        if option == "--kept" {
            parsed.kept = true;
            continue;
        }
        if !["--seeds", "--seed", "--first", "--jobs", "--scenario"].contains(&option.as_str()) {
            return Err(UsageError::Unknown(option));
        }
        let value = arguments.next().ok_or_else(|| UsageError::NoValue(option.clone()))?;
        if option == "--scenario" {
            Scenario::named(&value).ok_or_else(|| UsageError::NoScenario(value.clone()))?;
            parsed.scenario = Some(value);
            continue;
        }
        let number: u64 = value.parse().map_err(|_| UsageError::NoNumber { option: option.clone(), value })?;
        match option.as_str() {
            "--seeds" => parsed.seeds = number,
            "--seed" => (parsed.first, parsed.seeds) = (number, 1),
            "--first" => parsed.first = number,
            _ => parsed.jobs = number.clamp(1, 64),
        }
    }
    if parsed.runs() == 0 { Err(UsageError::Nothing) } else { Ok(parsed) }
}

/// Why a seed failed.
enum SeedFailure {
    Failure(Failure),
    Panic(String),
}

thread_local! {
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps what a panic said for whoever catches it.
fn remember_panics() {
    std::panic::set_hook(Box::new(|info| {
        let backtrace = std::backtrace::Backtrace::force_capture().to_string();
        let ours: Vec<&str> =
            backtrace.lines().filter(|line| line.contains("/crates/")).map(str::trim).take(12).collect();
        PANIC.with(|text| *text.borrow_mut() = format!("{info}\n    {}", ours.join("\n    ")));
    }));
}

fn run_seed(scenario: Scenario, seed: u64, trace: bool) -> Result<Report, SeedFailure> {
    match catch_unwind(AssertUnwindSafe(|| scenario.run(seed, trace))) {
        Ok(outcome) => outcome.map_err(SeedFailure::Failure),
        Err(_) => Err(SeedFailure::Panic(PANIC.with(|text| text.take()))),
    }
}

#[derive(Default)]
struct Tally {
    failed: Vec<u64>,
    steps: u64,
    requests: u64,
}

pub fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            let names: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
            eprintln!("error: {error}\n{USAGE}\nscenarios: {}", names.join(", "));
            return ExitCode::from(2);
        }
    };
    remember_panics();
    #[allow(clippy::disallowed_methods, reason = "how fast the simulator is, by the real clock")]
    let started = Instant::now();
    let next = AtomicU64::new(0);
    let tally = Mutex::new(Tally::default());
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.min(arguments.runs()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= arguments.runs() {
                        return;
                    }
                    one(&arguments, index, &tally);
                }
            });
        }
    });
    let elapsed = started.elapsed().as_secs_f64();
    let tally = tally.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    println!(
        "{} seeds, {} failed, {} requests, {} steps, {elapsed:.1} s, {:.1} seeds/s",
        arguments.runs(),
        tally.failed.len(),
        tally.requests,
        tally.steps,
        arguments.runs() as f64 / elapsed
    );
    if tally.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one(arguments: &Arguments, index: u64, tally: &Mutex<Tally>) {
    let (scenario, seed) = arguments.run(index);
    let outcome = run_seed(scenario, seed, arguments.trace);
    let mut tally = tally.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let wrong = match outcome {
        Ok(report) => {
            tally.steps += report.steps;
            tally.requests += report.requests;
            if arguments.runs() == 1 {
                println!("seed {seed}, {}: {report:?}", scenario.name);
            }
            return;
        }
        Err(SeedFailure::Failure(failure)) => failure.to_string(),
        Err(SeedFailure::Panic(text)) => text,
    };
    tally.failed.push(seed);
    let usual = Scenario::of_seed(seed).name == scenario.name;
    let option = if usual { String::new() } else { format!(" -- --scenario {}", scenario.name) };
    println!(
        "seed {seed} failed, scenario {}\n{wrong}\nreplay: cargo xtask sim --seed {seed}{option}\n",
        scenario.name
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Arguments, UsageError> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_command_line_says_which_seeds_to_run() {
        let many = parsed("--seeds 100 --first 7 --jobs 2").unwrap();
        assert_eq!((many.first, many.seeds, many.jobs), (7, 100, 2));
        let one = parsed("--seed 9 --trace --scenario one_drive").unwrap();
        assert_eq!((one.first, one.seeds, one.trace), (9, 1, true));
    }

    #[test]
    fn kept_seeds_come_first_and_are_of_their_own_scenario() {
        let all = parsed("--kept --seeds 2 --first 5 --scenario one_drive").unwrap();
        assert_eq!(all.runs(), KEPT.len() as u64 + 2);
        assert_eq!((all.run(0).0.name, all.run(0).1), (KEPT[0].scenario, KEPT[0].seed));
        let (scenario, seed) = all.run(all.runs() - 1);
        assert_eq!((scenario.name, seed), ("one_drive", 6));
    }

    #[test]
    fn a_wrong_command_line_is_refused_with_the_reason() {
        for (line, said) in [
            ("", "--seeds N, --seed S"),
            ("--seeds", "wants a value"),
            ("--seeds -1", "not a number"),
            ("--seeds 1 --scenario nothing", "no scenario 'nothing'"),
            ("--fast", "'--fast' is not known"),
        ] {
            let error = parsed(line).unwrap_err().to_string();
            assert!(error.contains(said), "{line}: {error}");
        }
    }
}
