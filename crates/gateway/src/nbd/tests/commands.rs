//! Transmission: what each command does, and what it's answered.

use super::super::wire::{command, command_flag as flag};
use super::super::{ConnectionError, End, Limits, TransmissionError};
use super::client::{Client, Reply, request_bytes};
use super::disk::{Call, Pace, TestDisk, TestExports, pattern, patterns};
use super::{MODES, Mode, Server, run, settle};
use proptest::prelude::*;
use std::collections::BTreeMap;
use tepal_model::{BLOCK, MAX_REQUEST};

const INVALID: u32 = 22;
const NO_SPACE: u32 = 28;
const MAX: u32 = MAX_REQUEST as u32;

#[test]
fn what_is_written_is_read_at_any_offset_and_length() {
    let lengths = [1, 2, 511, 1024, 1025, 4096, 4097, 32_740, 32_768, 32_769, 65_536, 262_144, 300_000, 1 << 20, MAX];
    for mode in MODES {
        run(async {
            let disk = TestDisk::patterned(MAX_REQUEST + 8192);
            let (mut client, end) = Server::of(&disk).attach(mode).await;
            let mut model = disk.contents();
            for (i, &length) in lengths.iter().enumerate() {
                let offsets = if length == MAX { &[1][..] } else { &[0, 1, 4095, 4096, 7001] };
                for &offset in offsets {
                    let data: Vec<u8> = (0..length).map(|at| (at as u8).wrapping_mul(31) ^ i as u8).collect();
                    client.write(0, 7, offset, &data).await;
                    assert_eq!(client.outcome().await, (7, 0));
                    model[offset as usize..offset as usize + data.len()].copy_from_slice(&data);
                    assert!(client.read(8, offset, length).await.unwrap() == data, "{length} at {offset}");
                }
            }
            assert!(disk.contents() == model, "nothing else was touched");
            client.disconnect().await;
            assert_eq!(end.await.unwrap().unwrap(), End::Goodbye);
        });
    }
}

#[test]
fn flags_and_ranges_reach_the_disk_as_they_were_sent() {
    let (fua, keep, fast) = (flag::FUA, flag::NO_HOLE, flag::FAST_ZERO);
    let zeroes = |allocate, fua| Call::Zeroes { offset: 4096, length: 512, allocate, fua };
    let cases = [
        (command::WRITE, 0, 4096, 512, Some(Call::Write { offset: 4096, length: 512, fua: false })),
        (command::WRITE, fua, 1, 3, Some(Call::Write { offset: 1, length: 3, fua: true })),
        (command::FLUSH, 0, 0, 0, Some(Call::Flush)),
        (command::FLUSH, fua, 0, 0, Some(Call::Flush)),
        (command::TRIM, 0, 4096, 8192, Some(Call::Trim { offset: 4096, length: 8192, fua: false })),
        (command::TRIM, fua, 0, 1, Some(Call::Trim { offset: 0, length: 1, fua: true })),
        (command::WRITE_ZEROES, 0, 4096, 512, Some(zeroes(false, false))),
        (command::WRITE_ZEROES, fua, 4096, 512, Some(zeroes(false, true))),
        (command::WRITE_ZEROES, keep, 4096, 512, Some(zeroes(true, false))),
        (command::WRITE_ZEROES, keep | fua, 4096, 512, Some(zeroes(true, true))),
        (command::WRITE_ZEROES, fast, 4096, 512, Some(zeroes(false, false))),
        (command::CACHE, 0, 0, 65_536, None),
        (command::CACHE, fua, 0, 1, None),
        (command::WRITE, 0, 0, 0, None),
        (command::TRIM, 0, 0, 0, None),
        (command::WRITE_ZEROES, fua, 65_536, 0, None),
        (command::CACHE, 0, 65_536, 0, None),
    ];
    for mode in MODES {
        run(async {
            let disk = TestDisk::new(65_536);
            let (mut client, _end) = Server::of(&disk).attach(mode).await;
            for (kind, flags, offset, length, call) in cases {
                client.request(kind, flags, 3, offset, length).await;
                if kind == command::WRITE {
                    client.send(&vec![1; length as usize]).await;
                }
                assert_eq!(client.outcome().await, (3, 0), "{kind} {flags:#x}");
                assert_eq!(disk.calls(), Vec::from_iter(call), "{kind} {flags:#x}");
            }
            client.request(command::READ, fua, 4, 10, 2).await;
            let expected = if mode == Mode::Simple { 18 } else { 30 };
            assert_eq!(client.receive(expected).await.unwrap()[expected - 2..], [0, 0]);
            assert_eq!(disk.calls(), [Call::Read(10, 2)]);
        });
    }
}

