//! Bytes received and not yet understood, so that one system call brings many small answers.

use super::socket::Socket;
use std::io;

/// Room for some answers of 1 MiB. It grows for a longer one.
const ROOM: usize = 2 << 20;

pub struct Inbox<'a> {
    socket: &'a Socket,
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl<'a> Inbox<'a> {
    pub fn new(socket: &'a Socket) -> Self {
        Inbox { socket, bytes: vec![0; ROOM], start: 0, end: 0 }
    }

    /// The next `length` bytes, which stay the next ones. Waits for them.
    pub fn next(&mut self, length: usize) -> io::Result<&[u8]> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.start + length > self.bytes.len() {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if length > self.bytes.len() {
                self.bytes.resize(length, 0);
            }
        }
        while self.end - self.start < length {
            match self.socket.read_some(&mut self.bytes[self.end..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(received) => self.end += received,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(&self.bytes[self.start..self.start + length])
    }

    /// Done with the first `length` bytes.
    pub fn consume(&mut self, length: usize) {
        assert!(length <= self.end - self.start);
        self.start += length;
    }

    /// Waits for the server to hang up, whatever it says until then.
    pub fn drain(&mut self) {
        loop {
            match self.socket.read_some(&mut self.bytes) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }
}
