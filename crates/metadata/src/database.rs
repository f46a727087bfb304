//! Making, opening and checking SQLite files, and the thread that owns one.
//!
//! Invariants:
//! 1. A file under its own name is whole: it's made under another name, synced, then renamed. So a file that is empty
//!    or short is damage, never a start that was interrupted.
//! 2. Nothing is believed that was not checked: kind, version, SQLite's own structure, and a checksum of every value.
//! 3. A commit that returned is on stable media (WAL, `synchronous=FULL`).

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;
use tokio::sync::oneshot;

/// What a file is, and the newest form of it that this build knows.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// SQLite's application id, by which `file` and we know it.
    pub application: i32,
    pub schema: &'static str,
    /// What brings a file of form 1 to form 2, one of form 2 to form 3, and so on up to `schema`.
    pub steps: &'static [Step],
}

/// Brings a file of one form to the next, in a transaction that it's given.
pub type Step = fn(&Connection, &Path) -> Result<(), StoreError>;

impl Kind {
    /// The form that `schema` is.
    pub fn version(&self) -> i64 {
        1 + self.steps.len() as i64
    }
}

/// What is wrong with a database file.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{} is damaged: {what}", .file.display())]
    Damaged { file: PathBuf, what: String },
    #[error("{} was written by a newer version: it has form {found}, this build knows up to {known}", .file.display())]
    Newer { file: PathBuf, found: i64, known: i64 },
    #[error("{}: {source}", .file.display())]
    Sqlite { file: PathBuf, source: rusqlite::Error },
    #[error("{}: {source}", .file.display())]
    File { file: PathBuf, source: std::io::Error },
    #[error("the database's thread has stopped")]
    Stopped,
}

impl StoreError {
    pub fn file(file: &Path) -> impl FnOnce(std::io::Error) -> StoreError + '_ {
        move |source| StoreError::File { file: file.to_owned(), source }
    }

    pub fn damaged(file: &Path, what: impl ToString) -> StoreError {
        StoreError::Damaged { file: file.to_owned(), what: what.to_string() }
    }

    /// SQLite's errors that mean damage are told apart from those that mean trouble with the file system.
    pub fn sqlite(file: &Path) -> impl FnOnce(rusqlite::Error) -> StoreError + '_ {
        move |source| match source.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::damaged(file, source),
            _ => match source {
                rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::InvalidColumnType(..)
                | rusqlite::Error::IntegralValueOutOfRange(..)
                | rusqlite::Error::Utf8Error(..)
                | rusqlite::Error::QueryReturnedNoRows => StoreError::damaged(file, source),
                _ => StoreError::Sqlite { file: file.to_owned(), source },
            },
        }
    }
}

impl From<StoreError> for std::io::Error {
    fn from(error: StoreError) -> Self {
        std::io::Error::other(error)
    }
}

/// Makes `file` with the schema of `kind` and what `fill` writes, or leaves nothing under that name.
pub fn create(
    file: &Path,
    kind: Kind,
    fill: impl FnOnce(&Connection) -> rusqlite::Result<()>,
) -> Result<(), StoreError> {
    let unfinished = beside(file, ".new");
    remove_database(&unfinished)?;
    make_private(&unfinished)?;
    let connection = connect(&unfinished)?;
    let made = connection
        .execute_batch(&format!(
            "PRAGMA application_id={}; PRAGMA user_version={}; PRAGMA journal_mode=DELETE; PRAGMA synchronous=FULL;
             BEGIN; {}",
            kind.application,
            kind.version(),
            kind.schema
        ))
        .and_then(|()| fill(&connection))
        .and_then(|()| connection.execute_batch("COMMIT"));
    made.map_err(StoreError::sqlite(&unfinished))?;
    drop(connection);
    publish(&unfinished, file)
}

/// Gives a finished, closed file its name, durably.
pub fn publish(unfinished: &Path, file: &Path) -> Result<(), StoreError> {
    let opened = File::open(unfinished).map_err(StoreError::file(unfinished))?;
    opened.sync_all().map_err(StoreError::file(unfinished))?;
    std::fs::rename(unfinished, file).map_err(StoreError::file(file))?;
    let folder = file.parent().unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(StoreError::file(folder))
}

