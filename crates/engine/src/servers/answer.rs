//! Answers of this server's drives to the primaries of groups.
//!
//! Invariants, for each column of each drive:
//! 1. Once a primary was heard in a view, no request of an earlier view is begun. Requests of earlier views that were
//!    under way have ended before the drive's marks are told.
//! 2. A primary that is heard leads the column in a view that this server knows; and this server doesn't lead it any
//!    more.
//! 3. Marks are queued in the order in which they arrive.

use crate::engine::Engine;
use crate::servers::peers::{Question, Reply};
use crate::view::View;
use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, ready};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tepal_drive::world::World;
use tepal_drive::{Change, Drive, DriveError, Loss, Mark, MarkKind, Write};
use tepal_model::{DriveId, Lineage, MapId, ServerId};
use tepal_wire::Payload;
use tepal_wire::message::drive::MAX_WORDS;
use tepal_wire::message::{
    self, Answer, DriveAnswer, DriveFailure, DriveOperation, DriveRequest, Heard, MarkChange, MarkPlace, MarkWord,
    Request, Run,
};

/// The most runs, and extents, in one answer.
const MOST_RUNS: usize = 4 << 10;
const MOST_EXTENTS: usize = 16 << 10;

/// A column's copy on a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CopyId {
    pub drive: DriveId,
    pub map: MapId,
    pub column: usize,
}

/// The askers of each copy, and their requests under way.
#[derive(Clone, Default)]
pub(crate) struct Askers(Arc<Mutex<BTreeMap<CopyId, Asking>>>);

#[derive(Default)]
struct Asking {
    by: Option<ServerId>,
    view: View,
    /// The opening of the drive that was heard.
    opening: u64,
    under_way: usize,
    /// Tasks that wait for the end of the requests under way.
    waiting: Vec<oneshot::Sender<()>>,
    /// The view in which it was noted what the drive and others miss.
    noted: Option<View>,
}

/// A request under way on a copy.
pub(crate) struct UnderWay {
    askers: Askers,
    copy: CopyId,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut askers = self.askers.lock();
        let Some(asking) = askers.get_mut(&self.copy) else { return };
        asking.under_way -= 1;
        if asking.under_way == 0 {
            for waiting in asking.waiting.drain(..) {
                let _ = waiting.send(()); // a task that has given up waiting needs no answer
            }
        }
    }
}

impl Askers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<CopyId, Asking>> {
        self.0.lock().expect("nothing panics while it holds the list of who asks")
    }

    /// Heeds only this asker from now on, and returns when no request of another is under way: `false` if another was
    /// heard in a later view. `None` is this server itself.
    pub async fn admit(&self, copy: CopyId, by: Option<ServerId>, view: View, opening: u64) -> bool {
        loop {
            let end = {
                let mut askers = self.lock();
                let asking = askers.entry(copy).or_default();
                if asking.view > view || (asking.view == view && asking.by != by && asking.view != 0) {
                    return false;
                }
                if (asking.by, asking.view, asking.opening) != (by, view, opening) {
                    (asking.by, asking.view, asking.opening, asking.noted) = (by, view, opening, None);
                }
                if asking.under_way == 0 {
                    return true;
                }
                let (sender, end) = oneshot::channel();
                asking.waiting.push(sender);
                end
            };
            let _ = end.await; // dropped unsent: look again
        }
    }

    /// Begins a request of the admitted asker, under way until the result is dropped; `None` if another asker has been
    /// admitted since.
    pub fn begin(&self, copy: CopyId, by: Option<ServerId>, view: View, opening: u64) -> Option<UnderWay> {
        let mut askers = self.lock();
        let asking = askers.get_mut(&copy)?;
        if (asking.by, asking.view, asking.opening) != (by, view, opening) {
            return None;
        }
        asking.under_way += 1;
        Some(UnderWay { askers: self.clone(), copy })
    }

    /// Heeds no asker about a map any more, and returns when no request about the map is under way.
    pub async fn end(&self, map: MapId) {
        loop {
            let end = {
                let mut askers = self.lock();
                askers.retain(|copy, asking| copy.map != map || asking.under_way > 0);
                let Some(asking) = askers.iter_mut().find_map(|(copy, asking)| (copy.map == map).then_some(asking))
                else {
                    return;
                };
                (asking.by, asking.view) = (None, View::MAX);
                let (sender, end) = oneshot::channel();
                asking.waiting.push(sender);
                end
            };
            let _ = end.await; // dropped unsent: look again
        }
    }

    fn note(&self, copy: CopyId, view: View) {
        if let Some(asking) = self.lock().get_mut(&copy) {
            asking.noted = asking.noted.max(Some(view));
        }
    }

    /// Whether the column's primary in that view, another server, has noted on this opening of the drive everything
    /// that the drive and others miss in the column.
    pub fn is_noted(&self, copy: CopyId, by: ServerId, opening: u64, view: View) -> bool {
        let askers = self.lock();
        let asking = askers.get(&copy);
        asking.is_some_and(|asking| asking.noted == Some(view) && asking.by == Some(by) && asking.opening == opening)
    }
}

