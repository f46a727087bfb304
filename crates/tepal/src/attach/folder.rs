//! Where attachments are kept track of: one folder for each volume, in the run folder, all for the owner's eyes only. It's named
//! by what stays when the volume is renamed.
//!
//! ```text
//! RUN/lock         a byte of it for each folder, held for the time of an attach or detach there, so that these take turns
//! RUN/KEY/daemon   held by the daemon for as long as it lives: how everybody else sees that it does
//! RUN/KEY/record   what is attached where, as JSON; replaced, never rewritten
//! RUN/KEY/log      what the daemon has to say
//! RUN/KEY/mount/   FUSE's folder
//! ```

use super::{AttachError, Method, NbdAddress};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{self, flock};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tepal_codec::checksum;
use tepal_server::private_file;

/// What the daemon tells about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// As it was called when that was last looked at.
    pub volume: String,
    /// What the server is asked for.
    #[serde(default)] // what daemons of older versions wrote has none
    pub export: String,
    pub device: PathBuf,
    pub method: Method,
    pub address: NbdAddress,
    pub read_only: bool,
    /// Bytes.
    pub size: u64,
    pub pid: u32,
    /// Why I/O waits now, if it does.
    pub waiting: Option<String>,
    /// Since when, by this machine's clock.
    #[serde(default)]
    pub waiting_since_unix_ms: Option<u64>,
    /// Whether it can be told that the volume may have grown. What daemons of older versions wrote says nothing of it.
    #[serde(default)]
    pub looks_when_told: bool,
}

/// Who looks whether a daemon lives is in its way for less than this.
const LOOKED_AT: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The folder of all attachments.
#[derive(Clone, Debug)]
pub struct RunFolder {
    path: PathBuf,
}

/// The folder of one volume's attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachmentFolder {
    path: PathBuf,
}

/// Whose a place is.
#[derive(Clone, Debug)]
pub enum Occupant {
    Nobody,
    /// A daemon lives; it has no record yet, or none any more.
    Starting,
    Alive(Record),
    /// Its daemon died without cleaning up.
    Dead(Record),
}

impl RunFolder {
    /// Creates the folder if need be.
    pub fn open(path: &Path) -> Result<RunFolder, AttachError> {
        let path = std::path::absolute(path).map_err(|source| AttachError::file("find", path, source))?;
        create_folder(&path)?;
        Ok(RunFolder { path })
    }

    /// One attach or detach of a place at a time. The lock goes with the file.
    pub fn turn(&self, place: &AttachmentFolder) -> Result<File, AttachError> {
        self.lock(place, |file, lock| fcntl(file, FcntlArg::F_OFD_SETLKW(lock)))
    }

    /// The same, unless others have it for so long.
    pub fn turn_within(&self, place: &AttachmentFolder, limit: Duration) -> Result<Option<File>, AttachError> {
        let deadline = Instant::now() + limit;
        let wait = |file: &File, lock: &flock| loop {
            match fcntl(file, FcntlArg::F_OFD_SETLK(lock)) {
                Err(Errno::EAGAIN | Errno::EACCES) if Instant::now() < deadline => {
                    std::thread::sleep(LOOK_AGAIN); // the lock has no time limit
                }
                locked => return locked,
            }
        };
        match self.lock(place, wait) {
            Ok(file) => Ok(Some(file)),
            Err(AttachError::File { source, .. }) if source.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Locks a place's byte of the file. Two places may have the same byte, and are only slower then.
    fn lock(
        &self,
        place: &AttachmentFolder,
        wait: impl FnOnce(&File, &flock) -> nix::Result<i32>,
    ) -> Result<File, AttachError> {
        let path = self.path.join("lock");
        let file = open_private(&path)?;
        let (l_type, l_whence) = (libc::F_WRLCK as i16, libc::SEEK_SET as i16);
        let l_start = i64::from(checksum::crc(place.key().as_bytes()));
        let locked = wait(&file, &flock { l_type, l_whence, l_start, l_len: 1, l_pid: 0 });
        locked.map_err(|error| AttachError::file("lock", &path, error.into()))?;
        Ok(file)
    }

    pub fn place(&self, key: &str) -> AttachmentFolder {
        AttachmentFolder { path: self.path.join(file_name(key)) }
    }

    /// Every place that somebody has or had.
    pub fn places(&self) -> Result<Vec<AttachmentFolder>, AttachError> {
        let failed = |source| AttachError::file("read", &self.path, source);
        let mut places = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_type().map_err(failed)?.is_dir() {
                places.push(AttachmentFolder { path: entry.path() });
            }
        }
        places.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(places)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AttachmentFolder {
    /// Whose it is, as far as its name says it.
    pub fn key(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    pub fn mountpoint(&self) -> PathBuf {
        self.path.join("mount")
    }

    pub fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    pub fn create(&self) -> Result<(), AttachError> {
        create_folder(&self.path)?;
        create_folder(&self.mountpoint())
    }

    /// The daemon's claim; `None` if another lives. It lasts as long as the file is open.
    pub fn claim(&self) -> Result<Option<File>, AttachError> {
        let path = self.path.join("daemon");
        let (file, deadline) = (open_private(&path)?, Instant::now() + LOOKED_AT);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                // It may be somebody who looks whether a daemon lives.
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(LOOK_AGAIN),
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(source)) => return Err(AttachError::file("lock", &path, source)),
            }
        }
    }

    /// Whether a daemon has its claim; `None` if none has ever claimed it. Many may look at once.
    fn lives(&self) -> Result<Option<bool>, AttachError> {
        let path = self.path.join("daemon");
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(|source| AttachError::file("open", &path, source))?,
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(Some(false)),
            Err(TryLockError::WouldBlock) => Ok(Some(true)),
            Err(TryLockError::Error(source)) => Err(AttachError::file("lock", &path, source)),
        }
    }

