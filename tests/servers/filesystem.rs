//! ext4 on a volume over several servers, while these go and return.

use super::gateway::{Gateway, up};
use crate::filesystems::attached::Attached;
use crate::filesystems::through_nbdfuse::Disk;
use crate::filesystems::{Mounted, check_ext4, compare_files, make_ext4, obstacle, write_file};
use crate::nbd::Address;
use crate::program::{command, run};
use crate::{need, skip};

#[test]
fn a_filesystem_only_waits_while_the_servers_below_it_are_killed_one_after_another() {
    need!("nbdfuse", "fusermount3");
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let ring = up(4, "48M");
    let gateway = Gateway::start(&ring, "a");
    let Address::Unix(socket) = gateway.address() else { unreachable!("it listens on a socket") };
    let disk = Disk::new(ring.scratch_file("fuse"), &format!("nbd+unix:///v?socket={}", socket.display()));
    make_ext4(&disk.device);
    let mounted = Mounted::new(&disk.device, &ring.scratch_file("mnt"), "rw");
    for (round, victim) in [2, 1, 4, 3].into_iter().enumerate() {
        let files = round as u64 * 40..(round as u64 + 1) * 40;
        for number in files.clone().take(20) {
            write_file(&mounted.at, number, false).expect("space");
        }
        ring.kill(victim);
        // Each write waits for the disk.
        for number in files.clone().skip(20) {
            write_file(&mounted.at, number, true).expect("the disk only waits");
        }
        ring.start(&[victim]);
        ring.wait_until_healthy(victim % 4 + 1, "v");
        compare_files(&mounted.at, 0..files.end);
    }
    run(command("sync", ["-f"]).arg(&mounted.at)).succeeded();
    mounted.unmount();
    check_ext4(&disk.device);
    drop(disk);
    ring.wait_until_healthy(1, "v");
    let scrub = ring.json(1, &["volume", "scrub", "v"]);
    assert_eq!((&scrub["repaired_blocks"], scrub["damaged"].as_array().map(Vec::len)), (&0.into(), Some(0)), "{scrub}");
}

/// Story: a volume of four servers was attached over the first one's socket, and its filesystem stood still when that was killed.
#[test]
fn a_volume_that_is_attached_goes_on_when_the_first_server_is_killed() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let ring = up(3, "48M");
    let dir = ring.dir();
    let attached = Attached::new(&dir, "v", &[]);
    make_ext4(&attached.device);
    let mounted = Mounted::new(&attached.device, &ring.scratch_file("mnt"), "rw");
    for (victim, files) in [(1, 0..20), (2, 20..40)] {
        ring.kill(victim);
        for number in files.clone() {
            write_file(&mounted.at, number, true).expect("the disk only waits");
        }
        ring.start(&[victim]);
        // The next one must not be lost before this one has what it missed: nobody would have it.
        ring.wait_until_healthy(3, "v");
        compare_files(&mounted.at, 0..files.end);
    }
    mounted.unmount();
    check_ext4(&attached.device);
    attached.detach();
}
