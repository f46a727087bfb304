//! Identities and their rights.

use super::described;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use tepal_metadata::{Right, Role};

/// Somebody who is known by a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IdentityInfo {
    /// Unique.
    pub name: String,
    /// What it is for.
    #[schemars(with = "described::RoleText")]
    pub role: Role,
    /// The groups that it belongs to.
    pub groups: Vec<String>,
    /// The SHA-256 of its public key.
    pub key: String,
    /// By the wall clock of the server that was asked, in milliseconds since 1970.
    pub created_unix_ms: u64,
    /// What was granted to it by its own name, by volume.
    pub rights: Vec<RightInfo>,
}

/// What somebody may do with a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RightInfo {
    /// The volume's name.
    pub volume: String,
    /// An identity, or a group after `@`.
    pub to: String,
    /// As much as this.
    #[schemars(with = "described::RightText")]
    pub right: Right,
}

/// Adds an identity. The private key stays with the asker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateIdentity {
    /// Unique.
    #[schemars(regex(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"))]
    pub name: String,
    /// What it is for.
    #[schemars(with = "described::RoleText")]
    pub role: Role,
    /// The groups that it belongs to.
    #[serde(default)]
    pub groups: Vec<String>,
    /// Its public key: an uncompressed point of P-256 (SEC 1, 2.3.3), as hexadecimal digits.
    pub key: String,
    /// How long its certificate counts: 1 to 3650 days.
    #[schemars(range(min = 1, max = 3650))]
    pub days: u32,
}

/// Gives an identity another key. The one that it had counts too, until the next time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RenewIdentity {
    /// As in [`CreateIdentity`].
    pub key: String,
    /// As in [`CreateIdentity`].
    #[schemars(range(min = 1, max = 3650))]
    pub days: u32,
}

/// A certificate of an identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IdentityCertificate {
    /// The identity's, as PEM.
    pub certificate: String,
    /// That of the cluster's certificate authority, as PEM.
    pub authority: String,
}

/// Grants a right on a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// An identity, or a group after `@`.
    pub to: String,
    /// As much as this.
    #[schemars(with = "described::RightText")]
    pub right: Right,
}

/// Takes what was granted away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WithdrawQuery {
    /// An identity, or a group after `@`.
    pub to: String,
}

/// Has one holder alone write to a volume. Connections of others are cut off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reserve {
    /// By its own word: a name.
    pub holder: String,
    /// From another holder, and from clients that are connected.
    #[serde(default)]
    pub take: bool,
}

/// Cuts off whoever is connected to a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FenceQuery {
    /// Only if it's this holder's.
    #[serde(default)]
    pub from: Option<String>,
}
