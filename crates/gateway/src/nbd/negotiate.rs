//! The handshake: fixed newstyle, up to the moment when the client has an export (specification, "Handshake phase").
//!
//! Invariants:
//! 1. Nothing that the client sends is kept beyond one option, and of that at most `option_bytes`.
//! 2. An option is answered in full before the next one is looked at, so a client that doesn't read its answers makes this
//!    wait, and the handshake's deadline ends it.
//! 3. Where TLS is required, nothing about volumes is said before it. What was agreed before TLS counts no more after it.

use super::inbox::Inbox;
use super::limits::{Limits, exported_size};
use super::option::{ContextRequest, ExportRequest, Malformed, text};
use super::reply::ALLOCATION_CONTEXT;
use super::wire::{
    INIT_MAGIC, OPTION_MAGIC, handshake_flag, info, option, option_reply as reply, put_option_reply,
    transmission_flag as flag,
};
use crate::disk::{Exports, OpenError, VirtualDisk};
use std::io;
use tepal_model::{BLOCK, MAX_REQUEST};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

/// An option longer than this is not worth skipping.
const ABSURD: u32 = 32 << 20;
/// Answers are sent once they are this long, even before the end.
const SEND_AT: usize = 64 << 10;
const DESCRIPTION: &str = "Tepal volume";

/// What a client has agreed with the server.
pub struct Agreed<D> {
    pub disk: D,
    /// The export's own name, also where the client asked for the default one.
    pub name: String,
    pub structured: bool,
    /// `base:allocation` was selected, for this export.
    pub allocation: bool,
}

/// What a client and the server came to.
pub enum Negotiated<D> {
    Agreed(Agreed<D>),
    /// The client has said goodbye.
    Goodbye,
    /// TLS begins now; then the client has to say again what it wants.
    Tls,
}

/// What TLS there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privacy {
    None,
    /// The client may begin it.
    Offered,
    /// Without it the client gets nothing; nor with it, while there's nothing to offer it by.
    Required {
        is_offered: bool,
    },
    /// It has begun.
    Secured,
}

