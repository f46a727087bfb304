//! Clients that lie, flood, stop and vanish. Whatever they do: no panic, nothing left behind, others unaffected.

use super::super::wire::{command, option};
use super::super::{ConnectionError, End, TransmissionError};
use super::client::{contexts, name_and, option_bytes, request_bytes};
use super::disk::{Pace, TestDisk};
use super::{MODES, Mode, Server, run, settle};
use proptest::prelude::*;
use std::io;
use tokio::io::AsyncWriteExt;

/// Every kind of request, with short and long payloads.
fn session() -> Vec<u8> {
    let mut bytes = 3u32.to_be_bytes().to_vec();
    bytes.extend(option_bytes(option::STRUCTURED_REPLY, &[]));
    bytes.extend(option_bytes(option::SET_META_CONTEXT, &contexts("v0", &["base:allocation"])));
    bytes.extend(option_bytes(option::GO, &name_and("v0", &[0, 0])));
    for (kind, offset, length) in [
        (command::READ, 1, 5000),
        (command::WRITE, 3, 300),
        (command::FLUSH, 0, 0),
        (command::WRITE, 4096, 33_000),
        (command::WRITE, 1 << 40, 200),
        (command::BLOCK_STATUS, 0, 65_536),
        (command::TRIM, 0, 4096),
        (command::WRITE_ZEROES, 0, 4096),
    ] {
        bytes.extend(request_bytes(kind, 0, 1, offset, length));
        if kind == command::WRITE {
            bytes.extend(vec![7; length as usize]);
        }
    }
    bytes
}

#[test]
fn a_session_cut_at_any_byte_leaves_nothing_behind() {
    let session = session();
    for pace in [Pace::AtOnce, Pace::Overtaking(5)] {
        run(async {
            let disk = TestDisk::new(65_536);
            let server = Server::of(&disk);
            let before = disk.users();
            disk.pace(pace);
            // Every byte of what isn't payload, and a sample of the payload.
            let cuts = (0..session.len()).filter(|cut| *cut < 700 || cut % 97 == 0 || session.len() - cut < 200);
            for cut in cuts {
                let (mut client, end) = server.connect();
                client.send(&session[..cut]).await;
                if cut % 2 == 0 {
                    drop(client); // also for writing
                } else {
                    client.stream.shutdown().await.unwrap();
                    client.rest().await;
                }
                let _ = end.await.expect("no panic");
            }
            assert_eq!((server.admission.connections(), disk.active(), disk.users()), (0, 0, before));
            let (mut client, _end) = server.attach(Mode::Simple).await;
            assert!(client.read(1, 0, 10).await.is_ok(), "others are served as before");
        });
    }
}

#[test]
fn a_client_that_vanishes_with_requests_at_the_disk_is_forgotten_when_they_are_done() {
    for mode in MODES {
        run(async {
            let disk = TestDisk::new(1 << 20);
            let server = Server::of(&disk);
            let before = disk.users();
            let (mut client, end) = server.attach(mode).await;
            disk.pace(Pace::Held);
            client.write(0, 1, 0, &[1; 100_000]).await;
            client.request(command::READ, 0, 2, 0, 1 << 20).await;
            settle().await;
            assert_eq!(disk.active(), 2);
            drop(client);
            settle().await;
            disk.let_go(2);
            let _ = end.await.expect("no panic");
            assert_eq!((server.admission.connections(), disk.active(), disk.users()), (0, 0, before));
        });
    }
}

#[test]
fn a_task_that_is_dropped_abandons_its_requests() {
    run(async {
        let disk = TestDisk::new(4096);
        let server = Server::of(&disk);
        let (mut client, end) = server.attach(Mode::Simple).await;
        disk.pace(Pace::Held);
        client.request(command::FLUSH, 0, 1, 0, 0).await;
        settle().await;
        end.abort();
        assert!(end.await.unwrap_err().is_cancelled());
        assert_eq!((server.admission.connections(), disk.active()), (0, 0));
    });
}

#[test]
fn a_half_closed_connection_still_gets_its_replies() {
    run(async {
        let disk = TestDisk::patterned(4096);
        let (mut client, end) = Server::of(&disk).attach(Mode::Simple).await;
        disk.pace(Pace::Held);
        client.request(command::READ, 0, 9, 0, 4).await;
        client.stream.shutdown().await.unwrap();
        settle().await;
        disk.let_go(1);
        assert_eq!(client.rest().await.len(), 16 + 4);
        assert_eq!(end.await.unwrap().unwrap(), End::Closed);
    });
}

