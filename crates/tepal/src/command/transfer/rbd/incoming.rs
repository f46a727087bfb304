//! A stream of `rbd`, written to a volume part by part: each part is one snapshot's content, which is kept as the volume's own snapshot.
//!
//! A part that is based on a snapshot is only written to a volume that holds what its own snapshot of that name does, and a part that fails
//! is rolled back to that. While it's written, the volume is incomplete. So the same command, given again, finds one of three: the base,
//! a volume that is incomplete and is rolled back to its base, or one that holds all of the part and lacks the snapshot.
//!
//! A file is read to its end before anything is written.

use super::{RbdError, made_of, verifying};
use crate::cli::ImportArguments;
use crate::client::{Client, ClientError};
use crate::command::CommandError;
use crate::command::source::Source;
use crate::command::transfer::already::{self, Changed};
use crate::command::transfer::target::{Target, Wanted, once_alone, resized};
use crate::command::transfer::{TransferError, input, spool};
use crate::difference_file::Piece;
use crate::output::{Output, Progress};
use crate::rbd_stream::{Header, Kind, StreamError, StreamReader};
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use tepal_server::api::types::{CreateSnapshot, Done, SnapshotInfo, SnapshotName, VolumeInfo, path, route};

/// What is read of the input at once.
const BUFFER: usize = 1 << 20;

/// A stream that was begun to be read.
pub struct Incoming {
    pub file: File,
    /// What was read of it already.
    pub beginning: Vec<u8>,
    /// It can be read twice.
    pub is_file: bool,
}

pub fn import(
    client: &Client,
    output: Output,
    arguments: ImportArguments,
    incoming: Incoming,
) -> Result<(), CommandError> {
    let name = arguments.name.clone();
    let options = [(arguments.size.is_some(), "--size"), (arguments.backing, "--backing")];
    if let Some((_, option)) = options.into_iter().find(|(given, _)| *given) {
        return Err(RbdError::Option { name, option }.into());
    }
    let verify = arguments.verify;
    let spooled;
    let incoming = match verify && !incoming.is_file {
        true => {
            spooled = spool(Some(incoming))?;
            Incoming { file: spooled.reopen().map_err(TransferError::Input)?, beginning: Vec::new(), is_file: true }
        }
        false => incoming,
    };
    let mut stream = Stream::of(incoming)?;
    let refused = |error| RbdError::Refused { name: name.clone(), error };
    let mut length = None;
    if let Some(end) = stream.end {
        let (mut reader, mut data) = (stream.reader()?.map_err(refused)?, Vec::new());
        let mut progress = Progress::new("checking the input");
        while reader.part().map_err(refused)?.is_some() {
            while reader.next(&mut data).map_err(refused)?.is_some() {
                progress.set(reader.at(), end);
            }
        }
        length = Some(reader.at());
    } else {
        input::widen(&stream.file);
    }
    let (id, reader) = (None, stream.reader()?.map_err(refused)?);
    let mut importer = Importer { client, arguments, reader, length, id, changed: 0, made: Vec::new(), had: 0 };
    importer.all()?;
    let volume: VolumeInfo = client.get(&path(route::VOLUME, importer.called()))?;
    let made = made_of(importer.changed, &importer.made, importer.had);
    drop(importer);
    let mut verified = "";
    if verify {
        let again = stream.reader()?.map_err(|error| RbdError::Unverified { name, error })?;
        verifying::compare(client, &volume, again)?;
        verified = ", and is the same there as where it came from";
    }
    output.show(&volume, |volume| format!("volume {}: {made}{verified}", volume.name))?;
    Ok(())
}

/// The input, to be read from where it begins: more than once only if it's a file.
struct Stream {
    file: File,
    beginning: Vec<u8>,
    /// Where what follows the beginning is.
    from: u64,
    /// Bytes of all of it, of a file.
    end: Option<u64>,
}

impl Stream {
    fn of(Incoming { mut file, beginning, is_file }: Incoming) -> Result<Self, TransferError> {
        let (mut from, mut end) = (0, None);
        if is_file {
            from = file.stream_position().map_err(TransferError::Input)?;
            let length = file.metadata().map_err(TransferError::Input)?.len();
            end = Some(length.saturating_sub(from) + beginning.len() as u64);
        }
        Ok(Stream { file, beginning, from, end })
    }

