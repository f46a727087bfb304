use super::*;
use crate::Outbox;
use crate::frame::{MAGIC, MAX_META, MAX_PAYLOAD};
use crate::message::tests::{any_message, payload_for};
use crate::message::{Answer, DriveAnswer, DriveOperation, DriveRequest, Heard, MarkKind, MarkWord, Message, Request};
use proptest::prelude::*;
use tepal_codec::checksum::crc;
use tepal_model::{DriveId, MapId, Segments};

fn bytes_of(outbox: &mut Outbox) -> Vec<u8> {
    let mut bytes = Vec::new();
    while outbox.pending() > 0 {
        // As much as a socket might take.
        let slices: Vec<u8> = outbox.slices().iter().flat_map(|slice| slice.iter().copied()).take(70_001).collect();
        outbox.sent(slices.len());
        bytes.extend(slices);
    }
    bytes
}

fn frame_of(header: &Header, message: &Message, payload: &Payload) -> Vec<u8> {
    let mut outbox = Outbox::new();
    outbox.push(header, message, payload);
    bytes_of(&mut outbox)
}

fn open_inbox() -> Inbox {
    let mut inbox = Inbox::new();
    inbox.set_limits(Limits::OPEN);
    inbox
}

/// A write of two blocks and a half.
fn sample() -> Vec<u8> {
    let data = Segments::from_iter([vec![1; 5000].into(), vec![2; 5240].into()]);
    let payload = Payload::seal(8192, data);
    let request =
        DriveRequest { drive: DriveId(7), opening: 2, map: MapId(3), column: 0, operation: DriveOperation::Flush };
    frame_of(&Header { request: 9, slot: 3, ..Header::default() }, &Message::Request(Request::Drive(request)), &payload)
}

