//! Connections to other servers: each is made when it's first needed, and again after it broke.

use super::Subject;
use crate::access::Credentials;
use crate::connection::{FIRST_PAUSE, Incoming, LONGEST, LONGEST_PAUSE, NotReached, Outgoing, Refusals, call};
use crate::tasks;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tepal_metadata::{Caller, TransportError};
use tepal_model::{ClusterId, ServerId};
use tepal_wire::handshake::{Hello, Role, Sender, Welcome};
use tepal_wire::message::{Answer as Answered, Message, Request};
use tepal_wire::{Header, MessageError};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Calls to one server that aren't sent yet.
const QUEUE: usize = 64;
/// Calls to one server that aren't answered yet.
const MOST_OPEN: usize = 1024;
/// One that nobody has needed for so long is closed.
const IDLE: Duration = Duration::from_secs(60);
/// The connections to all other servers.
#[derive(Default)]
pub struct PeerLinks {
    credentials: Credentials,
    links: Mutex<Table>,
    refusals: Arc<Refusals>,
}

#[derive(Default)]
struct Table {
    /// None of a server that isn't in a cluster yet.
    caller: Option<Caller>,
    links: BTreeMap<String, mpsc::Sender<Call>>,
}

struct Call {
    subject: Subject,
    expects: Option<ServerId>,
    body: Vec<u8>,
    answer: oneshot::Sender<Answer>,
}

type Answer = Result<Vec<u8>, TransportError>;

/// A connection on which this server is welcome.
struct Connection {
    incoming: Incoming,
    outgoing: Outgoing,
    hello: Hello,
    welcome: Welcome,
}

impl PeerLinks {
    pub fn new(credentials: Credentials) -> Self {
        PeerLinks { credentials, ..PeerLinks::default() }
    }

    /// Connections from here on are those of this server.
    pub fn introduce(&self, caller: Caller) {
        let mut table = self.table();
        table.caller = Some(caller);
        table.links.clear();
    }

