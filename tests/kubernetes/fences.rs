//! Several machines: who has a volume, and who doesn't any more.

use super::driver::{Driver, MIB, again, block, ext4, filesystem, refused, wanted};
use super::spec::volume_capability::access_mode::Mode;
use super::stories::up;
use crate::cluster::command_for;
use crate::filesystems::{compare_files, obstacle, write_file};
use crate::nbd::noise;
use crate::program::until;
use crate::servers::ring::Ring;
use crate::skip;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;
use tonic::Code;

const SOON: Duration = Duration::from_secs(60);

fn open(device: &Path) -> std::fs::File {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::File::options().read(true).write(true).custom_flags(libc::O_DIRECT).open(device).expect("a device")
}

/// Memory as direct I/O wants it.
fn page(seed: u64) -> Vec<u8> {
    noise(seed, 4096)
}

fn aligned(bytes: &mut Vec<u8>) -> &mut [u8] {
    bytes.resize(8192, 0);
    let from = bytes.as_ptr().align_offset(4096);
    &mut bytes[from..from + 4096]
}

fn write(device: &std::fs::File, seed: u64) -> std::io::Result<()> {
    let mut memory = Vec::new();
    let place = aligned(&mut memory);
    place.copy_from_slice(&page(seed));
    device.write_all_at(place, 0)
}

fn read(device: &std::fs::File) -> Vec<u8> {
    let mut memory = Vec::new();
    let place = aligned(&mut memory);
    device.read_exact_at(place, 0).expect("read");
    place.to_vec()
}

#[test]
fn a_machine_whose_volume_went_elsewhere_writes_nothing_any_more() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let (cluster, one) = up(&["--node", "one"]);
    let data = cluster.data();
    let other = Driver::start(&cluster.folder().join("other"), move || command_for(&data), &["--node", "other"]);
    let (mut on_one, mut on_other) = (one.client(), other.client());
    let (node_one, node_other) = (on_one.node_id(), on_other.node_id());
    let raw = block(Mode::SingleNodeWriter);
    let id = on_one.create(wanted("data", 64 * MIB)).expect("made").volume_id;
    let device = open(&on_one.bring(&id, &raw));
    write(&device, 1).expect("its own");
    refused(on_one.give(&id, &node_other, &raw), Code::FailedPrecondition, "'one'");
    refused(on_one.delete(&id), Code::FailedPrecondition, "'one'");
    refused(on_one.give(&id, "somebody", &raw), Code::NotFound, "somebody");
    // The machine is said to be dead, and isn't.
    on_other.take(&id, &node_one).expect("taken");
    let elsewhere = open(&on_other.bring(&id, &raw));
    assert!(read(&elsewhere) == page(1));
    write(&elsewhere, 2).expect("its own");
    write(&device, 3).expect_err("it's another one's");
    assert!(read(&elsewhere) == page(2));
    drop((device, elsewhere));
    on_other.bring_back(&id);
    // It's back, and has the volume only when it was given up and is its own once more.
    let context = on_one.give(&id, &node_one, &raw).expect("given");
    refused(on_one.stage(&id, &raw, context.clone()), Code::FailedPrecondition, "unpublish and unstage");
    on_one.unpublish(&id).expect("unpublished");
    on_one.stage(&id, &raw, context).expect("staged anew");
    let device = open(&on_one.publish(&id, &raw).expect("published"));
    assert!(read(&device) == page(2));
    write(&device, 4).expect("its own");
    drop(device);
    on_one.bring_back(&id);
    on_one.delete(&id).expect("deleted");
}

/// Story: the device of a volume that was taken away was let go while a workload still had it. The next volume got its number, and what
/// the workload wrote went there.
#[test]
fn a_device_that_a_workload_still_has_becomes_no_other_volumes() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let (_cluster, driver) = up(&["--node", "one"]);
    let mut calls = driver.client();
    let (node, raw) = (calls.node_id(), block(Mode::SingleNodeWriter));
    let [taken, next] = ["taken", "next"].map(|name| calls.create(wanted(name, MIB)).expect("made").volume_id);
    let at = calls.bring(&taken, &raw);
    write(&open(&at), 1).expect("its own");
    calls.take(&taken, &node).expect("taken");
    refused(calls.unstage(&taken), Code::FailedPrecondition, "still mounted");
    let device = calls.bring(&next, &raw);
    write(&open(&device), 2).expect("its own");
    write(&open(&at), 3).expect_err("it was taken away");
    assert!(read(&open(&device)) == page(2));
    calls.unpublish(&taken).expect("unpublished");
    again(|| calls.unstage(&taken));
    calls.bring_back(&next);
    [taken, next].iter().for_each(|id| calls.delete(id).expect("deleted"));
}

/// Story: the server that a controller asked was cut off, and had the volume as nobody's. So it was said to be taken away from a machine
/// that went on writing.
#[test]
fn nothing_is_said_to_be_taken_away_by_a_server_that_is_cut_off() {
    if let Some(why) = crate::servers::partitions::refusal() {
        skip!("{why}");
    }
    let ring = Ring::isolated(3);
    ring.wait_until_all_are_up(1);
    let [data, cut_off] = [1, 3].map(|server| ring.data(server));
    let one = Driver::start(&ring.scratch_file("one"), move || command_for(&data), &["--node", "one"]);
    let late = Driver::start(&ring.scratch_file("late"), move || command_for(&cut_off), &["--node", "late"]);
    let (mut on_one, mut on_late) = (one.client(), late.client());
    let (node_one, node_late) = (on_one.node_id(), on_late.node_id());
    let raw = block(Mode::SingleNodeWriter);
    let id = on_one.create(wanted("data", MIB)).expect("made").volume_id;
    on_late.take(&id, &node_one).expect("nobody has it");
    ring.cut("s3", "s1,s2", &[]);
    on_one.give(&id, &node_one, &raw).expect("given");
    refused(on_late.take(&id, &node_one), Code::Unavailable, "no majority");
    refused(on_late.delete(&id), Code::Unavailable, "no majority");
    ring.heal();
    again(|| on_late.take(&id, &node_one));
    again(|| on_late.give(&id, &node_late, &raw));
    refused(on_one.give(&id, &node_one, &raw), Code::FailedPrecondition, "'late'");
}

