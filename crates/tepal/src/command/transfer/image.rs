//! A volume's bytes as nothing but these bytes.

use super::input::{Found, Input};
use super::reader::{Part, Reader};
use super::sink::Sink;
use super::target::{Target, Wanted};
use super::{PIECE, TransferError};
use crate::cli::ImportArguments;
use crate::client::Client;
use crate::command::CommandError;
use crate::output::{self, Output, Progress};
use std::fs::File;

pub fn export(reader: &Reader<'_>, file: File) -> Result<(), CommandError> {
    let source = reader.source;
    // Also if who reads it has gone: what it has then is no volume.
    let cut_off = |error| TransferError::Output { what: source.described(), error };
    let mut sink = Sink::new(file);
    let mut progress = Progress::new(format!("exporting {}", source.name));
    reader.parts(|offset, part| {
        let length = match part {
            Part::Hole(length) => sink.skip(length).map(|()| length),
            Part::Data(bytes) => sink.write(&bytes).map(|()| bytes.len() as u64),
        };
        progress.set(offset + length.map_err(cut_off)?, source.size);
        Ok(())
    })?;
    Ok(sink.finish().map_err(cut_off)?)
}

/// `length`: of the input, if it's known.
pub fn import(
    client: &Client,
    output: Output,
    arguments: ImportArguments,
    mut input: Input<'_>,
    length: Option<u64>,
) -> Result<(), CommandError> {
    let (total, said) = (length, arguments.size);
    let wanted = length.map_or(Wanted::Unknown, Wanted::AtLeast);
    let mut target = Target::find_or_make(client, arguments, wanted)?;
    let mut progress = Progress::new(format!("importing {}", target.name));
    let (mut data, mut offset, resumed_at) = (Vec::with_capacity(PIECE as usize), 0, target.resumed_at());
    let shorter = |name: &str| TransferError::Shorter { name: name.to_owned(), done: output::size(resumed_at) };
    if total.is_some_and(|total| total < resumed_at) {
        return Err(shorter(&target.name).into());
    }
    // A file may be shorter than the volume. Of a pipe nobody knows but by that whether what writes to it has failed.
    let end = said.filter(|_| total.is_none()).map_or(target.size, |said| said.min(target.size));
    loop {
        let found = input.next(&mut data).map_err(TransferError::Input)?;
        let length = match found {
            Found::Data => data.len() as u64,
            Found::Zeros(length) => length,
            Found::End => break,
        };
        let fitting = length.min(end - offset);
        match found {
            Found::Zeros(_) => target.zero(offset, fitting)?,
            _ if offset < resumed_at => target.write_unless_there(offset, &data[..fitting as usize])?,
            _ => target.write(offset, &data[..fitting as usize])?,
        }
        offset += fitting;
        target.reached(offset)?;
        progress.set(offset, total.unwrap_or(end));
        match fitting < length {
            true if end < target.size => {
                return Err(TransferError::LongerThanSaid { name: target.name, size: end }.into());
            }
            true => return Err(TransferError::TooLong { name: target.name, written: offset }.into()),
            false => {}
        }
    }
    let name = || target.name.clone();
    match total {
        None if offset < end => return Err(TransferError::EndsEarly { name: name(), done: offset, size: end }.into()),
        Some(size) if offset < size => {
            return Err(TransferError::BecameShorter { name: name(), done: offset, size }.into());
        }
        _ => {}
    }
    let volume = target.finish()?;
    drop(progress);
    output.show(&volume, |volume| format!("{} are in volume {}", output::size(offset), target.as_called_in(volume)))?;
    Ok(())
}
