//! The filesystem exerciser: thousands of reads, writes, truncations and mappings of one file, each compared with what must be
//! there.

use super::attached::Attached;
use super::{Mounted, check_ext4, make_ext4, obstacle};
use crate::cluster::{Media, Plan};
use crate::program::{command, kill_group, spawn, until, wait};
use crate::{need, skip};
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// Much is synced, and dropped from memory: so reads come from the volume, and not from the page cache alone.
const CONFIG: &str = r#"
flen = 4194304

[opsize]
max = 131072

[weights]
close_open = 1
invalidate = 3
mapread = 10
mapwrite = 10
read = 10
write = 10
truncate = 2
fsync = 5
fdatasync = 5
posix_fallocate = 1
punch_hole = 2
"#;

#[test]
fn fsx_finds_every_byte_of_its_file_also_through_kill_9() {
    need!("fsx");
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let mut cluster = Plan { media: Media::Memory, ..Plan::default() }.up();
    cluster.create("v0", "64M", "mirror:2");
    let (data, at) = (cluster.data(), cluster.folder().join("mnt"));
    let attached = Attached::new(&data, "v0", &[]);
    make_ext4(&attached.device);
    let mounted = Mounted::new(&attached.device, &at, "rw");
    let [artifacts, config] = ["fsx", "fsx.toml"].map(|name| cluster.folder().join(name));
    std::fs::create_dir(&artifacts).expect("a folder of ours");
    std::fs::write(&config, CONFIG).expect("space");
    let mut fsx = command("fsx", ["-S", "1", "-N", "4000", "-P"]);
    fsx.arg(&artifacts).arg("-f").arg(&config).arg(at.join("exercised"));
    let log = std::fs::File::create(artifacts.join("said")).expect("space");
    let mut fsx = spawn(fsx.stdout(log.try_clone().expect("a second handle")).stderr(log));
    for _ in 0..2 {
        let before = writes_to(&attached.device);
        until("fsx to reach the volume", LIMIT, || (writes_to(&attached.device) > before + 300).then_some(()));
        assert_eq!(wait(&mut fsx, Duration::ZERO), None, "fsx has ended before the server was killed under it");
        cluster.kill();
        cluster.start();
    }
    let status = wait(&mut fsx, LIMIT);
    kill_group(&mut fsx);
    let said = std::fs::read_to_string(artifacts.join("said")).expect("what fsx said");
    assert!(status.is_some_and(|status| status.success()), "fsx: {status:?}\n{said}");

    mounted.unmount();
    check_ext4(&attached.device);
    attached.detach();
    cluster.stop_and_check_drives();
}

/// How many writes the kernel has done on a device.
fn writes_to(device: &Path) -> u64 {
    let name = device.file_name().and_then(|name| name.to_str()).expect("a device's name");
    let counters = std::fs::read_to_string(format!("/sys/block/{name}/stat")).expect("a device of ours");
    counters.split_whitespace().nth(4).and_then(|count| count.parse().ok()).expect("a number")
}
