//! Takes a stream of bytes apart into frames.
//!
//! 1. Memory: an inbox begins with `SMALLEST` bytes, grows to `LARGEST` under load, and holds more only while one meta part is
//!    longer, besides the one payload that is being received. That is taken only when a header says so whose own checksum
//!    and whose message's were right, and within the limits.
//! 2. A long payload is received where it stays: of it, only what came along with earlier bytes is copied.
//! 3. After an error there's nothing more: the next frame's start would be a guess.

#[cfg(test)]
mod tests;

use crate::frame::{FrameError, HEADER, Head, Header, Kind, Limits};
use crate::payload::{Payload, Sums};
use std::io::IoSliceMut;
use tepal_model::Buffer;

/// A new connection holds this much.
const SMALLEST: usize = 16 << 10;
/// What one read takes at most, besides the rest of a payload.
const LARGEST: usize = 256 << 10;

/// A whole frame, all of which is what was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What its message is.
    pub kind: Kind,
    /// Everything but the message.
    pub header: Header,
    /// The encoded message; [`crate::message::Message::decode`] reads it.
    pub message: &'a [u8],
    /// Its data.
    pub payload: Payload,
}

/// What has been received and not yet understood.
#[derive(Debug)]
pub struct Inbox {
    limits: Limits,
    bytes: Vec<u8>,
    /// The unread bytes of `bytes`.
    start: usize,
    end: usize,
    /// The last read took all that there was space for.
    was_full: bool,
    state: State,
    failed: Option<FrameError>,
}

#[derive(Debug)]
enum State {
    /// At the start of a frame.
    Start,
    /// The header is right; its meta part is still to come.
    Meta(Head),
    /// The meta part is right, and stays at `start` until the payload is whole. What is unread behind it belongs to the
    /// next frame.
    Payload { head: Head, buffer: Buffer, filled: usize },
    /// Told; it goes when the next one is asked for.
    Told { length: usize },
}

impl Inbox {
    /// Nothing is received yet. The limits are those of the handshake.
    pub fn new() -> Self {
        Inbox {
            limits: Limits::HANDSHAKE,
            bytes: vec![0; SMALLEST],
            start: 0,
            end: 0,
            was_full: false,
            state: State::Start,
            failed: None,
        }
    }

    /// For the frames from here on.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Where the next bytes of the stream go, in order, as for `readv`: the rest of a payload, which may be empty, and what
    /// comes after it, which never is. Ask after [`Inbox::next`] has no more frames.
    pub fn spaces(&mut self) -> [IoSliceMut<'_>; 2] {
        self.make_room();
        let payload = match &mut self.state {
            State::Payload { buffer, filled, .. } => &mut buffer[*filled..],
            State::Start | State::Meta(_) | State::Told { .. } => &mut [],
        };
        [IoSliceMut::new(payload), IoSliceMut::new(&mut self.bytes[self.end..])]
    }

    /// So many bytes have come into the [`Inbox::spaces`].
    pub fn received(&mut self, mut count: usize) {
        if let State::Payload { buffer, filled, .. } = &mut self.state {
            let here = count.min(buffer.len() - *filled);
            *filled += here;
            count -= here;
        }
        assert!(count <= self.bytes.len() - self.end, "no more can come than there is space for");
        self.end += count;
        self.was_full = self.end == self.bytes.len();
    }

    /// Receives a copy, for networks that aren't sockets.
    pub fn receive(&mut self, mut bytes: &[u8]) -> usize {
        let mut taken = 0;
        for space in &mut self.spaces() {
            let (here, rest) = bytes.split_at(bytes.len().min(space.len()));
            space[..here.len()].copy_from_slice(here);
            taken += here.len();
            bytes = rest;
        }
        self.received(taken);
        taken
    }

    /// Whether the stream may end here: not in the middle of a frame.
    pub fn is_between_frames(&self) -> bool {
        match self.state {
            State::Start => self.start == self.end,
            State::Told { length } => self.start + length == self.end,
            State::Meta(_) | State::Payload { .. } => false,
        }
    }

