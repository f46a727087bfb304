//! Frames over a socket, one direction each.

use super::socket::Socket;
use std::io;
use std::sync::Arc;
use tepal_model::Segments;
use tepal_model::buffer::join;
use tepal_wire::frame::Encode;
use tepal_wire::message::{MAX_OPAQUE, Message};
use tepal_wire::{Frame, FrameError, Header, Inbox, Limits, MessageError, Outbox, Payload};

/// The longest body of a call or an answer, in bytes.
pub const LONGEST: usize = MAX_OPAQUE as usize;
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
}

pub struct Incoming<S = Arc<Socket>> {
    socket: S,
    inbox: Inbox,
}

impl Incoming<Socket> {
    pub fn new(socket: Socket) -> Self {
        Incoming { socket, inbox: Inbox::new() }
    }

    /// Both directions.
    pub fn split(self) -> (Incoming, Outgoing) {
        let socket = Arc::new(self.socket);
        (Incoming { socket: socket.clone(), inbox: self.inbox }, Outgoing { socket, outbox: Outbox::new() })
    }
}

impl<S: AsRef<Socket>> Incoming<S> {
    /// What has come and isn't understood yet is in the inbox.
    pub fn into_parts(self) -> (S, Inbox) {
        (self.socket, self.inbox)
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
            match self.socket.as_ref().receive(&mut self.inbox).await? {
                0 if self.inbox.is_between_frames() => return Err(Ended::Closed),
                0 => return Err(Ended::Cut),
                _ => {}
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
        let (data, _) = payload.into_parts();
        Ok((header, message, join(&data).into()))
    }
}

pub struct Outgoing {
    socket: Arc<Socket>,
    outbox: Outbox,
}

impl Outgoing {
    /// Puts a message in line. Its body is at most [`LONGEST`] bytes.
    pub fn push(&mut self, header: &Header, message: &impl Encode, body: Vec<u8>) {
        self.outbox.push(header, message, &Payload::seal(0, Segments::from_iter([body.into()])));
    }

    /// Returns when everything in line has gone.
    pub async fn send(&mut self) -> io::Result<()> {
        self.socket.send(&mut self.outbox).await
    }
}
