//! What gateways outside the servers act by, and what they say of their clients.

use super::Shared;
use super::extract::Input;
use super::types::{Directory, DirectoryDrive, DirectoryServer, DirectoryVolume, GatewayNews};
use crate::authority::left;
use axum::Json;
use axum::extract::State;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tepal_metadata::{self as metadata, ServerState};
use tepal_model::VolumeId;
use tokio::time::timeout;

/// How long a caller waits for news. Less than it takes to find out that a server stands still, so that gateways notice.
const NEWS_WITHIN: Duration = Duration::from_secs(1);
/// After that silence a gateway counts as gone.
const GONE_AFTER: Duration = Duration::from_secs(5);
/// Gateways that are known at a time; of more, those that were silent for the longest aren't.
const MOST_GATEWAYS: usize = 4096;

/// The gateways outside the servers that were heard lately, each with how many clients have which volumes open there.
#[derive(Default)]
pub struct Gateways(Mutex<BTreeMap<u64, Heard>>);

struct Heard {
    at: Instant,
    clients: BTreeMap<u64, u64>,
}

impl Gateways {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Heard>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, gateway: u64, clients: BTreeMap<u64, u64>) {
        let mut all = self.lock();
        all.retain(|_, heard| heard.at.elapsed() < GONE_AFTER);
        all.insert(gateway, Heard { at: Instant::now(), clients });
        if all.len() > MOST_GATEWAYS {
            let silent = all.iter().min_by_key(|(_, heard)| heard.at).map(|(&gateway, _)| gateway);
            silent.and_then(|gateway| all.remove(&gateway));
        }
    }

    /// How many clients have the volume open at any of them.
    pub fn clients(&self, volume: VolumeId) -> u64 {
        let all = self.lock();
        let heard = all.values().filter(|heard| heard.at.elapsed() < GONE_AFTER);
        heard.filter_map(|heard| heard.clients.get(&volume.0)).fold(0, |sum, clients| sum.saturating_add(*clients))
    }
}

pub async fn show(State(context): State<Shared>) -> Json<Directory> {
    Json(directory(&context.parts.metadata.state()))
}

/// At once if the gateway has another one. A server that knows less than the gateway waits until it knows more.
pub async fn follow(
    State(context): State<Shared>,
    Input(GatewayNews { gateway, after, clients }): Input<GatewayNews>,
) -> Json<Directory> {
    context.gateways.hear(gateway, clients);
    let mut states = context.parts.metadata.watch();
    // Nothing new, then: the caller asks again.
    let _ = timeout(NEWS_WITHIN, states.wait_for(|state| state.happenings() > after)).await;
    Json(directory(&context.parts.metadata.state()))
}

fn directory(state: &metadata::State) -> Directory {
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
    let volumes = state.active_volumes().filter_map(|volume| {
        let map = state.map_of(volume)?;
        Some(DirectoryVolume {
            id: volume.id.0,
            name: volume.name.clone(),
            size: volume.size,
            layout: map.layout.to_string(),
            map: map.id.0,
            drives: map.drives.clone(),
            made_in: map.made_in,
            revision: volume.revision,
        })
    });
    Directory {
        cluster: state.cluster.id,
        number: state.happenings(),
        view: state.view(),
        servers: servers.collect(),
        drives: drives.collect(),
        volumes: volumes.collect(),
    }
}
