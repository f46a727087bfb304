//! The transmission phase: one connection's requests and replies, in one task that never waits for one thing only.
//!
//! A turn goes: hand out what the disk has done; start what was received; send all replies with one system call; receive
//! again. Under load each of these is for many requests at a time. Invariants:
//! 1. What the connection holds (payload being received, requests at the disk, replies that wait) is within its allowance
//!    before a request is started; until then nothing more is received. So a client that floods, or that doesn't read its
//!    replies, stops itself.
//! 2. Each request that was started is answered exactly once, or the connection ends.
//! 3. Once it is ending nothing more is received or started; what is under way is finished and answered, as long as
//!    the client takes it, but only for a moment once it's gone.
//! 4. What a client left behind that went while this process stood still isn't done.

use super::admission::Allowance;
use super::attention::Attention;
use super::connection::Stream;
use super::execute::{Finished, Job, cost};
use super::in_flight::InFlight;
use super::inbox::Inbox;
use super::limits::exported_size;
use super::outbox::Outbox;
use super::reply::{put_failure, put_reply};
use super::request::{Command, Failure, Terms, check, payload_length};
use super::wire::{BadRequestMagic, RequestHeader};
use crate::disk::VirtualDisk;
use crate::pulse::Pauses;
use bytes::Bytes;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use tepal_model::{Buffer, MAX_REQUEST};
use tokio::io::ReadBuf;
use tokio::time::Instant;

/// A payload longer than this is received where it will stay; a shorter one is received among others and copied out.
const COPIED_UP_TO: usize = 32 << 10;
/// After a long payload another one is likely: receive little more than its header, so that there is little to copy.
const GLANCE: usize = 4 << 10;
/// Payload of a refused write that is received and dropped, at most. A longer one ends the connection.
const SKIPPED_UP_TO: u64 = 256 << 20;
/// After so many requests or bytes it's the turn of other connections.
const TURN_REQUESTS: usize = 256;
const TURN_BYTES: u64 = 4 << 20;
/// With so many bytes waiting to be sent nothing is started: what would be read now is out of the processor's caches by
/// the time it's sent.
const LADEN: u64 = 1 << 20;

/// How a connection ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client said goodbye: ABORT or DISC.
    Goodbye,
    /// The client closed the connection, without a word.
    Closed,
    /// The server is stopping.
    Stopped,
}

/// Why a connection ended badly after its handshake.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what it is")]
pub enum TransmissionError {
    #[error("the connection failed: {0}")]
    Stream(#[from] io::Error),
    #[error(transparent)]
    BadMagic(#[from] BadRequestMagic),
    #[error("a refused write of {0} bytes is too long to skip")]
    AbsurdLength(u64),
    #[error("the client has moved no byte for a while, and others wait for the memory that it holds")]
    Stalled,
    #[error("requests were still under way when the connection ended")]
    Unfinished,
    #[error("the client left while this process stood still, and nothing that it left behind is done any more")]
    LeftMeanwhile,
}

pub struct Transmission<'a, S, D> {
    pub stream: &'a mut S,
    pub disk: &'a D,
    pub inbox: Inbox,
    pub structured: bool,
    pub allocation: bool,
    pub allowance: Allowance,
    pub most_requests: usize,
    pub most_bytes: u64,
    pub pauses: Pauses,
    pub state: State,
}

/// What changes as requests come and go.
pub struct State {
    expect: Expect,
    outbox: Outbox,
    /// Bytes that requests at the disk, and a payload that is being received, count for.
    under_way: u64,
    /// A long payload came last.
    glance: bool,
    attention: Attention,
    /// Something was, since that was asked for the last time.
    answered: bool,
    ending: Option<Result<End, TransmissionError>>,
    /// Nothing is received now, nor perhaps sent: see [`Pause`].
    is_deaf: bool,
    /// Counts bytes moved, to notice when none are.
    moved: u64,
    moved_at_check: u64,
    checks_while_ending: u32,
}

/// What the next received bytes are.
enum Expect {
    Header,
    /// Of a write that has been let in.
    Payload {
        cookie: u64,
        command: Command,
        buffer: Buffer,
        filled: usize,
    },
    /// Of a write that was refused, which is answered after them.
    Skipped {
        cookie: u64,
        left: u64,
        failure: Failure,
    },
}

/// Why no more received requests are started now.
#[derive(PartialEq, Eq)]
enum Pause {
    /// More must be received.
    Hungry,
    /// Memory or places are lacking; the task is woken when it's worth another try.
    Full,
    /// Enough waits to be sent.
    Laden,
    /// Others have their turn first.
    TurnOver,
    Ending,
    /// The client has left, and nothing of it is done any more.
    Left,
}

impl State {
    pub fn new() -> Self {
        State {
            expect: Expect::Header,
            outbox: Outbox::default(),
            under_way: 0,
            glance: false,
            attention: Attention::default(),
            answered: false,
            ending: None,
            is_deaf: false,
            moved: 0,
            moved_at_check: 0,
            checks_while_ending: 0,
        }
    }

