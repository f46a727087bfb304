//! Blocks that no copy has right, as they are met.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tepal_metadata::State;
use tepal_model::{BLOCK, Epoch, IoError, VolumeId};

/// Damaged blocks that are remembered of one volume or snapshot. A scrub lists all.
const MOST_DAMAGED: usize = 1 << 16;

/// By whose it is, a [`DamageOf`], runs of damaged blocks: the first, and how many.
pub type Damage = BTreeMap<String, Vec<(u64, u64)>>;

/// Who sees damage: a volume, or its snapshot of an epoch. Written `VOLUME` or `VOLUME@EPOCH`, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DamageOf {
    pub volume: VolumeId,
    pub snapshot: Option<Epoch>,
}

impl DamageOf {
    pub fn is_in(self, state: &State) -> bool {
        let has_snapshot = |epoch| state.snapshots_of(self.volume).any(|snapshot| snapshot.epoch == epoch);
        state.volumes.contains_key(&self.volume) && self.snapshot.is_none_or(has_snapshot)
    }
}

impl fmt::Display for DamageOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.snapshot {
            None => write!(f, "{}", self.volume.0),
            Some(epoch) => write!(f, "{}@{epoch}", self.volume.0),
        }
    }
}

impl FromStr for DamageOf {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (volume, snapshot) = match text.split_once('@') {
            None => (text, None),
            Some((volume, epoch)) => (volume, Some(epoch.parse()?)),
        };
        Ok(DamageOf { volume: VolumeId(volume.parse()?), snapshot })
    }
}

/// The blocks of a volume, or of a snapshot, that couldn't be read because no copy was right, until they are read or written with success.
#[derive(Debug, Default)]
pub struct Damaged {
    blocks: Mutex<BTreeSet<u64>>,
    /// Of `blocks`, so that what is whole costs no lock.
    count: AtomicUsize,
}

impl Damaged {
    /// Learns from the outcome of a read or a write of these bytes.
    pub fn learn<T>(&self, offset: u64, length: u64, outcome: &Result<T, IoError>) {
        match outcome {
            Ok(_) if length > 0 && self.count() > 0 => {
                let mut blocks = self.blocks();
                let whole: Vec<u64> = blocks.range(touched(offset, length)).copied().collect();
                for block in whole {
                    blocks.remove(&block);
                }
                self.count.store(blocks.len(), Ordering::Relaxed);
            }
            Err(IoError::Damaged { offset, length }) => {
                let mut blocks = self.blocks();
                let room = MOST_DAMAGED.saturating_sub(blocks.len());
                blocks.extend(touched(*offset, *length).take(room));
                self.count.store(blocks.len(), Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// A scrub has read everything: these are all, by their offsets.
    pub fn replace(&self, offsets: &[u64]) {
        let mut blocks = self.blocks();
        *blocks = offsets.iter().map(|offset| offset / BLOCK).take(MOST_DAMAGED).collect();
        self.count.store(blocks.len(), Ordering::Relaxed);
    }

    /// What was known before the server was started.
    pub fn recall(&self, runs: &[(u64, u64)]) {
        let mut blocks = self.blocks();
        let known = runs.iter().flat_map(|&(first, count)| first..first.saturating_add(count));
        let room = MOST_DAMAGED.saturating_sub(blocks.len());
        blocks.extend(known.take(room));
        self.count.store(blocks.len(), Ordering::Relaxed);
    }

    /// Runs of blocks: the first, and how many.
    pub fn runs(&self) -> Vec<(u64, u64)> {
        let blocks: Vec<u64> = self.blocks().iter().copied().collect();
        blocks.chunk_by(|block, next| block + 1 == *next).map(|run| (run[0], run.len() as u64)).collect()
    }

    /// Of these runs, what isn't in others is whole again.
    pub fn strike_off(&self, runs: &[(u64, u64)], but: &[(u64, u64)]) {
        let is_among = |block: u64, runs: &[(u64, u64)]| {
            runs.iter().any(|&(first, count)| (first..first.saturating_add(count)).contains(&block))
        };
        let mut blocks = self.blocks();
        blocks.retain(|&block| !is_among(block, runs) || is_among(block, but));
        self.count.store(blocks.len(), Ordering::Relaxed);
    }

    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn blocks(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn touched(offset: u64, length: u64) -> std::ops::Range<u64> {
    offset / BLOCK..offset.saturating_add(length).div_ceil(BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_remembered_until_the_block_is_read_or_written_with_success_or_a_scrub_knows_better() {
        let damaged = Damaged::default();
        let bad = |block: u64| Err::<(), _>(IoError::Damaged { offset: block * BLOCK, length: BLOCK });
        for block in [9, 3, 4, 3] {
            damaged.learn(0, 100 * BLOCK, &bad(block));
        }
        damaged.learn(9 * BLOCK, BLOCK, &Err::<(), _>(IoError::OutOfSpace));
        assert_eq!(damaged.runs(), [(3, 2), (9, 1)]);
        damaged.learn(4 * BLOCK + 17, 1, &Ok(()));
        damaged.learn(5 * BLOCK, 4 * BLOCK, &Ok(()));
        assert_eq!(damaged.runs(), [(3, 1), (9, 1)]);
        damaged.replace(&[7 * BLOCK]);
        assert_eq!(damaged.runs(), [(7, 1)]);
        damaged.learn(0, u64::MAX, &Ok(()));
        assert_eq!(damaged.count(), 0);
    }

    #[test]
    fn whole_again_is_what_another_process_met_and_meets_no_more() {
        let damaged = Damaged::default();
        damaged.recall(&[(3, 4), (100, 1)]);
        damaged.strike_off(&[(3, 3), (50, 2)], &[(4, 1)]);
        assert_eq!(damaged.runs(), [(4, 1), (6, 1), (100, 1)]);
    }

    #[test]
    fn whose_damage_it_is_is_told_by_its_text() {
        for text in ["7", "7@3"] {
            assert_eq!(text.parse::<DamageOf>().expect("whose it is").to_string(), text);
        }
        ["", "@", "7@", "@3", "7@3@4", "x"]
            .iter()
            .for_each(|text| assert!(text.parse::<DamageOf>().is_err(), "{text}"));
    }
}
