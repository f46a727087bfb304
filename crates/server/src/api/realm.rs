//! What holds beyond single volumes: rights on pools and on the cluster, keys of pools, and authorities.
//!
//! Invariant: whatever gives or takes a right, or trust, is answered when every server acts by it.

use super::conditions::tagged;
use super::extract::{Input, Named, Options};
use super::failure::Failure;
use super::types::{
    AuthoritiesInfo, AuthorityInfo, CreateOutsideIdentity, Done, ErrorKind, Grant, IdentityInfo, OutsideAuthority,
    PoolInfo, ScopeRightInfo, SetPoolKey, WithdrawQuery, route,
};
use super::{Context, Shared, identities, pools};
use crate::access::{AccessError, Trust, check_authority, fingerprint, outside_key, own};
use axum::Json;
use axum::extract::State as Extract;
use axum::response::Response;
use std::time::{Duration, Instant};
use tepal_metadata::{Command, Refusal, Scope, ServerState, Versioned};

/// So long servers may take to get certificates of another authority.
const SIGNED_WITHIN: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(200);

fn of_pool(Named(name): Named) -> Scope {
    Scope::Pool(name)
}

pub async fn pool_rights(Extract(context): Extract<Shared>, name: Named) -> Result<Response, Failure> {
    rights(&context, &of_pool(name))
}

pub async fn cluster_rights(Extract(context): Extract<Shared>) -> Result<Response, Failure> {
    rights(&context, &Scope::Cluster)
}

fn rights(context: &Context, scope: &Scope) -> Result<Response, Failure> {
    let state = context.parts.metadata.state();
    let thing = match scope {
        Scope::Pool(name) => Versioned::PoolRights(name.clone()),
        Scope::Cluster => Versioned::ClusterRights,
    };
    if let Scope::Pool(name) = scope
        && !state.pools.contains_key(name)
    {
        return Err(Refusal::NoPool(name.chars().take(140).collect()).into());
    }
    let grants = state.access.grants_on(scope);
    let info = |grant: &std::sync::Arc<tepal_metadata::ScopeGrantRecord>| ScopeRightInfo {
        scope: scope.to_string(),
        to: grant.to.clone(),
        right: grant.right,
    };
    let told: Vec<ScopeRightInfo> = grants.map(info).collect();
    Ok(tagged(&state, &thing, Json(told)))
}

pub async fn grant_on_pool(
    Extract(context): Extract<Shared>,
    name: Named,
    Input(asked): Input<Grant>,
) -> Result<Json<Done>, Failure> {
    grant(&context, &of_pool(name), asked).await
}

pub async fn grant_on_cluster(
    Extract(context): Extract<Shared>,
    Input(asked): Input<Grant>,
) -> Result<Json<Done>, Failure> {
    grant(&context, &Scope::Cluster, asked).await
}

async fn grant(context: &Context, scope: &Scope, Grant { to, right }: Grant) -> Result<Json<Done>, Failure> {
    context.propose(Command::GrantOn { scope: scope.to_string(), to: to.clone(), right }).await?;
    context.all_act(|| format!("'{to}' has this right on {scope}, but some server may not act by it yet")).await
}

pub async fn withdraw_on_pool(
    Extract(context): Extract<Shared>,
    name: Named,
    Options(asked): Options<WithdrawQuery>,
) -> Result<Json<Done>, Failure> {
    withdraw(&context, &of_pool(name), asked).await
}

pub async fn withdraw_on_cluster(
    Extract(context): Extract<Shared>,
    Options(asked): Options<WithdrawQuery>,
) -> Result<Json<Done>, Failure> {
    withdraw(&context, &Scope::Cluster, asked).await
}

async fn withdraw(
    context: &Context,
    scope: &Scope,
    WithdrawQuery { to }: WithdrawQuery,
) -> Result<Json<Done>, Failure> {
    context.propose(Command::WithdrawOn { scope: scope.to_string(), to: to.clone() }).await?;
    context.all_act(|| format!("'{to}' has no right on {scope} any more, but some server may still act by it")).await
}

pub async fn set_pool_key(
    Extract(context): Extract<Shared>,
    Named(pool): Named,
    Input(SetPoolKey { key }): Input<SetPoolKey>,
) -> Result<Json<PoolInfo>, Failure> {
    if let Some(key) = &key {
        // Nobody should find out with the first volume that no server has it.
        context.parts.keyring.draw(key, None).await?;
    }
    context.propose(Command::SetPoolKey { pool: pool.clone(), key }).await?;
    pools::one(&context, &pool).await
}

pub async fn authorities(Extract(context): Extract<Shared>) -> Result<Json<AuthoritiesInfo>, Failure> {
    told(&context).map(Json)
}

