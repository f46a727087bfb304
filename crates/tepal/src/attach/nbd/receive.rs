//! Answers in: simple replies and structured chunks.

use super::client::{Exchange, Pending, Shared};
use super::inbox::Inbox;
use super::socket::Socket;
use super::wire::{self, CHUNK_SIZE, SIMPLE_REPLY_MAGIC, SIMPLE_SIZE, STRUCTURED_REPLY_MAGIC, u16_at, u32_at, u64_at};
use nix::errno::Errno;
use std::io;
use std::net::Shutdown;

/// Why a connection is over.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    #[error("the connection ended: {0}")]
    Ended(#[from] io::Error),
    #[error("the server broke the protocol's rules: {0}")]
    Violation(Violation),
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("unknown magic {0:#x}")]
    Magic(u32),
    #[error("an answer to a request that nobody made, {0:#x}")]
    Stranger(u64),
    #[error("a structured answer, which wasn't agreed on")]
    Structured,
    #[error("a simple answer to a read, where a structured one was agreed on")]
    Simple,
    #[error("a chunk of kind {kind:#x} with {length} bytes")]
    Chunk { kind: u16, length: u32 },
    #[error("data for {length} bytes at {offset}, outside of what was asked for")]
    Outside { offset: u64, length: u64 },
    #[error("the answer to a read has {got} bytes of {wanted}")]
    Incomplete { got: usize, wanted: usize },
}

impl From<Violation> for Broken {
    fn from(violation: Violation) -> Self {
        Broken::Violation(violation)
    }
}

/// No chunk that a client has asked for is longer: the largest read, and its offset.
const CHUNK_LIMIT: u32 = (64 << 20) + 8;

/// Takes answers until the connection ends. After nonsense it waits until the server has hung up: before that, requests
/// may still be under way there (invariant 3).
pub(super) fn receive(shared: &Shared, socket: &Socket, structured: bool) -> Broken {
    let mut inbox = Inbox::new(socket);
    loop {
        match next_answer(shared, &mut inbox, structured) {
            Ok(()) => {}
            Err(broken @ Broken::Violation(_)) => {
                socket.shutdown(Shutdown::Write);
                inbox.drain();
                return broken;
            }
            Err(broken) => return broken,
        }
    }
}

fn next_answer(shared: &Shared, inbox: &mut Inbox<'_>, structured: bool) -> Result<(), Broken> {
    match u32_at(inbox.next(4)?, 0) {
        SIMPLE_REPLY_MAGIC => simple(shared, inbox, structured),
        STRUCTURED_REPLY_MAGIC if structured => chunk(shared, inbox),
        STRUCTURED_REPLY_MAGIC => Err(Violation::Structured.into()),
        other => Err(Violation::Magic(other).into()),
    }
}

fn simple(shared: &Shared, inbox: &mut Inbox<'_>, structured: bool) -> Result<(), Broken> {
    let header = inbox.next(SIMPLE_SIZE)?;
    let (error, cookie) = (u32_at(header, 4), u64_at(header, 8));
    let length = match shared.lock().pending.get(&cookie) {
        None => return Err(Violation::Stranger(cookie).into()),
        Some(pending) if structured && pending.operation.answer_length() > 0 => return Err(Violation::Simple.into()),
        Some(pending) => pending.operation.answer_length(),
    };
    if error == wire::ESHUTDOWN {
        inbox.consume(SIMPLE_SIZE);
        shared.lock().postpone(cookie);
        return Ok(());
    }
    if error != 0 {
        finish(shared, cookie, Err(wire::errno(error)));
        inbox.consume(SIMPLE_SIZE);
        return Ok(());
    }
    let whole = inbox.next(SIMPLE_SIZE + length)?;
    finish(shared, cookie, Ok(&whole[SIMPLE_SIZE..]));
    inbox.consume(SIMPLE_SIZE + length);
    Ok(())
}

