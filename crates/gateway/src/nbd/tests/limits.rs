//! What one client may hold, and what happens to the others; and how connections end when the server stops.

use super::super::wire::command;
use super::super::{ConnectionError, End, Limits, TransmissionError};
use super::client::request_bytes;
use super::disk::{Pace, TestDisk, TestExports, patterns};
use super::{Mode, Server, run, settle};
use std::time::Duration;
use tepal_model::MAX_REQUEST;

const MAX: u32 = MAX_REQUEST as u32;
const PATIENCE: Duration = Duration::from_millis(20);

/// Until every connection has looked several times whether it's out of patience: timers of one runtime fire in order, however
/// slow the machine is.
async fn outlast_patience() {
    tokio::time::sleep(4 * PATIENCE).await;
}

fn server(disk: &TestDisk, limits: Limits) -> Server {
    Server::new(TestExports::of(&[("v0", disk)]), limits)
}

#[test]
fn no_more_requests_are_at_the_disk_than_allowed_and_all_are_answered() {
    run(async {
        let disk = TestDisk::new(4096);
        let server = server(&disk, Limits { requests: 8, ..Limits::default() });
        let (mut client, _end) = server.attach(Mode::Simple).await;
        disk.pace(Pace::Held);
        for cookie in 0..100 {
            client.request(command::READ, 0, cookie, 0, 1).await;
        }
        settle().await;
        assert_eq!(disk.active(), 8);
        disk.let_go(100);
        for _ in 0..100 {
            assert_eq!(client.outcome().await.1, 0);
            client.receive(1).await.unwrap();
        }
        assert_eq!(disk.most_active(), 8);
    });
}

#[test]
fn a_client_that_does_not_read_its_replies_stops_itself_and_loses_nothing() {
    run(async {
        let disk = TestDisk::patterned(1 << 20);
        let server = server(&disk, Limits { connection_bytes: MAX_REQUEST, ..Limits::default() });
        let (mut client, _end) = server.attach(Mode::Simple).await;
        disk.pace(Pace::Held);
        for cookie in 0..200 {
            client.request(command::READ, 0, cookie, 0, 1 << 20).await;
        }
        settle().await;
        assert_eq!(disk.active(), 32, "MiB for a limit of 32");
        disk.let_go(200);
        settle().await;
        let asked = disk.calls().len();
        assert!((32..=34).contains(&asked), "{asked} MiB: those of before, and what the socket holds");
        let data = patterns(0, 1 << 20);
        for cookie in 0..200 {
            assert_eq!(client.outcome().await, (cookie, 0));
            assert!(client.receive(1 << 20).await.unwrap() == data);
        }
    });
}

#[test]
fn nothing_is_read_long_before_it_can_be_sent() {
    run(async {
        let disk = TestDisk::patterned(1 << 20);
        let server = server(&disk, Limits::default());
        let (mut client, _end) = server.attach(Mode::Simple).await;
        for cookie in 0..20 {
            client.request(command::READ, 0, cookie, 0, 1 << 20).await;
        }
        settle().await;
        let asked = disk.calls().len();
        assert!((1..=3).contains(&asked), "{asked} MiB wait for a client that reads nothing");
        let data = patterns(0, 1 << 20);
        for cookie in 0..20 {
            assert_eq!(client.outcome().await, (cookie, 0));
            assert!(client.receive(1 << 20).await.unwrap() == data);
        }
    });
}

/// The reply to the flush still waits when the read is looked at, and together they are past the limit. Once it's sent nothing
/// else would wake the connection.
#[test]
fn the_largest_request_right_behind_a_small_one_is_not_forgotten() {
    run(async {
        let disk = TestDisk::new(MAX_REQUEST);
        let server = server(&disk, Limits { connection_bytes: MAX_REQUEST, ..Limits::default() });
        let (mut client, _end) = server.attach(Mode::Simple).await;
        let (flush, read) = (request_bytes(command::FLUSH, 0, 1, 0, 0), request_bytes(command::READ, 0, 2, 0, MAX));
        client.send(&[flush, read].concat()).await;
        assert_eq!(client.outcome().await, (1, 0));
        assert_eq!(client.outcome().await, (2, 0));
        client.receive(MAX as usize).await.unwrap();
    });
}

#[test]
fn a_burst_longer_than_a_turn_is_served_to_its_end() {
    run(async {
        let disk = TestDisk::new(4096);
        let server = server(&disk, Limits::default());
        let (mut client, _end) = server.attach(Mode::Simple).await;
        let burst: Vec<u8> = (0..3000).flat_map(|cookie| request_bytes(command::FLUSH, 0, cookie, 0, 0)).collect();
        client.send(&burst).await;
        for cookie in 0..3000 {
            assert_eq!(client.outcome().await, (cookie, 0));
        }
    });
}

