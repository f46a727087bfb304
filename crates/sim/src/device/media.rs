//! What a simulated drive holds: stable blocks, and the volatile cache above them.
//!
//! Invariants:
//! 1. A read sees the cache: the newest of each sector.
//! 2. A flush makes stable exactly what was in the cache when the flush began.
//! 3. A power cut leaves in each sector, independently of all others, what was stable or any one write to it that was not
//!    yet stable: torn and reordered writes are what remains.

use crate::random::Stream;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use tepal_model::{BLOCK, Buffer};

pub const SECTOR: u64 = 512;
const SECTORS: usize = (BLOCK / SECTOR) as usize;
/// A bit for each sector of a block.
pub type Sectors = u8;
pub const ALL: Sectors = 0xff;

static ZERO: [u8; BLOCK as usize] = [0; BLOCK as usize];

/// A write to one block that isn't stable yet.
#[derive(Clone)]
struct Unstable {
    /// Position in the order of writes; [`DOOMED`] if no flush will ever make it stable.
    position: u64,
    sectors: Sectors,
    data: Bytes,
}

const DOOMED: u64 = u64::MAX;

#[derive(Clone)]
struct Block {
    stable: Bytes,
    current: Bytes,
    unstable: Vec<Unstable>,
}

/// How much of what wasn't stable survives a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    Nothing,
    Everything,
    /// Each sector on its own.
    Sectors,
    /// Each write to a block as a whole.
    Blocks,
    /// Writes up to some point in their order, the one at that point torn.
    Prefix,
}

impl Survival {
    pub fn draw(random: &mut Stream) -> Self {
        *random.pick(&[
            Survival::Nothing,
            Survival::Everything,
            Survival::Sectors,
            Survival::Sectors,
            Survival::Blocks,
            Survival::Prefix,
        ])
    }
}

#[derive(Clone, Default)]
pub struct Media {
    blocks: BTreeMap<u64, Block>,
    unstable: BTreeSet<u64>,
    position: u64,
}

fn zero() -> Bytes {
    Bytes::from_static(&ZERO)
}

/// `new` in the chosen sectors, `old` in the others.
fn merged(old: &Bytes, new: &Bytes, sectors: Sectors) -> Bytes {
    match sectors {
        ALL => new.clone(),
        0 => old.clone(),
        _ => {
            let mut data = Buffer::copy_of(old);
            for sector in (0..SECTORS).filter(|sector| sectors >> sector & 1 == 1) {
                let range = sector * SECTOR as usize..(sector + 1) * SECTOR as usize;
                data[range.clone()].copy_from_slice(&new[range]);
            }
            data.freeze()
        }
    }
}

impl Media {
    /// Blocks as they'd be read, zeros left out.
    pub fn image(&self) -> BTreeMap<u64, Bytes> {
        self.blocks.iter().map(|(&number, block)| (number, block.current.clone())).collect()
    }

    pub fn from_image(image: &BTreeMap<u64, Bytes>) -> Self {
        let stable = |data: &Bytes| Block { stable: data.clone(), current: data.clone(), unstable: Vec::new() };
        Media { blocks: image.iter().map(|(&number, data)| (number, stable(data))).collect(), ..Media::default() }
    }

    pub fn read(&self, number: u64) -> Bytes {
        self.blocks.get(&number).map_or_else(zero, |block| block.current.clone())
    }

    pub fn copy(&self, number: u64, into: &mut [u8]) {
        match self.blocks.get(&number) {
            Some(block) => into.copy_from_slice(&block.current),
            None => into.fill(0),
        }
    }

    /// Puts sectors of one block into the cache.
    pub fn write(&mut self, number: u64, data: Bytes, sectors: Sectors) {
        if sectors == 0 {
            return;
        }
        self.position += 1;
        let block = self.blocks.entry(number).or_insert_with(|| Block {
            stable: zero(),
            current: zero(),
            unstable: Vec::new(),
        });
        block.current = merged(&block.current, &data, sectors);
        block.unstable.push(Unstable { position: self.position, sectors, data });
        self.unstable.insert(number);
    }

    /// The mark that a flush which begins now is to reach.
    pub fn mark(&self) -> u64 {
        self.position
    }

