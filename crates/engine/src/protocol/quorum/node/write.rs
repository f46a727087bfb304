//! Writing versions: into the log, with an entry that says what they are.

use super::bytes::{Entry, superblock, version_with};
use super::{AHEAD, Node};
use crate::bell::Bell;
use bytes::Bytes;
use futures_channel::oneshot;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use tepal_drive::world::{Gather, World};
use tepal_drive::{DriveError, Refused, Write};
use tepal_model::{BLOCK, Buffer, Digest, Lineage, Version};
use tepal_wire::message::NodeFailure;

/// How often a write looks for space that others give back, until the drive counts as full.
const MOST_ATTEMPTS: usize = 8;

/// One version of some blocks.
#[derive(Clone, Debug)]
pub(crate) struct Versioned {
    pub first: u64,
    pub count: u32,
    /// Without a cross checksum.
    pub version: Version,
    /// The fragments one after another; `None` if the blocks hold nothing.
    pub fragments: Option<Bytes>,
    pub digests: Vec<Digest>,
}

impl<W: World> Node<W> {
    /// Keeps a version, on stable media when this returns. Blocks that have it, or of which a later version is complete, are left as
    /// they are.
    pub async fn write(&self, written: Versioned, may_write: &Rc<dyn Fn() -> bool>) -> Result<(), NodeFailure> {
        let wrong = |written: &Versioned| {
            let length = written.count as usize * self.shape().fragment();
            let digests = if written.fragments.is_some() { written.count as usize * self.shape().digests() } else { 0 };
            written.count == 0
                || written.count > self.shape().most_blocks()
                || written.fragments.as_ref().is_some_and(|bytes| bytes.len() != length)
                || written.digests.len() != digests
                || written.first + u64::from(written.count) > self.0.parts[1] - self.0.parts[0]
        };
        if wrong(&written) {
            return Err(NodeFailure::NotHere);
        }
        self.open().await?;
        self.raise_limit(written.version.time).await.map_err(why)?;
        for run in self.missing(&written).await.map_err(why)? {
            self.write_run(&written, run, may_write).await?;
        }
        Ok(())
    }

    /// Runs of blocks, counted from the first, that lack the version and need it.
    async fn missing(&self, written: &Versioned) -> Result<Vec<Range<u32>>, DriveError> {
        let blocks = written.first..written.first + u64::from(written.count);
        let together = self.shape().homes_together();
        let first_home = self.homes_with(&blocks).start * together;
        self.with_homes(&blocks, |state, homes| {
            let mut runs: Vec<Range<u32>> = Vec::new();
            for (index, block) in (0..written.count).zip(blocks.clone()) {
                let each = if written.digests.is_empty() { 0 } else { self.shape().digests() };
                let digests = &written.digests[index as usize * each..(index as usize + 1) * each];
                let version = version_with(written.version, block, digests);
                let at = block - first_home;
                let home = &homes[(at / together) as usize][(at % together) as usize];
                let held = state.versions.get(&block);
                let is_damaged = state.damaged.contains(&block);
                let is_new = home.version < version
                    && held.is_none_or(|held| {
                        held.iter().all(|held| held.version != version && !(held.is_complete && held.version > version))
                    });
                let is_again = is_damaged
                    && (home.version == version
                        || held.is_some_and(|held| held.iter().any(|held| held.version == version)));
                match runs.last_mut() {
                    _ if !is_new && !is_again => {}
                    Some(run) if run.end == index => run.end += 1,
                    _ => runs.push(index..index + 1),
                }
            }
            runs
        })
        .await
    }

    async fn write_run(
        &self,
        written: &Versioned,
        run: Range<u32>,
        may_write: &Rc<dyn Fn() -> bool>,
    ) -> Result<(), NodeFailure> {
        let count = run.end - run.start;
        let blocks = written.fragments.as_ref().map_or(0, |_| self.shape().blocks_of(count));
        let (slot, data) = {
            let mut state = self.lock();
            let slot = state.slots.take(1);
            let data = if blocks > 0 { state.room.take(blocks) } else { Some(0) };
            match (slot, data) {
                (Some(slot), Some(data)) => (slot, data),
                (slot, data) => {
                    slot.into_iter().for_each(|slot| state.slots.give_back(slot, 1));
                    data.filter(|_| blocks > 0).into_iter().for_each(|data| state.room.give_back(data, blocks));
                    drop(state);
                    self.settle_now();
                    return Err(NodeFailure::TooMany);
                }
            }
        };
        let each = if written.digests.is_empty() { 0 } else { self.shape().digests() };
        let entry = Arc::new(Entry {
            slot,
            first: written.first + u64::from(run.start),
            count,
            version: Version { cross: [0; 32], ..written.version },
            data: (blocks > 0).then_some((data, blocks)),
            digests: written.digests[run.start as usize * each..run.end as usize * each].to_vec(),
        });
        let node = self.clone();
        let fragment = self.shape().fragment();
        let bytes = written.fragments.as_ref().map(|bytes| {
            let range = run.start as usize * fragment..run.end as usize * fragment;
            padded(bytes.slice(range))
        });
        // Once begun it's seen through: its room is given back by its end only.
        let (done, outcome) = oneshot::channel();
        let may_write = may_write.clone();
        self.0.world.spawn(Box::pin(async move {
            let _ = done.send(node.put(entry, bytes, &*may_write).await); // whoever asked may be gone
        }));
        outcome.await.unwrap_or(Err(NodeFailure::Lost))
    }

