//! Volumes that go from one map to another.

use super::snapshot_tests::{check_readers, clone, roll_back, take};
use super::tests::{add_drive, cluster, create, done, proposal, refused, resize, resized};
use super::*;
use crate::record::{DEFAULT_POOL, DriveState};
use crate::state_machine::digest::Digest;
use proptest::prelude::*;
use tepal_model::{CHUNK, MigrationStage};

const SEED: u64 = 7;

fn begin(volume: &str, layout: &str) -> Command {
    let (volume, layout) = (volume.to_owned(), Some(layout.to_owned()));
    Command::BeginMigration { volume, layout, alone: false, pool: None, range: None, seed: SEED, rate: None }
}

fn flatten(volume: &str) -> Command {
    Command::BeginMigration {
        volume: volume.to_owned(),
        layout: None,
        alone: true,
        pool: None,
        range: None,
        seed: SEED,
        rate: None,
    }
}

fn gone(name: &str) -> Command {
    Command::RemoveVolume { name: name.to_owned(), snapshots: true }
}

fn only(state: &State) -> &MigrationRecord {
    assert_eq!(state.migrations.len(), 1);
    state.migrations.values().next().unwrap()
}

fn window(state: &State) -> (u64, u64) {
    (only(state).done, only(state).fence)
}

/// Moves the window on by so many chunks; of 0, to the end.
fn next(state: &State, chunks: u64) -> Command {
    let record = only(state);
    let to = if record.fence == record.chunks {
        (record.fence, record.fence)
    } else {
        (record.fence, record.fence + chunks)
    };
    Command::MoveWindow { id: record.id, since: record.since, to }
}

fn come_to_the_end(state: &mut State) {
    while !state.migrations.is_empty() {
        let next = next(state, 1);
        done(state, next);
    }
}

fn turn(state: &State) -> Command {
    Command::TurnMigration { id: only(state).id, cancelled: !only(state).cancelled }
}

fn map_of(state: &State, name: &str) -> MapId {
    state.volume_named(name).unwrap().map
}

/// Four servers with a drive each, and a volume `v` of a hundred chunks.
fn with_volume() -> State {
    let mut state = cluster(&[(1, 1), (2, 2), (3, 3), (4, 4)]);
    done(&mut state, create("v", "stripe"));
    resized(&mut state, "v", 100 * CHUNK);
    state
}

/// The same with a snapshot `s` of which there's a clone `c`.
fn with_clone() -> State {
    let mut state = with_volume();
    done(&mut state, take("v", "s"));
    done(&mut state, clone("v", "s", "c"));
    state
}

/// Story: a volume on its way was cleared past its end to grow. One primary took a chunk for gone already, another one for still to
/// come, so neither cleared it, and what had been cut off was there again.
#[test]
fn a_volume_on_its_way_grows_only_in_the_window_in_which_it_was_cleared() {
    let mut state = with_volume();
    let changes: [fn(&State) -> Command; 4] =
        [|_| begin("v", "mirror:2"), |state| next(state, 5), turn, |state| next(state, 2)];
    for change in changes {
        let grow = resize(&state, "v", 200 * CHUNK);
        done(&mut state.clone(), grow.clone());
        let change = change(&state);
        done(&mut state, change);
        assert_eq!(refused(&state, grow), Refusal::NotCleared("v".to_owned()));
    }
    resized(&mut state, "v", 200 * CHUNK);
}

