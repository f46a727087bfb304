//! The folder of a development cluster: what is in it, and how it was made.

use super::network::{NetworkError, Subnet};
use super::process::ProcessError;
use crate::client::ClientError;
use crate::locate::{GATEWAY, LocateError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use tepal_model::ServerId;
use tepal_model::size::Size;
use tepal_server::device::{CreateError, create_file};
use tepal_server::private_file;

/// Why a development cluster can't be brought into the state that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum DevError {
    #[error("there is no development cluster in {}: `tepal dev up` makes one, or name its folder by --dir", .0.display())]
    NoCluster(PathBuf),
    #[error("{} holds other things and no development cluster: name another folder by --dir", .0.display())]
    Occupied(PathBuf),
    #[error("another `tepal dev` command is at work in {}", .0.display())]
    Busy(PathBuf),
    #[error("{} was written by a newer version of tepal (format {found}, this one knows {FORMAT})", path.display())]
    Newer { path: PathBuf, found: u32 },
    #[error("{} is damaged: {error}", path.display())]
    Damaged { path: PathBuf, error: serde_json::Error },
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error(
        "{} has {} bytes, and the path of a unix socket at most {SOCKET_PATH}: choose a folder with a shorter path by --dir",
        .0.display(), .0.as_os_str().len()
    )]
    LongPath(PathBuf),
    #[error("{}: the path is not UTF-8, which the cluster's records need", .0.display())]
    NotUnicode(PathBuf),
    #[error("the cluster in {} was made with {option} {made}, which can't be changed to {wanted}", folder.display())]
    Different { folder: PathBuf, option: &'static str, made: String, wanted: String },
    #[error(
        "the drives of the cluster in {} were in memory and are gone, as after a restart of the machine: remove what is \
         left with `tepal dev down --purge {}`", .0.display(), .0.display()
    )]
    MemoryGone(PathBuf),
    #[error(
        "the drives of a cluster that was in {} are in memory yet, and its folder is gone: `rm -r {}` removes them", folder.display(),
        memory.display()
    )]
    MemoryLeft { folder: PathBuf, memory: PathBuf },
    #[error(
        "all servers of the cluster in {} have lost their state, and the drives have it yet: `tepal --dir {} cluster rebuild --from-drives` \
         begins again with that; `tepal dev down --purge {}` removes what is left", .0.display(), .0.display(), .0.display()
    )]
    StateGone(PathBuf),
    #[error("{} belongs to another user, or is open to others: remove it", .0.display())]
    NotPrivate(PathBuf),
    #[error(transparent)]
    Drive(#[from] CreateError),
    #[error("--purge names {}, and the cluster is in {}: type the folder of the cluster to remove", typed.display(), folder.display())]
    OtherFolder { typed: PathBuf, folder: PathBuf },
    #[error("there is no server {server} in {}", folder.display())]
    NoServer { server: ServerId, folder: PathBuf },
    #[error("server {server} is not running: `tepal dev start {server}` starts it")]
    Down { server: ServerId },
    #[error("server {server} is running already, as process {pid}")]
    Running { server: ServerId, pid: i32 },
    #[error("server {server} is paused, as process {pid}: `tepal dev resume {server}` lets it go on")]
    Paused { server: ServerId, pid: i32 },
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("server {server} did not start: {reason} (its log: {})", log.display())]
    Start { server: ServerId, reason: String, log: PathBuf },
    #[error("the gateway did not start: {reason} (its log: {})", log.display())]
    StartGateway { reason: String, log: PathBuf },
    #[error(
        "volume '{name}' exists already with {option} {made}, and {wanted} was asked for: leave it out, or name another"
    )]
    OtherVolume { name: String, option: &'static str, made: String, wanted: String },
    #[error("the servers of the cluster in {} share this machine's network: make a cluster with `tepal dev up --isolate`", .0.display())]
    NotIsolated(PathBuf),
    #[error("the cluster in {} has no network now: `tepal dev up` brings it back", .0.display())]
    NoNetwork(PathBuf),
    #[error("server {server} can't be cut off from itself: name it on one side only")]
    BothSides { server: ServerId },
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Locate(#[from] LocateError),
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// How long another command's lock is waited for.
const SOON: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);
/// The version of `cluster.json`.
const FORMAT: u32 = 1;
const PLAN: &str = "cluster.json";
/// The server that begins the cluster.
pub const FIRST: ServerId = ServerId(1);
/// What fits in a `sockaddr_un` with its closing zero.
const SOCKET_PATH: usize = 107;
pub const MEMORY: &str = "/dev/shm";

/// How a cluster was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub format: u32,
    pub servers: u32,
    /// Of each server.
    pub drives: u32,
    /// Bytes of each drive.
    pub drive_size: u64,
    pub memory: bool,
    pub emulate: Option<String>,
    /// How many drives of each server were made. One of these that isn't there was pulled, and isn't made again.
    pub drives_made: u32,
    /// HOST:PORT of the first server, once it has had one: it gets the same again if that's free.
    pub api: Option<String>,
    /// The same of the others.
    #[serde(default)]
    pub apis: BTreeMap<ServerId, String>,
    /// How many servers have drives already, as many as `drives_made`.
    #[serde(default = "one_server")]
    pub servers_made: u32,
    /// The network of a cluster whose servers have network namespaces of their own.
    #[serde(default)]
    pub isolated: Option<Subnet>,
}

