//! Another server's drive, as the holder of a copy.

use crate::runs::add_run;
use crate::servers::peers::{Peers, Question, Reply, Unreachable};
use crate::view::View;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tepal_drive::world::Gather;
use tepal_drive::{Change, DriveError, Loss, Mark, MarkKind, Write};
use tepal_model::{BLOCK, DriveId, EXTENT, Epoch, Fate, Lineage, MapId, Origin, Segments, ServerId, Taken, Taking};
use tepal_wire::Payload;
use tepal_wire::message::{self, Answer, DriveAnswer, DriveFailure, DriveOperation, DriveRequest, MarkChange, Request};

/// The most changes of marks in one message.
const MARKS_AT_ONCE: usize = 4096;

/// One opening of the drive, as one primary of one column has heard it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Remote(Arc<Shared>);

struct Shared {
    link: Link,
    opening: u64,
    dropped_tail: bool,
    marks: Vec<Mark>,
    queue: Queue,
    loss: Mutex<Option<Arc<Loss>>>,
    /// The drive was lost because its server can't be reached from here.
    cut_off: AtomicBool,
}

/// The way to a drive: its server, the column, and the view of the asker.
#[derive(Clone)]
pub(crate) struct Link {
    pub peers: Arc<dyn Peers>,
    pub server: ServerId,
    pub drive: DriveId,
    pub map: MapId,
    pub column: usize,
    /// The view since which the asker is the column's primary.
    pub view: View,
    /// Set when a drive's server says that another server is the primary: the drive isn't at fault.
    pub deposed: Arc<AtomicBool>,
}

/// Why a drive could not be heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unheard {
    /// The drive's server says that another server is the primary, or knows a later view.
    NotPrimary,
    /// The drive has to be asked again after a while.
    NotYet,
    /// The server can't be reached from here.
    CutOff(Loss),
    /// No primary can hear the drive now.
    Lost(Loss),
}

impl Remote {
    /// Asks what the drive knows of the column. From the answer on, no other primary's requests for it are heeded
    /// there.
    pub async fn hear(link: Link) -> Result<Self, Unheard> {
        let (mut marks, mut after, mut first) = (Vec::new(), None, None);
        loop {
            let reply = link.ask(0, DriveOperation::Hear { after }, Payload::none()).await;
            let heard = match reply.map(|reply| reply.answer) {
                Ok(Answer::Drive(DriveAnswer::Heard(heard))) => heard,
                Ok(Answer::Drive(DriveAnswer::Failed(failure))) => return Err(unheard(link.drive, failure)),
                Ok(other) => return Err(Unheard::Lost(strange(link.drive, &other))),
                Err(unreachable) if unreachable.is_cut_off => {
                    return Err(Unheard::CutOff(lost_way(link.drive, &unreachable)));
                }
                Err(unreachable) => return Err(Unheard::Lost(lost_way(link.drive, &unreachable))),
            };
            let (opening, dropped_tail) = *first.get_or_insert((heard.opening, heard.dropped_tail));
            if heard.opening != opening {
                return Err(Unheard::NotYet); // the drive was opened again between two of these answers
            }
            after = heard.marks.last().map(|word| word.place());
            let told = heard.marks.iter().flat_map(|word| word.marks());
            marks.extend(told.map(|mark| Mark { map: link.map, region: mark.region, kind: kind_of(mark.kind) }));
            if !heard.more || after.is_none() {
                let (queue, loss, cut_off) = (Queue::default(), Mutex::new(None), AtomicBool::new(false));
                return Ok(Remote(Arc::new(Shared { link, opening, dropped_tail, marks, queue, loss, cut_off })));
            }
        }
    }

