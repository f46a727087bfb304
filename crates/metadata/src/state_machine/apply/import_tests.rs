//! What makes a volume incomplete, and whole again.

use super::snapshot_tests::{roll_back, take};
use super::tests::{cluster, create, done, refused, resized};
use super::*;
use crate::record::ImportRecord;

fn note(import: u64, done: u64) -> Command {
    Command::NoteImport { name: "v".to_owned(), import, done }
}

fn finish(import: u64) -> Command {
    Command::FinishImport { name: "v".to_owned(), import }
}

fn import(state: &State) -> Option<(u64, u64)> {
    state.volume_named("v").unwrap().import.map(|ImportRecord { id, done }| (id, done))
}

fn with_volume() -> State {
    let mut state = cluster(&[(1, 1)]);
    done(&mut state, create("v", "stripe"));
    state
}

/// Story: a part of an image was attached, exported and kept as a snapshot as if it were all of it.
#[test]
fn a_volume_is_incomplete_from_the_beginning_of_an_import_to_its_end() {
    let mut state = with_volume();
    done(&mut state, note(7, 0));
    done(&mut state, note(7, 512));
    assert_eq!(import(&state), Some((7, 512)));
    assert_eq!(refused(&state, take("v", "a")), Refusal::Incomplete("v".to_owned()));
    assert_eq!(refused(&state, finish(8)), Refusal::ImportChanged("v".to_owned()));
    done(&mut state, finish(7));
    assert_eq!(import(&state), None);
    assert_eq!(refused(&state, finish(7)), Refusal::ImportChanged("v".to_owned()));
    done(&mut state, take("v", "a"));
}

/// Story: an import was killed just after it had made its volume, which was whole by what it said, and held nothing.
#[test]
fn a_volume_made_for_an_import_is_incomplete_at_once() {
    let mut state = cluster(&[(1, 1)]);
    let made = done(&mut state, Command::CreateForImport { create: Box::new(create("v", "stripe")), import: 7 });
    assert!(matches!(made, Reply::VolumeCreated { .. }));
    assert_eq!(import(&state), Some((7, 0)));
    assert_eq!(refused(&state, take("v", "a")), Refusal::Incomplete("v".to_owned()));
    done(&mut state, note(7, 512));
    done(&mut state, finish(7));
    assert_eq!(import(&state), None);
}

#[test]
fn another_import_takes_the_place_of_the_first() {
    let mut state = with_volume();
    done(&mut state, note(7, 512));
    done(&mut state, note(8, 0));
    assert_eq!(import(&state), Some((8, 0)));
    assert_eq!(refused(&state, finish(7)), Refusal::ImportChanged("v".to_owned()));
    done(&mut state, finish(8));
}

#[test]
fn what_is_cut_off_stays_incomplete_and_no_import_of_before_makes_it_whole() {
    let mut state = with_volume();
    done(&mut state, note(7, 4096));
    resized(&mut state, "v", 8192);
    assert_eq!(import(&state), Some((7, 4096)), "nothing is lost by growing");
    resized(&mut state, "v", 512);
    resized(&mut state, "v", 8192);
    assert_eq!(import(&state), Some((0, 512)));
    assert_eq!(refused(&state, finish(7)), Refusal::ImportChanged("v".to_owned()));
}

#[test]
fn what_is_rolled_back_is_whole() {
    let mut state = with_volume();
    done(&mut state, take("v", "a"));
    done(&mut state, note(7, 512));
    done(&mut state, roll_back("v", "a"));
    assert_eq!(import(&state), None);
    assert_eq!(refused(&state, finish(7)), Refusal::ImportChanged("v".to_owned()));
}
