//! The bytes of docs/formats.md, written by hand: a change of any of them is another version of the protocol.

use super::tests::TAG;
use super::*;
use crate::frame::{HEADER, Header, append};
use crate::handshake::{ClientId, Grant, Reason, Role, Sender};
use tepal_codec::checksum::crc;
use tepal_model::{ClusterId, DriveId, IoError, Lineage, MapId, Segments, ServerId, Taking, Version, VolumeId};

/// Hexadecimal digits, a word for each field.
fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

fn check(cases: &[(Message, Kind, &str)]) {
    for (message, kind, hex) in cases {
        assert_eq!((message.kind(), encoded(message)), (*kind, bytes(hex)), "{message:?}");
    }
}

#[test]
fn a_whole_frame() {
    let data = Segments::from_iter([vec![0xaa; 4096].into(), vec![0xbb; 10].into()]);
    let request = VolumeRequest {
        volume: VolumeId(0x11),
        map: MapId(0x33),
        column: 0x22,
        operation: VolumeOperation::Write { offset: 4086, fua: true, tag: TAG },
    };
    let header = Header { request: 3, slot: 4, session: 5, view: 6, revision: 7, load: 8, in_doubt: true };
    let mut frame = Vec::new();
    append(&mut frame, &header, &Request::Volume(request), &Payload::seal(4086, data));
    // 10 bytes to the end of the block; 4086 and 10 more fill the next one.
    let first = crc(&[0xaa; 10]);
    let second = crc(&[[0xaa; 4086].as_slice(), &[0xbb; 10]].concat());
    let message = bytes(
        "1100000000000000 33000000 22000000 02 f60f000000000000 01  0100000000000000 02000000 0300000000000000 0400000000000000 01",
    );
    let meta = [message, first.to_le_bytes().to_vec(), second.to_le_bytes().to_vec()].concat();
    assert_eq!(frame[HEADER..], meta);
    let head = bytes(
        "54504c77 01 12 01 00 37000000 0a100000 0300000000000000 0500000000000000 0600000000000000 0700000000000000
         0400 0800 f60f 0000",
    );
    let head = [head, crc(&meta).to_le_bytes().to_vec()].concat();
    assert_eq!(frame[..60], head);
    assert_eq!(frame[60..HEADER], crc(&head).to_le_bytes());
}

#[test]
fn the_handshake() {
    let server = Sender::Server { server: ServerId(2), boot: 3 };
    let client = Sender::Client { client: ClientId(0x0102) };
    let expecting = Hello { epoch: 9, expects: Some(ServerId(4)), ..Hello::new(ClusterId(1), server, Role::Server, 5) };
    let grant = Grant { requests: 0x100, bytes: 0x1000 };
    check(&[
        (
            Message::Hello(expecting),
            Kind::Hello,
            "0100 0100 01000000000000000000000000000000 01 02000000 0300000000000000 01 0500 0900000000000000 01 04000000",
        ),
        (
            Message::Hello(Hello::new(ClusterId(1), client, Role::Gateway, 0)),
            Kind::Hello,
            "0100 0100 01000000000000000000000000000000 02 02010000000000000000000000000000 02 0000 0100000000000000 00",
        ),
        (
            Message::Hello(Hello::new(ClusterId(0), Sender::Newcomer, Role::Server, 0)),
            Kind::Hello,
            "0100 0100 00000000000000000000000000000000 03 01 0000 0100000000000000 00",
        ),
        (
            Message::Welcome(Welcome { version: 1, server: ServerId(4), boot: 6, grant, known: true }),
            Kind::Welcome,
            "0100 04000000 0600000000000000 0001 0010000000000000 01",
        ),
        (Message::Refused(Refused::new(Reason::UnknownVersion, "é")), Kind::Refused, "0100 0100 01 0200 c3a9"),
        (Message::Refused(Refused::new(Reason::Broken, "")), Kind::Refused, "0100 0100 0a 0000"),
    ]);
    let numbers: Vec<u8> = [
        Reason::UnknownVersion,
        Reason::OtherCluster,
        Reason::OtherServer,
        Reason::UnknownServer,
        Reason::SameServerTwice,
        Reason::NotAMember,
        Reason::Fenced,
        Reason::TooMany,
        Reason::Stopping,
        Reason::Broken,
        Reason::Starting,
    ]
    .map(|reason| encoded(&Message::Refused(Refused::new(reason, "")))[4])
    .into();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
}