/// Why a client got no export: it, or its connection, is at fault.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what it is")]
pub enum HandshakeError {
    #[error("the connection failed during the handshake: {0}")]
    Stream(#[from] io::Error),
    #[error("the client set flags {0:#x}, which were not offered")]
    UnknownFlags(u32),
    #[error("an option starts with {0:#018x}, which is not its magic number")]
    BadMagic(u64),
    #[error("an option states {0} bytes of data")]
    AbsurdLength(u32),
    #[error("more than {0} options")]
    TooManyOptions(usize),
    #[error("TLS wasn't agreed on: {0}")]
    Tls(#[source] io::Error),
    #[error("TLS was to begin, and there's nothing to begin it with")]
    NoTls,
    #[error("{0} bytes came in the clear after TLS was asked for")]
    BytesBeforeTls(usize),
    #[error("the client may have nothing before it begins TLS")]
    TlsRequired,
    #[error("the client can't be told why its export is refused: {0}")]
    NoSuchExport(#[from] OpenError),
    #[error("the name of the export: {0}")]
    BadName(#[from] Malformed),
    #[error("option {0} of a client that knows only the export's name")]
    NotFixedNewstyle(u32),
}

/// Speaks with a client until it has an export, has said goodbye, or begins TLS. Over TLS the client has been greeted already.
pub async fn negotiate<S, E>(
    stream: &mut S,
    inbox: &mut Inbox,
    exports: &E,
    limits: &Limits,
    privacy: Privacy,
) -> Result<Negotiated<E::Disk>, HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
    E: Exports,
{
    let fixed_newstyle = u32::from(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
    let flags = if privacy == Privacy::Secured { fixed_newstyle } else { greet(stream, inbox).await? };
    if flags & !fixed_newstyle != 0 {
        return Err(HandshakeError::UnknownFlags(flags));
    }
    let mut talk = Talk {
        stream,
        exports,
        privacy,
        fixed: flags & u32::from(handshake_flag::FIXED_NEWSTYLE) != 0,
        zeroes: flags & u32::from(handshake_flag::NO_ZEROES) == 0,
        structured: false,
        allocation_of: None,
        opened: None,
        out: Vec::new(),
    };
    for _ in 0..limits.options {
        match talk.option(inbox, limits).await? {
            Next::Option => {}
            Next::Goodbye => return Ok(Negotiated::Goodbye),
            Next::Tls => return Ok(Negotiated::Tls),
            Next::Transmission(agreed) => return Ok(Negotiated::Agreed(agreed)),
        }
    }
    Err(HandshakeError::TooManyOptions(limits.options))
}

/// The client's flags.
async fn greet<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, inbox: &mut Inbox) -> io::Result<u32> {
    let mut greeting = Vec::with_capacity(18);
    greeting.extend_from_slice(&INIT_MAGIC.to_be_bytes());
    greeting.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    greeting.extend_from_slice(&(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES).to_be_bytes());
    stream.write_all(&greeting).await?;
    Ok(u32::from_be_bytes(receive(stream, inbox).await?))
}

async fn receive<S, const N: usize>(stream: &mut S, inbox: &mut Inbox) -> io::Result<[u8; N]>
where
    S: AsyncRead + Unpin,
{
    let mut bytes = [0; N];
    bytes.copy_from_slice(inbox.receive_exactly(stream, N).await?);
    inbox.consume(N);
    Ok(bytes)
}

/// What comes after an option.
enum Next<D> {
    Option,
    Goodbye,
    Tls,
    Transmission(Agreed<D>),
}

struct Talk<'a, S, E: Exports> {
    stream: &'a mut S,
    exports: &'a E,
    privacy: Privacy,
    /// The client understands answers to its options.
    fixed: bool,
    /// The client wants padding after EXPORT_NAME.
    zeroes: bool,
    structured: bool,
    /// The export for which `base:allocation` was selected.
    allocation_of: Option<String>,
    /// The export that was looked at last: going on with it doesn't open it twice.
    opened: Option<(String, E::Disk)>,
    out: Vec<u8>,
}

impl<S, E> Talk<'_, S, E>
where
    S: AsyncRead + AsyncWrite + Unpin,
    E: Exports,
{
    /// One option, from its header to its answer.
    async fn option(&mut self, inbox: &mut Inbox, limits: &Limits) -> Result<Next<E::Disk>, HandshakeError> {
        let magic = u64::from_be_bytes(receive(self.stream, inbox).await?);
        if magic != OPTION_MAGIC {
            return Err(HandshakeError::BadMagic(magic));
        }
        let option = u32::from_be_bytes(receive(self.stream, inbox).await?);
        let length = u32::from_be_bytes(receive(self.stream, inbox).await?);
        if !self.fixed && option != option::EXPORT_NAME {
            return Err(HandshakeError::NotFixedNewstyle(option));
        }
        if length > ABSURD || (option == option::EXPORT_NAME && length as usize > limits.option_bytes) {
            return Err(HandshakeError::AbsurdLength(length));
        }
        let next = if length as usize > limits.option_bytes {
            inbox.skip(self.stream, length.into()).await?;
            self.too_long(option)
        } else {
            let data = inbox.receive_exactly(self.stream, length as usize).await?.to_vec();
            inbox.consume(length as usize);
            self.answer(option, &data).await?
        };
        self.stream.write_all(&self.out).await?;
        self.stream.flush().await?;
        self.out.clear();
        Ok(next)
    }

    fn too_long(&mut self, option: u32) -> Next<E::Disk> {
        match option {
            option::ABORT => {
                self.reply(option, reply::ACK, &[]);
                return Next::Goodbye;
            }
            option::LIST | option::STARTTLS | option::STRUCTURED_REPLY => {
                self.refuse(option, reply::ERR_INVALID, "this option has no data");
            }
            option::INFO | option::GO | option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.refuse(option, reply::ERR_TOO_BIG, "too much data for an option");
            }
            _ => self.refuse(option, reply::ERR_UNSUP, "unknown option"),
        }
        if option == option::SET_META_CONTEXT {
            self.allocation_of = None;
        }
        Next::Option
    }

    async fn answer(&mut self, option: u32, data: &[u8]) -> Result<Next<E::Disk>, HandshakeError> {
        match option {
            option::STARTTLS => return Ok(self.start_tls(data)),
            option::EXPORT_NAME if self.wants_tls() => return Err(HandshakeError::TlsRequired),
            option if self.wants_tls() && option != option::ABORT => {
                self.refuse(
                    option,
                    reply::ERR_TLS_REQUIRED,
                    "this server wants TLS first, and a certificate of the client",
                );
            }
            option::EXPORT_NAME => return self.export_name(data).await,
            option::GO => return Ok(self.go(data).await),
            option::ABORT => {
                self.reply(option, reply::ACK, &[]);
                return Ok(Next::Goodbye);
            }
            option::LIST | option::STRUCTURED_REPLY if !data.is_empty() => {
                self.refuse(option, reply::ERR_INVALID, "this option has no data");
            }
            option::LIST => self.list().await?,
            option::STRUCTURED_REPLY => {
                self.structured = true;
                self.reply(option, reply::ACK, &[]);
            }
            option::INFO => {
                self.describe(option, data).await;
            }
            option::LIST_META_CONTEXT => self.list_contexts(data).await,
            option::SET_META_CONTEXT => self.set_contexts(data).await,
            _ => self.refuse(option, reply::ERR_UNSUP, "unknown option"),
        }
        Ok(Next::Option)
    }

    fn wants_tls(&self) -> bool {
        matches!(self.privacy, Privacy::Required { .. })
    }

    fn start_tls(&mut self, data: &[u8]) -> Next<E::Disk> {
        let option = option::STARTTLS;
        match self.privacy {
            _ if !data.is_empty() => self.refuse(option, reply::ERR_INVALID, "this option has no data"),
            Privacy::Secured => self.refuse(option, reply::ERR_INVALID, "TLS has begun already"),
            Privacy::Offered | Privacy::Required { is_offered: true } => {
                self.reply(option, reply::ACK, &[]);
                return Next::Tls;
            }
            Privacy::Required { is_offered: false } => {
                self.refuse(option, reply::ERR_POLICY, "this server has no certificate yet: come again in a moment");
            }
            Privacy::None => self.refuse(option, reply::ERR_UNSUP, "this server has no TLS"),
        }
        Next::Option
    }

    async fn list(&mut self) -> io::Result<()> {
        for name in self.exports.names() {
            self.reply(option::LIST, reply::SERVER, &[&(name.len() as u32).to_be_bytes(), name.as_bytes()]);
            if self.out.len() >= SEND_AT {
                self.stream.write_all(&self.out).await?;
                self.out.clear();
            }
        }
        self.reply(option::LIST, reply::ACK, &[]);
        Ok(())
    }

    /// The old way in: no answer but the export itself.
    async fn export_name(&mut self, data: &[u8]) -> Result<Next<E::Disk>, HandshakeError> {
        let name = self.open(text(data)?).await?;
        let agreed = self.agree(&name);
        self.out.extend_from_slice(&exported_size(&agreed.disk).to_be_bytes());
        self.out.extend_from_slice(&transmission_flags(&agreed.disk, agreed.structured).to_be_bytes());
        if self.zeroes {
            self.out.extend_from_slice(&[0; 124]);
        }
        Ok(Next::Transmission(agreed))
    }

    async fn go(&mut self, data: &[u8]) -> Next<E::Disk> {
        match self.describe(option::GO, data).await {
            Some(name) => Next::Transmission(self.agree(&name)),
            None => Next::Option,
        }
    }

    /// Answers INFO or GO in full. The export's own name, if there is such an export.
    async fn describe(&mut self, option: u32, data: &[u8]) -> Option<String> {
        let request = match ExportRequest::parse(data) {
            Ok(request) => request,
            Err(malformed) => {
                self.refuse(option, reply::ERR_INVALID, &malformed.to_string());
                return None;
            }
        };
        let name = self.open_or_refuse(option, request.name).await?;
        let (_, disk) = self.opened.as_ref().expect("it was opened just now");
        let size = exported_size(disk).to_be_bytes();
        let flags = transmission_flags(disk, self.structured).to_be_bytes();
        let (called, least_write) = (disk.name(), disk.least_write());
        self.reply(option, reply::INFO, &[&info::EXPORT.to_be_bytes(), &size, &flags]);
        if request.wanted.contains(&info::NAME) {
            let called = called.as_ref().unwrap_or(&name);
            self.reply(option, reply::INFO, &[&info::NAME.to_be_bytes(), called.as_bytes()]);
        }
        if request.wanted.contains(&info::DESCRIPTION) {
            self.reply(option, reply::INFO, &[&info::DESCRIPTION.to_be_bytes(), DESCRIPTION.as_bytes()]);
        }
        if request.wanted.contains(&info::BLOCK_SIZE) {
            let (smallest, preferred, largest) = (least_write, BLOCK as u32, MAX_REQUEST as u32);
            let sizes = [smallest.to_be_bytes(), preferred.to_be_bytes(), largest.to_be_bytes()];
            self.reply(option, reply::INFO, &[&info::BLOCK_SIZE.to_be_bytes(), sizes.as_flattened()]);
        }
        self.reply(option, reply::ACK, &[]);
        Some(name)
    }

    async fn list_contexts(&mut self, data: &[u8]) {
        let option = option::LIST_META_CONTEXT;
        if let Some(request) = self.context_request(option, data).await {
            if request.lists_allocation() {
                self.reply(option, reply::META_CONTEXT, &[&0u32.to_be_bytes(), b"base:allocation"]);
            }
            self.reply(option, reply::ACK, &[]);
        }
    }

    /// Replaces what was selected before, also where it fails.
    async fn set_contexts(&mut self, data: &[u8]) {
        let option = option::SET_META_CONTEXT;
        self.allocation_of = None;
        if let Some(request) = self.context_request(option, data).await {
            if request.selects_allocation() {
                self.allocation_of = self.opened.as_ref().map(|(name, _)| name.clone());
                self.reply(option, reply::META_CONTEXT, &[&ALLOCATION_CONTEXT.to_be_bytes(), b"base:allocation"]);
            }
            self.reply(option, reply::ACK, &[]);
        }
    }

    /// A request for contexts of an export that exists and is open now, or a refusal.
    async fn context_request<'d>(&mut self, option: u32, data: &'d [u8]) -> Option<ContextRequest<'d>> {
        if !self.structured {
            self.refuse(option, reply::ERR_INVALID, "structured replies come first");
            return None;
        }
        match ContextRequest::parse(data) {
            Ok(request) => self.open_or_refuse(option, request.name).await.map(|_| request),
            Err(malformed) => {
                self.refuse(option, reply::ERR_INVALID, &malformed.to_string());
                None
            }
        }
    }

