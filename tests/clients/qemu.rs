//! qemu-io and qemu-img.

use crate::cluster::{Cluster, Media, Plan};
use crate::nbd::noise;
use crate::need;
use crate::program::{command, run};
use serde_json::Value;

/// Runs commands of qemu-io on one connection; each must succeed.
fn io(cluster: &Cluster, volume: &str, commands: &[&str]) {
    let mut qemu_io = command("qemu-io", ["-f", "raw"]);
    for each in commands {
        qemu_io.args(["-c", each]);
    }
    let said = run(qemu_io.arg(cluster.uri(volume))).succeeded();
    assert!(!said.contains("failed") && !said.contains("error"), "{commands:?}: {said}");
}

#[test]
fn qemu_io_finds_each_pattern_where_it_wrote_it_at_any_alignment_and_length() {
    need!("qemu-io");
    for (media, layout) in [(Media::Files, "stripe"), (Media::Memory, "mirror:2")] {
        let mut cluster = Plan { media, ..Plan::default() }.up();
        cluster.create("v0", "72M", layout);
        io(
            &cluster,
            "v0",
            &[
                "write -P 0x11 0 32M", // the longest request
                "read -P 0x11 0 32M",
                "write -P 0x22 33554433 1",
                "read -P 0x22 33554433 1",
                "read -P 0 33554432 1",
                "read -P 0 33554434 510",
                "write -P 0x33 4095 2", // across two blocks
                "read -P 0x11 0 4095",
                "read -P 0x33 4095 2",
                "read -P 0x11 4097 61439",
                "write -P 0x44 65535 65538", // across three extents
                "read -P 0x11 4097 61438",
                "read -P 0x44 65535 65538",
                "read -P 0x11 131073 1000",
                "write -P 0x55 39845889 33554431", // long, and aligned at neither end
                "read -P 0x55 39845889 33554431",
                "read -P 0 39845888 1",
                "write -P 0x66 75497471 1", // the last byte
                "read -P 0x66 75497471 1",
                "flush",
            ],
        );
        cluster.scrub_finds_nothing("v0");
        cluster.stop_and_check_drives();
    }
}

#[test]
fn zeroed_and_discarded_bytes_read_as_zeros_and_their_neighbours_stay() {
    need!("qemu-io");
    let mut cluster = Plan::default().up();
    cluster.create("v0", "16M", "mirror:2");
    io(
        &cluster,
        "v0",
        &[
            "write -P 0x77 0 16M",
            "write -z 4097 10000",
            "read -P 0x77 0 4097",
            "read -P 0 4097 10000",
            "read -P 0x77 14097 1000",
            "write -z -u 1M 1M",
            "read -P 0 1M 1M",
            "discard 4M 2M",
            "read -P 0 4M 2M",
            "read -P 0x77 6M 1M",
            "write -f -P 0x78 8M 64k",
            "write -z -f 9M 64k",
            "read -P 0x78 8M 64k",
            "read -P 0 9M 64k",
            "flush",
        ],
    );
    let allocated = cluster.volume("v0")["allocated"].as_u64().expect("a number");
    let kept = 2 * ((16 - 1 - 2) << 20);
    assert!(allocated <= kept, "{allocated} of at most {kept} bytes");
    cluster.scrub_finds_nothing("v0");
    cluster.stop_and_check_drives();
}

#[test]
fn requests_past_the_end_are_refused_and_change_nothing() {
    need!("qemu-io");
    let cluster = Plan::default().up();
    cluster.create("v0", "1M", "stripe");
    let mut volume = cluster.connect("v0");
    volume.write((1 << 20) - 4096, &noise(9, 4096)).expect("written");
    for (offset, length) in [(1 << 20, 1), ((1 << 20) - 1, 2), (u64::MAX - 4095, 4096), (u64::MAX, 1)] {
        let data = vec![1; length as usize];
        for outcome in
            [volume.write(offset, &data), volume.read(offset, length).map(|_| ()), volume.trim(offset, length)]
        {
            assert!(matches!(outcome, Err(crate::nbd::RequestError::Refused(_))), "{offset}+{length}: {outcome:?}");
        }
    }
    assert_eq!(volume.read((1 << 20) - 4096, 4096).expect("read"), noise(9, 4096));
}

#[test]
fn qemu_img_converts_an_image_in_and_out_and_finds_no_difference() {
    need!("qemu-img");
    let mut cluster = Plan { media: Media::Files, ..Plan::default() }.up();
    let length = 24 << 20;
    let mut bytes = noise(4, length);
    bytes[(2 << 20)..(9 << 20)].fill(0);
    let [raw, qcow] = ["image.raw", "image.qcow2"].map(|name| cluster.folder().join(name));
    std::fs::write(&raw, &bytes).expect("space");
    cluster.create("v0", &length.to_string(), "mirror:2");
    let uri = cluster.uri("v0");
    run(command("qemu-img", ["convert", "-n", "-f", "raw", "-O", "raw"]).arg(&raw).arg(&uri)).succeeded();
    run(command("qemu-img", ["compare", "-f", "raw", "-F", "raw"]).arg(&raw).arg(&uri)).succeeded();
    run(command("qemu-img", ["convert", "-f", "raw", "-O", "qcow2", &uri]).arg(&qcow)).succeeded();
    run(command("qemu-img", ["compare", "-f", "qcow2", "-F", "raw"]).arg(&qcow).arg(&raw)).succeeded();

    let map = run(&mut command("qemu-img", ["map", "--output=json", "-f", "raw", &uri])).succeeded();
    let map: Vec<Value> = serde_json::from_str(&map).expect("JSON");
    let runs: Vec<_> =
        map.iter().map(|run| [&run["start"], &run["length"], &run["data"]].map(Value::to_string)).collect();
    let wanted = [(0, 2, true), (2, 7, false), (9, 15, true)];
    let wanted =
        wanted.map(|(start, length, data)| [(start << 20).to_string(), (length << 20).to_string(), data.to_string()]);
    assert_eq!(runs, wanted);
    cluster.scrub_finds_nothing("v0");
    cluster.stop_and_check_drives();
}
