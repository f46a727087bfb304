//! The newcomer's first minute.

use super::ring::Ring;
use serde_json::Value;
use std::time::{Duration, Instant};

/// A minute is enough for it; the machine has other things to do as well.
const TWO_MINUTES: Duration = Duration::from_secs(120);

#[test]
fn a_tour_shows_what_four_servers_outlive_and_leaves_them_up_and_a_second_one_finds_its_own_volume() {
    let ring = Ring::to_be(4);
    for round in 0..2 {
        let begun = Instant::now();
        let said = ring.dev(&["tour", "--memory", "-o", "json"]).succeeded();
        assert!(begun.elapsed() < TWO_MINUTES, "round {round} took {:?}", begun.elapsed());
        let told: Value = serde_json::from_str(&said).expect("JSON");
        let steps: Vec<&str> =
            told["steps"].as_array().expect("a list").iter().filter_map(|step| step["step"].as_str()).collect();
        let grow = if round == 0 { " grow" } else { "" };
        let expected = format!(
            "up write read snapshot pull return kill lose rejoin lose rejoin{grow} relayout compare rewind scrub speed space"
        );
        assert_eq!((&told["ok"], steps.join(" ")), (&Value::Bool(true), expected));
    }
    // Of five by now.
    ring.wait_until("all to be up", || ring.json(2, &["status"])["health"] == "ok");
    assert_eq!(ring.json(1, &["server", "ls"]).as_array().map(Vec::len), Some(5));
    let volume = ring.json(3, &["volume", "show", "v0"]);
    assert_eq!((&volume["layout"], &volume["state"]), (&"chained".into(), &"healthy".into()), "{volume}");
    assert_eq!(ring.json(2, &["status"])["health"], "ok");
}

#[test]
fn a_tour_of_one_server_shows_what_that_outlives() {
    let ring = Ring::to_be(1);
    let said = ring.dev(&["tour", "--memory", "--servers", "1", "-o", "json"]).succeeded();
    let told: Value = serde_json::from_str(&said).expect("JSON");
    let steps: Vec<&str> =
        told["steps"].as_array().expect("a list").iter().filter_map(|step| step["step"].as_str()).collect();
    assert_eq!(steps.join(" "), "up write read snapshot pull return kill relayout compare rewind scrub speed space");
    assert_eq!(ring.json(1, &["volume", "show", "v0"])["layout"], "mirror:2;extent=256K");
}
