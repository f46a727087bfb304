//! Pieces on their way to a volume, several at a time: while servers write one, the next is sent, and the one after it is read.
//!
//! Invariants:
//! 1. At most [`AT_ONCE`] pieces are under way: so memory is bounded.
//! 2. No two pieces that are under way have a byte in common: what is written twice ends as it was written last.

use crate::client::{Client, ClientError};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tepal_server::api::types::Done;

/// Pieces that are under way.
const AT_ONCE: usize = 4;

struct Order {
    path: String,
    bytes: Vec<u8>,
}

/// How a piece fared: its length once it's written.
type Written = Result<u64, ClientError>;
/// The same, with the buffer that the piece was in.
type Told = (Written, Vec<u8>);

pub struct Writers {
    /// `None` before the first piece.
    threads: Option<Threads>,
    under_way: usize,
    /// Those that may be under way are before this.
    end: u64,
}

struct Threads {
    give: SyncSender<Order>,
    told: Receiver<Told>,
    handles: Vec<JoinHandle<()>>,
    /// Buffers of pieces that are written. Fresh ones would be filled with zeros first.
    spare: Vec<Vec<u8>>,
}

impl Threads {
    fn start(client: &Client) -> Self {
        let ((give, given), (tell, told)) = (sync_channel(0), channel());
        let given = Arc::new(Mutex::new(given));
        let start = |_| {
            let (client, given, tell) = (client.twin(), given.clone(), tell.clone());
            std::thread::spawn(move || carry_out(&client, &given, &tell))
        };
        Threads { give, told, handles: (0..AT_ONCE).map(start).collect(), spare: Vec::new() }
    }
}

fn carry_out(client: &Client, given: &Mutex<Receiver<Order>>, tell: &Sender<Told>) {
    loop {
        let order = given.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Order { path, bytes }) = order else { return };
        let written = client.put_bytes(&path, &bytes).map(|Done {}| bytes.len() as u64);
        if tell.send((written, bytes)).is_err() {
            return;
        }
    }
}

impl Writers {
    pub fn new() -> Self {
        Writers { threads: None, under_way: 0, end: 0 }
    }

    /// Begins to write a piece, once there's room for it. How many bytes of earlier ones are written that nobody was told of.
    pub fn write(&mut self, client: &Client, offset: u64, path: String, bytes: &[u8]) -> Written {
        self.write_by(client, offset, path, bytes.len(), |buffer| {
            buffer.clear();
            buffer.extend(bytes);
        })
    }

    /// The same with a buffer that is taken: another one is left in its place, of any content.
    pub fn take(&mut self, client: &Client, offset: u64, path: String, bytes: &mut Vec<u8>) -> Written {
        self.write_by(client, offset, path, bytes.len(), |buffer| std::mem::swap(buffer, bytes))
    }

