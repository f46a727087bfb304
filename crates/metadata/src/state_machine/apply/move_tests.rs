//! Copies that move between drives, and drives that are to be emptied.

use super::tests::{add_drive, cluster, create, done, refused, server_state, set};
use super::*;
use crate::record::{DriveState, ServerState};
use std::collections::BTreeSet;

const MAP: MapId = MapId(1);

fn begin(column: u32, from: u64, to: u64) -> Command {
    Command::BeginMove { map: MAP, column, from: DriveId(from), to: DriveId(to) }
}

/// The move that is under way.
fn finish(state: &State, column: u32, to: u64, view: u64) -> Command {
    Command::FinishMove { map: MAP, column, to: DriveId(to), since: since(state, column), view }
}

fn cancel(state: &State, column: u32, to: u64) -> Command {
    Command::CancelMove { map: MAP, column, to: DriveId(to), since: since(state, column) }
}

fn since(state: &State, column: u32) -> u64 {
    state.maps[&MAP].columns[column as usize].joining.map_or(0, |join| join.since)
}

fn set_use(id: u64, to: DriveUse) -> Command {
    Command::SetDriveUse { id: DriveId(id), to }
}

fn remove(id: u64) -> Command {
    Command::RemoveDrive { id: DriveId(id), force: false }
}

/// The drives of a column, and who joins.
fn column(state: &State, column: usize) -> (Vec<u64>, Option<u64>) {
    let column = &state.maps[&MAP].columns[column];
    (column.holders.iter().map(|holder| holder.drive.0).collect(), column.joining.map(|join| join.to.0))
}

/// What people read of a command.
fn told(state: &mut State, command: Command) -> Vec<String> {
    let applied = apply(state, &Proposal::new(5, None, command)).expect("it's accepted");
    *state = applied.state;
    let text = |change: &Change| match change {
        Change::Event(event) => Some(format!("{} {}", event.subject, event.text)),
        _ => None,
    };
    applied.changes.iter().filter_map(text).collect()
}

/// A volume `v` with two copies on two of three servers; the third came later, and `d4` of server 1 too.
fn pair() -> State {
    let mut state = cluster(&[(1, 1), (2, 2)]);
    done(&mut state, create("v", "mirror:2"));
    for (drive, server) in [(4, 1), (3, 3)] {
        let folder = u64::from(server);
        if !state.servers.contains_key(&ServerId(server)) {
            done(&mut state, Command::JoinServer { folder, address: "h:1".to_owned(), claim: None });
            done(&mut state, Command::ServerStarted { id: ServerId(server), incarnation: 0, boot: 1 });
        }
        done(&mut state, add_drive(drive, server));
    }
    state
}

#[test]
fn a_drive_that_joins_takes_the_place_of_a_holder_when_it_has_everything() {
    let mut state = pair();
    assert_eq!(column(&state, 0), (vec![1, 2], None));
    let view = state.view();
    done(&mut state, begin(0, 1, 3));
    let join = state.maps[&MAP].columns[0].joining.unwrap();
    assert_eq!((join.to, join.from, join.since, state.view()), (DriveId(3), DriveId(1), view + 1, view + 1));
    assert_eq!(column(&state, 0), (vec![1, 2], Some(3)), "it counts for nothing yet");

    let finished = finish(&state, 0, 3, view + 1);
    done(&mut state, finished);
    assert_eq!((column(&state, 0), state.view()), ((vec![3, 2], None), view + 2));
    let since: Vec<u64> = state.maps[&MAP].columns[0].holders.iter().map(|holder| holder.since).collect();
    assert_eq!(since, [view + 2, state.maps[&MAP].made_in]);
    assert_eq!(column(&state, 1), (vec![2, 1], None), "the other column is as it was");
}

