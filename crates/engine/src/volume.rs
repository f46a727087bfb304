//! A volume as its users see it: bytes that go round the groups of its map.

use crate::authority::View;
use crate::engine::{Engine, Standing};
use crate::holder::Holder;
use crate::map::{Column, Part, Striping, VolumeSpec};
use crate::protocol::primary::bytes::Rest;
use crate::protocol::primary::members::{Member, Members, Missed, Presence};
use crate::protocol::primary::{Blocks, Group};
use bytes::Bytes;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tepal_drive::Drive;
use tepal_drive::world::{Gather, World};
use tepal_model::layout::Durability;
use tepal_model::{BLOCK, DriveId, IoError, Segments, VolumeId};

/// Cheap to clone.
pub struct Volume<W: World> {
    shared: Arc<Shared<W>>,
}

impl<W: World> Clone for Volume<W> {
    fn clone(&self) -> Self {
        Volume { shared: self.shared.clone() }
    }
}

struct Shared<W: World> {
    id: VolumeId,
    striping: Striping,
    /// One for each column.
    groups: Vec<Group<W>>,
    spec: Mutex<VolumeSpec>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenVolumeError {
    #[error("volume '{name}' has {drives} drives for {copies} copies")]
    Map { name: String, drives: usize, copies: u8 },
}

/// What is left to do after drives were away or a crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Regions whose copies are still to be compared.
    pub unresolved_regions: u64,
    /// Regions in which some copy missed writes.
    pub stale_regions: u64,
    /// Bytes copied so far, since the volume was opened.
    pub copied: u64,
}

/// A run of bytes that are all mapped, or all a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub length: u64,
    pub mapped: bool,
}

/// Trims and zeroes of volumes are done in steps of this many bytes.
const STEP: u64 = 256 << 20;
/// How many extents one question about what is mapped looks at.
const LOOK: usize = 64 << 10;

impl<W: World> Volume<W> {
    pub(crate) fn open(
        engine: &Engine<W>,
        spec: VolumeSpec,
        presence: impl Fn(DriveId) -> (Presence<W>, Option<View>),
    ) -> Result<Self, OpenVolumeError> {
        let striping = Striping::new(&spec).ok_or_else(|| OpenVolumeError::Map {
            name: spec.name.clone(),
            drives: spec.drives.len(),
            copies: spec.layout.copies(),
        })?;
        let columns = striping.rotation.columns();
        let member = |position: usize| {
            let id = spec.drives[position];
            let (presence, left) = presence(id);
            let missed = Missed::default();
            Member { id, presence, left, missed, opening: 0, noted: false, knew: false, stands_in: false }
        };
        let group = |number: usize| {
            let members = Members::of(striping.rotation.holders(number).map(member));
            Group::open(engine, Column::new(spec.map, number, columns), &spec.layout, members)
        };
        let groups = (0..columns).map(group).collect();
        Ok(Volume { shared: Arc::new(Shared { id: spec.id, striping, groups, spec: Mutex::new(spec) }) })
    }

    pub(crate) fn groups(&self) -> &[Group<W>] {
        &self.shared.groups
    }

    pub(crate) fn striping(&self) -> &Striping {
        &self.shared.striping
    }

