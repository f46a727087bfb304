//! A drive's medium behind a cache that forgets when the power goes: each sector that was written since the last flush has
//! then any of the contents that it was given since, or the one before.

use crate::nbd::mixed;
use std::collections::BTreeMap;

const SECTOR: usize = 512;
/// What is kept or lost as one, in bytes.
const UNITS: [u64; 3] = [512, 4096, 256 << 10];
/// How many of a hundred are kept.
const KEPT: [u64; 6] = [0, 10, 50, 50, 90, 100];

type Sector = [u8; SECTOR];

/// A request that a medium may no longer be able to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read,
    Write,
    Flush,
}

pub struct Media {
    /// From now on these end with an I/O error.
    pub fails: Option<Operation>,
    /// What a read gives.
    content: Vec<u8>,
    /// Of each sector that was written since the last flush, what it held before each of these writes.
    before: BTreeMap<u64, Vec<Sector>>,
    pub flushes: u64,
}

impl Media {
    /// Empty, of this many bytes.
    pub fn new(size: usize) -> Self {
        Media { fails: None, content: vec![0; size], before: BTreeMap::new(), flushes: 0 }
    }

    pub fn size(&self) -> u64 {
        self.content.len() as u64
    }

    pub fn read(&self, offset: u64, length: usize) -> &[u8] {
        let from = (offset as usize).min(self.content.len());
        &self.content[from..(from + length).min(self.content.len())]
    }

    /// Whether it's within the medium.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> bool {
        let (from, end) = (offset as usize, offset as usize + data.len());
        if end > self.content.len() {
            return false;
        }
        for sector in from / SECTOR..end.div_ceil(SECTOR) {
            let held: Sector = self.content[sector * SECTOR..][..SECTOR].try_into().expect("a whole sector");
            self.before.entry(sector as u64).or_default().push(held);
        }
        self.content[from..end].copy_from_slice(data);
        true
    }

    pub fn flush(&mut self) {
        self.flushes += 1;
        self.before.clear();
    }

    /// Whether a power loss now could lose anything.
    pub fn is_unflushed(&self) -> bool {
        !self.before.is_empty()
    }

    /// The power goes. What is left follows from the seed.
    pub fn lose_power(&mut self, seed: u64) {
        let unit = UNITS[(mixed(seed) % UNITS.len() as u64) as usize];
        let kept = KEPT[(mixed(seed ^ 1) % KEPT.len() as u64) as usize];
        for (sector, before) in std::mem::take(&mut self.before) {
            let draw = mixed(seed ^ mixed(2 + sector * SECTOR as u64 / unit));
            if draw % 100 < kept {
                continue;
            }
            let left = &before[(draw / 100) as usize % before.len()];
            self.content[sector as usize * SECTOR..][..SECTOR].copy_from_slice(left);
        }
    }
}

#[test]
fn what_was_flushed_outlives_a_power_loss_and_of_the_rest_any_part_is_lost() {
    let (mut some_lost, mut some_kept) = (false, false);
    for seed in 0..50 {
        let mut media = Media::new(64 * SECTOR);
        assert!(media.write(0, &[1; 32 * SECTOR]));
        media.flush();
        for version in [2, 3] {
            assert!(media.write(8 * SECTOR as u64, &[version; 8 * SECTOR]));
        }
        assert!(!media.write(63 * SECTOR as u64, &[9; 2 * SECTOR]), "past the end");
        media.lose_power(seed);
        assert_eq!(media.read(0, 8 * SECTOR), [1; 8 * SECTOR]);
        for sector in 8..16 {
            let found = media.read(sector * SECTOR as u64, SECTOR);
            assert!((1..=3).any(|version| found == [version; SECTOR]), "a sector is never torn");
            some_lost |= found[0] != 3;
            some_kept |= found[0] == 3;
        }
        assert!(!media.is_unflushed());
    }
    assert!(some_lost && some_kept);
}
