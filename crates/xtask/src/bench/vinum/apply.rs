//! How long `tepal apply` takes over 1,000 volumes, and over the same again.

use super::Options;
use super::volumes::Volumes;
use crate::bench::suite::Run;
use crate::bench::systems::{MEMORY, Scratch};
use crate::failure::Failure;
use crate::workspace::answer;
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

pub const VOLUMES: usize = 1000;
const DRIVES: usize = 8;

/// A run's latency is how long it took.
pub fn measure(program: &Path, options: &Options) -> Result<Vec<Run>, Failure> {
    let folder = Scratch::new(Path::new(MEMORY))?;
    let file = folder.file("configuration");
    let mut all = Vec::new();
    for repetition in 1..=options.reps {
        let mut volumes = Volumes::start(program, options, (DRIVES, "2G"), &[])?;
        std::fs::write(&file, text(&volumes.drives)).map_err(Failure::file(&file))?;
        for (job, steps) in [("apply-first", VOLUMES), ("apply-again", 0)] {
            let began = Instant::now();
            let said = volumes.tepal.ask(&["apply", &file.to_string_lossy()])?;
            let took = began.elapsed();
            if said["steps"].as_array().map(Vec::len) != Some(steps) {
                return Err(answer("tepal apply", "a step for each volume at first, and none after that"));
            }
            volumes.keep(of(job, took, repetition));
        }
        let took = volumes.tepal.manage(&["show", "--as", "vinum"])?;
        volumes.keep(of("apply-show", took, repetition));
        all.extend(volumes.runs());
    }
    Ok(all)
}

fn text(drives: &[String]) -> String {
    let mut text = String::new();
    for number in 0..VOLUMES {
        let _ = writeln!(text, "volume v{number}\n  plex org striped 256k");
        for drive in drives {
            let _ = writeln!(text, "    sd length 1m drive {drive}");
        }
    }
    text
}

fn of(job: &str, took: Duration, repetition: u32) -> Run {
    let (system, job, took) = ("tepal".to_owned(), job.to_owned(), took.as_secs_f64() * 1e6);
    Run { system, job, repetition, iops: 0.0, mebibytes: 0.0, p50_us: took, p99_us: took, cpu_us: None }
}
