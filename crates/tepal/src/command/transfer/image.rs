//! A volume's bytes as nothing but these bytes.

use super::sink::Sink;
use super::target::Target;
use super::{PIECE, TransferError, fill, read, unreadable};
use crate::cli::ImportArguments;
use crate::client::Client;
use crate::command::CommandError;
use crate::command::source::Source;
use crate::output::{self, Output, Progress};
use std::fs::File;
use std::io::Read;

/// As far as is looked ahead for holes.
const LOOK_AHEAD: u64 = 1 << 40;

pub fn export(source: &Source<'_>, file: File) -> Result<(), CommandError> {
    // Also if who reads it has gone: what it has then is no volume.
    let cut_off = |error| TransferError::Output { what: source.described(), error };
    let mut sink = Sink::new(file);
    let mut progress = Progress::new(format!("exporting {}", source.name));
    let (size, mut offset) = (source.size, 0);
    while offset < size {
        let runs = source.map(offset, (size - offset).min(LOOK_AHEAD));
        for run in runs.map_err(|error| unreadable(source, offset, error))? {
            let end = size.min(offset.saturating_add(run.length));
            while offset < end {
                let piece = (end - offset).min(PIECE);
                if run.mapped {
                    sink.write(&read(source, offset, piece)?).map_err(cut_off)?;
                } else {
                    sink.skip(piece).map_err(cut_off)?;
                }
                offset += piece;
                progress.set(offset, size);
            }
        }
    }
    Ok(sink.finish().map_err(cut_off)?)
}

/// `length`: of the input, if it's known.
pub fn import(
    client: &Client,
    output: Output,
    arguments: ImportArguments,
    mut input: impl Read,
    length: Option<u64>,
) -> Result<(), CommandError> {
    let mut target = Target::find_or_make(client, arguments, length)?;
    let mut progress = Progress::new(format!("importing {}", target.name));
    let mut buffer = vec![0; PIECE as usize];
    let mut offset = 0;
    loop {
        let filled = fill(&mut input, &mut buffer).map_err(TransferError::Input)?;
        let room = target.size - offset;
        let fitting = room.min(filled as u64);
        target.write(offset, &buffer[..fitting as usize])?;
        offset += fitting;
        progress.set(offset, length.unwrap_or(target.size));
        if fitting < filled as u64 {
            return Err(TransferError::TooLong { name: target.name, written: offset }.into());
        }
        if filled < buffer.len() {
            break;
        }
    }
    let volume = target.finish()?;
    drop(progress);
    output.show(&volume, |volume| format!("{} are in volume {}", output::size(offset), target.as_called_in(volume)))?;
    Ok(())
}