#[test]
fn a_request_against_the_rules_is_refused_and_the_next_one_is_served() {
    const SIZE: u64 = 64 << 20;
    let cases = [
        (command::READ, 0, SIZE, 1, INVALID),
        (command::READ, 0, u64::MAX, 2, INVALID),
        (command::READ, 0, 0, MAX + 1, INVALID),
        (command::READ, 0, 0, u32::MAX, INVALID),
        (command::READ, flag::REQ_ONE, 0, 1, INVALID),
        (command::READ, 1 << 9, 0, 1, INVALID),
        (command::WRITE, 0, SIZE - 1, 2, NO_SPACE),
        (command::WRITE, 0, SIZE, 40_000, NO_SPACE),
        (command::WRITE, 0, u64::MAX - 5, 10, NO_SPACE),
        (command::WRITE, flag::NO_HOLE, 0, 10_000, INVALID),
        (command::WRITE, 0, 0, MAX + 1, INVALID),
        (command::WRITE, 0, 0, 3 * MAX + 17, INVALID),
        (command::TRIM, 0, SIZE, 1, INVALID),
        (command::WRITE_ZEROES, 0, SIZE, 1, NO_SPACE),
        (command::WRITE_ZEROES, 0, 1, u64::MAX as u32, NO_SPACE),
        (command::WRITE_ZEROES, flag::NO_HOLE | flag::FAST_ZERO, 0, 4096, 95),
        (command::CACHE, 0, SIZE, 1, INVALID),
        (command::CACHE, flag::NO_HOLE, 0, 1, INVALID),
        (command::FLUSH, 0, 0, 1, INVALID),
        (command::BLOCK_STATUS, 0, 0, 0, INVALID),
        (command::BLOCK_STATUS, 0, SIZE, 1, INVALID),
        (8, 0, 0, 0, INVALID),
        (99, 0xffff, u64::MAX, u32::MAX, INVALID),
    ];
    for mode in MODES {
        run(async {
            let disk = TestDisk::patterned(SIZE);
            let (mut client, _end) = Server::of(&disk).attach(mode).await;
            for (i, (kind, flags, offset, length, error)) in cases.into_iter().enumerate() {
                client.request(kind, flags, i as u64, offset, length).await;
                if kind == command::WRITE {
                    client.send(&vec![0xee; length as usize]).await;
                }
                assert_eq!(client.outcome().await, (i as u64, error), "{kind} {flags:#x} {offset}+{length}");
                assert!(disk.calls().is_empty(), "the disk never hears of it");
                assert_eq!(client.read(77, 5, 3).await.unwrap(), patterns(5, 3));
                disk.calls();
            }
            assert!(disk.contents() == patterns(0, SIZE));
        });
    }
}

#[test]
fn reads_of_no_bytes_succeed() {
    for mode in MODES {
        run(async {
            let (mut client, _end) = Server::of(&TestDisk::new(4096)).attach(mode).await;
            client.request(command::READ, 0, 1, 4096, 0).await;
            assert_eq!(client.outcome().await, (1, 0));
        });
    }
}

