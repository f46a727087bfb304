//! csi-test's own program, which asks what the specification says of each call.

use super::driver::Driver;
use crate::cluster::{Cluster, Plan, command_for};
use crate::filesystems::obstacle;
use crate::program::{command, run_within};
use crate::{need, skip};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(300);
/// What isn't skipped as alpha in the specification.
const AT_LEAST: usize = 76;

/// So much was passed, and nothing failed.
fn passes(driver: &Driver, kind: &str) {
    let folder = driver.mounts();
    let mut sanity = command("csi-sanity", ["--ginkgo.no-color", "--csi.endpoint", &driver.endpoint()]);
    sanity.arg("--csi.mountdir").arg(folder.join("target")).arg("--csi.stagingdir").arg(folder.join("staging"));
    let said = run_within(sanity.args(["--csi.testvolumeaccesstype", kind]), LIMIT).succeeded();
    let counts = said.lines().find(|line| line.contains(" Passed |")).unwrap_or_else(|| panic!("no end: {said}"));
    let count = |what: &str| {
        let before = counts.split(what).next().and_then(|text| text.split_whitespace().last());
        before.and_then(|number| number.parse::<usize>().ok()).unwrap_or_else(|| panic!("{what}: {counts}"))
    };
    assert!(count(" Passed") >= AT_LEAST && count(" Failed") == 0, "{counts}");
}

fn leaves_nothing(cluster: &Cluster, driver: &Driver) {
    assert_eq!(cluster.ask(&["volume", "ls"]), serde_json::json!([]));
    assert!(driver.attached().is_empty() && driver.mounted().is_empty());
}

#[test]
fn csi_sanity_passes_with_filesystems_and_with_blocks() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    need!("csi-sanity");
    let cluster = Plan { drive_size: 1 << 30, ..Plan::default() }.up();
    let data = cluster.data();
    let driver = Driver::start(&cluster.folder().join("driver"), move || command_for(&data), &[]);
    for kind in ["mount", "block"] {
        passes(&driver, kind);
        leaves_nothing(&cluster, &driver);
    }
}
