//! The asker's side: a [`Link`] for each lane to each server, and a task on a data thread that sees to its connections.

use super::lane::Lane;
use super::link::{Advice, Link, ServerStanding};
use super::vigil::{Found, Patience, Vigil};
use crate::access::Credentials;
use crate::connection::{FIRST_PAUSE, Incoming, LONGEST_PAUSE, NotReached, Refusals, Socket, call};
use crate::data_threads::DataThreads;
use crate::slow::{self, Stepped, asks};
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, ready};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;
use tepal_engine::{Peers, Question, Reply, Unreachable};
use tepal_model::{ClusterId, ServerId};
use tepal_wire::frame::Encode;
use tepal_wire::handshake::{Hello, Sender, Welcome};
use tepal_wire::message::Message;
use tepal_wire::{FrameError, Header, Inbox, Limits, MessageError};
use tokio::time::timeout;

/// After so many bytes it's the turn of other tasks of the thread.
const TURN: usize = 4 << 20;

/// All servers that data is exchanged with, or volumes used of. Clones are the same.
#[derive(Clone)]
pub struct Links(Arc<Shared>);

struct Shared {
    credentials: Credentials,
    cluster: ClusterId,
    caller: Sender,
    refusals: Refusals,
    patience: Patience,
    /// What [`Patience::cut`] is by now, in milliseconds.
    cut: AtomicU64,
    table: RwLock<Table>,
}

#[derive(Default)]
struct Table {
    links: BTreeMap<(ServerId, Lane), Arc<Link>>,
    stopped: bool,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("it isn't wanted any more")]
    Left,
    #[error("nothing comes over it any more")]
    Silent,
    #[error("the server closed it")]
    Closed,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error("the server: {0}")]
    Refused(String),
}

impl Ended {
    /// Not as a connection between servers ends now and then.
    fn is_strange(&self) -> bool {
        matches!(self, Ended::Frame(_) | Ended::Message(_))
    }
}

impl Peers for Links {
    fn ask(&self, server: ServerId, question: Question) -> LocalBoxFuture<'static, Result<Reply, Unreachable>> {
        match Lane::of(&question.request).filter(|lane| lane.is_open_to(&self.0.caller)) {
            Some(lane) => {
                let step = slow::begin(|| asks::step(&question, server, (&self.0.caller, lane)));
                let asked = self.link(server, lane).ask(question);
                match step {
                    None => asked,
                    Some(step) => Stepped::new(step, asked).boxed_local(),
                }
            }
            None => {
                ready(Err(Unreachable::unsent("that isn't asked over data links, or not by this caller"))).boxed_local()
            }
        }
    }
}

impl Links {
    /// `caller` is this server, or this gateway.
    pub fn new(cluster: ClusterId, caller: Sender, credentials: Credentials) -> Self {
        Links::with_patience(cluster, caller, Patience::default(), credentials)
    }

    pub(super) fn with_patience(
        cluster: ClusterId,
        caller: Sender,
        patience: Patience,
        credentials: Credentials,
    ) -> Self {
        let (refusals, table) = (Refusals::default(), RwLock::default());
        let cut = AtomicU64::new(patience.cut.as_millis() as u64);
        Links(Arc::new(Shared { credentials, cluster, caller, refusals, patience, cut, table }))
    }

    /// The servers that are up and can't be reached from here.
    pub fn cut_off(&self) -> BTreeSet<ServerId> {
        let table = self.0.table.read().unwrap_or_else(PoisonError::into_inner);
        table.links.values().filter(|link| link.is_cut_off()).map(|link| link.server).collect()
    }

    /// A server that nobody has spoken of yet is waited for.
    fn link(&self, server: ServerId, lane: Lane) -> Arc<Link> {
        let known = self.0.table.read().unwrap_or_else(PoisonError::into_inner).links.get(&(server, lane)).cloned();
        known.unwrap_or_else(|| {
            let mut table = self.0.table.write().unwrap_or_else(PoisonError::into_inner);
            let standing = if table.stopped { ServerStanding::Stopped } else { ServerStanding::Unknown };
            let new = || Arc::new(Link::new(server, lane, standing));
            table.links.entry((server, lane)).or_insert_with(new).clone()
        })
    }

