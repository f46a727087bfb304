//! The fixed suite: fio's jobs, the same for every system, and what is kept of each run.
//!
//! A volume is filled first, so that no job reads what was never written. The jobs and their parameters never change:
//! results of different months are compared.

use super::footprint;
use crate::failure::Failure;
use crate::process;
use crate::workspace::{answer, parse};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// fio's own start, and the slowest fill that is still a measurement.
const SPARE: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub struct Job {
    pub name: &'static str,
    pub rw: &'static str,
    /// How long its requests are. Of a range, as `4k-32k`, each is as long as it happens to be, and begins at any 4 KiB.
    pub block: &'static str,
    pub depth: &'static str,
    /// So many clients at once, each of that depth.
    pub clients: &'static str,
}

pub const JOBS: &[Job] = &[
    Job { name: "randread-4k-q1", rw: "randread", block: "4k", depth: "1", clients: "1" },
    Job { name: "randread-4k-q32", rw: "randread", block: "4k", depth: "32", clients: "1" },
    Job { name: "randwrite-4k-q1", rw: "randwrite", block: "4k", depth: "1", clients: "1" },
    Job { name: "randwrite-4k-q32", rw: "randwrite", block: "4k", depth: "32", clients: "1" },
    Job { name: "randrw-4k-q32", rw: "randrw", block: "4k", depth: "32", clients: "1" },
    Job { name: "read-1m-q8", rw: "read", block: "1M", depth: "8", clients: "1" },
    Job { name: "write-1m-q8", rw: "write", block: "1M", depth: "8", clients: "1" },
];

const FILL: Job = Job { name: "fill", rw: "write", block: "1M", depth: "8", clients: "1" };

/// One run of one job on one system. Of a job that reads and writes, the reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub system: String,
    pub job: String,
    pub repetition: u32,
    pub iops: f64,
    /// In a second.
    pub mebibytes: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// Microseconds of a core that all processes of the system, the client not among them, took for one I/O; `None` where it
    /// wasn't looked at.
    pub cpu_us: Option<f64>,
}

impl Run {
    pub fn tsv(&self) -> String {
        let Run { system, job, repetition, iops, mebibytes, p50_us, p99_us, cpu_us } = self;
        let cpu = cpu_us.map_or(String::new(), |cpu| format!("\t{cpu:.1}"));
        format!("{system}\t{job}\t{repetition}\t{iops:.0}\t{mebibytes:.1}\t{p50_us:.0}\t{p99_us:.0}{cpu}")
    }

    pub fn from_tsv(line: &str) -> Option<Run> {
        let mut cells = line.split('\t');
        Some(Run {
            system: cells.next()?.into(),
            job: cells.next()?.into(),
            repetition: cells.next()?.parse().ok()?,
            iops: cells.next()?.parse().ok()?,
            mebibytes: cells.next()?.parse().ok()?,
            p50_us: cells.next()?.parse().ok()?,
            p99_us: cells.next()?.parse().ok()?,
            cpu_us: cells.next().and_then(|cell| cell.parse().ok()),
        })
    }
}

/// What a job is run on.
#[derive(Clone, Debug)]
pub enum Disk {
    /// An NBD export.
    Nbd { uri: String },
    /// An image of Ceph, through librbd.
    Rbd { pool: String, image: String, configuration: PathBuf },
}

/// How the jobs are run.
pub struct Suite {
    pub seconds: u64,
    pub size: String,
    /// Another program that runs the jobs: `PROGRAM LABEL nbd URI`, told by TESTS, REPS, RUNTIME and SIZE in its
    /// environment, prints each run as a line of [`Run::tsv`].
    pub program: Option<PathBuf>,
}

impl Suite {
    /// Writes the whole volume once.
    pub fn fill(&self, disk: &Disk) -> Result<(), Failure> {
        if self.program.is_some() {
            return Ok(()); // it fills by itself
        }
        process::succeed(&mut fio(&FILL, disk, &self.size), SPARE).map(|_| ())
    }

    /// A job that goes over the volume once, however long that takes.
    pub fn run_once(&self, system: &str, disk: &Disk, job: &Job, processes: &[u32]) -> Result<Run, Failure> {
        let before = footprint::on_core(processes);
        let output = process::succeed(&mut fio(job, disk, &self.size), SPARE)?.stdout;
        let used = footprint::on_core(processes).saturating_sub(before);
        let (run, done) = measured(&output, system, job.name, 1)?;
        let cpu_us = (!processes.is_empty()).then(|| used as f64 / 1000.0 / done as f64);
        Ok(Run { cpu_us, ..run })
    }

