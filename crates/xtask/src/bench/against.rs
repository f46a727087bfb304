//! `cargo xtask bench against COMMIT`: the program as it was at a commit beside the program as it is, in the same run.
//!
//! Each job runs on one of the two after the other, so that the machine's drift hits both alike. A figure of the report is the median,
//! over the repetitions, of the ratio of now to then.

use super::report::{Circumstances, Report, figure, head, tsv};
use super::suite::{JOBS, Job, Run};
use super::systems::Tepal;
use super::targets::{Quantity, median};
use super::{JobOptions, Measured};
use crate::failure::Failure;
use crate::process;
use crate::workspace::{BUILD_LIMIT, Workspace};
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const THEN: &str = "then";
const NOW: &str = "now";
/// What git does here is local.
const GIT_LIMIT: Duration = Duration::from_secs(60);

#[derive(Args)]
pub struct Options {
    /// The commit to build and to compare with
    commit: String,
    #[command(flatten)]
    jobs: JobOptions,
    /// The program of that commit, if it has been built already
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// A cluster that both programs are measured with.
struct Setup {
    name: &'static str,
    title: &'static str,
    servers: &'static str,
    drives: &'static str,
    layout: &'static str,
}

const SETUPS: [Setup; 3] = [
    Setup { name: "chained", title: "Four servers, `chained`", servers: "4", drives: "1", layout: "chained" },
    Setup {
        name: "stripe",
        title: "One server with four drives, `stripe`",
        servers: "1",
        drives: "4",
        layout: "stripe",
    },
    Setup { name: "mirror", title: "Three servers, `mirror:3`", servers: "3", drives: "1", layout: "mirror:3" },
];

/// Many clients with one request each.
const MANY: [Job; 2] = [
    Job { name: "randread-4k-c64", rw: "randread", block: "4k", depth: "1", clients: "64" },
    Job { name: "randwrite-4k-c64", rw: "randwrite", block: "4k", depth: "1", clients: "64" },
];

pub fn run(workspace: &Workspace, options: &Options) -> Result<(), Failure> {
    let jobs = &options.jobs;
    let wanted = |job: &&Job| jobs.tests.is_empty() || jobs.tests.iter().any(|name| name == job.name);
    let chosen: Vec<&Job> = JOBS.iter().chain(&MANY).filter(wanted).collect();
    let commit = commit_of(workspace, &options.commit)?;
    let then = match &options.program {
        Some(program) => program.clone(),
        None => build(workspace, &commit)?,
    };
    let now = workspace.binary("tepal")?;
    let circumstances = Circumstances::here();
    let title = format!("Now beside commit {}", &commit[..12.min(commit.len())]);
    let mut text = head(&circumstances, "against", &title);
    text += &format!(
        "Drives in /dev/shm, all on one machine. Each job runs on one program after the other, {} times in turn, {} s each, on volumes of \
         {} filled before. A ratio is that of now to then, the median over the repetitions. CPU is the time that all server processes \
         take of a core for each I/O. Every run is in [against.tsv](against.tsv).\n",
        jobs.reps, jobs.runtime, jobs.size
    );
    let mut all = Vec::new();
    for setup in &SETUPS {
        let runs = measure(jobs, &chosen, setup, [(THEN, &then), (NOW, &now)])?;
        text += &table(setup.title, &chosen, &runs);
        all.extend(runs.into_iter().map(|run| Run { system: format!("{}-{}", setup.name, run.system), ..run }));
    }
    let files = vec![("against.tsv".to_owned(), tsv(&all))];
    let report = Report { name: "against", text, files, targets: Vec::new() };
    report.publish(workspace, jobs.tests.is_empty(), jobs.strict)
}

fn measure(
    options: &JobOptions,
    jobs: &[&Job],
    setup: &Setup,
    programs: [(&'static str, &PathBuf); 2],
) -> Result<Vec<Run>, Failure> {
    println!("{}", setup.title);
    let shape = ["--servers", setup.servers, "--drives", setup.drives];
    let volume = [format!("v0={},layout={}", options.size, setup.layout)];
    let mut clusters = Vec::new();
    for (name, program) in programs {
        clusters.push((name, Tepal::start(program, &shape, &options.drive_size, &volume)?));
    }
    let system =
        |(name, tepal): &(&'static str, Tepal)| Measured { name, disk: tepal.disk("v0"), processes: tepal.processes() };
    options.measure_these(jobs, clusters.iter().map(system).collect())
}

/// The commit's full name.
fn commit_of(workspace: &Workspace, name: &str) -> Result<String, Failure> {
    let mut git = Command::new("git");
    git.current_dir(&workspace.root).args(["rev-parse", "--verify", "--quiet", &format!("{name}^{{commit}}")]);
    let found = process::succeed(&mut git, GIT_LIMIT);
    found
        .map(|ended| ended.stdout.trim().to_owned())
        .map_err(|_| Failure::Usage(format!("no commit is called '{name}'")))
}

/// Builds a commit's program in a clone of its own, which is kept: another comparison with the same commit builds nothing.
fn build(workspace: &Workspace, commit: &str) -> Result<PathBuf, Failure> {
    let clone = workspace.target.join("against").join(commit);
    if !clone.join("Cargo.toml").exists() {
        let mut git = Command::new("git");
        git.args(["clone", "--quiet", "--no-checkout"]).arg(&workspace.root).arg(&clone);
        process::succeed(&mut git, GIT_LIMIT)?;
        let mut git = Command::new("git");
        process::succeed(git.current_dir(&clone).args(["checkout", "--quiet", "--detach", commit]), GIT_LIMIT)?;
    }
    println!("building {commit} in {}", clone.display());
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.current_dir(&clone).args([
        "build",
        "--release",
        "--quiet",
        "--locked",
        "--package",
        "tepal",
        "--bin",
        "tepal",
    ]);
    cargo.arg("--target-dir").arg(clone.join("target"));
    process::succeed(&mut cargo, BUILD_LIMIT)?;
    Ok(clone.join(Path::new("target/release/tepal")))
}

fn table(title: &str, jobs: &[&Job], runs: &[Run]) -> String {
    let mut text = format!(
        "\n## {title}\n\n| job | then | now | ratio | p50 | p99 | CPU |\n| --- | --- | --- | --- | --- | --- | --- |\n"
    );
    for job in jobs {
        let (quantity, unit) = match job.block {
            "4k" => (Quantity::Iops, "IOPS"),
            _ => (Quantity::Mebibytes, "MiB/s"),
        };
        let of = |system: &'static str| runs.iter().filter(move |run| run.system == system && run.job == job.name);
        let value = |system| median(of(system).filter_map(|run| quantity.of(run)).collect()).map_or("-".into(), figure);
        let ratio =
            |quantity| ratio_of_pairs(of(THEN), of(NOW), quantity).map_or("-".into(), |ratio| format!("{ratio:.2}"));
        let ratios = [quantity, Quantity::MedianLatency, Quantity::HighLatency, Quantity::Cpu].map(ratio);
        text +=
            &format!("| {} | {} {unit} | {} {unit} | {} |\n", job.name, value(THEN), value(NOW), ratios.join(" | "));
    }
    text
}

/// The median of the ratios of runs of the same repetition.
fn ratio_of_pairs<'a>(
    then: impl Iterator<Item = &'a Run>,
    now: impl Iterator<Item = &'a Run> + Clone,
    quantity: Quantity,
) -> Option<f64> {
    let ratio = |then: &Run| {
        let now = now.clone().find(|now| now.repetition == then.repetition)?;
        let before = quantity.of(then).filter(|before| *before > 0.0)?;
        Some(quantity.of(now)? / before)
    };
    median(then.filter_map(ratio).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(system: &str, repetition: u32, iops: f64) -> Run {
        Run {
            system: system.into(),
            job: "randread-4k-q1".into(),
            repetition,
            iops,
            mebibytes: 1.0,
            p50_us: 10.0,
            p99_us: 20.0,
            cpu_us: None,
        }
    }

    #[test]
    fn ratios_pair_runs_of_one_repetition_before_the_median() {
        let then = [run(THEN, 1, 100.0), run(THEN, 2, 10.0), run(THEN, 3, 1.0)];
        let now = [run(NOW, 3, 3.0), run(NOW, 1, 100.0), run(NOW, 2, 20.0)];
        assert_eq!(ratio_of_pairs(then.iter(), now.iter(), Quantity::Iops), Some(2.0));
        assert_eq!(ratio_of_pairs(then.iter(), now.iter(), Quantity::Cpu), None, "it wasn't measured");
        assert_eq!(ratio_of_pairs(then.iter(), now[..1].iter(), Quantity::Iops), Some(3.0), "the others have no pair");
    }

    #[test]
    fn the_table_names_every_job_and_shows_what_is_missing() {
        let jobs: Vec<&Job> = JOBS.iter().take(2).collect();
        let text = table("Setup", &jobs, &[run(THEN, 1, 100.0), run(NOW, 1, 150.0)]);
        assert!(text.contains("| randread-4k-q1 | 100 IOPS | 150 IOPS | 1.50 | 1.00 | 1.00 | - |"), "{text}");
        assert!(text.contains("| randread-4k-q32 | - IOPS | - IOPS | - | - | - | - |"), "{text}");
    }
}