/// What plans of before there were several don't say.
fn one_server() -> u32 {
    1
}

/// The folder of a cluster. Its path is absolute.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    /// As the user named it.
    named: PathBuf,
}

/// Held while something is changed.
pub struct Lock(#[expect(dead_code, reason = "held, never read")] File);

fn file_error(path: &Path) -> impl Fn(io::Error) -> DevError {
    move |error| DevError::File { path: path.to_owned(), error }
}

impl Folder {
    fn at(named: &Path) -> Result<Self, DevError> {
        let absolute = std::path::absolute(named).map_err(file_error(named))?;
        // With `..` and links resolved where that is possible, so that one cluster has one name.
        let path = fs::canonicalize(&absolute).unwrap_or(absolute);
        match path.to_str() {
            Some(_) => Ok(Folder { path, named: named.to_owned() }),
            None => Err(DevError::NotUnicode(path)),
        }
    }

    /// The folder of a cluster that was made before.
    pub fn open(named: &Path) -> Result<Self, DevError> {
        let folder = Self::at(named)?;
        match fs::metadata(folder.path.join(PLAN)) {
            Ok(found) if found.is_file() => Ok(folder),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(file_error(named)(error)),
            _ => Err(DevError::NoCluster(named.to_owned())),
        }
    }

    /// The folder, made if it isn't there. It's its owner's alone.
    pub fn make(named: &Path) -> Result<Self, DevError> {
        let absolute = std::path::absolute(named).map_err(file_error(named))?;
        if let Some(parent) = absolute.parent() {
            fs::create_dir_all(parent).map_err(file_error(parent))?;
        }
        let is_new = match DirBuilder::new().mode(0o700).create(&absolute) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            Err(error) => return Err(file_error(&absolute)(error)),
        };
        let folder = Self::at(named)?;
        let socket = folder.socket();
        if socket.as_os_str().len() > SOCKET_PATH {
            if is_new {
                let _ = fs::remove_dir(&folder.path); // empty, and of no use
            }
            return Err(DevError::LongPath(socket));
        }
        let occupied = || -> io::Result<bool> {
            let others = fs::read_dir(&folder.path)?.filter_map(Result::ok);
            Ok(others.map(|entry| entry.file_name()).any(|name| name != "lock"))
        };
        if !folder.path.join(PLAN).is_file() && occupied().map_err(file_error(&folder.path))? {
            return Err(DevError::Occupied(named.to_owned()));
        }
        Ok(folder)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// As the user named it, for texts.
    pub fn shown(&self) -> String {
        self.named.display().to_string()
    }

    pub fn named(&self) -> &Path {
        &self.named
    }

    pub fn socket(&self) -> PathBuf {
        self.path.join(GATEWAY)
    }

    /// Where a server's volumes are, if it's one of several.
    pub fn own_socket(&self, server: ServerId) -> PathBuf {
        self.data(server).join("nbd.sock")
    }

    /// Of the gateway's process.
    pub fn gateway(&self) -> PathBuf {
        self.path.join("gateway")
    }

    /// Keys for encrypted volumes, which all servers of the cluster have.
    pub fn keys(&self) -> PathBuf {
        self.path.join("keys")
    }

    /// Where other servers find this one: its own choice, if nothing else is said.
    pub fn peers(&self, server: ServerId) -> PathBuf {
        self.data(server).join("peers.sock")
    }

    /// Whether the server has been one of the cluster's.
    pub fn is_member(&self, server: ServerId) -> bool {
        self.data(server).join("raft.db").exists()
    }

    /// Gives a server that has no token the one that all the others have.
    pub fn share_token(&self, server: ServerId, all: &[ServerId]) -> Result<(), DevError> {
        let token_of = |server: ServerId| self.data(server).join("token");
        let to = token_of(server);
        let known = all.iter().map(|other| token_of(*other)).find(|path| path.exists());
        let Some(from) = known.filter(|_| !to.exists()) else { return Ok(()) };
        let token = fs::read(&from).map_err(file_error(&from))?;
        private_file::replace(&to, &token).map_err(file_error(&to))
    }

    pub fn data(&self, server: ServerId) -> PathBuf {
        self.path.join(server.to_string())
    }

    pub fn log(&self, server: ServerId) -> PathBuf {
        self.data(server).join("log")
    }

    pub fn drive(&self, server: ServerId, number: u32) -> PathBuf {
        self.data(server).join(format!("drive{number}"))
    }

    /// The servers of the cluster.
    pub fn servers(&self) -> Result<Vec<ServerId>, DevError> {
        let plan = self.plan()?.ok_or_else(|| DevError::NoCluster(self.named.clone()))?;
        Ok((1..=plan.servers).map(ServerId).collect())
    }

    /// The server's drives that are in its folder now.
    pub fn drives_there(&self, server: ServerId) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.data(server)).into_iter().flatten().filter_map(Result::ok);
        let is_drive = |path: &PathBuf| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            name.strip_prefix("drive").is_some_and(|number| number.parse::<u32>().is_ok())
        };
        let mut drives: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_drive).collect();
        drives.sort();
        drives
    }

    pub fn tour_file(&self) -> PathBuf {
        self.path.join("tour.json")
    }

    /// Whether the path of each server's sockets fits where it has to.
    pub fn check_sockets(&self, servers: u32) -> Result<(), DevError> {
        let longest = self.peers(ServerId(servers));
        if servers > 1 && longest.as_os_str().len() > SOCKET_PATH {
            return Err(DevError::LongPath(longest));
        }
        Ok(())
    }

    /// Notes that this process has the cluster in its foreground, and nobody else.
    pub fn take_foreground(&self) -> Result<(), DevError> {
        write_json(&self.foreground(), &std::process::id())
    }

    /// Whether this process has it yet: another command may have taken the cluster down, and a third have brought it up again.
    pub fn has_foreground(&self) -> bool {
        let text = fs::read(self.foreground()).ok();
        text.and_then(|text| serde_json::from_slice::<u32>(&text).ok()) == Some(std::process::id())
    }

    /// Whoever had it has to end.
    pub fn leave_foreground(&self) -> Result<(), DevError> {
        let path = self.foreground();
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file_error(&path)(error)),
            _ => Ok(()),
        }
    }

    fn foreground(&self) -> PathBuf {
        self.path.join("foreground.json")
    }

    /// Keeps other commands from changing anything meanwhile.
    pub fn lock(&self) -> Result<Lock, DevError> {
        let path = self.path.join("lock");
        let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = opened.map_err(file_error(&path))?;
        match file.try_lock() {
            Ok(()) => Ok(Lock(file)),
            Err(TryLockError::WouldBlock) => Err(DevError::Busy(self.named.clone())),
            Err(TryLockError::Error(error)) => Err(file_error(&path)(error)),
        }
    }

    /// The same, once others that are at work are done.
    pub fn lock_soon(&self) -> Result<Lock, DevError> {
        let end = Instant::now() + SOON;
        loop {
            match self.lock() {
                Err(DevError::Busy(_)) if Instant::now() < end => thread::sleep(LOOK),
                outcome => return outcome,
            }
        }
    }

    pub fn plan(&self) -> Result<Option<Plan>, DevError> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let path = self.path.join(PLAN);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(file_error(&path)(error)),
        };
        let damaged = |error| DevError::Damaged { path: path.clone(), error };
        let Version { format } = serde_json::from_slice(&text).map_err(damaged)?;
        if format != FORMAT {
            return Err(DevError::Newer { path, found: format });
        }
        serde_json::from_slice(&text).map(Some).map_err(damaged)
    }

    pub fn save(&self, plan: &Plan) -> Result<(), DevError> {
        write_json(&self.path.join(PLAN), plan)
    }

    /// Makes drives from `from` on.
    pub fn make_drives(&self, server: ServerId, plan: &Plan) -> Result<(), DevError> {
        let data = self.data(server);
        match DirBuilder::new().mode(0o700).create(&data) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(file_error(&data)(error)),
            _ => {}
        }
        let made = if server.0 <= plan.servers_made { plan.drives_made } else { 0 };
        for number in made..plan.drives {
            let path = self.drive(server, number);
            let target = match plan.memory {
                true => self.memory_folder()?.join(format!("{server}-drive{number}")),
                false => path.clone(),
            };
            match create_file(&target, plan.drive_size) {
                // Made by a start that was interrupted before it could say so: nothing is on it yet.
                Ok(()) | Err(CreateError::Exists { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            if plan.memory && fs::symlink_metadata(&path).is_err() {
                symlink(&target, &path).map_err(file_error(&path))?;
            }
        }
        Ok(())
    }

    /// Drives in memory don't survive a restart of the machine.
    pub fn check_memory(&self, plan: &Plan) -> Result<(), DevError> {
        if plan.memory && plan.drives_made > 0 && !self.memory_path().is_dir() {
            return Err(DevError::MemoryGone(self.named.clone()));
        }
        Ok(())
    }

    /// Drives in memory outlive a folder that's removed by hand. A new cluster's servers would refuse them.
    pub fn check_left_drives(&self) -> Result<(), DevError> {
        let memory = self.memory_path();
        let has_run = |drive: fs::DirEntry| drive.metadata().is_ok_and(|drive| drive.blocks() > 0);
        let mut drives = fs::read_dir(&memory).into_iter().flatten().flatten();
        if drives.any(has_run) { Err(DevError::MemoryLeft { folder: self.named.clone(), memory }) } else { Ok(()) }
    }

    /// A cluster that has run isn't made anew where it was: its drives would be another's.
    pub fn check_state(&self, plan: &Plan) -> Result<(), DevError> {
        let mut servers = (1..=plan.servers_made).map(ServerId);
        let has_drives = |server| !self.drives_there(server).is_empty();
        let is_gone = plan.has_run() && !servers.clone().any(|server| self.is_member(server));
        if is_gone && servers.any(has_drives) { Err(DevError::StateGone(self.named.clone())) } else { Ok(()) }
    }

    fn memory_path(&self) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        self.path.hash(&mut hasher);
        Path::new(MEMORY).join(format!("tepal-{:016x}", hasher.finish()))
    }

    /// Others may write to /dev/shm too, so what is found there is looked at.
    fn memory_folder(&self) -> Result<PathBuf, DevError> {
        let path = self.memory_path();
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(file_error(&path)(error)),
            _ => {}
        }
        let found = fs::symlink_metadata(&path).map_err(file_error(&path))?;
        let private = found.is_dir() && found.mode() & 0o077 == 0 && found.uid() == nix::unistd::geteuid().as_raw();
        if private { Ok(path) } else { Err(DevError::NotPrivate(path)) }
    }

    /// Whether the user typed this very folder.
    pub fn is_meant_by(&self, typed: &Path) -> Result<(), DevError> {
        match fs::canonicalize(typed) {
            Ok(typed) if typed == self.path => Ok(()),
            _ => Err(DevError::OtherFolder { typed: typed.to_owned(), folder: self.named.clone() }),
        }
    }

    /// Removes the cluster with all its data.
    pub fn purge(&self) -> Result<(), DevError> {
        let memory = self.memory_path();
        if memory.is_dir() {
            fs::remove_dir_all(&memory).map_err(file_error(&memory))?;
        }
        fs::remove_dir_all(&self.path).map_err(file_error(&self.path))
    }
}

