use super::*;
use crate::field::MAX_TEXT;
use crate::frame::Header;
use crate::handshake::{ClientId, Grant, Reason, Role, Sender};
use proptest::collection::vec;
use proptest::prelude::*;
use tepal_model::{
    ClusterId, DriveId, IoError, Lineage, MAX_VOLUME, MapId, Segments, ServerId, Taking, Version, VolumeId,
};

fn any_mark_kind() -> impl Strategy<Value = MarkKind> {
    prop_oneof![Just(MarkKind::Busy), any::<u64>().prop_map(|drive| MarkKind::Stale { drive: DriveId(drive) })]
}

fn any_word() -> impl Strategy<Value = MarkWord> {
    (any_mark_kind(), any::<u64>(), any::<u64>()).prop_map(|(kind, word, regions)| MarkWord { kind, word, regions })
}

fn any_change() -> impl Strategy<Value = MarkChange> {
    let mark = || (any::<u64>(), any_mark_kind()).prop_map(|(region, kind)| Mark { region, kind });
    prop_oneof![
        mark().prop_map(MarkChange::Set),
        mark().prop_map(MarkChange::Unset),
        any_word().prop_map(MarkChange::SetMany),
        Just(MarkChange::UnsetAll),
    ]
}

fn any_lineage() -> impl Strategy<Value = Lineage> {
    let spans = vec((0u32..5, 2u32..5), 1..4);
    (spans, any::<bool>()).prop_map(|(spans, own)| {
        let mut at = 0;
        let spans: Vec<(u32, u32)> = spans
            .into_iter()
            .map(|(length, gap)| {
                let first = at;
                at = first + length + gap;
                (first, first + length)
            })
            .collect();
        let newest = spans.last().map_or(0, |span| span.1);
        Lineage::new(spans, if own { newest } else { 0 }).expect("ascending and apart")
    })
}

fn any_origin() -> impl Strategy<Value = Origin> {
    any::<(u64, u32, u64, u64)>().prop_map(|(gateway, slot, number, view)| Origin { gateway, slot, number, view })
}

fn any_taking() -> impl Strategy<Value = Taking> {
    prop_oneof![Just(Taking::Nothing), any_origin().prop_map(Taking::Request), Just(Taking::Those(Vec::new()))]
}

fn any_taken(blocks: std::ops::Range<u64>) -> impl Strategy<Value = Vec<Taken>> {
    let one = (any_origin(), blocks.clone(), 0u64..40);
    let taken =
        move |(origin, first, count): (Origin, u64, u64)| Taken { origin, first, count: count.min(blocks.end - first) };
    vec(one.prop_map(taken), 0..6)
}

fn any_tag() -> impl Strategy<Value = Tag> {
    (any_origin(), any::<bool>()).prop_map(|(origin, is_in_doubt)| Tag { origin, is_in_doubt })
}

/// The one that requests of tests have.
pub(super) const TAG: Tag = Tag { origin: Origin { gateway: 1, slot: 2, number: 3, view: 4 }, is_in_doubt: true };

fn any_drive_operation() -> impl Strategy<Value = DriveOperation> {
    use DriveOperation::*;
    let marks = || vec(any_change(), 0..6);
    let (first, count) = (|| 0u64..1 << 40, || 1u32..=8192);
    prop_oneof![
        proptest::option::of((any_mark_kind(), any::<u64>()))
            .prop_map(|after| Hear { after: after.map(|(kind, word)| MarkPlace { kind, word }) }),
        (first(), count(), any_lineage()).prop_map(|(first, count, lineage)| Read { first, count, lineage }),
        (first(), count(), any_lineage()).prop_map(|(first, count, lineage)| Checksums { first, count, lineage }),
        (first(), 1u64..1 << 40).prop_map(|(first, count)| Epochs { first, count }),
        (first(), marks(), any::<(bool, bool)>(), any_taking()).prop_map(
            |(first, marks, (durable, repair), taking)| Write {
                first,
                marks,
                durable,
                repair,
                taking,
                lineage: Lineage::default(),
            }
        ),
        (first(), 1u64..1 << 40, marks(), any_taking()).prop_map(|(first, count, marks, taking)| Clear {
            first,
            count,
            marks,
            taking,
            lineage: Lineage::default(),
        }),
        (marks(), any_taken(50..60)).prop_map(|(marks, requests)| Clear {
            first: 50,
            count: 10,
            marks,
            taking: Taking::Those(requests),
            lineage: Lineage::default(),
        }),
        (marks(), any::<bool>()).prop_map(|(changes, durable)| DriveOperation::Mark { changes, durable }),
        Just(Flush),
        (first(), 1u64..1 << 40, any::<u64>()).prop_map(|(first, count, look)| Present {
            first,
            count,
            look,
            lineage: Lineage::default(),
        }),
        (any::<u64>(), any::<u64>(), any::<bool>()).prop_map(|(first, count, noted)| Extents { first, count, noted }),
        Just(RemoveMap),
        any::<u64>().prop_map(|view| Noted { view }),
        (any_origin(), first(), 1u64..1 << 40).prop_map(|(origin, first, count)| Fate { origin, first, count }),
        any_taken(50..60).prop_map(|requests| Adopt { first: 50, count: 10, requests }),
    ]
}

