//! What a replica lets happen to it, and how it becomes one, and a volume again.

use super::snapshot_tests::{clone, remove, roll_back, take};
use super::tests::{cluster, create, done, refused, resize, resized};
use super::*;
use crate::record::{ImportRecord, ReplicaSource};
use tepal_model::ClusterId;

const SOURCE: ReplicaSource = ReplicaSource { cluster: ClusterId(9), volume: VolumeId(7) };
const OTHER: ReplicaSource = ReplicaSource { cluster: ClusterId(8), volume: VolumeId(7) };

fn follow(source: ReplicaSource, base: Option<Epoch>) -> Command {
    Command::Follow { name: "v".to_owned(), source, called: "volume 'w' of there".to_owned(), base }
}

/// By one that has found the replica as it is.
fn receive(state: &State, import: u64, epoch: Epoch, done: u64) -> Command {
    let base = volume(state).replica.as_ref().and_then(|replica| replica.base);
    let before = volume(state).import.map(|own| own.id);
    Command::Receive { name: "v".to_owned(), source: SOURCE, import, base, before, epoch, done }
}

fn received(import: u64, name: &str, taken_unix_ms: u64) -> Command {
    Command::Received { name: "v".to_owned(), import, snapshot: name.to_owned(), taken_unix_ms }
}

fn promote(force: bool) -> Command {
    Command::Promote { name: "v".to_owned(), force }
}

fn replicated(command: Command) -> Command {
    Command::Replicated { source: SOURCE, import: None, command: Box::new(command) }
}

fn receives(state: &mut State, import: u64, epoch: Epoch, done: u64) {
    let command = receive(state, import, epoch, done);
    self::done(state, command);
}

fn volume(state: &State) -> &VolumeRecord {
    state.volume_named("v").unwrap()
}

fn replica() -> State {
    let mut state = cluster(&[(1, 1)]);
    done(&mut state, create("v", "stripe"));
    done(&mut state, follow(SOURCE, None));
    state
}

/// With a snapshot `a` that is whole, and one that isn't.
fn halfway() -> State {
    let mut state = replica();
    receives(&mut state, 5, 3, 0);
    done(&mut state, received(5, "a", 1000));
    receives(&mut state, 6, 4, 512);
    state
}

#[test]
fn a_replica_is_changed_only_by_replication_of_its_source() {
    let mut state = halfway();
    for command in [
        Command::NoteImport { name: "v".to_owned(), import: 8, done: 0 },
        Command::FinishImport { name: "v".to_owned(), import: 6 },
        resize(&state, "v", 8192),
        roll_back("v", "a"),
        remove("v", "a"),
        Command::RenameSnapshot { volume: "v".to_owned(), name: "a".to_owned(), new_name: "b".to_owned() },
    ] {
        let refusal = refused(&state, command.clone());
        assert!(matches!(refusal, Refusal::IsReplica { .. }), "{command:?}: {refusal}");
        assert!(
            refusal.to_string().contains("volume 'w' of there") && refusal.to_string().contains("replicate promote v")
        );
    }
    let (name, source) = ("v".to_owned(), OTHER);
    let of_other = Command::Receive { name, source, import: 8, base: None, before: Some(6), epoch: 5, done: 0 };
    assert!(matches!(refused(&state, of_other), Refusal::OtherReplica { .. }));
    assert!(matches!(refused(&state, follow(OTHER, None)), Refusal::OtherReplica { .. }));
    let not_of_it = Command::Replicated { source: OTHER, import: None, command: Box::new(roll_back("v", "a")) };
    assert!(matches!(refused(&state, not_of_it), Refusal::OtherReplica { .. }));
    done(&mut state, clone("v", "a", "c"));
    assert_eq!(state.volume_named("c").unwrap().replica, None, "its clone is an ordinary volume");
}

#[test]
fn a_snapshot_that_is_received_is_whole_and_kept_at_once() {
    let mut state = replica();
    receives(&mut state, 5, 3, 0);
    assert_eq!(refused(&state, take("v", "a")), Refusal::Incomplete("v".to_owned()));
    let revision = volume(&state).revision;
    receives(&mut state, 5, 3, 1024);
    assert_eq!(volume(&state).revision, revision, "what is under way goes on");
    assert_eq!(volume(&state).import, Some(ImportRecord { id: 5, done: 1024 }));
    assert_eq!(refused(&state, received(4, "a", 1000)), Refusal::ImportChanged("v".to_owned()));
    done(&mut state, received(5, "a", 1000));
    let (now, kept) = (volume(&state), state.snapshot_named(VolumeId(1), "a").unwrap());
    let replica = now.replica.as_ref().unwrap();
    assert_eq!((now.import, replica.receives, replica.base), (None, None, Some(kept.epoch)));
    assert_eq!(replica.as_of_unix_ms, 1000);
    assert_eq!(kept.copy_of.map(|copy| (copy.source, copy.epoch, copy.unix_ms)), Some((SOURCE, 3, 1000)));
    done(&mut state, Command::NoteReplica { name: "v".to_owned(), source: SOURCE, as_of_unix_ms: 3000 });
    done(&mut state, Command::NoteReplica { name: "v".to_owned(), source: SOURCE, as_of_unix_ms: 2000 });
    assert_eq!(volume(&state).replica.as_ref().unwrap().as_of_unix_ms, 3000);
}

