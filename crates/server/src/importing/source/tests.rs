//! Sources that stand still, go away, lie and come back.

use super::*;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use tepal_gateway::nbd::wire::{self, RequestHeader, allocation, chunk, command, option, option_reply};

const SIZE: u64 = 3 * READ + 700;

fn byte(at: u64) -> u8 {
    (at / 512 % 251) as u8
}

/// What a server answers to a request; none: it goes away.
type Answers = fn(RequestHeader) -> Option<Vec<u8>>;

struct Place {
    _folder: tempfile::TempDir,
    socket: PathBuf,
    /// What it says of its smallest block, if it says that.
    smallest: Option<u32>,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("space");
        let socket = folder.path().join("s");
        Place { _folder: folder, socket, smallest: None }
    }

    fn address(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    fn source(&self) -> Source {
        Source::open(&self.address(), SIZE, Stage::Open)
    }

    /// Serves connections one after the other, each in its own way; after the last one nobody listens.
    fn serve(&self, ways: Vec<(bool, Answers)>) -> std::thread::JoinHandle<()> {
        let _ = std::fs::remove_file(&self.socket);
        let (listener, smallest) = (UnixListener::bind(&self.socket).expect("a socket"), self.smallest);
        std::thread::spawn(move || {
            for (knows_holes, answers) in ways {
                let (stream, _) = listener.accept().expect("a client");
                let _ = talk(stream, (knows_holes, smallest), answers); // the client may go at any time
            }
        })
    }
}

fn talk(mut stream: UnixStream, (knows_holes, smallest): (bool, Option<u32>), answers: Answers) -> std::io::Result<()> {
    stream.write_all(b"NBDMAGICIHAVEOPT\0\x03")?;
    stream.read_exact(&mut [0; 4])?;
    loop {
        let mut head = [0; 16];
        stream.read_exact(&mut head)?;
        let asked = u32::from_be_bytes(head[8..12].try_into().expect("four bytes"));
        let length = u32::from_be_bytes(head[12..].try_into().expect("four bytes"));
        stream.read_exact(&mut vec![0; length as usize])?;
        let mut reply = Vec::new();
        let mut say = |kind, data: &[u8]| wire::put_option_reply(&mut reply, asked, kind, &[data]);
        match asked {
            option::STRUCTURED_REPLY if knows_holes => say(option_reply::ACK, b""),
            option::SET_META_CONTEXT => {
                say(option_reply::META_CONTEXT, &[&9u32.to_be_bytes()[..], b"base:allocation"].concat());
                say(option_reply::ACK, b"");
            }
            option::GO => {
                say(option_reply::INFO, &[&0u16.to_be_bytes()[..], &SIZE.to_be_bytes(), &[0, 1]].concat());
                if let Some(smallest) = smallest {
                    let sizes = [smallest, smallest, 1 << 25].map(u32::to_be_bytes).concat();
                    say(option_reply::INFO, &[&wire::info::BLOCK_SIZE.to_be_bytes()[..], &sizes].concat());
                }
                say(option_reply::ACK, b"");
            }
            _ => say(option_reply::ERR_UNSUP, b""),
        }
        stream.write_all(&reply)?;
        if asked == option::GO {
            break;
        }
    }
    let mut head = [0; RequestHeader::SIZE];
    loop {
        stream.read_exact(&mut head)?;
        match answers(RequestHeader::decode(&head).expect("a request")) {
            Some(reply) => stream.write_all(&reply)?,
            None => return Ok(()),
        }
    }
}

fn right(asked: RequestHeader) -> Option<Vec<u8>> {
    let data = (asked.offset..asked.offset + u64::from(asked.length)).map(byte);
    Some(wire::simple_reply(0, asked.cookie).into_iter().chain(data).collect())
}

async fn is_read_right(source: &Source) {
    for range in [0..1, 511..9000, READ - 5..2 * READ + 5, 0..SIZE, SIZE - 3..SIZE + 100] {
        let found = source.read(range.clone()).await.expect("it waits until it's answered");
        let expected: Vec<u8> = range.clone().map(|at| if at < SIZE { byte(at) } else { 0 }).collect();
        assert!(found[..] == expected[..], "{range:?}");
    }
}

