//! The metadata's say over drives, as the engine asks for it: a volume goes on without a drive only once the cluster has
//! agreed that the drive is down, or a copy that missed writes could later be taken for a whole one.

use crate::agreed::{Followed, left};
use crate::relay::{Reporter, TakenOver};
use crate::tasks;
use futures_util::future::{BoxFuture, FutureExt, ready};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tepal_drive::Loss;
use tepal_engine::{Authority, CopyChange, Placing, View};
use tepal_metadata::{ColumnCopies, Command, DriveState, Metadata, ProposeError, Refusal, Reply};
use tepal_model::{DriveId, MapId, ServerId};
use tepal_wire::message::DriveFailure;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Between attempts while the cluster has no leader.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a primary of a view that isn't followed here yet is kept waiting, before it's told to ask again.
const KNOWN_SOON: Duration = Duration::from_millis(500);

/// Columns in one command, which mustn't be longer than commands may be.
const COUNTED_AT_ONCE: usize = 256;

/// For a state to be followed that has been agreed.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(10);

/// Changes of copies that wait for the command before theirs, with the view that each was found in.
#[derive(Default)]
struct Counting {
    waiting: Vec<(ColumnCopies, View, oneshot::Sender<Option<View>>)>,
    /// Somebody proposes what waits.
    is_under_way: bool,
}

/// The engine's [`Authority`]. Cheap to clone.
#[derive(Clone)]
pub struct MetadataAuthority {
    metadata: Metadata,
    /// The views in which drives that are behind came back.
    behind_since: Arc<Mutex<BTreeMap<DriveId, u64>>>,
    /// The server is closing its drives, which aren't lost for that.
    stopping: Arc<AtomicBool>,
    followed: Followed,
    /// Held by a complaint on its way: many primaries have the same reason.
    complaining: Arc<tokio::sync::Mutex<()>>,
    /// Says to the leader what has been taken over.
    reporter: Option<Reporter>,
    /// What is to be agreed of copies: many columns lose the same drive at once, and go into one command.
    counting: Arc<Mutex<Counting>>,
    /// Where it's asked of the metadata: the engine asks on data threads.
    control: Handle,
}

impl MetadataAuthority {
    /// To be called on the control runtime.
    pub fn new(metadata: Metadata, followed: Followed) -> Self {
        let control = Handle::current();
        let (behind_since, stopping, complaining) = (Arc::default(), Arc::default(), Arc::default());
        let counting = Arc::default();
        MetadataAuthority { metadata, behind_since, stopping, followed, complaining, reporter: None, counting, control }
    }

    /// The same, which says what has been taken over of volumes that go from one map to another.
    pub fn with_reporter(self, reporter: Reporter) -> Self {
        MetadataAuthority { reporter: Some(reporter), ..self }
    }

    /// Must be called before the engine is given a drive that is behind: only what was learned since this view counts.
    pub fn note_behind_since(&self, drive: DriveId, state_view: u64) {
        self.behind().insert(drive, state_view);
    }

    /// Returns once this server follows that view; at once if it follows none yet.
    pub async fn caught_up(&self, view: View) {
        self.followed.caught_up(view).await;
    }

    /// From now on no drive is declared down: whoever asks goes on no more.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn behind(&self) -> MutexGuard<'_, BTreeMap<DriveId, u64>> {
        self.behind_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Proposes until it is known what became of it.
    pub async fn propose(&self, command: Command) -> Result<Reply, ProposeError> {
        loop {
            match self.metadata.propose(command.clone()).await {
                Err(ProposeError::NoMajority { .. }) => tokio::time::sleep(PAUSE).await,
                outcome => return outcome,
            }
        }
    }

    /// Returns once nobody acts by an earlier view than this any more, and this server acts by it.
    pub async fn acted_by(&self, view: View) -> Result<(), ProposeError> {
        let (adopted, _) = tokio::join!(self.metadata.adopted_everywhere(view), self.followed.from(view));
        adopted
    }

