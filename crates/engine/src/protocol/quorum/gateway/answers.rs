//! What nodes have said of one block, and what follows from that. A pure function of the answers.

use super::super::shape::Shape;
use std::collections::BTreeMap;
use tepal_model::Version;
use tepal_model::layout::quorum::Quorum;

/// What one node has said of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub version: Version,
    /// Somebody has told the node that this version is complete.
    pub is_complete: bool,
}

/// What became of the write with the greatest version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Candidate {
    /// Each later read sees it.
    Complete(Version),
    /// It may have been complete: it's to be written to those that lack it.
    Repairable(Version),
    /// It isn't complete, and no read has returned it: what was before it counts.
    Incomplete(Version),
    /// Too few nodes have answered.
    Unknown,
}

/// Classifies the greatest version (Ursa Minor, section 3.2.3). Each entry is of another node.
pub(super) fn classify(told: &[Told], quorum: Quorum) -> Candidate {
    let thresholds = quorum.thresholds();
    if told.len() < thresholds.answers.into() {
        return Candidate::Unknown;
    }
    let Some(version) = told.iter().map(|told| told.version).max() else { return Candidate::Unknown };
    let have = told.iter().filter(|told| told.version == version);
    let (holders, informed) = (have.clone().count(), have.filter(|told| told.is_complete).count());
    // The version before all others is on all nodes: nothing was to be written.
    if version.is_none() || holders >= thresholds.complete.into() || informed > quorum.liars().into() {
        return Candidate::Complete(version);
    }
    match holders >= thresholds.repairable.into() {
        true => Candidate::Repairable(version),
        false => Candidate::Incomplete(version),
    }
}

/// The nodes whose fragments of one block are right, and the fragments, by node.
pub(super) type Fragments = BTreeMap<usize, bytes::Bytes>;

/// Whether there are as many as suffice.
pub(super) fn suffice(fragments: &Fragments, shape: &Shape) -> bool {
    fragments.len() >= shape.quorum.data().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(times: &[(u64, bool)]) -> Vec<Told> {
        let version = |time| Version { time, ..Version::NONE };
        times.iter().map(|&(time, is_complete)| Told { version: version(time), is_complete }).collect()
    }

    #[test]
    fn the_number_of_holders_classifies_the_candidate() {
        use Candidate::{Complete, Incomplete, Repairable, Unknown};
        let at = |time| Version { time, ..Version::NONE };
        let (no, yes) = (false, true);
        for (layout, answers, expected) in [
            ("1/3,t=1,async", vec![(5, no)], Unknown),
            ("1/3,t=1,async", vec![(5, no), (5, no)], Complete(at(5))),
            ("1/3,t=1,async", vec![(5, no), (4, no)], Repairable(at(5))),
            ("1/3,t=1,async", vec![(5, yes), (4, no)], Complete(at(5))),
            ("1/3,t=1,async", vec![(0, no), (0, no)], Complete(at(0))),
            ("3/5,t=1,async", vec![(5, no), (5, no), (4, no), (4, no)], Incomplete(at(5))),
            ("3/5,t=1,async", vec![(5, no), (5, no), (5, no), (4, no)], Repairable(at(5))),
            ("2/5,t=1,b=1,async", vec![(9, yes), (4, no), (4, no), (4, no)], Incomplete(at(9))),
            ("2/5,t=1,b=1,async", vec![(9, yes), (9, no), (4, no), (4, no)], Repairable(at(9))),
            ("2/5,t=1,b=1,async", vec![(9, yes), (9, yes), (4, no), (4, no)], Complete(at(9))),
            ("2/5,t=1,b=1,async", vec![(9, no), (9, no), (9, no), (9, no)], Complete(at(9))),
        ] {
            let quorum = layout.parse().expect("a quorum");
            assert_eq!(classify(&told(&answers), quorum), expected, "{layout} {answers:?}");
        }
    }
}
