//! Group commit: one batch under way at a time, with everything that has gathered since the last one.
//!
//! The committer is a task of its own that the first operation starts and that ends when nothing waits, so a request
//! that is given up doesn't take the batch with it. It's the only one that applies changes; in between, memory and log
//! agree, which is where a checkpoint makes its cut.

use crate::drive::{Drive, Shared};
use crate::error::Loss;
use crate::log::batch::BatchBuilder;
use crate::log::{Change, largest_batch};
use crate::state::cut::Cut;
use crate::state::operation::{Changes, Done, Join, Operation, Payload};
use crate::state::{State, Turn};
use crate::world::{Device, DeviceError, Gather, World};
use futures_channel::oneshot;
use std::sync::Arc;
use std::time::Duration;

/// More extents than this waiting for their checksums to be written make writers wait.
const MOST_PENDING_SLOTS: usize = 16 << 10;

/// After so many checkpoints that freed all of the log that they can, what doesn't fit never will.
const STUCK_AFTER: u64 = 2;
pub const TOO_MANY_MARKS: &str = "its log is too small for its marks of what other drives miss";

enum Next {
    Cut(oneshot::Sender<Result<Cut, Arc<Loss>>>),
    Batch(Assembled),
    Pause(Duration),
    Flush(Vec<oneshot::Sender<Result<(), Arc<Loss>>>>),
    Rest,
}

/// What has to be on stable media before a batch is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sync {
    None,
    /// The log; nothing in the slots depends on this batch.
    Log,
    All,
}

/// A batch that is ready to be written.
struct Assembled {
    pieces: Gather,
    offset: u64,
    sequence: u64,
    durable: bool,
    operations: Vec<Operation>,
    flushes: Vec<oneshot::Sender<Result<(), Arc<Loss>>>>,
}

impl Assembled {
    /// Bytes in the log.
    fn length(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }
}

impl<W: World> Drive<W> {
    /// Queues an operation for the next batch.
    pub(crate) fn submit(&self, changes: Changes, payload: Payload, durable: bool) -> Done {
        self.submit_now(&mut self.shared.lock(), changes, payload, durable)
    }

    /// The same for whoever has looked at the state already: what is in line before it can't have been overlooked.
    pub(crate) fn submit_now(&self, state: &mut State, changes: Changes, payload: Payload, durable: bool) -> Done {
        let (done, receiver) = oneshot::channel();
        self.put_in_line(state, Operation { changes, payload, join: None, durable, done });
        receiver
    }

    /// Returns when all that was in line has been applied: marks that are to come or go have.
    pub async fn catch_up_with_line(&self) -> Result<(), Arc<Loss>> {
        let done = {
            let mut state = self.shared.lock();
            state.alive()?;
            if state.queue.is_empty() && state.applied + 1 == state.ring.head.sequence {
                return Ok(());
            }
            self.submit_now(&mut state, Changes::new(), Payload::new(), false)
        };
        self.shared.outcome(done).await
    }

    /// Queues the joining of layers.
    pub(crate) fn submit_join(&self, join: Join) -> Done {
        let (done, receiver) = oneshot::channel();
        let (changes, payload, join) = (Changes::new(), Payload::new(), Some(Box::new(join)));
        self.put_in_line(&mut self.shared.lock(), Operation { changes, payload, join, durable: false, done });
        receiver
    }

    fn put_in_line(&self, state: &mut State, operation: Operation) {
        match state.alive() {
            Err(loss) => drop(operation.done.send(Err(loss))),
            Ok(()) => {
                state.queue.push_back(operation);
                self.start_committer(state);
            }
        }
    }

    /// Everything acknowledged before is on stable media when this returns.
    pub fn flush(&self) -> impl Future<Output = Result<(), Arc<Loss>>> {
        self.device().seen(self.id(), "drive flush", self.flush_unseen())
    }

    async fn flush_unseen(&self) -> Result<(), Arc<Loss>> {
        let receiver = {
            let mut state = self.shared.lock();
            state.alive()?;
            if state.durable == state.applied {
                return Ok(());
            }
            let (done, receiver) = oneshot::channel();
            state.flushes.push(done);
            self.start_committer(&mut state);
            receiver
        };
        self.shared.outcome(receiver).await
    }

    /// Asks the committer for a cut: a point where everything applied is stable, as the start of a checkpoint.
    pub(crate) async fn cut(&self) -> Result<Cut, Arc<Loss>> {
        let receiver = {
            let mut state = self.shared.lock();
            state.alive()?;
            let (sender, receiver) = oneshot::channel();
            state.cut = Some(sender);
            self.start_committer(&mut state);
            receiver
        };
        receiver.await.unwrap_or_else(|_| Err(self.shared.gone("the drive was closed")))
    }

