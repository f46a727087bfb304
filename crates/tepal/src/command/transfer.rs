//! `tepal volume export` and `import`: a volume's bytes to and from a stream, in pieces over the API.
//!
//! Holes aren't sent: an export to a file leaves holes there, and an import has zeros freed instead of written. An image is
//! nothing but the volume's bytes; differences have a form of their own.

mod difference;

use super::CommandError;
use crate::cli::ImportArguments;
use crate::client::{Client, ClientError};
use crate::difference_file::{DifferenceError, MAGIC, begins_as_damaged};
use crate::output::{self, Output, Progress};
use serde_json::json;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use tepal_server::api::types::{
    CreateVolume, Done, MapRun, Range, SnapshotInfo, SnapshotName, SourceName, VolumeInfo, path, route,
};

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
/// As far as is looked ahead for holes.
const LOOK_AHEAD: u64 = 1 << 40;

/// All of it, or what differs in it from a snapshot.
pub fn export(client: &Client, source: &SourceName, since: Option<String>) -> Result<(), CommandError> {
    match since {
        None => image(client, source),
        Some(since) => difference::export(client, source, since),
    }
}

/// As an error names it.
fn described(source: &SourceName) -> String {
    match source {
        SourceName::Volume(name) => format!("volume '{name}'"),
        SourceName::Snapshot(name) => format!("snapshot '{name}'"),
    }
}

fn standard_output(source: &SourceName) -> Result<File, CommandError> {
    let output = io::stdout();
    if output.is_terminal() {
        return Err(TransferError::ToTerminal(source.to_string()).into());
    }
    Ok(File::from(output.as_fd().try_clone_to_owned()?))
}

fn image(client: &Client, source: &SourceName) -> Result<(), CommandError> {
    let file = standard_output(source)?;
    let (size, map) = match source {
        SourceName::Volume(name) => {
            let volume: VolumeInfo = client.get(&path(route::VOLUME, name))?;
            (volume.size, route::VOLUME_MAP)
        }
        SourceName::Snapshot(name) => {
            let snapshot: SnapshotInfo = client.get(&path(route::SNAPSHOT, &name.to_string()))?;
            (snapshot.size, route::SNAPSHOT_MAP)
        }
    };
    let map = path(map, &source.to_string());
    // Also if who reads it has gone: what it has then is no volume.
    let cut_off = |error| TransferError::Output { what: described(source), error };
    let mut sink = Sink::new(file);
    let mut progress = Progress::new(format!("exporting {source}"));
    let mut offset = 0;
    while offset < size {
        let length = (size - offset).min(LOOK_AHEAD);
        let runs: Vec<MapRun> = client.get(&format!("{map}?offset={offset}&length={length}"))?;
        for run in runs {
            let end = size.min(offset.saturating_add(run.length));
            while offset < end {
                let piece = (end - offset).min(PIECE);
                if run.mapped {
                    sink.write(&read(client, source, offset, piece)?).map_err(cut_off)?;
                } else {
                    sink.skip(piece).map_err(cut_off)?;
                }
                offset += piece;
                progress.set(offset, size);
            }
        }
    }
    Ok(sink.finish().map_err(cut_off)?)
}

fn read(client: &Client, source: &SourceName, offset: u64, length: u64) -> Result<Vec<u8>, CommandError> {
    let data = match source {
        SourceName::Volume(_) => route::VOLUME_DATA,
        SourceName::Snapshot(_) => route::SNAPSHOT_DATA,
    };
    let asked = client.get_bytes(&format!("{}?offset={offset}&length={length}", path(data, &source.to_string())));
    let bytes = asked.map_err(|error| TransferError::Unreadable { what: described(source), offset, error })?;
    match bytes.len() as u64 {
        found if found == length => Ok(bytes),
        found => Err(TransferError::Short { what: described(source), offset, wanted: length, found }.into()),
    }
}

/// Where an export goes. In a regular file that is empty from here on, zeros are skipped; anything else gets them.
struct Sink {
    file: File,
    way: Way,
}

enum Way {
    Stream,
    /// The end so far is a hole that the file's length doesn't cover yet.
    Sparse {
        pending: u64,
    },
}

impl Sink {
    fn new(mut file: File) -> Self {
        let at_the_end = |file: &mut File| -> io::Result<bool> {
            let found = file.metadata()?;
            // With O_APPEND, writes go to the end wherever one seeks.
            let flags = nix::fcntl::fcntl(&*file, nix::fcntl::FcntlArg::F_GETFL)?;
            let appends = flags & nix::libc::O_APPEND != 0;
            Ok(found.is_file() && !appends && file.stream_position()? >= found.len())
        };
        let way = if at_the_end(&mut file).unwrap_or(false) { Way::Sparse { pending: 0 } } else { Way::Stream };
        Sink { file, way }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Way::Sparse { .. } = self.way else { return self.file.write_all(bytes) };
        for piece in bytes.chunks(HOLE) {
            if is_zero(piece) {
                self.skip(piece.len() as u64)?;
            } else {
                self.settle()?;
                self.file.write_all(piece)?;
            }
        }
        Ok(())
    }

    fn skip(&mut self, length: u64) -> io::Result<()> {
        match &mut self.way {
            Way::Sparse { pending } => *pending += length,
            Way::Stream => {
                static ZEROS: [u8; HOLE] = [0; HOLE];
                let mut left = length;
                while left > 0 {
                    let piece = left.min(HOLE as u64);
                    self.file.write_all(&ZEROS[..piece as usize])?;
                    left -= piece;
                }
            }
        }
        Ok(())
    }

