use super::apply::snapshot_tests::check_readers;
use super::apply::{self, Change};
use super::digest::Digest;
use super::machine::{Machine, create};
use crate::command::{Command, Proposal, VERSION};
use crate::consensus::{LeaderId, LogId, Payload};
use crate::database::StoreError;
use crate::record::{Cleared, DEFAULT_POOL, DriveState, DriveUse, EVENTS_KEPT, ServerState};
use crate::schedule::{Covered, ScheduleCommand, Work};
use crate::scratch::Scratch;
use crate::state::State;
use openraft::vote::RaftLeaderId;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::Path;
use tepal_model::schedule::{Ahead, Keep, Rhythm, TimeOfDay};
use tepal_model::{ClusterId, DriveId, Limits, MapId, Rate, ServerId, VolumeId};

fn setup() -> Command {
    Command::InitCluster { id: ClusterId(1), name: "c".to_owned(), server: ServerId(1), address: "h:1".to_owned() }
}

fn proposal(command: Command) -> Proposal {
    Proposal::new(1, None, command)
}

fn entry(index: u64) -> LogId {
    LogId { leader_id: LeaderId::new(1, 1), index }
}

fn machine(folder: &Path) -> Machine {
    create(folder).unwrap();
    Machine::open(folder).unwrap()
}

fn carry_out(machine: &mut Machine, index: u64, command: Command) {
    let answer = machine.apply(entry(index), &Payload::Normal(proposal(command)));
    answer.expect("the database can be written").expect("the command is accepted");
}

/// Small numbers, so that commands meet the same things.
fn command() -> impl Strategy<Value = Command> {
    let server = (1u32..4).prop_map(ServerId);
    let drive = (1u64..6).prop_map(DriveId);
    let name = prop_oneof![Just("a"), Just("b"), Just("c")].prop_map(str::to_owned);
    let layout = prop_oneof![Just("stripe"), Just("mirror:2"), Just("chained"), Just("mirror:3;domain=server")];
    let state = prop::sample::select(DriveState::ALL.to_vec());
    let size = prop_oneof![Just(512u64), Just(4096), Just(1 << 63)];
    let pool = prop_oneof![4 => Just(DEFAULT_POOL.to_owned()), 1 => Just("p".to_owned())];
    prop_oneof![
        (1u64..5, prop::option::of(server.clone()))
            .prop_map(|(folder, claim)| { Command::JoinServer { folder, address: "h:2".to_owned(), claim } }),
        (server.clone(), 0u32..2, 0u64..4)
            .prop_map(|(id, incarnation, boot)| { Command::ServerStarted { id, incarnation, boot } }),
        server.clone().prop_map(|id| Command::RemoveServer { id }),
        (server.clone(), prop::option::of(Just("a")))
            .prop_map(|(id, site)| { Command::SetServerSite { id, site: site.map(str::to_owned) } }),
        (server.clone(), any::<bool>(), prop::option::of(0u64..20)).prop_map(|(id, up, expected_view)| {
            let to = if up { ServerState::Up } else { ServerState::Down };
            Command::SetServerState { id, to, reason: "r".to_owned(), expected_view }
        }),
        (drive.clone(), server.clone(), pool.clone()).prop_map(|(id, server, pool)| {
            Command::AddDrive { id, server, pool, path: "/d".to_owned(), capacity: 1 << 40, spare: false }
        }),
        (server.clone(), server.clone(), 0u64..20)
            .prop_map(|(id, by, view)| { Command::ServerCutOff { id, by, reason: "r".to_owned(), view } }),
        (drive.clone(), server, 0u64..4).prop_map(|(id, server, generation)| {
            Command::DriveMoved { id, server, path: "/e".to_owned(), generation }
        }),
        (drive.clone(), prop_oneof![Just(1u64 << 39), Just(1 << 41), Just(u64::MAX)])
            .prop_map(|(id, capacity)| Command::DriveGrew { id, capacity }),
        (drive.clone(), state, prop::option::of(0u64..20)).prop_map(|(id, to, expected_view)| {
            Command::SetDriveState { id, to, reason: "r".to_owned(), expected_view }
        }),
        (drive.clone(), any::<u64>()).prop_map(|(id, view)| Command::DriveIsUp {
            id,
            reason: "r".to_owned(),
            view: view % 20
        }),
        (drive.clone(), any::<bool>()).prop_map(|(id, force)| Command::RemoveDrive { id, force }),
        (drive, prop::sample::select(vec![DriveUse::Active, DriveUse::Draining, DriveUse::Spare]))
            .prop_map(|(id, to)| Command::SetDriveUse { id, to }),
        (1u32..4, any::<bool>()).prop_map(|(id, draining)| Command::SetServerDraining { id: ServerId(id), draining }),
        Just(Command::CreatePool { name: "p".to_owned(), layout: Some("mirror:2".to_owned()) }),
        Just(Command::RemovePool { name: "p".to_owned() }),
        (name.clone(), size.clone(), prop::option::of(layout), pool).prop_map(|(name, size, layout, pool)| {
            Command::CreateVolume { name, size, layout: layout.map(str::to_owned), pool }
        }),
        (name.clone(), size, any::<bool>(), prop::option::of((1u64..4, 1u64..4))).prop_map(
            |(name, size, shrink, cleared)| {
                let cleared =
                    cleared.map(|(id, revision)| Cleared { volume: VolumeId(id), revision, epoch: 1, window: 0 });
                Command::ResizeVolume { name, size, shrink, cleared }
            }
        ),
        (name.clone(), name.clone()).prop_map(|(name, new_name)| Command::RenameVolume { name, new_name }),
        (name, any::<bool>()).prop_map(|(name, snapshots)| Command::RemoveVolume { name, snapshots }),
        (1u64..8).prop_map(|id| Command::FinishRemoveVolume { id: VolumeId(id) }),
        (200u64..900).prop_map(|ms| Command::SetLease { ms }),
    ]
}

