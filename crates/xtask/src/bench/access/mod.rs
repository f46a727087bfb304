//! `cargo xtask bench access`: what keeping others out costs. TLS beside plain TCP, volumes that are encrypted beside others that aren't,
//! rights that are looked up beside an operator's, and whether limits hold what they say and protect neighbours.

mod noisy;
mod place;

use super::JobOptions;
use super::report::{Circumstances, Report, figure, head, tsv, verdicts};
use super::suite::{Job, Run, Suite};
use super::targets::{Bound, Quantity, Target, median_of, ratio};
use crate::failure::Failure;
use crate::workspace::Workspace;
use clap::Args;
use noisy::Noise;
use place::Place;
use std::path::PathBuf;
use std::time::Duration;

/// What is compared, each named by how a client comes, or by the volume.
const PLAIN: &str = "plain";
const ENCRYPTED: &str = "encrypted";
const TCP: &str = "tcp";
const TLS: &str = "tls";
const OPERATOR: &str = "gateway-operator";
const HOST: &str = "gateway-host";

const READS: Job = Job { name: "randread-4k-q32", rw: "randread", block: "4k", depth: "32", clients: "1" };
const WRITES: Job = Job { name: "randwrite-4k-q32", rw: "randwrite", block: "4k", depth: "32", clients: "1" };
const LARGE_READS: Job = Job { name: "read-1m-q8", rw: "read", block: "1M", depth: "8", clients: "1" };
const LARGE_WRITES: Job = Job { name: "write-1m-q8", rw: "write", block: "1M", depth: "8", clients: "1" };

/// Limits, and the seconds over which they are looked at.
const REQUESTS: f64 = 2000.0;
const MEBIBYTES: f64 = 100.0;
const LIMITED: u64 = 10;
/// For what a fill leaves to be done.
const SETTLE: Duration = Duration::from_secs(10);

#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    jobs: JobOptions,
    /// Seconds of each part of the noisy neighbour's story
    #[arg(long, default_value_t = 15)]
    part: u64,
    /// Measure this program, which was built elsewhere
    #[arg(long)]
    program: Option<PathBuf>,
}

pub fn run(workspace: &Workspace, options: &Options) -> Result<(), Failure> {
    let jobs = &options.jobs;
    let program = options.program.clone().map_or_else(|| workspace.binary("tepal"), Ok)?;
    let place = Place::start(&program, &jobs.drive_size, &jobs.size)?;
    let suite = Suite { seconds: jobs.runtime, size: jobs.size.clone(), program: None };
    for volume in [PLAIN, ENCRYPTED] {
        suite.fill(&place.local(volume))?;
    }
    std::thread::sleep(SETTLE);
    let runs = compared(&place, jobs)?;
    let limits = limited(&place, &jobs.size)?;
    let noise = Noise::make(&place, options.part)?;
    let targets = [of_runs(&runs), of_limits(&limits), noise.targets()].concat();
    let circumstances = Circumstances::here();
    let mut text = head(&circumstances, "access", "What keeping others out costs");
    text += &format!(
        "One server with four drives in memory. Each job runs one way after the other, {} times in turn, {} s each, on volumes of {} filled \
         before, by fio on the same machine, so that fio's own TLS counts too. Figures are medians. Every run is in \
         [access.tsv](access.tsv).\n\n",
        jobs.reps, jobs.runtime, jobs.size
    );
    text += &verdicts(&targets);
    text += &table(&runs);
    text += &format!("\n## Limits over {LIMITED} s\n\n| limit | passed |\n| --- | --- |\n");
    for (what, share) in &limits {
        text += &format!("| {what} | {share:.4} of it |\n");
    }
    text += &noise.section();
    let files =
        vec![("access.tsv".to_owned(), tsv(&runs)), ("access-noisy.svg".to_owned(), noise.svg(&circumstances.date))];
    Report { name: "access", text, files, targets }.publish(workspace, jobs.tests.is_empty(), jobs.strict)
}

/// One way after the other, so that noise hits all alike.
fn compared(place: &Place, options: &JobOptions) -> Result<Vec<Run>, Failure> {
    let mut runs = Vec::new();
    let suite = Suite { seconds: options.runtime, size: options.size.clone(), program: None };
    for repetition in 1..=options.reps {
        for job in [&READS, &LARGE_READS, &WRITES, &LARGE_WRITES] {
            let mut ways = vec![PLAIN, ENCRYPTED];
            if job.rw.contains("read") {
                ways.extend([TCP, TLS]);
            }
            if job.name == READS.name {
                ways.extend([OPERATOR, HOST]);
            }
            let turn = repetition as usize % ways.len();
            ways.rotate_left(turn);
            for way in ways {
                let run = match way {
                    TLS => place.run_over_tls(way, job, &suite, repetition)?,
                    _ => suite.run(way, &place.disk(way), job, repetition, &[])?,
                };
                println!("{}", run.tsv());
                runs.push(run);
            }
        }
    }
    Ok(runs)
}

