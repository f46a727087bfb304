//! One connection to an NBD server: its hello, and what is under way on it.

use super::{Answer, Ask, LARGEST_BLOCK, READ, Told, What};
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tepal_gateway::nbd::address::{Address, Place};
use tepal_gateway::nbd::wire::{
    self, INIT_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, RequestHeader, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC,
    allocation, chunk, command, handshake_flag, option, option_reply,
};
use tepal_model::Buffer;
use tepal_model::text::shown;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, split};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, interval, timeout};

/// A server that has been asked and is silent for so long is connected to anew.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often that is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Of the answer to an option, and of a text in an error: far more than a server has to say.
const LONGEST_WORD: u32 = 64 << 10;
/// Parts of the answer to an option.
const MOST_PARTS: usize = 64;
/// ESHUTDOWN: what says it is about to end, and may be started again.
const SHUTTING_DOWN: u32 = 108;
/// Bytes of one answer about zeros: 64 Ki runs.
const MOST_RUNS: u32 = 512 << 10;

/// Bytes of requests that are sent at once.
const MOST_HEADS: usize = 4 << 10;
/// Bytes that are received at once.
const RECEIVED: usize = 256 << 10;

trait Both: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Both for T {}

type Stream = BufReader<Box<dyn Both>>;

/// A server that has said hello.
pub struct Connected {
    stream: Stream,
    pub export: Export,
}

/// What a server says of the export.
#[derive(Clone, Copy)]
pub struct Export {
    /// Bytes that it has.
    pub size: u64,
    /// Bytes of its smallest block: requests are for whole ones.
    pub smallest: u64,
    /// The context `base:allocation`, if the server has it.
    context: Option<u32>,
}

impl Export {
    /// Whole blocks that have all of these bytes; at its end, as much as there is.
    fn widened(self, bytes: &Range<u64>) -> Range<u64> {
        let end = bytes.end.next_multiple_of(self.smallest).min(self.size.max(bytes.end));
        bytes.start / self.smallest * self.smallest..end
    }
}

/// The size of the smallest block, by what a server says of its blocks. An error if it can't be read so.
fn smallest_block(said: &[u8]) -> io::Result<u64> {
    let number = |at: usize| Some(u64::from(u32::from_be_bytes(*said.get(at..)?.first_chunk()?)));
    let (Some(smallest), Some(most)) = (number(0), number(8)) else { return Ok(1) };
    if most < READ {
        return Err(io::Error::other(format!("it gives only {most} bytes in one answer; 1 MiB are needed")));
    } else if !smallest.is_power_of_two() || smallest > LARGEST_BLOCK {
        let limit = LARGEST_BLOCK;
        let told =
            format!("it's read only in blocks of {smallest} bytes; they have to be a power of two, {limit} at most");
        return Err(io::Error::other(told));
    }
    Ok(smallest)
}

pub async fn connect(address: &Address) -> io::Result<Connected> {
    let stream: Box<dyn Both> = match address.place() {
        Place::Unix(path) => Box::new(UnixStream::connect(path).await?),
        Place::Tcp(host) => {
            let stream = TcpStream::connect(host).await?;
            stream.set_nodelay(true)?;
            Box::new(stream)
        }
        Place::Tls(..) => return Err(io::ErrorKind::Unsupported.into()),
    };
    let export = Export { size: 0, smallest: 1, context: None };
    let mut connected = Connected { stream: BufReader::with_capacity(RECEIVED, stream), export };
    connected.negotiate(address.export()).await?;
    Ok(connected)
}