    fn lock(&self) -> MutexGuard<'_, VolumeSpec> {
        self.shared.spec.lock().expect("nothing panics while it holds the volume's record")
    }

    pub fn id(&self) -> VolumeId {
        self.shared.id
    }

    pub fn spec(&self) -> VolumeSpec {
        self.lock().clone()
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.lock().size
    }

    /// Takes the size that the metadata says from now on.
    pub fn resize(&self, size: u64) {
        self.lock().size = size;
    }

    pub fn rename(&self, name: &str) {
        self.lock().name = name.to_owned();
    }

    /// The drives of this server that are here, each once.
    pub(crate) fn drives_here(&self) -> Vec<Drive<W>> {
        let mut drives = BTreeMap::new();
        for group in self.groups() {
            drives
                .extend(group.lock().members.here().filter_map(Holder::local).map(|drive| (drive.id(), drive.clone())));
        }
        drives.into_values().collect()
    }

    /// Bytes on the drives that are here, copies counted.
    pub fn allocated(&self) -> u64 {
        let map = self.lock().map;
        self.drives_here().iter().map(|drive| drive.allocated_of(map)).sum()
    }

    pub fn recovery(&self) -> Recovery {
        let mut recovery = Recovery::default();
        for group in self.groups() {
            let state = group.lock();
            recovery.unresolved_regions += state.unresolved.len() as u64;
            recovery.stale_regions += state.members.list.iter().map(|member| member.missed.len()).sum::<u64>();
            recovery.copied += state.copied;
        }
        recovery
    }

    /// Where the copies of a block are: the drive, by its position in the map, and the block of what it holds of the map.
    pub fn copies_at(&self, offset: u64) -> Vec<(usize, u64)> {
        let (number, within) = self.striping().locate(offset);
        let column = &self.groups()[number].shared.column;
        let holders = self.striping().rotation.holders(number).enumerate();
        holders.map(|(copy, position)| (position, column.place(copy, within / BLOCK))).collect()
    }

    fn check_range(&self, offset: u64, length: u64) -> Result<(), IoError> {
        let size = self.size();
        match offset.checked_add(length) {
            Some(end) if end <= size => Ok(()),
            _ => Err(IoError::OutOfRange { offset, length, size }),
        }
    }

    /// An error of a group names places in its column: where they are in the volume.
    fn in_volume(&self, column: usize, error: IoError) -> IoError {
        match error {
            IoError::Damaged { offset, length } => {
                IoError::Damaged { offset: self.striping().offset_of(column, offset), length }
            }
            other => other,
        }
    }

    pub async fn read(&self, offset: u64, length: u64) -> Result<Segments, IoError> {
        self.check_range(offset, length)?;
        let parts = self.striping().parts(offset, length);
        if let [part] = parts.as_slice() {
            return self.read_part(part).await;
        }
        let mut found: Vec<(usize, Segments)> = Vec::new();
        for (part, segments) in parts.iter().zip(join_all(parts.iter().map(|part| self.read_part(part))).await) {
            let mut rest = Rest::of(segments?);
            found.extend(part.slices.iter().map(|slice| (slice.start, rest.next(slice.len()))));
        }
        found.sort_unstable_by_key(|(start, _)| *start);
        Ok(found.into_iter().flat_map(|(_, segments)| segments).collect())
    }

    async fn read_part(&self, part: &Part) -> Result<Segments, IoError> {
        let read = self.groups()[part.column].read(part.offset, part.length());
        read.await.map_err(|error| self.in_volume(part.column, error))
    }

    /// With `fua`, what was written is stable before this returns, whatever the layout's durability.
    pub async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), IoError> {
        self.check_range(offset, data.len() as u64)?;
        let parts = self.striping().parts(offset, data.len() as u64);
        if let [part] = parts.as_slice() {
            let write = self.groups()[part.column].write(part.offset, Gather::from_iter([data]), fua);
            return write.await.map_err(|error| self.in_volume(part.column, error));
        }
        // What is stable when a part of it is done is lost with no drive's cache.
        let is_stable = fua || self.groups()[0].shared.durability == Durability::Strict;
        let unstable = parts.iter().filter(|_| !is_stable).map(|part| &self.groups()[part.column]);
        let lost_before: Vec<u64> = unstable.clone().map(Group::times_lost).collect();
        let write = |part: &Part| {
            let gather = part.slices.iter().map(|slice| data.slice(slice.clone())).collect();
            let write = self.groups()[part.column].write(part.offset, gather, fua);
            let column = part.column;
            async move { write.await.map_err(|error| self.in_volume(column, error)) }
        };
        // All take their places in line before any is waited for.
        all(join_all(parts.iter().map(write).collect::<Vec<_>>()).await)?;
        // A drive that had its part may have lost it before another was done: it was the only one that had it.
        match unstable.zip(lost_before).find_map(|(group, before)| group.lost_since(before)) {
            Some(reason) => Err(IoError::Unavailable { reason }),
            None => Ok(()),
        }
    }

    /// Gives the space back; reads as zeros afterwards. Stable when this returns.
    pub async fn trim(&self, offset: u64, length: u64) -> Result<(), IoError> {
        self.write_zeroes(offset, length, false).await
    }

    /// Zeros, stable when this returns; `allocate` keeps the space.
    pub async fn write_zeroes(&self, offset: u64, length: u64, allocate: bool) -> Result<(), IoError> {
        self.check_range(offset, length)?;
        let mut at = offset;
        while at < offset + length {
            let next = ((at / STEP + 1) * STEP).min(offset + length);
            let zeros = self.groups().iter().enumerate().map(|(column, group)| async move {
                let within = self.striping().within(column, at..next);
                group.zero(within, allocate).await.map_err(|error| self.in_volume(column, error))
            });
            all(join_all(zeros).await)?;
            at = next;
        }
        Ok(())
    }

    /// Takes out what lies past the volume's end: what was cut off doesn't come back when the volume grows again. No two
    /// of these, nor a change of size, may be under way at a time.
    pub async fn clear_past_end(&self) -> Result<(), IoError> {
        let size = self.size();
        let ends =
            self.groups().iter().enumerate().map(|(column, group)| (group, self.striping().before(column, size)));
        all(join_all(ends.map(|(group, end)| group.clear_past(end))).await)
    }

    /// What is mapped, from `offset` on, as runs that differ from their neighbours: at least one, at most `limit`, and at
    /// most `length` bytes.
    pub async fn block_status(&self, offset: u64, length: u64, limit: usize) -> Result<Vec<Run>, IoError> {
        self.check_range(offset, length)?;
        let mut runs: Vec<Run> = Vec::new();
        let end = offset + length;
        let mut at = offset;
        for _ in 0..LOOK {
            if at >= end {
                break;
            }
            let past = self.striping().end_of_extent(at).min(end);
            let (column, first) = self.striping().locate(at);
            let whole = Blocks::touched(first, first + (past - at));
            for (first, count) in self.groups()[column].cut(whole) {
                for (blocks, mapped) in self.groups()[column].mapped(Blocks { first, count }).await? {
                    let next = ((at / BLOCK + blocks) * BLOCK).min(past);
                    let full = runs.len() == limit;
                    match runs.last_mut() {
                        Some(run) if run.mapped == mapped => run.length += next - at,
                        _ if full => return Ok(runs),
                        _ => runs.push(Run { length: next - at, mapped }),
                    }
                    at = next;
                }
            }
        }
        Ok(runs)
    }

    /// Has nobody served from now on: it was removed.
    pub fn cut_off(&self) {
        self.groups().iter().for_each(Group::cut_off);
    }

    /// Ends all use, and gives the space back on the drives that are here.
    pub(crate) async fn remove(&self) {
        // All of them are told before any is waited for.
        join_all(self.groups().iter().map(Group::remove)).await;
        let map = self.lock().map;
        for drive in self.drives_here() {
            if let Err(error) = drive.remove_map(map).await {
                tracing::warn!(drive = %drive.id(), %error, "space of a removed volume is given back when the drive returns");
            }
        }
    }

    pub(crate) fn start_recovery(&self) {
        self.groups().iter().for_each(Group::start_recovery);
    }

    /// Lets everybody look again who waits for a drive to come or go.
    pub(crate) fn wake(&self) {
        self.groups().iter().for_each(Group::wake);
    }
}

