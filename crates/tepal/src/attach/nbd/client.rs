//! Requests out, and the life of the connection.
//!
//! Threads: whoever submits writes to the socket himself, unless another thread is writing; then that one takes the new
//! request along, so a busy connection sends many requests with one system call and a quiet one wakes no extra thread.
//! One thread receives, and reconnects. One sends again after a reconnection, since the receiver must be reading answers
//! meanwhile, or both sides could wait for each other with full sockets.

use super::handshake::{self, Described, Export, HandshakeError};
use super::receive::{self, Broken};
use super::socket::{NbdAddress, Socket};
use super::wire::{self, Flags, Operation, REQUEST_SIZE};
use bytes::Bytes;
use nix::errno::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Called once with the answer: a read's bytes (otherwise none), or the volume's error.
pub type Done = Box<dyn FnOnce(Result<&[u8], Errno>) + Send>;

/// Which volume, and where.
#[derive(Clone, Debug)]
pub struct Target {
    pub address: NbdAddress,
    /// For people.
    pub volume: String,
    /// What the server is asked for: best a name that stays, whatever the volume is called.
    pub export: String,
    pub read_only: bool,
}

/// Why the volume can't be used now.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("can't connect to {address}: {source}")]
    Connect { address: NbdAddress, source: io::Error },
    #[error("the server at {address} can't be used: {source}")]
    Handshake { address: NbdAddress, source: HandshakeError },
    #[error("volume '{volume}' has {now} bytes, less than the {before} it had; its I/O waits until it's back whole")]
    Smaller { volume: String, before: u64, now: u64 },
    #[error("volume '{volume}' can do less than before (NBD flags {before:#x}, now {now:#x}); its I/O waits")]
    LessAble { volume: String, before: u16, now: u16 },
    #[error("volume '{volume}' is read-only there; attach it with --read-only")]
    ReadOnly { volume: String },
    #[error("can't start a thread: {0}")]
    Thread(io::Error),
}

