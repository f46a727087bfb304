//! Drives so slow that their bandwidth is the limit: large and small sequential requests, many clients, and one server less.

use super::{SERVERS, SETTLE, name, volumes};
use crate::bench::JobOptions;
use crate::bench::suite::{Disk, Job, Run, Suite, fio, measured};
use crate::bench::systems::Tepal;
use crate::failure::Failure;
use crate::process;
use std::path::Path;
use std::time::Duration;

/// The bandwidth of the drives is far below what the processor could do.
pub const DRIVE: &str = "read=500us,write=500us,iops=4000,bandwidth=30M";
pub const DEGRADED: &str = "ec:4+2 without one";
pub const READS: Job = Job { name: "randread-4k-q32", rw: "randread", block: "4k", depth: "32", clients: "1" };
/// Sequential requests, small and large (figures 3 and 4; there the large ones are of 64 MiB, more than NBD allows).
pub const CHUNKS: [Job; 4] = [
    Job { name: "read-1m-q16", rw: "read", block: "1M", depth: "16", clients: "1" },
    Job { name: "read-64k-q16", rw: "read", block: "64k", depth: "16", clients: "1" },
    Job { name: "write-1m-q16", rw: "write", block: "1M", depth: "16", clients: "1" },
    Job { name: "write-64k-q16", rw: "write", block: "64k", depth: "16", clients: "1" },
];
/// Clients that write one volume together, with the requests of table 1: each writes every so-manieth piece.
pub const CLIENTS: [Job; 4] = [
    Job { name: "write-strided-4", rw: "write:7864320", block: "2621440", depth: "2", clients: "4" },
    Job { name: "write-strided-9", rw: "write:9320680", block: "1165085", depth: "2", clients: "9" },
    Job { name: "write-strided-16", rw: "write:9830400", block: "655360", depth: "2", clients: "16" },
    Job { name: "write-strided-25", rw: "write:10066344", block: "419431", depth: "2", clients: "25" },
];
const SIZE: &str = "512M";
const SIZE_BYTES: u64 = 512 << 20;
const VICTIM: &str = "s3";
/// fio's own start, and what it waits for at its end.
const SPARE: Duration = Duration::from_secs(120);

pub fn measure(program: &Path, options: &JobOptions) -> Result<Vec<Run>, Failure> {
    let shape: Vec<&str> = SERVERS.into_iter().chain(["--emulate", DRIVE]).collect();
    let layouts = ["stripe", "ec:2+1", "ec:4+2"];
    let suite = Suite { seconds: options.runtime, size: SIZE.to_owned(), program: None };
    let tepal = Tepal::start(program, &shape, "2G", &volumes(&suite.size, &layouts))?;
    let mut runs = Vec::new();
    let mut keep = |run: Run| {
        println!("{}", run.tsv());
        runs.push(run);
    };
    let fill = Job { name: "fill-1m-q16", rw: "write", block: "1M", depth: "16", clients: "1" };
    for layout in layouts {
        keep(suite.run_once(layout, &tepal.disk(&name(layout)), &fill, &[])?);
        std::thread::sleep(SETTLE);
    }
    for repetition in 1..=options.reps {
        for job in [READS].iter().chain(&CHUNKS) {
            for layout in layouts {
                keep(suite.run(layout, &tepal.disk(&name(layout)), job, repetition, &[])?);
                if job.rw == "write" {
                    std::thread::sleep(SETTLE);
                }
            }
        }
        for job in &CLIENTS {
            for layout in layouts {
                keep(together(&suite, &tepal.disk(&name(layout)), layout, job, repetition)?);
                std::thread::sleep(SETTLE);
            }
        }
    }
    tepal.lose(VICTIM)?;
    for repetition in 1..=options.reps {
        keep(suite.run(DEGRADED, &tepal.disk(&name("ec:4+2")), &READS, repetition, &[])?);
    }
    Ok(runs)
}

/// As processes do that write one file together (section 5.3). Most pieces begin and end within a stripe.
fn together(suite: &Suite, disk: &Disk, layout: &str, job: &Job, repetition: u32) -> Result<Run, Failure> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| Failure::Usage(format!("'{text}' is no number")));
    let (block, clients) = (number(job.block)?, number(job.clients)?);
    // The last client ends where the volume does.
    let size = (SIZE_BYTES - clients * block).to_string();
    let mut fio = fio(job, disk, &size);
    fio.arg(format!("--offset_increment={block}"));
    fio.args(["--time_based".to_owned(), format!("--runtime={}", suite.seconds)]);
    let output = process::succeed(&mut fio, Duration::from_secs(suite.seconds) + SPARE)?.stdout;
    Ok(measured(&output, layout, job.name, repetition)?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_together_write_all_of_a_volume() {
        for Job { rw, block, clients, .. } in CLIENTS {
            let [stride, block, clients] =
                [&rw["write:".len()..], block, clients].map(|text| text.parse::<u64>().unwrap());
            assert_eq!(stride, (clients - 1) * block);
        }
    }
}