    async fn open_or_refuse(&mut self, option: u32, asked: &str) -> Option<String> {
        match self.open(asked).await {
            Ok(name) => Some(name),
            Err(error) => {
                let kind = match error {
                    OpenError::NotAllowed(_) => reply::ERR_POLICY,
                    _ => reply::ERR_UNKNOWN,
                };
                self.refuse(option, kind, &error.to_string());
                None
            }
        }
    }

    /// Opens the export, unless it is the one that is open. The empty name is that of the only export. Returns its own name.
    async fn open(&mut self, asked: &str) -> Result<String, OpenError> {
        let name = match asked {
            "" => self.exports.unnamed().ok_or_else(|| OpenError::Unknown(String::new()))?,
            _ => asked.to_owned(),
        };
        if self.opened.as_ref().is_none_or(|(open, _)| *open != name) {
            self.opened = None;
            self.opened = Some((name.clone(), self.exports.open(&name).await?));
        }
        Ok(name)
    }

    fn agree(&mut self, name: &str) -> Agreed<E::Disk> {
        let (_, disk) = self.opened.take().expect("it was opened just now");
        let allocation = self.allocation_of.as_deref() == Some(name);
        Agreed { disk, name: name.to_owned(), structured: self.structured, allocation }
    }

    fn reply(&mut self, option: u32, kind: u32, data: &[&[u8]]) {
        put_option_reply(&mut self.out, option, kind, data);
    }

    fn refuse(&mut self, option: u32, kind: u32, message: &str) {
        self.reply(option, kind, &[message.as_bytes()]);
    }
}

fn transmission_flags<D: VirtualDisk>(disk: &D, structured: bool) -> u16 {
    let mut flags = flag::HAS_FLAGS
        | flag::SEND_FLUSH
        | flag::SEND_FUA
        | flag::SEND_TRIM
        | flag::SEND_WRITE_ZEROES
        | flag::CAN_MULTI_CONN
        | flag::SEND_CACHE
        | flag::SEND_FAST_ZERO;
    if disk.read_only() {
        flags |= flag::READ_ONLY;
    }
    if structured {
        flags |= flag::SEND_DF;
    }
    flags
}
