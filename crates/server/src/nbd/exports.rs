//! Volumes and their snapshots as the NBD front-end wants them.

use super::disk::{ExportedDisk, Terms};
use crate::access::{Access, Claim};
use crate::api_types::{BY_ID, SnapshotName, SourceName};
use crate::authority::MetadataAuthority;
use crate::news::in_a_moment;
use crate::observed::Observations;
use crate::throttle::Throttle;
use crate::volumes::{NotServed, Volumes, is_alone};
use std::sync::Arc;
use std::time::Duration;
use tepal_gateway::disk::{Exports, OpenError};
use tepal_metadata::{
    Command, KeyHash, Metadata, ProposeError, Refusal, Right, SnapshotRecord, State, VolumeRecord, VolumeState,
    asked_by,
};
use tepal_model::{Epoch, VolumeId};
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::CertificateDer;

/// The volumes of the cluster and their snapshots, by their names as of now, or by [`BY_ID`] and their ids.
#[derive(Clone)]
pub struct ServerExports {
    pub metadata: Metadata,
    pub volumes: Arc<Volumes>,
    pub observations: Observations,
    pub access: Access,
    pub authority: MetadataAuthority,
    /// Whose they are; whoever came without TLS may have all.
    pub client: Option<KeyHash>,
}

impl Exports for ServerExports {
    type Disk = ExportedDisk;

    fn names(&self) -> Vec<String> {
        let state = self.metadata.state();
        let mut volumes: Vec<&Arc<VolumeRecord>> = self.visible(&state).collect();
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
        only(self.visible(&state)).map(|record| record.name.clone())
    }

    fn shown_to(&self, certificates: &[CertificateDer<'static>]) -> Result<Self, OpenError> {
        let unknown = || OpenError::NotAllowed("this certificate counts no more".to_owned());
        let (key, _) = self.access.identity_of(certificates).ok_or_else(unknown)?;
        Ok(ServerExports { client: Some(key), ..self.clone() })
    }

    async fn open(&self, asked: &str) -> Result<ExportedDisk, OpenError> {
        let (name, exclusive) = Exclusive::of(asked)?;
        let wanted = Wanted::of(name).ok_or_else(|| OpenError::Unknown(name.to_owned()))?;
        let mut states = self.metadata.watch();
        let is_news = |state: &Arc<State>| is_alone(state) || self.find(state, &wanted).is_ok();
        let state = in_a_moment(&mut states, is_news).await;
        let (record, snapshot) = self.find(&state, &wanted).map_err(|missing| missing.said_of(name))?;
        let claim = self.client.map(|client| self.access.claims().of(client, record.id));
        if let (Some(exclusive), None) = (&exclusive, snapshot) {
            self.reserve(record, claim.as_deref(), exclusive).await?;
        }
        let state = self.metadata.state();
        let (holder, number) = state.access.reserved(record.id);
        let own = exclusive.as_ref().map(|exclusive| exclusive.holder);
        if snapshot.is_none()
            && let Some(holder) = holder.filter(|holder| own != Some(holder))
        {
            let (volume, holder) = (record.name.clone(), holder.to_owned());
            return Err(OpenError::NotAllowed(Refusal::Reserved { volume, holder }.to_string()));
        }
        let fence = (self.access.claims().fence(record.id), number);
        let fence = snapshot.is_none().then_some(fence);
        let terms = Terms { claim, fence, is_holder: own.is_some(), ..self.limits(record)? };
        let unavailable =
            |reason: NotServed| OpenError::Unavailable { name: name.to_owned(), reason: reason.to_string() };
        let volume = self.volumes.unlocked(record).await.map_err(unavailable)?;
        Ok(match snapshot {
            None => ExportedDisk::of_volume(volume, &self.observations, terms),
            Some(snapshot) => {
                let called = name_of(&record.name, &snapshot.name);
                ExportedDisk::of_snapshot(&volume, (snapshot.epoch, snapshot.size), called, &self.observations, terms)
            }
        })
    }
}

/// So long a client that takes a volume is waited for until no server acts by what was before.
const TAKEN_WITHIN: Duration = Duration::from_secs(20);

/// Said behind an export's name, as in `v?exclusive=web1` or `v?exclusive=web1,take`.
struct Exclusive<'a> {
    holder: &'a str,
    takes: bool,
}