    fn write_by(
        &mut self,
        client: &Client,
        offset: u64,
        path: String,
        length: usize,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Written {
        let mut done = self.settle_before(offset)?;
        if self.under_way == AT_ONCE {
            done += self.hear()?;
        }
        let threads = self.threads.get_or_insert_with(|| Threads::start(client));
        let mut buffer = threads.spare.pop().unwrap_or_default();
        fill(&mut buffer);
        let order = Order { path, bytes: buffer };
        // A thread ends before this only by a panic, which the next to be heard tells of.
        if threads.give.send(order).is_ok() {
            self.under_way += 1;
            self.end = offset + length as u64;
        }
        Ok(done)
    }

    /// The same for what is to be done at this place by somebody else: nothing that is under way has bytes from there on.
    pub fn settle_before(&mut self, offset: u64) -> Written {
        if self.end > offset { self.settle() } else { Ok(0) }
    }

    /// Returns when nothing is under way.
    pub fn settle(&mut self) -> Written {
        let mut done = 0;
        while self.under_way > 0 {
            done += self.hear()?;
        }
        self.end = 0;
        Ok(done)
    }

    fn hear(&mut self) -> Written {
        self.under_way -= 1;
        let threads = self.threads.as_mut().expect("what is under way is a thread's");
        let (written, buffer) = threads.told.recv().expect("a thread ends by itself only when this one has gone");
        threads.spare.push(buffer);
        written
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        let Some(Threads { give, told, handles, .. }) = self.threads.take() else { return };
        drop((give, told));
        for handle in handles {
            let _ = handle.join(); // it has said what there was to say
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};

    /// Takes a request: its path, and its body's first byte.
    fn heard(stream: &TcpStream) -> (String, u8) {
        let (mut reader, mut line, mut length) = (BufReader::new(stream), String::new(), 0);
        reader.read_line(&mut line).expect("a request");
        let path = line.split(' ').nth(1).expect("a path").to_owned();
        while line.trim() != "" {
            line.clear();
            reader.read_line(&mut line).expect("a header");
            if let Some(said) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = said.trim().parse().expect("a number");
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("a body");
        (path, body[0])
    }

    fn answer(mut stream: TcpStream, status: &str) {
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}");
        stream.write_all(answer.as_bytes()).expect("somebody who listens");
    }

    fn server() -> (TcpListener, Client) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client = Client::new(vec![listener.local_addr().expect("bound").to_string()], None);
        (listener, client)
    }

    fn put(writers: &mut Writers, client: &Client, at: u64, byte: u8) -> Written {
        writers.write(client, at, format!("/{at}"), &[byte; 8])
    }

    #[test]
    fn pieces_are_sent_before_the_one_in_front_is_written() {
        let (listener, client) = server();
        let served = std::thread::spawn(move || {
            let streams: Vec<TcpStream> = (0..AT_ONCE).map(|_| listener.accept().expect("a client").0).collect();
            let mut heard: Vec<_> = streams.iter().map(heard).collect();
            streams.into_iter().for_each(|stream| answer(stream, "200 OK"));
            heard.sort();
            heard
        });
        let mut writers = Writers::new();
        for number in 0..AT_ONCE as u64 {
            put(&mut writers, &client, 8 * number, number as u8).expect("sent");
        }
        assert_eq!(writers.settle().expect("written"), 8 * AT_ONCE as u64);
        let expected: Vec<_> = (0..AT_ONCE).map(|number| (format!("/{}", 8 * number), number as u8)).collect();
        let mut sorted = expected;
        sorted.sort();
        assert_eq!(served.join().expect("no panic"), sorted);
    }

    /// Two writes of the same bytes end as they were given.
    #[test]
    fn what_is_written_twice_waits_for_the_first_time() {
        let (listener, client) = server();
        let served = std::thread::spawn(move || {
            let take = |_| {
                let (stream, _) = listener.accept().expect("a client");
                let (_, byte) = heard(&stream);
                // Long enough for whoever doesn't wait.
                listener.set_nonblocking(true).expect("a socket");
                std::thread::sleep(std::time::Duration::from_millis(50));
                assert!(listener.accept().is_err(), "another one is sent while this one isn't written");
                listener.set_nonblocking(false).expect("a socket");
                answer(stream, "200 OK");
                byte
            };
            (0..2).map(take).collect::<Vec<_>>()
        });
        let mut writers = Writers::new();
        put(&mut writers, &client, 8, 1).expect("sent");
        put(&mut writers, &client, 4, 2).expect("sent");
        writers.settle().expect("written");
        assert_eq!(served.join().expect("no panic"), [1, 2]);
    }

    #[test]
    fn a_piece_that_fails_is_told_of_at_the_latest_when_all_has_settled() {
        let (listener, client) = server();
        let served = std::thread::spawn(move || {
            for status in ["200 OK", "500 Internal Server Error"] {
                let (stream, _) = listener.accept().expect("a client");
                heard(&stream);
                answer(stream, status);
            }
        });
        let mut writers = Writers::new();
        put(&mut writers, &client, 0, 1).expect("sent");
        let second = put(&mut writers, &client, 8, 2);
        assert!(second.is_err() || writers.settle().is_err());
        served.join().expect("no panic");
    }
}