fn limit_command() -> impl Strategy<Value = Command> {
    ("[a-c]", prop::option::of((0u64..3, 0u64..3))).prop_map(|(volume, rate)| {
        let iops = rate.map(|(per_second, burst)| Rate { per_second, burst });
        Command::LimitVolume { volume, limits: Limits { iops, ..Limits::default() } }
    })
}

fn key_command() -> impl Strategy<Value = Command> {
    (any::<bool>(), "[a-c]", "[0-9a-f]", "[0-9a-f]?").prop_map(|(creates, volume, before, wrapped)| match creates {
        true => {
            let (layout, pool, key) = (None, DEFAULT_POOL.to_owned(), "main".to_owned());
            Command::CreateEncrypted { name: volume, size: 4096, layout, pool, key, wrapped }
        }
        false => Command::RewrapKey { volume, key: "next".to_owned(), wrapped, before },
    })
}

fn move_command() -> impl Strategy<Value = Command> {
    let drive = || (1u64..6).prop_map(DriveId);
    (0u8..4, (1u32..3).prop_map(MapId), 0u32..3, drive(), drive(), 0u64..20).prop_map(
        |(what, map, column, from, to, view)| match what {
            0..2 => Command::BeginMove { map, column, from, to },
            2 => Command::FinishMove { map, column, to, since: view, view },
            _ => Command::CancelMove { map, column, to, since: view },
        },
    )
}

