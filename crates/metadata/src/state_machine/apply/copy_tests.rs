//! Which copies of a column are complete.

use super::tests::{cluster, create, done, refused, server_state, set};
use super::*;
use crate::command::{CODES_GIVEN_UP, COPIES_COUNTED, ColumnCopies};
use crate::record::{CopyStatus, DriveState, RebuildRecord, ServerState};

/// A cluster of three servers with one drive each, and a volume with a copy on each.
fn three() -> State {
    let mut state = cluster(&[(1, 1), (2, 2), (3, 3)]);
    done(&mut state, create("v", "mirror:3;domain=drive"));
    state
}

fn statuses(state: &State) -> Vec<CopyStatus> {
    let mut holders = state.maps[&MapId(1)].columns[0].holders.to_vec();
    holders.sort_by_key(|holder| holder.drive);
    holders.iter().map(|holder| holder.status).collect()
}

fn count(state: &State, passed: &[u64], complete: &[u64]) -> Command {
    let drives = |ids: &[u64]| ids.iter().copied().map(DriveId).collect();
    let change = ColumnCopies { map: MapId(1), column: 0, passed: drives(passed), complete: drives(complete) };
    Command::CountCopies { changes: vec![change], view: state.view() }
}

fn pass_over(state: &mut State, drives: &[u64]) {
    let command = count(state, drives, &[]);
    done(state, command);
}

fn up_again(state: &mut State, drive: u64) {
    done(state, set(drive, DriveState::Behind, None));
    let view = state.view();
    done(state, Command::DriveIsUp { id: DriveId(drive), reason: "because".to_owned(), view });
}

/// Story: all servers of a volume with three copies were killed. They were declared down one after another as they came back, so the one
/// that never came was the last that counted as up; all requests waited for it, though the other two had every byte.
#[test]
fn copies_stay_complete_in_whatever_order_idle_servers_go_down() {
    for order in [[1, 2, 3], [3, 1, 2], [2, 3, 1]] {
        let mut state = three();
        for server in order {
            done(&mut state, server_state(server, ServerState::Down, None));
        }
        assert_eq!(statuses(&state), [CopyStatus::Complete; 3]);
    }
}

#[test]
fn a_copy_passed_over_is_complete_again_once_its_drive_is_up() {
    let mut state = three();
    done(&mut state, set(3, DriveState::Missing, None));
    let view = state.view();
    pass_over(&mut state, &[3]);
    assert_eq!(state.view(), view, "nobody leads otherwise for that");
    let passed = CopyStatus::PassedOver(view);
    assert_eq!(statuses(&state), [CopyStatus::Complete, CopyStatus::Complete, passed]);
    done(&mut state, set(3, DriveState::Behind, None));
    assert_eq!(statuses(&state)[2], passed, "it doesn't know yet what it misses");
    up_again_from_behind(&mut state, 3);
    assert_eq!(statuses(&state), [CopyStatus::Complete; 3]);
}

fn up_again_from_behind(state: &mut State, drive: u64) {
    let view = state.view();
    done(state, Command::DriveIsUp { id: DriveId(drive), reason: "because".to_owned(), view });
}

#[test]
fn nobody_is_passed_over_by_an_old_view_nor_a_drive_that_is_up_nor_the_last() {
    let mut state = three();
    let view = state.view();
    assert_eq!(refused(&state, count(&state, &[3], &[])), Refusal::ViewChanged { view });
    let early = count(&state, &[3], &[]);
    done(&mut state, set(3, DriveState::Missing, None));
    assert_eq!(refused(&state, early), Refusal::ViewChanged { view: view + 1 });
    let mut other = cluster(&[(1, 1), (2, 2)]);
    done(&mut other, create("v", "stripe;domain=drive"));
    done(&mut other, set(1, DriveState::Missing, None));
    let on_second = ColumnCopies { map: MapId(1), column: 1, passed: vec![DriveId(1)], complete: vec![] };
    let command = Command::CountCopies { changes: vec![on_second], view: other.view() };
    assert_eq!(refused(&other, command), Refusal::NotHolder { map: MapId(1), column: 1, drive: DriveId(1) });
    for drive in [1, 2] {
        done(&mut state, set(drive, DriveState::Missing, None));
    }
    let last = Refusal::LastCompleteCopy { map: MapId(1), column: 0 };
    assert_eq!(refused(&state, count(&state, &[1, 2, 3], &[])), last);
    pass_over(&mut state, &[1, 3]);
    assert_eq!(refused(&state, count(&state, &[2], &[])), last);
}

#[test]
fn a_copy_stays_passed_over_where_all_who_knew_more_have_failed() {
    let mut state = three();
    done(&mut state, set(2, DriveState::Missing, None));
    done(&mut state, set(3, DriveState::Missing, None));
    pass_over(&mut state, &[2, 3]);
    let passed = statuses(&state)[1];
    done(&mut state, set(1, DriveState::Failed, None));
    up_again(&mut state, 2);
    assert_eq!(statuses(&state), [CopyStatus::Complete, passed, passed], "nobody could tell it what it misses");
    // One that had heard it in time is agreed to be complete by who leads.
    let heard = count(&state, &[], &[2]);
    done(&mut state, heard);
    assert_eq!(statuses(&state)[1], CopyStatus::Complete);
}

