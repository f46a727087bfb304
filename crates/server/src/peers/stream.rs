//! Frames over a socket, one direction each.

use super::{LONGEST, Reader, Writer};
use std::io;
use tepal_model::Segments;
use tepal_model::buffer::join;
use tepal_wire::frame::Encode;
use tepal_wire::message::Message;
use tepal_wire::payload::Corrupt;
use tepal_wire::{Frame, FrameError, Header, Inbox, Limits, MessageError, Outbox, Payload};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Of messages after the handshake. The payload's checksums are in the meta part.
const LIMITS: Limits = Limits { meta: 16 << 10, payload: LONGEST as u32 };

/// Why nothing more comes over a connection.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it was closed")]
    Closed,
    #[error("it was closed within a message")]
    Cut,
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

pub struct Incoming {
    reader: Reader,
    inbox: Inbox,
}

impl Incoming {
    pub fn new(reader: Reader) -> Incoming {
        Incoming { reader, inbox: Inbox::new() }
    }

    /// The handshake is over: frames may be longer from here on.
    pub fn open(&mut self) {
        self.inbox.set_limits(LIMITS);
    }

    /// The next frame, as soon as it's whole.
    pub async fn frame<T>(&mut self, hear: impl FnOnce(Frame<'_>) -> T) -> Result<T, Ended> {
        loop {
            if let Some(frame) = self.inbox.next()? {
                return Ok(hear(frame));
            }
            let [payload, rest] = &mut self.inbox.spaces();
            let space = if payload.is_empty() { rest } else { payload };
            let count = self.reader.read(space).await?;
            match count {
                0 if self.inbox.is_between_frames() => return Err(Ended::Closed),
                0 => return Err(Ended::Cut),
                _ => self.inbox.received(count),
            }
        }
    }

    /// The next message with its payload, which is what was sent.
    pub async fn message(&mut self) -> Result<(Header, Message, Vec<u8>), Ended> {
        let hear = |frame: Frame<'_>| {
            let message = Message::decode(&frame)?;
            Ok::<_, MessageError>((frame.header, message, frame.payload))
        };
        let (header, message, payload) = self.frame(hear).await??;
        let (data, _) = payload.verify()?;
        Ok((header, message, join(&data).into()))
    }
}

pub struct Outgoing {
    writer: Writer,
    outbox: Outbox,
}

impl Outgoing {
    pub fn new(writer: Writer) -> Outgoing {
        Outgoing { writer, outbox: Outbox::new() }
    }

    /// Puts a message in line. Its body is at most [`LONGEST`] bytes.
    pub fn push(&mut self, header: &Header, message: &impl Encode, body: Vec<u8>) {
        self.outbox.push(header, message, &Payload::seal(0, Segments::from_iter([body.into()])));
    }

    /// Returns when everything in line has gone.
    pub async fn send(&mut self) -> io::Result<()> {
        while self.outbox.pending() > 0 {
            let count = self.writer.write_vectored(&self.outbox.slices()).await?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.outbox.sent(count);
        }
        Ok(())
    }
}
