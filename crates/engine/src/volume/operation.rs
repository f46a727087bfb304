//! Operations of a column's primary: done here, or sent as a message to the server that is the primary, and answered by
//! it.

use crate::column::Group;
use crate::column::segments::length;
use crate::epochs::Subject;
use crate::protocol::{ByGateway, Look};
use crate::servers::peers::Reply;
use std::collections::BTreeSet;
use std::ops::Range;
use tepal_drive::world::{Gather, World};
use tepal_model::{BLOCK, Epoch, IoError, Segments, VolumeId};
use tepal_wire::Payload;
use tepal_wire::message::{self, Answer, Tag, VolumeAnswer, VolumeOperation};

/// Runs in one answer of another server.
const MOST_RUNS: u32 = 4 << 10;

/// A request for a column's primary. Offsets and lengths are bytes of the column.
pub(crate) trait Operation<W: World> {
    /// The answer.
    type Outcome;
    /// Whether a retry has to be told from a new operation: the operation must not be carried out twice.
    const IS_NUMBERED: bool;
    /// Whether a part of the operation may be done when it's refused.
    const COMES_IN_STEPS: bool = false;

    /// Carries the operation out by this server, for this volume. The tag is given where other servers may be primaries
    /// too.
    async fn at(&self, group: &Group<W>, volume: VolumeId, tag: Option<Tag>) -> Result<Self::Outcome, IoError>;

    /// The message by which another server carries the operation out.
    fn message(&self, tag: Option<Tag>) -> (VolumeOperation, Payload);

    /// Carries the operation out where nobody leads the column.
    async fn by_gateway(&self, column: &ByGateway<W>) -> Result<Self::Outcome, IoError>;

    /// `None` if the answer makes no sense.
    fn outcome(&self, reply: Reply) -> Option<Self::Outcome>;

    /// The first byte of the column that the operation doesn't touch; `None` if the volume's size doesn't matter:
    /// snapshots have their own.
    fn end(&self) -> Option<u64>;

    /// The bytes of the column that the operation touches; `None` if only the primary can tell.
    fn bytes(&self) -> Option<Range<u64>>;
}

/// Reads bytes.
pub(crate) struct Read {
    pub offset: u64,
    pub length: u64,
    /// The snapshot to read; `None` for the volume as it is now.
    pub at: Option<Epoch>,
}

impl<W: World> Operation<W> for Read {
    type Outcome = Segments;
    const IS_NUMBERED: bool = false;

    async fn at(&self, group: &Group<W>, volume: VolumeId, _: Option<Tag>) -> Result<Segments, IoError> {
        group.read(Subject { volume, at: self.at }, self.offset, self.length).await
    }

    async fn by_gateway(&self, column: &ByGateway<W>) -> Result<Segments, IoError> {
        column.read(self.offset, self.length).await
    }

    fn message(&self, _: Option<Tag>) -> (VolumeOperation, Payload) {
        (VolumeOperation::Read { offset: self.offset, length: self.length as u32, at: self.at }, Payload::none())
    }

    fn outcome(&self, reply: Reply) -> Option<Segments> {
        let Answer::Volume(VolumeAnswer::Read) = reply.answer else { return None };
        let (data, _) = reply.payload.into_parts();
        (length(&data) == self.length).then_some(data)
    }

    fn end(&self) -> Option<u64> {
        self.at.is_none().then_some(self.offset + self.length)
    }

    fn bytes(&self) -> Option<Range<u64>> {
        Some(self.offset..self.offset + self.length)
    }
}

/// Writes bytes. With `fua`, they are stable when the operation is done, whatever the layout's durability.
pub(crate) struct Write {
    pub offset: u64,
    pub data: Gather,
    pub fua: bool,
}

impl<W: World> Operation<W> for Write {
    type Outcome = ();
    const IS_NUMBERED: bool = true;

    fn at(&self, group: &Group<W>, volume: VolumeId, tag: Option<Tag>) -> impl Future<Output = Result<(), IoError>> {
        group.write(volume, self.offset, self.data.clone().into(), self.fua, tag)
    }

    async fn by_gateway(&self, column: &ByGateway<W>) -> Result<(), IoError> {
        column.write(self.offset, self.data.clone()).await
    }