    pub(crate) fn start_committer(&self, state: &mut State) {
        if state.committer == Turn::Idle {
            state.committer = Turn::Running;
            let drive = self.clone();
            self.shared.world.spawn(Box::pin(async move { drive.commit_all().await }));
        }
    }

    async fn commit_all(self) {
        loop {
            let next = self.next();
            let outcome = match next {
                Next::Rest => return,
                Next::Cut(sender) => self.make_cut(sender).await,
                Next::Batch(batch) => self.write_batch(batch).await,
                Next::Pause(pause) => {
                    self.shared.world.sleep(pause).await;
                    Ok(())
                }
                Next::Flush(waiting) => {
                    let outcome = self.flush_all().await;
                    let told = match &outcome {
                        Ok(()) => self.shared.lock().alive(),
                        Err(error) => Err(self.shared.lose(error.clone())),
                    };
                    if told.is_ok() {
                        let mut state = self.shared.lock();
                        state.durable = state.applied;
                        state.release_freed();
                    }
                    waiting.into_iter().for_each(|sender| drop(sender.send(told.clone())));
                    outcome
                }
            };
            if let Err(error) = outcome {
                self.shared.lose(error);
            }
        }
    }

    /// What to do now. Resting is decided under the same lock that operations are queued under.
    fn next(&self) -> Next {
        let mut state = self.shared.lock();
        if let Err(loss) = state.alive() {
            state.queue.drain(..).for_each(|operation| drop(operation.done.send(Err(loss.clone()))));
            state.flushes.drain(..).for_each(|sender| drop(sender.send(Err(loss.clone()))));
            state.cut.take().into_iter().for_each(|sender| drop(sender.send(Err(loss.clone()))));
            state.committer = Turn::Idle;
            return Next::Rest;
        }
        if let Some(sender) = state.cut.take() {
            return Next::Cut(sender);
        }
        if let Some(pause) = self.pause(&state) {
            return Next::Pause(pause);
        }
        if !state.queue.is_empty()
            && state.pending.slots() < MOST_PENDING_SLOTS
            && let Some(batch) = assemble(&mut state, &self.shared)
        {
            state.pace.batch(self.shared.world.now(), batch.length());
            return Next::Batch(batch);
        }
        if !state.flushes.is_empty() {
            return Next::Flush(std::mem::take(&mut state.flushes));
        }
        if !state.queue.is_empty() {
            let checkpoint = state.checkpoint;
            if state.batches.len() <= 1 && *state.stuck_since.get_or_insert(checkpoint) + STUCK_AFTER < checkpoint {
                drop(state);
                self.pull(TOO_MANY_MARKS);
                return self.next();
            }
            self.start_checkpoint(&mut state); // it starts the committer again when there is room
        }
        state.committer = Turn::Idle;
        Next::Rest
    }

    /// How long the next batch waits, while a checkpoint is to make room for it.
    fn pause(&self, state: &State) -> Option<Duration> {
        let is_short = state.checkpointer == Turn::Running && state.ring.used() > state.ring.length / 2;
        let room = || state.ring.length.saturating_sub(state.ring.used() + state.log_reserve());
        let waits = is_short && !state.queue.is_empty();
        waits.then(|| state.pace.wait(self.shared.world.now(), room())).flatten()
    }

    async fn write_batch(&self, batch: Assembled) -> Result<(), DeviceError> {
        let shared = &self.shared;
        let mut changes = batch.operations.iter().flat_map(|operation| &operation.changes);
        let places = changes.any(|change| matches!(change, Change::Placed { .. }));
        let sync = match (batch.durable, places || shared.lock().slots_unflushed) {
            (false, _) => Sync::None,
            (true, false) => Sync::Log,
            (true, true) => Sync::All,
        };
        let outcome = self.write_log(batch.offset, batch.pieces, sync).await;
        // Whoever lost the drive meanwhile may have had the error that was ours too.
        let told = match &outcome {
            Ok(()) => shared.lock().alive(),
            Err(error) => Err(shared.lose(error.clone())),
        };
        if told.is_ok() {
            let mut state = shared.lock();
            state.slots_unflushed |= places && !batch.durable;
            for operation in &batch.operations {
                for (change, payload) in operation.changes_with_payload() {
                    state.apply(change, batch.sequence, payload, &shared.geometry);
                    if let Change::Logged { slot, .. } | Change::Placed { slot, .. } = change
                        && operation.join.is_none()
                    {
                        state.end_write(*slot);
                    }
                }
                operation.join.iter().for_each(|join| join.end(&mut state));
            }
            state.applied = batch.sequence;
            if batch.durable {
                state.durable = batch.sequence;
            }
            state.release_freed();
            self.after_apply(&mut state);
        }
        batch.operations.into_iter().for_each(|operation| drop(operation.done.send(told.clone())));
        batch.flushes.into_iter().for_each(|sender| drop(sender.send(told.clone())));
        outcome
    }

