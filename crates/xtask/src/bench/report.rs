//! Reports: under which circumstances was measured, a table of targets, and what else there is to say. [`of_jobs`] has the suite's
//! medians.

use super::suite::{JOBS, Run};
use super::targets::{Bound, NBDKIT, Quantity, Target, median_of, ratio};
use crate::failure::Failure;
use crate::process;
use crate::workspace::Workspace;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

pub const TSV_HEAD: &str = "system\tjob\trepetition\tiops\tmib_per_s\tp50_us\tp99_us\tcpu_us";

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
            // What follows the version is whoever built it.
            kernel: says("uname", &["-sr"]).split('-').next().unwrap_or_default().to_owned(),
            processor: processor.map_or("unknown processor".into(), |(_, model)| model.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
            fio: says("fio", &["--version"]),
            nbdkit: says("nbdkit", &["--version"]),
        }
    }

    fn line(&self) -> String {
        let Circumstances { date, kernel, processor, cores, fio, nbdkit } = self;
        // Not every bench needs nbdkit.
        let nbdkit = if nbdkit.is_empty() { String::new() } else { format!("; {nbdkit}") };
        format!("{date}; {kernel}; {processor}, {cores} cores; {fio}{nbdkit}")
    }
}

/// What a bench has to say.
pub struct Report {
    /// Also of its files: `cargo xtask bench NAME`.
    pub name: &'static str,
    /// In Markdown.
    pub text: String,
    /// What belongs to it: the name of each file in `bench/results/`, and what is in it.
    pub files: Vec<(String, String)>,
    pub targets: Vec<Target>,
}

impl Report {
    /// Prints the report, saves it if it's whole, and says whether the targets are met: if they must be, it's a failure if not.
    pub fn publish(&self, workspace: &Workspace, is_whole: bool, is_strict: bool) -> Result<(), Failure> {
        println!("\n{}", self.text);
        if is_whole {
            let folder = workspace.root.join("bench/results");
            let text = format!("{}.md", self.name);
            let files = self.files.iter().map(|(name, content)| (name, content));
            for (name, content) in std::iter::once((&text, &self.text)).chain(files) {
                save(&folder, name, content)?;
                println!("saved: bench/results/{name}");
            }
        }
        let missed = self.targets.iter().filter(|target| target.is_missed()).count();
        if missed > 0 {
            println!("{missed} targets MISSED");
        }
        if missed > 0 && is_strict { Err(Failure::Reported) } else { Ok(()) }
    }
}

fn save(folder: &Path, name: &str, text: &str) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(Failure::file(folder))?;
    let file = folder.join(name);
    std::fs::write(&file, text).map_err(Failure::file(&file))
}

/// How a report begins.
pub fn head(circumstances: &Circumstances, name: &str, title: &str) -> String {
    format!("# {title}\n\nMade by `cargo xtask bench {name}`. {}.\n\n", circumstances.line())
}

/// The section of the targets.
pub fn verdicts(targets: &[Target]) -> String {
    let mut text = "## Targets\n\n| what | target | measured | |\n| --- | --- | --- | --- |\n".to_owned();
    for target in targets {
        let bound = match target.bound {
            Bound::AtLeast(bound) => format!("at least {bound}"),
            Bound::AtMost(bound) => format!("at most {bound}"),
        };
        let measured = target.measured.map_or("-".into(), figure);
        text += &format!("| {} | {bound} | {measured} | {} |\n", target.what, target.verdict());
    }
    text
}

/// What a bench of the suite's jobs is about.
pub struct Subject<'a> {
    /// Also the name of its files: `cargo xtask bench NAME`.
    pub name: &'static str,
    pub title: &'static str,
    /// What was measured, as the beginning of a sentence.
    pub setting: &'static str,
    pub systems: &'a [&'static str],
    pub seconds: u64,
    pub repetitions: u32,
    pub size: &'a str,
}

/// `remark` goes below the targets.
pub fn of_jobs(
    circumstances: &Circumstances,
    subject: &Subject<'_>,
    runs: &[Run],
    targets: &[Target],
    remark: &str,
) -> String {
    let Subject { name, title, setting, systems, seconds, repetitions, size } = subject;
    let mut text = head(circumstances, name, title);
    text += &format!(
        "{setting}, in the same run: each job runs on one system after the other, {repetitions} times in turn, {seconds} s \
         each, on volumes of {size} filled before. Figures are medians. Every run is in [{name}.tsv]({name}.tsv).\n\n\
         ![Each job in multiples of nbdkit]({name}.svg)\n\n"
    );
    text += &verdicts(targets);
    text += remark;
    text += &format!(
        "\n## Medians\n\n| job | | {} |\n| --- | ---{} |\n",
        systems.join(" | "),
        " | ---".repeat(systems.len())
    );
    for job in JOBS {
        let cells: Vec<String> = systems.iter().map(|system| cell(runs, system, job.name)).collect();
        let unit = if job.name.contains("1m") { "MiB/s" } else { "IOPS" };
        text += &format!("| {} | {unit} | {} |\n", job.name, cells.join(" | "));
    }
    text
}

fn cell(runs: &[Run], system: &str, job: &str) -> String {
    let quantity = if job.contains("1m") { Quantity::Mebibytes } else { Quantity::Iops };
    let Some(median) = median_of(runs, system, job, quantity) else { return "-".into() };
    let latency = median_of(runs, system, job, Quantity::MedianLatency).unwrap_or_default();
    let times = ratio(runs, system, NBDKIT, job, quantity).filter(|_| system != NBDKIT);
    let times = times.map_or(String::new(), |times| format!(", x {times:.2}"));
    let cpu = median_of(runs, system, job, Quantity::Cpu).map_or(String::new(), |cpu| format!(", cpu {cpu:.0} us"));
    format!("{median:.0} (p50 {latency:.0} us{times}{cpu})")
}

/// With as many digits as anybody looks at.
pub fn figure(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

pub fn tsv(runs: &[Run]) -> String {
    let lines = runs.iter().map(|run| run.tsv() + "\n");
    std::iter::once(format!("{TSV_HEAD}\n")).chain(lines).collect()
}