impl Plan {
    pub fn new(drives: u32, drive_size: u64, memory: bool, emulate: Option<String>) -> Self {
        Plan {
            format: FORMAT,
            servers: 1,
            drives,
            drive_size,
            memory,
            emulate,
            drives_made: 0,
            api: None,
            apis: BTreeMap::new(),
            servers_made: 1,
            isolated: None,
        }
    }

    /// Whether any of its servers ever did.
    fn has_run(&self) -> bool {
        self.api.is_some() || !self.apis.is_empty()
    }

    /// Where the server's API was last.
    pub fn api_of(&self, server: ServerId) -> Option<&str> {
        if server == FIRST { self.api.as_deref() } else { self.apis.get(&server).map(String::as_str) }
    }

    pub fn note_api(&mut self, server: ServerId, address: String) {
        if server == FIRST {
            self.api = Some(address);
        } else {
            self.apis.insert(server, address);
        }
    }

    pub fn size_text(&self) -> String {
        Size(self.drive_size).to_string()
    }
}

/// Writes a small file as one step that a crash either shows or doesn't.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), DevError> {
    let text = serde_json::to_vec_pretty(value).map_err(|error| DevError::Damaged { path: path.to_owned(), error })?;
    private_file::replace(path, &text).map_err(file_error(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const S1: ServerId = ServerId(1);

    #[test]
    fn the_folder_and_its_drives_are_their_owners_alone_and_sparse() {
        let scratch = tempfile::tempdir().expect("space");
        let folder = Folder::make(&scratch.path().join("a/dev")).expect("made");
        let plan = Plan::new(2, 1 << 30, false, None);
        folder.make_drives(S1, &plan).expect("made");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(folder.path()), mode(&folder.data(S1)), mode(&folder.drive(S1, 1))), (0o700, 0o700, 0o600));
        let drive = fs::metadata(folder.drive(S1, 0)).expect("there");
        assert!(drive.len() == 1 << 30 && drive.blocks() == 0);
    }

    #[test]
    fn drives_in_memory_whose_folder_was_removed_by_hand_are_in_nobodys_new_cluster() {
        let scratch = tempfile::tempdir().expect("space");
        let folder = Folder::make(&scratch.path().join("dev")).expect("made");
        folder.make_drives(S1, &Plan::new(1, 1 << 20, true, None)).expect("made");
        folder.check_left_drives().expect("an interrupted start made it, and nobody wrote to it");
        fs::write(folder.drive(S1, 0), "a label").expect("ours");
        fs::remove_dir_all(folder.path()).expect("ours");
        let folder = Folder::make(&scratch.path().join("dev")).expect("made");
        assert!(matches!(folder.check_left_drives(), Err(DevError::MemoryLeft { .. })));
        folder.purge().expect("ours");
        folder.check_left_drives().expect("nothing is left");
    }

    #[test]
    fn a_drive_that_was_pulled_is_not_made_again_but_new_ones_are() {
        let scratch = tempfile::tempdir().expect("space");
        let folder = Folder::make(&scratch.path().join("dev")).expect("made");
        let plan = Plan::new(2, 1 << 20, false, None);
        folder.make_drives(S1, &plan).expect("made");
        fs::remove_file(folder.drive(S1, 0)).expect("ours");
        folder.make_drives(S1, &Plan { drives: 3, drives_made: 2, ..plan }).expect("made");
        assert!(!folder.drive(S1, 0).exists() && folder.drive(S1, 2).exists());
    }

    #[test]
    fn a_folder_with_other_things_is_left_alone() {
        let scratch = tempfile::tempdir().expect("space");
        fs::write(scratch.path().join("thesis.tex"), "x").expect("ours");
        assert!(matches!(Folder::make(scratch.path()), Err(DevError::Occupied(_))));
        assert!(matches!(Folder::open(scratch.path()), Err(DevError::NoCluster(_))));
        assert_eq!(fs::read_dir(scratch.path()).expect("ours").count(), 1);
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused_and_nothing_is_left() {
        let scratch = tempfile::tempdir().expect("space");
        let long = scratch.path().join("x".repeat(110));
        assert!(matches!(Folder::make(&long), Err(DevError::LongPath(_))));
        assert!(!long.exists());
    }

    #[test]
    fn two_commands_do_not_change_one_cluster_at_once() {
        let scratch = tempfile::tempdir().expect("space");
        let folder = Folder::make(&scratch.path().join("dev")).expect("made");
        let first = folder.lock().expect("nobody else");
        assert!(matches!(folder.lock(), Err(DevError::Busy(_))));
        drop(first);
        assert!(folder.lock().is_ok());
    }

    #[test]
    fn only_the_folder_that_was_typed_is_removed() {
        let scratch = tempfile::tempdir().expect("space");
        let folder = Folder::make(&scratch.path().join("dev")).expect("made");
        assert!(folder.is_meant_by(&scratch.path().join("./dev/../dev")).is_ok());
        for typed in [scratch.path().to_owned(), scratch.path().join("other"), PathBuf::new()] {
            assert!(matches!(folder.is_meant_by(&typed), Err(DevError::OtherFolder { .. })), "{typed:?}");
        }
    }

    #[test]
    fn a_plan_reads_back_and_one_of_a_newer_version_is_refused() {
        let scratch = tempfile::tempdir().expect("space");
        let folder = Folder::make(&scratch.path().join("dev")).expect("made");
        assert_eq!(folder.plan().expect("readable"), None);
        let plan = Plan::new(4, 4 << 30, true, Some("hdd".into()));
        folder.save(&plan).expect("space");
        assert_eq!(folder.plan().expect("readable"), Some(plan));
        fs::write(folder.path().join(PLAN), r#"{"format": 2, "shape": "round"}"#).expect("ours");
        assert!(matches!(folder.plan(), Err(DevError::Newer { found: 2, .. })));
        fs::write(folder.path().join(PLAN), "{").expect("ours");
        assert!(matches!(folder.plan(), Err(DevError::Damaged { .. })));
    }

    #[test]
    fn a_folder_that_can_not_be_used_is_left_there_unless_it_was_made_for_that() {
        let scratch = tempfile::tempdir().expect("space");
        let long = |letter: &str| scratch.path().join(letter.repeat(120));
        let (there, new) = (long("a"), long("b"));
        fs::create_dir(&there).expect("space");
        for folder in [&there, &new] {
            assert!(matches!(Folder::make(folder), Err(DevError::LongPath(_))));
        }
        assert!(there.is_dir() && !new.exists());
    }
}