#[test]
fn a_read_that_must_not_be_fragmented_is_not() {
    run(async {
        let (mut client, _end) = Server::of(&TestDisk::patterned(MAX_REQUEST)).attach(Mode::Structured).await;
        client.request(command::READ, flag::DF, 1, 0, MAX).await;
        let Reply::Data { data, .. } = client.reply().await else { panic!("one chunk of data") };
        assert!(data == patterns(0, MAX_REQUEST));
    });
}

#[test]
fn a_read_only_export_refuses_changes_and_skips_their_payload() {
    for mode in MODES {
        run(async {
            let disk = TestDisk::patterned(1 << 20).read_only();
            let (mut client, _end) = Server::of(&disk).attach(mode).await;
            for length in [0, 1, 100_000] {
                client.write(0, 1, 0, &vec![0; length]).await;
                assert_eq!(client.outcome().await, (1, 1));
            }
            for kind in [command::TRIM, command::WRITE_ZEROES] {
                client.request(kind, 0, 2, 0, 4096).await;
                assert_eq!(client.outcome().await, (2, 1));
            }
            client.request(command::FLUSH, 0, 3, 0, 0).await;
            assert_eq!(client.outcome().await, (3, 0));
            assert_eq!(client.read(4, 9, 1).await.unwrap(), [pattern(9)]);
            assert_eq!(disk.calls(), [Call::Flush, Call::Read(9, 1)]);
        });
    }
}

#[test]
fn only_zeros_that_take_space_go_in_pieces() {
    run(async {
        let disk = TestDisk::sparse(8 << 30, 0);
        let (mut client, _end) = Server::of(&disk).attach(Mode::Simple).await;
        let all = u64::from(u32::MAX);
        for (kind, flags, longest) in [
            (command::TRIM, 0, all),
            (command::WRITE_ZEROES, 0, all),
            (command::WRITE_ZEROES, flag::NO_HOLE, MAX_REQUEST),
        ] {
            client.request(kind, flags | flag::FUA, 1, 5, u32::MAX).await;
            assert_eq!(client.outcome().await, (1, 0));
            let (mut next, calls) = (5, disk.calls());
            assert_eq!(calls.len() as u64, all.div_ceil(longest));
            for call in calls {
                let (Call::Trim { offset, length, fua } | Call::Zeroes { offset, length, fua, .. }) = call else {
                    panic!("{call:?}")
                };
                assert_eq!((offset, fua), (next, true));
                next += length;
            }
            assert_eq!(next, 5 + all);
        }
    });
}

async fn status(client: &mut Client, flags: u16, offset: u64, length: u32) -> Vec<(u32, u32)> {
    client.request(command::BLOCK_STATUS, flags, 9, offset, length).await;
    match client.reply().await {
        Reply::Status { cookie: 9, context: 1, runs } => runs,
        other => panic!("{other:?}"),
    }
}

#[test]
fn block_status_tells_holes_from_data() {
    const DATA: u32 = 0;
    const HOLE: u32 = 3;
    run(async {
        let disk = TestDisk::sparse(8 << 30, 0);
        disk.map(4096, 8192);
        disk.map(64 << 20, 96 << 20); // over several pieces of what a disk is asked at a time
        let (mut client, _end) = Server::of(&disk).attach(Mode::Structured).await;
        assert_eq!(status(&mut client, 0, 0, 16_384).await, [(4096, HOLE), (8192, DATA), (4096, HOLE)]);
        assert_eq!(status(&mut client, flag::REQ_ONE, 0, 16_384).await, [(4096, HOLE)]);
        assert_eq!(status(&mut client, flag::REQ_ONE, 5000, 1000).await, [(1000, DATA)]);
        assert_eq!(status(&mut client, flag::FUA, 4095, 2).await, [(1, HOLE), (1, DATA)]);
        let runs = status(&mut client, 0, 12_288, u32::MAX - 4096).await;
        assert_eq!(runs[0], ((64 << 20) - 12_288, HOLE));
        assert_eq!(runs[1..], [(96 << 20, DATA), (u32::MAX - 4096 - runs[0].0 - (96 << 20), HOLE)]);
        assert_eq!(status(&mut client, flag::REQ_ONE, 64 << 20, 1 << 30).await, [(96 << 20, DATA)]);
        assert_eq!(status(&mut client, flag::REQ_ONE, 160 << 20, 2 << 30).await, [(2 << 30, HOLE)]);
    });
}

