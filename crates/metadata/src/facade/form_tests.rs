//! Folders that earlier versions made. `form_1/` is what the first version left behind when it was killed: two drives, a
//! volume, and another one that had been removed; `form_2/` to `form_4/` the same by later ones, and in `form_5/` there are
//! another drive and volume, and a snapshot. In `form_6/` there are two drives, a volume, a clone of it, and another one; in
//! `form_6_away/` one of two drives was pulled. In `form_7/` a volume was rolled back, it has a clone, and another one is incomplete. In
//! `form_9/` a drive has a name, and a volume a snapshot and a clone. In `form_10/` a volume is a replica of another. In `form_11_rights/`
//! there are identities, and rights on volumes.

use super::tests::on_runtime;
use super::*;
use crate::query::Value;
use crate::schedule::{Covered, ScheduleCommand, Schedules, Work};
use crate::scratch::Scratch;
use crate::{Access, KeyHash, Right, Role};
use crate::{CopyStatus, ImportRecord, ReplicaSource, SnapshotId, log_store, state_machine};
use rusqlite::Connection;
use tepal_model::schedule::{Rhythm, TimeOfDay};
use tepal_model::{DriveId, MapId, VolumeId};

fn folder_of_form_1() -> Scratch {
    folder(include_str!("form_1/raft.sql"), include_str!("form_1/cluster.sql"))
}

fn folder_of_form_2() -> Scratch {
    folder(include_str!("form_2/raft.sql"), include_str!("form_2/cluster.sql"))
}

fn folder_of_form_3() -> Scratch {
    folder(include_str!("form_3/raft.sql"), include_str!("form_3/cluster.sql"))
}

fn folder_of_form_4() -> Scratch {
    folder(include_str!("form_4/raft.sql"), include_str!("form_4/cluster.sql"))
}

fn folder_of_form_5() -> Scratch {
    folder(include_str!("form_5/raft.sql"), include_str!("form_5/cluster.sql"))
}

fn folder_of_form_6() -> Scratch {
    folder(include_str!("form_6/raft.sql"), include_str!("form_6/cluster.sql"))
}

fn folder_of_form_6_with_a_drive_away() -> Scratch {
    folder(include_str!("form_6_away/raft.sql"), include_str!("form_6_away/cluster.sql"))
}

fn folder_of_form_7() -> Scratch {
    folder(include_str!("form_7/raft.sql"), include_str!("form_7/cluster.sql"))
}

fn folder_of_form_9() -> Scratch {
    folder(include_str!("form_9/raft.sql"), include_str!("form_9/cluster.sql"))
}

fn folder_of_form_10() -> Scratch {
    folder(include_str!("form_10/raft.sql"), include_str!("form_10/cluster.sql"))
}

fn folder_of_form_11_with_rights() -> Scratch {
    folder(include_str!("form_11_rights/raft.sql"), include_str!("form_11_rights/cluster.sql"))
}

fn folder(log: &str, state: &str) -> Scratch {
    let scratch = Scratch::new();
    for (file, content) in [(log_store::FILE, log), (state_machine::FILE, state)] {
        Connection::open(scratch.path().join(file)).and_then(|made| made.execute_batch(content)).unwrap();
    }
    scratch
}

fn form(folder: &Path, file: &str) -> i64 {
    let connection = Connection::open(folder.join(file)).unwrap();
    connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
}

/// The state after these.
fn opened(scratch: &Scratch, commands: Vec<Command>) -> Arc<State> {
    on_runtime(async {
        let metadata = Metadata::open(scratch.path()).await.unwrap();
        for command in commands {
            metadata.propose(command).await.unwrap();
        }
        let state = metadata.state();
        metadata.shutdown().await;
        state
    })
}

