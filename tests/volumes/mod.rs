//! Volumes as an operator and several clients see them: exported and imported, resized, renamed, removed, and used by many at
//! once.

use crate::cluster::{Cluster, Media, Plan};
use crate::nbd::{BLOCK, Errno, Ledger, NO_SPACE, RequestError, noise};
use crate::program::until;
use std::process::Stdio;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

#[test]
fn an_exported_image_is_the_volume_and_an_imported_one_is_the_image() {
    let mut cluster = Plan { media: Media::Files, ..Plan::default() }.up();
    let mut bytes = noise(51, (6 << 20) + 4096);
    bytes[(1 << 20)..(4 << 20)].fill(0);
    let [image, copy] = ["image", "copy"].map(|name| cluster.folder().join(name));
    std::fs::write(&image, &bytes).expect("space");
    let import = cluster
        .command()
        .args(["volume", "import", "v0", "--layout", "mirror:2"])
        .stdin(std::fs::File::open(&image).expect("ours"))
        .output()
        .expect("it runs");
    assert!(import.status.success(), "{import:?}");
    assert_eq!(cluster.volume("v0")["size"], bytes.len());
    let export = cluster
        .command()
        .args(["volume", "export", "v0"])
        .stdout(std::fs::File::create(&copy).expect("ours"))
        .stderr(Stdio::piped())
        .output()
        .expect("it runs");
    assert!(export.status.success(), "{export:?}");
    assert!(std::fs::read(&copy).expect("ours") == bytes);
    cluster.scrub_finds_nothing("v0");
    cluster.stop_and_check_drives();
}

#[test]
fn a_volume_grows_and_shrinks_under_its_clients() {
    let cluster = Plan::default().up();
    cluster.create("v0", "4M", "mirror:2");
    let bytes = noise(52, 4 << 20);
    cluster.connect("v0").write(0, &bytes).expect("written");
    cluster.tepal(&["volume", "resize", "v0", "8M"]).succeeded();
    let mut volume = cluster.connect("v0");
    assert_eq!(volume.size, 8 << 20);
    assert!(volume.read(0, 4 << 20).expect("read") == bytes);
    assert!(volume.read(4 << 20, 4 << 20).expect("read").iter().all(|byte| *byte == 0));
    let refused = cluster.tepal(&["volume", "resize", "v0", "1M"]).refused(1);
    assert!(refused.contains("--shrink"), "{refused}");
    // Story: a volume was cut off under a mounted filesystem, without a question.
    let refused = cluster.tepal(&["volume", "resize", "v0", "1M", "--shrink"]).refused(1);
    assert!(
        refused.contains("volume 'v0' is in use, a client is connected") && refused.contains("--force"),
        "{refused}"
    );
    assert_eq!(cluster.volume("v0")["size"], 8 << 20);
    cluster.tepal(&["volume", "resize", "v0", "1M", "--shrink", "--force"]).succeeded();
    assert!(
        matches!(volume.read(1 << 20, 4096), Err(RequestError::Refused(_))),
        "past the end, also for who was there"
    );
    assert!(volume.read(0, 1 << 20).expect("read") == bytes[..1 << 20]);
    cluster.scrub_finds_nothing("v0");
}

#[test]
fn what_was_cut_off_by_shrinking_is_gone_when_the_volume_grows_again() {
    let cluster = Plan::default().up();
    cluster.create("v0", "4M", "mirror:2");
    let bytes = noise(54, 4 << 20);
    cluster.connect("v0").write(0, &bytes).expect("written");
    cluster.tepal(&["volume", "resize", "v0", "1M", "--shrink"]).succeeded();
    cluster.tepal(&["volume", "resize", "v0", "4M"]).succeeded();
    let mut volume = cluster.connect("v0");
    assert!(volume.read(0, 1 << 20).expect("read") == bytes[..1 << 20]);
    assert!(volume.read(1 << 20, 3 << 20).expect("read").iter().all(|byte| *byte == 0), "what was cut off is gone");
    cluster.scrub_finds_nothing("v0");
}

