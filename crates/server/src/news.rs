//! What other servers have agreed on reaches this one a little later: how long it's waited for.

use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long it may take to hear of what another server has just said that it's done.
pub const NEWS: Duration = Duration::from_secs(2);

/// What is known once that is so; after a while, what is known then.
pub async fn in_a_moment<T: Clone>(known: &mut watch::Receiver<T>, is_so: impl Fn(&T) -> bool) -> T {
    // Over as well if nothing will be heard any more.
    let _ = timeout(NEWS, known.wait_for(is_so)).await;
    known.borrow().clone()
}
