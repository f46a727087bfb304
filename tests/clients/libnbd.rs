//! nbdinfo and nbdcopy.

use crate::cluster::{Cluster, Media, Plan};
use crate::nbd::noise;
use crate::need;
use crate::program::{command, run};
use serde_json::Value;

fn info(cluster: &Cluster, volume: &str) -> Value {
    let said = run(&mut command("nbdinfo", ["--json", &cluster.uri(volume)])).succeeded();
    serde_json::from_str(&said).expect("JSON")
}

/// (offset, length, kind) of each run in `base:allocation`; 0 is data, 3 a hole that reads as zeros.
fn allocation(cluster: &Cluster, volume: &str) -> Vec<(u64, u64, u64)> {
    let said = run(&mut command("nbdinfo", ["--map", "--json", &cluster.uri(volume)])).succeeded();
    let runs: Vec<Value> = serde_json::from_str(&said).expect("JSON");
    let number = |run: &Value, field| run[field].as_u64().expect("a number");
    runs.iter().map(|run| (number(run, "offset"), number(run, "length"), number(run, "type"))).collect()
}

#[test]
fn nbdinfo_is_told_all_that_a_volume_can() {
    need!("nbdinfo");
    let cluster = Plan::default().up();
    cluster.create("v0", "10M", "mirror:2");
    let said = info(&cluster, "v0");
    assert_eq!((&said["protocol"], &said["structured"]), (&"newstyle-fixed".into(), &true.into()), "{said}");
    let export = &said["exports"][0];
    let wanted: [(&str, Value); 16] = [
        ("export-name", "v0".into()),
        ("contexts", vec!["base:allocation"].into()),
        ("export-size", (10 << 20).into()),
        ("is_rotational", false.into()),
        ("is_read_only", false.into()),
        ("can_cache", true.into()),
        ("can_df", true.into()),
        ("can_fast_zero", true.into()),
        ("can_flush", true.into()),
        ("can_fua", true.into()),
        ("can_multi_conn", true.into()),
        ("can_trim", true.into()),
        ("can_zero", true.into()),
        ("block_size_minimum", 1.into()),
        ("block_size_preferred", 4096.into()),
        ("block_size_maximum", (32 << 20).into()),
    ];
    for (field, value) in wanted {
        assert_eq!(export[field], value, "{field} of {export}");
    }
}

#[test]
fn nbdinfo_lists_the_volumes_and_an_unknown_one_is_refused() {
    need!("nbdinfo");
    let cluster = Plan::default().up();
    for volume in ["v0", "another.one", "x-1_2"] {
        cluster.create(volume, "1M", "stripe");
    }
    let list = run(&mut command("nbdinfo", ["--list", "--json", &cluster.uri("")])).succeeded();
    let list: Value = serde_json::from_str(&list).expect("JSON");
    let exports =
        list["exports"].as_array().expect("a list").iter().filter_map(|export| export["export-name"].as_str());
    assert_eq!(exports.collect::<Vec<_>>(), ["another.one", "v0", "x-1_2"]);
    let unknown = run(&mut command("nbdinfo", [cluster.uri("v1")]));
    assert!(!unknown.status.success(), "{unknown}");
}

#[test]
fn the_map_shows_what_was_written_and_what_was_given_back() {
    need!("nbdinfo");
    let cluster = Plan::default().up();
    cluster.create("v0", "8M", "mirror:2");
    assert_eq!(allocation(&cluster, "v0"), [(0, 8 << 20, 3)]);
    let mut volume = cluster.connect("v0");
    volume.write(1 << 20, &noise(1, 1 << 20)).expect("written");
    volume.write(5 << 20, &noise(2, 4096)).expect("written");
    let written = [
        (0, 1 << 20, 3),
        (1 << 20, 1 << 20, 0),
        (2 << 20, 3 << 20, 3),
        (5 << 20, 4096, 0),
        ((5 << 20) + 4096, (3 << 20) - 4096, 3),
    ];
    assert_eq!(allocation(&cluster, "v0"), written);
    volume.trim(1 << 20, 1 << 20).expect("trimmed");
    volume.write_zeroes(5 << 20, 4096).expect("zeroed");
    assert_eq!(allocation(&cluster, "v0"), [(0, 8 << 20, 3)]);
}

#[test]
fn nbdcopy_brings_back_what_it_brought_over_either_kind_of_socket() {
    need!("nbdcopy");
    for (media, layout) in [(Media::Files, "mirror:2"), (Media::Memory, "stripe")] {
        let mut cluster = Plan { media, tcp: true, ..Plan::default() }.up();
        // An odd length, and a hole in it.
        let length = (40 << 20) + 4096;
        let mut bytes = noise(3, length);
        bytes[(8 << 20)..(16 << 20)].fill(0);
        let [image, copy] = ["image", "copy"].map(|name| cluster.folder().join(name));
        std::fs::write(&image, &bytes).expect("space");
        for (volume, uri) in [("unix", cluster.uri("unix")), ("tcp", format!("nbd://{}/tcp", cluster.tcp()))] {
            cluster.create(volume, &length.to_string(), layout);
            run(command("nbdcopy", ["--flush"]).arg(&image).arg(&uri)).succeeded();
            run(command("nbdcopy", [&uri]).arg(&copy)).succeeded();
            assert!(std::fs::read(&copy).expect("the copy") == bytes, "{volume}, {layout}");
            cluster.scrub_finds_nothing(volume);
        }
        cluster.stop_and_check_drives();
    }
}
