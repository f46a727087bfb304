//! A volume that is used while it's imported, from its creation to its end.

use super::snapshot_tests::take;
use super::tests::{cluster, create, done, refused};
use super::*;
use crate::access::{LiveRecord, LiveStage};
use crate::command::LiveCommand;
use crate::conditions::Versioned;
use crate::record::DriveState;
use tepal_model::DriveId;

const SIZE: u64 = 1 << 30;

fn import(name: &str, layout: &str) -> Command {
    let (name, layout) = (name.to_owned(), Some(layout.to_owned()));
    let create = Command::CreateVolume { name, size: SIZE, layout, pool: crate::DEFAULT_POOL.to_owned() };
    Command::Live(LiveCommand::Import {
        create: Box::new(create),
        from: "nbd://old/disk".to_owned(),
        length: SIZE - 512,
    })
}

fn live(state: &State) -> Option<LiveRecord> {
    let volume = state.volume_named("v")?;
    state.access.live_imports.get(&volume.id).map(|record| LiveRecord::clone(record))
}

fn note(done: u64) -> Command {
    Command::Live(LiveCommand::Note { volume: VolumeId(1), done })
}

fn finish() -> Command {
    Command::Live(LiveCommand::Finish { volume: VolumeId(1) })
}

fn set(stage: LiveStage) -> Command {
    Command::Live(LiveCommand::Set { name: "v".to_owned(), stage })
}

#[test]
fn a_volume_is_imported_live_from_its_creation_until_all_of_it_is_there() {
    let mut state = cluster(&[(1, 1), (2, 2)]);
    assert!(matches!(done(&mut state, import("v", "mirror:2")), Reply::VolumeCreated { .. }));
    let expected = |done, stage| {
        let from = "nbd://old/disk".to_owned();
        Some(LiveRecord { volume: VolumeId(1), from, length: SIZE - 512, done, stage })
    };
    assert_eq!(live(&state), expected(0, LiveStage::Running));
    let revision = state.volume_named("v").unwrap().revision;
    done(&mut state, note(4096));
    done(&mut state, note(512));
    assert_eq!(live(&state), expected(4096, LiveStage::Running), "it only becomes more");
    assert_eq!(state.volume_named("v").unwrap().revision, revision, "clients go on");
    assert_eq!(refused(&state, finish()), Refusal::LiveHalfway("v".to_owned()));
    let mut cancelled = state.clone();
    done(&mut cancelled, set(LiveStage::Cancelled));
    assert_eq!(refused(&cancelled, set(LiveStage::Paused)), Refusal::LiveCancelled("v".to_owned()));
    for stage in [LiveStage::Paused, LiveStage::Cancelled, LiveStage::Running] {
        done(&mut state, set(stage));
        assert_eq!(live(&state), expected(4096, stage));
    }
    done(&mut state, note(u64::MAX));
    done(&mut state, finish());
    assert_eq!(live(&state), None);
    assert!(state.volume_named("v").unwrap().revision > revision, "nobody reads elsewhere any more");
    for command in [finish(), note(1), set(LiveStage::Paused)] {
        assert_eq!(refused(&state, command), Refusal::NotLive("v".to_owned()));
    }
    done(&mut state, take("v", "a"));
}

/// Story: what a drive had lost for good was zeros from then on, and the old place had it.
#[test]
fn what_is_lost_for_good_is_copied_again_unless_its_old_place_is_let_go() {
    let mut begun = cluster(&[(1, 1), (2, 2)]);
    done(&mut begun, import("v", "mirror:2"));
    done(&mut begun, note(SIZE / 2));
    for (stage, left) in [(LiveStage::Running, 0), (LiveStage::Paused, 0), (LiveStage::Cancelled, SIZE / 2)] {
        let mut state = begun.clone();
        done(&mut state, set(stage));
        let failed = Command::SetDriveState {
            id: DriveId(1),
            to: DriveState::Failed,
            reason: String::new(),
            expected_view: None,
        };
        done(&mut state, failed);
        let (revision, tag) =
            (state.volume_named("v").unwrap().revision, state.tag_of(&Versioned::Volume(VolumeId(1))));
        done(&mut state, Command::AcceptLoss { volume: VolumeId(1), view: 0 });
        let now = live(&state).unwrap();
        assert_eq!((now.done, now.stage), (left, stage));
        assert_eq!(state.volume_named("v").unwrap().revision > revision, left == 0, "nobody goes by what was there");
        // Whoever copied before doesn't know of the loss yet.
        let late = Command::IfMatch {
            thing: Versioned::Volume(VolumeId(1)),
            expected: tag.into_iter().collect(),
            command: Box::new(note(SIZE)),
        };
        if left == 0 {
            assert!(matches!(refused(&state, late), Refusal::OtherRevision { .. }));
        }
    }
}

/// Story: a snapshot would have kept what was there, and none of what was still elsewhere.
#[test]
fn what_needs_all_of_a_volume_waits_for_its_live_import() {
    let mut state = cluster(&[(1, 1), (2, 2)]);
    done(&mut state, import("v", "stripe"));
    let name = || "v".to_owned();
    let relayout = Command::BeginMigration {
        volume: name(),
        layout: Some("mirror:2".to_owned()),
        alone: false,
        range: None,
        pool: None,
        seed: 1,
        rate: None,
    };
    let resize = Command::ResizeVolume { name: name(), size: 2 * SIZE, shrink: false, cleared: None };
    for command in [take("v", "a"), relayout, resize, Command::NoteImport { name: name(), import: 1, done: 0 }] {
        assert_eq!(refused(&state, command), Refusal::Live(name()));
    }
    done(&mut state, Command::RenameVolume { name: name(), new_name: "w".to_owned() });
    done(&mut state, Command::RemoveVolume { name: "w".to_owned(), snapshots: false });
    assert!(state.access.live_imports.is_empty());
}

#[test]
fn only_layouts_of_whole_copies_are_imported_live_and_nothing_is_left_of_others() {
    let state = cluster(&[(1, 1), (2, 2), (3, 3)]);
    assert_eq!(refused(&state, import("v", "ec:2+1")), Refusal::LiveLayout("v".to_owned()));
    assert!(state.volume_named("v").is_none());
    let mut empty = import("v", "stripe");
    if let Command::Live(LiveCommand::Import { from, .. }) = &mut empty {
        from.clear();
    }
    assert!(matches!(refused(&state, empty), Refusal::LiveAddress { .. }));
    let create = Box::new(create("v", "stripe"));
    let longer = Command::Live(LiveCommand::Import { create, from: "x".to_owned(), length: u64::MAX });
    assert!(matches!(refused(&state, longer), Refusal::LiveAddress { .. }));
}
