//! Reading: from the log's memory what is pending, from the slots the rest, every block of it checked.
//!
//! A read takes no lock while it waits, so the slot may be written to or change its owner under it. It then doesn't
//! match, and is planned and read again; only a mismatch that stays is damage.

use crate::drive::Drive;
use crate::error::DriveError;
use crate::extent::{BLOCKS, BlockSpan, ExtentKey, extents_of, identity};
use crate::layers::Seen;
use crate::state::State;
use crate::world::{Device, DeviceError, World};
use bytes::Bytes;
use futures_util::future::{join, join_all};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicUsize, Ordering};
use tepal_codec::checksum::{bind, crc};
use tepal_model::{BLOCK, Buffer, Lineage, MapId, Segments, buffer::zeros};

/// How often a block that doesn't match is read again before it counts as damaged.
const ATTEMPTS: usize = 4;
const BLOCK_BYTES: usize = BLOCK as usize;

/// Where the next blocks of a read come from.
enum Piece {
    Hole { blocks: u64 },
    Memory(Bytes),
    Slots(Run),
}

/// Blocks that lie side by side on the device.
struct Run {
    offset: u64,
    blocks: SmallVec<[Block; 1]>,
}

#[derive(Clone, Copy)]
struct Block {
    key: ExtentKey,
    slot: u32,
    number: u8,
    /// `None` if its page isn't in memory.
    expected: Option<u32>,
}

impl Block {
    fn position(&self) -> u64 {
        self.key.first_block() + u64::from(self.number)
    }
}

/// Counts as a read under way until it's dropped.
struct Reading<'a>(&'a AtomicUsize);

impl<'a> Reading<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Reading(count)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One is by far the most common.
type Pieces = SmallVec<[Piece; 1]>;

impl<W: World> Drive<W> {
    /// Reads blocks `first..first + count` of what this drive holds of the map. What holds nothing reads as zeros.
    pub fn read(
        &self,
        map: MapId,
        first: u64,
        count: u64,
        lineage: &Lineage,
    ) -> impl Future<Output = Result<Segments, DriveError>> {
        self.device().seen(self.id(), "drive read", self.read_unseen(map, first, count, lineage))
    }

    async fn read_unseen(&self, map: MapId, first: u64, count: u64, lineage: &Lineage) -> Result<Segments, DriveError> {
        let _reading = Reading::begin(&self.shared.reading);
        let pieces = {
            let mut state = self.shared.lock();
            state.alive()?;
            self.plan(&mut state, map, first, count, lineage)
        };
        let mut segments = Segments::new();
        let mut damaged = Vec::new();
        // The common case is one piece, which needs no joining.
        if pieces.len() == 1 {
            for piece in pieces {
                self.read_piece(map, piece, lineage, &mut segments, &mut damaged).await?;
            }
        } else {
            let parts = pieces.into_iter().map(|piece| async move {
                let (mut segments, mut damaged) = (Segments::new(), Vec::new());
                let read = self.read_piece(map, piece, lineage, &mut segments, &mut damaged).await;
                read.map(|()| (segments, damaged))
            });
            for part in join_all(parts).await {
                let (part, bad) = part?;
                segments.extend(part);
                damaged.extend(bad);
            }
        }
        if damaged.is_empty() {
            return Ok(segments);
        }
        self.shared.lock().block_errors += damaged.len() as u64;
        Err(DriveError::Damaged { blocks: damaged })
    }

    fn plan(&self, state: &mut State, map: MapId, first: u64, count: u64, lineage: &Lineage) -> Pieces {
        let mut pieces = Pieces::new();
        for (index, span, _) in extents_of(first, count) {
            let seen = state.seen(map, index, span.bits(), lineage);
            if seen.is_empty() {
                add_hole(&mut pieces, span.count.into());
                continue;
            }
            for number in span.range() {
                let Some(&Seen { key, slot, .. }) = seen.iter().find(|seen| seen.blocks >> number & 1 == 1) else {
                    add_hole(&mut pieces, 1);
                    continue;
                };
                if let Some(data) = state.pending.block(slot, number).and_then(|block| block.data.clone()) {
                    pieces.push(Piece::Memory(data));
                } else {
                    let expected = state.expected_sum(slot, number);
                    let offset = self.shared.geometry.block_offset(slot, number as u32);
                    add_block(&mut pieces, offset, Block { key, slot, number: number as u8, expected });
                }
            }
        }
        pieces
    }

    async fn read_piece(
        &self,
        map: MapId,
        piece: Piece,
        lineage: &Lineage,
        segments: &mut Segments,
        damaged: &mut Vec<u64>,
    ) -> Result<(), DriveError> {
        match piece {
            Piece::Hole { blocks } => segments.extend(zeros(blocks * BLOCK)),
            Piece::Memory(data) => segments.push(data),
            Piece::Slots(run) => match self.read_run(&run).await? {
                Some(data) => segments.push(data),
                None => {
                    for block in &run.blocks {
                        match Box::pin(self.read_again(map, block.position(), lineage)).await? {
                            Some(data) => segments.push(data),
                            None => damaged.push(block.position()),
                        }
                    }
                }
            },
        }
        Ok(())
    }

