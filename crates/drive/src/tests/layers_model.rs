//! Random lives of volumes with snapshots and clones, against what each of their readers must see.

use super::{Dice, MAP, Rig, TestDevice, content};
use crate::geometry::MIN_DRIVE;
use crate::layers::join::fates;
use std::collections::BTreeSet;
use tepal_codec::checksum::crc;
use tepal_model::{BLOCK, EXTENT, Epoch, History, Lineage, buffer::join};

const BLOCKS: usize = 60;

#[derive(Clone)]
struct Reader {
    lineage: Lineage,
    is_volume: bool,
    blocks: Vec<u8>,
}

struct Life {
    rig: Rig,
    dice: Dice,
    readers: Vec<Reader>,
    newest: Epoch,
    /// All that there have been.
    histories: Vec<History>,
}

impl Life {
    fn new(seed: u64) -> Self {
        let rig = Rig::on(TestDevice::new(MIN_DRIVE), None);
        let volume = Reader { lineage: Lineage::default(), is_volume: true, blocks: vec![0; BLOCKS] };
        let histories = vec![History::default()];
        Life { rig, dice: Dice(seed), readers: vec![volume], newest: 1, histories }
    }

    fn history(&self) -> &History {
        self.histories.last().unwrap()
    }

    fn agree(&mut self) {
        let lineages = self.readers.iter().map(|reader| reader.lineage.clone());
        self.histories.push(History::new(lineages, self.newest));
    }

    fn any(&mut self, of: impl Fn(&Reader) -> bool) -> Option<usize> {
        let places: Vec<usize> = (0..self.readers.len()).filter(|&at| of(&self.readers[at])).collect();
        (!places.is_empty()).then(|| places[self.dice.roll(places.len() as u64) as usize])
    }

    fn range(&mut self) -> (usize, usize) {
        let first = self.dice.roll(BLOCKS as u64);
        let most = if self.dice.roll(3) == 0 { BLOCKS as u64 } else { 6 };
        (first as usize, (1 + self.dice.roll(most)).min(BLOCKS as u64 - first) as usize)
    }

    /// As the history says, or as somebody has it who hasn't heard of what was given up.
    fn lineage_of(&mut self, at: usize) -> Lineage {
        let lineage = &self.readers[at].lineage;
        match self.dice.roll(4) {
            0 => lineage.to_string().parse().unwrap(),
            _ => self.history().reader(lineage.newest()).unwrap().clone(),
        }
    }

    fn write_or_clear(&mut self) {
        let Some(at) = self.any(|reader| reader.is_volume) else { return };
        let (first, count) = self.range();
        self.rig.lineage = self.lineage_of(at);
        let value = match self.dice.roll(3) {
            0 => 0,
            _ => 1 + self.dice.roll(250) as u8,
        };
        match value {
            0 => self.rig.clear(first as u64, count as u64),
            _ => self.rig.write(first as u64, &vec![value; count], true).unwrap(),
        }
        self.readers[at].blocks[first..first + count].fill(value);
    }

    /// A snapshot or a clone of a volume, or a rollback.
    fn branch(&mut self) {
        let Some(at) = self.any(|_| true) else { return };
        self.newest += 1;
        let mut new = self.readers[at].clone();
        new.lineage = new.lineage.with(self.newest).unwrap();
        new.is_volume = true;
        let rolled_back = self.any(|reader| reader.is_volume).filter(|_| self.dice.roll(3) == 0);
        self.readers[at].is_volume = false; // nobody writes to what others see
        match rolled_back {
            Some(volume) => self.readers[volume] = new, // what it was may be seen by nobody any more
            None => self.readers.push(new),
        }
        self.agree();
    }

    /// At times also after all before it was given back, so that it's known what goes with this reader alone.
    fn give_up(&mut self) {
        if self.readers.len() > 1 {
            let at = self.dice.roll(self.readers.len() as u64) as usize;
            let all = if self.dice.roll(2) == 0 { self.reclaim_all() } else { 0 };
            let kept = self.rig.drive.kept_alone(MAP, self.history());
            let removed = self.readers.remove(at);
            self.agree();
            if all > 0 {
                let freed = all - self.reclaim_all();
                let kept = kept.get(&removed.lineage.newest()).copied().unwrap_or(0);
                assert!(kept <= freed, "{kept} of {freed} bytes that go with {}", removed.lineage);
            }
        }
    }

    /// The bytes that are left.
    fn reclaim_all(&mut self) -> u64 {
        let (history, before) = (self.history().clone(), self.rig.drive.allocated_of(MAP));
        let surplus = self.rig.drive.surplus_of(MAP, &history);
        self.rig.pool.run_until(self.rig.drive.reclaim(MAP, &history)).unwrap();
        self.nothing_is_left_to_reclaim();
        let after = self.rig.drive.allocated_of(MAP);
        assert!(surplus <= before - after, "{surplus} of {} bytes that were given back", before - after);
        after
    }

