//! A client that says exactly what a test wants it to say.

use super::super::wire::{
    OPTION_MAGIC, OPTION_REPLY_MAGIC, RequestHeader, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk, command,
    option, option_reply,
};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;

pub struct Client<S = UnixStream> {
    pub stream: S,
}

#[derive(Debug, PartialEq, Eq)]
pub struct OptionReply {
    pub option: u32,
    pub kind: u32,
    pub data: Vec<u8>,
}

/// A whole reply. Of a read in the simple form, the data is read apart: only the caller knows its length.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    Simple { cookie: u64, error: u32 },
    None { cookie: u64 },
    Data { cookie: u64, offset: u64, data: Vec<u8> },
    Status { cookie: u64, context: u32, runs: Vec<(u32, u32)> },
    Error { cookie: u64, error: u32, message: String, offset: Option<u64> },
}

pub fn name_and(name: &str, rest: &[u8]) -> Vec<u8> {
    [&(name.len() as u32).to_be_bytes()[..], name.as_bytes(), rest].concat()
}

pub fn contexts(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = name_and(name, &(queries.len() as u32).to_be_bytes());
    for query in queries {
        data.extend(name_and(query, &[]));
    }
    data
}

pub fn option_bytes(option: u32, data: &[u8]) -> Vec<u8> {
    let length = data.len() as u32;
    [&OPTION_MAGIC.to_be_bytes()[..], &option.to_be_bytes(), &length.to_be_bytes(), data].concat()
}

pub fn request_bytes(kind: u16, flags: u16, cookie: u64, offset: u64, length: u32) -> [u8; 28] {
    RequestHeader { flags, kind, cookie, offset, length }.encode()
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub fn new(stream: S) -> Self {
        Client { stream }
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    pub async fn receive(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).await?;
        Ok(bytes)
    }

    /// Everything until the server closes the connection.
    pub async fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.stream.read_to_end(&mut bytes).await {
            Err(error) if error.kind() != io::ErrorKind::ConnectionReset => panic!("{error}"),
            _ => bytes,
        }
    }

    pub async fn greet(&mut self) {
        self.receive(18).await.unwrap();
        self.send(&3u32.to_be_bytes()).await;
    }

    pub async fn option_reply(&mut self) -> io::Result<OptionReply> {
        let head = self.receive(20).await?;
        assert_eq!(number(&head[..8]), OPTION_REPLY_MAGIC);
        let data = self.receive(number(&head[16..]) as usize).await?;
        Ok(OptionReply { option: number(&head[8..12]) as u32, kind: number(&head[12..16]) as u32, data })
    }

    /// Sends an option and takes all of its answer. The last part is an acknowledgement or an error.
    pub async fn option(&mut self, option: u32, data: &[u8]) -> Vec<OptionReply> {
        self.send(&option_bytes(option, data)).await;
        let mut replies = Vec::new();
        loop {
            let reply = self.option_reply().await.unwrap();
            assert_eq!(reply.option, option);
            let last = reply.kind == option_reply::ACK || reply.kind >> 31 == 1;
            replies.push(reply);
            if last {
                return replies;
            }
        }
    }

    /// Negotiates structured replies and `base:allocation` of an export.
    pub async fn structured(&mut self, name: &str) {
        assert_eq!(self.option(option::STRUCTURED_REPLY, &[]).await[0].kind, option_reply::ACK);
        let replies = self.option(option::SET_META_CONTEXT, &contexts(name, &["base:allocation"])).await;
        assert_eq!(replies[0].kind, option_reply::META_CONTEXT);
    }

    pub async fn go(&mut self, name: &str) {
        let replies = self.option(option::GO, &name_and(name, &[0, 0])).await;
        assert_eq!(replies.last().unwrap().kind, option_reply::ACK, "{replies:?}");
    }

    pub async fn request(&mut self, kind: u16, flags: u16, cookie: u64, offset: u64, length: u32) {
        self.send(&request_bytes(kind, flags, cookie, offset, length)).await;
    }

    pub async fn write(&mut self, flags: u16, cookie: u64, offset: u64, data: &[u8]) {
        self.request(command::WRITE, flags, cookie, offset, data.len() as u32).await;
        self.send(data).await;
    }

    pub async fn reply(&mut self) -> Reply {
        let head = self.receive(16).await.unwrap();
        if number(&head[..4]) as u32 == SIMPLE_REPLY_MAGIC {
            return Reply::Simple { error: number(&head[4..8]) as u32, cookie: number(&head[8..]) };
        }
        assert_eq!(number(&head[..4]) as u32, STRUCTURED_REPLY_MAGIC);
        assert_eq!(number(&head[4..6]) as u16, chunk::DONE);
        let (kind, cookie) = (number(&head[6..8]) as u16, number(&head[8..]));
        let length = number(&self.receive(4).await.unwrap()) as usize;
        let body = self.receive(length).await.unwrap();
        match kind {
            chunk::NONE => {
                assert_eq!(length, 0);
                Reply::None { cookie }
            }
            chunk::OFFSET_DATA => {
                assert!(length > 8);
                Reply::Data { cookie, offset: number(&body[..8]), data: body[8..].to_vec() }
            }
            chunk::BLOCK_STATUS => {
                assert!(length > 4 && length % 8 == 4);
                let runs =
                    body[4..].chunks(8).map(|run| (number(&run[..4]) as u32, number(&run[4..]) as u32)).collect();
                Reply::Status { cookie, context: number(&body[..4]) as u32, runs }
            }
            chunk::ERROR | chunk::ERROR_OFFSET => {
                let end = 6 + number(&body[4..6]) as usize;
                let offset = if kind == chunk::ERROR { None } else { Some(number(&body[end..end + 8])) };
                assert_eq!(length, end + if offset.is_some() { 8 } else { 0 });
                let message = String::from_utf8(body[6..end].to_vec()).unwrap();
                Reply::Error { cookie, error: number(&body[..4]) as u32, message, offset }
            }
            other => panic!("a chunk of the unknown kind {other}"),
        }
    }

    /// The error of the next reply, whatever its form; 0 is success without data.
    pub async fn outcome(&mut self) -> (u64, u32) {
        match self.reply().await {
            Reply::Simple { cookie, error } | Reply::Error { cookie, error, .. } => (cookie, error),
            Reply::None { cookie } => (cookie, 0),
            other => panic!("no plain outcome: {other:?}"),
        }
    }

    /// Reads, in either form.
    pub async fn read(&mut self, cookie: u64, offset: u64, length: u32) -> Result<Vec<u8>, u32> {
        self.request(command::READ, 0, cookie, offset, length).await;
        match self.reply().await {
            Reply::Simple { cookie: of, error: 0 } if of == cookie => Ok(self.receive(length as usize).await.unwrap()),
            Reply::Data { cookie: of, offset: at, data }
                if (of, at, data.len()) == (cookie, offset, length as usize) =>
            {
                Ok(data)
            }
            Reply::Simple { cookie: of, error } | Reply::Error { cookie: of, error, .. } if of == cookie => Err(error),
            other => panic!("no answer to read {cookie}: {other:?}"),
        }
    }

    pub async fn disconnect(&mut self) {
        self.request(command::DISC, 0, 0, 0, 0).await;
    }
}
