//! Drives between the engine, which uses them, and the metadata, which says what they are good for.

use super::agent::Attempts;
use super::{DriveOperationError, Drives, Generations, Kept, NewDriveRequest, Parts};
use crate::access::Claims;
use crate::agreed::Followed;
use crate::authority::MetadataAuthority;
use crate::config::Config;
use crate::data_threads::DataThreads;
use crate::importing::Imports;
use crate::keeping::{Keeper, longest_state, order_of};
use crate::keys::Keyring;
use crate::volumes::Volumes;
use crate::world::ServerWorld;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tepal_drive::geometry::{MIN_DRIVE, default_state};
use tepal_drive::{Label, Loss, StateOrder};
use tepal_engine::{Engine, Volume};
use tepal_metadata::{Command, DEFAULT_POOL, DriveRecord, DriveState, Metadata, ProposeError, Refusal, State};
use tepal_model::{BLOCK, ClusterId, DriveId, IoError, ServerId};

/// How long is waited for what must not happen.
const A_WHILE: Duration = Duration::from_millis(300);
/// For what must, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);
const A_MOMENT: Duration = Duration::from_millis(5);

pub(super) struct Rig {
    parts: Parts,
    pub(super) drives: Drives,
    volumes: Arc<Volumes>,
    folder: TempDir,
}

impl Rig {
    pub(super) async fn new() -> Rig {
        let folder = tempfile::tempdir().expect("a folder");
        let metadata =
            Metadata::create(folder.path(), ClusterId(1), "test", ServerId(1), "unix:/s", 0).await.expect("a cluster");
        let authority = MetadataAuthority::new(metadata.clone(), Followed::default());
        let engine = Engine::new(ServerWorld, Arc::new(authority.clone()));
        let threads = Arc::new(DataThreads::start(1).expect("a thread"));
        let keeper = Keeper::start(metadata.clone(), engine.clone(), threads.clone(), |_| PATIENCE);
        let claims = Claims::new(&metadata);
        let keyring = Keyring::new(None, metadata.caller().cluster);
        let parts =
            Parts { metadata, engine, authority, threads, keeper, claims, keyring, imports: Imports::default() };
        let config = Config {
            data: folder.path().to_owned(),
            server: Some(ServerId(1)),
            join: Vec::new(),
            site: None,
            peers: None,
            create: None,
            drives: Vec::new(),
            pool: DEFAULT_POOL.to_owned(),
            listen: Vec::new(),
            api: ([127, 0, 0, 1], 0).into(),
            replace_after: Duration::from_secs(600),
            emulate: None,
            data_threads: 1,
            log_file: None,
            privacy: Default::default(),
            identity: None,
            keys: None,
        };
        let drives = Drives::new(&config, parts.clone(), Generations::open(folder.path()).expect("none yet"));
        drives.start().await.expect("there are none");
        let volumes = Volumes::new(parts.clone());
        volumes.open_all().await.expect("there are none");
        Rig { parts, drives, volumes, folder }
    }

    fn request(&self, name: &str) -> NewDriveRequest {
        let path = self.folder.path().join(name);
        NewDriveRequest { path, pool: DEFAULT_POOL.to_owned(), create: Some(MIN_DRIVE), force: false }
    }

    pub(super) async fn add(&self, name: &str) -> DriveId {
        self.drives.add(self.request(name)).await.expect("room for a file")
    }

    pub(super) async fn propose(&self, command: Command) {
        self.parts.metadata.propose(command).await.expect("nothing is against it");
    }

    pub(super) async fn create(&self, layout: &str) -> Option<Volume<ServerWorld>> {
        let (name, layout, pool) = ("v".to_owned(), Some(layout.to_owned()), DEFAULT_POOL.to_owned());
        self.propose(Command::CreateVolume { name, size: 1 << 20, layout, pool }).await;
        self.volumes.settle().await;
        self.volumes.served(self.state().volume_named("v").expect("just made").id)
    }

    /// A write that a data thread begins before anything that it's told later.
    fn write(&self, volume: &Volume<ServerWorld>) -> impl Future<Output = Result<(), IoError>> + use<> {
        let volume = volume.clone();
        let data = Bytes::from(vec![7; BLOCK as usize]);
        let written = self.parts.threads.run_on(0, move || async move { volume.write(0, data, false).await });
        async move { written.await.expect("the thread runs") }
    }

