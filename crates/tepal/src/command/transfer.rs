//! `tepal volume export` and `import`: a volume's bytes to and from a stream, in pieces over the API.
//!
//! Holes aren't sent: an export to a file leaves holes there, and an import has zeros freed instead of written. An image is
//! nothing but the volume's bytes; differences have a form of their own. Images of other systems are read through QEMU's tools.

mod already;
mod difference;
pub mod history;
mod image;
mod image_file;
mod input;
pub mod live;
mod mapped;
mod nbd;
mod rbd;
mod reader;
mod sink;
mod stream;
mod target;
mod writers;

use super::CommandError;
use super::source::Source;
use super::volume::ranges;
use crate::cli::{ExportArguments, Form, ImportArguments};
use crate::client::{Client, ClientError};
use crate::difference_file::{DifferenceError, MAGIC, begins_as_damaged};
use crate::output::Output;
use crate::rbd_stream;
use image::Begun;
use image_file::{Image, ImageError};
use input::Input;
use rbd::{Incoming, RbdError};
use reader::Reader;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use tepal_gateway::nbd::address::{Address, AddressError, is_address};
use tepal_server::api::types::{Range, SnapshotName, VolumeInfo};

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
    #[error("the input can't be read: {0}")]
    Input(io::Error),
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error(
        "--live reads from a server of NBD, nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH, and '{0}' is no such address: have \
         `qemu-nbd --read-only --persistent --shared=0` serve it"
    )]
    NotLive(String),
    #[error(
        "volume '{name}' isn't there as a whole yet: {reason}; it can be used, and the import goes on: `tepal volume show {name}` shows how \
         far it is"
    )]
    LiveHalfway { name: String, reason: String },
    #[error(
        "volume '{0}' is only partly here: its live import was cancelled, and what wasn't copied can't be read; `tepal volume resume {0}` has \
         it go on"
    )]
    LiveCancelled(String),
    #[error(transparent)]
    Rbd(Box<RbdError>),
    #[error("{address}: {error}")]
    Server { address: String, error: io::Error },
    #[error("{0} has differences or a sent volume, not an image: give it as standard input, with `< FILE`")]
    NotAnImage(String),
    #[error("what is on standard input has no room in {}, where it's kept until it's imported: set TMPDIR ({error})", .folder.display())]
    Spool { folder: PathBuf, error: io::Error },
    #[error(
        "volume '{name}' differs from what was imported, from byte {offset} on: if nobody has written to either meanwhile, import it again"
    )]
    Differs { name: String, offset: u64 },
    #[error("not all of {what} was written to standard output: {error}")]
    Output { what: String, error: io::Error },
    #[error(
        "{what} was removed when {done} of its {size} were read: standard output has a part of it, and nothing of what has its name now"
    )]
    SourceGone { what: String, done: String, size: String },
    #[error(
        "volume '{name}' was removed when {done} of the input were written to it: they are gone with it, and nothing is in what has \
         its name now"
    )]
    TargetGone { name: String, done: String },
    #[error(
        "volume '{name}' has {done} of the input, and the rest is not written: {error}; it's incomplete until an import of it ends, and \
         --resume goes on with one"
    )]
    Unwritten { name: String, done: String, error: ClientError },
    #[error(
        "volume '{name}' has {done} of the input, and the rest is not written: {error}; `tepal volume show {name}` says whether it's \
         incomplete"
    )]
    Overtaken { name: String, done: String, error: Box<ClientError> },
    #[error(
        "{what} can't be read from {offset} on: {error}; `tepal volume export --keep-going`, of all of it, writes all else, with zeros in \
         place of what is damaged"
    )]
    Damaged { what: String, offset: u64, error: ClientError },
    #[error(
        "{damaged} bytes of {what} are damaged on every copy that is here, and are zeros in what was written: {}",
        ranges(.blocks)
    )]
    KeptGoing { what: String, damaged: u64, blocks: Vec<Range> },
    #[error(
        "{bytes} of {what} are lost with drives that failed, from {offset} on: `tepal volume accept-loss` says more; \
         `tepal volume export --keep-going`, of all of it, writes all else, with zeros in place of what is lost"
    )]
    Lost { what: String, bytes: String, offset: u64 },
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
    #[error("volume '{0}' is whole, no import of it is to be gone on with: leave out --resume")]
    Whole(String),
    #[error(
        "differences are not gone on with, they are applied anew to what they are based on: leave out --resume for volume '{0}'"
    )]
    NothingToResume(String),
    #[error(
        "volume '{name}' has {done} of an import already, and the input is shorter: nothing is changed; give what was begun with"
    )]
    Shorter { name: String, done: String },
    #[error(
        "standard input ended after {done} of {size} bytes: volume '{name}' is incomplete until an import of it ends; \
         see whether what writes to this pipe has failed, and import it once more, or go on with --resume; one that is to be shorter has \
         its length in --size"
    )]
    EndsEarly { name: String, done: u64, size: u64 },
    #[error(
        "{what} became shorter while it was read, {done} instead of {size} bytes: volume '{name}' is incomplete until an import of it ends; \
         import it once more when nobody changes it"
    )]
    BecameShorter { what: String, name: String, done: u64, size: u64 },
    #[error(
        "{what} has {length} bytes, and --size says {size} for volume '{name}': nothing is changed; leave out --size, or say as much at least"
    )]
    LargerThanSaid { what: String, name: String, length: u64, size: u64 },
    #[error(
        "standard input goes on after the {size} bytes that --size says: those are written, the rest is not, and volume '{name}' is \
         incomplete until an import of it ends"
    )]
    LongerThanSaid { name: String, size: u64 },
    #[error(
        "volume '{0}' is incomplete, an import of it hasn't come to its end: end it by `tepal volume import {0} --resume`, or use --force"
    )]
    Incomplete(String),
    #[error(
        "volume '{name}' is a replica of {of}, and only replication writes to it: use --read-only, or clone one of its snapshots; \
         `tepal replicate promote {name}` makes it an ordinary volume, which ends the replication"
    )]
    Replica { name: String, of: String },
    #[error(
        "volume '{name}' is a replica of {of}, and has a part of a newer snapshot: use one of its own snapshots, which are whole \
         (`tepal snapshot ls {name}`), or --force"
    )]
    ReplicaHalfway { name: String, of: String },
    #[error(
        "volume '{0}' has a part of an image or of differences, and can't be compared with what these are based on: if they are the ones \
         that were begun with, apply them anew by --force"
    )]
    HalfChanged(String),
    #[error("standard input says itself how large volume '{0}' is to be: leave out --size")]
    SizeSaid(String),
    #[error("volume '{name}' has only a part of what is on standard input: {error}; import a whole one")]
    HalfImported { name: String, error: DifferenceError },
    #[error("volume '{name}' exists already and has {size}: leave out {option}, or name another volume")]
    Exists { name: String, size: String, option: &'static str },
    #[error(
        "{what} goes on after the {written} bytes that volume '{name}' has: those are written, the rest is not, and the volume is \
         incomplete: `tepal volume resize {name}`, then `tepal volume import {name} --resume` with the same input"
    )]
    TooLong { what: String, name: String, written: u64 },
    #[error("{what} gave {found} bytes at {offset} where {wanted} were asked for")]
    Short { what: String, offset: u64, wanted: u64, found: u64 },
    #[error(
        "standard input has differences, for a volume that exists: leave out {option}, which is for making volume '{name}'"
    )]
    OfDifferences { name: String, option: &'static str },
    #[error(
        "standard input begins as damaged differences do, and isn't taken for an image for volume '{0}': nothing is changed; export them \
         once more, or say that it's an image by --raw"
    )]
    DamagedBeginning(String),
    #[error("there is no snapshot '{0}': `tepal snapshot ls` lists those that there are")]
    NoSnapshot(SnapshotName),
    #[error(
        "volume '{0}' has no snapshots, and those are what is sent: `tepal snapshot create` makes one, `tepal volume export` writes the \
         volume itself"
    )]
    NothingToSend(String),
    #[error("nothing is sent: no snapshot up to '{last}' is newer than '{since}'")]
    NothingSince { last: SnapshotName, since: String },
    #[error("standard input has nothing to be received as volume '{name}', which is as before: {error}")]
    NotReceived { name: String, error: DifferenceError },
    #[error(
        "volume '{name}' has {made} of the {parts} snapshots on standard input: {error}; `tepal volume receive {name} --resume` goes on, with \
         a whole stream"
    )]
    Received { name: String, made: u32, parts: u32, error: DifferenceError },
    #[error("volume '{0}' exists, and isn't what an earlier `tepal volume receive` has begun: name another volume")]
    NotOfThis(String),
    #[error(
        "standard input goes on from snapshot '{0}', and there is none: send the volume from the beginning, or from a snapshot that was \
         received"
    )]
    NoBase(SnapshotName),
    #[error(
        "snapshot '{name}' has {found} bytes, and the one of that name that was sent has {wanted}: it's another one; name another volume"
    )]
    OtherSnapshot { name: SnapshotName, found: u64, wanted: u64 },
    #[error(
        "there is a snapshot '{0}' already, and nothing more is received: name another volume, or go on with what was begun by --resume"
    )]
    HasSnapshot(SnapshotName),
    #[error(
        "standard input is what `tepal volume send` has written: `tepal volume receive {0}` takes it, or use --raw"
    )]
    IsSent(String),
    #[error(
        "volume '{0}' is in use, an import writes to it: have that end first, or use --force, and that one ends with an error and isn't \
         written any further"
    )]
    Imported(String),
    #[error("standard input has differences that aren't applied to volume '{name}', which is as before: {error}")]
    Differences { name: String, error: DifferenceError },
    #[error("standard input has differences of which nothing is applied to volume '{name}', which is {is}: {error}")]
    NotBegun { name: String, is: String, error: DifferenceError },
    #[error(
        "volume '{name}' has only a part of the differences on standard input: {error}; bring it back to what '{since}' was, and import \
         a whole file"
    )]
    HalfApplied { name: String, since: String, error: DifferenceError },
    #[error(
        "volume '{name}' has {found}, and standard input is of one of {wanted} bytes: --shrink cuts off what is past that"
    )]
    TooLarge { name: String, found: String, wanted: u64 },
    #[error(
        "how long volume '{0}' would be can't be seen from an image in a pipe: leave out --shrink, and `tepal volume resize` it"
    )]
    ShrinkToWhat(String),
    #[error(
        "volume '{name}' has changed since its snapshot '{base}', on which these differences are based: \
         `tepal snapshot rollback {base}` first, or use --force"
    )]
    BaseChanged { name: String, base: SnapshotName },
}

