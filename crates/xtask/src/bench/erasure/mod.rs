//! `cargo xtask bench erasure`: volumes of an erasure code beside whole copies and plain stripes, over six servers (RAAC, section 5).
//!
//! With drives in memory the processor is the limit: what small writes and code cost. With emulated drives their bandwidth is: how much of
//! it large requests get, what many clients get whose requests fit no stripe, what one lost server costs, and how long it takes until what
//! it had is elsewhere. How a plain read-modify-write of stripes would do isn't measured: there is none.

mod drives;
mod plots;
mod rebuild;

use super::JobOptions;
use super::report::{Circumstances, Report, figure, head, tsv, verdicts};
use super::suite::{Job, Run, Suite};
use super::systems::Tepal;
use super::targets::{Bound, Quantity, Target, median_of, ratio};
use crate::failure::Failure;
use crate::workspace::Workspace;
use clap::Args;
use drives::{CLIENTS, DEGRADED, DRIVE, READS};
use std::path::Path;
use std::time::Duration;

/// The volumes, named by their layouts.
const LAYOUTS: [&str; 5] = ["stripe", "mirror:2", "mirror:3", "ec:2+1", "ec:4+2"];
const SERVERS: [&str; 4] = ["--servers", "6", "--drives", "1"];
/// For what a fill leaves to be done.
const SETTLE: Duration = Duration::from_secs(15);

/// What the figures come from.
const WHY: &str = "\nA write over what is there goes through the log: K + 1 whole copies there, and later (M + K) / M of it in place. Six \
    drives of 30 MiB/s take 180 / (3 + 1.5) = 40 MiB/s of such writes with `ec:4+2`, and 180 / 1.5 = 120 MiB/s of first writes, which \
    skip the log. Short jobs run beside what the jobs before them have left to be destaged, on the same processor: the small writes that \
    go on for long show what is lasting.\n";

#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    jobs: JobOptions,
    /// Seconds of the small writes that show the steady state
    #[arg(long, default_value_t = 600)]
    steady: u64,
    /// Only with drives in memory; then nothing is saved
    #[arg(long)]
    jobs_only: bool,
}

pub fn run(workspace: &Workspace, options: &Options) -> Result<(), Failure> {
    let (jobs, program) = (&options.jobs, workspace.binary("tepal")?);
    let circumstances = Circumstances::here();
    let in_memory = in_memory(&program, jobs)?;
    let steady = if options.jobs_only { Vec::new() } else { steady(&program, jobs, options.steady)? };
    let emulated = if options.jobs_only { Vec::new() } else { drives::measure(&program, jobs)? };
    let rebuilt = if options.jobs_only { None } else { Some(rebuild::measure(&program)?) };
    let mut targets = [of_memory(&in_memory), of_steady(&steady), of_emulated(&emulated)].concat();
    targets.extend(rebuilt.as_ref().map(rebuild::Rebuilt::target));
    let mut text = head(&circumstances, "erasure", "Erasure codes beside whole copies");
    text += &format!(
        "Six servers with one drive each, all on one machine, through one of them. Each job runs on one volume after the other, {} times in \
         turn, {} s each, on volumes of {} filled before. Figures are medians. Every run is in [erasure.tsv](erasure.tsv).\n\n",
        jobs.reps, jobs.runtime, jobs.size
    );
    text += &verdicts(&targets);
    text += WHY;
    text += &table("Drives in memory", &in_memory);
    text += &table(&format!("Small writes for {} s", options.steady), &steady);
    text += &table(&format!("Drives slowed to {DRIVE}"), &emulated);
    text +=
        "\n![Sequential requests beside plain stripes](erasure-chunks.svg)\n\n![Many clients](erasure-clients.svg)\n";
    text += &rebuilt.as_ref().map(rebuild::Rebuilt::section).unwrap_or_default();
    let chunks = ("erasure-chunks.svg".to_owned(), plots::chunks(&emulated, &circumstances.date));
    let clients = ("erasure-clients.svg".to_owned(), plots::clients(&emulated, &circumstances.date));
    let all: Vec<Run> = [in_memory, steady, emulated].concat();
    let files = vec![("erasure.tsv".to_owned(), tsv(&all)), chunks, clients];
    let report = Report { name: "erasure", text, files, targets };
    report.publish(workspace, jobs.tests.is_empty() && !options.jobs_only, jobs.strict)
}

