//! Commands about servers.

use super::tests::{add_drive, cluster, done, refused, server_state, set};
use super::*;
use crate::record::{DriveState, ServerState};

fn join(folder: u64, claim: Option<u32>) -> Command {
    Command::JoinServer { folder, address: "h:9".to_owned(), claim: claim.map(ServerId) }
}

fn started(id: u32, incarnation: u32, boot: u64) -> Command {
    Command::ServerStarted { id: ServerId(id), incarnation, boot }
}

fn joined(id: u32, incarnation: u32) -> Reply {
    Reply::ServerJoined { id: ServerId(id), incarnation }
}

#[test]
fn a_server_that_asks_twice_to_join_joins_once_and_is_down_until_it_starts() {
    let mut state = cluster(&[]);
    assert_eq!(done(&mut state, join(5, None)), joined(2, 0));
    let once = state.clone();
    assert_eq!(done(&mut state, join(5, None)), joined(2, 0));
    assert_eq!(state, once);
    assert_eq!(done(&mut state, join(6, None)), joined(3, 0));
    assert_eq!(state.servers[&ServerId(2)].state, ServerState::Down);
    done(&mut state, started(2, 0, 1));
    assert_eq!(state.servers[&ServerId(2)].state, ServerState::Up);
    // By name, only the next one.
    assert_eq!(refused(&state, join(7, Some(5))), Refusal::NoServer(ServerId(5)));
    assert_eq!(done(&mut state, join(7, Some(4))), joined(4, 0));
}

#[test]
fn a_server_comes_back_with_an_empty_folder_only_while_it_is_down_and_its_old_folder_is_void() {
    let mut state = cluster(&[(1, 2)]);
    assert_eq!(refused(&state, join(7, Some(2))), Refusal::ServerIsUp(ServerId(2)));
    assert_eq!(refused(&state, join(7, Some(9))), Refusal::NoServer(ServerId(9)));
    done(&mut state, server_state(2, ServerState::Down, None));
    assert_eq!(done(&mut state, join(7, Some(2))), joined(2, 1));
    assert_eq!(refused(&state, started(2, 0, 99)), Refusal::ServerReplaced(ServerId(2)));
    done(&mut state, started(2, 1, 1));
    assert_eq!(state.drives[&DriveId(1)].server, ServerId(2), "its drives are known by their labels");
}

#[test]
fn a_start_takes_the_server_s_drives_out_of_service_once_and_an_older_folder_is_refused() {
    let mut state = cluster(&[(1, 1), (2, 2), (3, 2), (4, 2)]);
    done(&mut state, set(3, DriveState::Behind, None));
    done(&mut state, set(4, DriveState::Offline, None));
    let missed = state.drives[&DriveId(3)].missed_since;
    let view = state.view() + 1;
    done(&mut state, started(2, 0, 8));
    assert_eq!(state.view(), view);
    let drive = |id: u64| (state.drives[&DriveId(id)].state, state.drives[&DriveId(id)].missed_since);
    assert_eq!(drive(1), (DriveState::Up, None));
    assert_eq!(drive(2), (DriveState::Missing, Some(view)));
    assert_eq!(drive(3), (DriveState::Missing, missed), "it lacks what it lacked before");
    assert_eq!(drive(4).0, DriveState::Offline);
    let mut again = state.clone();
    done(&mut again, started(2, 0, 8));
    assert_eq!(again, state, "told twice");
    assert_eq!(refused(&state, started(2, 0, 7)), Refusal::FolderOld(ServerId(2)));
}

#[test]
fn a_server_goes_down_with_its_drives_in_one_view_and_only_if_nothing_changed_meanwhile() {
    let mut state = cluster(&[(1, 1), (2, 2), (3, 2)]);
    let up_since = state.servers[&ServerId(2)].state_view;
    let view = state.view() + 1;
    done(&mut state, server_state(2, ServerState::Down, Some(up_since)));
    assert_eq!((state.view(), state.servers[&ServerId(2)].state_view), (view, view));
    for id in [2, 3] {
        let drive = &state.drives[&DriveId(id)];
        assert_eq!((drive.state, drive.state_view, drive.missed_since), (DriveState::Missing, view, Some(view)));
    }
    assert_eq!(state.drives[&DriveId(1)].state, DriveState::Up);
    done(&mut state, server_state(2, ServerState::Up, Some(view)));
    let state_view = view + 1;
    let changed = Refusal::ServerChanged { id: ServerId(2), state: ServerState::Up, state_view };
    assert_eq!(refused(&state, server_state(2, ServerState::Down, Some(up_since))), changed);
    assert_eq!(state.drives[&DriveId(2)].state, DriveState::Missing, "its drives come back by themselves");
}

#[test]
fn only_a_server_without_drives_is_removed_and_never_the_last_and_its_id_is_not_used_again() {
    let mut state = cluster(&[(1, 2)]);
    let remove = |id| Command::RemoveServer { id: ServerId(id) };
    assert_eq!(refused(&state, remove(2)), Refusal::ServerHasDrives { id: ServerId(2), drives: 1 });
    done(&mut state, Command::RemoveDrive { id: DriveId(1), force: true });
    let view = state.view();
    done(&mut state, remove(2));
    assert_eq!(state.view(), view + 1);
    assert_eq!(refused(&state, remove(2)), Refusal::NoServer(ServerId(2)));
    assert_eq!(refused(&state, remove(1)), Refusal::LastServer(ServerId(1)));
    assert_eq!(refused(&state, add_drive(3, 2)), Refusal::NoServer(ServerId(2)));
    assert_eq!(done(&mut state, join(8, None)), joined(3, 0));
}
