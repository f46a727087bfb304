//! Who may do what: authorities, identities, and rights on volumes.
//!
//! Invariant: whatever takes a right away begins a new view. When no server acts by an earlier one any more, nobody acts by that right.

use super::{Change, Draft, check_name};
use crate::access::{
    Access, AuthorityRecord, GROUP, GrantRecord, IdentityRecord, KeyHash, Limited, ReservationRecord, Right, Role,
};
use crate::command::{Command, REALM, Reply};
use crate::record::VolumeRecord;
use crate::refusal::{Refusal, Thing};
use crate::state_machine::access::AccessChange;
use std::sync::Arc;
use tepal_model::text::{is_name, shown};
use tepal_model::{ServerId, VolumeId};

/// Of each cluster.
pub(super) const MOST_IDENTITIES: usize = 10_000;
/// Of each volume.
pub(super) const MOST_GRANTS: usize = 1_000;
/// Holders that a volume remembers as cut off.
const MOST_FENCED: usize = 32;
/// Of each identity.
const MOST_GROUPS: usize = 16;
/// Bytes of a certificate.
const LONGEST_CERTIFICATE: usize = 8 << 10;

impl Draft {
    /// Of commands about access; others are refused.
    pub(super) fn carry_out_of_access(&mut self, command: &Command) -> Result<Reply, Refusal> {
        match command {
            Command::AddAuthority { certificate, server } => self.add_authority(certificate, *server),
            Command::AddIdentity { name, role, groups, key } => self.add_identity(name, *role, groups, *key),
            Command::RenewIdentity { name, key } => self.renew_identity(name, *key),
            Command::RemoveIdentity { name } => self.remove_identity(name),
            Command::Grant { volume, to, right } => self.grant(volume, to, *right),
            Command::Withdraw { volume, to } => self.withdraw(volume, to),
            command if command.is_of_realm() => self.carry_out_of_realm(command),
            Command::Reserve { volume, holder, take } => self.reserve(volume, holder, *take),
            Command::Release { volume, from } => self.release(volume, from.as_deref()),
            Command::Live(command) => self.carry_out_of_live_import(command),
            Command::LimitVolume { .. } | Command::LimitIdentity { .. } => self.carry_out_of_limits(command),
            Command::AddJoinToken { .. } | Command::UseJoinToken { .. } | Command::RemoveJoinToken { .. } => {
                self.carry_out_of_join_tokens(command)
            }
            _ => self.carry_out_of_volume_keys(command),
        }
    }

    pub(super) fn access(&mut self) -> &mut Access {
        Arc::make_mut(&mut self.state.access)
    }

    pub(super) fn note(&mut self, change: AccessChange) {
        self.changes.push(Change::Access(change));
    }

    fn add_authority(&mut self, certificate: &str, server: ServerId) -> Result<Reply, Refusal> {
        if let Some(there) = self.state.access.authorities.values().next_back() {
            return Err(Refusal::AuthorityExists { server: there.server });
        }
        check_certificate(certificate)?;
        let record = Arc::new(AuthorityRecord { number: 1, certificate: certificate.to_owned(), server });
        self.access().authorities.insert(record.number, record.clone());
        self.note(AccessChange::Authority(record));
        self.event("cluster", "authority", format!("server {server} has made the cluster's certificate authority"));
        Ok(Reply::Done)
    }

    pub(super) fn add_identity(
        &mut self,
        name: &str,
        role: Role,
        groups: &[String],
        key: KeyHash,
    ) -> Result<Reply, Refusal> {
        check_name(Thing::Identity, name)?;
        if role == Role::Revoked {
            return Err(Refusal::NoIdentity(name.to_owned()));
        }
        let access = &self.state.access;
        if access.authorities.is_empty() {
            return Err(Refusal::NoAuthority);
        }
        if access.identities.contains_key(name) {
            return Err(Refusal::IdentityExists(name.to_owned()));
        }
        if access.identities.len() >= MOST_IDENTITIES {
            return Err(Refusal::TooManyIdentities { limit: MOST_IDENTITIES });
        }
        let mut groups = groups.to_vec();
        groups.sort_unstable();
        groups.dedup();
        if groups.len() > MOST_GROUPS {
            return Err(Refusal::TooManyGroups { limit: MOST_GROUPS });
        }
        groups.iter().try_for_each(|group| check_name(Thing::Group, group))?;
        self.check_new_key(key)?;
        let told = if groups.is_empty() { String::new() } else { format!(", of {}", groups.join(", ")) };
        let created_unix_ms = self.unix_ms;
        self.put_identity(IdentityRecord {
            name: name.to_owned(),
            role,
            groups,
            key,
            former_key: None,
            created_unix_ms,
        });
        self.event("identity", name, format!("added as {role}{told}"));
        Ok(Reply::Done)
    }

