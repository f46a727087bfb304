use super::*;
use crate::access::Credentials;
use crate::connection::{Ended, Incoming, Socket};
use futures_util::future::{BoxFuture, FutureExt};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;
use tepal_gateway::nbd::Endpoint;
use tepal_model::{ClusterId, ServerId};
use tepal_wire::Header;
use tepal_wire::handshake::{Calling, ClientId, Hello, Role, Sender};
use tepal_wire::message::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::Notify;

const WITHIN: Duration = Duration::from_secs(60);
const CLUSTER: ClusterId = ClusterId(7);
const HERE: Caller = Caller { cluster: CLUSTER, server: ServerId(1), run: 5 };
const CALLER: Caller = Caller { cluster: CLUSTER, server: ServerId(2), run: 3 };

fn links_of(caller: Caller) -> PeerLinks {
    let links = PeerLinks::default();
    links.introduce(caller);
    links
}

/// Answers a call with itself, in capitals; one that says "wait" only once it's told to.
#[derive(Default)]
struct Echo {
    waiting: AtomicUsize,
    go: Arc<Notify>,
}

impl Answering for Echo {
    fn answer(&self, _from: String, _subject: Subject, call: Vec<u8>) -> BoxFuture<'static, Vec<u8>> {
        let waits = call.starts_with(b"wait");
        self.waiting.fetch_add(usize::from(waits), Ordering::Relaxed);
        let go = self.go.clone();
        async move {
            if waits {
                go.notified().await;
            }
            call.to_ascii_uppercase()
        }
        .boxed()
    }
}

struct Peer {
    endpoint: Endpoint,
    echo: Arc<Echo>,
    port: Mutex<Option<OpenPort>>,
    /// Where its socket is.
    _folder: TempDir,
}

impl Peer {
    async fn new() -> Peer {
        let folder = tempfile::tempdir().expect("a folder");
        let endpoint = Endpoint::Unix(folder.path().join("p"));
        let peer = Peer { endpoint, echo: Arc::default(), port: Mutex::default(), _folder: folder };
        peer.start().await;
        peer
    }

    async fn start(&self) {
        let port = Port::bind(&self.endpoint, Credentials::default()).await.expect("a socket");
        *self.port.lock().expect("not poisoned") = Some(port.open(HERE, self.echo.clone()));
    }

    fn stop(&self) {
        self.port.lock().expect("not poisoned").take();
    }

    fn address(&self) -> String {
        self.endpoint.to_string()
    }

    async fn ask(&self, links: &PeerLinks, call: &str) -> Result<String, tepal_metadata::TransportError> {
        let call = links.call(&self.address(), Some(HERE.server), Subject::Metadata, call.as_bytes().to_vec(), WITHIN);
        call.await.map(|answer| String::from_utf8(answer).expect("text"))
    }

