//! Bytes in, bytes out: requests become whole blocks, and edges are merged under the write's own turn. A write that has
//! its turn is finished even if its client goes away, so no write stays half done.

use super::epochs::Writing;
use super::migrating::is_read_there;
use super::order::{Queued, Turn};
use super::read::{Plan, Reader};
use super::redundancy::{Data, Given, Written};
use super::segments::{Rest, length};
use super::{Blocks, Group};
use crate::epochs::Subject;
use crate::seen_through::{Asker, SeenThrough};
use bytes::Bytes;
use futures_channel::oneshot;
use futures_util::future::Either;
use std::ops::Range;
use std::sync::atomic::Ordering;
use tepal_drive::world::{Gather, World};
use tepal_model::{BLOCK, Buffer, IoError, Lineage, Segments, VolumeId, buffer::join};
use tepal_wire::message::Tag;

impl<W: World> Group<W> {
    pub async fn read(&self, subject: Subject, offset: u64, length: u64) -> Result<Segments, IoError> {
        self.shared.served.fetch_add(1, Ordering::Relaxed);
        let blocks = Blocks::touched(offset, offset + length);
        let segments = match self.enter((subject.volume, blocks)).await {
            Ok(()) => self.read_blocks(blocks, subject).await?,
            Err(error) if is_read_there(&error) => Box::pin(self.read_untaken(blocks, subject)).await?,
            Err(error) => return Err(error),
        };
        let mut rest = Rest::of(segments);
        rest.next((offset - blocks.first * BLOCK) as usize);
        Ok(rest.next(length as usize))
    }

    /// Takes its place among the writes of the same blocks at the call. With `fua`, the data is stable before the
    /// future resolves, whatever the layout's durability.
    pub fn write(
        &self,
        volume: VolumeId,
        offset: u64,
        given: Given,
        fua: bool,
        tag: Option<Tag>,
    ) -> impl Future<Output = Result<(), IoError>> + use<W> {
        self.shared.served.fetch_add(1, Ordering::Relaxed);
        if !self.shared.has_migrated.load(Ordering::Acquire) {
            return Either::Left(self.write_here(volume, offset, given, fua, tag));
        }
        let group = self.clone();
        Either::Right(Box::pin(async move {
            let end = offset + length(&given.data);
            group.enter((volume, Blocks::touched(offset, end))).await?;
            group.write_here(volume, offset, given, fua, tag).await
        }))
    }

    fn write_here(
        &self,
        volume: VolumeId,
        offset: u64,
        given: Given,
        fua: bool,
        tag: Option<Tag>,
    ) -> impl Future<Output = Result<(), IoError>> + use<W> {
        let end = offset + length(&given.data);
        let place = self.line_up(Blocks::touched(offset, end));
        let (group, writing) = (self.clone(), Writing::of(volume));
        let write =
            |asker| async move { group.write_bytes((place, asker), writing, offset..end, given, fua, tag).await };
        SeenThrough::new(self.shared.world.clone(), write)
    }

    /// Takes a place for a client's change.
    pub fn line_up(&self, blocks: Blocks) -> Queued {
        self.shared.order.line_up(blocks.first, blocks.count, Some(self.shared.world.now()))
    }

    /// Takes a place for a change that no client has asked for: no read has to come after the change.
    pub fn line_up_unasked(&self, blocks: Blocks) -> Queued {
        self.shared.order.line_up(blocks.first, blocks.count, None)
    }

