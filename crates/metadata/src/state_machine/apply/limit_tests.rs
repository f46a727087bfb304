use super::access_tests::{add, with_authority};
use super::tests::{done, refused};
use crate::access::{Limited, Role};
use crate::command::Command;
use crate::refusal::Refusal;
use crate::state::State;
use tepal_model::{Limits, Rate, VolumeId};

fn limits(per_second: u64) -> Limits {
    Limits { iops: Some(Rate { per_second, burst: 0 }), ..Limits::default() }
}

fn of_volume(limits: Limits) -> Command {
    Command::LimitVolume { volume: "v".to_owned(), limits }
}

fn of_identity(name: &str, limits: Limits) -> Command {
    Command::LimitIdentity { name: name.to_owned(), limits }
}

fn web() -> Limited {
    Limited::Identity("web".to_owned())
}

#[test]
fn limits_last_until_they_or_their_subject_are_gone() {
    let mut state = with_authority();
    done(&mut state, add("web", Role::Host, &[], 1));
    let with_connections = Limits { connections: Some(3), ..limits(7) };
    done(&mut state, of_volume(limits(5)));
    done(&mut state, of_identity("web", with_connections));
    assert_eq!(State::from_copy(&state.to_copy()).unwrap(), state);
    let volume = Limited::Volume(VolumeId(1));
    assert_eq!((state.access.limits_of(&volume), state.access.limits_of(&web())), (limits(5), with_connections));
    done(&mut state, of_volume(Limits::default()));
    assert_eq!(state.access.limits_of(&volume), Limits::default());
    done(&mut state, of_volume(limits(9)));
    done(&mut state, Command::RemoveVolume { name: "v".to_owned(), snapshots: false });
    done(&mut state, Command::RemoveIdentity { name: "web".to_owned() });
    assert!(state.access.limits.is_empty());
}

#[test]
fn limits_that_cannot_be_held_are_refused() {
    let mut state = with_authority();
    done(&mut state, add("root", Role::Operator, &[], 1));
    assert!(matches!(refused(&state, of_volume(limits(0))), Refusal::Limits(_)));
    let connections = Limits { connections: Some(3), ..Limits::default() };
    assert_eq!(refused(&state, of_volume(connections)), Refusal::ConnectionsOfVolume);
    let root = Refusal::LimitOfRole { name: "root".to_owned(), role: Role::Operator };
    assert_eq!(refused(&state, of_identity("root", limits(5))), root);
    assert_eq!(refused(&state, of_identity("nobody", limits(5))), Refusal::NoIdentity("nobody".to_owned()));
}

#[test]
fn the_same_limits_again_change_nothing() {
    let mut state = with_authority();
    done(&mut state, of_volume(limits(5)));
    let events = state.counters.event;
    for _ in 0..10_000 {
        done(&mut state, of_volume(limits(5)));
    }
    assert_eq!((state.counters.event, state.access.limits.len()), (events, 1));
}