#[test]
fn requests_to_drives() {
    use DriveOperation::*;
    let start = "0700000000000000 0200000000000000 03000000 04000000 ";
    let busy = super::Mark { region: 5, kind: MarkKind::Busy };
    let stale = super::Mark { region: 6, kind: MarkKind::Stale { drive: DriveId(9) } };
    let many = MarkWord { kind: MarkKind::Busy, word: 7, regions: 0xff };
    let marks = vec![MarkChange::Set(busy), MarkChange::Unset(stale), MarkChange::SetMany(many), MarkChange::UnsetAll];
    let origin = "0100000000000000 02000000 0300000000000000 0400000000000000";
    let taken = Taken { origin: TAG.origin, first: 1, count: 2 };
    let lineage = || Lineage::new([(0, 4), (7, 9)], 8).unwrap();
    let seen = "0200 00000000 04000000 07000000 09000000 08000000";
    let all_marks = "04000000
        01 0500000000000000 01
        02 0600000000000000 02 0900000000000000
        03 01 0700000000000000 ff00000000000000
        04";
    let cases = [
        (Hear { after: None }, "01 00".to_owned()),
        (Hear { after: Some(many.place()) }, "01 01 01 0700000000000000".to_owned()),
        (Read { first: 1, count: 2, lineage: lineage() }, format!("02 0100000000000000 02000000 {seen}")),
        (Checksums { first: 1, count: 2, lineage: lineage() }, format!("03 0100000000000000 02000000 {seen}")),
        (
            Write {
                first: 1,
                marks: marks.clone(),
                durable: true,
                repair: false,
                taking: Taking::Request(TAG.origin),
                lineage: lineage(),
            },
            format!("04 0100000000000000 01 00 02 {origin} {all_marks} {seen}"),
        ),
        (
            Clear { first: 1, count: 2, marks: marks.clone(), taking: Taking::Those(vec![taken]), lineage: lineage() },
            format!(
                "05 0100000000000000 0200000000000000 03 01000000 {origin} 0100000000000000 0200000000000000 {all_marks} {seen}"
            ),
        ),
        (DriveOperation::Mark { changes: marks, durable: true }, format!("06 01 {all_marks}")),
        (Flush, "07".to_owned()),
        (
            Present { first: 1, count: 2, look: 3, lineage: lineage() },
            format!("08 0100000000000000 0200000000000000 0300000000000000 {seen}"),
        ),
        (Epochs { first: 1, count: 2 }, "0e 0100000000000000 0200000000000000".to_owned()),
        (Extents { first: 1, count: 2, noted: true }, "09 0100000000000000 0200000000000000 01".to_owned()),
        (RemoveMap, "0a".to_owned()),
        (Noted { view: 5 }, "0b 0500000000000000".to_owned()),
        (
            DriveOperation::Fate { origin: TAG.origin, first: 1, count: 2 },
            format!("0c {origin} 0100000000000000 0200000000000000"),
        ),
        (
            Adopt { first: 1, count: 2, requests: vec![taken] },
            format!("0d 0100000000000000 0200000000000000 01000000 {origin} 0100000000000000 0200000000000000"),
        ),
    ];
    for (operation, hex) in cases {
        let request = DriveRequest { drive: DriveId(7), opening: 2, map: MapId(3), column: 4, operation };
        check(&[(Message::Request(Request::Drive(request)), Kind::DriveRequest, &format!("{start} {hex}"))]);
    }
}

