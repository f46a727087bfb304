//! Negotiation: what each option is answered, and what gets a client in.

use super::super::wire::{command, handshake_flag, option, option_reply as rep, transmission_flag as flag};
use super::super::{ConnectionError, End, HandshakeError, Limits};
use super::client::{Client, contexts, name_and, option_bytes};
use super::disk::{TestDisk, TestExports, UNAVAILABLE};
use super::{Mode, Server, run, settle};
use std::time::Duration;

const ALWAYS: u16 = flag::HAS_FLAGS
    | flag::SEND_FLUSH
    | flag::SEND_FUA
    | flag::SEND_TRIM
    | flag::SEND_WRITE_ZEROES
    | flag::CAN_MULTI_CONN
    | flag::SEND_CACHE
    | flag::SEND_FAST_ZERO;

fn info(kind: u16, data: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], data].concat()
}

fn export_info(size: u64, flags: u16) -> Vec<u8> {
    info(0, &[&size.to_be_bytes()[..], &flags.to_be_bytes()].concat())
}

fn kinds(replies: &[super::client::OptionReply]) -> Vec<u32> {
    replies.iter().map(|reply| reply.kind).collect()
}

#[test]
fn the_server_greets_first_and_offers_fixed_newstyle_without_zeroes() {
    run(async {
        let (mut client, _end) = Server::of(&TestDisk::new(4096)).connect();
        assert_eq!(client.receive(18).await.unwrap(), b"NBDMAGICIHAVEOPT\x00\x03");
    });
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn each_option_has_its_answer_and_a_refusal_ends_nothing() {
    let two = [0, 0, 0, 2, b'v'];
    let long = vec![0; (64 << 10) + 1];
    let big_info = vec![b'a'; 5000];
    let cases: Vec<(&str, u32, Vec<u8>, Vec<u32>)> = vec![
        (
            "contexts before structured replies",
            option::SET_META_CONTEXT,
            contexts("v0", &["base:allocation"]),
            vec![rep::ERR_INVALID],
        ),
        ("list of them before", option::LIST_META_CONTEXT, contexts("v0", &[]), vec![rep::ERR_INVALID]),
        ("structured replies", option::STRUCTURED_REPLY, vec![], vec![rep::ACK]),
        ("structured replies again", option::STRUCTURED_REPLY, vec![], vec![rep::ACK]),
        ("structured replies with data", option::STRUCTURED_REPLY, vec![0], vec![rep::ERR_INVALID]),
        ("list", option::LIST, vec![], vec![rep::SERVER, rep::SERVER, rep::ACK]),
        ("list with data", option::LIST, vec![0], vec![rep::ERR_INVALID]),
        ("list with much data", option::LIST, long.clone(), vec![rep::ERR_INVALID]),
        ("TLS", option::STARTTLS, vec![], vec![rep::ERR_UNSUP]),
        ("TLS with data", option::STARTTLS, vec![0], vec![rep::ERR_INVALID]),
        ("extended headers", 11, vec![], vec![rep::ERR_UNSUP]),
        ("the withdrawn PEEK_EXPORT", 4, vec![], vec![rep::ERR_UNSUP]),
        ("unknown", 0, vec![1, 2, 3], vec![rep::ERR_UNSUP]),
        ("unknown and long", 0xffff_ffff, long.clone(), vec![rep::ERR_UNSUP]),
        ("info", option::INFO, name_and("v0", &[0, 0]), vec![rep::INFO, rep::ACK]),
        (
            "info of all",
            option::INFO,
            name_and("v0", &[0, 4, 0, 0, 0, 1, 0, 2, 0, 3]),
            vec![rep::INFO, rep::INFO, rep::INFO, rep::INFO, rep::ACK],
        ),
        ("info of the unknown", option::INFO, name_and("v0", &[0, 2, 0x12, 0x34, 0, 9]), vec![rep::INFO, rep::ACK]),
        ("info of no volume", option::INFO, name_and("nope", &[0, 0]), vec![rep::ERR_UNKNOWN]),
        ("info of a snapshot that isn't", option::INFO, name_and("v0@x", &[0, 0]), vec![rep::ERR_UNKNOWN]),
        ("info of an unavailable volume", option::INFO, name_and(UNAVAILABLE, &[0, 0]), vec![rep::ERR_UNKNOWN]),
        ("info of the default, of two", option::INFO, name_and("", &[0, 0]), vec![rep::ERR_UNKNOWN]),
        ("info without data", option::INFO, vec![], vec![rep::ERR_INVALID]),
        ("info cut in the name", option::INFO, two.to_vec(), vec![rep::ERR_INVALID]),
        ("info with a missing request", option::INFO, name_and("v0", &[0, 2, 0, 0]), vec![rep::ERR_INVALID]),
        ("info with a byte too many", option::INFO, name_and("v0", &[0, 0, 0]), vec![rep::ERR_INVALID]),
        ("info of bad text", option::INFO, [&[0, 0, 0, 2, 0xff, 0xfe][..], &[0, 0]].concat(), vec![rep::ERR_INVALID]),
        ("info with a lying length", option::INFO, vec![0xff, 0xff, 0xff, 0xff, 0, 0], vec![rep::ERR_INVALID]),
        (
            "info with a long name",
            option::INFO,
            [&5000u32.to_be_bytes()[..], &big_info, &[0, 0]].concat(),
            vec![rep::ERR_INVALID],
        ),
        ("info with too much data", option::INFO, long.clone(), vec![rep::ERR_TOO_BIG]),
        ("go to no volume", option::GO, name_and("nope", &[0, 0]), vec![rep::ERR_UNKNOWN]),
        ("go, malformed", option::GO, two.to_vec(), vec![rep::ERR_INVALID]),
        ("go with too much data", option::GO, long.clone(), vec![rep::ERR_TOO_BIG]),
        ("all contexts", option::LIST_META_CONTEXT, contexts("v0", &[]), vec![rep::META_CONTEXT, rep::ACK]),
        (
            "contexts by wildcard",
            option::LIST_META_CONTEXT,
            contexts("v0", &["base:"]),
            vec![rep::META_CONTEXT, rep::ACK],
        ),
        (
            "a context by name",
            option::LIST_META_CONTEXT,
            contexts("v0", &["base:allocation"]),
            vec![rep::META_CONTEXT, rep::ACK],
        ),
        ("contexts that aren't", option::LIST_META_CONTEXT, contexts("v0", &["base:x", "qemu:"]), vec![rep::ACK]),
        ("contexts of no volume", option::LIST_META_CONTEXT, contexts("nope", &[]), vec![rep::ERR_UNKNOWN]),
        (
            "select",
            option::SET_META_CONTEXT,
            contexts("v0", &["x:y", "base:allocation"]),
            vec![rep::META_CONTEXT, rep::ACK],
        ),
        ("select none", option::SET_META_CONTEXT, contexts("v0", &[]), vec![rep::ACK]),
        ("select by wildcard", option::SET_META_CONTEXT, contexts("v0", &["base:"]), vec![rep::ACK]),
        (
            "select of no volume",
            option::SET_META_CONTEXT,
            contexts("nope", &["base:allocation"]),
            vec![rep::ERR_UNKNOWN],
        ),
        ("select, lying", option::SET_META_CONTEXT, name_and("v0", &[0xff; 4]), vec![rep::ERR_INVALID]),
        ("select, too much", option::SET_META_CONTEXT, long, vec![rep::ERR_TOO_BIG]),
        ("goodbye", option::ABORT, b"whatever".to_vec(), vec![rep::ACK]),
    ];
    run(async {
        let disk = TestDisk::new(1 << 20);
        let server = Server::new(TestExports::of(&[("v0", &disk), ("v1", &disk)]), Limits::default());
        let (mut client, end) = server.connect();
        client.greet().await;
        for (what, option, data, expected) in cases {
            assert_eq!(kinds(&client.option(option, &data).await), expected, "{what}");
        }
        assert!(client.rest().await.is_empty());
        assert_eq!(end.await.unwrap().unwrap(), End::Goodbye);
    });
}

#[test]
fn refusals_say_why() {
    run(async {
        let (mut client, _end) = Server::of(&TestDisk::new(4096)).connect();
        client.greet().await;
        for (name, why) in [("nope", "there is no volume 'nope'"), (UNAVAILABLE, "both copies are down")] {
            let replies = client.option(option::GO, &name_and(name, &[0, 0])).await;
            let said = String::from_utf8(replies[0].data.clone()).unwrap();
            assert!(said.contains(why), "{said}");
        }
    });
}

#[test]
fn info_tells_size_flags_name_and_block_sizes() {
    let sizes = [1u32.to_be_bytes(), 4096u32.to_be_bytes(), (32u32 << 20).to_be_bytes()].concat();
    for (disk, mode, flags) in [
        (TestDisk::new(12_345), Mode::Simple, ALWAYS),
        (TestDisk::new(12_345), Mode::Structured, ALWAYS | flag::SEND_DF),
        (TestDisk::new(12_345).read_only(), Mode::Simple, ALWAYS | flag::READ_ONLY),
    ] {
        run(async {
            let (mut client, _end) = Server::of(&disk).connect();
            client.greet().await;
            if mode == Mode::Structured {
                client.structured("v0").await;
            }
            for option in [option::INFO, option::GO] {
                // The only volume is the default one, and says its name.
                let replies = client.option(option, &name_and("", &[0, 2, 0, 1, 0, 3])).await;
                let data: Vec<Vec<u8>> = replies.into_iter().map(|reply| reply.data).collect();
                assert_eq!(data, [export_info(12_345, flags), info(1, b"v0"), info(3, &sizes), vec![]]);
            }
            client.disconnect().await;
            assert!(client.rest().await.is_empty(), "no padding after GO");
        });
    }
}

/// nbdinfo called a disk of 2^63 bytes a negative number of bytes, and QEMU an empty one.
#[test]
fn no_disk_is_larger_than_clients_can_count() {
    run(async {
        let disk = TestDisk::new(4096);
        disk.resize(1 << 63);
        let (mut client, _end) = Server::of(&disk).connect();
        client.greet().await;
        let replies = client.option(option::GO, &name_and("v0", &[0, 0])).await;
        let largest = i64::MAX as u64 / (1 << 30) * (1 << 30);
        assert_eq!(replies[0].data, export_info(largest, ALWAYS));
        client.request(command::READ, 0, 1, largest - 1, 2).await;
        assert_eq!(client.outcome().await, (1, 22));
    });
}

#[test]
fn export_name_answers_with_size_and_flags_and_pads_for_old_clients() {
    for (flags, padding) in [(handshake_flag::FIXED_NEWSTYLE, 124), (0, 124), (3, 0), (handshake_flag::NO_ZEROES, 0)] {
        for name in ["v0", ""] {
            run(async {
                let (mut client, end) = Server::of(&TestDisk::new(8192)).connect();
                client.receive(18).await.unwrap();
                client.send(&u32::from(flags).to_be_bytes()).await;
                client.send(&option_bytes(option::EXPORT_NAME, name.as_bytes())).await;
                client.disconnect().await;
                let expected = [&8192u64.to_be_bytes()[..], &ALWAYS.to_be_bytes(), &vec![0; padding]].concat();
                assert_eq!(client.rest().await, expected);
                assert_eq!(end.await.unwrap().unwrap(), End::Goodbye);
            });
        }
    }
}

#[test]
fn what_cannot_be_answered_closes_the_connection() {
    let good = 3u32.to_be_bytes().to_vec();
    let after = |bytes: Vec<u8>| [good.clone(), bytes].concat();
    type Expected = fn(&HandshakeError) -> bool;
    let cases: Vec<(&str, Vec<u8>, Expected)> = vec![
        ("unknown flags", 7u32.to_be_bytes().to_vec(), |e| matches!(e, HandshakeError::UnknownFlags(7))),
        ("bad magic", after(vec![b'x'; 16]), |e| matches!(e, HandshakeError::BadMagic(_))),
        ("no such export", after(option_bytes(option::EXPORT_NAME, b"nope")), |e| {
            matches!(e, HandshakeError::NoSuchExport(_))
        }),
        ("an export that isn't text", after(option_bytes(option::EXPORT_NAME, &[0xff])), |e| {
            matches!(e, HandshakeError::BadName(_))
        }),
        ("a long name", after(option_bytes(option::EXPORT_NAME, &[b'a'; 4097])), |e| {
            matches!(e, HandshakeError::BadName(_))
        }),
        ("an absurd name", after([&option_bytes(option::EXPORT_NAME, &[])[..12], &[0, 2, 0, 0]].concat()), |e| {
            matches!(e, HandshakeError::AbsurdLength(0x2_0000))
        }),
        ("absurd data", after([&option_bytes(99, &[])[..12], &[0xff; 4]].concat()), |e| {
            matches!(e, HandshakeError::AbsurdLength(u32::MAX))
        }),
        ("options of an old client", [vec![0; 4], option_bytes(option::LIST, &[])].concat(), |e| {
            matches!(e, HandshakeError::NotFixedNewstyle(option::LIST))
        }),
    ];
    for (what, bytes, expected) in cases {
        run(async {
            let (mut client, end) = Server::of(&TestDisk::new(4096)).connect();
            client.receive(18).await.unwrap();
            client.send(&bytes).await;
            assert!(client.rest().await.is_empty(), "{what}");
            match end.await.unwrap() {
                Err(ConnectionError::Handshake(error)) => assert!(expected(&error), "{what}: {error:?}"),
                other => panic!("{what}: {other:?}"),
            }
        });
    }
}

#[test]
fn contexts_are_those_of_the_last_selection_and_of_the_export_that_is_entered() {
    let (allocation, none): (&[&str], &[&str]) = (&["base:allocation"], &[]);
    for (what, selections, enter, works) in [
        ("selected", vec![("v0", allocation)], "v0", true),
        ("selected for another", vec![("v1", allocation)], "v0", false),
        ("unselected", vec![("v0", allocation), ("v0", none)], "v0", false),
        ("a failed selection", vec![("v0", allocation), ("nope", allocation)], "v0", false),
        ("selected again", vec![("v1", allocation), ("v0", allocation)], "v0", true),
        ("not selected", vec![], "v0", false),
    ] {
        run(async {
            let disk = TestDisk::new(1 << 20);
            let server = Server::new(TestExports::of(&[("v0", &disk), ("v1", &disk)]), Limits::default());
            let (mut client, _end) = server.connect();
            client.greet().await;
            client.option(option::STRUCTURED_REPLY, &[]).await;
            for (name, queries) in selections {
                client.option(option::SET_META_CONTEXT, &contexts(name, queries)).await;
            }
            client.go(enter).await;
            client.request(command::BLOCK_STATUS, 0, 1, 0, 4096).await;
            let told = matches!(client.reply().await, super::client::Reply::Status { cookie: 1, .. });
            assert_eq!(told, works, "{what}");
        });
    }
}

#[test]
fn the_default_export_and_its_name_are_the_same_export() {
    run(async {
        let server = Server::of(&TestDisk::new(4096));
        let (mut client, _end) = server.connect();
        client.greet().await;
        client.option(option::STRUCTURED_REPLY, &[]).await;
        client.option(option::SET_META_CONTEXT, &contexts("", &["base:allocation"])).await;
        client.go("v0").await;
        client.request(command::BLOCK_STATUS, 0, 1, 0, 4096).await;
        assert!(matches!(client.reply().await, super::client::Reply::Status { .. }));
        assert_eq!(server.exports.opened.get(), 1, "an export that is entered after a look at it is opened once");
    });
}

#[test]
fn a_client_may_send_its_whole_session_at_once() {
    run(async {
        let (mut client, end) = Server::of(&TestDisk::patterned(4096)).connect();
        let mut session = 3u32.to_be_bytes().to_vec();
        session.extend(option_bytes(option::LIST, &[]));
        session.extend(option_bytes(option::GO, &name_and("v0", &[0, 0])));
        session.extend(super::client::request_bytes(command::READ, 0, 5, 1, 2));
        session.extend(super::client::request_bytes(command::DISC, 0, 6, 0, 0));
        client.send(&session).await;
        let all = client.rest().await;
        assert_eq!(all[all.len() - 10..], [0, 0, 0, 0, 0, 0, 0, 5, 1, 2]);
        assert_eq!(end.await.unwrap().unwrap(), End::Goodbye);
    });
}

#[test]
fn a_client_that_dawdles_or_talks_for_ever_is_closed() {
    run(async {
        let exports = TestExports::of(&[("v0", &TestDisk::new(4096))]);
        let limits = Limits { handshake: Duration::from_millis(30), options: 5, ..Limits::default() };
        let server = Server::new(exports, limits);
        let (mut client, end) = server.connect();
        client.receive(18).await.unwrap();
        assert!(client.rest().await.is_empty());
        assert!(matches!(end.await.unwrap(), Err(ConnectionError::HandshakeTooSlow)));

        let (mut client, end) = server.connect();
        client.greet().await;
        for _ in 0..5 {
            client.option(option::LIST, &[]).await;
        }
        assert!(client.rest().await.is_empty());
        assert!(matches!(end.await.unwrap(), Err(ConnectionError::Handshake(HandshakeError::TooManyOptions(5)))));
    });
}

#[test]
fn idle_strangers_make_room_and_attached_clients_stay() {
    run(async {
        let exports = TestExports::of(&[("v0", &TestDisk::patterned(4096))]);
        let server = Server::new(exports, Limits { negotiating: 2, ..Limits::default() });
        let (mut oldest, oldest_end) = server.connect();
        let (mut attached, _end) = server.attach(Mode::Simple).await;
        let second = server.connect();
        settle().await;
        assert!(!oldest_end.is_finished(), "only two are negotiating");
        let third = server.connect();
        oldest.rest().await;
        assert!(matches!(oldest_end.await.unwrap(), Err(ConnectionError::Evicted)));
        assert!(attached.read(1, 0, 1).await.is_ok());
        drop((second, third));
    });
}

#[test]
fn a_long_list_is_told_in_full() {
    run(async {
        let disk = TestDisk::new(4096);
        let names: Vec<String> = (0..5000).map(|i| format!("volume-{i:04}-{}", "x".repeat(60))).collect();
        let disks: Vec<(&str, &TestDisk)> = names.iter().map(|name| (name.as_str(), &disk)).collect();
        let (mut client, _end) = Server::new(TestExports::of(&disks), Limits::default()).connect();
        client.greet().await;
        let replies = client.option(option::LIST, &[]).await;
        let told: Vec<&[u8]> = replies[..5000].iter().map(|reply| &reply.data[4..]).collect();
        assert!(told.iter().zip(&names).all(|(told, name)| *told == name.as_bytes()));
        assert_eq!(replies.len(), 5001);
    });
}

/// The client goes at every possible moment of a handshake.
#[test]
fn a_handshake_cut_anywhere_ends_the_connection_only() {
    let mut session = 3u32.to_be_bytes().to_vec();
    session.extend(option_bytes(option::STRUCTURED_REPLY, &[]));
    session.extend(option_bytes(option::SET_META_CONTEXT, &contexts("v0", &["base:allocation"])));
    session.extend(option_bytes(option::GO, &name_and("v0", &[0, 1, 0, 3])));
    run(async {
        let disk = TestDisk::new(4096);
        let server = Server::of(&disk);
        for cut in 0..=session.len() {
            let (mut client, end) = server.connect();
            client.send(&session[..cut]).await;
            drop::<Client>(client);
            let _ = end.await.expect("no panic");
        }
        assert_eq!(server.admission.connections(), 0);
    });
}