    fn message(&self, tag: Option<Tag>) -> (VolumeOperation, Payload) {
        let payload = Payload::seal(self.offset, self.data.iter().cloned().collect());
        (VolumeOperation::Write { offset: self.offset, fua: self.fua, tag: numbered(tag) }, payload)
    }

    fn outcome(&self, reply: Reply) -> Option<()> {
        (reply.answer == Answer::Volume(VolumeAnswer::Written)).then_some(())
    }

    fn end(&self) -> Option<u64> {
        Some(self.offset + length(&self.data))
    }

    fn bytes(&self) -> Option<Range<u64>> {
        Some(self.offset..self.offset + length(&self.data))
    }
}

/// Writes bytes to blocks that hold nothing.
pub(crate) struct Fill {
    pub offset: u64,
    pub data: Gather,
}

impl<W: World> Operation<W> for Fill {
    type Outcome = ();
    const IS_NUMBERED: bool = false;

    async fn at(&self, group: &Group<W>, volume: VolumeId, _: Option<Tag>) -> Result<(), IoError> {
        group.fill_empty(volume, self.offset, self.data.clone().into()).await
    }

    /// Volumes of quorum layouts aren't imported live.
    async fn by_gateway(&self, _: &ByGateway<W>) -> Result<(), IoError> {
        Err(IoError::NotNow)
    }

    fn message(&self, _: Option<Tag>) -> (VolumeOperation, Payload) {
        let payload = Payload::seal(self.offset, self.data.iter().cloned().collect());
        (VolumeOperation::Fill { offset: self.offset }, payload)
    }

    fn outcome(&self, reply: Reply) -> Option<()> {
        (reply.answer == Answer::Volume(VolumeAnswer::Written)).then_some(())
    }

    fn end(&self) -> Option<u64> {
        Some(self.offset + length(&self.data))
    }

    fn bytes(&self) -> Option<Range<u64>> {
        Some(self.offset..self.offset + length(&self.data))
    }
}

/// Writes zeros, stable when the operation is done; `allocate` keeps their space.
pub(crate) struct Zero {
    pub range: Range<u64>,
    pub allocate: bool,
}

impl<W: World> Operation<W> for Zero {
    type Outcome = ();
    const IS_NUMBERED: bool = true;
    const COMES_IN_STEPS: bool = true;

    async fn at(&self, group: &Group<W>, volume: VolumeId, tag: Option<Tag>) -> Result<(), IoError> {
        group.zero(volume, self.range.clone(), self.allocate, tag).await
    }

    async fn by_gateway(&self, column: &ByGateway<W>) -> Result<(), IoError> {
        match self.allocate {
            true => column.write_zeros(self.range.clone()).await,
            false => column.zero(self.range.clone()).await,
        }
    }

    fn message(&self, tag: Option<Tag>) -> (VolumeOperation, Payload) {
        let (offset, length) = (self.range.start, self.range.end - self.range.start);
        let (allocate, tag) = (self.allocate, numbered(tag));
        (VolumeOperation::Zero { offset, length, allocate, fua: true, tag }, Payload::none())
    }

    fn outcome(&self, reply: Reply) -> Option<()> {
        (reply.answer == Answer::Volume(VolumeAnswer::Zeroed)).then_some(())
    }

    fn end(&self) -> Option<u64> {
        Some(self.range.end)
    }

    fn bytes(&self) -> Option<Range<u64>> {
        Some(self.range.clone())
    }
}

/// Takes out everything past the volume's end, which is at this byte of the column.
pub(crate) struct Clear {
    pub from: u64,
}

impl<W: World> Operation<W> for Clear {
    type Outcome = ();
    const IS_NUMBERED: bool = false;

    async fn at(&self, group: &Group<W>, volume: VolumeId, _: Option<Tag>) -> Result<(), IoError> {
        group.clear_past(volume, self.from).await
    }

    async fn by_gateway(&self, column: &ByGateway<W>) -> Result<(), IoError> {
        column.clear_from(self.from).await
    }

    fn message(&self, _: Option<Tag>) -> (VolumeOperation, Payload) {
        (VolumeOperation::Clear { from: self.from }, Payload::none())
    }

