//! Petal's shapes (section 3.2: Tables 1 and 2, Figure 7): what a volume over several servers costs in latency, what it loses with a
//! server, and how it scales. On emulated drives, so slow that the drives are the limit, as they were in the paper.

use super::suite::{Job, Suite};
use super::systems::Tepal;
use super::targets::{Bound, Quantity, Target, median};
use crate::failure::Failure;
use std::path::Path;
use std::time::Duration;

/// About as slow as a disk of many small requests, with a bandwidth that lets volumes be filled soon.
const DRIVE: &str = "read=4ms,write=4ms,iops=250,bandwidth=200M";
const SIZE: &str = "256M";
const DRIVE_SIZE: &str = "1G";
/// For what a fill leaves to be done on drives as slow as these.
const SETTLE: Duration = Duration::from_secs(30);
/// Enough for all drives to have something to do: 16 requests for each server. What two servers are compared by is half as deep, for a
/// drive that has more in its queue does more in a second.
const READS: Job = Job { name: "randread-4k-q64", rw: "randread", block: "4k", depth: "64", clients: "1" };
const WRITES: Job = Job { name: "randwrite-4k-q64", rw: "randwrite", block: "4k", depth: "64", clients: "1" };
const HALF_THE_READS: Job = Job { name: "randread-4k-q32", depth: "32", ..READS };
const HALF_THE_WRITES: Job = Job { name: "randwrite-4k-q32", depth: "32", ..WRITES };
/// As many at a time, of clients that have one each.
const READS_OF_MANY: Job = Job { name: "randread-4k-64-times-q1", depth: "1", clients: "64", ..READS };
const ONE_READ: Job = Job { name: "randread-4k-q1", rw: "randread", block: "4k", depth: "1", clients: "1" };
const VICTIM: &str = "s3";

/// Medians.
#[derive(Clone, Copy, Debug)]
pub struct Shapes {
    /// Microseconds of one read at a time: of a drive of the same server, and through four servers.
    local_read_us: f64,
    read_us: f64,
    /// In a second, by two servers and by four, and by four of which one is down.
    two: Rates,
    four: Rates,
    three_of_four: Rates,
    /// Reads in a second that many light clients have, of four servers and with one of them down.
    light: f64,
    light_of_three: f64,
}

#[derive(Clone, Copy, Debug)]
struct Rates {
    reads: f64,
    writes: f64,
}

pub fn measure(program: &Path, seconds: u64, repetitions: u32) -> Result<Shapes, Failure> {
    let suite = Suite { seconds, size: SIZE.to_owned(), program: None };
    let median_of = |tepal: &Tepal, job: &Job, quantity: Quantity| -> Result<f64, Failure> {
        let mut values = Vec::new();
        for repetition in 1..=repetitions {
            let run = suite.run("shape", &tepal.disk("v0"), job, repetition, &[])?;
            values.extend(quantity.of(&run));
        }
        median(values).ok_or(Failure::Usage("no repetition was asked for".into()))
    };
    let rates = |tepal: &Tepal, reads: &Job, writes: &Job| {
        let reads = median_of(tepal, reads, Quantity::Iops)?;
        // At first logs take what drives can't yet; then writes go as fast as the drives.
        suite.run("warm-up", &tepal.disk("v0"), writes, 0, &[])?;
        Ok::<_, Failure>(Rates { reads, writes: median_of(tepal, writes, Quantity::Iops)? })
    };
    let start = |servers: &str, layout: &str| {
        let shape = ["--servers", servers, "--drives", "1", "--emulate", DRIVE];
        let tepal = Tepal::start(program, &shape, DRIVE_SIZE, &[format!("v0={SIZE},layout={layout}")])?;
        suite.fill(&tepal.disk("v0"))?;
        std::thread::sleep(SETTLE);
        Ok::<_, Failure>(tepal)
    };
    let local_read_us = median_of(&start("1", "stripe")?, &ONE_READ, Quantity::MedianLatency)?;
    let two = rates(&start("2", "chained")?, &HALF_THE_READS, &HALF_THE_WRITES)?;
    let tepal = start("4", "chained")?;
    let read_us = median_of(&tepal, &ONE_READ, Quantity::MedianLatency)?;
    let four = rates(&tepal, &READS, &WRITES)?;
    let light = median_of(&tepal, &READS_OF_MANY, Quantity::Iops)?;
    tepal.lose(VICTIM)?;
    let three_of_four = rates(&tepal, &READS, &WRITES)?;
    let light_of_three = median_of(&tepal, &READS_OF_MANY, Quantity::Iops)?;
    Ok(Shapes { local_read_us, read_us, two, four, three_of_four, light, light_of_three })
}

impl Shapes {
    pub fn targets(&self) -> Vec<Target> {
        use Bound::{AtLeast, AtMost};
        let Shapes { local_read_us, read_us, two, four, three_of_four, .. } = self;
        let target = |what: &str, bound, measured| Target { what: what.into(), bound, measured: Some(measured) };
        vec![
            target(
                "emulated drives: latency of a read, in multiples of the same drive's used locally",
                AtMost(1.1),
                read_us / local_read_us,
            ),
            target(
                "emulated drives: reads with one of four servers down, of those with all",
                AtLeast(0.73),
                three_of_four.reads / four.reads,
            ),
            target(
                "emulated drives: writes with one of four servers down, of those with all",
                AtLeast(0.98),
                three_of_four.writes / four.writes,
            ),
            target(
                "emulated drives: reads of four servers, of twice those of two",
                AtLeast(0.9),
                four.reads / two.reads / 2.0,
            ),
            target(
                "emulated drives: writes of four servers, of twice those of two",
                AtLeast(0.9),
                four.writes / two.writes / 2.0,
            ),
        ]
    }

    /// A table for the report.
    pub fn markdown(&self) -> String {
        let Shapes { local_read_us, read_us, two, four, three_of_four, light, light_of_three } = self;
        let line = |what: &str, rates: &Rates, reads: &str, writes: &str| {
            format!("| {what} | {:.0} | {reads} | {:.0} | {writes} |\n", rates.reads, rates.writes)
        };
        let times = |value: f64, of: f64| format!("{:.2}", value / of);
        [
            format!("\n## Petal's shapes\n\nDrives slowed to {DRIVE}; 4 KiB requests, 16 at a time for each server of the whole, through one gateway.\n\n"),
            "| servers | reads/s | of four | writes/s | of four |\n| --- | --- | --- | --- | --- |\n".to_owned(),
            line("two", two, &times(two.reads, four.reads), &times(two.writes, four.writes)),
            line("four", four, "1", "1"),
            line(
                "four, one down",
                three_of_four,
                &times(three_of_four.reads, four.reads),
                &times(three_of_four.writes, four.writes),
            ),
            format!(
                "\nIn the paper, reads with one of four servers down were 0.73 to 0.78 of normal, writes about the same as before, and \
                 throughput grew almost linearly with servers. One read at a time took {read_us:.0} us here, and \
                 {local_read_us:.0} us on a drive of the same server.\n"
            ),
            format!(
                "\nReads are balanced for many light clients too: 64 that have one request each under way had {light:.0} reads/s of four \
                 servers ({} of the one client's) and {light_of_three:.0} with one down ({}).\n",
                times(*light, four.reads),
                times(*light_of_three, three_of_four.reads),
            ),
        ]
        .concat()
    }
}