#[test]
fn answers_of_drives() {
    use DriveAnswer::*;
    let word = MarkWord { kind: MarkKind::Stale { drive: DriveId(9) }, word: 7, regions: 1 };
    let taken = Taken { origin: TAG.origin, first: 1, count: 2 };
    let heard = super::Heard { opening: 1, marks: vec![word], more: true, dropped_tail: false, allocated: 5 };
    let cases = [
        (
            Heard(heard),
            "01 0100000000000000 01000000 02 0900000000000000 0700000000000000 0100000000000000 01 00 0500000000000000",
        ),
        (Read, "02"),
        (
            Checksums { checksums: vec![None, Some(5)], requests: vec![taken] },
            "03 02000000 00 01 05000000 01000000 0100000000000000 02000000 0300000000000000 0400000000000000
             0100000000000000 0200000000000000",
        ),
        (Written, "04"),
        (Cleared, "05"),
        (Marked, "06"),
        (Flushed, "07"),
        (Present { runs: vec![Run { length: 6, holds: true }] }, "08 01000000 0600000000000000 01"),
        (Extents { extents: vec![8], more: true }, "09 01 01000000 0800000000000000"),
        (Removed, "0a"),
        (DriveAnswer::Noted, "0b"),
        (DriveAnswer::Fate(tepal_model::Fate::Known { taken: Vec::new() }), "0c 01 00000000"),
        (DriveAnswer::Fate(tepal_model::Fate::Superseded), "0c 02"),
        (DriveAnswer::Fate(tepal_model::Fate::Forgotten), "0c 03"),
        (Adopted, "0d"),
        (Failed(DriveFailure::Lost { retired: true, reason: "x".into() }), "80 01 01 0100 78"),
        (Failed(DriveFailure::OutOfSpace), "80 02"),
        (Failed(DriveFailure::Damaged { blocks: vec![3] }), "80 03 01000000 0300000000000000"),
        (Failed(DriveFailure::Stale { view: 4 }), "80 04 0400000000000000"),
        (Failed(DriveFailure::NotHere), "80 05"),
        (Failed(DriveFailure::NotPrimary), "80 06"),
        (Failed(DriveFailure::Busy), "80 07"),
    ];
    for (answer, hex) in cases {
        check(&[(Message::Answer(Answer::Drive(answer)), Kind::DriveAnswer, hex)]);
    }
}

#[test]
fn requests_to_primaries_and_their_answers() {
    use VolumeOperation::*;
    let (offset, length) = (1, 2);
    let requests = [
        (Read { offset, length: 2, at: None }, "01 0100000000000000 02000000 00"),
        (Read { offset, length: 2, at: Some(5) }, "01 0100000000000000 02000000 01 05000000"),
        (
            Write { offset, fua: true, tag: TAG },
            "02 0100000000000000 01 0100000000000000 02000000 0300000000000000 0400000000000000 01",
        ),
        (
            Zero { offset, length, allocate: true, fua: false, tag: Tag { is_in_doubt: false, ..TAG } },
            "03 0100000000000000 0200000000000000 01 00 0100000000000000 02000000 0300000000000000 0400000000000000 00",
        ),
        (Flush, "04"),
        (Status { offset, length, limit: 3, at: None }, "05 0100000000000000 0200000000000000 03000000 00"),
        (Clear { from: offset }, "06 0100000000000000"),
        (
            VolumeOperation::Changed { offset, length, limit: 3, at: None, since: 5 },
            "0b 0100000000000000 0200000000000000 03000000 00 05000000",
        ),
        (VolumeOperation::Repair { offset: 4096, copy: 2 }, "07 0010000000000000 02"),
    ];
    for (operation, hex) in requests {
        let request = VolumeRequest { volume: VolumeId(7), map: MapId(8), column: 9, operation };
        let hex = format!("0700000000000000 08000000 09000000 {hex}");
        check(&[(Message::Request(Request::Volume(request)), Kind::VolumeRequest, &hex)]);
    }
    let repaired = |outcome| VolumeAnswer::Repaired { outcome };
    let failed = |error| VolumeAnswer::Failed(VolumeFailure::Io(error));
    let answers = [
        (VolumeAnswer::Read, "01"),
        (VolumeAnswer::Written, "02"),
        (VolumeAnswer::Zeroed, "03"),
        (VolumeAnswer::Flushed, "04"),
        (VolumeAnswer::Status { runs: vec![Run { length, holds: false }] }, "05 01000000 0200000000000000 00"),
        (repaired(RepairOutcome::Done), "06 01"),
        (repaired(RepairOutcome::NotNow), "06 02"),
        (repaired(RepairOutcome::Impossible), "06 03"),
        (
            failed(IoError::OutOfRange { offset, length, size: 3 }),
            "80 01 01 0100000000000000 0200000000000000 0300000000000000",
        ),
        (failed(IoError::ReadOnly), "80 01 02"),
        (failed(IoError::OutOfSpace), "80 01 03"),
        (failed(IoError::Damaged { offset, length }), "80 01 04 0100000000000000 0200000000000000"),
        (failed(IoError::Unavailable { reason: "no".into() }), "80 01 05 0200 6e6f"),
        (failed(IoError::Fenced), "80 01 06"),
        (failed(IoError::Stopping), "80 01 07"),
        (failed(IoError::Unsure), "80 01 08"),
        (failed(IoError::NotNow), "80 01 09"),
        (failed(IoError::NotAllowed), "80 01 0a"),
        (failed(IoError::Unaligned { multiple: 512 }), "80 01 0b 0002000000000000"),
        (
            VolumeAnswer::Failed(VolumeFailure::Stale { view: 1, revision: 2 }),
            "80 02 0100000000000000 0200000000000000",
        ),
        (VolumeAnswer::Failed(VolumeFailure::NotPrimary { server: Some(ServerId(2)) }), "80 03 01 02000000"),
        (VolumeAnswer::Failed(VolumeFailure::NotPrimary { server: None }), "80 03 00"),
        (VolumeAnswer::Failed(VolumeFailure::Busy), "80 04"),
        (VolumeAnswer::Failed(VolumeFailure::Unsure), "80 05"),
    ];
    for (answer, hex) in answers {
        check(&[(Message::Answer(Answer::Volume(answer)), Kind::VolumeAnswer, hex)]);
    }
    check(&[
        (Message::Request(Request::Metadata), Kind::MetadataRequest, ""),
        (Message::Answer(Answer::Metadata), Kind::MetadataAnswer, ""),
        (Message::Request(Request::Api), Kind::ApiRequest, ""),
        (Message::Answer(Answer::Api), Kind::ApiAnswer, ""),
    ]);
}

