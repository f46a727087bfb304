//! The report: a table of targets, a table of medians, and under which circumstances they were measured.

use super::suite::{JOBS, Run};
use super::targets::{Bound, Extra, MIRROR, NBDKIT, Quantity, STRIPE, Target, median_of, ratio};
use crate::process;
use std::process::Command;
use std::time::Duration;

pub const TSV_HEAD: &str = "system\tjob\trepetition\tiops\tmib_per_s\tp50_us\tp99_us";

/// What a reader must know to judge the figures. No names of machines or people.
pub struct Circumstances {
    pub date: String,
    kernel: String,
    processor: String,
    cores: usize,
    fio: String,
    nbdkit: String,
}

impl Circumstances {
    pub fn here() -> Circumstances {
        let says = |program: &str, arguments: &[&str]| {
            let ended = process::capture(Command::new(program).args(arguments), Duration::from_secs(10));
            ended.map_or(String::new(), |ended| ended.stdout.lines().next().unwrap_or_default().trim().to_owned())
        };
        let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let processor = processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Circumstances {
            date: says("date", &["-u", "+%Y-%m-%d"]),
            kernel: says("uname", &["-sr"]),
            processor: processor.map_or("unknown processor".into(), |(_, model)| model.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
            fio: says("fio", &["--version"]),
            nbdkit: says("nbdkit", &["--version"]),
        }
    }

    fn line(&self) -> String {
        let Circumstances { date, kernel, processor, cores, fio, nbdkit } = self;
        format!("{date}; {kernel}; {processor}, {cores} cores; {fio}; {nbdkit}")
    }
}

/// How the jobs were run, for the report's first lines.
pub struct Method {
    pub seconds: u64,
    pub repetitions: u32,
    pub size: String,
}

pub fn markdown(
    circumstances: &Circumstances,
    method: &Method,
    runs: &[Run],
    extra: &Extra,
    targets: &[Target],
) -> String {
    let Method { seconds, repetitions, size } = method;
    let mut text = format!(
        "# One machine: Tepal beside nbdkit\n\n\
         Made by `cargo xtask bench local`. {}.\n\n\
         One server with four drives in /dev/shm, and nbdkit's file plugin on one file in /dev/shm, in the same run: each job \
         runs on one system after the other, {repetitions} times in turn, {seconds} s each, on volumes of {size} filled \
         before. Figures are medians. fio's NBD engine on a unix socket. Every run is in [local.tsv](local.tsv).\n\n\
         ![Each job in multiples of nbdkit](local.svg)\n\n\
         ## Targets\n\n| what | target | measured | |\n| --- | --- | --- | --- |\n",
        circumstances.line()
    );
    for target in targets {
        let bound = match target.bound {
            Bound::AtLeast(bound) => format!("at least {bound}"),
            Bound::AtMost(bound) => format!("at most {bound}"),
        };
        let measured = target.measured.map_or("-".into(), figure);
        text += &format!("| {} | {bound} | {measured} | {} |\n", target.what, target.verdict());
    }
    if let Some(resident) = extra.resident_mib {
        text += &format!("\nResident memory of the server after all jobs: {resident:.0} MiB.\n");
    }
    text += &format!("\n## Medians\n\n| job | | {NBDKIT} | {STRIPE} | {MIRROR} |\n| --- | --- | --- | --- | --- |\n");
    for job in JOBS {
        let sequential = job.name.contains("1m");
        let (unit, quantity) = if sequential { ("MiB/s", Quantity::Mebibytes) } else { ("IOPS", Quantity::Iops) };
        let cell = |system| {
            let Some(median) = median_of(runs, system, job.name, quantity) else { return "-".into() };
            let latency = median_of(runs, system, job.name, Quantity::MedianLatency).unwrap_or_default();
            let times = ratio(runs, system, NBDKIT, job.name, quantity).filter(|_| system != NBDKIT);
            let times = times.map_or(String::new(), |times| format!(", x {times:.2}"));
            format!("{median:.0} (p50 {latency:.0} us{times})")
        };
        text += &format!("| {} | {unit} | {} | {} | {} |\n", job.name, cell(NBDKIT), cell(STRIPE), cell(MIRROR));
    }
    text
}

/// With as many digits as anybody looks at.
fn figure(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

pub fn tsv(runs: &[Run]) -> String {
    let lines = runs.iter().map(|run| run.tsv() + "\n");
    std::iter::once(format!("{TSV_HEAD}\n")).chain(lines).collect()
}
