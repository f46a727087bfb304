//! Taking blocks out: only where drives hold anything of them.

use super::epochs::Writing;
use super::order::Turn;
use super::redundancy::Written;
use super::{Blocks, Group};
use std::ops::Range;
use std::sync::atomic::Ordering;
use tepal_drive::world::World;
use tepal_model::{BLOCK, IoError, Lineage, Origin, VolumeId};

/// Empty blocks between held ones that are cleared along with both, in one go.
const SMALL_GAP: u64 = (16 << 20) / BLOCK;

impl<W: World> Group<W> {
    /// Takes blocks out of every drive. The caller has their turn.
    pub async fn clear_blocks(
        &self,
        turn: &Turn,
        blocks: Blocks,
        origin: Option<Origin>,
        writing: &mut Writing,
    ) -> Result<Written, IoError> {
        if self.shared.kept.holds_nothing(self).await {
            return Ok(Written::Done);
        }
        let Some(seen) = self.seen_by(writing)? else {
            return Ok(Written::Waits { change: self.in_a_moment(), begun: false });
        };
        let mut cleared = false;
        for held in self.held(blocks, &seen).await {
            if let Written::Waits { change, begun } =
                self.shared.kept.clear(self, turn, (held, origin), writing).await?
            {
                return Ok(Written::Waits { change, begun: begun || cleared });
            }
            cleared = true;
        }
        Ok(Written::Done)
    }

    /// The parts of a range in which drives hold anything, or may. A part that is empty on all clean fragments needs no
    /// clearing: marks for all of a large volume wouldn't fit into a log.
    pub async fn held(&self, blocks: Blocks, seen: &Lineage) -> Vec<Blocks> {
        let mut held: Vec<Blocks> = Vec::new();
        for (first, count) in self.shared.column.cut(blocks.first, blocks.count) {
            match held.last_mut() {
                _ if self.shared.kept.is_empty(self, Blocks { first, count }, seen).await => {}
                Some(last) if first - last.end() <= SMALL_GAP => last.count = first + count - last.first,
                _ => held.push(Blocks { first, count }),
            }
        }
        held
    }

    /// Whether these bytes surely need no clearing. All drives are this server's and hold nothing of the bytes in any
    /// epoch, and no change is under way in the column. Then a clear needs no turn: there is no change that could come
    /// before or after it. A disk of exbibytes is discarded by ranges, and most of these hold nothing.
    pub fn has_nothing_of(&self, volume: VolumeId, bytes: &Range<u64>) -> bool {
        if self.shared.has_migrated.load(Ordering::Acquire) || !self.shared.order.is_idle() || !self.may_serve() {
            return false;
        }
        let state = self.lock();
        let acts = state.seen.everywhere >= state.head_since(volume);
        let blocks = Blocks::touched(bytes.start, bytes.end);
        acts && state.serves_volume(volume).is_ok() && self.shared.kept.is_bare(self, &state, blocks)
    }
}
