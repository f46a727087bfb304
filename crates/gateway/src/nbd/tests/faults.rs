//! A disk that fails: which error the client gets, and that it never gets wrong bytes.

use super::super::wire::command;
use super::client::Reply;
use super::disk::{TestDisk, patterns};
use super::{MODES, Mode, Server, run};
use tepal_model::IoError;

fn failures() -> Vec<(IoError, u32)> {
    vec![
        (IoError::OutOfSpace, 28),
        (IoError::Damaged { offset: 4096, length: 4096 }, 5),
        (IoError::Unavailable { reason: "drives d1 and d2 are away".to_owned() }, 5),
        (IoError::ReadOnly, 1),
        (IoError::Fenced, 5),
        (IoError::Unsure, 5),
        (IoError::NotNow, 5),
        (IoError::Stopping, 108),
    ]
}

#[test]
fn each_failure_of_the_disk_has_its_error_and_the_connection_goes_on() {
    for mode in MODES {
        run(async {
            let disk = TestDisk::patterned(65_536);
            let (mut client, _end) = Server::of(&disk).attach(mode).await;
            for (failure, error) in failures() {
                disk.fail(Some(failure));
                assert_eq!(client.read(1, 0, 8192).await, Err(error));
                client.write(0, 2, 0, &[1; 8192]).await;
                assert_eq!(client.outcome().await, (2, error));
                for kind in [command::FLUSH, command::TRIM, command::WRITE_ZEROES] {
                    let length = if kind == command::FLUSH { 0 } else { 8192 };
                    client.request(kind, 0, 3, 0, length).await;
                    assert_eq!(client.outcome().await, (3, error));
                }
                if mode == Mode::Structured {
                    client.request(command::BLOCK_STATUS, 0, 4, 0, 8192).await;
                    assert_eq!(client.outcome().await, (4, error));
                }
                disk.fail(None);
                assert_eq!(client.read(5, 0, 8192).await.unwrap(), patterns(0, 8192));
            }
        });
    }
}

/// The volume shrank between the check and the disk.
#[test]
fn a_request_that_the_disk_finds_out_of_range_has_the_error_of_its_kind() {
    for mode in MODES {
        run(async {
            let disk = TestDisk::new(65_536);
            let (mut client, _end) = Server::of(&disk).attach(mode).await;
            disk.fail(Some(IoError::OutOfRange { offset: 0, length: 1, size: 0 }));
            assert_eq!(client.read(1, 0, 1).await, Err(22));
            for (kind, error) in [(command::WRITE_ZEROES, 28), (command::TRIM, 22)] {
                client.request(kind, 0, 2, 0, 1).await;
                assert_eq!(client.outcome().await, (2, error));
            }
            client.write(0, 3, 0, &[1]).await;
            assert_eq!(client.outcome().await, (3, 28));
        });
    }
}

#[test]
fn a_structured_error_says_what_is_wrong_and_where() {
    let damaged = |offset, length| IoError::Damaged { offset, length };
    run(async {
        let disk = TestDisk::new(65_536);
        let (mut client, _end) = Server::of(&disk).attach(Mode::Structured).await;
        for (failure, place) in [
            (damaged(8192, 4096), Some(8192)),
            (damaged(4096, 4096), Some(5000)), // the damaged block begins before the request
            (damaged(40_960, 4096), None),     // a place outside the request is against the protocol
            (IoError::Unavailable { reason: "drive d1 is away".to_owned() }, None),
            (IoError::Unavailable { reason: "ü".repeat(10_000) }, None),
        ] {
            disk.fail(Some(failure.clone()));
            client.request(command::READ, 0, 1, 5000, 10_000).await;
            let Reply::Error { cookie: 1, error: 5, message, offset } = client.reply().await else {
                panic!("an error")
            };
            assert_eq!(offset, place);
            assert!(message.len() <= 4096 && failure.to_string().starts_with(&message) && message.len() > 10);
        }
    });
}