#[test]
fn a_refused_write_that_claims_too_much_ends_the_connection() {
    run(async {
        let (mut client, end) = Server::of(&TestDisk::new(4096)).attach(Mode::Simple).await;
        client.request(command::WRITE, 0, 1, 0, u32::MAX).await;
        assert!(client.rest().await.is_empty());
        let ended = end.await.unwrap();
        assert!(
            matches!(ended, Err(ConnectionError::Transmission(TransmissionError::AbsurdLength(0xffff_ffff)))),
            "{ended:?}"
        );
    });
}

#[test]
fn a_write_that_claims_more_than_it_sends_writes_nothing() {
    run(async {
        let disk = TestDisk::patterned(1 << 20);
        let server = Server::of(&disk);
        for length in [1, 5000, 32_768, 32_769, 1 << 20] {
            let (mut client, end) = server.attach(Mode::Simple).await;
            client.request(command::WRITE, 0, 1, 0, length).await;
            client.send(&vec![0; length as usize - 1]).await;
            client.stream.shutdown().await.unwrap();
            assert!(client.rest().await.is_empty());
            assert_eq!(end.await.unwrap().unwrap(), End::Closed);
        }
        assert!(disk.calls().is_empty());
    });
}

/// Sends as much as the server takes, and returns how much that was.
async fn flood(client: &mut super::Client, request: &[u8], most: usize) -> usize {
    let many = request.repeat(1000);
    let mut sent = 0;
    while sent < most {
        let piece = client.stream.write(&many[sent % request.len()..]);
        match tokio::time::timeout(std::time::Duration::from_millis(300), piece).await {
            Ok(count) => sent += count.unwrap(),
            Err(_) => break,
        }
    }
    sent
}

#[test]
fn a_flood_of_refusals_that_nobody_reads_stops_itself() {
    run(async {
        let server = Server::of(&TestDisk::new(4096));
        let (mut client, _end) = server.attach(Mode::Structured).await;
        let refused = request_bytes(99, 0, 1, 0, 0); // its answer is longer than itself
        let sent = flood(&mut client, &refused, 200 << 20).await;
        assert!(sent < 70 << 20, "{sent} bytes were taken");
        let (mut other, _end) = server.attach(Mode::Simple).await;
        assert!(other.read(1, 0, 1).await.is_ok());
    });
}

#[test]
fn a_flood_of_options_that_nobody_reads_stops_itself() {
    run(async {
        let server = Server::of(&TestDisk::new(4096));
        let (mut client, _end) = server.connect();
        client.send(&3u32.to_be_bytes()).await;
        let sent = flood(&mut client, &option_bytes(option::INFO, &name_and("v0", &[0, 0])), 10 << 20).await;
        assert!(sent < 1 << 20, "{sent} bytes were taken");
    });
}

async fn write_ignoring_closed(client: &mut super::Client, bytes: &[u8]) {
    match client.stream.write_all(bytes).await {
        Err(error) if !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
            panic!("{error}")
        }
        _ => {}
    }
}

/// Some of a true session, then anything.
fn garbage() -> impl Strategy<Value = Vec<u8>> {
    let session = session();
    let edits = prop::collection::vec((0..session.len(), any::<u8>()), 0..6);
    let tail = prop::collection::vec(any::<u8>(), 0..300);
    (0..session.len(), edits, tail).prop_map(move |(keep, edits, tail)| {
        let mut bytes = session.clone();
        edits.into_iter().for_each(|(at, byte)| bytes[at] = byte);
        bytes.truncate(keep);
        bytes.extend(tail);
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn no_bytes_make_the_server_panic_or_hang(bytes in garbage(), overtaking: bool) {
        run(async {
            let disk = TestDisk::new(65_536);
            if overtaking {
                disk.pace(Pace::Overtaking(3));
            }
            let server = Server::of(&disk);
            let (mut client, end) = server.connect();
            write_ignoring_closed(&mut client, &bytes).await;
            client.stream.shutdown().await.unwrap();
            client.rest().await;
            let _ = end.await.expect("no panic");
            assert_eq!((server.admission.connections(), disk.active()), (0, 0));
        });
    }

    #[test]
    fn any_requests_are_answered_or_end_the_connection(
        requests in prop::collection::vec((0u16..10, 0u16..64, 0u64..70_000, 0u32..70_000), 1..30),
        structured: bool,
    ) {
        run(async {
            let mode = if structured { Mode::Structured } else { Mode::Simple };
            let disk = TestDisk::new(65_536);
            let (mut client, end) = Server::of(&disk).attach(mode).await;
            for (kind, flags, offset, length) in requests {
                write_ignoring_closed(&mut client, &request_bytes(kind, flags, 1, offset, length)).await;
                if kind == command::WRITE {
                    write_ignoring_closed(&mut client, &vec![1; length as usize]).await;
                }
            }
            client.stream.shutdown().await.unwrap();
            client.rest().await;
            let ended = end.await.expect("no panic");
            assert!(ended.is_ok(), "{ended:?}");
        });
    }
}
