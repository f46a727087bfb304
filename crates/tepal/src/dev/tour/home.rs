//! The room for a tour, and its volume. Nobody's data is ever taken for it: it is the one that a tour has made, and what is on it is all of
//! a tour's making.

use super::pattern::{self, Found};
use super::{AREA, PIECE, SIZE, TourError, VOLUME};
use crate::client::Client;
use crate::dev::cluster::Cluster;
use crate::dev::folder::write_json;
use crate::disk::{Disk, Request};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use tepal_model::{BLOCK, DriveId, Layout};
use tepal_server::api::types::{CreateVolume, MapRun, VolumeInfo, path, route};

/// Two copies: on the drives of one server, and on neighbours of several. First with the usual extents, then with others, wherever there's
/// room.
pub const LAYOUTS: [[&str; 2]; 2] = [["mirror:2", "mirror:2;extent=256K"], ["chained", "mirror:2;extent=256K"]];
/// Bytes that a tour in a new folder may need: two copies, four logs, the metadata.
pub const ROOM: u64 = 1 << 30;

/// What a tour leaves in the folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The volume's id: the same name may be another volume by now.
    pub volume: u64,
    /// A drive that the tour has taken offline and not brought back yet.
    pub pulled: Option<DriveId>,
}

impl Mark {
    pub fn read(cluster: &Cluster) -> Option<Self> {
        // One that can't be read says nothing, so the volume counts as somebody else's.
        serde_json::from_slice(&fs::read(cluster.folder().tour_file()).ok()?).ok()
    }

    pub fn write(&self, cluster: &Cluster) -> Result<(), TourError> {
        Ok(write_json(&cluster.folder().tour_file(), self)?)
    }
}

/// On the filesystem that the folder is on, or will be.
pub fn check_room(folder: &Path) -> Result<(), TourError> {
    let absolute = std::path::absolute(folder)?;
    // What can't be looked at is found out when the folder is made.
    let Some(found) = absolute.ancestors().find_map(|folder| nix::sys::statvfs::statvfs(folder).ok()) else {
        return Ok(());
    };
    match found.blocks_available().saturating_mul(found.fragment_size()) {
        free if free < ROOM => Err(TourError::NoRoom { folder: folder.to_owned(), free }),
        _ => Ok(()),
    }
}

/// The tour's volume: made, or found to be ours.
pub fn volume(cluster: &Cluster, client: &Client) -> Result<VolumeInfo, TourError> {
    match client.get::<VolumeInfo>(&path(route::VOLUME, VOLUME)) {
        Ok(found) => {
            let ours = Mark::read(cluster).is_some_and(|mark| mark.volume == found.id) || found.allocated == 0;
            if !ours {
                return Err(TourError::NotOurs { why: "no tour has made it" });
            }
            let layout = found.layout.parse::<Layout>();
            if found.size != SIZE || !LAYOUTS.iter().flatten().any(|ours| layout == ours.parse()) {
                return Err(TourError::NotOurs { why: "its size or layout was changed" });
            }
            Ok(found)
        }
        Err(error) if error.is_not_found() => {
            let layout = Some(LAYOUTS[usize::from(cluster.servers().len() > 1)][0].to_owned());
            let request = CreateVolume {
                name: VOLUME.to_owned(),
                size: SIZE,
                layout,
                pool: None,
                key: None,
                plain: false,
                import: None,
            };
            Ok(client.post(route::VOLUMES, &request)?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Makes sure that whatever is on the volume was written by a tour: else somebody has begun to use it.
pub fn check_content(client: &Client, disk: &Disk, found: &VolumeInfo) -> Result<(), TourError> {
    if found.allocated == 0 {
        return Ok(());
    }
    let used = || TourError::NotOurs { why: "something is on it that no tour has written" };
    let mut offset = AREA;
    while offset < SIZE {
        let query = format!("{}?offset={offset}&length={}", path(route::VOLUME_MAP, VOLUME), SIZE - offset);
        let runs: Vec<MapRun> = client.get(&query)?;
        if runs.is_empty() || runs.iter().any(|run| run.mapped) {
            return Err(used());
        }
        offset += runs.iter().map(|run| run.length).sum::<u64>();
    }
    let mut pieces = (0..AREA / PIECE).map(|piece| Request::read(piece * PIECE, PIECE as u32, ()));
    let mut strange = false;
    let mut failed = None;
    disk.keep_busy(
        8,
        || pieces.next(),
        |(), bytes| bytes.chunks(BLOCK as usize).any(|block| pattern::read(block) == Found::Strange),
        |(), answer| match answer {
            Ok(found) => strange |= found,
            Err(errno) => failed = Some(TourError::refused(0, errno)),
        },
    );
    match failed {
        Some(error) => Err(error),
        None if strange => Err(used()),
        None => Ok(()),
    }
}
