//! The command `sim`: every seed is a run of its own; a failure prints what to type to see it again.

use crate::executor::Failure;
use crate::scenario::{Report, SCENARIOS, Scenario};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const USAGE: &str = "usage: sim --seeds N [--first S] [--jobs J] [--scenario NAME]
       sim --seed S [--scenario NAME] [--trace]";

#[derive(Debug, PartialEq, Eq)]
struct Arguments {
    first: u64,
    seeds: u64,
    jobs: u64,
    scenario: Option<String>,
    trace: bool,
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
    #[error("say --seeds N or --seed S")]
    Nothing,
}

fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Arguments, UsageError> {
    let mut parsed = Arguments { first: 0, seeds: 0, jobs: 1, scenario: None, trace: false };
    let mut arguments = arguments.into_iter();
    while let Some(option) = arguments.next() {
        if option == "--trace" {
            parsed.trace = true;
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
    if parsed.seeds == 0 { Err(UsageError::Nothing) } else { Ok(parsed) }
}

/// Why a seed failed.
enum Wrong {
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

fn run_seed(scenario: Scenario, seed: u64, trace: bool) -> Result<Report, Wrong> {
    match catch_unwind(AssertUnwindSafe(|| scenario.run(seed, trace))) {
        Ok(outcome) => outcome.map_err(Wrong::Failure),
        Err(_) => Err(Wrong::Panic(PANIC.with(|text| text.take()))),
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
        for _ in 0..arguments.jobs.min(arguments.seeds) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= arguments.seeds {
                        return;
                    }
                    one(&arguments, arguments.first.wrapping_add(index), &tally);
                }
            });
        }
    });
    let elapsed = started.elapsed().as_secs_f64();
    let tally = tally.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    println!(
        "{} seeds, {} failed, {} requests, {} steps, {elapsed:.1} s, {:.1} seeds/s",
        arguments.seeds,
        tally.failed.len(),
        tally.requests,
        tally.steps,
        arguments.seeds as f64 / elapsed
    );
    if tally.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one(arguments: &Arguments, seed: u64, tally: &Mutex<Tally>) {
    let named = arguments.scenario.as_deref().and_then(Scenario::named);
    let scenario = named.unwrap_or_else(|| Scenario::of_seed(seed));
    let outcome = run_seed(scenario, seed, arguments.trace);
    let mut tally = tally.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let wrong = match outcome {
        Ok(report) => {
            tally.steps += report.steps;
            tally.requests += report.requests;
            if arguments.seeds == 1 {
                println!("seed {seed}, {}: {report:?}", scenario.name);
            }
            return;
        }
        Err(Wrong::Failure(failure)) => failure.to_string(),
        Err(Wrong::Panic(text)) => text,
    };
    tally.failed.push(seed);
    let option = named.map_or(String::new(), |scenario| format!(" -- --scenario {}", scenario.name));
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
    fn a_wrong_command_line_is_refused_with_the_reason() {
        for (line, said) in [
            ("", "--seeds N or --seed S"),
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