#[test]
fn a_move_that_ends_early_leaves_the_column_as_it_was() {
    let mut state = pair();
    let before = state.maps[&MAP].columns.clone();
    done(&mut state, begin(1, 2, 3));
    let view = state.view();
    let called_off = cancel(&state, 1, 3);
    done(&mut state, called_off);
    assert_eq!((&state.maps[&MAP].columns, state.view()), (&before, view + 1));
    assert_eq!(refused(&state, cancel(&state, 1, 3)), Refusal::NoMove { map: MAP, column: 1, to: DriveId(3) });
}

#[test]
fn a_move_that_makes_no_sense_is_refused_with_the_reason() {
    let mut state = pair();
    let (map, column) = (MAP, 0);
    let elsewhere = Command::BeginMove { map: MapId(7), column, from: DriveId(1), to: DriveId(3) };
    assert_eq!(refused(&state, elsewhere), Refusal::NoMap(MapId(7)));
    for (command, refusal) in [
        (begin(2, 1, 3), Refusal::NoColumn { map, column: 2 }),
        (begin(0, 9, 3), Refusal::NoDrive(DriveId(9))),
        (begin(0, 1, 9), Refusal::NoDrive(DriveId(9))),
        (begin(0, 3, 4), Refusal::NotHolder { map, column, drive: DriveId(3) }),
        (begin(0, 1, 2), Refusal::HolderAlready { map, column, drive: DriveId(2) }),
        (begin(0, 2, 4), Refusal::SharesDomain { to: DriveId(4), with: DriveId(1) }),
        (finish(&state, 0, 3, state.view()), Refusal::NoMove { map, column, to: DriveId(3) }),
    ] {
        assert_eq!(refused(&state, command.clone()), refusal, "{command:?}");
    }
    done(&mut state, begin(0, 1, 4)); // whose server is that of the drive that it replaces
    assert_eq!(refused(&state, begin(0, 2, 3)), Refusal::ColumnMoves { map, column, to: DriveId(4) });
    let called_off = cancel(&state, 0, 4);
    done(&mut state, called_off);
    done(&mut state, set_use(3, DriveUse::Draining));
    assert_eq!(refused(&state, begin(0, 1, 3)), Refusal::DriveDraining(DriveId(3)));
    done(&mut state, set_use(3, DriveUse::Active));
    done(&mut state, Command::SetServerDraining { id: ServerId(3), draining: true });
    assert_eq!(refused(&state, begin(0, 1, 3)), Refusal::DriveDraining(DriveId(3)));
    done(&mut state, set(3, DriveState::Missing, None));
    let down = Refusal::DriveNotUp { id: DriveId(3), state: DriveState::Missing };
    assert_eq!(refused(&state, begin(0, 1, 3)), down);
}

#[test]
fn at_sites_a_drive_of_the_same_site_shares_the_domain() {
    let mut state = pair();
    for (server, site) in [(1, "a"), (2, "b"), (3, "b")] {
        done(&mut state, Command::SetServerSite { id: ServerId(server), site: Some(site.to_owned()) });
    }
    done(&mut state, Command::RemoveVolume { name: "v".to_owned(), snapshots: false });
    done(&mut state, create("w", "mirror:2;domain=site"));
    let map = &state.maps[&MapId(2)];
    let here = (0u32..).zip(&map.columns).find(|(_, column)| column.is_held_by(DriveId(1))).unwrap().0;
    let other = map.columns[here as usize].users().find(|drive| *drive != DriveId(1)).unwrap();
    let to = DriveId(5 - other.0); // the other one of site b
    let begin = |from| Command::BeginMove { map: MapId(2), column: here, from, to };
    assert_eq!(refused(&state, begin(DriveId(1))), Refusal::SharesDomain { to, with: other });
    done(&mut state, begin(other));
}

/// Story: while the primary counted what was still missing, another drive left, and who leads knew nothing of that count.
#[test]
fn a_move_is_finished_only_in_the_view_in_which_it_was_seen_to_be_whole_and_by_a_drive_that_is_up() {
    let mut state = pair();
    done(&mut state, begin(0, 1, 3));
    let view = state.view();
    done(&mut state, set(2, DriveState::Missing, None));
    assert_eq!(refused(&state, finish(&state, 0, 3, view)), Refusal::ViewChanged { view: view + 1 });
    done(&mut state, set(3, DriveState::Missing, None));
    let down = Refusal::DriveNotUp { id: DriveId(3), state: DriveState::Missing };
    assert_eq!(refused(&state, finish(&state, 0, 3, view + 2)), down);
    assert_eq!(column(&state, 0), (vec![1, 2], Some(3)), "it may come back and go on");
}