fn any_runs() -> impl Strategy<Value = Vec<Run>> {
    vec((any::<u64>(), any::<bool>()).prop_map(|(length, holds)| Run { length, holds }), 0..9)
}

fn any_drive_answer() -> impl Strategy<Value = DriveAnswer> {
    use DriveAnswer::*;
    let heard = (any::<(u64, bool, bool, u64)>(), vec(any_word(), 0..9)).prop_map(
        |((opening, more, dropped_tail, allocated), marks)| {
            Heard(super::Heard { opening, marks, more, dropped_tail, allocated })
        },
    );
    let failure = prop_oneof![
        (any::<bool>(), ".{0,40}").prop_map(|(retired, reason)| DriveFailure::Lost { retired, reason }),
        Just(DriveFailure::OutOfSpace),
        vec(any::<u64>(), 0..9).prop_map(|blocks| DriveFailure::Damaged { blocks }),
        any::<u64>().prop_map(|view| DriveFailure::Stale { view }),
        Just(DriveFailure::NotHere),
        Just(DriveFailure::NotPrimary),
        Just(DriveFailure::Busy),
    ];
    prop_oneof![
        heard,
        Just(Read),
        (vec(any::<Option<u32>>(), 0..40), any_taken(50..60))
            .prop_map(|(checksums, requests)| Checksums { checksums, requests }),
        Just(Written),
        Just(Cleared),
        Just(Marked),
        Just(Flushed),
        any_runs().prop_map(|runs| Present { runs }),
        (vec(any::<u64>(), 0..9), any::<bool>()).prop_map(|(extents, more)| Extents { extents, more }),
        Just(Removed),
        Just(DriveAnswer::Noted),
        any_taken(50..60).prop_map(|taken| DriveAnswer::Fate(tepal_model::Fate::Known { taken })),
        Just(DriveAnswer::Fate(tepal_model::Fate::Superseded)),
        Just(DriveAnswer::Fate(tepal_model::Fate::Forgotten)),
        Just(Adopted),
        failure.prop_map(Failed),
    ]
}

fn any_volume_operation() -> impl Strategy<Value = VolumeOperation> {
    use VolumeOperation::*;
    let (offset, length) = (|| 0..MAX_VOLUME / 2, || 1..MAX_VOLUME / 2);
    prop_oneof![
        (offset(), 1..=MAX_REQUEST as u32).prop_map(|(offset, length)| Read { offset, length, at: None }),
        (offset(), any::<bool>(), any_tag()).prop_map(|(offset, fua, tag)| Write { offset, fua, tag }),
        (offset(), 1..=volume::MAX_ZERO, any::<bool>(), any::<bool>(), any_tag())
            .prop_map(|(offset, length, allocate, fua, tag)| Zero { offset, length, allocate, fua, tag }),
        Just(Flush),
        (offset(), length(), 1u32..=65536).prop_map(|(offset, length, limit)| Status {
            offset,
            length,
            limit,
            at: Some(7)
        }),
        (offset(), length(), any::<bool>()).prop_map(|(offset, length, now)| VolumeOperation::Changed {
            offset,
            length,
            limit: 1,
            at: now.then_some(7),
            since: 5,
        }),
        offset().prop_map(|from| Clear { from }),
        offset().prop_map(|offset| Fill { offset }),
        (offset(), any::<u8>())
            .prop_map(|(offset, copy)| VolumeOperation::Repair { offset: offset / BLOCK * BLOCK, copy }),
        (offset(), 1..=volume::MAX_HANDED, any::<u64>()).prop_map(|(offset, count, lines)| {
            HandOver { first: offset / BLOCK, count, target: MapId(2), since: 3, lines }
        }),
        (offset(), 1..=volume::MAX_HANDED, any::<u64>()).prop_map(|(offset, count, lines)| {
            Release { first: offset / BLOCK, count, target: MapId(2), since: 3, lines }
        }),
        any::<u64>().prop_map(|lines| VolumeOperation::Holding { target: MapId(2), since: 3, lines }),
        (any_node_operation(), any::<u64>()).prop_map(|(operation, since)| VolumeOperation::Node {
            drive: DriveId(5),
            since,
            operation
        }),
    ]
}

