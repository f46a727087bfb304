//! Turns of writes of one gateway: writes that overlap go one after another.

use crate::bell::Bell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

/// Ranges of blocks of one column.
#[derive(Clone, Default)]
pub(super) struct Turns(Arc<Mutex<Held>>);

/// The end of each range by its first block. They don't overlap.
type Held = BTreeMap<u64, (u64, Bell)>;

/// The right to a range, until it's dropped.
pub(super) struct Turn {
    turns: Turns,
    first: u64,
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().expect("nothing panics while it holds the turns")
    }

    /// Waits until no other write has any of these blocks.
    pub async fn take(&self, blocks: &Range<u64>) -> Turn {
        loop {
            let waiting = {
                let mut held = self.lock();
                let before = held.range_mut(..blocks.end).next_back();
                match before.filter(|(_, (end, _))| *end > blocks.start) {
                    Some((_, (_, bell))) => bell.listen(),
                    None => {
                        held.insert(blocks.start, (blocks.end, Bell::default()));
                        return Turn { turns: self.clone(), first: blocks.start };
                    }
                }
            };
            let _ = waiting.await; // look again
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let ended = self.turns.lock().remove(&self.first);
        ended.into_iter().for_each(|(_, bell)| bell.ring());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn only_overlapping_writes_wait_for_each_other() {
        let turns = Turns::default();
        let one = turns.take(&(4..8)).now_or_never().expect("nobody has it");
        assert!(turns.take(&(8..9)).now_or_never().is_some() && turns.take(&(0..4)).now_or_never().is_some());
        for range in [7..9, 0..5, 5..6, 0..100] {
            assert!(turns.take(&range).now_or_never().is_none());
        }
        let mut waiting = Box::pin(turns.take(&(7..9)));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(one);
        assert!(waiting.now_or_never().is_some());
    }
}
