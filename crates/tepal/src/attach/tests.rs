//! The real kernel on one side, a server that breaks on the other. Needs root, FUSE and loop devices; where those are
//! missing (most containers) the tests say so and pass.

use super::folder::{AttachmentFolder, Record, RunFolder};
use super::nbd::client::{Client, Pauses, Target};
use super::nbd::fake_server::{FakeServer, Script, Style, WHOLE};
use super::nbd::{Flags, NbdAddress};
use super::release::{self, Flush};
use super::{AttachError, Method, User, daemon, loop_device, method};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

const SIZE: u64 = 1 << 20;
const PAUSES: Pauses = Pauses { first: Duration::from_millis(1), longest: Duration::from_millis(5) };
/// Far longer than anything here takes; only a hang reaches it.
const HANG: Duration = Duration::from_secs(20);

/// A loop device in this process, as the daemon makes it.
struct Disk {
    place: AttachmentFolder,
    record: Record,
    ended: Receiver<()>,
    _folder: tempfile::TempDir,
}

impl Disk {
    fn attach(server: &FakeServer, read_only: bool) -> Disk {
        let folder = tempfile::tempdir().unwrap();
        let place = RunFolder::open(folder.path()).unwrap().place("v0");
        place.create().unwrap();
        let target = Target { address: server.address.clone(), volume: "v0".into(), export: "v0".into(), read_only };
        let client = Arc::new(Client::open(target, PAUSES, Box::new(|_| {})).unwrap());
        let (tell, ended) = mpsc::channel();
        let device = daemon::make_loop(&client, read_only, 512, &place, move || tell.send(()).unwrap()).unwrap();
        let record = Record {
            volume: "v0".into(),
            export: "v0".into(),
            device,
            method: Method::Fuse,
            address: NbdAddress::Unix(PathBuf::new()),
            read_only,
            size: SIZE,
            pid: std::process::id(),
            waiting: None,
            waiting_since_unix_ms: None,
            looks_when_told: false,
        };
        Disk { place, record, ended, _folder: folder }
    }

    fn device(&self) -> &Path {
        &self.record.device
    }

    fn release(&self) -> Result<(), AttachError> {
        release::release(&self.place, &self.record, Flush::First)?;
        self.ended.recv_timeout(HANG).expect("FUSE ends with its last user");
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // What a failed test leaves would stay on the machine.
        let _ = release::release(&self.place, &self.record, Flush::GiveUp);
    }
}

fn possible() -> bool {
    let found = method::choose(Some(Method::Fuse));
    if let Err(missing) = &found {
        eprintln!("not tested: {missing}");
    }
    found.is_ok()
}

fn open(device: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(device).unwrap()
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 7 % 251) as u8 + 1).collect()
}

#[test]
fn what_is_flushed_to_the_device_is_at_the_server_although_the_connection_broke_on_the_way() {
    if !possible() {
        return;
    }
    // In the middle of the written data, of the answers, and again just after the next handshake.
    let cuts = [(300_000, usize::MAX), (usize::MAX, 50), (0, usize::MAX)];
    let scripts = cuts.map(|(receives, sends)| Script { receives, sends, size: SIZE, ..WHOLE });
    let server = FakeServer::start(Style::Whole, scripts);
    let disk = Disk::attach(&server, false);
    assert!(loop_device::is_direct(disk.device()));
    let data = pattern(SIZE as usize);
    let file = open(disk.device());
    file.write_all_at(&data, 0).unwrap();
    file.sync_all().unwrap();
    {
        let seen = server.seen.lock().unwrap();
        assert!(seen.connections > 3, "the connection broke {} times", seen.connections - 1);
        assert!(seen.flushes > 0);
        assert!(seen.disk == data);
    }
    assert!(matches!(disk.release(), Err(AttachError::InUse { user: User::Process { .. }, .. })));
    drop(file);
    disk.release().unwrap();
    assert_eq!(loop_device::backing_file(disk.device()), None);
}

#[test]
fn a_discarded_range_reads_as_zeros_and_its_neighbours_stay() {
    if !possible() {
        return;
    }
    let server = FakeServer::start(Style::Halves, [Script { size: SIZE, ..WHOLE }]);
    let disk = Disk::attach(&server, false);
    let file = open(disk.device());
    let mut data = pattern(SIZE as usize);
    file.write_all_at(&data, 0).unwrap();
    file.sync_all().unwrap();
    let mode = nix::fcntl::FallocateFlags::FALLOC_FL_PUNCH_HOLE | nix::fcntl::FallocateFlags::FALLOC_FL_KEEP_SIZE;
    nix::fcntl::fallocate(&file, mode, 64 << 10, 128 << 10).unwrap();
    data[64 << 10..192 << 10].fill(0);
    assert!(server.seen.lock().unwrap().disk == data);
    let mut read = vec![0xff; SIZE as usize];
    file.read_exact_at(&mut read, 0).unwrap();
    assert!(read == data);
    drop(file);
    disk.release().unwrap();
}

#[test]
fn a_read_only_device_takes_no_writes() {
    if !possible() {
        return;
    }
    let flags = WHOLE.flags.or(Flags::READ_ONLY);
    let server = FakeServer::start(Style::Simple, [Script { size: SIZE, flags, ..WHOLE }]);
    server.seen.lock().unwrap().disk.copy_from_slice(&pattern(SIZE as usize));
    let disk = Disk::attach(&server, true);
    let mut read = vec![0; 4096];
    File::open(disk.device()).unwrap().read_exact_at(&mut read, 8192).unwrap();
    assert_eq!(read, pattern(SIZE as usize)[8192..12288]);
    let written = OpenOptions::new().write(true).open(disk.device()).and_then(|file| {
        file.write_all_at(&[9; 4096], 0)?;
        file.sync_all()
    });
    assert!(written.is_err());
    assert!(server.seen.lock().unwrap().disk == pattern(SIZE as usize));
    disk.release().unwrap();
}