impl TransferError {
    /// Of a volume that has a part of something.
    pub fn incomplete(volume: &VolumeInfo) -> Self {
        Self::of_a_part(volume.name.clone(), volume.replica.as_ref().map(|replica| replica.called.clone()))
    }

    fn of_a_part(name: String, replica_of: Option<String>) -> Self {
        match replica_of {
            Some(of) => TransferError::ReplicaHalfway { name, of },
            None => TransferError::Incomplete(name),
        }
    }
}

/// What is imported without `--from`.
const STANDARD_INPUT: &str = "standard input";
/// Bytes in one request.
const PIECE: u64 = 8 << 20;
/// Zeros of at least this length, at multiples of it, aren't sent.
pub const HOLE: usize = 64 << 10;

/// All of it, or what differs in it from a snapshot.
pub fn export(client: &Client, output: Output, arguments: ExportArguments) -> Result<(), CommandError> {
    let ExportArguments { name, since, form, keep_going, force } = arguments;
    let stdout = io::stdout();
    if stdout.is_terminal() {
        return Err(TransferError::ToTerminal(name.to_string()).into());
    }
    let file = File::from(stdout.as_fd().try_clone_to_owned()?);
    let source = Source::find(client, &name)?;
    if source.is_incomplete && !force {
        return Err(TransferError::of_a_part(source.name.volume().to_owned(), source.replica_of.clone()).into());
    }
    if source.is_cancelled {
        return Err(TransferError::LiveCancelled(source.name.volume().to_owned()).into());
    }
    let reader = Reader::new(&source, keep_going)?;
    match (since, form) {
        (None, Form::Raw) => image::export(&reader, file),
        (None, Form::Tepal) => stream::export(client, &reader, file),
        (since, Form::RbdDiff) => rbd::export(client, &reader, since, file),
        (Some(since), _) => difference::export(client, &reader, since, file),
    }?;
    reader.conclude(output)
}

