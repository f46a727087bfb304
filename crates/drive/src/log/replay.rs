//! Finding the log's end after a stop of any kind, and what it owes.
//!
//! The log ends at the first batch that isn't whole, or whose data in the slots isn't. That is a torn end if the batch
//! was never known to be stable; a later batch that knows it to have been stable makes it damage.

use crate::error::OpenError;
use crate::extent::{ExtentKey, identity};
use crate::log::batch::Batch;
use crate::log::change::Change;
use crate::log::{BatchHeader, Position, largest_batch};
use crate::patience::{ATTEMPTS, read_patiently};
use crate::world::{Device, DeviceError, Gather};
use bytes::Bytes;
use std::collections::BTreeMap;
use tepal_codec::checksum::{bind, crc};
use tepal_model::{BLOCK, Buffer, DriveId};

/// Read at once, in bytes.
const WINDOW: u64 = 1 << 20;

/// The log as it lies on its device.
pub struct LogReader<'a, D> {
    /// Where the ring is.
    pub device: &'a D,
    /// Batches of other drives are passed over.
    pub drive: DriveId,
    /// Where the ring starts on the device.
    pub start: u64,
    /// Bytes of the ring.
    pub length: u64,
    window: Option<(u64, Bytes)>,
}

/// The batches from the tail on, and where the next one goes.
#[derive(Debug)]
pub struct Found {
    /// In order, each with where it starts.
    pub batches: Vec<(Position, Batch)>,
    /// Where the next batch goes, and what it must follow.
    pub head: Position,
    /// The end was dropped, since its data wasn't in its place; or what follows can't be read, and may have been torn.
    pub dropped: bool,
    /// What follows can't be read.
    pub is_unread: bool,
    /// The newest batch that what lies behind the end knows to have been stable, as far as that has been looked at.
    stable_by_others: u64,
}

impl<'a, D: Device> LogReader<'a, D> {
    /// `start` and `length` are the ring's, in bytes on the device. Nothing is read yet.
    pub fn new(device: &'a D, drive: DriveId, start: u64, length: u64) -> Self {
        LogReader { device, drive, start, length, window: None }
    }

    /// `length` bytes from `offset` of the ring, which end within it.
    async fn bytes(&mut self, offset: u64, length: u64) -> Result<Bytes, DeviceError> {
        if let Some((start, window)) = &self.window
            && *start <= offset
            && offset + length <= start + window.len() as u64
        {
            let at = (offset - start) as usize;
            return Ok(window.slice(at..at + length as usize));
        }
        let read = |length: u64| self.device.read(self.start + offset, Buffer::take(length as usize));
        let mut window = read(length.max(WINDOW).min(self.length - offset)).await;
        for _ in 1..ATTEMPTS {
            if let Err(DeviceError::Failed { .. }) = window {
                window = read(length).await; // what is behind may be of no account
            }
        }
        let window = window?.freeze();
        self.window = Some((offset, window.clone()));
        Ok(window.slice(..length as usize))
    }

    /// The batch that continues the log at `position`, if it's whole: there, or at the ring's start. Fails if it isn't at
    /// one of these places, and another can't be read.
    async fn next(&mut self, position: Position) -> Result<Option<(u64, Batch)>, DeviceError> {
        let mut none = Ok(None);
        for offset in [position.offset, 0] {
            match self.continuing(offset, position).await {
                Ok(Some(batch)) => return Ok(Some((offset, batch))),
                Ok(None) => {}
                Err(unread) => none = Err(unread),
            }
        }
        none
    }

    async fn continuing(&mut self, offset: u64, position: Position) -> Result<Option<Batch>, DeviceError> {
        if offset + BLOCK > self.length {
            return Ok(None);
        }
        let header = BatchHeader::peek(&self.bytes(offset, BLOCK).await?, self.drive);
        let continues = |h: &BatchHeader| h.sequence == position.sequence && h.previous == position.previous;
        let fits = |h: &BatchHeader| h.length() <= self.length - offset;
        let Some(header) = header.filter(|header| continues(header) && fits(header)) else { return Ok(None) };
        Ok(Batch::decode(&self.bytes(offset, header.length()).await?, self.drive))
    }

