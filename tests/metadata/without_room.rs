//! The disk of the data folder is full, or breaks: nothing is said to be done that isn't on it, and it's never a riddle.

use crate::cluster::Plan;
use crate::nbd::{Ledger, Writer};
use crate::program;
use crate::room::{Mount, fill};
use crate::{need, need_root};
use std::time::{Duration, Instant};

const FAR_MORE_THAN_FIT: u32 = 20_000;

#[test]
fn a_full_data_folder_is_told_holds_back_what_needs_it_and_is_over_when_there_is_space() {
    need_root!();
    let mut cluster = Plan::default().made();
    let data = Mount::in_memory(&cluster.data(), "3m");
    cluster.start();
    cluster.create("v0", "16M", "mirror:4");
    let writer = Writer::start(cluster.address(), "v0", Ledger::new(91, 4096));
    let filler = data.0.join("filler");
    fill(&filler);
    let refusal = (0..FAR_MORE_THAN_FIT).find_map(|number| {
        let ended =
            cluster.tepal(&["volume", "create", &format!("more{number}"), "--size", "1M", "--layout", "stripe"]);
        (!ended.status.success()).then(|| (number, ended.refused(1)))
    });
    let (last, refusal) = refusal.expect("the data folder is full");
    for said in ["the cluster's state can't be written", "database or disk is full", "free some space"] {
        assert!(refusal.contains(said), "{refusal}");
    }
    let again = Instant::now();
    cluster.tepal(&["volume", "create", "later", "--size", "1M", "--layout", "stripe"]).refused(1);
    assert!(again.elapsed() < Duration::from_secs(20), "a refusal takes {:?}", again.elapsed());
    let status = cluster.ask(&["status"]);
    assert_eq!(status["health"], "degraded");
    assert!(status["reason"].to_string().contains("can't be written"), "{status}");
    writer.go_on_for(500);

    let drive = cluster.drive(1).to_owned();
    std::fs::rename(&drive, drive.with_extension("aside")).expect("our own drive");
    program::until("the loss to be noticed", program::LIMIT, || {
        cluster.log().contains("drive out of service").then_some(())
    });
    assert_eq!(cluster.drives_say("state"), ["up"; 4], "what can't be written down doesn't count");
    std::fs::remove_file(&filler).expect("our own file");
    cluster.wait_for_drive(&drive, "missing");
    writer.go_on_for(500);
    // What had begun was carried out.
    cluster.tepal(&["volume", "show", &format!("more{last}")]).succeeded();
    cluster.tepal(&["volume", "show", "later"]).refused(1);
    cluster.create("later", "1M", "stripe");
    std::fs::rename(drive.with_extension("aside"), &drive).expect("our own drive");
    ["v0", "later"].iter().for_each(|volume| cluster.wait_until_healthy(volume));
    // A column of `later` may be about to be led anew, on the drive that is back.
    program::until("health to be ok", program::LIMIT, || (cluster.ask(&["status"])["health"] == "ok").then_some(()));
    assert!(cluster.log().contains("can be written again"));
    writer.finish().compare(&mut cluster.connect("v0"));
    cluster.stop_and_check_drives();
}

/// Story: a flush fails, the next one succeeds, and nobody has written what the first was to write.
#[test]
fn a_server_whose_metadata_could_not_be_flushed_ends_with_an_error_and_tells_nobody_that_it_was_done() {
    need_root!();
    need!("mkfs.ext4");
    let mut cluster = Plan { drives: 1, ..Plan::default() }.made();
    let under = Mount::in_memory(&cluster.folder().join("under"), "16m");
    let _data = Mount::on_file(&cluster.data(), &under.0.join("disk"), 256 << 20);
    cluster.start();
    cluster.create("v0", "1M", "stripe");
    fill(&under.0.join("filler"));
    let refusal = (0..FAR_MORE_THAN_FIT).find_map(|number| {
        let ended = cluster.tepal(&["volume", "create", &format!("more{number}"), "--size", "1M"]);
        (!ended.status.success()).then_some(ended)
    });
    refusal.expect("the disk is full below the data folder").refused(1);
    assert!(!cluster.wait_for_end().success(), "it ended as if all was well");
    let log = cluster.log();
    assert!(log.contains("the cluster's state can't be stored"), "{log}");
}
