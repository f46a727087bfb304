//! One lane to one server, from the asker's side: what all threads share of it.
//!
//! 1. Nobody waits for a socket while holding the lock. Who sends takes out what is to go, and puts back what didn't.
//! 2. One thread sends at a time, so frames go in order; what others put in line meanwhile is sent by it too.
//! 3. While something isn't answered, the owner has a vigil: see [`super::vigil`].
//! 4. When the socket takes no more, the owner's thread goes on.
//! 5. If this process stood still since frames were made, those who asked may have gone: in a lane where questions leave with them, the
//!    frames are made anew on another connection.

use super::departures::depart;
use super::lane::Lane;
use super::line::{Line, PARCEL, Told, Waits};
use crate::connection::Socket;
use crate::slow;
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, ready};
use futures_util::task::AtomicWaker;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tepal_engine::{Question, Reply, Unreachable};
use tepal_gateway::pulse::Pauses;
use tepal_model::ServerId;
use tepal_wire::handshake::Welcome;
use tepal_wire::message::Message;
use tepal_wire::{Header, Outbox, Payload};
use tokio::sync::oneshot;

/// Is told the answer, and which request it's to.
type Waiter = oneshot::Sender<Result<(Reply, u64), Unreachable>>;

impl Waits for Waiter {
    fn has_left(&self) -> bool {
        self.is_closed()
    }
}

pub struct Link {
    pub server: ServerId,
    pub lane: Lane,
    state: Mutex<State>,
    /// Wakes the owner.
    bell: AtomicWaker,
}

struct State {
    standing: ServerStanding,
    line: Line<Waiter>,
    /// Frames in line for the connection.
    outbox: Outbox,
    /// An empty one, whose memory is used again.
    spare: Outbox,
    connection: Connection,
    pauses: Pauses,
    owned: bool,
    /// The owner has a vigil over the connection.
    watched: bool,
    /// Nothing was heard since then, over any connection, though something was wanted.
    silent_since: Option<Instant>,
    /// That was for too long. Cleared by the next welcome.
    cut_off: bool,
}

/// What is known of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerStanding {
    /// Nothing yet: who asks waits.
    Unknown,
    Up(Arc<str>),
    Down,
    /// The links are being stopped.
    Stopped,
}

enum Connection {
    /// There's no connection.
    None,
    Open {
        socket: Arc<Socket>,
        epoch: u64,
        parcel: Parcel,
    },
}

/// What is on its way into the socket.
enum Parcel {
    None,
    /// Some thread is sending it.
    Leaving,
    /// The socket takes no more now.
    Stuck(Outbox),
    /// Nothing goes over this connection any more.
    Lost,
}

/// What the owner of a connection should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    Receive,
    /// And go on sending when the socket takes more.
    Send,
    /// Nothing can be sent over it any more: what has come counts still.
    HearOut,
    /// Leave it: it's not wanted any more.
    End,
}

