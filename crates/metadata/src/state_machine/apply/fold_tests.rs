use super::snapshot_tests::{check_readers, clone, remove, roll_back, take};
use super::tests::{cluster, create, done, refused};
use super::*;
use crate::record::DriveState;
use tepal_model::history::{MAX_SPANS, Span};

/// Volume `v`, on two drives.
fn with_volume() -> State {
    let mut state = cluster(&[(1, 1), (2, 2)]);
    done(&mut state, create("v", "mirror:2"));
    state
}

fn lineage(state: &State, name: &str) -> String {
    state.volume_named(name).unwrap().lineage.to_string()
}

fn spans(state: &State, name: &str) -> usize {
    state.volume_named(name).unwrap().lineage.spans().len()
}

fn close(gaps: &[Span], view: u64) -> Command {
    Command::CloseGaps { map: MapId(1), gaps: gaps.to_vec(), view }
}

/// All that may be closed is, if there's any: no drive that takes writes has anything of it.
fn close_all(state: &mut State) {
    let gaps = state.gaps_to_close(MapId(1));
    if !gaps.is_empty() {
        let command = close(&gaps, state.view());
        done(state, command);
    }
    check_readers(state);
}

fn round(state: &mut State) {
    done(state, take("v", "t"));
    done(state, roll_back("v", "t"));
    done(state, remove("v", "t"));
}

fn set(state: &mut State, id: u64, to: DriveState) {
    let missed = (to == DriveState::Up).then(|| state.view());
    let command = Command::SetDriveState { id: DriveId(id), to, reason: String::new(), expected_view: missed };
    done(state, command);
}

fn leaves(state: &mut State, id: u64) {
    set(state, id, DriveState::Missing);
}

fn returns(state: &mut State, id: u64) {
    set(state, id, DriveState::Behind);
    set(state, id, DriveState::Up);
}

#[test]
fn what_nobody_sees_any_more_is_no_gap_once_it_is_closed() {
    let mut state = with_volume();
    done(&mut state, take("v", "a"));
    done(&mut state, roll_back("v", "a"));
    assert_eq!((lineage(&state, "v").as_str(), state.gaps_to_close(MapId(1))), ("0-1,3-3", vec![(2, 2)]));
    let (view, revision) = (state.view(), state.volume_named("v").unwrap().revision);
    done(&mut state, close(&[(2, 2)], view));
    assert_eq!((lineage(&state, "v").as_str(), state.gaps_to_close(MapId(1))), ("0-3", vec![]));
    assert_eq!((state.view(), state.volume_named("v").unwrap().revision), (view + 1, revision));
    assert_eq!(refused(&state, close(&[(2, 2)], view + 1)), Refusal::ViewChanged { view: view + 1 }, "it's done");
    done(&mut state, take("v", "b"));
    assert_eq!(lineage(&state, "v"), "0-4");
}

/// Story: a volume was rolled back while it was exported; once the gap was closed, it saw the epoch again in which the export had begun,
/// and what was read before and after was put together.
#[test]
fn no_epoch_before_a_rollback_counts_once_its_gap_closed() {
    let mut state = with_volume();
    let goes_on_from = |state: &State, name: &str, epoch| state.volume_named(name).unwrap().goes_on_from(epoch);
    assert!(goes_on_from(&state, "v", 0) && goes_on_from(&state, "v", 1) && !goes_on_from(&state, "v", 2));
    done(&mut state, take("v", "a"));
    assert!(goes_on_from(&state, "v", 1), "a snapshot changes nothing of what the volume holds");
    done(&mut state, roll_back("v", "a"));
    assert!(!goes_on_from(&state, "v", 1) && !goes_on_from(&state, "v", 2) && goes_on_from(&state, "v", 3));
    close_all(&mut state);
    assert_eq!(lineage(&state, "v"), "0-3");
    assert!(!goes_on_from(&state, "v", 1) && !goes_on_from(&state, "v", 2) && goes_on_from(&state, "v", 3));
    done(&mut state, take("v", "b"));
    assert!(!goes_on_from(&state, "v", 2) && goes_on_from(&state, "v", 3) && goes_on_from(&state, "v", 4));
    done(&mut state, clone("v", "b", "c"));
    let made_in = state.volume_named("c").unwrap().epoch;
    done(&mut state, take("c", "d"));
    assert!(goes_on_from(&state, "c", made_in), "a clone is another volume, and wasn't rolled back");
}

#[test]
fn what_others_see_stays_a_gap() {
    let mut state = with_volume();
    done(&mut state, take("v", "a"));
    done(&mut state, clone("v", "a", "c"));
    done(&mut state, roll_back("v", "a"));
    assert_eq!((lineage(&state, "v").as_str(), lineage(&state, "c").as_str()), ("0-1,4-4", "0-1,3-3"));
    assert_eq!(state.gaps_to_close(MapId(1)), [(2, 2)], "before what the clone has of its own");
    close_all(&mut state);
    assert_eq!((lineage(&state, "v").as_str(), lineage(&state, "c").as_str()), ("0-1,4-4", "0-3"));
    done(&mut state, Command::RemoveVolume { name: "c".to_owned(), snapshots: false });
    assert_eq!(state.gaps_to_close(MapId(1)), [(2, 3)]);
    close_all(&mut state);
    assert_eq!(lineage(&state, "v"), "0-4");
}

#[test]
fn a_hundred_thousand_rollbacks_leave_a_state_of_the_same_size() {
    let mut state = with_volume();
    for _ in 0..100_000 {
        round(&mut state);
        let gaps = state.gaps_to_close(MapId(1));
        if gaps.len() > 9 {
            let command = close(&gaps, state.view());
            done(&mut state, command);
        }
        assert!(spans(&state, "v") <= 11);
    }
    close_all(&mut state);
    assert_eq!((spans(&state, "v"), state.volumes.len(), state.snapshots.len()), (1, 1, 0));
}

