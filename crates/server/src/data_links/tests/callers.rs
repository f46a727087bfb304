//! Who calls a server's data lanes by hand, byte by byte.

use super::rig::*;
use crate::data_links::Lane;
use std::os::unix::net::UnixStream as Blocking;
use std::time::Duration;
use tepal_model::{ClusterId, ServerId};
use tepal_wire::frame::Encode;
use tepal_wire::handshake::{ClientId, Hello, Reason, Refused, Role, Sender, Welcome};
use tepal_wire::message::{Message, Request};
use tepal_wire::{Header, Inbox, Limits, Outbox, Payload};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

struct Caller {
    stream: UnixStream,
    inbox: Inbox,
}

impl Caller {
    async fn connect(address: &str) -> Caller {
        let path = address.strip_prefix("unix:").expect("a unix socket");
        Caller { stream: UnixStream::connect(path).await.expect("it listens"), inbox: Inbox::new() }
    }

    /// One whose hello is welcome.
    async fn welcome(address: &str, hello: &Hello) -> (Caller, Welcome) {
        let mut caller = Caller::connect(address).await;
        caller.say(&Header::default(), hello, &Payload::none()).await;
        match caller.hear().await {
            Some((_, Message::Welcome(welcome))) => (caller, welcome),
            other => panic!("{other:?} in place of a welcome"),
        }
    }

    async fn say(&mut self, header: &Header, message: &impl Encode, payload: &Payload) {
        let mut outbox = Outbox::new();
        outbox.push(header, message, payload);
        let bytes: Vec<u8> = outbox.slices().iter().flat_map(|slice| slice.to_vec()).collect();
        self.send(&bytes).await;
    }

    async fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await; // it may have been refused before all of it is there
    }

    async fn ask(&mut self, id: u64, slot: u16, session: u64, number: u64) {
        let question = write(number, 1);
        self.say(&Header { request: id, slot, session, ..Header::default() }, &question.request, &question.payload)
            .await;
    }

    /// `None` once the connection has ended.
    async fn hear(&mut self) -> Option<(Header, Message)> {
        let mut bytes = [0; 4096];
        loop {
            if let Some(frame) = self.inbox.next().expect("servers send frames") {
                let heard = (frame.header, Message::decode(&frame).expect("servers make sense"));
                self.inbox.set_limits(Limits::OPEN);
                return Some(heard);
            }
            let count = within(self.stream.read(&mut bytes)).await.unwrap_or(0);
            if count == 0 {
                return None;
            }
            assert_eq!(self.inbox.receive(&bytes[..count]), count, "that is no long answer");
        }
    }

    async fn refused(&mut self) -> Refused {
        match self.hear().await {
            Some((_, Message::Refused(refused))) => {
                assert!(self.hear().await.is_none(), "a refusal is the last frame");
                refused
            }
            other => panic!("{other:?} in place of a refusal"),
        }
    }
}

fn hello(sender: Sender, lane: Lane, epoch: u64) -> Hello {
    let (role, number) = lane.role_and_number();
    Hello { epoch, ..Hello::new(CLUSTER, sender, role, number) }
}

#[tokio::test(flavor = "current_thread")]
async fn who_does_not_belong_here_is_told_so() {
    let server = Server::start(&socket(), 1).await;
    let ours = hello(ASKER, Lane::Drives, 1);
    let client = Sender::Client { client: ClientId(4) };
    let fenced = Sender::Client { client: ClientId(99) };
    let removed = Sender::Server { server: ServerId(99), boot: 1 };
    let itself = Sender::Server { server: ANSWERS, boot: 8 };
    let table = [
        (Hello { cluster: ClusterId(8), ..ours.clone() }, Reason::OtherCluster),
        (Hello { expects: Some(ServerId(9)), ..ours.clone() }, Reason::OtherServer),
        (Hello { lowest: 7, highest: 9, ..ours.clone() }, Reason::UnknownVersion),
        (hello(itself, Lane::Drives, 1), Reason::SameServerTwice),
        (hello(removed, Lane::Drives, 1), Reason::NotAMember),
        (hello(fenced, Lane::Volumes, 1), Reason::Fenced),
        (hello(client, Lane::Drives, 1), Reason::UnknownServer),
        (hello(Sender::Newcomer, Lane::Volumes, 1), Reason::UnknownServer),
        (Hello { role: Role::Gateway, lane: 1, ..ours }, Reason::UnknownServer),
    ];
    for (hello, reason) in table {
        let mut caller = Caller::connect(&server.address).await;
        caller.say(&Header::default(), &hello, &Payload::none()).await;
        assert_eq!(caller.refused().await.reason, reason, "{hello:?}");
    }
}

