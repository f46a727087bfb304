//! Complete versions move home, and the log lets go of what isn't needed any more.

use super::bytes::{Entry, Home, encode_homes};
use super::{Held, Node, State, blocks_with};
use bytes::Bytes;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tepal_codec::checksum::crc;
use tepal_drive::DriveError;
use tepal_drive::world::{Gather, World};
use tepal_model::buffer::join;
use tepal_model::{BLOCK, Buffer, Lineage, Version};

/// After versions have become complete, others have so long to become so too.
const SOON: Duration = Duration::from_millis(500);
/// Blocks that move together at most.
const TOGETHER: usize = 512;

/// A version that moves home.
struct Moved {
    block: u64,
    held: Held,
    /// The fragment, if there's one.
    bytes: Option<Bytes>,
    home: Home,
}

impl<W: World> Node<W> {
    pub(super) async fn settle_when_due(&self) {
        self.0.world.sleep(SOON).await;
        self.lock().is_due = false;
        self.settle().await;
    }

    /// Begins to make room at once.
    pub(super) fn settle_now(&self) {
        let node = self.clone();
        self.0.world.spawn(Box::pin(async move { node.settle().await }));
    }

    /// Moves everything home that may go there. One at a time.
    pub async fn settle(&self) {
        {
            let mut state = self.lock();
            if state.is_settling {
                return;
            }
            state.is_settling = true;
        }
        let mut from = 0;
        loop {
            let batch = self.lock().movable(from);
            let Some(&(last, _)) = batch.last() else { break };
            from = last + 1;
            if let Err(error) = self.move_home(batch).await {
                if self.0.drive.loss().is_some() {
                    break;
                }
                // Nothing is lost: all of it is in the log still.
                tracing::warn!(drive = %self.drive(), %error, "versions stay in the log of a quorum layout");
                break;
            }
            self.let_go().await;
            self.0.world.give_way().await;
        }
        self.let_go().await;
        let mut state = self.lock();
        state.is_settling = false;
        state.forget_homes();
    }

    async fn move_home(&self, batch: Vec<(u64, Held)>) -> Result<(), DriveError> {
        let blocks = batch[0].0..batch[batch.len() - 1].0 + 1;
        // All homes of the batch are remembered until it ends, as nothing is forgotten meanwhile.
        for (block, _) in &batch {
            self.with_homes(&(*block..block + 1), |_, _| ()).await?;
        }
        self.lock().moving.extend(batch.iter().map(|(block, _)| *block));
        let moved = self.overwrite_homes(&batch).await;
        let mut state = self.lock();
        state.moving.retain(|block| !blocks.contains(block));
        let (moved, homes) = moved?;
        state.moves += 1;
        for (number, homes) in homes {
            state.homes.insert(number, homes);
        }
        for moved in moved {
            state.doubted.remove(&moved.block);
            state.damaged.remove(&moved.block);
            state.has_moved(moved.block, moved.held.version);
        }
        Ok(())
    }

    async fn overwrite_homes(
        &self,
        batch: &[(u64, Held)],
    ) -> Result<(Vec<Moved>, BTreeMap<u64, Arc<Vec<Home>>>), DriveError> {
        let moved = self.to_move(batch).await?;
        let together = self.shape().homes_together();
        let mut homes: BTreeMap<u64, Arc<Vec<Home>>> = BTreeMap::new();
        {
            let state = self.lock();
            for moved in &moved {
                let number = moved.block / together;
                let known = homes.entry(number).or_insert_with(|| state.homes[&number].clone());
                Arc::make_mut(known)[(moved.block % together) as usize] = moved.home.clone();
            }
        }
        let lineage = Lineage::default();
        let writes = self.fragments_home(&moved).await?.into_iter();
        let writes = writes.map(|(first, bytes)| self.write_of(first, bytes, &lineage));
        let told = homes.iter().map(|(number, homes)| {
            let bytes = encode_homes(homes, self.shape());
            self.write_of(self.homes_place(*number), Gather::from_iter([bytes]), &lineage)
        });
        self.commit_all(writes.chain(told).collect()).await?;
        for run in runs_of(&moved) {
            self.empty_homes(&moved[run]).await?;
        }
        Ok((moved, homes))
    }

    /// The versions with their fragments, and what is to be said of them at home.
    async fn to_move(&self, batch: &[(u64, Held)]) -> Result<Vec<Moved>, DriveError> {
        let fragment = self.shape().fragment() as u64;
        let read = batch.iter().map(|&(block, held)| async move {
            let entry = self.lock().records[&held.slot].entry.clone();
            let bytes = match entry.data {
                None => None,
                Some((first, _)) => {
                    let start = self.data_place(first) * BLOCK + u64::from(held.index) * fragment;
                    Some(join(&self.read_bytes(&(start..start + fragment)).await?))
                }
            };
            let home = Home {
                version: held.version,
                holds: bytes.is_some(),
                is_lost: false,
                crc: bytes.as_ref().map_or(0, |bytes| crc(bytes)),
                digests: entry.digests_of(held.index, self.shape()).to_vec(),
            };
            Ok(Moved { block, held, bytes, home })
        });
        join_all(read).await.into_iter().collect()
    }

