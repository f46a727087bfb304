//! What clients that are connected may do now, by their rights and as the volume's holder, and how much of it. A request looks at a
//! number; whenever the state changes, the numbers follow.
//!
//! Invariants:
//! 1. The numbers have followed a state before this server acts by that state's view, and before a volume here has that state's revision.
//!    So once every server does, nobody acts by a right that was taken away before, and no request of such a right has that revision.
//! 2. The numbers never go back to an earlier state, whoever has them follow: the latest one is looked up while they are locked.

use crate::throttle::{Throttle, Throttles};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tepal_metadata::{Access, KeyHash, Limited, Metadata, Right, State};
use tepal_model::{IoError, VolumeId};

/// Who alone may write to a volume, by the number of that. Shared by all connections to it.
#[derive(Debug)]
pub struct Fence {
    volume: VolumeId,
    number: AtomicU64,
}

impl Fence {
    /// Whether whoever came by that number may go on.
    pub fn check(&self, number: u64) -> Result<(), IoError> {
        if self.number.load(Ordering::Acquire) == number { Ok(()) } else { Err(IoError::Fenced) }
    }

    fn follow(&self, access: &Access) {
        self.number.store(access.reserved(self.volume).1, Ordering::Release);
    }
}

/// What the holder of a key may do with a volume.
#[derive(Debug)]
pub struct Claim {
    key: KeyHash,
    volume: VolumeId,
    right: AtomicU8,
}

impl Claim {
    /// Whether that may be done now.
    pub fn check(&self, right: Right) -> Result<(), IoError> {
        if self.right.load(Ordering::Acquire) >= number(Some(right)) { Ok(()) } else { Err(IoError::NotAllowed) }
    }

    fn follow(&self, state: &State) {
        let identity = state.access.identity_of(&self.key);
        let right = identity.and_then(|identity| state.right_of(identity, self.volume));
        self.right.store(number(right), Ordering::Release);
    }
}

fn number(right: Option<Right>) -> u8 {
    match right {
        None => 0,
        Some(Right::Read) => 1,
        Some(Right::Write) => 2,
        Some(Right::Admin) => 3,
    }
}

/// All claims, fences and throttles of this process. Clones are the same.
#[derive(Clone)]
pub struct Claims {
    latest: Arc<dyn Fn() -> Arc<State> + Send + Sync>,
    all: Arc<Mutex<All>>,
    throttles: Throttles,
}

#[derive(Default)]
struct All {
    claims: BTreeMap<(KeyHash, VolumeId), Weak<Claim>>,
    fences: BTreeMap<VolumeId, Weak<Fence>>,
}

impl Claims {
    /// They follow what is agreed as this server knows it.
    pub fn new(metadata: &Metadata) -> Claims {
        let states = metadata.watch();
        Claims::by(move || states.borrow().clone())
    }

    /// They follow what is said to be agreed.
    pub fn by(latest: impl Fn() -> Arc<State> + Send + Sync + 'static) -> Claims {
        Claims { latest: Arc::new(latest), all: Arc::default(), throttles: Throttles::default() }
    }

    /// Shared by all connections with the same key to the same volume.
    pub fn of(&self, key: KeyHash, volume: VolumeId) -> Arc<Claim> {
        let mut all = self.lock();
        if let Some(claim) = all.claims.get(&(key, volume)).and_then(Weak::upgrade) {
            return claim;
        }
        let claim = Arc::new(Claim { key, volume, right: AtomicU8::new(0) });
        claim.follow(&(self.latest)());
        all.claims.insert((key, volume), Arc::downgrade(&claim));
        claim
    }

    /// Of all connections to the volume.
    pub fn fence(&self, volume: VolumeId) -> Arc<Fence> {
        let mut all = self.lock();
        if let Some(fence) = all.fences.get(&volume).and_then(Weak::upgrade) {
            return fence;
        }
        let fence = Arc::new(Fence { volume, number: AtomicU64::new(0) });
        fence.follow(&(self.latest)().access);
        all.fences.insert(volume, Arc::downgrade(&fence));
        fence
    }

    /// How much may be asked for of a volume.
    pub fn throttle(&self, volume: VolumeId) -> Arc<Throttle> {
        self.throttle_of(Limited::Volume(volume))
    }