impl<W: World> Engine<W> {
    /// Does what another server asks. Changes of a drive's marks are queued there when this returns; the future does
    /// the rest.
    pub fn answer(&self, from: ServerId, question: Question) -> LocalBoxFuture<'static, Reply> {
        let Question { view, revision, request, payload } = question;
        match request {
            Request::Drive(request) => self.answer_for_drive(from, view, request, payload),
            Request::Volume(request) => {
                let engine = self.clone();
                async move { engine.answer_for_volume((view, revision), request, payload).await }.boxed_local()
            }
            Request::Metadata | Request::Api => failed(DriveFailure::NotHere),
        }
    }

    fn answer_for_drive(
        &self,
        from: ServerId,
        view: View,
        request: DriveRequest,
        payload: Payload,
    ) -> LocalBoxFuture<'static, Reply> {
        let Some((drive, opening)) = self.opened(request.drive) else { return failed(DriveFailure::NotHere) };
        let copy = CopyId { drive: request.drive, map: request.map, column: request.column as usize };
        if let DriveOperation::Hear { after } = request.operation
            && request.opening == 0
        {
            let engine = self.clone();
            return async move {
                match engine.admit(from, view, copy, opening).await {
                    Ok(()) => {
                        // Changes that this server had queued when it led. A lost drive says so when it's asked for
                        // anything.
                        let _ = drive.catch_up_with_line().await;
                        heard(&drive, copy, opening, after)
                    }
                    Err(failure) => failure_of(failure),
                }
            }
            .boxed_local();
        }
        if request.opening != opening {
            return failed(DriveFailure::NotHere);
        }
        let Some(under_way) = self.shared.askers.begin(copy, Some(from), view, opening) else {
            return failed(DriveFailure::NotPrimary);
        };
        if let DriveOperation::Noted { view } = request.operation {
            self.shared.askers.note(copy, view);
            self.settle_if_known(request.drive);
            return ready(Answer::Drive(DriveAnswer::Noted).into()).boxed_local();
        }
        let done = carry_out(drive, copy, opening, request.operation, payload);
        let work = async move {
            let reply = done.await;
            drop(under_way);
            reply
        };
        work.boxed_local()
    }

    async fn admit(&self, from: ServerId, view: View, copy: CopyId, opening: u64) -> Result<(), DriveFailure> {
        self.shared.authority.heeds(from, view, copy.map, copy.column).await?;
        if let Some(map) = self.map(copy.map) {
            map.ended(copy.column).await;
            if map.seats().get(copy.column).is_some_and(|seat| seat.group().is_some()) {
                return Err(DriveFailure::Busy); // this server's own state will say that it isn't the primary any more
            }
        }
        match self.shared.askers.admit(copy, Some(from), view, opening).await {
            true => Ok(()),
            false => Err(DriveFailure::NotPrimary),
        }
    }
}

