//! Which request of a client something comes of.

use std::ops::Range;

/// Which request of which gateway something is: by it, one that is sent again is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// One run of a gateway.
    pub gateway: u64,
    /// The gateway uses it for one request at a time.
    pub slot: u32,
    /// Later requests of the gateway have higher ones.
    pub number: u64,
    /// The view of the cluster that the gateway knew when the request was made.
    pub view: u64,
}

/// Blocks of one copy that a request has changed. Nobody has the request change them again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taken {
    /// Of which request.
    pub origin: Origin,
    /// The first one's number, within what the drive holds of the map.
    pub first: u64,
    /// How many.
    pub count: u64,
}

impl Taken {
    /// As far as it's of these blocks; `None` if it isn't.
    pub fn within(&self, blocks: &Range<u64>) -> Option<Taken> {
        let first = self.first.max(blocks.start);
        let end = self.first.saturating_add(self.count).min(blocks.end);
        (first < end).then(|| Taken { first, count: end - first, ..*self })
    }

    /// Whether it's of no others than so many blocks from the first on.
    pub fn is_within(&self, first: u64, count: u64) -> bool {
        let end = self.first.checked_add(self.count);
        self.first >= first && end.is_some_and(|end| end <= first.saturating_add(count))
    }
}

/// What is noted of blocks along with their new content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Taking {
    /// Nothing: no request for them comes twice.
    #[default]
    Nothing,
    /// They have taken this request.
    Request(Origin),
    /// They have taken these requests and no others, as those of the copy that the content is from.
    Those(Vec<Taken>),
}

/// What a copy knows of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// These are the blocks that have taken it, of those that were asked for; others haven't.
    Known {
        /// Ascending.
        taken: Vec<Taken>,
    },
    /// The gateway has used its slot for a later one: nobody waits for its answer.
    Superseded,
    /// It may have been carried out: it's so long ago that nothing is known of it.
    Forgotten,
}
