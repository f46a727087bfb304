//! A whole volume as a stream that says itself what it is: `volume export --as tepal`. Holes stay holes in it, also through a pipe.
//!
//! It has the form of differences, to nothing.

use super::TransferError;
use super::difference::{as_it_was, header};
use super::input::widen;
use super::reader::{Part, Reader};
use super::target::{Target, Wanted};
use crate::cli::ImportArguments;
use crate::client::Client;
use crate::command::CommandError;
use crate::difference_file::{DifferenceReader, DifferenceWriter, Header, Piece};
use crate::output::{Output, Progress};
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use tepal_server::api::types::{ClusterInfo, route};

pub fn export(client: &Client, reader: &Reader<'_>, file: File) -> Result<(), CommandError> {
    widen(&file);
    let cluster: ClusterInfo = client.get(route::CLUSTER)?;
    write(reader, &header(&cluster, None, reader.source), &mut BufWriter::new(file))
}

pub fn write(reader: &Reader<'_>, header: &Header, to: &mut impl Write) -> Result<(), CommandError> {
    let source = reader.source;
    let cut_off = |error| TransferError::Output { what: source.described(), error };
    let mut writer = DifferenceWriter::begin(to, header).map_err(cut_off)?;
    let mut progress = Progress::new(format!("exporting {}", source.name));
    reader.parts(|offset, part| {
        let length = match part {
            Part::Hole(length) => length,
            Part::Data(bytes) => {
                writer.data(offset, &bytes).map_err(cut_off)?;
                bytes.len() as u64
            }
        };
        progress.set(offset + length, source.size);
        Ok(())
    })?;
    Ok(writer.finish().map_err(cut_off)?)
}

pub fn import(
    client: &Client,
    output: Output,
    arguments: ImportArguments,
    mut reader: DifferenceReader<impl Read>,
) -> Result<(), CommandError> {
    let (name, header) = (arguments.name.clone(), reader.header().clone());
    if arguments.size.is_some() {
        return Err(TransferError::SizeSaid(name).into());
    }
    let mut target = fill(client, arguments, &mut reader)?;
    let volume = target.finish()?;
    output.show(&volume, |volume| format!("volume {} holds {}", target.as_called_in(volume), as_it_was(&header)))?;
    Ok(())
}

/// Writes all of a volume to the one that there is, or a new one.
pub fn fill<'a>(
    client: &'a Client,
    arguments: ImportArguments,
    reader: &mut DifferenceReader<impl Read>,
) -> Result<Target<'a>, CommandError> {
    let (name, size) = (arguments.name.clone(), reader.header().size);
    let mut target = Target::find_or_make(client, arguments, Wanted::Exactly(size))?;
    let mut progress = Progress::new(format!("importing {name}"));
    let (mut data, mut end) = (Vec::new(), 0);
    let broken = |error| TransferError::HalfImported { name: name.clone(), error };
    while let Some(piece) = reader.next(&mut data).map_err(broken)? {
        let (offset, length) = match piece {
            Piece::Data { offset } => (offset, data.len() as u64),
            Piece::Zeros { offset, length } => (offset, length),
        };
        let may_be_there = offset < target.resumed_at();
        target.zero(end, offset - end)?;
        match piece {
            Piece::Data { .. } if may_be_there => target.write_unless_there(offset, &data)?,
            Piece::Data { .. } => target.write(offset, &data)?,
            Piece::Zeros { .. } => target.zero(offset, length)?,
        }
        target.reached(offset + length)?;
        end = offset + length;
        progress.set(end, size);
    }
    target.zero(end, size - end)?;
    Ok(target)
}
