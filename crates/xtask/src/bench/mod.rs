//! `cargo xtask bench`: side by side with others, in one run.
//!
//! The machine's speed drifts from hour to hour, so nothing is compared with a figure of another run: every job runs on one
//! system after the other, repetition by repetition, and noise hits all alike.

mod access;
mod against;
mod change;
mod cluster;
mod erasure;
mod footprint;
mod importing;
mod local;
mod plot;
mod report;
mod returning;
mod shapes;
mod suite;
mod systems;
mod targets;
mod vinum;

use crate::failure::Failure;
use crate::process;
use crate::workspace::Workspace;
use clap::{Args, Subcommand};
use report::{Circumstances, Report, Subject};
use std::path::PathBuf;
use suite::{Disk, JOBS, Job, Run, Suite};
use targets::Target;

/// What the benches run, and the packages that have it. All but the first are for comparisons.
const TOOLS: [(&str, &str); 3] = [("fio", "fio"), ("nbdkit", "nbdkit"), ("qemu-io", "qemu-utils")];

#[derive(Subcommand)]
pub enum Bench {
    /// One server with four drives beside nbdkit
    Local(local::Options),
    /// Four servers beside nbdkit, and beside Ceph if it can be started
    Cluster(cluster::Options),
    /// What it costs to change something while it's used: snapshots, clones, another server, another layout
    Change(change::Options),
    /// Erasure codes beside whole copies and stripes
    Erasure(erasure::Options),
    /// Volumes of plexes: beside one drive, in the shapes of Vinum's paper, and applied from a file
    Vinum(vinum::Options),
    /// What TLS, encryption, rights and limits cost, and whether limits hold
    Access(access::Options),
    /// A sparse image of a virtual machine, imported
    Import(importing::Options),
    /// Another commit's program beside this one, in the same run
    Against(against::Options),
}

/// How jobs are run, of each bench.
#[derive(Args)]
pub struct JobOptions {
    /// Seconds a job runs
    #[arg(long, default_value_t = 8)]
    runtime: u64,
    /// How often each job runs
    #[arg(long, default_value_t = 3)]
    reps: u32,
    /// Size of each volume
    #[arg(long, default_value = "2G")]
    size: String,
    /// Size of each of the four drives
    #[arg(long, default_value = "4G")]
    drive_size: String,
    /// Only these jobs; then nothing is saved
    #[arg(long, value_delimiter = ',')]
    tests: Vec<String>,
    /// Another program that runs fio: PROGRAM LABEL nbd URI, with TESTS, REPS, RUNTIME and SIZE in its environment
    #[arg(long)]
    suite: Option<PathBuf>,
    /// End with status 1 if a target is missed
    #[arg(long)]
    strict: bool,
}

/// A system as it's measured.
struct Measured {
    name: &'static str,
    disk: Disk,
    /// Whose processor time is counted; none if it isn't.
    processes: Vec<u32>,
}

pub fn run(workspace: &Workspace, bench: &Bench) -> Result<(), Failure> {
    let tools = match bench {
        Bench::Access(_) | Bench::Change(_) | Bench::Against(_) | Bench::Erasure(_) | Bench::Vinum(_) => &TOOLS[..1],
        Bench::Import(_) => &TOOLS[2..],
        Bench::Local(_) | Bench::Cluster(_) => &TOOLS,
    };
    for &(tool, package) in tools {
        process::find(tool).ok_or(Failure::Tool(tool, package))?;
    }
    match bench {
        Bench::Access(options) => access::run(workspace, options),
        Bench::Local(options) => local::run(workspace, options),
        Bench::Cluster(options) => cluster::run(workspace, options),
        Bench::Change(options) => change::run(workspace, options),
        Bench::Import(options) => importing::run(workspace, options),
        Bench::Against(options) => against::run(workspace, options),
        Bench::Erasure(options) => erasure::run(workspace, options),
        Bench::Vinum(options) => vinum::run(workspace, options),
    }
}

impl JobOptions {
    fn jobs(&self) -> Result<Vec<&'static Job>, Failure> {
        if self.tests.is_empty() {
            return Ok(JOBS.iter().collect());
        }
        let known = || JOBS.iter().map(|job| job.name).collect::<Vec<_>>().join(", ");
        let find = |name: &String| {
            let job = JOBS.iter().find(|job| job.name == name);
            job.ok_or_else(|| Failure::Usage(format!("no job is called '{name}': there are {}", known())))
        };
        self.tests.iter().map(find).collect()
    }

    fn measure(&self, systems: Vec<Measured>) -> Result<Vec<Run>, Failure> {
        self.measure_these(&self.jobs()?, systems)
    }

    fn measure_these(&self, jobs: &[&Job], mut systems: Vec<Measured>) -> Result<Vec<Run>, Failure> {
        let suite = Suite { seconds: self.runtime, size: self.size.clone(), program: self.suite.clone() };
        for system in &systems {
            suite.fill(&system.disk)?;
        }
        println!("{}", report::TSV_HEAD);
        let mut runs = Vec::new();
        for repetition in 1..=self.reps {
            for job in jobs {
                for Measured { name, disk, processes } in &systems {
                    let run = suite.run(name, disk, job, repetition, processes)?;
                    println!("{}", run.tsv());
                    runs.push(run);
                }
            }
            systems.rotate_left(1); // nobody is always the first after the fill, or always the last
        }
        Ok(runs)
    }

    fn conclude(
        &self,
        workspace: &Workspace,
        subject: &Subject<'_>,
        runs: &[Run],
        targets: Vec<Target>,
        (remark, is_whole): (&str, bool),
    ) -> Result<(), Failure> {
        let circumstances = Circumstances::here();
        let text = report::of_jobs(&circumstances, subject, runs, &targets, remark);
        let subtitle = format!("medians of {}, {}", self.reps, circumstances.date);
        let name = subject.name;
        let files = vec![
            (format!("{name}.tsv"), report::tsv(runs)),
            (format!("{name}.svg"), plot::jobs::svg(runs, subject.systems, &subtitle)),
        ];
        let report = Report { name, text, files, targets };
        report.publish(workspace, self.tests.is_empty() && is_whole, self.strict)
    }
}
