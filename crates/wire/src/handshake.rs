//! What comes first on a connection: who calls whom, and in which version they go on.
//!
//! ```text
//! caller: Calling --Hello--> server: Host::hear, Visitors::admit --Welcome | Refused--> caller: Calling::hear
//! ```
//!
//! 1. Nothing but a hello is heard from a caller before it's welcome, and nothing but the answer to it from a server.
//! 2. The frame header, the first four bytes of a hello and all of a refusal are the same for good. So a Tepal of any version
//!    can tell any other why they can't talk.
//! 3. Later versions add to a hello at its end; an older one that can talk to the caller ignores it.

#[cfg(test)]
mod tests;

use crate::field::{Field, MessageError, Reader, record, tagged};
use crate::frame::{Encode, FrameError, Kind};
use crate::inbox::Frame;
use crate::message::Message;
use std::fmt;
use std::ops::RangeInclusive;
use tepal_model::{ClusterId, ServerId};

/// The versions of the messages that this Tepal speaks.
pub const VERSIONS: RangeInclusive<u16> = 1..=1;

/// One run of one gateway, drawn at random when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u128);

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sender {
    /// A server of the cluster.
    Server {
        /// Which one.
        server: ServerId,
        /// Each start of it has a higher one: its older runs are over.
        boot: u64,
    },
    /// A gateway on a client's machine.
    Client {
        /// Which one.
        client: ClientId,
    },
    /// A server that isn't in a cluster yet, and asks to be let in.
    Newcomer,
}

/// What the caller wants to talk about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Metadata and drives, as a server to another.
    Server,
    /// Volumes.
    Gateway,
}

/// The first frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The oldest version that the caller speaks.
    pub lowest: u16,
    /// The newest one.
    pub highest: u16,
    /// The caller's cluster; 0 if a newcomer joins whichever it finds.
    pub cluster: ClusterId,
    /// Who calls.
    pub sender: Sender,
    /// About what.
    pub role: Role,
    /// Which of the caller's connections for this role: each has a session of its own.
    pub lane: u16,
    /// The session's epoch: higher on each connection of the lane.
    pub epoch: u64,
    /// Whom the caller means to reach.
    pub expects: Option<ServerId>,
}

/// How much a client may have under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Requests: slots from 0 on.
    pub requests: u16,
    /// What they cost together; see [`crate::session`].
    pub bytes: u64,
}

/// The answer to a hello: the session goes on, or begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Of the messages from here on.
    pub version: u16,
    /// Who answers.
    pub server: ServerId,
    /// Which run of it.
    pub boot: u64,
    /// What it takes.
    pub grant: Grant,
    /// Whether the server remembers what the session's earlier connections have asked.
    pub known: bool,
}

/// The last frame of a connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {text}")]
pub struct Refused {
    /// The oldest version that the server speaks.
    pub lowest: u16,
    /// The newest one.
    pub highest: u16,
    /// For the caller.
    pub reason: Reason,
    /// For people.
    pub text: String,
}

/// What the caller should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Update one of both: they have no version in common.
    UnknownVersion,
    /// Look for the right address: this server is of another cluster.
    OtherCluster,
    /// Look for the right address: this is another server of the cluster.
    OtherServer,
    /// Join the cluster first.
    UnknownServer,
    /// Stop: a newer run of the same server is known.
    SameServerTwice,
    /// Stop: the caller was removed from the cluster.
    NotAMember,
    /// Stop using this session: it has a newer connection, or the client may not act any more.
    Fenced,
    /// Try again later: the server has too many clients.
    TooMany,
    /// Try again later, or elsewhere: the server is stopping.
    Stopping,
    /// Report it: the caller's bytes are against the rules, or were changed on their way.
    Broken,
    /// Try again: the server is starting, and answers this soon.
    Starting,
    /// Something that this version doesn't know.
    Other(u8),
}

/// Whether the cluster knows a caller, as far as the server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It may call.
    Member,
    /// It never was in the cluster.
    Unknown,
    /// It was, and isn't any more.
    Removed,
    /// It may not act any more.
    Fenced,
}

record!(Grant { requests, bytes });
record!(Welcome { version, server, boot, grant, known });
tagged!(Sender, "kind of sender", { 1 => Server { server, boot }, 2 => Client { client }, 3 => Newcomer });
tagged!(Role, "role", { 1 => Server, 2 => Gateway });

impl Field for ClientId {
    const LEAST: usize = 16;
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, MessageError> {
        u128::take(reader).map(ClientId)
    }
}

impl Reason {
    /// Whether it's over soon, whatever anybody does.
    pub fn passes(self) -> bool {
        matches!(self, Reason::Starting | Reason::Stopping)
    }
}

