//! Every request and its answer. A request names the view, and a volume's request the revision, in the frame's header.

pub mod drive;
pub mod node;
pub mod volume;

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
pub(crate) mod tests;

use crate::field::{Field, MessageError, Reader, record};
use crate::frame::{Encode, Kind};
use crate::handshake::{Hello, Refused, Welcome};
use crate::inbox::Frame;
use crate::payload::Payload;
use crate::session;
pub use drive::{
    DriveAnswer, DriveFailure, DriveOperation, DriveRequest, Heard, Mark, MarkChange, MarkKind, MarkPlace, MarkWord,
};
pub use node::{Complete, Found, NodeAnswer, NodeFailure, NodeOperation, Versions, Which};
use tepal_model::{BLOCK, MAX_REQUEST, Origin, Taken};
pub use volume::{HandedLine, RepairOutcome, VolumeAnswer, VolumeFailure, VolumeOperation, VolumeRequest};

/// Most bytes of a request or answer of the metadata or of the admin API.
pub const MAX_OPAQUE: u64 = 4 << 20;

/// What a client asks of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The payload, up to [`MAX_OPAQUE`] bytes from offset 0, is for the metadata.
    Metadata,
    /// The payload, up to as many bytes, is for the admin API.
    Api,
    /// For one drive of the server.
    Drive(DriveRequest),
    /// For the primary of one column of a volume.
    Volume(VolumeRequest),
}

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The payload is the metadata's answer.
    Metadata,
    /// The payload is the admin API's answer.
    Api,
    /// Of a drive.
    Drive(DriveAnswer),
    /// Of a primary.
    Volume(VolumeAnswer),
}

/// What a frame says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Comes first.
    Hello(Hello),
    /// The handshake is over.
    Welcome(Welcome),
    /// The connection is over.
    Refused(Refused),
    /// To be answered at once, whatever is under way: is anybody there?
    Ping,
    /// Somebody is.
    Pong,
    /// To be answered.
    Request(Request),
    /// To a request of the same id and slot.
    Answer(Answer),
}

/// So many of something, as far as they are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Blocks of a drive, or bytes of a column. At least one.
    pub length: u64,
    /// Whether they hold something. What doesn't reads as zeros.
    pub holds: bool,
}

record!(Run { length, holds });

record!(Origin { gateway, slot, number, view });
record!(Taken { origin, first, count });

/// A write as its gateway sends it, maybe not for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Which one it is.
    pub origin: Origin,
    /// It may have been carried out before.
    pub is_in_doubt: bool,
}

record!(Tag { origin, is_in_doubt });

impl Message {
    /// What the frame says, if it's a message of this version whose numbers make sense and which has the payload that it
    /// should.
    pub fn decode(frame: &Frame<'_>) -> Result<Message, MessageError> {
        let (bytes, payload) = (frame.message, &frame.payload);
        let message = match frame.kind {
            Kind::Hello => Message::Hello(Hello::decode(bytes)?),
            Kind::Welcome => Message::Welcome(Reader::whole(bytes)?),
            Kind::Refused => Message::Refused(Refused::decode(bytes)?),
            Kind::Ping => nothing_in(bytes).map(|()| Message::Ping)?,
            Kind::Pong => nothing_in(bytes).map(|()| Message::Pong)?,
            Kind::MetadataRequest => Message::Request(Request::Metadata.after(bytes)?),
            Kind::ApiRequest => Message::Request(Request::Api.after(bytes)?),
            Kind::DriveRequest => Message::Request(Request::Drive(Reader::whole(bytes)?)),
            Kind::VolumeRequest => Message::Request(Request::Volume(Reader::whole(bytes)?)),
            Kind::MetadataAnswer => Message::Answer(Answer::Metadata.after(bytes)?),
            Kind::ApiAnswer => Message::Answer(Answer::Api.after(bytes)?),
            Kind::DriveAnswer => Message::Answer(Answer::Drive(Reader::whole(bytes)?)),
            Kind::VolumeAnswer => Message::Answer(Answer::Volume(Reader::whole(bytes)?)),
        };
        message.check(payload)?;
        Ok(message)
    }

    fn check(&self, payload: &Payload) -> Result<(), MessageError> {
        match self {
            Message::Hello(_) | Message::Welcome(_) | Message::Refused(_) | Message::Ping | Message::Pong => {
                Holds::Nothing.check(payload)
            }
            Message::Request(request) => request.check(payload),
            Message::Answer(answer) => answer.check(payload),
        }
    }
}

impl Request {
    /// Whether its numbers make sense, and the payload goes with it.
    pub fn check(&self, payload: &Payload) -> Result<(), MessageError> {
        match self {
            Request::Metadata | Request::Api => Holds::Opaque.check(payload),
            Request::Drive(request) => request.operation.check(payload),
            Request::Volume(request) => request.operation.check(payload),
        }
    }

    /// What it takes of its session's window, as client and server count it.
    pub fn cost(&self, payload: &Payload) -> u64 {
        let wanted = match self {
            Request::Drive(DriveRequest { operation: DriveOperation::Read { count, .. }, .. }) => {
                u64::from(*count) * BLOCK
            }
            Request::Volume(VolumeRequest { operation: VolumeOperation::Read { length, .. }, .. }) => (*length).into(),
            Request::Volume(VolumeRequest { operation: VolumeOperation::Node { operation, .. }, .. }) => {
                operation.wanted()
            }
            // Of several lines it's more: there are few that have something of their own.
            Request::Volume(VolumeRequest { operation: VolumeOperation::HandOver { count, .. }, .. }) => {
                u64::from(*count) * BLOCK
            }
            Request::Metadata | Request::Api | Request::Drive(_) | Request::Volume(_) => 0,
        };
        session::cost(payload.length(), wanted)
    }

