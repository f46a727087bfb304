//! Seeds that once found a bug, and are run ever since, before any others.
//!
//! A seed's run changes with every change of what draws from it: the scenario, and the order in which drive and engine do
//! things. So no seed promises to meet its old bug again; each is a hard run that was worth something once. What surely
//! catches its bug is the test that tells the story, or a mutant (`tests/mutants/`).

use crate::scenario::Scenario;

/// A seed, and what it found when it was kept.
pub struct Kept {
    pub scenario: &'static str,
    pub seed: u64,
    pub story: &'static str,
}

impl Kept {
    pub fn scenario(&self) -> Scenario {
        Scenario::named(self.scenario).expect("the table names scenarios that there are")
    }
}

const fn kept(scenario: &'static str, seed: u64, story: &'static str) -> Kept {
    Kept { scenario, seed, story }
}

/// In the order in which they were found.
pub const KEPT: &[Kept] = &[
    kept("one_server", 247, "a write that some copies had gave up its turn, and landed again over newer ones"),
    kept("one_server", 100_153, "the same, by way of another copy"),
    kept(
        "one_server",
        486,
        "a client went away in the middle of a drive's leaving, and the drive was leaving for ever",
    ),
    kept("one_server", 571, "a slot was freed and given away while another pass of destaging still wrote to it"),
    kept("one_server", 341, "a checkpoint chose its tail after its pages: data came back with its old checksum"),
    kept("one_server", 378, "the same, found by a scrub after a crash"),
    kept("one_server", 18, "a flush was acknowledged that a drive which was away had data to flush for"),
    kept("operated", 32, "a volume was removed while a drive left: marks about it stayed for ever"),
    kept("operated", 305, "a drive was behind in a volume that was removed, and stayed behind for ever"),
    kept("operated", 201_058, "a volume shrank while all its drives were away: what was cut off came back"),
    kept(
        "operated",
        200_076,
        "a write was acknowledged though a drive that had taken it had left, lost it and returned meanwhile",
    ),
    kept(
        "operated",
        941,
        "a part of a write was done and overwritten before a drive lost its cache: the checker forbade that",
    ),
    kept("operated", 1346, "the same, where too much can have become of a block to be judged"),
    kept("one_server", 504_416, "a drive left while it was being agreed that it's up: nobody took it in again"),
    kept(
        "operated",
        701_630,
        "a drive was replaced while the only other one was away: the history went on as if that were promised",
    ),
    kept("operated", 840_394, "a server that closed its drives one after another had them declared down meanwhile"),
    kept("operated", 910_145, "a read was under way while its volume was removed, and returned zeros"),
    kept("one_drive", 505_830, "overwrites under way made a drive look full that had room"),
    kept(
        "ring",
        3506,
        "a primary vouched for a drive that it could not reach, noticed nothing, and the drive was never up",
    ),
    kept(
        "ring",
        20_543,
        "one that wasn't the primary any more had a drive declared down, for having been opened again",
    ),
    kept(
        "ring",
        20_854,
        "a drive was up to date, and the one that still said otherwise left: then each was stale by the other's word",
    ),
    kept(
        "long_ring",
        600_002,
        "a scrub called lost what had rotted on a server's drive in columns that another one led",
    ),
    kept(
        "long_ring",
        4340,
        "zeros of which a copy that caught up kept a layer were handed over again, onto newer writes in the other layout",
    ),
    kept(
        "long_ring",
        302_497,
        "while one server was away, others were asked without a rest for their parts of the pieces that waited for it",
    ),
    kept(
        "long_ring",
        70_357,
        "a note of what was hidden outlasted what it hid, and hid on one copy what had come back from another layout",
    ),
    kept(
        "long_ring",
        6_000_045,
        "a scrub passed over what had rotted past the end of the volume that it was of, which others that are longer showed",
    ),
    kept("long_ring", 6_000_537, "the same, once a volume had been shortened, cloned and rolled back"),
    kept(
        "long_ring",
        6_000_907,
        "a server was killed before its drive gave back a moved column of which it only remembered requests: it never did",
    ),
    kept(
        "ring",
        7_200_022,
        "a server led by what its process of before knew, and had the drive that knew better marked stale",
    ),
    kept("long_ring", 7_200_331, "the same, on the way to another layout"),
    kept(
        "long_ring",
        1921,
        "a server that had missed a whole migration didn't open the map that the next one went to, and nothing went on",
    ),
    kept(
        "ring",
        12_482,
        "a drive was up that its primary had never reached, and nobody complained: writes waited for ever",
    ),
    kept("long_stripes", 1002, "released blocks left zeros in the log, which were handed over again over newer data"),
    kept("long_stripes", 1055, "rows in place hid nothing any more, and never let the stripe's blocks be released"),
    kept(
        "long_stripes",
        155,
        "a block stayed in one copy of the log, as another copy showed the same by an older line",
    ),
    kept(
        "long_stripes",
        23,
        "a returned drive's outdated word about another counted, and too few fragments seemed to be left",
    ),
    kept(
        "ranges",
        217,
        "a server about to act by an earlier state didn't count as one that does: a snapshot showed what was written later",
    ),
    kept(
        "ranges",
        132,
        "a scrub looked for rows in place in another range, whose map has no such rows, and left them rotten",
    ),
    kept(
        "imported",
        0,
        "zeros written over half a block of the old place's left the other half of what came meanwhile",
    ),
    kept(
        "imported",
        70,
        "a drive that was back led by a state of before it had left: others' notes of what it missed were given up",
    ),
    kept("quorum", 13, "what a drive had of a column that moved was written again after it had been given back"),
    kept("quorum", 21, "a drive had missed that blocks hold nothing any more, and no scrub looked at these"),
    kept(
        "quorum",
        1094,
        "nodes of drives that had left waited for each other, and none of the drives could be opened again",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kept_seed_is_of_a_scenario_that_there_is_and_tells_a_story_of_its_own() {
        for (nth, kept) in KEPT.iter().enumerate() {
            assert_eq!(kept.scenario().name, kept.scenario);
            assert!(!kept.story.is_empty() && kept.story.len() < 120, "{}", kept.story);
            let same = |other: &&Kept| (other.scenario, other.seed) == (kept.scenario, kept.seed);
            assert_eq!(KEPT.iter().position(|other| same(&other)), Some(nth), "{} is there twice", kept.seed);
        }
    }
}