fn any_version() -> impl Strategy<Value = Version> {
    (1..=u64::MAX, any::<u64>(), any::<[u8; 32]>()).prop_map(|(time, writer, cross)| Version { time, writer, cross })
}

fn any_node_operation() -> impl Strategy<Value = NodeOperation> {
    let complete = || {
        let one = (0u64..1 << 40, 1u32..=256, any_version());
        vec(one.prop_map(|(first, count, version)| Complete { first, count, version }), 0..4)
    };
    let which =
        prop_oneof![Just(Which::Latest), any_version().prop_map(Which::Before), any_version().prop_map(Which::At)];
    let (first, count) = (|| 0u64..1 << 40, || 1u32..=256);
    prop_oneof![
        complete().prop_map(|complete| NodeOperation::Time { complete }),
        (first(), any_version(), vec(any::<[u8; 32]>(), 0..5), complete()).prop_map(
            |(first, version, digests, complete)| NodeOperation::Write { first, count: 1, version, digests, complete }
        ),
        (first(), count(), which, any::<bool>(), complete()).prop_map(|(first, count, which, data, complete)| {
            NodeOperation::Read { first, count, which, data, complete }
        }),
        complete().prop_map(|complete| NodeOperation::Complete { complete }),
        (first(), 1u64..1 << 40, any::<bool>()).prop_map(|(first, count, versions)| NodeOperation::Present {
            first,
            count,
            versions
        }),
    ]
}

fn any_node_answer() -> impl Strategy<Value = NodeAnswer> {
    let found = prop_oneof![
        (any_version(), any::<(bool, bool)>(), vec(any::<[u8; 32]>(), 0..5))
            .prop_map(|(version, (holds, is_complete), digests)| Found::Has { version, holds, is_complete, digests }),
        Just(Found::Gone),
        any_version().prop_map(|version| Found::Damaged { version }),
    ];
    let failures = [
        NodeFailure::NotHere,
        NodeFailure::TooMany,
        NodeFailure::OutOfSpace,
        NodeFailure::Lost,
        NodeFailure::NotAllowed,
        NodeFailure::Fenced,
    ];
    prop_oneof![
        any::<u64>().prop_map(|time| NodeAnswer::Time { time }),
        Just(NodeAnswer::Written),
        vec((1u32..=32, found), 1..9).prop_map(|all| NodeAnswer::Versions {
            versions: all.into_iter().map(|(count, found)| Versions { count, found }).collect()
        }),
        Just(NodeAnswer::Completed),
        any_runs().prop_map(|runs| NodeAnswer::Present { runs }),
        prop::sample::select(failures.to_vec()).prop_map(NodeAnswer::Failed),
    ]
}

fn any_io_error() -> impl Strategy<Value = IoError> {
    prop_oneof![
        any::<(u64, u64, u64)>().prop_map(|(offset, length, size)| IoError::OutOfRange { offset, length, size }),
        Just(IoError::ReadOnly),
        Just(IoError::OutOfSpace),
        any::<(u64, u64)>().prop_map(|(offset, length)| IoError::Damaged { offset, length }),
        ".{0,40}".prop_map(|reason| IoError::Unavailable { reason }),
        Just(IoError::Fenced),
        Just(IoError::Stopping),
        Just(IoError::Unsure),
        Just(IoError::NotNow),
        Just(IoError::NotAllowed),
        any::<u64>().prop_map(|multiple| IoError::Unaligned { multiple }),
    ]
}