fn open_whole(folder: &Path) {
    on_runtime(async {
        let metadata = Metadata::open(folder).await.unwrap();
        let state = metadata.state();
        let server = &state.servers[&ServerId(1)];
        assert_eq!((server.state, server.state_view, server.incarnation), (ServerState::Up, 1, 0));
        assert_eq!((state.view(), state.drives.len(), metadata.lease()), (3, 2, Lease::Alone));
        assert_eq!(state.volume_named("v0").unwrap().size, 8 << 20);
        assert!(state.volume_named("gone").is_none());
        let volume = state.volume_named("v0").unwrap();
        assert_eq!((volume.epoch, volume.lineage.to_string()), (1, "0-1".to_owned()));
        let map = state.map_of(volume).unwrap();
        assert_eq!((map.newest_epoch, volume.epoch_since), (1, map.made_in), "as if it were made now");
        assert_eq!((map.columns.len(), map.width, map.chunk), (2, 2, 16));
        for (column, next) in [(0, 1), (1, 0)] {
            let holders = map.columns[column].holders.iter().map(|holder| (holder.drive, holder.since));
            let drives = map.drives();
            assert_eq!(holders.collect::<Vec<_>>(), [(drives[column], map.made_in), (drives[next], map.made_in)]);
        }
        metadata.shutdown().await;
    });
}

#[test]
fn a_folder_of_form_1_opens_with_all_that_is_in_it_and_is_of_the_newest_form_then() {
    let scratch = folder_of_form_1();
    for _ in 0..2 {
        open_whole(scratch.path());
    }
    assert_eq!((form(scratch.path(), log_store::FILE), form(scratch.path(), state_machine::FILE)), (2, 12));
    on_runtime(async {
        let metadata = Metadata::open(scratch.path()).await.unwrap();
        let join = Command::JoinServer { folder: 7, address: "h:2".to_owned(), claim: None };
        let joined = metadata.propose(join).await.unwrap();
        assert_eq!(joined, Reply::ServerJoined { id: ServerId(2), incarnation: 0 });
        metadata.shutdown().await;
    });
}

#[test]
fn a_folder_of_form_2_opens_with_all_that_is_in_it_and_says_from_then_on_which_image_of_a_drive_is_the_newest() {
    let scratch = folder_of_form_2();
    open_whole(scratch.path());
    assert_eq!((form(scratch.path(), log_store::FILE), form(scratch.path(), state_machine::FILE)), (2, 12));
    let found = |generation| {
        on_runtime(async {
            let metadata = Metadata::open(scratch.path()).await.unwrap();
            let drive = metadata.state().drives.values().next().unwrap().clone();
            let (server, path) = (drive.server, drive.path.clone());
            let found = metadata.propose(Command::DriveMoved { id: drive.id, server, path, generation }).await;
            let known = metadata.state().drives[&drive.id].generation;
            metadata.shutdown().await;
            (found.is_ok(), known)
        })
    };
    assert_eq!([found(7), found(7), found(6), found(8)], [(true, 7), (true, 7), (false, 7), (true, 8)]);
}

#[test]
fn a_folder_of_form_3_opens_with_all_that_is_in_it_and_can_be_told_another_lease() {
    let scratch = folder_of_form_3();
    open_whole(scratch.path());
    assert_eq!(form(scratch.path(), state_machine::FILE), 12);
    let by_default = crate::Timing::default().lease.length;
    let set = |ms: Option<u64>| {
        on_runtime(async {
            let metadata = Metadata::open(scratch.path()).await.unwrap();
            if let Some(ms) = ms {
                metadata.propose(Command::SetLease { ms }).await.unwrap();
            }
            let told = (metadata.lease_length(), metadata.state().cluster.longest_lease_ms);
            metadata.shutdown().await;
            told
        })
    };
    assert_eq!(set(None), (by_default, None));
    assert_eq!(set(Some(9_000)), (Duration::from_secs(9), Some(9_000)));
    // Somebody may still hold one of 9 s.
    assert_eq!(set(Some(400)), (Duration::from_millis(400), Some(9_000)));
    assert_eq!(set(None), (Duration::from_millis(400), Some(9_000)));
}