/// Reasons by number.
const REASONS: [Reason; 11] = [
    Reason::UnknownVersion,
    Reason::OtherCluster,
    Reason::OtherServer,
    Reason::UnknownServer,
    Reason::SameServerTwice,
    Reason::NotAMember,
    Reason::Fenced,
    Reason::TooMany,
    Reason::Stopping,
    Reason::Broken,
    Reason::Starting,
];

impl Field for Reason {
    const LEAST: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Reason::Other(number) => *number,
            known => REASONS.iter().position(|reason| reason == known).map_or(0, |at| at as u8 + 1),
        });
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, MessageError> {
        let number = u8::take(reader)?;
        let known = usize::from(number).checked_sub(1).and_then(|at| REASONS.get(at));
        Ok(known.copied().unwrap_or(Reason::Other(number)))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::UnknownVersion => "no version of the protocol in common",
            Reason::OtherCluster => "another cluster",
            Reason::OtherServer => "another server",
            Reason::UnknownServer => "unknown server",
            Reason::SameServerTwice => "the same server runs twice",
            Reason::NotAMember => "not a member of the cluster any more",
            Reason::Fenced => "fenced",
            Reason::TooMany => "too many clients",
            Reason::Stopping => "the server is stopping",
            Reason::Broken => "against the protocol",
            Reason::Starting => "the server is starting",
            Reason::Other(number) => return write!(f, "refused for reason {number}, which this version doesn't know"),
        })
    }
}

/// The newest version that both speak.
fn shared_version(lowest: u16, highest: u16) -> Option<u16> {
    let version = highest.min(*VERSIONS.end());
    (version >= lowest.max(*VERSIONS.start())).then_some(version)
}

impl Hello {
    /// Of this version.
    pub fn new(cluster: ClusterId, sender: Sender, role: Role, lane: u16) -> Self {
        let (lowest, highest) = VERSIONS.into_inner();
        Hello { lowest, highest, cluster, sender, role, lane, epoch: 1, expects: None }
    }

    /// What the bytes say. One that has no version in common is known by its versions alone; the rest is empty.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Hello, MessageError> {
        let mut reader = Reader(bytes);
        let (lowest, highest) = (u16::take(&mut reader)?, u16::take(&mut reader)?);
        if lowest > highest {
            return Err(MessageError::Range { what: "a range of versions" });
        }
        if shared_version(lowest, highest).is_none() {
            let nobody = Sender::Client { client: ClientId(0) };
            return Ok(Hello { lowest, highest, ..Hello::new(ClusterId(0), nobody, Role::Gateway, 0) });
        }
        let hello = Hello {
            lowest,
            highest,
            cluster: Field::take(&mut reader)?,
            sender: Field::take(&mut reader)?,
            role: Field::take(&mut reader)?,
            lane: Field::take(&mut reader)?,
            epoch: Field::take(&mut reader)?,
            expects: Field::take(&mut reader)?,
        };
        match reader.0.len() {
            left if left > 0 && highest <= *VERSIONS.end() => Err(MessageError::Long { left }),
            _ => Ok(hello),
        }
    }
}

impl Refused {
    /// By this version.
    pub fn new(reason: Reason, text: impl Into<String>) -> Self {
        let (lowest, highest) = VERSIONS.into_inner();
        Refused { lowest, highest, reason, text: text.into() }
    }

    /// For a peer whose bytes are no frame. What doesn't even start like one isn't answered.
    pub fn for_frame(error: &FrameError) -> Option<Self> {
        match error {
            FrameError::Magic { .. } => None,
            FrameError::Version { .. } => Some(Refused::new(Reason::UnknownVersion, error.to_string())),
            _ => Some(Refused::new(Reason::Broken, error.to_string())),
        }
    }

    /// Later versions may add to it at its end.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Refused, MessageError> {
        let reader = &mut Reader(bytes);
        let (lowest, highest) = (Field::take(reader)?, Field::take(reader)?);
        Ok(Refused { lowest, highest, reason: Field::take(reader)?, text: Field::take(reader)? })
    }
}

impl From<FrameError> for Refused {
    fn from(error: FrameError) -> Self {
        Refused::new(Reason::Broken, error.to_string())
    }
}

impl From<MessageError> for Refused {
    fn from(error: MessageError) -> Self {
        Refused::new(Reason::Broken, error.to_string())
    }
}

/// The server's side: who it is. What [`Host::hear`] lets in is then admitted by [`crate::session::Visitors`].
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// Its cluster.
    pub cluster: ClusterId,
    /// Which server of it.
    pub server: ServerId,
    /// Which run of it.
    pub boot: u64,
}

