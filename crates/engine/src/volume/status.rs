//! What drives hold of a volume, and what may differ from an older snapshot: found without reading any data.

use super::operation::Status;
use super::{Map, Snapshot, Volume};
use crate::servers::reach::Undone;
use futures_util::future::join_all;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::Ordering;
use tepal_drive::world::World;
use tepal_model::{Epoch, IoError, MapId};

/// A run of bytes that are all mapped, or all a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Bytes, at least one.
    pub length: u64,
    /// Whether drives hold the bytes. If not, they read as zeros.
    pub mapped: bool,
}

/// The bytes of a question for runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Within {
    /// The first byte.
    pub offset: u64,
    /// The greatest length of all runs together, in bytes.
    pub length: u64,
    /// The greatest number of runs.
    pub limit: usize,
}

/// The most extents to pass, and questions to ask, for one answer.
const LOOK: usize = 256 << 10;
/// The most extents that columns are asked about at once. A request begins with one extent, for few runs may be all
/// that is wanted.
const MOST_AHEAD: u64 = 64 << 10;
/// The same where all that was asked about before was alike, as most of a large volume is.
const MOST_ALIKE: u64 = 1 << 20;
/// The number of extents grows by this factor with each further question.
const MORE: u64 = 8;

/// Of a column, about which of its bytes, in runs.
type Answer = (usize, Range<u64>, VecDeque<(u64, bool)>);

/// The columns' answers about bytes that are not passed yet.
#[derive(Default)]
struct Ahead {
    map: Option<MapId>,
    /// For each column, the first byte of its answer, and the runs.
    columns: BTreeMap<usize, (u64, VecDeque<(u64, bool)>)>,
    /// Whether drives hold all of the bytes that were asked about, or none of them.
    alike: Option<bool>,
}

impl Ahead {
    /// What the columns have answered, each about so many bytes.
    fn of(map: MapId, answers: Vec<Answer>) -> Self {
        let only = |(_, part, runs): &Answer| {
            let (_, mapped) = *runs.front()?;
            let alike: u64 = runs.iter().take_while(|run| run.1 == mapped).map(|(length, _)| length).sum();
            (alike >= part.end - part.start).then_some(mapped)
        };
        let first = answers.first().and_then(only);
        let alike = first.filter(|_| answers.iter().all(|answer| only(answer) == first));
        let columns = answers.into_iter().map(|(column, part, runs)| (column, (part.start, runs)));
        Ahead { map: Some(map), columns: columns.collect(), alike }
    }

    /// The run of a column that begins at this byte, cut to at most `most` bytes.
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
    /// The mapped and unmapped runs, from the first byte on. Each differs from its neighbours; there's at least one.
    pub async fn block_status(&self, within: Within) -> Result<Vec<Run>, IoError> {
        self.check_range(within.offset, within.length)?;
        match self.live() {
            None => self.status_of(within, None, None).await,
            Some(_) => Box::pin(self.status_live(within)).await,
        }
    }

    /// The bytes that may differ from a snapshot of this volume, as runs like those of
    /// [`block_status`](Self::block_status): `mapped` bytes may differ, all others are the same. No data is read for
    /// this, only the drives' knowledge of what is where. `Unavailable` once the snapshot has been removed.
    pub async fn changed_since(&self, snapshot: &Snapshot<W>, within: Within) -> Result<Vec<Run>, IoError> {
        self.check_range(within.offset, within.length)?;
        self.status_of(within, None, Some(snapshot.epoch())).await
    }

    /// The runs of a snapshot, or of the volume as it is now; or how these may differ from an older snapshot.
    pub(super) async fn status_of(
        &self,
        Within { offset, length, limit }: Within,
        snapshot: Option<Epoch>,
        since: Option<Epoch>,
    ) -> Result<Vec<Run>, IoError> {
        let mut runs: Vec<Run> = Vec::new();
        let (end, mut at) = (offset + length, offset);
        // Who walks over a large volume asks for a few GiB at a time, and most of the volume is alike.
        let goes_on = offset > 0 && self.shared.alike_until.load(Ordering::Relaxed) == offset;
        let (mut ahead, mut reach) = (Ahead::default(), if goes_on { MOST_AHEAD } else { 1 });
        let mut looked = 0;
        while at < end && looked < LOOK {
            let (map, until) = self.map_at(at);
            let past = map.striping().end_of_extent(at).min(until).min(end);
            let (column, first) = map.striping().locate(at);
            let Some((length, mapped)) = ahead.take(map.id(), column, first, past - at) else {
                let far = map.striping().end_of_extents(at, reach).min(until).min(end);
                looked += 1;
                match self.look_ahead(&map, at..far, (snapshot, since)).await {
                    Ok(Ahead { alike: Some(mapped), .. }) => {
                        if !add(&mut runs, far - at, mapped, limit) {
                            return Ok(runs);
                        }
                        (at, reach) = (far, (reach * MORE).min(MOST_ALIKE));
                    }
                    Ok(found) => (ahead, reach) = (found, (reach * MORE).min(MOST_AHEAD)),
                    Err(Undone::Io(error)) => return Err(error),
                    Err(Undone::Migrated(_)) => self.in_a_moment().await?,
                }
                continue;
            };
            looked += usize::from(at + length == past);
            if !add(&mut runs, length, mapped, limit) {
                return Ok(runs);
            }
            at += length;
        }
        self.shared.alike_until.store(if runs.len() == 1 { at } else { 0 }, Ordering::Relaxed);
        Ok(runs)
    }

    /// Asks all columns about their parts of these bytes, at once.
    async fn look_ahead(
        &self,
        map: &Map<W>,
        bytes: Range<u64>,
        (at, since): (Option<Epoch>, Option<Epoch>),
    ) -> Result<Ahead, Undone> {
        let striping = map.striping();
        // What is within one extent is one column's: others needn't be looked for.
        let columns = match bytes.end <= striping.end_of_extent(bytes.start) {
            true => (striping.locate(bytes.start).0..map.columns()).take(1),
            false => (0..map.columns()).take(map.columns()),
        };
        let parts = columns.map(|column| (column, striping.within(column, bytes.clone())));
        let asked = parts.filter(|(_, part)| !part.is_empty()).map(async |(column, part)| {
            let status = Status { offset: part.start, length: part.end - part.start, at, since };
            let found = self.at_primary(map, column, &status, None).await?;
            Ok((column, part, found.into_iter().filter(|(length, _)| *length > 0).collect()))
        });
        let answers = join_all(asked).await.into_iter().collect::<Result<Vec<_>, Undone>>()?;
        Ok(Ahead::of(map.id(), answers))
    }
}

/// Adds bytes to the runs, if there may be one more where they are no part of the last one. Says whether they were added.
fn add(runs: &mut Vec<Run>, length: u64, mapped: bool, limit: usize) -> bool {
    let is_full = runs.len() == limit;
    match runs.last_mut() {
        Some(run) if run.mapped == mapped => run.length += length,
        _ if is_full => return false,
        _ => runs.push(Run { length, mapped }),
    }
    true
}
