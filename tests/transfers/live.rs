//! Volumes that are used while they are imported, from a place that is slow, stands still, and goes away.

use super::{MIB, Piped, bytes};
use crate::cluster::{Cluster, Plan};
use crate::encryption::{count, create_key};
use crate::nbd::{Nbd, mixed, noise};
use crate::need;
use crate::program::{self, Ended, until};
use crate::servers::ring::Ring;
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

const SIZE: usize = 48 * MIB;
const LONG: Duration = Duration::from_secs(120);
/// So that an import takes some seconds.
const SLOW: u64 = 6 << 20;

/// An NBD server that has a disk, and can be told to stand still, or be killed and started again.
struct Old {
    folder: PathBuf,
    rate: u64,
    server: Option<Child>,
}

impl Old {
    fn new(folder: &Path, content: &[u8], rate: u64) -> Old {
        let mut old = Old::made(folder, content, rate);
        old.start();
        old
    }

    /// One that refuses all but whole blocks of 64 KiB.
    fn in_blocks(folder: &Path, content: &[u8]) -> Old {
        let mut old = Old::made(folder, content, 0);
        let mut command = program::command("nbdkit", ["--foreground", "--readonly", "--filter=blocksize-policy", "-U"]);
        command.arg(old.socket()).arg("file").arg(old.folder.join("old.raw"));
        command.args(["blocksize-minimum=64K", "blocksize-preferred=64K", "blocksize-error-policy=error"]);
        old.server = Some(program::spawn(&mut command));
        old.wait();
        old
    }

    fn made(folder: &Path, content: &[u8], rate: u64) -> Old {
        let file = File::create(folder.join("old.raw")).expect("space");
        file.set_len(content.len() as u64).expect("space");
        for (piece, at) in content.chunks(64 << 10).zip((0..).step_by(64 << 10)) {
            if piece.iter().any(|byte| *byte != 0) {
                file.write_all_at(piece, at).expect("space");
            }
        }
        Old { folder: folder.to_owned(), rate, server: None }
    }

    fn start(&mut self) {
        let _ = std::fs::remove_file(self.socket());
        let mut command = program::command("qemu-nbd", ["--read-only", "--persistent", "--shared=0", "--socket"]);
        command.arg(self.socket());
        command.args(["--object", &format!("throttle-group,id=t,x-bps-total={}", self.rate), "--image-opts"]);
        let disk = self.folder.join("old.raw");
        command.arg(format!("driver=throttle,throttle-group=t,file.driver=file,file.filename={}", disk.display()));
        self.server = Some(program::spawn(&mut command));
        self.wait();
    }

    fn wait(&self) {
        until("the old place to answer", LONG, || std::os::unix::net::UnixStream::connect(self.socket()).ok());
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("old.sock")
    }

    fn address(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket().display())
    }

    fn stand_still(&self) {
        program::signal_group(self.server.as_ref().expect("it runs"), libc::SIGSTOP);
    }

    fn go_on(&self) {
        program::signal_group(self.server.as_ref().expect("it runs"), libc::SIGCONT);
    }

    fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            program::kill_group(&mut server);
        }
    }
}

impl Drop for Old {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Noise with holes in it.
fn content() -> Vec<u8> {
    let mut content = noise(7, SIZE);
    content[5 * MIB..9 * MIB].fill(0);
    content[SIZE - 3 * MIB..SIZE - MIB].fill(0);
    content
}

/// One client's requests, one after the other, and what it expects to read.
struct Client {
    model: Vec<u8>,
    random: u64,
    /// Requests are in multiples of it.
    sector: usize,
}

impl Client {
    fn new(seed: u64) -> Client {
        Client { model: content(), random: seed, sector: 1 }
    }

    fn draw(&mut self, below: usize) -> usize {
        self.random = mixed(self.random);
        (self.random % below as u64) as usize
    }