#[test]
fn a_folder_of_form_4_opens_with_all_that_is_in_it_and_its_volume_takes_snapshots() {
    let scratch = folder_of_form_4();
    for _ in 0..2 {
        open_whole(scratch.path());
    }
    assert_eq!(form(scratch.path(), state_machine::FILE), 12);
    let propose = |command: Option<Command>| {
        on_runtime(async {
            let metadata = Metadata::open(scratch.path()).await.unwrap();
            let reply = match command {
                Some(command) => Some(metadata.propose(command).await.unwrap()),
                None => None,
            };
            let state = metadata.state();
            let kept: Vec<String> = state.snapshots_of(VolumeId(1)).map(|kept| kept.name.clone()).collect();
            let sql = "SELECT s.name FROM snapshots s JOIN volumes v ON v.id = s.volume WHERE v.name = 'v0'";
            let rows = metadata.query(sql, QueryLimits::default()).await.unwrap().rows;
            assert_eq!(rows, kept.iter().map(|name| vec![Value::Text(name.clone())]).collect::<Vec<_>>());
            metadata.shutdown().await;
            (reply, kept, state.cluster.lease_ms)
        })
    };
    let taken = propose(Some(Command::CreateSnapshot { volume: "v0".to_owned(), name: "s".to_owned() }));
    assert_eq!(taken, (Some(Reply::SnapshotCreated { epoch: 1, view: 4 }), vec!["s".to_owned()], Some(2000)));
    let back = propose(Some(Command::RollBack { volume: "v0".to_owned(), name: "s".to_owned() }));
    assert_eq!(back.0, Some(Reply::RolledBack { epoch: 3, view: 5 }));
    let (volume, snapshot) = ("v0".to_owned(), "s".to_owned());
    let cloned = propose(Some(Command::CloneVolume { volume, snapshot, name: "c".to_owned() }));
    assert_eq!(cloned.0, Some(Reply::VolumeCloned { id: VolumeId(3), view: 6 }));
    assert_eq!(propose(None).1, ["s"]);
}

#[test]
fn a_folder_of_form_5_opens_with_all_that_is_in_it_and_copies_move_to_another_drive_and_a_clone_is_made() {
    let scratch = folder_of_form_5();
    let [d0, d1, d2] = ["a13d159126ad82fb", "cab87f32e10c4207", "d3b07384d113edec"].map(|id| id.parse().unwrap());
    let columns = |state: &State, map| {
        let drives = |column: &crate::ColumnRecord| column.users().collect::<Vec<DriveId>>();
        state.maps[&MapId(map)].columns.iter().map(drives).collect::<Vec<_>>()
    };
    let open = |commands: Vec<Command>| {
        on_runtime(async {
            let metadata = Metadata::open(scratch.path()).await.unwrap();
            for command in commands {
                metadata.propose(command).await.unwrap();
            }
            let state = metadata.state();
            let sql = "SELECT count(*) FROM map_columns WHERE drive = 'd3b07384d113edec'";
            let rows = metadata.query(sql, QueryLimits::default()).await.unwrap().rows;
            metadata.shutdown().await;
            (state, rows)
        })
    };
    for _ in 0..2 {
        let (state, rows) = open(vec![]);
        assert_eq!(columns(&state, 1), [[d0, d1], [d1, d0]]);
        assert_eq!(columns(&state, 3), [[d0, d1], [d1, d2], [d2, d0]]);
        assert_eq!((state.snapshots_of(VolumeId(1)).count(), rows), (1, vec![vec![Value::Integer(2)]]));
    }
    assert_eq!(form(scratch.path(), state_machine::FILE), 12);
    let (map, column, view) = (MapId(1), 0, open(vec![]).0.view());
    let (state, _) = open(vec![Command::BeginMove { map, column, from: d0, to: d2 }]);
    assert_eq!(columns(&state, 1), [vec![d0, d1, d2], vec![d1, d0]]);
    let (state, rows) = open(vec![Command::FinishMove { map, column, to: d2, since: view + 1, view: view + 1 }]);
    assert_eq!((columns(&state, 1), rows), (vec![vec![d2, d1], vec![d1, d0]], vec![vec![Value::Integer(3)]]));
    assert_eq!(open(vec![]).0, state);
    // And no volume was a clone; one can be made.
    assert!(state.volumes.values().all(|volume| volume.origin.is_none()));
    let (volume, snapshot, name) = ("v0".to_owned(), "s".to_owned(), "c".to_owned());
    let (state, _) = open(vec![Command::CloneVolume { volume, snapshot, name }]);
    let clone = state.volume_named("c").unwrap();
    assert_eq!((clone.map, clone.origin), (map, Some(SnapshotId { volume: VolumeId(1), epoch: 1 })));
    assert_eq!(open(vec![]).0, state);
    // Nor did any go to another layout.
    assert!(state.migrations.is_empty());
    let layout = Some("stripe".to_owned());
    let begin = Command::BeginMigration {
        volume: "c".to_owned(),
        layout,
        alone: false,
        pool: None,
        range: None,
        seed: 9,
        rate: Some(1 << 20),
    };
    let (state, _) = open(vec![begin]);
    let migration = state.migrations.values().next().unwrap();
    assert_eq!((migration.source, migration.chunks, migration.rate), (map, 2, Some(1 << 20)));
    assert_eq!(open(vec![]).0, state);
}