impl Link {
    pub fn new(server: ServerId, lane: Lane, standing: ServerStanding) -> Self {
        let state = State {
            standing,
            line: Line::new(lane),
            outbox: Outbox::new(),
            spare: Outbox::new(),
            connection: Connection::None,
            pauses: Pauses::of_this_process(),
            owned: false,
            watched: false,
            silent_since: None,
            cut_off: false,
        };
        Link { server, lane, state: Mutex::new(state), bell: AtomicWaker::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It's in line when this returns.
    pub fn ask(self: &Arc<Self>, question: Question) -> LocalBoxFuture<'static, Result<Reply, Unreachable>> {
        let (waiter, answered) = oneshot::channel();
        let (sends, many) = {
            let mut state = self.lock();
            if let Some(reason) = state.standing.refuses(self.server) {
                return ready(Err(Unreachable::unsent(reason))).boxed_local();
            }
            if state.cut_off && self.lane.gives_up() {
                let (reason, was_sent) = (self.no_way(), false);
                return ready(Err(Unreachable { reason, was_sent, is_cut_off: true })).boxed_local();
            }
            let State { line, outbox, connection, watched, pauses, .. } = &mut *state;
            let is_first = match connection {
                Connection::Open { parcel: Parcel::None, .. } => outbox.pending() == 0 && line.has_begun_all(),
                Connection::Open { .. } => false,
                Connection::None => !line.is_wanted(),
            };
            if is_first {
                pauses.forget(Instant::now()); // nothing that's to be sent is of before
            }
            line.ask(question, waiter, outbox);
            match connection {
                Connection::Open { .. } => {
                    if !std::mem::replace(watched, true) {
                        self.bell.wake();
                    }
                    (outbox.pending() > 0, outbox.pending() >= PARCEL)
                }
                Connection::None => {
                    self.bell.wake();
                    (false, false)
                }
            }
        };
        if many {
            while self.send() {}
        } else if sends {
            depart(self);
        }
        async move {
            let (reason, was_sent, is_cut_off) = ("the links have ended".to_owned(), true, false);
            let answered = answered.await.unwrap_or_else(|_| Err(Unreachable { reason, was_sent, is_cut_off }));
            slow::asks::note(&answered);
            answered.map(|(reply, _)| reply)
        }
        .boxed_local()
    }

    /// Sends what is in line, unless somebody does. Whether more has come in line meanwhile.
    pub fn send(&self) -> bool {
        let (socket, epoch, mut parcel) = {
            let mut state = self.lock();
            let State { line, outbox, spare, connection, pauses, .. } = &mut *state;
            let Connection::Open { socket, epoch, parcel: place @ Parcel::None } = connection else { return false };
            if outbox.pending() == 0 {
                return false;
            }
            if self.is_out_of_date(pauses) {
                self.lose(place, line);
                return false;
            }
            *place = Parcel::Leaving;
            (socket.clone(), *epoch, std::mem::replace(outbox, std::mem::take(spare)))
        };
        let sent = socket.try_send(&mut parcel);
        self.has_sent(epoch, parcel, sent)
    }

    /// Whether frames must not be sent any more as they are.
    fn is_out_of_date(&self, pauses: &mut Pauses) -> bool {
        self.lane.leaves_with_asker() && pauses.take_new(Instant::now())
    }

    fn lose(&self, parcel: &mut Parcel, line: &mut Line<Waiter>) {
        *parcel = Parcel::Lost;
        line.makes_no_more();
        self.bell.wake();
    }

    fn has_sent(&self, epoch: u64, parcel: Outbox, sent: io::Result<()>) -> bool {
        let mut state = self.lock();
        let State { line, outbox, spare, connection, .. } = &mut *state;
        let Connection::Open { epoch: now, parcel: place, .. } = connection else { return false };
        if *now != epoch {
            return false; // another connection has been made meanwhile
        }
        match sent {
            Ok(()) => {
                (*place, *spare) = (Parcel::None, parcel);
                line.fill(outbox);
                return outbox.pending() > 0;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => *place = Parcel::Stuck(parcel),
            Err(error) => {
                tracing::debug!(server = %self.server, %error, "nothing can be sent to a server any more");
                self.lose(place, line);
            }
        }
        self.bell.wake();
        false
    }

    /// Goes on with what the socket didn't take: whether it does now.
    pub fn send_stuck(&self) {
        let (socket, epoch, mut parcel) = {
            let mut state = self.lock();
            let State { line, connection, pauses, .. } = &mut *state;
            let Connection::Open { socket, epoch, parcel } = connection else { return };
            let Parcel::Stuck(_) = parcel else { return };
            if self.is_out_of_date(pauses) {
                return self.lose(parcel, line);
            }
            let Parcel::Stuck(stuck) = std::mem::replace(parcel, Parcel::Leaving) else { return };
            (socket.clone(), *epoch, stuck)
        };
        let sent = socket.try_send(&mut parcel);
        if self.has_sent(epoch, parcel, sent) {
            while self.send() {}
        }
    }

    /// The cluster has agreed on it, or the links are being stopped.
    pub fn set(&self, standing: ServerStanding) {
        let (told, why) = {
            let mut state = self.lock();
            if state.standing == standing || state.standing == ServerStanding::Stopped {
                return;
            }
            state.standing = standing;
            (state.silent_since, state.cut_off) = (None, false);
            match state.standing.refuses(self.server) {
                Some(why) => (state.line.give_up(), why),
                None => (Vec::new(), String::new()),
            }
        };
        self.bell.wake();
        tell(told, &why, false);
    }

    /// Nothing is heard from here on, until [`Link::note_heard`], or since so long ago.
    pub fn note_silence(&self, ago: Duration) {
        let mut state = self.lock();
        if state.silent_since.is_none() {
            state.silent_since = Instant::now().checked_sub(ago);
        }
    }

    pub fn note_heard(&self) {
        self.lock().silent_since = None;
    }

    /// Nobody waits any more for a server from which nothing was heard for so long, though it's up as agreed.
    pub fn give_up_after(&self, longest: Duration) {
        let told = {
            let mut state = self.lock();
            let is_late = state.silent_since.is_some_and(|since| since.elapsed() >= longest);
            if !is_late || state.cut_off || !matches!(state.standing, ServerStanding::Up(_)) {
                return;
            }
            state.cut_off = true;
            if self.lane.gives_up() { state.line.give_up() } else { Vec::new() }
        };
        tracing::warn!(server = %self.server, lane = ?self.lane, "a server that is up can't be reached from here");
        tell(told, &self.no_way(), true);
    }

    pub fn is_cut_off(&self) -> bool {
        self.lock().cut_off
    }

    fn no_way(&self) -> String {
        format!("{} is up, but can't be reached from here", self.server)
    }

    /// Whether the caller is the first to ask that. Then it has to see to the connections.
    pub fn take_ownership(&self) -> bool {
        !std::mem::replace(&mut self.lock().owned, true)
    }

    /// Where to connect to, once somebody wants something. `None` once nobody will.
    pub async fn wanted(&self) -> Option<Arc<str>> {
        self.when(|state| match &state.standing {
            ServerStanding::Stopped => Poll::Ready(None),
            ServerStanding::Up(address) if state.line.is_wanted() || state.cut_off => {
                Poll::Ready(Some(address.clone()))
            }
            ServerStanding::Up(_) | ServerStanding::Down | ServerStanding::Unknown => Poll::Pending,
        })
        .await
    }

    /// Returns when the server isn't at that address any more.
    pub async fn moved_from(&self, address: &str) {
        self.when(|state| match &state.standing {
            ServerStanding::Up(now) if **now == *address => Poll::Pending,
            _ => Poll::Ready(()),
        })
        .await;
    }

    async fn when<T>(&self, look: impl Fn(&State) -> Poll<T>) -> T {
        std::future::poll_fn(|cx| {
            self.bell.register(cx.waker());
            look(&self.lock())
        })
        .await
    }

    /// The epoch of a new connection.
    pub fn connect(&self) -> u64 {
        self.lock().line.connect()
    }

    /// Everything that isn't answered goes over this connection.
    pub fn open(self: &Arc<Self>, socket: Arc<Socket>, epoch: u64, welcome: &Welcome) {
        let (damaged, told, was_cut_off) = {
            let mut state = self.lock();
            let was_cut_off = std::mem::replace(&mut state.cut_off, false);
            (state.outbox, state.spare) = (Outbox::new(), Outbox::new());
            state.connection = Connection::Open { socket, epoch, parcel: Parcel::None };
            let State { line, outbox, watched, silent_since, .. } = &mut *state;
            *watched = line.is_wanted();
            *silent_since = silent_since.filter(|_| *watched);
            (line.give_up_damaged(), line.welcomed(welcome, outbox), was_cut_off)
        };
        if was_cut_off {
            tracing::info!(server = %self.server, lane = ?self.lane, "a server is reached again");
        }
        tell(damaged, "its data isn't what it was any more: this server's memory has changed it", false);
        let why = format!("{} was started again, and may have done what it was asked", self.server);
        tell(told, &why, false);
        depart(self);
    }

    /// The connection is over.
    pub fn close(&self) {
        let mut state = self.lock();
        state.connection = Connection::None;
        (state.outbox, state.spare) = (Outbox::new(), Outbox::new());
        state.line.disconnected();
    }

    /// Hands the answers to those who wait, and sends what has found room in the window.
    pub fn heard(self: &Arc<Self>, answers: &mut Vec<(Header, Reply)>) {
        let mut told = Vec::with_capacity(answers.len());
        let sends = {
            let mut state = self.lock();
            let State { line, outbox, .. } = &mut *state;
            told.extend(answers.drain(..).map(|(header, reply)| (line.answered(&header), (reply, header.request))));
            line.fill(outbox);
            outbox.pending() > 0
        };
        for (asked, answer) in told {
            if let Some(waiter) = asked.and_then(|asked| asked.waiter) {
                let _ = waiter.send(Ok(answer)); // nobody may wait for it any more
            }
        }
        if sends {
            depart(self);
        }
    }

    /// Asks whether anybody is there.
    pub fn ping(self: &Arc<Self>) {
        if let State { connection: Connection::Open { epoch, .. }, outbox, .. } = &mut *self.lock() {
            outbox.push(&Header { session: *epoch, ..Header::default() }, &Message::Ping, &Payload::none());
        }
        depart(self);
    }

    /// Whether the vigil goes on: for as long as something isn't answered.
    pub fn go_on_watching(&self) -> bool {
        let mut state = self.lock();
        state.watched = state.line.is_wanted();
        state.watched
    }

    /// What its owner should do with the connection of that address, and whether it should have a vigil over it. The owner's task
    /// is woken when it's something else.
    pub fn advise(&self, cx: &Context<'_>, address: &str) -> (Advice, bool) {
        self.bell.register(cx.waker());
        let state = self.lock();
        let advice = match (&state.standing, &state.connection) {
            (ServerStanding::Up(now), Connection::Open { parcel, .. }) if **now == *address => match parcel {
                Parcel::None | Parcel::Leaving => Advice::Receive,
                Parcel::Stuck(_) => Advice::Send,
                Parcel::Lost => Advice::HearOut,
            },
            _ => Advice::End,
        };
        (advice, state.watched)
    }
}

impl ServerStanding {
    fn refuses(&self, server: ServerId) -> Option<String> {
        match self {
            ServerStanding::Up(_) | ServerStanding::Unknown => None,
            ServerStanding::Down => Some(format!("{server} is down")),
            ServerStanding::Stopped => Some("this server is being stopped".to_owned()),
        }
    }
}

fn tell(told: Vec<Told<Waiter>>, reason: &str, is_cut_off: bool) {
    for Told { waiter, was_sent } in told {
        let unreachable = Unreachable { reason: reason.to_owned(), was_sent, is_cut_off };
        let _ = waiter.send(Err(unreachable)); // nobody may wait for it any more
    }
}
