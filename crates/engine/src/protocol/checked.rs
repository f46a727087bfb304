//! For tests: the least protocol that keeps a column. It has one copy, whose data is compared with its checksums here
//! too. It shares no code with whole copies, so stories of the seam that pass with it need none of that code.

use crate::column::background::{Stuck, failed};
use crate::column::epochs::Writing;
use crate::column::members::{Presence, RegionState};
use crate::column::order::Turn;
use crate::column::read::{Failed, Part, Reader, damaged, lost};
use crate::column::redundancy::{Data, Redundancy, Why, Written};
use crate::column::{Blocks, Group, State};
use crate::holder::Holder;
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeSet;
use tepal_codec::checksum::block_crcs;
use tepal_drive::world::World;
use tepal_drive::{DriveError, Write};
use tepal_model::buffer::join;
use tepal_model::{Fate, IoError, Lineage, Origin, Segments, Taken, Taking};

/// The first member has the whole column, and no other member has anything.
pub(crate) struct Checked;

fn taking(origin: Option<Origin>) -> Taking {
    origin.map_or(Taking::Nothing, Taking::Request)
}

/// Makes a change on the one drive, once it's here.
async fn change<W: World>(
    group: &Group<W>,
    writing: &mut Writing,
    change: impl AsyncFn(&Holder<W>, &Lineage) -> Result<(), DriveError>,
) -> Result<Written, IoError> {
    loop {
        let (drive, lineage) = {
            let mut state = group.lock();
            writing.is_served(&state)?;
            let Some(lineage) = group.seen_by_in(&state, writing)? else {
                return Ok(Written::Waits { change: group.in_a_moment(), begun: false });
            };
            let drive = state.members.list[0].drive().cloned();
            match drive.ok_or(matches!(state.members.list[0].presence, Presence::Failed)) {
                Ok(drive) => (drive, lineage),
                Err(true) => return Err(lost(Blocks::new(0, 1))),
                Err(false) => return Ok(Written::Waits { change: Group::next_change(&mut state), begun: false }),
            }
        };
        match change(&drive, &lineage).await {
            Ok(()) => return Ok(Written::Done),
            Err(DriveError::Lost(loss)) => group.lose(vec![(drive.id(), loss)]).await,
            Err(DriveError::OutOfSpace) => return Err(IoError::OutOfSpace),
            Err(error @ DriveError::Damaged { .. }) => unreachable!("a change reads nothing: {error}"),
        }
    }
}

fn here<W: World>(group: &Group<W>) -> Option<Holder<W>> {
    group.lock().members.list[0].drive().cloned()
}

impl<W: World> Redundancy<W> for Checked {
    async fn put(group: &Group<W>, _: &Turn, data: &Data, _: bool, writing: &mut Writing) -> Result<Written, IoError> {
        let column = &group.shared.column;
        let write = async |drive: &Holder<W>, lineage: &Lineage| {
            let write = Write {
                map: column.map,
                first: column.place(data.first),
                data: data.data.clone(),
                crcs: data.crcs.as_slice().into(),
                marks: Vec::new(),
                durable: true,
                repair: false,
                taking: taking(data.origin),
                lineage,
            };
            drive.write(write).await
        };
        change(group, writing, write).await
    }

    async fn clear(
        group: &Group<W>,
        _: &Turn,
        (blocks, origin): (Blocks, Option<Origin>),
        writing: &mut Writing,
    ) -> Result<Written, IoError> {
        let run = (group.shared.column.map, group.shared.column.place(blocks.first), blocks.count);
        let clear =
            async |drive: &Holder<W>, lineage: &Lineage| drive.clear(run, Vec::new(), taking(origin), lineage).await;
        change(group, writing, clear).await
    }

    async fn note(
        group: &Group<W>,
        _: &Turn,
        (blocks, requests): (Blocks, &[Taken]),
        writing: &mut Writing,
    ) -> Result<Written, IoError> {
        let run = (group.shared.column.place(blocks.first), blocks.count);
        let map = group.shared.column.map;
        let note = async |drive: &Holder<W>, _: &Lineage| drive.adopt(map, run, requests.to_vec()).await;
        change(group, writing, note).await
    }

    async fn uncover(group: &Group<W>, _: &Turn, blocks: Blocks, writing: &mut Writing) -> Result<Written, IoError> {
        let run = (group.shared.column.map, group.shared.column.place(blocks.first), blocks.count);
        let uncover = async |drive: &Holder<W>, lineage: &Lineage| drive.uncover(run, Taking::Nothing, lineage).await;
        change(group, writing, uncover).await
    }

