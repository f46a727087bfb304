//! Commands that arrive more than once, since their proposer asked again when a leader fell silent, are carried out
//! once.
//!
//! Invariants:
//! 1. A proposal of which the same process of the same server has had an answer is answered the same, and changes nothing.
//! 2. What is remembered of a server is bounded: answers until their proposer has settled them, and of its latest
//!    process only. Whatever may have been forgotten is refused as [`Refusal::Late`], never carried out.
//! 3. Nothing is remembered of servers that were removed.

use super::requests::{DoneRequest, Requests};
use super::{Applied, Change, apply};
use crate::command::{Command, Proposal, Proposer, Reply};
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
    /// What is to be remembered under a client's key.
    pub request: Option<Arc<DoneRequest>>,
    /// Clients' keys to be forgotten.
    pub forgotten_keys: Vec<String>,
}

impl Outcome {
    /// Of an entry that the consensus wrote for itself.
    pub fn of_consensus() -> Outcome {
        Outcome::unchanged(Ok(Reply::Done))
    }

    fn unchanged(answer: Answer) -> Outcome {
        Outcome {
            state: None,
            changes: Vec::new(),
            answer,
            answered: None,
            forgotten: Vec::new(),
            request: None,
            forgotten_keys: Vec::new(),
        }
    }
}

pub fn carry_out(state: &State, proposers: &Proposers, requests: &Requests, proposal: &Proposal) -> Outcome {
    let answered = match &proposal.from {
        None => None,
        Some(from) => match recall(state, proposers, from) {
            Err(answer) => return Outcome::unchanged(answer),
            Ok(answered) => Some((answered, from.sequence)),
        },
    };
    let mut outcome = match known(requests, &proposal.command) {
        Some(answer) => Outcome::unchanged(answer),
        None => carry_out_now(state, proposers, requests, proposal),
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

/// What was answered to the same client's request before.
fn known(requests: &Requests, command: &Command) -> Option<Answer> {
    match command {
        Command::Once { key, content, .. } => requests.recall(key, content),
        _ => None,
    }
}

fn carry_out_now(state: &State, proposers: &Proposers, requests: &Requests, proposal: &Proposal) -> Outcome {
    match apply(state, proposal) {
        Err(refusal) => Outcome::unchanged(Err(refusal)),
        Ok(Applied { state, changes, reply }) => {
            let forgotten = proposers.keys().filter(|id| !state.servers.contains_key(id)).copied().collect();
            let (request, forgotten_keys) = match &proposal.command {
                Command::Once { key, content, .. } => {
                    let request = requests.next((key, content), proposal.unix_ms, reply.clone());
                    (Some(Arc::new(request)), requests.outdated(proposal.unix_ms))
                }
                _ => (None, Vec::new()),
            };
            Outcome {
                state: Some(state),
                changes,
                answer: Ok(reply),
                answered: None,
                forgotten,
                request,
                forgotten_keys,
            }
        }
    }
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
        requests: Requests,
    }

    impl Cluster {
        fn new() -> Cluster {
            let (name, address) = ("c".to_owned(), "h:1".to_owned());
            let setup = Command::InitCluster { id: ClusterId(1), name, server: ServerId(1), address };
            let mut cluster = Cluster {
                state: State::before_everything(),
                proposers: Proposers::new(),
                requests: Requests::default(),
            };
            cluster.propose(None, setup).unwrap();
            cluster
        }

        fn propose(&mut self, from: Option<Proposer>, command: Command) -> Answer {
            self.propose_at(1, from, command)
        }

        fn propose_at(&mut self, unix_ms: u64, from: Option<Proposer>, command: Command) -> Answer {
            let proposal = Proposal::new(unix_ms, from, command);
            let outcome = carry_out(&self.state, &self.proposers, &self.requests, &proposal);
            outcome.forgotten_keys.iter().for_each(|key| self.requests.forget(key));
            outcome.request.into_iter().for_each(|request| self.requests.put(request));
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

    fn keyed(key: &str, content: &str, command: Command) -> Command {
        Command::Once { key: key.to_owned(), content: content.to_owned(), command: Box::new(command) }
    }

    /// Story: a client lost the answer with the server that had it, and asked another one.
    #[test]
    fn a_request_with_a_known_key_is_answered_as_the_first() {
        let mut cluster = Cluster::new();
        assert_eq!(cluster.propose(from(1, 1, 1), keyed("k", "c", pool("a"))), Ok(Reply::Done));
        let state = cluster.state.clone();
        assert_eq!(cluster.propose(from(2, 1, 1), keyed("k", "c", pool("a"))), Ok(Reply::Done));
        assert_eq!(cluster.state, state);
        let reused = cluster.propose(from(2, 2, 1), keyed("k", "other", pool("b")));
        assert_eq!(reused, Err(Refusal::KeyReused("k".to_owned())));
        let without = cluster.propose(from(2, 3, 1), pool("a"));
        assert_eq!(without, Err(Refusal::PoolExists("a".to_owned())));
    }

    #[test]
    fn what_was_refused_may_be_asked_for_again_under_its_key() {
        let mut cluster = Cluster::new();
        cluster.propose(from(1, 1, 1), pool("a")).unwrap();
        assert!(cluster.propose(from(1, 2, 1), keyed("k", "c", pool("a"))).is_err());
        cluster.propose(from(1, 3, 1), Command::RemovePool { name: "a".to_owned() }).unwrap();
        assert_eq!(cluster.propose(from(1, 4, 1), keyed("k", "c", pool("a"))), Ok(Reply::Done));
    }

    #[test]
    fn keys_are_forgotten_after_a_day_and_beyond_their_number() {
        use super::super::requests::{KEPT_MS, MOST};
        let event = || Command::RecordEvent { kind: "k".into(), subject: "s".into(), text: "t".into() };
        let mut cluster = Cluster::new();
        for number in 0..MOST + 5 {
            cluster.propose_at(1, None, keyed(&format!("k{number}"), "c", event())).unwrap();
        }
        assert_eq!(cluster.requests.len(), MOST);
        assert!(cluster.requests.recall("k4", "c").is_none());
        assert!(cluster.requests.recall("k5", "c").is_some());
        cluster.propose_at(2 + KEPT_MS, None, keyed("late", "c", event())).unwrap();
        assert_eq!(cluster.requests.len(), 1);
    }
}
