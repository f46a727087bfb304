//! Who may do what, as the cluster agrees on it: the authorities that sign certificates, identities and the keys by which they are known,
//! and their rights on volumes.
//!
//! A certificate only carries a public key. What an identity may do is said here alone: an identity that is removed has no rights from
//! then on, however long its certificate is valid.

use crate::realm::{LeavingRecord, OutsideAuthorityRecord, PoolKeyRecord, Scope, ScopeGrantRecord, SubjectRecord};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use tepal_model::text::shown;
use tepal_model::{Limits, ServerId, VolumeId};

/// Begins the name of a group where an identity could stand too. No name has this character.
pub const GROUP: char = '@';

/// A text that is no value of its kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is no {what}: it's {words}")]
pub struct AccessNameError {
    pub(crate) what: &'static str,
    pub(crate) text: String,
    pub(crate) words: &'static str,
}

/// Defines an enum of words.
macro_rules! words {
    ($(#[$doc:meta])* $Name:ident, $what:literal, $list:literal { $($(#[$of:meta])* $Value:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $Name { $($(#[$of])* $Value,)* }

        impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($Name::$Value => $word,)* })
            }
        }

        impl FromStr for $Name {
            type Err = AccessNameError;

            fn from_str(text: &str) -> Result<Self, AccessNameError> {
                match text {
                    $($word => Ok($Name::$Value),)*
                    _ => Err(AccessNameError { what: $what, text: shown(text), words: $list }),
                }
            }
        }
    };
}

words! {
    /// What an identity is for.
    Role, "role", "host, operator, server or revoked" {
        /// Uses the volumes that were granted to it.
        Host = "host",
        /// Does everything, with all volumes and with the cluster.
        Operator = "operator",
        /// Is a server of the cluster.
        Server = "server",
        /// Was a server. Its key is remembered: by what its certificate is for alone, it would still be one.
        Revoked = "revoked",
    }
}

words! {
    /// What may be done with a volume. Each right has those before it.
    Right, "right", "read, write or admin" {
        /// Read its data and its snapshots.
        Read = "read",
        /// Write its data.
        Write = "write",
        /// Change the volume: its size, layout, snapshots and rights; and remove it.
        Admin = "admin",
    }
}

/// The SHA-256 of a public key (the SubjectPublicKeyInfo of RFC 5280, as DER).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct KeyHash(pub [u8; 32]);

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for KeyHash {
    type Err = AccessNameError;

    fn from_str(text: &str) -> Result<Self, AccessNameError> {
        let words = "64 digits of a SHA-256";
        let failed = || AccessNameError { what: "hash of a key", text: shown(text), words };
        let digits = text.as_bytes();
        if digits.len() != 64 || !digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(failed());
        }
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| failed())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| failed())?;
        }
        Ok(KeyHash(hash))
    }
}

impl From<KeyHash> for String {
    fn from(hash: KeyHash) -> String {
        hash.to_string()
    }
}

impl TryFrom<String> for KeyHash {
    type Error = AccessNameError;

    fn try_from(text: String) -> Result<Self, AccessNameError> {
        text.parse()
    }
}

/// A certificate authority of the cluster. Its key isn't agreed on: the data folder of its server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityRecord {
    /// Counted from 1.
    pub number: u32,
    /// As PEM.
    pub certificate: String,
    /// The server that made it.
    pub server: ServerId,
}

/// Somebody who is known by a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityRecord {
    /// Unique.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// The groups that it belongs to, in order.
    pub groups: Vec<String>,
    /// By which it's known.
    pub key: KeyHash,
    /// By which it was known before, and still is until it gets another.
    pub former_key: Option<KeyHash>,
    /// By the wall clock of its proposer, in milliseconds since 1970; for people.
    pub created_unix_ms: u64,
}

/// What somebody may do with a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRecord {
    /// Which volume.
    pub volume: VolumeId,
    /// The name of an identity, or of a group after [`GROUP`].
    pub to: String,
    /// As much as this.
    pub right: Right,
}

/// Who alone may write to a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationRecord {
    /// Which volume.
    pub volume: VolumeId,
    /// By its own word; none: everybody who comes from now on.
    pub holder: Option<String>,
    /// Counts who came and went. A connection of an earlier number is cut off.
    pub number: u64,
    /// The holders that were cut off, by name, the latest last. Their clients may come back by themselves and send again what they had on
    /// its way, so they are refused unless they take the volume.
    pub fenced: Vec<String>,
}