pub fn is_zero(bytes: &[u8]) -> bool {
    // The first comparison ends most of them; the second is a memcmp of the bytes with themselves, one further on.
    bytes.first().is_none_or(|&first| first == 0 && bytes[1..] == bytes[..bytes.len() - 1])
}

pub fn import(client: &Client, output: Output, mut arguments: ImportArguments) -> Result<(), CommandError> {
    if let Some(from) = arguments.from.take() {
        if arguments.live {
            return live::import(client, output, arguments, from);
        }
        return import_from(client, output, arguments, &from);
    }
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return Err(TransferError::FromTerminal(arguments.name).into());
    }
    let mut input = File::from(stdin.as_fd().try_clone_to_owned()?);
    let place = place(&mut input);
    let beginning = beginning(&mut input).map_err(TransferError::Input)?;
    match &beginning[..] {
        _ if arguments.raw => {}
        begun if begun.starts_with(&MAGIC) => {
            return difference::import(client, output, arguments, &beginning, input, place.is_some());
        }
        begun if begun.starts_with(&history::MAGIC) => return Err(TransferError::IsSent(arguments.name).into()),
        begun if is_of_rbd(&arguments.name, begun)? => {
            return rbd::import(
                client,
                output,
                arguments,
                Incoming { file: input, beginning, is_file: place.is_some() },
            );
        }
        begun if begins_as_damaged(&begun[..MAGIC.len().min(begun.len())]) => {
            return Err(TransferError::DamagedBeginning(arguments.name).into());
        }
        _ => {}
    }
    if beginning.is_empty() {
        return Err(TransferError::Empty(arguments.name).into());
    }
    let begun = beginning.len();
    let length = place.map(|(from, end)| end.saturating_sub(from));
    let place = place.map(|(from, end)| (from + begun as u64, end));
    let content = Box::new(Input::new(input, &beginning, place));
    image::import(client, output, arguments, Begun { content, length, server: None, what: STANDARD_INPUT }, None)
}

