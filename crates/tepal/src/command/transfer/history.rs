//! A volume with its snapshots in one stream: `volume send` and `volume receive`.
//!
//! The stream says how many parts follow. The first part is all of the oldest snapshot, or what differs in it from one that the receiver
//! has; each other part is what differs in a snapshot from the one before. The receiver makes each snapshot once its part was written.

use super::already::{self, Changed};
use super::difference::{self, as_it_was, header};
use super::input::widen;
use super::reader::Reader;
use super::target::once_alone;
use super::{TransferError, fill, rbd, stream};
use crate::cli::{ImportArguments, ReceiveArguments, SendArguments, SendForm};
use crate::client::Client;
use crate::command::CommandError;
use crate::command::source::Source;
use crate::difference_file::{DifferenceError, DifferenceReader, Header};
use crate::output::Output;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use tepal_codec::checksum::crc;
use tepal_server::api::types::{
    ClusterInfo, CreateSnapshot, Done, SnapshotInfo, SnapshotName, SourceName, VolumeInfo, path, route,
};

/// Begins every such stream.
pub const MAGIC: [u8; 8] = *b"TEPALsnd";
const FORMAT: u32 = 1;
/// Magic, format, parts, and the checksum of these.
const BEGINNING: usize = 20;

fn beginning(parts: u32) -> [u8; BEGINNING] {
    let mut bytes = [0; BEGINNING];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    bytes[12..16].copy_from_slice(&parts.to_le_bytes());
    let checksum = crc(&bytes[..16]);
    bytes[16..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// How many parts follow.
fn read_beginning(input: &mut impl Read) -> Result<u32, DifferenceError> {
    let mut bytes = [0; BEGINNING];
    let read = fill(input, &mut bytes).map_err(DifferenceError::Io)?;
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    if read < 8 || bytes[..8] != MAGIC {
        return Err(DifferenceError::Damaged("it doesn't begin as `tepal volume send` does"));
    } else if read < BEGINNING {
        return Err(DifferenceError::CutShort);
    } else if crc(&bytes[..16]) != number(16) {
        return Err(DifferenceError::Damaged("its beginning"));
    } else if number(8) != FORMAT {
        return Err(DifferenceError::Newer(number(8)));
    }
    Ok(number(12))
}

pub fn send(client: &Client, output: Output, arguments: SendArguments) -> Result<(), CommandError> {
    let SendArguments { name, since, form } = arguments;
    let stdout = io::stdout();
    if stdout.is_terminal() {
        return Err(TransferError::ToTerminal(name.to_string()).into());
    }
    let file = File::from(stdout.as_fd().try_clone_to_owned()?);
    let cluster: ClusterInfo = client.get(route::CLUSTER)?;
    let (base, snapshots) = wanted(client, &name, since)?;
    if form == SendForm::Rbd {
        return rbd::send(client, output, snapshots, file);
    }
    widen(&file);
    let mut to = BufWriter::new(file);
    let cut_off = |error| TransferError::Output { what: format!("volume '{}'", name.volume()), error };
    to.write_all(&beginning(snapshots.len() as u32)).map_err(cut_off)?;
    let mut base = base.map(|base| Source::of_snapshot(client, base));
    for snapshot in snapshots {
        let source = Source::of_snapshot(client, snapshot);
        let (reader, header) = (Reader::new(&source, false)?, header(&cluster, base.as_ref(), &source));
        match &base {
            None => stream::write(&reader, &header, &mut to)?,
            Some(base) => difference::write(client, &reader, base, &header, &mut to)?,
        }
        reader.conclude(output)?;
        base = Some(source);
    }
    Ok(to.flush().map_err(cut_off)?)
}

/// The snapshots to be sent, the oldest first, and the one that they are based on.
fn wanted(
    client: &Client,
    name: &SourceName,
    since: Option<String>,
) -> Result<(Option<SnapshotInfo>, Vec<SnapshotInfo>), CommandError> {
    let volume: VolumeInfo = client.get(&path(route::VOLUME, name.volume()))?;
    let mut all: Vec<SnapshotInfo> = client.get(&format!("{}?volume={}", route::SNAPSHOTS, volume.by_id()))?;
    all.sort_by_key(|snapshot| snapshot.epoch);
    let called = |wanted: &str| {
        let found = all.iter().find(|snapshot| snapshot.name == wanted);
        let named = || SnapshotName { volume: volume.name.clone(), snapshot: wanted.to_owned() };
        found.cloned().ok_or_else(|| TransferError::NoSnapshot(named()))
    };
    let last = match name {
        SourceName::Volume(_) => {
            all.last().cloned().ok_or_else(|| TransferError::NothingToSend(volume.name.clone()))?
        }
        SourceName::Snapshot(name) => called(&name.snapshot)?,
    };
    let base = since.as_deref().map(called).transpose()?;
    let begins = base.as_ref().map_or(0, |base| base.epoch);
    if base.as_ref().is_some_and(|base| base.epoch >= last.epoch) {
        return Err(TransferError::NothingSince { last: last.full_name(), since: since.unwrap_or_default() }.into());
    }
    all.retain(|snapshot| snapshot.epoch > begins && snapshot.epoch <= last.epoch);
    Ok((base, all))
}

pub fn receive(client: &Client, output: Output, arguments: ReceiveArguments) -> Result<(), CommandError> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return Err(TransferError::FromTerminal(arguments.name).into());
    }
    let file = File::from(stdin.as_fd().try_clone_to_owned()?);
    widen(&file);
    let mut input = BufReader::new(file);
    let refused = |error| TransferError::NotReceived { name: arguments.name.clone(), error };
    let parts = read_beginning(&mut input).map_err(refused)?;
    let mut receiver = Receiver { client, arguments: &arguments, id: None, made: 0 };
    let mut then: Option<Header> = None;
    for number in 0..parts {
        let reader = match number + 1 == parts {
            true => DifferenceReader::open(&mut input),
            false => DifferenceReader::part(&mut input),
        };
        let broken = |error| TransferError::Received { name: arguments.name.clone(), made: number, parts, error };
        let reader = reader.map_err(broken)?;
        let header = reader.header().clone();
        if then.as_ref().is_some_and(|before| !goes_on(before, &header)) {
            return Err(broken(DifferenceError::Damaged("a part of it doesn't go on from the one before")).into());
        }
        receiver.take(reader, &header).map_err(|error| match error {
            CommandError::Transfer(TransferError::HalfImported { error, .. })
            | CommandError::Transfer(TransferError::HalfApplied { error, .. })
            | CommandError::Transfer(TransferError::NotBegun { error, .. })
            | CommandError::Transfer(TransferError::Differences { error, .. }) => broken(error).into(),
            error => error,
        })?;
        then = Some(header);
    }
    let Some(then) = then else { return Err(refused(DifferenceError::Damaged("it has no parts")).into()) };
    let volume: VolumeInfo = client.get(&path(route::VOLUME, receiver.called()))?;
    output.show(&volume, |volume| {
        let made = match (receiver.made, parts - receiver.made) {
            (made, 0) => format!("{made} snapshots are made"),
            (made, had) => format!("{made} snapshots are made, and it had {had}"),
        };
        format!("volume {} holds {}; {made}", volume.name, as_it_was(&then))
    })?;
    Ok(())
}

