//! What the primaries of columns have taken over, said to the server that leads the metadata. Nothing of it is kept: it's said again
//! and again until the window has moved on.

use crate::api::Relay;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tepal_metadata::{Metadata, MigrationRecord, MigrationStage};
use tepal_model::MapId;
use tokio::sync::{Notify, mpsc, oneshot};

/// The longest that the leader is waited for.
const HEARD_WITHIN: Duration = Duration::from_secs(3);
/// Of so many columns it's said at a time: many are done at about the same moment.
const AT_ONCE: usize = 1024;

/// Of one column everything of a window was taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenOver {
    /// To which volumes go.
    pub target: u32,
    pub column: u32,
    /// `done` and `fence`.
    pub window: (u64, u64),
    /// Nothing of the window is in the way of turning around.
    pub undone: bool,
}

/// What was said to this server. Clones are the same.
#[derive(Clone, Default)]
pub struct Reports(Arc<Heard>);

#[derive(Default)]
struct Heard {
    /// The last of each column.
    said: Mutex<BTreeMap<(u32, u32), TakenOver>>,
    news: Notify,
}

impl Reports {
    pub fn hear(&self, reports: &[TakenOver]) {
        let mut said = self.0.said.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = |report: &&TakenOver| said.insert((report.target, report.column), **report) != Some(**report);
        if reports.iter().filter(is_new).count() > 0 {
            self.0.news.notify_one();
        }
    }

    /// Returns when something was said that wasn't before.
    pub async fn news(&self) {
        self.0.news.notified().await;
    }

    /// Forgets what was said of other targets.
    pub fn keep(&self, is_target: impl Fn(MapId) -> bool) {
        let mut said = self.0.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|(target, _), _| is_target(MapId(*target)));
    }

    /// How many of the target's columns have said what is needed for the window to move on, or for the way back.
    pub fn count(&self, migration: &MigrationRecord) -> usize {
        let said = self.0.said.lock().unwrap_or_else(PoisonError::into_inner);
        let target = migration.target.0;
        let of_target = said.range((target, 0)..=(target, u32::MAX)).map(|(_, report)| report);
        let window = (migration.done, migration.fence);
        let undone = migration.stage == MigrationStage::Turning;
        of_target.filter(|report| report.window == window && report.undone == undone).count()
    }
}

/// Says it to whoever leads. Clones are the same.
#[derive(Clone)]
pub struct Reporter(mpsc::UnboundedSender<(TakenOver, oneshot::Sender<bool>)>);

impl Reporter {
    /// To be called on the control runtime.
    pub fn start(metadata: Metadata, relay: Relay) -> Self {
        let (sender, mut queue) = mpsc::unbounded_channel::<(TakenOver, oneshot::Sender<bool>)>();
        tokio::spawn(async move {
            let mut waiting = Vec::new();
            while queue.recv_many(&mut waiting, AT_ONCE).await > 0 {
                let (reports, callers): (Vec<TakenOver>, Vec<_>) = waiting.drain(..).unzip();
                let is_heard = tell_leader(&metadata, &relay, reports).await;
                // Who doesn't wait any more says it again.
                for caller in callers {
                    let _ = caller.send(is_heard);
                }
            }
        });
        Reporter(sender)
    }

    /// Whether it was heard.
    pub async fn tell(&self, report: TakenOver) -> bool {
        let (caller, answer) = oneshot::channel();
        self.0.send((report, caller)).is_ok() && answer.await.unwrap_or(false)
    }
}

async fn tell_leader(metadata: &Metadata, relay: &Relay, reports: Vec<TakenOver>) -> bool {
    match metadata.leader() {
        None => false,
        Some(leader) if leader == metadata.server() => {
            relay.reports().hear(&reports);
            true
        }
        Some(leader) => {
            let Some(record) = metadata.state().servers.get(&leader).cloned() else { return false };
            relay.report(&record, &reports, HEARD_WITHIN).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(column: u32, window: (u64, u64), undone: bool) -> TakenOver {
        TakenOver { target: 2, column, window, undone }
    }

    fn migration(window: (u64, u64), stage: MigrationStage) -> MigrationRecord {
        MigrationRecord {
            id: MapId(2),
            source: MapId(1),
            target: MapId(2),
            layout: "mirror:2".parse().expect("a layout"),
            leaves: None,
            seed: 1,
            chunks: 9,
            done: window.0,
            fence: window.1,
            stage,
            cancelled: false,
            rate: None,
            since: 1,
            begun_unix_ms: 0,
        }
    }

    #[test]
    fn only_what_was_said_of_this_window_and_this_way_counts() {
        let (running, turning) = (MigrationStage::Running, MigrationStage::Turning);
        let reports = Reports::default();
        reports.hear(&[report(0, (0, 1), false), report(1, (0, 1), false), report(1, (0, 1), false)]);
        reports.hear(&[TakenOver { target: 3, ..report(2, (0, 1), false) }]);
        assert_eq!(reports.count(&migration((0, 1), running)), 2);
        assert_eq!((reports.count(&migration((1, 2), running)), reports.count(&migration((0, 1), turning))), (0, 0));
        reports.hear(&[report(0, (0, 1), true)]);
        assert_eq!((reports.count(&migration((0, 1), running)), reports.count(&migration((0, 1), turning))), (1, 1));
        reports.keep(|map| map == MapId(3));
        assert_eq!(reports.count(&migration((0, 1), running)), 0);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn who_waits_for_news_is_woken_by_what_was_not_said_before() {
        let reports = Reports::default();
        reports.hear(&[report(0, (0, 1), false)]);
        reports.news().await;
        reports.hear(&[report(0, (0, 1), false)]);
        assert!(tokio::time::timeout(Duration::from_millis(20), reports.news()).await.is_err());
        reports.hear(&[report(0, (1, 2), false)]);
        reports.news().await;
    }
}