fn volumes(size: &str, layouts: &[&str]) -> Vec<String> {
    layouts.iter().map(|layout| format!("{}={size},layout={layout}", name(layout))).collect()
}

/// A layout as a volume's name.
fn name(layout: &str) -> String {
    layout.replace([':', '+'], "-")
}

fn in_memory(program: &Path, options: &JobOptions) -> Result<Vec<Run>, Failure> {
    let tepal = Tepal::start(program, &SERVERS, &options.drive_size, &volumes(&options.size, &LAYOUTS))?;
    let suite = Suite { seconds: options.runtime, size: options.size.clone(), program: None };
    let mut runs = Vec::new();
    let mut layouts = LAYOUTS.to_vec();
    for layout in &layouts {
        std::thread::sleep(SETTLE);
        // The first writes of new stripes skip the log.
        let fill = Job { name: "fill-1m-q8", rw: "write", block: "1M", depth: "8", clients: "1" };
        runs.push(suite.run_once(layout, &tepal.disk(&name(layout)), &fill, &tepal.processes())?);
        println!("{}", runs[runs.len() - 1].tsv());
    }
    for repetition in 1..=options.reps {
        for job in options.jobs()? {
            for layout in &layouts {
                let run = suite.run(layout, &tepal.disk(&name(layout)), job, repetition, &tepal.processes())?;
                println!("{}", run.tsv());
                runs.push(run);
            }
        }
        layouts.rotate_left(1);
    }
    Ok(runs)
}

/// Small writes for so long that the log can only take what goes in place.
fn steady(program: &Path, options: &JobOptions, seconds: u64) -> Result<Vec<Run>, Failure> {
    let tepal = Tepal::start(program, &SERVERS, &options.drive_size, &volumes(&options.size, &LAYOUTS))?;
    let suite = Suite { seconds, size: options.size.clone(), program: None };
    let job = Job { name: "randwrite-4k-q32-steady", rw: "randwrite", block: "4k", depth: "32", clients: "1" };
    let mut runs = Vec::new();
    for layout in ["mirror:2", "ec:2+1", "mirror:3", "ec:4+2"] {
        let disk = tepal.disk(&name(layout));
        suite.fill(&disk)?;
        let run = suite.run(layout, &disk, &job, 1, &tepal.processes())?;
        println!("{}", run.tsv());
        runs.push(run);
    }
    Ok(runs)
}

fn of_memory(runs: &[Run]) -> Vec<Target> {
    use Bound::{AtLeast, AtMost};
    use Quantity::{Cpu, Iops, MedianLatency};
    let mut targets = Vec::new();
    for (code, copies) in [("ec:2+1", "mirror:2"), ("ec:4+2", "mirror:3")] {
        for (job, quantity, bound) in [
            ("randwrite-4k-q1", Iops, AtLeast(0.9)),
            ("randwrite-4k-q1", MedianLatency, AtMost(1.1)),
            ("randwrite-4k-q32", Iops, AtLeast(0.9)),
        ] {
            targets.push(target(runs, (code, copies), job, quantity, bound));
        }
    }
    targets.push(target(runs, ("ec:4+2", "stripe"), "fill-1m-q8", Cpu, AtMost(1.65)));
    targets
}

fn of_steady(runs: &[Run]) -> Vec<Target> {
    let pairs = [("ec:2+1", "mirror:2"), ("ec:4+2", "mirror:3")];
    let of_pair = |pair| target(runs, pair, "randwrite-4k-q32-steady", Quantity::Iops, Bound::AtLeast(0.9));
    if runs.is_empty() { Vec::new() } else { pairs.into_iter().map(of_pair).collect() }
}

