//! The manifests in `packaging/kubernetes`: well-formed, whole in themselves, and in words that the binary knows.

use crate::program::{command, run};
use crate::{need, skip};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Prints a file's documents as JSON.
const AS_JSON: &str = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";

/// For which the chart is rendered: what a `helm` takes by itself depends on how it was built.
const KUBERNETES: &str = "1.31.0";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/kubernetes")
}

fn documents(file: &Path) -> Vec<Value> {
    let said = run(command("python3", ["-c", AS_JSON]).arg(file)).succeeded();
    serde_json::from_str(&said).expect("JSON")
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("no {key}: {value}"))
}

/// Options that the binary's help doesn't have.
fn unknown_options(container: &Value) -> Vec<String> {
    let arguments: Vec<&str> = list(container, "args").iter().filter_map(Value::as_str).collect();
    let help = run(std::process::Command::new(crate::cluster::tepal()).args([arguments[0], "--help"])).succeeded();
    let options = arguments[1..].iter().map(|argument| argument.split('=').next().unwrap_or_default());
    options.filter(|option| !help.contains(option)).map(str::to_owned).collect()
}

fn check(pod: &Value) {
    let has = |name: &str| list(pod, "volumes").iter().any(|volume| volume["name"] == name);
    for container in list(pod, "containers") {
        assert!(text(container, "image").contains(':'), "an image has its version: {container}");
        for mount in list(container, "volumeMounts") {
            assert!(has(text(mount, "name")), "{mount}");
        }
        if ["tepal", "gateway"].contains(&text(container, "name")) {
            assert_eq!(unknown_options(container), Vec::<String>::new());
        }
    }
}

fn can_read_yaml() -> bool {
    run(&mut command("python3", ["-c", "import yaml"])).status.success()
}

#[test]
fn manifests_are_whole_and_say_what_the_binary_knows() {
    need!("python3");
    if !can_read_yaml() {
        skip!("python3 has no yaml here");
    }
    let mut kinds = Vec::new();
    for file in ["tepal-csi.yaml", "snapshotclass.yaml", "example/workload.yaml"] {
        for document in documents(&folder().join(file)) {
            assert!(!text(&document, "apiVersion").is_empty() && !text(&document["metadata"], "name").is_empty());
            check(&document["spec"]["template"]["spec"]);
            check(&document["spec"]);
            kinds.push(text(&document, "kind").to_owned());
        }
    }
    for kind in ["CSIDriver", "Deployment", "DaemonSet", "StorageClass", "VolumeSnapshotClass", "ClusterRole", "Pod"] {
        assert!(kinds.iter().any(|one| one == kind), "{kind} is missing: {kinds:?}");
    }
}

#[test]
fn the_chart_with_its_values_is_the_plain_manifests() {
    need!("python3", "helm");
    if !can_read_yaml() {
        skip!("python3 has no yaml here");
    }
    let scratch = tempfile::tempdir().expect("space");
    let rendered = scratch.path().join("rendered.yaml");
    let mut helm = command("helm", ["template", "tepal-csi", "--namespace", "tepal-csi", "--kube-version", KUBERNETES]);
    std::fs::write(&rendered, run(helm.arg(folder().join("chart"))).succeeded()).expect("space");
    let name = |one: &Value| (text(one, "kind").to_owned(), text(&one["metadata"], "name").to_owned());
    let sorted = |file: &Path| {
        let mut all: Vec<Value> = documents(file).into_iter().filter(|one| one["kind"] != "Namespace").collect();
        all.retain(Value::is_object);
        all.sort_by_key(name);
        all
    };
    assert_eq!(sorted(&rendered), sorted(&folder().join("tepal-csi.yaml")));
}