#[test]
fn a_folder_of_form_6_opens_with_all_that_is_in_it_and_its_volumes_are_whole_until_something_is_imported() {
    let scratch = folder_of_form_6();
    let open = |commands| opened(&scratch, commands);
    for _ in 0..2 {
        let state = open(vec![]);
        let names: Vec<&str> = state.active_volumes().map(|volume| &*volume.name).collect();
        assert_eq!(names, ["v0", "c", "w"]);
        assert!(state.active_volumes().all(|volume| volume.import.is_none()));
        assert_eq!(state.volume_named("c").unwrap().origin, Some(SnapshotId { volume: VolumeId(1), epoch: 1 }));
    }
    assert_eq!(form(scratch.path(), state_machine::FILE), 12);
    let (name, import) = ("v0".to_owned(), 7);
    let state = open(vec![Command::NoteImport { name: name.clone(), import, done: 512 }]);
    assert_eq!(state.volume_named("v0").unwrap().import, Some(ImportRecord { id: 7, done: 512 }));
    assert_eq!(open(vec![]), state);
    let state = open(vec![Command::FinishImport { name, import }]);
    assert_eq!(state.volume_named("v0").unwrap().import, None);
    assert_eq!(open(vec![]), state);
}

#[test]
fn form_7_opens_and_notes_rollbacks_from_then_on() {
    let scratch = folder_of_form_7();
    let open = |commands| opened(&scratch, commands);
    for _ in 0..2 {
        let state = open(vec![]);
        let volumes = state.active_volumes();
        let volumes: Vec<_> =
            volumes.map(|volume| (&*volume.name, volume.lineage.to_string(), volume.begun_in)).collect();
        let lineages = ["0-1,3-3", "0-1", "0-1,4-4"].map(str::to_owned);
        let expected: Vec<_> = ["v0", "w", "c"].into_iter().zip(lineages).map(|(name, seen)| (name, seen, 0)).collect();
        assert_eq!(volumes, expected);
        assert_eq!(state.volume_named("w").unwrap().import, Some(ImportRecord { id: 7, done: 512 }));
        assert!(state.maps[&MapId(1)].columns.iter().flat_map(|it| &it.holders).all(|it| it.status.is_complete()));
    }
    assert_eq!(form(scratch.path(), state_machine::FILE), 12);
    let state = open(vec![Command::RollBack { volume: "v0".to_owned(), name: "s".to_owned() }]);
    let volume = state.volume_named("v0").unwrap();
    assert!(volume.begun_in == volume.epoch && volume.epoch > 4 && !volume.goes_on_from(3));
    assert_eq!(open(vec![]), state);
}

