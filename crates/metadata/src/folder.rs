//! A server's data folder: who may use it, what must be in it, and whether its two databases belong together.
//!
//! ```text
//! LOCK         held by the process that uses the folder
//! raft.db      the Raft log        (its name appears last, when the folder is made)
//! cluster.db   the state machine
//! snapshot.db  the latest snapshot, if there is one
//! JOINING      the number under which the folder asked to join a cluster, if it did
//! ```
//!
//! Whatever was acknowledged is in both databases: in the log, flushed, and applied, flushed. So what rot or a
//! restored backup took from one alone shows here, and nothing is ever begun anew in silence.

use crate::consensus::{self, LeaderId, LogId, StoredMembership};
use crate::database::{self, StoreError};
use crate::format::{EntryId, Members, MembershipForm};
use crate::log_store::{self, Identity, LogStore, LogSummary, LogTable};
use crate::rebuild::is_rebuilt;
use crate::state::State;
use crate::state_machine::{self, Content, Machine, StateMachine};
use openraft::vote::RaftLeaderId;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LOCK: &str = "LOCK";
/// The number under which an empty folder asked to join.
const JOINING: &str = "JOINING";

#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("{} is in use", .0.display())]
    Locked(PathBuf),
    #[error("{} holds no cluster's state", .0.display())]
    NotThere(PathBuf),
    #[error("{} holds a cluster's state already", .0.display())]
    AlreadyThere(PathBuf),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The databases of a folder that is now ours.
pub struct Opened {
    pub identity: Identity,
    /// Grows with every opening of the folder.
    pub boot: u64,
    pub log: LogStore,
    pub machine: StateMachine,
    /// Whether the log holds entries that aren't applied.
    pub behind: bool,
    /// How many members the latest membership names that the folder knows of, committed or not.
    pub members: usize,
}

/// Makes the databases of a new member. An earlier attempt that was interrupted is begun again.
pub fn create(folder: &Path, identity: &Identity) -> Result<(), FolderError> {
    let _lock = lock(folder)?;
    clear_unused(folder)?;
    state_machine::create(folder)?;
    log_store::create(folder, identity)?;
    Ok(())
}

/// Makes those of the only member of a cluster that has come to this state.
pub fn create_with(folder: &Path, identity: &Identity, state: &State) -> Result<(), FolderError> {
    let _lock = lock(folder)?;
    if exists(folder, log_store::FILE)? {
        return Err(FolderError::AlreadyThere(folder.to_owned()));
    }
    // What an attempt has left that was interrupted: without a log, it's of no use.
    if exists(folder, state_machine::FILE)? && !state_machine::read(folder).is_ok_and(|found| is_rebuilt(&found.state))
    {
        check_unused(folder)?;
    }
    database::remove_database(&folder.join(state_machine::FILE))?;
    let node = consensus::node_id(identity.server, identity.incarnation);
    let first = LogId { leader_id: LeaderId::new(1, node), index: 1 };
    let members =
        Members { voters: vec![BTreeSet::from([node])], addresses: BTreeMap::from([(node, identity.address.clone())]) };
    let members = MembershipForm { since: Some(EntryId::from(&first)), members };
    let members = StoredMembership::try_from(members).expect("it has one member, which votes");
    state_machine::create_with(folder, state, first, members)?;
    log_store::create_after(folder, identity, &first)?;
    Ok(())
}

/// Removes what an attempt has left that was interrupted.
fn clear_unused(folder: &Path) -> Result<(), FolderError> {
    if exists(folder, log_store::FILE)? {
        return Err(FolderError::AlreadyThere(folder.to_owned()));
    }
    check_unused(folder)?;
    Ok(database::remove_database(&folder.join(state_machine::FILE))?)
}

/// The random number of a folder that is about to join: the same if it's asked for again after an interruption.
pub fn reserve(folder: &Path) -> Result<u64, FolderError> {
    let _lock = lock(folder)?;
    if exists(folder, log_store::FILE)? {
        return Err(FolderError::AlreadyThere(folder.to_owned()));
    }
    let file = folder.join(JOINING);
    if let Some(number) = std::fs::read_to_string(&file).ok().and_then(|text| u64::from_str_radix(text.trim(), 16).ok())
    {
        return Ok(number);
    }
    let number = RandomState::new().build_hasher().finish() >> 1;
    let unfinished = database::beside(&file, ".new");
    database::remove_database(&unfinished)?;
    let mut opened = database::make_private(&unfinished)?;
    writeln!(opened, "{number:x}").map_err(StoreError::file(&unfinished))?;
    database::publish(&unfinished, &file)?;
    Ok(number)
}