#[test]
fn the_newest_copies_left_are_complete_once_their_loss_is_accepted() {
    let mut state = three();
    let volume = state.volume_named("v").unwrap().id;
    let accept = Command::AcceptLoss { volume, view: 0 };
    let nothing = Refusal::NothingLost { name: "v".to_owned() };
    assert_eq!(refused(&state, accept.clone()), nothing);
    done(&mut state, set(3, DriveState::Missing, None));
    pass_over(&mut state, &[3]);
    done(&mut state, set(2, DriveState::Missing, None));
    pass_over(&mut state, &[2]);
    let older = statuses(&state)[2];
    done(&mut state, set(1, DriveState::Failed, None));
    done(&mut state, accept.clone());
    let given_up = CopyStatus::GivenUp(state.view());
    assert_eq!(statuses(&state), [given_up, CopyStatus::Complete, older]);
    assert_eq!(refused(&state, Command::AcceptLoss { volume: VolumeId(9), view: 0 }), Refusal::NoVolumeId(VolumeId(9)));
}

/// Story: another drive failed between the list of what was lost and the operator's word, and more was given up than had been shown.
#[test]
fn a_loss_is_accepted_only_in_the_view_that_showed_it() {
    let mut state = three();
    let volume = state.volume_named("v").unwrap().id;
    for drive in [3, 2] {
        done(&mut state, set(drive, DriveState::Missing, None));
        pass_over(&mut state, &[drive]);
    }
    done(&mut state, set(1, DriveState::Failed, None));
    let shown = state.view();
    done(&mut state, set(2, DriveState::Failed, None));
    let view = state.view();
    assert_eq!(refused(&state, Command::AcceptLoss { volume, view: shown }), Refusal::ViewChanged { view });
    done(&mut state, Command::AcceptLoss { volume, view });
    assert_eq!(statuses(&state)[2], CopyStatus::Complete);
}

/// Story: of a raid5 volume one drive had missed writes, and another one was removed. `accept-loss` said that nothing was lost.
#[test]
fn fragments_that_failed_are_given_up_where_too_few_are_complete() {
    let mut state = cluster(&[(1, 1), (2, 2), (3, 3)]);
    done(&mut state, create("v", "ec:2+1;domain=drive"));
    let volume = state.volume_named("v").unwrap().id;
    done(&mut state, set(3, DriveState::Missing, None));
    pass_over(&mut state, &[3]);
    let nothing = Refusal::NothingLost { name: "v".to_owned() };
    assert_eq!(refused(&state, Command::AcceptLoss { volume, view: 0 }), nothing, "drive 3 may return");
    done(&mut state, set(2, DriveState::Missing, None));
    done(&mut state, set(3, DriveState::Behind, None));
    done(&mut state, set(2, DriveState::Failed, None));
    let passed = statuses(&state)[2];
    let by_earlier =
        Proposal { version: CODES_GIVEN_UP - 1, ..Proposal::new(5, None, Command::AcceptLoss { volume, view: 0 }) };
    assert_eq!(apply(&state, &by_earlier).unwrap_err(), nothing, "no server knew that of codes");
    done(&mut state, Command::AcceptLoss { volume, view: 0 });
    assert_eq!(statuses(&state), [CopyStatus::Complete, CopyStatus::GivenUp(state.view()), passed]);
}

/// Story: two older copies were both taken for complete once the loss of the newest was accepted. One of them had taken all writes since it
/// was back and the other hadn't, and reads gave the one or the other.
#[test]
fn of_older_copies_the_one_that_takes_writes_is_complete() {
    let mut state = three();
    let volume = state.volume_named("v").unwrap().id;
    for drive in [2, 3] {
        done(&mut state, set(drive, DriveState::Missing, None));
    }
    pass_over(&mut state, &[2, 3]);
    done(&mut state, set(2, DriveState::Behind, None)); // and stays so: something else of it is waited for
    up_again(&mut state, 3);
    done(&mut state, set(3, DriveState::Missing, None));
    pass_over(&mut state, &[3]);
    let later = statuses(&state)[2];
    assert_ne!(later, statuses(&state)[1]);
    done(&mut state, set(1, DriveState::Failed, None));
    done(&mut state, Command::AcceptLoss { volume, view: 0 });
    assert_eq!(statuses(&state)[1..], [CopyStatus::Complete, later]);
}

/// Servers of an earlier build go on without a drive as soon as they know that it's away, and ask for nothing before.
#[test]
fn what_an_earlier_build_proposes_passes_over_whoever_leaves_while_others_are_up() {
    let by_earlier = |state: &mut State, command: Command| {
        let proposal = Proposal { version: COPIES_COUNTED - 1, ..Proposal::new(5, None, command) };
        *state = apply(state, &proposal).unwrap().state;
    };
    let mut state = three();
    by_earlier(&mut state, server_state(1, ServerState::Down, None));
    let first = CopyStatus::PassedOver(state.view());
    assert_eq!(statuses(&state), [first, CopyStatus::Complete, CopyStatus::Complete]);
    by_earlier(&mut state, set(2, DriveState::Missing, None));
    let second = CopyStatus::PassedOver(state.view());
    by_earlier(&mut state, set(3, DriveState::Missing, None));
    assert_eq!(statuses(&state), [first, second, CopyStatus::Complete], "the third was up last");
}