/// How much passed of what was allowed.
fn limited(place: &Place, size: &str) -> Result<Vec<(String, f64)>, Failure> {
    let suite = Suite { seconds: LIMITED, size: size.to_owned(), program: None };
    let mut shares = Vec::new();
    place.manage(&["volume", "limit", PLAIN, "--iops", &format!("{REQUESTS}")])?;
    let run = suite.run(PLAIN, &place.local(PLAIN), &READS, 1, &[])?;
    shares.push((format!("{REQUESTS} requests a second"), run.iops / REQUESTS));
    let bytes = format!("{MEBIBYTES}M");
    place.manage(&["volume", "limit", PLAIN, "--iops", "none", "--bandwidth", &bytes])?;
    let large = Job { block: "128k", depth: "32", ..LARGE_READS };
    let run = suite.run(PLAIN, &place.local(PLAIN), &large, 1, &[])?;
    shares.push((format!("{MEBIBYTES} MiB a second"), run.mebibytes / MEBIBYTES));
    place.manage(&["volume", "limit", PLAIN, "--bandwidth", "none"])?;
    Ok(shares)
}

fn of_runs(runs: &[Run]) -> Vec<Target> {
    use Bound::AtLeast;
    use Quantity::{Iops, Mebibytes};
    let of = |(way, to): (&str, &str), job: &str, quantity: Quantity, bound| Target {
        what: format!("{way} {job}: {} in multiples of {to}", quantity.unit()),
        bound: AtLeast(bound),
        measured: ratio(runs, way, to, job, quantity),
    };
    vec![
        of((TLS, TCP), READS.name, Iops, 0.8),
        of((TLS, TCP), LARGE_READS.name, Mebibytes, 0.6),
        of((ENCRYPTED, PLAIN), READS.name, Iops, 0.92),
        of((ENCRYPTED, PLAIN), WRITES.name, Iops, 0.92),
        of((ENCRYPTED, PLAIN), LARGE_READS.name, Mebibytes, 0.75),
        of((ENCRYPTED, PLAIN), LARGE_WRITES.name, Mebibytes, 0.75),
        of((HOST, OPERATOR), READS.name, Iops, 0.99),
    ]
}

fn of_limits(limits: &[(String, f64)]) -> Vec<Target> {
    let of = |(what, share): &(String, f64)| Target {
        what: format!("limit of {what}: what passes differs from it by"),
        bound: Bound::AtMost(0.03),
        measured: Some((share - 1.0).abs()),
    };
    limits.iter().map(of).collect()
}

fn table(runs: &[Run]) -> String {
    let ways = [PLAIN, ENCRYPTED, TCP, TLS, OPERATOR, HOST];
    let mut text =
        format!("\n## Medians\n\n| job | | {} |\n| --- | ---{} |\n", ways.join(" | "), " | ---".repeat(ways.len()));
    for job in [READS, WRITES, LARGE_READS, LARGE_WRITES] {
        let (quantity, unit) = match job.name.contains("1m") {
            true => (Quantity::Mebibytes, "MiB/s"),
            false => (Quantity::Iops, "IOPS"),
        };
        let cell = |way: &&str| median_of(runs, way, job.name, quantity).map_or("-".to_owned(), figure);
        text += &format!("| {} | {unit} | {} |\n", job.name, ways.iter().map(cell).collect::<Vec<_>>().join(" | "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(system: &str, job: &str, iops: f64) -> Run {
        let (system, job) = (system.to_owned(), job.to_owned());
        Run { system, job, repetition: 1, iops, mebibytes: iops, p50_us: 5.0, p99_us: 9.0, cpu_us: None }
    }

    #[test]
    fn each_way_is_judged_by_the_one_without() {
        let runs = [run(TCP, READS.name, 100.0), run(TLS, READS.name, 79.0), run(PLAIN, LARGE_READS.name, 100.0)];
        let targets = of_runs(&runs);
        assert_eq!((targets[0].measured, targets[0].verdict()), (Some(0.79), "MISSED"));
        assert_eq!(targets[4].verdict(), "not measured");
        assert!(table(&runs).contains("| randread-4k-q32 | IOPS | - | - | 100 | 79.00 | - | - |"), "{}", table(&runs));
    }

    #[test]
    fn a_limit_is_missed_by_what_passes_too_much_or_too_little() {
        let verdict = |share| of_limits(&[("x".to_owned(), share)])[0].verdict();
        assert_eq!([0.96, 0.98, 1.02, 1.04].map(verdict), ["MISSED", "ok", "ok", "MISSED"]);
    }
}