    /// Every whole batch from `tail` on, up to one that can't be read.
    pub async fn find(&mut self, tail: Position) -> Result<Found, DeviceError> {
        let (batches, head) = (Vec::new(), tail);
        let mut found = Found { batches, head, dropped: false, is_unread: false, stable_by_others: 0 };
        loop {
            let (offset, batch) = match self.next(found.head).await {
                Ok(Some(next)) => next,
                Ok(None) => return Ok(found),
                Err(DeviceError::Failed { .. }) => {
                    (found.dropped, found.is_unread) = (true, true);
                    return Ok(found);
                }
                Err(gone) => return Err(gone),
            };
            let position = Position { offset, ..found.head };
            found.head = Position {
                offset: offset + batch.header.length(),
                sequence: found.head.sequence + 1,
                previous: batch.header.crc,
            };
            found.batches.push((position, batch));
        }
    }

    /// Where batches lie that an earlier stop left behind the log's end, and what can't be read there. What they know to have been
    /// stable is noted. Refuses a log whose end is damage: some batch knows a missing one to have been stable. What can't be
    /// read right after the end is a torn batch, unless other places can't be read either.
    pub async fn look_behind(&mut self, found: &mut Found) -> Result<Vec<u64>, OpenError> {
        let head = found.head.sequence;
        let mut batches: Vec<(u64, u64)> = found.extents().collect();
        batches.sort_unstable();
        let mut batches = batches.into_iter().peekable();
        let mut abandoned = Vec::new();
        let starts = [found.head.offset, 0];
        let most = largest_batch(self.length);
        let may_be_torn = |offset| starts.iter().any(|start| (*start..start + most).contains(&offset));
        let mut offset = 0;
        while offset < self.length {
            if let Some((start, length)) = batches.next_if(|(start, _)| *start <= offset) {
                offset = start + length; // what it carries is anybody's data
                continue;
            }
            match self.left_at(offset, head).await {
                Ok(Some(header)) if header.sequence > head && header.durable >= head => {
                    return Err(found.no_end(self.start));
                }
                Err(DeviceError::Failed { .. }) if found.is_unread && !may_be_torn(offset) => {
                    return Err(found.no_end(self.start));
                }
                Ok(Some(header)) => {
                    found.stable_by_others = found.stable_by_others.max(header.durable);
                    abandoned.push(offset);
                }
                Err(DeviceError::Failed { .. }) => abandoned.push(offset),
                Ok(None) => {}
                Err(gone) => return Err(gone.into()),
            }
            offset += BLOCK;
        }
        Ok(abandoned)
    }

    /// The batch that starts here, if it isn't older than the log's end. Its payload isn't looked at.
    async fn left_at(&mut self, offset: u64, head: u64) -> Result<Option<BatchHeader>, DeviceError> {
        let block = self.bytes(offset, BLOCK).await?;
        let header = BatchHeader::peek(&block, self.drive).filter(|header| header.sequence >= head);
        let Some(header) = header.filter(|header| header.head_length() <= self.length - offset) else {
            return Ok(None);
        };
        Ok(Batch::head_is_whole(&self.bytes(offset, header.head_length()).await?, self.drive))
    }
}

impl Found {
    /// Where each batch starts, and its length.
    fn extents(&self) -> impl Iterator<Item = (u64, u64)> {
        self.batches.iter().map(|(position, batch)| (position.offset, batch.header.length()))
    }

    /// The newest batch that was surely stable. What came after it may have been acknowledged, or not.
    pub fn durable(&self, cut: u64) -> u64 {
        let known = self.batches.iter().map(|(_, batch)| batch.header.durable).max();
        known.unwrap_or(0).max(self.stable_by_others).max(cut)
    }

    /// What the log, which starts at `start` of its device, has after its last batch, if that isn't its end: what can't be
    /// read may be whole another time.
    pub fn no_end(&self, start: u64) -> OpenError {
        let Position { sequence, offset, .. } = self.head;
        match self.is_unread {
            true => OpenError::LogUnread { sequence, offset: start + offset },
            false => OpenError::LogDamaged { sequence },
        }
    }

    /// Drops this batch and all after it; says where they lie.
    fn end_before(&mut self, sequence: u64) -> Vec<u64> {
        let at = self.batches.partition_point(|(position, _)| position.sequence < sequence);
        let dropped: Vec<Position> = self.batches.drain(at..).map(|(position, _)| position).collect();
        if let Some(&first) = dropped.first() {
            (self.dropped, self.is_unread, self.head) = (true, false, first);
        }
        dropped.into_iter().map(|position| position.offset).collect()
    }