/// As many of the first bytes as tell what it is.
fn beginning(input: &mut File) -> io::Result<Vec<u8>> {
    let mut beginning = vec![0; rbd_stream::BEGINNING];
    let begun = fill(input, &mut beginning)?;
    beginning.truncate(begun);
    Ok(beginning)
}

/// Whether something begins as a stream of `rbd`. An error if it began so before it was damaged.
fn is_of_rbd(name: &str, beginning: &[u8]) -> Result<bool, TransferError> {
    match rbd_stream::begins_as_damaged(beginning) {
        true => Err(RbdError::Beginning(name.to_owned()).into()),
        false => Ok(rbd_stream::Kind::of(beginning).is_some()),
    }
}

/// An image of any format, a stream of `rbd`, or what an NBD server has.
fn import_from<'a>(
    client: &Client,
    output: Output,
    arguments: ImportArguments,
    from: &'a str,
) -> Result<(), CommandError> {
    let begun = if is_address(from) { None } else { begun(from, &arguments)? };
    let begun = match begun {
        Some(begun) if is_of_rbd(&arguments.name, &begun.beginning)? => {
            return rbd::import(client, output, arguments, begun);
        }
        begun => begun,
    };
    let what = if from == "-" { STANDARD_INPUT } else { from };
    let spooled;
    let open: Box<dyn Fn() -> Result<Begun<'a>, CommandError> + 'a> = if is_address(from) {
        let address: Address = from.parse().map_err(TransferError::from)?;
        let of_server = |error| TransferError::Server { address: from.to_owned(), error };
        Box::new(move || {
            let (export, size) = nbd::open(&address).map_err(of_server)?;
            Ok(Begun { content: Box::new(export), length: Some(size), server: None, what: from })
        })
    } else {
        let path = if from == "-" {
            spooled = spool(begun)?;
            spooled.path()
        } else {
            Path::new(from)
        };
        let image = Image::look(path, arguments.format.as_deref(), arguments.backing).map_err(TransferError::from)?;
        Box::new(move || begin_image(&image, what))
    };
    let begun = open()?;
    let again = arguments.verify.then_some(&*open);
    image::import(client, output, arguments, begun, again)
}