    /// Leases are so long, as agreed: whoever is dead is declared down some time after that.
    pub fn set_lease(&self, lease: Duration) {
        let cut = Patience::of_lease(lease).cut;
        self.0.cut.store(cut.as_millis() as u64, Ordering::Relaxed);
    }

    /// The server is up, as agreed, and is reached there, over connections on these threads.
    pub fn set_up(&self, server: ServerId, address: &str, threads: &DataThreads) {
        for lane in Lane::ALL.into_iter().filter(|lane| lane.is_open_to(&self.0.caller)) {
            let link = self.link(server, lane);
            link.set(ServerStanding::Up(address.into()));
            if link.take_ownership() {
                let (seat, shared) = (threads.seat(), self.0.clone());
                threads.spawn_on(seat.thread(), move || async move {
                    let _seat = seat;
                    keep(link, shared).await;
                });
            }
        }
    }

    /// The server is down, as agreed: whoever waits for it is told, and whoever asks.
    pub fn set_down(&self, server: ServerId) {
        for lane in Lane::ALL {
            self.link(server, lane).set(ServerStanding::Down);
        }
    }

    /// Nobody is reached any more.
    pub fn stop(&self) {
        let links: Vec<_> = {
            let mut table = self.0.table.write().unwrap_or_else(PoisonError::into_inner);
            table.stopped = true;
            table.links.values().cloned().collect()
        };
        links.iter().for_each(|link| link.set(ServerStanding::Stopped));
    }
}

