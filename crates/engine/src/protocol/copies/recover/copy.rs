//! One copy of some blocks, as lines of the map's history show them: what the copy has there, and which requests it has
//! taken.

use crate::column::background::failed;
use crate::column::members::RegionState;
use crate::column::read::Failed;
use crate::column::{Group, State};
use crate::epochs::Epochs;
use crate::holder::Holder;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, LazyLock};
use tepal_drive::DriveError;
use tepal_drive::world::World;
use tepal_model::{BLOCK, DriveId, Lineage, MapId, Segments, Taken, Taking};

/// One copy of some blocks: the drive and the first block's place there.
pub(in crate::protocol) struct Copy<W: World> {
    pub drive: Holder<W>,
    pub place: u64,
    /// The layers that count.
    pub line: Line,
}

/// One line of the map's history, on which copies must agree.
#[derive(Clone)]
pub(in crate::protocol) struct Line {
    pub seen: Lineage,
    /// The epochs that were agreed when the line was found: once they are over, nothing is changed by this line.
    pub epochs: Arc<Epochs>,
}

/// Which requests are noted along with a copied run. Requests are noted of blocks, whatever line they were written in.
/// So the noted requests are right for a copy only when it's equal in all lines.
#[derive(Clone, Copy)]
pub(in crate::protocol) enum Saying<'a> {
    /// These requests: there's no other line.
    Those(&'a [Taken]),
    /// No requests: earlier notes stay, until all lines are equal.
    Nothing,
}

impl<W: World> Group<W> {
    /// A copy of the blocks from `first` on, if its drive is here.
    pub(in crate::protocol) fn copy(&self, state: &State<W>, at: usize, first: u64) -> Option<Copy<W>> {
        let drive = state.members.list[at].drive()?.clone();
        let line = Line::newest(&state.seen.epochs);
        Some(Copy { drive, place: self.shared.column.place(first), line })
    }

    /// The lines in which some of these copies have anything, or one line in which they have nothing, in the order in
    /// which they are made equal: later lines see older ones too.
    pub(in crate::protocol) async fn lines(
        &self,
        count: u64,
        copies: impl Iterator<Item = &Copy<W>>,
    ) -> Result<Vec<Line>, Failed> {
        let epochs = self.lock().seen.epochs.clone();
        let line = |seen: &Lineage| Line { seen: seen.clone(), epochs: epochs.clone() };
        let lines = epochs.history.lines();
        if lines.len() == 1 {
            return Ok(lines.iter().map(line).collect());
        }
        let mut found = BTreeSet::new();
        for copy in copies {
            let of_copy = copy.drive.epochs_of(self.shared.column.map, copy.place, count).await;
            found.extend(of_copy.map_err(|error| failed(&copy.drive, error))?);
        }
        let has_any = |seen: &&Lineage| found.iter().any(|&epoch| seen.owns(epoch));
        let lines: Vec<Line> = lines.iter().filter(has_any).map(line).collect();
        // The only difference may be requests that cleared something.
        Ok(if lines.is_empty() { vec![Line::newest(&epochs)] } else { lines })
    }

    /// Once a snapshot is gone, drives may have joined the layers that it kept apart: data that was read by the earlier
    /// lines isn't copied by them.
    pub(in crate::protocol) fn check_line(&self, target: &Copy<W>) -> Result<(), Failed> {
        match Arc::ptr_eq(&self.lock().seen.epochs, &target.line.epochs) {
            true => Ok(()),
            false => Err(Failed::Away),
        }
    }

    /// Whether some blocks of a copy show only older lines: the copy has nothing of them in its own line.
    pub(in crate::protocol) async fn shows_older(&self, copy: &Copy<W>, run: Range<usize>) -> Result<bool, Failed> {
        let (first, count) = (copy.place + run.start as u64, run.len() as u64);
        let epochs = copy.drive.epochs_of(self.shared.column.map, first, count).await;
        let epochs = epochs.map_err(|error| failed(&copy.drive, error))?;
        Ok(!epochs.into_iter().any(|epoch| copy.line.seen.owns(epoch)))
    }

    /// The clean copies of a block that are here, except the one on this drive.
    pub(in crate::protocol) fn clean_copies_but(&self, id: DriveId, block: u64) -> Result<Vec<Copy<W>>, Failed> {
        let state = self.lock();
        let clean = match state.members.clean_copies(&self.shared.column, self.shared.column.region_of(block)) {
            RegionState::Clean(clean) => clean,
            RegionState::Waiting => return Err(Failed::Away),
            RegionState::Lost | RegionState::GivenUp => return Ok(Vec::new()),
        };
        let copies = clean.into_iter().filter_map(|at| self.copy(&state, at, block));
        Ok(copies.filter(|copy| copy.drive.id() != id).collect())
    }
}

