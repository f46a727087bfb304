//! What was seen of the volumes: what they were asked for, by how many clients, and which blocks no
//! copy had right.

pub mod meter;
pub mod metered;

use crate::observed::meter::Meter;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tepal_model::{BLOCK, Epoch, IoError, VolumeId};

/// Damaged blocks that are remembered of one volume. A scrub lists all.
const MOST_DAMAGED: usize = 1 << 16;

/// By volume, runs of damaged blocks: the first, and how many.
pub type Damage = BTreeMap<u64, Vec<(u64, u64)>>;

/// Of one volume.
#[derive(Debug, Default)]
pub struct Observed {
    pub meter: Meter,
    clients: AtomicU64,
    /// By epoch, how many connections have a snapshot open; none of 0.
    snapshots: Mutex<BTreeMap<Epoch, u64>>,
    damaged: Damaged,
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

    pub fn damaged(&self) -> &Damaged {
        &self.damaged
    }
}

/// Counts as a client until it's dropped.
#[derive(Debug)]
pub struct Client {
    observed: Arc<Observed>,
    /// Of which snapshot; `None` of the volume itself.
    snapshot: Option<Epoch>,
}

impl Client {
    pub fn new(observed: Arc<Observed>, snapshot: Option<Epoch>) -> Self {
        match snapshot {
            None => drop(observed.clients.fetch_add(1, Ordering::Relaxed)),
            Some(epoch) => *observed.snapshots().entry(epoch).or_default() += 1,
        }
        Client { observed, snapshot }
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

/// The blocks of a volume that couldn't be read because no copy was right, until they are read or written with success.
#[derive(Debug, Default)]
pub struct Damaged {
    blocks: Mutex<BTreeSet<u64>>,
    /// Of `blocks`, so that what is whole costs no lock.
    count: AtomicUsize,
}

impl Damaged {
    /// Learns from the outcome of a read or a write of these bytes.
    pub fn learn<T>(&self, offset: u64, length: u64, outcome: &Result<T, IoError>) {
        match outcome {
            Ok(_) if length > 0 && self.count() > 0 => {
                let mut blocks = self.blocks();
                let whole: Vec<u64> = blocks.range(touched(offset, length)).copied().collect();
                for block in whole {
                    blocks.remove(&block);
                }
                self.count.store(blocks.len(), Ordering::Relaxed);
            }
            Err(IoError::Damaged { offset, length }) => {
                let mut blocks = self.blocks();
                let room = MOST_DAMAGED.saturating_sub(blocks.len());
                blocks.extend(touched(*offset, *length).take(room));
                self.count.store(blocks.len(), Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// A scrub has read everything: these are all, by their offsets.
    pub fn replace(&self, offsets: &[u64]) {
        let mut blocks = self.blocks();
        *blocks = offsets.iter().map(|offset| offset / BLOCK).take(MOST_DAMAGED).collect();
        self.count.store(blocks.len(), Ordering::Relaxed);
    }

    /// What was known before the server was started.
    pub fn recall(&self, runs: &[(u64, u64)]) {
        let mut blocks = self.blocks();
        let known = runs.iter().flat_map(|&(first, count)| first..first.saturating_add(count));
        let room = MOST_DAMAGED.saturating_sub(blocks.len());
        blocks.extend(known.take(room));
        self.count.store(blocks.len(), Ordering::Relaxed);
    }

    /// Runs of blocks: the first, and how many.
    fn runs(&self) -> Vec<(u64, u64)> {
        let blocks: Vec<u64> = self.blocks().iter().copied().collect();
        blocks.chunk_by(|block, next| block + 1 == *next).map(|run| (run[0], run.len() as u64)).collect()
    }

    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// The offsets of the first few.
    pub fn first(&self, most: usize) -> Vec<u64> {
        self.blocks().iter().take(most).map(|block| block * BLOCK).collect()
    }

    fn blocks(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn touched(offset: u64, length: u64) -> std::ops::Range<u64> {
    offset / BLOCK..offset.saturating_add(length).div_ceil(BLOCK)
}

/// Of all volumes that were used since the server or gateway started. Cheap to clone.
#[derive(Clone, Default)]
pub struct Observations(Arc<Mutex<BTreeMap<VolumeId, Arc<Observed>>>>);

impl Observations {
    pub fn of(&self, volume: VolumeId) -> Arc<Observed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(volume).or_default().clone()
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

    /// Of the volumes that have any.
    pub fn damage(&self) -> Damage {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let damaged = all.iter().filter(|(_, observed)| observed.damaged.count() > 0);
        damaged.map(|(volume, observed)| (volume.0, observed.damaged.runs())).collect()
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

    #[test]
    fn damage_is_remembered_until_the_block_is_read_or_written_with_success_or_a_scrub_knows_better() {
        let damaged = Damaged::default();
        let bad = |block: u64| Err::<(), _>(IoError::Damaged { offset: block * BLOCK, length: BLOCK });
        for block in [9, 3, 4, 3] {
            damaged.learn(0, 100 * BLOCK, &bad(block));
        }
        damaged.learn(9 * BLOCK, BLOCK, &Err::<(), _>(IoError::OutOfSpace));
        assert_eq!(damaged.first(8), [3 * BLOCK, 4 * BLOCK, 9 * BLOCK]);
        damaged.learn(4 * BLOCK + 17, 1, &Ok(()));
        damaged.learn(5 * BLOCK, 4 * BLOCK, &Ok(()));
        assert_eq!((damaged.count(), damaged.first(1)), (2, vec![3 * BLOCK]));
        damaged.replace(&[7 * BLOCK]);
        assert_eq!((damaged.count(), damaged.first(8)), (1, vec![7 * BLOCK]));
        damaged.learn(0, u64::MAX, &Ok(()));
        assert_eq!(damaged.count(), 0);
    }
}
