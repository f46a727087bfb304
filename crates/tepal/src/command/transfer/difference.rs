//! The difference of a volume to a snapshot, written to a file and applied to another volume.
//!
//! If the volume has a snapshot of the name that the differences are based on, it's compared with that: it must hold the same still. Then
//! the volume gets the size that the file says. A file that can be read twice is checked to its end before anything is written; of a
//! pipe, each piece is before it is.

use super::reader::Reader;
use super::target::{Target, Wanted, once_alone, resized};
use super::{PIECE, TransferError, stream};
use crate::cli::ImportArguments;
use crate::client::Client;
use crate::command::CommandError;
use crate::command::snapshot::Differences;
use crate::command::source::Source;
use crate::difference_file::{DifferenceReader, DifferenceWriter, Header, Piece};
use crate::output::{self, Output, Progress};
use std::cmp::Ordering;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use tepal_server::api::types::{ClusterInfo, DifferenceKind, SnapshotName, SourceName, VolumeInfo, path, route};

pub fn export(client: &Client, reader: &Reader<'_>, since: String, file: File) -> Result<(), CommandError> {
    let cluster: ClusterInfo = client.get(route::CLUSTER)?;
    let since = SnapshotName { volume: reader.source.name.volume().to_owned(), snapshot: since };
    let base = Source::find(client, &SourceName::Snapshot(since))?;
    write(client, reader, &base, &header(&cluster, Some(&base), reader.source), &mut BufWriter::new(file))
}

pub fn write(
    client: &Client,
    reader: &Reader<'_>,
    base: &Source<'_>,
    header: &Header,
    to: &mut impl Write,
) -> Result<(), CommandError> {
    let source = reader.source;
    let cut_off = |error| TransferError::Output { what: source.described(), error };
    let mut writer = DifferenceWriter::begin(to, header).map_err(cut_off)?;
    let mut progress = Progress::new(format!("exporting what differs in {} from {}", source.name, base.name));
    let mut pages = Differences::new(client, base, source)?;
    while let Some(page) = pages.next()? {
        for run in page.runs {
            let end = run.offset + run.length;
            match run.kind {
                DifferenceKind::Zero => writer.zeros(run.offset, run.length).map_err(cut_off)?,
                DifferenceKind::Data => {
                    let mut offset = run.offset;
                    while offset < end {
                        let bytes = reader.read(offset, (end - offset).min(PIECE))?;
                        writer.data(offset, &bytes).map_err(cut_off)?;
                        offset += bytes.len() as u64;
                        progress.set(offset, header.size);
                    }
                }
            }
        }
        progress.set(page.next.unwrap_or(page.to_size), page.to_size);
    }
    Ok(writer.finish().map_err(cut_off)?)
}

/// Of what differs from a snapshot, or of all of a volume.
pub fn header(cluster: &ClusterInfo, base: Option<&Source<'_>>, source: &Source<'_>) -> Header {
    let since = base.and_then(Source::as_snapshot);
    let to = source.as_snapshot();
    Header {
        cluster: cluster.id,
        volume_id: source.volume,
        since_epoch: since.map_or(0, |since| since.epoch),
        to_epoch: to.map_or(0, |to| to.epoch),
        since_size: since.map_or(0, |since| since.size),
        size: source.size,
        volume: source.name.volume().to_owned(),
        since: since.map(|since| since.name.clone()),
        to: to.map(|to| to.name.clone()),
    }
}

/// `beginning` was read of `input` already. `is_file`: it can be read twice.
pub fn import(
    client: &Client,
    output: Output,
    arguments: ImportArguments,
    beginning: &[u8],
    mut input: File,
    is_file: bool,
) -> Result<(), CommandError> {
    let name = arguments.name.clone();
    let refused = |error| TransferError::Differences { name: name.clone(), error };
    let mut total = None;
    if is_file {
        let from = input.stream_position().map_err(TransferError::Input)?;
        let reader = DifferenceReader::open(beginning.chain(BufReader::new(&input))).map_err(refused)?;
        total = Some(reader.verify().map_err(refused)?);
        input.seek(SeekFrom::Start(from)).map_err(TransferError::Input)?;
    }
    let mut reader = DifferenceReader::open(beginning.chain(BufReader::new(input))).map_err(refused)?;
    let header = reader.header().clone();
    if header.since.is_none() {
        return stream::import(client, output, arguments, reader);
    }
    if arguments.resume {
        return Err(TransferError::NothingToResume(name).into());
    }
    let ImportArguments { size, layout, pool, key, force, shrink, .. } = arguments;
    let options = [
        (size.is_some(), "--size"),
        (layout.is_some(), "--layout"),
        (pool.is_some(), "--pool"),
        (key.is_some(), "--key"),
    ];
    if let Some((_, option)) = options.into_iter().find(|(given, _)| *given) {
        return Err(TransferError::OfDifferences { name, option }.into());
    }
    let (mut target, done) = apply(client, &name, &mut reader, total, (force, shrink))?;
    let volume = target.finish()?;
    let (changed, then) = (output::size(done), as_it_was(&header));
    output.show(&volume, |volume| {
        let (name, called) = (&volume.name, target.as_called_in(volume));
        match &header.to {
            Some(to) => {
                format!("{changed} are changed: volume {called} holds {then}; `tepal snapshot create {name}@{to}` keeps that")
            }
            None => format!("{changed} are changed: volume {called} holds {then}"),
        }
    })?;
    Ok(())
}