    fn loss(&self) -> MutexGuard<'_, Option<Arc<Loss>>> {
        self.0.loss.lock().expect("nothing panics while it holds how a drive was lost")
    }

    pub fn id(&self) -> DriveId {
        self.0.link.drive
    }

    pub fn is_same(&self, other: &Remote) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub fn marks(&self) -> Vec<Mark> {
        self.0.marks.clone()
    }

    pub fn dropped_tail(&self) -> bool {
        self.0.dropped_tail
    }

    /// How many reads are under way on the drive, as far as is known.
    pub fn reading(&self) -> usize {
        self.0.queue.length()
    }

    /// Notes that a read went to another copy, for there were too many reads here.
    pub fn passed_over(&self) {
        self.0.queue.passed_over();
    }

    pub fn is_lost(&self) -> bool {
        self.loss().is_some()
    }

    /// Whether the drive was lost only because its server can't be reached from here.
    pub fn is_cut_off(&self) -> bool {
        self.0.cut_off.load(Ordering::Relaxed)
    }

    /// Notes the drive's loss: it's asked nothing more.
    pub fn lose(&self, loss: Loss) -> Arc<Loss> {
        self.loss().get_or_insert_with(|| Arc::new(loss)).clone()
    }

    pub async fn read(&self, first: u64, count: u64, lineage: &Lineage) -> Result<Segments, DriveError> {
        let reading = Reading::begin(&self.0.queue.own);
        let read = DriveOperation::Read { first, count: short(count), lineage: lineage.clone() };
        let reply = self.ask(read, Payload::none()).await?;
        drop(reading);
        self.0.queue.note_load(reply.load);
        let DriveAnswer::Read = drive_answer(&reply.answer) else { return Err(self.strange(&reply.answer)) };
        match reply.payload.into_parts() {
            (data, sums) if sums.len() as u64 == count => Ok(data),
            _ => Err(self.strange(&reply.answer)),
        }
    }

    /// The CRCs of blocks, and the requests that they have taken.
    pub async fn content(
        &self,
        first: u64,
        count: u64,
        lineage: &Lineage,
    ) -> Result<(Vec<Option<u32>>, Vec<Taken>), DriveError> {
        let checksums = DriveOperation::Checksums { first, count: short(count), lineage: lineage.clone() };
        match self.ask(checksums, Payload::none()).await?.answer {
            Answer::Drive(DriveAnswer::Checksums { checksums, requests })
                if checksums.len() as u64 == count && are_within(&requests, first, count) =>
            {
                Ok((checksums, requests))
            }
            other => Err(self.strange(&other)),
        }
    }

    pub async fn fate(&self, origin: Origin, first: u64, count: u64) -> Result<Fate, DriveError> {
        match self.ask(DriveOperation::Fate { origin, first, count }, Payload::none()).await?.answer {
            Answer::Drive(DriveAnswer::Fate(Fate::Known { taken })) if are_within(&taken, first, count) => {
                Ok(Fate::Known { taken })
            }
            Answer::Drive(DriveAnswer::Fate(fate @ (Fate::Superseded | Fate::Forgotten))) => Ok(fate),
            other => Err(self.strange(&other)),
        }
    }

    pub async fn adopt(&self, first: u64, count: u64, requests: Vec<Taken>) -> Result<(), DriveError> {
        let asked = self.ask(DriveOperation::Adopt { first, count, requests }, Payload::none());
        self.expect(asked, |answer| matches!(answer, DriveAnswer::Adopted)).await
    }

    pub async fn present(&self, first: u64, count: u64, lineage: &Lineage) -> Result<Vec<(u64, bool)>, DriveError> {
        let (mut runs, mut at): (Vec<(u64, bool)>, _) = (Vec::new(), first);
        while at < first + count {
            let (left, lineage) = (first + count - at, lineage.clone());
            let present = DriveOperation::Present { first: at, count: left, look: u64::MAX, lineage };
            let told = match self.ask(present, Payload::none()).await?.answer {
                Answer::Drive(DriveAnswer::Present { runs }) if runs.iter().any(|run| run.length > 0) => runs,
                other => return Err(self.strange(&other)),
            };
            for run in told {
                let length = run.length.min(first + count - at);
                at += length;
                add_run(&mut runs, length, run.holds);
            }
        }
        Ok(runs)
    }

    pub async fn epochs_of(&self, first: u64, count: u64) -> Result<Vec<Epoch>, DriveError> {
        match self.ask(DriveOperation::Epochs { first, count }, Payload::none()).await?.answer {
            Answer::Drive(DriveAnswer::Epochs { epochs }) => Ok(epochs),
            other => Err(self.strange(&other)),
        }
    }

    pub async fn allocated(&self) -> Result<u64, DriveError> {
        let nothing =
            message::MarkPlace { kind: message::MarkKind::Stale { drive: DriveId(u64::MAX) }, word: u64::MAX };
        match self.ask(DriveOperation::Hear { after: Some(nothing) }, Payload::none()).await?.answer {
            Answer::Drive(DriveAnswer::Heard(heard)) => Ok(heard.allocated),
            other => Err(self.strange(&other)),
        }
    }

    /// See [`Drive::extents_of`](tepal_drive::Drive::extents_of).
    pub async fn extents(&self, first: u64, count: u64, noted: bool) -> Result<Vec<u64>, DriveError> {
        let mut all: Vec<u64> = Vec::new();
        let end = first.saturating_add(count);
        loop {
            let first = all.last().map_or(first, |last| last + EXTENT / BLOCK);
            let asked = DriveOperation::Extents { first, count: end.saturating_sub(first), noted };
            match self.ask(asked, Payload::none()).await?.answer {
                Answer::Drive(DriveAnswer::Extents { extents, more }) => {
                    let nothing_new = extents.is_empty();
                    all.extend(extents);
                    if !more || nothing_new {
                        return Ok(all);
                    }
                }
                other => return Err(self.strange(&other)),
            }
        }
    }

    /// Writes. The request is on its way when this returns.
    pub fn write(&self, write: &Write<'_>) -> impl Future<Output = Result<(), DriveError>> + use<> {
        let payload = Payload::of_blocks(segments(&write.data), &write.crcs);
        let (first, durable, repair, taking) = (write.first, write.durable, write.repair, write.taking.clone());
        let (marks, lineage) = (write.marks.iter().filter_map(change_of).collect(), write.lineage.clone());
        let asked = self.ask(DriveOperation::Write { first, marks, durable, repair, taking, lineage }, payload);
        self.expect(asked, |answer| matches!(answer, DriveAnswer::Written))
    }

    pub async fn clear(
        &self,
        first: u64,
        count: u64,
        marks: Vec<Change>,
        taking: Taking,
        lineage: &Lineage,
    ) -> Result<(), DriveError> {
        let (marks, lineage) = (marks.iter().filter_map(change_of).collect(), lineage.clone());
        let asked = self.ask(DriveOperation::Clear { first, count, marks, taking, lineage }, Payload::none());
        self.expect(asked, |answer| matches!(answer, DriveAnswer::Cleared)).await
    }

    pub async fn uncover(&self, first: u64, count: u64, taking: Taking, lineage: &Lineage) -> Result<(), DriveError> {
        let asked = DriveOperation::Uncover { first, count, taking, lineage: lineage.clone() };
        self.expect(self.ask(asked, Payload::none()), |answer| matches!(answer, DriveAnswer::Uncovered)).await
    }

    /// Records changes of marks. They are queued on the drive when this returns, or no later request will be done.
    pub fn record(&self, changes: Vec<Change>, durable: bool) -> impl Future<Output = Result<(), DriveError>> + use<> {
        let changes: Vec<MarkChange> = changes.iter().filter_map(change_of).collect();
        let mark = |part: &[MarkChange]| {
            let asked = self.ask(DriveOperation::Mark { changes: part.to_vec(), durable }, Payload::none());
            self.expect(asked, |answer| matches!(answer, DriveAnswer::Marked))
        };
        let parts: Vec<_> = changes.chunks(MARKS_AT_ONCE).map(mark).collect();
        async move {
            for part in parts {
                part.await?;
            }
            Ok(())
        }
    }

    pub async fn flush(&self) -> Result<(), DriveError> {
        let asked = self.ask(DriveOperation::Flush, Payload::none());
        self.expect(asked, |answer| matches!(answer, DriveAnswer::Flushed)).await
    }

    /// Tells the drive's server that everything that the drive and others miss in the column is noted there.
    pub async fn noted(&self, view: View) -> Result<(), DriveError> {
        let asked = self.ask(DriveOperation::Noted { view }, Payload::none());
        self.expect(asked, |answer| matches!(answer, DriveAnswer::Noted)).await
    }

    fn expect<F: Future<Output = Result<Reply, DriveError>>>(
        &self,
        asked: F,
        is_right: fn(&DriveAnswer) -> bool,
    ) -> impl Future<Output = Result<(), DriveError>> + use<F> {
        let remote = self.clone();
        async move {
            let answer = match asked.await {
                Ok(reply) => reply.answer,
                // A change reads nothing, and so finds no damage.
                Err(DriveError::Damaged { blocks }) => {
                    Answer::Drive(DriveAnswer::Failed(DriveFailure::Damaged { blocks }))
                }
                Err(error) => return Err(error),
            };
            if is_right(drive_answer(&answer)) { Ok(()) } else { Err(remote.strange(&answer)) }
        }
    }

    /// Sends a request now. Dropping the future doesn't take the request back.
    fn ask(
        &self,
        operation: DriveOperation,
        payload: Payload,
    ) -> impl Future<Output = Result<Reply, DriveError>> + use<> {
        let asked = match &*self.loss() {
            Some(loss) => Err(DriveError::Lost(loss.clone())),
            None => Ok(self.0.link.ask(self.0.opening, operation, payload)),
        };
        let remote = self.clone();
        async move {
            let reply = asked?.await.map_err(|unreachable| remote.unreachable(&unreachable))?;
            match &reply.answer {
                Answer::Drive(DriveAnswer::Failed(DriveFailure::OutOfSpace)) => Err(DriveError::OutOfSpace),
                Answer::Drive(DriveAnswer::Failed(DriveFailure::Damaged { blocks })) => {
                    Err(DriveError::Damaged { blocks: blocks.clone() })
                }
                Answer::Drive(DriveAnswer::Failed(failure)) => {
                    if matches!(failure, DriveFailure::NotPrimary | DriveFailure::Stale { .. }) {
                        remote.0.link.deposed.store(true, Ordering::Relaxed);
                    }
                    Err(DriveError::Lost(remote.lose(loss_of(remote.id(), failure))))
                }
                _ => Ok(reply),
            }
        }
    }

    fn unreachable(&self, unreachable: &Unreachable) -> DriveError {
        if unreachable.is_cut_off && !self.is_lost() {
            self.0.cut_off.store(true, Ordering::Relaxed); // before anybody sees that the drive is lost
        }
        DriveError::Lost(self.lose(lost_way(self.id(), unreachable)))
    }

    fn strange(&self, answer: &Answer) -> DriveError {
        DriveError::Lost(self.lose(strange(self.id(), answer)))
    }
}

