//! The NBD client of a real kernel, and ext4 on it.

use crate::cluster::{Media, Plan};
use crate::program::{find, run_within};
use crate::{need_root, skip};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

#[test]
fn a_kernel_makes_a_filesystem_on_a_volume_over_its_own_nbd_client() {
    let guest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/guest");
    if !guest.join("guest.sh").is_file() {
        skip!("the guest kernel's scripts are not beside this tree");
    }
    need_root!();
    for program in ["linux.uml", "kmod", "ip", "socat", "nbd-client", "mkfs.ext4"] {
        if find(program).is_none() {
            skip!("{program} is missing here");
        }
    }
    let mut cluster = Plan { media: Media::Memory, ..Plan::default() }.up();
    let boot = || {
        let mut boot = Command::new(guest.join("guest.sh"));
        boot.env("GUEST_OUT", cluster.folder().join("out"));
        boot
    };
    // On processors with more state than user-mode Linux saves, it can't begin any program.
    let bare = run_within(boot().arg("/dev/null"), LIMIT);
    if !bare.status.success() {
        let why = bare.stderr.lines().last().unwrap_or("it says nothing");
        skip!("user-mode Linux runs nothing on this machine: {why}");
    }
    cluster.create("v0", "64M", "mirror:2");
    let mut mounts = boot();
    mounts.arg("--nbd").arg(cluster.socket()).arg(guest.join("ext4-on-nbd.sh")).args(["v0", "40"]);
    let said = run_within(&mut mounts, LIMIT).succeeded();
    assert!(said.contains("40 files right after remount"), "{said}");
    cluster.scrub_finds_nothing("v0");
    cluster.stop_and_check_drives();
}