    async fn write_bytes(
        &self,
        (place, asker): (Queued, Asker),
        mut writing: Writing,
        range: Range<u64>,
        given: Given,
        fua: bool,
        tag: Option<Tag>,
    ) -> Result<(), IoError> {
        let (blocks, now) = (Blocks::touched(range.start, range.end), Subject::now(writing.volume));
        let whole = range.start.is_multiple_of(BLOCK) && range.end.is_multiple_of(BLOCK);
        let (mut turn, mut begun) = (self.turn(place, &asker).await?, false);
        let (mut parts, origin) = (None, tag.map(|tag| tag.origin));
        loop {
            if !begun {
                // Chosen again after each time that the turn was given up.
                writing.choose_anew();
                if let Some(tag) = tag.filter(|tag| tag.is_in_doubt) {
                    let (own, missing) = Box::pin(self.not_yet_taken(turn, &asker, tag.origin, (now, blocks))).await?;
                    (turn, parts) = (own, Some(missing));
                } else if !whole {
                    // All copies must have the rest of the block before the merge, and the same requests.
                    turn = Box::pin(self.settled(turn, &asker, (now, blocks))).await?;
                }
                self.may_begin((writing.volume, blocks))?;
            }
            let data = match whole {
                true => Data::summed(blocks.first, given.clone(), origin),
                false => {
                    let merged = match self.seen_by(&mut writing)? {
                        Some(seen) => Box::pin(self.merged(range.start, &given.data, &seen)).await,
                        None => Ok(Merged::Waits(self.in_a_moment())),
                    };
                    match merged {
                        Ok(Merged::Whole(_)) if !self.sees_as_before(&writing) => continue,
                        Ok(Merged::Whole(data)) => Data::new(blocks.first, Gather::from_iter([data]), origin),
                        Err(error) => return Err(self.error_once_all_act(error, &writing).await),
                        Ok(Merged::Waits(change)) => {
                            turn = Box::pin(self.wait_for_copies(turn, &asker, change, begun, blocks)).await?;
                            continue;
                        }
                    }
                }
            };
            let written = match &parts {
                None => self.shared.kept.put(self, &turn, (&data, fua), &mut writing).await,
                Some(parts) => Box::pin(self.write_parts(&turn, &data, parts, fua, &mut writing)).await,
            };
            match written {
                Ok(Written::Done) => return self.until_all_act(&writing).await,
                Err(error) => return Err(self.error_once_all_act(error, &writing).await),
                Ok(Written::Waits { change, begun: now }) => {
                    begun |= now;
                    turn = Box::pin(self.wait_for_copies(turn, &asker, change, begun, blocks)).await?;
                }
            }
        }
    }

    /// Writes some parts of the data, where the rest of the blocks has taken the data before.
    pub(super) async fn write_parts(
        &self,
        turn: &Turn,
        data: &Data,
        parts: &[Blocks],
        fua: bool,
        writing: &mut Writing,
    ) -> Result<Written, IoError> {
        for (nth, part) in parts.iter().enumerate() {
            let written = self.shared.kept.put(self, turn, (&data.part(*part), fua), writing).await?;
            if let Written::Waits { change, begun } = written {
                return Ok(Written::Waits { change, begun: begun || nth > 0 });
            }
        }
        Ok(Written::Done)
    }

    /// The blocks that the bytes touch, with the rest of the first and last block as the lineage sees it now.
    pub(super) async fn merged(&self, offset: u64, data: &[Bytes], seen: &Lineage) -> Result<Merged, IoError> {
        let blocks = Blocks::touched(offset, offset + length(data));
        loop {
            match self.plan_read(blocks, Reader::HasTurn(seen)) {
                Plan::Wait(change) => return Ok(Merged::Waits(change)),
                Plan::Refuse(error) => return Err(error),
                Plan::Go(..) | Plan::Resolve(_) => {}
            }
            match self.for_others().merge_edges(offset, data, seen).await {
                Err(IoError::NotNow) => {} // a drive has left meanwhile
                // A drive that has come meanwhile may have fragments that were never finished, and may have been read.
                Ok(_) if !self.shared.fragments.are_copies() && !self.is_settled(blocks)? => {
                    return Ok(Merged::Waits(self.in_a_moment()));
                }
                outcome => return outcome.map(Merged::Whole),
            }
        }
    }

    async fn merge_edges(&self, offset: u64, data: &[Bytes], seen: &Lineage) -> Result<Bytes, IoError> {
        let end = offset + length(data);
        let first = offset / BLOCK * BLOCK;
        let past = end.next_multiple_of(BLOCK);
        let mut whole = Buffer::take((past - first) as usize);
        let mut edges = vec![(first, offset > first), (past - BLOCK, end < past)];
        if past - first == BLOCK {
            edges.truncate(1);
            edges[0].1 = true;
        }
        for (edge, partial) in edges {
            if partial {
                let old = join(&self.read_under_turn(Blocks::new(edge / BLOCK, 1), seen).await?);
                let at = (edge - first) as usize;
                whole[at..at + BLOCK as usize].copy_from_slice(&old);
            }
        }
        let mut at = (offset - first) as usize;
        for piece in data {
            whole[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        Ok(whole.freeze())
    }
}

/// The outcome of merging bytes with the rest of their blocks.
pub(super) enum Merged {
    Whole(Bytes),
    /// No copy of the rest is here.
    Waits(oneshot::Receiver<()>),
}
