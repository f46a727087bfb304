//! What the primaries of columns have taken over, as this server has heard it. Nothing of it is kept: it's said again and again until
//! the window has moved on.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tepal_metadata::MigrationRecord;
use tepal_model::MapId;
use tokio::sync::Notify;

/// Of one column everything of a window was taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenOver {
    /// To which volumes go.
    pub target: u32,
    pub column: u32,
    /// The view since which that window is agreed.
    pub since: u64,
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

    /// How many of the target's columns have said that they have everything of the window.
    pub fn count(&self, migration: &MigrationRecord) -> usize {
        let said = self.0.said.lock().unwrap_or_else(PoisonError::into_inner);
        let target = migration.target.0;
        let of_target = said.range((target, 0)..=(target, u32::MAX)).map(|(_, report)| report);
        of_target.filter(|report| report.since == migration.since).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tepal_model::MigrationStage;

    fn report(column: u32, since: u64) -> TakenOver {
        TakenOver { target: 2, column, since }
    }

    fn migration(since: u64) -> MigrationRecord {
        MigrationRecord {
            id: MapId(2),
            source: MapId(1),
            target: MapId(2),
            layout: "mirror:2".parse().expect("a layout"),
            leaves: None,
            first: 0,
            ends: false,
            seed: 1,
            chunks: 9,
            done: 0,
            fence: 1,
            stage: MigrationStage::Running,
            cancelled: false,
            rate: None,
            since,
            begun_unix_ms: 0,
        }
    }

    #[test]
    fn only_what_was_said_since_the_window_is_what_it_is_counts() {
        let reports = Reports::default();
        reports.hear(&[report(0, 5), report(1, 5), report(1, 5)]);
        reports.hear(&[TakenOver { target: 3, ..report(2, 5) }]);
        // In view 7 it may have come to the same window again.
        assert_eq!([5, 6, 7].map(|since| reports.count(&migration(since))), [2, 0, 0]);
        reports.hear(&[report(0, 7)]);
        assert_eq!([5, 7].map(|since| reports.count(&migration(since))), [1, 1]);
        reports.keep(|map| map == MapId(3));
        assert_eq!(reports.count(&migration(5)), 0);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn who_waits_for_news_is_woken_by_what_was_not_said_before() {
        let reports = Reports::default();
        reports.hear(&[report(0, 5)]);
        reports.news().await;
        reports.hear(&[report(0, 5)]);
        assert!(tokio::time::timeout(Duration::from_millis(20), reports.news()).await.is_err());
        reports.hear(&[report(0, 6)]);
        reports.news().await;
    }
}
