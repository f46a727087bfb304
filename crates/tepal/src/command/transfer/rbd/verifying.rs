//! A stream of `rbd`, compared with what was made of it: part by part, each with its snapshot, and the last one with the volume.

use super::RbdError;
use super::incoming::snapshot;
use crate::client::Client;
use crate::command::CommandError;
use crate::command::source::Source;
use crate::command::transfer::TransferError;
use crate::command::transfer::already::{Changed, first_difference};
use crate::difference_file::Piece;
use crate::rbd_stream::{Header, StreamReader};
use std::io::Read;
use tepal_server::api::types::{SnapshotName, VolumeInfo};

/// An error if something isn't what the stream has of it. Snapshots that the volume had before are compared too.
pub fn compare(client: &Client, volume: &VolumeInfo, mut reader: StreamReader<impl Read>) -> Result<(), CommandError> {
    let unread = |error| RbdError::Unverified { name: volume.name.clone(), error };
    while let Some(header) = reader.part().map_err(unread)? {
        let next = |data: &mut Vec<u8>| Ok(reader.next(data).map_err(unread)?);
        if let Some((what, offset)) = differs(client, volume, &header, next)? {
            return Err(RbdError::Differs { what, offset }.into());
        }
    }
    Ok(())
}

/// What a part leads to, and its first byte that isn't there as the part has it. If there's none, all of the part was read.
pub fn differs(
    client: &Client,
    volume: &VolumeInfo,
    header: &Header,
    next: impl FnMut(&mut Vec<u8>) -> Result<Option<Piece>, CommandError>,
) -> Result<Option<(String, u64)>, CommandError> {
    let called = |name: &str| match snapshot(volume, name) {
        Some(found) => Ok(Source::of_snapshot(client, found.clone())),
        None => Err(TransferError::NoSnapshot(SnapshotName { volume: volume.name.clone(), snapshot: name.to_owned() })),
    };
    let base = header.since.as_deref().map(called).transpose()?;
    let there = match &header.to {
        Some(to) => called(to)?,
        None => Source::of_volume(client, volume),
    };
    let changed = base.as_ref().map(|base| Changed::look(client, base, &there)).transpose()?;
    let found = first_difference(&there, (changed, header.size), next)?;
    Ok(found.map(|offset| (there.described(), offset)))
}