#[test]
fn clones_of_clones_go_on_for_ever_while_the_older_ones_go() {
    let mut state = cluster(&[(1, 1), (2, 2)]);
    done(&mut state, create("g0", "mirror:2"));
    for nth in 0..5_000 {
        let (old, new) = (format!("g{nth}"), format!("g{}", nth + 1));
        done(&mut state, take(&old, "s"));
        done(&mut state, clone(&old, "s", &new));
        let id = state.volume_named(&old).unwrap().id;
        done(&mut state, Command::RemoveVolume { name: old, snapshots: true });
        done(&mut state, Command::FinishRemoveVolume { id });
        close_all(&mut state);
        assert_eq!((spans(&state, &new), state.volumes.len()), (1, 1));
    }
}

#[test]
fn rollbacks_while_a_drive_is_away_are_closed_but_for_what_it_may_have() {
    let mut state = with_volume();
    (0..3).for_each(|_| round(&mut state)); // of which drives are not known to have given back anything
    leaves(&mut state, 2);
    for _ in 0..MAX_SPANS * 3 {
        round(&mut state);
        close_all(&mut state);
        assert!(spans(&state, "v") <= 5, "{}", lineage(&state, "v"));
    }
    let open = lineage(&state, "v");
    assert!(open.starts_with("0-1,3-3,5-5,7-7,"), "the drive that is away may have what lies between: {open}");
    returns(&mut state, 2);
    close_all(&mut state);
    assert_eq!(spans(&state, "v"), 1);
    round(&mut state);
    leaves(&mut state, 1);
    assert_eq!(state.gaps_to_close(MapId(1)), [], "it may have been told of it, and not have given it back");
}

#[test]
fn gaps_are_closed_only_by_what_the_same_drives_said() {
    let mut state = with_volume();
    round(&mut state);
    let (gaps, before) = (state.gaps_to_close(MapId(1)), state.view());
    leaves(&mut state, 2);
    returns(&mut state, 2);
    let view = state.view();
    assert_eq!(refused(&state, close(&gaps, before)), Refusal::ViewChanged { view }, "it may have another one's data");
    assert_eq!(refused(&state, close(&gaps, view + 1)), Refusal::ViewChanged { view }, "nobody knows that view");
    assert_eq!(refused(&state, close(&[(3, 3)], view)), Refusal::ViewChanged { view }, "the volume sees it");
    assert_eq!(refused(&state, Command::CloseGaps { map: MapId(9), gaps, view }), Refusal::NoMap(MapId(9)));
    done(&mut state, close(&[(2, 2), (3, 3)], view));
    assert_eq!(lineage(&state, "v"), "0-3");
}

#[test]
fn what_is_in_the_way_of_another_rollback_is_said() {
    let mut state = with_volume();
    for _ in 1..MAX_SPANS {
        round(&mut state);
    }
    done(&mut state, take("v", "t"));
    let stays = |drives: &[u64]| {
        let drives = drives.iter().map(|&id| DriveId(id)).collect();
        Refusal::GapsStay { name: "v".to_owned(), drives }
    };
    assert_eq!(refused(&state, roll_back("v", "t")), stays(&[]));
    let mut without = state.clone();
    leaves(&mut without, 2);
    assert_eq!(refused(&without, roll_back("v", "t")), stays(&[2]));
    close_all(&mut state);
    done(&mut state, roll_back("v", "t"));

    // Of clones of clones that are all there nothing can be closed.
    let mut state = cluster(&[(1, 1), (2, 2)]);
    done(&mut state, create("g0", "mirror:2"));
    for nth in 0..MAX_SPANS - 1 {
        let (old, new) = (format!("g{nth}"), format!("g{}", nth + 1));
        done(&mut state, take(&old, "s"));
        done(&mut state, clone(&old, "s", &new));
        close_all(&mut state);
    }
    let deepest = format!("g{}", MAX_SPANS - 1);
    done(&mut state, take(&deepest, "s"));
    let refusal = refused(&state, clone(&deepest, "s", "more"));
    assert_eq!(refusal, Refusal::ClonesTooDeep { name: deepest.clone(), limit: MAX_SPANS - 1 });
    assert!(refusal.to_string().contains(&format!("`tepal volume flatten {deepest}`")), "{refusal}");
}

#[test]
fn earlier_builds_count_epochs_also_while_drives_are_away() {
    let mut state = with_volume();
    leaves(&mut state, 2);
    let view = state.view();
    let mut of_before = Proposal::new(5, None, take("v", "t"));
    of_before.version = 2;
    let before = apply(&state, &of_before).unwrap().state;
    assert_eq!((lineage(&before, "v").as_str(), before.volume_named("v").unwrap().epoch), ("0-2", 2));
    done(&mut state, take("v", "t"));
    assert_eq!(lineage(&state, "v"), format!("0-{}", view + 1), "what is told apart is who sees it, as before");
    of_before = Proposal::new(5, None, roll_back("v", "t"));
    of_before.version = 8;
    let before = apply(&state, &of_before).unwrap().state;
    done(&mut state, roll_back("v", "t"));
    assert_eq!(lineage(&state, "v"), format!("0-1,{0}-{0}", view + 2));
    assert_eq!(lineage(&before, "v"), lineage(&state, "v"));
    let begun_in = |state: &State| u64::from(state.volume_named("v").unwrap().begun_in);
    assert_eq!((begun_in(&before), begun_in(&state)), (0, view + 2), "builds of before noted nothing");
    let revision = |state: &State| state.volume_named("v").unwrap().revision;
    assert_eq!(revision(&before) + 1, revision(&state), "builds of before let requests go on over a rollback");
}
