//! Where other servers ask this one.

use super::Subject;
use crate::access::{Credentials, Peer};
use crate::connection::{Ended, Incoming, LONGEST, Outgoing, Refusals, Socket};
use crate::data_links::{Lane, Reception};
use crate::descriptors::Shares;
use crate::tasks;
use futures_util::future::BoxFuture;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tepal_gateway::nbd::{BindError, Endpoint, Listener, Surplus};
use tepal_metadata::Caller;
use tepal_wire::handshake::{Grant, Hello, Host, Reason, Refused, Role, Sender, Standing};
use tepal_wire::message::{Answer, Message, Request};
use tepal_wire::{Header, MessageError};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

/// Calls of one connection that are answered at a time; no more are read meanwhile.
const AT_ONCE: usize = 32;
/// Calls of all connections that are answered at a time. Each may be as long as a frame.
const ALL_AT_ONCE: usize = 64;
/// What a caller may have asked and not heard of yet. What isn't answered at once waits on the caller's side of the network.
const GRANT: Grant = Grant { requests: 1024, bytes: (ALL_AT_ONCE * LONGEST) as u64 };
/// Answers that aren't sent yet, of one connection.
const QUEUE: usize = 8;
/// How long the peer may take to say who it is.
const HELLO: Duration = Duration::from_secs(10);
/// How long the peer may take to accept what it's sent.
const ACCEPT: Duration = Duration::from_secs(10);
/// How long one that is to make room may take to go.
const MAKE_ROOM: Duration = Duration::from_secs(1);
/// After an error of `accept`: too many open files, most often.
const AFTER_ERROR: Duration = Duration::from_millis(50);

/// What answers.
pub trait Answering: Send + Sync + 'static {
    /// `from` is who asks, for the log.
    fn answer(&self, from: String, subject: Subject, call: Vec<u8>) -> BoxFuture<'static, Vec<u8>>;
}

/// A bound port. Nobody is answered before it's opened.
pub struct Port {
    listener: Listener,
    is_tls_required: bool,
    credentials: Credentials,
}

/// A port that answers, until this is dropped. Connections that it has handed on are not its own any more.
pub struct OpenPort {
    accepting: JoinHandle<()>,
    house: Arc<House>,
}

impl OpenPort {
    /// From here on, callers of data lanes are received there; until then they are told to come again.
    pub fn hand_data_to(&self, reception: Arc<Reception>) {
        let _ = self.house.reception.set(reception); // there's one
    }

    /// Callers that were turned away.
    pub fn surplus(&self) -> &Arc<Surplus> {
        &self.house.surplus
    }
}

impl Drop for OpenPort {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Port {
    pub async fn bind(endpoint: &Endpoint, credentials: Credentials) -> Result<Port, BindError> {
        let listener = Listener::bind(endpoint).await?;
        let address = match endpoint {
            Endpoint::Tcp(address) => Some(*address),
            Endpoint::Unix(_) => None,
        };
        Ok(Port { listener, is_tls_required: credentials.is_wanted_at(address), credentials })
    }

    #[cfg(test)]
    pub fn endpoint(&self) -> std::io::Result<Endpoint> {
        self.listener.endpoint()
    }

