use super::access_tests::{add, key, with_authority};
use super::realm::MOST_OUTSIDE;
use super::tests::{cluster, create, done, refused};
use crate::access::{Right, Role};
use crate::command::Command;
use crate::refusal::{Refusal, Thing};
use crate::state::State;
use tepal_model::{ServerId, VolumeId};

fn grant_on(scope: &str, to: &str, right: Right) -> Command {
    Command::GrantOn { scope: scope.to_owned(), to: to.to_owned(), right }
}

fn withdraw_on(scope: &str, to: &str) -> Command {
    Command::WithdrawOn { scope: scope.to_owned(), to: to.to_owned() }
}

fn right(state: &State, number: u32, volume: u64) -> Option<Right> {
    state.access.identity_of(&key(number)).and_then(|identity| state.right_of(identity, VolumeId(volume)))
}

fn outside(name: &str) -> Command {
    Command::AddOutsideAuthority { name: name.to_owned(), certificate: format!("PEM of {name}") }
}

fn of_outside(name: &str, role: Role, authority: &str, number: u32) -> Command {
    let (name, authority) = (name.to_owned(), authority.to_owned());
    Command::AddOutsideIdentity {
        subject: format!("{name}.example"),
        name,
        role,
        groups: vec![],
        authority,
        key: key(number),
    }
}

fn is_same_after_a_copy(state: &State) -> bool {
    State::from_copy(&state.to_copy()).is_ok_and(|copy| copy == *state)
}

#[test]
fn a_right_on_a_pool_is_one_on_its_volumes_and_those_to_come() {
    let mut state = with_authority();
    done(&mut state, add("web", Role::Host, &["lab"], 1));
    let view = state.view();
    done(&mut state, grant_on("pool:default", "@lab", Right::Admin));
    assert_eq!((right(&state, 1, 1), state.view()), (Some(Right::Admin), view + 1));
    done(&mut state, create("w", "stripe"));
    assert_eq!(right(&state, 1, 2), Some(Right::Admin));
    assert!(is_same_after_a_copy(&state));
    let revisions = |state: &State| [1, 2].map(|id| state.volumes[&VolumeId(id)].revision);
    let [v, w] = revisions(&state);
    done(&mut state, grant_on("pool:default", "@lab", Right::Read));
    assert_eq!(
        (right(&state, 1, 2), revisions(&state)),
        (Some(Right::Read), [v + 1, w + 1]),
        "less is had by all at once"
    );
    done(&mut state, withdraw_on("pool:default", "@lab"));
    assert_eq!((right(&state, 1, 1), revisions(&state)), (None, [v + 2, w + 2]));
    done(&mut state, grant_on("cluster", "web", Right::Write));
    assert_eq!(right(&state, 1, 2), Some(Right::Write));
    done(&mut state, Command::RemoveIdentity { name: "web".to_owned() });
    assert_eq!((state.access.scope_grants.len(), revisions(&state)), (0, [v + 3, w + 3]));
}

#[test]
fn a_pools_rights_and_key_go_with_it() {
    let mut state = with_authority();
    done(&mut state, Command::CreatePool { name: "fast".to_owned(), layout: None });
    done(&mut state, grant_on("pool:fast", "@lab", Right::Read));
    let set = |key: Option<&str>| Command::SetPoolKey { pool: "fast".to_owned(), key: key.map(str::to_owned) };
    done(&mut state, set(Some("main")));
    done(&mut state, set(Some("other")));
    assert!(is_same_after_a_copy(&state));
    assert_eq!(state.access.pool_keys["fast"].key, "other");
    assert!(matches!(refused(&state, set(Some("a b"))), Refusal::Name { what: Thing::Key, .. }));
    done(&mut state, Command::RemovePool { name: "fast".to_owned() });
    assert_eq!((state.access.scope_grants.len(), state.access.pool_keys.len()), (0, 0));
    assert_eq!(refused(&state, set(None)), Refusal::NoPool("fast".to_owned()));
    assert_eq!(refused(&state, grant_on("pool:fast", "@lab", Right::Read)), Refusal::NoPool("fast".to_owned()));
    assert_eq!(refused(&state, grant_on("fast", "@lab", Right::Read)), Refusal::Scope("fast".to_owned()));
    assert!(matches!(refused(&state, withdraw_on("cluster", "@lab")), Refusal::NoGrantOn { .. }));
    assert!(matches!(refused(&state, grant_on("cluster", "nobody", Right::Read)), Refusal::NoIdentity(_)));
}

