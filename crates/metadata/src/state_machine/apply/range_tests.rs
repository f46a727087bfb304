//! Ranges of volumes that go to layouts of their own.

use super::tests::{cluster, create, done, refused};
use crate::command::{Command, Reply};
use crate::record::{MigrationRecord, VolumeRecord};
use crate::refusal::Refusal;
use crate::state::State;
use tepal_model::{CHUNK, MapId};

const SEED: u64 = 7;

fn begin(volume: &str, (from, to): (u64, u64), layout: &str) -> Command {
    Command::BeginMigration {
        volume: volume.to_owned(),
        layout: Some(layout.to_owned()),
        alone: false,
        pool: None,
        range: Some((from * CHUNK, to * CHUNK)),
        seed: SEED,
        rate: None,
    }
}

fn only(state: &State) -> &MigrationRecord {
    state.migrations.values().next().expect("something goes")
}

fn volume<'a>(state: &'a State, name: &str) -> &'a VolumeRecord {
    state.volume_named(name).expect("it's there")
}

fn table(state: &State, name: &str) -> String {
    let in_chunks = |(bytes, map): (std::ops::Range<u64>, MapId)| format!("{}:{}", bytes.start / CHUNK, map.0);
    volume(state, name).table().iter().map(in_chunks).collect::<Vec<_>>().join(" ")
}

fn goes_to_its_end(state: &mut State) {
    while let Some(record) = state.migrations.values().next().map(|record| MigrationRecord::clone(record)) {
        let to = (record.fence, (record.fence + 1).min(record.chunks));
        done(state, Command::MoveWindow { id: record.id, since: record.since, to });
    }
}

/// Of 16 chunks, with a clone.
fn with_clone() -> State {
    let mut state = cluster(&[(1, 1), (2, 2), (3, 3)]);
    let (size, layout) = (16 * CHUNK, Some("mirror:2".to_owned()));
    let pool = crate::DEFAULT_POOL.to_owned();
    done(&mut state, Command::CreateVolume { name: "v".to_owned(), size, layout, pool });
    let (volume, snapshot) = ("v".to_owned(), "s".to_owned());
    done(&mut state, Command::CreateSnapshot { volume: volume.clone(), name: snapshot.clone() });
    done(&mut state, Command::CloneVolume { volume, snapshot, name: "c".to_owned() });
    state
}

#[test]
fn a_range_and_its_clones_have_a_map_of_their_own_when_it_is_there() {
    let mut state = with_clone();
    let before = volume(&state, "v").revision;
    let Reply::MigrationBegun { id, .. } = done(&mut state, begin("v", (4, 8), "ec:2+1")) else { panic!("it begins") };
    let way = only(&state);
    assert_eq!((way.first, way.chunks, way.ends, way.source, way.target), (4, 4, true, MapId(1), id));
    assert!(way.takes(volume(&state, "c")) && state.maps_of(volume(&state, "c")).count() == 2);
    assert_eq!((table(&state, "v"), volume(&state, "v").revision), ("0:1".to_owned(), before));
    goes_to_its_end(&mut state);
    assert_eq!((table(&state, "v"), table(&state, "c")), ("0:1 4:2 8:1".to_owned(), "0:1 4:2 8:1".to_owned()));
    assert!(volume(&state, "v").revision > before, "requests by the earlier table are refused");
    assert_eq!(volume(&state, "v").layout.to_string(), "mirror:2");
    assert_eq!(state.history_of(id), state.history_of(MapId(1)));
    // A new epoch is new to all maps.
    done(&mut state, Command::CreateSnapshot { volume: "c".to_owned(), name: "t".to_owned() });
    assert_eq!(state.maps[&MapId(1)].newest_epoch, state.maps[&id].newest_epoch);
}

#[test]
fn ranges_of_one_layout_share_a_map_and_come_together() {
    let mut state = with_clone();
    for (range, expected) in
        [((4, 8), "0:1 4:2 8:1"), ((12, 16), "0:1 4:2 8:1 12:2"), ((8, 12), "0:1 4:2"), ((0, 4), "0:2")]
    {
        done(&mut state, begin("v", range, "stripe"));
        goes_to_its_end(&mut state);
        assert_eq!(table(&state, "c"), expected);
    }
    // A volume with one layout is as any other.
    let last = volume(&state, "v");
    assert_eq!((last.layout.to_string(), last.map, &last.ranges), ("stripe".to_owned(), MapId(2), &None));
    assert_eq!(state.maps.keys().copied().collect::<Vec<_>>(), [MapId(2)]);
}

