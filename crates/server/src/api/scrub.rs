//! Scrubs of volumes, asked for and looked at.

use super::extract::Named;
use super::failure::Failure;
use super::types::Scrub;
use super::{Shared, volumes};
use axum::Json;
use axum::extract::State;

pub async fn start(State(context): State<Shared>, name: Named) -> Result<Json<Scrub>, Failure> {
    let volume = volumes::served(&context, &name.0)?;
    let id = volume.id();
    context.scrubs.start(volume);
    Ok(Json(context.scrubs.report(id, &name.0)))
}

pub async fn show(State(context): State<Shared>, name: Named) -> Result<Json<Scrub>, Failure> {
    let volume = volumes::served(&context, &name.0)?;
    Ok(Json(context.scrubs.report(volume.id(), &name.0)))
}
