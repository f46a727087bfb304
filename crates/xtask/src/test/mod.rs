//! `cargo xtask test`: everything that this machine can run. The last line says how it went, alone on its line:
//! `N passed, N failed`, and `, N skipped` where a test's tools are missing here.
//!
//! cargo builds the tests; they are run from here, one program after another, so that each has a limit on its time and
//! only the output of failures is shown.

mod clients;
mod summary;

use crate::failure::Failure;
use crate::process;
use crate::sim;
use crate::workspace::{self, BUILD_LIMIT, Kind, Program, Workspace};
use clap::Args;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use summary::Counts;

/// No program of tests may take longer: a hang is a failure, not a wait. On two idle cores the longest takes a third of that.
const PROGRAM_LIMIT: Duration = Duration::from_secs(40 * 60);
/// Tests with real processes that run at once, for each core: most of their time they wait for clocks and for each other's disks.
const AT_ONCE: usize = 2;

#[derive(Args)]
pub struct Options {
    /// Only the tests inside the crates
    #[arg(long, conflicts_with = "integration")]
    unit: bool,
    /// Only the tests with real processes and real clients
    #[arg(long)]
    integration: bool,
    /// How many simulated histories to run
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// Only tests whose name contains this; no simulator
    filter: Option<String>,
}

pub fn run(workspace: &Workspace, options: &Options) -> Result<(), Failure> {
    if !options.unit {
        clients::provide(workspace);
    }
    let mut counts = Counts::default();
    println!("building the tests");
    // In one go: what is built apart from tests has dependencies with fewer features, and would be compiled once more.
    let programs = workspace.build(&["build", "--release", "--quiet", "--workspace", "--bins", "--tests"])?;
    let of = |kind| programs.iter().filter(move |program| program.kind == kind);
    if !options.integration {
        counts += run_all(of(Kind::UnitTests), &[], options)?;
        counts += documentation(workspace, options)?;
    }
    if !options.unit {
        // Tests make packages with xtask as just built, since the build may have replaced the file of the program that runs.
        let binary = |name| Ok::<OsString, Failure>(workspace::binary(&programs, name)?.into());
        let surroundings = [("TEPAL", binary("tepal")?), ("XTASK", binary("xtask")?), ("PATH", path(workspace))];
        counts += run_all(of(Kind::IntegrationTests), &surroundings, options)?;
    }
    if !options.unit && !options.integration && options.filter.is_none() && options.seeds > 0 {
        counts += simulated(&workspace::binary(&programs, "sim")?, options.seeds)?;
    }
    println!("\n{counts}");
    if counts.failed > 0 { Err(Failure::Reported) } else { Ok(()) }
}

/// The programs that integration tests start: `tepal` is TEPAL in their environment, the clients are in PATH.
fn path(workspace: &Workspace) -> OsString {
    let mut path = workspace.tools().into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    path
}

fn run_all<'a>(
    programs: impl Iterator<Item = &'a Program>,
    surroundings: &[(&str, OsString)],
    options: &Options,
) -> Result<Counts, Failure> {
    let mut counts = Counts::default();
    for program in programs {
        let mut tests = Command::new(&program.file);
        tests.current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder).arg("--show-output");
        tests.args(&options.filter);
        if program.kind == Kind::IntegrationTests {
            tests.arg(format!(
                "--test-threads={}",
                AT_ONCE * std::thread::available_parallelism().map_or(1, usize::from)
            ));
        }
        tests.envs(surroundings.iter().map(|(name, value)| (name, value)));
        counts += run_one(&program.name, &mut tests)?;
    }
    Ok(counts)
}

fn run_one(name: &str, tests: &mut Command) -> Result<Counts, Failure> {
    let ended = match process::capture(tests, PROGRAM_LIMIT) {
        Ok(ended) => ended,
        Err(late @ Failure::TooLong { .. }) => {
            println!("{name}: FAILED: {late}");
            return Ok(Counts { failed: 1, ..Counts::default() });
        }
        Err(failure) => return Err(failure),
    };
    let summary = summary::read(&ended.stdout, ended.status.success());
    if summary.counts != Counts::default() {
        println!("{name}: {} ({:.1} s)", summary.counts, ended.took.as_secs_f32());
    }
    for skip in &summary.skips {
        println!("  {} skipped: {}", skip.test, skip.reason);
    }
    if summary.counts.failed > 0 {
        println!("{}\n{name}: {}\n", summary::of_interest(&ended.stdout, &ended.stderr), ended.status);
    }
    Ok(summary.counts)
}

/// The examples in the documentation, which only cargo can build and run.
fn documentation(workspace: &Workspace, options: &Options) -> Result<Counts, Failure> {
    let mut cargo = workspace.cargo();
    cargo.args(["test", "--release", "--quiet", "--workspace", "--doc", "--no-fail-fast"]);
    cargo.args(options.filter.iter().flat_map(|filter| ["--", filter]));
    let ended = process::capture(&mut cargo, BUILD_LIMIT)?;
    let mut summary = summary::read(&ended.stdout, ended.status.success());
    if ended.status.success() && !ended.stdout.contains("test result:") {
        summary.counts = Counts::default(); // no examples at all
    }
    if summary.counts != Counts::default() {
        println!("examples in the documentation: {}", summary.counts);
    }
    if summary.counts.failed > 0 {
        println!("{}", summary::of_interest(&ended.stdout, &ended.stderr));
    }
    Ok(summary.counts)
}

/// All seeds are one test: whole histories with faults, and the checker's verdict on each.
fn simulated(simulator: &Path, seeds: u64) -> Result<Counts, Failure> {
    let began = Instant::now();
    let outcome = sim::with_kept(simulator, 0, seeds, PROGRAM_LIMIT, &[])?;
    let took = began.elapsed().as_secs_f32();
    Ok(match outcome {
        sim::Outcome::Passed => {
            println!("simulator: {seeds} seeds and the kept ones passed ({took:.1} s)");
            Counts { passed: 1, ..Counts::default() }
        }
        sim::Outcome::Failed { said, .. } => {
            println!("simulator: FAILED ({took:.1} s)\n{}\n", said.trim_end());
            Counts { failed: 1, ..Counts::default() }
        }
    })
}
