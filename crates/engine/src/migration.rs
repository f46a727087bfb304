//! Volumes that go from one global map to another, a window of chunks at a time, as agreed (Petal 2.3).
//!
//! The bytes of volumes are cut into chunks, which have an order of their own ([`Scatter`]). In this order the first ones, up to
//! `done`, are *new*: the target has them. Those up to `fence` are *fenced*: the target takes them over. The others are *old*:
//! the source has them. What volumes were grown by since it began is new.

use crate::view::View;
use std::ops::Range;
use tepal_model::size::chunk;
use tepal_model::{Layout, MapId, MigrationStage, VolumeId};
use tepal_placement::{Geometry, Scatter};

/// How the data of volumes lies in a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Laid {
    /// Its copies and extents.
    pub layout: Layout,
    /// How its extents go round its columns.
    pub geometry: Geometry,
}

/// What is agreed about one of them, at one moment. A map is in at most one; once it isn't any more, each volume that went has the
/// target ([`ClusterView::volumes`](crate::ClusterView::volumes)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// From which map. Until the end the volumes' records name it.
    pub source: MapId,
    /// To which map. Its places are known as those of every map; of epochs it has the source's.
    pub target: MapId,
    /// How the source's data lies.
    pub from: Laid,
    /// How the target's does.
    pub to: Laid,
    /// The chunk in which the range begins that goes; 0 if the volumes go from their beginning on.
    pub first: u64,
    /// How many chunks there were when it began: those of the range, or as many as the longest of the volumes and snapshots that go.
    pub chunks: u64,
    /// Whether the range ends there. If not, everything behind is of it too, however long the volumes become.
    pub ends: bool,
    /// Of the order of chunks.
    pub seed: u64,
    /// Up to which position chunks are new.
    pub done: u64,
    /// Up to which position chunks are new or fenced.
    pub fence: u64,
    /// Source and target are swapped, compared with how it began: positions are counted from the other end.
    pub reversed: bool,
    /// Whether it goes on.
    pub stage: MigrationStage,
    /// At most so many bytes a second are taken over in the background, of the whole cluster.
    pub rate: Option<u64>,
    /// The only volume that goes, with its snapshots; `None` if all do.
    pub leaves: Option<VolumeId>,
    /// The view in which its window, its stage or its direction became what it is. Those who name it mean the same window,
    /// however often it has turned around.
    pub since: View,
}

/// Whose a part of a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Old,
    Fenced,
    New,
}

impl Migration {
    /// Bytes of a chunk: whole extents of both maps.
    pub fn chunk(&self) -> u64 {
        chunk(self.from.layout.extent, self.to.layout.extent)
    }

    /// Which chunk is at a position of the order.
    fn chunk_at(&self, position: u64) -> u64 {
        let position = if self.reversed { self.chunks - 1 - position } else { position };
        self.first + Scatter::new(self.chunks, self.seed).chunk(position)
    }

    /// Whether only a part of the volumes goes.
    pub fn is_of_a_part(&self) -> bool {
        self.first > 0 || self.ends
    }

    /// Whether a byte of the volumes is in the range that goes.
    pub(crate) fn covers(&self, offset: u64) -> bool {
        let chunk = offset / self.chunk();
        chunk >= self.first && !(self.ends && chunk - self.first >= self.chunks)
    }

    /// The map that was the source when it began.
    pub fn began(&self) -> MapId {
        if self.reversed { self.target } else { self.source }
    }

    /// Of the chunk that a byte of the range is in.
    pub(crate) fn phase(&self, offset: u64) -> Phase {
        let chunk = (offset / self.chunk()).saturating_sub(self.first);
        if chunk >= self.chunks {
            return Phase::New;
        }
        let position = Scatter::new(self.chunks, self.seed).position(chunk);
        let position = if self.reversed { self.chunks - 1 - position } else { position };
        match position {
            position if position < self.done => Phase::New,
            position if position < self.fence => Phase::Fenced,
            _ => Phase::Old,
        }
    }

    /// The map that serves a byte of the range.
    pub(crate) fn serves(&self, offset: u64) -> MapId {
        if self.phase(offset) == Phase::Old { self.source } else { self.target }
    }

    /// The bytes of the chunks that are fenced, in the order of chunks.
    pub(crate) fn fenced(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        let (migration, length) = (self.clone(), self.chunk());
        (self.done..self.fence.min(self.chunks)).map(move |position| {
            let chunk = migration.chunk_at(position);
            chunk * length..(chunk + 1) * length
        })
    }