/// Makes an empty file that only its owner may read.
pub fn make_private(file: &Path) -> Result<File, StoreError> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(file).map_err(StoreError::file(file))
}

/// Opens and checks `file` for reading and writing.
pub fn open(file: &Path, kind: Kind) -> Result<Connection, StoreError> {
    let mut connection = connect(file)?;
    bring_up(&mut connection, file, kind)?;
    check(&connection, file, kind)?;
    let mode: String =
        connection.query_row("PRAGMA journal_mode=WAL", [], |row| row.get(0)).map_err(StoreError::sqlite(file))?;
    if mode != "wal" {
        return Err(StoreError::damaged(file, format!("it stays in journal mode {mode}")));
    }
    if connection.is_readonly("main").map_err(StoreError::sqlite(file))? {
        return Err(StoreError::damaged(file, "its header or its permissions forbid writing"));
    }
    connection
        .execute_batch(
            "PRAGMA synchronous=FULL; PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON;
             PRAGMA journal_size_limit=4194304; SELECT 1 FROM sqlite_schema LIMIT 1;",
        )
        .map_err(StoreError::sqlite(file))?;
    // The read just now opened the write-ahead log. If a flush of it failed before this start, the kernel may show what
    // isn't on the disk: all of it is written once more.
    let settle = connection.query_row("PRAGMA wal_checkpoint", [], |_| Ok(()));
    match settle.map_err(StoreError::sqlite(file)) {
        Err(error) if error.lacks_room() => {
            tracing::warn!(%error, "no room to settle what was written before this start")
        }
        outcome => outcome?,
    }
    Ok(connection)
}

/// Brings a file of an earlier form up to the one that this build writes; all of it, or nothing.
fn bring_up(connection: &mut Connection, file: &Path, kind: Kind) -> Result<(), StoreError> {
    let found = form(connection, file, kind)?;
    if found == kind.version() {
        return Ok(());
    }
    check_structure(connection, file)?;
    let trouble = StoreError::sqlite;
    connection.execute_batch("PRAGMA synchronous=FULL").map_err(trouble(file))?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(trouble(file))?;
    for step in kind.steps.iter().skip(usize::try_from(found - 1).unwrap_or(0)) {
        step(&transaction, file)?;
    }
    transaction.pragma_update(None, "user_version", kind.version()).map_err(trouble(file))?;
    transaction.commit().map_err(trouble(file))?;
    tracing::info!(file = %file.display(), from = found, to = kind.version(), "brought to the form of this version");
    Ok(())
}

/// Which form of `kind` the file has: one that this build knows.
fn form(connection: &Connection, file: &Path, kind: Kind) -> Result<i64, StoreError> {
    let length = std::fs::metadata(file).map_err(StoreError::file(file))?.len();
    if length == 0 {
        return Err(StoreError::damaged(file, "it is empty"));
    }
    let pragma = |name: &str| connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0));
    let application = pragma("application_id").map_err(StoreError::sqlite(file))?;
    if application != i64::from(kind.application) {
        return Err(StoreError::damaged(file, "it is a database of another kind"));
    }
    let found = pragma("user_version").map_err(StoreError::sqlite(file))?;
    if found > kind.version() {
        return Err(StoreError::Newer { file: file.to_owned(), found, known: kind.version() });
    }
    if found < 1 {
        return Err(StoreError::damaged(file, format!("its form {found} never was")));
    }
    Ok(found)
}

fn check_structure(connection: &Connection, file: &Path) -> Result<(), StoreError> {
    let verdict: String =
        connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(StoreError::sqlite(file))?;
    if verdict == "ok" { Ok(()) } else { Err(StoreError::damaged(file, verdict)) }
}