    fn renew_identity(&mut self, name: &str, key: KeyHash) -> Result<Reply, Refusal> {
        let mut record = self.identity(name)?;
        if record.role == Role::Revoked {
            return Err(Refusal::IdentityRevoked(name.to_owned()));
        }
        if self.state.access.subjects.contains_key(name) {
            return Err(Refusal::IsOutside(name.to_owned()));
        }
        if record.key == key {
            return Ok(Reply::Done);
        }
        self.check_new_key(key)?;
        record.former_key = Some(record.key);
        record.key = key;
        self.put_identity(record);
        self.event("identity", name, "has another key; the one before counts too, until the next".to_owned());
        Ok(Reply::Done)
    }

    pub(super) fn remove_identity(&mut self, name: &str) -> Result<Reply, Refusal> {
        let record = self.identity(name)?;
        let of_it = |id: &VolumeId| record.role == Role::Host && self.state.right_of(&record, *id).is_none();
        let touched: Vec<_> = self.state.active_volumes().filter(|volume| !of_it(&volume.id)).cloned().collect();
        if self.version >= REALM
            && record.role == Role::Server
            && let Some(id) = self.state.servers.keys().find(|id| name == format!("server-{id}"))
        {
            return Err(Refusal::OfMember { name: name.to_owned(), id: *id });
        }
        match record.role {
            Role::Server => self.put_identity(IdentityRecord { role: Role::Revoked, ..record }),
            Role::Revoked => return Err(Refusal::IdentityRevoked(name.to_owned())),
            Role::Host | Role::Operator => {
                self.access().drop_identity(name);
                self.note(AccessChange::IdentityGone(name.to_owned()));
            }
        }
        self.drop_limits_of(&Limited::Identity(name.to_owned()));
        let of_it = self.state.access.grants.keys().filter(|(_, to)| to == name).cloned();
        for (volume, to) in of_it.collect::<Vec<_>>() {
            self.drop_grant(volume, to);
        }
        self.forget_in_realm(name);
        for volume in touched {
            self.revise(VolumeRecord::clone(&volume)); // what it has under way is refused
        }
        self.next_view();
        self.event("identity", name, "revoked: its keys count no more".to_owned());
        Ok(Reply::Done)
    }

    /// The certificate of a server that was removed counts no more.
    pub(super) fn revoke_server(&mut self, id: ServerId) {
        let record = self.state.access.identities.get(&format!("server-{id}"));
        if let Some(record) = record.filter(|record| record.role == Role::Server) {
            self.put_identity(IdentityRecord { role: Role::Revoked, ..IdentityRecord::clone(record) });
        }
    }

    fn grant(&mut self, volume: &str, to: &str, right: Right) -> Result<Reply, Refusal> {
        let volume = self.volume(volume)?;
        self.check_grantee(to)?;
        let before = self.state.access.grants.get(&(volume.id, to.to_owned())).map(|grant| grant.right);
        if before == Some(right) {
            return Ok(Reply::Done);
        }
        if before.is_none() && self.state.access.grants_of(volume.id).count() >= MOST_GRANTS {
            return Err(Refusal::TooManyGrants { volume: volume.name.clone(), limit: MOST_GRANTS });
        }
        let record = Arc::new(GrantRecord { volume: volume.id, to: to.to_owned(), right });
        self.access().grants.insert((volume.id, to.to_owned()), record.clone());
        self.note(AccessChange::Grant(record));
        self.event("volume", &volume.name, format!("'{to}' may {}", told(right)));
        let is_less = before.is_some_and(|before| before > right);
        if is_less {
            self.revise(volume);
        }
        // One that is more too: whoever is told of it may use it at once, at every server.
        if is_less || self.version >= REALM {
            self.next_view();
        }
        Ok(Reply::Done)
    }

    /// An identity, or a group.
    pub(super) fn check_grantee(&self, to: &str) -> Result<(), Refusal> {
        match to.strip_prefix(GROUP) {
            Some(group) if is_name(group) => Ok(()),
            Some(group) => Err(Refusal::Name { what: Thing::Group, name: shown(group) }),
            None => self.identity(to).map(drop),
        }
    }

    fn withdraw(&mut self, volume: &str, to: &str) -> Result<Reply, Refusal> {
        let volume = self.volume(volume)?;
        if !self.state.access.grants.contains_key(&(volume.id, to.to_owned())) {
            return Err(Refusal::NoGrant { volume: volume.name.clone(), to: shown(to) });
        }
        self.drop_grant(volume.id, to.to_owned());
        self.event("volume", &volume.name, format!("'{to}' has no right to it any more"));
        self.revise(volume);
        self.next_view();
        Ok(Reply::Done)
    }

