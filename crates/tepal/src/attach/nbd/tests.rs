use super::client::{Client, ConnectError, Notice, Pauses, Target, list};
use super::fake_server::{FakeServer, SIZE, Script, Style, WHOLE};
use super::handshake::HandshakeError;
use super::wire::{ESHUTDOWN, Flags, Operation};
use bytes::Bytes;
use nix::errno::Errno;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const NO_PAUSE: Pauses = Pauses { first: Duration::ZERO, longest: Duration::from_millis(1) };
/// Far longer than anything here takes; only a hang reaches it.
const HANG: Duration = Duration::from_secs(20);
const STYLES: [Style; 3] = [Style::Simple, Style::Whole, Style::Halves];

struct Opened {
    client: Client,
    notices: Arc<Mutex<Vec<String>>>,
}

fn target(server: &FakeServer, volume: &str) -> Target {
    Target { address: server.address.clone(), volume: volume.into(), export: volume.into(), read_only: false }
}

fn open(server: &FakeServer) -> Opened {
    let notices = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&notices);
    let observer = move |notice: Notice<'_>| {
        heard.lock().unwrap().push(match notice {
            Notice::Lost(broken) => format!("lost: {broken}"),
            Notice::Waiting(trouble) => format!("waiting: {trouble}"),
            Notice::Resumed { .. } => "resumed".into(),
            Notice::GaveUp { requests } => format!("gave up {requests}"),
        });
    };
    let client = Client::open(target(server, "v0"), NO_PAUSE, Box::new(observer)).unwrap();
    Opened { client, notices }
}

type Answer = Result<Vec<u8>, Errno>;

fn ask(client: &Client, operation: Operation) -> Receiver<Answer> {
    let (tell, told) = mpsc::channel();
    client.submit(operation, Box::new(move |answer| drop(tell.send(answer.map(<[u8]>::to_vec)))));
    told
}

fn answer(asked: &Receiver<Answer>) -> Answer {
    let answer = asked.recv_timeout(HANG).expect("the request was answered");
    assert!(asked.try_recv().is_err(), "a request is answered once");
    answer
}

fn write(offset: u64, fill: u8) -> Operation {
    Operation::Write { offset, data: Bytes::from(vec![fill; 16]), fua: false }
}

/// Some of everything, much of it in flight at once; then all is read back.
fn exercise(client: &Client, server: &FakeServer, case: &str) {
    let first: Vec<_> = (0..4u64).map(|block| ask(client, write(block * 16, block as u8 + 1))).collect();
    let zeroes = ask(client, Operation::WriteZeroes { offset: 128, length: 32, no_hole: false, fua: true });
    for asked in first.iter().chain([&zeroes]) {
        assert_eq!(answer(asked), Ok(vec![]), "{case}");
    }
    let flush = ask(client, Operation::Flush);
    let over = ask(client, write(16, 9));
    assert_eq!((answer(&flush), answer(&over)), (Ok(vec![]), Ok(vec![])), "{case}");
    let mut expected = vec![0; SIZE];
    for (block, fill) in [1, 9, 3, 4].into_iter().enumerate() {
        expected[block * 16..block * 16 + 16].fill(fill);
    }
    let reads = [(0, 32), (32, 32), (48, 32)].map(|(offset, length)| {
        (ask(client, Operation::Read { offset, length }), offset as usize..offset as usize + length as usize)
    });
    for (asked, range) in reads {
        assert_eq!(answer(&asked).as_deref(), Ok(&expected[range]), "{case}");
    }
    let seen = server.seen.lock().unwrap();
    assert_eq!(seen.disk, expected, "{case}");
    assert!(seen.flushes >= 1, "{case}");
    assert!(seen.repeated.is_empty(), "{case}: what was answered was sent again");
}

/// Bytes that `exercise` moves each way on a connection that holds, without the handshake.
fn longest(style: Style) -> (usize, usize) {
    // 6 headers with data or without, 3 reads; answers are at most 3 chunks a read.
    let requests = 5 * (28 + 16) + 2 * 28 + 3 * 28;
    let answers = match style {
        Style::Simple => 7 * 16 + 3 * (16 + 32),
        Style::Whole => 7 * 20 + 3 * (20 + 8 + 32),
        Style::Halves => 7 * 20 + 3 * 2 * (20 + 8 + 16),
    };
    (requests, answers)
}

#[test]
fn every_request_is_answered_rightly_wherever_the_connection_breaks() {
    for style in STYLES {
        let (requests, answers) = longest(style);
        let cuts = (0..=requests).map(|receives| Script { receives, ..WHOLE });
        let cuts = cuts.chain((0..=answers).map(|sends| Script { sends, ..WHOLE }));
        for cut in cuts {
            let server = FakeServer::start(style, [cut]);
            let opened = open(&server);
            exercise(&opened.client, &server, &format!("{style:?}, {cut:?}"));
        }
    }
}

