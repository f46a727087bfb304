//! Servers in one process: those that ask and those that answer have data threads of their own, and a proxy between them cuts
//! connections.

use crate::access::{Credentials, Identified};
use crate::data_links::vigil::Patience;
use crate::data_links::{Answering, Links, Reception};
use crate::data_threads::DataThreads;
use crate::peers::{OpenPort, Port, Subject};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, LocalBoxFuture};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tepal_engine::{Peers, Question, Reply, Unreachable};
use tepal_gateway::nbd::Endpoint;
use tepal_metadata::Caller;
use tepal_model::{BLOCK, Buffer, ClusterId, DriveId, Lineage, MapId, Segments, ServerId, Taking};
use tepal_wire::Payload;
use tepal_wire::handshake::{ClientId, Host, Sender, Standing};
use tepal_wire::message::{
    Answer, DriveAnswer, DriveOperation, DriveRequest, Request, VolumeAnswer, VolumeOperation, VolumeRequest,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, watch};

pub const CLUSTER: ClusterId = ClusterId(7);
pub const ANSWERS: ServerId = ServerId(1);
pub const ASKS: ServerId = ServerId(2);
pub const ASKER: Sender = Sender::Server { server: ASKS, boot: 3 };
/// Nobody waits for longer, however busy the machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A write, by its number, of so many blocks.
pub fn write(number: u64, blocks: u64) -> Question {
    let data = Segments::from_iter([Buffer::zeroed((blocks * BLOCK) as usize).freeze()]);
    let payload = Payload::seal(0, data);
    drive(
        DriveOperation::Write {
            first: number,
            marks: Vec::new(),
            durable: false,
            repair: false,
            taking: Taking::Nothing,
            lineage: Lineage::default(),
        },
        payload,
    )
}

pub fn read(number: u64, blocks: u32) -> Question {
    drive(DriveOperation::Read { first: number, count: blocks, lineage: Lineage::default() }, Payload::none())
}

pub fn drive(operation: DriveOperation, payload: Payload) -> Question {
    let request = DriveRequest { drive: DriveId(1), opening: 1, map: MapId(1), column: 0, operation };
    Question { view: 5, revision: 0, request: Request::Drive(request), payload }
}

pub fn flush_volume() -> Question {
    let (volume, column, operation) = (tepal_model::VolumeId(1), 0, VolumeOperation::Flush);
    Question {
        view: 5,
        revision: 0,
        request: Request::Volume(VolumeRequest { volume, map: MapId(1), column, operation }),
        payload: Payload::none(),
    }
}

/// Answers, and remembers in which order it was asked what. Writes and reads from [`Recorder::HELD`] on wait until they are let go.
#[derive(Default)]
pub struct Recorder {
    pub begun: Mutex<Vec<u64>>,
    let_go: AtomicBool,
    bell: Notify,
    pub volumes: AtomicU64,
    /// Writes that brought something else than zeros.
    pub damaged: AtomicU64,
}

impl Recorder {
    pub const HELD: u64 = 1 << 40;

    pub fn begun(&self) -> Vec<u64> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn let_go(&self) {
        self.let_go.store(true, Ordering::SeqCst);
        self.bell.notify_waiters();
    }

    async fn held(self: Arc<Self>) {
        loop {
            let bell = self.bell.notified();
            if self.let_go.load(Ordering::SeqCst) {
                return;
            }
            bell.await;
        }
    }
}

impl Answering for Arc<Recorder> {
    fn refuses(&self, _: &Sender, _: Option<&Identified>, _: &Request) -> Option<Answer> {
        None
    }

    fn answer(&self, _: Sender, question: Question) -> LocalBoxFuture<'static, Reply> {
        let Request::Drive(DriveRequest { operation, .. }) = question.request else {
            self.volumes.fetch_add(1, Ordering::Relaxed);
            return std::future::ready(Answer::Volume(VolumeAnswer::Flushed).into()).boxed_local();
        };
        let is_zero = question.payload.data().iter().all(|data| data.iter().all(|&byte| byte == 0));
        self.damaged.fetch_add((!is_zero).into(), Ordering::Relaxed);
        let (number, reply) = match operation {
            DriveOperation::Write { first, .. } => (first, Reply::from(Answer::Drive(DriveAnswer::Written))),
            DriveOperation::Read { first, count, .. } if first >= Recorder::HELD || count > 1 => {
                let data = Segments::from_iter([Buffer::zeroed(count as usize * BLOCK as usize).freeze()]);
                (first, Reply { payload: Payload::seal(0, data), ..Answer::Drive(DriveAnswer::Read).into() })
            }
            DriveOperation::Read { .. } => {
                let data = Segments::from_iter([Bytes::from_static(&[0; BLOCK as usize])]);
                let reply = Reply { payload: Payload::seal(0, data), ..Answer::Drive(DriveAnswer::Read).into() };
                return std::future::ready(reply).boxed_local();
            }
            _ => return std::future::ready(Answer::Drive(DriveAnswer::Flushed).into()).boxed_local(),
        };
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).push(number);
        if number < Recorder::HELD {
            return std::future::ready(reply).boxed_local();
        }
        self.clone().held().map(|()| reply).boxed_local()
    }

    fn standing(&self, sender: &Sender) -> Standing {
        match sender {
            Sender::Server { server: ServerId(99), .. } => Standing::Removed,
            Sender::Client { client: ClientId(99) } => Standing::Fenced,
            _ => Standing::Member,
        }
    }
}