#[tokio::test]
async fn what_is_asked_for_is_read_and_zeros_past_the_end() {
    let place = Place::new();
    let _served = place.serve(vec![(false, right)]);
    let source = place.source();
    is_read_right(&source).await;
    assert_eq!(source.zeros(0..4096).await, Ok(vec![(4096, false)]), "a server that knows no holes has none");
    assert_eq!(source.zeros(SIZE..SIZE + 512).await, Ok(vec![(512, true)]));
}

#[tokio::test]
async fn a_server_that_goes_away_or_talks_nonsense_is_connected_to_anew() {
    let ways: [Answers; 7] = [
        |_| None,
        |asked| Some(wire::simple_reply(0, asked.cookie + 7).to_vec()),
        |asked| Some(wire::chunk_header(0, chunk::OFFSET_DATA, asked.cookie, u32::MAX).to_vec()),
        |asked| Some([&wire::chunk_header(1, chunk::OFFSET_HOLE, asked.cookie, 12)[..], &[255; 12]].concat()),
        |asked| Some([&wire::chunk_header(1, chunk::NONE, asked.cookie, 0)[..], &[0; 3]].concat()),
        |asked| Some([&wire::chunk_header(1, chunk::BLOCK_STATUS, asked.cookie, 12)[..], &[1; 12]].concat()),
        |_| Some(b"HTTP/1.1 400 Bad Request".to_vec()),
    ];
    let place = Place::new();
    let mut all: Vec<(bool, Answers)> = ways.into_iter().map(|way| (true, way)).collect();
    all.push((false, right));
    let _served = place.serve(all);
    is_read_right(&place.source()).await;
}

#[tokio::test]
async fn who_waits_for_a_server_that_is_away_goes_on_when_it_returns() {
    let place = Place::new();
    let source = place.source();
    let (reader, told) = (source.clone(), tokio::spawn(std::future::ready(())));
    told.await.expect("a runtime");
    let reading = tokio::spawn(async move { is_read_right(&reader).await });
    while source.trouble().is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!reading.is_finished());
    let _served = place.serve(vec![(false, right)]);
    reading.await.expect("it's right");
    assert_eq!(source.trouble(), None);
}

#[tokio::test]
async fn holes_are_told_within_what_was_asked_for() {
    let place = Place::new();
    let _served = place.serve(vec![(true, |asked| {
        assert_eq!((asked.kind, asked.offset % 4096), (command::BLOCK_STATUS, 0));
        // More than was asked for.
        let runs = [(8192u32, allocation::HOLE | allocation::ZERO), (u32::MAX, 0)];
        let runs = runs.into_iter().flat_map(|(length, flags)| [length.to_be_bytes(), flags.to_be_bytes()]);
        let body: Vec<u8> = std::iter::once(9u32.to_be_bytes()).chain(runs).flatten().collect();
        Some(
            [&wire::chunk_header(chunk::DONE, chunk::BLOCK_STATUS, asked.cookie, body.len() as u32)[..], &body]
                .concat(),
        )
    })]);
    let source = place.source();
    assert_eq!(source.zeros(4097..16384).await, Ok(vec![(8191, true), (4096, false)]));
}

/// As [`right`], of a server that refuses all but whole blocks of 64 KiB. The last one may be cut off.
fn right_in_blocks(asked: RequestHeader) -> Option<Vec<u8>> {
    let (end, block) = (asked.offset + u64::from(asked.length), 64 << 10);
    let is_whole = asked.offset.is_multiple_of(block) && (end.is_multiple_of(block) || end == SIZE);
    let refused = || Some(wire::simple_reply(22, asked.cookie).to_vec());
    if is_whole && asked.length <= READ as u32 { right(asked) } else { refused() }
}

/// Story: a server said that it's read in blocks of 64 KiB, and wasn't heard: clients got EIO, and the import waited for ever.
#[tokio::test]
async fn a_server_is_read_in_blocks_as_large_as_it_says() {
    let place = Place { smallest: Some(64 << 10), ..Place::new() };
    let served = place.serve(vec![(false, right_in_blocks), (false, right_in_blocks)]);
    assert_eq!(length_of(&place.address()).await.expect("it can be read"), SIZE);
    is_read_right(&place.source()).await;
    drop(served);
    let place = Place { smallest: Some(64 << 10), ..Place::new() };
    let _served = place.serve(vec![(true, |asked| {
        assert_eq!((asked.offset, asked.length % (64 << 10)), (64 << 10, 0));
        let runs = [9u32, 5000, allocation::ZERO, 1 << 20, 0].map(u32::to_be_bytes).concat();
        let head = wire::chunk_header(chunk::DONE, chunk::BLOCK_STATUS, asked.cookie, runs.len() as u32);
        Some([&head[..], &runs].concat())
    })]);
    let (source, first) = (place.source(), 64 << 10);
    assert_eq!(source.zeros(first + 4096..first + 8192).await, Ok(vec![(904, true), (3192, false)]));
    assert_eq!(source.zeros(first + 8192..first + 9000).await, Ok(vec![(808, false)]), "what is before isn't told");
}