    fn choose(
        _: &Group<W>,
        state: &State<W>,
        (blocks, seen): (Blocks, &Lineage),
        _: Reader<'_>,
    ) -> Result<SmallVec<[Part<W>; 1]>, RegionState> {
        match (state.members.list[0].drive(), &state.members.list[0].presence) {
            (Some(drive), _) => Ok(smallvec![Part { at: 0, drive: drive.clone(), blocks, seen: seen.clone() }]),
            (None, Presence::Failed) => Err(RegionState::Lost),
            (None, _) => Err(RegionState::Waiting),
        }
    }

    async fn get(group: &Group<W>, parts: SmallVec<[Part<W>; 1]>) -> Result<Segments, Failed> {
        let column = &group.shared.column;
        let mut segments = Segments::new();
        for Part { drive, blocks, seen, .. } in &parts {
            let place = column.place(blocks.first);
            let content = async || {
                let content = drive.content(column.map, place, blocks.count, seen).await;
                content.map(|(sums, _)| sums).map_err(|error| failed(drive, error))
            };
            let before = content().await?;
            let read = match drive.read(column.map, place, blocks.count, seen).await {
                Ok(read) => read,
                Err(DriveError::Damaged { .. }) => return Err(damaged(blocks.first)),
                Err(error) => return Err(failed(drive, error)),
            };
            let is_as_kept = |(found, kept): (u32, Option<u32>)| kept.is_none_or(|kept| kept == found);
            let is_same = content().await? == before; // a write may be under way
            assert!(!is_same || block_crcs(&join(&read)).zip(before).all(is_as_kept), "what is read is what was put");
            segments.extend(read);
        }
        Ok(segments)
    }

    async fn held(group: &Group<W>, parts: &[Part<W>]) -> Result<Vec<(u64, bool)>, Failed> {
        let column = &group.shared.column;
        let mut runs = Vec::new();
        for Part { drive, blocks, seen, .. } in parts {
            let held = drive.present(column.map, column.place(blocks.first), blocks.count, seen).await;
            runs.extend(held.map_err(|error| failed(drive, error))?);
        }
        Ok(runs)
    }

    /// Any block may differ.
    async fn differing(_: &Group<W>, parts: &[Part<W>], _: &Lineage) -> Result<Vec<(u64, bool)>, Failed> {
        Ok(parts.iter().map(|part| (part.blocks.count, true)).collect())
    }

    async fn is_empty(group: &Group<W>, blocks: Blocks, seen: &Lineage) -> bool {
        let (map, place) = (group.shared.column.map, group.shared.column.place(blocks.first));
        match here(group) {
            Some(drive) => drive.is_empty(map, place, blocks.count, seen).await.is_ok_and(|empty| empty),
            None => false,
        }
    }

    async fn holds_nothing(_: &Group<W>) -> bool {
        false // it may
    }

    fn is_bare(_: &Group<W>, _: &State<W>, _: Blocks) -> bool {
        false // it isn't known
    }

    async fn extents(group: &Group<W>, noted: bool) -> Result<BTreeSet<u64>, IoError> {
        let column = group.shared.column;
        let drive = here(group).ok_or(IoError::NotNow)?;
        let held = drive.extents_of(column.map, column.places(), noted).await.map_err(|_| IoError::NotNow)?;
        Ok(held.into_iter().map(|first| column.at_place(first).1).collect())
    }

    async fn fate(group: &Group<W>, origin: Origin, blocks: Blocks) -> Result<Option<Vec<Blocks>>, IoError> {
        let (map, place) = (group.shared.column.map, group.shared.column.place(blocks.first));
        let Some(drive) = here(group) else { return Ok(None) };
        match drive.fate(origin, map, place, blocks.count).await {
            Ok(Fate::Known { taken }) if taken.is_empty() => Ok(Some(vec![blocks])),
            Ok(Fate::Known { .. }) => Ok(Some(Vec::new())), // no request of these stories is done in part
            _ => Err(IoError::NotNow),
        }
    }

    /// The only fragment is whole.
    async fn make_whole(_: &Group<W>, _: u64, _: Why) -> Result<(), Stuck> {
        Ok(())
    }

    async fn compare(_: &Group<W>, _: Blocks) -> Result<bool, IoError> {
        Ok(true)
    }

    async fn rebuild(_: &Group<W>, block: u64, _: usize) -> Result<(), IoError> {
        match damaged(block) {
            Failed::Io(error) => Err(error),
            Failed::Lost(..) | Failed::Away => Err(IoError::NotNow),
        }
    }

    async fn may_help(_: &Group<W>, _: u64, _: usize, _: usize) -> bool {
        false
    }
}