    fn reader(&mut self) -> Result<Result<StreamReader<impl Read>, StreamError>, TransferError> {
        if self.end.is_some() {
            self.file.seek(SeekFrom::Start(self.from)).map_err(TransferError::Input)?;
        }
        Ok(StreamReader::open(self.beginning.chain(BufReader::with_capacity(BUFFER, &self.file))))
    }
}

struct Importer<'a, R> {
    client: &'a Client,
    arguments: ImportArguments,
    reader: StreamReader<R>,
    /// Of the stream, if that is known.
    length: Option<u64>,
    /// Stands for the volume's name, once it was found or made.
    id: Option<String>,
    /// Bytes that the stream had for it.
    changed: u64,
    /// Snapshots that were made, and the number of those that there were already.
    made: Vec<String>,
    had: u32,
}

impl<R: Read> Importer<'_, R> {
    fn called(&self) -> &str {
        self.id.as_deref().unwrap_or(&self.arguments.name)
    }

    fn refused(&self, error: StreamError) -> CommandError {
        RbdError::Refused { name: self.arguments.name.clone(), error }.into()
    }

    fn all(&mut self) -> Result<(), CommandError> {
        while let Some(header) = self.reader.part().map_err(|error| self.broken(error))? {
            let volume = self.volume()?;
            if let Some(volume) = self.having(volume.as_ref(), &header)? {
                self.had += 1;
                self.compare(volume, &header)?;
                continue;
            }
            let volume = volume.map(|volume| once_alone(self.client, volume, self.arguments.force)).transpose()?;
            let volume = match &header.since {
                None => self.whole(volume, &header)?,
                Some(since) => self.differences(volume, since, &header)?,
            };
            self.id = Some(volume.by_id());
            if let Some(to) = &header.to {
                self.keep(&volume, to, header.size)?;
            }
        }
        Ok(())
    }

    /// Of a part that can't be begun, in a volume that is whole.
    fn broken(&self, error: StreamError) -> CommandError {
        match self.made.last() {
            None => self.refused(error),
            Some(last) => {
                let name = self.arguments.name.clone();
                let last = SnapshotName { volume: name.clone(), snapshot: last.clone() };
                RbdError::Stopped { name, last, error }.into()
            }
        }
    }

    fn volume(&self) -> Result<Option<VolumeInfo>, CommandError> {
        match self.client.get(&path(route::VOLUME, self.called())) {
            Ok(volume) => Ok(Some(volume)),
            Err(error) if error.is_not_found() && self.id.is_none() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The volume, if it has the snapshot that a part leads to, which is so where an import is gone on with.
    fn having<'v>(
        &self,
        volume: Option<&'v VolumeInfo>,
        header: &Header,
    ) -> Result<Option<&'v VolumeInfo>, CommandError> {
        let (Some(volume), Some(to)) = (volume, &header.to) else { return Ok(None) };
        match snapshot(volume, to) {
            Some(_) if self.reader.kind() == Kind::Image && self.arguments.resume => Ok(Some(volume)),
            Some(found) => Err(RbdError::HasSnapshot(found.full_name()).into()),
            None => Ok(None),
        }
    }

    /// Reads a part without writing it. What is there already is to be what the part has: another image isn't mixed with it.
    fn compare(&mut self, volume: &VolumeInfo, header: &Header) -> Result<(), CommandError> {
        match verifying::differs(self.client, volume, header, |data| self.next(data))? {
            None => Ok(()),
            Some((what, offset)) => Err(RbdError::OtherStream { name: volume.name.clone(), what, offset }.into()),
        }
    }

    /// A part that is all of an image, for a new volume or in the place of all that one has.
    fn whole(&mut self, volume: Option<VolumeInfo>, header: &Header) -> Result<VolumeInfo, CommandError> {
        let ImportArguments { layout, pool, key, resume, shrink, force, .. } = &self.arguments;
        let mut arguments = ImportArguments::of(self.called().to_owned());
        arguments.force = *force;
        let is_image = self.reader.kind() == Kind::Image;
        match volume {
            None => {
                (arguments.layout, arguments.pool, arguments.key) = (layout.clone(), pool.clone(), key.clone());
            }
            Some(volume) if !resume && is_image && !volume.snapshots.is_empty() => {
                return Err(RbdError::HasSnapshots(volume.name).into());
            }
            Some(volume) if *resume && volume.incomplete.is_none() => {
                let client = self.client;
                return match already::holds(client, &volume, (None, header.size), |data| self.next(data))? {
                    true => Ok(volume),
                    false => Err(RbdError::NotOfThis(volume.name).into()),
                };
            }
            Some(_) => {
                (arguments.layout, arguments.pool, arguments.key) = (layout.clone(), pool.clone(), key.clone());
                arguments.resume = *resume;
                arguments.shrink = *shrink || *resume;
            }
        }
        let target = Target::find_or_make(self.client, arguments, Wanted::Exactly(header.size))?;
        self.fill(target, header.size)
    }

    fn next(&mut self, data: &mut Vec<u8>) -> Result<Option<Piece>, CommandError> {
        self.reader.next(data).map_err(|error| self.refused(error))
    }

    /// What isn't in the part is zeros.
    fn fill(&mut self, mut target: Target<'_>, size: u64) -> Result<VolumeInfo, CommandError> {
        let name = target.name.clone();
        let mut progress = Progress::new(format!("importing {name}"));
        let (mut data, mut end) = (Vec::new(), 0);
        let broken = |error| RbdError::HalfImported { name: name.clone(), error };
        while let Some(piece) = self.reader.next(&mut data).map_err(broken)? {
            let (offset, length) = match piece {
                Piece::Data { offset } => (offset, data.len() as u64),
                Piece::Zeros { offset, length } => (offset, length),
            };
            target.zero(end, offset - end)?;
            match piece {
                Piece::Data { .. } if offset < target.resumed_at() => target.write_unless_there(offset, &data)?,
                Piece::Data { .. } => target.write(offset, &data)?,
                Piece::Zeros { .. } => target.zero(offset, length)?,
            }
            target.reached(offset + length)?;
            end = offset + length;
            self.changed += length;
            let (done, total) = self.length.map_or((end, size), |length| (self.reader.at(), length));
            progress.set(done, total);
        }
        target.zero(end, size - end)?;
        Ok(target.finish()?)
    }

    /// A part that is based on a snapshot, which the volume has too.
    fn differences(
        &mut self,
        volume: Option<VolumeInfo>,
        since: &str,
        header: &Header,
    ) -> Result<VolumeInfo, CommandError> {
        let ImportArguments { layout, pool, key, .. } = &self.arguments;
        let options = [(layout.is_some(), "--layout"), (pool.is_some(), "--pool"), (key.is_some(), "--key")];
        let volume = match volume {
            Some(volume) => volume,
            None => self.client.get(&path(route::VOLUME, self.called()))?, // which says that there is none
        };
        if let (Some((_, option)), None) = (options.into_iter().find(|(given, _)| *given), &self.id) {
            return Err(TransferError::OfDifferences { name: volume.name, option }.into());
        }
        self.id = Some(volume.by_id());
        let Some(base) = snapshot(&volume, since).cloned() else {
            let base = SnapshotName { volume: volume.name, snapshot: since.to_owned() };
            return Err(RbdError::NoBase(base).into());
        };
        if self.is_there(&volume, &base, header)? {
            return Ok(volume);
        }
        // It may have been rolled back.
        let volume: VolumeInfo = self.client.get(&path(route::VOLUME, self.called()))?;
        let volume = self.sized(volume, &base, header.size)?;
        let mut target = Target::of(self.client, volume)?;
        match self.apply(&mut target, header.size) {
            Ok(()) => target.finish().map_err(|error| unwritten(&target.name, &base, error)),
            Err(Broken::Stream(error)) => {
                let name = target.name.clone();
                drop(target);
                Err(self.undone(name, &base, error).into())
            }
            Err(Broken::Volume(error)) => Err(unwritten(&target.name, &base, error)),
        }
    }

    /// Whether all of a part is there, and only its snapshot is missing. Else the volume holds what its base does when this returns; an
    /// error if it holds something else.
    fn is_there(&mut self, volume: &VolumeInfo, base: &SnapshotInfo, header: &Header) -> Result<bool, CommandError> {
        if volume.incomplete.is_none() {
            let client = self.client;
            let (then, now) = (Source::of_snapshot(client, base.clone()), Source::of_volume(client, volume));
            let changed = Changed::look(client, &then, &now)?;
            if changed.is_none() && !changed.is_cut_off {
                return Ok(false);
            }
            // Also if it was only made smaller: no more is missing then than a snapshot, or what the part says of the rest.
            return match already::holds(client, volume, (Some(changed), header.size), |data| self.next(data))? {
                true => Ok(true),
                false => {
                    let (name, base) = (volume.name.clone(), base.full_name());
                    Err(RbdError::BaseChanged { name, base }.into())
                }
            };
        }
        let _: VolumeInfo = self.client.post(&path(route::SNAPSHOT_ROLLBACK, &base.by_id()), &Done {})?;
        let base = base.full_name();
        let _ = writeln!(
            std::io::stderr(),
            "volume {} was incomplete: it's rolled back to {base}, on which the input is based",
            volume.name
        );
        Ok(false)
    }

    /// The volume with the size that a part leads to. It's incomplete before anything is cut off.
    fn sized(&self, volume: VolumeInfo, base: &SnapshotInfo, size: u64) -> Result<VolumeInfo, CommandError> {
        if size >= volume.size {
            return resized(self.client, volume, Wanted::Exactly(size), false);
        }
        // Whoever imports to it has it in use, and it's not made smaller then.
        let name = volume.name.clone();
        drop(Target::of(self.client, volume.clone())?);
        let volume = resized(self.client, volume, Wanted::Exactly(size), true);
        Ok(volume.map_err(|error| half(&name, base, error.to_string()))?)
    }

    fn apply(&mut self, target: &mut Target<'_>, size: u64) -> Result<(), Broken> {
        let mut progress = Progress::new(format!("applying differences to {}", target.name));
        let mut data = Vec::new();
        while let Some(piece) = self.reader.next(&mut data).map_err(Broken::Stream)? {
            let (offset, length) = match piece {
                Piece::Data { offset } => (offset, data.len() as u64),
                Piece::Zeros { offset, length } => (offset, length),
            };
            match piece {
                Piece::Data { .. } => target.write(offset, &data),
                Piece::Zeros { .. } => target.zero(offset, length),
            }
            .map_err(Broken::Volume)?;
            self.changed += length;
            let (done, total) = self.length.map_or((offset + length, size), |length| (self.reader.at(), length));
            progress.set(done, total);
        }
        Ok(())
    }

    /// What is to be said of a stream that is no good, once the volume is what it was before.
    fn undone(&self, name: String, base: &SnapshotInfo, error: StreamError) -> RbdError {
        let back = self.client.post::<VolumeInfo>(&path(route::SNAPSHOT_ROLLBACK, &base.by_id()), &Done {});
        match back {
            Ok(_) if self.reader.kind() == Kind::Image => RbdError::Stopped { name, last: base.full_name(), error },
            Ok(_) => RbdError::RolledBack { name, base: base.full_name(), error },
            Err(_) => half(&name, base, error.to_string()),
        }
    }

    fn keep(&mut self, volume: &VolumeInfo, called: &str, size: u64) -> Result<(), CommandError> {
        let request = CreateSnapshot { volume: volume.by_id(), name: called.to_owned() };
        match self.client.post::<SnapshotInfo>(route::SNAPSHOTS, &request) {
            // It was made, and only the answer got lost.
            Err(error) if error.is_no_answer() && self.is_kept(volume, called, size)? => {}
            made => drop(made?),
        }
        self.made.push(called.to_owned());
        Ok(())
    }

    fn is_kept(&self, volume: &VolumeInfo, called: &str, size: u64) -> Result<bool, ClientError> {
        let now: VolumeInfo = self.client.get(&path(route::VOLUME, &volume.by_id()))?;
        Ok(snapshot(&now, called).is_some_and(|found| found.size == size))
    }
}

/// Why a part isn't written to its end.
enum Broken {
    Stream(StreamError),
    Volume(TransferError),
}

/// What else was done to the volume meanwhile says what it is now.
fn unwritten(name: &str, base: &SnapshotInfo, error: TransferError) -> CommandError {
    match error {
        TransferError::Unwritten { error, .. } => half(name, base, error.to_string()).into(),
        other => other.into(),
    }
}

fn half(name: &str, base: &SnapshotInfo, error: String) -> RbdError {
    RbdError::HalfApplied { name: name.to_owned(), base: base.full_name(), error }
}

pub(super) fn snapshot<'a>(of: &'a VolumeInfo, called: &str) -> Option<&'a SnapshotInfo> {
    of.snapshots.iter().find(|snapshot| snapshot.name == called)
}