fn migration_command() -> impl Strategy<Value = Command> {
    let volume = prop_oneof![4 => Just("a"), 1 => Just("b")].prop_map(str::to_owned);
    let layout = prop::option::of(prop_oneof![Just("stripe"), Just("mirror:2"), Just("stripe;extent=4K")]);
    let given = (0u8..9, volume, layout, (1u32..5).prop_map(MapId), any::<bool>(), 3u64..9);
    given.prop_map(|(what, volume, layout, id, yes, since)| {
        let layout = layout.map(str::to_owned);
        match what {
            0..3 => {
                let pool = (since % 2 == 0).then(|| crate::DEFAULT_POOL.to_owned());
                Command::BeginMigration {
                    volume,
                    layout,
                    alone: yes,
                    pool,
                    range: None,
                    seed: u64::MAX,
                    rate: yes.then_some(1 << 20),
                }
            }
            3..5 => Command::MoveWindow { id, since, to: (1, 1) },
            5 => Command::PauseMigration { id, paused: yes },
            6 => Command::SetMigrationRate { id, rate: yes.then_some(u64::MAX) },
            _ => Command::TurnMigration { id, cancelled: yes },
        }
    })
}

fn snapshot_command() -> impl Strategy<Value = Command> {
    let volume = prop_oneof![4 => Just("a"), 1 => Just("b")].prop_map(str::to_owned);
    let name = prop_oneof![Just("s"), Just("t"), Just("u")].prop_map(str::to_owned);
    let clone = prop_oneof![Just("b"), Just("c"), Just("d")].prop_map(str::to_owned);
    (0u8..8, volume, name.clone(), name, clone).prop_map(|(what, volume, name, new_name, clone)| match what {
        0..3 => Command::CreateSnapshot { volume, name },
        3 => Command::RemoveSnapshot { volume, name },
        4 => Command::RenameSnapshot { volume, name, new_name },
        5..7 => Command::CloneVolume { volume, snapshot: name, name: clone },
        _ => Command::RollBack { volume, name },
    })
}

fn schedule_command() -> impl Strategy<Value = Command> {
    let name = prop_oneof![4 => Just("a"), 1 => Just("b")].prop_map(str::to_owned);
    // Ids of schedules are numbers of events.
    let given = (0u8..14, name, 5u64..12, (1u64..3).prop_map(VolumeId), 0u64..6, 0u32..5, any::<bool>());
    given.prop_map(|(what, name, schedule, volume, time, epoch, yes)| {
        let of = if yes { Covered::Volume(volume) } else { Covered::Pool(DEFAULT_POOL.to_owned()) };
        let rhythm = Rhythm { every_s: 1, at: TimeOfDay::default(), ahead: Ahead::default() };
        let keep = Keep { last: epoch, hourly: 1, ..Keep::default() };
        let work = match what % 3 {
            0 => Work::Scrubs { pool: yes.then(|| DEFAULT_POOL.to_owned()), within_s: 10 },
            _ => Work::Snapshots { of, rhythm, keep },
        };
        Command::Schedule(match what {
            0..3 => ScheduleCommand::Create { name, work, from_s: time },
            3 => ScheduleCommand::Change { name, work, from_s: time },
            4 => ScheduleCommand::Pause { name, paused: yes, from_s: time },
            5 => ScheduleCommand::Remove { name },
            6..10 => ScheduleCommand::Take { schedule, volume, due_s: time, done_s: yes.then_some(time) },
            10 => {
                let (due, error) = (yes.then_some((time, time + 1)), yes.then(|| "e".to_owned()));
                ScheduleCommand::Ran { schedule, due, at_unix_ms: u64::MAX, missed: Some((time, time)), error }
            }
            11 => ScheduleCommand::Expire { schedule, volume, epoch },
            12 => ScheduleCommand::Hold { schedule, volume, epoch, why: "h".to_owned() },
            _ => ScheduleCommand::Scrubbed { volume, begun_unix_ms: time, done_unix_ms: u64::MAX },
        })
    })
}

/// A cluster with a drive and a volume.
fn furnished() -> [Command; 3] {
    let (server, pool) = (ServerId(1), DEFAULT_POOL.to_owned());
    let drive = Command::AddDrive {
        id: DriveId(1),
        server,
        pool: pool.clone(),
        path: "/d".to_owned(),
        capacity: 1 << 40,
        spare: false,
    };
    let layout = Some("stripe".to_owned());
    [setup(), drive, Command::CreateVolume { name: "a".to_owned(), size: 4096, layout, pool }]
}