/// What was written and isn't on the volume is lost then: a filesystem that can't be written to any more is no reason to wait.
#[test]
fn a_filesystem_that_was_cut_off_is_unstaged_without_waiting() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let (mut cluster, driver) = up(&[]);
    let mut calls = driver.client();
    let (node, capability) = (calls.node_id(), ext4());
    let id = calls.create(wanted("data", 64 * MIB)).expect("made").volume_id;
    let at = calls.bring(&id, &capability);
    write_file(&at, 1, true).expect("written");
    write_file(&at, 2, false).expect("in memory");
    calls.take(&id, &node).expect("taken");
    // It connects anew, and isn't let in.
    cluster.kill();
    cluster.start();
    calls.unpublish(&id).expect("unpublished");
    calls.unstage(&id).expect("unstaged");
    assert!(driver.attached().is_empty() && driver.mounted().is_empty());
    let at = calls.bring(&id, &capability);
    compare_files(&at, [1]);
    calls.bring_back(&id);
    calls.delete(&id).expect("deleted");
}

#[test]
fn machines_that_share_a_raw_volume_see_each_others_writes() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let (cluster, one) = up(&["--node", "one"]);
    let data = cluster.data();
    let other = Driver::start(&cluster.folder().join("other"), move || command_for(&data), &["--node", "other"]);
    let (mut on_one, mut on_other) = (one.client(), other.client());
    let shared = block(Mode::MultiNodeMultiWriter);
    let id = on_one.create(wanted("data", 64 * MIB)).expect("made").volume_id;
    let (here, there) = (open(&on_one.bring(&id, &shared)), open(&on_other.bring(&id, &shared)));
    for round in 0..5 {
        write(&here, round).expect("written");
        assert!(read(&there) == page(round));
        write(&there, 100 + round).expect("written");
        assert!(read(&here) == page(100 + round));
    }
    let node = on_one.node_id();
    let alone = on_one.give(&id, &node, &block(Mode::SingleNodeWriter));
    refused(alone, Code::FailedPrecondition, "in use");
    drop((here, there));
    on_one.bring_back(&id);
    on_other.bring_back(&id);
}

#[test]
fn a_workload_behind_a_gateway_outlives_the_loss_of_any_server() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let ring = Ring::up(3);
    ring.wait_until_all_are_up(1);
    let data = ring.data(1);
    let gateway = format!("unix:{}", ring.dir().join("nbd.sock").display());
    let arguments = ["--gateway", gateway.as_str(), "--fence", "none"];
    let driver = Driver::start(&ring.scratch_file("driver"), move || command_for(&data), &arguments);
    let mut calls = driver.client();
    let id = calls.create(wanted("data", 32 * MIB)).expect("made").volume_id;
    let at = calls.bring(&id, &ext4());
    for (round, server) in [2, 3].into_iter().enumerate() {
        ring.kill(server);
        write_file(&at, round as u64, true).expect("written without it");
        ring.start(&[server]);
        ring.wait_until_all_are_up(1);
        ring.wait_until_healthy(1, "csi-data");
    }
    compare_files(&at, 0..2);
    calls.bring_back(&id);
    calls.delete(&id).expect("deleted");
}

#[test]
fn a_volume_is_granted_to_the_machine_that_has_it() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let (cluster, driver) = up(&["--node", "web", "--fence", "rights"]);
    let mut calls = driver.client();
    let (node, capability) = (calls.node_id(), ext4());
    let id = calls.create(wanted("data", 64 * MIB)).expect("made").volume_id;
    refused(calls.give(&id, &node, &capability), Code::NotFound, "'web'");
    for name in ["web", "other"] {
        let folder = cluster.folder().join(name);
        cluster.tepal(&["identity", "create", name, "--to", folder.to_str().expect("text")]).succeeded();
    }
    let rights = || cluster.ask(&["volume", "rights", "csi-data"]).to_string();
    for _ in 0..2 {
        calls.give(&id, &node, &capability).expect("given");
        assert!(rights().contains(r#""right":"write""#) && rights().contains(r#""to":"web""#), "{}", rights());
    }
    let (cluster_of, _) = node.split_once('-').expect("a node's id");
    let other = format!("{cluster_of}-other");
    refused(calls.give(&id, &other, &capability), Code::FailedPrecondition, "'web'");
    refused(calls.give(&id, &other, &filesystem("", Mode::MultiNodeReaderOnly)), Code::FailedPrecondition, "'web'");
    for _ in 0..2 {
        calls.take(&id, &node).expect("taken");
        assert_eq!(rights(), "[]");
    }
    let reader = filesystem("", Mode::MultiNodeReaderOnly);
    calls.give(&id, &node, &reader).expect("given");
    calls.give(&id, &other, &reader).expect("given to both");
    assert!(rights().contains(r#""right":"read""#), "{}", rights());
    refused(calls.give(&id, &node, &capability), Code::FailedPrecondition, "'other'");
    calls.take(&id, "").expect("from all");
    until("nobody to have a right", SOON, || (rights() == "[]").then_some(()));
}