impl Host {
    /// Judges the first frame of a connection. `standing` says what the cluster knows of the caller.
    pub fn hear(&self, frame: &Frame<'_>, standing: impl FnOnce(&Sender) -> Standing) -> Result<Hello, Refused> {
        let hello = match Message::decode(frame)? {
            Message::Hello(hello) => hello,
            _ => return Err(MessageError::Kind { found: frame.kind }.into()),
        };
        let refuse = |reason, text: String| Err(Refused::new(reason, text));
        let (lowest, highest) = VERSIONS.into_inner();
        if shared_version(hello.lowest, hello.highest).is_none() {
            let theirs = format!("versions {} to {}", hello.lowest, hello.highest);
            return refuse(
                Reason::UnknownVersion,
                format!("{theirs} called, and {lowest} to {highest} are known here"),
            );
        }
        let any = hello.sender == Sender::Newcomer && hello.cluster == ClusterId(0);
        if hello.cluster != self.cluster && !any {
            let text = format!("{} of cluster {} called one of cluster {}", hello.sender, hello.cluster, self.cluster);
            return refuse(Reason::OtherCluster, text);
        }
        if let Some(expected) = hello.expects.filter(|&expected| expected != self.server) {
            return refuse(Reason::OtherServer, format!("{expected} was called, and this is {}", self.server));
        }
        if let Sender::Server { server, boot } = hello.sender
            && server == self.server
            && boot != self.boot
        {
            let text = format!("{server} was called by another run of itself: boot {boot} called boot {}", self.boot);
            return refuse(Reason::SameServerTwice, text);
        }
        match standing(&hello.sender) {
            Standing::Member => Ok(hello),
            Standing::Unknown => refuse(Reason::UnknownServer, format!("{} isn't in this cluster", hello.sender)),
            Standing::Removed => refuse(Reason::NotAMember, format!("{} was removed", hello.sender)),
            Standing::Fenced => refuse(Reason::Fenced, format!("{} may not act any more", hello.sender)),
        }
    }

    /// What a caller that was let in and admitted is told.
    pub fn welcome(&self, hello: &Hello, grant: Grant, known: bool) -> Welcome {
        let version = shared_version(hello.lowest, hello.highest).unwrap_or(*VERSIONS.start());
        Welcome { version, server: self.server, boot: self.boot, grant, known }
    }
}

/// The caller's side, from its hello to the answer.
#[derive(Debug)]
pub struct Calling {
    hello: Hello,
}

/// Why a call came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The server says why.
    #[error(transparent)]
    Refused(Refused),
    /// What it said is against the rules.
    #[error("the server's answer makes no sense: {0}")]
    Message(#[from] MessageError),
    /// It chose a version that wasn't offered.
    #[error("the server chose version {chosen}, which wasn't offered")]
    Version {
        /// Which.
        chosen: u16,
    },
    /// Somebody else answered.
    #[error("{found} answered in place of {expected}")]
    OtherServer {
        /// Who was called.
        expected: ServerId,
        /// Who answered.
        found: ServerId,
    },
}

impl Calling {
    /// Send the hello, then hear the answer.
    pub fn new(hello: Hello) -> Self {
        Calling { hello }
    }

    /// To be sent first.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Judges the server's first frame.
    pub fn hear(self, frame: &Frame<'_>) -> Result<Welcome, CallError> {
        let welcome = match Message::decode(frame)? {
            Message::Welcome(welcome) => welcome,
            Message::Refused(refused) => return Err(CallError::Refused(refused)),
            _ => return Err(MessageError::Kind { found: frame.kind }.into()),
        };
        let (chosen, found) = (welcome.version, welcome.server);
        if !VERSIONS.contains(&chosen) || chosen < self.hello.lowest || chosen > self.hello.highest {
            return Err(CallError::Version { chosen });
        }
        match self.hello.expects {
            Some(expected) if expected != found => Err(CallError::OtherServer { expected, found }),
            _ => Ok(welcome),
        }
    }
}

impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sender::Server { server, boot } => write!(f, "{server} (boot {boot})"),
            Sender::Client { client } => write!(f, "client {:032x}", client.0),
            Sender::Newcomer => f.write_str("a new server"),
        }
    }
}

impl Encode for Hello {
    fn kind(&self) -> Kind {
        Kind::Hello
    }
    fn encode(&self, out: &mut Vec<u8>) {
        self.lowest.put(out);
        self.highest.put(out);
        self.cluster.put(out);
        self.sender.put(out);
        self.role.put(out);
        self.lane.put(out);
        self.epoch.put(out);
        self.expects.put(out);
    }
}

impl Encode for Welcome {
    fn kind(&self) -> Kind {
        Kind::Welcome
    }
    fn encode(&self, out: &mut Vec<u8>) {
        self.put(out);
    }
}

impl Encode for Refused {
    fn kind(&self) -> Kind {
        Kind::Refused
    }
    fn encode(&self, out: &mut Vec<u8>) {
        self.lowest.put(out);
        self.highest.put(out);
        self.reason.put(out);
        self.text.put(out);
    }
}