fn of_emulated(runs: &[Run]) -> Vec<Target> {
    use Bound::AtLeast;
    use Quantity::{Iops, Mebibytes};
    if runs.is_empty() {
        return Vec::new();
    }
    let mut targets = vec![
        // Of six drives, four have data and two code.
        target(runs, ("ec:4+2", "stripe"), "fill-1m-q16", Mebibytes, AtLeast(0.9 * 4.0 / 6.0)),
        target(runs, ("ec:2+1", "stripe"), "fill-1m-q16", Mebibytes, AtLeast(0.9 * 2.0 / 3.0)),
        target(runs, ("ec:4+2", "stripe"), "write-1m-q16", Mebibytes, AtLeast(0.9 * 4.0 / 6.0)),
        target(runs, ("ec:4+2", "stripe"), "read-1m-q16", Mebibytes, AtLeast(0.95)),
        target(runs, ("ec:2+1", "stripe"), "read-1m-q16", Mebibytes, AtLeast(0.95)),
        target(runs, (DEGRADED, "ec:4+2"), READS.name, Iops, AtLeast(0.6)),
    ];
    for job in &CLIENTS {
        // Of each six fragments that are written, four are data.
        targets.push(target(runs, ("ec:4+2", "stripe"), job.name, Mebibytes, AtLeast(0.9 * 4.0 / 6.0)));
    }
    targets
}

fn target(runs: &[Run], (system, to): (&str, &str), job: &str, quantity: Quantity, bound: Bound) -> Target {
    let what = format!("{system} {job}: {} in multiples of {to}", quantity.unit());
    Target { what, bound, measured: ratio(runs, system, to, job, quantity) }
}

/// A row for each job, a column for each volume.
fn table(title: &str, runs: &[Run]) -> String {
    let (mut systems, mut jobs): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for run in runs {
        if !systems.contains(&&*run.system) {
            systems.push(&run.system);
        }
        if !jobs.contains(&&*run.job) {
            jobs.push(&run.job);
        }
    }
    if runs.is_empty() {
        return String::new();
    }
    let mut text = format!("\n## {title}\n\n| job | | {} |\n", systems.join(" | "));
    text += &format!("| --- | ---{} |\n", " | ---".repeat(systems.len()));
    for job in jobs {
        let (quantity, unit) = match job.contains("1m") {
            true => (Quantity::Mebibytes, "MiB/s"),
            false => (Quantity::Iops, "IOPS"),
        };
        let cell = |system: &&str| {
            let of = |quantity| median_of(runs, system, job, quantity).map(figure);
            let (Some(value), Some(p50)) = (of(quantity), of(Quantity::MedianLatency)) else { return "-".to_owned() };
            let cpu = of(Quantity::Cpu).map_or(String::new(), |cpu| format!(", cpu {cpu} us"));
            format!("{value} (p50 {p50} us{cpu})")
        };
        text += &format!("| {job} | {unit} | {} |\n", systems.iter().map(cell).collect::<Vec<_>>().join(" | "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::suite::JOBS;

    fn run(system: &str, job: &str, iops: f64) -> Run {
        let (system, job) = (system.to_owned(), job.to_owned());
        Run { system, job, repetition: 1, iops, mebibytes: iops, p50_us: 5.0, p99_us: 9.0, cpu_us: None }
    }

    #[test]
    fn volumes_are_named_by_their_layouts() {
        assert_eq!(volumes("1G", &["ec:4+2", "stripe"]), ["ec-4-2=1G,layout=ec:4+2", "stripe=1G,layout=stripe"]);
    }

    #[test]
    fn codes_are_judged_by_copies_that_outlive_as_much() {
        let runs = [run("mirror:3", "randwrite-4k-q32", 100.0), run("ec:4+2", "randwrite-4k-q32", 89.0)];
        let targets = of_memory(&runs);
        let judged = targets.iter().find(|target| target.what.starts_with("ec:4+2 randwrite-4k-q32")).unwrap();
        assert_eq!((judged.measured, judged.verdict()), (Some(0.89), "MISSED"));
        assert!(JOBS.iter().any(|job| judged.what.contains(job.name)));
    }

    #[test]
    fn the_table_shows_what_is_missing() {
        let text = table("t", &[run("a", "x", 1.0), run("b", "read-1m", 2.0)]);
        assert!(text.contains("| x | IOPS | 1.00 (p50 5.00 us) | - |"), "{text}");
        assert!(text.contains("| read-1m | MiB/s | - | 2.00 (p50 5.00 us) |"), "{text}");
    }
}