#[test]
fn a_volume_has_its_new_layout_when_the_last_window_has_gone_and_the_map_that_it_had_is_forgotten() {
    let mut state = with_volume();
    done(&mut state, take("v", "s"));
    let view = state.view();
    assert_eq!(
        done(&mut state, begin("v", "mirror:2;extent=4K")),
        Reply::MigrationBegun { id: MapId(2), view: view + 1 }
    );
    let record = only(&state).clone();
    assert_eq!((record.source, record.target, record.leaves, record.since), (MapId(1), MapId(2), None, view + 1));
    assert_eq!((record.chunks, record.done, record.fence), (100, 0, 2), "the first window is a fiftieth");
    assert_eq!((record.stage, record.cancelled, record.rate), (MigrationStage::Running, false, None));
    let target = &state.maps[&MapId(2)];
    assert_eq!((target.layout.fragments().count(), target.extent(), target.newest_epoch), (2, 4096, 2));
    assert_eq!(
        (map_of(&state, "v"), state.volume_named("v").unwrap().layout.to_string()),
        (MapId(1), "stripe".to_owned())
    );
    let view = state.view();
    for (nth, _) in (1..).zip(0..98) {
        let next = next(&state, 1);
        done(&mut state, next);
        assert_eq!((state.view(), only(&state).since), (view + nth, view + nth));
    }
    assert_eq!(window(&state), (99, 100));
    let (last, revision) = (next(&state, 0), state.volume_named("v").unwrap().revision);
    done(&mut state, last);
    let volume = state.volume_named("v").unwrap();
    assert_eq!((volume.map, volume.layout.to_string()), (MapId(2), "mirror:2;extent=4K".to_owned()));
    assert_eq!((volume.revision, state.view()), (revision + 1, view + 99));
    assert!(state.migrations.is_empty() && state.maps.keys().eq([&MapId(2)]));
    // The snapshot is as it was, and the next one gets an epoch that none had.
    assert_eq!(state.snapshot_named(volume.id, "s").unwrap().lineage.to_string(), "0-1");
    assert!(matches!(done(&mut state, take("v", "t")), Reply::SnapshotCreated { epoch: 2, .. }));
    check_readers(&state);
}

#[test]
fn what_cannot_go_is_refused_with_the_reason() {
    let state = with_clone();
    let unknown = refused(&state, begin("v", "raid5"));
    assert!(unknown.to_string().contains("unknown layout"), "{unknown}");
    let many = refused(&state, begin("v", "mirror:5"));
    assert!(many.to_string().contains("5 copies"), "{many}");
    assert_eq!(refused(&state, begin("w", "mirror:2")), Refusal::NoVolume("w".to_owned()));
    let same = |layout: &str| Refusal::SameLayout { volume: "v".to_owned(), layout: layout.to_owned() };
    assert_eq!(refused(&state, begin("v", "stripe")), same("stripe"));
    assert_eq!(refused(&state, begin("v", "stripe;extent=64K")), same("stripe"));
    let rate = Command::BeginMigration {
        volume: "v".to_owned(),
        layout: Some("chained".to_owned()),
        alone: false,
        pool: None,
        range: None,
        seed: 1,
        rate: Some(0),
    };
    assert_eq!(refused(&state, rate), Refusal::Rate);
    let id = MapId(2);
    for command in [
        Command::PauseMigration { id, paused: true },
        Command::TurnMigration { id, cancelled: true },
        Command::SetMigrationRate { id, rate: None },
        Command::MoveWindow { id, since: 1, to: (2, 4) },
    ] {
        assert_eq!(refused(&state, command), Refusal::NoMigration(id));
    }
    // One at a time for a map, whichever of its volumes is named.
    for first in [begin("v", "mirror:2"), begin("c", "chained"), flatten("c"), flatten("v")] {
        let mut state = state.clone();
        done(&mut state, first);
        for second in [begin("v", "mirror:3"), begin("c", "mirror:2"), flatten("v"), flatten("c")] {
            assert!(matches!(refused(&state, second), Refusal::MigratesAlready { .. }));
        }
        let back = turn(&state);
        done(&mut state, back);
        assert!(matches!(refused(&state, begin("v", "mirror:3")), Refusal::ComesBack { .. }));
    }
    let mut state_of_c = state.clone();
    done(&mut state_of_c, flatten("c"));
    let refusal = refused(&state_of_c, begin("v", "mirror:3"));
    assert!(matches!(&refusal, Refusal::MigratesAlready { volume, .. } if volume == "c"), "{refusal}");
    let mut alone = with_volume();
    done(&mut alone, take("v", "s"));
    assert_eq!(refused(&alone, flatten("v")), Refusal::NotShared("v".to_owned()));
}

