//! Tokens by which servers join, and how a new server shows its token: before it's anybody, so without an identity.
//!
//! Invariant: a secret is answered only over TLS, or from this machine; and only its hash is on record.

use super::extract::{Input, Named};
use super::failure::Failure;
use super::types::{
    AuthorityCertificate, CreateJoinToken, Done, ErrorKind, Join, JoinToken, JoinTokenInfo, Joined, route,
};
use super::{Shared, Who};
use crate::access::{AccessError, PublicKey, Subject, fingerprint, hash};
use crate::scheduling::wall_clock_ms;
use crate::world::ServerWorld;
use axum::extract::State as Extract;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use tepal_drive::world::Random;
use tepal_metadata::{Command, JoinTokenRecord, KeyHash, Refusal, Role, ServerState};

/// The certificate by which a new server comes counts so long: it gets one of its own when it has joined.
const DAYS: u32 = 1;
/// Digits of a token's hash that tell it from others.
const ID: usize = 12;

pub async fn create(
    Extract(context): Extract<Shared>,
    Input(CreateJoinToken { valid_s }): Input<CreateJoinToken>,
) -> Result<Json<JoinToken>, Failure> {
    let authority = context.access.have_authority().await?;
    let secret = format!("{:016x}{:016x}", ServerWorld.next_u64(), ServerWorld.next_u64());
    let hash = hash(secret.as_bytes());
    let until_unix_ms = wall_clock_ms().saturating_add(valid_s.saturating_mul(1000));
    context.propose(Command::AddJoinToken { hash, until_unix_ms }).await?;
    let authority = fingerprint(&authority.certificate).map_err(AccessError::Unreadable)?;
    let (id, api) = (id_of(&hash), context.api.address.to_string());
    Ok(Json(JoinToken { id, secret, authority, api, until_unix_ms }))
}

pub async fn list(Extract(context): Extract<Shared>) -> Json<Vec<JoinTokenInfo>> {
    let state = context.parts.metadata.state();
    let info = |record: &std::sync::Arc<JoinTokenRecord>| JoinTokenInfo {
        id: id_of(&record.hash),
        until_unix_ms: record.until_unix_ms,
        used: record.key.is_some(),
    };
    Json(state.access.join_tokens.values().map(info).collect())
}

pub async fn remove(Extract(context): Extract<Shared>, Named(id): Named) -> Result<Json<Done>, Failure> {
    let state = context.parts.metadata.state();
    let hash = state.access.join_tokens.keys().find(|hash| id_of(hash) == id).copied().ok_or(Refusal::NoJoinToken)?;
    context.propose(Command::RemoveJoinToken { hash }).await?;
    Ok(Json(Done {}))
}

/// For whoever has a token: it says by what the certificate is known.
pub async fn authority(Extract(context): Extract<Shared>) -> Result<Json<AuthorityCertificate>, Failure> {
    let record = context.access.authority_record().ok_or(Refusal::NoAuthority)?;
    Ok(Json(AuthorityCertificate { authority: record.certificate.clone() }))
}

pub async fn join(
    Extract(context): Extract<Shared>,
    who: Option<Extension<Who>>,
    Input(asked): Input<Join>,
) -> Result<Response, Failure> {
    if matches!(who, Some(Extension(Who::InTheClear))) {
        return Err(Failure::new(ErrorKind::Forbidden, "a token is shown over TLS alone"));
    }
    let Join { secret, key } = &asked;
    let public = PublicKey::parse(key).map_err(Failure::bad)?;
    let hash = hash(secret.as_bytes());
    // Before anything is signed: whoever guesses has nothing done.
    let state = context.parts.metadata.state();
    state.access.join_tokens.get(&hash).ok_or(Refusal::NoJoinToken)?;
    let record = context.access.authority_record().ok_or(Refusal::NoAuthority)?;
    let Some(signer) = context.access.authority(&record)? else {
        return context.have_signed(&record, route::JOIN.to_owned(), &asked).await;
    };
    let name = format!("joined-{}", id_of(&public.hash()));
    let signed = signer.sign(&public, &Subject { name: &name, role: Role::Server, names: &[], days: DAYS });
    let certificate = signed.map_err(AccessError::from)?;
    context.propose(Command::UseJoinToken { hash, name, key: public.hash() }).await?;
    let state = context.parts.metadata.state();
    let up = state.servers.values().filter(|server| server.state == ServerState::Up);
    let peers = up.map(|server| server.address.clone()).collect();
    let (authority, token) = (state.access.roots(), context.token.clone());
    Ok(Json(Joined { certificate, authority, token, peers }).into_response())
}

fn id_of(hash: &KeyHash) -> String {
    hash.to_string().chars().take(ID).collect()
}
