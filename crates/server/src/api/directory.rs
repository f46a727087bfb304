//! What gateways outside the servers act by, and what they say of their clients.

use super::extract::Input;
use super::types::{
    Directory, DirectoryColumn, DirectoryDrive, DirectoryIdentity, DirectoryKey, DirectoryMap, DirectoryMigration,
    DirectoryRanges, DirectoryServer, DirectorySnapshot, DirectoryTrust, DirectoryVolume, ENCRYPTED, GatewayCounters,
    GatewayNews, RANGED,
};
use super::{Shared, Who};
use crate::access::Trust;
use crate::agreed::left;
use crate::observed::Damage;
use axum::extract::State;
use axum::{Extension, Json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tepal_metadata::{self as metadata, ColumnRecord, IdentityRecord, Limited, Role, ServerState, SnapshotRecord};
use tepal_model::{Epoch, VolumeId};
use tokio::time::timeout;

/// How long a caller waits for news. Less than it takes to find out that a server stands still, so that gateways notice.
const NEWS_WITHIN: Duration = Duration::from_secs(1);
/// After that silence a gateway counts as gone.
const GONE_AFTER: Duration = Duration::from_secs(5);
/// Gateways that are known at a time; of more, those that were silent for the longest aren't.
const MOST_GATEWAYS: usize = 4096;

/// The gateways outside the servers that were heard lately, each with what it said last.
#[derive(Default)]
pub struct Gateways(Mutex<BTreeMap<u64, Heard>>);

struct Heard {
    at: Instant,
    news: GatewayNews,
}

impl Gateways {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Heard>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what damage it told of before.
    fn hear(&self, news: GatewayNews) -> Damage {
        let mut all = self.lock();
        all.retain(|_, heard| heard.at.elapsed() < GONE_AFTER);
        let before = all.insert(news.gateway, Heard { at: Instant::now(), news });
        if all.len() > MOST_GATEWAYS {
            let silent = all.iter().min_by_key(|(_, heard)| heard.at).map(|(&gateway, _)| gateway);
            silent.and_then(|gateway| all.remove(&gateway));
        }
        before.map(|heard| heard.news.damage).unwrap_or_default()
    }

    /// How many clients have the volume itself open at any of them.
    pub fn clients(&self, volume: VolumeId) -> u64 {
        self.sum(|news| news.clients.get(&volume.0))
    }

    /// How many have its snapshot of that epoch open.
    pub fn clients_of_snapshot(&self, volume: VolumeId, epoch: Epoch) -> u64 {
        self.sum(|news| news.snapshot_clients.get(&volume.0)?.get(&epoch))
    }

    /// What each of them has counted; `each`: also of each volume.
    pub fn counters(&self, each: bool) -> Vec<GatewayCounters> {
        let all = self.lock();
        let heard = all.values().filter(|heard| heard.at.elapsed() < GONE_AFTER);
        let of = |news: &GatewayNews| GatewayCounters {
            gateway: news.gateway,
            requests: news.requests.clone(),
            volumes: if each { news.volumes.clone() } else { Vec::new() },
        };
        heard.map(|heard| of(&heard.news)).collect()
    }

    fn sum(&self, clients: impl Fn(&GatewayNews) -> Option<&u64>) -> u64 {
        let all = self.lock();
        let heard = all.values().filter(|heard| heard.at.elapsed() < GONE_AFTER);
        heard.filter_map(|heard| clients(&heard.news)).fold(0, |sum, clients| sum.saturating_add(*clients))
    }
}

pub async fn show(State(context): State<Shared>, who: Option<Extension<Who>>) -> Json<Directory> {
    Json(directory(&context.parts.metadata.state(), who.as_deref(), false))
}

/// At once if the gateway has another one. A server that knows less than the gateway waits until it knows more.
pub async fn follow(
    State(context): State<Shared>,
    who: Option<Extension<Who>>,
    Input(news): Input<GatewayNews>,
) -> Json<Directory> {
    let (after, serves) = (news.after, news.serves);
    let damage = news.damage.clone();
    let before = context.gateways.hear(news);
    let state = context.parts.metadata.state();
    context.observations.hear(&before, &damage, |whose| whose.is_in(&state));
    let mut states = context.parts.metadata.watch();
    // Nothing new, then: the caller asks again.
    let _ = timeout(NEWS_WITHIN, states.wait_for(|state| state.happenings() > after)).await;
    Json(directory(&context.parts.metadata.state(), who.as_deref(), serves))
}

/// What an identity may know of. `serves`: it wants to know who else may come.
fn directory(state: &metadata::State, who: Option<&Who>, serves: bool) -> Directory {
    let may_know = |volume: VolumeId| match who {
        Some(Who::Identity(key, _)) => {
            let known = state.access.identity_of(key);
            known.is_some_and(|known| state.right_of(known, volume).is_some())
        }
        Some(Who::Nobody | Who::InTheClear) | None => true,
    };
    let servers = state.servers.values().map(|server| DirectoryServer {
        id: server.id,
        is_up: server.state == ServerState::Up,
        address: server.address.clone(),
    });
    let drives = state.drives.values().map(|drive| DirectoryDrive {
        id: drive.id,
        server: drive.server,
        state: drive.state,
        state_view: drive.state_view,
        left: left(drive),
    });
    // What isn't there yet of a volume that is imported live only servers reach.
    let is_whole = |volume: &VolumeId| !state.access.live_imports.contains_key(volume);
    let known = state.active_volumes().filter(|volume| may_know(volume.id) && is_whole(&volume.id));
    let volumes = known.filter_map(|volume| {
        let map = state.map_of(volume)?;
        let key = state.access.volume_keys.get(&volume.id);
        let key = key.map(|key| DirectoryKey { name: key.key.clone(), wrapped: key.wrapped.clone() });
        let before = if key.is_some() { ENCRYPTED } else { "" };
        let ranges = ranges(state, volume);
        let ranged = if ranges.is_some() { RANGED } else { "" };
        Some(DirectoryVolume {
            id: volume.id.0,
            name: volume.name.clone(),
            size: volume.size,
            layout: format!("{before}{ranged}{}", map.layout),
            map: map.id.0,
            width: map.width,
            chunk: map.chunk,
            columns: map.columns.iter().map(column).collect(),
            revision: volume.revision,
            is_replica: volume.replica.is_some(),
            limits: state.access.limits_of(&Limited::Volume(volume.id)),
            key,
            migration: migration(state, volume),
            ranges,
            snapshots: state.snapshots_of(volume.id).map(|snapshot| of_gateways(snapshot)).collect(),
        })
    });
    Directory {
        cluster: state.cluster.id,
        number: state.happenings(),
        view: state.view(),
        servers: servers.collect(),
        drives: drives.collect(),
        volumes: volumes.collect(),
        people: if serves { people(state, may_know) } else { Vec::new() },
        trust: serves.then(|| {
            let Trust { roots, outside } = Trust::of(&state.access);
            DirectoryTrust { roots, outside }
        }),
    }
}

/// Who has a right to any of the volumes that a gateway may know of.
fn people(state: &metadata::State, may_know: impl Fn(VolumeId) -> bool) -> Vec<DirectoryIdentity> {
    let volumes: Vec<VolumeId> = state.active_volumes().map(|volume| volume.id).filter(|id| may_know(*id)).collect();
    let told = |record: &Arc<IdentityRecord>| {
        let everything = record.role == Role::Operator;
        let right = |volume: &VolumeId| Some((volume.0, state.right_of(record, *volume)?));
        let rights: Vec<_> = match record.role {
            Role::Host => volumes.iter().filter_map(right).collect(),
            Role::Operator | Role::Server | Role::Revoked => Vec::new(),
        };
        let keys = std::iter::once(record.key).chain(record.former_key).map(|key| key.to_string()).collect();
        let name = record.name.clone();
        (everything || !rights.is_empty()).then_some(DirectoryIdentity { name, keys, everything, rights })
    };
    state.access.identities.values().filter_map(told).collect()
}

fn migration(state: &metadata::State, volume: &metadata::VolumeRecord) -> Option<DirectoryMigration> {
    let record = state.migration_of(volume)?;
    let map = state.maps.get(&record.target)?;
    Some(DirectoryMigration {
        target: map.id.0,
        layout: map.layout.to_string(),
        width: map.width,
        chunk: map.chunk,
        columns: map.columns.iter().map(column).collect(),
        source: Some(record.source.0),
        first: record.first,
        ends: record.ends,
        chunks: record.chunks,
        seed: record.seed,
        done: record.done,
        fence: record.fence,
        reversed: record.cancelled,
        leaves: record.leaves.map(|volume| volume.0),
        since: record.since,
    })
}

fn ranges(state: &metadata::State, volume: &metadata::VolumeRecord) -> Option<DirectoryRanges> {
    let goes_in_part = state.migration_of(volume).is_some_and(|migration| migration.is_of_a_part());
    if volume.ranges.is_none() && !goes_in_part {
        return None;
    }
    let maps = state.maps_of(volume).filter(|map| map.id != volume.map).map(|map| DirectoryMap {
        map: map.id.0,
        layout: map.layout.to_string(),
        width: map.width,
        chunk: map.chunk,
        columns: map.columns.iter().map(column).collect(),
    });
    Some(DirectoryRanges { list: volume.table().to_string(), maps: maps.collect() })
}

fn of_gateways(snapshot: &SnapshotRecord) -> DirectorySnapshot {
    DirectorySnapshot { name: snapshot.name.clone(), epoch: snapshot.epoch, size: snapshot.size }
}

fn column(record: &ColumnRecord) -> DirectoryColumn {
    DirectoryColumn { holders: record.holders.iter().map(|holder| (holder.drive, holder.since)).collect() }
}
