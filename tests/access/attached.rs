//! `tepal attach` by an identity, and for one machine alone.

use super::rights::{cluster, identity};
use crate::filesystems::attached::Attached;
use crate::filesystems::{Mounted, check_ext4, compare_files, make_ext4, obstacle, write_file};
use crate::skip;
use std::io::Write;

#[test]
fn a_filesystem_over_tls_outlives_its_server() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let mut cluster = cluster();
    let folder = identity(&cluster, "web", &[]);
    cluster.tepal(&["volume", "grant", "v", "write", "web"]).succeeded();
    let port = cluster.tcp();
    cluster.plan().arguments.extend(["--listen".to_owned(), port]); // where the client looks for it again
    cluster.plan().tcp = false;
    let (data, at, by) = (cluster.data(), cluster.folder().join("mnt"), ["--identity", folder.to_str().expect("text")]);
    let attached = Attached::new(&data, "v", &by);
    make_ext4(&attached.device);
    let mounted = Mounted::new(&attached.device, &at, "rw");
    write_file(&at, 1, false).expect("space");
    cluster.kill();
    cluster.start();
    write_file(&at, 2, false).expect("space");
    compare_files(&at, [1, 2]);
    mounted.unmount();
    attached.detach();
    let attached = Attached::new(&data, "v", &["--read-only"]);
    check_ext4(&attached.device);
    attached.detach();
}

#[test]
fn a_device_whose_volume_is_taken_over_gets_errors() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let cluster = cluster();
    let (data, run_folder) = (cluster.data(), cluster.folder().join("other"));
    let one = Attached::new(&data, "v", &["--exclusive=one"]);
    let write = |attached: &Attached<'_>| {
        let opened = std::fs::OpenOptions::new().write(true).open(&attached.device);
        opened.and_then(|mut device| device.write_all(&[7; 4096]).and_then(|()| device.sync_all()))
    };
    write(&one).expect("it's the holder's");
    let refused =
        cluster.tepal(&["attach", "v", "--exclusive=two", "--run-folder", run_folder.to_str().expect("text")]);
    assert!(refused.refused(1).contains("in use"));
    let two = Attached::kept_in(&data, &run_folder, "v", &["--exclusive=two", "--take-over"]);
    assert!(write(&one).is_err());
    write(&two).expect("it's the holder's");
    assert_eq!(cluster.volume("v")["reserved_by"], "two");
}
