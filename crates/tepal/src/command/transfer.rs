//! `tepal volume export` and `import`: a volume's bytes to and from a stream, in pieces over the API.
//!
//! Holes aren't sent: an export to a file leaves holes there, and an import has zeros freed instead of written. An image is
//! nothing but the volume's bytes; differences have a form of their own.

mod difference;
mod image;
mod sink;
mod target;

use super::CommandError;
use super::source::Source;
use crate::cli::ImportArguments;
use crate::client::{Client, ClientError};
use crate::difference_file::{DifferenceError, MAGIC, begins_as_damaged};
use crate::output::{self, Output};
use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek};
use std::os::fd::AsFd;
use tepal_server::api::types::{SnapshotName, SourceName};

#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error(
        "a volume's bytes are nothing for a terminal: send them to a file or a command, as in `tepal volume export {0} > FILE`"
    )]
    ToTerminal(String),
    #[error(
        "standard input is a terminal: give the bytes from a file or a command, as in `tepal volume import {0} < FILE`"
    )]
    FromTerminal(String),
    #[error("standard input: {0}")]
    Input(io::Error),
    #[error("not all of {what} was written to standard output: {error}")]
    Output { what: String, error: io::Error },
    #[error(
        "{what} was removed when {done} of its {size} were read: standard output has a part of it, and nothing of what has its name now"
    )]
    SourceGone { what: String, done: String, size: String },
    #[error(
        "volume '{name}' was removed when {done} of standard input were written to it: they are gone with it, and nothing is in what has \
         its name now"
    )]
    TargetGone { name: String, done: String },
    #[error("volume '{name}' has {done} of standard input, and the rest is not written: {error}")]
    Unwritten { name: String, done: String, error: ClientError },
    #[error("{what} can't be read from {offset} on: {error}")]
    Unreadable { what: String, offset: u64, error: ClientError },
    #[error(
        "there is no volume '{0}', and how large it should be can't be seen from a pipe: add --size, or create it first"
    )]
    SizeUnknown(String),
    #[error(
        "standard input has no bytes for volume '{0}': nothing is changed; see whether what writes to this pipe has failed"
    )]
    Empty(String),
    #[error("volume '{name}' exists already and has {size}: leave out {option}, or name another volume")]
    Exists { name: String, size: String, option: &'static str },
    #[error(
        "standard input goes on after the {written} bytes that volume '{name}' has: those are written, the rest is not; \
         make it larger with `tepal volume resize`"
    )]
    TooLong { name: String, written: u64 },
    #[error("{what} gave {found} bytes at {offset} where {wanted} were asked for")]
    Short { what: String, offset: u64, wanted: u64, found: u64 },
    #[error(
        "standard input has differences, for a volume that exists: leave out {option}, which is for making volume '{name}'"
    )]
    OfDifferences { name: String, option: &'static str },
    #[error(
        "standard input begins as damaged differences do, and isn't taken for an image for volume '{0}': nothing is changed; export them once more"
    )]
    Damaged(String),
    #[error("standard input has an image for volume '{0}', and no differences: leave out --force")]
    NothingToForce(String),
    #[error("standard input has differences that aren't applied to volume '{name}', which is as before: {error}")]
    Differences { name: String, error: DifferenceError },
    #[error(
        "volume '{name}' has only a part of the differences on standard input: {error}; bring it back to what '{since}' was, and import \
         a whole file"
    )]
    HalfApplied { name: String, since: String, error: DifferenceError },
    #[error(
        "volume '{name}' has {found}, and these differences lead to one of {wanted} bytes: \
         `tepal volume resize {name} {wanted}{shrink}` first"
    )]
    OtherSize { name: String, found: String, wanted: u64, shrink: &'static str },
    #[error(
        "volume '{name}' has changed since its snapshot '{base}', on which these differences are based: \
         `tepal snapshot rollback {base}` first, or use --force"
    )]
    BaseChanged { name: String, base: SnapshotName },
}

/// Bytes in one request.
const PIECE: u64 = 8 << 20;
/// Zeros of at least this length, at multiples of it, aren't sent.
const HOLE: usize = 64 << 10;
/// All of it, or what differs in it from a snapshot.
pub fn export(client: &Client, source: &SourceName, since: Option<String>) -> Result<(), CommandError> {
    let output = io::stdout();
    if output.is_terminal() {
        return Err(TransferError::ToTerminal(source.to_string()).into());
    }
    let file = File::from(output.as_fd().try_clone_to_owned()?);
    let source = Source::find(client, source)?;
    match since {
        None => image::export(&source, file),
        Some(since) => difference::export(client, &source, since, file),
    }
}

fn read(source: &Source<'_>, offset: u64, length: u64) -> Result<Vec<u8>, TransferError> {
    let bytes = source.read(offset, length).map_err(|error| unreadable(source, offset, error))?;
    match bytes.len() as u64 {
        found if found == length => Ok(bytes),
        found => Err(TransferError::Short { what: source.described(), offset, wanted: length, found }),
    }
}

/// Why it isn't read from there on.
fn unreadable(source: &Source<'_>, offset: u64, error: ClientError) -> TransferError {
    let what = source.described();
    match error.is_not_found() {
        true => TransferError::SourceGone { what, done: output::size(offset), size: output::size(source.size) },
        false => TransferError::Unreadable { what, offset, error },
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    // The first comparison ends most of them; the second is a memcmp of the bytes with themselves, one further on.
    bytes.first().is_none_or(|&first| first == 0 && bytes[1..] == bytes[..bytes.len() - 1])
}

pub fn import(client: &Client, output: Output, arguments: ImportArguments) -> Result<(), CommandError> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return Err(TransferError::FromTerminal(arguments.name).into());
    }
    let mut input = File::from(stdin.as_fd().try_clone_to_owned()?);
    let length = remaining(&mut input);
    let mut beginning = vec![0; MAGIC.len()];
    let begun = fill(&mut input, &mut beginning).map_err(TransferError::Input)?;
    beginning.truncate(begun);
    if beginning == MAGIC {
        return difference::import(client, output, arguments, &beginning, input, length.is_some());
    } else if begins_as_damaged(&beginning) {
        return Err(TransferError::Damaged(arguments.name).into());
    } else if beginning.is_empty() {
        return Err(TransferError::Empty(arguments.name).into());
    }
    if arguments.force {
        return Err(TransferError::NothingToForce(arguments.name).into());
    }
    image::import(client, output, arguments, (&beginning[..]).chain(input), length)
}

/// Bytes from here to the end of a regular file.
fn remaining(input: &mut File) -> Option<u64> {
    let found = input.metadata().ok().filter(|found| found.is_file())?;
    Some(found.len().saturating_sub(input.stream_position().ok()?))
}

/// Reads until the buffer is full or the input ends.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_known_as_zeros() {
        let mut bytes = vec![0; 4096];
        assert!(is_zero(&bytes) && is_zero(&[]) && is_zero(&[0]));
        for at in [0, 1, 2047, 4095] {
            bytes[at] = 1;
            assert!(!is_zero(&bytes), "byte {at}");
            bytes[at] = 0;
        }
        assert!(!is_zero(&[7; 4096]));
    }
}
