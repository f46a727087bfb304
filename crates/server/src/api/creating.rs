//! A new volume: what its layout is if nobody says it, and how long drives are waited for that a start brings.

use super::conditions::Tagged;
use super::extract::Input;
use super::failure::Failure;
use super::types::{BY_ID, CreateVolume, ErrorKind, VolumeInfo};
use super::volumes::one;
use super::{Context, Shared, Who, health_text, host};
use axum::Extension;
use axum::extract::State as Extract;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tepal_metadata::{Command, DEFAULT_POOL, DriveRecord, DriveState, DriveUse, Refusal, Reply, ServerState, State};
use tepal_model::DriveId;
use tokio::time::timeout_at;

/// So long after the start of this server drives are on their way back, here and on others that were started with it. Whoever makes a
/// volume meanwhile wants them all, and not those that were the fastest.
const START: Duration = Duration::from_secs(15);
/// So long one drive is waited for where there is none, whenever that is.
const ONE_DRIVE: Duration = Duration::from_secs(15);

pub async fn create(
    Extract(context): Extract<Shared>,
    who: Option<Extension<Who>>,
    Input(volume): Input<CreateVolume>,
) -> Result<Tagged<VolumeInfo>, Failure> {
    let name = volume.name.clone();
    let command = to_create(&context, who.as_deref(), volume).await?;
    made(&context, &name, command).await
}

/// The volume, once it can be used.
pub async fn made(context: &Context, name: &str, command: Command) -> Result<Tagged<VolumeInfo>, Failure> {
    let made = context.propose(command).await?;
    context.volumes.settle().await;
    match made {
        Reply::VolumeCreated { id, .. } => one(context, &format!("{BY_ID}{}", id.0)).await,
        _ => one(context, name).await,
    }
}

/// What makes a volume.
pub async fn to_create(context: &Context, who: Option<&Who>, volume: CreateVolume) -> Result<Command, Failure> {
    let CreateVolume { name, size, layout, pool, key, plain, import } = volume;
    let pool = pool.unwrap_or_else(|| DEFAULT_POOL.to_owned());
    host::may_create(&context.parts.metadata.state(), who, &pool)?;
    if plain && key.is_some() {
        return Err(Failure::bad("a volume is encrypted by a key, or plain: not both".to_owned()));
    }
    wait_for_drives(context, &pool).await?;
    let state = context.parts.metadata.state();
    let by_default = if layout.is_none() { two_copies(&state, &pool) } else { None };
    let is_by_default = by_default.is_some();
    let layout = layout.or(by_default);
    let of_pool = || state.access.pool_keys.get(&pool).filter(|_| !plain).map(|record| record.key.clone());
    let command = match key.or_else(of_pool) {
        None => Command::CreateVolume { name: name.clone(), size, layout, pool: pool.clone() },
        Some(key) => {
            let mut others = state.access.volume_keys.values();
            let other = others.find(|other| other.key == key).map(|other| other.wrapped.as_str());
            let wrapped = context.parts.keyring.draw(&key, other).await?;
            Command::CreateEncrypted { name: name.clone(), size, layout, pool: pool.clone(), key, wrapped }
        }
    };
    let command = match import {
        Some(import) => Command::CreateForImport { create: Box::new(command), import },
        None => command,
    };
    if is_by_default && let Err(Refusal::Layout { rule }) = context.parts.metadata.check(&command) {
        let away = away(&state, &pool);
        return Err(Failure::new(ErrorKind::Conflict, health_text::too_few_for_two(&rule, &away, &state)));
    }
    Ok(command)
}

/// What a volume gets where two drives can have a copy each, and the pool says nothing else: one copy has to be asked for.
fn two_copies(state: &State, pool: &str) -> Option<String> {
    let says_nothing = state.pools.get(pool).is_some_and(|pool| pool.layout.is_none());
    (says_nothing && drives(state, pool).nth(1).is_some()).then(|| "mirror:2".to_owned())
}

/// Those that may have something of a new volume, now or when they are back.
fn drives<'a>(state: &'a State, pool: &'a str) -> impl Iterator<Item = &'a Arc<DriveRecord>> {
    let may_have = |drive: &&Arc<DriveRecord>| {
        let is_draining = state.servers.get(&drive.server).is_some_and(|server| server.draining);
        drive.state != DriveState::Failed && drive.purpose == DriveUse::Active && !is_draining
    };
    state.drives_of_pool(pool).filter(may_have)
}

fn is_up(state: &State, drive: &DriveRecord) -> bool {
    drive.state == DriveState::Up
        && state.servers.get(&drive.server).is_some_and(|server| server.state == ServerState::Up)
}

/// Of those drives, the ones that aren't here.
fn away(state: &State, pool: &str) -> Vec<DriveId> {
    drives(state, pool).filter(|drive| !is_up(state, drive)).map(|drive| drive.id).collect()
}

/// Whether a drive of a server that is there is about to come.
fn is_coming(state: &State, drive: &DriveRecord) -> bool {
    let is_there = state.servers.get(&drive.server).is_some_and(|server| server.state == ServerState::Up);
    is_there && matches!(drive.state, DriveState::Missing | DriveState::Behind)
}

async fn wait_for_drives(context: &Context, pool: &str) -> Result<(), Failure> {
    let mut states = context.parts.metadata.watch();
    let all = |state: &Arc<State>| !drives(state, pool).any(|drive| is_coming(state, drive));
    // What isn't there then is done without.
    let _ = timeout_at((context.started + START).into(), states.wait_for(all)).await;
    let state = context.parts.metadata.state();
    let waited_for = away(&state, pool);
    let one = |state: &Arc<State>| {
        drives(state, pool).next().is_none() || drives(state, pool).any(|drive| is_up(state, drive))
    };
    // Without drives that may come, and of a pool that isn't there, it's for the command to say so.
    let came = timeout_at((Instant::now() + ONE_DRIVE).into(), states.wait_for(one)).await;
    match came {
        Ok(_) => Ok(()),
        Err(_) => {
            let text = health_text::no_drive_came(pool, ONE_DRIVE, &waited_for, &state);
            Err(Failure::new(ErrorKind::Unavailable, text))
        }
    }
}
