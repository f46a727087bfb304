//! `cargo xtask bench local`: one server with four drives in memory, side by side with nbdkit on one file in memory.

use super::report::Subject;
use super::suite::JOBS;
use super::systems::{Nbdkit, Tepal};
use super::targets::{self, Extra, MIRROR, NBDKIT, STRIPE};
use super::{JobOptions, Measured, footprint};
use crate::failure::Failure;
use crate::sim::{self, Outcome};
use crate::workspace::Workspace;
use clap::Args;
use std::time::{Duration, Instant};

const IDLE: Duration = Duration::from_secs(10);
/// After the last client has gone: what it left to do is not idleness.
const SETTLE: Duration = Duration::from_secs(30);
const SEEDS: u64 = 1000;
const SEEDS_LIMIT: Duration = Duration::from_secs(1800);

#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    jobs: JobOptions,
    /// Only the jobs, not what else is measured: idleness, restarts, the simulator; then nothing is saved
    #[arg(long)]
    jobs_only: bool,
}

pub fn run(workspace: &Workspace, options: &Options) -> Result<(), Failure> {
    let jobs = &options.jobs;
    let (runs, mut extra) = {
        let nbdkit = Nbdkit::start(&jobs.size)?;
        let volumes = [("stripe", "stripe"), ("mirror", "mirror:2")]
            .map(|(name, layout)| format!("{name}={},layout={layout}", jobs.size));
        let shape = ["--servers", "1", "--drives", "4"];
        let tepal = Tepal::start(&workspace.binary("tepal")?, &shape, &jobs.drive_size, &volumes)?;
        let system = |name, disk| Measured { name, disk, processes: Vec::new() };
        let runs = jobs.measure(vec![
            system(NBDKIT, nbdkit.disk()),
            system(STRIPE, tepal.disk("stripe")),
            system(MIRROR, tepal.disk("mirror")),
        ])?;
        let extra = if options.jobs_only { Extra::default() } else { measure_server(jobs, &tepal)? };
        (runs, extra)
    };
    if !options.jobs_only {
        extra.seeds_seconds = measure_simulator(workspace)?;
    }
    let targets = targets::of_one_server(&runs, &extra);
    let remark = extra.resident_mib.map_or(String::new(), |resident| {
        format!("\nResident memory of the server after all jobs: {resident:.0} MiB.\n")
    });
    let subject = Subject {
        name: "local",
        title: "One machine: Tepal beside nbdkit",
        setting: "One server with four drives in /dev/shm, and nbdkit's file plugin on one file in /dev/shm, by fio's NBD \
                  engine on unix sockets",
        systems: &[NBDKIT, STRIPE, MIRROR],
        seconds: jobs.runtime,
        repetitions: jobs.reps,
        size: &jobs.size,
    };
    jobs.conclude(workspace, &subject, &runs, targets, (&remark, !options.jobs_only))
}

/// What a user notices besides speed: memory, rest, and how soon it's back.
fn measure_server(options: &JobOptions, tepal: &Tepal) -> Result<Extra, Failure> {
    let processes = tepal.processes();
    if processes.is_empty() {
        return Err(Failure::Usage("the cluster's processes can't be found".into()));
    }
    let resident_mib = Some(footprint::resident(&processes) as f64 / f64::from(1 << 20));
    std::thread::sleep(SETTLE);
    let idle_percent = Some(footprint::cpu_share(&processes, IDLE) * 100.0);
    let load = JOBS.iter().find(|job| job.name == "randwrite-4k-q32").expect("it's in the table");
    let mut restarts = Vec::new();
    for _ in 0..options.reps {
        restarts.push(tepal.restart_under(load, "stripe", &options.size)?.as_secs_f64() * 1000.0);
    }
    println!("idle {idle_percent:.4?} %, resident {resident_mib:.0?} MiB, restarts {restarts:.0?} ms");
    Ok(Extra { idle_percent, resident_mib, restart_ms: targets::median(restarts), seeds_seconds: None })
}

fn measure_simulator(workspace: &Workspace) -> Result<Option<f64>, Failure> {
    let simulator = workspace.binary("sim")?;
    let began = Instant::now();
    match sim::many(&simulator, 0, SEEDS, SEEDS_LIMIT, &[])? {
        Outcome::Passed => Ok(Some(began.elapsed().as_secs_f64())),
        Outcome::Failed { said, .. } => {
            println!("{said}\nthe simulator failed: its time says nothing");
            Ok(None)
        }
    }
}
