//! What a host may ask of the API: of volumes that were granted to it, and where servers are.

use super::Who;
use super::failure::Failure;
use super::types::{ErrorKind, route};
use axum::http::Method;
use std::sync::Arc;
use tepal_metadata::{IdentityRecord, Refusal, Right, Role, Scope, State, VolumeRecord};
use tepal_model::VolumeId;

/// A volume that a host has no right to isn't there for it.
pub fn may(state: &State, host: &IdentityRecord, method: &Method, path: &str) -> Result<(), Failure> {
    let forbidden = || {
        let text = format!("identity '{}' is a host's: an operator's does that", host.name);
        Failure::new(ErrorKind::Forbidden, text)
    };
    let is_of_some_pool = || state.pools.keys().any(|pool| on_pool(state, host, pool) >= Some(Right::Admin));
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (called, rest) = match parts[..] {
        _ if path == route::DIRECTORY => return Ok(()),
        _ if *method == Method::GET && [route::CLUSTER, route::SERVERS, route::REMOVALS].contains(&path) => {
            return Ok(());
        }
        ["v1", "volumes"] if *method == Method::GET => return Ok(()), // those that it may know of
        // Whether of the pool in question, `may_create` says.
        ["v1", "volumes"] if *method == Method::POST && is_of_some_pool() => return Ok(()),
        // Of which volumes, the handlers see to.
        ["v1", "snapshots"] => return Ok(()),
        ["v1", "pools", pool, ref rest @ ..] => {
            let pool = decoded(pool).ok_or_else(forbidden)?;
            let needed = match (rest, method) {
                ([], &Method::GET) => Right::Read,
                (["rights"], _) => Right::Admin,
                _ => return Err(forbidden()),
            };
            return if on_pool(state, host, &pool) >= Some(needed) { Ok(()) } else { Err(forbidden()) };
        }
        ["v1", "volumes" | "snapshots", called, ref rest @ ..] => (decoded(called).ok_or_else(forbidden)?, rest),
        _ => return Err(forbidden()),
    };
    // Of a snapshot, the volume has the rights.
    let name = called.split('@').next().unwrap_or_default();
    let right = state.volume_called(name).and_then(|volume| state.right_of(host, volume.id));
    let needed = match (rest, method) {
        ([], &Method::GET) => Right::Read,
        (["reservation"], _) => Right::Write,
        _ => Right::Admin,
    };
    match right {
        Some(right) if right >= needed => Ok(()),
        Some(right) => {
            let text = format!(
                "identity '{}' may {right} volume '{name}', and that takes the right to {needed} it",
                host.name
            );
            Err(Failure::new(ErrorKind::Forbidden, text))
        }
        None => Err(Refusal::NoVolume(name.chars().take(140).collect()).into()),
    }
}

/// What was granted to a host on all volumes of a pool.
fn on_pool(state: &State, host: &IdentityRecord, pool: &str) -> Option<Right> {
    let access = &state.access;
    access.right_on(host, &Scope::Pool(pool.to_owned())).max(access.right_on(host, &Scope::Cluster))
}

/// The identity that asks, if it's a host, as it's now; none of one that is gone.
fn as_host(state: &State, who: Option<&Who>) -> Option<Option<Arc<IdentityRecord>>> {
    match who {
        Some(Who::Identity(key, _)) => {
            let known = state.access.identity_of(key).cloned();
            (known.as_ref().is_none_or(|known| known.role == Role::Host)).then_some(known)
        }
        Some(Who::Nobody | Who::InTheClear) | None => None,
    }
}

/// Whether whoever asks may make a volume in a pool.
pub fn may_create(state: &State, who: Option<&Who>, pool: &str) -> Result<(), Failure> {
    let Some(host) = as_host(state, who) else { return Ok(()) };
    if host.as_ref().is_some_and(|host| on_pool(state, host, pool) >= Some(Right::Admin)) {
        return Ok(());
    }
    let text =
        format!("having a volume in pool '{pool}' takes the right to admin it: `tepal pool grant {pool} admin WHO`");
    Err(Failure::new(ErrorKind::Forbidden, text))
}

/// Whether whoever asks may change a volume. One that he may not know of isn't there.
pub fn may_change(state: &State, who: Option<&Who>, volume: &VolumeRecord) -> Result<(), Failure> {
    let Some(host) = as_host(state, who) else { return Ok(()) };
    match host.and_then(|host| state.right_of(&host, volume.id)) {
        Some(Right::Admin) => Ok(()),
        Some(right) => {
            let text =
                format!("the right to {right} volume '{}' is there, and that takes the right to admin it", volume.name);
            Err(Failure::new(ErrorKind::Forbidden, text))
        }
        None => Err(Refusal::NoVolume(volume.name.clone()).into()),
    }
}

/// Whether whoever asks may know that there is this volume.
pub fn may_know(state: &State, who: Option<&Who>, volume: VolumeId) -> bool {
    as_host(state, who).is_none_or(|host| host.is_some_and(|host| state.right_of(&host, volume).is_some()))
}

/// A part of a path without its escapes (RFC 3986, 2.1).
pub fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, after @ ..] = rest {
        (rest, bytes) = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                bytes.push((digit(high)? << 4 | digit(low)?) as u8);
                (after, bytes)
            }
            (b'%', _) => return None,
            (byte, after) => {
                bytes.push(*byte);
                (after, bytes)
            }
        };
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_a_path_is_read_as_the_handlers_read_it() {
        for (text, name) in [("v", Some("v")), ("v%40s", Some("v@s")), ("id%3A7", Some("id:7")), ("%c3%A9", Some("é"))]
        {
            assert_eq!(decoded(text).as_deref(), name);
        }
        for text in ["%", "%4", "%zz", "%ff"] {
            assert_eq!(decoded(text), None, "{text}");
        }
    }
}