struct NoCalls;

impl crate::peers::Answering for NoCalls {
    fn answer(&self, _: String, _: Subject, _: Vec<u8>) -> BoxFuture<'static, Vec<u8>> {
        std::future::ready(Vec::new()).boxed()
    }
}

/// One run of a server that answers.
pub struct Server {
    pub recorder: Arc<Recorder>,
    pub threads: Arc<DataThreads>,
    pub reception: Arc<Reception>,
    port: OpenPort,
    pub address: String,
    _place: Listening,
}

impl Server {
    pub async fn start(place: &Listening, boot: u64) -> Server {
        let begin = Instant::now();
        // The task of a port that was closed may still have to end.
        let port = loop {
            match Port::bind(&place.endpoint, Credentials::default()).await {
                Ok(port) => break port,
                Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        let address = port.endpoint().expect("an address").to_string();
        let port = port.open(Caller { cluster: CLUSTER, server: ANSWERS, run: boot }, Arc::new(NoCalls));
        let threads = Arc::new(DataThreads::start(2).expect("threads"));
        let recorder = Arc::<Recorder>::default();
        let host = Host { cluster: CLUSTER, server: ANSWERS, boot };
        let reception = Reception::new(host, Arc::new(recorder.clone()), &threads);
        port.hand_data_to(reception.clone());
        Server { recorder, threads, reception, port, address, _place: place.clone() }
    }

    /// As a process that is killed.
    pub fn kill(self) -> Arc<Recorder> {
        let Server { recorder, threads, reception, port, .. } = self;
        drop((port, reception));
        Arc::try_unwrap(threads).ok().expect("nobody else has the threads").stop();
        recorder
    }
}

/// Where a server listens, as long as it's kept.
#[derive(Clone)]
pub struct Listening {
    endpoint: Endpoint,
    _folder: Option<Arc<TempDir>>,
}

pub fn socket() -> Listening {
    let folder = tempfile::tempdir().expect("a folder");
    Listening { endpoint: Endpoint::Unix(folder.path().join("s")), _folder: Some(Arc::new(folder)) }
}

/// Any port of this machine.
pub fn tcp() -> Listening {
    Listening { endpoint: Endpoint::Tcp(([127, 0, 0, 1], 0).into()), _folder: None }
}

/// What asks: links on two data threads.
pub struct Asker {
    pub links: Links,
    pub threads: Arc<DataThreads>,
}

impl Asker {
    pub fn new(caller: Sender) -> Asker {
        let threads = Arc::new(DataThreads::start(2).expect("threads"));
        Asker { links: Links::new(CLUSTER, caller, Credentials::default()), threads }
    }

    /// One that soon takes silence for death.
    pub fn impatient(address: &str) -> Asker {
        let threads = Arc::new(DataThreads::start(2).expect("threads"));
        let patience = Patience { look: Duration::from_millis(100), cut: Duration::from_secs(1) };
        let asker = Asker { links: Links::with_patience(CLUSTER, ASKER, patience, Credentials::default()), threads };
        asker.links.set_up(ANSWERS, address, &asker.threads);
        asker
    }

    pub fn to(address: &str) -> Asker {
        let asker = Asker::new(ASKER);
        asker.links.set_up(ANSWERS, address, &asker.threads);
        asker
    }

    /// Asks on a data thread.
    pub async fn ask(&self, thread: usize, question: Question) -> Result<Reply, Unreachable> {
        let links = self.links.clone();
        within(self.threads.run_on(thread, move || links.ask(ANSWERS, question))).await.expect("the thread runs")
    }

    /// Asks now, on the first thread, and gives what becomes of it.
    pub async fn begin(&self, question: Question) -> impl Future<Output = Result<Reply, Unreachable>> + use<> {
        let (links, (told, outcome)) = (self.links.clone(), tokio::sync::oneshot::channel());
        let asked = self.threads.run_on(0, move || async move {
            let asked = links.ask(ANSWERS, question);
            tokio::task::spawn_local(async move { told.send(asked.await) });
        });
        asked.await.expect("the thread runs");
        async { within(outcome).await.expect("the thread runs") }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.links.stop();
    }
}

pub async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it doesn't take that long")
}

/// Waits for something that nobody tells of.
pub async fn until(what: impl Fn() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < PATIENCE, "it doesn't take that long");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Random numbers with a seed (SplitMix64).
pub struct Draw(pub u64);

impl Draw {
    pub fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }
}