    fn acts(&mut self, disk: &mut Nbd) {
        let lengths: [usize; 5] = [1, 700, 4096, 65_536, 300_000];
        let length = lengths[self.draw(lengths.len())].next_multiple_of(self.sector);
        let mut at = self.draw(SIZE - length) / self.sector * self.sector;
        if self.draw(2) == 0 {
            at = at / 4096 * 4096;
        }
        let (range, offset) = (at..at + length, at as u64);
        match self.draw(8) {
            0..3 => {
                let data = noise(self.random, length);
                self.model[range].copy_from_slice(&data);
                disk.write_through(offset, &data).expect("written");
            }
            3 => {
                self.model[range].fill(0);
                disk.write_zeroes(offset, length as u32).expect("zeroed");
                disk.flush().expect("flushed");
            }
            _ => {
                let found = disk.read(offset, length as u32).expect("read");
                let differs = found.iter().zip(&self.model[range]).position(|(one, other)| one != other);
                assert_eq!(differs.map(|differs| at + differs), None, "of {length} bytes at {at}");
            }
        }
    }
}

fn import(cluster: &Cluster, old: &Old, options: &[&str]) -> Ended {
    let address = old.address();
    cluster.tepal(&[&["volume", "import", "v", "--from", &address, "--live", "--no-wait"], options].concat())
}

fn until_whole(what: impl Fn() -> Value) {
    until("all of it to be there", LONG, || what()["live"].is_null().then_some(()));
}

/// Stories in one: what is written stays, what isn't there comes from the old place whenever that answers, and nothing of it is lost when
/// this server or that one is killed.
#[test]
fn a_volume_is_right_for_its_client_while_all_that_serves_it_is_killed() {
    need!("qemu-nbd");
    let mut cluster = Plan::default().up();
    let mut old = Old::new(cluster.folder(), &content(), SLOW);
    import(&cluster, &old, &["--layout", "mirror:2"]).succeeded();
    let mut client = Client::new(1);
    for round in 0..4 {
        let mut disk = cluster.connect("v");
        (0..60).for_each(|_| client.acts(&mut disk));
        match round % 2 {
            0 => {
                cluster.kill();
                cluster.start();
            }
            _ => {
                old.kill();
                old.start();
            }
        }
    }
    let mut disk = cluster.connect("v");
    while !cluster.volume("v")["live"].is_null() {
        (0..20).for_each(|_| client.acts(&mut disk));
    }
    old.kill();
    assert!(bytes(&cluster, "v") == client.model);
    cluster.tepal(&["snapshot", "create", "v@a"]).succeeded();
    cluster.kill();
    cluster.start();
    assert!(bytes(&cluster, "v") == client.model);
    cluster.scrub_finds_nothing("v");
    cluster.stop_and_check_drives();
}

/// The old place stands still: what is here goes on, what isn't waits, and is right when the old place goes on.
#[test]
fn what_needs_an_old_place_that_stands_still_waits_for_it() {
    need!("qemu-nbd");
    let cluster = Plan::default().up();
    let old = Old::new(cluster.folder(), &content(), SLOW);
    import(&cluster, &old, &["--layout", "mirror:2"]).succeeded();
    cluster.tepal(&["volume", "pause", "v"]).succeeded();
    old.stand_still();
    let (mut disk, at) = (cluster.connect("v"), (40 * MIB) as u64);
    disk.write(at, &[5; 8192]).expect("whole blocks need nothing of it");
    assert_eq!(disk.read(at, 8192).expect("it's here"), [5; 8192]);
    let reading = std::thread::spawn(move || {
        let found = disk.read(at - 4096, 4 * 4096).expect("in the end");
        (found, disk)
    });
    std::thread::sleep(Duration::from_secs(1));
    assert!(!reading.is_finished(), "nobody knows what is there");
    old.go_on();
    let (found, mut disk) = reading.join().expect("no panic");
    let mut expected = content();
    expected[at as usize..][..8192].fill(5);
    assert!(found[..] == expected[at as usize - 4096..][..4 * 4096]);
    assert_eq!(cluster.volume("v")["live"]["state"], "paused");
    disk.trim(at, 8192).expect("taken");
    cluster.tepal(&["volume", "resume", "v"]).succeeded();
    until_whole(|| cluster.volume("v"));
    assert!(bytes(&cluster, "v") == expected, "a discard is a hint, and isn't taken before the end");
    assert!(
        cluster.volume("v")["allocated"].as_u64().expect("a number") < 2 * (SIZE - 5 * MIB) as u64,
        "holes stay holes"
    );
}

#[test]
fn what_is_cancelled_is_told_of_and_can_go_on_after_all() {
    need!("qemu-nbd");
    let cluster = Plan::default().up();
    let mut old = Old::new(cluster.folder(), &content(), SLOW);
    import(&cluster, &old, &["--layout", "mirror:2"]).succeeded();
    let refusals: [&[&str]; 4] = [
        &["snapshot", "create", "v@a"],
        &["volume", "resize", "v", "96M"],
        &["volume", "relayout", "v", "--layout", "stripe"],
        &["volume", "import", "v", "--from", &old.address(), "--live"],
    ];
    for refused in refusals {
        let error = cluster.tepal(refused).refused(1);
        assert!(error.contains("volume 'v' is still being imported") || error.contains("exists already"), "{error}");
    }
    let error = cluster.tepal(&["volume", "rate", "v", "1M"]).refused(1);
    assert!(error.contains("imported live") && error.contains("`tepal volume pause v`"), "{error}");
    cluster.tepal(&["volume", "cancel", "v"]).succeeded();
    let mut disk = cluster.connect("v");
    disk.write((40 * MIB) as u64, &[5; 4096]).expect("it's a place of its own");
    disk.read((41 * MIB) as u64, 4096).expect_err("it isn't here, and won't come");
    assert_eq!(disk.read((40 * MIB) as u64, 4096).expect("it's here"), [5; 4096]);
    let shown = cluster.tepal(&["volume", "show", "v"]).succeeded();
    assert!(shown.contains("is cancelled"), "{shown}");
    for form in ["raw", "tepal", "rbd-diff"] {
        let error = Piped::start(&cluster, &["volume", "export", "v", "--as", form]).end().failed();
        assert!(error.contains("only partly here") && error.contains("`tepal volume resume v`"), "{form}: {error}");
    }
    cluster.tepal(&["volume", "resume", "v"]).succeeded();
    until_whole(|| cluster.volume("v"));
    old.kill();
    let mut expected = content();
    expected[40 * MIB..][..4096].fill(5);
    assert!(bytes(&cluster, "v") == expected);
    let error = cluster.tepal(&["volume", "import", "w", "--from", &old.address(), "--live"]).refused(1);
    assert!(
        error.contains("old.sock") && cluster.ask(&["volume", "ls"]).as_array().expect("a list").len() == 1,
        "{error}"
    );
    let error = cluster.tepal(&["volume", "import", "w", "--from", "disk.qcow2", "--live"]).refused(1);
    assert!(error.contains("qemu-nbd"), "{error}");
}

/// Story: an export waited for what doesn't come any more.
#[test]
fn an_export_ends_when_the_live_import_is_cancelled_meanwhile() {
    need!("qemu-nbd");
    let cluster = Plan::default().up();
    let old = Old::new(cluster.folder(), &content(), SLOW);
    import(&cluster, &old, &["--layout", "mirror:2"]).succeeded();
    cluster.tepal(&["volume", "pause", "v"]).succeeded();
    let mut export = Piped::start(&cluster, &["volume", "export", "v"]);
    assert!(export.take(MIB) == content()[..MIB]);
    cluster.tepal(&["volume", "cancel", "v"]).succeeded();
    let error = export.end().failed();
    assert!(error.contains("only partly here") && error.contains("`tepal volume resume v`"), "{error}");
}

/// Story: what had been copied to a drive that failed for good was zeros once its loss was accepted, and the old place had it.
#[test]
fn what_a_lost_drive_had_comes_from_the_old_place_again() {
    need!("qemu-nbd");
    let cluster = Plan { drives: 2, ..Plan::default() }.up();
    // How far it is is agreed on at a hole, if not sooner.
    let mut content = noise(7, 124 * MIB);
    content[24 * MIB..100 * MIB].fill(0);
    let mut old = Old::new(cluster.folder(), &content, SLOW);
    import(&cluster, &old, &["--layout", "mirror:2"]).succeeded();
    let mut disk = cluster.connect("v");
    disk.write_through((110 * MIB) as u64, &[7; 4096]).expect("to both drives");
    let [failing, staying] = [0, 1].map(|number| cluster.drive(number).to_owned());
    let [id_of_failing, id_of_staying] = [&failing, &staying].map(|drive| cluster.drive_id(drive));
    cluster.tepal(&["drive", "offline", &id_of_staying]).succeeded();
    let done = || cluster.volume("v")["live"]["done_bytes"].as_u64().expect("it goes on") as usize;
    until("some of it to be copied", LONG, || (done() > 24 * MIB).then_some(()));
    cluster.tepal(&["volume", "pause", "v"]).succeeded();
    disk.write_through((120 * MIB) as u64, &[8; 4096]).expect("to one drive");
    drop(disk);
    std::fs::rename(&failing, failing.with_extension("aside")).expect("ours");
    cluster.wait_for_drive(&failing, "missing");
    cluster.tepal(&["drive", "online", &id_of_staying]).succeeded();
    cluster.tepal(&["drive", "rm", &id_of_failing, "--force"]).succeeded();
    cluster.tepal(&["volume", "accept-loss", "v", "--force"]).succeeded();
    assert_eq!(done(), 0);
    // What only the lost drive had of its client is as the old place has it.
    let mut expected = content;
    expected[110 * MIB..][..4096].fill(7);
    assert!(super::content(&mut cluster.connect("v")) == expected);
    cluster.tepal(&["volume", "resume", "v"]).succeeded();
    until_whole(|| cluster.volume("v"));
    old.kill();
    assert!(bytes(&cluster, "v") == expected);
}

/// Story: a server wanted to be read in blocks of 64 KiB. A plain import failed, and so did clients of a live one, which waited for ever.
#[test]
fn an_old_place_is_read_in_blocks_as_large_as_it_says() {
    need!("nbdkit");
    let cluster = Plan::default().up();
    let old = Old::in_blocks(cluster.folder(), &content());
    import(&cluster, &old, &["--layout", "mirror:2"]).succeeded();
    let (mut client, mut disk) = (Client::new(9), cluster.connect("v"));
    (0..60).for_each(|_| client.acts(&mut disk));
    until_whole(|| cluster.volume("v"));
    assert!(bytes(&cluster, "v") == client.model);
    cluster.tepal(&["volume", "import", "w", "--from", &old.address(), "--verify"]).succeeded();
    assert!(bytes(&cluster, "w") == content());
}

/// Clients at three servers, of which one after the other is killed.
#[test]
fn an_import_goes_on_at_another_server_when_one_is_killed() {
    need!("qemu-nbd");
    let ring = Ring::up(3);
    ring.wait_until_all_are_up(1);
    let old = Old::new(&ring.dir(), &content(), SLOW);
    let from = old.address();
    let begin = ["volume", "import", "v", "--from", &from, "--live", "--no-wait", "--layout", "mirror:2"];
    ring.ask(1, &begin).succeeded();
    let mut client = Client::new(3);
    for round in 0..6 {
        let server = round % 3 + 1;
        let mut disk = ring.connect(server, "v");
        (0..40).for_each(|_| client.acts(&mut disk));
        if round < 3 {
            ring.kill(server);
            ring.start(&[server]);
            ring.wait_until_all_are_up(server % 3 + 1);
        }
    }
    until_whole(|| ring.json(2, &["volume", "show", "v"]));
    drop(old);
    for server in 1..=3 {
        assert!(super::content(&mut ring.connect(server, "v")) == client.model, "at s{server}");
    }
}

/// Nothing of the old place is on drives as it is, though it's read there by clients and copied by servers.
#[test]
fn an_encrypted_volume_is_imported_while_its_client_uses_it() {
    need!("qemu-nbd");
    let keys = tempfile::tempdir().expect("a folder for temporary files");
    create_key(keys.path(), "main").succeeded();
    let arguments = vec!["--keys".to_owned(), keys.path().display().to_string()];
    let mut cluster = Plan { arguments, ..Plan::default() }.up();
    let mut old = Old::new(cluster.folder(), &content(), SLOW);
    import(&cluster, &old, &["--layout", "mirror:2", "--key", "main"]).succeeded();
    assert_eq!(cluster.volume("v")["key"], "main");
    let mut client = Client { sector: 512, ..Client::new(5) };
    for _ in 0..2 {
        let mut disk = cluster.connect("v");
        (0..60).for_each(|_| client.acts(&mut disk));
        cluster.kill();
        cluster.start();
    }
    let mut disk = cluster.connect("v");
    while !cluster.volume("v")["live"].is_null() {
        (0..20).for_each(|_| client.acts(&mut disk));
    }
    drop(disk);
    old.kill();
    assert!(bytes(&cluster, "v") == client.model);
    cluster.scrub_finds_nothing("v");
    let words = &content()[20 * MIB + 512..][..64];
    assert_eq!(count(&old.folder.join("old.raw"), words), 1, "it's there to be found");
    let drives: Vec<PathBuf> = (0..4).map(|number| cluster.drive(number).to_owned()).collect();
    cluster.stop_and_check_drives();
    assert!(drives.iter().all(|drive| count(drive, words) == 0));
}
