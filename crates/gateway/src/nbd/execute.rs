//! A request's way through the disk: from a checked command to what its reply says.

use super::request::{Command, Failure};
use super::wire::ErrorCode;
use crate::disk::{Run, VirtualDisk};
use bytes::Bytes;
use tepal_model::{IoError, MAX_REQUEST, Segments};

/// Runs in one answer to BLOCK_STATUS, at most.
pub const STATUS_RUNS: usize = 1024;

/// A request that has been let in.
#[derive(Debug)]
pub struct Job {
    pub cookie: u64,
    pub command: Command,
    /// Of a write.
    pub payload: Bytes,
    /// Bytes that it counts for while it is under way.
    pub cost: u64,
}

#[derive(Debug)]
pub struct Finished {
    pub cookie: u64,
    pub cost: u64,
    pub outcome: Outcome,
}

#[derive(Debug)]
pub enum Outcome {
    Done,
    Data { offset: u64, segments: Segments },
    Status(Vec<Run>),
    Failed(Failure),
}

/// What a request may make the server hold: payload received, or payload to be sent.
pub fn cost(command: &Command) -> u64 {
    match command {
        Command::Read { length, .. } | Command::Write { length, .. } => *length,
        Command::BlockStatus { .. } => (STATUS_RUNS * size_of::<Run>()) as u64,
        _ => 0,
    }
}

pub async fn execute<D: VirtualDisk>(disk: &D, job: Job) -> Finished {
    let Job { cookie, command, payload, cost } = job;
    let outcome = match outcome(disk, command, payload).await {
        Ok(outcome) => outcome,
        Err(error) => Outcome::Failed(failure(command, error)),
    };
    Finished { cookie, cost, outcome }
}

async fn outcome<D: VirtualDisk>(disk: &D, command: Command, payload: Bytes) -> Result<Outcome, IoError> {
    match command {
        Command::Read { offset, length: 0 } => return Ok(Outcome::Data { offset, segments: Segments::new() }),
        Command::Read { offset, length } => {
            let segments = disk.read(offset, length).await?;
            let got: u64 = segments.iter().map(|segment| segment.len() as u64).sum();
            assert_eq!(got, length, "a disk returns as many bytes as were asked of it");
            return Ok(Outcome::Data { offset, segments });
        }
        Command::BlockStatus { offset, length, one } => {
            let limit = if one { 1 } else { STATUS_RUNS };
            return Ok(Outcome::Status(block_status(disk, offset, length, limit).await?));
        }
        Command::Write { length: 0, .. } | Command::Trim { length: 0, .. } | Command::WriteZeroes { length: 0, .. } => {
        }
        Command::Cache | Command::Disconnect => {}
        Command::Write { offset, fua, .. } => disk.write(offset, payload, fua).await?,
        Command::Flush => disk.flush().await?,
        Command::Trim { offset, length, fua } => disk.trim(offset, length, fua).await?,
        Command::WriteZeroes { offset, length, allocate: false, fua } => {
            disk.write_zeroes(offset, length, false, fua).await?;
        }
        Command::WriteZeroes { offset, length, allocate: true, fua } => {
            for (offset, length) in pieces(offset, length) {
                disk.write_zeroes(offset, length, true, fua).await?;
            }
        }
    }
    Ok(Outcome::Done)
}

/// Zeros that take space, and questions, are of up to 4 GiB in one request of the protocol, but not in one of the disk.
fn pieces(offset: u64, length: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = offset + length;
    (offset..end).step_by(MAX_REQUEST as usize).map(move |at| (at, MAX_REQUEST.min(end - at)))
}

/// Runs from `offset`, at least one, at most `limit`, neighbours different.
async fn block_status<D: VirtualDisk>(disk: &D, offset: u64, length: u64, limit: usize) -> Result<Vec<Run>, IoError> {
    let mut runs: Vec<Run> = Vec::new();
    for (at, most) in pieces(offset, length) {
        let mut covered = 0;
        // One more than wanted may be needed, to see where the last run of an earlier piece ends.
        for run in disk.block_status(at, most, limit - runs.len() + 1).await? {
            covered += run.length;
            match runs.last_mut() {
                Some(last) if last.mapped == run.mapped => last.length += run.length,
                _ => runs.push(run),
            }
        }
        assert!(0 < covered && covered <= most, "a disk tells of at least one byte, and of none that wasn't asked for");
        if runs.len() > limit || covered < most {
            break;
        }
    }
    runs.truncate(limit);
    Ok(runs)
}

fn failure(command: Command, error: IoError) -> Failure {
    let (start, length, past_the_end) = match command {
        Command::Write { offset, length, .. } | Command::WriteZeroes { offset, length, .. } => {
            (offset, length, ErrorCode::NoSpace)
        }
        Command::Read { offset, length }
        | Command::Trim { offset, length, .. }
        | Command::BlockStatus { offset, length, .. } => (offset, length, ErrorCode::Invalid),
        Command::Flush | Command::Cache | Command::Disconnect => (0, 0, ErrorCode::Io),
    };
    let code = match &error {
        IoError::OutOfRange { .. } => past_the_end,
        IoError::Unaligned { .. } => ErrorCode::Invalid,
        IoError::ReadOnly | IoError::NotAllowed => ErrorCode::NotPermitted,
        IoError::OutOfSpace => ErrorCode::NoSpace,
        IoError::Damaged { .. }
        | IoError::Lost { .. }
        | IoError::Unavailable { .. }
        | IoError::Fenced
        | IoError::Unsure
        | IoError::NotNow => ErrorCode::Io,
        IoError::Stopping => ErrorCode::ShuttingDown,
    };
    // A place outside the request would be against the protocol: damage may be told for whole blocks.
    let place = match error {
        IoError::Damaged { offset, .. } | IoError::Lost { offset, .. } => {
            Some(offset.max(start)).filter(|&at| at - start < length)
        }
        _ => None,
    };
    Failure { code, offset: place, message: error.to_string().into() }
}
