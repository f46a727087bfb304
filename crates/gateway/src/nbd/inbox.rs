//! What a connection has received and not yet understood. One read takes as much as there is: many requests, under load.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// An idle connection holds this much.
const SMALLEST: usize = 16 << 10;
/// Reading stops here until something is consumed. Also what one read takes at most.
const LARGEST: usize = 256 << 10;

#[derive(Debug)]
pub struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Inbox {
    pub fn new() -> Self {
        Inbox { bytes: vec![0; SMALLEST], start: 0, end: 0 }
    }

    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Forgets the first `count` unread bytes.
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.end - self.start, "only what was received can be consumed");
        self.start += count;
    }

    /// Receives once, at most `most` bytes. Zero means that no more will come. Must not be called when full.
    pub fn poll_receive<S>(&mut self, cx: &mut Context<'_>, stream: &mut S, most: usize) -> Poll<io::Result<usize>>
    where
        S: AsyncRead + Unpin,
    {
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        assert!(self.end < self.bytes.len(), "a full inbox is consumed from before it receives more");
        let room = (self.bytes.len() - self.end).min(most);
        let mut free = ReadBuf::new(&mut self.bytes[self.end..self.end + room]);
        ready!(Pin::new(stream).poll_read(cx, &mut free))?;
        let received = free.filled().len();
        self.end += received;
        if self.end == self.bytes.len() && self.bytes.len() < LARGEST {
            self.bytes.resize(self.bytes.len() * 2, 0); // more was probably waiting
        }
        Poll::Ready(Ok(received))
    }

    /// Receives until `count` bytes are unread, and returns those.
    pub async fn receive_exactly<S>(&mut self, stream: &mut S, count: usize) -> io::Result<&[u8]>
    where
        S: AsyncRead + Unpin,
    {
        if self.bytes.len() < count {
            self.bytes.resize(count, 0);
        }
        while self.unread().len() < count {
            if poll_fn(|cx| self.poll_receive(cx, stream, usize::MAX)).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(&self.unread()[..count])
    }

    /// Receives and forgets `count` bytes.
    pub async fn skip<S>(&mut self, stream: &mut S, mut count: u64) -> io::Result<()>
    where
        S: AsyncRead + Unpin,
    {
        while count > 0 {
            let here = count.min(self.unread().len() as u64) as usize;
            self.consume(here);
            count -= here as u64;
            if count > 0 && poll_fn(|cx| self.poll_receive(cx, stream, usize::MAX)).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn bytes_come_out_as_they_went_in_whatever_the_pieces() {
        let sent: Vec<u8> = (0..LARGEST * 3).map(|i| (i * 7 + i / 251) as u8).collect();
        for take in [1, 27, 28, 4096, 16 << 10, (16 << 10) + 1, 100_000] {
            let mut stream = &sent[..];
            let mut inbox = Inbox::new();
            let mut got = Vec::new();
            while got.len() + take <= sent.len().min(take * 500) {
                let piece = inbox.receive_exactly(&mut stream, take).now_or_never().unwrap().unwrap();
                got.extend_from_slice(piece);
                inbox.consume(take);
            }
            assert_eq!(got, sent[..got.len()], "in pieces of {take}");
        }
    }

    #[test]
    fn skipping_takes_no_memory_and_loses_no_byte_after_it() {
        let mut sent = vec![1; 5 << 20];
        sent.push(42);
        let mut stream = &sent[..];
        let mut inbox = Inbox::new();
        inbox.skip(&mut stream, 5 << 20).now_or_never().unwrap().unwrap();
        assert_eq!(inbox.receive_exactly(&mut stream, 1).now_or_never().unwrap().unwrap(), [42]);
        assert!(inbox.bytes.len() <= LARGEST);
        inbox.consume(1);
        let end = inbox.skip(&mut stream, 1).now_or_never().unwrap();
        assert_eq!(end.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
