//! A volume as streams that `rbd` imports: what differs from a snapshot, all of it, or its snapshots one after the other.

use crate::client::Client;
use crate::command::CommandError;
use crate::command::snapshot::Differences;
use crate::command::source::Source;
use crate::command::transfer::input::widen;
use crate::command::transfer::reader::{Part, Reader};
use crate::command::transfer::{HOLE, PIECE, TransferError, is_zero};
use crate::output::{Output, Progress};
use crate::rbd_stream::{DiffWriter, Header, Kind, begin_image};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use tepal_server::api::types::{DifferenceKind, SnapshotInfo, SnapshotName, SourceName};

/// `since`: only what differs from this snapshot.
pub fn export(client: &Client, reader: &Reader<'_>, since: Option<String>, file: File) -> Result<(), CommandError> {
    let volume = reader.source.name.volume().to_owned();
    let base = since.map(|snapshot| Source::find(client, &SourceName::Snapshot(SnapshotName { volume, snapshot })));
    widen(&file);
    write(client, reader, base.transpose()?.as_ref(), Kind::Diff, &mut BufWriter::new(file))
}

/// An image with these snapshots, the oldest first. What the image itself is, is what the last one is.
pub fn send(client: &Client, output: Output, snapshots: Vec<SnapshotInfo>, file: File) -> Result<(), CommandError> {
    widen(&file);
    let mut to = BufWriter::new(file);
    let Some(last) = snapshots.last().cloned() else { return Ok(()) };
    let cut_off = |error| TransferError::Output { what: format!("volume '{}'", last.volume), error };
    begin_image(&mut to, snapshots.len() as u64 + 1).map_err(cut_off)?;
    let mut base: Option<Source<'_>> = None;
    for snapshot in snapshots {
        let source = Source::of_snapshot(client, snapshot);
        let reader = Reader::new(&source, false)?;
        write(client, &reader, base.as_ref(), Kind::Image, &mut to)?;
        reader.conclude(output)?;
        base = Some(source);
    }
    let now = Header { since: Some(last.name.clone()), to: None, size: last.size };
    DiffWriter::begin(&mut to, Kind::Image, &now).and_then(DiffWriter::finish).map_err(cut_off)?;
    Ok(())
}

fn write(
    client: &Client,
    reader: &Reader<'_>,
    base: Option<&Source<'_>>,
    of: Kind,
    to: &mut impl Write,
) -> Result<(), CommandError> {
    let source = reader.source;
    let called = |source: &Source<'_>| source.as_snapshot().map(|snapshot| snapshot.name.clone());
    let header = Header { since: base.and_then(called), to: called(source), size: source.size };
    let cut_off = |error| TransferError::Output { what: source.described(), error };
    let mut writer = DiffWriter::begin(to, of, &header).map_err(cut_off)?;
    let mut progress = Progress::new(format!("exporting {}", source.name));
    match base {
        None => reader.parts(|offset, part| {
            let length = match part {
                Part::Hole(length) => length,
                Part::Data(bytes) => {
                    data(&mut writer, offset, &bytes, Zeros::Left).map_err(cut_off)?;
                    bytes.len() as u64
                }
            };
            progress.set(offset + length, source.size);
            Ok(())
        })?,
        Some(base) => {
            let mut pages = Differences::new(client, base, source)?;
            while let Some(page) = pages.next()? {
                for run in page.runs {
                    let (mut offset, end) = (run.offset, run.offset + run.length);
                    if run.kind == DifferenceKind::Zero {
                        writer.zeros(offset, run.length).map_err(cut_off)?;
                        continue;
                    }
                    while offset < end {
                        let bytes = reader.read(offset, (end - offset).min(PIECE))?;
                        data(&mut writer, offset, &bytes, Zeros::Written).map_err(cut_off)?;
                        offset += bytes.len() as u64;
                        progress.set(offset, header.size);
                    }
                }
                progress.set(page.next.unwrap_or(page.to_size), page.to_size);
            }
        }
    }
    Ok(writer.finish().map_err(cut_off)?)
}

/// What becomes of zeros in data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Zeros {
    /// They are there already, where nothing was before.
    Left,
    Written,
}

/// Bytes without their zeros, which get records of their own.
fn data(writer: &mut DiffWriter<impl Write>, offset: u64, bytes: &[u8], zeros: Zeros) -> io::Result<()> {
    let are_zero: Vec<bool> = bytes.chunks(HOLE).map(is_zero).collect();
    let mut from = 0;
    for same in are_zero.chunk_by(|one, other| one == other) {
        let to = (from + same.len() * HOLE).min(bytes.len());
        let at = offset + from as u64;
        match (same[0], zeros) {
            (true, Zeros::Left) => {}
            (true, Zeros::Written) => writer.zeros(at, (to - from) as u64)?,
            (false, _) => writer.data(at, &bytes[from..to])?,
        }
        from = to;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::difference_file::Piece;
    use crate::rbd_stream::StreamReader;

    #[test]
    fn zeros_in_data_get_records_of_their_own() {
        let mut bytes = vec![0; 5 * HOLE + 7];
        bytes[2 * HOLE] = 1;
        bytes[5 * HOLE + 6] = 1;
        let header = Header { since: None, to: None, size: 1 << 20 };
        let (hole, at) = (HOLE as u64, 512);
        let data_at = |offset| Piece::Data { offset };
        for (zeros, expected) in [
            (Zeros::Left, vec![data_at(at + 2 * hole), data_at(at + 5 * hole)]),
            (
                Zeros::Written,
                vec![
                    Piece::Zeros { offset: at, length: 2 * hole },
                    data_at(at + 2 * hole),
                    Piece::Zeros { offset: at + 3 * hole, length: 2 * hole },
                    data_at(at + 5 * hole),
                ],
            ),
        ] {
            let mut stream = Vec::new();
            let mut writer = DiffWriter::begin(&mut stream, Kind::Diff, &header).expect("memory");
            data(&mut writer, at, &bytes, zeros).expect("memory");
            writer.finish().expect("memory");
            let (mut reader, mut found, mut buffer) = (StreamReader::open(&stream[..]).expect("right"), vec![], vec![]);
            reader.part().expect("right");
            while let Some(piece) = reader.next(&mut buffer).expect("right") {
                found.push(piece);
            }
            assert_eq!(found, expected);
        }
    }
}