#[tokio::test]
async fn blocks_that_cannot_be_served_are_refused_before_anything_begins() {
    let refused: Answers = |asked| Some(wire::simple_reply(22, asked.cookie).to_vec());
    for (smallest, answers, said) in [
        (128 << 10, right as Answers, "in blocks of 131072 bytes; they have to be a power of two, 65536 at most"),
        (4095, right, "in blocks of 4095 bytes"),
        (4096, refused, "of the 3146428 bytes, the last ones are no whole block of 4096 bytes"),
    ] {
        let place = Place { smallest: Some(smallest), ..Place::new() };
        let _served = place.serve(vec![(false, answers)]);
        let error = length_of(&place.address()).await.expect_err("it can't be read").to_string();
        assert!(error.contains(said) && !error.contains('\n'), "{error}");
    }
}

/// Story: a server told of one run at a time, and one of them ended within a block. Whoever copied asked for what follows for ever.
#[tokio::test]
async fn what_follows_a_run_that_ends_within_a_block_is_told() {
    let place = Place::new();
    let _served = place.serve(vec![(true, |asked| {
        let flags = allocation::HOLE | allocation::ZERO;
        let run = [9u32, 700, flags].map(u32::to_be_bytes).concat();
        let head = wire::chunk_header(chunk::DONE, chunk::BLOCK_STATUS, asked.cookie, run.len() as u32);
        Some([&head[..], &run].concat())
    })]);
    let source = place.source();
    assert_eq!(source.zeros(4096..16384).await, Ok(vec![(700, true)]));
    assert_eq!(source.zeros(4796..16384).await, Ok(vec![(3396, false)]));
    assert_eq!(source.zeros(4796..5000).await, Ok(vec![(204, false)]));
}

/// Story: a server was started again, and had said before that it was shutting down: so that much of the disk couldn't be read.
#[tokio::test]
async fn a_server_that_is_shutting_down_is_waited_for() {
    let place = Place::new();
    let _served = place.serve(vec![
        (false, |asked| Some(wire::simple_reply(108, asked.cookie).to_vec())),
        (true, |asked| {
            let said = [&108u32.to_be_bytes()[..], &4u16.to_be_bytes(), b"soon"].concat();
            let head = wire::chunk_header(chunk::DONE, chunk::ERROR, asked.cookie, said.len() as u32);
            Some([&head[..], &said].concat())
        }),
        (false, right),
    ]);
    is_read_right(&place.source()).await;
}

#[tokio::test]
async fn what_the_server_refuses_is_an_error_that_names_the_byte() {
    let place = Place::new();
    let _served = place.serve(vec![(false, |asked| match asked.offset {
        0 => right(asked),
        _ => Some(wire::simple_reply(5, asked.cookie).to_vec()),
    })]);
    let source = place.source();
    let error = source.read(0..SIZE).await.expect_err("half of it can't be read").to_string();
    assert!(error.contains(&format!("at byte {READ}: the server answers: ")), "{error}");
    assert!(source.read(0..10).await.is_ok(), "others go on");
}

/// Nobody is left waiting for a place that isn't needed any more.
#[tokio::test]
async fn who_waits_is_told_when_the_import_is_over_or_cancelled() {
    for stage in [Stage::Over, Stage::Cancelled] {
        let source = Place::new().source();
        let reader = source.clone();
        let reading = tokio::spawn(async move { reader.read(0..1).await });
        while source.trouble().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        source.set(stage);
        match reading.await.expect("no panic") {
            Err(IoError::Fenced) => assert_eq!(stage, Stage::Over),
            Err(IoError::Unavailable { reason }) => assert!(stage == Stage::Cancelled && reason.contains("cancelled")),
            other => panic!("{other:?}"),
        }
    }
}
