//! What a volume is imported from while it's used: an export of an NBD server, read wherever a client or the copier asks. One connection
//! to it has all that is under way (NBD protocol, `doc/proto.md`).
//!
//! Invariants:
//! 1. Whoever asks waits: while the server can't be reached, has no such export, says nonsense, stands still or is shutting down, it's
//!    connected to anew, and what wasn't answered is asked for once more. Only what else the server itself refuses is an error.
//! 2. Memory is bounded by what may be under way at a time, whatever the server says.

mod connection;

use bytes::Bytes;
use connection::{Export, connect};
use futures_util::future::join_all;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tepal_engine::{Later, OldPlace};
use tepal_gateway::nbd::address::{Address, AddressError, Place};
use tepal_model::{BLOCK, Buffer, IoError};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::timeout;

/// Bytes of one read. Every server takes them.
const READ: u64 = 1 << 20;
/// Bytes of the largest block that a server may want to be read as a whole.
const LARGEST_BLOCK: u64 = 64 << 10;
/// Bytes of one question about zeros.
const STATUS: u64 = 1 << 30;
/// KiB that are under way at a time.
const MOST_KIB: u32 = 32 << 10;
/// What a question about zeros counts for.
const OF_STATUS: u32 = 64;
/// A server may take so long until it has said hello.
const HELLO: Duration = Duration::from_secs(10);
/// Before it's connected to anew, the first time and at most.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];

/// Of bytes that weren't copied before the import was cancelled.
pub const CANCELLED: &str = "its import was cancelled, and this part of the volume isn't here";

/// Why an export can't be imported.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error("a live import from a server of NBD over TLS isn't possible: use nbd:// or nbd+unix://")]
    Tls,
    #[error("a live import reads the socket for as long as it takes, from any folder: write its whole path, from / on")]
    Relative,
    #[error("{address}: {reason}")]
    Unreachable { address: String, reason: String },
    #[error("{0} has no bytes")]
    Empty(String),
}

/// The address, if a server may import from there.
fn address_of(text: &str) -> Result<Address, SourceError> {
    let address: Address = text.parse()?;
    match address.place() {
        Place::Tls(..) => Err(SourceError::Tls),
        Place::Unix(path) if !path.is_absolute() => Err(SourceError::Relative),
        Place::Unix(_) | Place::Tcp(_) => Ok(address),
    }
}

/// How many bytes an export has that can be reached now.
pub async fn length_of(text: &str) -> Result<u64, SourceError> {
    let address = address_of(text)?;
    let unreachable = |reason: String| SourceError::Unreachable { address: text.to_owned(), reason };
    let connected = match timeout(HELLO, connect(&address)).await {
        Err(_) => return Err(unreachable("it doesn't answer".to_owned())),
        Ok(connected) => connected.map_err(|error| unreachable(error.to_string()))?,
    };
    let Export { size, smallest, .. } = connected.export;
    let last = size / smallest * smallest..size;
    if size == 0 {
        return Err(SourceError::Empty(text.to_owned()));
    } else if !last.is_empty() {
        // Not every server reads a part of a block.
        let read = timeout(HELLO, connected.try_read(last)).await;
        read.unwrap_or_else(|_| Err("it doesn't answer".to_owned())).map_err(|reason| {
            unreachable(format!(
                "of the {size} bytes, the last ones are no whole block of {smallest} bytes and can't be read: {reason}"
            ))
        })?;
    }
    Ok(size)
}

/// Whether it may be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Open,
    Cancelled,
    /// Nobody needs it any more.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Bytes,
    Zeros,
}

/// What somebody waits for.
struct Ask {
    what: What,
    range: Range<u64>,
    answer: oneshot::Sender<Answer>,
}

/// Bytes, or runs of them; or why the server refuses.
type Answer = Result<Told, String>;

enum Told {
    Bytes(Bytes),
    Zeros(Vec<(u64, bool)>),
}

/// An export that a volume is imported from. Cheap to clone.
#[derive(Clone)]
pub struct Source(Arc<Shared>);

struct Shared {
    asks: mpsc::UnboundedSender<Ask>,
    /// Until somebody asks.
    serving: Mutex<Option<Serving>>,
    /// KiB that may be asked for.
    room: Semaphore,
    stage: watch::Sender<Stage>,
    /// Why it can't be reached now.
    trouble: Arc<Mutex<Option<String>>>,
    /// Bytes that the volume has of it.
    length: u64,
}