    fn reclaim(&mut self) {
        let is_current = self.dice.roll(3) > 0;
        let back = if is_current { 0 } else { self.dice.roll(self.histories.len() as u64) };
        let history = self.histories[self.histories.len() - 1 - back as usize].clone();
        self.rig.pool.run_until(self.rig.drive.reclaim(MAP, &history)).unwrap();
        if is_current {
            self.nothing_is_left_to_reclaim();
        }
    }

    fn nothing_is_left_to_reclaim(&self) {
        let state = self.rig.drive.shared.lock();
        for index in 0..BLOCKS as u64 / 16 + 1 {
            let layers = state.map.layers(MAP, index).count();
            let fates = fates(&state, self.history(), MAP, index);
            assert_eq!(fates.len(), layers, "all are seen");
            assert!(fates.iter().all(|fate| fate.gone == 0 && fate.to.is_none()), "{fates:?}");
        }
        drop(state);
        assert_eq!(self.rig.drive.surplus_of(MAP, self.history()), 0);
    }

    fn stop(&mut self) {
        match self.dice.roll(3) {
            0 => self.rig.checkpoint(),
            1 => self.rig.pool.run_until(self.rig.drive.close()).unwrap(),
            _ => self.rig.device.lose_power_for_some(&mut self.dice),
        }
        self.rig.reopen();
    }

    fn live(&mut self) {
        for step in 0..80 {
            self.step();
            if step % 4 == 0 {
                self.check();
            }
        }
        self.check();
        self.end();
    }

    fn step(&mut self) {
        match self.dice.roll(20) {
            0..12 => self.write_or_clear(),
            12..15 => self.branch(),
            15 => self.give_up(),
            16 | 17 => self.reclaim(),
            18 => self.rig.checkpoint(),
            _ => self.stop(),
        }
    }

    fn check(&mut self) {
        for reader in self.readers.clone() {
            let (drive, lineage, count) = (self.rig.drive.clone(), &reader.lineage, BLOCKS as u64);
            let content = content(&reader.blocks);
            let found = join(&self.rig.pool.run_until(drive.read(MAP, 0, count, lineage)).unwrap());
            if found != content {
                let found: Vec<u8> = found.chunks(BLOCK as usize).map(|block| block[0]).collect();
                panic!("{lineage} reads {found:?} and not {:?}", reader.blocks);
            }
            let crcs = self.rig.pool.run_until(drive.crcs(MAP, 0, count, lineage)).unwrap();
            let held =
                |(at, &byte): (usize, &u8)| (byte != 0).then(|| crc(&content[at * BLOCK as usize..][..BLOCK as usize]));
            assert_eq!(crcs, reader.blocks.iter().enumerate().map(held).collect::<Vec<_>>(), "{lineage}");
            let present = drive.present(MAP, 0, count, 99, lineage);
            let present: Vec<bool> = present.iter().flat_map(|&(run, is)| vec![is; run as usize]).collect();
            assert_eq!(present, reader.blocks.iter().map(|&byte| byte != 0).collect::<Vec<_>>(), "{lineage}");
            let is_empty = drive.is_empty(MAP, 0, count, lineage);
            assert_eq!(is_empty, reader.blocks.iter().all(|&byte| byte == 0));
            let sees_some = drive.epochs_of(MAP, 0, count).iter().any(|&epoch| lineage.sees(epoch));
            assert!(is_empty || sees_some);
        }
        assert_eq!(self.rig.drive.slots_unaccounted(), 0);
    }

    /// Whoever stays last has what it sees, and nothing more.
    fn end(&mut self) {
        let last = self.dice.roll(self.readers.len() as u64) as usize;
        self.readers = vec![self.readers.swap_remove(last)];
        self.agree();
        let history = self.history().clone();
        self.rig.pool.run_until(self.rig.drive.reclaim(MAP, &history)).unwrap();
        self.check();
        let extents = self.readers[0].blocks.chunks(16).filter(|extent| extent.iter().any(|&byte| byte != 0)).count();
        assert_eq!(self.rig.drive.allocated_of(MAP), extents as u64 * EXTENT);
        assert!(self.rig.drive.shared.lock().hidden.is_empty());
        let epochs: BTreeSet<Epoch> = self.rig.drive.epochs_of(MAP, 0, u64::MAX).into_iter().collect();
        assert!(epochs.iter().all(|&epoch| self.readers[0].lineage.sees(epoch)));
    }
}

#[test]
fn each_reader_sees_what_it_should_whatever_the_others_do() {
    for seed in 0..40 {
        let lived = std::panic::catch_unwind(|| Life::new(seed).live());
        assert!(lived.is_ok(), "seed {seed}");
    }
}