#[test]
fn form_9_opens_and_has_replicas_from_then_on() {
    let scratch = folder_of_form_9();
    let open = |commands| opened(&scratch, commands);
    for _ in 0..2 {
        let state = open(vec![]);
        let names: Vec<&str> = state.active_volumes().map(|volume| &*volume.name).collect();
        assert_eq!((names, state.drive_named("left").is_some()), (vec!["v0", "w", "c"], true));
        assert!(state.active_volumes().all(|volume| volume.replica.is_none()));
        assert!(state.snapshots_of(VolumeId(1)).all(|snapshot| snapshot.copy_of.is_none()));
    }
    assert_eq!(form(scratch.path(), state_machine::FILE), 12);
    let source = ReplicaSource { cluster: tepal_model::ClusterId(7), volume: VolumeId(3) };
    let (name, called) = ("w".to_owned(), "volume 'x'".to_owned());
    let state = open(vec![
        Command::Follow { name: name.clone(), source, called, base: None },
        Command::Receive { name: name.clone(), source, import: 9, base: None, before: None, epoch: 4, done: 0 },
        Command::Received { name: name.clone(), import: 9, snapshot: "r".to_owned(), taken_unix_ms: 5 },
        Command::Receive { name, source, import: 9, base: Some(1), before: None, epoch: 6, done: 512 },
    ]);
    let replica = state.volume_named("w").unwrap().replica.clone().unwrap();
    assert_eq!((replica.source, replica.as_of_unix_ms, replica.receives, replica.base), (source, 5, Some(6), Some(1)));
    assert_eq!(open(vec![]), state);
    let copy = state.snapshot_named(VolumeId(2), "r").unwrap().copy_of.unwrap();
    assert_eq!((copy.source, copy.epoch, copy.unix_ms), (source, 4, 5));
}

#[test]
fn form_10_opens_and_has_identities_and_rights_from_then_on() {
    let scratch = folder_of_form_10();
    let open = |commands| opened(&scratch, commands);
    for _ in 0..2 {
        let state = open(vec![]);
        assert!(state.volume_named("r2").is_some_and(|volume| volume.replica.is_some()));
        assert_eq!(*state.access, Access::default());
    }
    assert_eq!(form(scratch.path(), state_machine::FILE), 12);
    let (name, volume, key) = ("web".to_owned(), "w".to_owned(), KeyHash([7; 32]));
    let state = open(vec![
        Command::AddAuthority { certificate: "PEM".to_owned(), server: ServerId(1) },
        Command::AddIdentity { name: name.clone(), role: Role::Host, groups: vec!["lab".to_owned()], key },
        Command::Grant { volume, to: "@lab".to_owned(), right: Right::Read },
    ]);
    let identity = state.access.identity_of(&key).unwrap();
    assert_eq!(state.right_of(identity, VolumeId(2)), Some(Right::Read));
    assert_eq!(open(vec![]), state);
    assert_eq!(State::from_copy(&state.to_copy()).unwrap(), *state);
}

