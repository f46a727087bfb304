//! A server for tests: a small disk in memory, and connections that break wherever a test says.

use super::socket::NbdAddress;
use super::wire::{self, Flags, REQUEST_SIZE, RequestHeader, u32_at};
use std::collections::{HashSet, VecDeque};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// How the server answers reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    Simple,
    /// One chunk.
    Whole,
    /// Two chunks, the later half first; a half of zeros comes as a hole.
    Halves,
}

/// What one connection does.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    /// Bytes that it still takes and gives before it breaks.
    pub receives: usize,
    pub sends: usize,
    /// Whether the handshake's bytes count.
    pub from_handshake: bool,
    /// The error that it answers every request with.
    pub error: Option<u32>,
    /// As the handshake tells it; the disk itself has the size of the first connection's.
    pub size: u64,
    pub flags: Flags,
}

pub const WHOLE: Script = Script {
    receives: usize::MAX,
    sends: usize::MAX,
    from_handshake: false,
    error: None,
    size: SIZE as u64,
    flags: Flags(0b110_1101),
};
pub const SIZE: usize = 256;

#[derive(Default)]
pub struct Seen {
    pub disk: Vec<u8>,
    /// Cookies of requests whose answer went out whole.
    pub answered: HashSet<u64>,
    /// Requests that came again although their answer had gone out whole.
    pub repeated: Vec<u64>,
    pub flushes: usize,
    pub connections: usize,
}

pub struct FakeServer {
    pub address: NbdAddress,
    pub seen: Arc<Mutex<Seen>>,
    _folder: tempfile::TempDir,
}

impl FakeServer {
    /// Serves connections by `scripts` in order, and all later ones wholly.
    pub fn start(style: Style, scripts: impl IntoIterator<Item = Script>) -> FakeServer {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nbd.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let mut scripts: VecDeque<Script> = scripts.into_iter().collect();
        let usual = scripts.front().map_or(WHOLE, |first| Script { size: first.size, ..WHOLE });
        let seen = Arc::new(Mutex::new(Seen { disk: vec![0; usual.size as usize], ..Seen::default() }));
        let shared = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let script = scripts.pop_front().unwrap_or(usual);
                shared.lock().unwrap().connections += 1;
                let mut connection = Connection { stream: stream.unwrap(), script, counting: script.from_handshake };
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let _ = connection.serve(style, &shared);
                    let _ = connection.stream.shutdown(Shutdown::Both);
                });
            }
        });
        FakeServer { address: NbdAddress::Unix(path), seen, _folder: folder }
    }
}

struct Connection {
    stream: UnixStream,
    script: Script,
    counting: bool,
}

