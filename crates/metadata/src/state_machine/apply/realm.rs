//! What holds beyond single volumes: rights on pools and the cluster, keys of pools, authorities that take the place of others, and
//! authorities of others.
//!
//! Invariants:
//! 1. Whatever gives or takes a right begins a new view, and what takes it away revises the volumes that it was on.
//! 2. At any time there is an authority that isn't leaving, and at most one takes the place of others.
//! 3. An identity of an outside authority is there no longer than that authority.

use super::access::{MOST_GRANTS, check_certificate, told};
use super::{Draft, check_name, clipped};
use crate::access::{AuthorityRecord, KeyHash, Right, Role};
use crate::command::{Command, Reply};
use crate::realm::{LeavingRecord, OutsideAuthorityRecord, PoolKeyRecord, Scope, ScopeGrantRecord, SubjectRecord};
use crate::record::VolumeRecord;
use crate::refusal::{Refusal, Thing};
use crate::state_machine::access::AccessChange;
use crate::state_machine::realm::RealmChange;
use std::sync::Arc;
use tepal_model::ServerId;
use tepal_model::text::shown;

/// Of each cluster.
pub(super) const MOST_OUTSIDE: usize = 16;
/// Of the cluster's own: more than two only if keys were lost while others were to take their places.
const MOST_AUTHORITIES: usize = 4;
/// Bytes of a certificate's common name (RFC 5280, A.1).
const LONGEST_SUBJECT: usize = 64;

impl Draft {
    /// Of commands about what is beyond volumes; others are refused.
    pub(super) fn carry_out_of_realm(&mut self, command: &Command) -> Result<Reply, Refusal> {
        match command {
            Command::GrantOn { scope, to, right } => self.grant_on(scope, to, *right),
            Command::WithdrawOn { scope, to } => self.withdraw_on(scope, to),
            Command::SetPoolKey { pool, key } => self.set_pool_key(pool, key.as_deref()),
            Command::RotateAuthority { certificate, server } => self.rotate_authority(certificate, *server),
            Command::LeaveAuthority { number } => self.leave_authority(*number),
            Command::RemoveAuthority { number } => self.remove_authority(*number),
            Command::AddOutsideAuthority { name, certificate } => self.add_outside_authority(name, certificate),
            Command::RemoveOutsideAuthority { name } => self.remove_outside_authority(name),
            Command::AddOutsideIdentity { name, role, groups, authority, subject, key } => {
                self.add_outside_identity((name, *role, groups), (authority, subject), *key)
            }
            _ => Err(Refusal::NoAuthority),
        }
    }

    fn put_in_realm(&mut self, change: RealmChange) {
        self.note(AccessChange::Realm(change));
    }

    fn scope(&self, text: &str) -> Result<Scope, Refusal> {
        let scope: Scope = text.parse().map_err(|_| Refusal::Scope(shown(text)))?;
        match &scope {
            Scope::Pool(name) if !self.state.pools.contains_key(name) => Err(Refusal::NoPool(clipped(name, 140))),
            Scope::Pool(_) | Scope::Cluster => Ok(scope),
        }
    }

    fn event_on(&mut self, scope: &Scope, text: String) {
        let name = self.state.cluster.name.clone();
        match scope {
            Scope::Pool(pool) => self.event("pool", pool, text),
            Scope::Cluster => self.event("cluster", &name, text),
        }
    }

    fn grant_on(&mut self, scope: &str, to: &str, right: Right) -> Result<Reply, Refusal> {
        let scope = self.scope(scope)?;
        self.check_grantee(to)?;
        let (key, access) = ((scope.clone(), to.to_owned()), &self.state.access);
        let before = access.scope_grants.get(&key).map(|grant| grant.right);
        if before == Some(right) {
            return Ok(Reply::Done);
        }
        if before.is_none() && access.grants_on(&scope).count() >= MOST_GRANTS {
            return Err(Refusal::TooManyGrantsOn { scope: scope.to_string(), limit: MOST_GRANTS });
        }
        let record = Arc::new(ScopeGrantRecord { scope: scope.clone(), to: to.to_owned(), right });
        self.access().scope_grants.insert(key, record.clone());
        self.put_in_realm(RealmChange::Grant(record));
        self.event_on(&scope, format!("'{to}' may {}, with each of its volumes", told(right).replace(" it", "")));
        if before.is_some_and(|before| before > right) {
            self.revise_all_of(&scope);
        }
        self.next_view();
        Ok(Reply::Done)
    }

