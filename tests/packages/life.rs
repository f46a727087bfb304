//! The life of the package: installed, configured, upgraded, removed, installed again, and purged.

use super::debian::Debian;
use super::made::made;
use crate::cluster;
use crate::program::{command, run, until};
use crate::{need, need_packages, need_root, skip};
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);
const DRIVE: u64 = 512 << 20;
const CONFIGURATION: &str = "/etc/tepal/tepal.toml";
const DATA: &str = "/var/lib/tepal";

#[test]
fn a_server_is_installed_upgraded_removed_and_purged_and_its_data_outlives_it_all() {
    need_root!();
    need!("mmdebstrap", "unshare", "nsenter", "losetup", "tar");
    need_packages!();
    let mut debian = match Debian::up() {
        Ok(debian) => debian,
        Err(why) => skip!("{why}"),
    };
    let earlier = made().earlier("0.0.1-1", debian.folder());
    let (earlier, package) = (debian.bring(&earlier, "earlier.deb"), debian.bring(&made().package(), "tepal.deb"));
    let drives = [debian.drive("d0", DRIVE), debian.drive("d1", DRIVE)];

    installed_it_waits_for_a_configuration(&debian, &earlier);
    let configuration = format!(
        "data = \"{DATA}\"\ncreate = \"home\"\nlisten = [\"unix:/run/tepal-server/nbd.sock\"]\ndrives = [\"{}\", \"{}\"]\n",
        drives[0].0, drives[1].0
    );
    configured_it_serves_block_devices(&debian, &configuration);
    a_filesystem_is_mounted_on_a_volume(&debian);
    upgraded_it_is_started_again(&debian, &package);
    disabled_it_stays_so(&debian, &package);
    removed_and_installed_again_it_goes_on(&debian, &package);
    purged_it_leaves_the_data(&debian, &drives[0].1);
    after_a_purge_the_data_is_served_again(&debian, &package, &configuration);
}

fn install(debian: &Debian, package: &str) {
    debian.says(&format!("apt-get install --yes --no-install-recommends --reinstall --allow-downgrades {package}"));
}

/// What `systemctl is-active` says.
fn state(debian: &Debian) -> String {
    String::from_utf8_lossy(&debian.run(&["systemctl", "is-active", "tepal"]).stdout).trim().to_owned()
}

fn tepal(debian: &Debian, line: &str) -> String {
    debian.says(&format!("tepal --dir {DATA} {line}"))
}

fn wait_until_it_serves(debian: &Debian) {
    until("both drives are up", SOON, || {
        let asked = debian.run(&["tepal", "--dir", DATA, "drive", "ls", "-o", "json"]);
        let drives: Value = serde_json::from_slice(&asked.stdout).ok()?;
        let up = drives.as_array()?.iter().filter(|drive| drive["state"] == "up");
        (up.count() == 2).then_some(())
    });
}

fn data_is_there(debian: &Debian) {
    wait_until_it_serves(debian);
    debian.run(&["sh", "-c", &format!("tepal --dir {DATA} volume export v0 > /srv/read")]).succeeded();
    debian.says("cmp /srv/written /srv/read");
}

fn main_process(debian: &Debian) -> String {
    debian.says("systemctl show --property=MainPID --value tepal")
}

fn owner(debian: &Debian, path: &str) -> String {
    debian.says(&format!("stat -c %U:%G:%a {path}"))
}

fn installed_it_waits_for_a_configuration(debian: &Debian, package: &str) {
    install(debian, package);
    assert_eq!(owner(debian, DATA), "tepal:tepal:700");
    assert_eq!(owner(debian, CONFIGURATION), "root:root:644");
    assert_eq!(debian.says("id -Gn tepal"), "tepal", "the group disk is the service's alone");
    assert_eq!(debian.says("systemctl is-enabled tepal"), "enabled");
    assert_eq!(state(debian), "inactive");
    // Nothing to serve is no failure.
    debian.says("systemctl start tepal");
    assert_eq!(state(debian), "inactive");
    assert_eq!(debian.says("dpkg --verify tepal"), "");
    let verified = debian.run(&["systemd-analyze", "verify", "--man=no", "tepal.service"]);
    assert!(verified.stderr.is_empty(), "{verified}");
    verified.succeeded();
}