    /// `None` if the control runtime has ended meanwhile.
    fn on_control<T: Send + 'static>(
        &self,
        work: impl Future<Output = Option<T>> + Send + 'static,
    ) -> BoxFuture<'static, Option<T>> {
        let task = self.control.spawn(work);
        async move { task.await.ok().flatten() }.boxed()
    }

    async fn heeds_primary(self, from: ServerId, view: View, map: MapId, column: usize) -> Result<(), DriveFailure> {
        let Ok(now) = timeout(KNOWN_SOON, self.followed.from(view)).await else { return Err(DriveFailure::Busy) };
        // One that isn't known here yet will be.
        let table = now.places.get(&map).ok_or(DriveFailure::Busy)?;
        match table.columns.get(column).and_then(|placed| now.primary(placed)) {
            Some(primary) if primary == from => Ok(()),
            _ => Err(DriveFailure::NotPrimary),
        }
    }

    /// Goes on only once this server follows that and all that was agreed before: its own drive may be down since an earlier view,
    /// and must not be the one that takes a write alone.
    async fn take_down(self, drive: DriveId, to: DriveState, reason: String) -> Option<View> {
        let (left, agreed_by) = self.agree_down(drive, to, reason).await?;
        self.followed.caught_up(agreed_by).await;
        Some(left)
    }

    /// In which view it left, and one that is no earlier.
    async fn agree_down(&self, drive: DriveId, to: DriveState, reason: String) -> Option<(View, View)> {
        let known = self.followed.view();
        loop {
            if self.is_stopping() {
                return None;
            }
            let state = self.metadata.state();
            // A drive that was removed from the cluster is relied on by nobody.
            let Some(record) = state.drives.get(&drive) else {
                return Some((state.view(), state.view()));
            };
            // Out of service already; a missing drive that turns out to be broken is still to be retired.
            if record.state == DriveState::Failed || (!record.state.takes_writes() && to == DriveState::Missing) {
                return Some((left(record), state.view()));
            }
            // It has been away, and is back, and that isn't followed here yet.
            let is_back = record.state == DriveState::Behind && record.state_view > known;
            if is_back && record.server != self.metadata.server() {
                return Some((left(record), state.view()));
            }
            let expected_view = Some(record.state_view);
            let command = Command::SetDriveState { id: drive, to, reason: reason.clone(), expected_view };
            match self.propose(command).await {
                // Done, or it changed meanwhile, or may have: look again.
                Ok(_) | Err(ProposeError::Refused(_) | ProposeError::Unknown) => {}
                // The volumes' writes wait, and must not wait for ever.
                Err(ProposeError::NoRoom { .. }) => tokio::time::sleep(PAUSE).await,
                Err(error) => {
                    tracing::error!(%drive, %error, "the cluster can't be told that a drive is down: its writes can't go on");
                    return None;
                }
            }
        }
    }

    /// In which view that is agreed, along with what others ask for meanwhile.
    async fn count_with_others(self, change: ColumnCopies, view: View) -> Option<View> {
        let (sender, agreed) = oneshot::channel();
        let is_first = {
            let mut counting = self.counting();
            counting.waiting.push((change, view, sender));
            !std::mem::replace(&mut counting.is_under_way, true)
        };
        if is_first {
            tasks::spawn(self.count_all());
        }
        agreed.await.ok().flatten()
    }

    async fn count_all(self) {
        loop {
            let batch: Vec<_> = {
                let mut counting = self.counting();
                counting.is_under_way = !counting.waiting.is_empty();
                let length = counting.waiting.len().min(COUNTED_AT_ONCE);
                counting.waiting.drain(..length).collect()
            };
            let Some(&(_, view, _)) = batch.first() else { return };
            let (batch, later): (Vec<_>, Vec<_>) = batch.into_iter().partition(|(_, of, _)| *of == view);
            self.counting().waiting.extend(later);
            let changes: Vec<ColumnCopies> = batch.iter().map(|(change, ..)| change.clone()).collect();
            let agreed = self.count_in(changes, view).await;
            // One that is refused may have taken others along.
            let one_by_one = agreed.is_none() && batch.len() > 1;
            for (change, _, sender) in batch {
                let agreed = if one_by_one { self.count_in(vec![change], view).await } else { agreed };
                let _ = sender.send(agreed); // who asked may have stopped
            }
        }
    }

    async fn count_in(&self, changes: Vec<ColumnCopies>, view: View) -> Option<View> {
        let newest = self.metadata.state().view();
        if self.is_stopping() || (view != 0 && view != newest) {
            return None;
        }
        match self.propose(Command::CountCopies { changes: changes.clone(), view }).await {
            Ok(_) if view == 0 => Some(newest),
            Ok(_) => timeout(FOLLOWED_WITHIN, self.followed.counted(&changes, view)).await.ok().map(|()| view),
            Err(ProposeError::Refused(refusal)) => {
                tracing::debug!(%refusal, "what copies count isn't agreed as it was found");
                None
            }
            Err(error) => {
                tracing::warn!(%error, "the cluster can't be told which copies are passed over: their writes wait");
                None
            }
        }
    }

    fn counting(&self) -> MutexGuard<'_, Counting> {
        self.counting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it was heard that this server can't reach that one.
    async fn complain(self, of: ServerId, view: View) -> bool {
        let _turn = self.complaining.lock().await;
        if self.metadata.state().view() != view || self.is_stopping() {
            return false;
        }
        let by = self.metadata.server();
        let reason = format!("server {by} can't reach server {of}: the network between them is cut");
        match self.propose(Command::ServerCutOff { id: of, by, reason, view }).await {
            Ok(_) => true,
            Err(ProposeError::Refused(refusal)) => {
                tracing::debug!(server = %of, %refusal, "a complaint wasn't heard");
                false
            }
            // What it came to is seen in the state.
            Err(error) => {
                tracing::warn!(server = %of, %error, "the cluster can't be told that a server isn't reached");
                tokio::time::sleep(PAUSE).await;
                false
            }
        }
    }

    /// `found_in` is 0 before any state was followed.
    async fn bring_up(self, drive: DriveId, found_in: View) -> Option<View> {
        let reason = "it has noted what it missed".to_owned();
        let command = match found_in {
            0 => {
                let expected_view = Some(self.behind().get(&drive).copied()?);
                Command::SetDriveState { id: drive, to: DriveState::Up, reason, expected_view }
            }
            view => Command::DriveIsUp { id: drive, reason, view },
        };
        let outcome = loop {
            match self.propose(command.clone()).await {
                Err(ProposeError::NoRoom { .. }) => tokio::time::sleep(PAUSE).await,
                outcome => break outcome,
            }
        };
        match outcome {
            Ok(_) => tracing::info!(%drive, "drive is up again"),
            // It's found out again.
            Err(ProposeError::Refused(Refusal::ViewChanged { .. })) => return None,
            Err(error) => tracing::warn!(%drive, %error, "a drive that knows what it missed isn't taken back"),
        }
        // Also after an error, since whether it was done may then be unknown.
        let state = self.metadata.state();
        state.drives.get(&drive).filter(|record| record.state == DriveState::Up).map(|record| record.state_view)
    }
}

