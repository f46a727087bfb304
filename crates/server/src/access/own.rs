//! This server's own certificate, which is kept in its data folder, and made anew long before it expires. Its key stays the same: others
//! know it by that.

use super::authority::{AuthorityError, DAY, PublicKey, Subject};
use super::credentials::{Credentials, Pem, Trust};
use super::{Access, AccessError, Signed};
use crate::private_file;
use rcgen::{KeyPair, PublicKeyData};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tepal_metadata::{Role, State};

/// In the data folder.
const FILE: &str = "certificate.json";
/// A server's certificate counts so long.
pub const SERVER_DAYS: u32 = 90;
/// It's made anew when it counts for less than that.
const RENEW_BEFORE: Duration = Duration::from_secs(30 * 24 * 3600);
/// After one that couldn't be had.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// While nothing changes.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);

/// What the file says.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Own {
    /// As PEM.
    certificate: String,
    /// As PEM, PKCS #8.
    key: String,
    /// Of the authority that signed it, as PEM.
    authority: String,
    /// Whom to believe before more is known.
    trust: Trust,
    /// For which names and addresses it counts.
    names: Vec<String>,
    until_unix_s: u64,
}

impl Own {
    fn pem(&self) -> Pem<'_> {
        Pem { certificate: &self.certificate, key: &self.key }
    }

    /// One of an earlier build says the authority alone.
    fn trust(&self) -> Trust {
        if self.trust.roots.is_empty() {
            Trust { roots: self.authority.clone(), ..Trust::default() }
        } else {
            self.trust.clone()
        }
    }

    /// A damaged one is made anew.
    fn of(folder: &Path) -> Own {
        private_file::recall(&folder.join(FILE)).unwrap_or_default()
    }
}

/// Uses the certificate of the data folder, if there is one, before anything is known of the cluster.
pub fn recall(folder: &Path, credentials: &Credentials) {
    let own = Own::of(folder);
    if own.until_unix_s <= unix_s() && !own.certificate.is_empty() {
        tracing::warn!("the certificate in the data folder has expired: others may not let this server in");
        return;
    }
    if !own.certificate.is_empty()
        && let Err(error) = credentials.set(&own.pem(), &own.trust())
    {
        tracing::warn!(%error, "the certificate in the data folder can't be used");
    }
}

/// Makes sure for ever that this server has a certificate, once the cluster has an authority. `names`: of this server.
pub async fn keep(access: Access, names: Vec<String>, is_required: bool) {
    let mut states = access.metadata().watch();
    loop {
        // Before the renewal, as what becomes known during it is news.
        let (known, trusted) = (access.authority_record(), Trust::of(&access.metadata().state().access));
        let renewed = renew(&access, &names, is_required).await;
        access.credentials().note(renewed.as_ref().err().map(ToString::to_string));
        let next = match renewed {
            Ok(()) => LOOK_AGAIN,
            Err(error) => {
                tracing::warn!(%error, "this server can't get a certificate");
                TRY_AGAIN
            }
        };
        let is_news =
            |state: &Arc<State>| state.access.presented() != known.as_ref() || Trust::of(&state.access) != trusted;
        let changed = async { states.wait_for(is_news).await.is_ok() };
        tokio::select! {
            is_there = changed => if !is_there { return },
            () = tokio::time::sleep(next) => {}
        }
    }
}

/// So long a server that wants TLS of others waits for its first certificate before it says that it serves.
const FIRST_WITHIN: Duration = Duration::from_secs(10);

/// The first attempt: whoever finds this server finds its certificate too, if it could be had.
pub async fn first(access: &Access, names: &[String], is_required: bool) {
    match tokio::time::timeout(FIRST_WITHIN, renew(access, names, is_required)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "this server has no certificate yet"),
        Err(_) => tracing::warn!("this server has no certificate yet: nobody signs one"),
    }
}

/// Has a new certificate made unless that of the file still counts for long.
async fn renew(access: &Access, names: &[String], is_required: bool) -> Result<(), AccessError> {
    let record = match access.authority_record() {
        Some(record) => record,
        None if is_required => access.have_authority().await?,
        None => return Ok(()),
    };
    let (mut own, trust) = (Own::of(access.folder()), Trust::of(&access.metadata().state().access));
    let soon = unix_s() + RENEW_BEFORE.as_secs();
    if own.authority == record.certificate && own.names == names && own.until_unix_s > soon {
        access.credentials().note_end(own.until_unix_s);
        if own.trust != trust {
            own.trust = trust;
            keep_file(access, &own)?;
        } else if access.credentials().are_there() && access.credentials().trust() == own.trust {
            return Ok(());
        }
        return access.credentials().set(&own.pem(), &own.trust);
    }
    let key = KeyPair::from_pem(&own.key).or_else(|_| KeyPair::generate()).map_err(AuthorityError::from)?;
    let digits: String = key.der_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let Signed { certificate, authority } = access.have_signed(&record, &digits, names).await?;
    let until_unix_s = unix_s() + (DAY * SERVER_DAYS).as_secs();
    own = Own { certificate, key: key.serialize_pem(), authority, trust, names: names.to_vec(), until_unix_s };
    keep_file(access, &own)?;
    access.credentials().note_end(own.until_unix_s);
    access.credentials().set(&own.pem(), &own.trust)
}

fn keep_file(access: &Access, own: &Own) -> Result<(), AccessError> {
    let (path, text) = (access.folder().join(FILE), serde_json::to_vec_pretty(own).expect("texts and numbers"));
    private_file::replace(&path, &text).map_err(|error| AccessError::File { path, error })
}

/// By which authority this server's certificate is signed, as PEM; none if it has none yet.
pub fn signed_by(access: &Access) -> Option<String> {
    Some(Own::of(access.folder()).authority).filter(|_| access.credentials().are_there())
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Whom a server's certificate is for.
pub fn subject<'a>(name: &'a str, names: &'a [String]) -> Subject<'a> {
    Subject { name, role: Role::Server, names, days: SERVER_DAYS }
}

/// See [`PublicKey::parse`].
pub fn public_key(digits: &str) -> Result<PublicKey, AccessError> {
    Ok(PublicKey::parse(digits)?)
}