/// The first thing that comes of these bytes.
fn first_of(inbox: &mut Inbox, mut bytes: &[u8]) -> Result<Option<Payload>, FrameError> {
    loop {
        if let Some(frame) = inbox.next()? {
            return Ok(Some(frame.payload));
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        let taken = inbox.receive(bytes);
        bytes = &bytes[taken..];
    }
}

/// Makes the header's checksum right again after a change.
fn seal(frame: &mut [u8]) {
    let sum = crc(&frame[..60]);
    frame[60..64].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn what_is_not_tepals_is_refused_at_its_first_wrong_byte() {
    let strangers: [&[u8]; 6] =
        [b"GET / HTTP/1.1\r\n", b"NBDMAGICIHAVEOPT", b"\x16\x03\x01\x02\x00", &[0; 64], b"TPLx", b"TEPALdrv"];
    for bytes in strangers {
        let wrong = bytes.iter().zip(MAGIC).position(|(found, wanted)| *found != wanted).unwrap();
        let mut inbox = Inbox::new();
        assert_eq!(first_of(&mut inbox, &bytes[..wrong]), Ok(None));
        let error = first_of(&mut inbox, &bytes[wrong..=wrong]).unwrap_err();
        assert_eq!(error, FrameError::Magic { found: bytes[..=wrong].to_vec() });
        assert_eq!(first_of(&mut inbox, &sample()).unwrap_err(), error, "nothing comes after an error");
    }
}

#[test]
fn a_frame_that_breaks_a_rule_is_refused_with_the_rule() {
    use FrameError::*;
    let with = |change: fn(&mut [u8])| {
        let mut frame = sample();
        change(&mut frame);
        seal(&mut frame);
        first_of(&mut open_inbox(), &frame).unwrap_err()
    };
    assert_eq!(with(|frame| frame[4] = 2), Version { found: 2 });
    assert_eq!(with(|frame| frame[5] = 200), Kind { found: 200 });
    assert_eq!(with(|frame| frame[6] = 0x80), Bits);
    assert_eq!(with(|frame| frame[7] = 1), Bits);
    assert_eq!(with(|frame| frame[54] = 1), Bits);
    assert_eq!(with(|frame| frame[53] = 0x10), Cut { cut: 4096 });
    assert_eq!(with(|frame| frame[64] ^= 1), MetaCrc);
    assert_eq!(with(|frame| frame[11] = 255), MetaTooLong { length: 0xff00_0025, most: MAX_META });
    assert_eq!(with(|frame| frame[15] = 255), PayloadTooLong { length: 0xff00_2800, most: MAX_PAYLOAD });
    let mut frame = sample();
    frame[20] ^= 1;
    assert_eq!(first_of(&mut open_inbox(), &frame), Err(HeaderCrc));
    let before_the_handshake = first_of(&mut Inbox::new(), &sample());
    assert_eq!(before_the_handshake, Err(PayloadTooLong { length: 10_240, most: 0 }));
}

#[test]
fn any_flipped_bit_is_noticed_in_the_header_the_message_or_the_payload() {
    let whole = sample();
    let head = whole.len() - 10_240;
    for at in (0..head).chain((head..whole.len()).step_by(509)) {
        let mut frame = whole.clone();
        frame[at] ^= 1 << (at % 8);
        match first_of(&mut open_inbox(), &frame) {
            Ok(Some(_)) => panic!("byte {at}: it isn't noticed"),
            Ok(None) => panic!("byte {at}: it waits for more"),
            Err(error) => assert_eq!(matches!(error, FrameError::Payload(_)), at >= head, "byte {at}: {error}"),
        }
    }
}

#[test]
fn memory_is_taken_for_what_came_and_not_for_what_is_claimed() {
    let mut frame = sample();
    frame[12..16].copy_from_slice(&MAX_PAYLOAD.to_le_bytes());
    seal(&mut frame);
    let mut inbox = open_inbox();
    // The claimed checksums are still to come, so there's no buffer for the payload yet.
    assert_eq!(first_of(&mut inbox, &frame), Ok(None));
    assert!(matches!(inbox.state, State::Meta(_)));
    assert!(inbox.bytes.len() <= SMALLEST + 4 * 8192, "{}", inbox.bytes.len());
}

#[test]
fn the_largest_message_fits_and_its_memory_is_given_back() {
    let word = MarkWord { kind: MarkKind::Stale { drive: DriveId(1) }, word: 1, regions: u64::MAX };
    let heard = Heard { marks: vec![word; crate::message::drive::MAX_WORDS], ..Heard::default() };
    let message = Message::Answer(Answer::Drive(DriveAnswer::Heard(heard)));
    let frame = frame_of(&Header::default(), &message, &Payload::none());
    let mut inbox = open_inbox();
    assert_eq!(first_of(&mut inbox, &frame), Ok(Some(Payload::none())));
    assert!(inbox.is_between_frames());
    assert_eq!(first_of(&mut inbox, &sample()).unwrap().unwrap().length(), 10_240);
    assert!(inbox.bytes.len() <= LARGEST, "{}", inbox.bytes.len());
}

#[test]
fn a_long_payload_is_received_where_it_stays() {
    let payload = Payload::seal(0, Segments::from_iter([vec![5; 1 << 20].into()]));
    let frame = frame_of(&Header::default(), &Message::Answer(Answer::Metadata), &payload);
    let mut inbox = open_inbox();
    let first = inbox.receive(&frame);
    assert_eq!((first, inbox.next()), (SMALLEST, Ok(None)));
    let [rest, after] = inbox.spaces();
    assert_eq!(rest.len(), frame.len() - first, "all of the rest goes there");
    assert!(!after.is_empty());
    assert_eq!(inbox.receive(&frame[first..]), frame.len() - first);
    assert_eq!(inbox.next().unwrap().unwrap().payload, payload);
}

#[test]
fn a_stream_may_end_between_frames_only() {
    let frame = sample();
    for cut in [1, 63, 64, 80, 100, frame.len() - 1] {
        let mut inbox = open_inbox();
        assert!(inbox.is_between_frames());
        assert_eq!(first_of(&mut inbox, &frame[..cut]), Ok(None));
        assert!(!inbox.is_between_frames(), "after {cut} bytes");
        assert!(first_of(&mut inbox, &frame[cut..]).unwrap().is_some());
        assert!(inbox.is_between_frames());
    }
}

fn any_header() -> impl Strategy<Value = Header> {
    (any::<(u64, u16, u64, u64, u64)>(), any::<u16>(), any::<bool>()).prop_map(
        |((request, slot, session, view, revision), load, in_doubt)| Header {
            request,
            slot,
            session,
            view,
            revision,
            load,
            in_doubt,
        },
    )
}

proptest! {
    #[test]
    fn frames_come_out_as_they_went_in_whatever_the_pieces(
        sent in prop::collection::vec((any_header(), any_message(), 1usize..40_000), 1..20),
        pieces in prop::collection::vec(prop_oneof![1usize..100, 1usize..20_000, 1usize..400_000], 1..6),
    ) {
        let mut outbox = Outbox::new();
        let sent: Vec<_> = sent
            .into_iter()
            .map(|(header, message, length)| {
                let payload = payload_for(&message, length);
                outbox.push(&header, &message, &payload);
                (header, message, payload)
            })
            .collect();
        let stream = bytes_of(&mut outbox);
        let (mut inbox, mut rest, mut got) = (open_inbox(), &stream[..], Vec::new());
        for piece in pieces.into_iter().cycle() {
            while let Some(frame) = inbox.next().unwrap() {
                let message = Message::decode(&frame).unwrap();
                let (data, sums) = frame.payload.into_parts();
                prop_assert_eq!(data.iter().map(|data| data.len() as u64).sum::<u64>().div_ceil(4096) <= sums.len() as u64, true);
                got.push((frame.header, message, sums));
            }
            if rest.is_empty() {
                break;
            }
            let taken = inbox.receive(&rest[..piece.min(rest.len())]);
            prop_assert!(taken > 0);
            rest = &rest[taken..];
        }
        prop_assert!(inbox.is_between_frames());
        prop_assert!(inbox.bytes.len() <= 2 * LARGEST);
        let sent: Vec<_> = sent.into_iter().map(|(header, message, payload)| (header, message, Sums::from(payload.sums()))).collect();
        prop_assert_eq!(got, sent);
    }

    #[test]
    fn hostile_bytes_do_no_harm(mut bytes in prop::collection::vec(any::<u8>(), 0..9000), sealed: bool) {
        if sealed && bytes.len() >= HEADER {
            bytes[0..4].copy_from_slice(&MAGIC);
            bytes[4] = 1;
            bytes[5] = 1 + bytes[5] % 36;
            bytes[6] &= 1;
            bytes[7] = 0;
            bytes[10..12].fill(0);
            bytes[14..16].fill(0);
            bytes[52..56].fill(0);
            seal(&mut bytes);
        }
        let mut inbox = open_inbox();
        let _ = first_of(&mut inbox, &bytes);
        prop_assert!(inbox.bytes.len() <= 2 * LARGEST);
    }
}

#[test]
fn where_much_waits_a_read_takes_more_each_time_also_when_it_ends_within_a_payload() {
    // It once stayed at its smallest, since what came of a payload was moved out before anybody looked whether it was full.
    let many: Vec<u8> = sample().repeat(64);
    let (mut inbox, mut rest, mut reads, mut frames) = (open_inbox(), &many[..], 0, 0);
    while frames < 64 {
        while inbox.next().expect("what was sent").is_some() {
            frames += 1;
        }
        rest = &rest[inbox.receive(rest)..];
        reads += 1;
    }
    assert!(reads <= 9, "{reads} reads of {} bytes", many.len());
}