    async fn put(
        &self,
        entry: Arc<Entry>,
        bytes: Option<Bytes>,
        may_write: &dyn Fn() -> bool,
    ) -> Result<(), NodeFailure> {
        let lineage = Lineage::default();
        let whole = self.write_of(self.entry_place(entry.slot), Gather::from_iter([entry.encode()]), &lineage);
        let data = entry
            .data
            .zip(bytes)
            .map(|((first, _), bytes)| self.write_of(self.data_place(first), Gather::from_iter([bytes]), &lineage));
        let put = self.commit_all(data.into_iter().chain([whole]).collect()).await;
        if put.is_ok() && !may_write() {
            // Its writer has been fenced meanwhile: nobody has seen it, and nobody will.
            self.drop_entry(&entry).await;
            return Err(NodeFailure::NotHere);
        }
        let mut state = self.lock();
        match put {
            Ok(()) => {
                state.hold(entry, (self.shape(), self.0.world.now()));
                let is_tight = state.is_tight();
                state.forget_homes();
                drop(state);
                self.watch();
                if is_tight {
                    self.settle_now();
                }
                Ok(())
            }
            Err(error) => {
                state.slots.give_back(entry.slot, 1);
                entry.data.into_iter().for_each(|(first, count)| state.room.give_back(first, count));
                Err(why(error))
            }
        }
    }

    /// Either none of them is begun, or all are.
    pub(super) async fn commit_all(&self, writes: Vec<Write<'_>>) -> Result<(), DriveError> {
        let _change = self.begin_change()?;
        let drive = &self.0.drive;
        let mut attempts = MOST_ATTEMPTS;
        'again: loop {
            let mut prepared = Vec::with_capacity(writes.len());
            for write in &writes {
                match drive.prepare(write) {
                    Ok(one) => prepared.push(one),
                    Err(refused) => {
                        prepared.into_iter().for_each(|one| drive.cancel(one));
                        attempts -= 1;
                        match refused {
                            Refused::FullUntilFlush if attempts > 0 => drive.give_back().await?,
                            Refused::Full | Refused::FullUntilFlush => return Err(DriveError::OutOfSpace),
                            Refused::Lost(loss) => return Err(loss.into()),
                        }
                        continue 'again;
                    }
                }
            }
            let commits = prepared.into_iter().zip(writes).map(|(prepared, write)| drive.commit(prepared, write));
            let outcomes = futures_util::future::join_all(commits).await;
            return outcomes.into_iter().collect();
        }
    }

    /// One after another, so that a lower limit never follows a higher one.
    async fn raise_limit(&self, time: u64) -> Result<(), DriveError> {
        loop {
            let raised = {
                let mut state = self.lock();
                if time <= state.limit {
                    return Ok(());
                }
                match &mut state.raising {
                    Some(bell) => Err(bell.listen()),
                    raising @ None => {
                        *raising = Some(Bell::default());
                        Ok(time.saturating_add(AHEAD))
                    }
                }
            };
            let raised = match raised {
                Ok(raised) => raised,
                Err(ended) => {
                    let _ = ended.await; // look again
                    continue;
                }
            };
            let node = self.clone();
            let (done, outcome) = oneshot::channel();
            self.0.world.spawn(Box::pin(async move {
                let lineage = Lineage::default();
                let write = node.write_of(node.in_log(0), Gather::from_iter([superblock(raised)]), &lineage);
                let written = node.commit_all(vec![write]).await;
                let bell = {
                    let mut state = node.lock();
                    if written.is_ok() {
                        state.limit = raised;
                    }
                    state.raising.take()
                };
                bell.into_iter().for_each(Bell::ring);
                let _ = done.send(written); // whoever asked may be gone
            }));
            if let Ok(written) = outcome.await {
                written?;
            }
        }
    }
}

/// With zeros up to a whole block.
fn padded(bytes: Bytes) -> Bytes {
    if (bytes.len() as u64).is_multiple_of(BLOCK) {
        return bytes;
    }
    let mut whole = Buffer::zeroed(bytes.len().next_multiple_of(BLOCK as usize));
    whole[..bytes.len()].copy_from_slice(&bytes);
    whole.freeze()
}

pub(super) fn why(error: DriveError) -> NodeFailure {
    match error {
        DriveError::OutOfSpace => NodeFailure::OutOfSpace,
        // Nobody can tell what is in the log: the drive helps nobody any more.
        DriveError::Damaged { .. } | DriveError::Lost(_) => NodeFailure::Lost,
    }
}
