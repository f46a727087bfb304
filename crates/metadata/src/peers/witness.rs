//! What this process knows of the others' votes and logs, by which a server shows itself whose data folder was
//! restored from an old copy.
//!
//! A server must not forget whom it voted for, nor an entry that it said it has: a majority may rely on it. Before a
//! server takes part it tells the others what it has, and each compares that with what it has seen of it. Kept in
//! memory only: docs/internals/members.md says what that covers.

use super::message::{Expelled, Sender};
use crate::format::{EntryId, VoteForm};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tepal_model::ServerId;

/// Shared by everything that talks to peers.
#[derive(Debug, Default)]
pub struct Witness(Mutex<BTreeMap<u64, Seen>>);

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    boot: u64,
    /// Entries count within the term of the leader who had them acknowledged: another one may rightly replace them.
    had: (Ballot, Option<EntryId>),
}

/// Whom a server voted for: (term, candidate).
type Ballot = Option<(u64, u64)>;

fn ballot(vote: &VoteForm) -> Ballot {
    Some((vote.term, vote.node))
}

impl Witness {
    /// `node` said that it has this vote.
    pub fn voted(&self, node: u64, vote: &VoteForm) {
        self.note(node, (ballot(vote), None));
    }

    /// `node` said, to the leader of this vote, that it has everything up to `last`.
    pub fn note_entries(&self, node: u64, leader: &VoteForm, last: Option<EntryId>) {
        self.note(node, (ballot(leader), last));
    }

    fn note(&self, node: u64, had: (Ballot, Option<EntryId>)) {
        let mut seen = self.seen();
        let seen = seen.entry(node).or_default();
        seen.had = seen.had.max(had);
    }

    /// Notes that a process speaks, unless a later one of the same folder has.
    pub fn note_speaking(&self, sender: &Sender, server: ServerId) -> Result<(), Expelled> {
        let mut seen = self.seen();
        let seen = seen.entry(sender.node).or_default();
        if sender.boot < seen.boot {
            return Err(Expelled::Twin(server));
        }
        seen.boot = sender.boot;
        Ok(())
    }

    /// Whether `node` has everything that is known of it.
    pub fn vouches(
        &self,
        node: u64,
        server: ServerId,
        vote: Option<&VoteForm>,
        last: Option<EntryId>,
    ) -> Result<(), Expelled> {
        let known = self.seen().get(&node).map(|seen| seen.had).unwrap_or_default();
        if (vote.and_then(ballot), last) < known { Err(Expelled::Forgot(server)) } else { Ok(()) }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: ServerId = ServerId(2);

    fn vote(term: u64) -> VoteForm {
        VoteForm { term, node: 1, committed: true }
    }

    fn entry(term: u64, index: u64) -> Option<EntryId> {
        Some(EntryId { term, node: 1, index })
    }

    #[test]
    fn whoever_lacks_a_vote_or_an_entry_that_it_had_is_not_vouched_for() {
        let witness = Witness::default();
        witness.note_entries(2, &vote(3), entry(3, 10));
        witness.note_entries(2, &vote(3), entry(3, 7));
        let cases = [
            (None, None, false),
            (Some(vote(2)), entry(2, 99), false),
            (Some(vote(3)), entry(3, 9), false),
            (Some(vote(3)), entry(3, 10), true),
            (Some(vote(3)), entry(3, 11), true),
            // A later leader may have replaced what came after entry 5.
            (Some(vote(4)), entry(2, 5), true),
        ];
        for (had, last, vouched) in cases {
            assert_eq!(witness.vouches(2, SERVER, had.as_ref(), last).is_ok(), vouched, "{had:?} {last:?}");
        }
        assert!(witness.vouches(3, ServerId(3), None, None).is_ok(), "of another one nothing is known");
        witness.voted(2, &vote(5));
        assert!(witness.vouches(2, SERVER, Some(&vote(4)), entry(3, 10)).is_err());
    }

    #[test]
    fn of_two_processes_of_one_folder_only_the_later_is_heard() {
        let witness = Witness::default();
        let process = |boot| Sender { node: 2, boot, history: 0 };
        assert_eq!(witness.note_speaking(&process(4), SERVER), Ok(()));
        assert_eq!(witness.note_speaking(&process(5), SERVER), Ok(()));
        assert_eq!(witness.note_speaking(&process(4), SERVER), Err(Expelled::Twin(SERVER)));
    }
}
