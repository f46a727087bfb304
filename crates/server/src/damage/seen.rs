//! Who sees the damage that a scrub has found. A scrub reads what drives hold, whoever sees it: a block that was written anew since a
//! snapshot was made may be damaged for the snapshot alone, or for nobody.

use crate::world::ServerWorld;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tepal_engine::{ScrubSummary, Snapshot, Volume};
use tepal_model::{BLOCK, Epoch, IoError};

/// Blocks that are read to find out. Beyond that, damage counts as the volume's.
const MOST_READS: usize = 1 << 16;
/// For all of them: a read may wait for a drive.
const WITHIN: Duration = Duration::from_secs(60);

/// What a scrub found, by who sees it. Offsets in bytes.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// As [`ScrubSummary::lost`], of the volume itself.
    pub lost: Vec<u64>,
    /// As [`ScrubSummary::unrepaired`], of the volume itself.
    pub unrepaired: Vec<u64>,
    /// Of each snapshot, what can't be read of it.
    pub snapshots: BTreeMap<Epoch, Vec<u64>>,
}

/// Reads again what couldn't be repaired, as the volume and as each of its snapshots.
pub async fn who_sees(
    volume: &Volume<ServerWorld>,
    snapshots: Vec<(Epoch, Snapshot<ServerWorld>)>,
    summary: &ScrubSummary,
) -> Found {
    let mut reading = Reading { left: MOST_READS, until: Instant::now() + WITHIN };
    let mut found =
        Found { snapshots: snapshots.iter().map(|(epoch, _)| (*epoch, Vec::new())).collect(), ..Found::default() };
    for (places, of_volume) in [(&summary.lost, &mut found.lost), (&summary.unrepaired, &mut found.unrepaired)] {
        for &offset in places {
            let length = BLOCK.min(volume.size().saturating_sub(offset));
            if length > 0 && reading.meets_damage(async || volume.can_read(offset, length).await, true).await {
                of_volume.push(offset);
            }
            for (epoch, snapshot) in &snapshots {
                let length = BLOCK.min(snapshot.size().saturating_sub(offset));
                if length > 0 && reading.meets_damage(async || snapshot.can_read(offset, length).await, false).await {
                    found.snapshots.entry(*epoch).or_default().push(offset);
                }
            }
        }
    }
    found
}

struct Reading {
    left: usize,
    until: Instant,
}

impl Reading {
    /// `unknown`: what is said of what can't be read in time.
    async fn meets_damage(&mut self, read: impl AsyncFnOnce() -> Result<(), IoError>, unknown: bool) -> bool {
        let time = self.until.saturating_duration_since(Instant::now());
        if self.left == 0 || time.is_zero() {
            return unknown;
        }
        self.left -= 1;
        match tokio::time::timeout(time, read()).await {
            Ok(Ok(())) => false,
            Ok(Err(IoError::Damaged { .. })) => true,
            Ok(Err(_)) | Err(_) => unknown,
        }
    }
}
