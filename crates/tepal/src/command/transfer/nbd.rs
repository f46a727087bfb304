//! An NBD server as the place that an image is read from: fixed newstyle negotiation, structured replies and the context
//! `base:allocation` where the server has them (NBD protocol, `doc/proto.md`).

use super::input::{Content, Found, MOST_ZEROS};
use crate::attach::nbd::{TlsStream, secured};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use tepal_gateway::nbd::address::{Address, Place};
use tepal_gateway::nbd::wire::{
    self, INIT_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, RequestHeader, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC,
    allocation, chunk, command, handshake_flag, option, option_reply,
};
use tepal_model::text::shown;

/// A server that is silent for longer is given up.
const PATIENCE: Duration = Duration::from_secs(120);
/// Bytes of one read. Servers take 32 MiB, if they say nothing of it.
const READ: u32 = 4 << 20;
/// Requests and their bytes that are under way at a time.
const MOST_ASKED: usize = 64;
const MOST_BYTES: u64 = 16 << 20;
/// Bytes of one question about holes.
const STATUS: u64 = 1 << 31;
/// Of an option's reply, and of a text in an error: far more than a server has to say.
const LONGEST_WORD: u32 = 64 << 10;
/// Runs of one answer about holes.
const MOST_RUNS: u32 = 8 << 20;

/// An export, with its size in bytes.
pub fn open(address: &Address) -> io::Result<(Export, u64)> {
    let stream = Stream::dial(address.place())?;
    let mut connection = Connection::new(stream)?;
    let size = connection.negotiate(address.export())?;
    let (give, told) = sync_channel(2);
    std::thread::spawn(move || connection.tell_all(size, &give));
    Ok((Export { told, kept: None }, size))
}

/// What an export holds, from its beginning to its end. A thread reads it.
pub struct Export {
    told: Receiver<io::Result<Piece>>,
    /// What was told and doesn't go with what came before.
    kept: Option<Piece>,
}

enum Piece {
    Data(Vec<u8>),
    Zeros(u64),
    End,
}

impl Content for Export {
    fn next(&mut self, data: &mut Vec<u8>) -> io::Result<Found> {
        data.clear();
        let mut zeros = 0;
        loop {
            let piece = match self.kept.take() {
                Some(piece) => piece,
                None => self.told.recv().unwrap_or_else(|_| Err(io::ErrorKind::UnexpectedEof.into()))?,
            };
            match piece {
                Piece::Data(bytes) if zeros == 0 && data.is_empty() => *data = bytes,
                // Little is put together, much isn't copied.
                Piece::Data(bytes) if zeros == 0 && data.len() + bytes.len() <= READ as usize => data.extend(bytes),
                Piece::Zeros(length) if data.is_empty() && (zeros == 0 || zeros + length <= MOST_ZEROS) => {
                    zeros += length;
                }
                Piece::End if data.is_empty() && zeros == 0 => return Ok(Found::End),
                piece => {
                    self.kept = Some(piece);
                    return Ok(if zeros > 0 { Found::Zeros(zeros) } else { Found::Data });
                }
            }
        }
    }
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Arc<TlsStream>),
}