#[test]
fn block_status_of_a_checkered_disk_is_told_bit_by_bit() {
    run(async {
        let disk = TestDisk::new(BLOCK * 5000);
        (0..5000).step_by(2).for_each(|block| disk.map(block * BLOCK, BLOCK));
        let (mut client, _end) = Server::of(&disk).attach(Mode::Structured).await;
        let mut at = 0;
        while at < BLOCK * 5000 {
            let runs = status(&mut client, 0, at, (BLOCK * 5000 - at) as u32).await;
            assert!(!runs.is_empty() && runs.len() <= 1024);
            for (length, flags) in runs {
                assert_eq!((u64::from(length), flags), (BLOCK, if (at / BLOCK).is_multiple_of(2) { 0 } else { 3 }));
                at += BLOCK;
            }
        }
    });
}

#[test]
fn replies_come_as_requests_get_done_and_a_goodbye_waits_for_all() {
    for mode in MODES {
        run(async {
            let disk = TestDisk::new(1 << 20);
            let (mut client, end) = Server::of(&disk).attach(mode).await;
            disk.pace(Pace::Held);
            for cookie in 0..5 {
                client.write(0, cookie, cookie * 4096, &[1; 4096]).await;
            }
            settle().await;
            assert_eq!(disk.active(), 5);
            disk.pace(Pace::AtOnce);
            client.request(command::FLUSH, 0, 100, 0, 0).await;
            assert_eq!(client.outcome().await, (100, 0), "the later one is done first");
            client.disconnect().await;
            settle().await;
            assert!(!end.is_finished(), "requests are under way");
            disk.let_go(5);
            let mut done: Vec<u64> = Vec::new();
            for _ in 0..5 {
                let (cookie, error) = client.outcome().await;
                assert_eq!(error, 0);
                done.push(cookie);
            }
            done.sort_unstable();
            assert_eq!(done, [0, 1, 2, 3, 4]);
            assert!(client.rest().await.is_empty());
            assert_eq!(end.await.unwrap().unwrap(), End::Goodbye);
        });
    }
}

/// Story: a write waited for a drive, its client gave up, came back on another connection and wrote the same block again. When
/// the drive was there, both were done, the older one last.
#[test]
fn what_still_waits_when_its_client_is_gone_without_a_word_is_given_up() {
    run(async {
        let disk = TestDisk::new(1 << 20);
        let (mut client, end) = Server::of(&disk).attach(Mode::Simple).await;
        disk.pace(Pace::Held);
        client.write(0, 1, 0, &[1; 4096]).await;
        settle().await;
        assert_eq!(disk.active(), 1);
        drop(client);
        assert!(end.await.unwrap().is_err());
        assert_eq!(disk.active(), 0);
    });
}

/// Story: that a client had gone stood behind requests for which there was no place, or behind its goodbye, and wasn't read: what it had
/// sent went on waiting for a drive, to be done over what it wrote elsewhere since.
#[test]
fn a_client_that_goes_while_nothing_is_received_from_it_is_missed() {
    for says_goodbye in [false, true] {
        run(async {
            let disk = TestDisk::new(1 << 20);
            let limits = Limits { requests: 2, ..Limits::default() };
            let server = Server::new(TestExports::of(&[("v0", &disk)]), limits);
            let (mut client, end) = server.attach(Mode::Simple).await;
            disk.pace(Pace::Held);
            for cookie in 0..if says_goodbye { 1 } else { 4 } {
                client.write(0, cookie, cookie * 4096, &[1; 4096]).await;
            }
            if says_goodbye {
                client.disconnect().await;
            }
            settle().await;
            assert!(disk.active() > 0 && !end.is_finished());
            drop(client);
            assert!(end.await.unwrap().is_err());
            assert_eq!(disk.active(), 0);
        });
    }
}