    /// `processes` are the system's.
    pub fn run(
        &self,
        system: &str,
        disk: &Disk,
        job: &Job,
        repetition: u32,
        processes: &[u32],
    ) -> Result<Run, Failure> {
        let limit = Duration::from_secs(self.seconds) + SPARE;
        let Some(program) = &self.program else {
            let mut fio = fio(job, disk, &self.size);
            fio.args(["--time_based", &format!("--runtime={}", self.seconds)]);
            let before = footprint::on_core(processes);
            let output = process::succeed(&mut fio, limit)?.stdout;
            let used = footprint::on_core(processes).saturating_sub(before);
            let (run, done) = measured(&output, system, job.name, repetition)?;
            let cpu_us = (!processes.is_empty()).then(|| used as f64 / 1000.0 / done as f64);
            return Ok(Run { cpu_us, ..run });
        };
        let mut suite = Command::new(program);
        suite.arg(system);
        match disk {
            Disk::Nbd { uri } => suite.args(["nbd", uri]),
            Disk::Rbd { pool, image, configuration } => {
                suite.args(["rbd", pool, image]).env("CEPH_CONF", configuration)
            }
        };
        suite.env("TESTS", job.name).env("REPS", "1");
        suite.env("RUNTIME", self.seconds.to_string()).env("SIZE", &self.size);
        let output = process::succeed(&mut suite, limit)?.stdout;
        let run = output.lines().filter_map(Run::from_tsv).find(|run| run.job == job.name);
        run.map(|run| Run { repetition, ..run }).ok_or(answer("the suite's program", "a line for the job"))
    }
}

/// The command of one job, without how long it takes: then it covers the whole size once.
pub fn fio(job: &Job, disk: &Disk, size: &str) -> Command {
    let mut fio = Command::new("fio");
    fio.arg(format!("--name={}", job.name));
    match disk {
        Disk::Nbd { uri } => fio.args(["--ioengine=nbd", &format!("--uri={uri}")]),
        Disk::Rbd { pool, image, configuration } => {
            fio.args([
                "--ioengine=rbd",
                "--clientname=admin",
                &format!("--pool={pool}"),
                &format!("--rbdname={image}"),
            ]);
            fio.env("CEPH_CONF", configuration)
        }
    };
    fio.arg(format!("--size={size}")).args(["--group_reporting", "--output-format=json"]);
    fio.args([&format!("--rw={}", job.rw), &format!("--iodepth={}", job.depth)]);
    match job.block.contains('-') {
        true => fio.args([&format!("--bsrange={}", job.block), "--blockalign=4k"]),
        false => fio.arg(format!("--bs={}", job.block)),
    };
    fio.arg(format!("--numjobs={}", job.clients));
    fio
}

/// What fio's JSON says, which other messages may precede, and how many I/Os were done, of both sides.
pub fn measured(output: &str, system: &str, job: &str, repetition: u32) -> Result<(Run, u64), Failure> {
    let missing = |what| answer("fio", what);
    let json = output.find('{').map(|start| &output[start..]).ok_or(missing("a JSON document"))?;
    let document: Value = parse("fio", json)?;
    let result = &document["jobs"][0];
    let done = |side: &Value| side["total_ios"].as_u64().unwrap_or(0);
    let side = if done(&result["read"]) > 0 { &result["read"] } else { &result["write"] };
    if done(side) == 0 || result["error"] != 0 {
        return Err(missing("any I/O without an error"));
    }
    let number = |value: &Value, what| value.as_f64().ok_or(missing(what));
    let percentile = |which: &str| number(&side["clat_ns"]["percentile"][which], "a percentile").map(|ns| ns / 1000.0);
    let run = Run {
        system: system.into(),
        job: job.into(),
        repetition,
        iops: number(&side["iops"], "iops")?,
        mebibytes: number(&side["bw"], "bw")? / 1024.0,
        p50_us: percentile("50.000000")?,
        p99_us: percentile("99.000000")?,
        cpu_us: None,
    };
    Ok((run, done(&result["read"]) + done(&result["write"])))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = r#"fio: a remark
{"jobs": [{"error": 0,
  "read": {"total_ios": 0, "iops": 0.0},
  "write": {"total_ios": 7, "iops": 100.5, "bw": 2048,
            "clat_ns": {"percentile": {"50.000000": 12000, "99.000000": 99000}}}}]}"#;

    #[test]
    fn the_side_that_did_something_is_kept() {
        let (run, done) = measured(OUTPUT, "tepal", "write-1m-q8", 2).unwrap();
        assert_eq!((run.tsv().as_str(), done), ("tepal\twrite-1m-q8\t2\t100\t2.0\t12\t99", 7));
        let run = Run { iops: 100.0, ..run };
        assert_eq!(Run::from_tsv(&run.tsv()), Some(run.clone()));
        let with_cpu = Run { cpu_us: Some(12.5), ..run };
        assert_eq!(Run::from_tsv(&with_cpu.tsv()), Some(with_cpu));
    }

    #[test]
    fn a_run_that_did_nothing_or_failed_is_no_measurement() {
        let cases = [
            "",
            "no JSON",
            r#"{"jobs": []}"#,
            r#"{"jobs": [{"error": 0, "read": {"total_ios": 0}, "write": {"total_ios": 0}}]}"#,
            &OUTPUT.replace(r#""error": 0"#, r#""error": 5"#),
        ];
        for output in cases {
            assert!(measured(output, "tepal", "fill", 1).is_err(), "{output}");
        }
    }

    #[test]
    fn a_line_that_is_no_run_is_passed_over() {
        assert_eq!(Run::from_tsv("a remark"), None);
        assert_eq!(Run::from_tsv("a\tb\t1\tmany\t2\t3\t4"), None);
    }
}
