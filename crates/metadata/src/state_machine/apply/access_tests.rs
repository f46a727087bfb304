use super::access::{MOST_GRANTS, MOST_IDENTITIES};
use super::tests::{cluster, create, done, refused};
use crate::access::{KeyHash, Right, Role};
use crate::command::Command;
use crate::refusal::{Refusal, Thing};
use crate::state::State;
use tepal_model::{ServerId, VolumeId};

pub fn key(number: u32) -> KeyHash {
    let mut hash = [0; 32];
    hash[..4].copy_from_slice(&number.to_le_bytes());
    KeyHash(hash)
}

pub fn add(name: &str, role: Role, groups: &[&str], number: u32) -> Command {
    let groups = groups.iter().map(|&group| group.to_owned()).collect();
    Command::AddIdentity { name: name.to_owned(), role, groups, key: key(number) }
}

fn grant(to: &str, right: Right) -> Command {
    Command::Grant { volume: "v".to_owned(), to: to.to_owned(), right }
}

fn withdraw(to: &str) -> Command {
    Command::Withdraw { volume: "v".to_owned(), to: to.to_owned() }
}

fn authority() -> Command {
    Command::AddAuthority { certificate: "PEM".to_owned(), server: ServerId(1) }
}

pub fn with_authority() -> State {
    let mut state = cluster(&[(1, 1)]);
    done(&mut state, create("v", "stripe"));
    done(&mut state, authority());
    state
}

fn right(state: &State, number: u32) -> Option<Right> {
    state.access.identity_of(&key(number)).and_then(|identity| state.right_of(identity, VolumeId(1)))
}

#[test]
fn rights_are_had_from_the_grant_to_the_withdrawal() {
    let mut state = with_authority();
    done(&mut state, add("web", Role::Host, &["lab"], 1));
    assert_eq!(right(&state, 1), None);
    done(&mut state, grant("web", Right::Write));
    done(&mut state, grant("@lab", Right::Read));
    assert_eq!(right(&state, 1), Some(Right::Write));
    let view = state.view();
    done(&mut state, withdraw("web"));
    assert_eq!((right(&state, 1), state.view()), (Some(Right::Read), view + 1));
    assert_eq!(refused(&state, withdraw("web")), Refusal::NoGrant { volume: "v".to_owned(), to: "web".to_owned() });
    done(&mut state, grant("@lab", Right::Admin));
    done(&mut state, grant("@lab", Right::Read));
    assert_eq!((right(&state, 1), state.view()), (Some(Right::Read), view + 3), "each is waited for");
}

#[test]
fn a_revoked_identity_has_no_rights_and_its_successor_gets_none_of_them() {
    let mut state = with_authority();
    done(&mut state, add("web", Role::Host, &[], 1));
    done(&mut state, grant("web", Right::Write));
    let view = state.view();
    done(&mut state, Command::RemoveIdentity { name: "web".to_owned() });
    assert_eq!((right(&state, 1), state.view()), (None, view + 1));
    done(&mut state, add("web", Role::Host, &[], 2));
    assert_eq!(right(&state, 2), None);
    let gone = Command::RemoveIdentity { name: "other".to_owned() };
    assert_eq!(refused(&state, gone), Refusal::NoIdentity("other".to_owned()));
}

#[test]
fn a_revoked_server_is_remembered_as_such() {
    let mut state = with_authority();
    done(&mut state, add("s2", Role::Server, &[], 1));
    assert_eq!(right(&state, 1), Some(Right::Admin));
    done(&mut state, Command::RemoveIdentity { name: "s2".to_owned() });
    assert_eq!((right(&state, 1), state.access.identity_of(&key(1)).unwrap().role), (None, Role::Revoked));
    let again = [
        Command::RemoveIdentity { name: "s2".to_owned() },
        Command::RenewIdentity { name: "s2".to_owned(), key: key(2) },
    ];
    for command in again {
        assert_eq!(refused(&state, command), Refusal::IdentityRevoked("s2".to_owned()));
    }
    assert_eq!(refused(&state, add("s2", Role::Server, &[], 2)), Refusal::IdentityExists("s2".to_owned()));
    assert_eq!(refused(&state, add("x", Role::Revoked, &[], 2)), Refusal::NoIdentity("x".to_owned()));
}

#[test]
fn a_renewed_identity_is_known_by_its_last_two_keys() {
    let mut state = with_authority();
    done(&mut state, add("web", Role::Host, &[], 1));
    let renew = |number| Command::RenewIdentity { name: "web".to_owned(), key: key(number) };
    done(&mut state, renew(2));
    done(&mut state, renew(2));
    let known = |state: &State| [1, 2, 3].map(|number| state.access.identity_of(&key(number)).is_some());
    assert_eq!(known(&state), [true, true, false]);
    done(&mut state, renew(3));
    assert_eq!(known(&state), [false, true, true]);
    done(&mut state, add("db", Role::Host, &[], 4));
    assert_eq!(refused(&state, renew(4)), Refusal::KeyTaken { name: "db".to_owned() });
    assert_eq!(refused(&state, add("x", Role::Host, &[], 2)), Refusal::KeyTaken { name: "web".to_owned() });
}

#[test]
fn what_a_volume_granted_goes_with_it() {
    let mut state = with_authority();
    done(&mut state, add("web", Role::Host, &[], 1));
    done(&mut state, grant("web", Right::Write));
    done(&mut state, Command::RemoveVolume { name: "v".to_owned(), snapshots: false });
    assert_eq!((state.access.grants.len(), right(&state, 1)), (0, None));
}

