//! Bytes in pieces: how many they are, and some of them.

use bytes::Bytes;
use tepal_model::Segments;

/// The number of bytes.
pub(crate) fn length(data: &[Bytes]) -> u64 {
    data.iter().map(|piece| piece.len() as u64).sum()
}

/// Segments that are taken from their start.
pub(crate) struct Rest {
    segments: <Segments as IntoIterator>::IntoIter,
    /// The rest of the segment that was taken last.
    left: Bytes,
}

impl Rest {
    pub fn of(segments: Segments) -> Self {
        Rest { segments: segments.into_iter(), left: Bytes::new() }
    }

    /// The next `length` bytes, or all that are left.
    pub fn next(&mut self, mut length: usize) -> Segments {
        let mut taken = Segments::new();
        while length > 0 {
            if self.left.is_empty() {
                let Some(next) = self.segments.next() else { break };
                self.left = next;
                continue;
            }
            let part = self.left.split_to(length.min(self.left.len()));
            length -= part.len();
            taken.push(part);
        }
        taken
    }
}