/// The key of an encrypted volume, in the only form in which it's ever agreed on: enciphered by another key, which the cluster
/// doesn't have.
#[derive(Clone, PartialEq, Eq)]
pub struct VolumeKeyRecord {
    /// Which volume.
    pub volume: VolumeId,
    /// What the other key is called.
    pub key: String,
    /// The volume's key, wrapped: hexadecimal, at most [`LONGEST_WRAPPED`] digits.
    pub wrapped: String,
}

impl fmt::Debug for VolumeKeyRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VolumeKeyRecord({}, wrapped by '{}')", self.volume.0, self.key)
    }
}

/// Digits of a wrapped key.
pub const LONGEST_WRAPPED: usize = 512;

/// What a limit is set on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limited {
    /// All that is asked for of a volume and its snapshots.
    Volume(VolumeId),
    /// All that an identity asks for, by its name.
    Identity(String),
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limited::Volume(VolumeId(id)) => write!(f, "volume:{id}"),
            Limited::Identity(name) => write!(f, "identity:{name}"),
        }
    }
}

impl FromStr for Limited {
    type Err = AccessNameError;

    fn from_str(text: &str) -> Result<Self, AccessNameError> {
        let of_volume =
            text.strip_prefix("volume:").and_then(|id| id.parse().ok()).map(|id| Limited::Volume(VolumeId(id)));
        let of_identity = || text.strip_prefix("identity:").map(|name| Limited::Identity(name.to_owned()));
        let (what, words) = ("limited thing", "volume:ID or identity:NAME");
        of_volume.or_else(of_identity).ok_or_else(|| AccessNameError { what, text: shown(text), words })
    }
}

/// How much may be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitsRecord {
    /// Of what, or by whom.
    pub of: Limited,
    /// Not without any: there is no record then.
    pub limits: Limits,
}

/// A secret by which one server may join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinTokenRecord {
    /// The SHA-256 of the secret, which isn't on record.
    pub hash: KeyHash,
    /// Until when it counts, by the clocks of proposers, in milliseconds since 1970.
    pub until_unix_ms: u64,
    /// The key of the server that has joined by it; none yet.
    pub key: Option<KeyHash>,
}

/// A volume that is used while it's imported: what it hasn't taken over yet is read where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveRecord {
    /// Which.
    pub volume: VolumeId,
    /// The address of the export that it comes from, which nobody writes to.
    pub from: String,
    /// Bytes that the export has.
    pub length: u64,
    /// Bytes from the beginning on that are there for good.
    pub done: u64,
    /// Whether it goes on.
    pub stage: LiveStage,
}

/// Whether a live import goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LiveStage {
    /// One server copies.
    Running,
    /// Nobody copies. Clients are served as ever.
    Paused,
    /// Nobody reads where it comes from any more: what isn't there can't be had.
    Cancelled,
}

const LIVE_STAGES: [(LiveStage, &str); 3] =
    [(LiveStage::Running, "running"), (LiveStage::Paused, "paused"), (LiveStage::Cancelled, "cancelled")];

impl std::fmt::Display for LiveStage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(LIVE_STAGES.iter().find(|(stage, _)| stage == self).map_or("", |(_, word)| word))
    }
}

impl std::str::FromStr for LiveStage {
    type Err = UnknownStage;

    fn from_str(text: &str) -> Result<Self, UnknownStage> {
        LIVE_STAGES.iter().find(|(_, word)| *word == text).map(|(stage, _)| *stage).ok_or(UnknownStage)
    }
}