fn failure_of(failure: DriveFailure) -> Reply {
    Answer::Drive(DriveAnswer::Failed(failure)).into()
}

fn failed(failure: DriveFailure) -> LocalBoxFuture<'static, Reply> {
    ready(failure_of(failure)).boxed_local()
}

fn heard<W: World>(drive: &Drive<W>, copy: CopyId, opening: u64, after: Option<MarkPlace>) -> Reply {
    let mut words: BTreeMap<MarkPlace, u64> = BTreeMap::new();
    for mark in drive.marks().into_iter().filter(|mark| mark.map == copy.map) {
        let kind = match mark.kind {
            MarkKind::Busy => message::MarkKind::Busy,
            MarkKind::Stale(drive) => message::MarkKind::Stale { drive },
        };
        *words.entry(MarkPlace { kind, word: mark.region / 64 }).or_default() |= 1 << (mark.region % 64);
    }
    let mut rest = words.into_iter().filter(|(place, _)| after.is_none_or(|after| *place > after));
    let word = |(MarkPlace { kind, word }, regions)| MarkWord { kind, word, regions };
    let marks = rest.by_ref().take(MAX_WORDS).map(word).collect();
    let (more, dropped_tail) = (rest.next().is_some(), drive.dropped_tail());
    let allocated = drive.allocated_of(copy.map);
    Answer::Drive(DriveAnswer::Heard(Heard { opening, marks, more, dropped_tail, allocated })).into()
}

/// Carries a request out. Marks are queued when this returns.
fn carry_out<W: World>(
    drive: Drive<W>,
    copy: CopyId,
    opening: u64,
    operation: DriveOperation,
    payload: Payload,
) -> LocalBoxFuture<'static, Reply> {
    let map = copy.map;
    let answer = |answer: DriveAnswer| Reply::from(Answer::Drive(answer));
    match operation {
        DriveOperation::Hear { after } => ready(heard(&drive, copy, opening, after)).boxed_local(),
        DriveOperation::Read { first, count, lineage } => {
            async move { read(drive, map, (first, count.into()), lineage).await }.boxed_local()
        }
        DriveOperation::Checksums { first, count, lineage } => async move {
            let checksums = drive.crcs(map, first, count.into(), &lineage).await;
            let requests = drive.requests(map, first, count.into());
            answer(checksums.map_or_else(wont, |checksums| DriveAnswer::Checksums { checksums, requests }))
        }
        .boxed_local(),
        DriveOperation::Write { first, marks, durable, repair, taking, lineage } => async move {
            let (data, sums) = payload.into_parts();
            let (data, marks) = (data.into_iter().collect(), changes(map, marks));
            let crcs = sums.as_slice().into();
            let lineage = &lineage;
            let written = drive.write(Write { map, first, data, crcs, marks, durable, repair, taking, lineage }).await;
            answer(written.map_or_else(wont, |()| DriveAnswer::Written))
        }
        .boxed_local(),
        DriveOperation::Clear { first, count, marks, taking, lineage } => async move {
            let cleared = drive.clear(map, (first, count), changes(map, marks), taking, &lineage).await;
            answer(cleared.map_or_else(wont, |()| DriveAnswer::Cleared))
        }
        .boxed_local(),
        DriveOperation::Uncover { first, count, taking, lineage } => async move {
            let uncovered = drive.uncover(map, (first, count), taking, &lineage).await;
            answer(uncovered.map_or_else(wont, |()| DriveAnswer::Uncovered))
        }
        .boxed_local(),
        DriveOperation::Mark { changes: marks, durable } => {
            let recorded = drive.record(changes(map, marks), durable);
            async move { answer(recorded.await.map_or_else(wont, |()| DriveAnswer::Marked)) }.boxed_local()
        }
        DriveOperation::Flush => async move {
            let flushed = drive.flush().await.map_err(DriveError::Lost);
            answer(flushed.map_or_else(wont, |()| DriveAnswer::Flushed))
        }
        .boxed_local(),
        DriveOperation::Present { first, count, look, lineage } => {
            let runs = drive.present(map, first, count, look.clamp(1, MOST_RUNS as u64), &lineage);
            ready(answer(DriveAnswer::Present { runs: first_runs(runs) })).boxed_local()
        }
        DriveOperation::Extents { first, count, noted } => {
            let mut rest = drive.extents_of(map, first, count, noted).into_iter();
            let extents = rest.by_ref().take(MOST_EXTENTS).collect();
            let more = rest.next().is_some();
            ready(answer(DriveAnswer::Extents { extents, more })).boxed_local()
        }
        DriveOperation::Epochs { first, count } => {
            let epochs = drive.epochs_of(map, first, count);
            ready(answer(DriveAnswer::Epochs { epochs })).boxed_local()
        }
        DriveOperation::RemoveMap => {
            async move { answer(drive.remove_map(map).await.map_or_else(wont, |()| DriveAnswer::Removed)) }
                .boxed_local()
        }
        DriveOperation::Fate { origin, first, count } => {
            ready(answer(DriveAnswer::Fate(drive.fate(origin, map, first, count)))).boxed_local()
        }
        DriveOperation::Adopt { first, count, requests } => async move {
            let adopted = drive.adopt(map, (first, count), requests).await;
            answer(adopted.map_or_else(wont, |()| DriveAnswer::Adopted))
        }
        .boxed_local(),
        DriveOperation::Noted { .. } => ready(answer(DriveAnswer::Noted)).boxed_local(),
    }
}