#[test]
fn a_volume_goes_to_the_drives_of_another_pool_with_its_clones_and_is_of_that_pool_in_the_end() {
    let mut state = with_clone();
    let to = |pool: &str, layout: Option<&str>| Command::BeginMigration {
        volume: "v".to_owned(),
        layout: layout.map(str::to_owned),
        alone: false,
        pool: Some(pool.to_owned()),
        range: None,
        seed: SEED,
        rate: None,
    };
    assert_eq!(refused(&state, to("fast", None)), Refusal::NoPool("fast".to_owned()));
    done(&mut state, Command::CreatePool { name: "fast".to_owned(), layout: None });
    assert_eq!(refused(&state, to("fast", None)), Refusal::NoDrives("fast".to_owned()));
    for id in [5, 6] {
        let Command::AddDrive { id, server, path, capacity, spare, .. } = add_drive(id, id as u32 - 4) else {
            panic!()
        };
        done(&mut state, Command::AddDrive { id, server, path, capacity, spare, pool: "fast".to_owned() });
    }
    assert!(matches!(refused(&state, to(DEFAULT_POOL, None)), Refusal::SameLayout { .. }));
    let pools = |state: &State| -> Vec<String> {
        let volumes = state.active_volumes();
        volumes
            .flat_map(|volume| [volume.pool.clone(), state.pool_of(volume, &state.maps[&volume.map]).to_owned()])
            .collect()
    };
    let of_target = |state: &State| {
        let volume = state.active_volumes().next().expect("there are two");
        state.pool_of(volume, &state.maps[&only(state).target]).to_owned()
    };
    done(&mut state, to("fast", None));
    let target = &state.maps[&only(&state).target];
    assert!(target.drives().iter().all(|drive| [DriveId(5), DriveId(6)].contains(drive)), "{target:?}");
    assert_eq!((pools(&state), of_target(&state)), (vec![DEFAULT_POOL.to_owned(); 4], "fast".to_owned()));
    // Back again: it was of its pool all the time.
    let back = turn(&state);
    done(&mut state, back);
    let (now, of_map) = (pools(&state), "fast".to_owned());
    assert_eq!(now, [DEFAULT_POOL, &of_map, DEFAULT_POOL, &of_map], "it comes from the other map");
    come_to_the_end(&mut state);
    assert_eq!(pools(&state), vec![DEFAULT_POOL; 4]);
    // And there.
    done(&mut state, to("fast", Some("mirror:2")));
    come_to_the_end(&mut state);
    assert_eq!(pools(&state), vec!["fast"; 4]);
    assert_eq!(state.maps.len(), 1);
}

#[test]
fn a_window_moves_only_from_where_it_is_and_the_next_begins_where_it_ends() {
    let mut state = with_volume();
    done(&mut state, begin("v", "mirror:2"));
    let id = MapId(2);
    let to = |state: &State, to| Command::MoveWindow { id, since: only(state).since, to };
    let changed = Refusal::WindowChanged { done: 0, fence: 2 };
    for since in [0, only(&state).since - 1, only(&state).since + 1] {
        assert_eq!(refused(&state, Command::MoveWindow { id, since, to: (2, 4) }), changed);
    }
    for wrong in [(1, 4), (3, 4), (2, 2), (2, 101), (100, 100), (0, 2), (u64::MAX, u64::MAX)] {
        assert_eq!(refused(&state, to(&state, wrong)), Refusal::NoWindow { done: wrong.0, fence: wrong.1 });
    }
    done(&mut state, Command::PauseMigration { id, paused: true });
    assert_eq!(refused(&state, to(&state, (2, 4))), Refusal::MigrationStage(MigrationStage::Paused));
    let view = state.view();
    done(&mut state, Command::PauseMigration { id, paused: true });
    assert_eq!(state.view(), view, "it rests already");
    done(&mut state, Command::PauseMigration { id, paused: false });
    let next = to(&state, (2, 90));
    done(&mut state, next);
    done(&mut state, Command::SetMigrationRate { id, rate: Some(u64::MAX) });
    assert_eq!((window(&state), only(&state).rate), ((2, 90), Some(i64::MAX as u64)));
    for window in [(90, 100), (100, 100)] {
        let next = to(&state, window);
        done(&mut state, next);
    }
    assert!(state.migrations.is_empty());
}

