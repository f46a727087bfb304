use super::propose::MAX_COMMAND;
use super::*;
use crate::record::{DEFAULT_POOL, DriveState};
use crate::scratch::Scratch;
use std::time::Instant;
use tepal_model::DriveId;

pub const CLUSTER: ClusterId = ClusterId(0xabcd);
const SERVER: ServerId = ServerId(1);
const ADDRESS: &str = "127.0.0.1:7000";

pub fn on_runtime<R>(body: impl Future<Output = R>) -> R {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(body)
}

pub async fn created(folder: &Path) -> Metadata {
    Metadata::create(folder, CLUSTER, "test", SERVER, ADDRESS, 1_000).await.unwrap()
}

pub fn add_drive(id: u64) -> Command {
    let path = format!("/d{id}");
    Command::AddDrive {
        id: DriveId(id),
        server: SERVER,
        pool: DEFAULT_POOL.to_owned(),
        path,
        capacity: 1 << 30,
        spare: false,
    }
}

pub fn create_volume(name: &str) -> Command {
    let (name, pool) = (name.to_owned(), DEFAULT_POOL.to_owned());
    Command::CreateVolume { name, size: 1 << 30, layout: Some("stripe".to_owned()), pool }
}

#[test]
fn what_was_proposed_is_there_after_a_restart() {
    let scratch = Scratch::new();
    on_runtime(async {
        let metadata = created(scratch.path()).await;
        metadata.propose(add_drive(1)).await.unwrap();
        metadata.propose(create_volume("v0")).await.unwrap();
        let before = metadata.state();
        assert_eq!(before.cluster.id, CLUSTER);
        assert!(before.volume_named("v0").is_some());
        metadata.shutdown().await;
        let metadata = Metadata::open(scratch.path()).await.unwrap();
        assert_eq!(metadata.state(), before);
        metadata.propose(create_volume("v1")).await.unwrap();
        metadata.shutdown().await;
    });
}

#[test]
fn a_refusal_comes_back_as_such_and_changes_nothing() {
    let scratch = Scratch::new();
    on_runtime(async {
        let metadata = created(scratch.path()).await;
        let before = metadata.state();
        let refused = metadata.propose(create_volume("v0")).await;
        assert!(matches!(refused, Err(ProposeError::Refused(Refusal::NoDrives(_)))), "{refused:?}");
        let text = "x".repeat(MAX_COMMAND);
        let long = Command::RecordEvent { kind: "k".to_owned(), subject: "s".to_owned(), text };
        assert!(matches!(metadata.propose(long).await, Err(ProposeError::Refused(Refusal::TooLong { .. }))));
        assert_eq!(metadata.state(), before);
        metadata.shutdown().await;
    });
}

#[test]
fn a_folder_is_created_once_and_opened_by_one() {
    let scratch = Scratch::new();
    let folder = scratch.path();
    on_runtime(async {
        assert!(matches!(Metadata::open(folder).await, Err(OpenError::NotThere(_))));
        let bad = Metadata::create(folder, CLUSTER, "no spaces", SERVER, ADDRESS, 0).await;
        assert!(matches!(bad, Err(OpenError::Refused(Refusal::Name { .. }))));
        let metadata = created(folder).await;
        assert!(matches!(Metadata::open(folder).await, Err(OpenError::Locked(_))));
        let again = Metadata::create(folder, CLUSTER, "test", SERVER, ADDRESS, 0).await;
        assert!(matches!(again, Err(OpenError::Locked(_))));
        let clone = metadata.clone();
        metadata.shutdown().await;
        assert!(matches!(clone.propose(add_drive(1)).await, Err(ProposeError::Stopped)));
        assert!(matches!(clone.query("SELECT 1", QueryLimits::default()).await, Err(QueryError::Stopped)));
        let again = Metadata::create(folder, CLUSTER, "test", SERVER, ADDRESS, 0).await;
        assert!(matches!(again, Err(OpenError::AlreadyThere(_))));
        Metadata::open(folder).await.unwrap().shutdown().await;
    });
}

#[test]
fn watchers_see_a_change_as_soon_as_it_is_acknowledged() {
    let scratch = Scratch::new();
    on_runtime(async {
        let metadata = created(scratch.path()).await;
        let mut watch = metadata.watch();
        watch.mark_unchanged();
        let view = metadata.state().view();
        metadata.propose(add_drive(1)).await.unwrap();
        assert!(watch.has_changed().unwrap());
        assert_eq!(watch.borrow().view(), view + 1);
        assert_eq!(watch.borrow().drives[&DriveId(1)].state, DriveState::Up);
        metadata.shutdown().await;
    });
}

