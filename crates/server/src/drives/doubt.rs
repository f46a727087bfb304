//! Drives that can be opened and may have lost data unnoticed: cut short and lengthened again, so that a part of them is
//! blank. Reads notice that block by block; a scrub notices all of it, and repairs it while there are other copies.

use super::Drives;
use crate::api::types::ScrubState;
use crate::scrubs::Scrubs;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tepal_model::DriveId;

/// After a scrub that couldn't be finished.
const TRY_AGAIN: Duration = Duration::from_secs(60);

impl Drives {
    pub(super) fn doubt(&self, id: DriveId) {
        tracing::warn!(drive = %id, "the end of a drive is blank, as if it had been cut short: what is on it will be scrubbed");
        self.table().doubtful.insert(id);
        self.doubted.notify_one();
    }

    /// The drives whose volumes are being scrubbed for that.
    pub fn doubtful(&self) -> BTreeSet<DriveId> {
        self.table().doubtful.clone()
    }

    async fn settle_doubt(&self, id: DriveId, scrubs: &Scrubs) {
        let volumes = self.parts.engine.volumes();
        let (mut repaired_blocks, mut is_done) = (0, true);
        for volume in volumes.into_iter().filter(|volume| volume.spec().drives.contains(&id)) {
            let scrub = scrubs.run(volume).await;
            repaired_blocks += scrub.repaired_blocks;
            is_done &= scrub.state == ScrubState::Done;
        }
        if is_done {
            tracing::info!(drive = %id, repaired_blocks, "a doubtful drive was scrubbed");
            self.table().doubtful.remove(&id);
        }
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