/// Connects whenever something is asked, for as long as the links aren't stopped.
async fn keep(link: Arc<Link>, shared: Arc<Shared>) {
    let mut pause = FIRST_PAUSE;
    while let Some(address) = link.wanted().await {
        let (role, number) = link.lane.role_and_number();
        let hello = Hello {
            epoch: link.connect(),
            expects: Some(link.server),
            ..Hello::new(shared.cluster, shared.caller, role, number)
        };
        let epoch = hello.epoch;
        link.note_silence(Duration::ZERO);
        let called = tokio::select! {
            called = call(&address, &shared.credentials, hello) => called,
            () = link.moved_from(&address) => continue,
        };
        match called {
            Ok((incoming, _, welcome)) => {
                let (ended, of_use) = converse(&link, &address, epoch, incoming, &welcome, shared.patience).await;
                if ended.is_strange() {
                    shared.refusals.note(&format!("{} at {address}", link.server), &ended.to_string());
                }
                if of_use {
                    pause = FIRST_PAUSE;
                }
            }
            Err(NotReached::Refused(why)) => {
                link.note_heard();
                shared.refusals.note_called(&format!("{} at {address}", link.server), &why);
            }
            Err(error) => tracing::debug!(server = %link.server, %error, "a server can't be reached"),
        }
        link.give_up_after(Duration::from_millis(shared.cut.load(Ordering::Relaxed)));
        // Somewhere else it may be there already.
        if timeout(pause, link.moved_from(&address)).await.is_err() {
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// Everything over one connection, until it ends: why, and whether it was of any use.
async fn converse(
    link: &Arc<Link>,
    address: &str,
    epoch: u64,
    incoming: Incoming,
    welcome: &Welcome,
    patience: Patience,
) -> (Ended, bool) {
    let (socket, mut inbox) = incoming.into_parts();
    inbox.set_limits(Limits::OPEN);
    if let Some(long) = link.lane.delivers_within()
        && let Err(error) = socket.deliver_within(long)
    {
        tracing::warn!(server = %link.server, %error, "what is sent to a server may be delivered late");
    }
    link.open(socket.clone(), epoch, welcome);
    let (answers, vigil) = (Vec::new(), Vigil::new(patience));
    let mut connection = Connection { link, address, socket, inbox, answers, of_use: false, vigil, was_heard: false };
    let ended = std::future::poll_fn(|cx| connection.poll(cx)).await;
    tracing::debug!(server = %link.server, lane = ?link.lane, %ended, "a data link ended");
    link.close();
    connection.socket.hang_up(); // some thread may be about to send over it
    let silent = match &ended {
        Ended::Silent => Some(patience.until_dead()),
        Ended::Io(error) if error.kind() == io::ErrorKind::TimedOut => link.lane.delivers_within(),
        _ => None,
    };
    if connection.was_heard || silent.is_none() {
        link.note_heard(); // else the welcome was all that came
    }
    if let Some(long) = silent {
        link.note_silence(long);
    }
    (ended, connection.of_use)
}

/// A connection on which this server is welcome, as its owner has it.
struct Connection<'a> {
    link: &'a Arc<Link>,
    address: &'a str,
    socket: Arc<Socket>,
    inbox: Inbox,
    answers: Vec<(Header, Reply)>,
    of_use: bool,
    vigil: Vigil,
    /// Something has come since the welcome.
    was_heard: bool,
}

impl Connection<'_> {
    /// Goes on until there is nothing to do but wait, or others have their turn.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        match self.go_on(cx) {
            Ok(()) => Poll::Pending,
            Err(ended) => Poll::Ready(ended),
        }
    }

    fn go_on(&mut self, cx: &mut Context<'_>) -> Result<(), Ended> {
        let is_watched = loop {
            let (advice, is_watched) = self.link.advise(cx, self.address);
            match advice {
                Advice::End => return Err(Ended::Left),
                Advice::HearOut => {
                    self.socket.hang_up(); // what has come is read before its end
                    break is_watched;
                }
                Advice::Send => match self.socket.poll_sendable(cx) {
                    Poll::Ready(ready) => {
                        ready?;
                        self.note_something(); // what was sent arrives there, however slowly
                        self.link.send_stuck();
                    }
                    Poll::Pending => break is_watched,
                },
                Advice::Receive => break is_watched,
            }
        };
        self.receive(cx)?;
        if is_watched { self.watch(cx) } else { Ok(()) }
    }

    fn receive(&mut self, cx: &mut Context<'_>) -> Result<(), Ended> {
        let mut received = 0;
        while received < TURN {
            match self.socket.try_receive(&mut self.inbox) {
                Ok(0) => return Err(Ended::Closed),
                Ok(count) => {
                    received += count;
                    self.note_something();
                    self.hear()?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => match self.socket.poll_receivable(cx) {
                    Poll::Ready(ready) => ready?,
                    Poll::Pending => return Ok(()),
                },
                Err(error) => return Err(error.into()),
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    fn note_something(&mut self) {
        self.was_heard = true;
        self.vigil.heard();
    }

    /// Looks, when it's time to, whether the connection is of any use still.
    fn watch(&mut self, cx: &mut Context<'_>) -> Result<(), Ended> {
        while self.vigil.poll(cx).is_ready() {
            if !self.link.go_on_watching() {
                self.vigil.end();
                return Ok(());
            }
            match self.vigil.look() {
                Found::Something => {}
                Found::Silence => self.link.ping(),
                Found::Death => return Err(Ended::Silent),
            }
        }
        Ok(())
    }

    fn hear(&mut self) -> Result<(), Ended> {
        let heard = loop {
            match self.inbox.next() {
                Ok(Some(frame)) => match Message::decode(&frame) {
                    Ok(Message::Answer(answer)) => {
                        self.answers
                            .push((frame.header, Reply { answer, payload: frame.payload, load: frame.header.load }));
                    }
                    Ok(Message::Pong) => {} // it has come: that's all
                    Ok(Message::Refused(refused)) => break Err(Ended::Refused(refused.to_string())),
                    Ok(message) => break Err(MessageError::Kind { found: message.kind() }.into()),
                    Err(error) => break Err(error.into()),
                },
                Ok(None) => break Ok(()),
                Err(error) => break Err(error.into()),
            }
        };
        if !self.answers.is_empty() {
            self.of_use = true;
            self.link.heard(&mut self.answers);
        }
        heard
    }
}
