//! One connection of a caller, in one task of a data thread that never waits for one thing only.
//!
//! A turn goes: tell what is done; begin what was received; send all answers with one system call; receive again. Under load
//! each of these is for many requests at a time. Invariants:
//! 1. Requests are begun in the order in which they came.
//! 2. What was begun is carried out to its end, also when the connection has gone: then the session's next one tells.
//! 3. With much to be sent nothing is begun or received: a caller that doesn't read its answers stops itself.

use super::lane::Lane;
use super::reception::{Done, Letters, Mailbox, Notice, Reception};
use crate::access::Identified;
use crate::connection::Socket;
use crate::slow::{self, Kind, Step, asks};
use crate::throttle::Throttle;
use futures_util::future::{FutureExt, LocalBoxFuture};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use tepal_engine::{Question, Reply};
use tepal_gateway::nbd::InFlight;
use tepal_wire::handshake::{Reason, Refused, Sender};
use tepal_wire::message::{Message, Request, VolumeOperation};
use tepal_wire::session::{Arrival, Pass};
use tepal_wire::{Header, Inbox, Limits, MessageError, Outbox, Payload};

/// After so many requests or bytes it's the turn of others.
const TURN_REQUESTS: usize = 256;
const TURN_BYTES: usize = 4 << 20;
/// So much is taken from what was received, counting what will be answered, before any of it is begun.
const BATCH_REQUESTS: usize = 64;
const BATCH_BYTES: u64 = 1 << 20;
/// With so many bytes waiting to be sent nothing is begun.
const LADEN: u64 = 1 << 20;

pub struct Visit {
    reception: Arc<Reception>,
    lane: Lane,
    /// The key whose rights alone the caller has.
    caller: Option<Identified>,
    /// What holds the caller to its limits.
    throttle: Option<Arc<Throttle>>,
    pass: Pass,
    mailbox: Arc<Mailbox>,
    /// `None` once the connection has gone.
    door: Option<Door>,
    in_flight: InFlight<Job>,
    done: Vec<(Done, Reply)>,
    arrived: Vec<(Header, Request, Payload)>,
    /// Nothing more is heard; the connection ends when what is under way is answered.
    stopping: bool,
}

struct Door {
    socket: Socket,
    inbox: Inbox,
    outbox: Outbox,
}

/// A request that is being carried out.
struct Job {
    done: Done,
    work: LocalBoxFuture<'static, Reply>,
}

impl Future for Job {
    type Output = (Done, Reply);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let done = self.done;
        self.work.as_mut().poll(cx).map(|reply| (done, reply))
    }
}

/// What one turn has done so far.
#[derive(Default)]
struct Turn {
    requests: usize,
    bytes: usize,
}

/// Why no more is begun now.
#[derive(PartialEq, Eq)]
enum Pause {
    /// More must be received.
    Hungry,
    /// Enough waits to be sent.
    Laden,
    /// Others have their turn first.
    TurnOver,
    /// Nothing more is heard.
    Deaf,
}

impl Visit {
    pub fn new(
        reception: Arc<Reception>,
        (lane, caller): (Lane, Option<Identified>),
        (pass, mailbox): (Pass, Arc<Mailbox>),
        socket: Socket,
        mut inbox: Inbox,
        outbox: Outbox,
    ) -> Self {
        inbox.set_limits(Limits::OPEN);
        let (in_flight, done, arrived) = (InFlight::new(), Vec::new(), Vec::new());
        let door = Some(Door { socket, inbox, outbox });
        let limited = caller.and_then(|caller| caller.limited());
        let throttle = limited.as_ref().and_then(|key| reception.answering.throttle(key));
        Visit { reception, lane, caller, throttle, pass, mailbox, door, in_flight, done, arrived, stopping: false }
    }