#[test]
fn what_is_cancelled_goes_back_from_the_other_end_and_is_as_it_was_then() {
    for paused in [false, true] {
        let mut state = with_clone();
        let before = state.clone();
        done(&mut state, begin("v", "mirror:3"));
        for _ in 0..2 {
            let next = next(&state, 5);
            done(&mut state, next);
        }
        assert_eq!(window(&state), (7, 12));
        let id = MapId(2);
        done(&mut state, Command::PauseMigration { id, paused });
        let (view, late) = (state.view(), next(&state, 1));
        done(&mut state, Command::TurnMigration { id, cancelled: true });
        done(&mut state, Command::TurnMigration { id, cancelled: true });
        assert_eq!(refused(&state, late), Refusal::WindowChanged { done: 88, fence: 93 });
        let record = only(&state);
        assert_eq!((record.source, record.target, record.stage), (MapId(2), MapId(1), MigrationStage::Running));
        assert_eq!(
            (record.cancelled, window(&state), record.since, state.view()),
            (true, (88, 93), view + 1, view + 1)
        );
        assert_eq!((map_of(&state, "v"), map_of(&state, "c")), (MapId(2), MapId(2)), "where they come from");
        done(&mut state, take("c", "meanwhile"));
        resized(&mut state, "v", 200 * CHUNK);
        resized(&mut state, "v", 100 * CHUNK);
        for _ in 0..2 {
            let next = next(&state, 7);
            done(&mut state, next);
        }
        assert!(state.migrations.is_empty());
        assert!(state.maps.keys().eq(before.maps.keys()));
        for name in ["v", "c"] {
            let [now, then] = [&state, &before].map(|state| state.volume_named(name).unwrap());
            assert_eq!((now.map, &now.layout, now.size, now.origin), (then.map, &then.layout, then.size, then.origin));
        }
        check_readers(&state);
    }
}

#[test]
fn a_volume_that_was_grown_meanwhile_goes_on_and_does_not_come_back() {
    let mut state = with_volume();
    done(&mut state, begin("v", "mirror:2"));
    resized(&mut state, "v", 100 * CHUNK + 512);
    let cancel = Command::TurnMigration { id: MapId(2), cancelled: true };
    assert_eq!(refused(&state, cancel.clone()), Refusal::GrownSince("v".to_owned()));
    done(&mut state, take("v", "long"));
    resized(&mut state, "v", 512);
    assert_eq!(refused(&state, cancel.clone()), Refusal::GrownSince("v".to_owned()), "the snapshot is as long");
    done(&mut state, roll_back("v", "long"));
    done(&mut state, Command::RemoveSnapshot { volume: "v".to_owned(), name: "long".to_owned() });
    resized(&mut state, "v", 512);
    done(&mut state, cancel);
    // On the way back, what is grown comes where that leads.
    resized(&mut state, "v", 101 * CHUNK);
    let forth = Command::TurnMigration { id: MapId(2), cancelled: false };
    assert_eq!(refused(&state, forth), Refusal::GrownSince("v".to_owned()));
}

