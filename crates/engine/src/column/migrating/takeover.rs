//! What a column's group has taken over of a window, and what is under way. Only memory has this.

use crate::column::Blocks;
use crate::volume::MapMigration;
use crate::volume::migrating::Held;
use std::collections::{BTreeMap, BTreeSet};
use tepal_drive::world::Tick;
use tepal_model::IoError;

/// Blocks of a piece: 64 KiB.
pub const PIECE: u64 = 16;
/// Pieces that are under way for clients at once; the other pieces of a long request follow.
const MOST_UNDER_WAY: usize = 32;
/// The same with pieces that only wait for the source: these keep no others from being begun.
const MOST_BEGUN: usize = 1024;

/// The progress of one window, by pieces, each named by its first block.
#[derive(Debug, Default)]
pub(crate) struct TakeOver {
    pub taken: BTreeSet<u64>,
    /// Pieces under way, and since when.
    pub under_way: BTreeMap<u64, Tick>,
    /// Pieces under way of which the source couldn't hand anything over when it was asked last.
    waiting: BTreeSet<u64>,
    /// A piece that wasn't begun as nobody leads its column at the source, and since when.
    pub passed_over: Option<(u64, Tick)>,
    /// Where there's anything to be taken over, once that is known.
    pub held: Option<Held>,
    /// Pieces that couldn't be taken over: why, and when that was found.
    pub refused: BTreeMap<u64, (IoError, Tick)>,
    /// A task takes over the rest of the window, and says when everything is taken.
    pub walking: bool,
}

impl TakeOver {
    /// Begins with another window, of which nothing is taken over.
    pub fn begin_anew(&mut self) {
        *self = TakeOver { walking: self.walking, ..TakeOver::default() };
    }

    /// What keeps the migration from going on.
    pub fn obstacle(&self) -> Option<IoError> {
        self.refused.values().next().map(|(error, _)| error.clone())
    }

    /// The pieces that aren't taken over yet, of some fenced blocks of one chunk.
    pub fn missing(
        &self,
        (migration, column): (&MapMigration, usize),
        blocks: Blocks,
    ) -> impl Iterator<Item = u64> + '_ {
        let is_nothing = self.has_nothing_in(|| migration.chunk_of(column, blocks.first));
        let pieces = (!is_nothing).then(|| pieces(blocks)).into_iter().flatten();
        pieces.map(|piece| piece.first).filter(|piece| !self.taken.contains(piece))
    }

    /// Whether it's known that the chunk holds nothing to be taken over.
    fn has_nothing_in(&self, chunk: impl FnOnce() -> u64) -> bool {
        self.held.as_ref().is_some_and(|held| !held.contains(&chunk()))
    }

    /// The piece that has been under way, or passed over, for the longest, and since when.
    pub fn oldest(&self) -> Option<(u64, Tick)> {
        let under_way = self.under_way.iter().map(|(&piece, &since)| (piece, since));
        under_way.chain(self.passed_over).min_by_key(|(_, since)| since.0)
    }

    /// Whether the caller, on behalf of a client, has to take a piece over from now on. A client may ask for many
    /// pieces: not all of them are begun at once.
    pub fn begin(&mut self, piece: u64, now: Tick) -> bool {
        let is_their_turn = self.under_way.len() - self.waiting.len() < MOST_UNDER_WAY;
        let begins = is_their_turn && self.under_way.len() < MOST_BEGUN && !self.under_way.contains_key(&piece);
        begins && self.under_way.insert(piece, now).is_none()
    }

    /// Notes that a piece waits for its source. Returns whether others may be begun in its stead: the piece isn't under
    /// way any more if this is another window by now.
    pub fn note_waiting(&mut self, piece: u64) -> bool {
        self.under_way.contains_key(&piece) && self.waiting.insert(piece)
    }

    pub fn end(&mut self, piece: u64) {
        self.under_way.remove(&piece);
        self.waiting.remove(&piece);
        self.pass_no_more(piece);
    }

    pub fn pass_no_more(&mut self, piece: u64) {
        self.passed_over.take_if(|(passed, _)| *passed == piece);
    }
}

/// The pieces that the blocks touch.
pub fn pieces(blocks: Blocks) -> impl Iterator<Item = Blocks> {
    (blocks.first / PIECE..blocks.end().div_ceil(PIECE)).map(|number| Blocks::new(number * PIECE, PIECE))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story: pieces whose source was away filled all places, and pieces of other sources were waited for as long.
    #[test]
    fn pieces_that_wait_for_their_source_block_no_others() {
        let (mut takeover, now) = (TakeOver::default(), Tick::default());
        let begun = |takeover: &mut TakeOver, from: u64| {
            (from..from + 40).filter(|piece| takeover.begin(piece * PIECE, now)).collect::<Vec<_>>()
        };
        let first = begun(&mut takeover, 0);
        assert_eq!((first.len(), begun(&mut takeover, 40)), (MOST_UNDER_WAY, vec![]));
        assert!(first.iter().all(|piece| takeover.note_waiting(piece * PIECE)));
        assert!(!takeover.note_waiting(1000 * PIECE), "of another window");
        let others = begun(&mut takeover, 40);
        assert_eq!(others.len(), MOST_UNDER_WAY);
        others.iter().chain(&first).for_each(|piece| takeover.end(piece * PIECE));
        assert!(takeover.oldest().is_none() && takeover.waiting.is_empty());
    }
}