fn told(context: &Context) -> Result<AuthoritiesInfo, Failure> {
    let state = context.parts.metadata.state();
    let own_certificate = own::signed_by(&context.access);
    let mut presented = None;
    let mut all = Vec::new();
    for record in state.access.authorities.values() {
        if own_certificate.as_deref() == Some(&record.certificate) {
            presented = Some(record.number);
        }
        let fingerprint = fingerprint(&record.certificate).map_err(AccessError::Unreadable)?;
        let leaving = state.access.leaving.contains_key(&record.number);
        all.push(AuthorityInfo { number: record.number, fingerprint, server: record.server, leaving });
    }
    let outside = state.access.outside.values();
    let outside =
        outside.map(|record| OutsideAuthority { name: record.name.clone(), certificate: record.certificate.clone() });
    let current = context.access.credentials().trust() == Trust::of(&state.access);
    Ok(AuthoritiesInfo { own: all, outside: outside.collect(), presented, current })
}

pub async fn rotate(Extract(context): Extract<Shared>) -> Result<Json<AuthoritiesInfo>, Failure> {
    context.access.rotate().await?;
    until_all_believe(&context, Believes::IfUp).await?;
    authorities(Extract(context)).await
}

/// Servers first get certificates of the new one, while both are trusted: no connection waits.
pub async fn finish(Extract(context): Extract<Shared>) -> Result<Json<AuthoritiesInfo>, Failure> {
    let state = context.parts.metadata.state();
    let newest = state.access.newest_authority().ok_or(Refusal::NoAuthority)?.number;
    let old: Vec<u32> = state.access.authorities.keys().copied().filter(|number| *number != newest).collect();
    if old.is_empty() {
        return Err(Refusal::NotLeaving(newest).into());
    }
    // A server that doesn't know the new one yet would let nobody in who has a certificate of it, nor be let in to learn of it.
    until_all_believe(&context, Believes::Also).await?;
    for number in &old {
        context.propose(Command::LeaveAuthority { number: *number }).await?;
    }
    let Json(Done {}) =
        context.all_act(|| "the new authority signs, but some server may not know it yet".to_owned()).await?;
    until_all_believe(&context, Believes::AndPresents(newest)).await?;
    for number in old {
        context.propose(Command::RemoveAuthority { number }).await?;
    }
    until_all_believe(&context, Believes::IfUp).await?;
    authorities(Extract(context)).await
}

/// What servers are waited for to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Believes {
    /// To believe what is agreed, those that are up.
    IfUp,
    /// The same of all: one that is down couldn't come back otherwise.
    Also,
    /// And to have a certificate of this authority.
    AndPresents(u32),
}

/// Returns when the servers do that.
async fn until_all_believe(context: &Context, believes: Believes) -> Result<(), Failure> {
    let is_done = |said: &AuthoritiesInfo| match believes {
        Believes::IfUp | Believes::Also => said.current,
        Believes::AndPresents(newest) => said.current && said.presented == Some(newest),
    };
    let begun = Instant::now();
    loop {
        let mut behind = None;
        for (server, said) in context.ask_others::<AuthoritiesInfo>(route::AUTHORITIES).await {
            let state = context.parts.metadata.state();
            let is_down = state.servers.get(&server).is_some_and(|record| record.state == ServerState::Down);
            if !said.is_some_and(|said| is_done(&said)) && (believes != Believes::IfUp || !is_down) {
                behind = Some((server, is_down));
            }
        }
        if !is_done(&told(context)?) {
            behind = Some((context.server, false));
        }
        let Some((server, is_down)) = behind else { return Ok(()) };
        if is_down || begun.elapsed() > SIGNED_WITHIN {
            let text = match believes {
                Believes::AndPresents(newest) => format!(
                    "server {server} has no certificate of authority {newest} yet, so the earlier one is trusted still: see that the \
                     server is up, then finish again"
                ),
                Believes::Also => format!(
                    "server {server} may not know the new authority yet, and nothing was changed: see that the server is up, then finish \
                     again"
                ),
                Believes::IfUp => format!("it's agreed whom to trust, but server {server} may not do so yet"),
            };
            return Err(Failure::new(ErrorKind::Unavailable, text));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

pub async fn add_outside(
    Extract(context): Extract<Shared>,
    Input(OutsideAuthority { name, certificate }): Input<OutsideAuthority>,
) -> Result<Json<Done>, Failure> {
    check_authority(&certificate).map_err(Failure::bad)?;
    context.access.have_authority().await?;
    context.propose(Command::AddOutsideAuthority { name: name.clone(), certificate }).await?;
    until_all_believe(&context, Believes::IfUp).await?;
    Ok(Json(Done {}))
}

pub async fn remove_outside(Extract(context): Extract<Shared>, Named(name): Named) -> Result<Json<Done>, Failure> {
    context.propose(Command::RemoveOutsideAuthority { name: name.clone() }).await?;
    until_all_believe(&context, Believes::IfUp).await?;
    context.all_act(|| format!("authority '{name}' is gone, but some server may still trust it")).await
}

pub async fn create_outside(
    Extract(context): Extract<Shared>,
    Input(asked): Input<CreateOutsideIdentity>,
) -> Result<Json<IdentityInfo>, Failure> {
    let CreateOutsideIdentity { name, role, groups, outside } = asked;
    let (authority, subject) = (outside.authority, outside.subject);
    let key = outside_key(&authority, &subject);
    let command = Command::AddOutsideIdentity { name: name.clone(), role, groups, authority, subject, key };
    context.propose(command).await?;
    identities::one(&context, &name)
}
