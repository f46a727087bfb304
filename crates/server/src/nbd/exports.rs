//! Volumes and their snapshots as the NBD front-end wants them.

use super::disk::ExportedDisk;
use crate::api_types::{BY_ID, SnapshotName, SourceName};
use crate::news::in_a_moment;
use crate::observed::Observations;
use crate::volumes::{NotServed, Volumes, is_alone};
use std::sync::Arc;
use tepal_gateway::disk::{Exports, OpenError};
use tepal_metadata::{Metadata, SnapshotRecord, State, VolumeRecord, VolumeState};
use tepal_model::{Epoch, VolumeId};

/// The volumes of the cluster and their snapshots, by their names as of now, or by [`BY_ID`] and their ids.
#[derive(Clone)]
pub struct ServerExports {
    pub metadata: Metadata,
    pub volumes: Arc<Volumes>,
    pub observations: Observations,
}

impl Exports for ServerExports {
    type Disk = ExportedDisk;

    fn names(&self) -> Vec<String> {
        let state = self.metadata.state();
        let mut volumes: Vec<&Arc<VolumeRecord>> = state.active_volumes().collect();
        volumes.sort_unstable_by_key(|record| &record.name);
        let of_volume = |record: &&Arc<VolumeRecord>| {
            let named = |snapshot: &Arc<SnapshotRecord>| name_of(&record.name, &snapshot.name).to_string();
            state.snapshots_of(record.id).map(named).collect::<Vec<_>>()
        };
        let snapshots = volumes.iter().flat_map(of_volume);
        volumes.iter().map(|record| record.name.clone()).chain(snapshots).collect()
    }

    /// The only volume, whatever snapshots it has.
    fn unnamed(&self) -> Option<String> {
        let state = self.metadata.state();
        only(state.active_volumes()).map(|record| record.name.clone())
    }

    async fn open(&self, name: &str) -> Result<ExportedDisk, OpenError> {
        let wanted = Wanted::of(name).ok_or_else(|| OpenError::Unknown(name.to_owned()))?;
        let mut states = self.metadata.watch();
        let is_news = |state: &Arc<State>| is_alone(state) || find(state, &wanted).is_ok();
        let state = in_a_moment(&mut states, is_news).await;
        let (record, snapshot) = find(&state, &wanted).map_err(|missing| missing.said_of(name))?;
        let unavailable =
            |reason: NotServed| OpenError::Unavailable { name: name.to_owned(), reason: reason.to_string() };
        let volume = self.volumes.opened(record).await.map_err(unavailable)?;
        Ok(match snapshot {
            None => ExportedDisk::of_volume(volume, &self.observations),
            Some(snapshot) => {
                let called = name_of(&record.name, &snapshot.name);
                ExportedDisk::of_snapshot(&volume, (snapshot.epoch, snapshot.size), called, &self.observations)
            }
        })
    }
}

pub fn only<T>(mut of: impl Iterator<Item = T>) -> Option<T> {
    of.next().filter(|_| of.next().is_none())
}

pub fn name_of(volume: &str, snapshot: &str) -> SnapshotName {
    SnapshotName { volume: volume.to_owned(), snapshot: snapshot.to_owned() }
}

/// What an export's name says.
#[derive(Debug, PartialEq, Eq)]
pub enum Wanted {
    Name(SourceName),
    /// A volume, or its snapshot of that epoch.
    Id(VolumeId, Option<Epoch>),
}

impl Wanted {
    /// `None` if nothing is ever named so.
    pub fn of(name: &str) -> Option<Self> {
        let Some(id) = name.strip_prefix(BY_ID) else { return name.parse().ok().map(Wanted::Name) };
        let (id, epoch) = match id.split_once('@') {
            None => (id, None),
            Some((id, epoch)) => (id, Some(epoch.parse().ok()?)),
        };
        Some(Wanted::Id(VolumeId(id.parse().ok()?), epoch))
    }
}

/// What of an export isn't there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    Volume,
    /// The volume is.
    Snapshot,
}

impl Missing {
    pub fn said_of(self, name: &str) -> OpenError {
        match (self, name.split_once('@')) {
            (Missing::Snapshot, Some((volume, snapshot))) => {
                OpenError::NoSnapshot { volume: volume.to_owned(), snapshot: snapshot.to_owned() }
            }
            (Missing::Volume, Some((volume, _))) => OpenError::Unknown(volume.to_owned()),
            _ => OpenError::Unknown(name.to_owned()),
        }
    }
}

type Found<'a> = (&'a Arc<VolumeRecord>, Option<&'a Arc<SnapshotRecord>>);

fn find<'a>(state: &'a State, wanted: &Wanted) -> Result<Found<'a>, Missing> {
    let active = |id| state.volumes.get(&id).filter(|record| record.state == VolumeState::Active);
    let record = match wanted {
        Wanted::Name(name) => state.volume_named(name.volume()),
        Wanted::Id(id, _) => active(*id),
    };
    let record = record.ok_or(Missing::Volume)?;
    let snapshot = match wanted {
        Wanted::Name(SourceName::Volume(_)) | Wanted::Id(_, None) => return Ok((record, None)),
        Wanted::Name(SourceName::Snapshot(name)) => state.snapshot_named(record.id, &name.snapshot),
        Wanted::Id(_, Some(epoch)) => state.snapshots_of(record.id).find(|snapshot| snapshot.epoch == *epoch),
    };
    snapshot.map(|snapshot| (record, Some(snapshot))).ok_or(Missing::Snapshot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_named_by_names_or_by_what_stays_when_these_change() {
        let cases = [
            ("v0", Some(Wanted::Name(SourceName::Volume("v0".into())))),
            ("v0@a", Some(Wanted::Name(SourceName::Snapshot(name_of("v0", "a"))))),
            ("id:7", Some(Wanted::Id(VolumeId(7), None))),
            ("id:7@3", Some(Wanted::Id(VolumeId(7), Some(3)))),
        ];
        for (name, wanted) in cases {
            assert_eq!(Wanted::of(name), wanted, "{name}");
        }
        for name in ["", "@", "v0@", "v0@a@b", "id:", "id:x", "id:7@", "id:7@a", "id:7@-1", "id:7@4294967296", "a/b"] {
            assert_eq!(Wanted::of(name), None, "{name}");
        }
    }

    #[test]
    fn of_an_export_that_is_not_there_it_is_said_what_is_missing() {
        for (missing, name, said) in [
            (Missing::Volume, "v0", "there is no volume 'v0'"),
            (Missing::Volume, "v0@a", "there is no volume 'v0'"),
            (Missing::Snapshot, "v0@a", "there is no snapshot 'a' of volume 'v0'"),
        ] {
            assert_eq!(missing.said_of(name).to_string(), said);
        }
    }
}
