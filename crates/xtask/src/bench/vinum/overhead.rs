//! One drive, by itself and under a volume with one subdisk on it.
//!
//! The drive by itself is a file beside it, at the drive's pace, reached by the server's own device code and without NBD: `tepal bench`
//! measures that. What it says of latency is the mean. The volume is measured by fio through NBD, when the drive is at rest.

use super::Options;
use super::volumes::{Plex, Volumes};
use crate::bench::suite::{Job, Run};
use crate::failure::Failure;
use crate::workspace::answer;
use serde_json::Value;
use std::path::Path;

/// The models, and what they are called. By the first a drive is judged: it is the limit also on a small machine.
pub const MODELS: [(&str, &str); 3] =
    [("hdd", "hdd"), ("500us", "read=500us,write=500us,iops=4000,bandwidth=200M"), ("nvme", "nvme")];
pub const RAW: &str = "raw";
pub const VOLUME: &str = "concat";
/// What `tepal bench` calls each.
const JOBS: [(&str, &str, &str, &str); 4] = [
    ("4K random read, 1 at once", "randread-4k-q1", "randread", "1"),
    ("4K random read, 32 at once", "randread-4k-q32", "randread", "32"),
    ("4K random write, 1 at once", "randwrite-4k-q1", "randwrite", "1"),
    ("4K random write, 32 at once", "randwrite-4k-q32", "randwrite", "32"),
];
/// What is compared, in MiB.
const AREA: u64 = 128;

pub fn measure(program: &Path, options: &Options) -> Result<Vec<Run>, Failure> {
    let mut all = Vec::new();
    for (label, model) in MODELS {
        let mut volumes = Volumes::start(program, options, (1, "512M"), &["--emulate", model])?;
        let size = format!("{AREA}M");
        for repetition in 1..=options.reps {
            let said = volumes.tepal.ask(&["bench", "--layout", "stripe", "--seconds", "1", "--size", &size])?;
            for (what, job, _, _) in JOBS {
                let row = said["rows"].as_array().into_iter().flatten().find(|row| row["what"] == what);
                let raw = &row.ok_or(answer("tepal bench", "a row"))?["raw"];
                volumes.keep(of_raw(raw, &format!("overhead-{label}-{job}"), repetition)?);
            }
        }
        volumes.add(VOLUME, AREA, &[Plex { organization: "concat", drives: &[0] }])?;
        volumes.settle();
        for (_, name, rw, depth) in JOBS {
            let job = Job { name: "vinum", rw, block: "4k", depth, clients: "1" };
            let name = format!("overhead-{label}-{name}");
            if rw == "randwrite" {
                volumes.run_rested(VOLUME, &name, &job)?;
                volumes.run(VOLUME, &format!("{name}-steady"), &job)?;
            } else {
                volumes.run(VOLUME, &name, &job)?;
            }
        }
        all.extend(volumes.runs());
    }
    Ok(all)
}

fn of_raw(cell: &Value, job: &str, repetition: u32) -> Result<Run, Failure> {
    let number = |name: &str| cell[name].as_f64().ok_or(answer("tepal bench", "a figure of the raw drive"));
    let mean = number("microseconds")?;
    Ok(Run {
        system: RAW.to_owned(),
        job: job.to_owned(),
        repetition,
        iops: number("requests_per_second")?,
        mebibytes: number("bytes_per_second")? / f64::from(1 << 20),
        p50_us: mean,
        p99_us: mean,
        cpu_us: None,
    })
}
