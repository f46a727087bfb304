//! Snapshots that a schedule doesn't keep any more, and that somebody has.

use super::{made, wait_until};
use crate::cluster::{Cluster, Plan};
use crate::nbd::BLOCK;
use serde_json::Value;
use std::time::Duration;

fn run(cluster: &Cluster) -> String {
    // A second has one snapshot of a schedule.
    let mut all = Vec::new();
    wait_until("another second", || {
        all = made(cluster.tepal(&["schedule", "run", "d"]));
        !all.is_empty()
    });
    all.remove(0)
}

fn held(cluster: &Cluster, name: &str) -> Option<String> {
    let shown = cluster.ask(&["schedule", "show", "d"]);
    let held = shown["held"].as_array().expect("a list").iter().find(|held| held["name"] == name)?;
    held["reason"].as_str().map(str::to_owned)
}

fn is_there(cluster: &Cluster, name: &str) -> bool {
    cluster.tepal(&["snapshot", "show", name]).status.success()
}

#[test]
fn what_is_used_or_has_clones_stays_until_it_is_let_go() {
    let cluster = Plan { drives: 2, ..Plan::default() }.up();
    cluster.create("v0", "1M", "mirror:2");
    cluster.tepal(&["schedule", "create", "d", "--snapshot", "v0", "--every", "1d", "--keep", "last=1"]).succeeded();
    let used = run(&cluster);
    let mut reader = cluster.connect(&used);
    let cloned = run(&cluster);
    cluster.tepal(&["volume", "clone", &cloned, "c"]).succeeded();
    let renamed = run(&cluster);
    let name = renamed.split_once('@').expect("VOLUME@SNAP").1.to_owned();
    cluster.tepal(&["snapshot", "rename", &format!("v0@{name}"), "mine"]).succeeded();
    let (surplus, newest) = (run(&cluster), run(&cluster));
    wait_until("the one that nobody has to go", || !is_there(&cluster, &surplus));
    wait_until("it to be told why the others stay", || {
        held(&cluster, &used).is_some() && held(&cluster, &cloned).is_some()
    });
    let (of_used, of_cloned) = (held(&cluster, &used).expect("told"), held(&cluster, &cloned).expect("told"));
    assert!(
        of_used.contains("in use, a client is connected") && of_cloned.contains("has clones: c"),
        "{of_used}; {of_cloned}"
    );
    // It looks again and again, and says it once.
    std::thread::sleep(Duration::from_secs(12));
    let events = cluster.ask(&["events", "--kind", "snapshot", "--subject", &used]);
    let told = |event: &&Value| event["text"].as_str().is_some_and(|text| text.contains("would remove it"));
    assert_eq!(events.as_array().expect("a list").iter().filter(told).count(), 1, "{events}");
    reader.read(0, BLOCK as u32).expect("it's still there");
    drop(reader);
    cluster.tepal(&["volume", "rm", "c"]).succeeded();
    wait_until("both to go", || !is_there(&cluster, &used) && !is_there(&cluster, &cloned));
    assert!(is_there(&cluster, &newest), "the newest stays");
    assert!(is_there(&cluster, "v0@mine"), "and what was renamed is nobody's");
    assert_eq!(cluster.ask(&["schedule", "show", "d"])["snapshots"], 1);
}