    fn reserve(&mut self, volume: &str, holder: &str, take: bool) -> Result<Reply, Refusal> {
        check_name(Thing::Holder, holder)?;
        let volume = self.volume(volume)?;
        let (now, number) = self.state.access.reserved(volume.id);
        match now {
            Some(now) if now == holder => return Ok(Reply::Done),
            Some(now) if !take => {
                return Err(Refusal::Reserved { volume: volume.name.clone(), holder: now.to_owned() });
            }
            None if !take && self.is_fenced(&volume, holder) => {
                return Err(Refusal::Fenced { volume: volume.name.clone(), holder: holder.to_owned() });
            }
            _ => {}
        }
        let told = now.map_or_else(String::new, |before| format!(", and no more by '{before}'"));
        self.event("volume", &volume.name, format!("reserved by '{holder}'{told}"));
        self.put_reservation(volume, (Some(holder.to_owned()), number + 1));
        Ok(Reply::Done)
    }

    fn release(&mut self, volume: &str, from: Option<&str>) -> Result<Reply, Refusal> {
        let volume = self.volume(volume)?;
        let (now, number) = self.state.access.reserved(volume.id);
        if let Some(from) = from.filter(|from| now != Some(from)) {
            return Err(Refusal::NotHolding { volume: volume.name.clone(), from: shown(from) });
        }
        let told = now.map_or_else(|| "clients".to_owned(), |before| format!("'{before}'"));
        self.event("volume", &volume.name, format!("fenced from {told}: whoever comes from now on may use it"));
        self.put_reservation(volume, (None, number + 1));
        Ok(Reply::Done)
    }

    fn is_fenced(&self, volume: &VolumeRecord, holder: &str) -> bool {
        let reservation = self.state.access.reservations.get(&volume.id);
        reservation.is_some_and(|record| record.fenced.iter().any(|name| name == holder))
    }

    /// What was begun by the earlier one is refused by then: its revision is the earlier one.
    fn put_reservation(&mut self, volume: VolumeRecord, (holder, number): (Option<String>, u64)) {
        let mut fenced = Vec::new();
        if self.version >= REALM
            && let Some(before) = self.state.access.reservations.get(&volume.id)
        {
            let is_other = |name: &&String| Some(*name) != holder.as_ref() && Some(*name) != before.holder.as_ref();
            fenced = before.fenced.iter().filter(is_other).cloned().collect();
            fenced.extend(before.holder.clone().filter(|name| Some(name) != holder.as_ref()));
            fenced.drain(..fenced.len().saturating_sub(MOST_FENCED));
        }
        let number = number.min(i64::MAX as u64);
        let record = Arc::new(ReservationRecord { volume: volume.id, holder, number, fenced });
        self.access().reservations.insert(volume.id, record.clone());
        self.note(AccessChange::Reservation(record));
        self.revise(volume);
        self.next_view();
    }

    /// The rights that went with a volume which is gone.
    pub(super) fn drop_grants_of(&mut self, volume: VolumeId) {
        let keys: Vec<String> = self.state.access.grants_of(volume).map(|grant| grant.to.clone()).collect();
        keys.into_iter().for_each(|to| self.drop_grant(volume, to));
        if self.access().reservations.remove(&volume).is_some() {
            self.note(AccessChange::ReservationGone(volume));
        }
    }

    fn drop_grant(&mut self, volume: VolumeId, to: String) {
        self.access().grants.remove(&(volume, to.clone()));
        self.note(AccessChange::GrantGone(volume, to));
    }

    fn put_identity(&mut self, record: IdentityRecord) {
        let record = Arc::new(record);
        self.access().put_identity(record.clone());
        self.note(AccessChange::Identity(record));
    }

    pub(super) fn identity(&self, name: &str) -> Result<IdentityRecord, Refusal> {
        let found = self.state.access.identities.get(name);
        found.map(|record| IdentityRecord::clone(record)).ok_or_else(|| Refusal::NoIdentity(shown(name)))
    }

    fn check_new_key(&self, key: KeyHash) -> Result<(), Refusal> {
        match self.state.access.identity_of(&key) {
            Some(known) => Err(Refusal::KeyTaken { name: known.name.clone() }),
            None => Ok(()),
        }
    }
}

pub(super) fn check_certificate(certificate: &str) -> Result<(), Refusal> {
    if certificate.is_empty() || certificate.len() > LONGEST_CERTIFICATE {
        return Err(Refusal::Certificate { limit: LONGEST_CERTIFICATE });
    }
    Ok(())
}

pub(super) fn told(right: Right) -> &'static str {
    match right {
        Right::Read => "read it",
        Right::Write => "read and write it",
        Right::Admin => "do everything with it",
    }
}