fn begin_image<'a>(image: &Image, from: &'a str) -> Result<Begun<'a>, CommandError> {
    if let Some((mapped, size)) = image.mapped().map_err(TransferError::from)? {
        return Ok(Begun { content: Box::new(mapped), length: Some(size), server: None, what: from });
    }
    let Some(path) = image.raw() else {
        let (server, export, size) = image.serve().map_err(TransferError::from)?;
        return Ok(Begun { content: Box::new(export), length: Some(size), server: Some(server), what: from });
    };
    let of_file = |error| TransferError::Image(ImageError::File { path: path.to_owned(), error });
    let mut file = File::open(path).map_err(of_file)?;
    let mut beginning = vec![0; MAGIC.len()];
    let begun = fill(&mut file, &mut beginning).map_err(of_file)?;
    if beginning == MAGIC || beginning == history::MAGIC {
        return Err(TransferError::NotAnImage(from.to_owned()).into());
    } else if begun == 0 {
        return Err(of_file(io::Error::other("it's empty")).into());
    }
    // Of a disk, the length is where its end is.
    let end = file.seek(io::SeekFrom::End(0)).map_err(of_file)?;
    file.rewind().map_err(of_file)?;
    let content = Box::new(Input::new(file, &[], Some((0, end))));
    Ok(Begun { content, length: Some(end), server: None, what: from })
}

/// What is to be imported, if its beginning tells what it is: a block device, and what somebody says the format of, is no stream.
fn begun(from: &str, arguments: &ImportArguments) -> Result<Option<Incoming>, TransferError> {
    let mut file = match from {
        "-" => piped()?,
        path => match File::open(path) {
            Ok(file) => file,
            Err(_) => return Ok(None), // which is told of by what reads images
        },
    };
    let kind = file.metadata().map_err(TransferError::Input)?.file_type();
    let is_stream = arguments.format.is_none() && (kind.is_file() || kind.is_fifo() || kind.is_socket());
    if !is_stream && from != "-" {
        return Ok(None);
    }
    let place = place(&mut file);
    let beginning = if is_stream { beginning(&mut file).map_err(TransferError::Input)? } else { Vec::new() };
    Ok(Some(Incoming { file, beginning, is_file: place.is_some() }))
}

fn piped() -> Result<File, TransferError> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return Err(TransferError::Input(io::Error::other(
            "standard input is a terminal: give an image, as in `< FILE`",
        )));
    }
    Ok(File::from(stdin.as_fd().try_clone_to_owned().map_err(TransferError::Input)?))
}

/// Standard input as a file, for formats whose beginning says where the rest is.
fn spool(begun: Option<Incoming>) -> Result<tempfile::NamedTempFile, CommandError> {
    let no_room = |error| TransferError::Spool { folder: std::env::temp_dir(), error };
    let mut file = tempfile::Builder::new().prefix("tepal-import-").tempfile().map_err(no_room)?;
    if let Some(Incoming { file: input, beginning, .. }) = begun {
        io::copy(&mut beginning.chain(input), &mut file).map_err(no_room)?;
    }
    Ok(file)
}

/// Where a regular file is read from, and where it ends.
fn place(input: &mut File) -> Option<(u64, u64)> {
    let found = input.metadata().ok().filter(|found| found.is_file())?;
    Some((input.stream_position().ok()?, found.len()))
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