/// Story: on its way back to drives that were full a volume could neither come back nor go on.
#[test]
fn a_volume_may_turn_around_again_and_again_and_nothing_of_an_earlier_way_counts() {
    let mut state = with_clone();
    done(&mut state, begin("v", "mirror:2"));
    for chunks in [40, 8] {
        let next = next(&state, chunks);
        done(&mut state, next);
    }
    let mut late: Vec<Command> = Vec::new();
    for (turns, has_it) in (1..=5).zip([MapId(2), MapId(1)].into_iter().cycle()) {
        let before = only(&state).clone();
        late.push(next(&state, 3));
        let turned = turn(&state);
        done(&mut state, turned);
        let record = only(&state).clone();
        assert_eq!((record.source, record.target, record.cancelled), (before.target, before.source, turns % 2 == 1));
        assert_eq!((record.done, record.fence), (100 - before.fence, 100 - before.done));
        assert_eq!((map_of(&state, "v"), map_of(&state, "c")), (has_it, has_it));
        assert!(record.since > before.since && record.stage == MigrationStage::Running);
        for late in &late {
            assert!(matches!(refused(&state, late.clone()), Refusal::WindowChanged { .. }));
        }
        let next = next(&state, 1);
        done(&mut state, next);
    }
}

#[test]
fn a_clone_that_is_flattened_has_a_map_of_its_own_with_what_it_sees_and_the_others_have_theirs() {
    let mut state = with_clone();
    done(&mut state, take("c", "own"));
    done(&mut state, flatten("c"));
    let record = only(&state).clone();
    assert_eq!(
        (record.leaves, record.layout.to_string()),
        (state.volume_named("c").map(|c| c.id), "stripe".to_owned())
    );
    assert!(state.migration_of(state.volume_named("v").unwrap()).is_none());
    // Both maps know what is made meanwhile.
    done(&mut state, take("v", "t"));
    done(&mut state, clone("v", "t", "d"));
    done(&mut state, take("c", "later"));
    assert_eq!(state.maps[&MapId(1)].newest_epoch, state.maps[&MapId(2)].newest_epoch);
    assert_eq!(state.history_of(MapId(1)), state.history_of(MapId(2)));
    assert_eq!(refused(&state, clone("c", "own", "e")), Refusal::Flattening("c".to_owned()));
    let newest = state.maps[&MapId(1)].newest_epoch;
    let last = |state: &State| {
        let record = only(state);
        Command::MoveWindow { id: record.id, since: record.since, to: (record.fence, record.chunks) }
    };
    for _ in 0..2 {
        let last = last(&state);
        done(&mut state, last);
    }
    let clone = state.volume_named("c").unwrap();
    assert_eq!((clone.map, clone.origin, clone.layout.to_string()), (MapId(2), None, "stripe".to_owned()));
    assert_eq!((map_of(&state, "v"), map_of(&state, "d")), (MapId(1), MapId(1)));
    let readers = |map| state.history_of(MapId(map)).readers().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(readers(2), ["0-1,3-3", "0-1,3-4", "0-1,3-4,7-7"]);
    assert_eq!(readers(1), ["0-1", "0-2", "0-2,5-5", "0-2,6-6"]);
    assert_eq!(state.maps[&MapId(2)].newest_epoch, newest);
    check_readers(&state);
    // From here on nothing binds them to each other.
    done(&mut state, gone("v"));
    done(&mut state, Command::FinishRemoveVolume { id: VolumeId(1) });
    done(&mut state, begin("c", "mirror:2"));
    done(&mut state, begin("d", "mirror:2"));
}

