//! What of a volume is lost with drives that failed, and an operator's word that what is left is served as it is.

use super::extract::Named;
use super::failure::Failure;
use super::relay::Scope;
use super::types::{Loss, Range, path, route};
use super::{Context, Shared, volumes};
use crate::damage::union;
use axum::Json;
use axum::extract::State;
use tepal_metadata::Command;

/// Ranges that are told of.
const MOST_RANGES: usize = 10_000;

pub async fn show(State(context): State<Shared>, scope: Scope, name: Named) -> Result<Json<Loss>, Failure> {
    let view = context.parts.metadata.state().view();
    context.acted_by(view, || "what is lost isn't known yet".to_owned()).await?;
    Ok(Json(known(&context, scope, &name.0).await?))
}

async fn known(context: &Context, scope: Scope, name: &str) -> Result<Loss, Failure> {
    let volume = volumes::served(context, name).await?;
    let range = |range: std::ops::Range<u64>| Range { offset: range.start, length: range.end - range.start };
    let mut ranges: Vec<Range> = volume.lost().into_iter().map(range).collect();
    if scope == Scope::Cluster {
        let others = context.ask_others::<Loss>(&path(route::VOLUME_LOSS, name)).await;
        ranges.extend(others.into_iter().filter_map(|(_, said)| said).flat_map(|said| said.ranges));
    }
    let mut ranges = union(ranges);
    let bytes = ranges.iter().map(|range| range.length).sum();
    if scope == Scope::Cluster {
        ranges.truncate(MOST_RANGES);
    }
    Ok(Loss { volume: name.to_owned(), bytes, ranges })
}

/// Answered with what was lost, once all servers act by that.
pub async fn accept(State(context): State<Shared>, scope: Scope, name: Named) -> Result<Json<Loss>, Failure> {
    let volume = volumes::record(&context, &name.0).await?.id;
    let loss = known(&context, scope, &name.0).await?;
    context.propose(Command::AcceptLoss { volume }).await?;
    let view = context.parts.metadata.state().view();
    let late = || format!("what is left of volume '{}' is served as it is", name.0);
    context.acted_by(view, late).await?;
    Ok(Json(loss))
}