fn any_volume_answer() -> impl Strategy<Value = VolumeAnswer> {
    use VolumeAnswer::*;
    let failure = prop_oneof![
        any_io_error().prop_map(VolumeFailure::Io),
        any::<(u64, u64)>().prop_map(|(view, revision)| VolumeFailure::Stale { view, revision }),
        any::<Option<u32>>().prop_map(|server| VolumeFailure::NotPrimary { server: server.map(ServerId) }),
        Just(VolumeFailure::Busy),
        Just(VolumeFailure::Unsure),
    ];
    let runs = any_runs().prop_map(|runs| Status { runs });
    let repaired = any_repair().prop_map(|outcome| Repaired { outcome });
    // What is held comes as the payload.
    let line = |(newest, first): (u32, u32)| HandedLine {
        newest,
        held: Vec::new(),
        hidden: vec![volume::Blocks { first: first % 16, count: 1 }],
        damaged: vec![volume::Blocks { first: first % 15, count: 2 }],
    };
    let handed = prop::collection::vec(any::<(u32, u32)>(), 0..4).prop_map(move |lines| {
        let lines = lines.into_iter().map(line).collect();
        HandedOver { count: 16, lines, requests: vec![Taken { origin: TAG.origin, first: 3, count: 13 }] }
    });
    let holding = prop::collection::vec(any::<u64>(), 0..9).prop_map(|chunks| Holding { chunks });
    let handed = prop_oneof![handed, Just(Released), holding];
    prop_oneof![
        handed,
        Just(Read),
        Just(Written),
        Just(Zeroed),
        Just(Flushed),
        runs,
        repaired,
        any_node_answer().prop_map(VolumeAnswer::Node),
        failure.prop_map(Failed)
    ]
}

/// So many blocks, of which one line holds some.
fn handed(count: u32, held: u32) -> VolumeAnswer {
    let held = vec![volume::Blocks { first: 0, count: held }];
    let line = HandedLine { newest: 1, held, hidden: Vec::new(), damaged: Vec::new() };
    VolumeAnswer::HandedOver { count, lines: vec![line], requests: Vec::new() }
}

fn any_repair() -> impl Strategy<Value = RepairOutcome> {
    prop_oneof![Just(RepairOutcome::Done), Just(RepairOutcome::NotNow), Just(RepairOutcome::Impossible)]
}

fn any_handshake() -> impl Strategy<Value = Message> {
    let sender = prop_oneof![
        any::<(u32, u64)>().prop_map(|(server, boot)| Sender::Server { server: ServerId(server), boot }),
        any::<u128>().prop_map(|client| Sender::Client { client: ClientId(client) }),
        Just(Sender::Newcomer),
    ];
    let role = prop_oneof![Just(Role::Server), Just(Role::Gateway)];
    let hello = (sender, role, any::<(u128, u16, u64, Option<u32>)>()).prop_map(|(sender, role, rest)| {
        let (cluster, lane, epoch, expects) = rest;
        let hello = Hello::new(ClusterId(cluster), sender, role, lane);
        Message::Hello(Hello { epoch, expects: expects.map(ServerId), ..hello })
    });
    let welcome =
        any::<(u16, u32, u64, u16, u64, bool)>().prop_map(|(version, server, boot, requests, bytes, known)| {
            let grant = Grant { requests, bytes };
            Message::Welcome(Welcome { version, server: ServerId(server), boot, grant, known })
        });
    let refused = (0usize..10, ".{0,60}").prop_map(|(reason, text)| {
        let reasons = [
            Reason::UnknownVersion,
            Reason::OtherCluster,
            Reason::OtherServer,
            Reason::UnknownServer,
            Reason::SameServerTwice,
            Reason::Fenced,
            Reason::TooMany,
            Reason::Broken,
            Reason::Starting,
            Reason::Other(77),
        ];
        Message::Refused(Refused::new(reasons[reason], text))
    });
    prop_oneof![hello, welcome, refused]
}

