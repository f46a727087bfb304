//! What gateways outside the servers act by.

use super::Shared;
use super::extract::Options;
use super::types::{AfterQuery, Directory, DirectoryDrive, DirectoryServer, DirectoryVolume};
use crate::authority::left;
use axum::Json;
use axum::extract::State;
use std::time::Duration;
use tepal_metadata::{self as metadata, ServerState};
use tokio::time::timeout;

/// How long a caller waits for news. Less than it takes to find out that a server stands still, so that gateways notice.
const NEWS_WITHIN: Duration = Duration::from_secs(1);

/// At once if the caller has another one. A server that knows less than the caller waits until it knows more.
pub async fn show(
    State(context): State<Shared>,
    Options(AfterQuery { after }): Options<AfterQuery>,
) -> Json<Directory> {
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
