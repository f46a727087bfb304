//! What one side has of some blocks, as the source hands it over and the target takes it.

use crate::column::{Blocks, Group};
use crate::epochs::Epochs;
use crate::holder::Holder;
use bytes::Bytes;
use std::collections::BTreeSet;
use tepal_drive::world::World;
use tepal_model::{BLOCK, Buffer, Epoch, IoError, Lineage, Taken};
use tepal_wire::message::volume::{self, HandedLine};

/// The beginning of a block that stands in for a block that nobody can read.
const STANDS_IN: [u8; 4] = [0xd1, 0x5f, 0xa7, 0xe3];

/// What one side has of some blocks, numbered from the first one.
pub(super) struct Handed {
    pub first: u64,
    pub lines: Vec<HandedLine>,
    pub requests: Vec<Taken>,
    /// One for each block that a line holds, in order.
    pub blocks: Vec<Bytes>,
}

impl Handed {
    /// `None` if the data isn't as long as the blocks that the lines hold.
    pub fn of(first: u64, lines: Vec<HandedLine>, requests: Vec<Taken>, data: Bytes) -> Option<Self> {
        let held: usize = lines.iter().flat_map(|line| &line.held).map(|run| run.count as usize).sum();
        let block = |nth: usize| data.slice(nth * BLOCK as usize..(nth + 1) * BLOCK as usize);
        let blocks = || (0..held).map(block).collect();
        (data.len() == held * BLOCK as usize).then(|| Handed { first, lines, requests, blocks: blocks() })
    }

    /// What a reader of a line sees of a block there; `None` if older lines decide that.
    fn shown(&self, newest: Epoch, block: u64) -> Option<Result<Bytes, IoError>> {
        let mut before = 0;
        for line in &self.lines {
            let is_it = line.newest == newest;
            for run in &line.held {
                let run = Blocks::new(self.first + u64::from(run.first), run.count.into());
                if is_it && (run.first..run.end()).contains(&block) {
                    return Some(Ok(self.blocks[before + (block - run.first) as usize].clone()));
                }
                before += run.count as usize;
            }
            let has = |runs: &[volume::Blocks]| self.each_of(runs).any(|one| one == block);
            if is_it && has(&line.damaged) {
                return Some(Err(IoError::Damaged { offset: block * BLOCK, length: BLOCK }));
            }
            if is_it && has(&line.hidden) {
                return Some(Ok(zero()));
            }
        }
        None
    }

    /// A block that stands in for what a line has, and is shown to nobody. Nobody ever writes such a block: otherwise a
    /// copy that missed it might not differ from a copy that has it.
    pub fn stand_in(newest: Epoch, block: u64) -> Self {
        let held = vec![volume::Blocks { first: 0, count: 1 }];
        let line = HandedLine { newest, held, hidden: Vec::new(), damaged: Vec::new() };
        let mut data = Buffer::zeroed(BLOCK as usize);
        for part in data.chunks_mut(16) {
            part[..4].copy_from_slice(&STANDS_IN);
            part[4..8].copy_from_slice(&newest.to_le_bytes());
            part[8..].copy_from_slice(&block.to_le_bytes());
        }
        Handed { first: block, lines: vec![line], requests: Vec::new(), blocks: vec![data.freeze()] }
    }

    /// Whether a line has anything of a block itself, even if it only hides older lines there.
    pub fn has(&self, newest: Epoch, block: u64) -> bool {
        let of_line = self.lines.iter().filter(|line| line.newest == newest);
        of_line
            .flat_map(|line| [&line.held, &line.hidden, &line.damaged])
            .any(|runs| self.each_of(runs).any(|one| one == block))
    }

    /// The blocks that can't be read in some line.
    pub fn damaged(&self) -> impl Iterator<Item = u64> {
        self.lines.iter().flat_map(|line| self.each_of(&line.damaged))
    }

    pub fn each_of(&self, runs: &[volume::Blocks]) -> impl Iterator<Item = u64> {
        runs.iter().flat_map(|run| {
            let first = self.first + u64::from(run.first);
            first..first + u64::from(run.count)
        })
    }
}

/// What a reader of these lines sees of a block, newer lines first. Of one line, whichever side's block can be read.
pub(super) fn shown_on_both(
    (source, own): (&[Handed], &[Handed]),
    lines: &[Epoch],
    block: u64,
) -> Result<Bytes, IoError> {
    let sides = || source.iter().chain(own);
    let shown = |line: &Epoch| sides().filter_map(|side| side.shown(*line, block)).reduce(Result::or);
    lines.iter().find_map(shown).unwrap_or_else(|| Ok(zero()))
}

fn is_zero(data: &Bytes) -> bool {
    data.iter().all(|byte| *byte == 0)
}

fn zero() -> Bytes {
    Buffer::zeroed(BLOCK as usize).freeze()
}

impl<W: World> Group<W> {
    /// Leaves out a line's zeros where the line sees nothing older on any copy: such zeros show the same as nothing. A
    /// copy that was away may have kept them, though the other copies had nothing to be released.
    pub(super) async fn leave_out_bare_zeros(
        &self,
        handed: &mut Handed,
        count: u64,
        epochs: &Epochs,
    ) -> Result<(), IoError> {
        let blocks = Blocks::new(handed.first, count);
        let mut data = std::mem::take(&mut handed.blocks).into_iter();
        for line in &mut handed.lines {
            let held = line.held.iter().flat_map(|run| run.first..run.first + run.count);
            let held: Vec<(u32, Bytes)> = held.zip(data.by_ref()).collect();
            let mut bare: BTreeSet<u32> =
                held.iter().filter(|(_, data)| is_zero(data)).map(|(block, _)| *block).collect();
            let seen = epochs.history.line_of(line.newest).and_then(Lineage::older_part);
            if let Some(older) = seen.filter(|_| !bare.is_empty()) {
                let here: Vec<Holder<W>> = self.lock().members.here().cloned().collect();
                for holder in here {
                    let shown = self.present_in(&holder, blocks, &older).await?;
                    bare.retain(|block| !shown.contains(block));
                }
            }
            line.held = runs_of(&held.iter().map(|(block, _)| *block).filter(|block| !bare.contains(block)).collect());
            handed.blocks.extend(held.into_iter().filter(|(block, _)| !bare.contains(block)).map(|(_, data)| data));
        }
        Ok(())
    }
}

pub(super) fn runs_of(blocks: &BTreeSet<u32>) -> Vec<volume::Blocks> {
    let mut runs: Vec<volume::Blocks> = Vec::new();
    for &block in blocks {
        match runs.last_mut() {
            Some(run) if run.first + run.count == block => run.count += 1,
            _ => runs.push(volume::Blocks { first: block, count: 1 }),
        }
    }
    runs
}