fn configured_it_serves_block_devices(debian: &Debian, configuration: &str) {
    std::fs::write(debian.root().join(&CONFIGURATION[1..]), configuration).expect("our own root");
    debian.says("systemctl start tepal");
    wait_until_it_serves(debian);
    let drives: Value = serde_json::from_str(&tepal(debian, "drive ls -o json")).expect("JSON");
    for drive in drives.as_array().expect("a list") {
        assert_eq!(
            drive["open"]["backend"], "io_uring",
            "the service's filter of system calls lets the ring through: {drive}"
        );
    }
    let process = format!("/proc/{}", main_process(debian));
    let status = debian.says(&format!("cat {process}/status"));
    let has = |field: &str| status.lines().any(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") == field);
    assert!(has("Seccomp: 2") && has("NoNewPrivs: 1") && has("CapBnd: 0000000000000000"), "{status}");
    assert!(!has("Uid: 0 0 0 0"), "{status}");
    debian.says("dd if=/dev/urandom of=/srv/written bs=1M count=16 status=none");
    debian
        .run(&["sh", "-c", &format!("tepal --dir {DATA} volume import v0 --layout mirror:2 < /srv/written")])
        .succeeded();
    data_is_there(debian);
}

/// As docs/operating/install.md says.
fn a_filesystem_is_mounted_on_a_volume(debian: &Debian) {
    tepal(debian, "volume create files --size 128M");
    let device = tepal(debian, "attach files");
    debian.says(&format!("mkfs.ext4 -q {device}"));
    debian.says(&format!("mount {device} /mnt"));
    debian.says("cp /srv/written /mnt/written");
    debian.says("umount /mnt");
    debian.says(&format!("mount {device} /mnt"));
    debian.says("cmp /srv/written /mnt/written");
    debian.says("umount /mnt");
    tepal(debian, "detach files");
}

fn upgraded_it_is_started_again(debian: &Debian, package: &str) {
    let before = main_process(debian);
    install(debian, package);
    let version = debian.says("dpkg-query --show --showformat=${Version} tepal");
    assert_ne!(version, "0.0.1-1");
    assert_ne!(main_process(debian), before, "it's the new binary that runs");
    data_is_there(debian);
}

fn disabled_it_stays_so(debian: &Debian, package: &str) {
    debian.says("systemctl disable --now tepal");
    install(debian, package);
    assert_eq!(state(debian), "inactive", "an upgrade starts nothing that was stopped");
    let enabled = debian.run(&["systemctl", "is-enabled", "tepal"]);
    assert_eq!(String::from_utf8_lossy(&enabled.stdout).trim(), "disabled");
    debian.says("systemctl enable --now tepal");
    data_is_there(debian);
}

fn removed_and_installed_again_it_goes_on(debian: &Debian, package: &str) {
    debian.says("apt-get remove --yes tepal");
    assert_eq!(state(debian), "inactive");
    let kept = |path: &str| debian.root().join(&path[1..]).exists();
    assert!(kept(CONFIGURATION) && kept("/var/lib/tepal/cluster.db"));
    assert!(!kept("/usr/bin/tepal") && !kept("/usr/lib/systemd/system/tepal.service"));
    debian.says("id tepal");
    install(debian, package);
    data_is_there(debian);
}

fn purged_it_leaves_the_data(debian: &Debian, drive: &Path) {
    let said = debian.says("apt-get purge --yes tepal");
    assert!(said.contains("tepal: the data in /var/lib/tepal is kept"), "{said}");
    assert!(!debian.run(&["id", "tepal"]).status.success(), "the user is gone");
    assert!(!debian.root().join("etc/tepal").exists());
    assert_eq!(owner(debian, DATA), "root:root:700", "whoever gets the user's number next must not look");
    let database = std::fs::metadata(debian.root().join("var/lib/tepal/cluster.db")).expect("it's kept");
    assert!(database.size() > 0);
    run(command(&cluster::tepal().to_string_lossy(), ["drive", "check"]).arg(drive)).succeeded();
}

fn after_a_purge_the_data_is_served_again(debian: &Debian, package: &str, configuration: &str) {
    // Another user has the number now.
    debian.says("useradd --system stranger");
    install(debian, package);
    assert_eq!(owner(debian, DATA), "tepal:tepal:700");
    std::fs::write(debian.root().join(&CONFIGURATION[1..]), configuration).expect("our own root");
    debian.says("systemctl start tepal");
    data_is_there(debian);
    let status = tepal(debian, "status -o json");
    let status: Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!(status["health"], "ok", "{status}");
}