    /// Until it's answered: a connection that is just broken may take a call with it.
    async fn ask_again(&self, links: &PeerLinks, call: &str) -> String {
        loop {
            match self.ask(links, call).await {
                Ok(answer) => return answer,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }
}

#[tokio::test(flavor = "current_thread")]
async fn calls_are_answered_in_any_order_each_with_its_own_answer() {
    let peer = Peer::new().await;
    let links = links_of(CALLER);
    let (echo, go) = (peer.echo.clone(), peer.echo.go.clone());
    let slow = peer.ask(&links, "wait");
    let fast = async {
        while echo.waiting.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        let calls = (0..20).map(|n| peer.ask(&links, if n % 2 == 0 { "even" } else { "odd" }).boxed_local());
        let answers = futures_util::future::join_all(calls).await;
        go.notify_one();
        answers
    };
    let (slow, fast) = tokio::join!(slow, fast);
    assert_eq!(slow.expect("answered"), "WAIT");
    for (n, answer) in fast.into_iter().enumerate() {
        assert_eq!(answer.expect("answered"), if n % 2 == 0 { "EVEN" } else { "ODD" });
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_server_that_went_away_and_came_back_is_found_again_and_meanwhile_callers_are_told_at_once() {
    let peer = Peer::new().await;
    let links = links_of(CALLER);
    assert_eq!(peer.ask(&links, "one").await.expect("answered"), "ONE");
    peer.stop();
    // No answer is waited for that can't come.
    while peer.ask(&links, "two").await.is_ok() {}
    peer.start().await;
    assert_eq!(peer.ask_again(&links, "three").await, "THREE");
}

#[tokio::test(flavor = "current_thread")]
async fn a_server_that_reads_nothing_costs_its_callers_their_patience_and_no_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("p");
    // It accepts by the kernel's queue alone.
    let _deaf = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    let address = format!("unix:{}", path.display());
    let links = links_of(CALLER);
    let calls = (0..300).map(|_| {
        links.call(&address, None, Subject::Metadata, vec![0; 64 << 10], Duration::from_millis(50)).boxed_local()
    });
    for answer in futures_util::future::join_all(calls).await {
        assert!(answer.is_err());
    }
    let peer = Peer::new().await;
    assert_eq!(peer.ask(&links, "here").await.expect("answered"), "HERE");
}

/// Story: whoever reaches the port can send what he likes, and as many connections as he likes.
#[tokio::test(flavor = "current_thread")]
async fn garbage_ends_its_own_connection_and_idle_strangers_keep_nobody_out() {
    let peer = Peer::new().await;
    let links = links_of(CALLER);
    let Endpoint::Unix(path) = &peer.endpoint else { unreachable!("made above") };
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n............."[..], &[0; 28], &[0xff; 5000]] {
        let mut stranger = UnixStream::connect(path).await.expect("it listens");
        let _ = stranger.write_all(garbage).await;
        assert_eq!(stranger.read(&mut [0; 16]).await.unwrap_or(0), 0, "nothing is answered");
    }
    let mut strangers = Vec::new();
    for _ in 0..300 {
        strangers.push(UnixStream::connect(path).await.expect("it listens"));
    }
    assert_eq!(peer.ask_again(&links, "here").await, "HERE");
}

/// What the port answers to this hello; how the connection ended, if it's welcome and asks for this.
async fn hello(peer: &Peer, hello: Hello, then: Request) -> Result<Ended, String> {
    let (mut incoming, mut outgoing) =
        Incoming::new(Socket::connect(&peer.address(), &Credentials::default()).await.expect("it listens")).split();
    outgoing.push(&Header::default(), &hello, Vec::new());
    outgoing.send().await.expect("it reads");
    let heard = incoming.frame(|frame| Calling::new(hello).hear(&frame)).await.expect("it answers");
    heard.map_err(|error| error.to_string())?;
    incoming.open();
    outgoing.push(&Header::default(), &then, b"x".to_vec());
    outgoing.send().await.expect("it reads");
    match incoming.message().await {
        Err(ended) => Ok(ended),
        Ok((_, answer, _)) => Err(format!("{answer:?}")),
    }
}

#[tokio::test(flavor = "current_thread")]
async fn who_does_not_belong_here_is_told_so_and_what_is_not_for_him_is_not_answered() {
    let peer = Peer::new().await;
    let server = Sender::Server { server: ServerId(2), boot: 3 };
    let client = Sender::Client { client: ClientId(1) };
    let itself = Sender::Server { server: HERE.server, boot: 6 };
    let other = ClusterId(8);
    let new = |cluster, sender| Hello::new(cluster, sender, Role::Server, 0);
    let refused = [
        (new(other, server), "another cluster"),
        (new(other, Sender::Newcomer), "another cluster"),
        (new(CLUSTER, itself), "the same server runs twice"),
        (new(CLUSTER, client), "isn't answered here"),
        (Hello { role: Role::Gateway, ..new(CLUSTER, Sender::Newcomer) }, "isn't answered here"),
        (Hello { role: Role::Gateway, ..new(CLUSTER, client) }, "the server is starting"),
        (Hello { lane: 1, ..new(CLUSTER, server) }, "the server is starting"),
        (Hello { lane: 2, ..new(CLUSTER, server) }, "isn't answered here"),
        (Hello { expects: Some(ServerId(9)), ..new(CLUSTER, server) }, "another server"),
        (Hello { lowest: 2, highest: 9, ..new(CLUSTER, server) }, "no version"),
    ];
    for (who, said) in refused {
        let why = hello(&peer, who, Request::Metadata).await.expect_err("it's refused");
        assert!(why.contains(said), "{why}");
    }
    for (cluster, asked) in [(ClusterId(0), Request::Metadata), (CLUSTER, Request::Metadata)] {
        let answer = hello(&peer, new(cluster, Sender::Newcomer), asked).await.expect_err("it's answered");
        assert!(answer.contains("Metadata"), "{answer}");
    }
    let ended = hello(&peer, new(CLUSTER, Sender::Newcomer), Request::Api).await.expect("it isn't answered");
    assert!(matches!(ended, Ended::Closed), "{ended}");
}

#[tokio::test(flavor = "current_thread")]
async fn callers_learn_why_they_are_refused_and_whom_they_have_reached() {
    let peer = Peer::new().await;
    let stranger = links_of(Caller { cluster: ClusterId(8), ..CALLER });
    let why = peer.ask(&stranger, "one").await.expect_err("it's refused").to_string();
    assert!(why.contains("another cluster"), "{why}");
    let links = links_of(CALLER);
    let call = links.call(&peer.address(), Some(ServerId(9)), Subject::Metadata, b"one".to_vec(), WITHIN);
    let why = call.await.expect_err("it's another one").to_string();
    assert!(why.contains("s1 answers there in place of s9"), "{why}");
    assert_eq!(peer.ask(&links, "two").await.expect("answered"), "TWO");
    let call = links.call(&peer.address(), None, Subject::Api, vec![b'a'; LONGEST], WITHIN);
    assert_eq!(call.await.expect("as long as may be"), vec![b'A'; LONGEST]);
    let call = links.call(&peer.address(), None, Subject::Api, vec![b'a'; LONGEST + 1], WITHIN);
    assert!(call.await.expect_err("it's too long").to_string().contains("too much"));
    assert_eq!(peer.ask(&links, "three").await.expect("the connection is as good as before"), "THREE");
}

#[test]
fn the_clock_of_leases_is_the_one_that_goes_on_while_the_machine_sleeps() {
    let boot = || rustix::time::clock_gettime(rustix::time::ClockId::Boottime).tv_sec as u64;
    let (before, shown, after) = (boot(), boot_clock()().0.as_secs(), boot());
    assert!((before..=after).contains(&shown), "{before} {shown} {after}");
}
