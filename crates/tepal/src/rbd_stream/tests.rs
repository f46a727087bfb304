use super::read::MOST_SNAPSHOTS;
use super::*;
use crate::difference_file::Piece;
use proptest::collection::vec;
use proptest::prelude::*;
use std::io::Read;
use tepal_model::MAX_VOLUME;

const MIB: u64 = 1 << 20;

/// A piece, with its bytes if it's data.
type Told = (Piece, Vec<u8>);

fn header(since: Option<&str>, to: Option<&str>, size: u64) -> Header {
    Header { since: since.map(str::to_owned), to: to.map(str::to_owned), size }
}

/// All that a stream tells, part by part.
fn told(stream: impl Read) -> Result<Vec<(Header, Vec<Told>)>, StreamError> {
    let mut reader = StreamReader::open(stream)?;
    let (mut all, mut data) = (Vec::new(), Vec::new());
    while let Some(header) = reader.part()? {
        let mut pieces = Vec::new();
        while let Some(piece) = reader.next(&mut data)? {
            assert!(data.len() as u64 <= LONGEST);
            pieces.push((piece, if matches!(piece, Piece::Data { .. }) { data.clone() } else { vec![] }));
        }
        all.push((header, pieces));
    }
    Ok(all)
}

fn write(of: Kind, parts: &[(Header, Vec<Told>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    if of == Kind::Image {
        begin_image(&mut bytes, parts.len() as u64).expect("memory");
    }
    for (header, pieces) in parts {
        let mut writer = DiffWriter::begin(&mut bytes, of, header).expect("memory");
        for (piece, data) in pieces {
            match *piece {
                Piece::Data { offset } => writer.data(offset, data),
                Piece::Zeros { offset, length } => writer.zeros(offset, length),
            }
            .expect("memory");
        }
        writer.finish().expect("memory");
    }
    bytes
}

fn diff() -> Vec<u8> {
    let pieces = vec![
        (Piece::Data { offset: 3 }, vec![7; 100]),
        (Piece::Zeros { offset: 4096, length: 8192 }, vec![]),
        (Piece::Data { offset: MIB - 5 }, vec![8; 5]),
    ];
    write(Kind::Diff, &[(header(Some("mon"), Some("tue"), MIB), pieces)])
}

fn image() -> Vec<u8> {
    let data = |offset, length| (Piece::Data { offset }, vec![9; length]);
    let zeros = |offset, length| (Piece::Zeros { offset, length }, vec![]);
    write(
        Kind::Image,
        &[
            (header(None, Some("a"), MIB), vec![data(0, 600)]),
            (header(Some("a"), Some("b"), 512), vec![zeros(0, 512)]),
            (header(Some("b"), None, 2 * MIB), vec![data(MIB, 1), zeros(MIB + 1, MIB - 1)]),
        ],
    )
}

/// A stream of version 1 that says this behind its magic.
fn saying(records: &[&[u8]]) -> Vec<u8> {
    [DIFF, &records.concat()].concat()
}

fn size(bytes: u64) -> Vec<u8> {
    [&b"s"[..], &bytes.to_le_bytes()].concat()
}

fn range(tag: u8, offset: u64, length: u64) -> Vec<u8> {
    [&[tag][..], &offset.to_le_bytes(), &length.to_le_bytes()].concat()
}

fn name(tag: u8, name: &[u8]) -> Vec<u8> {
    [&[tag][..], &(name.len() as u32).to_le_bytes(), name].concat()
}

#[test]
fn a_stream_is_known_by_its_first_bytes() {
    assert_eq!((Kind::of(&diff()), Kind::of(&image())), (Some(Kind::Diff), Some(Kind::Image)));
    assert_eq!(Kind::of(DIFF_2), Some(Kind::Diff));
    for other in [&b""[..], b"rbd", b"rbd diff v1", b"rbd diff v3\n", &[0; 13]] {
        assert_eq!(Kind::of(other), None, "{other:?}");
    }
}

#[test]
fn damaged_beginnings_and_newer_versions_are_no_images() {
    for magic in [DIFF, DIFF_2, IMAGE] {
        assert!(!begins_as_damaged(magic));
        for at in 0..magic.len() {
            let mut damaged = magic.to_vec();
            damaged[at] ^= 0x40;
            assert!(begins_as_damaged(&damaged), "{magic:?}, byte {at}");
        }
    }
    assert!(begins_as_damaged(b"rbd diff v3\n"));
    for disk in [&b""[..], b"rbd", &[0; 13], b"QFI\xfb\0\0\0\x03\0\0\0\0\0", b"\xeb\x63\x90\0\0\0\0\0\0\0\0\0\0"] {
        assert!(!begins_as_damaged(disk), "{disk:?}");
    }
}

#[test]
fn a_stream_cut_off_anywhere_is_refused_there() {
    for stream in [diff(), image()] {
        for length in 0..stream.len() {
            let error = told(&stream[..length]).expect_err("it's cut short");
            assert!(matches!(error, StreamError::CutShort { at } if at == length as u64), "{length}: {error}");
        }
        assert!(told(&stream[..]).is_ok());
    }
}

#[test]
fn what_follows_the_end_of_a_stream_is_refused() {
    for stream in [diff(), image()] {
        let longer = [&stream[..], b"x"].concat();
        let error = told(&longer[..]).expect_err("it goes on");
        assert!(matches!(error, StreamError::GoesOn { at } if at == stream.len() as u64), "{error}");
    }
}

#[test]
fn data_longer_than_a_piece_comes_in_several() {
    let length = 2 * LONGEST + 777;
    let head = saying(&[&size(4 * LONGEST), &range(b'w', 5, length)]);
    let stream = head.chain(std::io::repeat(3).take(length)).chain(&b"e"[..]);
    let pieces = told(stream).expect("right").remove(0).1;
    let lengths: Vec<_> = pieces.iter().map(|(piece, data)| (*piece, data.len() as u64)).collect();
    let data = |offset| Piece::Data { offset };
    assert_eq!(lengths, [(data(5), LONGEST), (data(5 + LONGEST), LONGEST), (data(5 + 2 * LONGEST), 777)]);
}

#[test]
fn an_odd_image_ends_in_zeros() {
    let stream = saying(&[&size(1000), &range(b'z', 0, 1000), b"e"]);
    let (header, pieces) = told(&stream[..]).expect("right").remove(0);
    let [first, tail] = [(0, 1000), (1000, 24)].map(|(offset, length)| (Piece::Zeros { offset, length }, vec![]));
    assert_eq!((header.size, pieces), (1024, vec![first, tail]));
}

/// Version 16 of `rbd` says that the protection of a snapshot has eight bytes, and writes one.
#[test]
fn protection_is_one_byte_whatever_length_it_says() {
    let of = |said: u64, payload: &[u8]| {
        let size = [&b"s"[..], &8u64.to_le_bytes(), &512u64.to_le_bytes()].concat();
        [DIFF_2, b"p", &said.to_le_bytes(), payload, &size, b"e"].concat()
    };
    for said in [1, 8] {
        assert_eq!(told(&of(said, &[1])[..]).expect("right")[0].0, header(None, None, 512), "{said}");
    }
    assert!(told(&of(2, &[1])[..]).is_err() && told(&of(8, &[1; 8])[..]).is_err());
}

#[test]
fn properties_of_an_image_are_passed_over() {
    let stream = image();
    let meta = [&b"M"[..], &20u64.to_le_bytes(), &[b'E'; 20], b"?", &0u64.to_le_bytes()].concat();
    let with_meta = [IMAGE, &meta, &stream[IMAGE.len()..]].concat();
    assert_eq!(told(&with_meta[..]).expect("right"), told(&stream[..]).expect("right"));
}

#[test]
fn limits_hold_at_their_ends() {
    let of_size = |bytes| told(&saying(&[&size(bytes), b"e"])[..]);
    for (bytes, is_right) in [(0, false), (1, true), (MAX_VOLUME, true), (MAX_VOLUME + 1, false), (u64::MAX, false)] {
        assert_eq!(of_size(bytes).is_ok(), is_right, "{bytes}");
    }
    for (offset, length, is_right) in [
        (0, 512, true),
        (511, 1, true),
        (512, 1, false),
        (0, 513, false),
        (0, 0, false),
        (1, u64::MAX, false),
        (u64::MAX, 1, false),
    ] {
        let stream = saying(&[&size(512), &range(b'z', offset, length), b"e"]);
        assert_eq!(told(&stream[..]).is_ok(), is_right, "{length} at {offset}");
    }
    for (called, is_right) in [
        (&[b'a'; 128][..], true),
        (&[b'a'; 129], false),
        (b"", false),
        (b".a", false),
        (b"a b", false),
        (b"\xff", false),
    ] {
        let stream = saying(&[&name(b't', called), &size(512), b"e"]);
        assert_eq!(told(&stream[..]).is_ok(), is_right, "{called:?}");
    }
    for (parts, is_right) in [(1, true), (0, false), (MOST_SNAPSHOTS + 1, true), (MOST_SNAPSHOTS + 2, false)] {
        let mut stream = Vec::new();
        begin_image(&mut stream, parts).expect("memory");
        assert_eq!(StreamReader::open(&stream[..]).is_ok(), is_right, "{parts}");
    }
}

#[test]
fn what_is_not_in_order_is_refused_at_its_byte() {
    let (f, t, s) = (name(b'f', b"a"), name(b't', b"b"), size(4096));
    let (w, z) = ([range(b'w', 512, 1), vec![1]].concat(), range(b'z', 0, 513));
    for (records, at, said) in [
        (&[&s[..], &w, &z, b"e"][..], 39, "went up to 513"),
        (&[&s, &z, &w, b"e"], 38, "went up to 513"),
        (&[&s, &w, &w, b"e"], 39, "such order"),
        (&[&s, &w, &s, b"e"], 39, "'s'"),
        (&[&w, &s, b"e"], 12, "how large"),
        (&[&s, &s, b"e"], 21, "once more"),
        (&[&f, &t, &f, &s, b"e"], 24, "once more"),
        (&[&s, b"x"], 21, "'x'"),
        (&[&s, b"\0"], 21, "0x00"),
        (&[&s, b"p\0", b"e"], 21, "'p'"),
        (&[b"t\xff\xff\xff\xff"], 12, "no such length"),
    ] {
        let error = told(&saying(records)[..]).expect_err(said).to_string();
        assert!(error.contains(said) && error.contains(&format!("byte {at} ")), "{at}, {said}: {error}");
    }
}

#[test]
fn parts_that_do_not_fit_each_other_are_refused() {
    let part = |since, to| (header(since, to, 512), vec![]);
    for (parts, said) in [
        (vec![part(Some("a"), None)], "the first"),
        (vec![part(None, Some("a")), part(Some("b"), None)], "aren't based"),
        (vec![part(None, Some("a")), part(None, None)], "aren't based"),
        (vec![part(None, None), part(None, None)], "don't lead"),
    ] {
        let error = told(&write(Kind::Image, &parts)[..]).expect_err(said).to_string();
        assert!(error.contains(said), "{error}");
    }
}

/// Data and zeros in turns, after gaps, of up to some thousand bytes.
fn parts() -> impl Strategy<Value = Vec<(Header, Vec<Told>)>> {
    let piece = (0u64..5000, 1u64..5000, any::<Option<u8>>());
    let part = (vec(piece, 0..8), 0u64..5000).prop_map(|(pieces, rest)| {
        let mut end = 0;
        let pieces: Vec<Told> = pieces
            .into_iter()
            .map(|(gap, length, filled)| {
                let offset = end + gap;
                end = offset + length;
                match filled {
                    Some(byte) => (Piece::Data { offset }, vec![byte; length as usize]),
                    None => (Piece::Zeros { offset, length }, vec![]),
                }
            })
            .collect();
        ((end + rest).next_multiple_of(512).max(512), pieces)
    });
    vec(part, 1..5).prop_map(|parts| {
        let last = parts.len() - 1;
        let called = |nth: usize| format!("s{nth}");
        let with_names = |(nth, (size, pieces)): (usize, (u64, Vec<Told>))| {
            let (since, to) = ((nth > 0).then(|| called(nth - 1)), (nth < last).then(|| called(nth)));
            (Header { since, to, size }, pieces)
        };
        parts.into_iter().enumerate().map(with_names).collect()
    })
}

proptest! {
    #[test]
    fn what_was_written_is_read_back(parts in parts()) {
        prop_assert_eq!(&told(&write(Kind::Image, &parts)[..]).expect("right"), &parts);
        for part in parts {
            let read = told(&write(Kind::Diff, std::slice::from_ref(&part))[..]).expect("right");
            prop_assert_eq!(read, vec![part]);
        }
    }

    #[test]
    fn hostile_bytes_are_refused_or_stay_within_the_image(
        of_image: bool,
        changes in vec((0usize..400, any::<u8>()), 0..12),
        cut in 0usize..800,
        rest in vec(any::<u8>(), 0..40),
    ) {
        let mut stream = if of_image { image() } else { diff() };
        for (at, byte) in changes {
            let at = at % stream.len();
            stream[at] = byte;
        }
        stream.truncate(cut.max(13));
        stream.extend(rest);
        let Ok(mut reader) = StreamReader::open(&stream[..]) else { return Ok(()) };
        let mut data = Vec::new();
        while let Ok(Some(header)) = reader.part() {
            let mut end = 0;
            loop {
                let (offset, length) = match reader.next(&mut data) {
                    Ok(Some(Piece::Data { offset })) => (offset, data.len() as u64),
                    Ok(Some(Piece::Zeros { offset, length })) => (offset, length),
                    Ok(None) => break,
                    Err(_) => return Ok(()),
                };
                prop_assert!(offset >= end && length > 0 && offset + length <= header.size);
                end = offset + length;
            }
            prop_assert!(reader.at() <= stream.len() as u64);
        }
    }
}
