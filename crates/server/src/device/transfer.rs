//! How a read or a write comes to its end, whichever way it is handed to the kernel.
//!
//! The kernel may move less than it was asked to, or ask to be asked again. Invariants:
//! 1. A transfer succeeds only when every byte was moved.
//! 2. Every step but a bounded number of fruitless ones brings it forward, so it ends.
//! 3. It goes on only from block boundaries, as O_DIRECT demands: a part of a block is moved again.

use bytes::Bytes;
use rustix::io::Errno;
use tepal_drive::world::DeviceError;
use tepal_model::BLOCK;

/// What a flush is called in errors.
pub(super) const FLUSH: &str = "flush";
/// Pieces that one system call takes (IOV_MAX).
pub(super) const MOST_PIECES: usize = 1024;
/// Bytes that one system call is asked to move: below the kernel's own limit of 2 GiB, and whole blocks.
const MOST_BYTES: usize = 1 << 30;
/// How often in a row the kernel may interrupt, or say "again", until that counts as a failure.
const MOST_FRUITLESS: u32 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Read,
    Write,
}

impl Direction {
    fn operation(self) -> &'static str {
        match self {
            Direction::Read => "read",
            Direction::Write => "write",
        }
    }
}

/// A read or write under way.
#[derive(Debug)]
pub(super) struct Transfer {
    direction: Direction,
    offset: u64,
    length: usize,
    done: usize,
    fruitless: u32,
}

impl Transfer {
    pub fn new(direction: Direction, offset: u64, length: usize) -> Self {
        Transfer { direction, offset, length, done: 0, fruitless: 0 }
    }

    /// Bytes moved so far.
    pub fn done(&self) -> usize {
        self.done
    }

    /// Where on the device the next step begins.
    pub fn position(&self) -> u64 {
        self.offset + self.done as u64
    }

    /// How many bytes to ask for in the next step.
    pub fn wanted(&self) -> usize {
        (self.length - self.done).min(MOST_BYTES)
    }

    /// Takes what the kernel answered to a step. `None`: there is more to move, ask again.
    pub fn advance(&mut self, answer: Result<usize, Errno>) -> Option<Result<(), DeviceError>> {
        match answer {
            Ok(moved) => {
                assert!(moved <= self.length - self.done, "the kernel moved more than it was asked to");
                if self.done + moved == self.length {
                    return Some(Ok(()));
                }
                let whole = moved - moved % BLOCK as usize;
                if whole > 0 {
                    self.done += whole;
                    self.fruitless = 0;
                    return None;
                }
                if self.direction == Direction::Read {
                    return Some(Err(DeviceError::Gone(format!("it was cut short: it ends before {}", self.end()))));
                }
                self.again(Errno::IO)
            }
            Err(errno @ (Errno::INTR | Errno::AGAIN)) => self.again(errno),
            Err(errno) => Some(Err(self.failed(errno))),
        }
    }

    fn again(&mut self, errno: Errno) -> Option<Result<(), DeviceError>> {
        self.fruitless += 1;
        (self.fruitless > MOST_FRUITLESS).then(|| Err(self.failed(errno)))
    }

    fn end(&self) -> u64 {
        self.offset + self.length as u64
    }

    fn failed(&self, errno: Errno) -> DeviceError {
        failed(self.direction.operation(), self.position(), errno)
    }
}

/// What an error number of the kernel means for the device. A thin file on a full filesystem, or a thin device in a full
/// pool, isn't broken: all that was ever flushed is there, and it can go on once there is room below it.
pub(super) fn failed(operation: &'static str, offset: u64, errno: Errno) -> DeviceError {
    match errno {
        Errno::NODEV | Errno::NXIO | Errno::NOMEDIUM | Errno::STALE => {
            DeviceError::Gone(format!("{operation} at {offset}: {errno}"))
        }
        // Of a flush, it would mean that what was written is lost.
        Errno::NOSPC | Errno::DQUOT if operation != FLUSH => {
            DeviceError::Gone(format!("{operation} at {offset}: there is no space below it ({errno}): make room there"))
        }
        _ => DeviceError::Failed { operation, offset, reason: errno.to_string() },
    }
}

