//! Reading from any clean copy.

use crate::map::{BlockMap, Piece};
use crate::members::Copies;
use crate::protocol::primary::recover::Stuck;
use crate::seen_through::SeenThrough;
use crate::volume::{State, Volume, cut};
use futures_channel::oneshot;
use futures_util::future::{join_all, try_join_all};
use smallvec::SmallVec;
use tepal_drive::world::World;
use tepal_drive::{Drive, DriveError};
use tepal_model::{BLOCK, IoError, MapId, Segments};

/// Read errors after which a drive isn't trusted any more, if others have its data.
const MOST_READ_ERRORS: u64 = 64;

/// Pieces that lie side by side on one drive, and so are one read there.
struct Part<W: World> {
    at: usize,
    drive: Drive<W>,
    first: u64,
    count: u64,
    /// The pieces, by their number in the request, and which copy of each this is.
    pieces: SmallVec<[(usize, Piece, usize); 1]>,
}

enum Plan<W: World> {
    Go {
        map: MapId,
        parts: SmallVec<[Part<W>; 1]>,
        pieces: usize,
    },
    /// This region's copies may differ: settle that first.
    Resolve(u64),
    Wait(oneshot::Receiver<()>),
    Refuse(IoError),
}

/// Whether the reader holds the turn of what it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    Client,
    HasTurn,
}

impl<W: World> Volume<W> {
    pub(crate) async fn read_blocks(&self, first: u64, count: u64) -> Result<Segments, IoError> {
        let segments = self.read_copies(first, count, Reader::Client).await?;
        let met = self.shared.order.under_way(first, count);
        if !met.is_empty() {
            join_all(met).await;
        }
        Ok(segments)
    }

    /// For a write that merges: it has the turn, so nothing is under way.
    pub(crate) async fn read_under_turn(&self, first: u64, count: u64) -> Result<Segments, IoError> {
        self.read_copies(first, count, Reader::HasTurn).await
    }

    async fn read_copies(&self, first: u64, count: u64, reader: Reader) -> Result<Segments, IoError> {
        loop {
            match self.plan_read(first, count, reader) {
                Plan::Refuse(error) => return Err(error),
                Plan::Resolve(region) => self.resolve_to_the_end(region).await?,
                Plan::Wait(change) => {
                    let _ = change.await; // dropped unsent only when the volume goes
                }
                Plan::Go { map, parts, pieces } => match self.read_parts(map, parts, pieces).await {
                    Ok(segments) => return Ok(segments),
                    Err(Failed::Lost(id, loss)) => Box::pin(self.lose(vec![(id, loss)])).await,
                    Err(Failed::Away) => {} // drives have left since this was planned
                    Err(Failed::Io(error)) => return Err(error),
                },
            }
        }
    }

    /// A repair that has begun is not given up with the read that wanted it.
    async fn resolve_to_the_end(&self, region: u64) -> Result<(), IoError> {
        let volume = self.clone();
        let resolve = |_| async move {
            loop {
                match volume.resolve(region).await {
                    Ok(()) => return Ok(()),
                    Err(Stuck::Failed(error)) => return Err(error),
                    Err(Stuck::Waits(change)) => {
                        let _ = change.await; // dropped unsent only when the volume goes
                    }
                }
            }
        };
        SeenThrough::new(self.shared.world.clone(), resolve).await
    }

