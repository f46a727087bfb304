//! What was seen of the volumes: what they were asked for, by how many clients, and which blocks no
//! copy had right.

mod damaged;
pub mod meter;
pub mod metered;

pub use damaged::{Damage, DamageOf, Damaged};

use crate::api_types::{OperationCounters, VolumeCounters};
use crate::observed::meter::Meter;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tepal_model::{Epoch, VolumeId};

/// Of one volume.
#[derive(Debug, Default)]
pub struct Observed {
    pub meter: Meter,
    /// Requests that had to wait, as a limit said.
    pub held_back: AtomicU64,
    clients: AtomicU64,
    /// By epoch, how many connections have a snapshot open; none of 0.
    snapshots: Mutex<BTreeMap<Epoch, u64>>,
    damaged: Arc<Damaged>,
    /// By epoch, of snapshots that were read, or are known to be damaged.
    damaged_snapshots: Mutex<BTreeMap<Epoch, Arc<Damaged>>>,
}

impl Observed {
    /// How many connections have the volume itself open.
    pub fn clients(&self) -> u64 {
        self.clients.load(Ordering::Relaxed)
    }

    /// How many have its snapshot of that epoch open.
    pub fn clients_of_snapshot(&self, epoch: Epoch) -> u64 {
        self.snapshots().get(&epoch).copied().unwrap_or(0)
    }

    fn snapshots(&self) -> MutexGuard<'_, BTreeMap<Epoch, u64>> {
        self.snapshots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is damaged of the volume itself, or of its snapshot of that epoch.
    pub fn damaged(&self, snapshot: Option<Epoch>) -> Arc<Damaged> {
        match snapshot {
            None => self.damaged.clone(),
            Some(epoch) => self.damaged_snapshots().entry(epoch).or_default().clone(),
        }
    }

    /// The epochs of snapshots of which something is damaged.
    pub fn damaged_epochs(&self) -> Vec<Epoch> {
        let all = self.damaged_snapshots();
        all.iter().filter(|(_, damaged)| damaged.count() > 0).map(|(&epoch, _)| epoch).collect()
    }

    fn damaged_snapshots(&self) -> MutexGuard<'_, BTreeMap<Epoch, Arc<Damaged>>> {
        self.damaged_snapshots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts as a client until it's dropped.
#[derive(Debug)]
pub struct Client {
    observed: Arc<Observed>,
    /// Of which snapshot; `None` of the volume itself.
    snapshot: Option<Epoch>,
    damaged: Arc<Damaged>,
}

impl Client {
    pub fn new(observed: Arc<Observed>, snapshot: Option<Epoch>) -> Self {
        match snapshot {
            None => drop(observed.clients.fetch_add(1, Ordering::Relaxed)),
            Some(epoch) => *observed.snapshots().entry(epoch).or_default() += 1,
        }
        let damaged = observed.damaged(snapshot);
        Client { observed, snapshot, damaged }
    }

    /// What is damaged of what it has open.
    pub fn damaged(&self) -> &Damaged {
        &self.damaged
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let Some(epoch) = self.snapshot else {
            self.observed.clients.fetch_sub(1, Ordering::Relaxed);
            return;
        };
        let mut snapshots = self.observed.snapshots();
        if let Some(clients) = snapshots.get_mut(&epoch) {
            *clients -= 1;
        }
        snapshots.retain(|_, clients| *clients > 0);
    }
}

impl std::ops::Deref for Client {
    type Target = Observed;
    fn deref(&self) -> &Observed {
        &self.observed
    }
}

/// Of all volumes that were used since the server or gateway started. Cheap to clone.
#[derive(Clone, Default)]
pub struct Observations(Arc<Mutex<BTreeMap<VolumeId, Arc<Observed>>>>);

impl Observations {
    pub fn of(&self, volume: VolumeId) -> Arc<Observed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(volume).or_default().clone()
    }

    /// What all volumes together were asked for.
    pub fn requests(&self) -> Vec<OperationCounters> {
        let all: Vec<Arc<Observed>> = self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        meter::sum(all.iter().map(|observed| &observed.meter))
    }

