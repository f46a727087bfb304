//! The difference of a volume to a snapshot, written to a file and applied to another volume.
//!
//! What a file says is compared with the volume as far as that can be done: its size, and, if it has a snapshot of the name that
//! the differences are based on, that it still holds what that does. A file that can be read twice is checked to its end
//! before anything is written; of a pipe, each piece is before it is.

use super::{PIECE, TransferError, described, read, standard_output, write};
use crate::cli::ImportArguments;
use crate::client::Client;
use crate::command::CommandError;
use crate::command::snapshot::{self, Differences};
use crate::difference_file::{DifferenceReader, DifferenceWriter, Header, Piece};
use crate::output::{self, Output, Progress};
use serde_json::json;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use tepal_server::api::types::{
    ClusterInfo, DifferenceKind, Done, Range, SnapshotInfo, SnapshotName, SourceName, VolumeInfo, path, route,
};

/// Zeros in one request.
const ZEROS: u64 = 256 << 20;

pub fn export(client: &Client, source: &SourceName, since: String) -> Result<(), CommandError> {
    let file = standard_output(source)?;
    let since = SnapshotName { volume: source.volume().to_owned(), snapshot: since };
    let header = header(client, source, &since)?;
    let cut_off = |error| TransferError::Output { what: described(source), error };
    let mut writer = DifferenceWriter::begin(BufWriter::new(file), &header).map_err(cut_off)?;
    let mut progress = Progress::new(format!("exporting what differs in {source} from {since}"));
    let mut pages = Differences::new(client, &since, source);
    while let Some(page) = pages.next()? {
        if page.to_size != header.size {
            return Err(snapshot::SnapshotError::Resized(source.clone()).into());
        }
        for run in page.runs {
            let end = run.offset + run.length;
            match run.kind {
                DifferenceKind::Zero => writer.zeros(run.offset, run.length).map_err(cut_off)?,
                DifferenceKind::Data => {
                    let mut offset = run.offset;
                    while offset < end {
                        let bytes = read(client, source, offset, (end - offset).min(PIECE))?;
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

fn header(client: &Client, source: &SourceName, since: &SnapshotName) -> Result<Header, CommandError> {
    let cluster: ClusterInfo = client.get(route::CLUSTER)?;
    let volume: VolumeInfo = client.get(&path(route::VOLUME, source.volume()))?;
    let known = |name: &SnapshotName| client.get(&path(route::SNAPSHOT, &name.to_string()));
    let base: SnapshotInfo = known(since)?;
    let (to, to_epoch, size) = match source {
        SourceName::Volume(_) => (None, 0, volume.size),
        SourceName::Snapshot(name) => {
            let to: SnapshotInfo = known(name)?;
            (Some(to.name), to.epoch, to.size)
        }
    };
    Ok(Header {
        cluster: cluster.id,
        volume_id: volume.id,
        since_epoch: base.epoch,
        to_epoch,
        since_size: base.size,
        size,
        volume: volume.name,
        since: base.name,
        to,
    })
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
    let ImportArguments { name, size, layout, pool, force } = arguments;
    let options = [(size.is_some(), "--size"), (layout.is_some(), "--layout"), (pool.is_some(), "--pool")];
    if let Some((_, option)) = options.into_iter().find(|(given, _)| *given) {
        return Err(TransferError::OfDifferences { name, option }.into());
    }
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
    fits(client, &name, &header, force)?;
    let mut progress = Progress::new(format!("applying differences to {name}"));
    let (mut data, mut done) = (Vec::new(), 0);
    let broken = |error, done| match done {
        0 => refused(error),
        _ => TransferError::HalfApplied { name: name.clone(), since: header.since.clone(), error },
    };
    while let Some(piece) = reader.next(&mut data).map_err(|error| broken(error, done))? {
        done += match piece {
            Piece::Data { offset } => {
                write(client, &name, offset, &data)?;
                data.len() as u64
            }
            Piece::Zeros { offset, length } => {
                zero(client, &name, offset, length)?;
                length
            }
        };
        progress.set(done, total.unwrap_or(header.size));
    }
    let _: Done = client.post(&path(route::VOLUME_FLUSH, &name), &json!({}))?;
    drop(progress);
    let volume: VolumeInfo = client.get(&path(route::VOLUME, &name))?;
    let (changed, then) = (output::size(done), as_it_was(&header));
    output.show(&volume, |_| match &header.to {
        Some(to) => {
            format!("{changed} are changed: volume {name} holds {then}; `tepal snapshot create {name}@{to}` keeps that")
        }
        None => format!("{changed} are changed: volume {name} holds {then}"),
    })?;
    Ok(())
}

fn as_it_was(header: &Header) -> String {
    match &header.to {
        Some(to) => format!("what {}@{to} did", header.volume),
        None => format!("what volume {} did", header.volume),
    }
}

/// Whether the volume is one that the differences lead on from, as far as that can be seen.
fn fits(client: &Client, name: &str, header: &Header, force: bool) -> Result<(), CommandError> {
    let volume: VolumeInfo = client.get(&path(route::VOLUME, name))?;
    if volume.size != header.size {
        let shrink = if volume.size > header.size { " --shrink" } else { "" };
        return Err(TransferError::OtherSize {
            name: name.to_owned(),
            found: output::size(volume.size),
            wanted: header.size,
            shrink,
        }
        .into());
    }
    if force {
        return Ok(());
    }
    let base = SnapshotName { volume: name.to_owned(), snapshot: header.since.clone() };
    let then = format!("{}@{}", header.volume, header.since);
    if snapshot::find(client, &base)?.is_none() {
        // Standard output is for the answer alone.
        let remark =
            format!("volume {name} has no snapshot {}: that it holds what {then} did isn't checked", header.since);
        let _ = writeln!(std::io::stderr(), "{remark}");
        return Ok(());
    }
    let now = SourceName::Volume(name.to_owned());
    let mut progress = Progress::new(format!("comparing {name} with {base}"));
    let mut pages = Differences::new(client, &base, &now);
    while let Some(page) = pages.next()? {
        if !page.runs.is_empty() {
            return Err(TransferError::BaseChanged { name: name.to_owned(), base }.into());
        }
        progress.set(page.next.unwrap_or(page.to_size), page.to_size);
    }
    Ok(())
}

fn zero(client: &Client, name: &str, offset: u64, length: u64) -> Result<(), CommandError> {
    let (mut at, end) = (offset, offset + length);
    while at < end {
        let length = (end - at).min(ZEROS);
        let _: Done = client.post(&path(route::VOLUME_ZERO, name), &Range { offset: at, length })?;
        at += length;
    }
    Ok(())
}