    fn settle(&mut self) -> io::Result<()> {
        if let Way::Sparse { pending } = &mut self.way
            && let Ok(forward) = i64::try_from(std::mem::take(pending))
            && forward > 0
        {
            self.file.seek(SeekFrom::Current(forward))?;
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        self.settle()?;
        if let Way::Sparse { .. } = self.way {
            let end = self.file.stream_position()?;
            if self.file.metadata()?.len() < end {
                self.file.set_len(end)?;
            }
        }
        self.file.flush()
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
    let mut input = (&beginning[..]).chain(input);
    let name = arguments.name.clone();
    let volume = target(client, arguments, length)?;
    let mut progress = Progress::new(format!("importing {name}"));
    let mut buffer = vec![0; PIECE as usize];
    let mut offset = 0;
    loop {
        let filled = fill(&mut input, &mut buffer).map_err(TransferError::Input)?;
        let room = volume.size - offset;
        let fitting = room.min(filled as u64);
        write(client, &name, offset, &buffer[..fitting as usize])?;
        offset += fitting;
        progress.set(offset, length.unwrap_or(volume.size));
        if fitting < filled as u64 {
            return Err(TransferError::TooLong { name, written: offset }.into());
        }
        if filled < buffer.len() {
            break;
        }
    }
    let _: Done = client.post(&path(route::VOLUME_FLUSH, &name), &json!({}))?;
    drop(progress);
    let volume: VolumeInfo = client.get(&path(route::VOLUME, &name))?;
    output.show(&volume, |_| format!("{} are in volume {name}", output::size(offset)))?;
    Ok(())
}

/// Bytes from here to the end of a regular file.
fn remaining(input: &mut File) -> Option<u64> {
    let found = input.metadata().ok().filter(|found| found.is_file())?;
    Some(found.len().saturating_sub(input.stream_position().ok()?))
}

/// The volume to write to: the one there is, or a new one.
fn target(client: &Client, arguments: ImportArguments, length: Option<u64>) -> Result<VolumeInfo, CommandError> {
    let ImportArguments { name, size, layout, pool, .. } = arguments;
    match client.get::<VolumeInfo>(&path(route::VOLUME, &name)) {
        Ok(volume) => {
            let options = [(size.is_some(), "--size"), (layout.is_some(), "--layout"), (pool.is_some(), "--pool")];
            match options.into_iter().find(|(given, _)| *given) {
                None => Ok(volume),
                Some((_, option)) => {
                    Err(TransferError::Exists { name, size: output::size(volume.size), option }.into())
                }
            }
        }
        Err(error) if error.is_not_found() => {
            let size = match (size, length) {
                (Some(size), _) => size,
                // A volume's size is a multiple of 512.
                (None, Some(length)) => length.next_multiple_of(512),
                (None, None) => return Err(TransferError::SizeUnknown(name).into()),
            };
            let request = CreateVolume { name, size, layout: layout.map(|layout| layout.to_string()), pool };
            Ok(client.post(route::VOLUMES, &request)?)
        }
        Err(error) => Err(error.into()),
    }
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

/// Writes a piece: its zeros as zeros, the rest as data.
fn write(client: &Client, name: &str, offset: u64, bytes: &[u8]) -> Result<(), ClientError> {
    let zeros: Vec<bool> = bytes.chunks(HOLE).map(is_zero).collect();
    let mut chunk = 0;
    while chunk < zeros.len() {
        let same = zeros[chunk..].iter().take_while(|zero| **zero == zeros[chunk]).count();
        let (from, to) = (chunk * HOLE, ((chunk + same) * HOLE).min(bytes.len()));
        let at = offset + from as u64;
        let _: Done = if zeros[chunk] {
            client.post(&path(route::VOLUME_ZERO, name), &Range { offset: at, length: (to - from) as u64 })?
        } else {
            client.put_bytes(&format!("{}?offset={at}", path(route::VOLUME_DATA, name)), &bytes[from..to])?
        };
        chunk += same;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

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

    /// Two megabytes of holes around one piece of data, with a zero byte where a hole can't be.
    fn put(sink: &mut Sink) -> Vec<u8> {
        let mut bytes = vec![0; 3 * HOLE];
        bytes[HOLE + 5] = 9;
        sink.skip(1 << 20).expect("space");
        sink.write(&bytes).expect("space");
        sink.skip(1 << 20).expect("space");
        [vec![0; 1 << 20], bytes, vec![0; 1 << 20]].concat()
    }

    #[test]
    fn holes_stay_holes_in_an_empty_file() {
        let file = tempfile::NamedTempFile::new().expect("space");
        let mut sink = Sink::new(file.reopen().expect("there"));
        let expected = put(&mut sink);
        sink.finish().expect("space");
        assert_eq!(std::fs::read(file.path()).expect("there"), expected);
        assert!(file.as_file().metadata().expect("there").blocks() * 512 < 1 << 20);
    }

    #[test]
    fn in_a_file_that_has_bytes_already_holes_are_written_as_zeros() {
        let mut file = tempfile::NamedTempFile::new().expect("space");
        file.write_all(&vec![0xff; 4 << 20]).expect("space");
        let mut sink = Sink::new(file.reopen().expect("there"));
        let expected = put(&mut sink);
        sink.finish().expect("space");
        assert_eq!(std::fs::read(file.path()).expect("there")[..expected.len()], expected);
    }

    #[test]
    fn a_pipe_gets_every_zero() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let reading = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).map(|_| bytes)
        });
        let mut sink = Sink::new(File::from(std::os::fd::OwnedFd::from(writer)));
        let expected = put(&mut sink);
        sink.finish().expect("a reader");
        assert_eq!(reading.join().expect("no panic").expect("readable"), expected);
    }
}