impl Stream {
    fn dial(place: &Place) -> io::Result<Self> {
        match place {
            Place::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Ok(Stream::Unix(stream))
            }
            Place::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            Place::Tls(address, identity) => {
                let stream = secured(address, identity)?;
                stream.tcp().set_read_timeout(Some(PATIENCE))?;
                stream.tcp().set_write_timeout(Some(PATIENCE))?;
                Ok(Stream::Tls(Arc::new(stream)))
            }
        }
    }

    fn twin(&self) -> io::Result<Self> {
        match self {
            Stream::Unix(stream) => stream.try_clone().map(Stream::Unix),
            Stream::Tcp(stream) => stream.try_clone().map(Stream::Tcp),
            Stream::Tls(stream) => Ok(Stream::Tls(stream.clone())),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = match self {
            Stream::Unix(stream) => stream.read(buffer),
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Tls(stream) => TlsStream::read(stream, buffer),
        };
        read.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "the server is silent"),
            _ => error,
        })
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.write(bytes),
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Tls(stream) => TlsStream::write(stream, bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A part of the answer to an option: its kind, and its data.
type Said = (u32, Vec<u8>);

/// What was asked for, in order.
enum Asked {
    Zeros(u64),
    /// By its cookie.
    Read(u64),
}

/// A read that is under way.
struct Pending {
    offset: u64,
    bytes: Vec<u8>,
    filled: usize,
    is_done: bool,
}

struct Connection {
    reader: BufReader<Stream>,
    writer: Stream,
    /// Of a read, in bytes.
    most: u32,
    /// Bytes of the server's smallest block: it's asked for whole ones.
    smallest: u64,
    /// The context `base:allocation`, if the server has it.
    context: Option<u32>,
    next_cookie: u64,
    pending: BTreeMap<u64, Pending>,
    /// The question about holes that is under way.
    status: Option<u64>,
    /// What is known of what comes next: lengths, and whether they are zeros.
    runs: VecDeque<(u64, bool)>,
}

impl Connection {
    fn new(stream: Stream) -> io::Result<Self> {
        let writer = stream.twin()?;
        let reader = BufReader::with_capacity(64 << 10, stream);
        let (pending, runs) = (BTreeMap::new(), VecDeque::new());
        let (most, smallest, context, status) = (READ, 1, None, None);
        Ok(Connection { reader, writer, most, smallest, context, next_cookie: 1, pending, status, runs })
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn number(&mut self) -> io::Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn long_number(&mut self) -> io::Result<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn word(&mut self, length: u32) -> io::Result<Vec<u8>> {
        if length > LONGEST_WORD {
            return Err(nonsense("a word of the server is too long"));
        }
        let mut bytes = vec![0; length as usize];
        self.reader.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn greet(&mut self) -> io::Result<()> {
        if self.long_number()? != INIT_MAGIC || self.long_number()? != OPTION_MAGIC {
            return Err(nonsense("what answers is no NBD server of today's kind"));
        }
        let flags = u16::from_be_bytes(self.array()?) & (handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
        self.writer.write_all(&u32::from(flags).to_be_bytes())
    }

    /// Says hello and asks for the export: its size.
    fn negotiate(&mut self, export: &str) -> io::Result<u64> {
        // Over TLS, that has been said before it began.
        if !matches!(self.writer, Stream::Tls(_)) {
            self.greet()?;
        }
        let name = export.as_bytes();
        let named = [&(name.len() as u32).to_be_bytes()[..], name].concat();
        if self.option(option::STRUCTURED_REPLY, &[])?.is_ok() {
            let context = b"base:allocation";
            let asked = [&named[..], &1u32.to_be_bytes(), &(context.len() as u32).to_be_bytes(), context].concat();
            let said = self.option(option::SET_META_CONTEXT, &asked)?.unwrap_or_default();
            let found =
                said.iter().find(|(kind, data)| *kind == option_reply::META_CONTEXT && data.get(4..) == Some(context));
            self.context = found.and_then(|(_, data)| data.first_chunk().map(|id| u32::from_be_bytes(*id)));
        }
        let asked = [&named[..], &1u16.to_be_bytes(), &wire::info::BLOCK_SIZE.to_be_bytes()].concat();
        let said = self
            .option(option::GO, &asked)?
            .map_err(|refused| io::Error::other(format!("export '{export}': {refused}")))?;
        let of_info = |info: u16| {
            let is_it =
                move |(kind, data): &&Said| *kind == option_reply::INFO && data.starts_with(&info.to_be_bytes());
            said.iter().find(is_it).map(|(_, data)| &data[2..])
        };
        let number = |said: &[u8], at: usize| Some(u32::from_be_bytes(*said.get(at..)?.first_chunk()?));
        let of_blocks = of_info(wire::info::BLOCK_SIZE).and_then(|said| number(said, 0).zip(number(said, 8)));
        if let Some((smallest, most)) = of_blocks {
            if !smallest.is_power_of_two() || smallest > READ || smallest > most {
                let told = format!(
                    "it's read only in blocks of {smallest} bytes; they have to be a power of two, {READ} at most"
                );
                return Err(io::Error::other(told));
            }
            let unit = if most < 4096 { smallest } else { smallest.max(4096) };
            (self.most, self.smallest) = (READ.min(most / unit * unit), smallest.into());
        }
        let size = of_info(wire::info::EXPORT).and_then(|data| data.first_chunk());
        size.map(|size| u64::from_be_bytes(*size))
            .ok_or_else(|| nonsense("the server doesn't say how large the export is"))
    }

    /// The parts of the answer to an option; or why it's refused.
    fn option(&mut self, asked: u32, data: &[u8]) -> io::Result<Result<Vec<Said>, String>> {
        let head = [&OPTION_MAGIC.to_be_bytes()[..], &asked.to_be_bytes(), &(data.len() as u32).to_be_bytes()].concat();
        self.writer.write_all(&[&head, data].concat())?;
        let mut said = Vec::new();
        loop {
            if self.long_number()? != OPTION_REPLY_MAGIC || self.number()? != asked {
                return Err(nonsense("no answer to an option where one must begin"));
            }
            let (kind, length) = (self.number()?, self.number()?);
            let data = self.word(length)?;
            match kind {
                option_reply::ACK => return Ok(Ok(said)),
                option_reply::ERR_TLS_REQUIRED => return Ok(Err("the server wants TLS".to_owned())),
                option_reply::ERR_UNKNOWN => return Ok(Err("the server has none of that name".to_owned())),
                kind if kind & option_reply::IS_ERROR != 0 => {
                    return Ok(Err(format!(
                        "refused with error {:#x}: {}",
                        kind,
                        shown(&String::from_utf8_lossy(&data))
                    )));
                }
                kind => said.push((kind, data)),
            }
            if said.len() > 64 {
                return Err(nonsense("the answer to an option has no end"));
            }
        }
    }

    /// Reads all, and gives it away piece by piece. Whoever takes it may go at any time.
    fn tell_all(mut self, size: u64, give: &SyncSender<io::Result<Piece>>) {
        let told = self.tell(size, give);
        let _ = self.send(command::DISC, 0, 0); // a courtesy
        let last = match told {
            Ok(true) => Ok(Piece::End),
            Ok(false) => return,
            Err(error) => Err(error),
        };
        let _ = give.send(last);
    }

    /// `false` if nobody takes it any more.
    fn tell(&mut self, size: u64, give: &SyncSender<io::Result<Piece>>) -> io::Result<bool> {
        let (mut at, mut done) = (0, 0);
        let mut asked = VecDeque::new();
        loop {
            let under_way =
                |pending: &BTreeMap<u64, Pending>| pending.values().map(|it| it.bytes.len() as u64).sum::<u64>();
            while at < size && asked.len() < MOST_ASKED && under_way(&self.pending) < MOST_BYTES {
                let one = self.ask(at, size).map_err(|error| at_byte(at, &error))?;
                at += match &one {
                    Asked::Zeros(length) => *length,
                    Asked::Read(cookie) => self.pending[cookie].bytes.len() as u64,
                };
                asked.push_back(one);
            }
            let piece = match asked.pop_front() {
                None => return Ok(true),
                Some(Asked::Zeros(length)) => Piece::Zeros(length),
                Some(Asked::Read(cookie)) => {
                    while !self.pending.get(&cookie).is_some_and(|read| read.is_done) {
                        self.hear().map_err(|error| at_byte(done, &error))?;
                    }
                    Piece::Data(self.pending.remove(&cookie).map_or_else(Vec::new, |read| read.bytes))
                }
            };
            done += match &piece {
                Piece::Data(bytes) => bytes.len() as u64,
                Piece::Zeros(length) => *length,
                Piece::End => 0,
            };
            if give.send(Ok(piece)).is_err() {
                return Ok(false);
            }
        }
    }

    /// Asks for what comes at `at`.
    fn ask(&mut self, at: u64, size: u64) -> io::Result<Asked> {
        if self.runs.is_empty() {
            let length = (size - at).min(STATUS);
            match self.context {
                None => self.runs.push_back((length, false)),
                Some(_) => {
                    self.status = Some(self.send(command::BLOCK_STATUS, at, length as u32)?);
                    while self.status.is_some() {
                        self.hear()?;
                    }
                    // It may tell of more than was asked for.
                    let mut left = length;
                    self.runs.retain_mut(|run| {
                        run.0 = run.0.min(left);
                        left -= run.0;
                        run.0 > 0
                    });
                    self.runs = in_blocks(&self.runs, at..size, self.smallest);
                }
            }
        }
        let (length, is_zero) = self.runs.pop_front().ok_or_else(|| nonsense("an empty answer about holes"))?;
        if is_zero {
            return Ok(Asked::Zeros(length));
        }
        let part = length.min(self.most.into());
        if part < length {
            self.runs.push_front((length - part, false));
        }
        let cookie = self.send(command::READ, at, part as u32)?;
        let bytes = vec![0; part as usize];
        self.pending.insert(cookie, Pending { offset: at, bytes, filled: 0, is_done: false });
        Ok(Asked::Read(cookie))
    }

    fn send(&mut self, kind: u16, offset: u64, length: u32) -> io::Result<u64> {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.writer.write_all(&RequestHeader { flags: 0, kind, cookie, offset, length }.encode())?;
        Ok(cookie)
    }

    /// Takes one reply, or one chunk of one.
    fn hear(&mut self) -> io::Result<()> {
        match self.number()? {
            SIMPLE_REPLY_MAGIC => {
                let (error, cookie) = (self.number()?, self.long_number()?);
                refused(error, &[])?;
                let read = self.pending.get_mut(&cookie).filter(|read| !read.is_done && read.filled == 0);
                let read = read.ok_or_else(|| nonsense("an answer to nothing that was asked"))?;
                self.reader.read_exact(&mut read.bytes)?;
                read.is_done = true;
                Ok(())
            }
            STRUCTURED_REPLY_MAGIC => self.hear_chunk(),
            _ => Err(nonsense("no reply where one must begin")),
        }
    }

    fn hear_chunk(&mut self) -> io::Result<()> {
        let (flags, kind) = (u16::from_be_bytes(self.array()?), u16::from_be_bytes(self.array()?));
        let (cookie, length) = (self.long_number()?, self.number()?);
        match kind {
            chunk::NONE if length == 0 => {}
            chunk::OFFSET_DATA if length > 8 => {
                let offset = self.long_number()?;
                let part = part_of(&mut self.pending, cookie, offset, u64::from(length) - 8)?;
                self.reader.read_exact(part)?;
            }
            chunk::OFFSET_HOLE if length == 12 => {
                let (offset, hole) = (self.long_number()?, self.number()?);
                part_of(&mut self.pending, cookie, offset, hole.into())?.fill(0);
            }
            chunk::BLOCK_STATUS if (12..=MOST_RUNS).contains(&length) && (length - 4).is_multiple_of(8) => {
                self.hear_runs(cookie, (length - 4) / 8)?;
            }
            kind if kind & chunk::IS_ERROR != 0 && length >= 6 => {
                let said = self.word(length)?;
                let (error, after) = said.split_first_chunk().ok_or_else(|| nonsense("an error without a number"))?;
                let text = after.split_first_chunk().map_or(&[][..], |(long, rest)| {
                    rest.get(..usize::from(u16::from_be_bytes(*long))).unwrap_or_default()
                });
                refused(u32::from_be_bytes(*error).max(1), text)?;
            }
            _ => return Err(nonsense("a part of a reply that nobody asked for")),
        }
        if flags & chunk::DONE == 0 {
            return Ok(());
        }
        match self.pending.get_mut(&cookie) {
            Some(read) if read.filled == read.bytes.len() => read.is_done = true,
            Some(_) => return Err(nonsense("a read is answered with too few bytes")),
            None if self.status == Some(cookie) => self.status = None,
            None => return Err(nonsense("the end of a reply to nothing that was asked")),
        }
        Ok(())
    }

    fn hear_runs(&mut self, cookie: u64, count: u32) -> io::Result<()> {
        let context = self.number()?;
        if self.status != Some(cookie) {
            return Err(nonsense("an answer about holes that nobody asked for"));
        }
        for _ in 0..count {
            let (length, flags) = (self.number()?, self.number()?);
            if Some(context) == self.context && length > 0 {
                self.runs.push_back((length.into(), flags & allocation::ZERO != 0));
            }
        }
        Ok(())
    }
}

/// The same runs, but of whole blocks: one that isn't all zeros counts as data. They begin where the bytes do, which may end within one.
fn in_blocks(runs: &VecDeque<(u64, bool)>, bytes: Range<u64>, block: u64) -> VecDeque<(u64, bool)> {
    let (mut told, mut at, mut found) = (bytes.start, bytes.start, VecDeque::new());
    for (length, is_zero) in runs {
        let end = at + length;
        let (first, past) = (told.max(at / block * block), end.next_multiple_of(block).min(bytes.end));
        if !is_zero && past > told {
            found.extend([(first - told, true), (past - first, false)]);
            told = past;
        }
        at = end;
    }
    // Of the last block, a part may not have been told.
    let end = if at == bytes.end { at } else { at / block * block };
    if end > told {
        found.push_back((end - told, true));
    } else if told == bytes.start && at > told {
        found.push_back((block.min(bytes.end - told), false));
    }
    found.retain(|(length, _)| *length > 0);
    found
}

/// Where these bytes of a read belong. They come once each.
fn part_of(pending: &mut BTreeMap<u64, Pending>, cookie: u64, offset: u64, length: u64) -> io::Result<&mut [u8]> {
    let read = pending.get_mut(&cookie).filter(|read| !read.is_done);
    let found = read.and_then(|read| {
        let from = usize::try_from(offset.checked_sub(read.offset)?).ok()?;
        let to = from.checked_add(usize::try_from(length).ok()?)?;
        read.filled = read.filled.checked_add(to - from).filter(|filled| *filled <= read.bytes.len())?;
        read.bytes.get_mut(from..to)
    });
    found.ok_or_else(|| nonsense("bytes that nobody asked for"))
}

/// What a server says instead of an answer. Its numbers are Linux's.
fn refused(error: u32, text: &[u8]) -> io::Result<()> {
    if error == 0 {
        return Ok(());
    }
    let reason = io::Error::from_raw_os_error(i32::try_from(error).unwrap_or(5));
    let text = shown(&String::from_utf8_lossy(text));
    let said = if text.is_empty() { String::new() } else { format!(" ({text})") };
    Err(io::Error::new(reason.kind(), format!("the server answers: {reason}{said}")))
}

fn at_byte(offset: u64, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("at byte {offset}: {error}"))
}

fn nonsense(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Greets, answers each option of the client as told, then each request as told.
    fn server(
        options: Vec<Vec<u8>>,
        answer: impl Fn(RequestHeader) -> Vec<u8> + Send + 'static,
    ) -> (tempfile::TempDir, Address) {
        let folder = tempfile::tempdir().expect("space");
        let socket = folder.path().join("s");
        let listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            stream.write_all(b"NBDMAGICIHAVEOPT\0\x03").expect("a client");
            stream.read_exact(&mut [0; 4]).expect("its flags");
            for reply in options {
                let mut head = [0; 16];
                stream.read_exact(&mut head).expect("an option");
                let length = u32::from_be_bytes(*head.last_chunk().expect("four bytes"));
                stream.read_exact(&mut vec![0; length as usize]).expect("its data");
                stream.write_all(&reply).expect("a client");
            }
            let mut head = [0; RequestHeader::SIZE];
            while stream.read_exact(&mut head).is_ok() {
                let reply = answer(RequestHeader::decode(&head).expect("a request"));
                if stream.write_all(&reply).is_err() {
                    return;
                }
            }
        });
        (folder, Address::unix(socket))
    }

    fn replied(to: u32, parts: &[(u32, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        parts.iter().for_each(|(kind, data)| wire::put_option_reply(&mut bytes, to, *kind, &[data]));
        bytes
    }

    /// Of a server that knows nothing but simple replies.
    fn plain(size: u64) -> Vec<Vec<u8>> {
        let export = [&0u16.to_be_bytes()[..], &size.to_be_bytes(), &[0, 1]].concat();
        vec![
            replied(option::STRUCTURED_REPLY, &[(option_reply::ERR_UNSUP, b"")]),
            replied(option::GO, &[(option_reply::INFO, &export), (option_reply::ACK, b"")]),
        ]
    }

    fn all(address: &Address) -> io::Result<Vec<u8>> {
        let (mut export, _) = open(address)?;
        let (mut bytes, mut data) = (Vec::new(), Vec::new());
        loop {
            match export.next(&mut data)? {
                Found::Data => bytes.extend(&data),
                Found::Zeros(length) => bytes.resize(bytes.len() + length as usize, 0),
                Found::End => return Ok(bytes),
            }
        }
    }

    #[test]
    fn a_server_without_structured_replies_is_read_whole() {
        let size = 3 * u64::from(READ) + 700;
        let byte = |at: u64| (at / 512 % 251) as u8;
        let (_folder, address) = server(plain(size), move |asked| {
            let data = (asked.offset..asked.offset + u64::from(asked.length)).map(byte);
            wire::simple_reply(0, asked.cookie)
                .into_iter()
                .chain(data.filter(|_| asked.kind == command::READ))
                .collect()
        });
        assert!(all(&address).expect("readable") == (0..size).map(byte).collect::<Vec<u8>>());
    }

    /// Of a server that knows its holes: with this for the context's id.
    fn structured(size: u64, context: u32) -> Vec<Vec<u8>> {
        let said = [&context.to_be_bytes()[..], b"base:allocation"].concat();
        let [_, go] = plain(size).try_into().expect("two answers");
        vec![
            replied(option::STRUCTURED_REPLY, &[(option_reply::ACK, b"")]),
            replied(option::SET_META_CONTEXT, &[(option_reply::META_CONTEXT, &said), (option_reply::ACK, b"")]),
            go,
        ]
    }

    #[test]
    fn holes_of_any_length_are_told_and_not_read() {
        let size = (5 << 30) + 4096;
        let (_folder, address) = server(structured(size, 9), |asked| {
            let end = asked.offset + u64::from(asked.length);
            let hole = end.min(5 << 30) - asked.offset;
            let runs = [(hole as u32, allocation::HOLE | allocation::ZERO), ((end - asked.offset - hole) as u32, 0)];
            let runs = runs.iter().filter(|run| run.0 > 0).flat_map(|run| [run.0.to_be_bytes(), run.1.to_be_bytes()]);
            let (kind, body) = match asked.kind {
                command::BLOCK_STATUS => (
                    chunk::BLOCK_STATUS,
                    std::iter::once(9u32.to_be_bytes()).chain(runs).flatten().collect::<Vec<u8>>(),
                ),
                _ => (chunk::OFFSET_DATA, [&asked.offset.to_be_bytes()[..], &vec![5; asked.length as usize]].concat()),
            };
            [&wire::chunk_header(chunk::DONE, kind, asked.cookie, body.len() as u32)[..], &body].concat()
        });
        let (mut export, told) = open(&address).expect("it answers");
        let (mut zeros, mut data) = (0, Vec::new());
        while let Found::Zeros(length) = export.next(&mut data).expect("readable") {
            assert!(length > 0);
            zeros += length;
        }
        assert_eq!((told, zeros, &data[..]), (size, 5 << 30, &[5; 4096][..]));
        assert_eq!(export.next(&mut data).expect("readable"), Found::End);
    }

    /// Story: of a server that is read in blocks of 64 KiB, holes had ended within one, and the import failed there.
    #[test]
    fn a_server_is_read_in_blocks_as_large_as_it_says() {
        const SIZE: u64 = (1 << 20) + 4096;
        let data = |at: u64| (100_000..100_512).contains(&at) || (300_000..500_000).contains(&at) || at >= SIZE - 512;
        let byte = move |at: u64| if data(at) { (at / 512 % 251 + 1) as u8 } else { 0 };
        let mut said = structured(SIZE, 9);
        let export = [&0u16.to_be_bytes()[..], &SIZE.to_be_bytes(), &[0, 1]].concat();
        let blocks =
            [&wire::info::BLOCK_SIZE.to_be_bytes()[..], &[1 << 16, 1 << 16, 1 << 25].map(u32::to_be_bytes).concat()];
        let blocks = blocks.concat();
        let infos = [(option_reply::INFO, &export[..]), (option_reply::INFO, &blocks), (option_reply::ACK, b"")];
        said[2] = replied(option::GO, &infos);
        let (_folder, address) = server(said, move |asked| {
            let end = asked.offset + u64::from(asked.length);
            let is_whole = asked.offset % (1 << 16) == 0 && (end % (1 << 16) == 0 || end == SIZE);
            let (kind, body) = match asked.kind {
                // One run at a time.
                command::BLOCK_STATUS => {
                    let is_data = data(asked.offset);
                    let length = (asked.offset..end).take_while(|at| data(*at) == is_data).count() as u32;
                    let flags = if is_data { 0 } else { allocation::ZERO };
                    (chunk::BLOCK_STATUS, [9, length, flags].map(u32::to_be_bytes).concat())
                }
                _ if !is_whole => (chunk::ERROR, [&22u32.to_be_bytes()[..], &[0, 0]].concat()),
                _ => {
                    let read: Vec<u8> = (asked.offset..end).map(byte).collect();
                    (chunk::OFFSET_DATA, [&asked.offset.to_be_bytes()[..], &read].concat())
                }
            };
            [&wire::chunk_header(chunk::DONE, kind, asked.cookie, body.len() as u32)[..], &body].concat()
        });
        assert!(all(&address).expect("readable") == (0..SIZE).map(byte).collect::<Vec<u8>>());
    }

    #[test]
    fn an_error_names_the_byte() {
        let (_folder, address) = server(plain(2 * u64::from(READ)), |asked| match asked.offset {
            0 => [&wire::simple_reply(0, asked.cookie)[..], &vec![1; asked.length as usize]].concat(),
            _ => wire::simple_reply(5, asked.cookie).to_vec(),
        });
        let error = all(&address).expect_err("half of it can't be read").to_string();
        assert!(error.starts_with(&format!("at byte {READ}: the server answers: ")), "{error}");
    }

    #[test]
    fn what_was_not_asked_for_is_refused() {
        type Reply = fn(RequestHeader) -> Vec<u8>;
        let strange: [Reply; 5] = [
            |asked| wire::simple_reply(0, asked.cookie + 1).to_vec(),
            |asked| wire::chunk_header(0, chunk::OFFSET_DATA, asked.cookie, u32::MAX).to_vec(),
            |asked| {
                [&wire::chunk_header(1, chunk::OFFSET_DATA, asked.cookie, 9)[..], &[0, 0, 0, 0, 0, 0, 0, 0, 7]].concat()
            },
            |asked| [&wire::chunk_header(1, chunk::OFFSET_HOLE, asked.cookie, 12)[..], &[255; 12]].concat(),
            |_| b"HTTP/1.1 400 Bad Request".to_vec(),
        ];
        for answer in strange {
            let (_folder, address) = server(plain(4096), move |asked| {
                let mut reply = answer(asked);
                reply.resize(reply.len().max(64), 0);
                reply
            });
            let error = all(&address).expect_err("nonsense");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        }
    }
}