impl Source {
    /// Connects when something is asked for, on the thread where that is: a data thread, so that answers needn't go to another one.
    pub fn open(text: &str, length: u64, stage: Stage) -> Source {
        let (asks, asked) = mpsc::unbounded_channel();
        let (stage, trouble) = (watch::Sender::new(stage), Arc::<Mutex<Option<String>>>::default());
        let room = Semaphore::new(MOST_KIB as usize);
        let serving = match address_of(text) {
            Ok(address) => Some(Serving { address, length, asked, stage: stage.subscribe(), trouble: trouble.clone() }),
            Err(error) => {
                note(&trouble, Some(error.to_string())); // an earlier build may have taken it
                None
            }
        };
        let serving = Mutex::new(serving);
        Source(Arc::new(Shared { asks, serving, room, stage, trouble, length }))
    }

    fn begin(&self) {
        if let Some(serving) = self.0.serving.lock().unwrap_or_else(PoisonError::into_inner).take() {
            crate::tasks::spawn(serving.keep());
        }
    }

    /// Those who wait are told.
    pub fn set(&self, stage: Stage) {
        self.0.stage.send_if_modified(|now| std::mem::replace(now, stage) != stage);
    }

    /// Why it can't be reached now, if it can't.
    pub fn trouble(&self) -> Option<String> {
        self.0.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// As [`OldPlace::read`].
    pub async fn read_some(&self, range: Range<u64>) -> Result<Bytes, IoError> {
        let length = (range.end - range.start) as usize;
        // Servers may want whole blocks.
        let first = range.start / BLOCK * BLOCK;
        let end = range.end.next_multiple_of(BLOCK).min(self.0.length);
        if !range.is_empty() && range.end <= end && windows(first..end).nth(1).is_none() {
            let Told::Bytes(bytes) = self.ask(What::Bytes, first..end).await? else { return Ok(Bytes::new()) };
            return Ok(bytes.slice((range.start - first) as usize..(range.end - first) as usize));
        }
        let pieces = join_all(windows(first..end).map(|piece| self.ask(What::Bytes, piece))).await;
        let mut buffer = Buffer::zeroed(length);
        let mut at = first;
        for piece in pieces {
            let Told::Bytes(bytes) = piece? else { continue };
            let from = at.max(range.start);
            let to = (at + bytes.len() as u64).min(range.end);
            if from < to {
                let wanted = &bytes[(from - at) as usize..(to - at) as usize];
                buffer[(from - range.start) as usize..(to - range.start) as usize].copy_from_slice(wanted);
            }
            at += bytes.len() as u64;
        }
        Ok(buffer.freeze())
    }

    /// As [`OldPlace::zeros`].
    pub async fn zeros_in(&self, range: Range<u64>) -> Result<Vec<(u64, bool)>, IoError> {
        let length = self.0.length;
        if range.start >= length {
            return Ok(vec![(range.end - range.start, true)]);
        }
        let first = range.start / BLOCK * BLOCK;
        let end = range.end.next_multiple_of(BLOCK).min(length).min(first + STATUS);
        let Told::Zeros(found) = self.ask(What::Zeros, first..end).await? else { return Ok(Vec::new()) };
        let (mut at, mut runs) = (first, Vec::new());
        for (length, is_zero) in found {
            let (from, to) = (at.max(range.start), (at + length).min(range.end));
            if from < to {
                runs.push((to - from, is_zero));
            }
            at += length;
        }
        if runs.is_empty() && range.start < range.end {
            // What was told ended before, within the block. The rest of that may be data.
            let past = (range.start / BLOCK * BLOCK + BLOCK).min(range.end);
            runs.push((past - range.start, false));
        }
        Ok(runs)
    }

    async fn ask(&self, what: What, range: Range<u64>) -> Result<Told, IoError> {
        let needed = match what {
            What::Bytes => {
                let end = range.end.next_multiple_of(LARGEST_BLOCK);
                ((end - range.start / LARGEST_BLOCK * LARGEST_BLOCK) / 1024) as u32
            }
            What::Zeros => OF_STATUS,
        };
        self.begin();
        let mut stage = self.0.stage.subscribe();
        let answered = async {
            // Neither is ever closed while this is there.
            let _room = self.0.room.acquire_many(needed).await;
            let (answer, told) = oneshot::channel();
            let _ = self.0.asks.send(Ask { what, range: range.clone(), answer });
            match told.await {
                Ok(answer) => answer,
                Err(_) => std::future::pending().await, // the stage says why
            }
        };
        let ended = stage.wait_for(|stage| *stage != Stage::Open);
        let refused = |reason: String| IoError::Unavailable { reason };
        tokio::select! {
            biased;
            ended = ended => match ended.map(|stage| *stage) {
                Ok(Stage::Cancelled) => Err(refused(CANCELLED.to_owned())),
                _ => Err(IoError::Fenced),
            },
            told = answered => told.map_err(|said| {
                refused(format!("where the volume is imported from it can't be read at byte {}: {said}", range.start))
            }),
        }
    }
}

/// Pieces that are read one by one: none becomes more than [`READ`] by being read as whole blocks.
fn windows(bytes: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let first = bytes.start / READ * READ;
    (first..bytes.end.max(first)).step_by(READ as usize).map(move |at| at.max(bytes.start)..(at + READ).min(bytes.end))
}

impl OldPlace for Source {
    fn read(&self, bytes: Range<u64>) -> Later<Bytes> {
        let own = self.clone();
        Box::pin(async move { own.read_some(bytes).await })
    }

