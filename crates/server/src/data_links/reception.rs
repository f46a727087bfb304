//! The answerer's side: who is let in, and what of theirs has been done. All data threads share it.

use super::lane::Lane;
use super::visit::Visit;
use crate::access::Identified;
use crate::connection::{Moved, Refusals, Socket};
use crate::data_threads::DataThreads;
use crate::throttle::Throttle;
use futures_util::future::LocalBoxFuture;
use futures_util::task::AtomicWaker;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tepal_engine::{Question, Reply};
use tepal_metadata::KeyHash;
use tepal_wire::handshake::{Hello, Host, Reason, Refused, Sender, Standing, Welcome};
use tepal_wire::message::{Answer, Request};
use tepal_wire::session::{Admission, Pass, Visitors};
use tepal_wire::{Header, Inbox, Outbox, Payload};
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::timeout;

/// Sessions that are remembered, of each kind. Of a server's nothing is forgotten while it runs: clusters are smaller.
const MOST_SESSIONS: usize = 1024;
/// How long a server that was started again waits, each time that it calls, for what its last run left under way. It's told before it
/// gives up by itself: then it knows that somebody is there, and holds one place at a time.
const DRAIN: Duration = Duration::from_millis(1_500);
/// How long the peer may take to accept that it's refused.
const ACCEPT: Duration = Duration::from_secs(2);
/// How long connections may take to finish what is under way when the server stops.
const FINISH: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What answers.
pub trait Answering: Send + Sync + 'static {
    /// Called in the order of the requests of a lane, on a data thread. The future is polled to its end, whatever becomes of
    /// the connection.
    fn answer(&self, from: Sender, question: Question) -> LocalBoxFuture<'static, Reply>;

    /// Whether the cluster knows a caller.
    fn standing(&self, sender: &Sender) -> Standing;

    /// What a caller is told that isn't allowed to ask that. `caller`: whose certificate it has shown.
    fn refuses(&self, sender: &Sender, caller: Option<&Identified>, request: &Request) -> Option<Answer>;
    /// What holds the caller of this key to its limits. It's kept for as long as the connection.
    fn throttle(&self, _by: &KeyHash) -> Option<Arc<Throttle>> {
        None
    }
}

/// Where callers of data lanes are received.
pub struct Reception {
    host: Host,
    /// Who carries out what is asked.
    pub answering: Arc<dyn Answering>,
    /// They have it, not it them.
    threads: Weak<DataThreads>,
    /// Of drives, of volumes for servers, and of volumes for clients.
    desks: [Mutex<Desk>; 3],
    /// Nothing of some older run is under way any more.
    drained: Notify,
    refusals: Refusals,
    stopping: AtomicBool,
    connections: AtomicUsize,
}

pub struct Desk {
    pub visitors: Visitors<Answer>,
    /// The newest connection of each session.
    pub here: BTreeMap<Sender, (Pass, Arc<Mailbox>)>,
}

/// How a connection hears of others.
#[derive(Default)]
pub struct Mailbox {
    letters: Mutex<Letters>,
    pub bell: AtomicWaker,
    /// Shared by the connections of a session, which may be on several threads, and held by one from when its requests are let in
    /// until they are begun: what comes on a newer one is begun after them.
    pub turnstile: Arc<Mutex<()>>,
}

#[derive(Default)]
pub struct Letters {
    /// To what was asked on older connections.
    pub answers: Vec<(Done, Reply)>,
    pub notice: Option<Notice>,
}

/// Why a connection should end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Its session has a newer one, or its server a newer run.
    Fenced,
    /// What is under way is finished first.
    Stopping,
}

/// Which request was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub id: u64,
    pub slot: u16,
    pub is_repeatable: bool,
}

impl Mailbox {
    pub fn take(&self) -> Letters {
        std::mem::take(&mut self.lock())
    }

    pub fn put(&self, done: Done, reply: Reply) {
        self.lock().answers.push((done, reply));
        self.bell.wake();
    }

    fn notice(&self, notice: Notice) {
        self.lock().notice.get_or_insert(notice);
        self.bell.wake();
    }