#[test]
fn a_drive_that_fails_or_is_removed_joins_nothing_any_more() {
    let mut state = pair();
    done(&mut state, begin(0, 1, 3));
    done(&mut state, begin(1, 2, 3));
    let mut failed = state.clone();
    let view = failed.view();
    done(&mut failed, set(3, DriveState::Failed, None));
    assert_eq!((column(&failed, 0).1, column(&failed, 1).1, failed.view()), (None, None, view + 1));

    assert_eq!(done(&mut state, remove(3)), Reply::Done, "it holds nothing, so it's forgotten at once");
    assert_eq!((column(&state, 0).1, column(&state, 1).1, state.view()), (None, None, view + 1));
    assert!(!state.drives.contains_key(&DriveId(3)));
}

/// Story: a drive failed for good, and was replaced: it can be forgotten then though its volume is still there.
#[test]
fn a_drive_whose_copies_have_all_left_it_is_told_to_be_empty_once_and_can_be_removed() {
    let mut state = pair();
    assert_eq!(
        told(&mut state, set_use(1, DriveUse::Draining)),
        ["0000000000000001 is to be emptied: what it holds goes to others"]
    );
    let first = told(&mut state, begin(0, 1, 4));
    assert_eq!(first, ["0000000000000004 begins to take copies, first from drive 0000000000000001"]);
    assert_eq!(told(&mut state, begin(1, 1, 4)), [""; 0]);
    let view = state.view();
    let finished = finish(&state, 0, 4, view);
    assert_eq!(told(&mut state, finished), [""; 0]);
    assert!(matches!(done(&mut state.clone(), remove(1)), Reply::DriveRetired { .. }));
    let view = state.view();
    let finished = finish(&state, 1, 4, view);
    let last = told(&mut state, finished);
    assert_eq!(last, ["0000000000000001 is empty: its last copy is on drive 0000000000000004 now"]);
    assert_eq!(done(&mut state, remove(1)), Reply::Done);
    assert_eq!(column(&state, 0), (vec![4, 2], None));
}

/// Story: it stayed in the list as failed for ever, after others had all that it had held.
#[test]
fn a_drive_that_was_removed_with_copies_is_forgotten_when_others_have_them() {
    let mut state = pair();
    done(&mut state, remove(1));
    let record = &state.drives[&DriveId(1)];
    assert_eq!((record.state, record.purpose), (DriveState::Failed, DriveUse::Removed));
    refused(&state, set_use(1, DriveUse::Active));
    refused(&state, set_use(3, DriveUse::Removed));
    let columns = state.maps[&MAP].columns.len() as u32;
    for column in (0..columns)
        .filter(|&column| state.maps[&MAP].columns[column as usize].is_held_by(DriveId(1)))
        .collect::<Vec<_>>()
    {
        assert!(state.drives.contains_key(&DriveId(1)));
        done(&mut state, begin(column, 1, 4));
        let finished = finish(&state, column, 4, state.view());
        done(&mut state, finished);
    }
    assert!(!state.drives.contains_key(&DriveId(1)));

    // And when what it was a part of is gone.
    done(&mut state, remove(2));
    done(&mut state, Command::RemoveVolume { name: "v".to_owned(), snapshots: false });
    assert!(state.drives.contains_key(&DriveId(2)));
    let id = state.volumes.values().next().unwrap().id;
    done(&mut state, Command::FinishRemoveVolume { id });
    assert!(!state.drives.contains_key(&DriveId(2)));
}

