//! Commands that arrive more than once, since their proposer asked again when a leader fell silent, are carried out
//! once.
//!
//! Invariants:
//! 1. A proposal of which the same process of the same server has had an answer is answered the same, and changes nothing.
//! 2. What is remembered of a server is bounded: answers until their proposer has settled them, and of its latest
//!    process only. Whatever may have been forgotten is refused as [`Refusal::Late`], never carried out.
//! 3. Nothing is remembered of servers that were removed.

use super::{Applied, Change, apply};
use crate::command::{Proposal, Proposer, Reply};
use crate::consensus::Answer;
use crate::refusal::Refusal;
use crate::state::State;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use tepal_model::ServerId;

/// The most answers that are remembered of one server. A proposer has at most [`MAX_OPEN`] proposals open.
const MAX_ANSWERS: usize = 2 * MAX_OPEN;
pub const MAX_OPEN: usize = 256;

/// What the latest process of a server has had answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    pub server: ServerId,
    pub incarnation: u32,
    pub boot: u64,
    /// All proposals before this one are over.
    pub settled: u64,
    pub answers: BTreeMap<u64, Answer>,
}

pub type Proposers = BTreeMap<ServerId, Arc<Answered>>;

/// What one entry came to.
#[derive(Debug)]
pub struct Outcome {
    /// The new state, if it was accepted now.
    pub state: Option<State>,
    pub changes: Vec<Change>,
    pub answer: Answer,
    /// What is to be remembered.
    pub answered: Option<Arc<Answered>>,
    /// Proposers to be forgotten.
    pub forgotten: Vec<ServerId>,
}

impl Outcome {
    /// Of an entry that the consensus wrote for itself.
    pub fn of_consensus() -> Outcome {
        Outcome::unchanged(Ok(Reply::Done))
    }

    fn unchanged(answer: Answer) -> Outcome {
        Outcome { state: None, changes: Vec::new(), answer, answered: None, forgotten: Vec::new() }
    }
}

pub fn carry_out(state: &State, proposers: &Proposers, proposal: &Proposal) -> Outcome {
    let answered = match &proposal.from {
        None => None,
        Some(from) => match recall(state, proposers, from) {
            Err(answer) => return Outcome::unchanged(answer),
            Ok(answered) => Some((answered, from.sequence)),
        },
    };
    let mut outcome = match apply(state, proposal) {
        Err(refusal) => Outcome::unchanged(Err(refusal)),
        Ok(Applied { state, changes, reply }) => {
            let forgotten = proposers.keys().filter(|id| !state.servers.contains_key(id)).copied().collect();
            Outcome { state: Some(state), changes, answer: Ok(reply), answered: None, forgotten }
        }
    };
    if let Some((mut answered, sequence)) = answered
        && !outcome.forgotten.contains(&answered.server)
    {
        answered.answers.insert(sequence, outcome.answer.clone());
        while answered.answers.len() > MAX_ANSWERS
            && let Some((oldest, _)) = answered.answers.pop_first()
        {
            answered.settled = oldest + 1;
        }
        outcome.answered = Some(Arc::new(answered));
    }
    outcome
}

