//! Replies as bytes: simple ones, or structured where the client asked for those (specification, "Simple reply message",
//! "Structured reply chunk message").

use super::execute::{Finished, Outcome};
use super::outbox::Outbox;
use super::request::Failure;
use super::wire::{MAX_STRING, allocation, chunk, chunk_header, simple_reply};
use crate::disk::Run;

/// The id by which replies name `base:allocation`.
pub const ALLOCATION_CONTEXT: u32 = 1;

/// Queues the reply to a request.
pub fn put_reply(outbox: &mut Outbox, structured: bool, finished: Finished) {
    let cookie = finished.cookie;
    match finished.outcome {
        Outcome::Done => outbox.put(&simple_reply(0, cookie)),
        Outcome::Data { segments, .. } if !structured => {
            outbox.put(&simple_reply(0, cookie));
            segments.into_iter().for_each(|segment| outbox.put_shared(segment));
        }
        // A chunk of data must not be empty.
        Outcome::Data { segments, .. } if segments.is_empty() => {
            outbox.put(&chunk_header(chunk::DONE, chunk::NONE, cookie, 0));
        }
        Outcome::Data { offset, segments } => {
            let length: usize = segments.iter().map(|segment| segment.len()).sum();
            let mut head = [0; 28];
            head[..20].copy_from_slice(&chunk_header(chunk::DONE, chunk::OFFSET_DATA, cookie, (8 + length) as u32));
            head[20..].copy_from_slice(&offset.to_be_bytes());
            outbox.put(&head);
            segments.into_iter().for_each(|segment| outbox.put_shared(segment));
        }
        Outcome::Status(runs) => put_status(outbox, cookie, &runs),
        Outcome::Failed(failure) => put_failure(outbox, structured, cookie, &failure),
    }
}

fn put_status(outbox: &mut Outbox, cookie: u64, runs: &[Run]) {
    outbox.put(&chunk_header(chunk::DONE, chunk::BLOCK_STATUS, cookie, 4 + 8 * runs.len() as u32));
    outbox.put(&ALLOCATION_CONTEXT.to_be_bytes());
    for run in runs {
        // Never cut short: the runs of one answer are together no longer than the request, whose length is 32 bits.
        let length = run.length as u32;
        let flags = if run.mapped { 0 } else { allocation::HOLE | allocation::ZERO };
        outbox.put(&length.to_be_bytes());
        outbox.put(&flags.to_be_bytes());
    }
}

pub fn put_failure(outbox: &mut Outbox, structured: bool, cookie: u64, failure: &Failure) {
    let code = failure.code as u32;
    if !structured {
        return outbox.put(&simple_reply(code, cookie));
    }
    let message = &failure.message[..failure.message.floor_char_boundary(MAX_STRING)];
    let (kind, tail) = match failure.offset {
        None => (chunk::ERROR, 0),
        Some(_) => (chunk::ERROR_OFFSET, 8),
    };
    outbox.put(&chunk_header(chunk::DONE, kind, cookie, (6 + message.len() + tail) as u32));
    outbox.put(&code.to_be_bytes());
    outbox.put(&(message.len() as u16).to_be_bytes());
    outbox.put(message.as_bytes());
    if let Some(offset) = failure.offset {
        outbox.put(&offset.to_be_bytes());
    }
}