/// Story: who trims in pieces of 512 bytes, as a disk with small sectors is trimmed, got no space back: each piece was written as zeros.
#[test]
fn a_block_is_free_once_all_its_pieces_are_trimmed() {
    let cluster = Plan::default().up();
    cluster.create("v0", "4M", "mirror:2");
    let bytes = noise(55, 64 * BLOCK);
    let mut volume = cluster.connect("v0");
    volume.write(0, &bytes).expect("written");
    cluster.tepal(&["snapshot", "create", "v0@a"]).succeeded();
    let allocated = || cluster.volume("v0")["allocated"].as_u64().expect("a number");
    let before = allocated();
    // The last piece of each block stays at first; the second half of the blocks is trimmed by zeros that lie across them.
    for piece in (0..32 * BLOCK).step_by(512).filter(|at| !(at + 512).is_multiple_of(BLOCK)) {
        volume.trim(piece as u64, 512).expect("trimmed");
    }
    for piece in (32 * BLOCK..64 * BLOCK).step_by(1024) {
        volume.write_zeroes(piece as u64, 1024).expect("zeroed");
    }
    let mut expected = vec![0; 64 * BLOCK];
    for block in 0..32 {
        let last = (block + 1) * BLOCK - 512..(block + 1) * BLOCK;
        expected[last.clone()].copy_from_slice(&bytes[last]);
    }
    assert!(volume.read(0, expected.len() as u32).expect("read") == expected);
    for block in 0..32 {
        volume.trim((block * BLOCK + BLOCK - 512) as u64, 512).expect("trimmed");
    }
    assert!(volume.read(0, expected.len() as u32).expect("read").iter().all(|&byte| byte == 0));
    assert!(cluster.connect("v0@a").read(0, bytes.len() as u32).expect("read") == bytes, "a snapshot never changes");
    assert!(allocated() >= before, "the snapshot keeps it");
    drop(volume);
    cluster.tepal(&["snapshot", "rm", "v0@a", "--wait"]).succeeded();
    assert_eq!(allocated(), 0);
    cluster.scrub_finds_nothing("v0");
}

/// Every 256 MiB between the new end and the last byte was looked at: exbibytes of them, for minutes or for ever.
#[test]
fn a_huge_volume_with_one_block_far_out_shrinks_at_once() {
    let cluster = Plan::default().up();
    cluster.create("v0", "8E", "mirror:2");
    let mut volume = cluster.connect("v0");
    let last = volume.size - BLOCK as u64;
    volume.write(last, &[7; BLOCK]).expect("written");
    volume.write(0, &[8; BLOCK]).expect("written");
    drop(volume);
    cluster.tepal(&["volume", "resize", "v0", "1M", "--shrink"]).succeeded();
    cluster.tepal(&["volume", "resize", "v0", "8E"]).succeeded();
    let mut volume = cluster.connect("v0");
    assert!(volume.read(last, BLOCK as u32).expect("read").iter().all(|&byte| byte == 0));
    assert_eq!(volume.read(0, BLOCK as u32).expect("read"), [8; BLOCK]);
}

#[test]
fn a_renamed_volume_keeps_its_bytes_and_a_removed_one_gives_back_its_space() {
    let cluster = Plan::default().up();
    cluster.create("v0", "16M", "mirror:2");
    let mut ledger = Ledger::new(53, 4096);
    ledger.fill(&mut cluster.connect("v0")).expect("written");
    cluster.tepal(&["volume", "rename", "v0", "v1"]).succeeded();
    ledger.compare(&mut cluster.connect("v1"));
    cluster.tepal(&["volume", "show", "v0"]).refused(1);
    assert!(cluster.ask(&["status"])["used"].as_u64() >= Some(32 << 20));
    let mut last = cluster.connect("v1");
    assert_eq!(cluster.volume("v1")["clients"], 1);
    let refused = cluster.tepal(&["volume", "rm", "v1"]).refused(1);
    assert!(refused.contains("'v1' is in use, a client is connected") && refused.contains("--force"), "{refused}");
    last.write(0, &[1; BLOCK]).expect("it is still there");
    cluster.tepal(&["volume", "rm", "v1", "--force"]).succeeded();
    assert!(last.write(0, &[1; BLOCK]).is_err(), "no request to a removed volume is applied");
    until("the space to be free", SOON, || (cluster.ask(&["status"])["used"] == 0).then_some(()));
}

