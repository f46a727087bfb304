//! The busy and stale marks that a drive keeps, 64 regions to a word: whole drives may be behind.

use crate::log::{Change, Mark, MarkKind};
use std::collections::BTreeMap;
use tepal_model::MapId;

#[derive(Debug, Default)]
pub struct Marks(BTreeMap<(MapId, MarkKind, u64), u64>);

const IN_WORD: u64 = u64::BITS as u64;

impl Marks {
    /// Of one mark in the log, in bytes.
    pub const MOST_BYTES_EACH: u64 = 30;

    /// How many words these set marks in, at most; those of one word that follow each other are counted once.
    pub fn words_of(changes: &[Change]) -> usize {
        let mut last = None;
        let word = |change: &Change| match *change {
            Change::Marked(mark) => Some((mark.map, mark.kind, mark.region / IN_WORD)),
            Change::MarkedMany { map, kind, word, .. } => Some((map, kind, word)),
            _ => None,
        };
        changes.iter().filter_map(word).filter(|word| last.replace(*word) != Some(*word)).count()
    }

    /// What all of them take in the log, at most.
    pub fn most_bytes(&self) -> u64 {
        self.0.len() as u64 * Self::MOST_BYTES_EACH
    }

    pub fn insert(&mut self, mark: Mark) {
        self.insert_many(mark.map, mark.kind, mark.region / IN_WORD, 1 << (mark.region % IN_WORD));
    }

    /// Of the regions `64 * word` on, those whose bits are set.
    pub fn insert_many(&mut self, map: MapId, kind: MarkKind, word: u64, regions: u64) {
        if regions != 0 {
            *self.0.entry((map, kind, word)).or_default() |= regions;
        }
    }

    pub fn remove(&mut self, mark: &Mark) {
        let key = (mark.map, mark.kind, mark.region / IN_WORD);
        if let Some(regions) = self.0.get_mut(&key) {
            *regions &= !(1 << (mark.region % IN_WORD));
            if *regions == 0 {
                self.0.remove(&key);
            }
        }
    }

    pub fn remove_map(&mut self, map: MapId) {
        self.0.retain(|&(of, ..), _| of != map);
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn iter(&self) -> impl Iterator<Item = Mark> {
        self.0.iter().flat_map(|(&(map, kind, word), &regions)| {
            let set = (0..IN_WORD).filter(move |bit| regions >> bit & 1 == 1);
            set.map(move |bit| Mark { map, region: word * IN_WORD + bit, kind })
        })
    }

    /// What sets all of them again.
    pub fn changes(&self) -> impl Iterator<Item = Change> {
        self.0.iter().map(|(&(map, kind, word), &regions)| match regions.count_ones() {
            1 => Change::Marked(Mark { map, region: word * IN_WORD + u64::from(regions.trailing_zeros()), kind }),
            _ => Change::MarkedMany { map, kind, word, regions },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use tepal_model::DriveId;

    proptest! {
        #[test]
        fn they_are_a_set_and_come_back_from_what_is_logged(
            steps in prop::collection::vec((any::<bool>(), 0u64..300, 0u64..3, 0u32..2), 0..400),
        ) {
            let (mut marks, mut expected) = (Marks::default(), BTreeSet::new());
            for (set, region, kind, map) in steps {
                let kind = if kind == 0 { MarkKind::Busy } else { MarkKind::Stale(DriveId(kind)) };
                let mark = Mark { map: MapId(map), region, kind };
                if set {
                    marks.insert(mark);
                    expected.insert(mark);
                } else {
                    marks.remove(&mark);
                    expected.remove(&mark);
                }
            }
            prop_assert_eq!(marks.iter().collect::<BTreeSet<_>>(), expected.clone());
            let length: usize = marks.changes().map(|change| change.encoded_length()).sum();
            prop_assert!(length as u64 <= marks.most_bytes());
            let mut again = Marks::default();
            for change in marks.changes() {
                match change {
                    Change::Marked(mark) => again.insert(mark),
                    Change::MarkedMany { map, kind, word, regions } => again.insert_many(map, kind, word, regions),
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            prop_assert_eq!(again.iter().collect::<BTreeSet<_>>(), expected.clone());
            again.remove_map(MapId(0));
            expected.retain(|mark| mark.map == MapId(1));
            prop_assert_eq!(again.iter().collect::<BTreeSet<_>>(), expected);
        }
    }
}
