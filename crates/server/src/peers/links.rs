//! Connections to other servers: each is made when it's first needed, and again after it broke.

use super::frame::{Frame, Subject, Way};
use super::{Reader, Writer, connect};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tepal_metadata::TransportError;
use tokio::io::AsyncWriteExt;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Calls to one server that aren't sent yet.
const QUEUE: usize = 64;
/// Calls to one server that aren't answered yet.
const MOST_OPEN: usize = 1024;
const CONNECT: Duration = Duration::from_secs(2);
/// A connection over which nothing was heard for so long, though something was asked, is given up for another.
const SILENCE: Duration = Duration::from_secs(10);
/// One that nobody has needed for so long is closed.
const IDLE: Duration = Duration::from_secs(60);
/// Between attempts to connect: this, then twice as long each time, up to the other.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The connections to all other servers.
#[derive(Default)]
pub struct Links {
    links: Mutex<BTreeMap<String, mpsc::Sender<Call>>>,
}

struct Call {
    subject: Subject,
    body: Vec<u8>,
    answer: oneshot::Sender<Answer>,
}

type Answer = Result<Vec<u8>, TransportError>;

impl Links {
    /// Asks the server at `address`, and waits for its answer for so long.
    pub fn call(
        &self,
        address: &str,
        subject: Subject,
        body: Vec<u8>,
        within: Duration,
    ) -> impl Future<Output = Answer> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        let sent = self.link(address).try_send(Call { subject, body, answer });
        let address = address.to_owned();
        async move {
            let error = |what: &str| TransportError(format!("{address}: {what}"));
            if sent.is_err() {
                return Err(error("too many calls wait for it already"));
            }
            match timeout(within, answered).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Err(error("the connection ended before an answer came")),
                Err(_) => Err(error("no answer came in time")),
            }
        }
    }

    fn link(&self, address: &str) -> mpsc::Sender<Call> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(link) = links.get(address).filter(|link| !link.is_closed()) {
            return link.clone();
        }
        links.retain(|_, link| !link.is_closed());
        let (link, calls) = mpsc::channel(QUEUE);
        tokio::spawn(keep(address.to_owned(), calls));
        links.insert(address.to_owned(), link.clone());
        link
    }
}

/// Connects whenever somebody calls, until nobody does for long. While the server can't be reached, whoever calls is told
/// so at once.
async fn keep(address: String, mut calls: mpsc::Receiver<Call>) {
    let (mut pause, mut unreachable) = (FIRST_PAUSE, None::<(Instant, TransportError)>);
    while let Ok(Some(call)) = timeout(IDLE, calls.recv()).await {
        if let Some((until, why)) = &unreachable
            && Instant::now() < *until
        {
            let _ = call.answer.send(Err(why.clone()));
            continue;
        }
        let late = || io::Error::new(io::ErrorKind::TimedOut, "it doesn't answer");
        match timeout(CONNECT, connect(&address)).await.unwrap_or_else(|_| Err(late())) {
            Ok((reader, writer)) => {
                (pause, unreachable) = (FIRST_PAUSE, None);
                converse(&address, reader, writer, call, &mut calls).await;
            }
            Err(error) => {
                let why = TransportError(format!("{address}: {error}"));
                let _ = call.answer.send(Err(why.clone()));
                unreachable = Some((Instant::now() + pause, why));
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// Calls over one connection, until it ends or isn't needed any more.
async fn converse(address: &str, reader: Reader, mut writer: Writer, first: Call, calls: &mut mpsc::Receiver<Call>) {
    let open = Arc::new(Mutex::new(Open::default()));
    let (frames, mut queue) = mpsc::channel::<Vec<u8>>(QUEUE);
    // Both end with this function.
    let mut halves = JoinSet::new();
    halves.spawn(hear(address.to_owned(), reader, open.clone()));
    halves.spawn(async move {
        while let Some(frame) = queue.recv().await {
            if writer.write_all(&frame).await.is_err() {
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
        let Call { subject, body, answer } = call;
        let Some(number) = lock(&open).begin(answer) else { return };
        let frame = Frame { way: Way::Call, subject, number, body }.encode();
        // A queue that is full belongs to a server that reads nothing: its callers find out by themselves.
        if frames.try_send(frame).is_err() {
            lock(&open).calls.remove(&number);
        }
    }
}

/// Hands each answer to whoever waits for it.
async fn hear(address: String, mut reader: Reader, open: Arc<Mutex<Open>>) {
    loop {
        match Frame::read(&mut reader).await {
            Ok(Frame { way: Way::Answer, number, body, .. }) => {
                if let Some(answer) = lock(&open).end(number) {
                    let _ = answer.send(Ok(body));
                }
            }
            Ok(_) => return,
            Err(error) => {
                tracing::debug!(address, %error, "the connection to another server ended");
                return;
            }
        }
    }
}

fn lock(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The calls of one connection that aren't answered.
#[derive(Default)]
struct Open {
    last: u64,
    calls: BTreeMap<u64, oneshot::Sender<Answer>>,
    /// Since when nothing was heard that is waited for.
    silent_since: Option<Instant>,
}

impl Open {
    /// The number of a new call; `None` if the connection is of no use any more.
    fn begin(&mut self, answer: oneshot::Sender<Answer>) -> Option<u64> {
        if self.silent_since.is_some_and(|since| since.elapsed() > SILENCE) {
            return None;
        }
        if self.calls.len() >= MOST_OPEN {
            self.calls.retain(|_, call| !call.is_closed());
        }
        self.silent_since.get_or_insert_with(Instant::now);
        self.last += 1;
        if self.calls.len() < MOST_OPEN {
            self.calls.insert(self.last, answer);
        }
        Some(self.last)
    }

    fn end(&mut self, number: u64) -> Option<oneshot::Sender<Answer>> {
        let call = self.calls.remove(&number);
        self.calls.retain(|_, call| !call.is_closed());
        self.silent_since = (!self.calls.is_empty()).then(Instant::now);
        call
    }
}