#[test]
fn form_11_opens_and_has_schedules_from_then_on() {
    let scratch = folder_of_form_11_with_rights();
    let open = |commands| opened(&scratch, commands);
    for _ in 0..2 {
        let state = open(vec![]);
        let names: Vec<&str> = state.active_volumes().map(|volume| &*volume.name).collect();
        assert_eq!((names, state.access.grants.len()), (vec!["v0", "w", "c"], 2));
        assert_eq!(*state.schedules, Schedules::default());
    }
    assert_eq!(form(scratch.path(), state_machine::FILE), 12);
    let rhythm = Rhythm { every_s: 3600, at: TimeOfDay::default(), ahead: "-05:30".parse().unwrap() };
    let keep = "daily=7,yearly=1".parse().unwrap();
    let work = Work::Snapshots { of: Covered::Volume(VolumeId(1)), rhythm, keep };
    let name = "hourly".to_owned();
    let state = open(vec![Command::Schedule(ScheduleCommand::Create { name: name.clone(), work, from_s: 9000 })]);
    let schedule = state.schedules.named("hourly").unwrap().id;
    let scrubs = Work::Scrubs { pool: Some(crate::DEFAULT_POOL.to_owned()), within_s: 60 };
    let volume = VolumeId(1);
    let state = open(vec![
        Command::Schedule(ScheduleCommand::Create { name: "scrubs".to_owned(), work: scrubs, from_s: 0 }),
        Command::Schedule(ScheduleCommand::Take { schedule, volume, due_s: 12_600, done_s: Some(9000) }),
        Command::Schedule(ScheduleCommand::Scrubbed { volume, begun_unix_ms: 5, done_unix_ms: 6 }),
        Command::Schedule(ScheduleCommand::Pause { name, paused: true, from_s: 0 }),
    ]);
    let made: Vec<u64> = state.schedules.made_by(schedule, volume).map(|made| made.due_s).collect();
    assert_eq!((made, state.schedules.by_id.len(), state.schedules.scrubs.len()), (vec![12_600], 2, 1));
    assert_eq!(open(vec![]), state);
    assert_eq!(State::from_copy(&state.to_copy()).unwrap(), *state);
    for harm in ["UPDATE schedules SET done_s = 1", "UPDATE schedule_snapshots SET schedule = 1", "DELETE FROM scrubs"]
    {
        let rotten = Scratch::new();
        let copy = rotten.path().join(state_machine::FILE);
        std::fs::copy(scratch.path().join(state_machine::FILE), &copy).unwrap();
        Connection::open(&copy).and_then(|opened| opened.execute_batch(harm)).unwrap();
        assert!(state_machine::read(rotten.path()).is_err(), "{harm}");
    }
}

#[test]
fn form_11_opens_and_has_encrypted_volumes_from_then_on() {
    let scratch = folder_of_form_11_with_rights();
    let open = |commands| opened(&scratch, commands);
    assert!(open(vec![]).access.volume_keys.is_empty());
    let (name, layout, pool) = ("secret".to_owned(), Some("stripe".to_owned()), crate::DEFAULT_POOL.to_owned());
    let (key, wrapped) = ("main".to_owned(), "0a".to_owned());
    let state = open(vec![Command::CreateEncrypted { name, size: 4096, layout, pool, key, wrapped }]);
    let volume = state.volume_named("secret").unwrap().id;
    assert_eq!(state.access.volume_keys[&volume].key, "main");
    assert_eq!(open(vec![]), state);
    assert_eq!(State::from_copy(&state.to_copy()).unwrap(), *state);
    let copy = scratch.path().join(state_machine::FILE);
    Connection::open(copy).and_then(|opened| opened.execute_batch("UPDATE volume_keys SET wrapped = '0b'")).unwrap();
    assert!(state_machine::read(scratch.path()).is_err());
}

