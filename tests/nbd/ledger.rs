//! What may be on a volume: of each block, between the last version that was promised and the last that was asked for.

use super::{BLOCK, Nbd, RequestError, Stamp};

#[derive(Clone)]
pub struct Ledger {
    seed: u64,
    blocks: Vec<Versions>,
    /// Whether the power may go, and what isn't known to be stable with it.
    flushed_only: bool,
}

#[derive(Clone, Copy, Default)]
struct Versions {
    /// Acknowledged, or seen, and not lost with the power since.
    promised: u64,
    /// Flushed, or written through.
    stable: u64,
    issued: u64,
}

/// What a flush covers: the version of each block that was promised when it was sent.
pub struct Covered(Vec<u64>);

/// A read of the whole volume goes in pieces of this many blocks.
const PIECE: usize = 64;

impl Ledger {
    /// Of a volume's first `blocks`, which nobody has written to.
    pub fn new(seed: u64, blocks: usize) -> Self {
        Ledger { seed, blocks: vec![Versions::default(); blocks], flushed_only: false }
    }

    /// When the server goes away, only what was flushed or written through is sure to be there afterwards.
    pub fn only_flushed(self) -> Self {
        Ledger { flushed_only: true, ..self }
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// The data of the next write of these blocks.
    pub fn issue(&mut self, first: usize, count: usize) -> Vec<u8> {
        let mut data = vec![0; count * BLOCK];
        for (place, bytes) in data.chunks_exact_mut(BLOCK).enumerate() {
            let versions = &mut self.blocks[first + place];
            versions.issued += 1;
            Stamp { seed: self.seed, block: (first + place) as u64, version: versions.issued }.fill(bytes);
        }
        data
    }

    /// The last write of these blocks was acknowledged; `through` if it had to be stable before that.
    pub fn promise(&mut self, first: usize, count: usize, through: bool) {
        for versions in &mut self.blocks[first..first + count] {
            versions.promised = versions.issued;
            if through {
                versions.stable = versions.issued;
            }
        }
    }

    /// For when a flush is sent.
    pub fn covered(&self) -> Covered {
        Covered(self.blocks.iter().map(|versions| versions.promised).collect())
    }

    /// A flush was acknowledged.
    pub fn flushed(&mut self, Covered(covered): Covered) {
        for (versions, covered) in self.blocks.iter_mut().zip(covered) {
            versions.stable = versions.stable.max(covered);
        }
    }

    /// The server went away.
    pub fn left_alone(&mut self) {
        if self.flushed_only {
            for versions in &mut self.blocks {
                versions.promised = versions.stable;
            }
        }
    }

    /// Whether these bytes may be what is there. What was once seen stays.
    pub fn see(&mut self, first: usize, bytes: &[u8]) -> Result<(), String> {
        for (place, bytes) in bytes.chunks_exact(BLOCK).enumerate() {
            let block = first + place;
            let found = Stamp::read(self.seed, block as u64, bytes)?;
            let versions = &mut self.blocks[block];
            if !(versions.promised..=versions.issued).contains(&found) {
                let Versions { promised, issued, .. } = versions;
                return Err(format!("block {block} has version {found}; promised {promised}, issued {issued}"));
            }
            versions.promised = found;
        }
        Ok(())
    }

    /// Reads and compares every byte; panics if one is wrong.
    pub fn compare(&mut self, volume: &mut Nbd) {
        for first in (0..self.blocks.len()).step_by(PIECE) {
            let count = PIECE.min(self.blocks.len() - first);
            let bytes = volume.read((first * BLOCK) as u64, (count * BLOCK) as u32);
            let seen = bytes.map(|bytes| self.see(first, &bytes));
            assert!(matches!(seen, Ok(Ok(()))), "blocks {first} to {}: {seen:?}", first + count);
        }
    }

    /// Writes every block once, and flushes.
    pub fn fill(&mut self, volume: &mut Nbd) -> Result<(), RequestError> {
        for first in (0..self.blocks.len()).step_by(PIECE) {
            let count = PIECE.min(self.blocks.len() - first);
            let data = self.issue(first, count);
            volume.write((first * BLOCK) as u64, &data)?;
            self.promise(first, count, false);
        }
        let covered = self.covered();
        volume.flush()?;
        self.flushed(covered);
        Ok(())
    }
}

#[test]
fn a_flush_promises_nothing_that_went_with_the_power_before_it() {
    let mut ledger = Ledger::new(1, 1).only_flushed();
    let first = ledger.issue(0, 1);
    ledger.promise(0, 1, true);
    ledger.issue(0, 1);
    ledger.promise(0, 1, false);
    ledger.left_alone();
    let covered = ledger.covered();
    ledger.flushed(covered);
    ledger.left_alone();
    assert_eq!(ledger.see(0, &first), Ok(()), "the second was lost before the flush");
    let third = ledger.issue(0, 1);
    assert_eq!(ledger.see(0, &third), Ok(()));
    let covered = ledger.covered();
    ledger.flushed(covered);
    ledger.left_alone();
    assert!(ledger.see(0, &first).is_err(), "what was seen and then flushed stays");
}