impl Connection {
    fn receive_into(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let allowed = if self.counting { bytes.len().min(self.script.receives) } else { bytes.len() };
        self.stream.read_exact(&mut bytes[..allowed])?;
        if self.counting {
            self.script.receives -= allowed;
        }
        if allowed < bytes.len() { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    fn receive<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.receive_into(&mut bytes).map(|()| bytes)
    }

    fn receive_vec(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.receive_into(&mut bytes).map(|()| bytes)
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let allowed = if self.counting { bytes.len().min(self.script.sends) } else { bytes.len() };
        self.stream.write_all(&bytes[..allowed])?;
        if self.counting {
            self.script.sends -= allowed;
        }
        if allowed < bytes.len() { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    fn serve(&mut self, style: Style, seen: &Mutex<Seen>) -> io::Result<()> {
        self.handshake(style)?;
        self.counting = true;
        loop {
            let header = RequestHeader::decode(&self.receive::<REQUEST_SIZE>()?).expect("clients send the right magic");
            let data = match header.kind {
                wire::command::WRITE => self.receive_vec(header.length as usize)?,
                wire::command::DISC => return Ok(()),
                _ => Vec::new(),
            };
            let answer = {
                let mut seen = seen.lock().unwrap();
                if seen.answered.contains(&header.cookie) {
                    seen.repeated.push(header.cookie);
                }
                match self.script.error {
                    Some(error) => wire::simple_reply(error, header.cookie).to_vec(),
                    None => apply(&mut seen, header, &data, style),
                }
            };
            self.send(&answer)?;
            if self.script.error.is_none() {
                seen.lock().unwrap().answered.insert(header.cookie);
            }
        }
    }

    fn handshake(&mut self, style: Style) -> io::Result<()> {
        self.send(b"NBDMAGICIHAVEOPT\0\x03")?;
        self.receive::<4>()?;
        loop {
            let header = self.receive::<16>()?;
            let option = u32_at(&header, 8);
            let data = self.receive_vec(u32_at(&header, 12) as usize)?;
            let reply = |kind: u32, data: &[u8]| {
                let mut bytes = 0x0003_e889_0455_65a9u64.to_be_bytes().to_vec();
                bytes.extend([option, kind, data.len() as u32].iter().flat_map(|number| number.to_be_bytes()));
                bytes.extend_from_slice(data);
                bytes
            };
            match option {
                8 if style == Style::Simple => self.send(&reply(1 | 1 << 31, b""))?,
                8 => self.send(&reply(1, b""))?,
                6 | 7 if !data.starts_with(b"\0\0\0\x02v0") => self.send(&reply(6 | 1 << 31, b"no such export"))?,
                6 | 7 => {
                    let mut export = vec![0, 0];
                    export.extend_from_slice(&self.script.size.to_be_bytes());
                    export.extend_from_slice(&self.script.flags.0.to_be_bytes());
                    self.send(&reply(3, &export))?;
                    self.send(&reply(1, b""))?;
                    if option == 7 {
                        return Ok(());
                    }
                }
                _ => return Ok(()),
            }
        }
    }
}

fn apply(seen: &mut Seen, header: RequestHeader, data: &[u8], style: Style) -> Vec<u8> {
    let range = header.offset as usize..header.offset as usize + header.length as usize;
    match header.kind {
        wire::command::WRITE => seen.disk[range].copy_from_slice(data),
        wire::command::WRITE_ZEROES | wire::command::TRIM => seen.disk[range].fill(0),
        wire::command::FLUSH => seen.flushes += 1,
        wire::command::READ => return read_answer(&seen.disk[range], header, style),
        other => panic!("unknown request {other}"),
    }
    match style {
        Style::Simple => wire::simple_reply(0, header.cookie).to_vec(),
        _ => chunk(wire::chunk::DONE, wire::chunk::NONE, header.cookie, &[]),
    }
}

fn read_answer(bytes: &[u8], header: RequestHeader, style: Style) -> Vec<u8> {
    let piece = |from: usize, to: usize, flags: u16| {
        let mut body = (header.offset + from as u64).to_be_bytes().to_vec();
        let hole = style == Style::Halves && bytes[from..to].iter().all(|&byte| byte == 0);
        if hole {
            body.extend_from_slice(&((to - from) as u32).to_be_bytes());
            return chunk(flags, wire::chunk::OFFSET_HOLE, header.cookie, &body);
        }
        body.extend_from_slice(&bytes[from..to]);
        chunk(flags, wire::chunk::OFFSET_DATA, header.cookie, &body)
    };
    let half = bytes.len() / 2;
    match style {
        Style::Simple => [&wire::simple_reply(0, header.cookie)[..], bytes].concat(),
        Style::Whole => piece(0, bytes.len(), wire::chunk::DONE),
        Style::Halves => [piece(half, bytes.len(), 0), piece(0, half, wire::chunk::DONE)].concat(),
    }
}

fn chunk(flags: u16, kind: u16, cookie: u64, body: &[u8]) -> Vec<u8> {
    [&tepal_gateway::nbd::wire::chunk_header(flags, kind, cookie, body.len() as u32), body].concat()
}
