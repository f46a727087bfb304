//! What one server asks of those who agree, and what it has heard of them.

use super::{Answer, Change, Council, LEASE, lock};
use futures_channel::oneshot;
use futures_util::future::{BoxFuture, ready};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tepal_drive::Loss;
use tepal_engine::{Authority, ClusterView, CopyChange, Placing, View};
use tepal_model::{DriveId, Epoch, MapId, ServerId, VolumeId};
use tepal_wire::message::DriveFailure;

/// What a process has heard.
#[derive(Clone, Default)]
pub(super) struct Heard {
    /// The state that it follows.
    pub known: Arc<Mutex<ClusterView>>,
    /// Until when it may serve.
    pub lease: Arc<Mutex<Duration>>,
    /// Until when it may be going to: it has heard the others, and follows what it has heard first.
    pub granted: Arc<Mutex<Duration>>,
    /// Who waits until it follows a view.
    catching_up: Arc<Mutex<Vec<CatchingUp>>>,
}

type CatchingUp = (View, oneshot::Sender<()>);

/// One server's part in it.
#[derive(Clone)]
pub struct Voice {
    pub(super) council: Council,
    pub(super) me: ServerId,
    pub(super) heard: Heard,
}

impl Voice {
    fn ask(&self, change: Change) -> BoxFuture<'static, Option<Answer>> {
        let (answer, answered) = oneshot::channel();
        self.council.lock().asked.push_back((self.me, change, answer));
        Box::pin(async move { answered.await.ok().flatten() })
    }

    /// Says that a drive of this server is open again. The view in which it had left, and the one in which it is back.
    pub async fn report_open(&self, drive: DriveId) -> Option<(View, View)> {
        self.ask(Change::Back(drive)).await
    }

    /// Takes a snapshot of a volume: its epoch, once all write in the next one.
    pub async fn take_snapshot(&self, of: VolumeId) -> Option<Epoch> {
        let (epoch, view) = self.ask(Change::Snapshot(of)).await?;
        self.clone().caught_up(view).await;
        self.adopted(view).await;
        Epoch::try_from(epoch).ok()
    }

    /// A clone of a snapshot, if that is still kept.
    pub async fn clone_snapshot(&self, epoch: Epoch) -> Option<VolumeId> {
        self.ask(Change::Clone(epoch)).await.map(|(id, _)| VolumeId(id))
    }

    /// Whether it's agreed that so much of the volume that is imported is there for good.
    pub async fn note_imported(&self, done: u64) -> bool {
        self.ask(Change::Imported(done)).await.is_some()
    }

    /// All of it is there.
    pub async fn end_import(&self) {
        self.ask(Change::ImportEnds).await;
    }

    /// Returns once it follows that view.
    pub async fn caught_up(self, view: View) {
        let (caught_up, wait) = oneshot::channel();
        lock(&self.heard.catching_up).push((view, caught_up));
        self.tell_who_catches_up();
        let _ = wait.await; // dropped when its process has ended
    }

    fn tell_who_catches_up(&self) {
        let known = self.known().view;
        for (_, waits) in lock(&self.heard.catching_up).extract_if(.., |(view, _)| *view <= known) {
            let _ = waits.send(()); // whoever asked may have given up
        }
    }

    pub fn known(&self) -> ClusterView {
        lock(&self.heard.known).clone()
    }

    /// From now on it follows this state.
    pub fn follow(&self, now: &ClusterView) {
        *lock(&self.heard.known) = now.clone();
        self.council.lock().followed.insert(self.me, now.clone());
        self.tell_who_catches_up();
    }

    /// It hears the others at that time: from then on it counts as one that acts by what it has heard, though it follows that only later.
    pub fn hear(&self, at: Duration) {
        *lock(&self.heard.granted) = at + LEASE;
    }

    /// It has heard the others at that time, and leads something until its lease ends.
    pub fn note_heard(&self, at: Duration) {
        *lock(&self.heard.lease) = at + LEASE;
    }
}

impl Authority for Voice {
    fn drive_down(&self, drive: DriveId, loss: Loss) -> BoxFuture<'static, Option<View>> {
        let (voice, agreed) = (self.clone(), self.ask(Change::Down(drive, loss, self.known().view)));
        Box::pin(async move {
            let (left, newest) = agreed.await?;
            voice.caught_up(newest).await;
            Some(left)
        })
    }

    fn up_again(&self, drive: DriveId, view: View) -> BoxFuture<'static, Option<View>> {
        let agreed = self.ask(Change::Up(drive, view));
        Box::pin(async move { agreed.await.map(|(view, _)| view) })
    }

    fn count_copies(
        &self,
        map: MapId,
        column: usize,
        change: CopyChange,
        view: View,
    ) -> BoxFuture<'static, Option<View>> {
        let agreed = self.ask(Change::CountCopies((map, column), change, view));
        Box::pin(async move { agreed.await.map(|(view, _)| view) })
    }

    fn cut_off(&self, server: ServerId, view: View) -> BoxFuture<'static, bool> {
        let heard = self.ask(Change::CutOff(server, self.me, view));
        Box::pin(async move { heard.await.is_some() })
    }

    fn heeds(
        &self,
        from: ServerId,
        view: View,
        map: MapId,
        column: usize,
    ) -> BoxFuture<'static, Result<(), DriveFailure>> {
        let known = self.known();
        let placed = known.places.get(&map).and_then(|table| table.columns.get(column));
        let heeds = match placed.map(|placed| known.primary(placed)) {
            _ if known.view < view => Err(DriveFailure::Busy),
            Some(Some(primary)) if primary == from => Ok(()),
            _ => Err(DriveFailure::NotPrimary),
        };
        Box::pin(ready(heeds))
    }

    fn joined(&self, map: MapId, column: usize, joins: Placing, view: View) -> BoxFuture<'static, bool> {
        let agreed = self.ask(Change::Joined((map, column), joins, view));
        Box::pin(async move { agreed.await.is_some() })
    }

    fn cannot_join(&self, map: MapId, column: usize, joins: Placing) -> BoxFuture<'static, bool> {
        let agreed = self.ask(Change::CannotJoin((map, column), joins));
        Box::pin(async move { agreed.await.is_some() })
    }

    fn taken_over(&self, target: MapId, column: usize, since: View) -> BoxFuture<'static, bool> {
        let agreed = self.ask(Change::TakenOver((target, column), since));
        Box::pin(async move { agreed.await.is_some() })
    }

    fn adopted(&self, view: View) -> BoxFuture<'static, ()> {
        let (answer, answered) = oneshot::channel();
        self.council.lock().waiting.push((self.me, view, answer));
        Box::pin(async move {
            if answered.await.is_err() {
                std::future::pending::<()>().await; // the run is over
            }
        })
    }

    fn may_serve(&self) -> bool {
        let now = self.council.lock().time.now();
        now < *lock(&self.heard.lease)
    }
}