pub(crate) fn any_message() -> impl Strategy<Value = Message> {
    let drive = any::<(u64, u64, u32, u32)>();
    let drive = (drive, any_drive_operation()).prop_map(|((drive, opening, map, column), operation)| {
        Request::Drive(DriveRequest { drive: DriveId(drive), opening, map: MapId(map), column, operation })
    });
    let volume = (any::<(u64, u32, u32)>(), any_volume_operation()).prop_map(|((volume, map, column), operation)| {
        Request::Volume(VolumeRequest { volume: VolumeId(volume), map: MapId(map), column, operation })
    });
    prop_oneof![
        1 => any_handshake(),
        1 => Just(Message::Ping),
        1 => Just(Message::Pong),
        1 => Just(Message::Request(Request::Metadata)),
        1 => Just(Message::Answer(Answer::Metadata)),
        1 => Just(Message::Request(Request::Api)),
        1 => Just(Message::Answer(Answer::Api)),
        4 => drive.prop_map(Message::Request),
        2 => volume.prop_map(Message::Request),
        4 => any_drive_answer().prop_map(|answer| Message::Answer(Answer::Drive(answer))),
        2 => any_volume_answer().prop_map(|answer| Message::Answer(Answer::Volume(answer))),
    ]
}

/// One that goes with the message, of about that length if it has one.
pub(crate) fn payload_for(message: &Message, length: usize) -> Payload {
    let sealed =
        |offset, length: usize| Payload::seal(offset, Segments::from_iter([vec![length as u8; length].into()]));
    match message {
        Message::Request(Request::Metadata | Request::Api) | Message::Answer(Answer::Metadata | Answer::Api) => {
            sealed(0, length)
        }
        Message::Request(Request::Drive(DriveRequest { operation: DriveOperation::Write { .. }, .. }))
        | Message::Answer(Answer::Drive(DriveAnswer::Read)) => sealed(0, length.next_multiple_of(BLOCK as usize)),
        Message::Request(Request::Volume(VolumeRequest {
            operation: VolumeOperation::Write { offset, .. } | VolumeOperation::Fill { offset },
            ..
        })) => sealed(*offset, length),
        Message::Answer(Answer::Volume(VolumeAnswer::Read)) => sealed(length as u64, length),
        _ => Payload::none(),
    }
}

fn encoded(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    bytes
}

fn decode(kind: Kind, bytes: &[u8], payload: Payload) -> Result<Message, MessageError> {
    Message::decode(&Frame { kind, header: Header::default(), message: bytes, payload })
}

