//! fio, which reads back and verifies what it wrote.

use crate::cluster::{Media, Plan};
use crate::program::{command, run_within};
use crate::{need, skip};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(180);

fn has_nbd() -> bool {
    run_within(&mut command("fio", ["--enghelp=nbd"]), LIMIT).succeeded().contains("uri")
}

#[test]
fn fio_verifies_what_several_jobs_write_at_random() {
    need!("fio");
    if !has_nbd() {
        skip!("this fio has no engine for NBD");
    }
    for (media, layout) in [(Media::Memory, "stripe"), (Media::Files, "mirror:2"), (Media::Memory, "mirror:2")] {
        let mut cluster = Plan { media, tcp: true, ..Plan::default() }.up();
        for (volume, uri) in [("unix", cluster.uri("unix")), ("tcp", format!("nbd://{}/tcp", cluster.tcp()))] {
            cluster.create(volume, "48M", layout);
            let fio = [
                "--name=verify",
                "--ioengine=nbd",
                &format!("--uri={uri}"),
                "--rw=randwrite",
                "--bsrange=512-128k",
                "--blockalign=512",
                "--iodepth=32",
                "--numjobs=3",
                "--size=16M",
                "--offset_increment=16M",
                "--verify=crc32c",
                "--verify_fatal=1",
                "--do_verify=1",
                "--fsync=64",
                "--randseed=7",
                "--group_reporting",
            ];
            // It writes files beside itself.
            let said = run_within(command("fio", fio).current_dir(cluster.folder()), LIMIT).succeeded();
            assert!(said.contains("err= 0"), "{said}");
            cluster.scrub_finds_nothing(volume);
        }
        cluster.stop_and_check_drives();
    }
}