/// Story: what a clone shared with its origin became its own while it was being flattened, when the origin was removed: it was taken over
/// again, over what had been written since.
#[test]
fn what_a_volume_that_is_flattened_shares_stays_shared_until_it_has_left() {
    let snapshot_gone = |volume: &str, name: &str| {
        let (volume, name) = (volume.to_owned(), name.to_owned());
        Command::RemoveSnapshot { volume, name }
    };
    let mut state = with_clone();
    done(&mut state, clone("v", "s", "d"));
    done(&mut state, take("v", "t"));
    done(&mut state, clone("v", "t", "e"));
    done(&mut state, roll_back("v", "s"));
    done(&mut state, take("e", "u"));
    done(&mut state, flatten("e"));
    let refusal = Refusal::FlattenedFrom("e".to_owned());
    assert_eq!(refused(&state, snapshot_gone("v", "t")), refusal, "the volume sees it no more, and the clone does");
    assert_eq!(refused(&state, gone("v")), refusal);
    for other in [gone("c"), snapshot_gone("v", "s"), snapshot_gone("e", "u"), roll_back("v", "t"), gone("e")] {
        done(&mut state.clone(), other);
    }
    // Of those that share all of it one must stay.
    done(&mut state, roll_back("v", "t"));
    done(&mut state, snapshot_gone("v", "t"));
    assert_eq!(refused(&state, roll_back("v", "s")), refusal);
    let turned = turn(&state);
    done(&mut state, turned);
    assert_eq!(refused(&state, roll_back("v", "s")), refusal, "also on its way back");
}

/// Story: the API refused to flatten, and what was proposed otherwise took over nothing, for ever.
#[test]
fn a_volume_leaves_no_others_where_servers_cannot_take_over_what_it_alone_has() {
    let state = with_clone();
    let earlier = Proposal { version: 3, ..Proposal::new(5, None, flatten("c")) };
    assert_eq!(apply(&state, &earlier).map(drop), Err(Refusal::CannotLeave("c".to_owned())));
    assert!(apply(&state, &Proposal::new(5, None, flatten("c"))).is_ok());
}

#[test]
fn volumes_may_be_removed_at_any_moment_and_the_maps_go_with_the_last_one_that_has_them() {
    let finish = |id| Command::FinishRemoveVolume { id: VolumeId(id) };
    for way_back in [false, true] {
        let under_way = |first: Command| {
            let mut state = with_clone();
            done(&mut state, first);
            if way_back {
                let turned = turn(&state);
                done(&mut state, turned);
            }
            state
        };
        let maps = |state: &State| state.maps.keys().map(|map| map.0).collect::<Vec<_>>();
        // All go: with the last of them both maps are gone.
        let mut state = under_way(begin("v", "mirror:2"));
        done(&mut state, gone("v"));
        let view = state.view();
        done(&mut state, gone("c"));
        assert_eq!(state.view(), view + 1, "servers stop taking over");
        done(&mut state, finish(1));
        assert_eq!((maps(&state), state.migrations.len()), (vec![1, 2], 1));
        done(&mut state, finish(2));
        assert_eq!((maps(&state), state.migrations.len()), (vec![], 0));
        // The clone alone goes, and is removed.
        let mut state = under_way(flatten("c"));
        done(&mut state, gone("c"));
        done(&mut state, finish(2));
        assert_eq!((maps(&state), state.migrations.len()), (vec![1], 0));
        done(&mut state, begin("v", "mirror:2"));
        // Those that it leaves stay until it has left.
        let mut state = under_way(flatten("c"));
        assert_eq!(refused(&state, gone("v")), Refusal::FlattenedFrom("c".to_owned()));
        let target = only(&state).target;
        for _ in 0..60 {
            if !state.migrations.is_empty() {
                let next = next(&state, 2);
                done(&mut state, next);
            }
        }
        let with_c = if way_back { vec![1] } else { vec![1, 2] };
        assert_eq!((maps(&state), map_of(&state, "c")), (with_c, target));
        done(&mut state, gone("v"));
        done(&mut state, finish(1));
        assert_eq!(maps(&state), [target.0]);
        // One that is being removed while the last window ends.
        let mut state = under_way(begin("v", "mirror:2"));
        let target = only(&state).target;
        done(&mut state, gone("v"));
        for _ in 0..60 {
            if !state.migrations.is_empty() {
                let next = next(&state, 2);
                done(&mut state, next);
            }
        }
        done(&mut state, finish(1));
        assert_eq!((maps(&state), map_of(&state, "c")), (vec![target.0], target));
    }
}

