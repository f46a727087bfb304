//! The handshake: fixed newstyle, structured replies if the server has them, then GO.

use super::wire::{Flags, u16_at, u32_at, u64_at};
use std::io::{self, Read, Write};
use tepal_gateway::nbd::wire::handshake_flag::{FIXED_NEWSTYLE, NO_ZEROES};
use tepal_gateway::nbd::wire::{INIT_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, info, option, option_reply};

/// A server's answer to one option is never longer: an export name has at most 4096 bytes, the rest is text.
const REPLY_LIMIT: u32 = 64 << 10;
/// Nor are there more pieces of information about an export.
const REPLIES_LIMIT: usize = 1000;
/// A list with more names than this isn't read to its end.
const NAMES_LIMIT: usize = 10_000;
/// What a server takes in one request if it doesn't say.
const DEFAULT_MAXIMUM: u32 = 32 << 20;

/// What the server offers under a volume's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Export {
    /// Bytes.
    pub size: u64,
    pub flags: Flags,
    /// Smallest unit, in bytes, of offsets and lengths.
    pub minimum: u32,
    /// Most bytes that one request may carry or touch.
    pub maximum: u32,
    pub structured: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    #[error("it ended the connection or didn't answer: {0}")]
    Io(#[from] io::Error),
    #[error("it doesn't speak NBD (newstyle)")]
    NotNbd,
    #[error("it broke the protocol's rules in its answer to option {option}")]
    Malformed { option: u32 },
    #[error("there is no volume '{volume}' there")]
    Unknown { volume: String },
    #[error("it wants TLS: name the folder of an identity by --identity (`tepal identity create` makes one)")]
    Tls,
    #[error("it has no TLS")]
    NoTls,
    #[error("it is too old: no NBD_OPT_GO")]
    TooOld,
    #[error("it refused volume '{volume}' (NBD error {code:#x}){}", reason(.text))]
    Refused { volume: String, code: u32, text: String },
}

fn reason(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// Asks for TLS, which begins with the next byte.
pub fn start_tls(stream: &mut (impl Read + Write)) -> Result<(), HandshakeError> {
    greet(stream)?;
    match ask(stream, option::STARTTLS, &[])? {
        Reply { kind: option_reply::ACK, .. } => Ok(()),
        _ => Err(HandshakeError::NoTls),
    }
}

/// Opens the volume: afterwards the stream is in the transmission phase. `is_greeted`: the server has greeted already.
pub fn open(stream: &mut (impl Read + Write), is_greeted: bool, volume: &str) -> Result<Export, HandshakeError> {
    if !is_greeted {
        greet(stream)?;
    }
    let structured = match ask(stream, option::STRUCTURED_REPLY, &[])? {
        Reply { kind: option_reply::ACK, .. } => true,
        Reply { kind, .. } if kind & option_reply::IS_ERROR != 0 => false,
        _ => return Err(HandshakeError::Malformed { option: option::STRUCTURED_REPLY }),
    };
    Ok(describe(stream, option::GO, volume, structured)?.export)
}

/// An export as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    pub export: Export,
    /// What the server calls it, if it says; it may have been asked for by another name.
    pub name: Option<String>,
}

/// The volume as it is now, without opening it.
pub fn inspect(stream: &mut (impl Read + Write), is_greeted: bool, volume: &str) -> Result<Described, HandshakeError> {
    if !is_greeted {
        greet(stream)?;
    }
    let described = describe(stream, option::INFO, volume, false)?;
    abort(stream)?;
    Ok(described)
}

/// The names that the server offers.
pub fn list(stream: &mut (impl Read + Write), is_greeted: bool) -> Result<Vec<String>, HandshakeError> {
    if !is_greeted {
        greet(stream)?;
    }
    send_option(stream, option::LIST, &[])?;
    let mut names = Vec::new();
    while names.len() < NAMES_LIMIT {
        let reply = read_reply(stream, option::LIST)?;
        match reply.kind {
            option_reply::ACK => {
                abort(stream)?;
                break;
            }
            option_reply::SERVER if reply.data.len() >= 4 => {
                let length = u32_at(&reply.data, 0) as usize;
                let name = reply.data.get(4..4 + length).ok_or(HandshakeError::Malformed { option: option::LIST })?;
                names.push(String::from_utf8_lossy(name).into_owned());
            }
            kind if kind & option_reply::IS_ERROR != 0 => break, // it doesn't tell
            _ => return Err(HandshakeError::Malformed { option: option::LIST }),
        }
    }
    Ok(names)
}