    /// Returns when the connection has gone and nothing of it is under way.
    pub async fn run(mut self) {
        std::future::poll_fn(|cx| self.poll(cx)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.mailbox.bell.register(cx.waker());
        let mut turn = Turn::default();
        loop {
            while let Poll::Ready(done) = self.in_flight.poll_next(cx) {
                self.done.push(done);
            }
            self.take_letters();
            self.tell();
            let pause = self.begin_received(&mut turn);
            self.tell();
            if self.door.is_none() {
                return if self.in_flight.is_empty() { Poll::Ready(()) } else { Poll::Pending };
            }
            match self.exchange(cx, pause, &mut turn) {
                Ok(Poll::Ready(())) => {}
                Ok(Poll::Pending) => return Poll::Pending,
                Err(error) => {
                    tracing::debug!(from = %self.pass.sender(), %error, "a data link of a caller ended");
                    self.leave();
                }
            }
        }
    }

    /// Sends, then receives if that's what is missing. Pending if there's nothing to do but wait.
    fn exchange(&mut self, cx: &mut Context<'_>, pause: Pause, turn: &mut Turn) -> io::Result<Poll<()>> {
        let Some(Door { socket, inbox, outbox }) = &mut self.door else { return Ok(Poll::Ready(())) };
        loop {
            match socket.try_send(outbox) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => match socket.poll_sendable(cx) {
                    Poll::Ready(ready) => ready?,
                    Poll::Pending => break,
                },
                sent => break sent?,
            }
        }
        match pause {
            Pause::Hungry => loop {
                match socket.try_receive(inbox) {
                    Ok(0) => return Err(io::ErrorKind::ConnectionReset.into()),
                    Ok(count) => {
                        turn.bytes += count;
                        return Ok(Poll::Ready(()));
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => match socket.poll_receivable(cx) {
                        Poll::Ready(ready) => ready?,
                        Poll::Pending => return Ok(Poll::Pending),
                    },
                    Err(error) => return Err(error),
                }
            },
            Pause::Laden if outbox.pending() < LADEN => Ok(Poll::Ready(())),
            Pause::Laden => Ok(Poll::Pending),
            Pause::TurnOver => {
                cx.waker().wake_by_ref();
                Ok(Poll::Pending)
            }
            Pause::Deaf => {
                if self.in_flight.is_empty() && outbox.pending() == 0 {
                    self.refuse(Refused::new(Reason::Stopping, "the server is stopping"));
                    return Ok(Poll::Ready(()));
                }
                Ok(Poll::Pending)
            }
        }
    }

    /// Takes requests from the inbox and begins them, as far as limits allow.
    fn begin_received(&mut self, turn: &mut Turn) -> Pause {
        loop {
            let Some(door) = &self.door else { return Pause::Deaf };
            if self.stopping {
                return Pause::Deaf;
            }
            if door.outbox.pending() >= LADEN {
                return Pause::Laden;
            }
            if turn.requests >= TURN_REQUESTS || turn.bytes >= TURN_BYTES {
                return Pause::TurnOver;
            }
            let taken = self.take_batch();
            turn.requests += self.arrived.len();
            // Those before one that is refused are carried out.
            let begun = self.begin_batch();
            self.tell();
            match begun.and(taken) {
                Ok(true) => {}
                Ok(false) => return Pause::Hungry,
                Err(refused) => {
                    self.refuse(refused);
                    return Pause::Deaf;
                }
            }
        }
    }

    /// Whether there may be more.
    fn take_batch(&mut self) -> Result<bool, Refused> {
        let Some(Door { inbox, outbox, .. }) = &mut self.door else { return Ok(false) };
        let mut bytes = 0;
        while self.arrived.len() < BATCH_REQUESTS && bytes < BATCH_BYTES {
            let Some(frame) = inbox.next()? else { return Ok(false) };
            match Message::decode(&frame)? {
                Message::Request(request) if Lane::of(&request) == Some(self.lane) => {
                    bytes += request.cost(&frame.payload);
                    self.arrived.push((frame.header, request, frame.payload));
                }
                Message::Ping => {
                    let header = Header { session: self.pass.session(), ..Header::default() };
                    outbox.push(&header, &Message::Pong, &Payload::none());
                }
                _ => return Err(MessageError::Kind { found: frame.kind }.into()),
            }
        }
        Ok(true)
    }

    fn begin_batch(&mut self) -> Result<(), Refused> {
        if self.arrived.is_empty() {
            return Ok(());
        }
        let sender = self.pass.sender();
        let mailbox = self.mailbox.clone();
        let _turn = mailbox.turnstile.lock().unwrap_or_else(PoisonError::into_inner);
        let arrivals: smallvec::SmallVec<[Arrival<_>; BATCH_REQUESTS]> = {
            let mut desk = self.reception.desk(self.lane, &sender);
            let arrive = |(header, request, payload): &(Header, Request, Payload)| {
                desk.visitors.arrived(&self.pass, header.request, header.slot, request.cost(payload))
            };
            self.arrived.iter().map(arrive).collect()
        };
        let (mut arrived, mut end) = (std::mem::take(&mut self.arrived), Ok(()));
        for ((header, request, payload), arrival) in arrived.drain(..).zip(arrivals) {
            match arrival {
                Arrival::Begin => {
                    let is_repeatable = request.is_repeatable();
                    let done = Done { id: header.request, slot: header.slot, is_repeatable };
                    let answering = &self.reception.answering;
                    let refused = answering.refuses(&sender, self.caller.as_ref(), &request);
                    let question = Question { view: header.view, revision: header.revision, request, payload };
                    let work = match refused {
                        Some(answer) => std::future::ready(answer.into()).boxed_local(),
                        None => {
                            let step = || asks::served(&question.request, (&sender, self.lane), header.request);
                            let step = slow::HERE.is_on().then(step);
                            slow::HERE.served(step, || self.answered(sender, question))
                        }
                    };
                    if let Poll::Ready(done) = self.in_flight.start(Job { done, work }) {
                        self.done.push(done);
                    }
                }
                Arrival::Answer(answer) => self.push(header.request, header.slot, &answer.into()),
                Arrival::UnderWay | Arrival::Late => {}
                Arrival::Fenced => end = end.and(Err(fenced())),
                Arrival::Overrun => {
                    let text = format!("request {} is more than was granted", header.request);
                    end = end.and(Err(Refused::new(Reason::Broken, text)));
                }
            }
        }
        self.arrived = arrived;
        end
    }

    /// As soon as limits let the request through.
    fn answered(&self, sender: Sender, question: Question) -> LocalBoxFuture<'static, Reply> {
        let answering = &self.reception.answering;
        match self.throttle.as_ref().filter(|throttle| throttle.is_limited()) {
            None => answering.answer(sender, question),
            Some(throttle) => {
                let (throttle, answering) = (throttle.clone(), answering.clone());
                let bytes = bytes_of(&question.request, &question.payload);
                let caller = self.caller;
                async move {
                    slow::step(|| Step::new("wait for a limit", Kind::Internal), throttle.pass(bytes)).await;
                    // Its rights may have changed while it waited.
                    if let Some(refused) = answering.refuses(&sender, caller.as_ref(), &question.request) {
                        return refused.into();
                    }
                    answering.answer(sender, question).await
                }
                .boxed_local()
            }
        }
    }