#[test]
fn a_drive_that_holds_what_volumes_go_to_is_one_of_theirs() {
    let mut state = cluster(&[(1, 1), (2, 2)]);
    done(&mut state, create("v", "stripe"));
    done(&mut state, super::tests::add_drive(3, 2));
    done(&mut state, begin("v", "mirror:2"));
    let target = only(&state).target;
    let used = state.maps[&target].drives();
    assert!(used.contains(&DriveId(3)) && !state.maps[&MapId(1)].uses(DriveId(3)));
    assert!(state.volumes_on(DriveId(3)).any(|volume| volume.name == "v"));
    let removed = done(&mut state, Command::RemoveDrive { id: DriveId(3), force: true });
    assert_eq!(removed, Reply::DriveRetired { volumes: vec!["v".to_owned()] });
    assert_eq!(state.drives[&DriveId(3)].state, DriveState::Failed);
}

/// Story: a drive was removed that a volume had copies on; the volume left it behind with its map, or was removed, and the drive was
/// listed for ever.
#[test]
fn a_drive_that_was_removed_is_forgotten_with_the_last_map_that_names_it() {
    let remove = || Command::RemoveDrive { id: DriveId(4), force: true };
    // What has gone doesn't need it.
    let mut state = with_volume();
    done(&mut state, remove());
    done(&mut state, begin("v", "mirror:2"));
    assert!(!state.maps[&MapId(2)].uses(DriveId(4)) && state.maps[&MapId(1)].uses(DriveId(4)));
    for chunks in [98, 0] {
        assert!(state.drives.contains_key(&DriveId(4)));
        let next = next(&state, chunks);
        done(&mut state, next);
    }
    assert!(state.migrations.is_empty() && !state.drives.contains_key(&DriveId(4)));
    // Nor does what is removed on its way.
    let mut state = with_volume();
    done(&mut state, begin("v", "mirror:2"));
    done(&mut state, remove());
    done(&mut state, gone("v"));
    assert!(state.drives.contains_key(&DriveId(4)));
    done(&mut state, Command::FinishRemoveVolume { id: VolumeId(1) });
    assert!(state.maps.is_empty() && !state.drives.contains_key(&DriveId(4)));
}

/// What is done to volumes that go.
#[derive(Clone, Copy, Debug)]
enum Step {
    Begin(&'static str),
    Flatten,
    Next(u64),
    Take(u64),
    Pause(bool),
    Turn(bool),
    Snapshot,
    Clone,
    Resize(u64),
    Remove,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => prop::sample::select(vec!["stripe", "mirror:2", "chained", "mirror:3;extent=4K"]).prop_map(Step::Begin),
        2 => Just(Step::Flatten),
        8 => (1u64..9).prop_map(Step::Next),
        4 => any::<u64>().prop_map(Step::Take),
        1 => any::<bool>().prop_map(Step::Pause),
        3 => any::<bool>().prop_map(Step::Turn),
        2 => Just(Step::Snapshot),
        2 => Just(Step::Clone),
        2 => (1u64..24).prop_map(Step::Resize),
        1 => Just(Step::Remove),
    ]
}

/// Where each chunk is of what goes: as servers have it that do what is agreed.
#[derive(Default)]
struct Chunks(Vec<MapId>);

impl Chunks {
    /// The place of a chunk in the order in which they go now.
    fn position(record: &MigrationRecord, chunk: u64) -> u64 {
        let position = record.order().position(chunk);
        if record.cancelled { record.chunks - 1 - position } else { position }
    }

    fn check(&self, record: &MigrationRecord) {
        assert!(record.done < record.fence && record.fence <= record.chunks);
        assert_eq!(self.0.len() as u64, record.chunks);
        for (chunk, is_at) in (0..).zip(&self.0) {
            let position = Chunks::position(record, chunk);
            match position {
                at if at < record.done => assert_eq!(*is_at, record.target, "{chunk} at {at}: {record:?}"),
                at if at >= record.fence => assert_eq!(*is_at, record.source, "{chunk} at {at}: {record:?}"),
                _ => assert!(record.is_about(*is_at)),
            }
        }
    }

