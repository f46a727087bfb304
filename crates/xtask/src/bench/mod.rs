//! `cargo xtask bench local`: one server with four drives in memory, side by side with nbdkit on one file in memory.
//!
//! The machine's speed drifts from hour to hour, so nothing is compared with a figure of another run: every job runs on one
//! system after the other, repetition by repetition, and noise hits all alike.

mod footprint;
mod plot;
mod report;
mod suite;
mod systems;
mod targets;

use crate::failure::Failure;
use crate::process;
use crate::sim::{self, Outcome};
use crate::workspace::Workspace;
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use suite::{JOBS, Job, Run, Suite};
use systems::{Nbdkit, Tepal};
use targets::{Extra, MIRROR, NBDKIT, STRIPE};

const IDLE: Duration = Duration::from_secs(10);
/// After the last client has gone: what it left to do is not idleness.
const SETTLE: Duration = Duration::from_secs(30);
const SEEDS: u64 = 1000;
const SEEDS_LIMIT: Duration = Duration::from_secs(1800);

#[derive(Args)]
pub struct Options {
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
    /// Only the jobs, not what else is measured: idleness, restarts, the simulator; then nothing is saved
    #[arg(long)]
    jobs_only: bool,
    /// End with status 1 if a target is missed
    #[arg(long)]
    strict: bool,
}

pub fn run(workspace: &Workspace, options: &Options) -> Result<(), Failure> {
    for (tool, package) in [("fio", "fio"), ("nbdkit", "nbdkit"), ("qemu-io", "qemu-utils")] {
        process::find(tool).ok_or(Failure::Tool(tool, package))?;
    }
    let jobs = jobs(&options.tests)?;
    let circumstances = report::Circumstances::here();
    let (runs, mut extra) = {
        let nbdkit = Nbdkit::start(&options.size)?;
        let volumes = [("stripe", "stripe"), ("mirror", "mirror:2")]
            .map(|(name, layout)| format!("{name}={},layout={layout}", options.size));
        let tepal = Tepal::start(&workspace.binary("tepal")?, &options.drive_size, &volumes)?;
        let runs = measure_jobs(options, &jobs, &nbdkit, &tepal)?;
        let extra = if options.jobs_only { Extra::default() } else { measure_server(options, &tepal)? };
        (runs, extra)
    };
    if !options.jobs_only {
        extra.seeds_seconds = measure_simulator(workspace)?;
    }
    let targets = targets::targets(&runs, &extra);
    let method = report::Method { seconds: options.runtime, repetitions: options.reps, size: options.size.clone() };
    let text = report::markdown(&circumstances, &method, &runs, &extra, &targets);
    println!("\n{text}");
    if options.tests.is_empty() && !options.jobs_only {
        let subtitle = format!("medians of {}, {}", options.reps, circumstances.date);
        let folder = workspace.root.join("bench/results");
        save(&folder, "local.md", &text)?;
        save(&folder, "local.tsv", &report::tsv(&runs))?;
        save(&folder, "local.svg", &plot::svg(&runs, &subtitle))?;
        println!("saved: bench/results/local.md, local.tsv, local.svg");
    }
    let missed = targets.iter().filter(|target| target.is_missed()).count();
    if missed > 0 {
        println!("{missed} targets MISSED");
    }
    if missed > 0 && options.strict { Err(Failure::Reported) } else { Ok(()) }
}

fn jobs(wanted: &[String]) -> Result<Vec<&'static Job>, Failure> {
    if wanted.is_empty() {
        return Ok(JOBS.iter().collect());
    }
    let known = || JOBS.iter().map(|job| job.name).collect::<Vec<_>>().join(", ");
    let find = |name: &String| {
        let job = JOBS.iter().find(|job| job.name == name);
        job.ok_or_else(|| Failure::Usage(format!("no job is called '{name}': there are {}", known())))
    };
    wanted.iter().map(find).collect()
}

fn measure_jobs(options: &Options, jobs: &[&Job], nbdkit: &Nbdkit, tepal: &Tepal) -> Result<Vec<Run>, Failure> {
    let suite = Suite { seconds: options.runtime, size: options.size.clone(), program: options.suite.clone() };
    let mut systems = [(NBDKIT, nbdkit.uri.clone()), (STRIPE, tepal.uri("stripe")), (MIRROR, tepal.uri("mirror"))];
    for (_, uri) in &systems {
        suite.fill(uri)?;
    }
    println!("{}", report::TSV_HEAD);
    let mut runs = Vec::new();
    for repetition in 1..=options.reps {
        for job in jobs {
            for (system, uri) in &systems {
                let run = suite.run(system, uri, job, repetition)?;
                println!("{}", run.tsv());
                runs.push(run);
            }
        }
        systems.rotate_left(1); // nobody is always the first after the fill, or always the last
    }
    Ok(runs)
}

/// What a user notices besides speed: memory, rest, and how soon it's back.
fn measure_server(options: &Options, tepal: &Tepal) -> Result<Extra, Failure> {
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

fn save(folder: &Path, name: &str, text: &str) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(Failure::file(folder))?;
    let file = folder.join(name);
    std::fs::write(&file, text).map_err(Failure::file(&file))
}