    fn withdraw_on(&mut self, scope: &str, to: &str) -> Result<Reply, Refusal> {
        let scope = self.scope(scope)?;
        if !self.state.access.scope_grants.contains_key(&(scope.clone(), to.to_owned())) {
            return Err(Refusal::NoGrantOn { scope: scope.to_string(), to: shown(to) });
        }
        self.drop_grant_on(scope.clone(), to.to_owned());
        self.event_on(&scope, format!("'{to}' has no right to its volumes any more"));
        self.revise_all_of(&scope);
        self.next_view();
        Ok(Reply::Done)
    }

    fn drop_grant_on(&mut self, scope: Scope, to: String) {
        self.access().scope_grants.remove(&(scope.clone(), to.clone()));
        self.put_in_realm(RealmChange::GrantGone(scope, to));
    }

    /// What was begun by an earlier right is refused.
    fn revise_all_of(&mut self, scope: &Scope) {
        let is_in = |volume: &VolumeRecord| match scope {
            Scope::Pool(name) => volume.pool == *name,
            Scope::Cluster => true,
        };
        let volumes: Vec<_> = self.state.active_volumes().filter(|volume| is_in(volume)).cloned().collect();
        for volume in volumes {
            self.revise(VolumeRecord::clone(&volume));
        }
    }

    fn set_pool_key(&mut self, pool: &str, key: Option<&str>) -> Result<Reply, Refusal> {
        if !self.state.pools.contains_key(pool) {
            return Err(Refusal::NoPool(clipped(pool, 140)));
        }
        let before = self.state.access.pool_keys.get(pool).map(|record| record.key.clone());
        if before.as_deref() == key {
            return Ok(Reply::Done);
        }
        match key {
            Some(key) => {
                check_name(Thing::Key, key)?;
                let record = Arc::new(PoolKeyRecord { pool: pool.to_owned(), key: key.to_owned() });
                self.access().pool_keys.insert(pool.to_owned(), record.clone());
                self.put_in_realm(RealmChange::PoolKey(record));
                self.event("pool", pool, format!("its new volumes are encrypted by key '{key}'"));
            }
            None => {
                self.drop_pool_key(pool);
                self.event("pool", pool, "its new volumes aren't encrypted by themselves any more".to_owned());
            }
        }
        Ok(Reply::Done)
    }

    fn drop_pool_key(&mut self, pool: &str) {
        if self.access().pool_keys.remove(pool).is_some() {
            self.put_in_realm(RealmChange::PoolKeyGone(pool.to_owned()));
        }
    }

    /// With a pool that is gone, which has no volumes.
    pub(super) fn drop_realm_of_pool(&mut self, pool: &str) {
        self.drop_pool_key(pool);
        let scope = Scope::Pool(pool.to_owned());
        let grants: Vec<String> = self.state.access.grants_on(&scope).map(|grant| grant.to.clone()).collect();
        grants.into_iter().for_each(|to| self.drop_grant_on(scope.clone(), to));
    }

    /// Of an identity that is gone.
    pub(super) fn forget_in_realm(&mut self, identity: &str) {
        let own = self.state.access.scope_grants.keys().filter(|(_, to)| to == identity).cloned();
        for (scope, to) in own.collect::<Vec<_>>() {
            self.drop_grant_on(scope, to);
        }
        if self.access().subjects.remove(identity).is_some() {
            self.put_in_realm(RealmChange::SubjectGone(identity.to_owned()));
        }
    }

    fn rotate_authority(&mut self, certificate: &str, server: ServerId) -> Result<Reply, Refusal> {
        check_certificate(certificate)?;
        let access = &self.state.access;
        let newest = access.newest_authority().ok_or(Refusal::NoAuthority)?.clone();
        if newest.certificate == certificate {
            return Ok(Reply::Done);
        }
        if access.authorities.len() >= MOST_AUTHORITIES {
            return Err(Refusal::Rotating { number: newest.number });
        }
        let number = newest.number + 1;
        let record = Arc::new(AuthorityRecord { number, certificate: certificate.to_owned(), server });
        self.access().authorities.insert(number, record.clone());
        self.note(AccessChange::Authority(record));
        self.event(
            "cluster",
            "authority",
            format!("server {server} has made authority {number}, which is trusted too"),
        );
        self.next_view();
        Ok(Reply::Done)
    }