    /// How much the holder of a key may ask for; as much as it likes, if nobody is known by the key.
    pub fn throttle_by(&self, key: &KeyHash) -> Option<Arc<Throttle>> {
        let name = (self.latest)().access.identity_of(key)?.name.clone();
        Some(self.throttle_of(Limited::Identity(name)))
    }

    fn throttle_of(&self, of: Limited) -> Arc<Throttle> {
        self.throttles.of(of, |of| (self.latest)().access.limits_of(of))
    }

    /// From now on, claims, fences and throttles are as what is agreed now says, or something later.
    pub fn follow(&self) {
        let mut all = self.lock();
        let state = (self.latest)();
        all.claims.retain(|_, claim| claim.upgrade().inspect(|claim| claim.follow(&state)).is_some());
        all.fences.retain(|_, fence| fence.upgrade().inspect(|fence| fence.follow(&state.access)).is_some());
        self.throttles.follow(|of| state.access.limits_of(of));
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tepal_metadata::{Access, GrantRecord, IdentityRecord, ReservationRecord, Role};

    fn granted(right: Option<Right>) -> Access {
        let mut access = Access::default();
        let (name, groups, key) = ("web".to_owned(), vec![], KeyHash([7; 32]));
        let identity = IdentityRecord { name, role: Role::Host, groups, key, former_key: None, created_unix_ms: 0 };
        access.put_identity(Arc::new(identity));
        if let Some(right) = right {
            let grant = GrantRecord { volume: VolumeId(1), to: "web".to_owned(), right };
            access.grants.insert((grant.volume, grant.to.clone()), Arc::new(grant));
        }
        access
    }

    fn with(access: Access) -> Arc<State> {
        Arc::new(State::of_access(access))
    }

    /// What is agreed in a test, which changes it.
    #[derive(Clone)]
    struct Agreed(Arc<Mutex<Arc<State>>>);

    impl Agreed {
        fn new(access: Access) -> (Agreed, Claims) {
            let agreed = Agreed(Arc::new(Mutex::new(with(access))));
            let latest = agreed.clone();
            (agreed, Claims::by(move || latest.0.lock().expect("no panic").clone()))
        }

        fn becomes(&self, access: Access) {
            *self.0.lock().expect("no panic") = with(access);
        }
    }

    #[test]
    fn a_claim_follows_what_is_agreed() {
        let (agreed, claims) = Agreed::new(granted(Some(Right::Write)));
        let claim = claims.of(KeyHash([7; 32]), VolumeId(1));
        let may = |right| claim.check(right).is_ok();
        assert_eq!([Right::Read, Right::Write, Right::Admin].map(may), [true, true, false]);
        agreed.becomes(granted(Some(Right::Read)));
        claims.follow();
        assert_eq!([Right::Read, Right::Write].map(may), [true, false]);
        agreed.becomes(granted(None));
        claims.follow();
        assert_eq!(claim.check(Right::Read), Err(IoError::NotAllowed));
    }

    #[test]
    fn whoever_came_before_a_reservation_changed_hands_is_cut_off() {
        let ((agreed, claims), mut access) = (Agreed::new(Access::default()), Access::default());
        let fence = claims.fence(VolumeId(1));
        assert_eq!((fence.check(0), fence.check(1)), (Ok(()), Err(IoError::Fenced)));
        let record = ReservationRecord { volume: VolumeId(1), holder: Some("a".to_owned()), number: 1, fenced: vec![] };
        access.reservations.insert(VolumeId(1), Arc::new(record));
        agreed.becomes(access);
        claims.follow();
        assert_eq!((fence.check(0), fence.check(1)), (Err(IoError::Fenced), Ok(())));
        assert_eq!(claims.fence(VolumeId(2)).check(0), Ok(()));
    }

    #[test]
    fn claims_of_connections_that_are_gone_take_no_memory() {
        let (_, claims) = Agreed::new(granted(Some(Right::Read)));
        for _ in 0..10_000 {
            drop(claims.of(KeyHash([7; 32]), VolumeId(1)));
            drop(claims.fence(VolumeId(1)));
        }
        claims.follow();
        assert!(claims.lock().claims.is_empty());
    }
}