    /// All of the run, or `None` if any block of it doesn't match or can't be read.
    async fn read_run(&self, run: &Run) -> Result<Option<Bytes>, DriveError> {
        let buffer = Buffer::take(run.blocks.len() * BLOCK_BYTES);
        let reading = self.shared.device.read(run.offset, buffer);
        let cold = run.blocks.iter().any(|block| block.expected.is_none());
        let data = if cold {
            let pages =
                join_all(run.blocks.iter().filter(|b| b.expected.is_none()).map(|b| self.load_sums(b.slot, false)));
            let (data, loaded) = Box::pin(join(reading, pages)).await;
            for outcome in loaded {
                outcome.map_err(|error| DriveError::Lost(self.shared.lose(error)))?;
            }
            data
        } else {
            reading.await
        };
        let data = match data {
            Ok(data) => data,
            Err(DeviceError::Failed { .. }) => {
                self.shared.lock().read_errors += 1;
                return Ok(None);
            }
            Err(gone @ DeviceError::Gone(_)) => return Err(self.shared.lose(gone).into()),
        };
        let right = run.blocks.iter().zip(data.chunks_exact(BLOCK_BYTES)).all(|(block, bytes)| {
            let expected = block.expected.or_else(|| self.shared.lock().expected_sum(block.slot, block.number.into()));
            expected.is_some_and(|expected| bind(crc(bytes), identity(block.key, block.number.into())) == expected)
        });
        Ok(right.then(|| data.freeze()))
    }

    /// One block, planned afresh each time. `None` if it stays wrong.
    async fn read_again(&self, map: MapId, position: u64, lineage: &Lineage) -> Result<Option<Bytes>, DriveError> {
        for attempt in 0..ATTEMPTS {
            let piece = {
                let mut state = self.shared.lock();
                state.alive()?;
                self.plan(&mut state, map, position, 1, lineage).into_iter().next()
            };
            match piece {
                None | Some(Piece::Hole { .. }) => return Ok(zeros(BLOCK).into_iter().next()),
                Some(Piece::Memory(data)) => return Ok(Some(data)),
                Some(Piece::Slots(run)) => {
                    if let Some(data) = self.read_run(&run).await? {
                        return Ok(Some(data));
                    }
                    if attempt + 2 == ATTEMPTS {
                        // The page of checksums may be the one that is wrong, in memory or in its first copy.
                        let slot = run.blocks[0].slot;
                        {
                            let mut state = self.shared.lock();
                            let page = state.sums.page_of(slot);
                            state.sums.forget(page);
                        }
                        self.load_sums(slot, true).await.map_err(|error| self.shared.lose(error))?;
                    }
                }
            }
        }
        Ok(None)
    }

    /// The CRC of each block's data, unbound, without reading the data: `None` for one that holds nothing. What two
    /// copies are compared by.
    pub async fn crcs(
        &self,
        map: MapId,
        first: u64,
        count: u64,
        lineage: &Lineage,
    ) -> Result<Vec<Option<u32>>, DriveError> {
        let mut crcs = Vec::with_capacity(count as usize);
        for (index, span, _) in extents_of(first, count) {
            loop {
                let unsure = {
                    let mut state = self.shared.lock();
                    state.alive()?;
                    match crcs_of(&mut state, map, index, span, lineage) {
                        Ok(found) => break crcs.extend(found),
                        Err(slot) => slot,
                    }
                };
                self.load_sums(unsure, true).await.map_err(|error| self.shared.lose(error))?;
            }
        }
        Ok(crcs)
    }
}

type Crcs = SmallVec<[Option<u32>; BLOCKS as usize]>;

/// The CRCs of blocks of one extent; or the slot of a layer that has some of them, whose checksums aren't surely in memory.
fn crcs_of(state: &mut State, map: MapId, index: u64, span: BlockSpan, lineage: &Lineage) -> Result<Crcs, u32> {
    let seen = state.seen(map, index, span.bits(), lineage);
    if let Some(unsure) = seen.iter().find(|seen| !state.sums.has(state.sums.page_of(seen.slot), true)) {
        return Err(unsure.slot);
    }
    let crc_of = |block: usize| {
        let Some(Seen { key, slot, .. }) = seen.iter().find(|seen| seen.blocks >> block & 1 == 1) else {
            return Ok(None);
        };
        state.expected_sum(*slot, block).map(|sum| Some(bind(sum, identity(*key, block)))).ok_or(*slot)
    };
    span.range().map(crc_of).collect()
}

fn add_hole(pieces: &mut Pieces, count: u64) {
    match pieces.last_mut() {
        Some(Piece::Hole { blocks }) => *blocks += count,
        _ => pieces.push(Piece::Hole { blocks: count }),
    }
}

fn add_block(pieces: &mut Pieces, offset: u64, block: Block) {
    match pieces.last_mut() {
        Some(Piece::Slots(run)) if run.offset + run.blocks.len() as u64 * BLOCK == offset && run.blocks.len() < 256 => {
            run.blocks.push(block);
        }
        _ => pieces.push(Piece::Slots(Run { offset, blocks: SmallVec::from_iter([block]) })),
    }
}