async fn read<W: World>(drive: Drive<W>, map: MapId, (first, count): (u64, u64), lineage: Lineage) -> Reply {
    match drive.read(map, first, count, &lineage).await {
        Ok(data) => Reply {
            answer: Answer::Drive(DriveAnswer::Read),
            payload: Payload::seal(0, data),
            load: u16::try_from(drive.reading()).unwrap_or(u16::MAX),
        },
        Err(error) => failure_of(why(error)),
    }
}

/// As many runs as one answer has room for.
fn first_runs(runs: Vec<(u64, bool)>) -> Vec<Run> {
    runs.into_iter().take(MOST_RUNS).map(|(length, holds)| Run { length, holds }).collect()
}

fn wont(error: DriveError) -> DriveAnswer {
    DriveAnswer::Failed(why(error))
}

fn why(error: DriveError) -> DriveFailure {
    match error {
        DriveError::OutOfSpace => DriveFailure::OutOfSpace,
        DriveError::Damaged { blocks } => DriveFailure::Damaged { blocks },
        DriveError::Lost(loss) => {
            let retired = matches!(*loss, Loss::Retired { .. });
            DriveFailure::Lost { retired, reason: loss.to_string() }
        }
    }
}

fn changes(map: MapId, marks: Vec<MarkChange>) -> Vec<Change> {
    let mark = |mark: message::Mark| Mark {
        map,
        region: mark.region,
        kind: match mark.kind {
            message::MarkKind::Busy => MarkKind::Busy,
            message::MarkKind::Stale { drive } => MarkKind::Stale(drive),
        },
    };
    let mut changes = Vec::with_capacity(marks.len());
    for change in marks {
        match change {
            MarkChange::Set(one) => changes.push(Change::Marked(mark(one))),
            MarkChange::Unset(one) => changes.push(Change::Unmarked(mark(one))),
            MarkChange::SetMany(word) => changes.extend(word.marks().map(|one| Change::Marked(mark(one)))),
            MarkChange::UnsetAll => changes.push(Change::UnmarkedMap { map }),
        }
    }
    changes
}