/// What becomes of the volume's groups when drives come and go.
impl<W: World> Volume<W> {
    pub(crate) fn member_leaving(&self, id: DriveId) {
        self.groups().iter().for_each(|group| group.member_leaving(id));
    }

    pub(crate) fn is_leaving(&self, id: DriveId) -> bool {
        self.groups().iter().any(|group| group.is_leaving(id))
    }

    pub(crate) async fn member_left(&self, id: DriveId, left: View, may_return: bool) {
        join_all(self.groups().iter().map(|group| group.member_left(id, left, may_return))).await;
    }

    pub(crate) fn member_retired(&self, id: DriveId) {
        self.groups().iter().for_each(|group| group.member_retired(id));
    }

    pub(crate) fn member_returned(&self, drive: &Holder<W>, standing: Standing) {
        self.groups().iter().for_each(|group| group.member_returned(drive, standing));
    }

    pub(crate) fn member_is_current(&self, drive: &Holder<W>) {
        self.groups().iter().for_each(|group| group.member_is_current(drive));
    }

    pub(crate) fn may_be_alone(&self, id: DriveId) -> bool {
        self.groups().iter().any(|group| group.may_be_alone(id))
    }

    pub(crate) fn knows_what_it_misses(&self, id: DriveId) -> bool {
        self.groups().iter().all(|group| group.knows_what_it_misses(id))
    }
}

/// All were done, or the first error.
fn all(outcomes: Vec<Result<(), IoError>>) -> Result<(), IoError> {
    outcomes.into_iter().collect()
}
