//! Frames that wait to be sent. Heads, messages and short payloads are copied together; long payloads are sent from where
//! they lie. One system call takes as much of it as there is.

use crate::frame::{Encode, Header, append};
use crate::payload::Payload;
use bytes::{Buf, Bytes};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io::IoSlice;
use tepal_model::Segments;

/// A segment up to this long is copied: cheaper than one more piece for the kernel to gather, and its buffer is free for
/// the next request at once.
const COPIED_UP_TO: usize = 8 << 10;
/// Pieces that one system call is given.
const GATHERED: usize = 256;
/// What was sent of the copied bytes is forgotten once it's this much.
const FORGET_AT: usize = 256 << 10;
/// More memory than this isn't kept for copied bytes when none wait.
const KEPT: usize = 1 << 20;

/// Bytes in line for one connection.
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
    /// Nothing waits.
    pub fn new() -> Self {
        Outbox::default()
    }

    /// Bytes that wait.
    pub fn pending(&self) -> u64 {
        self.pending
    }

    /// Puts a frame in line. What it may be, [`append`] says.
    pub fn push(&mut self, header: &Header, message: &impl Encode, payload: &Payload) {
        let before = self.copied.len();
        append(&mut self.copied, header, message, payload);
        self.copied_more(self.copied.len() - before);
        self.push_data(payload.data());
    }

    fn push_data(&mut self, data: &Segments) {
        for segment in data {
            if segment.len() <= COPIED_UP_TO {
                self.copied.extend_from_slice(segment);
                self.copied_more(segment.len());
            } else {
                self.pending += segment.len() as u64;
                self.pieces.push_back(Piece::Shared(segment.clone()));
            }
        }
    }

    fn copied_more(&mut self, length: usize) {
        self.pending += length as u64;
        match self.pieces.back_mut() {
            Some(Piece::Copied(count)) => *count += length,
            _ => self.pieces.push_back(Piece::Copied(length)),
        }
    }

    /// What to send next, in order, as for `writev`: all that waits, or as much as one system call takes.
    pub fn slices(&self) -> SmallVec<[IoSlice<'_>; GATHERED]> {
        let mut copied = &self.copied[self.sent..];
        let slice = |piece| match piece {
            &Piece::Copied(count) => {
                let (this, rest) = copied.split_at(count);
                copied = rest;
                IoSlice::new(this)
            }
            Piece::Shared(bytes) => IoSlice::new(bytes),
        };
        self.pieces.iter().take(GATHERED).map(slice).collect()
    }

    /// The first so many bytes of the [`Outbox::slices`] have gone.
    pub fn sent(&mut self, mut count: usize) {
        self.pending = self.pending.checked_sub(count as u64).expect("no more can be sent than waits");
        while count > 0 {
            let Some(front) = self.pieces.front_mut() else { unreachable!("pieces have all the bytes that wait") };
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
            self.copied.shrink_to(KEPT);
            self.sent = 0;
        } else if self.sent >= FORGET_AT {
            self.copied.drain(..self.sent);
            self.sent = 0;
        }
    }
}