impl Link {
    fn ask(
        &self,
        opening: u64,
        operation: DriveOperation,
        payload: Payload,
    ) -> impl Future<Output = Result<Reply, Unreachable>> + use<> {
        let (drive, map, column) = (self.drive, self.map, self.column as u32);
        let request = Request::Drive(DriveRequest { drive, opening, map, column, operation });
        self.peers.ask(self.server, Question { view: self.view, revision: 0, request, payload })
    }
}

/// The drive's queue of reads, as it's known from here.
#[derive(Default)]
struct Queue {
    /// Reads from here that are not answered.
    own: AtomicUsize,
    /// Reads of all other askers, as the drive's server said last.
    others: AtomicUsize,
}

impl Queue {
    fn length(&self) -> usize {
        self.own.load(Ordering::Relaxed) + self.others.load(Ordering::Relaxed)
    }

    fn note_load(&self, load: u16) {
        let others = usize::from(load).saturating_sub(self.own.load(Ordering::Relaxed));
        self.others.store(others, Ordering::Relaxed);
    }

    /// A drive that is never asked reports nothing new: others' reads there are assumed to end.
    fn passed_over(&self) {
        // Of two calls at the same time only one may count: the number is a guess anyway.
        let others = self.others.load(Ordering::Relaxed);
        self.others.store(others.saturating_sub(1), Ordering::Relaxed);
    }
}