    /// `here` is the server that answers.
    pub fn open(self, here: Caller, answering: Arc<dyn Answering>) -> OpenPort {
        let Caller { cluster, server, run } = here;
        let host = Host { cluster, server, boot: run };
        let at_once = Arc::new(Semaphore::new(ALL_AT_ONCE));
        let (refusals, reception) = (Refusals::default(), OnceLock::new());
        let surplus = Arc::new(Surplus::new("connections of servers and gateways"));
        let Port { listener, is_tls_required, credentials } = self;
        let house = House { host, answering, at_once, refusals, reception, surplus, is_tls_required, credentials };
        let house = Arc::new(house);
        OpenPort { accepting: tasks::spawn(accept(listener, house.clone())), house }
    }
}

/// What all connections share.
struct House {
    host: Host,
    answering: Arc<dyn Answering>,
    at_once: Arc<Semaphore>,
    refusals: Refusals,
    reception: OnceLock<Arc<Reception>>,
    surplus: Arc<Surplus>,
    is_tls_required: bool,
    credentials: Credentials,
}

async fn accept(listener: Listener, house: Arc<House>) {
    let most = Shares::now().peers;
    let places = Arc::new(Semaphore::new(most));
    let mut guests: Vec<Arc<Guest>> = Vec::new();
    // All connections end with this function.
    let mut connections = JoinSet::new();
    loop {
        let accepted = match listener.accept().await.and_then(Socket::accepted) {
            Ok(accepted) => accepted,
            Err(error) => {
                house.surplus.note(&format!("a connection can't be accepted: {error}"));
                tokio::time::sleep(AFTER_ERROR).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        guests.retain(|guest| Arc::strong_count(guest) > 1);
        let mut within = Duration::ZERO;
        if places.available_permits() == 0
            && let Some(guest) = guests.iter().min_by_key(|guest| guest.claim())
        {
            guest.sent_off.notify_one();
            within = MAKE_ROOM;
        }
        // Those that exchange data don't make room: then whoever has come sees the end at once, and comes again.
        let Ok(Ok(place)) = timeout(within, places.clone().acquire_owned()).await else {
            house
                .surplus
                .note(&format!("{most} are served at a time: stop some gateways, or raise the limit of open files"));
            continue;
        };
        let guest = Arc::new(Guest { claim: Mutex::new((false, Instant::now())), sent_off: Notify::new() });
        guests.push(guest.clone());
        let house = house.clone();
        connections.spawn(async move {
            tokio::select! {
                () = receive(accepted, &guest, house, place) => {}
                () = guest.sent_off.notified() => tracing::debug!("a silent connection made room for another"),
            }
        });
    }
}

/// A connection, for who has to choose among them.
struct Guest {
    /// Whether it's a server's, and when it spoke last. Servers of the cluster speak all the time: whoever hasn't said who he is,
    /// or has been silent for longest, makes room.
    claim: Mutex<(bool, Instant)>,
    sent_off: Notify,
}

impl Guest {
    fn claim(&self) -> (bool, Instant) {
        *self.claim.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_speaking(&self) {
        *self.claim.lock().unwrap_or_else(PoisonError::into_inner) = (true, Instant::now());
    }
}

async fn receive(socket: Socket, guest: &Guest, house: Arc<House>, place: OwnedSemaphorePermit) {
    let secured = timeout(HELLO, socket.secured(house.credentials.for_peers(), house.is_tls_required)).await;
    let socket = match secured {
        Ok(Ok(socket)) => socket,
        Ok(Err(error)) => return house.refusals.note("a caller", &error.to_string()),
        Err(_) => return tracing::debug!("a connection made room, as it didn't begin TLS"),
    };
    let peer = house.credentials.judge(socket.certificates().as_deref());
    let mut incoming = Incoming::new(socket);
    let refused = match timeout(HELLO, hear(&mut incoming, &house.host)).await {
        Ok(Ok(hello)) => match house.admit(&hello, peer.as_ref()) {
            Ok(None) => {
                guest.note_speaking();
                return serve(incoming, hello, guest, &house).await;
            }
            Ok(Some((lane, reception))) => {
                let (socket, inbox) = incoming.into_parts();
                let caller = peer.and_then(|peer| peer.caller());
                match socket.into_moved() {
                    Ok(moved) => reception.receive((moved, inbox), hello, lane, caller, place),
                    Err(error) => tracing::warn!(%error, "a connection can't be taken to a data thread"),
                }
                return;
            }
            Err(refused) => Some(refused),
        },
        Ok(Err(refused)) => refused,
        Err(_) => {
            tracing::debug!("a connection made room, as it didn't say whose it is");
            return;
        }
    };
    let Some(refused) = refused else { return };
    house.refusals.note_caller("a caller", &refused);
    let (_, mut outgoing) = incoming.split();
    outgoing.push(&Header::default(), &refused, Vec::new());
    let _ = timeout(ACCEPT, outgoing.send()).await;
}

/// Who calls. What is refused without a word has no answer.
async fn hear(incoming: &mut Incoming<Socket>, host: &Host) -> Result<Hello, Option<Refused>> {
    // Who belongs to the cluster, the metadata says of each request: it alone knows how old what it knows is.
    match incoming.frame(|frame| host.hear(&frame, |_| Standing::Member)).await {
        Ok(heard) => heard.map_err(Some),
        Err(Ended::Frame(error)) => {
            tracing::debug!(%error, "what came over a new connection is no frame");
            Err(Refused::for_frame(&error))
        }
        Err(_) => Err(None),
    }
}

impl House {
    /// Whether the caller may come as what it says, and is to be received elsewhere. Identities that aren't servers are clients.
    fn admit(&self, hello: &Hello, peer: Option<&Peer>) -> Result<Option<(Lane, &Arc<Reception>)>, Refused> {
        let is_client = matches!(hello.sender, Sender::Client { .. });
        match peer {
            Some(Peer::Trusted | Peer::Server(_)) => self.judge(hello),
            Some(Peer::Identity(..)) if is_client => self.judge(hello),
            Some(Peer::Identity(_, record)) => {
                let text = format!("identity '{}' is no server, and called as {}", record.name, hello.sender);
                Err(Refused::new(Reason::UnknownServer, text))
            }
            None => Err(Refused::new(Reason::UnknownServer, "a certificate that was shown counts no more")),
        }
    }

    /// Whether the caller is to be received elsewhere.
    fn judge(&self, hello: &Hello) -> Result<Option<(Lane, &Arc<Reception>)>, Refused> {
        if let Some(lane) = Lane::named(hello) {
            let early = || Refused::new(Reason::Starting, "no data is exchanged yet");
            return Ok(Some((lane, self.reception.get().ok_or_else(early)?)));
        }
        if hello.role != Role::Server || hello.lane != 0 || matches!(hello.sender, Sender::Client { .. }) {
            let text = format!("{} called for what isn't answered here", hello.sender);
            return Err(Refused::new(Reason::UnknownServer, text));
        }
        Ok(None)
    }
}

async fn serve(incoming: Incoming<Socket>, hello: Hello, guest: &Guest, house: &Arc<House>) {
    let (mut incoming, mut outgoing) = incoming.split();
    let header = Header { session: hello.epoch, ..Header::default() };
    outgoing.push(&header, &house.host.welcome(&hello, GRANT, false), Vec::new());
    if !matches!(timeout(ACCEPT, outgoing.send()).await, Ok(Ok(()))) {
        return;
    }
    incoming.open();
    let from = hello.sender.to_string();
    let (answers, queue) = mpsc::channel(QUEUE);
    let at_once = Arc::new(Semaphore::new(AT_ONCE));
    // All of it ends with the connection.
    let mut tasks = JoinSet::new();
    tasks.spawn(tell(outgoing, queue));
    loop {
        let heard = tokio::select! {
            heard = incoming.message() => heard,
            // Nobody reads the answers any more.
            () = answers.closed() => return,
        };
        let asked = match heard {
            Ok((header, Message::Request(request), body)) => {
                subject(&request, &hello).map(|asked| (asked, header, body))
            }
            Ok((_, message, _)) => Err(MessageError::Kind { found: tepal_wire::frame::Encode::kind(&message) }.into()),
            Err(Ended::Closed | Ended::Io(_)) => return,
            Err(error) => Err(Refused::new(Reason::Broken, error.to_string())),
        };
        let ((subject, answer), header, body) = match asked {
            Ok(asked) => asked,
            Err(refused) => {
                house.refusals.note(&from, &refused.to_string());
                return;
            }
        };
        guest.note_speaking();
        // Before another is read: what waits here takes memory.
        let (own, shared) = (at_once.clone().acquire_owned().await, house.at_once.clone().acquire_owned().await);
        while tasks.try_join_next().is_some() {}
        let (house, from, answers) = (house.clone(), from.clone(), answers.clone());
        let header = Header { request: header.request, slot: header.slot, session: hello.epoch, ..Header::default() };
        tasks.spawn(async move {
            let body = house.answering.answer(from, subject, body).await;
            drop(shared);
            match body.len() {
                0..=LONGEST => drop(answers.send((header, answer, body)).await),
                length => tracing::error!(length, "an answer to another server is too long"),
            }
            drop(own);
        });
    }
}

/// What is asked for, and the answer's message.
fn subject(request: &Request, hello: &Hello) -> Result<(Subject, Answer), Refused> {
    match request {
        Request::Metadata => Ok((Subject::Metadata, Answer::Metadata)),
        Request::Api if hello.sender != Sender::Newcomer => Ok((Subject::Api, Answer::Api)),
        Request::Api => Err(Refused::new(Reason::UnknownServer, "the API was asked by a server before it joined")),
        Request::Drive(_) | Request::Volume(_) => {
            Err(Refused::new(Reason::Broken, "drives and volumes aren't asked for in this lane"))
        }
    }
}

async fn tell(mut outgoing: Outgoing, mut queue: mpsc::Receiver<(Header, Answer, Vec<u8>)>) {
    while let Some((header, answer, body)) = queue.recv().await {
        outgoing.push(&header, &answer, body);
        if !matches!(timeout(ACCEPT, outgoing.send()).await, Ok(Ok(()))) {
            return;
        }
    }
}
