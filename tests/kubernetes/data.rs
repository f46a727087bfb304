//! What isn't the driver's to destroy.

use super::driver::{MIB, Orchestrator, again, block, ext4, filesystem, refused, wanted};
use super::spec::volume_capability::access_mode::Mode;
use super::stories::up;
use crate::cluster::Cluster;
use crate::filesystems::obstacle;
use crate::nbd::noise;
use crate::program::{command, run};
use crate::skip;
use std::os::unix::fs::FileExt;
use std::path::Path;
use tonic::Code;

const SIZE: usize = 100 << 20;

fn content(cluster: &Cluster, name: &str) -> Vec<u8> {
    let mut volume = cluster.connect(&format!("{name}?exclusive=csi-unpublished"));
    let piece = |offset: usize| volume.read((offset << 20) as u64, 1 << 20).expect("there");
    (0..SIZE >> 20).flat_map(piece).collect()
}

/// Has a workload use the device as it is, and gives back what it left there.
fn with_device(
    calls: &mut Orchestrator,
    cluster: &Cluster,
    name: &str,
    use_it: impl FnOnce(&Path),
) -> (String, Vec<u8>) {
    let id = calls.create(wanted(name, 100 * MIB)).expect("made").volume_id;
    let device = calls.bring(&id, &block(Mode::SingleNodeWriter));
    use_it(&device);
    run(&mut command("blockdev", ["--flushbufs", device.to_str().expect("text")])).succeeded();
    calls.bring_back(&id);
    (id, content(cluster, &format!("csi-{name}")))
}

#[test]
fn a_device_with_data_is_refused_and_never_formatted() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let (cluster, driver) = up(&[]);
    let mut calls = driver.client();
    let write_at = |offset: u64| {
        move |device: &Path| {
            let file = std::fs::File::options().write(true).open(device).expect("a device");
            file.write_all_at(&noise(1, 512), offset).expect("written");
            file.sync_all().expect("stable");
        }
    };
    let swap = |device: &Path| drop(run(&mut command("mkswap", [device])).succeeded());
    let ext4_there = |device: &Path| drop(run(command("mkfs.ext4", ["-q"]).arg(device)).succeeded());
    type Use = Box<dyn FnOnce(&Path)>;
    let cases: [(&str, Use, &str, &str); 4] = [
        ("begin", Box::new(write_at(0)), "ext4", "has data and no filesystem"),
        ("end", Box::new(write_at((SIZE - 512) as u64)), "", "has data and no filesystem"),
        ("swap", Box::new(swap), "ext4", "swap"),
        ("ext4", Box::new(ext4_there), "xfs", "has ext4, and xfs is wanted"),
    ];
    let node = calls.node_id();
    for (name, use_it, fs_type, word) in cases {
        let (id, before) = with_device(&mut calls, &cluster, name, use_it);
        let capability = filesystem(fs_type, Mode::SingleNodeWriter);
        let context = calls.give(&id, &node, &capability).expect("given");
        for _ in 0..2 {
            refused(calls.stage(&id, &capability, context.clone()), Code::FailedPrecondition, word);
        }
        assert!(driver.attached().is_empty(), "what can't be staged isn't left attached");
        calls.take(&id, &node).expect("taken");
        assert!(content(&cluster, &format!("csi-{name}")) == before, "{name}: not as it was");
    }
    // What was cleared is blank.
    let id = calls.create(wanted("begin", 100 * MIB)).expect("there").volume_id;
    let device = calls.bring(&id, &block(Mode::SingleNodeWriter));
    run(command("blkdiscard", ["-f"]).arg(&device)).succeeded();
    calls.bring_back(&id);
    calls.bring(&id, &ext4());
    calls.bring_back(&id);
}

/// A name that an operator gave is nobody else's to delete.
#[test]
fn volumes_that_the_driver_did_not_make_are_used_and_not_deleted() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let (cluster, driver) = up(&[]);
    cluster.create("own", "100M", "mirror:2");
    let (id, cluster_id) = (cluster.volume("own")["id"].clone(), cluster.ask(&["cluster", "show"])["id"].clone());
    let handle = format!("{}-{id}", cluster_id.as_str().expect("text"));
    let mut calls = driver.client();
    calls.bring(&handle, &ext4());
    cluster.tepal(&["volume", "rename", "own", "mine"]).succeeded();
    calls.bring_back(&handle);
    refused(calls.delete(&handle), Code::FailedPrecondition, "tepal volume rm mine");
    cluster.tepal(&["snapshot", "create", "mine@now"]).succeeded();
    let snapshot = format!("{handle}@{}", cluster.ask(&["snapshot", "show", "mine@now"])["epoch"]);
    refused(calls.delete_snapshot(&snapshot), Code::FailedPrecondition, "tepal snapshot rm mine@now");
    // Of another cluster.
    let elsewhere = format!("{}-{id}", "0".repeat(32));
    calls.delete(&elsewhere).expect("there's no such volume here");
    refused(calls.stage(&elsewhere, &ext4(), Default::default()), Code::NotFound, "volume");
    assert_eq!(cluster.volume("mine")["snapshots"].as_array().map(Vec::len), Some(1));
    again(|| calls.delete(&handle[..handle.len() - 1]));
}
