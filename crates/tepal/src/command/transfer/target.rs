//! The volume that is written to: found once by its name or made, and known by its id from then on.

use super::{HOLE, TransferError, is_zero};
use crate::cli::ImportArguments;
use crate::client::{Client, ClientError};
use crate::command::CommandError;
use crate::output;
use serde_json::json;
use tepal_server::api::types::{CreateVolume, Range, VolumeInfo, Written, ZeroRange, path, route};

/// Zeros in one request.
const ZEROS: u64 = 256 << 20;

pub struct Target<'a> {
    client: &'a Client,
    /// As it was called when it was found.
    pub name: String,
    /// Stands for its name.
    pub id: String,
    /// Bytes.
    pub size: u64,
    /// In which it was written to last: if it doesn't see that any more, it was rolled back.
    epoch: u64,
    /// Bytes of the input that it has.
    done: u64,
}

impl<'a> Target<'a> {
    /// One that is there.
    pub fn of(client: &'a Client, volume: VolumeInfo) -> Self {
        let (id, epoch) = (volume.by_id(), volume.epoch);
        Target { client, name: volume.name, id, size: volume.size, epoch, done: 0 }
    }

    /// The volume that there is, or a new one. `length`: of the input, if it's known.
    pub fn find_or_make(
        client: &'a Client,
        arguments: ImportArguments,
        length: Option<u64>,
    ) -> Result<Self, CommandError> {
        let ImportArguments { name, size, layout, pool, .. } = arguments;
        match client.get::<VolumeInfo>(&path(route::VOLUME, &name)) {
            Ok(volume) => {
                let options = [(size.is_some(), "--size"), (layout.is_some(), "--layout"), (pool.is_some(), "--pool")];
                match options.into_iter().find(|(given, _)| *given) {
                    None => Ok(Target::of(client, volume)),
                    Some((_, option)) => {
                        Err(TransferError::Exists { name, size: output::size(volume.size), option }.into())
                    }
                }
            }
            Err(error) if error.is_not_found() => {
                let size = match (size, length) {
                    (Some(size), _) => size,
                    // A volume's size is a multiple of 512.
                    (None, Some(length)) => length.next_multiple_of(512),
                    (None, None) => return Err(TransferError::SizeUnknown(name).into()),
                };
                let request = CreateVolume { name, size, layout: layout.map(|layout| layout.to_string()), pool };
                Ok(Target::of(client, client.post(route::VOLUMES, &request)?))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Writes a piece: its zeros as zeros, the rest as data.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), TransferError> {
        let zeros: Vec<bool> = bytes.chunks(HOLE).map(is_zero).collect();
        let mut chunk = 0;
        while chunk < zeros.len() {
            let same = zeros[chunk..].iter().take_while(|zero| **zero == zeros[chunk]).count();
            let (from, to) = (chunk * HOLE, ((chunk + same) * HOLE).min(bytes.len()));
            let at = offset + from as u64;
            match zeros[chunk] {
                true => self.zero(at, (to - from) as u64)?,
                false => {
                    let data = path(route::VOLUME_DATA, &self.id);
                    let written =
                        self.client.put_bytes(&format!("{data}?offset={at}&epoch={}", self.epoch), &bytes[from..to]);
                    self.note(written, (to - from) as u64)?;
                }
            }
            chunk += same;
        }
        Ok(())
    }

    pub fn zero(&mut self, offset: u64, length: u64) -> Result<(), TransferError> {
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let range = Range { offset: at, length: (end - at).min(ZEROS) };
            let request = ZeroRange { range, epoch: u32::try_from(self.epoch).ok() };
            let written = self.client.post(&path(route::VOLUME_ZERO, &self.id), &request);
            self.note(written, range.length)?;
            at += range.length;
        }
        Ok(())
    }

    /// What was written is on stable media, and in this volume.
    pub fn finish(&mut self) -> Result<VolumeInfo, TransferError> {
        let flush = format!("{}?epoch={}", path(route::VOLUME_FLUSH, &self.id), self.epoch);
        let flushed = self.client.post(&flush, &json!({}));
        self.note(flushed, 0)?;
        self.client.get(&path(route::VOLUME, &self.id)).map_err(|error| self.unwritten(error))
    }

    fn note(&mut self, written: Result<Written, ClientError>, length: u64) -> Result<(), TransferError> {
        let Written { epoch } = written.map_err(|error| self.unwritten(error))?;
        self.epoch = self.epoch.max(epoch.into());
        self.done += length;
        Ok(())
    }

    fn unwritten(&self, error: ClientError) -> TransferError {
        let (name, done) = (self.name.clone(), output::size(self.done));
        match error.is_not_found() {
            true => TransferError::TargetGone { name, done },
            false => TransferError::Unwritten { name, done, error },
        }
    }

    /// Its name as it is now, and what it was called if that's another one.
    pub fn as_called_in(&self, now: &VolumeInfo) -> String {
        match now.name == self.name {
            true => now.name.clone(),
            false => format!("{}, which was called {} when this began", now.name, self.name),
        }
    }
}