/// No stage is called so.
#[derive(Debug, thiserror::Error)]
#[error("no stage of a live import")]
pub struct UnknownStage;

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// By number. All are trusted.
    pub authorities: BTreeMap<u32, Arc<AuthorityRecord>>,
    /// By number: those that sign nothing for servers any more.
    pub leaving: BTreeMap<u32, Arc<LeavingRecord>>,
    /// By name.
    pub identities: BTreeMap<String, Arc<IdentityRecord>>,
    /// By volume, and to whom.
    pub grants: BTreeMap<(VolumeId, String), Arc<GrantRecord>>,
    /// By scope, and to whom.
    pub scope_grants: BTreeMap<(Scope, String), Arc<ScopeGrantRecord>>,
    /// By pool; of one whose new volumes aren't encrypted by themselves there is none.
    pub pool_keys: BTreeMap<String, Arc<PoolKeyRecord>>,
    /// By name.
    pub outside: BTreeMap<String, Arc<OutsideAuthorityRecord>>,
    /// By the identity's name; of one with a certificate of the cluster's authority there is none.
    pub subjects: BTreeMap<String, Arc<SubjectRecord>>,
    /// By volume; of one that was never reserved there is none.
    pub reservations: BTreeMap<VolumeId, Arc<ReservationRecord>>,
    /// By volume; of one that isn't encrypted there is none.
    pub volume_keys: BTreeMap<VolumeId, Arc<VolumeKeyRecord>>,
    /// By what they are set on; of what has no limits there is none.
    pub limits: BTreeMap<Limited, Arc<LimitsRecord>>,
    /// By hash. Some may have expired.
    pub join_tokens: BTreeMap<KeyHash, Arc<JoinTokenRecord>>,
    /// Of volumes that are imported while they are used.
    pub live_imports: BTreeMap<VolumeId, Arc<LiveRecord>>,
    /// The name of the identity of each key.
    pub(crate) keys: BTreeMap<KeyHash, String>,
}

impl Access {
    /// Who is known by this key.
    pub fn identity_of(&self, key: &KeyHash) -> Option<&Arc<IdentityRecord>> {
        self.keys.get(key).and_then(|name| self.identities.get(name))
    }

    /// What an identity may do with a volume of this pool; nothing, if nothing was granted. [`crate::State::right_of`] knows the pool.
    pub(crate) fn right_in(&self, identity: &IdentityRecord, volume: VolumeId, pool: Option<&str>) -> Option<Right> {
        match identity.role {
            Role::Host => {}
            Role::Operator | Role::Server => return Some(Right::Admin),
            Role::Revoked => return None,
        }
        let of_volume = |to: String| self.grants.get(&(volume, to)).map(|grant| grant.right);
        let own = names_of(identity).filter_map(of_volume).max();
        let of_pool = pool.and_then(|pool| self.right_on(identity, &Scope::Pool(pool.to_owned())));
        own.max(of_pool).max(self.right_on(identity, &Scope::Cluster))
    }

    /// What was granted to an identity on all volumes of a scope.
    pub fn right_on(&self, identity: &IdentityRecord, scope: &Scope) -> Option<Right> {
        match identity.role {
            Role::Host if self.scope_grants.is_empty() => None,
            Role::Host => {
                let granted = |to: String| self.scope_grants.get(&(scope.clone(), to)).map(|grant| grant.right);
                names_of(identity).filter_map(granted).max()
            }
            Role::Operator | Role::Server => Some(Right::Admin),
            Role::Revoked => None,
        }
    }

    /// What was granted on a scope.
    pub fn grants_on<'a>(&'a self, scope: &'a Scope) -> impl Iterator<Item = &'a Arc<ScopeGrantRecord>> {
        self.scope_grants.iter().filter(move |((of, _), _)| of == scope).map(|(_, grant)| grant)
    }

    /// The authority that signs certificates of servers: the oldest that isn't leaving.
    pub fn presented(&self) -> Option<&Arc<AuthorityRecord>> {
        self.authorities.values().find(|authority| !self.leaving.contains_key(&authority.number))
    }

    /// The authority that signs certificates of everybody else. Whoever is given one trusts all authorities.
    pub fn newest_authority(&self) -> Option<&Arc<AuthorityRecord>> {
        self.authorities.values().next_back()
    }

    /// The certificates of all authorities of the cluster, as PEM.
    pub fn roots(&self) -> String {
        let lines = |authority: &Arc<AuthorityRecord>| format!("{}\n", authority.certificate.trim_end());
        self.authorities.values().map(lines).collect()
    }

    /// How much may be asked for.
    pub fn limits_of(&self, of: &Limited) -> Limits {
        self.limits.get(of).map_or_else(Limits::default, |record| record.limits)
    }

    /// Who alone may write to a volume, and the number of that; 0 before the first one.
    pub fn reserved(&self, volume: VolumeId) -> (Option<&str>, u64) {
        self.reservations.get(&volume).map_or((None, 0), |record| (record.holder.as_deref(), record.number))
    }

    /// What was granted of a volume.
    pub fn grants_of(&self, volume: VolumeId) -> impl Iterator<Item = &Arc<GrantRecord>> {
        self.grants
            .range((volume, String::new())..)
            .take_while(move |((of, _), _)| *of == volume)
            .map(|(_, grant)| grant)
    }

