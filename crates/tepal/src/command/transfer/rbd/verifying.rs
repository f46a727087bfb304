//! A stream of `rbd` once more, compared with the snapshots that were made of it, and with the volume.

use super::RbdError;
use super::incoming::snapshot;
use crate::client::Client;
use crate::command::CommandError;
use crate::command::source::Source;
use crate::command::transfer::TransferError;
use crate::command::transfer::already::{Changed, first_difference};
use crate::rbd_stream::StreamReader;
use std::io::Read;
use tepal_server::api::types::{SnapshotName, VolumeInfo};

/// An error if something isn't what the stream has of it. Snapshots that the volume had before are compared too.
pub fn compare(client: &Client, volume: &VolumeInfo, mut reader: StreamReader<impl Read>) -> Result<(), CommandError> {
    let unread = |error| RbdError::Unverified { name: volume.name.clone(), error };
    let called = |name: &str| match snapshot(volume, name) {
        Some(found) => Ok(Source::of_snapshot(client, found.clone())),
        None => Err(TransferError::NoSnapshot(SnapshotName { volume: volume.name.clone(), snapshot: name.to_owned() })),
    };
    while let Some(header) = reader.part().map_err(unread)? {
        let base = header.since.as_deref().map(called).transpose()?;
        let there = match &header.to {
            Some(to) => called(to)?,
            None => Source::of_volume(client, volume),
        };
        let changed = base.as_ref().map(|base| Changed::look(client, base, &there)).transpose()?;
        let next = |data: &mut Vec<u8>| Ok(reader.next(data).map_err(unread)?);
        if let Some(offset) = first_difference(&there, (changed, header.size), next)? {
            return Err(RbdError::Differs { what: there.described(), offset }.into());
        }
    }
    Ok(())
}
