//! The files for those who watch a cluster, and the documents about them, against what a real server says.

use super::prometheus::folder;
use super::text;
use crate::cluster::{Cluster, Plan};
use crate::nbd::noise;
use crate::need;
use crate::program::{self, until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(120);

/// Metrics of what is the case, as a server writes them.
fn written(text: &str) -> BTreeSet<String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect()
}

/// A cluster with everything that has metrics: a volume on its way, a replica, a certificate, a schedule.
fn with_everything() -> Cluster {
    // So slow that the volume is on its way for long.
    let cluster = Plan { drives: 2, emulate: Some("bandwidth=20M"), ..Plan::default() }.up();
    cluster.create("v0", "64M", "stripe");
    cluster.create("small", "1M", "mirror:2");
    cluster.connect("v0").write(0, &noise(1, 16 << 20)).expect("written");
    cluster.connect("small").write(0, &noise(1, 1 << 20)).expect("written");
    let api = super::api(&cluster.data());
    let token = std::fs::read_to_string(cluster.data().join("token")).expect("the token");
    let mut replicate = cluster.command();
    replicate.args(["replicate", "small", &api, "--as", "copy", "--once"]).env("TEPAL_TO_TOKEN", token.trim());
    program::run(&mut replicate).succeeded();
    cluster.tepal(&["schedule", "create", "scrubs", "--scrub"]).succeeded();
    cluster.tepal(&["volume", "limit", "small", "--iops", "1M", "--bandwidth", "1T"]).succeeded();
    let identity = cluster.folder().join("identity");
    cluster.tepal(&["identity", "create", "web", "--to", identity.to_str().expect("text")]).succeeded();
    cluster.tepal(&["volume", "relayout", "v0", "--layout", "mirror:2", "--rate", "256K", "--no-wait"]).succeeded();
    until("all metrics", SOON, || {
        let names = written(&text(&cluster.data()));
        let late = ["tepal_volume_migration_seconds_left", "tepal_certificate_expiry_timestamp_seconds"];
        late.iter().all(|name| names.contains(*name)).then_some(())
    });
    cluster
}

/// Names of metrics in a text, without what histograms add to them.
fn named(text: &str) -> BTreeSet<String> {
    let words =
        text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| word.starts_with("tepal_"));
    let base = |word: &str| {
        let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| word.strip_suffix(end));
        of_histogram.unwrap_or(word).to_owned()
    };
    words.map(base).collect()
}

fn promtool(arguments: &[&str]) -> Command {
    let mut command = program::command("promtool", arguments);
    command.current_dir(folder());
    command
}

#[test]
fn promtool_has_nothing_to_say_of_metrics() {
    need!("promtool");
    let cluster = with_everything();
    let metrics = text(&cluster.data());
    let file = cluster.folder().join("metrics");
    std::fs::write(&file, &metrics).expect("space");
    let mut command = promtool(&["check", "metrics"]);
    let input = std::fs::File::open(&file).expect("just written");
    let said = command.stdin(Stdio::from(input)).output().expect("promtool");
    let said = [said.stdout, said.stderr].concat();
    assert_eq!(String::from_utf8_lossy(&said), "");

    let written = written(&metrics);
    let document = std::fs::read_to_string(folder().join("../../docs/operating/monitoring.md")).expect("the document");
    let rows = document.lines().filter(|line| line.starts_with("| `tepal_"));
    let told: BTreeSet<String> = rows.filter_map(|row| Some(row.split('`').nth(1)?.to_owned())).collect();
    assert_eq!(told, written, "docs/operating/monitoring.md has each metric in its table");

    let dashboard = std::fs::read_to_string(folder().join("dashboard.json")).expect("the dashboard");
    let alerts = std::fs::read_to_string(folder().join("alerts.yml")).expect("the alerts");
    for (file, text) in [("dashboard.json", dashboard), ("alerts.yml", alerts)] {
        let strange: Vec<String> = named(&text).into_iter().filter(|name| !written.contains(name)).collect();
        assert_eq!(strange, Vec::<String>::new(), "{file} names metrics that no server has");
    }
}

/// Their trouble can't be made here: it takes a build of another version, or another time of the day.
const ONLY_BY_RULES: [&str; 3] = ["TepalVersionsDiffer", "TepalClockOff", "TepalCertificateEnds"];

#[test]
fn each_alert_is_raised_by_a_story() {
    let stories = ["alerts.rs", "alerts_of_servers.rs", "alerts_of_time.rs"].map(|name| {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("metrics").join(name);
        std::fs::read_to_string(file).expect("a source")
    });
    let alerts = std::fs::read_to_string(folder().join("alerts.yml")).expect("the alerts");
    let names: Vec<&str> = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    let is_told = |name: &str| stories.iter().any(|story| story.contains(&format!("\"{name}\"")));
    let untold: Vec<&str> = names.iter().copied().filter(|name| !is_told(name)).collect();
    assert_eq!(untold, ONLY_BY_RULES);
}

#[test]
fn alerts_fire_and_are_quiet_as_their_tests_say() {
    need!("promtool");
    program::run(&mut promtool(&["check", "rules", "alerts.yml"])).succeeded();
    // It takes 20 s on an idle machine.
    program::run_within(&mut promtool(&["test", "rules", "alerts_test.yml"]), Duration::from_secs(300)).succeeded();
    let read = |name: &str| std::fs::read_to_string(folder().join(name)).expect(name);
    let alerts = read("alerts.yml");
    let names = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let (tests, document) = (read("alerts_test.yml"), read("../../docs/operating/monitoring.md"));
    for name in names {
        for outcome in ["fires", "is quiet"] {
            assert!(tests.contains(&format!("# {name} {outcome}\n")), "{name} has no test in which it {outcome}");
        }
        assert!(document.contains(&format!("| `{name}` |")), "docs/operating/monitoring.md says nothing of {name}");
    }
}

#[test]
fn expressions_of_the_dashboard_are_right() {
    need!("promtool");
    let dashboard: Value =
        serde_json::from_slice(&std::fs::read(folder().join("dashboard.json")).expect("it")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let expressions: Vec<String> = targets
        .map(|target| {
            target["expr"].as_str().expect("an expression").replace("$job", "tepal").replace("$__rate_interval", "1m")
        })
        .collect();
    assert!(expressions.len() > 25, "{expressions:?}");
    let rules: Vec<String> = expressions
        .iter()
        .enumerate()
        .map(|(number, expression)| {
            let quoted = serde_json::to_string(expression).expect("text");
            format!("      - {{ record: 'dashboard:{number}', expr: {quoted} }}\n")
        })
        .collect();
    let scratch = tempfile::tempdir().expect("space");
    let file = scratch.path().join("rules.yml");
    std::fs::write(&file, format!("groups:\n  - name: dashboard\n    rules:\n{}", rules.concat())).expect("space");
    program::run(&mut promtool(&["check", "rules", file.to_str().expect("text")])).succeeded();
}