    /// Makes stable what was written up to `mark`.
    pub fn flush(&mut self, mark: u64) {
        let blocks = &mut self.blocks;
        self.unstable.retain(|number| {
            let Some(block) = blocks.get_mut(number) else { return false };
            block.unstable.retain(|write| {
                let reached = write.position <= mark;
                if reached {
                    block.stable = merged(&block.stable, &write.data, write.sectors);
                }
                !reached
            });
            !block.unstable.is_empty()
        });
    }

    /// A flush that fails as Linux's do: each write that wasn't stable is made stable, dropped, or left in the cache where
    /// reads see it but no later flush, successful as it may be, puts it on the medium.
    pub fn fail_flush(&mut self, random: &mut Stream) {
        for number in &self.unstable {
            let Some(block) = self.blocks.get_mut(number) else { continue };
            block.unstable.retain_mut(|write| match random.below(3) {
                0 => {
                    block.stable = merged(&block.stable, &write.data, write.sectors);
                    false
                }
                1 => false,
                _ => {
                    write.position = DOOMED;
                    true
                }
            });
            let seen = block.unstable.iter().fold(block.stable.clone(), |seen, w| merged(&seen, &w.data, w.sectors));
            block.current = seen;
        }
        let blocks = &self.blocks;
        self.unstable.retain(|number| blocks.get(number).is_some_and(|block| !block.unstable.is_empty()));
    }

    /// Ends the cache. What survives is stable.
    pub fn cut_power(&mut self, survival: Survival, random: &mut Stream) {
        let positions: Vec<u64> =
            self.unstable.iter().flat_map(|n| &self.blocks[n].unstable).map(|w| w.position).collect();
        let last = if positions.is_empty() { 0 } else { *random.pick(&positions) };
        for number in std::mem::take(&mut self.unstable) {
            let Some(block) = self.blocks.get_mut(&number) else { continue };
            let mut survivor = block.stable.clone();
            match survival {
                Survival::Nothing => {}
                Survival::Sectors => {
                    for sector in 0..SECTORS {
                        let sectors: Sectors = 1 << sector;
                        let writes: Vec<&Unstable> =
                            block.unstable.iter().filter(|write| write.sectors & sectors != 0).collect();
                        let chosen = random.index(writes.len() + 1);
                        if let Some(write) = writes.get(chosen) {
                            survivor = merged(&survivor, &write.data, sectors);
                        }
                    }
                }
                Survival::Everything => {
                    for write in &block.unstable {
                        survivor = merged(&survivor, &write.data, write.sectors);
                    }
                }
                Survival::Blocks => {
                    for write in block.unstable.iter().filter(|_| random.one_in(2)) {
                        survivor = merged(&survivor, &write.data, write.sectors);
                    }
                }
                Survival::Prefix => {
                    for write in block.unstable.iter().filter(|write| write.position <= last) {
                        let torn = if write.position == last { random.draw() as Sectors } else { ALL };
                        survivor = merged(&survivor, &write.data, write.sectors & torn);
                    }
                }
            }
            *block = Block { stable: survivor.clone(), current: survivor, unstable: Vec::new() };
        }
    }

    /// Changes a block at rest, in the cache too, without anybody having written it.
    pub fn rot(&mut self, number: u64, random: &mut Stream) {
        let mut data = Buffer::copy_of(&self.read(number));
        match random.below(4) {
            0 => data[random.index(SECTORS) * SECTOR as usize..][..SECTOR as usize].fill(0),
            1 => data.iter_mut().for_each(|byte| *byte = random.draw() as u8),
            _ => {
                for _ in 0..=random.below(3) {
                    data[random.index(BLOCK as usize)] ^= 1 << random.below(8);
                }
            }
        }
        let data = data.freeze();
        self.unstable.remove(&number);
        self.blocks.insert(number, Block { stable: data.clone(), current: data, unstable: Vec::new() });
    }