/// One chunk of a structured reply. The usual read comes as one, and goes to its asker without a copy.
fn chunk(shared: &Shared, inbox: &mut Inbox<'_>) -> Result<(), Broken> {
    let header = inbox.next(CHUNK_SIZE)?;
    let (flags, kind) = (u16_at(header, 4), u16_at(header, 6));
    let (cookie, length) = (u64_at(header, 8), u32_at(header, 16));
    if length > CHUNK_LIMIT {
        return Err(Violation::Chunk { kind, length }.into());
    }
    if !shared.lock().pending.contains_key(&cookie) {
        return Err(Violation::Stranger(cookie).into());
    }
    let size = CHUNK_SIZE + length as usize;
    let body = &inbox.next(size)?[CHUNK_SIZE..];
    let last = flags & wire::chunk::DONE != 0;
    let mut exchange = shared.lock();
    let Some(pending) = exchange.pending.get_mut(&cookie) else { return Err(Violation::Stranger(cookie).into()) };
    if last && kind == wire::chunk::OFFSET_DATA && pending.is_all(body) {
        drop(exchange);
        finish(shared, cookie, Ok(&body[8..]));
    } else {
        let postponed = pending.take(kind, length, body)?;
        if postponed {
            exchange.postpone(cookie);
        } else if last {
            finish_assembled(exchange, cookie)?;
        }
    }
    inbox.consume(size);
    Ok(())
}

impl Pending {
    /// Whether this data chunk is the whole answer.
    fn is_all(&self, body: &[u8]) -> bool {
        let wire::Operation::Read { offset, length } = self.operation else { return false };
        body.len() == 8 + length as usize && u64_at(body, 0) == offset && self.partial.is_untouched()
    }

    /// Adds a chunk to what is known. True if the server asks for patience.
    fn take(&mut self, kind: u16, length: u32, body: &[u8]) -> Result<bool, Violation> {
        let malformed = Violation::Chunk { kind, length };
        match kind {
            wire::chunk::NONE if length == 0 => {}
            wire::chunk::OFFSET_DATA if length > 8 => {
                let at = self.place(u64_at(body, 0), body.len() - 8)?;
                self.partial.bytes[at..at + body.len() - 8].copy_from_slice(&body[8..]);
            }
            wire::chunk::OFFSET_HOLE if length == 12 => {
                let hole = u32_at(body, 8) as usize;
                let at = self.place(u64_at(body, 0), hole)?;
                self.partial.bytes[at..at + hole].fill(0);
            }
            _ if kind & wire::chunk::IS_ERROR != 0 && length >= 6 => match u32_at(body, 0) {
                wire::ESHUTDOWN => return Ok(true),
                error => self.partial.error = Some(wire::errno(error)),
            },
            _ => return Err(malformed),
        }
        Ok(false)
    }

    /// Where in the answer so many bytes at this offset of the volume go.
    fn place(&mut self, offset: u64, length: usize) -> Result<usize, Violation> {
        let outside = Violation::Outside { offset, length: length as u64 };
        let wire::Operation::Read { offset: first, length: wanted } = self.operation else { return Err(outside) };
        let wanted = wanted as usize;
        let at = offset.checked_sub(first).and_then(|at| usize::try_from(at).ok()).filter(|&at| at < wanted);
        match at {
            Some(at) if length <= wanted - at => {
                self.partial.bytes.resize(wanted, 0);
                self.partial.covered += length;
                Ok(at)
            }
            _ => Err(outside),
        }
    }
}

impl super::client::Partial {
    fn is_untouched(&self) -> bool {
        self.covered == 0 && self.error.is_none()
    }
}

fn finish_assembled(mut exchange: std::sync::MutexGuard<'_, Exchange>, cookie: u64) -> Result<(), Violation> {
    let Some(pending) = exchange.pending.get(&cookie) else { return Ok(()) };
    let (got, wanted) = (pending.partial.covered, pending.operation.answer_length());
    if pending.partial.error.is_none() && got != wanted {
        return Err(Violation::Incomplete { got, wanted });
    }
    let Some(Pending { done, partial, .. }) = exchange.pending.remove(&cookie) else { return Ok(()) };
    drop(exchange);
    match partial.error {
        Some(error) => done(Err(error)),
        None => done(Ok(&partial.bytes)),
    }
    Ok(())
}

fn finish(shared: &Shared, cookie: u64, answer: Result<&[u8], Errno>) {
    let answered = shared.lock().pending.remove(&cookie);
    if let Some(answered) = answered {
        (answered.done)(answer);
    }
}