    /// Asks the server at `address`, which must be `expects` if that is known, and waits for its answer for so long.
    pub fn call(
        &self,
        address: &str,
        expects: Option<ServerId>,
        subject: Subject,
        body: Vec<u8>,
        within: Duration,
    ) -> impl Future<Output = Answer> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        let fits = body.len() <= LONGEST;
        let sent = fits && self.link(address).try_send(Call { subject, expects, body, answer }).is_ok();
        let address = address.to_owned();
        async move {
            let error = |what: &str| TransportError(format!("{address}: {what}"));
            if !sent {
                return Err(error(if fits { "too many calls wait for it already" } else { "that is too much to ask" }));
            }
            match timeout(within, answered).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(error("the connection ended before an answer came")),
                Err(_) => Err(error("no answer came in time")),
            }
        }
    }

    fn link(&self, address: &str) -> mpsc::Sender<Call> {
        let mut table = self.table();
        if let Some(link) = table.links.get(address).filter(|link| !link.is_closed()) {
            return link.clone();
        }
        table.links.retain(|_, link| !link.is_closed());
        let (link, calls) = mpsc::channel(QUEUE);
        let (address_of_it, credentials) = (address.to_owned(), self.credentials.clone());
        let (caller, refusals) = (table.caller, self.refusals.clone());
        let link_to = Link { address: address_of_it, credentials, caller, refusals };
        tasks::spawn(link_to.keep(calls));
        table.links.insert(address.to_owned(), link.clone());
        link
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way to one server.
struct Link {
    address: String,
    credentials: Credentials,
    caller: Option<Caller>,
    refusals: Arc<Refusals>,
}

impl Link {
    /// Connects whenever somebody calls, until nobody does for long. While the server can't be reached, whoever calls is told
    /// so at once.
    async fn keep(self, mut calls: mpsc::Receiver<Call>) {
        let (mut pause, mut unreachable) = (FIRST_PAUSE, None::<(Instant, TransportError)>);
        while let Ok(Some(call)) = timeout(IDLE, calls.recv()).await {
            if let Some((until, why)) = &unreachable
                && Instant::now() < *until
            {
                let _ = call.answer.send(Err(why.clone()));
                continue;
            }
            match self.connect().await {
                Ok(connection) => {
                    (pause, unreachable) = (FIRST_PAUSE, None);
                    self.converse(connection, call, &mut calls).await;
                }
                Err(error) => {
                    if let NotReached::Refused(why) = &error {
                        self.refusals.note_called(&self.address, why);
                    }
                    let why = TransportError(format!("{}: {error}", self.address));
                    let _ = call.answer.send(Err(why.clone()));
                    unreachable = Some((Instant::now() + pause, why));
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    async fn connect(&self) -> Result<Connection, NotReached> {
        let hello = match self.caller {
            Some(Caller { cluster, server, run }) => {
                Hello::new(cluster, Sender::Server { server, boot: run }, Role::Server, 0)
            }
            None => Hello::new(ClusterId(0), Sender::Newcomer, Role::Server, 0),
        };
        let (mut incoming, outgoing, welcome) = call(&self.address, &self.credentials, hello.clone()).await?;
        incoming.open();
        Ok(Connection { incoming, outgoing, hello, welcome })
    }

    /// Calls over one connection, until it ends or isn't needed any more.
    async fn converse(&self, connection: Connection, first: Call, calls: &mut mpsc::Receiver<Call>) {
        let Connection { incoming, mut outgoing, hello, welcome } = connection;
        let most = MOST_OPEN.min(welcome.grant.requests.into());
        let open = Arc::new(Mutex::new(Open { most, last: 0, calls: BTreeMap::new() }));
        let (requests, mut queue) = mpsc::channel::<(Header, Request, Vec<u8>)>(QUEUE);
        // Both end with this function.
        let mut halves = JoinSet::new();
        halves.spawn(hear(self.address.clone(), incoming, open.clone()));
        halves.spawn(async move {
            while let Some((header, request, body)) = queue.recv().await {
                outgoing.push(&header, &request, body);
                if outgoing.send().await.is_err() {
                    return;
                }
            }
        });
        let mut next = Some(first);
        loop {
            let call = match next.take() {
                Some(call) => call,
                None => tokio::select! {
                    call = timeout(IDLE, calls.recv()) => match call {
                        Ok(Some(call)) => call,
                        Ok(None) | Err(_) => return,
                    },
                    _ = halves.join_next() => return,
                },
            };
            let Call { subject, expects, body, answer } = call;
            // Its caller has given up, while this waited for the connection.
            if answer.is_closed() {
                continue;
            }
            if let Some(expected) = expects.filter(|expected| *expected != welcome.server) {
                let why = format!("{}: {} answers there in place of {expected}", self.address, welcome.server);
                let _ = answer.send(Err(TransportError(why)));
                continue;
            }
            let request = match subject {
                Subject::Metadata => Request::Metadata,
                Subject::Api => Request::Api,
            };
            // What finds no place is dropped, so its caller is told.
            let Some(number) = lock(&open).begin(answer) else { continue };
            let header = Header { request: number, session: hello.epoch, ..Header::default() };
            // A queue that is full belongs to a server that reads nothing.
            if requests.try_send((header, request, body)).is_err() {
                lock(&open).calls.remove(&number);
            }
        }
    }
}

/// Hands each answer to whoever waits for it.
async fn hear(address: String, mut incoming: Incoming, open: Arc<Mutex<Open>>) {
    loop {
        let ended = match incoming.message().await {
            Ok((header, Message::Answer(Answered::Metadata | Answered::Api), body)) => {
                if let Some(answer) = lock(&open).end(header.request) {
                    let _ = answer.send(Ok(body));
                }
                continue;
            }
            Ok((_, Message::Refused(refused), _)) => refused.to_string(),
            Ok((_, message, _)) => {
                let found = tepal_wire::frame::Encode::kind(&message);
                MessageError::Kind { found }.to_string()
            }
            Err(error) => error.to_string(),
        };
        tracing::debug!(address, ended, "the connection to another server ended");
        return;
    }
}

fn lock(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The calls of one connection that aren't answered.
struct Open {
    most: usize,
    last: u64,
    calls: BTreeMap<u64, oneshot::Sender<Answer>>,
}

impl Open {
    /// The number of a new call, if there's room for one.
    fn begin(&mut self, answer: oneshot::Sender<Answer>) -> Option<u64> {
        if self.calls.len() >= self.most {
            self.calls.retain(|_, call| !call.is_closed());
        }
        if self.calls.len() >= self.most {
            return None;
        }
        self.last += 1;
        self.calls.insert(self.last, answer);
        Some(self.last)
    }

    fn end(&mut self, number: u64) -> Option<oneshot::Sender<Answer>> {
        self.calls.remove(&number)
    }
}