fn nonsense(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// A part of the answer to an option: its kind, and its data.
type Said = (u32, Vec<u8>);

async fn word(stream: &mut (impl AsyncRead + Unpin), length: u32) -> io::Result<Vec<u8>> {
    if length > LONGEST_WORD {
        return Err(nonsense("a word of the server is too long"));
    }
    let mut bytes = vec![0; length as usize];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

impl Connected {
    async fn negotiate(&mut self, export: &str) -> io::Result<()> {
        if self.stream.read_u64().await? != INIT_MAGIC || self.stream.read_u64().await? != OPTION_MAGIC {
            return Err(nonsense("what answers is no NBD server of today's kind"));
        }
        let flags = self.stream.read_u16().await? & (handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
        self.stream.write_u32(flags.into()).await?;
        let name = export.as_bytes();
        let named = [&(name.len() as u32).to_be_bytes()[..], name].concat();
        if self.option(option::STRUCTURED_REPLY, &[]).await?.is_ok() {
            let context = b"base:allocation";
            let asked = [&named[..], &1u32.to_be_bytes(), &(context.len() as u32).to_be_bytes(), context].concat();
            let said = self.option(option::SET_META_CONTEXT, &asked).await?.unwrap_or_default();
            let is_it = |(kind, data): &&Said| *kind == option_reply::META_CONTEXT && data.get(4..) == Some(context);
            let id = said.iter().find(is_it).and_then(|(_, data)| data.first_chunk());
            self.export.context = id.map(|id| u32::from_be_bytes(*id));
        }
        let asked = [&named[..], &1u16.to_be_bytes(), &wire::info::BLOCK_SIZE.to_be_bytes()].concat();
        let said = self.option(option::GO, &asked).await?;
        let said = said.map_err(|refused| io::Error::other(format!("export '{}': {refused}", shown(export))))?;
        let of_info = |info: u16| {
            let is_it =
                move |(kind, data): &&Said| *kind == option_reply::INFO && data.starts_with(&info.to_be_bytes());
            said.iter().find(is_it).map(|(_, data)| &data[2..])
        };
        self.export.smallest = of_info(wire::info::BLOCK_SIZE).map_or(Ok(1), smallest_block)?;
        let size = of_info(wire::info::EXPORT).and_then(|data| data.first_chunk());
        let size = size.ok_or_else(|| nonsense("the server doesn't say how large the export is"))?;
        self.export.size = u64::from_be_bytes(*size);
        Ok(())
    }

    /// The parts of the answer to an option; or why it's refused.
    async fn option(&mut self, asked: u32, data: &[u8]) -> io::Result<Result<Vec<Said>, String>> {
        let head = [&OPTION_MAGIC.to_be_bytes()[..], &asked.to_be_bytes(), &(data.len() as u32).to_be_bytes()].concat();
        self.stream.write_all(&[&head, data].concat()).await?;
        let mut said = Vec::new();
        while said.len() <= MOST_PARTS {
            if self.stream.read_u64().await? != OPTION_REPLY_MAGIC || self.stream.read_u32().await? != asked {
                return Err(nonsense("no answer to an option where one must begin"));
            }
            let (kind, length) = (self.stream.read_u32().await?, self.stream.read_u32().await?);
            let data = word(&mut self.stream, length).await?;
            match kind {
                option_reply::ACK => return Ok(Ok(said)),
                option_reply::ERR_TLS_REQUIRED => return Ok(Err("the server wants TLS".to_owned())),
                option_reply::ERR_UNKNOWN => return Ok(Err("the server has none of that name".to_owned())),
                kind if kind & option_reply::IS_ERROR != 0 => {
                    let text = shown(&String::from_utf8_lossy(&data));
                    return Ok(Err(format!("refused with error {kind:#x}: {text}")));
                }
                kind => said.push((kind, data)),
            }
        }
        Err(nonsense("the answer to an option has no end"))
    }

    /// Answers until it breaks or is stopped: what broke it, and whether it had answered anything. What isn't answered then stays among
    /// what is unanswered.
    pub async fn serve(
        self,
        unanswered: &mut VecDeque<Ask>,
        asked: &mut mpsc::UnboundedReceiver<Ask>,
        stopped: impl Future<Output = ()>,
    ) -> Option<(String, bool)> {
        let under_way = Arc::new(UnderWay::default());
        let (reader, mut writer) = split(self.stream);
        let hearing = Hearing { reader, context: self.export.context, under_way: under_way.clone() };
        let broken = {
            let sending = send(&mut writer, self.export, &under_way, unanswered, asked);
            tokio::select! {
                error = hearing.hear_all() => Some(error.to_string()),
                error = sending => Some(error.to_string()),
                () = stopped => None,
            }
        };
        let has_answered = under_way.answered.load(Ordering::Relaxed) > 0;
        let left = std::mem::take(&mut *under_way.lock());
        unanswered.extend(left.into_values().map(|pending| pending.ask));
        broken.map(|reason| (reason, has_answered))
    }

    /// Whether these bytes can be read; if not, why.
    pub async fn try_read(self, range: Range<u64>) -> Result<(), String> {
        let (answer, told) = oneshot::channel();
        let mut unanswered = VecDeque::from([Ask { what: What::Bytes, range, answer }]);
        let (_nobody, mut asked) = mpsc::unbounded_channel();
        let mut read = Ok(());
        let answered = async {
            if let Ok(answer) = told.await {
                read = answer.map(drop);
            }
        };
        match self.serve(&mut unanswered, &mut asked, answered).await {
            Some((reason, _)) => Err(reason),
            None => read,
        }
    }
}

/// What was asked for and isn't answered.
#[derive(Default)]
struct UnderWay {
    pending: Mutex<BTreeMap<u64, Pending>>,
    answered: AtomicU64,
}

struct Pending {
    ask: Ask,
    /// What the server is asked for: whole blocks.
    range: Range<u64>,
    /// Of a read, except while some of them are being received.
    bytes: Option<Buffer>,
    filled: usize,
    runs: Vec<(u64, bool)>,
}

impl Pending {
    /// Bytes that are read.
    fn length(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }
}

impl UnderWay {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Pending>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, cookie: u64, ask: Ask, range: Range<u64>) {
        let is_read = ask.what == What::Bytes;
        let bytes = is_read.then(|| Buffer::zeroed((range.end - range.start) as usize));
        self.lock().insert(cookie, Pending { ask, range, bytes, filled: 0, runs: Vec::new() });
    }

    /// What is asked for by that, if it's of this kind.
    fn with<T>(&self, cookie: u64, what: What, work: impl FnOnce(&mut Pending) -> Option<T>) -> io::Result<T> {
        let mut pending = self.lock();
        let found = pending.get_mut(&cookie).filter(|pending| pending.ask.what == what).and_then(work);
        found.ok_or_else(|| nonsense("an answer to nothing that was asked"))
    }

    fn end(&self, cookie: u64, answer: Option<Answer>) -> io::Result<()> {
        let pending = self.lock().remove(&cookie);
        let Pending { ask, range, bytes, filled, runs } =
            pending.ok_or_else(|| nonsense("the end of an answer to nothing that was asked"))?;
        let is_whole = match ask.what {
            What::Bytes => filled as u64 == range.end - range.start,
            What::Zeros => runs.iter().any(|(length, _)| *length > 0),
        };
        let answer = match answer {
            Some(refused) => refused,
            None if !is_whole => {
                self.begin(cookie, ask, range);
                return Err(nonsense("an answer has too few bytes"));
            }
            None if ask.what == What::Bytes => {
                let bytes = bytes.map_or_else(Bytes::new, Buffer::freeze);
                let wanted = ask.range.start - range.start..ask.range.end - range.start;
                Ok(Told::Bytes(bytes.slice(wanted.start as usize..wanted.end as usize)))
            }
            None => {
                // It may tell of more than was asked for.
                let mut at = range.start;
                let cut = |(length, is_zero): (u64, bool)| {
                    let from = at.max(ask.range.start);
                    at += length;
                    (at.min(ask.range.end).saturating_sub(from), is_zero)
                };
                Ok(Told::Zeros(runs.into_iter().map(cut).filter(|(length, _)| *length > 0).collect()))
            }
        };
        self.answered.fetch_add(1, Ordering::Relaxed);
        let _ = ask.answer.send(answer); // nobody may wait for it any more
        Ok(())
    }
}

/// Sends what is asked for, as much at a time as there is, until that fails or nothing is heard for long.
async fn send(
    writer: &mut (impl AsyncWrite + Unpin),
    export: Export,
    under_way: &UnderWay,
    unanswered: &mut VecDeque<Ask>,
    asked: &mut mpsc::UnboundedReceiver<Ask>,
) -> io::Error {
    let (mut cookie, mut look, mut heads) = (0, interval(LOOK), Vec::new());
    let (mut heard, mut since) = (0, Instant::now());
    loop {
        if unanswered.is_empty() {
            tokio::select! {
                Some(ask) = asked.recv() => unanswered.push_back(ask),
                _ = look.tick() => {
                    let (now, is_idle) = (under_way.answered.load(Ordering::Relaxed), under_way.lock().is_empty());
                    if is_idle || now != heard {
                        (heard, since) = (now, Instant::now());
                    } else if since.elapsed() > PATIENCE {
                        return io::Error::new(io::ErrorKind::TimedOut, "the server is silent");
                    }
                    continue;
                }
            }
        }
        heads.clear();
        while heads.len() < MOST_HEADS
            && let Some(ask) = unanswered.pop_front().or_else(|| asked.try_recv().ok())
        {
            cookie += 1;
            heads.extend(begin(ask, cookie, export, under_way).iter().flatten());
        }
        match timeout(PATIENCE, writer.write_all(&heads)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error,
            Err(_) => return io::Error::new(io::ErrorKind::TimedOut, "the server takes no requests"),
        }
    }
}

/// The request by which the server is asked, if it has to be.
fn begin(ask: Ask, cookie: u64, export: Export, under_way: &UnderWay) -> Option<[u8; RequestHeader::SIZE]> {
    if ask.what == What::Zeros && export.context.is_none() {
        let _ = ask.answer.send(Ok(Told::Zeros(vec![(ask.range.end - ask.range.start, false)])));
        return None;
    }
    let kind = match ask.what {
        What::Bytes => command::READ,
        What::Zeros => command::BLOCK_STATUS,
    };
    let range = export.widened(&ask.range);
    let (offset, length) = (range.start, (range.end - range.start) as u32);
    under_way.begin(cookie, ask, range);
    Some(RequestHeader { flags: 0, kind, cookie, offset, length }.encode())
}

struct Hearing<R> {
    reader: R,
    context: Option<u32>,
    under_way: Arc<UnderWay>,
}

impl<R: AsyncRead + Unpin> Hearing<R> {
    /// Until it breaks.
    async fn hear_all(mut self) -> io::Error {
        loop {
            if let Err(error) = self.hear().await {
                return error;
            }
        }
    }

    /// One reply, or one chunk of one.
    async fn hear(&mut self) -> io::Result<()> {
        match self.reader.read_u32().await? {
            SIMPLE_REPLY_MAGIC => {
                let (error, cookie) = (self.reader.read_u32().await?, self.reader.read_u64().await?);
                if error != 0 {
                    return self.under_way.end(cookie, Some(Err(refusal(error, &[])?)));
                }
                let length = self.under_way.with(cookie, What::Bytes, |pending| Some(pending.length()))?;
                self.hear_bytes(cookie, 0, length).await?;
                self.under_way.end(cookie, None)
            }
            STRUCTURED_REPLY_MAGIC => self.hear_chunk().await,
            _ => Err(nonsense("no reply where one must begin")),
        }
    }

    /// These bytes of a read, which come once each.
    async fn hear_bytes(&mut self, cookie: u64, from: usize, length: usize) -> io::Result<()> {
        self.room_for(cookie, from, length)?;
        let mut bytes = self.under_way.with(cookie, What::Bytes, |pending| pending.bytes.take())?;
        self.reader.read_exact(&mut bytes[from..from + length]).await?;
        self.under_way.with(cookie, What::Bytes, |pending| {
            pending.bytes = Some(bytes);
            Some(())
        })
    }

    fn room_for(&self, cookie: u64, from: usize, length: usize) -> io::Result<()> {
        self.under_way.with(cookie, What::Bytes, |pending| {
            let end = from.checked_add(length).filter(|end| *end <= pending.length());
            let filled = pending.filled.checked_add(length).filter(|filled| *filled <= pending.length());
            pending.filled = end.and(filled)?;
            Some(())
        })
    }

    fn place(&self, cookie: u64, offset: u64) -> io::Result<usize> {
        self.under_way
            .with(cookie, What::Bytes, |pending| usize::try_from(offset.checked_sub(pending.range.start)?).ok())
    }

    async fn hear_chunk(&mut self) -> io::Result<()> {
        let (flags, kind) = (self.reader.read_u16().await?, self.reader.read_u16().await?);
        let (cookie, length) = (self.reader.read_u64().await?, self.reader.read_u32().await?);
        match kind {
            chunk::NONE if length == 0 => {}
            chunk::OFFSET_DATA if length > 8 => {
                let offset = self.reader.read_u64().await?;
                let from = self.place(cookie, offset)?;
                self.hear_bytes(cookie, from, length as usize - 8).await?;
            }
            chunk::OFFSET_HOLE if length == 12 => {
                let (offset, hole) = (self.reader.read_u64().await?, self.reader.read_u32().await?);
                let from = self.place(cookie, offset)?;
                self.room_for(cookie, from, hole as usize)?; // it's zeros already
            }
            chunk::BLOCK_STATUS if (12..=MOST_RUNS).contains(&length) && (length - 4).is_multiple_of(8) => {
                self.hear_runs(cookie, (length - 4) / 8).await?;
            }
            kind if kind & chunk::IS_ERROR != 0 && length >= 6 => {
                let said = word(&mut self.reader, length).await?;
                let (error, after) = said.split_first_chunk().ok_or_else(|| nonsense("an error without a number"))?;
                let text = after.split_first_chunk().map_or(&[][..], |(long, rest)| {
                    rest.get(..usize::from(u16::from_be_bytes(*long))).unwrap_or_default()
                });
                let refused = refusal(u32::from_be_bytes(*error).max(1), text)?;
                if flags & chunk::DONE == 0 {
                    // The rest of this answer would be one to nothing that was asked.
                    return Err(io::Error::other(refused));
                }
                return self.under_way.end(cookie, Some(Err(refused)));
            }
            _ => return Err(nonsense("a part of a reply that nobody asked for")),
        }
        if flags & chunk::DONE == 0 { Ok(()) } else { self.under_way.end(cookie, None) }
    }

    async fn hear_runs(&mut self, cookie: u64, count: u32) -> io::Result<()> {
        let context = self.reader.read_u32().await?;
        let mut runs = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let (length, flags) = (self.reader.read_u32().await?, self.reader.read_u32().await?);
            runs.push((u64::from(length), flags & allocation::ZERO != 0));
        }
        self.under_way.with(cookie, What::Zeros, |pending| {
            // One answer of the context that was asked for.
            (Some(context) == self.context && pending.runs.is_empty()).then(|| pending.runs = runs)
        })
    }
}

/// What a server says instead of an answer. Its numbers are Linux's. An error if the answer comes once the server was started again.
fn refusal(error: u32, text: &[u8]) -> io::Result<String> {
    let reason = io::Error::from_raw_os_error(i32::try_from(error).unwrap_or(5));
    let text = shown(&String::from_utf8_lossy(text));
    let said = if text.is_empty() { String::new() } else { format!(" ({text})") };
    let refusal = format!("the server answers: {reason}{said}");
    if error == SHUTTING_DOWN { Err(io::Error::other(refusal)) } else { Ok(refusal) }
}