#[test]
fn an_authority_takes_the_place_of_another_in_three_steps() {
    let mut state = with_authority();
    let rotate = || Command::RotateAuthority { certificate: "PEM 2".to_owned(), server: ServerId(1) };
    let numbers = |state: &State| {
        let access = &state.access;
        let number = |record: Option<&std::sync::Arc<crate::AuthorityRecord>>| record.map(|record| record.number);
        (number(access.presented()), number(access.newest_authority()), access.roots())
    };
    assert_eq!(refused(&state, Command::RemoveAuthority { number: 1 }), Refusal::NotLeaving(1));
    assert_eq!(refused(&state, Command::LeaveAuthority { number: 1 }), Refusal::NotLeaving(1), "nobody could sign");
    done(&mut state, rotate());
    done(&mut state, rotate());
    assert_eq!(numbers(&state), (Some(1), Some(2), "PEM\nPEM 2\n".to_owned()));
    let third = Command::RotateAuthority { certificate: "PEM 3".to_owned(), server: ServerId(1) };
    let mut with_lost_keys = state.clone();
    done(&mut with_lost_keys, third);
    done(&mut with_lost_keys, Command::RotateAuthority { certificate: "PEM 4".to_owned(), server: ServerId(1) });
    let fifth = Command::RotateAuthority { certificate: "PEM 5".to_owned(), server: ServerId(1) };
    assert_eq!(refused(&with_lost_keys, fifth), Refusal::Rotating { number: 4 });
    done(&mut with_lost_keys, Command::LeaveAuthority { number: 1 });
    done(&mut with_lost_keys, Command::LeaveAuthority { number: 2 });
    done(&mut with_lost_keys, Command::RemoveAuthority { number: 2 });
    let view = state.view();
    done(&mut state, Command::LeaveAuthority { number: 1 });
    assert_eq!((numbers(&state), state.view()), ((Some(2), Some(2), "PEM\nPEM 2\n".to_owned()), view + 1));
    assert!(is_same_after_a_copy(&state));
    done(&mut state, Command::RemoveAuthority { number: 1 });
    assert_eq!((numbers(&state), state.view()), ((Some(2), Some(2), "PEM 2\n".to_owned()), view + 2));
    assert_eq!(refused(&state, Command::RemoveAuthority { number: 1 }), Refusal::NoSuchAuthority(1));
    assert!(state.access.leaving.is_empty() && is_same_after_a_copy(&state));
}

#[test]
fn identities_of_an_authority_of_others_go_with_it() {
    let mut state = with_authority();
    assert_eq!(
        refused(&state, of_outside("web", Role::Host, "corp", 1)),
        Refusal::NoOutsideAuthority("corp".to_owned())
    );
    done(&mut state, outside("corp"));
    done(&mut state, outside("corp"));
    done(&mut state, of_outside("web", Role::Host, "corp", 1));
    done(&mut state, of_outside("ann", Role::Operator, "corp", 2));
    done(&mut state, add("own", Role::Host, &[], 3));
    assert!(is_same_after_a_copy(&state));
    let renew = Command::RenewIdentity { name: "web".to_owned(), key: key(9) };
    assert_eq!(refused(&state, renew), Refusal::IsOutside("web".to_owned()));
    assert_eq!(refused(&state, of_outside("s9", Role::Server, "corp", 4)), Refusal::OutsideServer);
    let other = Command::AddOutsideAuthority { name: "corp".to_owned(), certificate: "other".to_owned() };
    assert_eq!(refused(&state, other), Refusal::OutsideAuthorityExists("corp".to_owned()));
    let revision = state.volumes[&VolumeId(1)].revision;
    done(&mut state, Command::RemoveOutsideAuthority { name: "corp".to_owned() });
    assert_eq!(state.access.identities.keys().collect::<Vec<_>>(), ["own"]);
    assert!(state.access.subjects.is_empty() && state.volumes[&VolumeId(1)].revision > revision);
    for number in 0..MOST_OUTSIDE {
        done(&mut state, outside(&format!("ca{number}")));
    }
    assert_eq!(refused(&state, outside("more")), Refusal::TooManyOutside { limit: MOST_OUTSIDE });
    assert_eq!(
        refused(&cluster(&[(1, 1)]), Command::RotateAuthority { certificate: "x".to_owned(), server: ServerId(1) }),
        Refusal::NoAuthority
    );
}
