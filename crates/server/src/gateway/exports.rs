//! The cluster's volumes and their snapshots as the NBD front-end of a gateway wants them.

use super::people::People;
use crate::access::{Credentials, Peer};
use crate::api_types::{Directory, DirectorySnapshot, DirectoryVolume, SourceName};
use crate::keys::Keyring;
use crate::nbd::disk::{ExportedDisk, Terms};
use crate::nbd::exports::{Missing, Wanted, name_of, only};
use crate::news::in_a_moment;
use crate::observed::Observations;
use crate::throttle::Throttles;
use crate::world::ServerWorld;
use std::sync::Arc;
use tepal_engine::Engine;
use tepal_gateway::disk::{Exports, OpenError};
use tepal_metadata::{KeyHash, Limited};
use tepal_model::{Limits, VolumeId};
use tokio::sync::watch;
use tokio_rustls::rustls::pki_types::CertificateDer;

/// The volumes and snapshots, by their names as last heard of, or by [`BY_ID`](crate::api_types::BY_ID) and their ids.
#[derive(Clone)]
pub struct GatewayExports {
    pub directory: watch::Receiver<Arc<Directory>>,
    pub engine: Engine<ServerWorld>,
    pub observations: Observations,
    pub keyring: Keyring,
    pub throttles: Throttles,
    pub people: People,
    pub credentials: Credentials,
    /// By which key the client is known; one without TLS has all that the gateway has.
    pub client: Option<KeyHash>,
}

impl GatewayExports {
    fn may_know(&self, volume: &DirectoryVolume) -> bool {
        self.client.is_none_or(|client| self.people.may_know(&client, VolumeId(volume.id)))
    }
}

impl Exports for GatewayExports {
    type Disk = ExportedDisk;

    fn names(&self) -> Vec<String> {
        let directory = self.directory.borrow();
        let mut volumes: Vec<&DirectoryVolume> =
            directory.volumes.iter().filter(|volume| self.may_know(volume)).collect();
        volumes.sort_unstable_by_key(|volume| &volume.name);
        let of_volume = |volume: &&DirectoryVolume| {
            let named = |snapshot: &DirectorySnapshot| name_of(&volume.name, &snapshot.name).to_string();
            volume.snapshots.iter().map(named).collect::<Vec<_>>()
        };
        let snapshots = volumes.iter().flat_map(of_volume);
        volumes.iter().map(|volume| volume.name.clone()).chain(snapshots).collect()
    }

    /// The only volume, whatever snapshots it has.
    fn unnamed(&self) -> Option<String> {
        only(self.directory.borrow().volumes.iter().filter(|volume| self.may_know(volume)))
            .map(|volume| volume.name.clone())
    }

    fn shown_to(&self, certificates: &[CertificateDer<'static>]) -> Result<Self, OpenError> {
        match self.credentials.judge(Some(certificates)) {
            Some(Peer::Identity(client, _)) => Ok(GatewayExports { client: Some(client), ..self.clone() }),
            Some(Peer::Trusted | Peer::Server(_)) | None => {
                Err(OpenError::NotAllowed("this certificate counts for nothing here".to_owned()))
            }
        }
    }

    async fn open(&self, name: &str) -> Result<ExportedDisk, OpenError> {
        let wanted = Wanted::of(name).ok_or_else(|| OpenError::Unknown(name.to_owned()))?;
        let is_news = |directory: &Arc<Directory>| find(directory, &wanted).is_ok();
        let directory = in_a_moment(&mut self.directory.clone(), is_news).await;
        let found = find(&directory, &wanted).and_then(|(volume, snapshot)| match self.may_know(volume) {
            true => Ok((volume, snapshot)),
            false => Err(Missing::Volume),
        });
        // Who may not know of a volume isn't told that it lacks a snapshot, either.
        let hidden = |missing| match volume_of(&directory, &wanted) {
            Some(volume) if !self.may_know(volume) => Missing::Volume,
            _ => missing,
        };
        let (found, snapshot) = found.map_err(|missing| hidden(missing).said_of(name))?;
        let unavailable = || OpenError::Unavailable {
            name: name.to_owned(),
            reason: "this gateway can't serve it, as its log says".to_owned(),
        };
        let volume = self.engine.volume(VolumeId(found.id)).ok_or_else(unavailable)?;
        if volume.is_locked() {
            let locked = |reason: String| OpenError::Unavailable { name: name.to_owned(), reason };
            let key = found.key.as_ref().ok_or_else(unavailable)?;
            let unlocked = self.keyring.unlock(&volume, &key.name, &key.wrapped).await;
            unlocked
                .map_err(|error| locked(format!("it's encrypted, and this gateway can't read or write it: {error}")))?;
        }
        let throttle =
            self.throttles.of(Limited::Volume(VolumeId(found.id)), |of| limits_in(&self.directory.borrow(), of));
        let claim = self.client.map(|client| self.people.claims().of(client, VolumeId(found.id)));
        let terms = Terms { claim, is_elsewhere: true, throttles: vec![throttle], ..Terms::default() };
        Ok(match snapshot {
            None => ExportedDisk::of_volume(volume, &self.observations, terms),
            Some(snapshot) => {
                let called = name_of(&found.name, &snapshot.name);
                ExportedDisk::of_snapshot(&volume, (snapshot.epoch, snapshot.size), called, &self.observations, terms)
            }
        })
    }
}

/// How much may be asked for, as servers say.
pub fn limits_in(directory: &Directory, of: &Limited) -> Limits {
    let is_it = |volume: &&DirectoryVolume| *of == Limited::Volume(VolumeId(volume.id));
    directory.volumes.iter().find(is_it).map_or_else(Limits::default, |volume| volume.limits)
}

type Found<'a> = (&'a DirectoryVolume, Option<&'a DirectorySnapshot>);

fn volume_of<'a>(directory: &'a Directory, wanted: &Wanted) -> Option<&'a DirectoryVolume> {
    let is_wanted = |volume: &&DirectoryVolume| match wanted {
        Wanted::Name(name) => volume.name == name.volume(),
        Wanted::Id(id, _) => volume.id == id.0,
    };
    directory.volumes.iter().find(is_wanted)
}

fn find<'a>(directory: &'a Directory, wanted: &Wanted) -> Result<Found<'a>, Missing> {
    let volume = volume_of(directory, wanted).ok_or(Missing::Volume)?;
    let is_snapshot = |snapshot: &&DirectorySnapshot| match wanted {
        Wanted::Name(SourceName::Snapshot(name)) => snapshot.name == name.snapshot,
        Wanted::Id(_, epoch) => *epoch == Some(snapshot.epoch),
        Wanted::Name(SourceName::Volume(_)) => false,
    };
    if matches!(wanted, Wanted::Name(SourceName::Volume(_)) | Wanted::Id(_, None)) {
        return Ok((volume, None));
    }
    let snapshot = volume.snapshots.iter().find(is_snapshot).ok_or(Missing::Snapshot)?;
    Ok((volume, Some(snapshot)))
}