/// Story: a drive that a rebuild hadn't found counts as having gone on alone. When it was removed, all was an error that others held.
#[test]
fn copies_that_a_rebuild_found_are_believed_once_the_missing_drive_is_removed() {
    let mut state = three();
    let before_view = state.view() + 10;
    for drive in [1, 2, 3] {
        let mut record = DriveRecord::clone(&state.drives[&DriveId(drive)]);
        (record.state, record.state_view, record.missed_since) =
            (DriveState::Missing, before_view, Some(before_view + u64::from(drive == 3)));
        state.drives.insert(DriveId(drive), Arc::new(record));
    }
    let map = Arc::make_mut(state.maps.get_mut(&MapId(1)).unwrap());
    for holder in map.columns[0].holders.iter_mut().filter(|holder| holder.drive != DriveId(3)) {
        holder.status = CopyStatus::PassedOver(before_view);
    }
    state.rebuilds = Arc::new(vec![RebuildRecord {
        history: 1,
        after_view: 1,
        after_events: 0,
        before_view,
        first_map: MapId(2),
        end_map: MapId(3),
    }]);
    done(&mut state, Command::RemoveDrive { id: DriveId(3), force: true });
    let found = CopyStatus::Complete;
    assert_eq!(statuses(&state), [found, found, CopyStatus::PassedOver(before_view)]);
}

/// What happens to the drive of one copy.
#[derive(Clone, Copy, Debug)]
enum Step {
    Away(usize),
    Back(usize),
    Fails(usize),
    /// Acknowledged if it can be, by whoever has a complete copy that is up.
    Write,
}

/// The copies of a column, and of each whether it has every acknowledged write.
struct Copies {
    state: State,
    has_all: [bool; 3],
}

impl Copies {
    fn drive_state(&self, at: usize) -> DriveState {
        self.state.drives[&DriveId(at as u64 + 1)].state
    }

    fn is_believed(&self, at: usize) -> bool {
        statuses(&self.state)[at].is_complete() && matches!(self.drive_state(at), DriveState::Up)
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Away(at) if self.drive_state(at) == DriveState::Up => {
                done(&mut self.state, set(at as u64 + 1, DriveState::Missing, None));
            }
            Step::Fails(at) if self.drive_state(at) != DriveState::Failed => {
                done(&mut self.state, set(at as u64 + 1, DriveState::Failed, None));
            }
            Step::Back(at) if self.drive_state(at) == DriveState::Missing => {
                done(&mut self.state, set(at as u64 + 1, DriveState::Behind, None));
            }
            Step::Write if (0..3).any(|at| self.is_believed(at)) => {
                let away: Vec<usize> = (0..3).filter(|&at| self.drive_state(at) != DriveState::Up).collect();
                let passed: Vec<u64> = away.iter().map(|&at| at as u64 + 1).collect();
                pass_over(&mut self.state, &passed);
                away.into_iter().for_each(|at| self.has_all[at] = false);
            }
            Step::Away(_) | Step::Fails(_) | Step::Back(_) | Step::Write => {}
        }
        self.catch_up();
    }

    /// Whoever is back is told what it misses by a complete copy that is here: by itself, if it's one.
    fn catch_up(&mut self) {
        let is_behind = |copies: &Self, at: usize| copies.drive_state(at) == DriveState::Behind;
        for at in 0..3 {
            let is_told = |&other: &usize| {
                statuses(&self.state)[other].is_complete()
                    && matches!(self.drive_state(other), DriveState::Up | DriveState::Behind)
            };
            if is_behind(self, at) && (0..3).any(|other| is_told(&other)) {
                self.has_all[at] = true;
                up_again_from_behind(&mut self.state, at as u64 + 1);
            }
        }
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 500, failure_persistence: None, ..Default::default() })]

    /// The same rule is followed through all histories in `engine/places/tests.rs`, as the engine is told of it.
    #[test]
    fn complete_copies_have_every_acknowledged_write_after_any_history(steps in proptest::collection::vec(0_u8..32, 1..60)) {
        let mut copies = Copies { state: three(), has_all: [true; 3] };
        for number in steps {
            let at = usize::from(number) % 3;
            copies.take(match number / 3 {
                0..=3 => Step::Away(at),
                4..=7 => Step::Back(at),
                8 => Step::Fails(at),
                _ => Step::Write,
            });
            let statuses = statuses(&copies.state);
            proptest::prop_assert!(statuses.iter().any(|status| status.is_complete()));
            for (at, status) in statuses.iter().enumerate() {
                proptest::prop_assert!(!status.is_complete() || copies.has_all[at], "copy {at} of {statuses:?}");
            }
        }
    }
}
