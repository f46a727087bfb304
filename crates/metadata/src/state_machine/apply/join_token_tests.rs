use super::access_tests::{key, with_authority};
use super::join_tokens::{LONGEST_MS, MOST_TOKENS};
use super::tests::{cluster, done, refused};
use crate::access::{KeyHash, Role};
use crate::command::Command;
use crate::refusal::Refusal;
use crate::state::State;

/// Tests' proposals are made at a time before this.
const LATER: u64 = LONGEST_MS / 2;

fn add(hash: KeyHash) -> Command {
    Command::AddJoinToken { hash, until_unix_ms: LATER }
}

fn show(hash: KeyHash, name: &str, number: u32) -> Command {
    Command::UseJoinToken { hash, name: name.to_owned(), key: key(number) }
}

#[test]
fn one_key_joins_by_a_token_however_often_it_is_shown() {
    let mut state = with_authority();
    let token = key(100);
    assert_eq!(refused(&state, show(token, "new", 1)), Refusal::NoJoinToken);
    done(&mut state, add(token));
    done(&mut state, show(token, "new", 1));
    done(&mut state, show(token, "new", 1));
    assert_eq!(refused(&state, show(token, "other", 2)), Refusal::JoinTokenUsed);
    assert_eq!(state.access.identity_of(&key(1)).map(|identity| identity.role), Some(Role::Server));
    assert_eq!(State::from_copy(&state.to_copy()).unwrap(), state);
    done(&mut state, Command::RemoveJoinToken { hash: token });
    assert_eq!(refused(&state, show(token, "new", 1)), Refusal::NoJoinToken);
    assert_eq!(refused(&state, Command::RemoveJoinToken { hash: token }), Refusal::NoJoinToken);
}

#[test]
fn tokens_count_for_a_time_and_are_limited_in_number() {
    let mut state = with_authority();
    for until_unix_ms in [0, LONGEST_MS * 2] {
        let wrong = Command::AddJoinToken { hash: key(1), until_unix_ms };
        assert_eq!(refused(&state, wrong), Refusal::JoinTokenTime { days: 30 });
    }
    for number in 0..MOST_TOKENS {
        done(&mut state, add(key(100 + number as u32)));
    }
    assert_eq!(refused(&state, add(key(1))), Refusal::TooManyJoinTokens { limit: MOST_TOKENS });
    done(&mut state, Command::RemoveJoinToken { hash: key(100) });
    done(&mut state, add(key(1)));
    assert_eq!(refused(&cluster(&[(1, 1)]), add(key(1))), Refusal::NoAuthority);
}
