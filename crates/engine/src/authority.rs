//! The cluster's say in who is up. In production it's the replicated metadata; in simulation a small fake of it.

use futures_util::future::BoxFuture;
use tepal_drive::Loss;
use tepal_model::DriveId;

/// Number of an agreed status of servers and drives.
pub type View = u64;

/// Both answers come when the change is agreed and on stable media; `None` if it can't be agreed now.
pub trait Authority: Send + Sync + 'static {
    /// The drive isn't up any more. The answer is the view in which it was up last: from then on others know more.
    fn drive_down(&self, drive: DriveId, loss: Loss) -> BoxFuture<'static, Option<View>>;
    /// The drive knows by itself what it misses of what the others have: it's up again.
    fn up_again(&self, drive: DriveId) -> BoxFuture<'static, Option<View>>;
}