#[test]
fn requests_whose_numbers_make_no_sense_are_refused() {
    let zero = VolumeOperation::Zero { offset: 0, length: 0, allocate: false, fua: false, tag: TAG };
    let drive = |operation| {
        let request = DriveRequest { drive: DriveId(1), opening: 1, map: MapId(1), column: 0, operation };
        Message::Request(Request::Drive(request))
    };
    let volume = |operation| {
        Message::Request(Request::Volume(VolumeRequest { volume: VolumeId(1), map: MapId(1), column: 0, operation }))
    };
    let sealed = |offset, length: usize| Payload::seal(offset, Segments::from_iter([vec![7; length].into()]));
    let taken = |first, count| Taken { origin: TAG.origin, first, count };
    let write = || {
        drive(DriveOperation::Write {
            first: 0,
            marks: vec![],
            durable: true,
            repair: false,
            taking: Taking::Nothing,
            lineage: Lineage::default(),
        })
    };
    let cases = [
        (drive(DriveOperation::Read { first: 0, count: 0, lineage: Lineage::default() }), Payload::none()),
        (drive(DriveOperation::Read { first: 0, count: 8193, lineage: Lineage::default() }), Payload::none()),
        (drive(DriveOperation::Read { first: u64::MAX, count: 2, lineage: Lineage::default() }), Payload::none()),
        (drive(DriveOperation::Read { first: (1 << 52) - 1, count: 2, lineage: Lineage::default() }), Payload::none()),
        (drive(DriveOperation::Read { first: 0, count: 1, lineage: Lineage::default() }), sealed(0, 4096)),
        (
            drive(DriveOperation::Clear {
                first: 0,
                count: 0,
                marks: vec![],
                taking: Taking::Nothing,
                lineage: Lineage::default(),
            }),
            Payload::none(),
        ),
        (drive(DriveOperation::Adopt { first: 3, count: 2, requests: vec![taken(2, 1)] }), Payload::none()),
        (drive(DriveOperation::Adopt { first: 3, count: 2, requests: vec![taken(4, 2)] }), Payload::none()),
        (drive(DriveOperation::Adopt { first: 3, count: 2, requests: vec![taken(4, u64::MAX)] }), Payload::none()),
        (
            drive(DriveOperation::Present { first: 1, count: u64::MAX, look: 1, lineage: Lineage::default() }),
            Payload::none(),
        ),
        (write(), Payload::none()),
        (write(), sealed(0, 4095)),
        (write(), sealed(1, 4096)),
        (volume(VolumeOperation::Read { offset: 0, length: 0, at: None }), Payload::none()),
        (volume(VolumeOperation::Read { offset: 0, length: 1 + (32 << 20), at: None }), Payload::none()),
        (volume(VolumeOperation::Read { offset: MAX_VOLUME, length: 1, at: None }), Payload::none()),
        (volume(VolumeOperation::Write { offset: 0, fua: false, tag: TAG }), Payload::none()),
        (volume(VolumeOperation::Write { offset: 5, fua: false, tag: TAG }), sealed(6, 10)),
        (volume(zero), Payload::none()),
        (volume(VolumeOperation::Status { offset: 0, length: 1, limit: 0, at: None }), Payload::none()),
        (volume(VolumeOperation::Status { offset: 0, length: 1, limit: 65537, at: None }), Payload::none()),
        (volume(VolumeOperation::Changed { offset: 0, length: 1, limit: 0, at: None, since: 1 }), Payload::none()),
        (volume(VolumeOperation::Flush), sealed(0, 1)),
        (volume(VolumeOperation::Repair { offset: 1, copy: 0 }), Payload::none()),
        (volume(VolumeOperation::Repair { offset: MAX_VOLUME, copy: 0 }), Payload::none()),
        (Message::Request(Request::Metadata), sealed(3, 10)),
        (Message::Request(Request::Metadata), sealed(0, (4 << 20) + 1)),
        (Message::Answer(Answer::Api), sealed(0, (4 << 20) + 1)),
        (Message::Answer(Answer::Drive(DriveAnswer::Read)), Payload::none()),
        (Message::Answer(Answer::Volume(VolumeAnswer::Written)), sealed(0, 1)),
    ];
    for (message, payload) in cases {
        let decoded = decode(message.kind(), &encoded(&message), payload);
        let refused = matches!(decoded, Err(MessageError::Range { .. } | MessageError::Payload { .. }));
        assert!(refused, "{message:?}: {decoded:?}");
    }
}

#[test]
fn a_list_is_refused_before_it_is_made_if_the_message_has_not_its_items() {
    let damaged = DriveFailure::Damaged { blocks: vec![1, 2, 3] };
    let mut bytes = encoded(&Message::Answer(Answer::Drive(DriveAnswer::Failed(damaged))));
    for count in [4, 65_536, 65_537, u32::MAX] {
        bytes[2..6].copy_from_slice(&count.to_le_bytes());
        let decoded = decode(Kind::DriveAnswer, &bytes, Payload::none());
        assert_eq!(decoded, Err(MessageError::List { count }));
    }
}

#[test]
fn a_long_text_is_cut_at_a_character() {
    let reason = "é".repeat(1000);
    let error = DriveFailure::Lost { retired: false, reason };
    let bytes = encoded(&Message::Answer(Answer::Drive(DriveAnswer::Failed(error))));
    let Ok(Message::Answer(Answer::Drive(DriveAnswer::Failed(DriveFailure::Lost { reason, .. })))) =
        decode(Kind::DriveAnswer, &bytes, Payload::none())
    else {
        panic!("it's the message that was encoded")
    };
    assert_eq!(reason, "é".repeat(MAX_TEXT / 2));
}