    fn outcome(&self, reply: Reply) -> Option<()> {
        (reply.answer == Answer::Volume(VolumeAnswer::Zeroed)).then_some(())
    }

    fn end(&self) -> Option<u64> {
        Some(self.from)
    }

    fn bytes(&self) -> Option<Range<u64>> {
        None
    }
}

/// Finds runs of bytes that hold something, or don't.
pub(crate) struct Status {
    pub offset: u64,
    pub length: u64,
    /// As [`Read::at`].
    pub at: Option<Epoch>,
    /// If given, the runs are of bytes that may differ from this older snapshot's, or don't.
    pub since: Option<Epoch>,
}

impl<W: World> Operation<W> for Status {
    type Outcome = Vec<(u64, bool)>;
    const IS_NUMBERED: bool = false;

    async fn at(&self, group: &Group<W>, volume: VolumeId, _: Option<Tag>) -> Result<Self::Outcome, IoError> {
        group.status(Subject { volume, at: self.at }, self.since, self.offset, self.length).await
    }

    async fn by_gateway(&self, column: &ByGateway<W>) -> Result<Self::Outcome, IoError> {
        column.status(self.offset, self.length).await
    }

    fn message(&self, _: Option<Tag>) -> (VolumeOperation, Payload) {
        let Status { offset, length, at, since } = *self;
        let limit = MOST_RUNS;
        let operation = match since {
            None => VolumeOperation::Status { offset, length, limit, at },
            Some(since) => VolumeOperation::Changed { offset, length, limit, at, since },
        };
        (operation, Payload::none())
    }

    fn outcome(&self, reply: Reply) -> Option<Self::Outcome> {
        let Answer::Volume(VolumeAnswer::Status { runs }) = reply.answer else { return None };
        let mut left = self.length;
        let run = |run: message::Run| {
            let length = run.length.min(left);
            left -= length;
            (length, run.holds)
        };
        let runs: Self::Outcome = runs.into_iter().map(run).collect();
        runs.iter().any(|&(length, _)| length > 0).then_some(runs)
    }

    fn end(&self) -> Option<u64> {
        self.at.is_none().then_some(self.offset + self.length)
    }

    fn bytes(&self) -> Option<Range<u64>> {
        Some(self.offset..self.offset + self.length)
    }
}

/// Repairs a copy of a block that was found damaged, if another copy can be read.
pub(crate) struct Repair {
    /// The block's first byte, as drives number the column's blocks.
    pub offset: u64,
    /// The first byte of the column that the block is of: another one where it's a row in place.
    pub within: u64,
    pub copy: u8,
}

impl<W: World> Operation<W> for Repair {
    type Outcome = message::RepairOutcome;
    const IS_NUMBERED: bool = false;

    async fn at(&self, group: &Group<W>, _: VolumeId, _: Option<Tag>) -> Result<Self::Outcome, IoError> {
        group.try_repair(self.offset / BLOCK, self.copy.into()).await
    }

    async fn by_gateway(&self, column: &ByGateway<W>) -> Result<Self::Outcome, IoError> {
        match column.heal(self.offset / BLOCK, 1, Look::AtFragments, &BTreeSet::new()).await {
            Ok(_) => Ok(message::RepairOutcome::Done),
            Err(IoError::Damaged { .. }) => Ok(message::RepairOutcome::Impossible),
            Err(error) => Err(error),
        }
    }

    fn message(&self, _: Option<Tag>) -> (VolumeOperation, Payload) {
        (VolumeOperation::Repair { offset: self.offset, copy: self.copy }, Payload::none())
    }

    fn outcome(&self, reply: Reply) -> Option<Self::Outcome> {
        let Answer::Volume(VolumeAnswer::Repaired { outcome }) = reply.answer else { return None };
        Some(outcome)
    }

    /// A block past the volume's end may be a longer snapshot's, or that of another volume with the same map.
    fn end(&self) -> Option<u64> {
        None
    }

    fn bytes(&self) -> Option<Range<u64>> {
        Some(self.within..self.within + BLOCK)
    }
}

fn numbered(tag: Option<Tag>) -> Tag {
    tag.expect("who asks others numbers what it asks")
}
