use super::snapshot_tests::{clone, take};
use super::tests::{cluster, done, refused};
use crate::access::LONGEST_WRAPPED;
use crate::command::Command;
use crate::refusal::{Refusal, Thing};
use crate::state::State;
use tepal_model::VolumeId;

fn encrypted(name: &str, key: &str, wrapped: &str) -> Command {
    let (name, layout, pool) = (name.to_owned(), Some("stripe".to_owned()), crate::DEFAULT_POOL.to_owned());
    Command::CreateEncrypted { name, size: 4096, layout, pool, key: key.to_owned(), wrapped: wrapped.to_owned() }
}

fn rewrap(volume: &str, key: &str, [before, wrapped]: [&str; 2]) -> Command {
    let (volume, key) = (volume.to_owned(), key.to_owned());
    Command::RewrapKey { volume, key, wrapped: wrapped.to_owned(), before: before.to_owned() }
}

fn key(state: &State, volume: u64) -> Option<(&str, &str)> {
    state.access.volume_keys.get(&VolumeId(volume)).map(|record| (&*record.key, &*record.wrapped))
}

#[test]
fn a_volume_and_its_clone_have_keys_until_they_are_removed() {
    let mut state = cluster(&[(1, 1)]);
    done(&mut state, encrypted("v", "main", "0a"));
    done(&mut state, take("v", "s"));
    done(&mut state, clone("v", "s", "c"));
    assert_eq!((key(&state, 1), key(&state, 2)), (Some(("main", "0a")), Some(("main", "0a"))));
    done(&mut state, rewrap("v", "next", ["0a", "0b"]));
    assert_eq!((key(&state, 1), key(&state, 2)), (Some(("next", "0b")), Some(("main", "0a"))));
    assert_eq!(State::from_copy(&state.to_copy()).unwrap(), state);
    done(&mut state, Command::RemoveVolume { name: "v".to_owned(), snapshots: true });
    assert_eq!((key(&state, 1), key(&state, 2).is_some()), (None, true));
}

#[test]
fn a_key_wrapped_anew_meanwhile_stays() {
    let mut state = cluster(&[(1, 1)]);
    done(&mut state, encrypted("v", "main", "0a"));
    done(&mut state, rewrap("v", "next", ["0a", "0b"]));
    assert_eq!(refused(&state, rewrap("v", "other", ["0a", "0c"])), Refusal::KeyChanged("v".to_owned()));
    // Asked once more, as its answer was lost.
    done(&mut state, rewrap("v", "next", ["0a", "0b"]));
    assert_eq!(key(&state, 1), Some(("next", "0b")));
}

#[test]
fn keys_have_names_and_hexadecimal_digits_to_a_limit() {
    let mut state = cluster(&[(1, 1)]);
    let name = Refusal::Name { what: Thing::Key, name: "a/b".to_owned() };
    assert_eq!(refused(&state, encrypted("v", "a/b", "0a")), name);
    let longest = "0".repeat(LONGEST_WRAPPED);
    for wrong in ["", "0A", "x", &format!("{longest}0")] {
        let refusal = Refusal::WrappedKey { limit: LONGEST_WRAPPED };
        assert_eq!(refused(&state, encrypted("v", "main", wrong)), refusal);
    }
    done(&mut state, encrypted("v", "main", &longest));
    assert_eq!(refused(&state, encrypted("v", "main", "0a")), Refusal::VolumeExists("v".to_owned()));
    done(&mut state, super::tests::create("plain", "stripe"));
    assert_eq!(refused(&state, rewrap("plain", "main", ["", "0a"])), Refusal::NotEncrypted("plain".to_owned()));
    assert_eq!(key(&state, 2), None);
}

/// Ten thousand times nothing but the record changes, and it stays one.
#[test]
fn a_key_wrapped_ten_thousand_times_leaves_one_record() {
    let mut state = cluster(&[(1, 1)]);
    done(&mut state, encrypted("v", "main", "00000000"));
    for round in 0u32..10_000 {
        let [before, wrapped] = [round, round + 1].map(|number| format!("{number:08x}"));
        done(&mut state, rewrap("v", "main", [&before, &wrapped]));
    }
    assert_eq!((state.access.volume_keys.len(), key(&state, 1)), (1, Some(("main", "00002710"))));
    assert_eq!(state.volume_named("v").unwrap().revision, 1);
}
