//! What holds beyond single volumes: rights on pools and on the whole cluster, the keys by which a pool's new volumes are encrypted, and
//! authorities other than the cluster's own, with the identities that are known by their certificates.

use crate::access::{AccessNameError, Right};
use crate::command::Command;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use tepal_model::text::shown;

/// What a right is granted on, if it's more than one volume.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Scope {
    /// The volumes of the pool of that name, those to come too.
    Pool(String),
    /// All volumes.
    Cluster,
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Pool(name) => write!(f, "pool:{name}"),
            Scope::Cluster => f.write_str("cluster"),
        }
    }
}

impl FromStr for Scope {
    type Err = AccessNameError;

    fn from_str(text: &str) -> Result<Self, AccessNameError> {
        match (text, text.strip_prefix("pool:")) {
            ("cluster", _) => Ok(Scope::Cluster),
            (_, Some(name)) => Ok(Scope::Pool(name.to_owned())),
            _ => Err(AccessNameError { what: "scope", text: shown(text), words: "pool:NAME or cluster" }),
        }
    }
}

impl From<Scope> for String {
    fn from(scope: Scope) -> String {
        scope.to_string()
    }
}

impl TryFrom<String> for Scope {
    type Error = AccessNameError;

    fn try_from(text: String) -> Result<Self, AccessNameError> {
        text.parse()
    }
}

/// What somebody may do with all volumes of a scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeGrantRecord {
    /// Which volumes.
    pub scope: Scope,
    /// As in [`crate::GrantRecord::to`].
    pub to: String,
    /// As much as this.
    pub right: Right,
}

/// The key by which a pool's new volumes are encrypted, if nothing else is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolKeyRecord {
    /// By its name.
    pub pool: String,
    /// What the key is called.
    pub key: String,
}

/// An authority that isn't the cluster's. It says who its people are, and never who is a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideAuthorityRecord {
    /// Unique.
    pub name: String,
    /// As PEM.
    pub certificate: String,
}

/// By what an identity is known that has a certificate of an outside authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectRecord {
    /// The identity's name. Its key is a digest of the rest.
    pub identity: String,
    /// The name of the outside authority.
    pub authority: String,
    /// The common name of the certificate's subject.
    pub subject: String,
}

/// An authority of the cluster that another one takes the place of: it's trusted still, and signs nothing for servers any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeavingRecord {
    /// Which one.
    pub number: u32,
    /// By the wall clock of its proposer, in milliseconds since 1970; for people.
    pub since_unix_ms: u64,
}

impl Command {
    /// Whether it's about what is here, or waited for as such.
    pub(crate) fn is_of_realm(&self) -> bool {
        matches!(
            self,
            Command::Grant { .. }
                | Command::GrantOn { .. }
                | Command::WithdrawOn { .. }
                | Command::SetPoolKey { .. }
                | Command::RotateAuthority { .. }
                | Command::LeaveAuthority { .. }
                | Command::RemoveAuthority { .. }
                | Command::AddOutsideAuthority { .. }
                | Command::RemoveOutsideAuthority { .. }
                | Command::AddOutsideIdentity { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_read_as_they_are_written() {
        for scope in [Scope::Cluster, Scope::Pool("fast".to_owned()), Scope::Pool("cluster".to_owned())] {
            assert_eq!(scope.to_string().parse(), Ok(scope));
        }
        assert!("pool".parse::<Scope>().is_err() && "".parse::<Scope>().is_err());
    }
}