    fn plan_read(&self, first: u64, count: u64, reader: Reader) -> Plan<W> {
        let mut state = self.lock();
        if state.removed {
            return Plan::Refuse(IoError::Fenced);
        }
        if reader == Reader::Client && !state.unresolved.is_empty() {
            let differs = self.shared.map.regions(first, count).find(|region| state.unresolved.contains(region));
            if let Some(region) = differs {
                return Plan::Resolve(region);
            }
        }
        let map = &self.shared.map;
        let mut parts: SmallVec<[Part<W>; 1]> = SmallVec::new();
        let mut pieces = 0;
        for piece in map.pieces(first, count) {
            let copy = match choose(&state, map, piece, reader) {
                Ok(copy) => copy,
                Err(Copies::Lost) => {
                    return Plan::Refuse(lost());
                }
                Err(Copies::Waiting | Copies::Clean(_)) => return Plan::Wait(Volume::next_change(&mut state)),
            };
            let (at, there) = map.place(piece, copy);
            let joins = |part: &&mut Part<W>| part.at == at && part.first + part.count == there;
            match parts.iter_mut().find(joins) {
                Some(part) => {
                    part.count += piece.count;
                    part.pieces.push((pieces, piece, copy));
                }
                None => {
                    let Some(drive) = state.members.list[at].drive().cloned() else {
                        return Plan::Wait(Volume::next_change(&mut state));
                    };
                    let pieces = SmallVec::from_iter([(pieces, piece, copy)]);
                    parts.push(Part { at, drive, first: there, count: piece.count, pieces });
                }
            }
            pieces += 1;
        }
        Plan::Go { map: state.spec.map, parts, pieces }
    }

    async fn read_parts(&self, map: MapId, parts: SmallVec<[Part<W>; 1]>, pieces: usize) -> Result<Segments, Failed> {
        if let ([part], 1) = (parts.as_slice(), pieces) {
            let queued = Queued::on(self, part.at);
            let outcome = part.drive.read(map, part.first, part.count).await;
            drop(queued);
            return match outcome {
                Ok(segments) => Ok(segments),
                Err(error) => Box::pin(self.read_around(map, part, error)).await.map(|mut found| found.remove(0).1),
            };
        }
        let reads = parts.iter().map(|part| async move {
            let queued = Queued::on(self, part.at);
            let outcome = part.drive.read(map, part.first, part.count).await;
            drop(queued);
            match outcome {
                Ok(segments) => Ok(split(part, segments)),
                Err(error) => Box::pin(self.read_around(map, part, error)).await,
            }
        });
        let mut found: Vec<(usize, Segments)> = try_join_all(reads).await?.into_iter().flatten().collect();
        found.sort_unstable_by_key(|(number, _)| *number);
        Ok(found.into_iter().flat_map(|(_, segments)| segments).collect())
    }

    /// Reads a part's pieces block by block, each from whichever clean copy of it is right, and has the others repaired.
    async fn read_around(
        &self,
        map: MapId,
        part: &Part<W>,
        error: DriveError,
    ) -> Result<Vec<(usize, Segments)>, Failed> {
        if let DriveError::Lost(loss) = error {
            return Err(Failed::Lost(part.drive.id(), loss));
        }
        let mut found = Vec::new();
        for &(number, piece, _) in &part.pieces {
            let mut segments = Segments::new();
            for block in piece.block..piece.block + piece.count {
                let one = Piece { block, count: 1, ..piece };
                segments.extend(self.read_block_anywhere(map, one).await?);
            }
            found.push((number, segments));
        }
        Ok(found)
    }

    pub(crate) async fn read_block_anywhere(&self, map: MapId, block: Piece) -> Result<Segments, Failed> {
        let damaged = IoError::Damaged { offset: block.block * BLOCK, length: BLOCK };
        let copies = {
            let state = self.lock();
            clean_copies(&state, &self.shared.map, block)
        };
        let Copies::Clean(copies) = copies else { return Err(Failed::Away) };
        let mut bad = Vec::new();
        for copy in copies {
            let (at, there) = self.shared.map.place(block, copy);
            let Some(drive) = self.lock().members.list[at].drive().cloned() else { return Err(Failed::Away) };
            match drive.read(map, there, 1).await {
                Ok(segments) => {
                    bad.into_iter().for_each(|copy| self.repair_later(block, copy));
                    return Ok(segments);
                }
                Err(DriveError::Lost(loss)) => return Err(Failed::Lost(drive.id(), loss)),
                Err(DriveError::Damaged { .. } | DriveError::OutOfSpace) => bad.push(copy),
            }
        }
        Err(Failed::Io(damaged))
    }