    fn leave_authority(&mut self, number: u32) -> Result<Reply, Refusal> {
        let access = &self.state.access;
        if !access.authorities.contains_key(&number) {
            return Err(Refusal::NoSuchAuthority(number));
        }
        if access.leaving.contains_key(&number) {
            return Ok(Reply::Done);
        }
        if access.newest_authority().is_some_and(|newest| newest.number == number) {
            return Err(Refusal::NotLeaving(number));
        }
        let record = Arc::new(LeavingRecord { number, since_unix_ms: self.unix_ms });
        self.access().leaving.insert(number, record.clone());
        self.put_in_realm(RealmChange::Leaving(record));
        self.event("cluster", "authority", format!("authority {number} signs nothing any more, and is trusted still"));
        self.next_view();
        Ok(Reply::Done)
    }

    fn remove_authority(&mut self, number: u32) -> Result<Reply, Refusal> {
        if !self.state.access.authorities.contains_key(&number) {
            return Err(Refusal::NoSuchAuthority(number));
        }
        if self.access().leaving.remove(&number).is_none() {
            return Err(Refusal::NotLeaving(number));
        }
        self.put_in_realm(RealmChange::LeavingGone(number));
        self.access().authorities.remove(&number);
        self.put_in_realm(RealmChange::AuthorityGone(number));
        self.event("cluster", "authority", format!("authority {number} isn't trusted any more"));
        self.next_view();
        Ok(Reply::Done)
    }

    fn add_outside_authority(&mut self, name: &str, certificate: &str) -> Result<Reply, Refusal> {
        check_name(Thing::Authority, name)?;
        check_certificate(certificate)?;
        let access = &self.state.access;
        match access.outside.get(name) {
            Some(known) if known.certificate == certificate => return Ok(Reply::Done),
            Some(_) => return Err(Refusal::OutsideAuthorityExists(name.to_owned())),
            None if access.outside.len() >= MOST_OUTSIDE => {
                return Err(Refusal::TooManyOutside { limit: MOST_OUTSIDE });
            }
            None => {}
        }
        let record = Arc::new(OutsideAuthorityRecord { name: name.to_owned(), certificate: certificate.to_owned() });
        self.access().outside.insert(name.to_owned(), record.clone());
        self.put_in_realm(RealmChange::Outside(record));
        self.event("authority", name, "of others: whom it certifies may be somebody here".to_owned());
        self.next_view();
        Ok(Reply::Done)
    }

    fn remove_outside_authority(&mut self, name: &str) -> Result<Reply, Refusal> {
        if self.access().outside.remove(name).is_none() {
            return Err(Refusal::NoOutsideAuthority(shown(name)));
        }
        self.put_in_realm(RealmChange::OutsideGone(name.to_owned()));
        let of_it = self.state.access.subjects.values().filter(|subject| subject.authority == name);
        for identity in of_it.map(|subject| subject.identity.clone()).collect::<Vec<_>>() {
            self.remove_identity(&identity)?;
        }
        self.event("authority", name, "of others isn't trusted any more".to_owned());
        self.next_view();
        Ok(Reply::Done)
    }

    fn add_outside_identity(
        &mut self,
        (name, role, groups): (&str, Role, &[String]),
        (authority, subject): (&str, &str),
        key: KeyHash,
    ) -> Result<Reply, Refusal> {
        if !self.state.access.outside.contains_key(authority) {
            return Err(Refusal::NoOutsideAuthority(shown(authority)));
        }
        if role == Role::Server {
            return Err(Refusal::OutsideServer);
        }
        if subject.is_empty() || subject.len() > LONGEST_SUBJECT || subject.chars().any(char::is_control) {
            return Err(Refusal::Subject { limit: LONGEST_SUBJECT });
        }
        let added = self.add_identity(name, role, groups, key)?;
        let (identity, authority, subject) = (name.to_owned(), authority.to_owned(), subject.to_owned());
        let record = Arc::new(SubjectRecord { identity: identity.clone(), authority, subject });
        self.access().subjects.insert(identity, record.clone());
        self.put_in_realm(RealmChange::Subject(record));
        Ok(added)
    }
}
