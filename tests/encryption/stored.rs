//! What drives have, and what clients read.

use super::{WORDS, count, up, worded};
use crate::need;
use crate::program;
use serde_json::json;

const MIB: usize = 1 << 20;

#[test]
fn drives_have_no_plaintext_in_any_layout_and_clients_read_what_they_wrote() {
    let mut encrypting = up();
    let layouts = ["stripe", "mirror:2", "ec:2+1"];
    for (number, layout) in layouts.iter().enumerate() {
        encrypting.create(&format!("v{number}"), &["--layout", layout]);
    }
    // The search finds what is there: this volume isn't encrypted.
    encrypting.cluster.create("plain", "1M", "stripe");
    encrypting.cluster.connect("plain").write(0, &worded(4096)).expect("written");
    let wanted = worded(2 * MIB);
    for number in 0..layouts.len() {
        let mut client = encrypting.cluster.connect(&format!("v{number}"));
        client.write(512, &wanted).expect("written");
        client.trim(MIB as u64, 64 << 10).expect("trimmed");
        client.write_zeroes(MIB as u64 + (64 << 10), 64 << 10).expect("zeroed");
        client.flush().expect("flushed");
    }
    let mut there = [vec![0; 512], wanted].concat();
    there[MIB..MIB + (128 << 10)].fill(0);
    for _ in 0..2 {
        for (number, layout) in layouts.iter().enumerate() {
            let mut client = encrypting.cluster.connect(&format!("v{number}"));
            assert!(client.read(0, there.len() as u32).expect("read") == there, "{layout}");
            assert_eq!(client.read(MIB as u64 - 1, 3).expect("read"), &there[MIB - 1..MIB + 2]);
        }
        encrypting.cluster.stop();
        encrypting.cluster.start();
    }
    encrypting.cluster.tepal(&["volume", "rm", "plain"]).succeeded();
    encrypting.cluster.stop();
    let found = encrypting.found_on_drives(WORDS);
    assert!(found <= 4096 / WORDS.len(), "{found}: more than the plain volume had");
    // Not a sector of it either: each is enciphered by its number.
    assert_eq!(encrypting.found_on_drives(&worded(4096 + 512)), 0);
    let state = std::fs::read_dir(encrypting.cluster.data()).expect("the data folder").flatten();
    for file in state.filter(|file| file.path().is_file()) {
        assert_eq!(count(&file.path(), WORDS), 0, "{}", file.path().display());
    }
}

#[test]
fn snapshots_clones_and_other_layouts_read_as_the_volume_did() {
    let encrypting = up();
    let cluster = &encrypting.cluster;
    encrypting.create("v", &["--layout", "mirror:2"]);
    let (old, new) = (worded(MIB), vec![9; MIB]);
    let mut client = cluster.connect("v");
    client.write(0, &old).expect("written");
    cluster.tepal(&["snapshot", "create", "v@s"]).succeeded();
    client.write(4096, &new[..8192]).expect("written");
    drop(client);
    cluster.tepal(&["volume", "clone", "v@s", "c"]).succeeded();
    assert_eq!(cluster.volume("c")["key"], json!("main"));
    assert!(cluster.connect("v@s").read(0, MIB as u32).expect("read") == old);
    let mut clone = cluster.connect("c");
    clone.write(0, &new[..4096]).expect("written");
    let of_clone = [&new[..4096], &old[4096..]].concat();
    assert!(clone.read(0, MIB as u32).expect("read") == of_clone);
    drop(clone);
    cluster.tepal(&["volume", "flatten", "c", "--wait"]).succeeded();
    cluster.tepal(&["volume", "relayout", "v", "--layout", "ec:2+1", "--wait"]).succeeded();
    cluster.tepal(&["volume", "resize", "v", "20M"]).succeeded();
    let of_volume = [&old[..4096], &new[..8192], &old[12288..]].concat();
    let mut client = cluster.connect("v");
    assert!(client.read(0, MIB as u32).expect("read") == of_volume);
    assert_eq!(client.read(20 << 20, 0).ok().map(|bytes| bytes.len()), Some(0));
    assert_eq!(client.read((16 << 20) - 512, 1024).expect("read"), [0; 1024]);
    drop(client);
    assert!(cluster.connect("v@s").read(0, MIB as u32).expect("read") == old);
    assert!(cluster.connect("c").read(0, MIB as u32).expect("read") == of_clone);
    cluster.tepal(&["snapshot", "rollback", "v@s"]).succeeded();
    assert!(cluster.connect("v").read(0, MIB as u32).expect("read") == old);
    cluster.scrub_finds_nothing("v");
}

#[test]
fn files_of_any_length_are_imported_and_exported() {
    let encrypting = up();
    let file = encrypting.cluster.folder().join("file");
    for length in [1, 511, 513, 70_001, 4 * MIB + 5] {
        let mut bytes = worded(length);
        bytes[length / 2..].fill(0); // holes too
        let last = length - 1;
        bytes[last] = 7;
        std::fs::write(&file, &bytes).expect("space");
        let name = format!("f{length}");
        let path = file.to_str().expect("text");
        let raw = ["--from", path, "--format", "raw"];
        encrypting.run(&[&["volume", "import", &name, "--key", "main"], &raw[..]].concat()).succeeded();
        encrypting.run(&[&["volume", "import", &name], &raw[..]].concat()).succeeded();
        let exported = encrypting.cluster.folder().join("exported");
        let copy = format!(
            "'{}' --dir '{}' volume export {name} > '{}'",
            super::tepal().display(),
            encrypting.cluster.data().display(),
            exported.display()
        );
        program::run(&mut program::command("sh", ["-c", &copy])).succeeded();
        let exported = std::fs::read(exported).expect("there");
        assert!(exported[..length] == bytes, "{length}");
        assert!(exported[length..].iter().all(|byte| *byte == 0) && exported.len() == length.next_multiple_of(512));
    }
    assert_eq!(encrypting.found_on_drives(WORDS), 0);
}

/// A write of a part of a sector would need the rest of it, and two clients of two servers could undo each other's.
#[test]
fn clients_are_told_of_sectors_and_parts_of_them_are_refused() {
    need!("nbdinfo", "qemu-io");
    let encrypting = up();
    encrypting.create("v", &[]);
    let uri = encrypting.cluster.uri("v");
    let told = program::run(&mut program::command("nbdinfo", ["--json", &uri])).succeeded();
    assert!(told.contains("\"block_size_minimum\": 512"), "{told}");
    let mut client = encrypting.cluster.connect("v");
    client.write(0, &[5; 1024]).expect("written");
    for (offset, length) in [(1, 512), (0, 511), (511, 2), (512, 513)] {
        assert!(client.write(offset, &vec![6; length]).is_err(), "{offset}+{length}");
        assert!(client.trim(offset, length as u32).is_err() && client.write_zeroes(offset, length as u32).is_err());
    }
    assert_eq!(client.read(0, 1024).expect("read"), [5; 1024]);
    // QEMU heeds the sectors, and makes whole ones of what it's asked for.
    let io = ["-f", "raw", &uri, "-c", "write -P 8 100 1", "-c", "read -P 8 100 1", "-c", "read -P 5 101 400"];
    let said = program::run(&mut program::command("qemu-io", io)).succeeded();
    assert!(!said.contains("failed"), "{said}");
}