/// What happens to the connection, for whoever looks after it.
#[derive(Debug)]
pub enum Notice<'a> {
    Lost(&'a Broken),
    /// An attempt to connect again failed; there will be another.
    Waiting(&'a ConnectError),
    /// Connected again; so many requests are sent again. The volume may have grown.
    Resumed {
        resent: usize,
    },
    /// So many requests were waited for too long, and failed.
    GaveUp {
        requests: usize,
    },
}

type Observer = Box<dyn Fn(Notice<'_>) + Send + Sync>;

/// Pauses between attempts to connect: each twice the one before.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    pub first: Duration,
    pub longest: Duration,
}

pub const PAUSES: Pauses = Pauses { first: Duration::from_millis(10), longest: Duration::from_millis(500) };

/// At most so many requests, and about so many bytes, go out in one system call.
const BATCH: usize = 128;
const BATCH_BYTES: usize = 1 << 20;

/// What a front-end may rely on for the life of the attachment.
const ABILITIES: Flags = Flags(Flags::FLUSH.0 | Flags::FUA.0 | Flags::TRIM.0 | Flags::WRITE_ZEROES.0);

pub struct Client {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    target: Target,
    /// As it was when the volume was opened; only `size` may grow.
    export: Export,
    size: AtomicU64,
    pauses: Pauses,
    pub(super) observer: Observer,
    exchange: Mutex<Exchange>,
    /// A link was made, or the client closed.
    pub(super) changed: Condvar,
}

pub(super) struct Exchange {
    next_cookie: u64,
    /// All that isn't answered, in the order of submission. The only owner of requests (invariant 1).
    pub(super) pending: BTreeMap<u64, Pending>,
    link: Option<Link>,
    pub(super) closed: bool,
    /// What took too long has failed, and there's no connection since.
    pub(super) gave_up: bool,
}

pub(super) struct Pending {
    pub(super) operation: Operation,
    pub(super) done: Done,
    pub(super) partial: Partial,
    pub(super) since: Instant,
}

/// What the current connection has told of an answer so far.
#[derive(Default)]
pub(super) struct Partial {
    pub(super) bytes: Vec<u8>,
    pub(super) covered: usize,
    pub(super) error: Option<Errno>,
}

/// The current connection's sending side.
struct Link {
    socket: Arc<Socket>,
    unsent: VecDeque<u64>,
    sender: Sender,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sender {
    Idle,
    /// A thread is writing; it looks for more before it leaves.
    Busy,
    /// A write failed or the server is ending, so nothing more goes out before the next connection.
    Broken,
}

struct Batch {
    socket: Arc<Socket>,
    requests: Vec<([u8; REQUEST_SIZE], Bytes)>,
}

impl Client {
    /// Connects and opens the volume, once.
    pub fn open(target: Target, pauses: Pauses, observer: Observer) -> Result<Client, ConnectError> {
        let (socket, export) = connect(&target)?;
        if export.flags.has(Flags::READ_ONLY) && !target.read_only {
            return Err(ConnectError::ReadOnly { volume: target.volume });
        }
        let exchange = Exchange { next_cookie: 1, pending: BTreeMap::new(), link: None, closed: false, gave_up: false };
        let shared = Arc::new(Shared {
            target,
            export,
            size: AtomicU64::new(export.size),
            pauses,
            observer,
            exchange: Mutex::new(exchange),
            changed: Condvar::new(),
        });
        shared.adopt(&Arc::clone(&socket));
        let receiver = Arc::clone(&shared);
        start("nbd-receive", move || receiver.keep_connected(socket, export.structured))?;
        let resender = Arc::clone(&shared);
        start("nbd-resend", move || resender.resend())?;
        Ok(Client { shared })
    }

    /// From now on, requests fail that aren't answered after so long.
    pub fn give_up_after(&self, patience: Duration) -> Result<(), ConnectError> {
        let shared = Arc::clone(&self.shared);
        start("nbd-give-up", move || shared.fail_what_takes_longer(patience))
    }

    /// How long the oldest request under way has been waited for, if there is one.
    pub fn waited(&self) -> Option<Duration> {
        self.shared.lock().waited()
    }

    /// What the volume can do, and its size when it was opened.
    pub fn export(&self) -> Export {
        self.shared.export
    }

    /// Bytes, as of now. It never shrinks.
    pub fn size(&self) -> u64 {
        self.shared.size.load(Ordering::Acquire)
    }

    /// Asks the server, on a connection of its own, what the volume is called now, and whether it has grown; NBD has no
    /// message for that. If so, it connects anew, since servers may hold a connection to the size it began with.
    /// [`Notice::Resumed`] follows.
    pub fn look_again(&self) -> Result<Option<String>, ConnectError> {
        let Described { export, name } = inspect(&self.shared.target)?;
        if export.size > self.size()
            && let Some(link) = &mut self.shared.lock().link
        {
            link.stop();
        }
        Ok(name)
    }

    /// Never blocks for long: it writes to the socket, or leaves that to the thread that is writing.
    pub fn submit(&self, operation: Operation, done: Done) {
        let mut exchange = self.shared.lock();
        if exchange.closed {
            drop(exchange);
            return done(Err(Errno::ENOTCONN));
        }
        if exchange.gave_up {
            drop(exchange);
            return done(Err(Errno::EIO));
        }
        let cookie = exchange.next_cookie;
        exchange.next_cookie += 1;
        exchange
            .pending
            .insert(cookie, Pending { operation, done, partial: Partial::default(), since: Instant::now() });
        if let Some(link) = &mut exchange.link {
            link.unsent.push_back(cookie);
        }
        self.shared.send_unsent(exchange);
    }

    /// Says goodbye to the server. For when nothing is under way any more; what is gets an error.
    pub fn close(&self) {
        let mut exchange = self.shared.lock();
        exchange.closed = true;
        let abandoned = std::mem::take(&mut exchange.pending);
        let link = exchange.link.take();
        drop(exchange);
        self.shared.changed.notify_all();
        if let Some(link) = link {
            let goodbye = wire::request(0, wire::command::DISC, 0, 0, 0);
            let _ = link.socket.write_all_vectored(&mut [IoSlice::new(&goodbye)]);
            link.socket.shutdown(Shutdown::Write);
        }
        for (_, pending) in abandoned {
            (pending.done)(Err(Errno::ENOTCONN));
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Exchange> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The receiver's life: one connection after another until the client is closed.
    fn keep_connected(&self, mut socket: Arc<Socket>, mut structured: bool) {
        loop {
            let broken = receive::receive(self, &socket, structured);
            {
                let mut exchange = self.lock();
                exchange.link = None;
                if exchange.closed {
                    return;
                }
            }
            (self.observer)(Notice::Lost(&broken));
            let Some((again, export)) = self.reconnect() else { return };
            (socket, structured) = (Arc::new(again), export.structured);
            self.size.fetch_max(export.size, Ordering::AcqRel);
            let resent = self.adopt(&socket);
            (self.observer)(Notice::Resumed { resent });
        }
    }

    /// Tries for ever; `None` once the client is closed.
    fn reconnect(&self) -> Option<(Socket, Export)> {
        let mut pause = self.pauses.first;
        let mut told = String::new();
        loop {
            let exchange = self.lock();
            let waited = self.changed.wait_timeout_while(exchange, pause, |exchange| !exchange.closed);
            if waited.map_or_else(|poisoned| poisoned.into_inner().0.closed, |(exchange, _)| exchange.closed) {
                return None;
            }
            pause = (pause * 2).min(self.pauses.longest);
            let trouble = match connect(&self.target) {
                Ok((socket, export)) => match self.unfit(&export) {
                    None => return Arc::into_inner(socket).map(|socket| (socket, export)),
                    Some(trouble) => trouble,
                },
                Err(trouble) => trouble,
            };
            let text = trouble.to_string();
            if text != told {
                (self.observer)(Notice::Waiting(&trouble));
                told = text;
            }
        }
    }

    /// Whether what came back isn't what was attached (invariant 4).
    fn unfit(&self, now: &Export) -> Option<ConnectError> {
        let volume = || self.target.volume.clone();
        let before = &self.export;
        let size = self.size.load(Ordering::Acquire);
        if now.size < size {
            return Some(ConnectError::Smaller { volume: volume(), before: size, now: now.size });
        }
        if now.flags.has(Flags::READ_ONLY) && !self.target.read_only {
            return Some(ConnectError::ReadOnly { volume: volume() });
        }
        let able = now.flags.has(before.flags.and(ABILITIES))
            && now.minimum <= before.minimum
            && now.maximum >= before.maximum;
        (!able).then(|| ConnectError::LessAble { volume: volume(), before: before.flags.0, now: now.flags.0 })
    }

    /// Makes the connection the current one, with all that is pending to be sent. Says how many requests that are.
    fn adopt(&self, socket: &Arc<Socket>) -> usize {
        let mut exchange = self.lock();
        for pending in exchange.pending.values_mut() {
            pending.partial = Partial::default();
        }
        let unsent: VecDeque<u64> = exchange.pending.keys().copied().collect();
        let resent = unsent.len();
        exchange.link = Some(Link { socket: Arc::clone(socket), unsent, sender: Sender::Idle });
        exchange.gave_up = false;
        drop(exchange);
        self.changed.notify_all();
        resent
    }

    /// The resender's life.
    fn resend(&self) {
        let mut exchange = self.lock();
        loop {
            if exchange.closed {
                return;
            }
            if exchange.has_work() {
                self.send_unsent(exchange);
                exchange = self.lock();
            } else {
                exchange = self.changed.wait(exchange).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Sends what is unsent, unless another thread is at it.
    fn send_unsent<'a>(&'a self, mut exchange: MutexGuard<'a, Exchange>) {
        while let Some(batch) = exchange.take_batch() {
            drop(exchange);
            let sent = batch.send();
            exchange = self.lock();
            exchange.finish(&batch, sent);
        }
    }
}

impl Exchange {
    fn has_work(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.sender == Sender::Idle && !link.unsent.is_empty())
    }

    fn take_batch(&mut self) -> Option<Batch> {
        if !self.has_work() {
            return None;
        }
        let link = self.link.as_mut()?;
        link.sender = Sender::Busy;
        let mut requests = Vec::new();
        let mut bytes = 0;
        while requests.len() < BATCH && bytes < BATCH_BYTES {
            let Some(cookie) = link.unsent.pop_front() else { break };
            // A server that answers what it hasn't been asked yet can make one vanish.
            let Some(pending) = self.pending.get(&cookie) else { continue };
            let payload = pending.operation.payload();
            bytes += payload.len();
            requests.push((pending.operation.header(cookie), payload));
        }
        Some(Batch { socket: Arc::clone(&link.socket), requests })
    }

    fn finish(&mut self, batch: &Batch, sent: io::Result<()>) {
        let Some(link) = self.link.as_mut().filter(|link| Arc::ptr_eq(&link.socket, &batch.socket)) else { return };
        match sent {
            Ok(()) if link.sender == Sender::Busy => link.sender = Sender::Idle,
            Ok(()) => {} // the server asked for patience meanwhile
            Err(_) => link.stop(),
        }
    }

    /// The server asked for patience: the request goes out again on the next connection, and this one ends soon.
    pub(super) fn postpone(&mut self, cookie: u64) {
        if let Some(pending) = self.pending.get_mut(&cookie) {
            pending.partial = Partial::default();
        }
        self.stop_link();
    }

    pub(super) fn stop_link(&mut self) {
        if let Some(link) = &mut self.link {
            link.stop();
        }
    }
}

impl Link {
    /// Sends nothing more here; what was sent last may even be half a request. The server sees the end, answers what it has
    /// and hangs up. The receiver waits for that (invariant 3).
    fn stop(&mut self) {
        self.sender = Sender::Broken;
        self.socket.shutdown(Shutdown::Write);
    }
}

impl Batch {
    fn send(&self) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(2 * self.requests.len());
        for (header, payload) in &self.requests {
            slices.push(IoSlice::new(header));
            if !payload.is_empty() {
                slices.push(IoSlice::new(payload));
            }
        }
        self.socket.write_all_vectored(&mut slices)
    }
}

fn connect(target: &Target) -> Result<(Arc<Socket>, Export), ConnectError> {
    let address = || target.address.clone();
    let socket =
        Socket::connect(&target.address).map_err(|source| ConnectError::Connect { address: address(), source })?;
    let export = handshake::open(&mut &socket, socket.is_greeted(), &target.export)
        .and_then(|export| Ok(socket.wait_for_ever().map(|()| export)?))
        .map_err(|source| ConnectError::Handshake { address: address(), source })?;
    Ok((Arc::new(socket), export))
}

/// The volume as it is now, by a connection of its own.
pub fn inspect(target: &Target) -> Result<Described, ConnectError> {
    let address = || target.address.clone();
    let socket =
        Socket::connect(&target.address).map_err(|source| ConnectError::Connect { address: address(), source })?;
    handshake::inspect(&mut &socket, socket.is_greeted(), &target.export)
        .map_err(|source| ConnectError::Handshake { address: address(), source })
}

/// The names that are served there.
pub fn list(address: &NbdAddress) -> Result<Vec<String>, ConnectError> {
    let socket =
        Socket::connect(address).map_err(|source| ConnectError::Connect { address: address.clone(), source })?;
    handshake::list(&mut &socket, socket.is_greeted())
        .map_err(|source| ConnectError::Handshake { address: address.clone(), source })
}

fn start(name: &str, life: impl FnOnce() + Send + 'static) -> Result<(), ConnectError> {
    thread::Builder::new().name(name.into()).spawn(life).map(drop).map_err(ConnectError::Thread)
}