/// A state machine without a log is what an interrupted creation leaves, if nothing was ever applied to it.
fn check_unused(folder: &Path) -> Result<(), FolderError> {
    if !exists(folder, state_machine::FILE)? {
        return Ok(());
    }
    let content = state_machine::read(folder)?;
    if content.applied.is_some() {
        let what = format!("it is missing, but {} has entries", state_machine::FILE);
        return Err(StoreError::damaged(&folder.join(log_store::FILE), what).into());
    }
    Ok(())
}

pub fn open(folder: &Path) -> Result<Opened, FolderError> {
    if !exists(folder, log_store::FILE)? {
        check_unused(folder)?;
        return Err(FolderError::NotThere(folder.to_owned()));
    }
    let lock = Arc::new(lock(folder)?);
    if !exists(folder, state_machine::FILE)? {
        return Err(StoreError::damaged(&folder.join(state_machine::FILE), "it is missing").into());
    }
    let mut table = LogTable::open(folder)?;
    let (identity, summary) = (table.identity()?, table.check()?);
    let machine = Machine::open(folder)?;
    check_together(folder, &identity, &summary, machine.content())?;
    let boot = table.begin_boot()?;
    let behind = summary.last > machine.content().applied;
    let members = summary.members.unwrap_or(machine.content().membership.nodes().count());
    let log = LogStore::start(table, lock.clone()).map_err(StoreError::file(folder))?;
    let machine = StateMachine::start(machine, lock).map_err(StoreError::file(folder))?;
    Ok(Opened { identity, boot, log, machine, behind, members })
}

/// Neither database may lack what the other shows to have been there.
fn check_together(folder: &Path, identity: &Identity, log: &LogSummary, machine: &Content) -> Result<(), StoreError> {
    let (log_file, machine_file) = (folder.join(log_store::FILE), folder.join(state_machine::FILE));
    let applied = machine.applied;
    if let Some(purged) = log.purged
        && applied.is_none_or(|applied| applied.index < purged.index)
    {
        let what = format!("it lacks entries that were applied: the log begins after entry {}", purged.index);
        return Err(StoreError::damaged(&machine_file, what));
    }
    if let Some(applied) = applied
        && log.last.is_none_or(|last| last.index < applied.index)
        && machine.installed.is_none_or(|installed| installed.index < applied.index)
    {
        let what = format!("its last entries are missing: entry {} was applied", applied.index);
        return Err(StoreError::damaged(&log_file, what));
    }
    if let Some(applied) = applied
        && let Some(leader) = log.leaders.get(&applied.index)
        && *leader != applied.leader_id
    {
        let what = format!("its entry {} is not the one that was applied", applied.index);
        return Err(StoreError::damaged(&log_file, what));
    }
    let cluster = &machine.state.cluster;
    if machine.state.is_set_up() && machine.state.history() != identity.history {
        let (found, log) = (machine.state.history(), identity.history);
        let what = format!("it is of rebuild {found:x} of the cluster, and the log of {log:x}");
        return Err(StoreError::damaged(&machine_file, what));
    }
    if machine.state.is_set_up() && cluster.id != identity.cluster {
        let what = format!("it is of cluster {}, and the log of {}", cluster.id, identity.cluster);
        return Err(StoreError::damaged(&machine_file, what));
    }
    Ok(())
}

fn exists(folder: &Path, name: &str) -> Result<bool, StoreError> {
    let file = folder.join(name);
    file.try_exists().map_err(StoreError::file(&file))
}

/// How long a process that was killed may take to let go of what it had: the kernel ends its I/O first.
const LINGER: Duration = Duration::from_secs(2);

fn lock(folder: &Path) -> Result<File, FolderError> {
    let path = folder.join(LOCK);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(StoreError::file(&path))?;
    let asked = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if asked.elapsed() < LINGER => std::thread::sleep(LINGER / 100),
            Err(TryLockError::WouldBlock) => return Err(FolderError::Locked(folder.to_owned())),
            Err(TryLockError::Error(error)) => return Err(StoreError::file(&path)(error).into()),
        }
    }
}
