//! Attachments whose volume, server or daemon is gone: what is said of them, and how they end.

use super::attached::{Attached, use_of};
use super::{Mounted, make_ext4, obstacle, write_file};
use crate::cluster::{Cluster, Plan};
use crate::program::{LIMIT, command, run, spawn, until, wait};
use crate::skip;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// For what must end although a server is gone for good.
const BOUNDED: Duration = Duration::from_secs(60);

fn with_volume() -> Cluster {
    let cluster = Plan::default().up();
    cluster.create("v0", "32M", "mirror:2");
    cluster
}

/// What `attach --list` says.
fn list(run_folder: &Path) -> Vec<Value> {
    let mut list =
        command(crate::cluster::tepal().to_str().expect("a path of ours"), ["-o", "json", "attach", "--list"]);
    let said = run(list.arg("--run-folder").arg(run_folder)).succeeded();
    serde_json::from_str(&said).expect("a list in JSON")
}

/// Whether nothing is attached as a device, or something else than before: another story may take a free device at once.
fn is_free(device: &Path, used: Option<&str>) -> bool {
    let name = device.file_name().expect("a device").to_str().expect("ours");
    let is_used = Path::new(&format!("/sys/block/{name}/loop/backing_file")).exists();
    !is_used || use_of(device).as_deref() != used
}

fn kill_daemon(attachment: &Value) {
    let pid = attachment["pid"].as_u64().expect("a process").to_string();
    run(&mut command("kill", ["-9", &pid])).succeeded();
    until("the daemon to be gone", LIMIT, || (!Path::new(&format!("/proc/{pid}")).exists()).then_some(()));
}

/// Story: the volume was removed under its device. The list said `connected`, and detaching failed as nothing could be flushed.
#[test]
fn a_removed_volume_is_told_and_its_device_detached() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let cluster = with_volume();
    let data = cluster.data();
    let attached = Attached::new(&data, "v0", &[]);
    let (device, used) = (attached.device.clone(), attached.used.clone());
    assert_eq!(list(&attached.run_folder)[0]["state"], "connected");
    cluster.tepal(&["volume", "rm", "v0", "--force"]).succeeded();
    let said = list(&attached.run_folder);
    assert_eq!(said[0]["state"], "gone", "{said:?}");
    let how = format!("`tepal detach {}`", device.display());
    assert!(said[0]["reason"].as_str().is_some_and(|reason| reason.contains(&how)), "{said:?}");
    let run_folder = attached.run_folder.clone();
    attached.detach();
    assert_eq!(list(&run_folder), [] as [Value; 0]);
    assert!(is_free(&device, used.as_deref()));
}

/// Story: the server was dead for good. The unmount hung and couldn't be killed, and `detach --force` refused, as it was mounted.
#[test]
fn force_ends_an_unmount_that_waits_for_a_dead_server() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let mut cluster = with_volume();
    let (data, at) = (cluster.data(), cluster.folder().join("mnt"));
    let attached = Attached::new(&data, "v0", &[]);
    make_ext4(&attached.device);
    let mounted = Mounted::new(&attached.device, &at, "rw");
    write_file(&at, 1, false).expect("space");
    cluster.kill();
    let mut umount = spawn(command("umount", [&mounted.at]).stderr(std::process::Stdio::null()));
    let waits = until("the device to wait", LIMIT, || {
        list(&attached.run_folder).into_iter().find(|said| said["waiting_seconds"].as_u64() >= Some(1))
    });
    assert_eq!(waits["state"], "waiting", "{waits}");
    assert!(waits["pid"].as_u64() > Some(1), "{waits}");
    let refused = attached.tepal("detach", &[]).refused(1);
    assert!(refused.contains("--force"), "{refused}");
    assert!(umount.try_wait().expect("a child").is_none(), "it waits too");

    attached.tepal("detach", &["--force"]).succeeded();
    assert!(wait(&mut umount, BOUNDED).is_some(), "it still hangs");
    assert_eq!(list(&attached.run_folder), [] as [Value; 0]);
    until("the device to go with its last user", LIMIT, || {
        is_free(&attached.device, attached.used.as_deref()).then_some(())
    });
}

#[test]
fn force_takes_the_device_from_under_a_mounted_filesystem() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let mut cluster = with_volume();
    let (data, at) = (cluster.data(), cluster.folder().join("mnt"));
    let attached = Attached::new(&data, "v0", &[]);
    make_ext4(&attached.device);
    let mounted = Mounted::new(&attached.device, &at, "rw");
    write_file(&at, 1, false).expect("space");
    cluster.kill();
    let said = attached.tepal("detach", &["--force"]).succeeded();
    assert!(said.contains(&format!("it's mounted at {}", at.display())), "{said}");
    assert!(write_file(&at, 2, true).is_err(), "everything fails");
    let mut umount = spawn(command("umount", [&mounted.at]).stderr(std::process::Stdio::null()));
    assert!(wait(&mut umount, BOUNDED).is_some(), "it hangs");
    until("the device to go with its last user", LIMIT, || {
        is_free(&attached.device, attached.used.as_deref()).then_some(())
    });
    // It's attached again as if nothing had been.
    cluster.start();
    Attached::new(&data, "v0", &[]).detach();
}

#[test]
fn io_fails_after_the_time_to_give_up_and_works_when_the_server_is_back() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let mut cluster = with_volume();
    let data = cluster.data();
    let attached = Attached::new(&data, "v0", &["--give-up-after", "500ms"]);
    let write = || {
        let of = format!("of={}", attached.device.display());
        run(command("dd", ["if=/dev/zero", "bs=4096", "count=1", "oflag=direct"]).arg(of)).status.success()
    };
    assert!(write());
    cluster.kill();
    assert!(!write(), "nobody answers");
    cluster.start();
    until("the device to work again", LIMIT, || write().then_some(()));
    attached.detach();
}

/// Story: the daemon died, and its filesystem was unmounted. The next volume of the same name, of another cluster, got the same device;
/// neither could be detached, as the other one had that name and that device too, and the dead one stayed in the list for ever.
#[test]
fn what_a_dead_daemon_left_is_cleared_and_its_device_is_the_next_ones_alone() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let (cluster, other) = (with_volume(), with_volume());
    let (data, at) = (cluster.data(), cluster.folder().join("mnt"));
    let attached = Attached::new(&data, "v0", &[]);
    let run_folder = attached.run_folder.clone();
    kill_daemon(&list(&run_folder)[0]);
    assert_eq!(list(&run_folder), [] as [Value; 0], "nobody used it");
    assert!(is_free(&attached.device, attached.used.as_deref()));

    let attached = Attached::new(&data, "v0", &[]);
    make_ext4(&attached.device);
    let mounted = Mounted::new(&attached.device, &at, "rw");
    kill_daemon(&list(&run_folder)[0]);
    let dead = list(&run_folder);
    assert_eq!((dead.len(), &dead[0]["state"]), (1, &json!("dead")), "{dead:?}");
    let mount = format!("it's mounted at {}", at.display());
    assert!(dead[0]["reason"].as_str().is_some_and(|reason| reason.contains(&mount)), "{dead:?}");
    mounted.unmount();

    let other_data = other.data();
    let next = Attached::kept_in(&other_data, &run_folder, "v0", &[]);
    let listed = list(&run_folder);
    assert_eq!((listed.len(), &listed[0]["state"]), (1, &json!("connected")), "{listed:?}");
    let mut detach = crate::cluster::command_for(&other_data);
    run(detach.arg("detach").arg(&next.device).arg("--run-folder").arg(&run_folder)).succeeded();
    assert_eq!(list(&run_folder), [] as [Value; 0]);
}
