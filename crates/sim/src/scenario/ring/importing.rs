//! The ring's volume is imported while it's used: a server copies it from its old place, which stands still, goes away and can't read
//! all of it; others copy on, and the import rests, is cancelled and goes on.

use super::Ring;
use super::council::importing::{Import, ImportStage};
use super::node::Node;
use super::old_place::Stage;
use crate::checker::Kind;
use crate::world::SimWorld;
use bytes::Bytes;
use futures_util::future::{join_all, select};
use std::cell::Cell;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use tepal_drive::world::{Clock, Random};
use tepal_engine::{Live, Volume};
use tepal_model::{BLOCK, IoError, ServerId};

/// How often it's looked whether something is to be copied.
const LOOK: Duration = Duration::from_micros(1_700);
/// Bytes that are copied at once, how many of these, and between two looks at the state (`server/importing/copying.rs`, but for smaller
/// volumes).
const PIECE: u64 = 48 << 10;
const AT_ONCE: usize = 4;
const ROUND: u64 = 512 << 10;
/// Zeros of that length, at multiples of it, aren't written.
const HOLE: usize = 8 << 10;
/// Between two answers of the old place, once nothing goes wrong any more.
pub(super) const IN_A_HURRY: Duration = Duration::from_micros(200);
/// As many requests wait for one block at most where another is sent.
const MOST_LOAD: usize = 4;

/// Whether a process may read at the old place.
pub(super) fn stage_of(import: Option<Import>) -> Stage {
    match import.map(|import| import.stage) {
        Some(ImportStage::Running | ImportStage::Paused) => Stage::Open,
        Some(ImportStage::Cancelled) => Stage::Cancelled,
        None => Stage::Over,
    }
}

impl Node {
    /// Copies as long as it's this server's turn.
    pub(super) async fn keep_copying(self) {
        let wanted = || {
            let heard = self.import.get();
            heard.filter(|(import, _)| import.by == self.id() && import.stage == ImportStage::Running)
        };
        let not_wanted = async || {
            while wanted().is_some() {
                self.world.sleep(LOOK).await;
            }
        };
        while self.import.get().is_some() {
            self.world.sleep(LOOK).await;
            if let Some((import, revision)) = wanted() {
                let copies = pin!(self.copies(import.done, revision));
                select(copies, pin!(not_wanted())).await;
            }
        }
    }

    async fn copies(&self, done: u64, revision: u64) {
        let Some(live) = self.volume.live() else { return };
        match self.copy_from(&live, done, revision).await {
            // The record has changed; or some of it can't be read now.
            Ok(()) | Err(IoError::Fenced | IoError::Unavailable { .. }) => {}
            Err(error) => self.world.core().fail(format!("{} can't copy: {error}", self.id())),
        }
        self.world.sleep(LOOK).await;
    }

    async fn copy_from(&self, live: &Live, done: u64, revision: u64) -> Result<(), IoError> {
        let (volume, size, mut at) = (self.volume.as_of(revision), self.volume.size(), done);
        while at < size {
            at = copy_some(&volume, live, at..(at + ROUND).min(size)).await?;
            if at == size || self.world.next_u64().is_multiple_of(2) {
                volume.flush().await?;
                if !self.note_imported(at).await {
                    return Ok(());
                }
                self.world.core().note(at, || format!("{} has copied up to {at}", self.id()));
            }
        }
        self.end_import().await;
        Ok(())
    }
}

