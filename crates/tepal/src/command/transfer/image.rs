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
    loop {
        let found = input.next(&mut data).map_err(TransferError::Input)?;
        let length = match found {
            Found::Data => data.len() as u64,
            Found::Zeros(length) => length,
            Found::End => break,
        };
        let fitting = length.min(target.size - offset);
        match found {
            Found::Zeros(_) => target.zero(offset, fitting)?,
            _ if offset < resumed_at => target.write_unless_there(offset, &data[..fitting as usize])?,
            _ => target.write(offset, &data[..fitting as usize])?,
        }
        offset += fitting;
        target.reached(offset)?;
        progress.set(offset, total.unwrap_or(target.size));
        if fitting < length {
            return Err(TransferError::TooLong { name: target.name, written: offset }.into());
        }
    }
    // What an earlier import had begun isn't whole by less than all of it.
    let wanted = said.or(target.was_incomplete.then_some(target.size));
    if let Some(size) = wanted.filter(|size| total.is_none() && offset < *size) {
        return Err(TransferError::EndsEarly { name: target.name, done: offset, size }.into());
    }
    let volume = target.finish()?;
    drop(progress);
    output.show(&volume, |volume| format!("{} are in volume {}", output::size(offset), target.as_called_in(volume)))?;
    Ok(())
}