#[test]
fn a_fill_of_what_holds_nothing() {
    let operation = VolumeOperation::Fill { offset: 4096 };
    let request = VolumeRequest { volume: VolumeId(7), map: MapId(8), column: 9, operation };
    let hex = "0700000000000000 08000000 09000000 0c 0010000000000000";
    check(&[(Message::Request(Request::Volume(request)), Kind::VolumeRequest, hex)]);
}

#[test]
fn what_maps_ask_each_other_and_are_answered() {
    let requests = [
        (
            VolumeOperation::HandOver { first: 1, count: 2, target: MapId(3), since: 4, lines: 5 },
            "08 0100000000000000 02000000 03000000 0400000000000000 0500000000000000",
        ),
        (
            VolumeOperation::Release { first: 1, count: 2, target: MapId(3), since: 4, lines: 5 },
            "09 0100000000000000 02000000 03000000 0400000000000000 0500000000000000",
        ),
        (
            VolumeOperation::Holding { target: MapId(3), since: 4, lines: 5 },
            "0a 03000000 0400000000000000 0500000000000000",
        ),
    ];
    for (operation, hex) in requests {
        let request = VolumeRequest { volume: VolumeId(7), map: MapId(8), column: 9, operation };
        let hex = format!("0700000000000000 08000000 09000000 {hex}");
        check(&[(Message::Request(Request::Volume(request)), Kind::VolumeRequest, &hex)]);
    }
    let answers = [
        (
            VolumeAnswer::HandedOver {
                count: 4,
                lines: vec![HandedLine {
                    newest: 3,
                    held: vec![volume::Blocks { first: 0, count: 1 }],
                    hidden: vec![volume::Blocks { first: 1, count: 2 }],
                    damaged: vec![volume::Blocks { first: 3, count: 1 }],
                }],
                requests: vec![Taken { origin: TAG.origin, first: 0, count: 1 }],
            },
            "07 04000000 01000000 03000000 01000000 00000000 01000000 01000000 01000000 02000000
             01000000 03000000 01000000
             01000000 0100000000000000 02000000 0300000000000000 0400000000000000 0000000000000000 0100000000000000",
        ),
        (VolumeAnswer::Released, "08"),
        (VolumeAnswer::Holding { chunks: vec![1, 2] }, "09 02000000 0100000000000000 0200000000000000"),
    ];
    for (answer, hex) in answers {
        check(&[(Message::Answer(Answer::Volume(answer)), Kind::VolumeAnswer, hex)]);
    }
}

