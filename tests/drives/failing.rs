//! A drive that fails by itself, and a spare that waits for that.

use crate::cluster::Plan;
use crate::filesystems::obstacle;
use crate::nbd::{Ledger, Writer};
use crate::power::{Operation, Shelved};
use crate::program::until;
use crate::{need, skip};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);
const SIZE: usize = 64 << 20;

#[test]
fn a_spare_steps_in_for_a_drive_whose_reads_writes_or_flushes_fail_and_nobody_has_to_say_so() {
    need!("fusermount3");
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    for fails in [Operation::Write, Operation::Flush, Operation::Read] {
        println!("{fails:?}");
        let mut cluster = Plan { drives: 3, drive_size: SIZE as u64, ..Plan::default() }.up();
        let failing = Shelved::add(&cluster, SIZE);
        let [failed, spare] = [&*failing.path, cluster.drive(2)].map(|path| cluster.drive_id(path));
        cluster.tepal(&["drive", "spare", &spare]).succeeded();
        cluster.create("v0", "8M", "mirror:2");
        let copies = |id: &str| {
            let drives = cluster.ask(&["drive", "ls"]);
            let drive = drives.as_array().expect("a list").iter().find(|drive| drive["id"] == id).cloned();
            drive.expect("it's listed")["copies"].as_u64().expect("a number")
        };
        assert!(copies(&failed) > 0 && copies(&spare) == 0);
        let mut ledger = Ledger::new(37, 2048);
        ledger.fill(&mut cluster.connect("v0")).expect("written");
        let writer = Writer::start(cluster.address(), "v0", ledger);
        writer.go_on_for(300);
        failing.shelf.media(0).fails = Some(fails);
        cluster.wait_for_drive(&failing.path, "failed");
        until("others to have what it had", SOON, || (copies(&failed) == 0).then_some(()));
        assert!(copies(&spare) > 0, "the spare has stepped in");
        cluster.wait_until_healthy("v0");
        writer.go_on_for(300);
        cluster.tepal(&["drive", "rm", &failed]).succeeded();
        failing.close();
        until("all to be well", SOON, || (cluster.ask(&["status"])["health"] == "ok").then_some(()));
        writer.finish().compare(&mut cluster.connect("v0"));
        cluster.scrub_finds_nothing("v0");
        cluster.stop_and_check_drives();
    }
}
