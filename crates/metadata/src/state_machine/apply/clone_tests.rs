use super::snapshot_tests::{clone, remove, roll_back, take};
use super::snapshots::MAX_SNAPSHOTS;
use super::tests::{cluster, create, done, refused, resized};
use super::*;
use crate::record::SnapshotId;
use tepal_model::{History, Lineage};

/// A volume with a snapshot `s`, of which there's a clone.
fn with_clone() -> State {
    let mut state = cluster(&[(1, 1)]);
    done(&mut state, create("v", "stripe"));
    done(&mut state, take("v", "s"));
    done(&mut state, clone("v", "s", "c"));
    state
}

fn named<'a>(state: &'a State, name: &str) -> &'a VolumeRecord {
    state.volume_named(name).unwrap()
}

fn gone(name: &str, snapshots: bool) -> Command {
    Command::RemoveVolume { name: name.to_owned(), snapshots }
}

fn readers(state: &State) -> Vec<String> {
    state.history_of(MapId(1)).readers().iter().map(Lineage::to_string).collect()
}

#[test]
fn a_clone_sees_what_its_snapshot_does_and_writes_in_an_epoch_and_since_a_view_of_its_own() {
    let mut state = cluster(&[(1, 1)]);
    done(&mut state, create("v", "stripe"));
    done(&mut state, take("v", "s"));
    resized(&mut state, "v", 8192);
    let (origin, view) = (named(&state, "v").clone(), state.view());
    assert_eq!(done(&mut state, clone("v", "s", "c")), Reply::VolumeCloned { id: VolumeId(2), view: view + 1 });
    let made = named(&state, "c");
    assert_eq!((made.map, made.size, made.revision), (origin.map, 4096, 1), "what the snapshot had");
    assert_eq!((made.epoch, made.lineage.to_string(), made.epoch_since), (3, "0-1,3-3".to_owned(), view + 1));
    assert_eq!(made.origin, Some(SnapshotId { volume: origin.id, epoch: 1 }));
    assert_eq!(*named(&state, "v"), origin, "nothing happens to the origin");
    assert_eq!(readers(&state), ["0-1", "0-2", "0-1,3-3"]);
    // Both go on by themselves.
    done(&mut state, take("c", "s"));
    done(&mut state, take("v", "t"));
    assert_eq!(readers(&state), ["0-1", "0-2", "0-1,3-3", "0-1,3-4", "0-2,5-5"]);
    done(&mut state, roll_back("c", "s"));
    assert_eq!((readers(&state).last().unwrap().as_str(), named(&state, "c").epoch), ("0-1,3-3,6-6", 6));
    done(&mut state, clone("c", "s", "d"));
    assert_eq!(named(&state, "d").lineage.to_string(), "0-1,3-3,7-7");
}

#[test]
fn volumes_of_one_map_are_removed_in_any_order_and_the_map_goes_with_the_last_one() {
    for order in [["v", "c"], ["c", "v"]] {
        let mut state = with_clone();
        let ids = order.map(|name| named(&state, name).id);
        let view = state.view();
        done(&mut state, gone(order[0], true));
        assert_eq!(state.view(), view + 1, "drives wait until all know it");
        let left = named(&state, order[1]).lineage.to_string();
        assert!(readers(&state).contains(&left) && state.volumes_of(MapId(1)).count() == 1);
        done(&mut state, Command::FinishRemoveVolume { id: ids[0] });
        assert!(state.maps.contains_key(&MapId(1)));
        done(&mut state, gone(order[1], true));
        assert_eq!((state.view(), state.history_of(MapId(1))), (view + 1, History::new([], 3)), "nobody reads it");
        done(&mut state, Command::FinishRemoveVolume { id: ids[1] });
        assert!(!state.maps.contains_key(&MapId(1)));
    }
    // Both at a time.
    let mut state = with_clone();
    done(&mut state, gone("v", true));
    done(&mut state, gone("c", false));
    done(&mut state, Command::FinishRemoveVolume { id: VolumeId(2) });
    assert!(state.maps.contains_key(&MapId(1)));
    done(&mut state, Command::FinishRemoveVolume { id: VolumeId(1) });
    assert!(state.maps.is_empty());
}

#[test]
fn a_volume_whose_snapshot_was_cloned_is_removed_with_its_snapshots_only_if_that_is_said() {
    let mut state = with_clone();
    let refusal = refused(&state, gone("v", false));
    assert_eq!(refusal, Refusal::VolumeHasSnapshots { name: "v".to_owned(), snapshots: 1 });
    done(&mut state, remove("v", "s"));
    done(&mut state, gone("v", false));
    assert_eq!(readers(&state), ["0-1,3-3"], "the clone sees what it saw");
}

#[test]
fn what_cannot_be_cloned_is_refused_by_name() {
    let mut state = with_clone();
    let no_snapshot = |volume: &str| Refusal::NoSnapshot { volume: volume.to_owned(), name: "t".to_owned() };
    for (command, refusal) in [
        (clone("w", "s", "d"), Refusal::NoVolume("w".to_owned())),
        (clone("v", "t", "d"), no_snapshot("v")),
        (clone("c", "t", "d"), no_snapshot("c")),
        (clone("v", "s", "v"), Refusal::VolumeExists("v".to_owned())),
        (clone("v", "s", "c"), Refusal::VolumeExists("c".to_owned())),
    ] {
        assert_eq!(refused(&state, command), refusal);
    }
    assert!(matches!(refused(&state, clone("v", "s", "a@b")), Refusal::Name { what: Thing::Volume, .. }));
    // The name of one that is being removed may be used again.
    done(&mut state, gone("c", false));
    done(&mut state, clone("v", "s", "c"));
    let map = MapRecord { newest_epoch: Epoch::MAX, ..(*state.maps[&MapId(1)]).clone() };
    state.maps.insert(map.id, Arc::new(map));
    assert_eq!(refused(&state, clone("v", "s", "d")), Refusal::NoEpochsLeft("v".to_owned()));
}

#[test]
fn a_map_has_only_so_many_readers_whichever_volumes_they_are_of() {
    let mut state = with_clone();
    // One after the other: whose epochs don't follow each other is full sooner.
    for (volume, nth) in
        ["v", "c"].into_iter().flat_map(|volume| (0..MAX_SNAPSHOTS / 2 - 1).map(move |nth| (volume, nth)))
    {
        done(&mut state, take(volume, &format!("s{nth}")));
    }
    let full = |volume: &str| Refusal::TooManySnapshots { volume: volume.to_owned(), limit: MAX_SNAPSHOTS };
    assert_eq!(refused(&state, take("v", "more")), full("v"));
    assert_eq!(refused(&state, clone("c", "s0", "d")), full("c"));
    done(&mut state, remove("c", "s1"));
    done(&mut state, clone("c", "s0", "d"));
    assert_eq!(refused(&state, take("d", "more")), full("d"));
}