#[test]
fn requests_to_nodes_and_their_answers() {
    let version = Version { time: 1, writer: 2, cross: [3; 32] };
    let as_bytes = format!("0100000000000000 0200000000000000 {}", "03".repeat(32));
    let complete = vec![Complete { first: 4, count: 5, version }];
    let completed = format!("01000000 0400000000000000 05000000 {as_bytes}");
    let read = |which| NodeOperation::Read { first: 4, count: 5, which, data: true, complete: Vec::new() };
    let (nine, digests) = ("09".repeat(32), vec![[9; 32]]);
    let write = NodeOperation::Write { first: 4, count: 1, version, digests: digests.clone(), complete: Vec::new() };
    let requests = [
        (NodeOperation::Time { complete: complete.clone() }, format!("01 {completed}")),
        (write, format!("02 0400000000000000 01000000 {as_bytes} 01000000 {nine} 00000000")),
        (read(Which::Latest), "03 0400000000000000 05000000 01 01 00000000".to_owned()),
        (read(Which::Before(version)), format!("03 0400000000000000 05000000 02 {as_bytes} 01 00000000")),
        (read(Which::At(version)), format!("03 0400000000000000 05000000 03 {as_bytes} 01 00000000")),
        (NodeOperation::Complete { complete }, format!("04 {completed}")),
        (
            NodeOperation::Present { first: 4, count: 5, versions: true },
            "05 0400000000000000 0500000000000000 01".to_owned(),
        ),
    ];
    for (operation, hex) in requests {
        let operation = VolumeOperation::Node { drive: DriveId(6), since: 10, operation };
        let request = VolumeRequest { volume: VolumeId(7), map: MapId(8), column: 9, operation };
        let hex = format!("0700000000000000 08000000 09000000 0d 0600000000000000 0a00000000000000 {hex}");
        check(&[(Message::Request(Request::Volume(request)), Kind::VolumeRequest, &hex)]);
    }
    let versions = |found| NodeAnswer::Versions { versions: vec![Versions { count: 1, found }] };
    let has = Found::Has { version, holds: true, is_complete: false, digests };
    let answers = [
        (NodeAnswer::Time { time: 1 }, "01 0100000000000000".to_owned()),
        (NodeAnswer::Written, "02".to_owned()),
        (versions(has), format!("03 01000000 01000000 01 {as_bytes} 01 00 01000000 {nine}")),
        (versions(Found::Gone), "03 01000000 01000000 02".to_owned()),
        (versions(Found::Damaged { version }), format!("03 01000000 01000000 03 {as_bytes}")),
        (NodeAnswer::Completed, "04".to_owned()),
        (
            NodeAnswer::Present { runs: vec![Run { length: 2, holds: true }] },
            "05 01000000 0200000000000000 01".to_owned(),
        ),
        (NodeAnswer::Failed(NodeFailure::NotHere), "80 01".to_owned()),
        (NodeAnswer::Failed(NodeFailure::TooMany), "80 02".to_owned()),
        (NodeAnswer::Failed(NodeFailure::OutOfSpace), "80 03".to_owned()),
        (NodeAnswer::Failed(NodeFailure::Lost), "80 04".to_owned()),
        (NodeAnswer::Failed(NodeFailure::NotAllowed), "80 05".to_owned()),
        (NodeAnswer::Failed(NodeFailure::Fenced), "80 06".to_owned()),
    ];
    for (answer, hex) in answers {
        check(&[(
            Message::Answer(Answer::Volume(VolumeAnswer::Node(answer))),
            Kind::VolumeAnswer,
            &format!("0a {hex}"),
        )]);
    }
}