#[test]
fn who_receives_later_takes_the_place_of_the_first() {
    let mut state = halfway();
    receives(&mut state, 7, 4, 512);
    assert_eq!(refused(&state, received(6, "b", 2000)), Refusal::ImportChanged("v".to_owned()));
    done(&mut state, received(7, "b", 2000));
}

#[test]
fn of_two_that_found_the_same_replica_only_the_first_writes() {
    let mut state = halfway();
    // Both found the part of epoch 4, and that of 6 to be the writer.
    let (first, second) = (receive(&state, 7, 4, 512), receive(&state, 8, 4, 512));
    done(&mut state, first.clone());
    let changed = Refusal::ImportChanged("v".to_owned());
    assert_eq!(refused(&state, second.clone()), changed);
    done(&mut state, first); // whose answer got lost
    done(&mut state, received(7, "b", 2000));
    assert_eq!(refused(&state, second), changed);
    // Both found it whole.
    let (first, second) = (receive(&state, 9, 5, 0), receive(&state, 10, 6, 0));
    done(&mut state, first);
    assert_eq!(refused(&state, second.clone()), changed);
    let of_another = receive(&state, 9, 6, 0);
    assert_eq!(refused(&state, of_another), changed, "it goes on with what it began");
    done(&mut state, received(9, "c", 3000));
    assert_eq!(refused(&state, second), changed, "what it left out has changed since");
    let again = receive(&state, 11, 5, 0);
    assert_eq!(refused(&state, again), changed, "the replica has had that snapshot");
}

#[test]
fn what_is_rolled_back_is_as_of_the_older_snapshot() {
    let mut state = halfway();
    done(&mut state, received(6, "b", 2000));
    done(&mut state, replicated(roll_back("v", "a")));
    let base = state.snapshot_named(VolumeId(1), "a").unwrap().epoch;
    assert_eq!(volume(&state).replica.as_ref().map(|it| (it.base, it.as_of_unix_ms)), Some((Some(base), 1000)));
}

#[test]
fn replication_gives_its_replica_another_size_and_goes_on() {
    let mut state = halfway();
    let resized = |import, command| Command::Replicated { source: SOURCE, import, command: Box::new(command) };
    let larger = resize(&state, "v", 8192);
    for import in [None, Some(5)] {
        let refusal = refused(&state, resized(import, larger.clone()));
        assert_eq!(refusal, Refusal::ImportChanged("v".to_owned()), "another one writes");
    }
    done(&mut state, resized(Some(6), larger));
    let smaller = resize(&state, "v", 2048);
    done(&mut state, resized(Some(6), smaller));
    assert_eq!((volume(&state).size, volume(&state).import.unwrap().id), (2048, 6));
    done(&mut state, replicated(roll_back("v", "a")));
    let replica = volume(&state).replica.clone().unwrap();
    assert_eq!((volume(&state).size, volume(&state).import, replica.receives), (4096, None, None));
    done(&mut state, replicated(remove("v", "a")));
}

#[test]
fn what_is_promoted_holds_its_newest_whole_snapshot() {
    let mut state = halfway();
    let Reply::RolledBack { .. } = done(&mut state, promote(false)) else { panic!("a part is given up") };
    assert_eq!((volume(&state).replica.clone(), volume(&state).import), (None, None));
    assert_eq!(refused(&state, received(6, "b", 2000)), Refusal::NoReplica("v".to_owned()));
    let late = Command::Receive {
        name: "v".to_owned(),
        source: SOURCE,
        import: 6,
        base: None,
        before: None,
        epoch: 4,
        done: 0,
    };
    assert_eq!(refused(&state, late), Refusal::NoReplica("v".to_owned()));
    assert_eq!(refused(&state, promote(false)), Refusal::NoReplica("v".to_owned()));
    resized(&mut state, "v", 8192);
    // And may follow again, from where both had the same.
    let base = state.snapshot_named(VolumeId(1), "a").unwrap().epoch;
    done(&mut state, follow(OTHER, Some(base)));
    assert_eq!(volume(&state).replica.as_ref().map(|it| (it.base, it.as_of_unix_ms)), Some((Some(base), 1000)));
    assert!(matches!(refused(&state, remove("v", "a")), Refusal::IsReplica { .. }));
}

#[test]
fn without_a_whole_snapshot_only_force_promotes() {
    let mut state = replica();
    receives(&mut state, 5, 3, 512);
    assert_eq!(refused(&state, promote(false)), Refusal::NothingWhole("v".to_owned()));
    done(&mut state, promote(true));
    assert_eq!(volume(&state).import, Some(ImportRecord { id: 0, done: 512 }), "it stays incomplete");
    assert_eq!(refused(&state, follow(SOURCE, None)), Refusal::Incomplete("v".to_owned()));
}