    /// In the place of the one that has this name.
    pub fn put_identity(&mut self, record: Arc<IdentityRecord>) {
        self.drop_identity(&record.name);
        for key in std::iter::once(record.key).chain(record.former_key) {
            self.keys.insert(key, record.name.clone());
        }
        self.identities.insert(record.name.clone(), record);
    }

    pub(crate) fn drop_identity(&mut self, name: &str) {
        if let Some(old) = self.identities.remove(name) {
            self.keys.retain(|_, of| *of != old.name);
        }
    }
}

/// The names by which something may have been granted to it.
fn names_of(identity: &IdentityRecord) -> impl Iterator<Item = String> {
    let groups = identity.groups.iter().map(|group| format!("{GROUP}{group}"));
    groups.chain(std::iter::once(identity.name.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(role: Role, groups: &[&str]) -> IdentityRecord {
        IdentityRecord {
            name: "web".to_owned(),
            role,
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            key: KeyHash([7; 32]),
            former_key: None,
            created_unix_ms: 0,
        }
    }

    #[test]
    fn an_identity_has_the_most_that_was_granted_to_it_or_its_groups() {
        let mut access = Access::default();
        let host = identity(Role::Host, &["lab", "night"]);
        let right = |access: &Access| access.right_in(&host, VolumeId(1), Some("p"));
        assert_eq!(right(&access), None);
        for (to, right_then) in
            [("other", None), ("@day", None), ("@lab", Some(Right::Read)), ("web", Some(Right::Write))]
        {
            let right_to = if to == "@lab" { Right::Read } else { Right::Write };
            let grant = GrantRecord { volume: VolumeId(1), to: to.to_owned(), right: right_to };
            access.grants.insert((grant.volume, grant.to.clone()), Arc::new(grant));
            assert_eq!(right(&access), right_then, "{to}");
        }
        assert_eq!(access.right_in(&host, VolumeId(2), Some("p")), None);
        assert_eq!(access.right_in(&identity(Role::Operator, &[]), VolumeId(2), None), Some(Right::Admin));
        assert_eq!(access.right_in(&identity(Role::Revoked, &["lab"]), VolumeId(1), None), None);
        assert_eq!(access.grants_of(VolumeId(1)).count(), 4);
    }

    #[test]
    fn rights_on_a_pool_and_on_the_cluster_are_rights_on_volumes() {
        let (mut access, host) = (Access::default(), identity(Role::Host, &["lab"]));
        let right = |access: &Access, pool| access.right_in(&host, VolumeId(1), Some(pool));
        for (scope, to, granted, then) in [
            (Scope::Pool("fast".to_owned()), "@lab", Right::Write, [Some(Right::Write), None]),
            (Scope::Cluster, "web", Right::Read, [Some(Right::Write), Some(Right::Read)]),
            (Scope::Cluster, "other", Right::Admin, [Some(Right::Write), Some(Right::Read)]),
        ] {
            let record = ScopeGrantRecord { scope: scope.clone(), to: to.to_owned(), right: granted };
            access.scope_grants.insert((scope, to.to_owned()), Arc::new(record));
            assert_eq!(["fast", "slow"].map(|pool| right(&access, pool)), then, "{to}");
        }
        assert_eq!(access.grants_on(&Scope::Cluster).count(), 2);
        assert_eq!(access.right_in(&identity(Role::Revoked, &["lab"]), VolumeId(1), Some("fast")), None);
    }

    #[test]
    fn words_and_hashes_are_read_as_they_are_written() {
        for role in [Role::Host, Role::Operator, Role::Server, Role::Revoked] {
            assert_eq!(role.to_string().parse(), Ok(role));
        }
        for right in [Right::Read, Right::Write, Right::Admin] {
            assert_eq!(right.to_string().parse(), Ok(right));
        }
        let hash = KeyHash(std::array::from_fn(|i| (i as u8).wrapping_mul(9)));
        assert_eq!(hash.to_string().parse(), Ok(hash));
        for text in ["", "ab", &"g".repeat(64), &"A".repeat(64), &"+1".repeat(32)] {
            assert!(text.parse::<KeyHash>().is_err(), "{text}");
        }
        assert_eq!(
            "root".parse::<Role>().unwrap_err().to_string(),
            "'root' is no role: it's host, operator, server or revoked"
        );
    }
}