    /// Ends the log before the first batch, of those not surely stable, that speaks of data that isn't in its slot: a
    /// power loss took it. What a later batch replaced isn't asked for, since its place may have been used again. Says where
    /// the batches lie that it dropped.
    pub async fn drop_unwritten<D: Device>(
        &mut self,
        device: &D,
        cut: u64,
        offset_of: impl Fn(u32, u32) -> Option<u64>,
    ) -> Result<Vec<u64>, OpenError> {
        let (durable, mut dropped) = (self.durable(cut), Vec::new());
        'again: loop {
            for ((slot, block), owed) in owed_by_slots(self, durable) {
                let contradicts = OpenError::LogContradicts { sequence: owed.sequence };
                let offset = offset_of(slot, block as u32).ok_or(contradicts)?;
                let whole = match read_patiently(device, offset).await? {
                    Some(data) => bind(crc(&data), identity(owed.key, block)) == owed.sum,
                    None => false,
                };
                if !whole {
                    dropped.extend(self.end_before(owed.sequence));
                    continue 'again;
                }
            }
            return Ok(dropped);
        }
    }
}

/// Writes again what isn't surely stable: the batches, and the data in slots that they speak of. They were read from a
/// cache that may have failed to write them, and would then say that they are clean.
pub async fn write_unsure<D: Device>(
    found: &Found,
    cut: u64,
    log: (&D, u64),
    slots: &D,
    offset_of: impl Fn(u32, u32) -> Option<u64>,
) -> Result<(), OpenError> {
    let durable = found.durable(cut);
    for (slot, block) in owed_by_slots(found, durable).into_keys() {
        let Some(offset) = offset_of(slot, block as u32) else { continue };
        let data = slots.read(offset, Buffer::take(BLOCK as usize)).await?;
        slots.write(offset, Gather::from_iter([data.freeze()])).await?;
    }
    for (position, batch) in found.batches.iter().filter(|(position, _)| position.sequence > durable) {
        log.0.write(log.1 + position.offset, Gather::from_iter([batch.bytes.clone()])).await?;
    }
    Ok(())
}

/// Overwrites the starts of abandoned batches. One of them could follow the next batch that is made: if that is the same,
/// as when a write is repeated, or goes elsewhere since it doesn't fit before the ring's end.
pub async fn erase<D: Device>(abandoned: &[u64], log: (&D, u64)) -> Result<(), DeviceError> {
    for offset in abandoned {
        log.0.write(log.1 + offset, Gather::from_iter([Buffer::zeroed(BLOCK as usize).freeze()])).await?;
    }
    Ok(())
}

struct Owed {
    key: ExtentKey,
    sum: u32,
    sequence: u64,
}

/// The blocks of slots that batches after `durable` placed and no later one replaced.
fn owed_by_slots(found: &Found, durable: u64) -> BTreeMap<(u32, usize), Owed> {
    let mut owed: BTreeMap<(u32, usize), Owed> = BTreeMap::new();
    for (position, batch) in &found.batches {
        for change in &batch.changes {
            match change {
                Change::Placed { key, slot, span, sums } => {
                    owed.retain(|(other, _), owed| owed.key != *key || other == slot);
                    if position.sequence > durable {
                        for (block, &sum) in span.range().zip(sums) {
                            owed.insert((*slot, block), Owed { key: *key, sum, sequence: position.sequence });
                        }
                    }
                }
                Change::Logged { slot, span, .. } => {
                    owed.retain(|(other, block), _| other != slot || !span.range().contains(block));
                }
                Change::Cleared { key, span } => {
                    owed.retain(|(_, block), owed| owed.key != *key || !span.range().contains(block));
                }
                Change::ClearedExtents { map, first, count, epochs } => {
                    let range = *first..first.saturating_add(*count);
                    let is_meant = |epoch| epochs.iter().any(|&(first, last)| (first..=last).contains(&epoch));
                    let is_within = |key: &ExtentKey| key.map == *map && range.contains(&key.index);
                    owed.retain(|_, owed| !is_within(&owed.key) || !is_meant(owed.key.epoch));
                }
                Change::Marked(_)
                | Change::MarkedMany { .. }
                | Change::Unmarked(_)
                | Change::UnmarkedMap { .. }
                | Change::Took { .. }
                | Change::Untook { .. }
                | Change::Dropped { .. }
                | Change::Forgotten { .. }
                | Change::Hid { .. }
                | Change::Unhid { .. }
                | Change::NotesReset
                | Change::SumPages { .. } => {}
            }
        }
    }
    owed
}