    /// One of the blocks of `within` that were ever written.
    pub fn any_written(&self, within: Range<u64>, random: &mut Stream) -> Option<u64> {
        let last = *self.blocks.range(within.clone()).next_back()?.0;
        let from = random.between(within.start..last + 1);
        self.blocks.range(from..).next().map(|(&number, _)| number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(byte: u8) -> Bytes {
        Bytes::from(vec![byte; BLOCK as usize])
    }

    fn sectors_of(media: &Media, number: u64) -> Vec<u8> {
        media.read(number).chunks(SECTOR as usize).map(|sector| sector[0]).collect()
    }

    fn after_power_cuts(media: &Media, survival: Survival) -> Vec<Vec<u8>> {
        let mut random = Stream::new(5);
        let mut outcomes: Vec<Vec<u8>> = (0..200)
            .map(|_| {
                let mut copy = media.clone();
                copy.cut_power(survival, &mut random);
                assert!(copy.unstable.is_empty());
                sectors_of(&copy, 3)
            })
            .collect();
        outcomes.sort();
        outcomes.dedup();
        outcomes
    }

    #[test]
    fn reads_see_the_cache_and_a_power_cut_may_take_all_of_it() {
        let mut media = Media::default();
        media.write(3, block(1), ALL);
        assert_eq!(sectors_of(&media, 3), [1; 8]);
        media.cut_power(Survival::Nothing, &mut Stream::new(1));
        assert_eq!(sectors_of(&media, 3), [0; 8]);
    }

    #[test]
    fn a_flush_covers_what_was_written_before_it_began_and_nothing_later() {
        let mut media = Media::default();
        media.write(3, block(1), ALL);
        let mark = media.mark();
        media.write(3, block(2), ALL);
        media.flush(mark);
        assert_eq!(sectors_of(&media, 3), [2; 8]);
        media.cut_power(Survival::Nothing, &mut Stream::new(1));
        assert_eq!(sectors_of(&media, 3), [1; 8]);
    }

    #[test]
    fn each_sector_survives_on_its_own_as_any_write_since_the_flush_or_as_before() {
        let mut media = Media::default();
        media.write(3, block(1), ALL);
        media.flush(media.mark());
        media.write(3, block(2), 0b0000_1111);
        media.write(3, block(3), ALL);
        let outcomes = after_power_cuts(&media, Survival::Sectors);
        assert!(outcomes.len() > 100, "{}", outcomes.len());
        for sector in 0..8 {
            let mut values: Vec<u8> = outcomes.iter().map(|outcome| outcome[sector]).collect();
            values.sort();
            values.dedup();
            assert_eq!(values, if sector < 4 { vec![1, 2, 3] } else { vec![1, 3] }, "sector {sector}");
        }
    }

    #[test]
    fn whole_blocks_survive_untorn_and_prefixes_in_order() {
        let mut media = Media::default();
        media.write(3, block(1), ALL);
        media.write(3, block(2), ALL);
        assert_eq!(after_power_cuts(&media, Survival::Blocks), [[0; 8], [1; 8], [2; 8]]);
        assert_eq!(after_power_cuts(&media, Survival::Everything), [[2; 8]]);
        let prefixes = after_power_cuts(&media, Survival::Prefix);
        let in_order = |o: &Vec<u8>| o.iter().all(|b| [0, 1].contains(b)) || o.iter().all(|b| [1, 2].contains(b));
        assert!(prefixes.len() > 10 && prefixes.iter().all(in_order), "{prefixes:?}");
    }

    #[test]
    fn after_a_failed_flush_a_successful_one_may_still_lose_data_that_reads_have_shown() {
        let mut lost_at_once = 0;
        let mut lost_later = 0;
        for seed in 0..100 {
            let mut random = Stream::new(seed);
            let mut media = Media::default();
            media.write(3, block(1), ALL);
            media.fail_flush(&mut random);
            let seen = sectors_of(&media, 3)[0];
            lost_at_once += u32::from(seen == 0);
            media.flush(media.mark());
            media.cut_power(Survival::Nothing, &mut random);
            lost_later += u32::from(seen == 1 && sectors_of(&media, 3)[0] == 0);
        }
        assert!(lost_at_once > 10 && lost_later > 10, "{lost_at_once} {lost_later}");
    }

    #[test]
    fn rot_changes_a_block_for_good() {
        for seed in 0..50 {
            let mut media = Media::default();
            media.write(3, block(9), ALL);
            media.rot(3, &mut Stream::new(seed));
            assert_ne!(media.read(3), block(9));
            media.cut_power(Survival::Nothing, &mut Stream::new(seed));
            assert_ne!(media.read(3), block(9));
        }
    }
}