    /// The next frame, if it's whole.
    #[expect(clippy::should_implement_trait, reason = "what it gives borrows from it")]
    pub fn next(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        match self.advance() {
            Ok(Some((head, payload))) => {
                let message = &self.bytes[self.start..self.start + head.message];
                Ok(Some(Frame { kind: head.kind, header: head.header, message, payload }))
            }
            Ok(None) => Ok(None),
            Err(error) => {
                self.failed = Some(error.clone());
                Err(error)
            }
        }
    }

    /// As far as the bytes go. When a frame is whole, its meta part is at `start`.
    fn advance(&mut self) -> Result<Option<(Head, Payload)>, FrameError> {
        loop {
            let unread = &self.bytes[self.start..self.end];
            match std::mem::replace(&mut self.state, State::Start) {
                State::Told { length } => self.start += length,
                State::Start => {
                    let Some((header, _)) = unread.split_first_chunk::<HEADER>() else {
                        Head::check_start(unread)?;
                        return Ok(None);
                    };
                    self.state = State::Meta(Head::decode(header, self.limits)?);
                    self.start += HEADER;
                }
                State::Meta(head) => {
                    let Some(meta) = unread.get(..head.meta()) else {
                        self.state = State::Meta(head);
                        return Ok(None);
                    };
                    head.check_meta(meta)?;
                    if head.payload == 0 {
                        self.state = State::Told { length: head.meta() };
                        return Ok(Some((head, Payload::none())));
                    }
                    self.state = self.begin_payload(head);
                }
                State::Payload { head, buffer, filled } if filled == buffer.len() => {
                    self.state = State::Told { length: head.meta() };
                    let sums = decode_sums(&unread[head.message..head.meta()]);
                    return Ok(Some((head, Payload::received(head.cut, sums, buffer.freeze())?)));
                }
                waiting @ State::Payload { .. } => {
                    self.state = waiting;
                    return Ok(None);
                }
            }
        }
    }

    /// Moves what has come of the payload out from behind its meta part.
    fn begin_payload(&mut self, head: Head) -> State {
        let mut buffer = Buffer::take(head.payload);
        let from = self.start + head.meta();
        let filled = head.payload.min(self.end - from);
        buffer[..filled].copy_from_slice(&self.bytes[from..from + filled]);
        if from + filled == self.end {
            self.end = from;
        } else {
            // More frames are here: rather than all of them, the meta part moves.
            self.bytes.copy_within(self.start..from, self.start + filled);
            self.start += filled;
        }
        State::Payload { head, buffer, filled }
    }

    /// Has room behind the unread bytes, and room for all of a meta part.
    fn make_room(&mut self) {
        let whole = match &self.state {
            State::Meta(head) => head.meta(),
            State::Payload { .. } | State::Start | State::Told { .. } => HEADER,
        };
        let was_full = std::mem::take(&mut self.was_full);
        let unread = self.end - self.start;
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, unread);
        if unread == 0 && self.bytes.len() > LARGEST {
            self.bytes = vec![0; SMALLEST]; // one long message isn't the rule
        }
        let mut wanted = self.bytes.len();
        if was_full && wanted < LARGEST {
            wanted *= 2; // more was probably waiting
        }
        // Behind the meta part of a payload that is awaited, at least the next header finds room.
        wanted = wanted.max(whole + HEADER).max(unread + HEADER);
        if wanted > self.bytes.len() {
            self.bytes.resize(wanted, 0);
        }
    }
}

impl Default for Inbox {
    fn default() -> Self {
        Inbox::new()
    }
}

fn decode_sums(bytes: &[u8]) -> Sums {
    let (sums, rest) = bytes.as_chunks::<4>();
    debug_assert!(rest.is_empty());
    sums.iter().map(|sum| u32::from_le_bytes(*sum)).collect()
}