/// What was answered, if it was; else what is remembered of the proposer so far.
fn recall(state: &State, proposers: &Proposers, from: &Proposer) -> Result<Answered, Answer> {
    let Some(server) = state.servers.get(&from.server) else { return Err(Err(Refusal::NoServer(from.server))) };
    if server.incarnation != from.incarnation {
        return Err(Err(Refusal::ServerReplaced(from.server)));
    }
    let process = (from.incarnation, from.boot);
    let mut answered = match proposers.get(&from.server) {
        Some(known) if process < (known.incarnation, known.boot) => return Err(Err(Refusal::Late)),
        Some(known) if process == (known.incarnation, known.boot) => Answered::clone(known),
        _ => {
            let (server, incarnation, boot) = (from.server, from.incarnation, from.boot);
            Answered { server, incarnation, boot, settled: 0, answers: BTreeMap::new() }
        }
    };
    if let Some(answer) = answered.answers.get(&from.sequence) {
        return Err(answer.clone());
    }
    if from.sequence < answered.settled {
        return Err(Err(Refusal::Late));
    }
    answered.settled = answered.settled.max(from.settled.min(from.sequence));
    answered.answers = answered.answers.split_off(&answered.settled);
    Ok(answered)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;
    use tepal_model::ClusterId;

    struct Cluster {
        state: State,
        proposers: Proposers,
    }

    impl Cluster {
        fn new() -> Cluster {
            let (name, address) = ("c".to_owned(), "h:1".to_owned());
            let setup = Command::InitCluster { id: ClusterId(1), name, server: ServerId(1), address };
            let mut cluster = Cluster { state: State::before_everything(), proposers: Proposers::new() };
            cluster.propose(None, setup).unwrap();
            cluster
        }

        fn propose(&mut self, from: Option<Proposer>, command: Command) -> Answer {
            let outcome = carry_out(&self.state, &self.proposers, &Proposal::new(1, from, command));
            self.state = outcome.state.unwrap_or(self.state.clone());
            self.proposers.retain(|id, _| !outcome.forgotten.contains(id));
            self.proposers.extend(outcome.answered.map(|answered| (answered.server, answered)));
            outcome.answer
        }

        fn remembered(&self) -> usize {
            self.proposers.values().map(|answered| answered.answers.len()).sum()
        }
    }

    fn from(boot: u64, sequence: u64, settled: u64) -> Option<Proposer> {
        Some(Proposer { server: ServerId(1), incarnation: 0, boot, sequence, settled, up_since: None })
    }

    fn pool(name: &str) -> Command {
        Command::CreatePool { name: name.to_owned(), layout: None }
    }

    #[test]
    fn a_command_that_arrives_twice_is_carried_out_once_and_answered_the_same() {
        let mut cluster = Cluster::new();
        assert_eq!(cluster.propose(from(1, 1, 1), pool("a")), Ok(Reply::Done));
        let (state, taken) = (cluster.state.clone(), Refusal::PoolExists("a".to_owned()));
        assert_eq!(cluster.propose(from(1, 1, 1), pool("a")), Ok(Reply::Done));
        assert_eq!(cluster.state, state);
        // A refusal is remembered too: what it was refused for may be gone by the time the copy arrives.
        assert_eq!(cluster.propose(from(1, 2, 1), pool("a")), Err(taken.clone()));
        cluster.propose(from(1, 3, 1), Command::RemovePool { name: "a".to_owned() }).unwrap();
        assert_eq!(cluster.propose(from(1, 2, 1), pool("a")), Err(taken));
        assert!(!cluster.state.pools.contains_key("a"));
    }

    #[test]
    fn what_is_settled_is_forgotten_and_never_carried_out_again() {
        let mut cluster = Cluster::new();
        for sequence in 1..=10 {
            cluster.propose(from(1, sequence, sequence), pool(&format!("p{sequence}"))).unwrap();
        }
        assert_eq!(cluster.remembered(), 1);
        cluster.propose(from(1, 11, 11), Command::RemovePool { name: "p3".to_owned() }).unwrap();
        assert_eq!(cluster.propose(from(1, 3, 3), pool("p3")), Err(Refusal::Late));
        assert!(!cluster.state.pools.contains_key("p3"));
    }

    #[test]
    fn a_copy_from_before_the_proposer_s_restart_is_not_carried_out() {
        let mut cluster = Cluster::new();
        cluster.propose(from(2, 1, 1), pool("a")).unwrap();
        assert_eq!(cluster.propose(from(1, 9, 1), pool("b")), Err(Refusal::Late));
        assert_eq!(cluster.remembered(), 1);
    }

    #[test]
    fn a_proposer_that_never_settles_anything_is_remembered_within_bounds() {
        let mut cluster = Cluster::new();
        for sequence in 1..=3 * MAX_ANSWERS as u64 {
            let event = Command::RecordEvent { kind: "k".into(), subject: "s".into(), text: "t".into() };
            cluster.propose(from(1, sequence, 0), event).unwrap();
        }
        assert_eq!(cluster.remembered(), MAX_ANSWERS);
        assert_eq!(cluster.propose(from(1, 1, 0), pool("a")), Err(Refusal::Late));
    }

    #[test]
    fn a_removed_server_s_proposals_are_refused_and_forgotten() {
        let mut cluster = Cluster::new();
        let join = Command::JoinServer { folder: 7, address: "h:2".to_owned(), claim: None };
        cluster.propose(from(1, 1, 1), join).unwrap();
        let second = |sequence| Some(Proposer { server: ServerId(2), ..from(1, sequence, 1).unwrap() });
        cluster.propose(second(1), pool("a")).unwrap();
        cluster.propose(second(2), Command::RemoveServer { id: ServerId(2) }).unwrap();
        assert_eq!(cluster.propose(second(3), pool("b")), Err(Refusal::NoServer(ServerId(2))));
        assert!(!cluster.proposers.contains_key(&ServerId(2)));
    }
}