#[test]
fn a_rotten_record_of_any_form_is_noticed_and_left() {
    let (servers, drives) = ("UPDATE servers SET address = '127.0.0.1:1'", "UPDATE drives SET capacity = 1");
    rot_is_noticed(folder_of_form_1, 1, &[servers, drives, "UPDATE counters SET next = 9 WHERE name = 'volume'"]);
    rot_is_noticed(folder_of_form_2, 2, &["UPDATE drives SET missed_since = 1"]);
    rot_is_noticed(folder_of_form_3, 3, &["UPDATE cluster SET view = 9"]);
    let (maps, volumes) = ("UPDATE maps SET made_in = 2", "UPDATE volumes SET size = 512");
    rot_is_noticed(folder_of_form_4, 4, &[maps, volumes, "UPDATE volumes SET epoch = 2"]);
    let of_5 = [
        "UPDATE map_drives SET drive = 'd3b07384d113edec' WHERE position = 0",
        "DELETE FROM map_drives WHERE position = 0",
        maps,
        "UPDATE maps SET layout = 'stripe'",
        "UPDATE snapshots SET name = 'r'",
    ];
    rot_is_noticed(folder_of_form_5, 5, &of_5);
    rot_is_noticed(folder_of_form_6, 6, &[volumes, "UPDATE volumes SET origin_epoch = 2 WHERE name = 'c'"]);
    let (imported, epoch) =
        ("UPDATE volumes SET imported = 1024 WHERE name = 'w'", "UPDATE volumes SET epoch = 4 WHERE name = 'v0'");
    rot_is_noticed(folder_of_form_7, 7, &[imported, epoch]);
    let (size, name) = ("UPDATE volumes SET size = 512 WHERE name = 'w'", "UPDATE drives SET name = 'x'");
    rot_is_noticed(folder_of_form_9, 9, &[size, "UPDATE snapshots SET epoch = 2", name]);
    rot_is_noticed(folder_of_form_10, 10, &["UPDATE volumes SET replica_volume = 2 WHERE name = 'r2'"]);
    rot_is_noticed(folder_of_form_11_with_rights, 11, &["UPDATE grants SET right_to = 'admin'"]);
}

fn rot_is_noticed(folder: fn() -> Scratch, of_form: i64, harms: &[&str]) {
    for harm in harms {
        let scratch = folder();
        let file = scratch.path().join(state_machine::FILE);
        Connection::open(&file).and_then(|opened| opened.execute_batch(harm)).unwrap();
        let refused = on_runtime(async { Metadata::open(scratch.path()).await.err() });
        let is_named = matches!(&refused, Some(OpenError::Damaged { file: named, .. }) if *named == file);
        assert!(is_named, "form {of_form}, {harm}: {refused:?}");
        assert_eq!(form(scratch.path(), state_machine::FILE), of_form);
    }
}

#[test]
fn a_folder_of_which_only_one_database_was_brought_up_opens_too() {
    let scratch = folder_of_form_1();
    drop(log_store::LogTable::open(scratch.path()).unwrap());
    assert_eq!((form(scratch.path(), log_store::FILE), form(scratch.path(), state_machine::FILE)), (2, 1));
    open_whole(scratch.path());
}

#[test]
fn a_drive_that_was_away_in_form_6_counts_as_passed_over() {
    let scratch = folder_of_form_6_with_a_drive_away();
    let [here, away]: [DriveId; 2] = ["5db3aeff53dd1012", "10ca4ea5e4ed8191"].map(|id| id.parse().unwrap());
    for _ in 0..2 {
        let state = on_runtime(async {
            let metadata = Metadata::open(scratch.path()).await.unwrap();
            let state = metadata.state();
            let sql = "SELECT count(*) FROM map_columns WHERE status = 'passed over in 4'";
            let rows = metadata.query(sql, QueryLimits::default()).await.unwrap().rows;
            assert_eq!(rows, [[Value::Integer(64)]]);
            metadata.shutdown().await;
            state
        });
        let holders = || state.maps[&MapId(1)].columns.iter().flat_map(|column| &column.holders);
        for holder in holders() {
            let passed = if holder.drive == away { CopyStatus::PassedOver(4) } else { CopyStatus::Complete };
            assert_eq!(holder.status, passed, "{}", holder.drive);
        }
        assert_eq!(holders().filter(|holder| holder.drive == here).count(), 64);
    }
    assert_eq!(form(scratch.path(), state_machine::FILE), 12);
}