#[test]
fn many_proposals_at_once_are_all_carried_out() {
    let scratch = Scratch::new();
    on_runtime(async {
        let metadata = created(scratch.path()).await;
        metadata.propose(add_drive(1)).await.unwrap();
        let names: Vec<String> = (0..200).map(|n| format!("v{n}")).collect();
        let all = names.iter().map(|name| metadata.propose(create_volume(name)));
        for answer in futures_util::future::join_all(all).await {
            answer.unwrap();
        }
        assert_eq!(metadata.state().volumes.len(), 200);
        metadata.shutdown().await;
    });
}

#[test]
fn a_creation_that_was_interrupted_is_finished_or_begun_again() {
    let scratch = Scratch::new();
    let folder = scratch.path();
    let identity = Identity {
        cluster: CLUSTER,
        name: "test".to_owned(),
        server: SERVER,
        address: ADDRESS.to_owned(),
        created_unix_ms: 1_000,
        incarnation: 0,
        folder: 0,
        history: 0,
        joined: None,
    };
    on_runtime(async {
        // It stopped between the two databases.
        crate::state_machine::create(folder).unwrap();
        assert!(matches!(Metadata::open(folder).await, Err(OpenError::NotThere(_))));
        // It stopped before the first entry.
        folder::create(folder, &identity).unwrap();
        let metadata = Metadata::open(folder).await.unwrap();
        assert_eq!((metadata.state().cluster.id, metadata.state().cluster.created_unix_ms), (CLUSTER, 1_000));
        metadata.shutdown().await;
    });
}

#[test]
fn anyone_may_read_the_database_meanwhile_without_being_in_the_way() {
    let scratch = Scratch::new();
    on_runtime(async {
        let metadata = created(scratch.path()).await;
        metadata.propose(add_drive(1)).await.unwrap();
        let reader = rusqlite::Connection::open(scratch.path().join("cluster.db")).unwrap();
        let count = || reader.query_row("SELECT count(*) FROM volumes", [], |row| row.get::<_, i64>(0)).unwrap();
        reader.execute_batch("BEGIN").unwrap();
        assert_eq!(count(), 0);
        for n in 0..50 {
            metadata.propose(create_volume(&format!("v{n}"))).await.unwrap();
        }
        assert_eq!(count(), 0, "within one transaction a reader sees one state");
        reader.execute_batch("COMMIT").unwrap();
        assert_eq!(count(), 50);
        metadata.shutdown().await;
    });
}

/// Story: a disk refuses a write. Nobody is told that a change is made, and the server learns that it should stop.
#[test]
fn a_database_that_can_t_be_written_fails_the_server_and_loses_nothing_acknowledged() {
    let scratch = Scratch::new();
    on_runtime(async {
        let metadata = created(scratch.path()).await;
        metadata.propose(add_drive(1)).await.unwrap();
        let acknowledged = metadata.state();
        // Another writer, who holds the lock for longer than anybody waits, is as good as a disk that refuses.
        let other = rusqlite::Connection::open(scratch.path().join("raft.db")).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let refused = metadata.propose(create_volume("v0")).await;
        assert!(matches!(refused, Err(ProposeError::Storage(_) | ProposeError::Stopped)), "{refused:?}");
        let why = metadata.failed().await;
        assert!(matches!(&why, ProposeError::Storage(why) if why.to_string().contains("locked")), "{why:?}");
        assert_eq!(metadata.state(), acknowledged);
        drop(other);
        metadata.shutdown().await;
        let metadata = Metadata::open(scratch.path()).await.unwrap();
        assert_eq!(metadata.state(), acknowledged);
        metadata.shutdown().await;
    });
}

#[test]
fn only_the_owner_may_read_the_databases() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    on_runtime(async {
        let metadata = created(scratch.path()).await;
        metadata.member.raft.trigger().snapshot().await.unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while !scratch.path().join("snapshot.db").exists() {
            assert!(Instant::now() < until, "no snapshot was made");
            tokio::task::yield_now().await;
        }
        let mut files = 0;
        for entry in std::fs::read_dir(scratch.path()).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.path());
            files += 1;
        }
        assert!(files >= 4, "{files}");
        metadata.shutdown().await;
    });
}
