//! Drives that are larger than what is below them: thin files on a filesystem that gets full.

use crate::cluster::{Plan, make_drive, tepal};
use crate::nbd::{Ledger, Writer};
use crate::need_root;
use crate::program::{self, run};
use crate::room::{Mount, fill};
use std::process::Command;

/// Story: the disk under the drives' files got full, each drive counted as failed for good, and with both of them all data was
/// lost, though all of it was there.
#[test]
fn drives_without_room_below_them_lose_nothing_and_go_on_when_there_is_some() {
    need_root!();
    let mut cluster = Plan { drives: 0, ..Plan::default() }.made();
    let under = Mount::in_memory(&cluster.folder().join("under"), "256m");
    let drives = [under.0.join("a"), under.0.join("b")];
    for drive in &drives {
        make_drive(drive, 1 << 30);
        let path = drive.to_str().expect("our own paths").to_owned();
        cluster.plan().arguments.extend(["--drive".to_owned(), path]);
    }
    cluster.start();
    cluster.create("v0", "64M", "mirror:2");
    let writer = Writer::start(cluster.address(), "v0", Ledger::new(14, 16_384));
    writer.go_on_for(300);
    let filler = under.0.join("filler");
    fill(&filler);
    for drive in &drives {
        let missing = cluster.wait_for_drive(drive, "missing");
        assert!(missing["reason"].to_string().contains("no space below it"), "{missing}");
    }
    // No request has failed, and none is answered any more.
    writer.settled();
    assert_eq!(cluster.ask(&["status"])["health"], "unavailable");
    std::fs::remove_file(&filler).expect("our own file");
    for drive in &drives {
        cluster.wait_for_drive(drive, "up");
    }
    cluster.wait_until_healthy("v0");
    writer.go_on_for(300);
    writer.finish().compare(&mut cluster.connect("v0"));
    cluster.scrub_finds_nothing("v0");
    cluster.stop();
    for drive in &drives {
        run(Command::new(tepal()).args(["drive", "check"]).arg(drive)).succeeded();
    }
}

#[test]
fn a_tour_without_room_says_so_and_makes_nothing() {
    need_root!();
    let scratch = tempfile::tempdir().expect("space");
    let under = Mount::in_memory(&scratch.path().join("under"), "100m");
    let folder = under.0.join("dev");
    let refused = program::run(Command::new(tepal()).arg("--dir").arg(&folder).args(["dev", "tour"])).refused(1);
    assert!(refused.contains("are free there"), "{refused}");
    assert!(!folder.exists());
}