    /// Whether a volume that has one of its maps goes with it.
    pub(crate) fn takes(&self, volume: VolumeId) -> bool {
        self.leaves.is_none_or(|leaver| leaver == volume)
    }

    /// Whether it's about this map.
    pub fn is_about(&self, map: MapId) -> bool {
        self.source == map || self.target == map
    }

    /// How the data lies in one of its maps.
    pub(crate) fn laid(&self, map: MapId) -> &Laid {
        if map == self.source { &self.from } else { &self.to }
    }
}

/// A range of bytes, cut where chunks of so many bytes end.
pub(crate) fn cut_at_chunks(range: Range<u64>, chunk: u64) -> impl Iterator<Item = Range<u64>> {
    let (mut at, end) = (range.start, range.end);
    std::iter::from_fn(move || {
        let start = at;
        at = ((start / chunk + 1) * chunk).min(end);
        (start < end).then_some(start..at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tepal_model::CHUNK;

    fn migration(chunks: u64, (done, fence): (u64, u64), reversed: bool) -> Migration {
        let laid = |layout: &str| Laid { layout: layout.parse().unwrap(), geometry: Geometry::new(1, 1, 1).unwrap() };
        Migration {
            source: MapId(1),
            target: MapId(2),
            from: laid("mirror:2"),
            to: laid("stripe"),
            first: 0,
            chunks,
            ends: false,
            seed: 5,
            done,
            fence,
            reversed,
            stage: MigrationStage::Running,
            rate: None,
            leaves: None,
            since: 1,
        }
    }

    #[test]
    fn each_chunk_is_old_then_fenced_then_new_and_what_has_grown_is_new() {
        for chunks in [1, 2, 7, 100] {
            let mut before: Vec<Phase> = vec![Phase::Old; chunks as usize];
            for done in 0..chunks {
                let now = migration(chunks, (done, done + 1), false);
                let phases: Vec<Phase> = (0..chunks).map(|chunk| now.phase(chunk * CHUNK + 1)).collect();
                assert!(phases.iter().zip(&before).all(|(now, before)| now >= before));
                assert_eq!(phases.iter().filter(|phase| **phase == Phase::New).count() as u64, done);
                let fenced: Vec<_> = now.fenced().collect();
                assert_eq!(fenced.len(), 1);
                assert_eq!(now.phase(fenced[0].start), Phase::Fenced);
                assert_eq!(now.phase(chunks * CHUNK), Phase::New);
                before = phases;
            }
        }
    }

    #[test]
    fn turned_around_the_same_chunks_are_fenced_and_what_was_new_is_old() {
        let there = migration(50, (10, 13), false);
        let back = migration(50, (37, 40), true);
        for chunk in 0..50 {
            let expected = match there.phase(chunk * CHUNK) {
                Phase::Old => Phase::New,
                Phase::Fenced => Phase::Fenced,
                Phase::New => Phase::Old,
            };
            assert_eq!(back.phase(chunk * CHUNK), expected);
        }
    }

    #[test]
    fn of_a_range_that_goes_only_its_own_chunks_change_their_map() {
        let mut now = Migration { first: 3, ends: true, ..migration(4, (1, 3), false) };
        let covered = |now: &Migration| (0..9).filter(|chunk| now.covers(chunk * CHUNK + 1)).collect::<Vec<_>>();
        assert_eq!(covered(&now), [3, 4, 5, 6]);
        assert!(now.fenced().all(|bytes| now.covers(bytes.start) && now.phase(bytes.start) == Phase::Fenced));
        let of = |now: &Migration, phase| (3..7).filter(|chunk| now.phase(chunk * CHUNK) == phase).count();
        assert_eq!([Phase::New, Phase::Fenced, Phase::Old].map(|phase| of(&now, phase)), [1, 2, 1]);
        assert!(now.is_of_a_part());
        now.ends = false;
        assert_eq!(covered(&now), [3, 4, 5, 6, 7, 8], "what the volume grows by is of its last range");
        assert_eq!(now.phase(8 * CHUNK), Phase::New);
    }

    #[test]
    fn a_range_is_cut_where_chunks_end() {
        let cut: Vec<_> = cut_at_chunks(CHUNK - 1..2 * CHUNK + 1, CHUNK).collect();
        assert_eq!(cut, [CHUNK - 1..CHUNK, CHUNK..2 * CHUNK, 2 * CHUNK..2 * CHUNK + 1]);
        assert_eq!(cut_at_chunks(5..5, CHUNK).count(), 0);
    }
}