#[test]
fn commands_about_access_that_break_a_rule_are_refused_with_it() {
    let mut state = cluster(&[(1, 1)]);
    done(&mut state, create("v", "stripe"));
    assert_eq!(refused(&state, add("web", Role::Host, &[], 1)), Refusal::NoAuthority);
    let empty = Command::AddAuthority { certificate: String::new(), server: ServerId(1) };
    assert!(matches!(refused(&state, empty), Refusal::Certificate { .. }));
    done(&mut state, authority());
    assert_eq!(refused(&state, authority()), Refusal::AuthorityExists { server: ServerId(1) });
    assert!(matches!(refused(&state, add("a b", Role::Host, &[], 1)), Refusal::Name { what: Thing::Identity, .. }));
    assert!(matches!(refused(&state, add("a", Role::Host, &["@"], 1)), Refusal::Name { what: Thing::Group, .. }));
    let groups: Vec<String> = (0..17).map(|n| format!("g{n}")).collect();
    let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
    assert!(matches!(refused(&state, add("a", Role::Host, &groups, 1)), Refusal::TooManyGroups { .. }));
    done(&mut state, add("a", Role::Host, &groups[1..], 1));
    assert_eq!(refused(&state, add("a", Role::Host, &[], 2)), Refusal::IdentityExists("a".to_owned()));
    assert!(matches!(refused(&state, grant("@a b", Right::Read)), Refusal::Name { what: Thing::Group, .. }));
    assert_eq!(refused(&state, grant("b", Right::Read)), Refusal::NoIdentity("b".to_owned()));
}

#[test]
fn at_the_most_identities_and_grants_one_must_go_before_the_next() {
    let mut state = with_authority();
    for number in 0..MOST_IDENTITIES as u32 {
        done(&mut state, add(&format!("h{number}"), Role::Host, &[], number));
    }
    let more = || add("more", Role::Host, &[], u32::MAX);
    assert_eq!(refused(&state, more()), Refusal::TooManyIdentities { limit: MOST_IDENTITIES });
    for number in 0..MOST_GRANTS {
        done(&mut state, grant(&format!("h{number}"), Right::Read));
    }
    let one_more = || grant("h5000", Right::Read);
    assert!(matches!(refused(&state, one_more()), Refusal::TooManyGrants { .. }));
    done(&mut state, grant("h0", Right::Write));
    done(&mut state, Command::RemoveIdentity { name: "h0".to_owned() });
    done(&mut state, one_more());
    done(&mut state, more());
}

#[test]
fn a_reservation_is_one_holders_until_it_is_taken_or_fenced() {
    let mut state = with_authority();
    let reserve = |holder: &str, take| Command::Reserve { volume: "v".to_owned(), holder: holder.to_owned(), take };
    let release = |from: Option<&str>| Command::Release { volume: "v".to_owned(), from: from.map(str::to_owned) };
    let told = |state: &State| {
        let (holder, number) = state.access.reserved(VolumeId(1));
        (holder.map(str::to_owned), number, state.view(), state.volumes[&VolumeId(1)].revision)
    };
    let (_, _, view, revision) = told(&state);
    let expected =
        |holder: Option<&str>, steps: u64| (holder.map(str::to_owned), steps, view + steps, revision + steps);
    done(&mut state, reserve("a", false));
    done(&mut state, reserve("a", false));
    assert_eq!(told(&state), expected(Some("a"), 1), "asked twice, it's the same one");
    let held = Refusal::Reserved { volume: "v".to_owned(), holder: "a".to_owned() };
    assert_eq!(refused(&state, reserve("b", false)), held);
    done(&mut state, reserve("b", true));
    assert_eq!(told(&state), expected(Some("b"), 2));
    let not = Refusal::NotHolding { volume: "v".to_owned(), from: "a".to_owned() };
    assert_eq!(refused(&state, release(Some("a"))), not);
    done(&mut state, release(Some("b")));
    done(&mut state, release(None));
    assert_eq!(told(&state), expected(None, 4));
    for fenced in ["a", "b"] {
        let refusal = Refusal::Fenced { volume: "v".to_owned(), holder: fenced.to_owned() };
        assert_eq!(refused(&state, reserve(fenced, false)), refusal, "its clients may send again what was on its way");
    }
    done(&mut state, reserve("c", false));
    done(&mut state, release(Some("c")));
    done(&mut state, reserve("a", true));
    done(&mut state, release(None));
    assert_eq!(state.access.reservations[&VolumeId(1)].fenced, ["b", "c", "a"]);
    assert!(matches!(refused(&state, reserve("a b", false)), Refusal::Name { what: Thing::Holder, .. }));
    done(&mut state, Command::RemoveVolume { name: "v".to_owned(), snapshots: false });
    assert!(state.access.reservations.is_empty());
}

#[test]
fn what_takes_a_right_away_has_requests_under_way_refused_by_revision() {
    let mut state = with_authority();
    done(&mut state, create("w", "stripe"));
    done(&mut state, add("web", Role::Host, &["lab"], 1));
    done(&mut state, add("ann", Role::Operator, &[], 2));
    let revisions = |state: &State| [1, 2].map(|id| state.volumes[&VolumeId(id)].revision);
    let [v, w] = revisions(&state);
    done(&mut state, grant("@lab", Right::Write));
    done(&mut state, grant("@lab", Right::Read));
    assert_eq!(revisions(&state), [v + 1, w]);
    done(&mut state, withdraw("@lab"));
    done(&mut state, grant("web", Right::Write));
    assert_eq!(revisions(&state), [v + 2, w]);
    done(&mut state, Command::RemoveIdentity { name: "web".to_owned() });
    assert_eq!(revisions(&state), [v + 3, w]);
    done(&mut state, Command::RemoveIdentity { name: "ann".to_owned() });
    assert_eq!(revisions(&state), [v + 4, w + 1]);
}