#[test]
fn writes_being_received_count_too() {
    run(async {
        let disk = TestDisk::new(MAX_REQUEST);
        let server = server(&disk, Limits { connection_bytes: MAX_REQUEST, ..Limits::default() });
        let (mut client, _end) = server.attach(Mode::Simple).await;
        disk.pace(Pace::Held);
        let payload = vec![1; MAX as usize];
        client.write(0, 1, 0, &payload).await;
        client.request(command::WRITE, 0, 2, 0, MAX).await;
        settle().await;
        assert_eq!(disk.active(), 1, "the second waits until the first is done");
        disk.let_go(2);
        client.send(&payload).await;
        assert_eq!(client.outcome().await, (1, 0));
        assert_eq!(client.outcome().await, (2, 0));
        assert_eq!(disk.most_active(), 1);
    });
}

#[test]
fn memory_is_shared_and_who_waits_for_it_gets_it() {
    run(async {
        let disk = TestDisk::new(MAX_REQUEST);
        let limits = Limits { connection_base_bytes: 0, shared_bytes: MAX_REQUEST, ..Limits::default() };
        let server = server(&disk, limits);
        let (mut one, _end) = server.attach(Mode::Simple).await;
        let (mut other, _end) = server.attach(Mode::Simple).await;
        disk.pace(Pace::Held);
        one.request(command::READ, 0, 1, 0, MAX).await;
        settle().await;
        other.request(command::READ, 0, 2, 0, MAX).await;
        settle().await;
        assert_eq!(disk.active(), 1);
        assert!(server.admission.is_short_of_memory());
        disk.let_go(2);
        one.receive(16 + MAX as usize).await.unwrap();
        other.receive(16 + MAX as usize).await.unwrap();
        assert!(!server.admission.is_short_of_memory());
    });
}

#[test]
fn a_stalled_client_is_closed_when_others_wait_for_what_it_holds() {
    run(async {
        let disk = TestDisk::new(MAX_REQUEST);
        let limits =
            Limits { connection_base_bytes: 0, shared_bytes: MAX_REQUEST, patience: PATIENCE, ..Limits::default() };
        let server = server(&disk, limits);
        // One doesn't read its reply, one doesn't send its payload.
        for kind in [command::READ, command::WRITE] {
            let (mut stalled, end) = server.attach(Mode::Simple).await;
            stalled.request(kind, 0, 1, 0, MAX).await;
            outlast_patience().await;
            assert!(!end.is_finished(), "nobody waits");
            let (mut other, _end) = server.attach(Mode::Simple).await;
            assert!(other.read(2, 0, MAX).await.is_ok());
            let ended = end.await.unwrap();
            assert!(matches!(ended, Err(ConnectionError::Transmission(TransmissionError::Stalled))), "{ended:?}");
        }
    });
}

#[test]
fn a_stop_finishes_what_is_under_way_and_takes_no_more() {
    run(async {
        let disk = TestDisk::patterned(4096);
        let server = server(&disk, Limits::default());
        let (mut client, end) = server.attach(Mode::Simple).await;
        let (mut stranger, stranger_end) = server.connect();
        disk.pace(Pace::Held);
        client.request(command::READ, 0, 1, 0, 4).await;
        settle().await;
        server.stopper.stop();
        settle().await;
        client.request(command::READ, 0, 2, 0, 4).await;
        settle().await;
        assert!(!end.is_finished());
        disk.let_go(1);
        assert_eq!(client.receive(20).await.unwrap()[16..], patterns(0, 4));
        assert_eq!(end.await.unwrap().unwrap(), End::Stopped);
        assert_eq!(disk.calls().len(), 1);
        stranger.rest().await;
        assert_eq!(stranger_end.await.unwrap().unwrap(), End::Stopped);
        assert_eq!(server.admission.connections(), 0);
    });
}

#[test]
fn a_stop_does_not_wait_for_ever() {
    run(async {
        let disk = TestDisk::new(4096);
        let server = server(&disk, Limits { patience: PATIENCE, ..Limits::default() });
        let (mut client, end) = server.attach(Mode::Simple).await;
        disk.pace(Pace::Held);
        client.request(command::FLUSH, 0, 1, 0, 0).await;
        outlast_patience().await;
        assert!(!end.is_finished(), "a slow disk alone ends nothing");
        server.stopper.stop();
        let ended = end.await.unwrap();
        assert!(matches!(ended, Err(ConnectionError::Transmission(TransmissionError::Unfinished))), "{ended:?}");
        assert_eq!(disk.active(), 0);
    });
}
