//! Discards of whole disks: what holds nothing is passed in long ranges.

use super::attached::Attached;
use super::obstacle;
use crate::cluster::Plan;
use crate::program::{command, run, until};
use crate::servers::ring::Ring;
use crate::skip;
use serde_json::Value;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

const SIZE: u64 = 16 << 40;
/// A second or two, where nothing else runs. Step by step it would take minutes.
const SECONDS: Duration = Duration::from_secs(15);

fn discard(attached: &Attached<'_>) -> Duration {
    let begun = Instant::now();
    run(command("blkdiscard", [""; 0]).arg(&attached.device)).succeeded();
    begun.elapsed()
}

/// `data`: of a server, or of a cluster. `ask`: a command's answer.
fn a_large_disk_is_discarded(data: &Path, ask: impl Fn(&[&str]) -> Value) {
    ask(&["volume", "create", "v0", "--size", &SIZE.to_string(), "--layout", "mirror:2"]);
    let attached = Attached::new(data, "v0", &[]);
    let took = discard(&attached);
    assert!(took < SECONDS, "nothing was there: {took:?}");

    let device = std::fs::File::options().read(true).write(true).open(&attached.device).expect("a disk");
    let places = [0, SIZE / 3 / 4096 * 4096, SIZE - (1 << 20)];
    places.iter().for_each(|&at| device.write_all_at(&[7; 1 << 20], at).expect("written"));
    device.sync_all().expect("written");
    let took = discard(&attached);
    assert!(took < SECONDS, "3 MiB were there: {took:?}");
    for at in places {
        let mut read = [1; 4096];
        device.read_exact_at(&mut read, at + 4096).expect("it's read");
        assert_eq!(read, [0; 4096], "at {at}");
    }
    drop(device);
    attached.detach();
    let used = || ask(&["volume", "show", "v0"])["allocated"].as_u64();
    until("the space to come back", Duration::from_secs(30), || (used() == Some(0)).then_some(()));
}

/// Story: `blkdiscard` of an empty volume of 16 TiB took 48 s.
#[test]
fn an_empty_disk_of_16_tib_is_discarded_in_seconds() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let cluster = Plan::default().up();
    a_large_disk_is_discarded(&cluster.data(), |arguments| cluster.ask(arguments));
}

/// Story: the server that led a column cleared each few megabytes of it with the turn of a write.
#[test]
fn three_servers_discard_a_disk_of_16_tib_in_seconds() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let ring = Ring::up(3);
    a_large_disk_is_discarded(&ring.dir(), |arguments| ring.json(1, arguments));
}
