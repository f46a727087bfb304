//! Asking all nodes of a column at once, and going on with the answers of as many as are needed.

use super::{Column, Nodes};
use futures_channel::{mpsc, oneshot};
use futures_util::future::{Either, select};
use std::time::Duration;
use tepal_drive::world::World;
use tepal_model::{DriveId, IoError, Segments};
use tepal_wire::Payload;
use tepal_wire::message::{NodeAnswer, NodeFailure, NodeOperation};

/// Before a node is asked again that wasn't there, or had no room.
const AGAIN: Duration = Duration::from_millis(20);
/// So long nodes have to answer that others have waited for no longer.
const LINGER: Duration = Duration::from_secs(10);
/// So many bytes may be on their way to nodes that others have waited for no longer, for each of them.
const MOST_LINGERING: u64 = 32 << 20;

/// What one node says, by its number among the column's drives.
pub(super) struct Said {
    pub node: usize,
    pub what: Result<(NodeAnswer, Segments), NodeFailure>,
}

/// Questions to nodes, some of which may never answer.
pub(super) struct Asked {
    said: mpsc::UnboundedReceiver<Said>,
    /// When it's gone, nobody waits for the answers any more.
    _waits: Vec<oneshot::Sender<()>>,
}

impl Asked {
    /// The next answer; `None` if there are no more.
    pub async fn next(&mut self) -> Option<Said> {
        futures_util::StreamExt::next(&mut self.said).await
    }
}

impl<W: World, N: Nodes> Column<W, N> {
    /// Asks these nodes. What they were asked is done by those that can be reached soon, also if the answers aren't waited for.
    pub(super) fn ask(&self, questions: Vec<(usize, DriveId, NodeOperation, Payload)>) -> Asked {
        let (sender, said) = mpsc::unbounded();
        let mut waits = Vec::with_capacity(questions.len());
        for (node, drive, question, payload) in questions {
            let (waiting, gone) = oneshot::channel::<()>();
            waits.push(waiting);
            let (column, sender, length) = (self.clone(), sender.clone(), payload.length());
            self.world.spawn(Box::pin(async move {
                let asked = Box::pin(column.ask_until_told(drive, question, payload));
                let told = match select(asked, gone).await {
                    Either::Left((told, _)) => Some(told),
                    Either::Right((_, asked)) => column.linger(drive, length, asked).await,
                };
                if let Some(what) = told {
                    let _ = sender.unbounded_send(Said { node, what }); // nobody waits for it any more
                }
            }));
        }
        Asked { said, _waits: waits }
    }

    /// Goes on for a while with what nobody waits for any more: unless too much goes to that node already, which is slow or away.
    async fn linger<T>(&self, drive: DriveId, length: u64, asked: impl Future<Output = T> + Unpin) -> Option<T> {
        let count = |change: fn(u64, u64) -> u64| {
            let mut lingering = self.state.lingering.lock().expect("nothing panics while it holds the list");
            let bytes = lingering.entry(drive).or_default();
            *bytes = change(*bytes, length);
            *bytes
        };
        let is_too_much = count(|bytes, more| bytes + more) > MOST_LINGERING;
        let told = match is_too_much {
            true => None,
            false => match select(asked, Box::pin(self.world.sleep(LINGER))).await {
                Either::Left((told, _)) => Some(told),
                Either::Right(_) => None,
            },
        };
        count(|bytes, less| bytes - less);
        told
    }

    /// Asks a node until it answers. It may be away for long, or for ever.
    async fn ask_until_told(
        &self,
        drive: DriveId,
        question: NodeOperation,
        payload: Payload,
    ) -> Result<(NodeAnswer, Segments), NodeFailure> {
        loop {
            let told = self.nodes.ask(drive, question.clone(), payload.clone()).await;
            match told {
                Some((NodeAnswer::Failed(failure), _)) if is_final(failure) => return Err(failure),
                // One that has failed may be another one soon.
                Some((NodeAnswer::Failed(_), _)) | None => {}
                Some(told) => return Ok(told),
            }
            // Its volume may have gone meanwhile, or the column has other drives.
            if self.nodes.goes_on().is_err() || !self.nodes.are_current() {
                return Err(NodeFailure::NotHere);
            }
            self.world.sleep(AGAIN).await;
        }
    }
}

/// Whether asking again doesn't help.
fn is_final(failure: NodeFailure) -> bool {
    matches!(failure, NodeFailure::OutOfSpace | NodeFailure::NotAllowed | NodeFailure::Fenced)
}

/// Why a request isn't done that too many nodes have refused.
pub(super) fn why(refused: &[NodeFailure]) -> IoError {
    match refused {
        _ if refused.contains(&NodeFailure::Fenced) => IoError::Fenced,
        _ if refused.contains(&NodeFailure::NotAllowed) => IoError::NotAllowed,
        _ if refused.contains(&NodeFailure::OutOfSpace) => IoError::OutOfSpace,
        _ => IoError::Unavailable { reason: "too many drives of a quorum layout refuse".to_owned() },
    }
}
