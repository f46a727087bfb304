//! A volume as its users see it: bytes that go round the groups of its map.

use crate::applied::Ticket;
use crate::authority::View;
use crate::engine::{self, Engine, Standing};
use crate::holder::Holder;
use crate::map::{Column, Part, Striping, VolumeSpec};
use crate::peers::Reply;
use crate::protocol::primary::Group;
use crate::protocol::primary::bytes::Rest;
use crate::protocol::primary::members::{Member, Members, Missed, Presence};
use crate::protocol::primary::zero::{STEP, ZEROS_STEP};
use crate::seat::{Seat, Taken, data_of};
use bytes::Bytes;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use tepal_drive::Drive;
use tepal_drive::world::{Gather, World};
use tepal_model::layout::Durability;
use tepal_model::{BLOCK, DriveId, IoError, Segments, ServerId, VolumeId};
use tepal_wire::Payload;
use tepal_wire::message::{Answer, Tag, VolumeAnswer, VolumeOperation};

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
    seats: Vec<Seat<W>>,
    spec: Mutex<VolumeSpec>,
    /// The engine has its volumes, not they it.
    engine: Weak<engine::Shared<W>>,
    /// Other servers may be primaries.
    among: bool,
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

/// How many extents one question about what is mapped looks at.
const LOOK: usize = 64 << 10;
/// Runs in one answer of another server.
const MOST_RUNS: u32 = 4 << 10;

impl<W: World> Volume<W> {
    pub(crate) fn open(engine: &Engine<W>, spec: VolumeSpec, among: bool) -> Result<Self, OpenVolumeError> {
        let striping = Striping::new(&spec).ok_or_else(|| OpenVolumeError::Map {
            name: spec.name.clone(),
            drives: spec.drives.len(),
            copies: spec.layout.copies(),
        })?;
        let columns = striping.rotation.columns();
        let seats = (0..columns).map(|_| Seat::default()).collect();
        let engine = Arc::downgrade(&engine.shared);
        Ok(Volume { shared: Arc::new(Shared { id: spec.id, striping, seats, spec: Mutex::new(spec), engine, among }) })
    }

    /// The group of a column, with its members as they are now.
    pub(crate) fn open_group(
        &self,
        engine: &Engine<W>,
        number: usize,
        view: View,
        presence: impl Fn(DriveId) -> (Presence<W>, Option<View>),
    ) -> Group<W> {
        let spec = self.spec();
        let member = |position: usize| {
            let id = spec.drives[position];
            let (presence, left) = presence(id);
            let missed = Missed::default();
            Member { id, presence, left, missed, opening: 0, noted: false, knew: false, stands_in: false }
        };
        let members = Members::of(self.striping().rotation.holders(number).map(member));
        let column = Column::new(spec.map, number, self.striping().rotation.columns());
        Group::open(engine, column, &spec.layout, members, view)
    }

    /// Those of which this server is the primary.
    pub(crate) fn groups(&self) -> Vec<Group<W>> {
        self.shared.seats.iter().filter_map(Seat::group).collect()
    }

    pub(crate) fn seats(&self) -> &[Seat<W>] {
        &self.shared.seats
    }

    /// `None` once the server has stopped.
    pub(crate) fn engine(&self) -> Option<Engine<W>> {
        self.shared.engine.upgrade().map(|shared| Engine { shared })
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

    /// The drives that hold copies of a column, in the order of the map.
    pub(crate) fn holders(&self, column: usize) -> Vec<DriveId> {
        let spec = self.lock();
        self.striping().rotation.holders(column).map(|position| spec.drives[position]).collect()
    }

    /// Another server is the primary of a column from now on, or nobody is.
    pub(crate) fn begin_yield(&self, column: usize, to: Option<(ServerId, View)>) {
        let Some(seat) = self.seats().get(column) else { return };
        let taken = to.map_or(Taken::Vacant, |(server, view)| Taken::There(server, view));
        seat.take(taken);
    }

    /// Returns when nothing is under way any more of what this server did as the primary of a column.
    pub(crate) async fn ended(&self, column: usize) {
        let Some(seat) = self.seats().get(column) else { return };
        for group in seat.ending() {
            group.remove().await;
            seat.has_ended(&group);
        }
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
        let column = Column::new(self.lock().map, number, self.striping().rotation.columns());
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
        let (offset, length) = (part.offset, part.length());
        let read = self.at_primary(
            part.column,
            async |group, _| group.read(offset, length).await,
            |_| (VolumeOperation::Read { offset, length: length as u32 }, Payload::none()),
            |reply| data_of(reply, length),
        );
        read.await.map_err(|error| self.in_volume(part.column, error))
    }

    /// With `fua`, what was written is stable before this returns, whatever the layout's durability.
    pub async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), IoError> {
        self.check_range(offset, data.len() as u64)?;
        let parts = self.striping().parts(offset, data.len() as u64);
        if let [part] = parts.as_slice() {
            return self.write_part(part.column, part.offset, Gather::from_iter([data]), fua).await;
        }
        // What is stable when a part of it is done is lost with no drive's cache.
        let is_stable = fua || self.is_strict();
        let unstable = parts.iter().filter(|_| !is_stable).filter_map(|part| self.seats()[part.column].group());
        let lost_before: Vec<(Group<W>, u64)> = unstable.map(|group| (group.clone(), group.times_lost())).collect();
        let write = |part: &Part| {
            let gather = part.slices.iter().map(|slice| data.slice(slice.clone())).collect();
            self.write_part(part.column, part.offset, gather, fua)
        };
        // All take their places in line before any is waited for.
        all(join_all(parts.iter().map(write)).await)?;
        // A drive that had its part may have lost it before another was done: it was the only one that had it.
        match lost_before.into_iter().find_map(|(group, before)| group.lost_since(before)) {
            Some(reason) => Err(IoError::Unavailable { reason }),
            None => Ok(()),
        }
    }

