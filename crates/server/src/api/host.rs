//! What a host may ask of the API: of volumes that were granted to it, and where servers are.

use super::failure::Failure;
use super::types::{ErrorKind, route};
use axum::http::Method;
use tepal_metadata::{IdentityRecord, Refusal, Right, State};

/// A volume that a host has no right to isn't there for it.
pub fn may(state: &State, host: &IdentityRecord, method: &Method, path: &str) -> Result<(), Failure> {
    let forbidden = || {
        let text = format!("identity '{}' is a host's: an operator's does that", host.name);
        Failure::new(ErrorKind::Forbidden, text)
    };
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (called, rest) = match parts[..] {
        _ if path == route::DIRECTORY => return Ok(()),
        _ if *method == Method::GET && [route::CLUSTER, route::SERVERS].contains(&path) => return Ok(()),
        ["v1", "volumes" | "snapshots", called, ref rest @ ..] => (decoded(called).ok_or_else(forbidden)?, rest),
        _ => return Err(forbidden()),
    };
    // Of a snapshot, the volume has the rights.
    let name = called.split('@').next().unwrap_or_default();
    let right = state.volume_called(name).and_then(|volume| state.access.right_of(host, volume.id));
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
