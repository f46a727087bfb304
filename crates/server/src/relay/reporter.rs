//! What primaries here have taken over, said to the server that leads the metadata.

use super::Relay;
use super::reports::TakenOver;
use std::time::Duration;
use tepal_metadata::Metadata;
use tokio::sync::{mpsc, oneshot};

/// The longest that the leader is waited for.
const HEARD_WITHIN: Duration = Duration::from_secs(3);
/// Of so many columns it's said at a time: many are done at about the same moment.
const AT_ONCE: usize = 1024;

/// Says it to whoever leads. Clones are the same.
#[derive(Clone)]
pub struct Reporter(mpsc::UnboundedSender<(TakenOver, oneshot::Sender<bool>)>);

impl Reporter {
    /// To be called on the control runtime.
    pub fn start(metadata: Metadata, relay: Relay) -> Self {
        let (sender, mut queue) = mpsc::unbounded_channel::<(TakenOver, oneshot::Sender<bool>)>();
        crate::tasks::spawn(async move {
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
