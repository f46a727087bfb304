//! Exports of what is damaged.

use super::Piped;
use crate::cluster::{Media, Plan};
use crate::nbd::BLOCK;
use crate::rot::{block, fill, places, rot};

const BLOCKS: usize = 4096;

#[test]
fn an_export_that_keeps_going_writes_all_that_is_right() {
    let mut cluster = Plan { media: Media::Files, drives: 1, ..Plan::default() }.up();
    cluster.create("v", &(BLOCKS * BLOCK).to_string(), "stripe");
    fill(&mut cluster.connect("v"), BLOCKS);
    cluster.tepal(&["snapshot", "create", "v@a"]).succeeded();
    cluster.stop();
    let rotten = [5, 1000, 1001, 4095];
    for place in places(cluster.drive(0), &rotten) {
        rot(cluster.drive(0), place.expect("its only copy"));
    }
    cluster.start();
    let expected: Vec<u8> =
        (0..BLOCKS).flat_map(|at| if rotten.contains(&at) { vec![0; BLOCK] } else { block(at) }).collect();
    for name in ["v", "v@a"] {
        let error = Piped::start(&cluster, &["volume", "export", name]).end().failed();
        assert!(error.contains("damaged") && error.contains("--keep-going"), "{error}");
        let over = Piped::start(&cluster, &["-o", "json", "volume", "export", name, "--keep-going"]).end();
        assert!(over.stdout == expected, "{name}");
        let told = over.stderr.lines().find(|line| line.starts_with('{')).expect("JSON").to_owned();
        let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
        let range =
            |first: usize, count: usize| serde_json::json!({ "offset": first * BLOCK, "length": count * BLOCK });
        assert_eq!(told, serde_json::json!({ "damaged": [range(5, 1), range(1000, 2), range(4095, 1)] }), "{name}");
        let error = over.failed();
        assert!(error.contains("16384 bytes") && error.contains("4096000+8192"), "{error}");
    }
}
