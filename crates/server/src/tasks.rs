//! Tasks of this server, on whichever thread begins them.

use futures_util::FutureExt;
use tokio::task::JoinHandle;

/// As [`tokio::spawn`]. The work is put into a box first: else all that tokio does with a task would be compiled anew for each kind of
/// work.
pub fn spawn(work: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(work.boxed())
}
