//! Identities, their certificates, and their rights on volumes.
//!
//! Invariant: what gives a right or takes it away is answered when every server acts by it.

use super::TOKEN_HOLDER;
use super::conditions::tagged;
use super::extract::{Input, Named, Options};
use super::failure::Failure;
use super::types::{
    CreateIdentity, Done, ErrorKind, FenceQuery, Grant, IdentityCertificate, IdentityInfo, Limits, OutsideSubject,
    RenewIdentity, Reserve, RightInfo, ScopeRightInfo, WithdrawQuery, path, route,
};
use super::users::{self, Users};
use super::{Context, Shared, volumes};
use crate::access::{AccessError, PublicKey, SignServer, Signed, Subject, is_machine_name};
use axum::Json;
use axum::extract::State as Extract;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use tepal_metadata::{AuthorityRecord, Command, IdentityRecord, Limited, Refusal, Role, State, Versioned};
use tepal_model::text::shown;

/// How long certificates may count.
const DAYS: std::ops::RangeInclusive<u32> = 1..=3650;

pub async fn list(Extract(context): Extract<Shared>) -> Json<Vec<IdentityInfo>> {
    let state = context.parts.metadata.state();
    Json(state.access.identities.values().map(|record| info(&state, record)).collect())
}

pub async fn create(
    Extract(context): Extract<Shared>,
    Input(asked): Input<CreateIdentity>,
) -> Result<Response, Failure> {
    let CreateIdentity { name, role, groups, key, days, addresses } = asked.clone();
    if name == TOKEN_HOLDER {
        return Err(Failure::bad(format!(
            "'{TOKEN_HOLDER}' is what events call the cluster's token: take another name"
        )));
    }
    let (public, authority) = (checked(&key, days, &addresses)?, context.access.signing().await?);
    let Some(signer) = context.access.authority(&authority)? else {
        return context.have_signed(&authority, route::IDENTITIES.to_owned(), &asked).await;
    };
    let certificate = signer.sign(&public, &Subject { name: &name, role, names: &addresses, days });
    let certificate = certificate.map_err(AccessError::from)?;
    context.propose(Command::AddIdentity { name, role, groups, key: public.hash() }).await?;
    let roots = context.parts.metadata.state().access.roots();
    Ok(Json(IdentityCertificate { certificate, authority: roots }).into_response())
}

pub async fn renew(
    Extract(context): Extract<Shared>,
    Named(name): Named,
    Input(asked): Input<RenewIdentity>,
) -> Result<Response, Failure> {
    let RenewIdentity { key, days, addresses } = asked.clone();
    let (public, authority) = (checked(&key, days, &addresses)?, context.access.signing().await?);
    let Some(signer) = context.access.authority(&authority)? else {
        return context.have_signed(&authority, path(route::IDENTITY_RENEW, &name), &asked).await;
    };
    let state = context.parts.metadata.state();
    let found = state.access.identities.get(&name).ok_or_else(|| Refusal::NoIdentity(shown(&name)))?;
    let certificate = signer.sign(&public, &Subject { name: &name, role: found.role, names: &addresses, days });
    let certificate = certificate.map_err(AccessError::from)?;
    context.propose(Command::RenewIdentity { name, key: public.hash() }).await?;
    let roots = context.parts.metadata.state().access.roots();
    Ok(Json(IdentityCertificate { certificate, authority: roots }).into_response())
}

pub async fn limit(
    Extract(context): Extract<Shared>,
    Named(name): Named,
    Input(limits): Input<Limits>,
) -> Result<Json<IdentityInfo>, Failure> {
    context.propose(Command::LimitIdentity { name: name.clone(), limits }).await?;
    one(&context, &name)
}

pub fn one(context: &Context, name: &str) -> Result<Json<IdentityInfo>, Failure> {
    let state = context.parts.metadata.state();
    let record = state.access.identities.get(name).ok_or_else(|| Refusal::NoIdentity(shown(name)))?;
    Ok(Json(info(&state, record)))
}

pub async fn remove(Extract(context): Extract<Shared>, Named(name): Named) -> Result<Json<Done>, Failure> {
    context.propose(Command::RemoveIdentity { name: name.clone() }).await?;
    context.all_act(|| format!("identity '{name}' is revoked, but some server may still know it")).await
}

/// For servers: those that have no key of the authority.
pub async fn sign_server(
    Extract(context): Extract<Shared>,
    Input(asked): Input<SignServer>,
) -> Result<Json<Signed>, Failure> {
    let authority = context.access.authority_record().ok_or(Refusal::NoAuthority)?;
    let no_key = || Failure::new(ErrorKind::Unavailable, "this server doesn't have the key of the authority");
    let signer = context.access.authority(&authority)?.ok_or_else(no_key)?;
    Ok(Json(context.access.sign_server((&signer, &authority), &asked).await?))
}

pub async fn rights(Extract(context): Extract<Shared>, name: Named) -> Result<Response, Failure> {
    let volume = volumes::record(&context, &name.0).await?;
    let state = context.parts.metadata.state();
    let told = |to: &str, right| RightInfo { volume: volume.name.clone(), to: to.to_owned(), right };
    let rights: Vec<RightInfo> = state.access.grants_of(volume.id).map(|grant| told(&grant.to, grant.right)).collect();
    Ok(tagged(&state, &Versioned::Rights(volume.id), Json(rights)))
}

