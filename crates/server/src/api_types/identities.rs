//! Identities and their rights.

use super::described;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use tepal_metadata::{Right, Role};
use tepal_model::{Limits, ServerId};

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
    /// What was granted to it by its own name on pools and on the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scope_rights: Vec<ScopeRightInfo>,
    /// The authority of others that says who it is, and as whom: the common name of its certificates. Null if the cluster's own does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outside: Option<OutsideSubject>,
    /// How much it may ask for, of each server.
    #[serde(default, skip_serializing_if = "Limits::is_none")]
    #[schemars(with = "described::LimitsShape")]
    pub limits: Limits,
}

/// As whom somebody is known that an authority of others says who it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutsideSubject {
    /// By its name.
    pub authority: String,
    /// The common name of its certificates.
    pub subject: String,
}

/// Adds an identity that has its certificate from an authority of others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateOutsideIdentity {
    /// Unique.
    #[schemars(regex(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"))]
    pub name: String,
    /// What it is for.
    #[schemars(with = "described::RoleText")]
    pub role: Role,
    /// The groups that it belongs to.
    #[serde(default)]
    pub groups: Vec<String>,
    /// As whom it's known.
    pub outside: OutsideSubject,
}

/// By whom certificates are signed that count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuthoritiesInfo {
    /// The cluster's own, in the order in which they were made.
    pub own: Vec<AuthorityInfo>,
    /// Those of others, by name.
    pub outside: Vec<OutsideAuthority>,
    /// The number of the own one that has signed the asked server's certificate. Null if it has none.
    pub presented: Option<u32>,
    /// Whether the asked server believes these and no others.
    pub current: bool,
}

/// An authority of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuthorityInfo {
    /// Counted from 1.
    pub number: u32,
    /// The SHA-256 of its certificate.
    pub fingerprint: String,
    /// The server that has its key.
    #[schemars(with = "described::ServerText")]
    pub server: ServerId,
    /// Another one takes its place: it's trusted still, and signs nothing any more.
    pub leaving: bool,
}

/// An authority of others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutsideAuthority {
    /// Unique.
    #[schemars(regex(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"))]
    pub name: String,
    /// As PEM.
    pub certificate: String,
}

/// What somebody may do with the volumes of a pool, or with all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScopeRightInfo {
    /// `pool:NAME`, or `cluster`.
    pub scope: String,
    /// An identity, or a group after `@`.
    pub to: String,
    /// As much as this.
    #[schemars(with = "described::RightText")]
    pub right: Right,
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
    /// Names and addresses by which clients find a host that runs a gateway.
    #[serde(default)]
    pub addresses: Vec<String>,
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
    /// As in [`CreateIdentity`].
    #[serde(default)]
    pub addresses: Vec<String>,
}

/// A certificate of an identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IdentityCertificate {
    /// The identity's, as PEM.
    pub certificate: String,
    /// Those of the cluster's certificate authorities, as PEM.
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

/// Makes a token by which one server may join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateJoinToken {
    /// For how many seconds it counts: at most 30 days.
    pub valid_s: u64,
}

/// A token, told once: the cluster keeps no more than its hash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JoinToken {
    /// Stands for it in lists.
    pub id: String,
    /// What a server shows.
    pub secret: String,
    /// The SHA-256 of the cluster's certificate authority, by which the server knows the cluster.
    pub authority: String,
    /// Where the server that was asked takes requests of the API.
    pub api: String,
    /// Until when it counts, in milliseconds since 1970.
    pub until_unix_ms: u64,
}

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JoinTokenInfo {
    /// As in [`JoinToken`].
    pub id: String,
    /// As in [`JoinToken`].
    pub until_unix_ms: u64,
    /// A server has joined by it.
    pub used: bool,
}

/// What a new server asks, with no identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Join {
    /// Of a token.
    pub secret: String,
    /// Its public key, as in [`CreateIdentity`].
    pub key: String,
}

/// What a new server needs to join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Joined {
    /// The server's, as PEM, by which it calls the others.
    pub certificate: String,
    /// That of the cluster's certificate authority, as PEM.
    pub authority: String,
    /// What all servers of the cluster want shown over their API.
    pub token: String,
    /// Where servers that are up take calls of others.
    pub peers: Vec<String>,
}

/// The certificate of the cluster's certificate authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuthorityCertificate {
    /// As PEM.
    pub authority: String,
}
