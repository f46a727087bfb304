//! Where other servers ask this one.

use super::frame::{Frame, Subject, Way};
use super::{Reader, Writer, of_accepted};
use futures_util::future::BoxFuture;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tepal_gateway::nbd::{BindError, Endpoint, Listener};
use tokio::io::AsyncWriteExt;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

const MOST_CONNECTIONS: usize = 128;
/// Calls of one connection that are answered at a time; no more are read meanwhile.
const AT_ONCE: usize = 32;
/// Calls of all connections that are answered at a time. Each may be as long as a frame.
const ALL_AT_ONCE: usize = 64;
/// Answers that aren't sent yet, of one connection.
const QUEUE: usize = 8;
/// How long the peer may take to accept what it's sent.
const ACCEPT: Duration = Duration::from_secs(10);
/// After an error of `accept`: too many open files, most often.
const AFTER_ERROR: Duration = Duration::from_millis(50);

/// What answers.
pub trait Answering: Send + Sync + 'static {
    fn answer(&self, from: String, subject: Subject, call: Vec<u8>) -> BoxFuture<'static, Vec<u8>>;
}

/// A bound port. Nobody is answered before it's opened.
pub struct Port(Listener);

/// A port that answers, until this is dropped.
pub struct OpenPort(JoinHandle<()>);

impl Drop for OpenPort {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Port {
    pub async fn bind(endpoint: &Endpoint) -> Result<Port, BindError> {
        Listener::bind(endpoint).await.map(Port)
    }

    pub fn open(self, answering: Arc<dyn Answering>) -> OpenPort {
        OpenPort(tokio::spawn(accept(self.0, answering)))
    }
}

async fn accept(listener: Listener, answering: Arc<dyn Answering>) {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let at_once = Arc::new(Semaphore::new(ALL_AT_ONCE));
    let mut guests: Vec<Arc<Guest>> = Vec::new();
    // All connections end with this function.
    let mut connections = JoinSet::new();
    loop {
        let accepted = match listener.accept().await.and_then(of_accepted) {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection of another server can't be accepted");
                tokio::time::sleep(AFTER_ERROR).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        guests.retain(|guest| Arc::strong_count(guest) > 1);
        // Servers of the cluster speak all the time: whoever has been silent for longest makes room.
        if places.available_permits() == 0
            && let Some(guest) = guests.iter().min_by_key(|guest| guest.heard())
        {
            guest.sent_off.notify_one();
        }
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let guest = Arc::new(Guest { heard: Mutex::new(Instant::now()), sent_off: Notify::new() });
        guests.push(guest.clone());
        let (answering, at_once) = (answering.clone(), at_once.clone());
        connections.spawn(async move {
            tokio::select! {
                () = serve(accepted, &guest, answering, at_once) => {}
                () = guest.sent_off.notified() => tracing::debug!("a silent connection made room for another"),
            }
            drop(place);
        });
    }
}

/// A connection, for who has to choose among them.
struct Guest {
    heard: Mutex<Instant>,
    sent_off: Notify,
}

impl Guest {
    fn heard(&self) -> Instant {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn speaks(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

async fn serve(
    (mut reader, writer): (Reader, Writer),
    guest: &Guest,
    answering: Arc<dyn Answering>,
    all_at_once: Arc<Semaphore>,
) {
    let (answers, queue) = mpsc::channel(QUEUE);
    let at_once = Arc::new(Semaphore::new(AT_ONCE));
    // All of it ends with the connection.
    let mut tasks = JoinSet::new();
    tasks.spawn(tell(writer, queue));
    loop {
        let frame = tokio::select! {
            frame = Frame::read(&mut reader) => frame,
            // Nobody reads the answers any more.
            () = answers.closed() => return,
        };
        let (subject, number, body) = match frame {
            Ok(Frame { way: Way::Call, subject, number, body }) => (subject, number, body),
            Ok(_) => return,
            Err(error) => {
                tracing::debug!(%error, "the connection of another server ended");
                return;
            }
        };
        guest.speaks();
        let (Ok(own), Ok(shared)) = (at_once.clone().acquire_owned().await, all_at_once.clone().acquire_owned().await)
        else {
            return;
        };
        while tasks.try_join_next().is_some() {}
        let (answer, answers) = (answering.answer("a peer".to_owned(), subject, body), answers.clone());
        tasks.spawn(async move {
            let frame = Frame { way: Way::Answer, subject, number, body: answer.await }.encode();
            drop(shared);
            let _ = answers.send(frame).await;
            drop(own);
        });
    }
}

async fn tell(mut writer: Writer, mut queue: mpsc::Receiver<Vec<u8>>) {
    while let Some(frame) = queue.recv().await {
        if !matches!(timeout(ACCEPT, writer.write_all(&frame)).await, Ok(Ok(()))) {
            return;
        }
    }
}