    /// Whether it can be carried out twice, so that its answer needn't be remembered. Not a flush: that data was lost is said
    /// once, and a second one wouldn't. (Metadata knows its duplicates by itself.)
    pub fn is_repeatable(&self) -> bool {
        match self {
            Request::Metadata => true,
            Request::Api => false,
            Request::Drive(request) => request.operation.is_repeatable(),
            Request::Volume(request) => match request.operation {
                VolumeOperation::Read { .. } | VolumeOperation::Status { .. } | VolumeOperation::Repair { .. } => true,
                VolumeOperation::HandOver { .. }
                | VolumeOperation::Holding { .. }
                | VolumeOperation::Changed { .. }
                | VolumeOperation::Node { .. } => true,
                VolumeOperation::Write { .. }
                | VolumeOperation::Fill { .. }
                | VolumeOperation::Zero { .. }
                | VolumeOperation::Clear { .. }
                | VolumeOperation::Release { .. }
                | VolumeOperation::Flush => false,
            },
        }
    }

    fn after(self, bytes: &[u8]) -> Result<Self, MessageError> {
        nothing_in(bytes).map(|()| self)
    }
}

impl Answer {
    /// Whether the payload goes with it.
    pub fn check(&self, payload: &Payload) -> Result<(), MessageError> {
        match self {
            Answer::Metadata | Answer::Api => Holds::Opaque,
            Answer::Drive(DriveAnswer::Read) => Holds::Blocks,
            Answer::Volume(VolumeAnswer::Read) => Holds::Bytes,
            Answer::Volume(VolumeAnswer::Node(answer)) => return answer.check(payload),
            Answer::Volume(VolumeAnswer::HandedOver { .. }) if payload.length() > 0 => Holds::Blocks,
            Answer::Drive(_) | Answer::Volume(_) => Holds::Nothing,
        }
        .check(payload)?;
        match self {
            Answer::Volume(answer) => answer.check(payload),
            Answer::Metadata | Answer::Api | Answer::Drive(_) => Ok(()),
        }
    }

    fn after(self, bytes: &[u8]) -> Result<Self, MessageError> {
        nothing_in(bytes).map(|()| self)
    }
}

fn nothing_in(bytes: &[u8]) -> Result<(), MessageError> {
    if bytes.is_empty() { Ok(()) } else { Err(MessageError::Long { left: bytes.len() }) }
}

/// What the payload of a message is.
#[derive(Clone, Copy, Debug)]
enum Holds {
    Nothing,
    /// At least one whole block.
    Blocks,
    /// At least one, cut where the blocks of the volume end.
    Bytes,
    /// What only who sends and receives it understands.
    Opaque,
}

impl Holds {
    fn check(self, payload: &Payload) -> Result<(), MessageError> {
        let length = payload.length();
        let fits = match self {
            Holds::Nothing => length == 0,
            Holds::Blocks => length > 0 && length <= MAX_REQUEST && payload.is_blocks(),
            Holds::Bytes => length > 0 && length <= MAX_REQUEST,
            Holds::Opaque => length <= MAX_OPAQUE && payload.cut() == 0,
        };
        if fits { Ok(()) } else { Err(MessageError::Payload { length }) }
    }
}

/// Whether `first..first + count` are some blocks or bytes, and end by `past` at the latest.
fn check_range(what: &'static str, first: u64, count: u64, past: u64) -> Result<(), MessageError> {
    let end = first.checked_add(count).filter(|&end| count > 0 && end <= past);
    end.map(drop).ok_or(MessageError::Range { what })
}

/// How many blocks one request reads or writes at most.
const MAX_BLOCKS: u64 = MAX_REQUEST / BLOCK;

impl Encode for Request {
    fn kind(&self) -> Kind {
        match self {
            Request::Metadata => Kind::MetadataRequest,
            Request::Api => Kind::ApiRequest,
            Request::Drive(_) => Kind::DriveRequest,
            Request::Volume(_) => Kind::VolumeRequest,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Request::Metadata | Request::Api => {}
            Request::Drive(request) => request.put(out),
            Request::Volume(request) => request.put(out),
        }
    }
}

impl Encode for Answer {
    fn kind(&self) -> Kind {
        match self {
            Answer::Metadata => Kind::MetadataAnswer,
            Answer::Api => Kind::ApiAnswer,
            Answer::Drive(_) => Kind::DriveAnswer,
            Answer::Volume(_) => Kind::VolumeAnswer,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Answer::Metadata | Answer::Api => {}
            Answer::Drive(answer) => answer.put(out),
            Answer::Volume(answer) => answer.put(out),
        }
    }
}

impl Encode for Message {
    fn kind(&self) -> Kind {
        match self {
            Message::Hello(hello) => hello.kind(),
            Message::Welcome(welcome) => welcome.kind(),
            Message::Refused(refused) => refused.kind(),
            Message::Ping => Kind::Ping,
            Message::Pong => Kind::Pong,
            Message::Request(request) => request.kind(),
            Message::Answer(answer) => answer.kind(),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Message::Hello(hello) => hello.encode(out),
            Message::Welcome(welcome) => welcome.encode(out),
            Message::Refused(refused) => refused.encode(out),
            Message::Ping | Message::Pong => {}
            Message::Request(request) => request.encode(out),
            Message::Answer(answer) => answer.encode(out),
        }
    }
}
