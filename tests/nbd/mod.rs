//! A client of the tests' own. It asks for nothing but simple replies, says what it's told to say, and knows which answers are
//! still to come: so a test can tell what was acknowledged before a server was killed.

mod ledger;
mod pattern;
mod writer;

pub use ledger::Ledger;
pub use pattern::{BLOCK, Stamp, mixed, noise};
pub use writer::Writer;

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

pub mod kind {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISC: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const WRITE_ZEROES: u16 = 6;
}

pub mod flag {
    pub const FUA: u16 = 1 << 0;
}

/// NBD's number of "no space left on device".
pub const NO_SPACE: u32 = 28;

const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const LIST: u32 = 3;
const GO: u32 = 7;
const ACK: u32 = 1;
const SERVER: u32 = 2;
const INFO: u32 = 3;

/// No answer may take longer.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub enum Address {
    Unix(PathBuf),
    /// HOST:PORT.
    Tcp(String),
}

pub trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

impl Address {
    /// A connection on which nothing was said yet.
    pub fn dial(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
        })
    }
}

/// A connection to one volume.
pub struct Nbd {
    stream: Box<dyn Stream>,
    pub size: u64,
    next_cookie: u64,
}

/// The number of an error, as NBD has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub u32);

/// Why a request has no good answer.
#[derive(Debug)]
pub enum RequestError {
    /// The server said no.
    Refused(Errno),
    /// The server is gone, or talks nonsense.
    Broken(io::Error),
}

impl From<io::Error> for RequestError {
    fn from(error: io::Error) -> Self {
        RequestError::Broken(error)
    }
}

impl Nbd {
    pub fn open(address: &Address, volume: &str) -> io::Result<Nbd> {
        let mut stream = greeted(address)?;
        let name = volume.as_bytes();
        let data = [&(name.len() as u32).to_be_bytes()[..], name, &[0, 0]].concat();
        let replies = option(&mut stream, GO, &data)?;
        let export = replies.iter().find(|(kind, data)| *kind == INFO && data.len() == 12 && data[..2] == [0, 0]);
        let (_, export) = export.ok_or_else(|| nonsense("no word on the export's size"))?;
        let size = u64::from_be_bytes(export[2..10].try_into().expect("eight bytes"));
        Ok(Nbd { stream, size, next_cookie: 1 })
    }

    /// The names of all exports.
    pub fn list(address: &Address) -> io::Result<Vec<String>> {
        let mut stream = greeted(address)?;
        let replies = option(&mut stream, LIST, &[])?;
        let names = replies.iter().filter(|(kind, data)| *kind == SERVER && data.len() >= 4);
        Ok(names.map(|(_, data)| String::from_utf8_lossy(&data[4..]).into_owned()).collect())
    }

    /// Sends a request, and gives the cookie that its answer will carry.
    pub fn send(&mut self, kind: u16, flags: u16, offset: u64, length: u32, data: &[u8]) -> io::Result<u64> {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.stream.write_all(&[&header(kind, flags, cookie, offset, length)[..], data].concat())?;
        Ok(cookie)
    }

    /// The next answer: which request's, and how it went. The data of a read follows; see [`Nbd::data`].
    pub fn answer(&mut self) -> io::Result<(u64, Result<(), Errno>)> {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head)?;
        if head[..4] != REPLY_MAGIC.to_be_bytes() {
            return Err(nonsense("no reply where one must begin"));
        }
        let error = u32::from_be_bytes(head[4..8].try_into().expect("four bytes"));
        let cookie = u64::from_be_bytes(head[8..].try_into().expect("eight bytes"));
        Ok((cookie, if error == 0 { Ok(()) } else { Err(Errno(error)) }))
    }

    /// The data of a read that has just been answered.
    pub fn data(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut data = vec![0; length];
        self.stream.read_exact(&mut data)?;
        Ok(data)
    }

    fn ask(&mut self, kind: u16, flags: u16, offset: u64, length: u32, data: &[u8]) -> Result<(), RequestError> {
        let sent = self.send(kind, flags, offset, length, data)?;
        let (cookie, outcome) = self.answer()?;
        if cookie != sent {
            return Err(nonsense("an answer to something else").into());
        }
        outcome.map_err(RequestError::Refused)
    }

    pub fn read(&mut self, offset: u64, length: u32) -> Result<Vec<u8>, RequestError> {
        self.ask(kind::READ, 0, offset, length, &[])?;
        Ok(self.data(length as usize)?)
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), RequestError> {
        self.ask(kind::WRITE, 0, offset, data.len() as u32, data)
    }

    pub fn write_through(&mut self, offset: u64, data: &[u8]) -> Result<(), RequestError> {
        self.ask(kind::WRITE, flag::FUA, offset, data.len() as u32, data)
    }

    pub fn flush(&mut self) -> Result<(), RequestError> {
        self.ask(kind::FLUSH, 0, 0, 0, &[])
    }

    pub fn trim(&mut self, offset: u64, length: u32) -> Result<(), RequestError> {
        self.ask(kind::TRIM, 0, offset, length, &[])
    }

    pub fn write_zeroes(&mut self, offset: u64, length: u32) -> Result<(), RequestError> {
        self.ask(kind::WRITE_ZEROES, 0, offset, length, &[])
    }
}

impl Drop for Nbd {
    fn drop(&mut self) {
        // A courtesy; the server may be gone.
        let _ = self.send(kind::DISC, 0, 0, 0, &[]);
    }
}

/// A request without its data.
pub fn header(kind: u16, flags: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let (flags, kind) = (flags.to_be_bytes(), kind.to_be_bytes());
    let numbers = [&cookie.to_be_bytes()[..], &offset.to_be_bytes(), &length.to_be_bytes()].concat();
    [&REQUEST_MAGIC.to_be_bytes()[..], &flags, &kind, &numbers].concat()
}

/// An option with its data.
pub fn option_bytes(option: u32, length: u32, data: &[u8]) -> Vec<u8> {
    [&OPTION_MAGIC.to_be_bytes()[..], &option.to_be_bytes(), &length.to_be_bytes(), data].concat()
}

/// A connection on which both sides have said hello.
fn greeted(address: &Address) -> io::Result<Box<dyn Stream>> {
    let mut stream = address.dial()?;
    let mut hello = [0; 18];
    stream.read_exact(&mut hello)?;
    if &hello[..16] != b"NBDMAGICIHAVEOPT" {
        return Err(nonsense("no NBD server"));
    }
    stream.write_all(&3u32.to_be_bytes())?;
    Ok(stream)
}

/// The parts of the answer to an option, until it's complete.
fn option(stream: &mut dyn Stream, option: u32, data: &[u8]) -> io::Result<Vec<(u32, Vec<u8>)>> {
    stream.write_all(&option_bytes(option, data.len() as u32, data))?;
    let mut replies = Vec::new();
    loop {
        let mut head = [0; 20];
        stream.read_exact(&mut head)?;
        if head[..8] != OPTION_REPLY_MAGIC.to_be_bytes() {
            return Err(nonsense("no reply to an option where one must begin"));
        }
        let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let (kind, length) = (number(12), number(16));
        let mut data = vec![0; length as usize];
        stream.read_exact(&mut data)?;
        if kind == ACK {
            return Ok(replies);
        }
        if kind >> 31 == 1 {
            let said = String::from_utf8_lossy(&data).into_owned();
            return Err(io::Error::new(io::ErrorKind::NotFound, format!("option {option} is refused: {said}")));
        }
        replies.push((kind, data));
    }
}

fn nonsense(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