#[test]
fn what_one_client_wrote_another_reads_and_flushes() {
    let mut cluster = Plan { media: Media::Files, tcp: true, ..Plan::default() }.up();
    cluster.create("v0", "4M", "mirror:2;durability=flush");
    let mut one = cluster.connect("v0");
    let tcp = crate::nbd::Address::Tcp(cluster.tcp());
    let mut other = crate::nbd::Nbd::open(&tcp, "v0").expect("listening");
    for round in 0..50 {
        let bytes = noise(round, 10_000);
        one.write(round * 4097, &bytes).expect("written");
        other.flush().expect("it covers what others wrote");
        assert!(other.read(round * 4097, 10_000).expect("read") == bytes);
        other.write_through(round * 4097, &bytes[..4097]).expect("written");
    }
    let before = one.read(0, 4 << 20).expect("read");
    cluster.kill();
    cluster.start();
    assert!(cluster.connect("v0").read(0, 4 << 20).expect("read") == before);
    cluster.stop_and_check_drives();
}

#[test]
fn a_full_pool_is_no_space_left_and_loses_nothing() {
    let mut cluster = Plan { drives: 2, drive_size: 64 << 20, ..Plan::default() }.up();
    cluster.create("v0", "1G", "mirror:2");
    let mut volume = cluster.connect("v0");
    let mut written = 0;
    let errno = loop {
        match volume.write(written << 20, &noise(written, 1 << 20)) {
            Ok(()) => written += 1,
            Err(RequestError::Refused(errno)) => break errno,
            Err(RequestError::Broken(error)) => panic!("{error}"),
        }
        assert!(written < 64, "more than the drives have");
    };
    assert_eq!(errno, Errno(NO_SPACE));
    assert!(written > 32, "only {written} MiB of 64");
    let status = cluster.ask(&["status"]);
    assert_eq!(status["health"], "degraded", "{status}");
    assert!(status["reason"].to_string().contains("of pool 'default' are full"), "{status}");
    let drives = cluster.drives_say("id");
    assert!(drives.iter().all(|id| status["reason"].to_string().contains(id)), "{drives:?}: {status}");
    let shown = cluster.volume("v0");
    assert_eq!(shown["state"], "degraded", "{shown}");
    assert!(shown["reason"].to_string().contains("writes that need new space fail"), "{shown}");
    until("the log to tell", SOON, || cluster.log().contains("drive fills up").then_some(()));
    let check = |volume: &mut crate::nbd::Nbd| {
        for piece in 0..written {
            assert!(volume.read(piece << 20, 1 << 20).expect("read") == noise(piece, 1 << 20), "MiB {piece}");
        }
    };
    check(&mut volume);
    cluster.kill();
    cluster.start();
    let mut volume = cluster.connect("v0");
    check(&mut volume);
    // What is given back can be used.
    volume.trim(0, 8 << 20).expect("trimmed");
    volume.flush().expect("flushed");
    until("health to be ok", SOON, || (cluster.ask(&["status"])["health"] == "ok").then_some(()));
    until("space to be there", SOON, || volume.write(512 << 20, &noise(9, 4 << 20)).is_ok().then_some(()));
    drop(volume);
    cluster.scrub_finds_nothing("v0");
    cluster.stop_and_check_drives();
}

/// Story: a volume that nobody had said a layout for had one copy, on however many drives, and nothing told of it.
#[test]
fn two_drives_give_two_copies_unless_one_is_asked_for_and_one_is_told_of() {
    let notes = |cluster: &Cluster| {
        let status = cluster.ask(&["status"]);
        assert_eq!(status["health"], "ok", "{status}");
        status["reason"].clone()
    };
    for (drives, by_default) in [(1, "stripe"), (2, "mirror:2")] {
        let cluster = Plan { drives, ..Plan::default() }.up();
        cluster.tepal(&["volume", "create", "v", "--size", "8M"]).succeeded();
        assert_eq!(cluster.volume("v")["layout"], by_default);
        assert_eq!(notes(&cluster).to_string().contains("'v' has no second copy"), drives == 1, "{drives} drives");
        cluster.create("w", "8M", "stripe");
        let told = notes(&cluster).to_string();
        assert!(told.contains("'w'") && told.contains("no second copy"), "{told}");
    }
}