/// Copies these bytes, but for holes: up to which one.
async fn copy_some(volume: &Volume<SimWorld>, live: &Live, bytes: Range<u64>) -> Result<u64, IoError> {
    let (mut at, mut pieces) = (bytes.start, Vec::new());
    while at < bytes.end {
        for (length, is_zero) in live.old_place().zeros(at..bytes.end).await? {
            let end = at + length;
            if !is_zero {
                let (first, past) = (at / BLOCK * BLOCK, end.next_multiple_of(BLOCK).min(volume.size()));
                pieces.extend((first..past).step_by(PIECE as usize).map(|at| at..(at + PIECE).min(past)));
            }
            at = end;
        }
    }
    for some in pieces.chunks(AT_ONCE) {
        let copied = join_all(some.iter().map(|piece| copy_piece(volume, live, piece.clone()))).await;
        copied.into_iter().collect::<Result<(), IoError>>()?;
    }
    Ok(if at >= volume.size() { volume.size() } else { at / BLOCK * BLOCK })
}

async fn copy_piece(volume: &Volume<SimWorld>, live: &Live, piece: Range<u64>) -> Result<(), IoError> {
    let data: Bytes = live.old_place().read(piece.clone()).await?;
    let mut at = 0;
    for run in data.chunks(HOLE) {
        if run.iter().any(|byte| *byte != 0) {
            volume.fill(piece.start + at as u64, data.slice(at..at + run.len())).await?;
        }
        at += run.len();
    }
    Ok(())
}

impl Ring {
    pub(super) fn something_happens_to_the_import(&mut self) {
        let Some(import) = self.council.import() else { return };
        match self.random.below(8) {
            0 => self.old_place.stands_still(),
            1 | 2 => self.old_place.heal(),
            3 => {
                let at = self.random.below(self.plan.spec.size);
                let bytes = at..at + self.random.skewed(64 << 10);
                self.core.note(at, || format!("the old place can't read {bytes:?}"));
                self.old_place.become_unreadable(bytes);
            }
            4 => self.other_copies(),
            5 => self.import_is(ImportStage::Paused),
            6 if self.random.one_in(2) => self.import_is(ImportStage::Cancelled),
            _ if import.stage != ImportStage::Running => self.import_is(ImportStage::Running),
            _ => {}
        }
    }

    fn import_is(&mut self, stage: ImportStage) {
        if self.council.change_import(stage) {
            self.core.note(0, || format!("the import is {stage:?}"));
            let is_cancelled = stage == ImportStage::Cancelled;
            self.was_cancelled.set(self.was_cancelled.get() || is_cancelled);
        }
    }

    fn other_copies(&mut self) {
        let servers: Vec<ServerId> = self.machines[..self.plan.servers].iter().map(|machine| machine.id).collect();
        let id = *self.random.pick(&servers);
        self.core.note(id.0.into(), || format!("{id} copies"));
        self.council.leads(id);
    }

    /// Nothing goes wrong but that the old place is away: whoever needs nothing of it goes on.
    pub(super) async fn old_place_is_away(&mut self) {
        self.nothing_goes_wrong();
        self.import_is(ImportStage::Paused);
        self.all_have_all().await;
        self.old_place.stands_still();
        if self.random.one_in(2) {
            self.import_is(ImportStage::Running);
        }
        let node = self.random.pick(&self.all_nodes()).clone();
        let (workload, volume, size) = (self.workload(), node.under_test(), self.plan.spec.size);
        let (checker, mut random, world) = (self.checker.clone(), self.random.fork(), node.world.clone());
        let (done, is_done) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let (count, ends) = (done.clone(), is_done.clone());
        world.spawn_named("needs nothing", async move {
            for _ in 0..random.between(4..16) {
                let first = random.below(size / BLOCK) * BLOCK;
                let length = (random.skewed(16) * BLOCK).min(size / BLOCK * BLOCK - first);
                // The checker takes long where many wait.
                if checker.borrow().load(first, length) < MOST_LOAD {
                    workload.request(&*volume, Kind::Write { fua: false }, first, length).await;
                    workload.request(&*volume, Kind::Read, first, length).await;
                    count.set(count.get() + 1);
                }
            }
            ends.set(true);
        });
        self.comes("whoever needs nothing of the old place goes on", || is_done.get()).await;
        self.core.note(done.get(), || format!("{} writes were read again without the old place", done.get()));
    }
}