pub fn check_references(state: &State) {
    for map in state.maps.values() {
        for column in &map.columns {
            assert!(column.users().all(|drive| state.drives.contains_key(&drive)), "{map:?}");
            let holders: BTreeSet<DriveId> = column.holders.iter().map(|holder| holder.drive).collect();
            assert_eq!(holders.len(), usize::from(map.layout.fragments().count()), "{column:?}");
            if let Some(join) = column.joining {
                assert!(holders.contains(&join.from) && !holders.contains(&join.to), "{column:?}");
                assert!(state.drives[&join.to].state != DriveState::Failed && join.since <= state.view(), "{column:?}");
            }
            assert!(column.holders.iter().all(|holder| holder.since <= state.view()), "{column:?}");
        }
        assert!(map.layout.domain.is_some());
        let is_gone_to = state.migrations.values().any(|migration| migration.is_about(map.id));
        assert!(is_gone_to || state.volumes.values().any(|volume| volume.map == map.id));
    }
    for volume in state.volumes.values() {
        assert!(state.map_of(volume).is_some());
        assert!(state.pools.contains_key(&volume.pool));
        assert!(volume.id.0 < state.counters.volume && volume.map.0 < state.counters.map);
    }
    check_migrations(state);
    for drive in state.drives.values() {
        assert!(state.servers.contains_key(&drive.server) && state.pools.contains_key(&drive.pool));
        assert_eq!(drive.missed_since.is_none(), drive.state == DriveState::Up, "{drive:?}");
        assert!(drive.state_view <= state.view());
    }
    check_readers(state);
    check_schedules(state);
}

fn check_schedules(state: &State) {
    let is_active = |id: VolumeId| state.active_volumes().any(|volume| volume.id == id);
    for schedule in state.schedules.by_id.values() {
        match &schedule.work {
            Work::Snapshots { of: Covered::Volume(id), .. } => assert!(is_active(*id), "{schedule:?}"),
            Work::Snapshots { of: Covered::Pool(pool), .. } | Work::Scrubs { pool: Some(pool), .. } => {
                assert!(state.pools.contains_key(pool), "{schedule:?}");
            }
            Work::Scrubs { pool: None, .. } => {}
        }
    }
    for made in state.schedules.made.values().flat_map(|made| made.values()) {
        assert!(state.schedules.by_id.contains_key(&made.schedule), "{made:?}");
        assert!(state.snapshots_of(made.volume).any(|snapshot| snapshot.epoch == made.epoch), "{made:?}");
    }
    assert!(state.schedules.scrubs.keys().all(|volume| is_active(*volume)));
}

fn check_migrations(state: &State) {
    let maps: Vec<MapId> = state.migrations.values().flat_map(|record| [record.source, record.target]).collect();
    assert_eq!(maps.iter().collect::<BTreeSet<_>>().len(), maps.len(), "each map is in one at most");
    for record in state.migrations.values() {
        let [source, target] = [record.source, record.target].map(|map| &state.maps[&map]);
        assert_eq!(source.newest_epoch, target.newest_epoch, "{record:?}");
        assert_eq!(state.history_of(source.id), state.history_of(target.id));
        assert!(record.is_sound() && record.since <= state.view(), "{record:?}");
        assert!(state.volumes.values().any(|volume| record.takes(volume)), "somebody goes: {record:?}");
        // Of a volume that leaves others, or comes back to them, these have the other map alone.
        let has_target = state.volumes.values().any(|volume| volume.map == target.id);
        assert!(!has_target || (record.leaves.is_some() && record.cancelled), "{record:?}");
    }
}

