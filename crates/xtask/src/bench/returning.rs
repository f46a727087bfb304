//! What a server that was away is sent when it returns: what has changed, and little else.

use super::suite::{Job, fio};
use super::systems::Tepal;
use super::targets::{Bound, Target};
use crate::failure::Failure;
use crate::process;
use std::path::Path;
use std::time::{Duration, Instant};

const SIZE: &str = "1G";
const DRIVE_SIZE: &str = "2G";
/// How long it's away, under so many small writes a second: much less is written than there is.
const AWAY: Duration = Duration::from_secs(30);
const WRITES: &str = "400";
const LOAD: Job = Job { name: "away", rw: "randwrite", block: "4k", depth: "8", clients: "1" };
const FILL: Job = Job { name: "fill", rw: "write", block: "1m", depth: "8", clients: "1" };
const LIMIT: Duration = Duration::from_secs(300);
const VICTIM: &str = "s3";

/// In bytes.
#[derive(Clone, Copy, Debug)]
pub struct Returning {
    /// Of what the server has a copy of.
    changed: u64,
    copied: u64,
    took: Duration,
}

pub fn measure(program: &Path) -> Result<Returning, Failure> {
    let shape = ["--servers", "4", "--drives", "1"];
    let tepal = Tepal::start(program, &shape, DRIVE_SIZE, &[format!("v0={SIZE},layout=chained")])?;
    let disk = tepal.disk("v0");
    process::succeed(&mut fio(&FILL, &disk, SIZE), LIMIT)?;
    tepal.until_healthy("v0")?;
    tepal.lose(VICTIM)?;
    let mut load = fio(&LOAD, &disk, SIZE);
    load.args(["--time_based", &format!("--runtime={}", AWAY.as_secs()), &format!("--rate_iops={WRITES}")]);
    let output = process::succeed(&mut load, LIMIT)?.stdout;
    let written = written(&output).ok_or(Failure::Usage("fio doesn't say what it has written".into()))?;
    let before = tepal.copied("v0")?;
    let began = Instant::now();
    tepal.give_back(VICTIM)?;
    tepal.until_healthy("v0")?;
    // Of four columns, two have a copy there.
    Ok(Returning { changed: written / 2, copied: tepal.copied("v0")?.saturating_sub(before), took: began.elapsed() })
}

/// Each block once.
fn written(output: &str) -> Option<u64> {
    let document: serde_json::Value = serde_json::from_str(&output[output.find('{')?..]).ok()?;
    document["jobs"][0]["write"]["io_bytes"].as_u64()
}

impl Returning {
    pub fn target(&self) -> Target {
        Target {
            what: "bytes copied when a server returns after 30 s under load, of those that have changed".into(),
            bound: Bound::AtMost(1.2),
            measured: Some(self.copied as f64 / self.changed as f64),
        }
    }

    /// A sentence for the report.
    pub fn markdown(&self) -> String {
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        format!(
            "\nA server was away for {} s under {WRITES} writes of 4 KiB a second, at random in {SIZE}. Of what it has copies of, \
             {:.1} MiB were changed; {:.1} MiB were copied when it was back, which took {:.1} s from its start on.\n",
            AWAY.as_secs(),
            mebibytes(self.changed),
            mebibytes(self.copied),
            self.took.as_secs_f64()
        )
    }
}
