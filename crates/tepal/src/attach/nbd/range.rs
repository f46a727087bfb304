//! Ranges longer than what a server takes in one request: trims and zeroes of gigabytes, as file systems send them.

use super::client::{Client, Done};
use super::wire::Operation;
use nix::errno::Errno;
use std::sync::{Arc, Mutex, PoisonError};

/// Pieces end at multiples of this, so that a server can free whole extents of any layout.
const ALIGNMENT: u64 = 4 << 20;

/// The answer to the whole: the first error of a piece, if there is one.
struct Gathering {
    left: usize,
    error: Option<Errno>,
    done: Option<Done>,
}

/// How long the pieces may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Longest {
    /// As long as a request has room for: a server's maximum is of what is sent or kept (NBD protocol, "Block size constraints"). For what
    /// takes space away: a disk of terabytes is discarded in few requests.
    Request,
    /// The server's maximum: for what takes space.
    Maximum,
}

/// Asks for `piece(offset, length)` of every part of the range, all at once, and is done when all are.
pub fn submit(
    client: &Client,
    (offset, length): (u64, u64),
    longest: Longest,
    piece: impl Fn(u64, u32) -> Operation,
    done: Done,
) {
    let longest = match longest {
        Longest::Request => u32::MAX,
        Longest::Maximum => client.export().maximum,
    };
    let pieces = split(offset, length, u64::from(longest));
    if pieces.is_empty() {
        return done(Ok(&[]));
    }
    let gathering = Arc::new(Mutex::new(Gathering { left: pieces.len(), error: None, done: Some(done) }));
    for (offset, length) in pieces {
        let gathering = Arc::clone(&gathering);
        client.submit(piece(offset, length), Box::new(move |answer| gather(&gathering, answer)));
    }
}

fn gather(gathering: &Mutex<Gathering>, answer: Result<&[u8], Errno>) {
    let mut whole = gathering.lock().unwrap_or_else(PoisonError::into_inner);
    whole.left -= 1;
    whole.error = whole.error.or(answer.err());
    if whole.left > 0 {
        return;
    }
    let (done, error) = (whole.done.take(), whole.error);
    drop(whole);
    if let Some(done) = done {
        done(error.map_or(Ok(&[]), Err));
    }
}

/// Cuts a range into pieces of at most `maximum` bytes (at least [`ALIGNMENT`], which opening a volume makes sure of).
fn split(mut offset: u64, mut length: u64, maximum: u64) -> Vec<(u64, u32)> {
    let most = (maximum / ALIGNMENT).max(1) * ALIGNMENT;
    let mut pieces = Vec::new();
    while length > 0 {
        let piece = length.min(most - offset % ALIGNMENT);
        pieces.push((offset, u32::try_from(piece).expect("a server's maximum fits 32 bits")));
        offset += piece;
        length -= piece;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn pieces_cover_the_range_in_order_within_the_maximum_and_meet_at_aligned_offsets() {
        const M: u64 = 1 << 20;
        for (offset, length, maximum) in
            [(0, 0, 32 * M), (0, 1, 32 * M), (5, 100 * M, 32 * M), (M, 4096 * M - 512, 33 * M), (3, 9 * M, 4 * M)]
        {
            let pieces = split(offset, length, maximum);
            let mut next = offset;
            for &(at, long) in &pieces {
                assert_eq!(at, next);
                assert!(long > 0 && u64::from(long) <= maximum);
                assert!(at == offset || at.is_multiple_of(4 * M));
                next += u64::from(long);
            }
            assert_eq!(next, offset + length);
        }
    }
}
