//! A volume's bytes, read and written: dealt out to its columns, and put together again.

use super::operation::{Read, Write};
use super::{Map, Volume};
use crate::column::Group;
use crate::column::segments::Rest;
use crate::map::Part;
use crate::servers::reach::{Again, Undone};
use bytes::Bytes;
use futures_util::future::join_all;
use std::ops::Range;
use std::time::Duration;
use tepal_drive::world::{Gather, World};
use tepal_model::layout::Durability;
use tepal_model::{Epoch, IoError, Segments};

/// The pause before a request is made to another map.
pub(super) const MOMENT: Duration = Duration::from_millis(1);

impl<W: World> Volume<W> {
    pub(super) fn check_range(&self, offset: u64, length: u64) -> Result<(), IoError> {
        let size = self.size();
        match offset.checked_add(length) {
            Some(end) if end <= size => Ok(()),
            _ => Err(IoError::OutOfRange { offset, length, size }),
        }
    }

    /// The bytes, in pieces that joined are `length` long. Bytes that no drive holds read as zeros. Waits for copies
    /// that may return; `Damaged` if no copy can be read.
    pub async fn read(&self, offset: u64, length: u64) -> Result<Segments, IoError> {
        self.check_range(offset, length)?;
        match self.live() {
            None => self.read_at(offset, length, None).await,
            Some(_) => Box::pin(self.read_live(offset, length)).await,
        }
    }

    /// The bytes as they are stored.
    pub(super) async fn read_stored(&self, offset: u64, length: u64, at: Option<Epoch>) -> Result<Segments, IoError> {
        if let Some(map) = self.only_map() {
            match self.read_in(map, offset, length, at).await {
                Ok(segments) => return Ok(segments),
                Err(Undone::Io(error)) => return Err(error),
                Err(Undone::Migrated(_)) => {}
            }
        }
        Box::pin(self.read_routed(offset, length, at)).await
    }

    async fn read_in(&self, map: &Map<W>, offset: u64, length: u64, at: Option<Epoch>) -> Result<Segments, Undone> {
        let parts = map.striping().parts(offset, length);
        if let [part] = parts.as_slice() {
            return self.read_part(map, part, at).await;
        }
        let mut found: Vec<(usize, Segments)> = Vec::new();
        let reads = join_all(parts.iter().map(|part| self.read_part(map, part, at)));
        for (part, segments) in parts.iter().zip(reads.await) {
            let mut rest = Rest::of(segments?);
            found.extend(part.slices.iter().map(|slice| (slice.start, rest.next(slice.len()))));
        }
        found.sort_unstable_by_key(|(start, _)| *start);
        Ok(found.into_iter().flat_map(|(_, segments)| segments).collect())
    }

    async fn read_part(&self, map: &Map<W>, part: &Part, at: Option<Epoch>) -> Result<Segments, Undone> {
        self.at_primary(map, part.column, &Read { offset: part.offset, length: part.length(), at }, None).await
    }

