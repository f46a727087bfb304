//! What a command of many requests reads: a volume or a snapshot, found once by its name, and asked for by its id from then on. So it
//! ends on the thing that it began with, whatever that is called by then, and whatever has got its name.

use super::hold::{Hold, HoldUse};
use crate::client::{Client, ClientError};
use tepal_model::Layout;
use tepal_server::api::types::{
    BY_ID, LiveImportState, Loss, MapRun, Range, SnapshotInfo, SnapshotName, SourceName, VolumeInfo, path, route,
};

pub struct Source<'a> {
    client: &'a Client,
    /// As it was called when it was found.
    pub name: SourceName,
    /// Stands for its name.
    id: String,
    /// Of the volume.
    pub volume: u64,
    /// Bytes.
    pub size: u64,
    pub kind: Kind,
    /// It has a part of an image, or will have.
    pub is_incomplete: bool,
    /// It was imported live, and what wasn't copied can't be read.
    pub is_cancelled: bool,
    /// Of which volume the volume is a replica, if it is one.
    pub replica_of: Option<String>,
    _hold: Hold,
}

pub enum Kind {
    /// As it is now. It's to go on from this epoch and this revision to the end: a rollback or a shrink would mix what the volume was with
    /// what it is.
    Volume {
        epoch: u64,
        revision: u64,
    },
    Snapshot(Box<SnapshotInfo>),
}

impl<'a> Source<'a> {
    pub fn find(client: &'a Client, name: &SourceName) -> Result<Self, ClientError> {
        Ok(match name {
            SourceName::Volume(called) => {
                let volume: VolumeInfo = client.get(&path(route::VOLUME, called))?;
                Source { name: name.clone(), ..Source::of_volume(client, &volume) }
            }
            SourceName::Snapshot(called) => {
                let asked = format!("{}?count=false", path(route::SNAPSHOT, &called.to_string()));
                let snapshot: SnapshotInfo = client.get(&asked)?;
                Source { name: name.clone(), ..Source::of_snapshot(client, snapshot) }
            }
        })
    }

    /// A volume that was found already.
    pub fn of_volume(client: &'a Client, volume: &VolumeInfo) -> Self {
        let (name, id) = (SourceName::Volume(volume.name.clone()), volume.by_id());
        let _hold = Hold::begin(client, id.clone(), HoldUse::Export);
        let kind = Kind::Volume { epoch: volume.epoch, revision: volume.revision };
        Source {
            client,
            name,
            id,
            volume: volume.id,
            size: volume.size,
            kind,
            is_incomplete: volume.incomplete.is_some(),
            is_cancelled: volume.live.as_ref().is_some_and(|live| live.state == LiveImportState::Cancelled),
            replica_of: volume.replica.as_ref().map(|replica| replica.called.clone()),
            _hold,
        }
    }

    /// A snapshot that was found already.
    pub fn of_snapshot(client: &'a Client, snapshot: SnapshotInfo) -> Self {
        let (id, volume, size) = (snapshot.by_id(), snapshot.volume_id, snapshot.size);
        let called = SnapshotName { volume: snapshot.volume.clone(), snapshot: snapshot.name.clone() };
        let _hold = Hold::begin(client, id.clone(), HoldUse::Export);
        let (name, kind) = (SourceName::Snapshot(called), Kind::Snapshot(Box::new(snapshot)));
        let (is_incomplete, is_cancelled, replica_of) = (false, false, None);
        Source { client, name, id, volume, size, kind, is_incomplete, is_cancelled, replica_of, _hold }
    }

    /// As an error names it.
    pub fn described(&self) -> String {
        match &self.name {
            SourceName::Volume(name) => format!("volume '{name}'"),
            SourceName::Snapshot(name) => format!("snapshot '{name}'"),
        }
    }

    /// Which parts of so many bytes drives hold, maybe not to the end.
    pub fn map(&self, offset: u64, length: u64) -> Result<Vec<MapRun>, ClientError> {
        self.client.get(&self.question((route::VOLUME_MAP, route::SNAPSHOT_MAP), offset, length))
    }

    /// Bytes that only drives had that have failed, in order. A server that can't tell is asked for them as for others.
    pub fn lost(&self) -> Vec<Range> {
        let of_volume = format!("{BY_ID}{}", self.volume);
        self.client.get::<Loss>(&path(route::VOLUME_LOSS, &of_volume)).map(|loss| loss.ranges).unwrap_or_default()
    }

    /// Whether some of it may have an erasure code.
    pub fn has_code(&self) -> bool {
        let of_volume = format!("{BY_ID}{}", self.volume);
        let Ok(volume) = self.client.get::<VolumeInfo>(&path(route::VOLUME, &of_volume)) else { return true };
        let layout: Option<Layout> = volume.layout.parse().ok();
        volume.ranges.len() > 1
            || volume.migration.is_some()
            || layout.is_none_or(|layout| !layout.fragments().are_copies())
    }

    pub fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>, ClientError> {
        self.client.get_bytes(&self.question((route::VOLUME_DATA, route::SNAPSHOT_DATA), offset, length))
    }

    pub fn as_snapshot(&self) -> Option<&SnapshotInfo> {
        match &self.kind {
            Kind::Volume { .. } => None,
            Kind::Snapshot(snapshot) => Some(snapshot),
        }
    }

    /// Of a range. Of a volume it's refused once that was rolled back since it was found.
    fn question(&self, (of_volume, of_snapshot): (&'static str, &'static str), offset: u64, length: u64) -> String {
        let (route, epoch) = match self.kind {
            Kind::Volume { epoch, revision } => (of_volume, format!("&epoch={epoch}&revision={revision}")),
            Kind::Snapshot(_) => (of_snapshot, String::new()),
        };
        format!("{}?offset={offset}&length={length}{epoch}", path(route, &self.id))
    }
}