/// What a caller that is welcome sends then, and why it's refused.
#[tokio::test(flavor = "current_thread")]
async fn what_is_against_the_rules_ends_its_own_connection_with_the_reason_and_begins_nothing() {
    let server = Server::start(&socket(), 1).await;
    let asker = Asker::to(&server.address);
    let grant = Lane::Drives.grant();
    let mut changed = Outbox::new();
    changed.push(&Header { request: 1, ..Header::default() }, &write(1, 1).request, &write(1, 1).payload);
    let changed: Vec<u8> = changed.slices().iter().flat_map(|slice| slice.to_vec()).collect();
    for at in [0, 5, 20, 63, 64, 80] {
        let sender = Sender::Server { server: ServerId(20 + at), boot: 1 };
        let (mut caller, _) = Caller::welcome(&server.address, &hello(sender, Lane::Drives, 1)).await;
        let mut bytes = changed.clone();
        bytes[at as usize] ^= 4;
        caller.send(&bytes).await;
        assert_eq!(caller.refused().await.reason, Reason::Broken, "byte {at}");
    }
    let volume = flush_volume().request;
    let table: [(&str, u16, &dyn Fn() -> Message); 4] = [
        ("of kind", 0, &|| Message::Request(volume.clone())),
        ("of kind", 0, &|| Message::Request(Request::Metadata)),
        ("of kind", 0, &|| Message::Hello(hello(ASKER, Lane::Drives, 2))),
        ("more than was granted", grant.requests, &|| Message::Request(read(1, 1).request)),
    ];
    for (number, (why, slot, message)) in table.iter().enumerate() {
        let sender = Sender::Server { server: ServerId(10 + number as u32), boot: 1 };
        let (mut caller, _) = Caller::welcome(&server.address, &hello(sender, Lane::Drives, 1)).await;
        caller.say(&Header { request: 1, slot: *slot, ..Header::default() }, &message(), &Payload::none()).await;
        let refused = caller.refused().await;
        assert_eq!(refused.reason, Reason::Broken, "{why}");
        assert!(refused.text.contains(why), "{refused}");
    }
    assert!(server.recorder.begun().is_empty());
    assert!(asker.ask(0, write(5, 1)).await.is_ok());
}

#[tokio::test(flavor = "current_thread")]
async fn an_older_connection_of_the_session_is_heard_no_more() {
    let server = Server::start(&socket(), 1).await;
    let (mut old, welcome) = Caller::welcome(&server.address, &hello(ASKER, Lane::Drives, 1)).await;
    assert!(!welcome.known);
    old.ask(1, 0, 1, Recorder::HELD).await;
    until(|| server.recorder.begun().len() == 1).await;
    let (mut new, welcome) = Caller::welcome(&server.address, &hello(ASKER, Lane::Drives, 2)).await;
    assert!(welcome.known);
    assert_eq!(old.refused().await.reason, Reason::Fenced);
    server.recorder.let_go();
    let (header, _) = new.hear().await.expect("what was under way is answered here");
    assert_eq!((header.request, header.session), (1, 2));
    let mut late = Caller::connect(&server.address).await;
    late.say(&Header::default(), &hello(ASKER, Lane::Drives, 2), &Payload::none()).await;
    assert_eq!(late.refused().await.reason, Reason::Fenced);
}

#[tokio::test(flavor = "current_thread")]
async fn a_newer_run_waits_for_the_end_of_what_an_older_one_has_asked() {
    let server = Server::start(&socket(), 1).await;
    let run = |boot| hello(Sender::Server { server: ASKS, boot }, Lane::Drives, 1);
    let (mut old, _) = Caller::welcome(&server.address, &run(1)).await;
    old.ask(1, 0, 1, Recorder::HELD).await;
    until(|| server.recorder.begun().len() == 1).await;
    let second = run(2);
    let newer = Caller::welcome(&server.address, &second);
    let waits = async {
        assert_eq!(old.refused().await.reason, Reason::Fenced, "it's fenced at once");
        server.recorder.let_go();
    };
    let ((mut newer, welcome), ()) = within(async { tokio::join!(newer, waits) }).await;
    assert!(!welcome.known);
    newer.ask(1, 0, 1, 2).await;
    assert!(newer.hear().await.is_some());
    let mut older = Caller::connect(&server.address).await;
    older.say(&Header::default(), &run(1), &Payload::none()).await;
    assert_eq!(older.refused().await.reason, Reason::SameServerTwice);
}

/// Story: a caller asks for much, and reads none of it.
#[tokio::test(flavor = "current_thread")]
async fn a_caller_that_reads_no_answers_is_not_heard_for_long_and_holds_up_nobody() {
    let server = Server::start(&socket(), 1).await;
    let (mut caller, _) = Caller::welcome(&server.address, &hello(ASKER, Lane::Drives, 1)).await;
    let question = read(1, 256);
    let flood = async {
        for id in 1..=60 {
            let header = Header { request: id, slot: id as u16, ..Header::default() };
            caller.say(&header, &question.request, &question.payload).await;
        }
        caller
    };
    let caller = within(flood).await;
    let other = Asker::new(Sender::Server { server: ServerId(3), boot: 1 });
    other.links.set_up(ANSWERS, &server.address, &other.threads);
    for thread in [0, 1, 0, 1] {
        assert!(other.ask(thread, write(2, 1)).await.is_ok());
    }
    let begun = server.recorder.begun().iter().filter(|&&number| number == 1).count();
    assert!(begun < 60, "with a MiB of answers in line no more is begun: {begun}");
    drop(caller);
    assert!(other.ask(0, write(3, 1)).await.is_ok());
}

/// Story: whoever reaches the port can connect as often as he likes, and say anything, or nothing.
#[tokio::test(flavor = "current_thread")]
async fn garbage_and_silence_keep_nobody_out() {
    let server = Server::start(&socket(), 1).await;
    let path = server.address.strip_prefix("unix:").expect("a unix socket");
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(Blocking::connect(path).expect("it listens"));
        tokio::task::yield_now().await;
    }
    let mut draw = Draw(7);
    for _ in 0..20 {
        let mut caller = Caller::connect(&server.address).await;
        let bytes: Vec<u8> = (0..draw.next(5000)).map(|_| draw.next(256) as u8).collect();
        caller.send(&bytes).await;
    }
    let asker = Asker::to(&server.address);
    assert!(asker.ask(0, write(1, 1)).await.is_ok());
    tokio::time::sleep(Duration::ZERO).await;
    drop(silent);
}