fn greet(stream: &mut (impl Read + Write)) -> Result<(), HandshakeError> {
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting)?;
    let flags = u16_at(&greeting, 16);
    if u64_at(&greeting, 0) != INIT_MAGIC || u64_at(&greeting, 8) != OPTION_MAGIC || flags & FIXED_NEWSTYLE == 0 {
        return Err(HandshakeError::NotNbd);
    }
    stream.write_all(&u32::from(flags & (FIXED_NEWSTYLE | NO_ZEROES)).to_be_bytes())?;
    Ok(())
}

/// GO or INFO. Both answer with any number of INFO replies, then ACK or an error.
fn describe(
    stream: &mut (impl Read + Write),
    option: u32,
    volume: &str,
    structured: bool,
) -> Result<Described, HandshakeError> {
    let malformed = HandshakeError::Malformed { option };
    let mut data = Vec::with_capacity(volume.len() + 10);
    data.extend_from_slice(&(volume.len() as u32).to_be_bytes());
    data.extend_from_slice(volume.as_bytes());
    data.extend_from_slice(&2u16.to_be_bytes());
    data.extend_from_slice(&info::NAME.to_be_bytes());
    data.extend_from_slice(&info::BLOCK_SIZE.to_be_bytes());
    send_option(stream, option, &data)?;
    let (mut described, mut name) = (None, None);
    let (mut minimum, mut maximum) = (1, DEFAULT_MAXIMUM);
    for _ in 0..REPLIES_LIMIT {
        let Reply { kind, data } = read_reply(stream, option)?;
        match kind {
            option_reply::ACK => {
                let (size, flags) = described.ok_or(malformed)?;
                let export = Export { size, flags, minimum, maximum, structured };
                return Ok(Described { export, name });
            }
            option_reply::INFO if data.len() >= 2 => match u16_at(&data, 0) {
                info::EXPORT if data.len() == 12 => described = Some((u64_at(&data, 2), Flags(u16_at(&data, 10)))),
                info::BLOCK_SIZE if data.len() == 14 => (minimum, maximum) = (u32_at(&data, 2), u32_at(&data, 10)),
                info::NAME => name = Some(String::from_utf8_lossy(&data[2..]).into_owned()),
                info::EXPORT | info::BLOCK_SIZE => return Err(malformed),
                _ => {}
            },
            option_reply::ERR_UNKNOWN => return Err(HandshakeError::Unknown { volume: volume.into() }),
            option_reply::ERR_TLS_REQUIRED => return Err(HandshakeError::Tls),
            option_reply::ERR_UNSUP => return Err(HandshakeError::TooOld),
            code if code & option_reply::IS_ERROR != 0 => {
                let text = String::from_utf8_lossy(&data).into_owned();
                return Err(HandshakeError::Refused {
                    volume: volume.into(),
                    code: code & !option_reply::IS_ERROR,
                    text,
                });
            }
            _ => return Err(malformed),
        }
    }
    Err(malformed)
}

struct Reply {
    kind: u32,
    data: Vec<u8>,
}

fn ask(stream: &mut (impl Read + Write), option: u32, data: &[u8]) -> Result<Reply, HandshakeError> {
    send_option(stream, option, data)?;
    read_reply(stream, option)
}

fn send_option(stream: &mut impl Write, option: u32, data: &[u8]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(16 + data.len());
    bytes.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    bytes.extend_from_slice(&option.to_be_bytes());
    bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    stream.write_all(&bytes)
}

fn read_reply(stream: &mut impl Read, option: u32) -> Result<Reply, HandshakeError> {
    let mut header = [0; 20];
    stream.read_exact(&mut header)?;
    let length = u32_at(&header, 16);
    if u64_at(&header, 0) != OPTION_REPLY_MAGIC || u32_at(&header, 8) != option || length > REPLY_LIMIT {
        return Err(HandshakeError::Malformed { option });
    }
    let mut data = vec![0; length as usize];
    stream.read_exact(&mut data)?;
    Ok(Reply { kind: u32_at(&header, 12), data })
}

/// Says goodbye. A server may hang up without an answer, so none is waited for.
fn abort(stream: &mut impl Write) -> Result<(), HandshakeError> {
    match send_option(stream, option::ABORT, &[]) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