impl<'a> Exclusive<'a> {
    /// The export's own name, and what is said behind it.
    fn of(name: &'a str) -> Result<(&'a str, Option<Self>), OpenError> {
        let Some((name, said)) = name.split_once('?') else { return Ok((name, None)) };
        let text = "behind an export's name stands exclusive=HOLDER, or exclusive=HOLDER,take";
        let malformed = || OpenError::NotAllowed(text.to_owned());
        let said = said.strip_prefix("exclusive=").ok_or_else(malformed)?;
        let (holder, takes) = match said.split_once(',') {
            None => (said, false),
            Some((holder, "take")) => (holder, true),
            Some(_) => return Err(malformed()),
        };
        Ok((name, Some(Exclusive { holder, takes })))
    }
}

impl ServerExports {
    /// Returns when nobody else writes to the volume any more.
    async fn reserve(
        &self,
        record: &VolumeRecord,
        claim: Option<&Claim>,
        Exclusive { holder, takes }: &Exclusive<'_>,
    ) -> Result<(), OpenError> {
        if claim.is_some_and(|claim| claim.check(Right::Write).is_err()) {
            return Err(OpenError::NotAllowed("only who may write to a volume may have it exclusively".to_owned()));
        }
        let (volume, holder) = (record.by_id(), (*holder).to_owned());
        let state = self.metadata.state();
        let who = self.client.and_then(|key| state.access.identity_of(&key)).map(|known| known.name.clone());
        let reserving = self.metadata.propose(Command::Reserve { volume, holder, take: *takes });
        let reserved = match who {
            Some(who) => asked_by(who, reserving).await,
            None => reserving.await,
        };
        let unavailable = |reason: String| OpenError::Unavailable { name: record.name.clone(), reason };
        match reserved {
            Ok(_) => {}
            Err(ProposeError::Refused(refusal)) => return Err(OpenError::NotAllowed(refusal.to_string())),
            Err(error) => return Err(unavailable(error.to_string())),
        }
        match timeout(TAKEN_WITHIN, self.authority.acted_by(self.metadata.state().view())).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(unavailable(error.to_string())),
            Err(_) => Err(unavailable("some server may still act by an earlier reservation: try again".to_owned())),
        }
    }

    /// How much the client may ask for, and its place among its connections.
    fn limits(&self, record: &VolumeRecord) -> Result<Terms, OpenError> {
        let claims = self.access.claims();
        let by = self.client.and_then(|key| claims.throttle_by(&key));
        let connected = by.as_ref().map(Throttle::connect).transpose().map_err(|most| {
            let text = format!("this identity has {most} connections to this server already, as many as it may");
            OpenError::NotAllowed(text)
        })?;
        let throttles = by.into_iter().chain([claims.throttle(record.id)]).collect();
        Ok(Terms { throttles, _connected: connected.map(Arc::new), ..Terms::default() })
    }

    /// What the client may know of.
    fn visible<'a>(&self, state: &'a State) -> impl Iterator<Item = &'a Arc<VolumeRecord>> {
        let identity = self.client.map(|key| state.access.identity_of(&key).cloned());
        state.active_volumes().filter(move |record| match &identity {
            None => true,
            Some(identity) => identity.as_ref().is_some_and(|known| state.right_of(known, record.id).is_some()),
        })
    }

    /// What the client may not know of isn't there.
    fn find<'a>(&self, state: &'a State, wanted: &Wanted) -> Result<Found<'a>, Missing> {
        let found = find(state, wanted);
        let is_visible =
            |record: &VolumeRecord| self.client.is_none() || self.visible(state).any(|one| one.id == record.id);
        match found {
            Ok((record, _)) if !is_visible(record) => Err(Missing::Volume),
            Err(Missing::Snapshot) if !volume_of(state, wanted).is_some_and(|record| is_visible(record)) => {
                Err(Missing::Volume)
            }
            found => found,
        }
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

fn volume_of<'a>(state: &'a State, wanted: &Wanted) -> Option<&'a Arc<VolumeRecord>> {
    match wanted {
        Wanted::Name(name) => state.volume_named(name.volume()),
        Wanted::Id(id, _) => state.volumes.get(id).filter(|record| record.state == VolumeState::Active),
    }
}

fn find<'a>(state: &'a State, wanted: &Wanted) -> Result<Found<'a>, Missing> {
    let record = volume_of(state, wanted).ok_or(Missing::Volume)?;
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
