//! What volumes are made of, and what is left of making them.

use super::driver::{MIB, again, of_snapshot, of_volume, refused, wanted};
use super::stories::up;
use crate::nbd::noise;
use crate::program::until;
use serde_json::json;
use std::time::Duration;
use tonic::Code;

const SOON: Duration = Duration::from_secs(60);

/// Story: a claim for what a snapshot holds was given a blank volume that happened to have its name.
#[test]
fn a_volume_made_of_something_else_is_not_the_one_that_is_wanted() {
    let (_cluster, driver) = up(&[]);
    let mut calls = driver.client();
    let [blank, source] = ["blank", "source"].map(|name| calls.create(wanted(name, MIB)).expect("made").volume_id);
    let [moment, later] = ["moment", "later"].map(|name| calls.snapshot(name, &source).expect("made").snapshot_id);
    let of_moment = |name| of_snapshot(wanted(name, MIB), &moment);
    let copy = |name| of_volume(wanted(name, MIB), &source);
    for made in [of_moment("of-moment"), copy("copy"), wanted("blank", MIB)] {
        assert_eq!(calls.create(made.clone()).expect("made"), calls.create(made).expect("there"));
    }
    for (other, word) in [
        (of_moment("blank"), "is no clone"),
        (copy("blank"), "is no clone"),
        (wanted("of-moment", MIB), "a clone of csi-source@csi-moment"),
        (wanted("copy", MIB), "a clone of"),
        (of_snapshot(wanted("of-moment", MIB), &later), "a clone of csi-source@csi-moment"),
        (copy("of-moment"), "a clone of csi-source@csi-moment"),
        (of_moment("copy"), "a clone of"),
        (of_volume(wanted("copy", MIB), &blank), "a clone of"),
    ] {
        refused(calls.create(other), Code::AlreadyExists, word);
    }
}

/// Story: a clone was refused, nobody asked for it again, and its source could never be deleted for a snapshot that no list shows.
#[test]
fn a_clone_that_is_refused_leaves_no_snapshot_behind() {
    let (cluster, driver) = up(&[]);
    let mut calls = driver.client();
    let base = calls.create(wanted("base", 16 * MIB)).expect("made").volume_id;
    cluster.connect("csi-base").write(0, &noise(1, 16 << 20)).expect("written");
    let moment = calls.snapshot("moment", &base).expect("made").snapshot_id;
    let source = calls.create(of_snapshot(wanted("source", 16 * MIB), &moment)).expect("made").volume_id;
    cluster.tepal(&["volume", "flatten", "csi-source", "--rate", "1M", "--no-wait"]).succeeded();
    let copy = || of_volume(wanted("copy", 16 * MIB), &source);
    refused(calls.create(copy()), Code::FailedPrecondition, "csi-source");
    assert_eq!(cluster.volume("csi-source")["snapshots"], json!([]));
    cluster.tepal(&["volume", "rate", "csi-source", "auto"]).succeeded();
    cluster.wait_until_there("csi-source");
    calls.create(copy()).expect("it's a volume of its own now");
    assert_eq!(cluster.volume("csi-source")["snapshots"], json!([]));
}

/// Here it's made by hand, by the name that a killed driver has left it with.
#[test]
fn what_a_killed_driver_left_of_a_clone_goes_when_one_starts() {
    let (cluster, mut driver) = up(&[]);
    let mut calls = driver.client();
    let id = calls.create(wanted("source", MIB)).expect("made").volume_id;
    let deleted = calls.create(wanted("deleted", MIB)).expect("made").volume_id;
    driver.kill();
    for volume in ["csi-source", "csi-deleted"] {
        cluster.tepal(&["snapshot", "create", &format!("{volume}@csi_clone-{volume}")]).succeeded();
    }
    cluster.tepal(&["volume", "rename", "csi-deleted", &format!("csi_deleted-{}", number(&deleted))]).succeeded();
    driver.start_again();
    until("what is left to go", SOON, || (cluster.ask(&["snapshot", "ls"]) == json!([])).then_some(()));
    let mut calls = driver.client();
    again(|| calls.delete(&id));
    until("the deleted one to go too", SOON, || (cluster.ask(&["volume", "ls"]) == json!([])).then_some(()));
}

/// A volume's id, of its handle.
fn number(handle: &str) -> &str {
    handle.rsplit_once('-').expect("a cluster and a volume").1
}