    fn holds(&self) -> u64 {
        self.under_way + self.outbox.pending()
    }
}

/// What one turn has done so far.
#[derive(Default)]
struct Turn {
    requests: usize,
    bytes: u64,
}

impl Turn {
    fn is_over(&self) -> bool {
        self.requests >= TURN_REQUESTS || self.bytes >= TURN_BYTES
    }
}

/// Has the task polled again when all others of its thread, and other threads that wait for this core, have had a turn.
fn look_again_soon(cx: &mut Context<'_>) {
    std::thread::yield_now();
    // Its first poll has the runtime look what sockets have received, then wake the task.
    let _ = pin!(tokio::task::yield_now()).poll(cx);
}

impl<S, D> Transmission<'_, S, D>
where
    S: Stream,
    D: VirtualDisk,
{
    /// Nothing more is received or started; the connection ends when what is under way is answered.
    pub fn end(&mut self, how: Result<End, TransmissionError>) {
        self.state.ending.get_or_insert(how);
    }

    pub fn is_ending(&self) -> bool {
        self.state.ending.is_some()
    }

    /// Whether the client has gone without a word.
    pub fn is_left(&self) -> bool {
        matches!(self.state.ending, Some(Ok(End::Closed)))
    }

    /// Whether the client may be gone unheard, as nothing is received now.
    pub fn is_deaf(&self) -> bool {
        self.state.is_deaf
    }

    /// Called from time to time: whether the connection must be broken off.
    pub fn check_progress<F: Future>(&mut self, in_flight: &InFlight<F>) -> Result<(), TransmissionError> {
        let state = &mut self.state;
        let stalled = state.moved == state.moved_at_check && in_flight.is_empty();
        state.moved_at_check = state.moved;
        if stalled && self.allowance.is_wanted_by_others() {
            return Err(TransmissionError::Stalled);
        }
        if state.ending.is_some() {
            state.checks_while_ending += 1;
            if state.checks_while_ending > 1 {
                return Err(TransmissionError::Unfinished);
            }
        }
        Ok(())
    }

    /// Goes on until there is nothing to do but wait, or others have their turn.
    pub fn poll<F>(
        &mut self,
        cx: &mut Context<'_>,
        in_flight: &mut InFlight<F>,
        begin: &impl Fn(Job) -> F,
    ) -> Poll<Result<End, TransmissionError>>
    where
        F: Future<Output = Finished>,
    {
        let mut turn = Turn::default();
        loop {
            if self.has_left_meanwhile() {
                return Poll::Ready(Err(TransmissionError::LeftMeanwhile));
            }
            while let Poll::Ready(finished) = in_flight.poll_next(cx) {
                self.answer(finished);
            }
            let pause = self.start_requests(cx, in_flight, begin, &mut turn);
            let held = self.state.holds();
            if let Err(error) = self.send(cx) {
                return Poll::Ready(Err(error.into()));
            }
            let holds = self.state.holds();
            self.allowance.release_beyond(holds);
            self.state.is_deaf = matches!(pause, Pause::Ending | Pause::Full); // what is sent finds it out by itself
            match pause {
                Pause::Left => return Poll::Ready(Err(TransmissionError::LeftMeanwhile)),
                Pause::Ending => {
                    if in_flight.is_empty() && self.state.outbox.pending() == 0 {
                        return Poll::Ready(self.state.ending.take().unwrap_or(Ok(End::Closed)));
                    }
                    return Poll::Pending;
                }
                Pause::TurnOver => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Pause::Full if holds < held => {}
                Pause::Laden if self.state.outbox.pending() < LADEN => {}
                Pause::Full | Pause::Laden => return Poll::Pending,
                Pause::Hungry => match self.poll_receive(cx) {
                    Poll::Ready(Ok(0)) => self.end(Ok(End::Closed)),
                    Poll::Ready(Ok(count)) => {
                        self.state.attention.received(Instant::now);
                        turn.bytes += count as u64;
                        self.state.moved += count as u64;
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                    Poll::Pending => {
                        let answered = holds == 0 && std::mem::take(&mut self.state.answered);
                        if self.state.attention.look_again(answered, Instant::now) {
                            look_again_soon(cx);
                        }
                        return Poll::Pending;
                    }
                },
            }
        }
    }

    /// Whether the client has closed the connection by now, and this process stood still.
    fn has_left_meanwhile(&mut self) -> bool {
        self.pauses.take_new(Instant::now().into_std()) && self.stream.has_hung_up()
    }

    fn send(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let before = self.state.outbox.pending();
        let sent = self.state.outbox.poll_send(cx, self.stream);
        self.state.moved += before - self.state.outbox.pending();
        match sent {
            Poll::Ready(result) => result,
            Poll::Pending => Ok(()),
        }
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if let Expect::Payload { buffer, filled, .. } = &mut self.state.expect {
            let mut free = ReadBuf::new(&mut buffer[*filled..]);
            ready!(Pin::new(&mut *self.stream).poll_read(cx, &mut free))?;
            let received = free.filled().len();
            *filled += received;
            return Poll::Ready(Ok(received));
        }
        let most = if self.state.glance { GLANCE } else { usize::MAX };
        self.inbox.poll_receive(cx, self.stream, most)
    }

    /// Starts what was received, as far as limits allow.
    fn start_requests<F>(
        &mut self,
        cx: &mut Context<'_>,
        in_flight: &mut InFlight<F>,
        begin: &impl Fn(Job) -> F,
        turn: &mut Turn,
    ) -> Pause
    where
        F: Future<Output = Finished>,
    {
        loop {
            if self.is_ending() {
                return Pause::Ending;
            }
            if turn.is_over() {
                return Pause::TurnOver;
            }
            if self.state.outbox.pending() >= LADEN {
                return Pause::Laden;
            }
            let job = match std::mem::replace(&mut self.state.expect, Expect::Header) {
                Expect::Header => match self.next_header(cx, in_flight.len()) {
                    Ok(None) => continue,
                    Ok(Some(job)) => job,
                    Err(pause) => return pause,
                },
                Expect::Payload { cookie, command, buffer, filled } if filled == buffer.len() => {
                    Job { cookie, command, cost: filled as u64, payload: buffer.freeze() }
                }
                Expect::Skipped { cookie, left, failure } => {
                    let here = left.min(self.inbox.unread().len() as u64);
                    self.inbox.consume(here as usize);
                    if here == left {
                        put_failure(&mut self.state.outbox, self.structured, cookie, &failure);
                        continue;
                    }
                    self.state.expect = Expect::Skipped { cookie, left: left - here, failure };
                    return Pause::Hungry;
                }
                unfinished @ Expect::Payload { .. } => {
                    self.state.expect = unfinished;
                    return Pause::Hungry;
                }
            };
            if self.has_left_meanwhile() {
                return Pause::Left;
            }
            turn.requests += 1;
            turn.bytes += job.cost;
            if let Poll::Ready(finished) = in_flight.start(begin(job)) {
                self.answer(finished);
            }
        }
    }

    /// Takes a request from the inbox: a job to start, or none if it was dealt with otherwise.
    fn next_header(&mut self, cx: &mut Context<'_>, requests: usize) -> Result<Option<Job>, Pause> {
        let unread = self.inbox.unread();
        let Some(header) = unread.first_chunk::<{ RequestHeader::SIZE }>() else { return Err(Pause::Hungry) };
        let header = match RequestHeader::decode(header) {
            Ok(header) => header,
            Err(error) => {
                self.end(Err(error.into()));
                return Err(Pause::Ending);
            }
        };
        let terms = Terms {
            structured: self.structured,
            allocation: self.allocation,
            read_only: self.disk.read_only(),
            size: exported_size(self.disk),
        };
        let (cookie, payload) = (header.cookie, payload_length(&header));
        let checked = check(&header, &terms);
        let cost = checked.as_ref().map_or(0, cost);
        if requests >= self.most_requests || self.poll_allow(cx, cost).is_pending() {
            return Err(Pause::Full);
        }
        match checked {
            Ok(Command::Disconnect) => {
                self.end(Ok(End::Goodbye));
                Err(Pause::Ending)
            }
            Ok(command) if payload > 0 => self.next_payload(cookie, command, payload as usize),
            Ok(command) => {
                self.inbox.consume(RequestHeader::SIZE);
                self.state.under_way += cost;
                self.state.glance = false;
                Ok(Some(Job { cookie, command, payload: Bytes::new(), cost }))
            }
            Err(_) if payload > SKIPPED_UP_TO => {
                self.end(Err(TransmissionError::AbsurdLength(payload)));
                Err(Pause::Ending)
            }
            Err(failure) => {
                self.inbox.consume(RequestHeader::SIZE);
                self.state.glance = false;
                self.state.expect = Expect::Skipped { cookie, left: payload, failure };
                Ok(None)
            }
        }
    }

    /// The payload of a write, copied out if it's short and there, else with a place where it will be received.
    fn next_payload(&mut self, cookie: u64, command: Command, length: usize) -> Result<Option<Job>, Pause> {
        let received = &self.inbox.unread()[RequestHeader::SIZE..];
        if received.len() >= length {
            let payload = Buffer::copy_of(&received[..length]).freeze();
            self.inbox.consume(RequestHeader::SIZE + length);
            self.state.under_way += length as u64;
            self.state.glance = false;
            return Ok(Some(Job { cookie, command, payload, cost: length as u64 }));
        }
        if length <= COPIED_UP_TO {
            self.state.glance = false;
            return Err(Pause::Hungry);
        }
        let mut buffer = Buffer::take(length);
        let filled = received.len();
        buffer[..filled].copy_from_slice(received);
        self.inbox.consume(RequestHeader::SIZE + filled);
        self.state.under_way += length as u64;
        self.state.glance = true;
        self.state.expect = Expect::Payload { cookie, command, buffer, filled };
        Ok(None)
    }

    fn poll_allow(&mut self, cx: &mut Context<'_>, cost: u64) -> Poll<()> {
        debug_assert!(cost <= MAX_REQUEST);
        let holds = self.state.holds();
        if holds > 0 && holds + cost > self.most_bytes {
            return Poll::Pending; // until replies are sent, for which the task is woken
        }
        self.allowance.poll_cover(cx, holds + cost)
    }

    fn answer(&mut self, finished: Finished) {
        self.state.under_way -= finished.cost;
        self.state.answered = true;
        put_reply(&mut self.state.outbox, self.structured, finished);
    }
}
