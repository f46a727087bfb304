//! The shapes of Vinum's paper: how throughput follows drives, plexes, stripes, requests and clients.

use super::Options;
use super::volumes::{Plex, Volumes};
use crate::bench::suite::{Job, Run};
use crate::failure::Failure;
use std::path::Path;

/// So slow that drives are the limit; an access takes the same wherever it goes.
pub const EVEN: &str = "read=1ms,write=1ms,iops=1000,bandwidth=200M";
/// A disk that seeks, as those of the paper.
pub const DISK: &str = "read=100us,write=100us,flush=1ms,seek=2ms,bandwidth=100M";
pub const STRIPES: [&str; 5] = ["4k", "16k", "64k", "256k", "1m"];
pub const SIZES: [&str; 5] = ["4k", "16k", "64k", "256k", "1m"];
pub const CLIENTS: [&str; 8] = ["1", "2", "4", "8", "16", "32", "64", "128"];
/// The paper's: up to 32 KiB, 16 KiB on the average, beginning anywhere.
const BLOCK: &str = "4k-32k";
const FOUR: &[usize] = &[0, 1, 2, 3];
const FIVE: &[usize] = &[0, 1, 2, 3, 4];
/// So that a copy is on another drive.
const FOUR_TURNED: &[usize] = &[2, 3, 0, 1];
const KINDS: [(&str, &str); 2] = [("read", "randread"), ("write", "randwrite")];

/// Logs are as long as drives are large, in proportion: small ones are full soon.
const DRIVE: &str = "512M";
/// MiB of each subdisk.
const LENGTH: u64 = 16;

const fn of_many(rw: &'static str, block: &'static str, clients: &'static str) -> Job {
    Job { name: "vinum", rw, block, depth: "1", clients }
}

pub fn scale(program: &Path, options: &Options) -> Result<Vec<Run>, Failure> {
    let mut volumes = Volumes::start(program, options, (4, DRIVE), &["--emulate", EVEN])?;
    let plex = |organization, drives| Plex { organization, drives };
    volumes.add("one", 4 * LENGTH, &[plex("concat", &[0])])?;
    volumes.add("striped", LENGTH, &[plex("striped 256k", FOUR)])?;
    volumes.add("mirror", 4 * LENGTH, &[plex("concat", &[1]), plex("concat", &[2])])?;
    volumes.settle();
    for (kind, rw) in KINDS {
        for depth in ["16", "64"] {
            let job = Job { name: "vinum", rw, block: "4k", depth, clients: "1" };
            for volume in ["one", "striped", "mirror"] {
                volumes.run(volume, &format!("scale-{kind}-4k-q{depth}"), &job)?;
            }
        }
    }
    Ok(volumes.runs())
}

/// The paper's figure 4.
pub fn stripes(program: &Path, options: &Options) -> Result<Vec<Run>, Failure> {
    let mut all = Vec::new();
    for stripe in STRIPES {
        let mut volumes = Volumes::start(program, options, (4, DRIVE), &["--emulate", DISK])?;
        let organization = &format!("striped {stripe}");
        let plex = |drives| Plex { organization, drives };
        volumes.add("striped", LENGTH, &[plex(FOUR)])?;
        volumes.add("mirrored", LENGTH, &[plex(FOUR), plex(FOUR_TURNED)])?;
        let mut systems = vec!["striped", "mirrored"];
        if stripe == STRIPES[0] {
            volumes.add("one", 4 * LENGTH, &[Plex { organization: "concat", drives: &[0] }])?;
            systems.push("one");
        }
        volumes.settle();
        for (kind, rw) in KINDS {
            for system in &systems {
                volumes.run(system, &format!("stripes-{stripe}-{kind}"), &of_many(rw, BLOCK, "8"))?;
            }
        }
        all.extend(volumes.runs());
    }
    Ok(all)
}

fn one_and_striped<'a>(program: &Path, options: &'a Options) -> Result<Volumes<'a>, Failure> {
    let volumes = Volumes::start(program, options, (4, DRIVE), &["--emulate", DISK])?;
    volumes.add("one", 4 * LENGTH, &[Plex { organization: "concat", drives: &[0] }])?;
    volumes.add("striped", LENGTH, &[Plex { organization: "striped 256k", drives: FOUR }])?;
    volumes.settle();
    Ok(volumes)
}

/// The paper's figure 5.
pub fn sizes(program: &Path, options: &Options) -> Result<Vec<Run>, Failure> {
    let mut volumes = one_and_striped(program, options)?;
    for block in SIZES {
        for volume in ["one", "striped"] {
            volumes.run(volume, &format!("sizes-{block}-read"), &of_many("randread", block, "8"))?;
        }
    }
    Ok(volumes.runs())
}

/// The paper's figure 6.
pub fn clients(program: &Path, options: &Options) -> Result<Vec<Run>, Failure> {
    let mut volumes = one_and_striped(program, options)?;
    for clients in CLIENTS {
        for volume in ["one", "striped"] {
            volumes.run(volume, &format!("clients-{clients}-read"), &of_many("randread", BLOCK, clients))?;
        }
    }
    Ok(volumes.runs())
}

/// The paper's figure 7, and a striped plex on as many drives.
pub fn raid5(program: &Path, options: &Options) -> Result<Vec<Run>, Failure> {
    let mut all = Vec::new();
    for stripe in STRIPES {
        let mut volumes = Volumes::start(program, options, (5, DRIVE), &["--emulate", DISK])?;
        volumes.add("raid5", LENGTH, &[Plex { organization: &format!("raid5 {stripe}"), drives: FIVE }])?;
        volumes.add("striped", LENGTH, &[Plex { organization: &format!("striped {stripe}"), drives: FIVE }])?;
        volumes.settle();
        for (kind, rw) in KINDS {
            for system in ["raid5", "striped"] {
                volumes.run(system, &format!("raid5-{stripe}-{kind}"), &of_many(rw, BLOCK, "8"))?;
            }
        }
        all.extend(volumes.runs());
    }
    Ok(all)
}
