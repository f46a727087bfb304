//! What of a volume drives hold, and what may differ from an older snapshot: found out without reading any of it.

use super::operation::Status;
use super::{Map, Snapshot, Volume};
use crate::servers::reach::Undone;
use futures_util::future::join_all;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use tepal_drive::world::World;
use tepal_model::{Epoch, IoError, MapId};

/// A run of bytes that are all mapped, or all a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Bytes, at least one.
    pub length: u64,
    /// Whether drives hold it; else it reads as zeros.
    pub mapped: bool,
}

/// What is asked about when runs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Within {
    /// The first byte.
    pub offset: u64,
    /// Bytes that the runs may be long together.
    pub length: u64,
    /// As many runs as there may be.
    pub limit: usize,
}

/// Extents that are passed, and questions that are asked, for one answer at most.
const LOOK: usize = 256 << 10;
/// Extents that the columns are asked about at once, at most: it's one at first, for few runs may be all that is wanted.
const MOST_AHEAD: u64 = 64 << 10;
/// By this factor it grows with each further question.
const MORE: u64 = 8;

/// What columns have said of bytes that are not passed yet.
#[derive(Default)]
struct Ahead {
    map: Option<MapId>,
    /// Of each column from which byte on, and the runs.
    columns: BTreeMap<usize, (u64, VecDeque<(u64, bool)>)>,
}

impl Ahead {
    /// The run of a column that begins at this byte, but for what is past so many.
    fn take(&mut self, map: MapId, column: usize, first: u64, most: u64) -> Option<(u64, bool)> {
        let (at, runs) = self.columns.get_mut(&column).filter(|_| self.map == Some(map))?;
        let (length, mapped) = runs.front_mut().filter(|_| *at == first)?;
        let (taken, mapped) = ((*length).min(most), *mapped);
        (*at, *length) = (*at + taken, *length - taken);
        if *length == 0 {
            runs.pop_front();
        }
        Some((taken, mapped))
    }
}

impl<W: World> Volume<W> {
    /// What is mapped, from the first byte on, as runs that differ from their neighbours: at least one.
    pub async fn block_status(&self, within: Within) -> Result<Vec<Run>, IoError> {
        self.check_range(within.offset, within.length)?;
        self.status_of(within, None, None).await
    }

    /// What may differ from what a snapshot of it has there, as runs like those of [`block_status`](Self::block_status): `mapped` is
    /// what may, all else is the same. Nothing is read for this but what drives know of where they keep things. `Unavailable` once the
    /// snapshot has been removed.
    pub async fn changed_since(&self, snapshot: &Snapshot<W>, within: Within) -> Result<Vec<Run>, IoError> {
        self.check_range(within.offset, within.length)?;
        self.status_of(within, None, Some(snapshot.epoch())).await
    }

    /// Of a snapshot, or of what the volume has now; or how that may differ from an older one.
    pub(super) async fn status_of(
        &self,
        Within { offset, length, limit }: Within,
        snapshot: Option<Epoch>,
        since: Option<Epoch>,
    ) -> Result<Vec<Run>, IoError> {
        let mut runs: Vec<Run> = Vec::new();
        let (end, mut at) = (offset + length, offset);
        let (mut ahead, mut reach) = (Ahead::default(), 1);
        let mut looked = 0;
        while at < end && looked < LOOK {
            let map = self.map_at(at);
            let past = map.striping().end_of_extent(at).min(end);
            let (column, first) = map.striping().locate(at);
            let Some((length, mapped)) = ahead.take(map.id(), column, first, past - at) else {
                // Of a volume on its way, the next extent may be elsewhere.
                let far =
                    if self.migration().is_some() { past } else { map.striping().end_of_extents(at, reach).min(end) };
                match self.look_ahead(&map, at..far, (snapshot, since)).await {
                    Ok(found) => (ahead, reach) = (found, (reach * MORE).min(MOST_AHEAD)),
                    Err(Undone::Io(error)) => return Err(error),
                    Err(Undone::Migrated(_)) => self.in_a_moment().await?,
                }
                looked += 1;
                continue;
            };
            looked += usize::from(at + length == past);
            let is_full = runs.len() == limit;
            match runs.last_mut() {
                Some(run) if run.mapped == mapped => run.length += length,
                _ if is_full => return Ok(runs),
                _ => runs.push(Run { length, mapped }),
            }
            at += length;
        }
        Ok(runs)
    }

    /// Asks all columns about their parts of these bytes, at once.
    async fn look_ahead(
        &self,
        map: &Map<W>,
        bytes: Range<u64>,
        (at, since): (Option<Epoch>, Option<Epoch>),
    ) -> Result<Ahead, Undone> {
        let parts = (0..map.seats().len()).map(|column| (column, map.striping().within(column, bytes.clone())));
        let asked = parts.filter(|(_, part)| !part.is_empty()).map(async |(column, part)| {
            let status = Status { offset: part.start, length: part.end - part.start, at, since };
            let found = self.at_primary(map, column, &status, None).await?;
            Ok((column, (part.start, found.into_iter().filter(|(length, _)| *length > 0).collect())))
        });
        let columns = join_all(asked).await.into_iter().collect::<Result<BTreeMap<_, _>, Undone>>()?;
        Ok(Ahead { map: Some(map.id()), columns })
    }
}