    fn push(&mut self, request: u64, slot: u16, reply: &Reply) {
        let header = Header { request, slot, session: self.pass.session(), load: reply.load, ..Header::default() };
        if let Some(door) = &mut self.door {
            door.outbox.push(&header, &reply.answer, &reply.payload);
        }
    }

    /// Answers what is done, on the session's newest connection.
    fn tell(&mut self) {
        if self.done.is_empty() {
            return;
        }
        let (mut all, mut drained) = (std::mem::take(&mut self.done), false);
        {
            let reception = self.reception.clone();
            let mut desk = reception.desk(self.lane, &self.pass.sender());
            for (done, reply) in all.drain(..) {
                let kept = (!done.is_repeatable).then(|| reply.answer.clone());
                let finished = desk.visitors.finished(&self.pass, done.id, done.slot, kept);
                drained |= finished.drained.is_some();
                match finished.to {
                    Some(pass) if pass == self.pass => self.push(done.id, done.slot, &reply),
                    Some(newer) => {
                        let here = desk.here.get(&newer.sender()).filter(|(pass, _)| *pass == newer);
                        here.inspect(|(_, mailbox)| mailbox.put(done, reply));
                    }
                    None => {} // it will be asked again
                }
            }
        }
        self.done = all;
        if drained {
            self.reception.drained();
        }
    }

    fn take_letters(&mut self) {
        let Letters { answers, notice } = self.mailbox.take();
        for (done, reply) in answers {
            self.push(done.id, done.slot, &reply);
        }
        match notice {
            Some(Notice::Fenced) => self.refuse(fenced()),
            Some(Notice::Stopping) => self.stopping = true,
            None => {}
        }
    }

    /// Says why the connection ends, if there's room for it.
    fn refuse(&mut self, refused: Refused) {
        let Some(Door { socket, outbox, .. }) = &mut self.door else { return };
        if refused.reason == Reason::Broken {
            self.reception.note(&self.pass.sender(), &refused);
        }
        outbox.push(&Header { session: self.pass.session(), ..Header::default() }, &refused, &Payload::none());
        let _ = socket.try_send(outbox); // who doesn't listen isn't told
        self.leave();
    }

    /// The connection is over.
    fn leave(&mut self) {
        if self.door.take().is_some() {
            let mut desk = self.reception.desk(self.lane, &self.pass.sender());
            desk.visitors.disconnected(&self.pass);
            if desk.here.get(&self.pass.sender()).is_some_and(|(pass, _)| *pass == self.pass) {
                desk.here.remove(&self.pass.sender());
            }
        }
    }
}

fn fenced() -> Refused {
    Refused::new(Reason::Fenced, "the session has a newer connection, or the server a newer run")
}

/// What counts against a limit of bytes.
fn bytes_of(request: &Request, payload: &Payload) -> u64 {
    match request {
        Request::Volume(request) => match &request.operation {
            VolumeOperation::Read { length, .. } => (*length).into(),
            // Blocks of zeros are written.
            VolumeOperation::Zero { length, allocate: true, .. } => *length,
            VolumeOperation::Node { operation, .. } => operation.wanted() + payload.length(),
            _ => payload.length(),
        },
        _ => 0,
    }
}