/// Counts a read while it's under way.
struct Reading<'a>(&'a AtomicUsize);

impl<'a> Reading<'a> {
    fn begin(counter: &'a AtomicUsize) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Reading(counter)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn drive_answer(answer: &Answer) -> &DriveAnswer {
    match answer {
        Answer::Drive(answer) => answer,
        Answer::Metadata | Answer::Api | Answer::Volume(_) => &DriveAnswer::Failed(DriveFailure::NotHere),
    }
}

fn unheard(drive: DriveId, failure: DriveFailure) -> Unheard {
    match failure {
        DriveFailure::Stale { .. } | DriveFailure::NotPrimary => Unheard::NotPrimary,
        // It's agreed that the drive is there: its server is about to open it, or else will say that it's gone.
        DriveFailure::Busy | DriveFailure::NotHere => Unheard::NotYet,
        failure => Unheard::Lost(loss_of(drive, &failure)),
    }
}

fn loss_of(drive: DriveId, failure: &DriveFailure) -> Loss {
    match failure {
        DriveFailure::Lost { retired: true, reason } => Loss::Retired { drive, reason: reason.clone() },
        DriveFailure::Lost { retired: false, reason } => Loss::Gone { drive, reason: reason.clone() },
        other => Loss::Gone { drive, reason: other.to_string() },
    }
}

fn lost_way(drive: DriveId, unreachable: &Unreachable) -> Loss {
    Loss::Gone { drive, reason: unreachable.to_string() }
}

/// An answer that doesn't fit the question: nothing more is believed of that server.
fn strange(drive: DriveId, answer: &Answer) -> Loss {
    Loss::Gone { drive, reason: format!("its server's answer makes no sense: {answer:?}") }
}

/// Whether all of these requests are within these blocks.
fn are_within(taken: &[Taken], first: u64, count: u64) -> bool {
    taken.iter().all(|taken| taken.is_within(first, count))
}

/// The blocks of one read: no more than a client's longest request has.
fn short(count: u64) -> u32 {
    u32::try_from(count).expect("no request is of so many blocks")
}

fn segments(data: &Gather) -> Segments {
    data.iter().cloned().collect()
}

fn kind_of(kind: message::MarkKind) -> MarkKind {
    match kind {
        message::MarkKind::Busy => MarkKind::Busy,
        message::MarkKind::Stale { drive } => MarkKind::Stale(drive),
    }
}

fn mark_of(mark: &Mark) -> message::Mark {
    let kind = match mark.kind {
        MarkKind::Busy => message::MarkKind::Busy,
        MarkKind::Stale(drive) => message::MarkKind::Stale { drive },
    };
    message::Mark { region: mark.region, kind }
}

/// A change of marks as it's sent to other servers: groups ask for no other changes.
fn change_of(change: &Change) -> Option<MarkChange> {
    match change {
        Change::Marked(mark) => Some(MarkChange::Set(mark_of(mark))),
        Change::Unmarked(mark) => Some(MarkChange::Unset(mark_of(mark))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_queue_counts_others_reads_until_passed_over() {
        let queue = Queue::default();
        let ours = [Reading::begin(&queue.own), Reading::begin(&queue.own)];
        assert_eq!(queue.length(), 2);
        queue.note_load(5); // two of these reads are ours
        assert_eq!(queue.length(), 5);
        drop(ours);
        assert_eq!(queue.length(), 3);
        for left in [2, 1, 0, 0] {
            queue.passed_over();
            assert_eq!(queue.length(), left);
        }
        // An answer may be older than the reads that were begun since.
        let _ours = [Reading::begin(&queue.own), Reading::begin(&queue.own)];
        queue.note_load(1);
        assert_eq!(queue.length(), 2);
    }
}