/// Whether a part leads on from what the one before it leads to.
fn goes_on(before: &Header, next: &Header) -> bool {
    let of = |header: &Header| (header.cluster, header.volume_id);
    let begins = (next.since.as_ref(), next.since_epoch, next.since_size);
    of(before) == of(next) && before.to.is_some() && begins == (before.to.as_ref(), before.to_epoch, before.size)
}

struct Receiver<'a> {
    client: &'a Client,
    arguments: &'a ReceiveArguments,
    /// Stands for the volume's name, once it was found or made.
    id: Option<String>,
    made: u32,
}

impl Receiver<'_> {
    fn called(&self) -> &str {
        self.id.as_deref().unwrap_or(&self.arguments.name)
    }

    /// Writes one part, and keeps it as the snapshot that it leads to.
    fn take(&mut self, mut reader: DifferenceReader<impl Read>, header: &Header) -> Result<(), CommandError> {
        let Some(to) = &header.to else {
            let error = DifferenceError::Damaged("a part of it isn't of a snapshot");
            return Err(TransferError::NotReceived { name: self.arguments.name.clone(), error }.into());
        };
        if self.has(to, header.size)? {
            let mut data = Vec::new();
            while reader.next(&mut data).map_err(|error| self.broken(error))?.is_some() {}
            return Ok(());
        }
        // Who was killed holds it for some seconds more.
        let volume = self.volume()?.map(|volume| once_alone(self.client, volume, false)).transpose()?;
        let mut target = match &header.since {
            None => {
                let ReceiveArguments { name, layout, pool, key, resume } = self.arguments;
                let arguments = ImportArguments::of(self.called().to_owned());
                let arguments = match volume {
                    None => {
                        ImportArguments { layout: layout.clone(), pool: pool.clone(), key: key.clone(), ..arguments }
                    }
                    Some(volume) if *resume && volume.incomplete.is_some() => {
                        ImportArguments { resume: true, shrink: true, ..arguments }
                    }
                    // All of it may have been written, and only the snapshot be missing.
                    Some(volume) if *resume && self.holds(&volume, None, &mut reader)? => {
                        return self.keep(&volume, to);
                    }
                    Some(_) => return Err(TransferError::NotOfThis(name.clone()).into()),
                };
                stream::fill(self.client, arguments, &mut reader)?
            }
            Some(since) => {
                let (volume, base) = self.base(volume, since, header.since_size)?;
                if self.arguments.resume && self.is_there(&volume, &base, &mut reader)? {
                    return self.keep(&volume, to);
                }
                difference::apply(self.client, self.called(), &mut reader, None, (false, true))?.0
            }
        };
        let volume = target.finish()?;
        drop(target);
        self.keep(&volume, to)
    }

    fn keep(&mut self, volume: &VolumeInfo, as_snapshot: &str) -> Result<(), CommandError> {
        self.id = Some(volume.by_id());
        let request = CreateSnapshot { volume: volume.by_id(), name: as_snapshot.to_owned() };
        let _: SnapshotInfo = self.client.create(route::SNAPSHOTS, &request)?;
        self.made += 1;
        Ok(())
    }

    fn broken(&self, error: DifferenceError) -> TransferError {
        TransferError::Differences { name: self.arguments.name.clone(), error }
    }

    /// Whether all of a part that goes on from the base is there, and only its snapshot is missing. Else what an earlier try had begun is
    /// undone; an error if the volume holds something else.
    fn is_there(
        &self,
        volume: &VolumeInfo,
        base: &SnapshotInfo,
        reader: &mut DifferenceReader<impl Read>,
    ) -> Result<bool, CommandError> {
        if volume.incomplete.is_none() {
            let then = Source::of_snapshot(self.client, base.clone());
            let now = Source::of_volume(self.client, volume);
            let changed = Changed::look(self.client, &then, &now)?;
            if changed.is_none() && !changed.is_cut_off {
                return Ok(false);
            } else if !changed.is_none() {
                return match self.holds(volume, Some(changed), reader)? {
                    true => Ok(true),
                    false => {
                        let (name, base) = (volume.name.clone(), base.full_name());
                        Err(TransferError::BaseChanged { name, base }.into())
                    }
                };
            }
        }
        let _: VolumeInfo = self.client.post(&path(route::SNAPSHOT_ROLLBACK, &base.by_id()), &Done {})?;
        Ok(false)
    }

    /// Whether the volume holds just what the part leads to.
    fn holds(
        &self,
        volume: &VolumeInfo,
        changed: Option<Changed<'_>>,
        reader: &mut DifferenceReader<impl Read>,
    ) -> Result<bool, CommandError> {
        let size = reader.header().size;
        already::holds(self.client, volume, (changed, size), |data| {
            reader.next(data).map_err(|error| self.broken(error).into())
        })
    }

    /// The volume and its snapshot on which a part is based.
    fn base(
        &self,
        volume: Option<VolumeInfo>,
        since: &str,
        size: u64,
    ) -> Result<(VolumeInfo, SnapshotInfo), CommandError> {
        let volume = match volume {
            Some(volume) => volume,
            None => self.client.get(&path(route::VOLUME, self.called()))?, // which says that there is none
        };
        match self.snapshot(&volume, since)? {
            Some(found) if found.size == size => Ok((volume, found)),
            Some(found) => Err(other(&found, size).into()),
            None => {
                let base = SnapshotName { volume: volume.name, snapshot: since.to_owned() };
                Err(TransferError::NoBase(base).into())
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

    /// Whether an earlier try has made the snapshot of that name, as far as its size tells.
    fn has(&mut self, snapshot: &str, size: u64) -> Result<bool, CommandError> {
        let Some(volume) = self.volume()? else { return Ok(false) };
        self.id = Some(volume.by_id());
        match self.snapshot(&volume, snapshot)? {
            Some(found) if !self.arguments.resume => Err(TransferError::HasSnapshot(found.full_name()).into()),
            Some(found) if found.size != size => Err(other(&found, size).into()),
            found => Ok(found.is_some()),
        }
    }

    fn snapshot(&self, of: &VolumeInfo, called: &str) -> Result<Option<SnapshotInfo>, CommandError> {
        let all: Vec<SnapshotInfo> = self.client.get(&format!("{}?volume={}", route::SNAPSHOTS, of.by_id()))?;
        Ok(all.into_iter().find(|snapshot| snapshot.name == called))
    }
}

fn other(found: &SnapshotInfo, wanted: u64) -> TransferError {
    TransferError::OtherSnapshot { name: found.full_name(), found: found.size, wanted }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tepal_model::ClusterId;

    #[test]
    fn a_part_goes_on_only_from_the_one_before() {
        let part = |since: Option<&str>, to: &str, epochs: (u32, u32)| Header {
            cluster: ClusterId(9),
            volume_id: 7,
            since_epoch: epochs.0,
            to_epoch: epochs.1,
            since_size: if since.is_some() { 4096 } else { 0 },
            size: 4096,
            volume: "v".to_owned(),
            since: since.map(str::to_owned),
            to: Some(to.to_owned()),
        };
        let (first, next) = (part(None, "a", (0, 1)), part(Some("a"), "b", (1, 2)));
        assert!(goes_on(&first, &next) && !goes_on(&next, &first) && !goes_on(&first, &first));
        for other in [
            part(Some("c"), "b", (1, 2)),
            part(Some("a"), "b", (3, 4)),
            Header { volume_id: 8, ..next.clone() },
            Header { cluster: ClusterId(8), ..next.clone() },
            Header { since_size: 8192, ..next },
        ] {
            assert!(!goes_on(&first, &other), "{other:?}");
        }
    }
}