    async fn write_part(&self, column: usize, offset: u64, data: Gather, fua: bool) -> Result<(), IoError> {
        let Some(engine) = self.engine() else { return Err(IoError::Stopping) };
        let ticket = self.shared.among.then(|| engine.shared.slots.take());
        let tag = |doubt| ticket.as_ref().map(|ticket| Tag { origin: ticket.origin, in_doubt_since: doubt });
        let write = self.at_primary(
            column,
            async |group, doubt| group.write(offset, data.clone(), fua, tag(doubt)).await,
            |doubt| {
                let tag = tag(doubt).expect("who asks others isn't alone");
                (VolumeOperation::Write { offset, fua, tag }, Payload::seal(offset, data.iter().cloned().collect()))
            },
            |reply| (reply.answer == Answer::Volume(VolumeAnswer::Written)).then_some(()),
        );
        let outcome = write.await.map_err(|error| self.in_volume(column, error));
        ticket.map(Ticket::end);
        outcome
    }

    fn is_strict(&self) -> bool {
        self.lock().layout.durability == Durability::Strict
    }

    /// Gives the space back; reads as zeros afterwards. Stable when this returns.
    pub async fn trim(&self, offset: u64, length: u64) -> Result<(), IoError> {
        self.write_zeroes(offset, length, false).await
    }

    /// Zeros, stable when this returns; `allocate` keeps the space.
    pub async fn write_zeroes(&self, offset: u64, length: u64, allocate: bool) -> Result<(), IoError> {
        self.check_range(offset, length)?;
        // One step of each column at a time.
        let step = if allocate { ZEROS_STEP } else { STEP } * self.seats().len() as u64;
        let mut at = offset;
        while at < offset + length {
            let next = ((at / step + 1) * step).min(offset + length);
            let zeros = |column| self.zero_part(column, self.striping().within(column, at..next), allocate);
            all(join_all((0..self.seats().len()).map(zeros)).await)?;
            at = next;
        }
        Ok(())
    }

    async fn zero_part(&self, column: usize, within: Range<u64>, allocate: bool) -> Result<(), IoError> {
        if within.is_empty() {
            return Ok(());
        }
        let (offset, length) = (within.start, within.end - within.start);
        let Some(engine) = self.engine() else { return Err(IoError::Stopping) };
        let ticket = self.shared.among.then(|| engine.shared.slots.take());
        let tag = |doubt| ticket.as_ref().map(|ticket| Tag { origin: ticket.origin, in_doubt_since: doubt });
        let zero = self.at_primary(
            column,
            async |group, doubt| group.zero(within.clone(), allocate, tag(doubt)).await,
            |doubt| {
                let tag = tag(doubt).expect("who asks others isn't alone");
                (VolumeOperation::Zero { offset, length, allocate, fua: true, tag }, Payload::none())
            },
            |reply| (reply.answer == Answer::Volume(VolumeAnswer::Zeroed)).then_some(()),
        );
        let outcome = zero.await.map_err(|error| self.in_volume(column, error));
        ticket.map(Ticket::end);
        outcome
    }

    /// Takes out what lies past the volume's end: what was cut off doesn't come back when the volume grows again. No two
    /// of these, nor a change of size, may be under way at a time.
    pub async fn clear_past_end(&self) -> Result<(), IoError> {
        let size = self.size();
        let groups = self.groups();
        let clear =
            |group: &Group<W>| group.clone().clear_past(self.striping().before(group.shared.column.number, size));
        all(join_all(groups.iter().map(clear)).await)
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
            for (length, mapped) in self.status_of_part(column, first, past - at).await? {
                let full = runs.len() == limit;
                match runs.last_mut() {
                    Some(run) if run.mapped == mapped => run.length += length,
                    _ if full => return Ok(runs),
                    _ => runs.push(Run { length, mapped }),
                }
                at += length;
            }
        }
        Ok(runs)
    }

    /// Runs of bytes of a column that hold something, and that don't.
    async fn status_of_part(&self, column: usize, offset: u64, length: u64) -> Result<Vec<(u64, bool)>, IoError> {
        let runs = |reply: Reply| match reply.answer {
            Answer::Volume(VolumeAnswer::Status { runs }) if runs.iter().any(|run| run.length > 0) => {
                let mut left = length;
                let run = |run: tepal_wire::message::Run| {
                    let length = run.length.min(left);
                    left -= length;
                    (length, run.holds)
                };
                Some(runs.into_iter().map(run).collect())
            }
            _ => None,
        };
        let status = self.at_primary(
            column,
            async |group, _| group.status(offset, length).await,
            |_| (VolumeOperation::Status { offset, length, limit: MOST_RUNS }, Payload::none()),
            runs,
        );
        status.await.map_err(|error| self.in_volume(column, error))
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
}

/// All were done, or the first error.
fn all(outcomes: Vec<Result<(), IoError>>) -> Result<(), IoError> {
    outcomes.into_iter().collect()
}
