//! What was counted here and elsewhere, for those who follow it from second to second.

use super::extract::Options;
use super::relay::Scope;
use super::types::{Counters, CountersQuery, DriveCounters, GatewayCounters, ServerCounters, route};
use super::{Context, Shared};
use crate::observed::meter::{self, BOUNDS_MICROS};
use axum::Json;
use axum::extract::State;
use axum::http::Method;
use std::collections::BTreeMap;
use std::time::Duration;
use tepal_metadata::ServerState;
use tokio::time::timeout;

/// What comes later is of the second before.
const SAID_WITHIN: Duration = Duration::from_millis(800);

pub async fn show(
    State(context): State<Shared>,
    scope: Scope,
    Options(query): Options<CountersQuery>,
) -> Json<Counters> {
    Json(match scope {
        Scope::Own => own(&context, query),
        Scope::Cluster => of_cluster(&context, query).await,
    })
}

pub async fn of_cluster(context: &Context, query: CountersQuery) -> Counters {
    let asked = format!("{}?each={}", route::COUNTERS, query.each);
    let asked = &asked;
    let state = context.parts.metadata.state();
    let others = state.servers.values().filter(|one| one.id != context.server && one.state != ServerState::Down);
    let asking = others.map(|record| async move {
        let said = timeout(SAID_WITHIN, context.ask::<Counters>(record, &Method::GET, asked)).await;
        said.ok().and_then(|said| said.inspect_err(|error| tracing::debug!(%error, "counters aren't told")).ok())
    });
    let mut all = own(context, query);
    let mut gateways: BTreeMap<u64, GatewayCounters> = BTreeMap::new();
    let mut hear = |said: Vec<GatewayCounters>| {
        for one in said {
            // One that went over to another server may still be known to both: who counted more knows later.
            let known = gateways.get(&one.gateway).is_some_and(|known| count(known) >= count(&one));
            if !known {
                gateways.insert(one.gateway, one);
            }
        }
    };
    hear(std::mem::take(&mut all.gateways));
    for said in futures_util::future::join_all(asking).await.into_iter().flatten() {
        all.servers.extend(said.servers);
        hear(said.gateways);
    }
    all.servers.sort_by_key(|server| server.server);
    all.gateways = gateways.into_values().collect();
    all
}

fn count(gateway: &GatewayCounters) -> u64 {
    gateway.requests.iter().flat_map(|operation| &operation.buckets).sum()
}

fn own(context: &Context, CountersQuery { each }: CountersQuery) -> Counters {
    let open = context.drives.open();
    let drives = open.iter().filter(|_| each);
    let drives = drives.map(|(&drive, open)| DriveCounters { drive, io: meter::in_short(open.drive.device().meter()) });
    Counters {
        bounds_micros: BOUNDS_MICROS.to_vec(),
        servers: vec![ServerCounters {
            server: context.server,
            uptime_ms: u64::try_from(context.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            requests: context.observations.requests(),
            drive_io: meter::sum(open.values().map(|open| open.drive.device().meter())),
            volumes: if each { context.observations.volumes() } else { Vec::new() },
            drives: drives.collect(),
        }],
        gateways: context.gateways.counters(each),
    }
}