    /// The drive's blocks with the fragments in them, as runs.
    async fn fragments_home(&self, moved: &[Moved]) -> Result<Vec<(u64, Gather)>, DriveError> {
        let fragment = self.shape().fragment();
        let mut blocks: BTreeMap<u64, Bytes> = BTreeMap::new();
        for (block, bytes) in moved.iter().filter_map(|moved| Some((moved.block, moved.bytes.clone()?))) {
            if fragment == BLOCK as usize {
                blocks.insert(self.0.parts[0] + block, bytes);
                continue;
            }
            // The drive's blocks have parts of several fragments.
            let start = self.0.parts[0] * BLOCK + block * fragment as u64;
            let range = start..start + fragment as u64;
            for number in blocks_with(&range) {
                let known = match blocks.remove(&number) {
                    Some(known) => known,
                    None => self.read_blocks(number, 1).await?,
                };
                let mut buffer = Buffer::copy_of(&known);
                let (from, to) = (range.start.max(number * BLOCK), range.end.min((number + 1) * BLOCK));
                let part = &bytes[(from - start) as usize..(to - start) as usize];
                buffer[(from - number * BLOCK) as usize..(to - number * BLOCK) as usize].copy_from_slice(part);
                blocks.insert(number, buffer.freeze());
            }
        }
        let mut runs: Vec<(u64, Gather)> = Vec::new();
        for (number, bytes) in blocks {
            match runs.last_mut() {
                Some((first, gather)) if *first + gather.len() as u64 == number => gather.push(bytes),
                _ => runs.push((number, Gather::from_iter([bytes]))),
            }
        }
        Ok(runs)
    }

    /// Gives back the blocks of the drive that have nothing but fragments that aren't there any more.
    async fn empty_homes(&self, run: &[Moved]) -> Result<(), DriveError> {
        if run[0].bytes.is_some() {
            return Ok(());
        }
        let base = self.0.parts[0] * BLOCK;
        let at_home = self.shape().bytes_at_home(&(run[0].block..run[run.len() - 1].block + 1));
        let (first, end) = ((base + at_home.start).div_ceil(BLOCK), (base + at_home.end) / BLOCK);
        if first < end { self.take_out(first, end - first).await } else { Ok(()) }
    }

    /// Takes records out of the log of which nothing is needed.
    async fn let_go(&self) {
        let unneeded: Vec<(u32, Option<(u32, u32)>)> = {
            let mut state = self.lock();
            let is_unneeded = |record: &super::Record| record.needed == 0 && record.readers == 0;
            let slots: Vec<u32> =
                state.records.iter().filter(|(_, record)| is_unneeded(record)).map(|(slot, _)| *slot).collect();
            slots.into_iter().filter_map(|slot| Some((slot, state.records.remove(&slot)?.entry.data))).collect()
        };
        for (slot, data) in unneeded {
            self.drop_places(slot, data).await;
        }
    }

    /// Takes an entry out again that nothing is known of.
    pub(super) async fn drop_entry(&self, entry: &Entry) {
        self.drop_places(entry.slot, entry.data).await;
    }

    async fn drop_places(&self, slot: u32, data: Option<(u32, u32)>) {
        {
            let mut gone = self.take_out(self.entry_place(slot), 1).await;
            if let (Ok(()), Some((first, count))) = (&gone, data) {
                gone = self.take_out(self.data_place(first), count.into()).await;
            }
            // Room that wasn't given back isn't used again before the node is opened anew.
            if gone.is_ok() {
                let mut state = self.lock();
                state.slots.give_back(slot, 1);
                data.into_iter().for_each(|(first, count)| state.room.give_back(first, count));
            }
        }
    }
}

impl State {
    /// The complete versions of blocks from this one on that are in the log, some of them.
    fn movable(&mut self, from: u64) -> Vec<(u64, Held)> {
        let mut older: Vec<u32> = Vec::new();
        let mut movable = Vec::new();
        for (block, held) in self.versions.range_mut(from..) {
            let Some(newest) = held.iter().rposition(|held| held.is_complete) else { continue };
            older.extend(held.drain(..newest).map(|held| held.slot));
            movable.push((*block, held[0]));
            if movable.len() == TOGETHER {
                break;
            }
        }
        older.into_iter().for_each(|slot| self.forget(slot));
        movable
    }

    /// A version is at home: the log needn't have it.
    fn has_moved(&mut self, block: u64, version: Version) {
        let Some(held) = self.versions.get_mut(&block) else { return };
        let Some(at) = held.iter().position(|held| held.version == version) else { return };
        let slot = held.remove(at).slot;
        if held.is_empty() {
            self.versions.remove(&block);
        }
        self.forget(slot);
    }
}

/// Runs of blocks side by side that all hold something, or all don't.
fn runs_of(moved: &[Moved]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (at, one) in moved.iter().enumerate() {
        match runs.last_mut() {
            Some(run)
                if moved[run.end - 1].block + 1 == one.block
                    && moved[run.end - 1].bytes.is_some() == one.bytes.is_some() =>
            {
                run.end = at + 1;
            }
            _ => runs.push(at..at + 1),
        }
    }
    runs
}
