//! Who comes to a gateway over TLS, and what they may do, as servers say.
//!
//! A gateway is as good as the machine that it runs on: servers hold all of it to the rights of its own identity, whatever it says of its
//! clients. Within these, it holds its clients to theirs.

use crate::access::{Claims, Credentials, Trust};
use crate::api_types::{Directory, DirectoryIdentity};
use std::sync::Arc;
use tepal_metadata::{Access, GrantRecord, IdentityRecord, KeyHash, Role, State};
use tepal_model::VolumeId;
use tokio::sync::watch;

/// Those that are known now. Clones are the same.
#[derive(Clone)]
pub struct People {
    known: watch::Sender<Arc<State>>,
    claims: Claims,
}

impl People {
    pub fn new(credentials: &Credentials) -> People {
        let known = watch::Sender::new(Arc::new(State::of_access(Access::default())));
        let (of_claims, of_credentials) = (known.subscribe(), known.subscribe());
        credentials.know_by(Arc::new(move |key| of_credentials.borrow().access.identity_of(key).cloned()));
        People { known, claims: Claims::by(move || of_claims.borrow().clone()) }
    }

    /// From now on, clients have the rights that this says.
    pub fn follow(&self, directory: &Directory) {
        self.known.send_replace(Arc::new(State::of_access(access(&directory.people))));
        self.claims.follow();
    }

    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    /// Whether somebody may do anything with a volume.
    pub fn may_know(&self, key: &KeyHash, volume: VolumeId) -> bool {
        let state = self.known.borrow();
        state.access.identity_of(key).is_some_and(|known| state.right_of(known, volume).is_some())
    }
}

/// As the cluster's own has it, of those who may come here.
fn access(people: &[DirectoryIdentity]) -> Access {
    let mut access = Access::default();
    for DirectoryIdentity { name, keys, everything, rights } in people {
        let mut keys = keys.iter().filter_map(|key| key.parse().ok());
        let Some(key) = keys.next() else { continue };
        let (role, former_key) = (if *everything { Role::Operator } else { Role::Host }, keys.next());
        let (groups, created_unix_ms) = (Vec::new(), 0);
        let record = IdentityRecord { name: name.clone(), role, groups, key, former_key, created_unix_ms };
        access.put_identity(Arc::new(record));
        for &(volume, right) in rights {
            let grant = GrantRecord { volume: VolumeId(volume), to: name.clone(), right };
            access.grants.insert((grant.volume, name.clone()), Arc::new(grant));
        }
    }
    access
}

/// Whom to believe, as servers say; none if they said nothing of it.
pub fn trust(directory: &Directory) -> Option<Trust> {
    let said = directory.trust.as_ref()?;
    Some(Trust { roots: said.roots.clone(), outside: said.outside.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tepal_metadata::Right;

    #[test]
    fn a_client_has_what_the_directory_says_and_nothing_once_it_says_nothing() {
        let people = People::new(&Credentials::default());
        let keys = vec![KeyHash([1; 32]).to_string(), KeyHash([2; 32]).to_string()];
        let web = DirectoryIdentity { name: "web".to_owned(), keys, everything: false, rights: vec![(7, Right::Read)] };
        let told = |people: Vec<DirectoryIdentity>| Directory { people, ..Directory::nothing() };
        people.follow(&told(vec![web]));
        let claim = people.claims().of(KeyHash([2; 32]), VolumeId(7));
        assert!(claim.check(Right::Read).is_ok() && claim.check(Right::Write).is_err(), "by its former key too");
        assert!(people.may_know(&KeyHash([1; 32]), VolumeId(7)) && !people.may_know(&KeyHash([1; 32]), VolumeId(8)));
        assert!(!people.may_know(&KeyHash([3; 32]), VolumeId(7)), "nobody knows it");
        people.follow(&told(vec![]));
        assert!(claim.check(Right::Read).is_err() && !people.may_know(&KeyHash([1; 32]), VolumeId(7)));
    }
}