impl Authority for MetadataAuthority {
    fn drive_down(&self, drive: DriveId, loss: Loss) -> BoxFuture<'static, Option<View>> {
        let (to, reason) = match loss {
            Loss::Gone { reason, .. } => (DriveState::Missing, reason),
            Loss::Retired { reason, .. } => (DriveState::Failed, reason),
        };
        if self.is_stopping() {
            return std::future::ready(None).boxed();
        }
        // The one line about it: drive and engine say more only to who debugs them.
        match to {
            DriveState::Failed => tracing::error!(%drive, %to, reason, "drive out of service"),
            _ => tracing::warn!(%drive, %to, reason, "drive out of service"),
        }
        self.on_control(self.clone().take_down(drive, to, reason))
    }

    fn up_again(&self, drive: DriveId, view: View) -> BoxFuture<'static, Option<View>> {
        self.on_control(self.clone().bring_up(drive, view))
    }

    fn count_copies(
        &self,
        map: MapId,
        column: usize,
        change: CopyChange,
        view: View,
    ) -> BoxFuture<'static, Option<View>> {
        let CopyChange { passed, complete } = change;
        let change = ColumnCopies { map, column: column as u32, passed, complete };
        self.on_control(self.clone().count_with_others(change, view))
    }

    fn cut_off(&self, server: ServerId, view: View) -> BoxFuture<'static, bool> {
        let complaint = self.clone().complain(server, view).map(Some);
        self.on_control(complaint).map(|heard| heard.unwrap_or(false)).boxed()
    }

    fn heeds(
        &self,
        from: ServerId,
        view: View,
        map: MapId,
        column: usize,
    ) -> BoxFuture<'static, Result<(), DriveFailure>> {
        self.clone().heeds_primary(from, view, map, column).boxed()
    }

    fn joined(&self, map: MapId, column: usize, joins: Placing, view: View) -> BoxFuture<'static, bool> {
        let Placing { drive, since } = joins;
        let command = Command::FinishMove { map, column: column as u32, to: drive, since, view };
        let authority = self.clone();
        let finished = self.on_control(async move {
            match authority.propose(command).await {
                Ok(_) => Some(()),
                Err(error) => {
                    tracing::debug!(%drive, map = map.0, column, %error, "that a copy has moved isn't agreed");
                    None
                }
            }
        });
        finished.map(|finished| finished.is_some()).boxed()
    }

    fn cannot_join(&self, map: MapId, column: usize, joins: Placing) -> BoxFuture<'static, bool> {
        let command = Command::CancelMove { map, column: column as u32, to: joins.drive, since: joins.since };
        let authority = self.clone();
        let called_off = self.on_control(async move {
            match authority.propose(command).await {
                Ok(_) | Err(ProposeError::Refused(_)) => Some(()),
                Err(error) => {
                    tracing::warn!(%error, map = map.0, column, "a move can't be called off now");
                    None
                }
            }
        });
        called_off.map(|called_off| called_off.is_some()).boxed()
    }

    fn taken_over(&self, map: MapId, column: usize, since: View) -> BoxFuture<'static, bool> {
        let Some(reporter) = self.reporter.clone() else { return ready(false).boxed() };
        let report = TakenOver { target: map.0, column: column as u32, since };
        let told = self.on_control(async move { Some(reporter.tell(report).await) });
        told.map(|told| told == Some(true)).boxed()
    }

    fn adopted(&self, view: View) -> BoxFuture<'static, ()> {
        let metadata = self.metadata.clone();
        let adopted = async move { metadata.adopted_everywhere(view).await.ok() };
        let asked = self.on_control(adopted);
        async move {
            if asked.await.is_none() {
                std::future::pending::<()>().await; // this server can't take part any more
            }
        }
        .boxed()
    }

    fn may_serve(&self) -> bool {
        self.metadata.lease().allows(self.followed.view(), self.metadata.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;
    use tepal_engine::ClusterView;
    use tepal_model::ClusterId;

    const DRIVE: DriveId = DriveId(1);

    /// And the folder of its metadata.
    async fn authority() -> (TempDir, MetadataAuthority) {
        let folder = tempfile::tempdir().expect("a folder");
        let metadata =
            Metadata::create(folder.path(), ClusterId(1), "test", ServerId(1), "unix:/s", 0).await.expect("a cluster");
        let path = "/d".to_owned();
        let add = Command::AddDrive {
            id: DRIVE,
            server: ServerId(1),
            pool: "default".into(),
            path,
            capacity: 1 << 30,
            spare: false,
        };
        metadata.propose(add).await.expect("a drive");
        (folder, MetadataAuthority::new(metadata, Followed::default()))
    }

    fn view(view: u64) -> Arc<ClusterView> {
        Arc::new(ClusterView { view, ..ClusterView::default() })
    }

    impl MetadataAuthority {
        fn state_of(&self, drive: DriveId) -> (DriveState, u64) {
            let state = self.metadata.state();
            let record = &state.drives[&drive];
            (record.state, record.state_view)
        }

        async fn behind_now(&self) -> u64 {
            let (id, to) = (DRIVE, DriveState::Behind);
            let behind = Command::SetDriveState { id, to, reason: "back".into(), expected_view: None };
            self.propose(behind).await.expect("it was missing");
            self.state_of(DRIVE).1
        }
    }

    fn gone() -> Loss {
        Loss::Gone { drive: DRIVE, reason: "pulled".into() }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_loss_is_on_record_when_the_answer_comes_and_may_be_told_twice() {
        let (_folder, authority) = authority().await;
        for _ in 0..2 {
            let left = authority.drive_down(DRIVE, gone()).await;
            assert_eq!((DriveState::Missing, left), (authority.state_of(DRIVE).0, Some(authority.state_of(DRIVE).1)));
        }
        let retired = Loss::Retired { drive: DRIVE, reason: "flush failed".into() };
        assert!(authority.drive_down(DRIVE, retired).await.is_some());
        assert_eq!(authority.state_of(DRIVE).0, DriveState::Failed);
        assert!(authority.drive_down(DriveId(9), gone()).await.is_some(), "nobody has it, so nobody relies on it");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_drive_that_went_away_again_while_it_caught_up_is_not_taken_back() {
        let (_folder, authority) = authority().await;
        assert!(authority.drive_down(DRIVE, gone()).await.is_some());
        authority.note_behind_since(DRIVE, authority.behind_now().await);
        assert!(authority.drive_down(DRIVE, gone()).await.is_some());
        let second = authority.behind_now().await;
        assert_eq!(authority.up_again(DRIVE, 0).await, None, "that was the first time it was behind");
        authority.note_behind_since(DRIVE, second);
        assert!(authority.up_again(DRIVE, 0).await.is_some());
        assert_eq!(authority.state_of(DRIVE).0, DriveState::Up);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_drive_that_is_closed_when_the_server_stops_is_not_lost_and_nobody_goes_on_without_it() {
        let (_folder, authority) = authority().await;
        authority.stop();
        assert_eq!(authority.drive_down(DRIVE, gone()).await, None);
        assert_eq!(authority.state_of(DRIVE).0, DriveState::Up);
    }

    /// A server whose own drive the others had declared down, and that didn't know it yet, had the last other one declared down,
    /// and acknowledged a write on its own alone. The other one had left later, and was believed.
    #[tokio::test(flavor = "current_thread")]
    async fn a_loss_is_granted_once_everything_that_was_agreed_before_it_is_followed() {
        let (_folder, authority) = authority().await;
        authority.followed.set(view(authority.metadata.state().view()));
        let mut asked = authority.drive_down(DRIVE, gone());
        assert!(timeout(KNOWN_SOON, &mut asked).await.is_err(), "the engine hasn't heard of it");
        let (state, left) = authority.state_of(DRIVE);
        assert_eq!(state, DriveState::Missing);
        authority.followed.set(view(left));
        assert_eq!(asked.await, Some(left));
    }

    /// A server that was stopped in order once had a healthy drive of another declared missing, which it couldn't reach any more;
    /// then its own went, and nobody was left who knew everything.
    #[tokio::test(flavor = "current_thread")]
    async fn what_was_asked_just_before_the_server_stops_declares_no_drive_down_any_more() {
        let (_folder, authority) = authority().await;
        let asked = authority.drive_down(DRIVE, gone());
        authority.stop();
        assert_eq!(asked.await, None);
        assert_eq!(authority.state_of(DRIVE).0, DriveState::Up);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_loss_that_cannot_be_recorded_is_not_granted() {
        let (_folder, authority) = authority().await;
        authority.metadata.clone().shutdown().await;
        assert_eq!(authority.drive_down(DRIVE, gone()).await, None);
    }
}