/// A cluster with three drives and a volume with two copies, of which drives come and go and copies move: names of drives that are
/// there, and views as they are, so that most moves are begun and many finished.
fn moving() -> impl Strategy<Value = (u8, u32, u64, u64)> {
    (0u8..9, 0u32..3, 1u64..7, 1u64..7)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_moves_columns_keep_their_copies(steps in prop::collection::vec(moving(), 1..60)) {
        let scratch = Scratch::new();
        let mut machine = machine(scratch.path());
        let pool = || DEFAULT_POOL.to_owned();
        let drive = |id| Command::AddDrive {
            id: DriveId(id), server: ServerId(1), pool: pool(), path: "/d".to_owned(), capacity: 1 << 40, spare: false,
        };
        let layout = Some("mirror:2".to_owned());
        let volume = Command::CreateVolume { name: "a".to_owned(), size: 4096, layout, pool: pool() };
        let begin = [setup(), drive(1), drive(2), drive(3), volume, drive(4), drive(5), drive(6)];
        (0..).zip(begin).for_each(|(index, command)| carry_out(&mut machine, index, command));
        let mut finished = 0;
        for (index, (what, column, from, to)) in (8..).zip(steps) {
            let (map, from, to, reason) = (MapId(1), DriveId(from), DriveId(to), "r".to_owned());
            let state = machine.content.state.clone();
            let join = state.maps[&map].columns[column as usize].joining;
            let (joining, since) = join.map_or((to, 0), |join| (join.to, join.since));
            let expected_view = state.drives.get(&to).map(|drive| drive.state_view);
            let command = match what {
                0..3 => Command::BeginMove { map, column, from, to },
                3..5 => Command::FinishMove { map, column, to: joining, since, view: state.view() },
                5 => Command::CancelMove { map, column, to: joining, since },
                6 => Command::RemoveDrive { id: to, force: from.0 > 4 },
                7 => Command::SetDriveState { id: to, to: DriveState::Missing, reason, expected_view },
                _ => drive(to.0),
            };
            let finishes = matches!(command, Command::FinishMove { .. });
            let answer = machine.apply(entry(index), &Payload::Normal(proposal(command))).unwrap();
            finished += u32::from(finishes && answer.is_ok());
            check_references(&machine.content.state);
            prop_assert_eq!(machine.content.digest, Digest::of(&machine.content.state));
        }
        let expected = machine.content.state.clone();
        drop(machine);
        prop_assert_eq!(&Machine::open(scratch.path()).unwrap().content.state, &expected, "{} finished", finished);
    }
}

