//! Pools.

use super::conditions::tagged;
use super::extract::{Input, Named};
use super::failure::Failure;
use super::relay::Scope;
use super::types::{CreatePool, Done, DriveInfo, PoolInfo};
use super::{Context, Shared, drives};
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use tepal_metadata::{Command, PoolRecord, Refusal, Versioned};

pub async fn list(State(context): State<Shared>) -> Json<Vec<PoolInfo>> {
    let drives = drives::all(&context, Scope::Cluster).await;
    let state = context.parts.metadata.state();
    Json(state.pools.values().map(|record| info(&context, record, &drives)).collect())
}

pub async fn show(State(context): State<Shared>, name: Named) -> Result<Response, Failure> {
    let state = context.parts.metadata.state(); // no newer than what is told
    let told = one(&context, &name.0).await?;
    Ok(tagged(&state, &Versioned::Pool(name.0), told))
}

pub async fn create(State(context): State<Shared>, Input(pool): Input<CreatePool>) -> Result<Json<PoolInfo>, Failure> {
    let CreatePool { name, layout } = pool;
    context.propose(Command::CreatePool { name: name.clone(), layout }).await?;
    one(&context, &name).await
}

pub async fn remove(State(context): State<Shared>, name: Named) -> Result<Json<Done>, Failure> {
    context.propose(Command::RemovePool { name: name.0 }).await?;
    Ok(Json(Done {}))
}

pub async fn one(context: &Context, name: &str) -> Result<Json<PoolInfo>, Failure> {
    let drives = drives::all(context, Scope::Cluster).await;
    let state = context.parts.metadata.state();
    let found = state.pools.get(name).map(|record| Json(info(context, record, &drives)));
    found.ok_or_else(|| Refusal::NoPool(name.chars().take(140).collect()).into())
}

fn info(context: &Context, record: &PoolRecord, drives: &[DriveInfo]) -> PoolInfo {
    let state = context.parts.metadata.state();
    let drives: Vec<_> = drives.iter().filter(|drive| drive.pool == record.name).collect();
    PoolInfo {
        name: record.name.clone(),
        layout: record.layout.as_ref().map(ToString::to_string),
        key: state.access.pool_keys.get(&record.name).map(|record| record.key.clone()),
        volumes: state.active_volumes().filter(|volume| volume.pool == record.name).count() as u64,
        capacity: drives.iter().map(|drive| drive.capacity).sum(),
        used: drives.iter().map(|drive| drive.used).sum(),
        drives: drives.into_iter().map(|drive| drive.id).collect(),
    }
}