    /// What each volume was asked for; those that nobody asked for anything are left out.
    pub fn volumes(&self) -> Vec<VolumeCounters> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |(volume, observed): (&VolumeId, &Arc<Observed>)| VolumeCounters {
            volume_id: volume.0,
            requests: meter::in_short(&observed.meter),
        };
        all.iter().map(of).filter(|counters| !counters.requests.is_empty()).collect()
    }

    /// By volume, how many connections have it open.
    pub fn clients(&self) -> BTreeMap<u64, u64> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let open = all.iter().filter(|(_, observed)| observed.clients() > 0);
        open.map(|(volume, observed)| (volume.0, observed.clients())).collect()
    }

    /// By volume and epoch, how many connections have a snapshot open.
    pub fn snapshot_clients(&self) -> BTreeMap<u64, BTreeMap<Epoch, u64>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let open = all.iter().map(|(volume, observed)| (volume.0, observed.snapshots().clone()));
        open.filter(|(_, snapshots)| !snapshots.is_empty()).collect()
    }

    /// All that is known to be damaged.
    pub fn damage(&self) -> Damage {
        let mut damage = Damage::new();
        for (&volume, observed) in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let snapshots = observed.damaged_epochs().into_iter().map(Some);
            for snapshot in [None].into_iter().chain(snapshots) {
                let runs = observed.damaged(snapshot).runs();
                if !runs.is_empty() {
                    damage.insert(DamageOf { volume, snapshot }.to_string(), runs);
                }
            }
        }
        damage
    }

    /// What of this is read from now on was damaged when it was read last. Whoever isn't there any more is passed over.
    pub fn recall(&self, damage: &Damage, is_there: impl Fn(DamageOf) -> bool) {
        for (whose, runs) in damage {
            if let Some(whose) = whose.parse().ok().filter(|&whose| is_there(whose)) {
                self.damaged(whose).recall(runs);
            }
        }
    }

    /// What another process met: what it meets anew is damaged, and what it met before and doesn't any more is whole again. The rest
    /// may be known better here.
    pub fn hear(&self, before: &Damage, now: &Damage, is_there: impl Fn(DamageOf) -> bool) {
        let of = |damage: &Damage, whose: &str| damage.get(whose).cloned().unwrap_or_default();
        for whose in before.keys().chain(now.keys()) {
            let (before, now) = (of(before, whose), of(now, whose));
            let Some(known) = whose.parse().ok().filter(|&known| before != now && is_there(known)) else { continue };
            let fresh: Vec<_> = now.iter().filter(|run| !before.contains(run)).copied().collect();
            let damaged = self.damaged(known);
            damaged.strike_off(&before, &now);
            damaged.recall(&fresh);
        }
    }

    /// Forgets the damage of volumes and snapshots that are gone.
    pub fn keep_damage(&self, is_there: impl Fn(DamageOf) -> bool) {
        for (&volume, observed) in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            if !is_there(DamageOf { volume, snapshot: None }) {
                observed.damaged.replace(&[]);
            }
            let is_of_use = |epoch: &Epoch, damaged: &Arc<Damaged>| {
                let is_known = damaged.count() > 0 || Arc::strong_count(damaged) > 1;
                is_known && is_there(DamageOf { volume, snapshot: Some(*epoch) })
            };
            observed.damaged_snapshots().retain(|epoch, damaged| is_of_use(epoch, damaged));
        }
    }

    pub fn damaged(&self, whose: DamageOf) -> Arc<Damaged> {
        self.of(whose.volume).damaged(whose.snapshot)
    }

    /// Forgets volumes that are gone.
    pub fn keep(&self, lives: impl Fn(VolumeId) -> bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|volume, _| lives(*volume));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::meter::Operation;

    #[test]
    fn a_volume_that_is_gone_has_no_meter() {
        let observations = Observations::default();
        observations.of(VolumeId(1)).meter.begin(Operation::Flush, 0).end(Ok::<_, ()>(())).expect("it's handed on");
        observations.keep(|_| true);
        let flushes = || observations.of(VolumeId(1)).meter.read(Operation::Flush).buckets.iter().sum::<u64>();
        assert_eq!(flushes(), 1);
        observations.keep(|_| false);
        assert_eq!(flushes(), 0);
    }

    #[test]
    fn a_client_counts_until_it_goes() {
        let observed = Arc::<Observed>::default();
        let clients = [(); 3].map(|()| Client::new(observed.clone(), None));
        assert_eq!(observed.clients(), 3);
        drop(clients);
        assert_eq!(observed.clients(), 0);
    }

    #[test]
    fn who_reads_a_snapshot_is_a_client_of_that_alone() {
        let observations = Observations::default();
        let observed = observations.of(VolumeId(7));
        let [first, second] = [(); 2].map(|()| Client::new(observed.clone(), Some(3)));
        assert_eq!((observed.clients(), observed.clients_of_snapshot(3), observed.clients_of_snapshot(2)), (0, 2, 0));
        drop(first);
        let of_volume = BTreeMap::from([(3, 1)]);
        assert_eq!(observations.snapshot_clients(), BTreeMap::from([(7, of_volume)]));
        drop(second);
        assert_eq!(observations.snapshot_clients(), BTreeMap::new());
    }
}
