//! Slow requests: watched by all servers at once, and told with what they waited for.

use super::extract::Options;
use super::failure::Failure;
use super::relay::Scope;
use super::types::{BY_ID, Done, ResourceSpans, SlowWatched, TracesData, WatchSlowQuery, route};
use super::{Context, Shared, volumes};
use crate::slow::{HERE, Watched, otlp};
use axum::Json;
use axum::extract::State;
use axum::http::Method;
use std::time::{Duration, Instant};

/// Nobody watches for longer without saying so again.
const LONGEST: u64 = 24 * 3600;

/// Steps that a server tells of at once, of some 700 bytes each: what servers tell each other has 4 MiB at most.
const MOST_STEPS: usize = 3000;

pub async fn watch(
    State(context): State<Shared>,
    scope: Scope,
    Options(query): Options<WatchSlowQuery>,
) -> Result<Json<SlowWatched>, Failure> {
    let WatchSlowQuery { over_micros, volume, seconds } = query;
    if !(1..=LONGEST).contains(&seconds) {
        return Err(Failure::bad(format!("slow requests are watched for 1 to {LONGEST} seconds, not for {seconds}")));
    }
    let volume = match volume {
        None => None,
        Some(name) => Some(volumes::record_in(&context, scope, &name).await?.id),
    };
    let (over, until) = (Duration::from_micros(over_micros), Instant::now() + Duration::from_secs(seconds));
    HERE.watch(Watched { over, volume, until });
    let of_volume = volume.map(|id| format!("&volume={BY_ID}{}", id.0)).unwrap_or_default();
    let path = format!("{}?over_micros={over_micros}&seconds={seconds}{of_volume}", route::SLOW);
    Ok(Json(of_others(&context, scope, Method::POST, &path).await))
}

pub async fn end(State(context): State<Shared>, scope: Scope) -> Json<Done> {
    HERE.end();
    of_others(&context, scope, Method::DELETE, route::SLOW).await;
    Json(Done {})
}

/// Has the others do the same.
async fn of_others(context: &Context, scope: Scope, method: Method, path: &str) -> SlowWatched {
    if scope == Scope::Own {
        return SlowWatched::default();
    }
    let done = context.have_others_do::<serde_json::Value>(method, path).await;
    let not_by = done.into_iter().filter(|(_, done)| done.is_none()).map(|(server, _)| server.to_string());
    SlowWatched { not_by: not_by.collect() }
}

pub async fn show(State(context): State<Shared>, scope: Scope) -> Json<TracesData> {
    let own = otlp::resource_spans(context.server, &HERE.slow(MOST_STEPS));
    Json(match scope {
        Scope::Own => TracesData { resource_spans: vec![own] },
        Scope::Cluster => {
            let others = context.ask_others::<TracesData>(route::SLOW).await;
            let others = others.into_iter().filter_map(|(_, said)| said).flat_map(|said| said.resource_spans);
            let mut all: Vec<ResourceSpans> = std::iter::once(own).chain(others).collect();
            all.sort_by(|one, other| one.server().cmp(other.server()));
            otlp::put_together(all)
        }
    })
}
