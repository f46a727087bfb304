//! What the members of the consensus should be: a pure function.
//!
//! Every server is a member; of 1 or 2 servers one votes, of 3 or 4 three, of 5 or more five. Never an even number: it
//! would need one more for a majority and survive no more failures.
//!
//! Who votes goes on to vote while it's there. One that was removed, or is gone for good, is replaced as soon as
//! another server is there that has caught up; until then it stays, since a smaller number would make what was
//! acknowledged depend on fewer.

use std::collections::{BTreeMap, BTreeSet};

/// A server that should be a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub node: u64,
    pub address: String,
    /// It's up, and has nearly everything.
    pub ready: bool,
    /// It has been down for so long that it isn't waited for.
    pub gone: bool,
}

/// The members as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Present {
    pub nodes: BTreeSet<u64>,
    /// Two sets, while one replaces the other.
    pub voters: Vec<BTreeSet<u64>>,
}

/// The next step towards what should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// As learners.
    Add(BTreeMap<u64, String>),
    Vote(BTreeSet<u64>),
    /// These don't vote.
    Remove(BTreeSet<u64>),
}

/// `leader` goes on voting if it may.
pub fn next_step(candidates: &[Candidate], present: &Present, leader: u64) -> Option<Step> {
    if let [_, new] = &present.voters[..] {
        return Some(Step::Vote(new.clone()));
    }
    let voting = present.voters.first()?;
    let missing = candidates.iter().filter(|candidate| !present.nodes.contains(&candidate.node));
    let missing: BTreeMap<u64, String> = missing.map(|candidate| (candidate.node, candidate.address.clone())).collect();
    if !missing.is_empty() {
        return Some(Step::Add(missing));
    }
    let wanted = voters(candidates, voting, leader);
    if wanted != *voting {
        return Some(Step::Vote(wanted));
    }
    let void = present.nodes.iter().filter(|node| candidates.iter().all(|candidate| candidate.node != **node));
    let void: BTreeSet<u64> = void.filter(|node| !voting.contains(node)).copied().collect();
    (!void.is_empty()).then_some(Step::Remove(void))
}

/// Who should vote. The same for the same arguments on every server.
pub fn voters(candidates: &[Candidate], voting: &BTreeSet<u64>, leader: u64) -> BTreeSet<u64> {
    let number = match candidates.len() {
        0..=2 => 1,
        3..=4 => 3,
        _ => 5,
    };
    let rank = |candidate: &&Candidate| {
        let votes = voting.contains(&candidate.node);
        let order = match (votes, candidate.ready, candidate.gone) {
            (true, _, false) if candidate.node == leader => 0,
            (true, true, _) => 1,
            (true, false, false) => 2,
            (false, true, _) => 3,
            (true, false, true) => 4,
            (false, false, _) => return None,
        };
        Some((order, candidate.node))
    };
    let mut ranked: Vec<(u8, u64)> = candidates.iter().filter_map(|candidate| rank(&candidate)).collect();
    ranked.sort_unstable();
    let chosen: BTreeSet<u64> = ranked.iter().take(number).map(|(_, node)| *node).collect();
    // Fewer than there should be, only as long as it's an odd number and no fewer than now.
    if chosen.len() == number {
        return chosen;
    }
    let odd = if chosen.len().is_multiple_of(2) { chosen.len().saturating_sub(1) } else { chosen.len() };
    if odd < voting.len() {
        return voting.clone();
    }
    ranked.iter().take(odd).map(|(_, node)| *node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `r`eady, `d`own or `g`one, from node 1 on.
    fn servers(states: &str) -> Vec<Candidate> {
        let candidate =
            |(node, state)| Candidate { node, address: format!("h:{node}"), ready: state == 'r', gone: state == 'g' };
        (1..).zip(states.chars()).filter(|(_, state)| *state != '-').map(candidate).collect()
    }

    fn set<const N: usize>(nodes: [u64; N]) -> BTreeSet<u64> {
        nodes.into()
    }

    #[test]
    fn the_number_of_voters_is_odd_and_grows_with_the_cluster() {
        let cases = [
            ("r", set([1]), set([1])),
            ("rr", set([1]), set([1])),
            ("rrr", set([1]), set([1, 2, 3])),
            ("rrd", set([1]), set([1])),
            ("rrrr", set([1]), set([1, 2, 3])),
            ("rdrr", set([1]), set([1, 3, 4])),
            ("rrrrr", set([1, 2, 3]), set([1, 2, 3, 4, 5])),
            ("rrrrd", set([1, 2, 3]), set([1, 2, 3])),
            ("rrrrrrr", set([1, 2, 3, 6, 7]), set([1, 2, 3, 6, 7])),
            // Down for a while, or gone and nobody there to replace it.
            ("rrdr", set([1, 2, 3]), set([1, 2, 3])),
            ("rrg", set([1, 2, 3]), set([1, 2, 3])),
            ("rrgd", set([1, 2, 3]), set([1, 2, 3])),
            // Replaced.
            ("rrgr", set([1, 2, 3]), set([1, 2, 4])),
            ("rr-r", set([1, 2, 3]), set([1, 2, 4])),
            // Removed, so that fewer suffice; and not, while its place can't be taken.
            ("rr-", set([1, 2, 3]), set([1])),
            ("rr-d", set([1, 2, 3]), set([1, 2, 3])),
            ("rrr--", set([1, 2, 3, 4, 5]), set([1, 2, 3])),
        ];
        for (states, voting, wanted) in cases {
            assert_eq!(voters(&servers(states), &voting, 1), wanted, "{states} {voting:?}");
        }
    }

    #[test]
    fn one_step_is_taken_at_a_time_and_a_change_that_was_begun_is_finished_first() {
        let candidates = servers("rrr");
        let mut present = Present { nodes: set([1, 9]), voters: vec![set([1])] };
        let mut steps = Vec::new();
        while let Some(step) = next_step(&candidates, &present, 1) {
            match &step {
                Step::Add(nodes) => present.nodes.extend(nodes.keys()),
                Step::Vote(voters) if present.voters.len() == 1 => present.voters.push(voters.clone()),
                Step::Vote(voters) => present.voters = vec![voters.clone()],
                Step::Remove(nodes) => present.nodes.retain(|node| !nodes.contains(node)),
            }
            steps.push(step);
        }
        let added = [(2, "h:2".to_owned()), (3, "h:3".to_owned())].into();
        let voting = Step::Vote(set([1, 2, 3]));
        assert_eq!(steps, [Step::Add(added), voting.clone(), voting, Step::Remove(set([9]))]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_settles_with_as_many_live_voters_as_may_be(
            states in "[rdg-]{1,9}",
            voting in prop::collection::btree_set(1u64..10, 1..6),
        ) {
            let candidates = servers(&states);
            let chosen = voters(&candidates, &voting, 1);
            prop_assert!(!chosen.is_empty() && chosen.len() <= voting.len().max(5));
            prop_assert_eq!(&voters(&candidates, &chosen, 1), &chosen, "choosing again changes nothing");
            let ready = |node: &u64| candidates.iter().any(|candidate| candidate.node == *node && candidate.ready);
            for node in chosen.difference(&voting) {
                prop_assert!(ready(node), "{node} votes anew and isn't ready");
            }
        }
    }
}