#[test]
fn a_request_costs_the_data_that_it_brings_and_the_data_that_it_wants() {
    let drive =
        |operation| Request::Drive(DriveRequest { drive: DriveId(1), opening: 1, map: MapId(1), column: 0, operation });
    let volume =
        |operation| Request::Volume(VolumeRequest { volume: VolumeId(1), map: MapId(1), column: 0, operation });
    let nothing = Payload::none();
    let overhead = Request::Metadata.cost(&nothing);
    let data = Payload::seal(0, Segments::from_iter([vec![7; 8192].into()]));
    let write = drive(DriveOperation::Write {
        first: 0,
        marks: vec![],
        durable: true,
        repair: false,
        taking: Taking::Nothing,
        lineage: Lineage::default(),
    });
    assert!((1..=4096).contains(&overhead), "there's an end to requests without data, and there may be many");
    for (request, payload, expected, repeatable) in [
        (Request::Metadata, &data, 8192, true),
        (Request::Api, &data, 8192, false),
        (write, &data, 8192, false),
        (drive(DriveOperation::Read { first: 0, count: 3, lineage: Lineage::default() }), &nothing, 3 * 4096, true),
        (drive(DriveOperation::RemoveMap), &nothing, 0, false),
        (volume(VolumeOperation::Read { offset: 0, length: 77, at: None }), &nothing, 77, true),
        (volume(VolumeOperation::Write { offset: 0, fua: false, tag: TAG }), &data, 8192, false),
        (volume(VolumeOperation::Flush), &nothing, 0, false),
    ] {
        assert_eq!(request.cost(payload), overhead + expected, "{request:?}");
        assert_eq!(request.is_repeatable(), repeatable, "{request:?}");
    }
}

#[test]
fn a_word_of_marks_names_its_regions() {
    let word = MarkWord { kind: MarkKind::Busy, word: 3, regions: 0b1001 };
    assert_eq!(word.marks().map(|mark| mark.region).collect::<Vec<_>>(), [192, 195]);
}

proptest! {
    #[test]
    fn messages_read_back(message in any_message(), length in 1usize..20_000) {
        let payload = payload_for(&message, length);
        let bytes = encoded(&message);
        prop_assert_eq!(decode(message.kind(), &bytes, payload.clone()), Ok(message.clone()));
        let mut long = bytes.clone();
        long.push(0);
        let ignored = matches!(message, Message::Refused(_));
        prop_assert_eq!(decode(message.kind(), &long, payload.clone()).is_ok(), ignored);
        if !bytes.is_empty() {
            prop_assert!(decode(message.kind(), &bytes[..bytes.len() - 1], payload).is_err());
        }
    }

    #[test]
    fn a_changed_message_is_refused_or_is_another_that_is_said_in_just_that_way(
        message in any_message(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let mut bytes = encoded(&message);
        if bytes.is_empty() {
            return Ok(());
        }
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        // Hellos of other versions are known in part only, and refusals may go on.
        let exact = !matches!(message, Message::Hello(_) | Message::Refused(_));
        match decode(message.kind(), &bytes, payload_for(&message, 4096)) {
            Ok(other) if exact => prop_assert_eq!(encoded(&other), bytes),
            Ok(_) | Err(_) => {}
        }
    }

    #[test]
    fn hostile_bytes_are_no_message(bytes in vec(any::<u8>(), 0..300), tag in 0u8..12, kind in 0usize..7) {
        let kinds = [
            Kind::Hello, Kind::Welcome, Kind::Refused, Kind::DriveRequest, Kind::VolumeRequest, Kind::DriveAnswer,
            Kind::VolumeAnswer,
        ];
        let mut tagged = bytes.clone();
        for at in [0, 12, 20].into_iter().filter(|&at| at < bytes.len()) {
            tagged[at] = tag;
        }
        let _ = decode(kinds[kind], &bytes, Payload::none());
        let _ = decode(kinds[kind], &tagged, Payload::none());
    }
}

#[test]
fn what_is_handed_over_is_within_what_was_asked_for_and_comes_with_its_data() {
    let count = 1 + volume::MAX_HANDED;
    let operation = VolumeOperation::Release { first: 0, count, target: MapId(1), since: 1, lines: 0 };
    let request = Request::Volume(VolumeRequest { volume: VolumeId(1), map: MapId(1), column: 0, operation });
    assert!(request.check(&Payload::none()).is_err());
    let blocks = |count: usize| Payload::seal(0, std::iter::once(vec![7; count * BLOCK as usize].into()).collect());
    for (count, held, sent, is_right) in [(2, 2, 2, true), (1, 2, 2, false), (2, 2, 1, false)] {
        let answer = Answer::Volume(handed(count, held));
        assert_eq!(answer.check(&blocks(sent)).is_ok(), is_right, "{count} {held} {sent}");
    }
}