/// Story: bits of a column that was read back changed, and SQLite didn't notice.
#[test]
fn a_column_move_or_migration_that_rotted_is_noticed() {
    let harms = [
        "UPDATE map_columns SET since = 9",
        "UPDATE map_columns SET drive = '0000000000000002' WHERE column = 0",
        "UPDATE map_columns SET copy = 7 WHERE column = 0 AND map = 1",
        "UPDATE map_columns SET column = 99 WHERE column = 0",
        "DELETE FROM map_columns",
        "UPDATE map_joins SET drive_to = '0000000000000001'",
        "UPDATE map_joins SET drive_from = '0000000000000003'",
        "UPDATE map_joins SET since = 1",
        "DELETE FROM map_joins",
        "UPDATE maps SET width = 2",
        "UPDATE maps SET chunk = 1",
        "UPDATE drives SET purpose = 'spare'",
        "UPDATE servers SET draining = 1",
        "UPDATE migrations SET seed = 8",
        "UPDATE migrations SET cancelled = 1",
        "UPDATE migrations SET fence = 0",
        "UPDATE migrations SET rate = 7",
        "UPDATE migrations SET target = 9",
        "DELETE FROM migrations",
        "DELETE FROM maps WHERE id = 2",
    ];
    for harm in harms {
        let scratch = Scratch::new();
        let mut machine = machine(scratch.path());
        let Command::AddDrive { server, pool, path, capacity, spare, .. } = furnished()[1].clone() else {
            unreachable!()
        };
        let other = Command::AddDrive { id: DriveId(2), server, pool, path, capacity, spare };
        let begin = Command::BeginMove { map: MapId(1), column: 0, from: DriveId(1), to: DriveId(2) };
        let (volume, layout) = ("a".to_owned(), Some("mirror:2".to_owned()));
        let go = Command::BeginMigration { volume, layout, alone: false, pool: None, range: None, seed: 7, rate: None };
        for (index, command) in (0..).zip(furnished().into_iter().chain([other, begin, go])) {
            carry_out(&mut machine, index, command);
        }
        machine.connection.execute_batch(harm).unwrap();
        drop(machine);
        let opened = Machine::open(scratch.path()).map(drop);
        assert!(opened.is_err(), "{harm}: {opened:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_database_holds_what_memory_does_whatever_is_done(
        has_volume in any::<bool>(),
        commands in prop::collection::vec(prop_oneof![
            3 => command(), 2 => snapshot_command(), 2 => move_command(), 2 => migration_command(), 3 => schedule_command(),
            1 => key_command(),
            1 => limit_command()
        ], 1..60),
    ) {
        let begin = furnished().into_iter().take(if has_volume { 3 } else { 1 });
        let scratch = Scratch::new();
        let mut machine = machine(scratch.path());
        let mut expected = State::before_everything();
        for (index, command) in (0..).zip(begin.chain(commands)) {
            let pure = apply::apply(&expected, &proposal(command.clone()));
            let answer = machine.apply(entry(index), &Payload::Normal(proposal(command))).unwrap();
            match pure {
                Ok(applied) => {
                    let events = applied.changes.iter().filter(|change| matches!(change, Change::Event(_))).count();
                    prop_assert_eq!(expected.counters.event + events as u64, applied.state.counters.event);
                    prop_assert_eq!(answer, Ok(applied.reply));
                    expected = applied.state;
                }
                Err(refusal) => prop_assert_eq!(answer, Err(refusal)),
            }
            prop_assert_eq!(&*machine.content.state, &expected);
            prop_assert_eq!(machine.content.digest, Digest::of(&expected));
            check_references(&expected);
        }
        let applied = machine.content.applied;
        drop(machine);
        let machine = Machine::open(scratch.path()).unwrap();
        prop_assert_eq!(&*machine.content.state, &expected);
        prop_assert_eq!(machine.content.applied, applied);
    }
}

#[test]
fn only_the_latest_events_are_kept() {
    let scratch = Scratch::new();
    let mut machine = machine(scratch.path());
    carry_out(&mut machine, 0, setup());
    let event = Command::RecordEvent { kind: "k".to_owned(), subject: "s".to_owned(), text: "t".to_owned() };
    let many = EVENTS_KEPT + 50;
    for index in 1..=many {
        carry_out(&mut machine, index, event.clone());
    }
    let (count, last): (u64, u64) = machine
        .connection
        .query_row("SELECT count(*), max(seq) FROM events", [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    assert_eq!((count, last), (EVENTS_KEPT, many + 1));
}

#[test]
fn a_snapshot_carries_everything_to_another_server() {
    let (from, to) = (Scratch::new(), Scratch::new());
    let mut source = machine(from.path());
    let snapshot = |name: &str| Command::CreateSnapshot { volume: "a".to_owned(), name: name.to_owned() };
    let rolled_back = Command::RollBack { volume: "a".to_owned(), name: "s".to_owned() };
    let commands = furnished().into_iter().chain([snapshot("s"), snapshot("t"), rolled_back]);
    for (index, command) in (0..).zip(commands) {
        carry_out(&mut source, index, command);
    }
    let all = source.content.state.clone();
    let (meta, mut snapshot) = source.build_snapshot().unwrap();
    // What comes after isn't in it.
    let server = Command::JoinServer { folder: 2, address: "h:2".to_owned(), claim: None };
    carry_out(&mut source, 6, server);

    let mut target = machine(to.path());
    target.install_snapshot(&meta, &mut snapshot).unwrap();
    assert_eq!(target.content.applied, Some(entry(5)));
    assert_eq!(target.content.state, all);
    assert_eq!(all.count_snapshots(VolumeId(1)), 2);
    assert_eq!(*target.published.borrow(), all);
    drop(target);
    let mut target = Machine::open(to.path()).unwrap();
    assert_eq!(target.content.state, all);
    assert_eq!(target.content.installed, Some(entry(5)));
    assert_eq!(target.current_snapshot().unwrap().map(|(meta, _)| meta), Some(meta));
}

/// Story: bits of a record that was read back changed, and SQLite didn't notice.
#[test]
fn a_snapshot_or_lineage_that_rotted_is_noticed() {
    let harms = [
        "UPDATE snapshots SET name = 'r'",
        "UPDATE snapshots SET size = 512",
        "UPDATE snapshots SET lineage = '1-1'",
        "UPDATE snapshots SET lineage = '0-2'",
        "UPDATE snapshots SET epoch = 3",
        "DELETE FROM snapshots",
        "UPDATE volumes SET epoch = 1",
        "UPDATE volumes SET lineage = '1-2'",
        "UPDATE volumes SET epoch = 1, lineage = '0-1'",
        "UPDATE volumes SET epoch_since = 1",
        "UPDATE volumes SET begun_in = 1",
        "UPDATE maps SET newest_epoch = 1",
    ];
    for harm in harms {
        let scratch = Scratch::new();
        let mut machine = machine(scratch.path());
        let snapshot = Command::CreateSnapshot { volume: "a".to_owned(), name: "s".to_owned() };
        for (index, command) in (0..).zip(furnished().into_iter().chain([snapshot])) {
            carry_out(&mut machine, index, command);
        }
        machine.connection.execute_batch(harm).unwrap();
        drop(machine);
        let opened = Machine::open(scratch.path()).map(drop);
        assert!(matches!(opened, Err(StoreError::Damaged { .. })), "{harm}: {opened:?}");
    }
}

#[test]
fn a_snapshot_of_another_cluster_is_refused() {
    let (from, to) = (Scratch::new(), Scratch::new());
    let mut source = machine(from.path());
    carry_out(&mut source, 0, setup());
    let (meta, mut snapshot) = source.build_snapshot().unwrap();
    let mut target = machine(to.path());
    let other =
        Command::InitCluster { id: ClusterId(2), name: "d".to_owned(), server: ServerId(1), address: "h:1".to_owned() };
    carry_out(&mut target, 0, other);
    let refused = target.install_snapshot(&meta, &mut snapshot);
    assert!(
        matches!(&refused, Err(StoreError::Damaged { what, .. }) if what.contains("another cluster")),
        "{refused:?}"
    );
    assert_eq!(target.content.state.cluster.id, ClusterId(2));
}

#[test]
fn a_damaged_snapshot_is_dropped_since_it_can_be_made_again() {
    let scratch = Scratch::new();
    let mut machine = machine(scratch.path());
    carry_out(&mut machine, 0, setup());
    machine.build_snapshot().unwrap();
    let path = scratch.path().join("snapshot.db");
    std::fs::write(&path, b"rubbish").unwrap();
    assert!(machine.current_snapshot().unwrap().is_none());
    machine.build_snapshot().unwrap();
    assert!(machine.current_snapshot().unwrap().is_some());
}

#[test]
fn a_command_of_a_newer_build_stops_the_state_machine_rather_than_be_skipped() {
    let scratch = Scratch::new();
    let mut machine = machine(scratch.path());
    let newer = Proposal { version: VERSION + 1, ..proposal(setup()) };
    let stopped = machine.apply(entry(0), &Payload::Normal(newer));
    assert!(matches!(stopped, Err(StoreError::Newer { found, .. }) if found == i64::from(VERSION) + 1), "{stopped:?}");
    assert_eq!(machine.content.applied, None);
}