/// Checks kind, form and structure. Content is checked by those who know it.
pub fn check(connection: &Connection, file: &Path, kind: Kind) -> Result<(), StoreError> {
    let found = form(connection, file, kind)?;
    if found != kind.version() {
        return Err(StoreError::damaged(file, format!("it is of the earlier form {found}")));
    }
    check_structure(connection, file)?;
    let expected = Connection::open_in_memory().and_then(|memory| {
        memory.execute_batch(kind.schema)?;
        columns(&memory)
    });
    let expected = expected.map_err(StoreError::sqlite(file))?;
    let found = columns(connection).map_err(|error| StoreError::damaged(file, error))?;
    if let Some(missing) = expected.iter().find(|column| !found.contains(column)) {
        return Err(StoreError::damaged(file, format!("its schema has no {missing}")));
    }
    Ok(())
}

/// Each column of each table: SQLite itself doesn't notice if a bit of a name was flipped.
fn columns(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut query = connection.prepare(
        "SELECT t.name || '.' || c.name || ' ' || c.type || ' ' || c.\"notnull\" || ' ' || c.pk
         FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table'",
    )?;
    query.query_map([], |row| row.get(0))?.collect()
}

fn connect(file: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags).map_err(StoreError::sqlite(file))?;
    // Somebody reading with sqlite3 may hold a lock for a moment.
    connection.busy_timeout(Duration::from_secs(10)).map_err(StoreError::sqlite(file))?;
    Ok(connection)
}

/// Opens a finished file that nobody writes.
pub fn open_still(file: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(file, flags).map_err(StoreError::sqlite(file))
}

/// Removes a database that was never published, with what SQLite keeps beside it.
pub fn remove_database(file: &Path) -> Result<(), StoreError> {
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let path = beside(file, suffix);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::File { file: path, source: error });
            }
            _ => {}
        }
    }
    Ok(())
}

pub fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// A thread that owns `T` and does jobs on it, in the order they were sent. Its clones share the thread, which ends
/// with the last of them, or at [`Worker::stop`]; then `T` is dropped, on that thread.
pub struct Worker<J> {
    jobs: mpsc::Sender<Job<J>>,
}

enum Job<J> {
    Do(J),
    Stop(oneshot::Sender<()>),
}

impl<J> Clone for Worker<J> {
    fn clone(&self) -> Self {
        Worker { jobs: self.jobs.clone() }
    }
}

impl<J: Send + 'static> Worker<J> {
    /// `work` takes one or more jobs from the front of the queue; it's called while there are some.
    pub fn start<T: Send + 'static>(
        name: &str,
        mut owned: T,
        mut work: impl FnMut(&mut T, &mut VecDeque<J>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let mut waiting = VecDeque::new();
            let mut stopped = None;
            while stopped.is_none() {
                let Ok(first) = queue.recv() else { break };
                for job in std::iter::once(first).chain(queue.try_iter()) {
                    match job {
                        Job::Do(job) => waiting.push_back(job),
                        Job::Stop(done) => {
                            stopped = Some(done);
                            break;
                        }
                    }
                }
                while !waiting.is_empty() {
                    work(&mut owned, &mut waiting);
                }
            }
            drop(owned);
            if let Some(done) = stopped {
                let _ = done.send(());
            }
        })?;
        Ok(Worker { jobs })
    }

    pub fn send(&self, job: J) -> Result<(), StoreError> {
        self.jobs.send(Job::Do(job)).map_err(|_| StoreError::Stopped)
    }

    /// Does what was sent before, then closes what the thread owns. Later jobs are answered `Stopped`.
    pub async fn stop(&self) {
        let (done, stopped) = oneshot::channel();
        if self.jobs.send(Job::Stop(done)).is_ok() {
            let _ = stopped.await;
        }
    }
}

/// A job that runs a closure on what the thread owns.
pub type Task<T> = Box<dyn FnOnce(&mut T) + Send>;

/// A task that answers through a channel, and where the answer arrives.
pub fn task<T, R: Send + 'static>(body: impl FnOnce(&mut T) -> R + Send + 'static) -> (Task<T>, oneshot::Receiver<R>) {
    let (answer, answered) = oneshot::channel();
    let task: Task<T> = Box::new(move |owned| {
        let _ = answer.send(body(owned));
    });
    (task, answered)
}