/// What is left of `pieces` after the first `done` bytes, as far as one system call takes it.
pub(super) fn rest(pieces: &[Bytes], done: usize) -> impl Iterator<Item = &[u8]> {
    let mut skip = done;
    let mut room = MOST_BYTES;
    pieces
        .iter()
        .filter_map(move |piece| {
            let skipped = skip.min(piece.len());
            skip -= skipped;
            let piece = &piece[skipped..];
            let taken = piece.len().min(room);
            room -= taken;
            (taken > 0).then(|| &piece[..taken])
        })
        .take(MOST_PIECES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = BLOCK as usize;

    fn read(blocks: usize) -> Transfer {
        Transfer::new(Direction::Read, 8192, blocks * PAGE)
    }

    #[test]
    fn a_short_transfer_goes_on_where_it_stopped_but_only_at_block_boundaries() {
        let mut transfer = read(4);
        for (moved, done) in [(PAGE, PAGE), (PAGE + 512, 2 * PAGE), (PAGE + PAGE - 1, 3 * PAGE)] {
            assert_eq!(transfer.advance(Ok(moved)), None);
            assert_eq!(transfer.done(), done);
            assert_eq!(transfer.position(), 8192 + done as u64);
            assert_eq!(transfer.wanted(), 4 * PAGE - done);
        }
        assert_eq!(transfer.advance(Ok(PAGE)), Some(Ok(())));
    }

    #[test]
    fn a_read_that_meets_the_end_of_the_file_says_that_the_device_is_gone() {
        for moved in [0, 1, 512, PAGE - 1] {
            assert!(matches!(read(2).advance(Ok(moved)), Some(Err(DeviceError::Gone(_)))), "{moved} bytes");
        }
    }

    #[test]
    fn interruptions_are_borne_but_not_for_ever() {
        for answer in [Err(Errno::INTR), Err(Errno::AGAIN), Ok(0)] {
            let mut transfer = Transfer::new(Direction::Write, 0, PAGE);
            let steps = (0..10_000).take_while(|_| transfer.advance(answer).is_none()).count();
            assert_eq!(steps, MOST_FRUITLESS as usize, "{answer:?}");
        }
        let mut transfer = read(3);
        for _ in 0..2 {
            (0..MOST_FRUITLESS).for_each(|_| assert_eq!(transfer.advance(Err(Errno::INTR)), None));
            assert_eq!(transfer.advance(Ok(PAGE)), None, "progress forgives what was fruitless before it");
        }
    }

    #[test]
    fn errors_tell_a_bad_place_from_a_device_that_is_gone_or_has_no_room_below_it() {
        for (errno, gone) in
            [(Errno::IO, false), (Errno::NODEV, true), (Errno::NXIO, true), (Errno::NOSPC, true), (Errno::DQUOT, true)]
        {
            let error = read(1).advance(Err(errno));
            assert_eq!(matches!(error, Some(Err(DeviceError::Gone(_)))), gone, "{errno}");
            assert_eq!(matches!(error, Some(Err(DeviceError::Failed { offset: 8192, .. }))), !gone, "{errno}");
        }
        for errno in [Errno::NOSPC, Errno::IO] {
            let lost = failed(FLUSH, 0, errno);
            assert!(
                matches!(lost, DeviceError::Failed { .. }),
                "what a flush didn't bring to the device is lost: {errno}"
            );
        }
    }

    #[test]
    fn the_rest_of_a_gather_starts_inside_a_piece_and_holds_what_one_call_takes() {
        let pieces: Vec<Bytes> = [b"abc".as_slice(), b"", b"defg"].map(Bytes::from_static).into();
        for (done, left) in [(0, "abcdefg"), (2, "cdefg"), (3, "defg"), (6, "g"), (7, "")] {
            assert_eq!(rest(&pieces, done).collect::<Vec<_>>().concat(), left.as_bytes(), "{done} done");
        }
        let many = vec![Bytes::from_static(b"x"); MOST_PIECES + 1];
        assert_eq!(rest(&many, 0).count(), MOST_PIECES);
        assert_eq!(rest(&many, MOST_PIECES).count(), 1);
    }
}
