//! A volume's bytes as nothing but these bytes.

use super::image_file::Server;
use super::input::{Content, Found};
use super::reader::{Part, Reader};
use super::sink::Sink;
use super::target::{Target, Wanted};
use super::{PIECE, TransferError};
use crate::cli::ImportArguments;
use crate::client::Client;
use crate::command::CommandError;
use crate::command::source::Source;
use crate::output::{self, Output, Progress};
use std::fs::File;
use tepal_server::api::types::VolumeInfo;

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

/// What is imported, and its length if that is known.
pub struct Begun<'a> {
    pub content: Box<dyn Content + 'a>,
    pub length: Option<u64>,
    /// Serves the content.
    pub server: Option<Server>,
    /// As an error calls it.
    pub what: &'a str,
}

/// `again`: the same content once more, to be compared with the volume in the end.
pub fn import<'a>(
    client: &Client,
    output: Output,
    arguments: ImportArguments,
    begun: Begun<'a>,
    again: Option<&dyn Fn() -> Result<Begun<'a>, CommandError>>,
) -> Result<(), CommandError> {
    let Begun { content: mut input, length, server, what } = begun;
    let (total, said) = (length, arguments.size);
    if let (Some(length), Some(size)) = (total, said)
        && size < length
    {
        return Err(TransferError::LargerThanSaid { what: what.to_owned(), name: arguments.name, length, size }.into());
    }
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
            _ if fitting == length => target.write_taking(offset, &mut data)?,
            _ => target.write(offset, &data[..fitting as usize])?,
        }
        offset += fitting;
        target.reached(offset)?;
        progress.set(offset, total.unwrap_or(end));
        match fitting < length {
            true if end < target.size => {
                return Err(TransferError::LongerThanSaid { name: target.name, size: end }.into());
            }
            true => {
                return Err(TransferError::TooLong { what: what.to_owned(), name: target.name, written: offset }.into());
            }
            false => {}
        }
    }
    let name = || target.name.clone();
    match total {
        None if offset < end => return Err(TransferError::EndsEarly { name: name(), done: offset, size: end }.into()),
        Some(size) if offset < size => {
            return Err(TransferError::BecameShorter { what: what.to_owned(), name: name(), done: offset, size }.into());
        }
        _ => {}
    }
    let volume = target.finish()?;
    drop((progress, input, server));
    if let Some(again) = again {
        compare(client, &volume, again()?)?;
    }
    let verified = if again.is_some() { ", and are the same there as where they came from" } else { "" };
    output.show(&volume, |volume| {
        format!("{} are in volume {}{verified}", output::size(offset), target.as_called_in(volume))
    })?;
    Ok(())
}

/// Whether the volume begins with this content. The volume's holes aren't read.
fn compare(client: &Client, volume: &VolumeInfo, begun: Begun<'_>) -> Result<(), CommandError> {
    let Begun { content: mut input, length, server: _server, what: _ } = begun;
    let there = Source::of_volume(client, volume);
    let there = Reader::new(&there, false)?;
    let mut progress = Progress::new(format!("comparing {}", volume.name));
    let (mut data, mut offset) = (Vec::with_capacity(PIECE as usize), 0);
    let differs = |offset: u64| TransferError::Differs { name: volume.name.clone(), offset };
    loop {
        let told = match input.next(&mut data).map_err(TransferError::Input)? {
            Found::End => return Ok(()),
            Found::Zeros(length) => {
                there.parts_of(offset..offset + length, &mut |at, part| match part {
                    Part::Hole(_) => Ok(()),
                    Part::Data(bytes) => match bytes.iter().position(|byte| *byte != 0) {
                        None => Ok(()),
                        Some(found) => Err(differs(at + found as u64)),
                    },
                })?;
                length
            }
            Found::Data => {
                let bytes = there.read(offset, data.len() as u64)?;
                if bytes != data {
                    let same = bytes.iter().zip(&data).take_while(|(one, other)| one == other).count();
                    return Err(differs(offset + same as u64).into());
                }
                data.len() as u64
            }
        };
        offset += told;
        progress.set(offset, length.unwrap_or(offset));
    }
}
