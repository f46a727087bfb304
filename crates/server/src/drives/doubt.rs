//! Drives that can be opened and may have lost data unnoticed: cut short and lengthened again, or overwritten in part by
//! somebody while they are in use. Reads notice that block by block; a scrub notices all of it, and repairs it while there
//! are other copies. A drive's label says that it's doubtful until one has.

use super::Drives;
use crate::api_types::ScrubState;
use crate::damage::Scrubs;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tepal_metadata::VolumeState;
use tepal_model::{DriveId, VolumeId};

/// After a scrub that couldn't be finished.
const TRY_AGAIN: Duration = Duration::from_secs(60);
/// How often the labels of drives in use are looked at.
const LABELS_EVERY: Duration = Duration::from_secs(30);

impl Drives {
    pub(super) fn doubt(&self, id: DriveId) {
        tracing::warn!(drive = %id, "a drive was cut short, or its label overwritten: what is on it will be scrubbed");
        let mut table = self.table();
        table.doubtful.insert(id);
        if table.open.contains_key(&id) {
            self.doubted.notify_one(); // else when it's in use
        }
    }

    /// The drives in use whose volumes are being scrubbed for that.
    pub fn doubtful(&self) -> BTreeSet<DriveId> {
        let table = self.table();
        table.doubtful.iter().copied().filter(|drive| table.open.contains_key(drive)).collect()
    }

    async fn settle_doubt(&self, id: DriveId, scrubs: &Scrubs) {
        let Some(open) = self.open().remove(&id) else { return };
        let state = self.parts.metadata.state();
        let on_it = state.volumes_on(id).filter(|volume| volume.state == VolumeState::Active);
        // Those that aren't open yet, or by a state in which nothing of them is on it, are left over.
        let mut left: BTreeSet<VolumeId> = on_it.map(|volume| volume.id).collect();
        let volumes = self.parts.engine.volumes();
        let (mut repaired_blocks, mut is_done) = (0, true);
        for volume in volumes.into_iter().filter(|volume| volume.is_on(id)) {
            left.remove(&volume.id());
            let scrub = scrubs.run(volume).await;
            repaired_blocks += scrub.repaired_blocks;
            is_done &= scrub.state == ScrubState::Done && scrub.unrepaired.is_empty();
            is_done &= scrub.checked_drives.contains(&id);
        }
        if !is_done || !left.is_empty() {
            return;
        }
        let believe = move || async move { open.drive.believe().await };
        if let Ok(Ok(())) = self.parts.threads.run_on(self.some_thread(), believe).await {
            tracing::info!(drive = %id, repaired_blocks, "a doubtful drive was scrubbed");
            self.table().doubtful.remove(&id);
        }
    }

    async fn look_at_labels(&self) {
        let looks = self.open().into_iter().map(|(id, open)| async move {
            let look = move || async move { open.drive.look_at_label().await };
            // A drive that is lost by this is noticed as any other.
            if let Ok(Ok(true)) = self.parts.threads.run_on(self.some_thread(), look).await {
                self.doubt(id);
            }
        });
        join_all(looks).await;
    }
}

/// Scrubs what lies on doubtful drives, until it's dropped.
pub async fn settle_doubts(drives: Arc<Drives>, scrubs: Scrubs) {
    loop {
        // Also without a new doubt: an old one may have been left.
        let _ = tokio::time::timeout(TRY_AGAIN, drives.doubted.notified()).await;
        for id in drives.doubtful() {
            drives.settle_doubt(id, &scrubs).await;
        }
    }
}

/// Looks at the labels of the drives in use now and then, until it's dropped.
pub async fn watch_labels(drives: Arc<Drives>) {
    loop {
        tokio::time::sleep(LABELS_EVERY).await;
        // A drive that hangs must not keep the others from being looked at.
        let _ = tokio::time::timeout(LABELS_EVERY, drives.look_at_labels()).await;
    }
}