    fn lock(&self) -> MutexGuard<'_, Letters> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Admitted = (Pass, Arc<Mailbox>, Welcome);

/// Counts a connection until it's gone.
pub struct Present(Arc<Reception>);

impl Present {
    fn new(reception: &Arc<Reception>) -> Self {
        reception.connections.fetch_add(1, Ordering::Relaxed);
        Present(reception.clone())
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Reception {
    /// `host` is this server, as it welcomes others. Callers are spread over the threads.
    pub fn new(host: Host, answering: Arc<dyn Answering>, threads: &Arc<DataThreads>) -> Arc<Self> {
        let desk = |lane: Lane| {
            let visitors = Visitors::new(lane.grant(), MOST_SESSIONS);
            Mutex::new(Desk { visitors, here: BTreeMap::new() })
        };
        Arc::new(Reception {
            host,
            answering,
            threads: Arc::downgrade(threads),
            desks: [desk(Lane::Drives), desk(Lane::Volumes), desk(Lane::Volumes)],
            drained: Notify::new(),
            refusals: Refusals::default(),
            stopping: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
        })
    }

    /// Who is here of a lane's servers or clients. Locked: never to be held while anything is waited for.
    pub fn desk(&self, lane: Lane, sender: &Sender) -> MutexGuard<'_, Desk> {
        let number = match (lane, sender) {
            (Lane::Drives, _) => 0,
            (Lane::Volumes, Sender::Server { .. } | Sender::Newcomer) => 1,
            (Lane::Volumes, Sender::Client { .. }) => 2,
        };
        self.desks[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection whose hello was heard to a data thread. `caller`: whose certificate it has shown. It keeps its place among
    /// those that aren't welcome yet until it is.
    pub fn receive(
        self: &Arc<Self>,
        (moved, inbox): (Moved, Inbox),
        hello: Hello,
        lane: Lane,
        caller: Option<Identified>,
        place: OwnedSemaphorePermit,
    ) {
        let Some(threads) = self.threads.upgrade() else { return };
        let (seat, reception) = (threads.seat(), self.clone());
        threads.spawn_on(seat.thread(), move || async move {
            let _seat = seat;
            match Socket::moved(moved) {
                Ok(socket) => reception.serve((socket, inbox), hello, (lane, caller), place).await,
                Err(error) => tracing::warn!(%error, "a connection of another server can't be taken to a data thread"),
            }
        });
    }

    async fn serve(
        self: Arc<Self>,
        (socket, inbox): (Socket, Inbox),
        hello: Hello,
        (lane, caller): (Lane, Option<Identified>),
        place: OwnedSemaphorePermit,
    ) {
        let _present = Present::new(&self);
        let mut outbox = Outbox::new();
        let header = Header { session: hello.epoch, ..Header::default() };
        let admitted = timeout(DRAIN, self.admit(&hello, lane)).await.unwrap_or_else(|_| {
            Err(Refused::new(Reason::TooMany, "what an older run of the same server has asked is still under way"))
        });
        drop(place);
        match admitted {
            Ok((pass, mailbox, welcome)) => {
                outbox.push(&header, &welcome, &Payload::none());
                Visit::new(self, (lane, caller), (pass, mailbox), socket, inbox, outbox).run().await;
            }
            Err(refused) => {
                self.note(&hello.sender, &refused);
                outbox.push(&header, &refused, &Payload::none());
                let _ = timeout(ACCEPT, socket.send(&mut outbox)).await; // who doesn't listen isn't told
            }
        }
    }

    /// Lets a caller in, as soon as nothing of older runs of it is under way.
    async fn admit(&self, hello: &Hello, lane: Lane) -> Result<Admitted, Refused> {
        loop {
            let drained = self.drained.notified();
            match self.judge(hello, lane)? {
                Some(welcome) => return Ok(welcome),
                None => drained.await,
            }
        }
    }

    fn judge(&self, hello: &Hello, lane: Lane) -> Result<Option<Admitted>, Refused> {
        let sender = hello.sender;
        let refuse = |reason, why| Err(Refused::new(reason, format!("{sender} {why}")));
        match self.answering.standing(&sender) {
            Standing::Member => {}
            Standing::Unknown => return refuse(Reason::UnknownServer, "isn't known in this cluster"),
            Standing::Removed => return refuse(Reason::NotAMember, "was removed"),
            Standing::Fenced => return refuse(Reason::Fenced, "may not act any more"),
        }
        let mut desk = self.desk(lane, &sender);
        if self.stopping.load(Ordering::Relaxed) {
            return refuse(Reason::Stopping, "called a server that is stopping");
        }
        let admission = desk.visitors.admit(hello)?;
        desk.here.retain(|other, (_, older)| {
            let fenced = is_older_run(other, &sender);
            if fenced {
                older.notice(Notice::Fenced);
            }
            !fenced
        });
        let Admission::Welcome { pass, grant, known } = admission else { return Ok(None) };
        let turnstile = desk.here.get(&sender).map(|(_, older)| older.turnstile.clone());
        let mailbox = Arc::new(Mailbox { turnstile: turnstile.unwrap_or_default(), ..Mailbox::default() });
        if let Some((_, older)) = desk.here.insert(sender, (pass, mailbox.clone())) {
            older.notice(Notice::Fenced);
        }
        Ok(Some((pass, mailbox, self.host.welcome(hello, grant, known))))
    }

    /// Lets those in that waited for the end of what older runs of theirs had asked.
    pub fn drained(&self) {
        self.drained.notify_waiters();
    }

    /// Has the log say that a caller was refused, and why.
    pub fn note(&self, sender: &Sender, refused: &Refused) {
        self.refusals.note_caller(&sender.to_string(), refused);
    }

    /// Receives nobody and hears nothing any more, and returns when all that was under way is answered, or takes too long.
    pub async fn close(&self) {
        for desk in &self.desks {
            let desk = desk.lock().unwrap_or_else(PoisonError::into_inner);
            self.stopping.store(true, Ordering::Relaxed);
            desk.here.values().for_each(|(_, mailbox)| mailbox.notice(Notice::Stopping));
        }
        let all_gone = async {
            while self.connections.load(Ordering::Relaxed) > 0 {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        if timeout(FINISH, all_gone).await.is_err() {
            tracing::warn!("what other servers have asked isn't done in time");
        }
    }
}

fn is_older_run(other: &Sender, newer: &Sender) -> bool {
    matches!(
        (other, newer),
        (Sender::Server { server, boot }, Sender::Server { server: same, boot: newer }) if server == same && boot < newer
    )
}