    /// Reads by the table. Parts that have migrated meanwhile are read again from the other map.
    async fn read_routed(&self, offset: u64, length: u64, at: Option<Epoch>) -> Result<Segments, IoError> {
        'again: loop {
            let routed = self.routed(offset..offset + length);
            let read = |(map, bytes): (_, Range<u64>)| self.read_in(map, bytes.start, bytes.end - bytes.start, at);
            let reads = join_all(routed.iter().map(|(map, bytes)| read((map, bytes.clone())))).await;
            let mut found = Segments::new();
            for segments in reads {
                match segments {
                    Ok(segments) => found.extend(segments),
                    Err(Undone::Io(error)) => return Err(error),
                    Err(Undone::Migrated(_)) => {
                        self.in_a_moment().await?;
                        continue 'again;
                    }
                }
            }
            return Ok(found);
        }
    }

    /// Pauses before a request is made to another map: this server may have to follow first.
    pub(crate) async fn in_a_moment(&self) -> Result<(), IoError> {
        let Some(engine) = self.engine() else { return Err(IoError::Stopping) };
        engine.world().sleep(MOMENT).await;
        Ok(())
    }

    /// With `fua`, the data is stable before this returns, whatever the layout's durability.
    pub async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), IoError> {
        self.check_range(offset, data.len() as u64)?;
        if self.live().is_some() {
            self.check_written(offset, data.len() as u64)?;
            return Box::pin(self.write_live(offset, data, fua)).await;
        }
        self.write_as_ever(offset, data, fua).await
    }

    pub(super) async fn write_as_ever(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), IoError> {
        let data = self.enciphered(offset, data)?;
        let Some(map) = self.only_map() else {
            return Box::pin(self.write_routed(vec![Piece { offset, data, again: None }], fua)).await;
        };
        let parts = map.striping().parts(offset, data.len() as u64);
        if let [part] = parts.as_slice() {
            let gather = Gather::from_iter([data.clone()]);
            return match self.write_part(map, part, gather, (fua, None)).await {
                Ok(()) => Ok(()),
                Err(Undone::Io(error)) => Err(error),
                Err(Undone::Migrated(again)) => {
                    let pieces = pieces_of(map, part, &Gather::from_iter([data]), &again);
                    Box::pin(self.write_routed(pieces, fua)).await
                }
            };
        }
        // Parts that are stable once they are done can't be lost with a drive's cache.
        let is_stable = fua || self.is_strict();
        let unstable = parts.iter().filter(|_| !is_stable).filter_map(|part| map.seats().get(part.column)?.group());
        let lost_before: Vec<(Group<W>, u64)> = unstable.map(|group| (group.clone(), group.times_lost())).collect();
        let gather = |part: &Part| part.slices.iter().map(|slice| data.slice(slice.clone())).collect::<Gather>();
        let write = |part| self.write_part(map, part, gather(part), (fua, None));
        // All parts take their places in their queues before any is waited for.
        let migrated = migrated(parts.iter().zip(join_all(parts.iter().map(write)).await))?;
        if !migrated.is_empty() {
            let pieces = migrated.into_iter().flat_map(|(part, again)| pieces_of(map, part, &gather(part), &again));
            Box::pin(self.write_routed(pieces.collect(), fua)).await?;
        }
        // A drive may have lost its part before another part was done, and have been the only one that had it.
        match lost_before.into_iter().find_map(|(group, before)| group.lost_since(before)) {
            Some(reason) => Err(IoError::Unavailable { reason }),
            None => Ok(()),
        }
    }

    async fn write_part(
        &self,
        map: &Map<W>,
        part: &Part,
        data: Gather,
        (fua, again): (bool, Option<&Again>),
    ) -> Result<(), Undone> {
        self.at_primary(map, part.column, &Write { offset: part.offset, data, fua }, again).await
    }

    /// Writes by the table, until all has been taken where the table says.
    async fn write_routed(&self, mut pieces: Vec<Piece>, fua: bool) -> Result<(), IoError> {
        loop {
            let mut asked: Vec<Asked<W>> = Vec::new();
            for Piece { offset, data, again } in &pieces {
                for (map, bytes) in self.routed(*offset..offset + data.len() as u64) {
                    let data = data.slice((bytes.start - offset) as usize..(bytes.end - offset) as usize);
                    for part in map.striping().parts(bytes.start, data.len() as u64) {
                        let data = part.slices.iter().map(|slice| data.slice(slice.clone())).collect();
                        asked.push(Asked { map: map.clone(), part, data, again: again.clone() });
                    }
                }
            }
            let write = |asked: &Asked<W>| {
                let Asked { map, part, data, again } = asked.clone();
                async move { self.write_part(&map, &part, data, (fua, again.as_ref())).await }
            };
            let migrated = migrated(asked.iter().zip(join_all(asked.iter().map(write)).await))?;
            if migrated.is_empty() {
                return Ok(());
            }
            let of = |(asked, again): (&Asked<W>, Again)| pieces_of(&asked.map, &asked.part, &asked.data, &again);
            pieces = migrated.into_iter().flat_map(of).collect();
            self.in_a_moment().await?;
        }
    }

    fn is_strict(&self) -> bool {
        self.lock().layout.durability == Durability::Strict
    }
}

/// Data to be written, with its request's number if it had one.
struct Piece {
    offset: u64,
    data: Bytes,
    again: Option<Again>,
}

/// A write of one column of one of the maps.
struct Asked<W: World> {
    map: Map<W>,
    part: Part,
    data: Gather,
    again: Option<Again>,
}

impl<W: World> Clone for Asked<W> {
    fn clone(&self) -> Self {
        let Asked { map, part, data, again } = self;
        Asked { map: map.clone(), part: part.clone(), data: data.clone(), again: again.clone() }
    }
}

/// The pieces of a part that another map has by now.
fn pieces_of<W: World>(map: &Map<W>, part: &Part, data: &Gather, again: &Again) -> Vec<Piece> {
    let mut at = part.offset;
    let mut pieces = Vec::new();
    for data in data {
        let mut left = data.clone();
        while !left.is_empty() {
            let offset = map.striping().offset_of(part.column, at);
            let length = (map.striping().end_of_extent(offset) - offset).min(left.len() as u64);
            pieces.push(Piece { offset, data: left.split_to(length as usize), again: Some(again.clone()) });
            at += length;
        }
    }
    pieces
}

/// Where the bytes of a column are in the volume, extent by extent.
pub(super) fn in_volume<W: World>(
    map: &Map<W>,
    column: usize,
    bytes: Range<u64>,
) -> impl Iterator<Item = Range<u64>> + '_ {
    let mut at = bytes.start;
    std::iter::from_fn(move || {
        (at < bytes.end).then(|| {
            let offset = map.striping().offset_of(column, at);
            let length = (map.striping().end_of_extent(offset) - offset).min(bytes.end - at);
            at += length;
            offset..offset + length
        })
    })
}

/// The parts that were refused because another map has them by now; or the first error.
pub(super) fn migrated<T>(outcomes: impl Iterator<Item = (T, Result<(), Undone>)>) -> Result<Vec<(T, Again)>, IoError> {
    let mut migrated = Vec::new();
    for (what, outcome) in outcomes {
        match outcome {
            Ok(()) => {}
            Err(Undone::Io(error)) => return Err(error),
            Err(Undone::Migrated(again)) => migrated.push((what, again)),
        }
    }
    Ok(migrated)
}