pub async fn grant(
    Extract(context): Extract<Shared>,
    name: Named,
    Input(Grant { to, right }): Input<Grant>,
) -> Result<Json<Done>, Failure> {
    let volume = volumes::record(&context, &name.0).await?;
    context.propose(Command::Grant { volume: volume.by_id(), to: to.clone(), right }).await?;
    let called = volume.name.clone();
    context
        .all_act(|| format!("'{to}' has this right to volume '{called}', but some server may not act by it yet"))
        .await
}

pub async fn withdraw(
    Extract(context): Extract<Shared>,
    name: Named,
    Options(WithdrawQuery { to }): Options<WithdrawQuery>,
) -> Result<Json<Done>, Failure> {
    let volume = volumes::record(&context, &name.0).await?;
    context.propose(Command::Withdraw { volume: volume.by_id(), to: to.clone() }).await?;
    let called = volume.name.clone();
    context
        .all_act(|| format!("'{to}' has no right to volume '{called}' any more, but some server may still act by it"))
        .await
}

pub async fn reserve(
    Extract(context): Extract<Shared>,
    name: Named,
    Input(Reserve { holder, take }): Input<Reserve>,
) -> Result<Json<Done>, Failure> {
    let volume = volumes::record(&context, &name.0).await?;
    let is_own = context.parts.metadata.state().access.reserved(volume.id).0 == Some(&holder);
    if !take && !is_own {
        let users = users::that_stay(&context, || users::of_volume(&context, &volume)).await?;
        if users != Users::default() {
            let text =
                format!("volume '{}' is in use: have that end first, or take it over, which cuts it off", volume.name);
            return Err(Failure::new(ErrorKind::Conflict, text));
        }
    }
    context.propose(Command::Reserve { volume: volume.by_id(), holder: holder.clone(), take }).await?;
    let called = volume.name.clone();
    context.all_act(|| format!("volume '{called}' is reserved by '{holder}', but others may still write")).await
}

pub async fn fence(
    Extract(context): Extract<Shared>,
    name: Named,
    Options(FenceQuery { from }): Options<FenceQuery>,
) -> Result<Json<Done>, Failure> {
    let volume = volumes::record(&context, &name.0).await?;
    context.propose(Command::Release { volume: volume.by_id(), from }).await?;
    let called = volume.name.clone();
    context.all_act(|| format!("clients of volume '{called}' are cut off, but some server may not know it yet")).await
}

impl Context {
    /// Once every server acts by what is agreed now.
    pub(super) async fn all_act(&self, late: impl Fn() -> String) -> Result<Json<Done>, Failure> {
        self.acted_by(self.parts.metadata.state().view(), late).await?;
        Ok(Json(Done {}))
    }

    /// Hands a request on to the server that has the authority's key.
    pub(super) async fn have_signed(
        &self,
        authority: &AuthorityRecord,
        path: String,
        asked: &impl serde::Serialize,
    ) -> Result<Response, Failure> {
        let body = serde_json::to_string(asked).map_err(|error| Failure::new(ErrorKind::Internal, error))?;
        if authority.server == self.server {
            let why = "the file is gone there".to_owned();
            return Err(AccessError::NoKey { server: authority.server, number: authority.number, why }.into());
        }
        self.have_done(authority.server, Method::POST.to_string(), path, body).await
    }
}

fn checked(key: &str, days: u32, addresses: &[String]) -> Result<PublicKey, Failure> {
    if let Some(wrong) = addresses.iter().find(|name| !is_machine_name(name)) {
        return Err(Failure::bad(format!("'{}' is no name or address of a machine", shown(wrong))));
    }
    if !DAYS.contains(&days) {
        return Err(Failure::bad(format!("{days} is not a number of days from {} to {}", DAYS.start(), DAYS.end())));
    }
    PublicKey::parse(key).map_err(Failure::bad)
}

fn info(state: &State, record: &Arc<IdentityRecord>) -> IdentityInfo {
    let IdentityRecord { name, role, groups, key, created_unix_ms, .. } = &**record;
    let own = state.access.grants.values().filter(|grant| grant.to == *name);
    let rights = own.filter_map(|grant| {
        let volume = state.volumes.get(&grant.volume)?.name.clone();
        Some(RightInfo { volume, to: grant.to.clone(), right: grant.right })
    });
    let rights = if *role == Role::Host { rights.collect() } else { Vec::new() };
    let limits = state.access.limits_of(&Limited::Identity(name.clone()));
    let on_scopes = state.access.scope_grants.values().filter(|grant| grant.to == *name);
    let scope_rights = on_scopes.map(|grant| ScopeRightInfo {
        scope: grant.scope.to_string(),
        to: grant.to.clone(),
        right: grant.right,
    });
    let scope_rights = scope_rights.collect();
    let outside = state.access.subjects.get(name);
    let outside =
        outside.map(|known| OutsideSubject { authority: known.authority.clone(), subject: known.subject.clone() });
    let (name, groups, key, created_unix_ms) = (name.clone(), groups.clone(), key.to_string(), *created_unix_ms);
    IdentityInfo { name, role: *role, groups, key, created_unix_ms, rights, scope_rights, outside, limits }
}
