//! Another size for a volume. What a shrinking cuts off is cleared by who agreed to it; and since that may not come to its end, whoever
//! lets a volume grow clears first. Several servers may be asked at once: a growth counts only for the volume as it was cleared.

use super::conditions::Tagged;
use super::data::on_data_thread;
use super::extract::{Input, Named};
use super::failure::Failure;
use super::replication::replicated;
use super::types::{ErrorKind, ResizeVolume, VolumeInfo, path, route};
use super::volumes::{one, open, record};
use super::{Context, Shared, conditions, users};
use crate::news::NEWS;
use crate::relay::RelayError;
use crate::world::ServerWorld;
use axum::extract::State as Extract;
use axum::http::Method;
use futures_util::future::join_all;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tepal_engine::{View, Volume};
use tepal_metadata::{Cleared, Command, ProposeError, Refusal, ServerState, State, VolumeRecord, check_size};
use tepal_model::IoError;
use tokio::time::timeout;

/// Drives that are missing may not return soon, and there may be much to clear.
const CLEARING: Duration = Duration::from_secs(20);
/// Where others change the volume meanwhile, it's cleared anew, if not so much time has gone by.
const ANEW: Duration = Duration::from_secs(20);
const NOT_FOUND: u16 = ErrorKind::NotFound.http_status();
/// Until another server is asked again whether it knows, at first.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

pub async fn resize(
    Extract(context): Extract<Shared>,
    Named(name): Named,
    Input(ResizeVolume { size, shrink, force, replica_of, import }): Input<ResizeVolume>,
) -> Result<Tagged<VolumeInfo>, Failure> {
    let end = Instant::now() + ANEW;
    check_size(size)?; // before anything is cleared for it
    // Another one may be called so by the time that this is done.
    let found = record(&context, &name).await?;
    let name = found.by_id();
    if shrink && size < found.size && !force {
        let users = || users::of_volume(&context, &found);
        users::that_stay(&context, users)
            .await?
            .refuse(&format!("volume '{}'", found.name), "what they have past its new end is gone under them")?;
    }
    let command = |cleared| {
        let command = Command::ResizeVolume { name: name.clone(), size, shrink, cleared };
        replicated(replica_of, import, command)
    };
    loop {
        let before = record(&context, &name).await?;
        let cleared = match size > before.size {
            true => Some(clear_as_it_is(&context, &before).await?),
            false => None,
        };
        match context.parts.metadata.propose(conditions::with(command(cleared))).await {
            Ok(_) => break,
            // What others have made of it meanwhile is known here by now.
            Err(ProposeError::Refused(Refusal::NotCleared(_))) if Instant::now() < end => {}
            Err(error) => return Err(error.into()),
        }
    }
    context.volumes.settle().await;
    until_others_know(&context, &name).await;
    if shrink && let Err(failure) = clear_what_was_cut_off(&context, &name, end).await {
        tracing::warn!(volume = name, ?failure, "what was cut off keeps its space until the volume is resized again");
    }
    one(&context, &name).await
}

/// Returns when whoever connects by another server, of those that can be asked, finds the size that the volume has.
async fn until_others_know(context: &Context, name: &str) {
    let (state, path) = (context.parts.metadata.state(), path(route::VOLUME, name));
    let others = state.servers.values().filter(|server| server.id != context.server && server.state == ServerState::Up);
    let path = &path;
    let known = others.map(|server| async move {
        let mut pause = LOOK_AGAIN;
        while let Ok(here) = record(context, name).await {
            match context.ask::<VolumeInfo>(server, &Method::GET, path).await {
                Ok(there) if (there.id, there.size) == (here.id.0, here.size) => break,
                // It hasn't heard of the size, of the volume, or of its name.
                Ok(_) | Err(RelayError::Refused { status: NOT_FOUND, .. }) => {}
                Err(_) => break,
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    });
    let _ = timeout(NEWS, join_all(known)).await; // it will hear of it
}

/// Nothing is left past the end of the volume as it was when this began, unless it's another one when this returns.
async fn clear_as_it_is(context: &Context, record: &VolumeRecord) -> Result<Cleared, Failure> {
    let cleared = context.parts.metadata.state().as_cleared(record);
    let is_another = move |state: &State| !is_still(state, &cleared);
    clear_past_end(context, record, record.epoch_since.max(cleared.window), is_another).await.map(|()| cleared)
}

/// As for who grows it: a longer snapshot may have been agreed meanwhile, which sees what was past the end.
async fn clear_what_was_cut_off(context: &Context, name: &str, end: Instant) -> Result<(), Failure> {
    let first = record(context, name).await?;
    let mut now = first.clone();
    // Whoever gives it another size sees to that.
    while (now.id, now.size) == (first.id, first.size) {
        let cleared = clear_as_it_is(context, &now).await?;
        if is_still(&context.parts.metadata.state(), &cleared) {
            break;
        } else if Instant::now() >= end {
            let reason = format!("volume '{}' was changed by others all the while", now.name);
            return Err(Failure::new(ErrorKind::Unavailable, reason));
        }
        now = record(context, name).await?;
    }
    Ok(())
}

fn is_still(state: &State, cleared: &Cleared) -> bool {
    state.volumes.get(&cleared.volume).is_some_and(|record| state.as_cleared(record) == *cleared)
}

/// Gives up after a while, and at once when it's `over`. It begins when all act by the view: who knows the volume's end may write in an
/// earlier epoch still, and a longer snapshot sees that, which was taken before. Where the volume was rolled back, an epoch isn't cleared
/// that it doesn't see any more. And who acts by an earlier window takes for gone, or for not there yet, what another map has.
async fn clear_past_end(
    context: &Context,
    record: &VolumeRecord,
    view: View,
    is_over: impl Fn(&State) -> bool + Send + 'static,
) -> Result<(), Failure> {
    let late = || format!("what lies past the end of volume '{}' can't be cleared yet", record.name);
    context.acted_by(view, late).await?;
    // The engine may have lagged behind.
    context.volumes.settle().await;
    let (volume, mut states) = (open(context, record).await?, context.parts.metadata.watch());
    let clear = move |volume: Volume<ServerWorld>| async move {
        // Timed on its own thread, so that nothing of it is left when the time is over.
        let cleared = async {
            tokio::select! {
                biased;
                _ = states.wait_for(|state: &Arc<State>| is_over(state)) => Ok(()),
                cleared = volume.clear_past_end() => cleared,
            }
        };
        timeout(CLEARING, cleared).await.unwrap_or_else(|_| {
            let reason = format!(
                "what lies past the volume's end wasn't cleared in {} s: bring drives back that are missing, and try again; what was \
                 cleared stays so",
                CLEARING.as_secs()
            );
            Err(IoError::Unavailable { reason })
        })
    };
    on_data_thread(context, volume, clear).await
}