    fn take(&mut self, record: &MigrationRecord, is_taken: impl Fn(u64) -> bool) {
        for (chunk, is_at) in (0..).zip(&mut self.0) {
            let is_in_window = (record.done..record.fence).contains(&Chunks::position(record, chunk));
            if is_in_window && is_taken(chunk) {
                *is_at = record.target;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is done, each chunk is where both windows of before and after say, and at the end all are where the volumes look
    /// for them.
    #[test]
    fn every_chunk_is_where_it_is_looked_for_whatever_is_done(steps in prop::collection::vec(step(), 1..120)) {
        let mut state = with_clone();
        resized(&mut state, "v", 20 * CHUNK);
        resized(&mut state, "c", 20 * CHUNK);
        done(&mut state, Command::RemoveSnapshot { volume: "v".to_owned(), name: "s".to_owned() });
        let (mut digest, mut chunks) = (Digest::of(&state), Chunks::default());
        for (nth, step) in (0..).zip(steps) {
            let record = state.migrations.values().next().map(|record| MigrationRecord::clone(record));
            let id = record.as_ref().map_or(MapId(0), |record| record.id);
            let names: Vec<String> = state.active_volumes().map(|volume| volume.name.clone()).collect();
            let Some(name) = names.get(nth % names.len().max(1)).cloned() else { break };
            let name = name.as_str();
            let mut commands = match step {
                Step::Begin(layout) if record.is_none() => vec![begin(name, layout)],
                Step::Flatten if record.is_none() => vec![flatten(name)],
                Step::Take(which) => {
                    record.as_ref().inspect(|record| chunks.take(record, |chunk| which >> (chunk % 64) & 1 == 1));
                    vec![]
                }
                Step::Next(count) => record.as_ref().map_or(vec![], |record| {
                    let to = (record.fence, (record.fence + count).min(record.chunks));
                    vec![Command::MoveWindow { id, since: record.since, to }]
                }),
                Step::Pause(paused) => vec![Command::PauseMigration { id, paused }],
                Step::Turn(cancelled) => vec![Command::TurnMigration { id, cancelled }],
                Step::Snapshot => vec![take(name, &format!("s{nth}"))],
                Step::Clone => vec![take(name, &format!("s{nth}")), clone(name, &format!("s{nth}"), &format!("c{nth}"))],
                Step::Resize(size) => vec![resize(&state, name, size * CHUNK)],
                Step::Remove => {
                    let id = state.volume_named(name).unwrap().id;
                    vec![gone(name), Command::FinishRemoveVolume { id }]
                }
                Step::Begin(_) | Step::Flatten => vec![],
            };
            for command in commands.drain(..) {
                let Ok(applied) = apply(&state, &proposal(command.clone())) else { continue };
                digest = digest.after(&state, &applied.changes, &applied.state.counters);
                match (&command, &record) {
                    // Only when all of them have been taken over.
                    (Command::MoveWindow { .. }, Some(record)) => chunks.take(record, |_| true),
                    (Command::BeginMigration { .. }, _) => {
                        let record = applied.state.migrations.values().next().unwrap();
                        chunks.0 = vec![record.source; record.chunks as usize];
                    }
                    _ => {}
                }
                if let (Some(record), true) = (&record, applied.state.migrations.is_empty()) {
                    let went = applied.state.active_volumes().filter(|volume| volume.map == record.target).count();
                    let before = state.volumes_that_go(record).count();
                    if matches!(command, Command::MoveWindow { .. }) {
                        prop_assert!(chunks.0.iter().all(|is_at| *is_at == record.target));
                        prop_assert!(went >= before, "all have the target");
                    }
                }
                state = applied.state;
                prop_assert_eq!(digest, Digest::of(&state));
                state.migrations.values().for_each(|record| chunks.check(record));
                crate::state_machine::tests::check_references(&state);
            }
        }
    }
}
