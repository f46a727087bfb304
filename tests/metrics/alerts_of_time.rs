//! Alerts about what wasn't done for long. Days are seconds here.

use super::alerts::watching;
use super::api;
use super::prometheus::Prometheus;
use crate::cluster::{Media, Plan};
use crate::nbd::noise;
use crate::need;
use crate::program;

#[test]
fn a_volume_that_was_not_scrubbed_raises_an_alert_until_it_is() {
    need!("prometheus");
    let cluster = Plan { drives: 2, ..Plan::default() }.up();
    cluster.create("v0", "1M", "mirror:2");
    let prometheus = Prometheus::quicker(&[cluster.data()], &[("> 35 * 86400", "> 25")]);
    prometheus.wait_for(&["TepalVolumeUnscrubbed"]);
    cluster.tepal(&["schedule", "create", "scrubs", "--scrub", "--within", "10s"]).succeeded();
    prometheus.wait_for_end_of(&["TepalVolumeUnscrubbed"]);
}

#[test]
fn a_replica_that_is_behind_raises_an_alert_until_it_is_sent_more() {
    need!("prometheus");
    let cluster = Plan { drives: 1, ..Plan::default() }.up();
    cluster.create("v0", "1M", "stripe");
    let token = std::fs::read_to_string(cluster.data().join("token")).expect("the token");
    let to = api(&cluster.data());
    let send = || {
        let mut replicate = cluster.command();
        replicate.args(["replicate", "v0", &to, "--as", "copy", "--once"]).env("TEPAL_TO_TOKEN", token.trim());
        program::run(&mut replicate).succeeded();
    };
    send();
    let prometheus =
        Prometheus::quicker(&[cluster.data()], &[("_timestamp_seconds) > 86400", "_timestamp_seconds) > 10")]);
    prometheus.wait_for(&["TepalReplicaBehind"]);
    cluster.connect("v0").write(0, &noise(1, 1 << 16)).expect("written");
    send();
    prometheus.wait_for_end_of(&["TepalReplicaBehind"]);
}

#[test]
fn a_schedule_that_cannot_do_what_is_due_raises_an_alert_until_it_can() {
    need!("prometheus");
    let cluster = Plan { media: Media::Files, drives: 3, ..Plan::default() }.up();
    cluster.create("v0", "1M", "mirror:3");
    let prometheus = watching(&cluster);
    let away = cluster.drive_id(cluster.drive(2));
    cluster.tepal(&["drive", "offline", &away]).succeeded();
    cluster.tepal(&["schedule", "create", "s", "--scrub", "--within", "10s"]).succeeded();
    prometheus.wait_for(&["TepalScheduleFails"]);
    cluster.tepal(&["drive", "online", &away]).succeeded();
    prometheus.wait_for_end_of(&["TepalScheduleFails"]);
}
