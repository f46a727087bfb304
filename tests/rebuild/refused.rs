//! What can't be rebuilt, and why.

use super::one_server::{lose_folder, rebuild, small};
use crate::cluster::Plan;
use crate::nbd::noise;

#[test]
fn what_is_no_loss_or_not_one_clusters_is_refused_by_name_and_nothing_is_made() {
    let mut cluster = small().up();
    cluster.create("v", "8M", "mirror:2");
    let drives = [cluster.drive(0).to_owned(), cluster.drive(1).to_owned()];
    let drives = [drives[0].as_path(), drives[1].as_path()];
    let refused = rebuild(&cluster, &drives, &[]).refused(1);
    assert!(refused.contains("is in use"), "{refused}");
    cluster.stop();
    let refused = rebuild(&cluster, &drives, &[]).refused(1);
    assert!(refused.contains("holds a cluster's state already"), "{refused}");
    lose_folder(&cluster);

    let mut other = Plan { drives: 1, ..small() }.up();
    other.stop();
    let refused = rebuild(&cluster, &[drives[0], other.drive(0)], &[]).refused(1);
    assert!(refused.contains("different clusters"), "{refused}");
    let copy = cluster.folder().join("copy");
    std::fs::copy(drives[0], &copy).expect("space");
    let refused = rebuild(&cluster, &[drives[0], &copy], &[]).refused(1);
    assert!(refused.contains("both say that they are drive"), "{refused}");
    let blank = cluster.folder().join("blank");
    crate::cluster::make_drive(&blank, 64 << 20);
    let refused = rebuild(&cluster, &[drives[0], &blank], &[]).refused(1);
    assert!(refused.contains("it has no Tepal label"), "{refused}");
    let refused = rebuild(&cluster, &drives, &["--server", "s7"]).refused(1);
    assert!(refused.contains("no server s7"), "{refused}");
    let refused = cluster.tepal(&["cluster", "rebuild"]).refused(2);
    assert!(refused.contains("--from-drives"), "{refused}");
    assert!(!cluster.data().exists(), "nothing was made");
    rebuild(&cluster, &[drives[0], drives[1], drives[0]], &[]).succeeded(); // one that is named twice is one
}

#[test]
fn a_drive_that_was_used_by_a_later_state_than_the_one_rebuilt_from_is_refused_and_clients_wait_for_it() {
    let mut cluster = small().up();
    cluster.create("v", "8M", "mirror:2");
    let id = cluster.drive_id(cluster.drive(0));
    cluster.tepal(&["drive", "offline", &id]).succeeded();
    cluster.connect("v").write_through(0, &noise(2, 4096)).expect("written");
    cluster.stop();
    lose_folder(&cluster);
    let (one, other) = (cluster.drive(0).to_owned(), cluster.drive(1).to_owned());
    rebuild(&cluster, &[&one], &["--partial"]).succeeded();
    cluster.start();
    cluster.wait_for_drive(&other, "missing");
    assert!(cluster.log().contains("later state of the cluster"), "{}", cluster.log());
    assert_eq!(cluster.volume("v")["state"], "unavailable");
    // As it says.
    cluster.stop();
    lose_folder(&cluster);
    rebuild(&cluster, &[&other], &["--partial"]).succeeded();
    cluster.start();
    assert!(cluster.connect("v").read(0, 4096).expect("read") == noise(2, 4096));
}

#[test]
fn what_was_only_on_drives_that_are_given_up_is_an_error_and_the_rest_is_there() {
    let mut cluster = small().up();
    cluster.create("v", "8M", "mirror:2");
    cluster.create("s", "8M", "stripe");
    let bytes = noise(2, 1 << 20);
    cluster.connect("v").write_through(0, &bytes).expect("written");
    cluster.stop();
    lose_folder(&cluster);
    let one = cluster.drive(0).to_owned();
    std::fs::remove_file(cluster.drive(1)).expect("ours");
    let said = rebuild(&cluster, &[&one], &["--without-missing"]).succeeded();
    let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let volumes = said["volumes"].as_array().expect("a list");
    let parts = |name: &str| {
        let volume = volumes.iter().find(|volume| volume["name"] == name).expect("listed");
        volume["parts"].as_u64().unwrap() - volume["parts_found"].as_u64().unwrap()
    };
    assert!(parts("v") == 0 && parts("s") > 0, "{said}");
    cluster.start();
    assert!(cluster.connect("v").read(0, 1 << 20).expect("read") == bytes);
    cluster.connect("v").write_through(0, &bytes[4096..8192]).expect("it goes on");
    cluster.connect("s").read(0, 8 << 20).expect_err("half of it is lost");
}