    /// Repairs a copy of a block in the background, and retires a drive that has made too many mistakes.
    fn repair_later(&self, block: Piece, copy: usize) {
        let volume = self.clone();
        self.shared.world.spawn(Box::pin(async move {
            let (at, _) = volume.shared.map.place(block, copy);
            let drive = volume.lock().members.list[at].drive().cloned();
            if let Some(drive) = drive.filter(|drive| drive.usage().read_errors >= MOST_READ_ERRORS) {
                drive.retire("too many read errors");
                if let Some(loss) = drive.loss() {
                    volume.lose(vec![(drive.id(), loss)]).await;
                }
                return;
            }
            let id = volume.lock().members.list[at].id;
            match volume.repair(block.block, copy).await {
                Ok(()) => {
                    tracing::warn!(drive = %id, block = block.block, "a damaged block was repaired from another copy")
                }
                Err(error) => {
                    tracing::error!(drive = %id, block = block.block, %error, "a damaged block was not repaired")
                }
            }
        }));
    }

    /// Which blocks of the piece hold something, as runs.
    pub(crate) async fn mapped(&self, piece: Piece) -> Result<Vec<(u64, bool)>, IoError> {
        loop {
            let change = {
                let mut state = self.lock();
                if state.removed {
                    return Err(IoError::Fenced);
                }
                match clean_copies(&state, &self.shared.map, piece) {
                    Copies::Clean(copies) => {
                        let (at, there) = self.shared.map.place(piece, copies[0]);
                        if let Some(drive) = state.members.list[at].drive() {
                            return Ok(drive.present(state.spec.map, there, piece.count, u64::MAX));
                        }
                        Volume::next_change(&mut state)
                    }
                    Copies::Waiting => Volume::next_change(&mut state),
                    Copies::Lost => return Err(lost()),
                }
            };
            let _ = change.await; // as above
        }
    }
}

/// Counts as a request under way on a drive, until it's dropped.
struct Queued<'a, W: World> {
    volume: &'a Volume<W>,
    at: usize,
}

impl<'a, W: World> Queued<'a, W> {
    fn on(volume: &'a Volume<W>, at: usize) -> Self {
        volume.lock().members.enqueue(at);
        Queued { volume, at }
    }
}

impl<W: World> Drop for Queued<'_, W> {
    fn drop(&mut self) {
        self.volume.lock().members.dequeue(self.at);
    }
}

/// Why a read has to be begun again, or can't be done.
pub(crate) enum Failed {
    Lost(tepal_model::DriveId, std::sync::Arc<tepal_drive::Loss>),
    /// Drives have left since it was planned.
    Away,
    Io(IoError),
}

pub(crate) fn lost() -> IoError {
    IoError::Unavailable { reason: "the drive that held the data has failed".to_owned() }
}

pub(crate) fn clean_copies<W: World>(state: &State<W>, map: &BlockMap, piece: Piece) -> Copies {
    let region = map.region_of(piece.block);
    state.members.clean(&map.holders(region), region)
}

/// The clean copy on the drive with the shortest queue; of equals, one by turns.
fn choose<W: World>(state: &State<W>, map: &BlockMap, piece: Piece, reader: Reader) -> Result<usize, Copies> {
    match clean_copies(state, map, piece) {
        // Under a turn the region may be unresolved: there the first copy decides.
        Copies::Clean(copies) if reader == Reader::HasTurn => Ok(copies[0]),
        Copies::Clean(copies) => {
            let turn = (piece.extent / map.rotation.drives() as u64) as usize % copies.len();
            let by_turns = copies[turn..].iter().chain(&copies[..turn]).copied();
            let queue = |&copy: &usize| state.members.list[map.place(piece, copy).0].queue;
            by_turns.min_by_key(queue).ok_or(Copies::Waiting)
        }
        other => Err(other),
    }
}

fn split<W: World>(part: &Part<W>, segments: Segments) -> Vec<(usize, Segments)> {
    if let [(number, ..)] = part.pieces.as_slice() {
        return vec![(*number, segments)];
    }
    let mut skip = 0;
    let mut found = Vec::with_capacity(part.pieces.len());
    for (number, piece, _) in &part.pieces {
        let length = piece.count * BLOCK;
        found.push((*number, cut(segments.clone(), skip, length)));
        skip += length;
    }
    found
}
