//! Replies that wait to be sent. Headers and short payloads are copied together; long payloads are sent from where they
//! lie. One system call takes as much of it as there is.

use bytes::{Buf, Bytes};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// A payload up to this long is copied: cheaper than one more piece for the kernel to gather (7 % of a whole 4 KiB read,
/// measured), and its buffer is free for the next request at once.
const COPIED_UP_TO: usize = 8 << 10;
/// Pieces handed to one system call.
const GATHERED: usize = 256;
/// What was sent of the copied bytes is forgotten once it is this much.
const FORGET_AT: usize = 256 << 10;

#[derive(Debug, Default)]
pub struct Outbox {
    pieces: VecDeque<Piece>,
    /// The bytes of all `Piece::Copied`, in order, after `sent` bytes that have gone.
    copied: Vec<u8>,
    sent: usize,
    pending: u64,
}

#[derive(Debug)]
enum Piece {
    /// That many of the copied bytes.
    Copied(usize),
    Shared(Bytes),
}

impl Outbox {
    /// Bytes that wait.
    pub fn pending(&self) -> u64 {
        self.pending
    }

    pub fn put(&mut self, bytes: &[u8]) {
        self.copied.extend_from_slice(bytes);
        self.pending += bytes.len() as u64;
        match self.pieces.back_mut() {
            Some(Piece::Copied(count)) => *count += bytes.len(),
            _ => self.pieces.push_back(Piece::Copied(bytes.len())),
        }
    }

    pub fn put_shared(&mut self, bytes: Bytes) {
        if bytes.len() <= COPIED_UP_TO {
            return self.put(&bytes);
        }
        self.pending += bytes.len() as u64;
        self.pieces.push_back(Piece::Shared(bytes));
    }

    /// Sends until nothing waits, here or in the stream.
    pub fn poll_send<S>(&mut self, cx: &mut Context<'_>, stream: &mut S) -> Poll<io::Result<()>>
    where
        S: AsyncWrite + Unpin,
    {
        while self.pending > 0 {
            let mut gathered = SmallVec::<[IoSlice<'_>; GATHERED]>::new();
            let mut copied = &self.copied[self.sent..];
            for piece in self.pieces.iter().take(GATHERED) {
                gathered.push(IoSlice::new(match piece {
                    Piece::Copied(count) => {
                        let (this, rest) = copied.split_at(*count);
                        copied = rest;
                        this
                    }
                    Piece::Shared(bytes) => bytes,
                }));
            }
            let count = ready!(Pin::new(&mut *stream).poll_write_vectored(cx, &gathered))?;
            drop(gathered);
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.forget(count);
        }
        Pin::new(stream).poll_flush(cx)
    }

    /// Drops the first `count` bytes: they are sent.
    fn forget(&mut self, mut count: usize) {
        self.pending -= count as u64;
        while count > 0 {
            let front = self.pieces.front_mut().expect("no more can be sent than was waiting");
            let (here, left) = match front {
                Piece::Copied(length) => {
                    let here = count.min(*length);
                    *length -= here;
                    self.sent += here;
                    (here, *length)
                }
                Piece::Shared(bytes) => {
                    let here = count.min(bytes.len());
                    bytes.advance(here);
                    (here, bytes.len())
                }
            };
            count -= here;
            if left == 0 {
                self.pieces.pop_front();
            }
        }
        if self.sent == self.copied.len() {
            self.copied.clear();
            self.sent = 0;
        } else if self.sent >= FORGET_AT {
            self.copied.drain(..self.sent);
            self.sent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Takes at most so many bytes at a time, and refuses every second time.
    struct Trickle {
        most: usize,
        ready: bool,
        got: Vec<u8>,
    }

    impl AsyncWrite for Trickle {
        fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
        }
        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            pieces: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            self.ready = !self.ready;
            if !self.ready {
                return Poll::Pending;
            }
            let before = self.got.len();
            for piece in pieces {
                let room = self.most - (self.got.len() - before);
                self.got.extend_from_slice(&piece[..room.min(piece.len())]);
            }
            Poll::Ready(Ok(self.got.len() - before))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    proptest! {
        #[test]
        fn everything_is_sent_once_and_in_order(
            pieces in prop::collection::vec((any::<bool>(), 0usize..3000), 0..700),
            most in 1usize..50_000,
        ) {
            let mut outbox = Outbox::default();
            let mut expected = Vec::new();
            let mut stream = Trickle { most, ready: false, got: Vec::new() };
            let cx = &mut Context::from_waker(std::task::Waker::noop());
            for (i, (shared, length)) in pieces.into_iter().enumerate() {
                let bytes: Vec<u8> = (0..length).map(|j| (i + j) as u8).collect();
                expected.extend_from_slice(&bytes);
                if shared { outbox.put_shared(bytes.into()) } else { outbox.put(&bytes) }
                if i % 50 == 0 {
                    let _ = outbox.poll_send(cx, &mut stream);
                }
                prop_assert_eq!(outbox.pending() as usize + stream.got.len(), expected.len());
            }
            while outbox.poll_send(cx, &mut stream).is_pending() {}
            prop_assert_eq!(outbox.pending(), 0);
            prop_assert!(outbox.pieces.iter().all(|piece| matches!(piece, Piece::Copied(0))));
            prop_assert_eq!(stream.got, expected);
        }
    }
}