    fn zeros(&self, bytes: Range<u64>) -> Later<Vec<(u64, bool)>> {
        let own = self.clone();
        Box::pin(async move { own.zeros_in(bytes).await })
    }
}

fn note(trouble: &Mutex<Option<String>>, what: Option<String>) {
    *trouble.lock().unwrap_or_else(PoisonError::into_inner) = what;
}

/// Keeps the connection, for as long as anybody may ask.
struct Serving {
    address: Address,
    length: u64,
    asked: mpsc::UnboundedReceiver<Ask>,
    stage: watch::Receiver<Stage>,
    trouble: Arc<Mutex<Option<String>>>,
}

impl Serving {
    async fn keep(mut self) {
        let (mut unanswered, mut pause) = (VecDeque::new(), PAUSES[0]);
        loop {
            let stage = *self.stage.borrow_and_update();
            if stage != Stage::Open {
                unanswered.clear();
                note(&self.trouble, None);
                if stage == Stage::Over || self.stage.changed().await.is_err() {
                    return;
                }
                continue;
            }
            if unanswered.is_empty() {
                tokio::select! {
                    ask = self.asked.recv() => match ask {
                        Some(ask) => unanswered.push_back(ask),
                        None => return,
                    },
                    _ = self.stage.changed() => continue,
                }
            }
            let broken = self.serve(&mut unanswered).await;
            // Those who have gone needn't be answered.
            unanswered.retain(|ask: &Ask| !ask.answer.is_closed());
            match broken {
                None => pause = PAUSES[0],
                Some((reason, has_answered)) => {
                    note(&self.trouble, Some(reason));
                    pause = if has_answered { PAUSES[0] } else { (pause * 2).min(PAUSES[1]) };
                    let _ = timeout(pause, self.stage.changed()).await;
                }
            }
        }
    }

    /// What broke the connection, and whether it has answered anything.
    async fn serve(&mut self, unanswered: &mut VecDeque<Ask>) -> Option<(String, bool)> {
        let connecting = async {
            match timeout(HELLO, connect(&self.address)).await {
                Err(_) => Err("it doesn't answer".to_owned()),
                Ok(Err(error)) => Err(error.to_string()),
                Ok(Ok(found)) if found.export.size < self.length => {
                    Err(format!("it has only {} bytes, and had {} before", found.export.size, self.length))
                }
                Ok(Ok(found)) => Ok(found),
            }
        };
        let mut stage = self.stage.clone();
        let connected = tokio::select! {
            connected = connecting => connected,
            _ = stage.wait_for(|stage| *stage != Stage::Open) => return None,
        };
        match connected {
            Err(reason) => Some((reason, false)),
            Ok(connected) => {
                note(&self.trouble, None);
                let stopped = async move {
                    let _ = stage.wait_for(|stage| *stage != Stage::Open).await;
                };
                connected.serve(unanswered, &mut self.asked, stopped).await
            }
        }
    }
}

#[cfg(test)]
mod tests;