/// What becomes of a connection after a number of bytes.
#[derive(Clone, Copy, Debug)]
pub enum Harm {
    Cut,
    /// The bit is another one from there on, once.
    Flip,
}

/// How connections are that nobody has cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    Flows,
    Crawls,
    /// Nothing arrives there, or only once it flows again.
    NothingThere,
    NothingBack,
    Nothing,
}

/// A way to a server that can be cut.
pub struct Proxy {
    pub address: String,
    cut: Arc<watch::Sender<u64>>,
    traffic: Arc<watch::Sender<Traffic>>,
    closed: Arc<AtomicBool>,
    pub connections: Arc<AtomicU64>,
    /// Where its socket is.
    _folder: TempDir,
}

impl Proxy {
    /// Each connection is harmed after a number of bytes up to the longest, in each direction.
    pub fn start(to: &str, harm: Option<(Harm, u64)>, seed: u64) -> Proxy {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("p");
        let listener = UnixListener::bind(&path).expect("a socket");
        let to = PathBuf::from(to.strip_prefix("unix:").expect("a unix socket"));
        let (cut, closed, connections) =
            (Arc::new(watch::Sender::new(0)), Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let traffic = Arc::new(watch::Sender::new(Traffic::Flows));
        let (cuts, is_closed, count) = (cut.clone(), closed.clone(), connections.clone());
        let lets = traffic.clone();
        tokio::spawn(async move {
            let mut draw = Draw(seed);
            while let Ok((near, _)) = listener.accept().await {
                if is_closed.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(far) = UnixStream::connect(&to).await else { continue };
                count.fetch_add(1, Ordering::SeqCst);
                let mut way = || match harm {
                    Some((harm, most)) => (harm, draw.next(most)),
                    None => (Harm::Cut, u64::MAX),
                };
                let ways = [(way(), Traffic::NothingThere), (way(), Traffic::NothingBack)];
                tokio::spawn(carry(near, far, ways, lets.clone(), cuts.subscribe()));
            }
        });
        Proxy { address: format!("unix:{}", path.display()), cut, traffic, closed, connections, _folder: folder }
    }

    /// Connections stay, and are made.
    pub fn set(&self, traffic: Traffic) {
        self.traffic.send_replace(traffic);
    }

    /// All connections end.
    pub fn cut(&self) {
        self.cut.send_modify(|cuts| *cuts += 1);
    }

    /// No connection is made any more, or again.
    pub fn close(&self, closed: bool) {
        self.closed.store(closed, Ordering::SeqCst);
        if closed {
            self.cut();
        }
    }
}

/// The other is how traffic is when nothing goes this way.
type Direction = ((Harm, u64), Traffic);

async fn carry(
    near: UnixStream,
    far: UnixStream,
    [there, back]: [Direction; 2],
    traffic: Arc<watch::Sender<Traffic>>,
    mut cuts: watch::Receiver<u64>,
) {
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    tokio::select! {
        () = copy(near_in, far_out, there, &traffic) => {}
        () = copy(far_in, near_out, back, &traffic) => {}
        _ = cuts.changed() => {}
    }
}

async fn copy(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    ((harm, mut left), closed): Direction,
    traffic: &watch::Sender<Traffic>,
) {
    let mut bytes = vec![0; 64 << 10];
    let mut traffic = traffic.subscribe();
    while left > 0 {
        let most = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let Ok(count @ 1..) = from.read(&mut bytes[..most]).await else { return };
        left -= count as u64;
        if left == 0 && matches!(harm, Harm::Flip) {
            bytes[count - 1] ^= 1 << (count % 8);
            left = u64::MAX;
        }
        if *traffic.borrow() == Traffic::Crawls {
            tokio::time::sleep(Duration::from_millis(4)).await;
        }
        let passes = |now: &Traffic| *now != closed && *now != Traffic::Nothing;
        let has_ended = traffic.wait_for(passes).await.is_err();
        if has_ended || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