/// Writes what differs to the volume of that name, or id, and how many bytes that was. `total`: so many, if it's known.
pub fn apply<'a>(
    client: &'a Client,
    name: &str,
    reader: &mut DifferenceReader<impl Read>,
    total: Option<u64>,
    (force, shrink): (bool, bool),
) -> Result<(Target<'a>, u64), CommandError> {
    let header = reader.header().clone();
    let since = header.since.clone().expect("differences are based on a snapshot");
    let volume = found(client, name, (&header, &since), force)?;
    let size_before = volume.size;
    let volume = resized(client, volume, Wanted::Exactly(header.size), shrink)?;
    let (name, sizes) = (volume.name.clone(), (size_before, volume.size));
    let mut target = Target::of(client, volume)?;
    let mut progress = Progress::new(format!("applying differences to {name}"));
    let (mut data, mut done) = (Vec::new(), 0);
    loop {
        let piece = match reader.next(&mut data) {
            Ok(Some(piece)) => piece,
            Ok(None) => break,
            Err(error) if done == 0 => {
                // Nothing was written. If it can't be said now that it's whole, it's said to be incomplete.
                let is_incomplete = !target.was_incomplete && target.finish().is_err();
                return Err(TransferError::NotBegun { name, is: left(sizes, is_incomplete), error }.into());
            }
            Err(error) => return Err(TransferError::HalfApplied { name, since, error }.into()),
        };
        done += match piece {
            Piece::Data { offset } => {
                target.write(offset, &data)?;
                data.len() as u64
            }
            Piece::Zeros { offset, length } => {
                target.zero(offset, length)?;
                length
            }
        };
        progress.set(done, total.unwrap_or(header.size));
    }
    Ok((target, done))
}

/// What a volume is after nothing was written to it: its sizes before and after it was made as large as what was to come, and whether it
/// couldn't be said that it's whole.
fn left((before, after): (u64, u64), is_incomplete: bool) -> String {
    let sizes = [before, after].map(output::size);
    let [before_said, after_said] = &sizes;
    let is = match after.cmp(&before) {
        Ordering::Equal => "as before".to_owned(),
        Ordering::Less => format!("cut off at {after_said} instead of {before_said}, and else as before"),
        Ordering::Greater => format!("enlarged to {after_said} instead of {before_said}, and else as before"),
    };
    if is_incomplete { format!("{is}, but counts as incomplete until an import of it ends") } else { is }
}

pub fn as_it_was(header: &Header) -> String {
    match &header.to {
        Some(to) => format!("what {}@{to} did", header.volume),
        None => format!("what volume {} did", header.volume),
    }
}

/// The volume that the differences lead on from, as far as that can be seen.
fn found(
    client: &Client,
    name: &str,
    (header, since): (&Header, &str),
    force: bool,
) -> Result<VolumeInfo, CommandError> {
    let volume = once_alone(client, client.get(&path(route::VOLUME, name))?, force)?;
    if force {
        return Ok(volume);
    }
    let base = SnapshotName { volume: volume.name.clone(), snapshot: since.to_owned() };
    let then = format!("{}@{since}", header.volume);
    let found = match Source::find(client, &SourceName::Snapshot(base.clone())) {
        Err(error) if !error.is_not_found() => return Err(error.into()),
        found => found.ok().filter(|found| found.volume == volume.id),
    };
    if found.is_none() && volume.incomplete.is_some() {
        return Err(TransferError::HalfChanged(volume.name).into());
    }
    let Some(found) = found else {
        // Standard output is for the answer alone.
        let remark =
            format!("volume {} has no snapshot {since}: that it holds what {then} did isn't checked", volume.name);
        let _ = writeln!(std::io::stderr(), "{remark}");
        return Ok(volume);
    };
    let now = Source::of_volume(client, &volume);
    let mut progress = Progress::new(format!("comparing {} with {base}", volume.name));
    let mut pages = Differences::new(client, &found, &now)?;
    while let Some(page) = pages.next()? {
        if !page.runs.is_empty() || page.to_size < page.from_size {
            return Err(TransferError::BaseChanged { name: volume.name, base }.into());
        }
        progress.set(page.next.unwrap_or(page.to_size), page.to_size);
    }
    Ok(volume)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_failed_import_left_is_told_as_it_is() {
        const MIB: u64 = 1 << 20;
        assert_eq!(left((8 * MIB, 8 * MIB), false), "as before");
        assert_eq!(left((8 * MIB, 4 * MIB), false), "cut off at 4M instead of 8M, and else as before");
        let is = left((4 * MIB, 8 * MIB), true);
        assert_eq!(
            is,
            "enlarged to 8M instead of 4M, and else as before, but counts as incomplete until an import of it ends"
        );
    }
}