    pub fn occupant(&self) -> Result<Occupant, AttachError> {
        let Some(lives) = self.lives()? else { return Ok(Occupant::Nobody) };
        Ok(match (self.record()?, lives) {
            (Some(record), true) => Occupant::Alive(record),
            (Some(record), false) => Occupant::Dead(record),
            (None, true) => Occupant::Starting,
            (None, false) => Occupant::Nobody,
        })
    }

    /// Waits for the daemon to end.
    pub fn wait_for_end(&self, limit: Duration) -> Result<bool, AttachError> {
        let deadline = Instant::now() + limit;
        while self.lives()? == Some(true) {
            if Instant::now() > deadline {
                return Ok(false);
            }
            std::thread::sleep(LOOK_AGAIN); // flock has no time limit
        }
        Ok(true)
    }

    fn record(&self) -> Result<Option<Record>, AttachError> {
        let path = self.path.join("record");
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|source| AttachError::file("understand", &path, source.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(AttachError::file("read", &path, source)),
        }
    }

    pub fn write_record(&self, record: &Record) -> Result<(), AttachError> {
        let path = self.path.join("record");
        let written =
            serde_json::to_vec(record).map_err(io::Error::from).and_then(|text| private_file::replace(&path, &text));
        written.map_err(|source| AttachError::file("write", &path, source))
    }

    /// Removes the folder. Only what this module makes is removed, one by one: the mountpoint may still be one.
    pub fn clear(&self) -> Result<(), AttachError> {
        for name in ["record", "record.new", "log", "daemon"] {
            ignore_absent(fs::remove_file(self.path.join(name)), &self.path)?;
        }
        ignore_absent(fs::remove_dir(self.mountpoint()), &self.path)?;
        ignore_absent(fs::remove_dir(&self.path), &self.path)
    }
}

fn ignore_absent(removed: io::Result<()>, path: &Path) -> Result<(), AttachError> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(AttachError::file("clear", path, error)),
        _ => Ok(()),
    }
}

fn create_folder(path: &Path) -> Result<(), AttachError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(path).map_err(|source| AttachError::file("create", path, source))
}

fn open_private(path: &Path) -> Result<File, AttachError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.open(path).map_err(|source| AttachError::file("open", path, source))
}

/// A volume's key as a file's name: bytes that mean something to file systems or people's shells are written %XX.
fn file_name(key: &str) -> String {
    if key.is_empty() {
        return "%".into();
    }
    let mut name = String::with_capacity(key.len());
    for (at, byte) in key.bytes().enumerate() {
        let plain = byte.is_ascii_alphanumeric() || b"_-@".contains(&byte) || (byte == b'.' && at > 0);
        if plain {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02x}"));
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            volume: "v0".into(),
            export: "id:7".into(),
            device: "/dev/loop7".into(),
            method: Method::Fuse,
            address: NbdAddress::Unix("/run/nbd.sock".into()),
            read_only: false,
            size: 1 << 30,
            pid: 1,
            waiting: None,
            waiting_since_unix_ms: None,
            looks_when_told: true,
        }
    }

    #[test]
    fn volumes_have_folders_of_their_own_inside_the_run_folder_whatever_they_are_called() {
        let cases = [("v0", "v0"), ("db@monday", "db@monday"), ("../x", "%2e.%2fx"), (".lock", "%2elock"), ("", "%")];
        for (volume, name) in cases {
            assert_eq!(file_name(volume), name);
        }
    }

    /// Story: a hundred attachments, ten at a time, took turns at one lock, and most of their time was waiting for it.
    #[test]
    fn only_attachments_of_the_same_volume_take_turns() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::open(&folder.path().join("run")).unwrap();
        let (one, other) = (run.place("v0"), run.place("v1"));
        let turn = run.turn(&one).unwrap();
        assert!(run.turn_within(&one, Duration::from_millis(20)).unwrap().is_none());
        let _other = run.turn_within(&other, Duration::ZERO).unwrap().expect("nobody has it");
        drop(turn);
        assert!(run.turn_within(&one, Duration::ZERO).unwrap().is_some());
    }

    /// Story: a daemon that began while somebody listed the attachments found its place taken.
    #[test]
    fn who_looks_whether_a_daemon_lives_keeps_none_from_starting() {
        let folder = tempfile::tempdir().unwrap();
        let place = RunFolder::open(&folder.path().join("run")).unwrap().place("v0");
        place.create().unwrap();
        drop(place.claim().unwrap().expect("the place is free"));
        let ends = Instant::now() + Duration::from_millis(200);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while Instant::now() < ends {
                        place.occupant().unwrap();
                    }
                });
            }
            while Instant::now() < ends {
                drop(place.claim().unwrap().expect("nobody but those who look"));
            }
        });
    }

    #[test]
    fn a_place_tells_whether_its_daemon_lives() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::open(&folder.path().join("run")).unwrap();
        let place = run.place("v0");
        assert!(matches!(place.occupant().unwrap(), Occupant::Nobody));
        place.create().unwrap();
        let claim = place.claim().unwrap().expect("the place is free");
        assert!(place.claim().unwrap().is_none());
        assert!(matches!(place.occupant().unwrap(), Occupant::Starting));
        place.write_record(&record()).unwrap();
        assert!(matches!(place.occupant().unwrap(), Occupant::Alive(found) if found == record()));
        drop(claim);
        assert!(matches!(place.occupant().unwrap(), Occupant::Dead(found) if found == record()));
        place.clear().unwrap();
        assert!(run.places().unwrap().is_empty());
    }
}