    async fn write_log(&self, offset: u64, batch: Gather, sync: Sync) -> Result<(), DeviceError> {
        let (device, start) = self.shared.log();
        device.write(start + offset, batch).await?;
        match sync {
            Sync::None => Ok(()),
            Sync::Log => self.shared.flush_log().await,
            Sync::All => self.flush_all().await,
        }
    }

    async fn flush_all(&self) -> Result<(), DeviceError> {
        if self.shared.log_device.is_some() {
            self.shared.flush_slots().await?;
            self.shared.lock().slots_unflushed = false;
        }
        self.shared.flush_log().await
    }

    /// Makes everything applied stable, puts all notes into the log afresh, and captures what the tables must say.
    async fn make_cut(&self, sender: oneshot::Sender<Result<Cut, Arc<Loss>>>) -> Result<(), DeviceError> {
        let shared = &self.shared;
        let planned = {
            let mut state = shared.lock();
            let mut builder = BatchBuilder::default();
            builder.push(&Change::NotesReset, None);
            let notes = state.marks.changes().chain(state.requests.changes()).chain(state.hidden.changes());
            notes.for_each(|change| builder.push(&change, None));
            let pages = state.sums.dirty_pages();
            for run in runs(&pages) {
                builder.push(&Change::SumPages { first: run.start, count: run.len() as u32 }, None);
            }
            let length = builder.length_with(0, 0);
            state.ring.place(length, 0).map(|offset| {
                let head = state.ring.head;
                let (batch, crc) = builder.finish(shared.label.drive, head.sequence, state.durable, head.previous);
                let position = state.ring.advance(offset, length, crc);
                state.batches.push_back(position);
                // Data that comes to its slot from now on has its checksum in a page that may not be among these.
                let tail = state.tail_after(head.sequence);
                (offset, batch, head.sequence, pages, tail)
            })
        };
        let Some((offset, batch, sequence, pages, tail)) = planned else {
            return Err(DeviceError::Gone(TOO_MANY_MARKS.to_owned())); // what is on it is whole
        };
        let outcome = self.write_log(offset, batch, Sync::All).await;
        let told = match &outcome {
            Ok(()) if shared.lock().loss.is_some() => Err(shared.gone("the drive was lost")),
            Ok(()) => {
                let mut state = shared.lock();
                state.applied = sequence;
                state.durable = sequence;
                state.release_freed();
                Ok(Cut::capture(&mut state, shared, &pages, tail))
            }
            Err(error) => Err(shared.lose(error.clone())),
        };
        drop(sender.send(told));
        outcome
    }
}

/// Sorted numbers as ranges.
fn runs(numbers: &[u32]) -> Vec<std::ops::Range<u32>> {
    let mut runs: Vec<std::ops::Range<u32>> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some(run) if run.end == number => run.end += 1,
            _ => runs.push(number..number + 1),
        }
    }
    runs
}

/// If the next operation joins layers: all batches before this one have been applied, and it's the first of this one, so that what
/// it finds now is how it will be.
fn find_changes_of_join(state: &mut State) {
    let Some(mut operation) = state.queue.pop_front_if(|next| next.join.is_some()) else { return };
    if let Some(join) = &operation.join {
        (operation.changes, operation.payload) = join.changes(state);
    }
    state.queue.push_front(operation);
}

/// Takes as many operations as make a batch that fits; `None` if there's no room in the log now.
fn assemble<W: World>(state: &mut State, shared: &Shared<W>) -> Option<Assembled> {
    let (most, reserve) = (largest_batch(state.ring.length), state.log_reserve());
    let mut builder = BatchBuilder::default();
    let mut taken = 0;
    let mut durable = !state.flushes.is_empty();
    find_changes_of_join(state);
    while let Some(operation) = state.queue.get(taken).filter(|next| taken == 0 || next.join.is_none()) {
        let length = builder.length_with(operation.encoded_length(), operation.payload_blocks());
        if (taken > 0 && length > most) || state.ring.place(length, reserve).is_none() {
            break;
        }
        for (change, payload) in operation.changes_with_payload() {
            builder.push(change, payload.cloned());
        }
        durable |= operation.durable;
        taken += 1;
    }
    if taken == 0 {
        return None;
    }
    let length = builder.length_with(0, 0);
    let offset = state.ring.place(length, reserve)?;
    state.stuck_since = None;
    let operations = state.queue.drain(..taken).collect();
    let head = state.ring.head;
    let (pieces, crc) = builder.finish(shared.label.drive, head.sequence, state.durable, head.previous);
    let position = state.ring.advance(offset, length, crc);
    state.batches.push_back(position);
    let flushes = std::mem::take(&mut state.flushes);
    Some(Assembled { pieces, offset, sequence: head.sequence, durable, operations, flushes })
}