#[test]
fn a_connection_may_break_again_at_any_byte_while_it_is_being_made_again() {
    let first = Script { receives: 100, sends: 30, ..WHOLE };
    for style in [Style::Simple, Style::Halves] {
        let (requests, answers) = longest(style);
        let cuts = (0..=requests + 60).map(|receives| Script { receives, from_handshake: true, ..WHOLE });
        let cuts = cuts.chain((0..=answers + 120).map(|sends| Script { sends, from_handshake: true, ..WHOLE }));
        for cut in cuts {
            let server = FakeServer::start(style, [first, cut]);
            let opened = open(&server);
            exercise(&opened.client, &server, &format!("{style:?}, then {cut:?}"));
        }
    }
}

#[test]
fn what_was_answered_is_never_sent_again() {
    let server = FakeServer::start(Style::Whole, [Script { receives: 2 * 44 + 10, ..WHOLE }]);
    let opened = open(&server);
    for block in 0..4 {
        assert_eq!(answer(&ask(&opened.client, write(block * 16, 7))), Ok(vec![]));
    }
    let seen = server.seen.lock().unwrap();
    assert_eq!((seen.connections, &seen.repeated), (2, &vec![]));
}

#[test]
fn a_server_that_is_shutting_down_is_asked_again_after_its_end() {
    let ending = Script { error: Some(ESHUTDOWN), ..WHOLE };
    let server = FakeServer::start(Style::Whole, [ending, ending]);
    let opened = open(&server);
    assert_eq!(answer(&ask(&opened.client, write(0, 5))), Ok(vec![]));
    assert_eq!(server.seen.lock().unwrap().disk[..16], [5; 16]);
}

#[test]
fn an_error_of_the_volume_reaches_the_asker() {
    for (sent, told) in [(5, Errno::EIO), (28, Errno::ENOSPC), (22, Errno::EINVAL), (77_777, Errno::EIO)] {
        let server = FakeServer::start(Style::Whole, [Script { error: Some(sent), ..WHOLE }]);
        let opened = open(&server);
        assert_eq!(answer(&ask(&opened.client, write(0, 5))), Err(told));
    }
}

#[test]
fn a_volume_that_came_back_smaller_or_read_only_is_not_used_until_it_is_whole() {
    let cases = [
        (Script { size: 128, ..WHOLE }, "waiting: volume 'v0' has 128 bytes, less than the 256"),
        (Script { flags: Flags(0b110_1111), ..WHOLE }, "waiting: volume 'v0' is read-only there"),
        (Script { flags: Flags(0b010_1101), ..WHOLE }, "waiting: volume 'v0' can do less than before"),
    ];
    for (unfit, notice) in cases {
        let server = FakeServer::start(Style::Whole, [Script { receives: 10, ..WHOLE }, unfit]);
        let opened = open(&server);
        assert_eq!(answer(&ask(&opened.client, write(0, 5))), Ok(vec![]));
        let notices = opened.notices.lock().unwrap();
        assert!(notices.iter().any(|heard| heard.starts_with(notice)), "{notices:?}");
    }
}

#[test]
fn a_volume_that_grew_is_connected_to_anew_with_its_new_size() {
    let grown = Script { size: 4096, ..WHOLE };
    let server = FakeServer::start(Style::Whole, [WHOLE, grown, grown]);
    let opened = open(&server);
    assert_eq!(opened.client.size(), SIZE as u64);
    opened.client.look_again().unwrap();
    assert_eq!(answer(&ask(&opened.client, write(0, 5))), Ok(vec![]));
    assert_eq!(opened.client.size(), 4096);
    opened.client.look_again().unwrap(); // the fake's size is as at first again: nothing shrinks
    assert_eq!(answer(&ask(&opened.client, write(0, 6))), Ok(vec![]));
    assert_eq!((opened.client.size(), server.seen.lock().unwrap().connections), (4096, 4));
}

#[test]
fn nonsense_from_a_server_costs_a_reconnection_and_nothing_else() {
    // A simple answer to a read after structured replies were agreed on.
    let server = FakeServer::start(Style::Halves, [Script { error: Some(0), ..WHOLE }]);
    let opened = open(&server);
    assert_eq!(answer(&ask(&opened.client, Operation::Read { offset: 0, length: 16 })), Ok(vec![0; 16]));
    let notices = opened.notices.lock().unwrap();
    assert!(notices[0].contains("broke the protocol's rules"), "{notices:?}");
}

#[test]
fn opening_says_what_is_wrong() {
    let server = FakeServer::start(Style::Whole, [WHOLE, Script { flags: Flags(0b110_1111), ..WHOLE }]);
    let refused = |volume: &str| {
        Client::open(target(&server, volume), NO_PAUSE, Box::new(|_| {})).err().expect("opening was refused")
    };
    let unknown = refused("v9");
    assert!(
        matches!(&unknown, ConnectError::Handshake { source: HandshakeError::Unknown { volume }, .. } if volume == "v9"),
        "{unknown}"
    );
    assert!(matches!(refused("v0"), ConnectError::ReadOnly { .. }));
    let nowhere = super::NbdAddress::Unix("/nonexistent/nbd.sock".into());
    assert!(matches!(list(&nowhere), Err(ConnectError::Connect { .. })));
}