#[test]
fn what_follows_a_goodbye_is_ignored() {
    run(async {
        let disk = TestDisk::new(4096);
        let (mut client, end) = Server::of(&disk).attach(Mode::Simple).await;
        let after = [request_bytes(command::DISC, 0, 1, 0, 0), request_bytes(command::FLUSH, 0, 2, 0, 0)].concat();
        client.send(&after).await;
        assert!(client.rest().await.is_empty());
        assert_eq!(end.await.unwrap().unwrap(), End::Goodbye);
        assert!(disk.calls().is_empty());
    });
}

#[test]
fn a_resize_is_seen_by_the_next_request() {
    run(async {
        let disk = TestDisk::sparse(4096, 8192);
        let (mut client, _end) = Server::of(&disk).attach(Mode::Simple).await;
        assert_eq!(client.read(1, 4096, 1).await, Err(INVALID));
        disk.resize(8192);
        assert_eq!(client.read(2, 4096, 1).await, Ok(vec![0]));
        disk.resize(4096);
        assert_eq!(client.read(3, 4096, 1).await, Err(INVALID));
    });
}

#[test]
fn connections_share_the_disk() {
    run(async {
        let disk = TestDisk::new(1 << 20);
        let server = Server::of(&disk);
        let mut clients = Vec::new();
        for i in 0..50u8 {
            let (mut client, _end) = server.attach(MODES[usize::from(i) % 2]).await;
            client.write(0, 1, u64::from(i) * 100, &[i; 100]).await;
            clients.push(client);
        }
        for client in &mut clients {
            assert_eq!(client.outcome().await, (1, 0));
        }
        for client in &mut clients {
            let data = client.read(2, 0, 5000).await.unwrap();
            assert!(data.chunks(100).enumerate().all(|(i, part)| part == [i as u8; 100]));
        }
    });
}

#[test]
fn bytes_that_are_no_request_end_the_connection_after_what_is_under_way() {
    run(async {
        let disk = TestDisk::new(4096);
        let (mut client, end) = Server::of(&disk).attach(Mode::Simple).await;
        disk.pace(Pace::Held);
        client.request(command::FLUSH, 0, 5, 0, 0).await;
        client.send(&[0x55; 28]).await;
        settle().await;
        disk.let_go(1);
        assert_eq!(client.outcome().await, (5, 0));
        assert!(client.rest().await.is_empty());
        let ended = end.await.unwrap();
        assert!(matches!(ended, Err(ConnectionError::Transmission(TransmissionError::BadMagic(_)))), "{ended:?}");
    });
}

#[derive(Clone, Debug)]
enum Step {
    Read(u64, u64),
    Write(u64, u64, u8),
    Zeroes(u64, u64),
    Flush,
    Refused,
}

const MODEL: u64 = 200_000;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = || (0..MODEL, prop_oneof![4 => 1..5000u64, 2 => 1..100_000u64]);
    let within = |(offset, length): (u64, u64)| (offset, length.min(MODEL - offset));
    prop::collection::vec(
        prop_oneof![
            4 => range().prop_map(within).prop_map(|(offset, length)| Step::Read(offset, length)),
            4 => (range().prop_map(within), any::<u8>()).prop_map(|((o, l), byte)| Step::Write(o, l, byte)),
            1 => range().prop_map(within).prop_map(|(offset, length)| Step::Zeroes(offset, length)),
            1 => Just(Step::Flush),
            1 => Just(Step::Refused),
        ],
        1..40,
    )
}