    async fn pull(&self, drive: DriveId) {
        let engine = self.parts.engine.clone();
        let loss = Loss::Gone { drive, reason: "pulled".to_owned() };
        let lost = self.parts.threads.run_on(0, move || async move { engine.lose_drive(drive, loss).await });
        lost.await.expect("the thread runs");
    }

    pub(super) fn state(&self) -> Arc<State> {
        self.parts.metadata.state()
    }

    fn record(&self, drive: DriveId) -> Arc<DriveRecord> {
        self.state().drives[&drive].clone()
    }

    pub(super) fn is_used(&self, drive: DriveId) -> bool {
        self.parts.engine.drive(drive).is_some()
    }

    /// Waits until the records are like this.
    async fn until(&self, is_so: impl Fn(&State) -> bool) {
        self.parts.metadata.watch().wait_for(|state| is_so(state)).await.expect("the metadata runs");
    }

    pub(super) async fn end(self) {
        self.drives.close().await;
        self.parts.metadata.clone().shutdown().await;
    }
}

/// Story: whoever looked for missing drives waited for his turn while one of them was removed. The device that he found wiped then
/// was told as a trouble until the server was started again.
#[tokio::test(flavor = "current_thread")]
async fn a_drive_that_is_removed_while_it_is_looked_for_is_no_trouble() {
    let rig = Rig::new().await;
    let (removed, _other) = (rig.add("a").await, rig.add("b").await);
    let open = rig.drives.table().open.remove(&removed).expect("it was added");
    rig.pull(removed).await;
    rig.until(|state| state.drives[&removed].state == DriveState::Missing).await;
    let turn = rig.drives.turn.lock().await;
    let remove = async {
        rig.propose(Command::RemoveDrive { id: removed, force: false }).await;
        rig.drives.wipe([Some(open.device), open.log], &open.path).await;
        drop(turn);
    };
    let mut attempts = Attempts::default();
    tokio::join!(rig.drives.look_after(&mut attempts), remove);
    let refused = rig.drives.refused();
    assert!(refused.is_empty(), "{refused:?}");
    rig.end().await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_drive_whose_removal_is_agreed_acknowledges_nothing_even_if_who_asked_for_it_has_gone_away() {
    let rig = Rig::new().await;
    let (removed, other) = (rig.add("a").await, rig.add("b").await);
    let volume = rig.create("mirror:2").await.expect("both are here");
    rig.write(&volume).await.expect("both are here");
    let nothing = Kept::new();
    tokio::select! {
        biased;
        () = rig.until(|state| state.drives[&removed].state == DriveState::Failed) => {}
        _ = rig.drives.remove(removed, false, &nothing, |command| command) => panic!("it's on record before this is known to be done"),
    }
    rig.pull(other).await;
    // After a restart the removed one is refused, and the other one believed, which doesn't have this.
    let written = tokio::time::timeout(A_WHILE, rig.write(&volume)).await;
    assert!(written.is_err(), "acknowledged by the removed drive alone: {written:?}");
    let (removed, other) = (rig.record(removed), rig.record(other));
    assert!(removed.missed_since < other.missed_since, "{removed:?}, {other:?}");
    rig.end().await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_removal_that_is_agreed_after_its_time_is_carried_out() {
    let rig = Rig::new().await;
    let (failed, gone) = (rig.add("a").await, rig.add("b").await);
    let volume = rig.create("stripe").await.expect("both are here");
    let _both = rig.write(&volume).await;
    rig.propose(Command::RemoveDrive { id: failed, force: true }).await;
    rig.propose(Command::RemoveVolume { name: "v".to_owned(), snapshots: false }).await;
    rig.volumes.settle().await;
    rig.until(|state| state.volumes.is_empty()).await;
    rig.propose(Command::RemoveDrive { id: gone, force: false }).await;
    rig.drives.look_after(&mut Attempts::default()).await;
    assert_eq!([failed, gone].map(|drive| rig.is_used(drive)), [false, false]);
    rig.end().await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_new_drive_is_in_use_before_a_volume_can_be_put_on_it() {
    let rig = Rig::new().await;
    let added = async {
        rig.until(|state| !state.drives.is_empty()).await;
        let used: Vec<bool> = rig.state().drives.keys().map(|&drive| rig.is_used(drive)).collect();
        assert_eq!(
            used,
            [true],
            "a volume on it would go on without it, and after a restart it's believed to have all"
        );
    };
    futures_util::future::join(added, rig.add("a")).await;
    rig.end().await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_drive_that_may_yet_be_added_keeps_its_label() {
    let rig = Rig::new().await;
    rig.parts.metadata.clone().shutdown().await;
    let request = rig.request("a");
    let path = request.path.clone();
    rig.drives.add(request).await.expect_err("nothing can be agreed");
    let looked = rig.drives.look_at(&path).await.expect("it's there");
    assert!(matches!(looked.seen.label, Ok(Label { .. })), "{:?}", looked.seen);
}

#[tokio::test(flavor = "current_thread")]
async fn a_drive_on_record_that_never_came_into_use_is_agreed_to_be_missing_before_a_volume_goes_on_without_it() {
    let rig = Rig::new().await;
    rig.add("a").await;
    let (id, path) = (DriveId(9), rig.folder.path().join("nothing").display().to_string());
    let pool = DEFAULT_POOL.to_owned();
    rig.propose(Command::AddDrive { id, server: ServerId(1), pool, path, capacity: 1 << 20, spare: false }).await;
    assert!(rig.create("mirror:2").await.is_none(), "nobody has agreed to go on without the one that isn't here");
    rig.drives.look_after(&mut Attempts::default()).await;
    assert_eq!(rig.record(id).state, DriveState::Missing);
    rig.volumes.settle().await;
    let volume = rig.volumes.served(rig.state().volume_named("v").expect("made").id).expect("it's settled who is here");
    rig.write(&volume).await.expect("one copy is enough");
    rig.end().await;
}

#[tokio::test(flavor = "current_thread")]
async fn no_write_that_comes_after_a_volumes_removal_is_done() {
    let rig = Rig::new().await;
    rig.add("a").await;
    let volume = rig.create("stripe").await.expect("it's here");
    rig.write(&volume).await.expect("it's here");
    rig.propose(Command::RemoveVolume { name: "v".to_owned(), snapshots: false }).await;
    rig.volumes.settle().await;
    assert_eq!(rig.write(&volume).await, Err(IoError::Fenced));
    rig.until(|state| state.volumes.is_empty()).await;
    rig.end().await;
}

/// Story: a server stood still while a volume was removed. All it was told then is that there is no such volume, and it served
/// the volume for as long as it ran.
#[tokio::test(flavor = "current_thread")]
async fn a_volume_that_was_removed_unnoticed_is_served_no_more_and_its_space_is_free() {
    let rig = Rig::new().await;
    let drive = rig.add("a").await;
    let volume = rig.create("stripe").await.expect("it's here");
    rig.write(&volume).await.expect("it's here");
    let open = rig.parts.engine.drive(drive).expect("in use");
    assert_eq!(open.allocated().len(), 1);
    rig.propose(Command::RemoveVolume { name: "v".to_owned(), snapshots: false }).await;
    rig.propose(Command::FinishRemoveVolume { id: volume.id() }).await;
    rig.volumes.settle().await;
    assert_eq!(rig.write(&volume).await, Err(IoError::Fenced));
    let is_over = async {
        while rig.volumes.served(volume.id()).is_some() || !open.allocated().is_empty() {
            tokio::time::sleep(A_MOMENT).await;
        }
    };
    tokio::time::timeout(PATIENCE, is_over).await.expect("it's closed, and its space is free");
    rig.end().await;
}

impl Rig {
    /// The state that a drive keeps.
    async fn kept_by(&self, drive: DriveId) -> Option<StateOrder> {
        let open = self.parts.engine.drive(drive).expect("in use");
        let local = open.clone();
        self.parts
            .threads
            .run_on(0, move || async move { local.kept_order().await.expect("it's there") })
            .await
            .unwrap()
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_volume_is_served_when_all_drives_keep_the_state_that_has_it_also_one_that_is_back() {
    let rig = Rig::new().await;
    let drives = [rig.add("a").await, rig.add("b").await];
    rig.create("mirror:2").await.expect("both are here");
    let made = order_of(&rig.state());
    for drive in drives {
        assert!(rig.kept_by(drive).await >= Some(made), "the volume could be written to, and nobody would know of it");
    }
    rig.drives.offline(drives[0]).await.expect("it's here");
    rig.propose(Command::RenameVolume { name: "v".to_owned(), new_name: "w".to_owned() }).await;
    rig.drives.online(drives[0]).await.expect("it's here");
    // That it's back may be agreed a moment later, and be in what the other drive keeps already.
    let is_back = order_of(&rig.state());
    let both_keep_it = async {
        while rig.kept_by(drives[0]).await < Some(is_back) || rig.kept_by(drives[1]).await < Some(is_back) {
            tokio::time::sleep(A_MOMENT).await;
        }
    };
    tokio::time::timeout(PATIENCE, both_keep_it).await.expect("both keep the state again");
    rig.end().await;
}

#[tokio::test(flavor = "current_thread")]
async fn the_state_does_not_become_longer_than_the_smallest_drive_has_room_for() {
    let rig = Rig::new().await;
    let drive = rig.add("a").await;
    rig.parts.keeper.kept(&rig.state()).await;
    let create = |number: u32| {
        let (layout, pool) = (Some("stripe".to_owned()), DEFAULT_POOL.to_owned());
        Command::CreateVolume { name: format!("v{number}"), size: 1 << 20, layout, pool }
    };
    let mut count = 0;
    let refused = loop {
        match rig.parts.metadata.propose(create(count)).await {
            Ok(_) if count < 2000 => count += 1,
            other => break other,
        }
    };
    assert!(matches!(refused, Err(ProposeError::Refused(Refusal::StateTooLong { .. }))), "{count}: {refused:?}");
    assert!(count > 50, "{count} volumes on the smallest drive");
    let after = order_of(&rig.state());
    rig.parts.keeper.kept(&rig.state()).await;
    assert_eq!(rig.kept_by(drive).await, Some(after));
    rig.propose(Command::RemoveVolume { name: "v0".to_owned(), snapshots: false }).await;
    rig.end().await;
}

/// Story: a small drive was taken in when there was much already, and no volume could be made from then on.
#[tokio::test(flavor = "current_thread")]
async fn a_new_drive_that_has_no_room_for_the_state_is_refused_and_nothing_is_left_of_it() {
    let rig = Rig::new().await;
    let larger = NewDriveRequest { create: Some(64 << 20), ..rig.request("a") };
    rig.drives.add(larger).await.expect("there's nothing yet");
    for number in 0.. {
        let (layout, pool) = (Some("stripe".to_owned()), DEFAULT_POOL.to_owned());
        rig.propose(Command::CreateVolume { name: format!("v{number}"), size: 1 << 20, layout, pool }).await;
        if rig.state().to_copy().len() as u64 > longest_state(default_state(MIN_DRIVE)) {
            break;
        }
    }
    let request = rig.request("b");
    let path = request.path.clone();
    let refused = rig.drives.add(request).await;
    assert!(matches!(refused, Err(DriveOperationError::NoRoomForState { .. })), "{refused:?}");
    assert!(!path.exists() && rig.state().drives.len() == 1);
    rig.propose(Command::CreatePool { name: "p".to_owned(), layout: None }).await;
    rig.end().await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_volume_is_resized_when_all_drives_keep_that_and_what_drives_have_nothing_of_is_not_waited_for() {
    let rig = Rig::new().await;
    let drive = rig.add("a").await;
    rig.create("stripe").await.expect("it's here");
    let name = || "v".to_owned();
    let cleared = Some(rig.state()).and_then(|state| Some(state.as_cleared(state.volume_named("v")?)));
    rig.propose(Command::ResizeVolume { name: name(), size: 2 << 20, shrink: false, cleared }).await;
    let resized = rig.state();
    assert!(rig.volumes.changes_what_drives_hold(&resized));
    rig.volumes.settle().await;
    assert!(rig.kept_by(drive).await >= Some(order_of(&resized)));
    rig.propose(Command::RenameVolume { name: name(), new_name: "w".to_owned() }).await;
    assert!(!rig.volumes.changes_what_drives_hold(&rig.state()));
    rig.propose(Command::RemoveVolume { name: "w".to_owned(), snapshots: false }).await;
    assert!(rig.volumes.changes_what_drives_hold(&rig.state()));
    rig.volumes.settle().await;
    rig.end().await;
}
