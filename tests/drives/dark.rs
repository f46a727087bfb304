//! One server with several drives is killed, and comes back with some of them.

use crate::cluster::{Cluster, Plan};
use crate::nbd::noise;
use std::path::Path;

const SIZE: usize = 4 << 20;
/// Each outlives the loss of one drive; the last one of two.
const LAYOUTS: [(&str, &str); 3] = [("double", "mirror:2"), ("pieces", "mirror:2;extent=64K"), ("triple", "mirror:3")];

fn write(cluster: &Cluster, seed: u64) {
    for (nth, (volume, _)) in (0..).zip(LAYOUTS) {
        cluster.connect(volume).write(0, &noise(seed + nth, SIZE)).expect("written");
    }
}

fn compare(cluster: &Cluster, seed: u64, volumes: impl Fn(&str) -> bool, when: &str) {
    for (nth, (volume, _)) in (0..).zip(LAYOUTS).filter(|(_, (volume, _))| volumes(volume)) {
        let read = cluster.connect(volume).read(0, SIZE as u32).unwrap_or_else(|error| panic!("{volume}: {error:?}"));
        assert!(read == noise(seed + nth, SIZE), "{volume}, {when}");
    }
}

fn hide(drive: &Path) {
    std::fs::rename(drive, drive.with_extension("aside")).expect("our own drive");
}

fn show(drive: &Path) {
    std::fs::rename(drive.with_extension("aside"), drive).expect("our own drive");
}

#[test]
fn a_killed_server_serves_by_every_set_of_drives_that_has_all() {
    const DRIVES: usize = 4;
    let mut cluster = Plan { drives: DRIVES, ..Plan::default() }.up();
    LAYOUTS.iter().for_each(|(volume, layout)| cluster.create(volume, "4M", layout));
    for away in 1_u32..1 << DRIVES {
        if away.count_ones() > 2 {
            continue;
        }
        let seed = u64::from(away) * 10;
        write(&cluster, seed);
        cluster.kill();
        let drives: Vec<_> = (0..DRIVES).filter(|drive| away >> drive & 1 == 1).collect();
        let paths: Vec<_> = drives.iter().map(|&drive| cluster.drive(drive).to_owned()).collect();
        paths.iter().for_each(|path| hide(path));
        cluster.start();
        let outlives = |volume: &str| drives.len() == 1 || volume == "triple";
        compare(&cluster, seed, outlives, &format!("without {drives:?}"));
        // The drives that return have missed a write, and none of them is believed alone.
        let triple = noise(seed + 5, SIZE);
        cluster.connect("triple").write(0, &triple).expect("written");
        cluster.kill();
        paths.iter().for_each(|path| show(path));
        cluster.start();
        compare(&cluster, seed, |volume| volume != "triple", &format!("with {drives:?} back"));
        assert!(cluster.connect("triple").read(0, SIZE as u32).expect("there") == triple, "with {drives:?} back");
        LAYOUTS.iter().for_each(|(volume, _)| cluster.wait_until_healthy(volume));
    }
    cluster.stop_and_check_drives();
}