/// Sends steps without waiting, in pieces of some size, and compares with an array. Requests in flight together that
/// overlap have no order, so a step that overlaps an earlier one begins a new batch.
async fn compare_with_a_model(mode: Mode, pace: Pace, steps: &[Step], cut: usize) {
    let disk = TestDisk::new(MODEL);
    let (mut client, _end) = Server::of(&disk).attach(mode).await;
    disk.pace(pace);
    let mut model = vec![0; MODEL as usize];
    for batch in batches(steps) {
        let mut bytes = Vec::new();
        let mut expected: BTreeMap<u64, (u32, Option<Vec<u8>>)> = BTreeMap::new();
        for (i, step) in batch.iter().enumerate() {
            let cookie = i as u64 + 10;
            let mut request = |kind, offset: u64, length: u64| {
                bytes.extend(request_bytes(kind, 0, cookie, offset, length as u32));
            };
            match *step {
                Step::Read(offset, length) => {
                    request(command::READ, offset, length);
                    let data = model[offset as usize..(offset + length) as usize].to_vec();
                    expected.insert(cookie, (0, Some(data)));
                }
                Step::Write(offset, length, byte) => {
                    request(command::WRITE, offset, length);
                    bytes.extend(vec![byte; length as usize]);
                    model[offset as usize..(offset + length) as usize].fill(byte);
                    expected.insert(cookie, (0, None));
                }
                Step::Zeroes(offset, length) => {
                    request(command::WRITE_ZEROES, offset, length);
                    model[offset as usize..(offset + length) as usize].fill(0);
                    expected.insert(cookie, (0, None));
                }
                Step::Flush => {
                    request(command::FLUSH, 0, 0);
                    expected.insert(cookie, (0, None));
                }
                Step::Refused => {
                    request(command::WRITE, MODEL, 3000);
                    bytes.extend([9; 3000]);
                    expected.insert(cookie, (NO_SPACE, None));
                }
            }
        }
        for piece in bytes.chunks(cut) {
            client.send(piece).await;
            tokio::task::yield_now().await;
        }
        while !expected.is_empty() {
            let (cookie, error, offset_data) = match client.reply().await {
                Reply::Simple { cookie, error } | Reply::Error { cookie, error, .. } => (cookie, error, None),
                Reply::Data { cookie, data, .. } => (cookie, 0, Some(data)),
                other => panic!("{other:?}"),
            };
            let (right, data) = expected.remove(&cookie).expect("each request is answered once");
            assert_eq!(error, right);
            if let Some(data) = data {
                let got = match offset_data {
                    Some(got) => got,
                    None => client.receive(data.len()).await.unwrap(),
                };
                assert!(got == data, "read of the wrong bytes");
            }
        }
    }
    assert!(disk.contents() == model);
}

fn batches(steps: &[Step]) -> Vec<&[Step]> {
    let mut batches = Vec::new();
    let mut start = 0;
    for next in 0..steps.len() {
        if steps[start..next].iter().any(|earlier| touches(earlier, &steps[next])) {
            batches.push(&steps[start..next]);
            start = next;
        }
    }
    batches.push(&steps[start..]);
    batches
}

fn touches(one: &Step, other: &Step) -> bool {
    let range = |step: &Step| match *step {
        Step::Read(offset, length) | Step::Write(offset, length, _) | Step::Zeroes(offset, length) => {
            offset..offset + length
        }
        Step::Flush | Step::Refused => 0..0,
    };
    let (one, other) = (range(one), range(other));
    one.start < other.end && other.start < one.end
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn any_session_does_what_an_array_would(steps in steps(), cut in 1usize..60_000, overtaking: bool, structured: bool) {
        let mode = if structured { Mode::Structured } else { Mode::Simple };
        let pace = if overtaking { Pace::Overtaking(3) } else { Pace::AtOnce };
        run(compare_with_a_model(mode, pace, &steps, cut));
    }
}
