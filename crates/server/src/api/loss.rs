//! What of a volume is lost with drives that failed, and an operator's word that what is left is served as it is.

use super::extract::{Input, Named};
use super::failure::Failure;
use super::relay::Scope;
use super::types::{AcceptLoss, ErrorKind, Loss, Range, path, route};
use super::{Context, Shared, volumes};
use crate::damage::union;
use axum::Json;
use axum::extract::State;
use ring::digest;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use tepal_engine::{Trouble, VolumeHealth};
use tepal_metadata::{Command, ServerState, State as ClusterState};
use tepal_model::{DriveId, ServerId};

/// Ranges that are told of.
const MOST_RANGES: usize = 10_000;

/// Bytes of a tag: somebody may type it.
const TAG: usize = 6;

/// How long drives that have just returned are waited for.
const SETTLED_WITHIN: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

pub async fn show(State(context): State<Shared>, scope: Scope, name: Named) -> Result<Json<Loss>, Failure> {
    let view = context.parts.metadata.state().view();
    context.acted_by(view, || "what is lost isn't known yet".to_owned()).await?;
    Ok(Json(known(&context, scope, &name.0).await?))
}

/// What is lost, once every column is led by somebody who has heard what its drives hold; or as it's known after some time.
async fn known(context: &Context, scope: Scope, name: &str) -> Result<Loss, Failure> {
    let end = Instant::now() + SETTLED_WITHIN;
    loop {
        let loss = as_far_as_known(context, scope, name).await?;
        if !loss.unsettled || scope != Scope::Cluster || Instant::now() > end {
            return Ok(loss);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

async fn as_far_as_known(context: &Context, scope: Scope, name: &str) -> Result<Loss, Failure> {
    let volume = volumes::served(context, name).await?;
    let range = |range: std::ops::Range<u64>| Range { offset: range.start, length: range.end - range.start };
    let mut ranges: Vec<Range> = volume.lost().into_iter().map(range).collect();
    let mut waits_for = unheard(&volume.health(), &context.parts.metadata.state());
    if scope == Scope::Cluster {
        let others = context.ask_others::<Loss>(&path(route::VOLUME_LOSS, name)).await;
        let state = context.parts.metadata.state();
        let is_down =
            |server: &ServerId| state.servers.get(server).is_none_or(|record| record.state == ServerState::Down);
        for (server, said) in others {
            // One that waits and doesn't say for whom is of an earlier version.
            if said.as_ref().map_or(!is_down(&server), |said| said.unsettled && said.waits_for.is_empty()) {
                waits_for.insert(format!("server {server}"));
            }
            if let Some(said) = said {
                waits_for.extend(said.waits_for);
                ranges.extend(said.ranges);
            }
        }
    }
    let mut ranges = union(ranges);
    let bytes = ranges.iter().map(|range| range.length).sum();
    let tag = tag_of(&ranges);
    if scope == Scope::Cluster {
        ranges.truncate(MOST_RANGES);
    }
    let waits_for: Vec<String> = waits_for.into_iter().collect();
    Ok(Loss { volume: name.to_owned(), bytes, ranges, unsettled: !waits_for.is_empty(), waits_for, tag })
}

/// The drives that are here and yet to be heard, or to be led.
fn unheard(health: &VolumeHealth, state: &ClusterState) -> BTreeSet<String> {
    let is_here = |drive: &&DriveId| state.drives.get(*drive).is_some_and(|record| record.state.takes_writes());
    let mut unheard = BTreeSet::new();
    for trouble in health.troubles() {
        let drives = match trouble {
            Trouble::LedAnew { .. } => {
                unheard.insert("a server that begins to lead a part of it".to_owned());
                continue;
            }
            Trouble::Behind { drive, regions: 0 } => {
                unheard.insert(format!("drive {drive}"));
                continue;
            }
            Trouble::AllWaits { drives } => &drives[..],
            Trouble::Away { drive } => std::slice::from_ref(drive),
            _ => continue,
        };
        unheard.extend(drives.iter().filter(is_here).map(|drive| format!("drive {drive}")));
    }
    unheard
}

/// Answered with what was lost, once all servers act by that. Nothing is accepted but what was shown.
pub async fn accept(
    State(context): State<Shared>,
    scope: Scope,
    name: Named,
    Input(shown): Input<AcceptLoss>,
) -> Result<Json<Loss>, Failure> {
    let volume = volumes::record(&context, &name.0).await?.id;
    let end = Instant::now() + SETTLED_WITHIN;
    let loss = loop {
        let view = context.parts.metadata.state().view();
        context.acted_by(view, || "what is lost isn't known yet".to_owned()).await?;
        let loss = known(&context, scope, &name.0).await?;
        if loss.unsettled {
            let text = format!(
                "nobody can say yet what of volume '{}' is lost, as these haven't been heard: {}; ask again",
                name.0,
                loss.waits_for.join(", ")
            );
            return Err(Failure::new(ErrorKind::Unavailable, text));
        }
        if loss.tag != shown.tag {
            let text = format!(
                "other parts of volume '{}' are lost by now than were shown, {} bytes in all: `tepal volume accept-loss {}` shows them",
                name.0, loss.bytes, name.0
            );
            return Err(Failure::new(ErrorKind::Conflict, text));
        }
        match context.propose(Command::AcceptLoss { volume, view }).await {
            Ok(_) => break loss,
            // A drive has come or gone meanwhile.
            Err(failure)
                if failure.kind() == ErrorKind::Conflict
                    && context.parts.metadata.state().view() != view
                    && Instant::now() < end => {}
            Err(failure) => return Err(failure),
        }
    };
    let view = context.parts.metadata.state().view();
    let late = || format!("what is left of volume '{}' is served as it is", name.0);
    context.acted_by(view, late).await?;
    Ok(Json(loss))
}

/// Tells ranges from others.
fn tag_of(ranges: &[Range]) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for range in ranges {
        context.update(&range.offset.to_le_bytes());
        context.update(&range.length.to_le_bytes());
    }
    let mut tag = String::new();
    for byte in &context.finish().as_ref()[..TAG] {
        let _ = write!(tag, "{byte:02x}"); // to a string, that can't fail
    }
    tag
}