impl<W: World> Copy<W> {
    pub async fn read(&self, map: MapId, nth: usize, count: usize) -> Result<Segments, DriveError> {
        self.drive.read(map, self.place + nth as u64, count as u64, &self.line.seen).await
    }

    /// The CRCs of so many blocks, and the requests that the blocks have taken, numbered from the first block.
    pub async fn content(&self, map: MapId, count: u64) -> Result<(Vec<Option<u32>>, Vec<Taken>), Failed> {
        let content = self.drive.content(map, self.place, count, &self.line.seen).await;
        let (crcs, taken) = content.map_err(|error| failed(&self.drive, error))?;
        Ok((crcs, taken.into_iter().map(|taken| Taken { first: taken.first - self.place, ..taken }).collect()))
    }

    /// The blocks of which the copy's line has data itself, or hides older lines' data.
    pub async fn has_itself(&self, map: MapId, count: u64) -> Result<BTreeSet<u64>, Failed> {
        let line = &self.line.seen;
        let mut has = match line.own_part() {
            Some(own) => self.held(map, count, &own).await?,
            None => BTreeSet::new(),
        };
        if let Some(older) = line.older_part() {
            let all = self.held(map, count, line).await?;
            has.extend(self.held(map, count, &older).await?.difference(&all));
        }
        Ok(has)
    }

    pub async fn held(&self, map: MapId, count: u64, seen: &Lineage) -> Result<BTreeSet<u64>, Failed> {
        self.drive.held(map, self.place, count, seen).await.map_err(|error| failed(&self.drive, error))
    }

    /// Notes that a range of these blocks has taken these requests, and no others.
    pub async fn adopt(&self, map: MapId, blocks: Range<u64>, taken: &[Taken]) -> Result<(), Failed> {
        let (place, requests) = (self.place + blocks.start, self.placed(taken, &blocks));
        let adopted = self.drive.adopt(map, (place, blocks.end - blocks.start), requests).await;
        adopted.map_err(|error| failed(&self.drive, error))
    }

    /// The same for the first `count` blocks, except some.
    pub async fn adopt_all_but(
        &self,
        map: MapId,
        but: &BTreeSet<u64>,
        count: u64,
        taken: &[Taken],
    ) -> Result<(), Failed> {
        let mut from = 0;
        for &nth in but.iter().chain([&count]) {
            if from < nth {
                self.adopt(map, from..nth, taken).await?;
            }
            from = nth + 1;
        }
        Ok(())
    }

    /// The requests of some blocks, by the blocks' places on this drive.
    fn placed(&self, taken: &[Taken], blocks: &Range<u64>) -> Vec<Taken> {
        let part = taken.iter().filter_map(|taken| taken.within(blocks));
        part.map(|taken| Taken { first: self.place + taken.first, ..taken }).collect()
    }

    pub fn taking(&self, saying: Saying<'_>, blocks: Range<u64>) -> Taking {
        match saying {
            Saying::Those(taken) => Taking::Those(self.placed(taken, &blocks)),
            Saying::Nothing => Taking::Nothing,
        }
    }

    /// The same copy from a later block on.
    pub fn after(&self, blocks: usize) -> Self {
        Copy { drive: self.drive.clone(), place: self.place + blocks as u64, line: self.line.clone() }
    }

    /// The same blocks of another line.
    pub fn on(&self, line: &Line) -> Self {
        Copy { drive: self.drive.clone(), place: self.place, line: line.clone() }
    }
}

impl Line {
    /// As [`Epochs::newest_line`].
    pub fn newest(epochs: &Arc<Epochs>) -> Self {
        Line { seen: epochs.newest_line(), epochs: epochs.clone() }
    }
}

/// The requests that the blocks of both copies have taken.
pub(in crate::protocol) fn taken_by_both(one: &[Taken], other: &[Taken]) -> Vec<Taken> {
    let both = |taken: &Taken| {
        let blocks = taken.first..taken.first + taken.count;
        let same = other.iter().filter(move |other| other.origin == taken.origin);
        same.filter_map(move |other| other.within(&blocks)).collect::<Vec<_>>()
    };
    one.iter().flat_map(both).collect()
}

/// The CRC of a block of zeros.
pub(in crate::protocol) static ZEROS: LazyLock<u32> =
    LazyLock::new(|| tepal_codec::checksum::crc(&[0; BLOCK as usize]));
