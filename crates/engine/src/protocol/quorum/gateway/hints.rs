//! What nodes have yet to be told of complete versions. It goes along with later requests, or by itself after a while.

use super::{Column, Nodes};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tepal_drive::world::World;
use tepal_model::{DriveId, Version};
use tepal_wire::Payload;
use tepal_wire::message::{Complete, NodeOperation};

/// For so long other requests may take it along.
const AFTER: Duration = Duration::from_millis(50);
/// What one request takes along at most.
const TOGETHER: usize = 256;
/// What one node may have yet to be told. Beyond that the oldest is dropped: the node finds out by itself.
const MOST: usize = 4096;

#[derive(Default)]
pub(super) struct Hints {
    of: BTreeMap<DriveId, VecDeque<Complete>>,
    is_due: bool,
}

impl<W: World, N: Nodes> Column<W, N> {
    /// What a request to this node takes along.
    pub(super) fn hints(&self, drive: DriveId) -> Vec<Complete> {
        let mut hints = self.lock_hints();
        let Some(waiting) = hints.of.get_mut(&drive) else { return Vec::new() };
        let count = waiting.len().min(TOGETHER);
        waiting.drain(..count).collect()
    }

    fn lock_hints(&self) -> std::sync::MutexGuard<'_, Hints> {
        self.state.hints.lock().expect("nothing panics while it holds the hints")
    }

    /// Each later read sees this version of these blocks.
    pub(super) fn is_complete(&self, first: u64, count: u32, version: Version) {
        let complete = Complete { first, count, version: Version { cross: [0; 32], ..version } };
        let is_due = {
            let mut hints = self.lock_hints();
            for drive in self.nodes.drives() {
                let waiting = hints.of.entry(drive).or_default();
                match waiting.back_mut().filter(|last| {
                    last.version == complete.version && last.first + u64::from(last.count) == complete.first
                }) {
                    Some(last) => last.count += count,
                    None => waiting.push_back(complete),
                }
                if waiting.len() > MOST {
                    waiting.pop_front();
                }
            }
            !std::mem::replace(&mut hints.is_due, true)
        };
        if is_due {
            let column = self.clone();
            self.world.spawn(Box::pin(async move { column.tell_soon().await }));
        }
    }

    async fn tell_soon(&self) {
        self.world.sleep(AFTER).await;
        self.lock_hints().is_due = false;
        for drive in self.nodes.drives() {
            loop {
                let complete = self.hints(drive);
                if complete.is_empty() {
                    break;
                }
                // A hint that is lost does no harm: the node finds out by itself.
                let told = self.nodes.ask(drive, NodeOperation::Complete { complete }, Payload::none());
                self.world.spawn(Box::pin(async move { drop(told.await) }));
            }
        }
    }
}