#[test]
fn new_volumes_use_no_spares_and_nothing_that_is_to_be_emptied() {
    let mut state = cluster(&[(1, 1), (2, 1), (3, 2), (5, 3)]);
    let Command::AddDrive { id, server, pool, path, capacity, .. } = add_drive(4, 1) else { unreachable!() };
    done(&mut state, Command::AddDrive { id, server, pool, path, capacity, spare: true });
    done(&mut state, set_use(2, DriveUse::Draining));
    done(&mut state, Command::SetServerDraining { id: ServerId(3), draining: true });
    done(&mut state, create("v", "stripe"));
    let drives = |state: &State, map| state.maps[&MapId(map)].drives().iter().map(|id| id.0).collect::<Vec<_>>();
    assert_eq!(drives(&state, 1), [1, 3]);
    let view = state.view();
    done(&mut state, set_use(2, DriveUse::Active));
    done(&mut state, set_use(4, DriveUse::Active));
    done(&mut state, Command::SetServerDraining { id: ServerId(3), draining: false });
    done(&mut state, create("w", "stripe"));
    assert_eq!(drives(&state, 2).into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([1, 2, 3, 4, 5]));
    assert_eq!(state.view(), view, "nobody acts otherwise by that");
}

/// Its new writes go to a server that can't be reached, like those of a holder.
#[test]
fn a_server_that_is_cut_off_loses_a_drive_that_joins_too() {
    let mut state = pair();
    done(&mut state, begin(0, 1, 3));
    let (reason, view) = ("because".to_owned(), state.view());
    done(&mut state, Command::ServerCutOff { id: ServerId(3), by: ServerId(2), reason, view });
    assert_eq!(state.drives[&DriveId(3)].state, DriveState::Missing);
    done(&mut state, server_state(2, ServerState::Down, None));
    assert!(matches!(refused(&state, remove(1)), Refusal::LastCopy { .. }), "who joins has nothing that counts");
}

/// A command of the version in which volumes get columns for drives to come.
fn movable(command: Command) -> Proposal {
    Proposal { version: crate::command::MOVABLE, ..Proposal::new(5, None, command) }
}

#[test]
fn a_volume_of_the_newer_version_has_columns_for_drives_to_come() {
    let mut state = cluster(&[(1, 1), (2, 2), (3, 3)]);
    state = apply(&state, &movable(create("v", "mirror:2"))).unwrap().state;
    let map = &state.maps[&MAP];
    assert_eq!((map.columns.len(), map.width, map.chunk), (66, 3, 16));
    assert_eq!(state.domain_of(state.volume_named("v").unwrap()), Some(tepal_model::layout::FailureDomain::Server));
    let copies = |drive: u64| map.columns.iter().filter(|column| column.is_held_by(DriveId(drive))).count();
    assert_eq!([copies(1), copies(2), copies(3)], [44; 3]);
    assert_eq!(map.table().columns.len(), 66);
    assert_eq!(refused(&state, begin(66, 1, 2)), Refusal::NoColumn { map: MAP, column: 66 });

    state = apply(&state, &movable(create("w", "chained"))).unwrap().state;
    assert_eq!(state.maps[&MapId(2)].columns.len(), 3, "a column for each drive");
}

/// Story: a drive was complete, its move was called off, and it joined the same column once more: by what was found before, it would
/// have had its place with nothing on it.
#[test]
fn a_move_that_was_called_off_is_not_finished_by_what_was_found_of_it_when_the_same_drive_joins_again() {
    let mut state = pair();
    done(&mut state, begin(0, 1, 3));
    let first = since(&state, 0);
    let called_off = cancel(&state, 0, 3);
    done(&mut state, called_off.clone());
    done(&mut state, begin(0, 1, 3));
    let stale = Command::FinishMove { map: MAP, column: 0, to: DriveId(3), since: first, view: state.view() };
    let refusal = Refusal::NoMove { map: MAP, column: 0, to: DriveId(3) };
    assert_eq!((refused(&state, stale), refused(&state, called_off)), (refusal.clone(), refusal));
    let finished = finish(&state, 0, 3, state.view());
    done(&mut state, finished);
    assert_eq!(column(&state, 0), (vec![3, 2], None));
}