#[test]
fn a_range_that_is_cancelled_leaves_the_table_as_it_was() {
    let mut state = with_clone();
    done(&mut state, begin("v", (0, 4), "stripe"));
    goes_to_its_end(&mut state);
    done(&mut state, begin("v", (8, 16), "mirror:3"));
    assert!(!only(&state).ends, "what ends with the volume goes on with it");
    let id = only(&state).id;
    done(&mut state, Command::TurnMigration { id, cancelled: true });
    assert_eq!((only(&state).source, only(&state).target), (id, MapId(1)));
    goes_to_its_end(&mut state);
    assert_eq!(table(&state, "v"), "0:2 4:1");
    assert!(!state.maps.contains_key(&id));
    done(&mut state, begin("v", (4, 8), "mirror:3"));
    let (id, cleared) = (only(&state).id, state.as_cleared(volume(&state, "v")));
    done(
        &mut state,
        Command::ResizeVolume { name: "v".to_owned(), size: 20 * CHUNK, shrink: false, cleared: Some(cleared) },
    );
    // Growth is of the last range, which doesn't go.
    done(&mut state, Command::TurnMigration { id, cancelled: true });
}

#[test]
fn what_a_range_can_not_do_is_refused_by_name() {
    let mut state = with_clone();
    let not_whole = Refusal::RangeNotWhole { at: 4 * CHUNK + 4096, chunk: CHUNK, size: 16 * CHUNK };
    let range = Some((4 * CHUNK + 4096, 8 * CHUNK));
    let (volume_name, layout) = ("v".to_owned(), Some("stripe".to_owned()));
    let odd =
        Command::BeginMigration { volume: volume_name, layout, alone: false, pool: None, range, seed: 1, rate: None };
    assert_eq!(refused(&state, odd), not_whole);
    let nothing = |from: u64, to: u64| {
        let (volume, size) = ("v".to_owned(), 16 * CHUNK);
        Refusal::NoSuchRange { volume, from: from * CHUNK, to: to * CHUNK, size }
    };
    assert_eq!(refused(&state, begin("v", (16, 20), "stripe")), nothing(16, 20));
    assert_eq!(refused(&state, begin("v", (4, 4), "stripe")), nothing(4, 4));
    let same = Refusal::SameLayout { volume: "v".to_owned(), layout: "mirror:2".to_owned() };
    assert_eq!(refused(&state, begin("v", (4, 8), "mirror:2")), same);
    done(&mut state, begin("v", (4, 8), "stripe"));
    let goes = Refusal::MigratesAlready { volume: "v".to_owned(), to: Some("stripe;domain=drive".to_owned()) };
    assert!(matches!(refused(&state, begin("c", (8, 12), "mirror:3")), Refusal::MigratesAlready { .. }), "{goes:?}");
    goes_to_its_end(&mut state);
    let several = Refusal::RangeOfSeveral { volume: "v".to_owned(), from: 0, to: 8 * CHUNK, until: 4 * CHUNK };
    assert_eq!(refused(&state, begin("v", (0, 8), "mirror:3")), several);
    let all = |alone: bool| {
        let (volume, layout) = ("c".to_owned(), (!alone).then(|| "mirror:3".to_owned()));
        Command::BeginMigration { volume, layout, alone, pool: None, range: None, seed: 1, rate: None }
    };
    assert_eq!(refused(&state, all(false)), Refusal::HasRanges { volume: "c".to_owned(), ranges: 3 });
    assert_eq!(refused(&state, all(true)), Refusal::FlattenOfRanges("c".to_owned()));
}

#[test]
fn a_removed_volume_leaves_no_map_of_its_ranges() {
    let mut state = with_clone();
    done(&mut state, begin("v", (4, 8), "stripe"));
    goes_to_its_end(&mut state);
    done(&mut state, begin("v", (8, 16), "mirror:3"));
    for name in ["v", "c"] {
        assert_eq!(state.maps.len(), 3);
        let id = volume(&state, name).id;
        done(&mut state, Command::RemoveVolume { name: name.to_owned(), snapshots: true });
        done(&mut state, Command::FinishRemoveVolume { id });
    }
    assert_eq!((state.maps.len(), state.migrations.len()), (0, 0));
}

#[test]
fn ranges_are_kept_in_the_copy_on_drives() {
    let mut state = with_clone();
    done(&mut state, begin("v", (4, 8), "stripe"));
    goes_to_its_end(&mut state);
    done(&mut state, begin("v", (8, 16), "mirror:3"));
    assert_eq!(State::from_copy(&state.to_copy()).expect("it reads back"), state);
    let mut small = create("w", "stripe");
    if let Command::CreateVolume { size, .. } = &mut small {
        *size = 4096;
    }
    done(&mut state, small);
    assert!(matches!(refused(&state, begin("w", (0, 4), "stripe")), Refusal::SameLayout { .. }), "that's all of it");
}
