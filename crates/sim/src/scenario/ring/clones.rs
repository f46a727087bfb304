//! Clones of the ring's snapshots: made, written to, snapshotted and removed while all goes wrong, and judged like the volume that was
//! there first.
//!
//! A clone begins with what its snapshot shows. Whoever tests it tells its checker what it reads apart from that, and writes what
//! differs from it as the checker wants: so to the checker it begins with zeros.

use super::Ring;
use super::node::Node;
use super::resizing::Turns;
use crate::checker::{Checker, Cut, Rules};
use crate::executor::Sleep;
use crate::scenario::life::on_machine;
use crate::scenario::server::ServedVolume;
use crate::scenario::taken::Judge;
use crate::workload::{VolumeUnderTest, Workload};
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use tepal_engine::Run;
use tepal_model::buffer::join;
use tepal_model::{BLOCK, EXTENT, IoError, Segments, VolumeId};

/// At most so many at a time.
pub(super) const MOST: usize = 2;
/// What a volume has lost is given back by then, and all know what is agreed.
const GIVEN_BACK: Duration = Duration::from_secs(6);

/// The volume that was there first, and its clones, as far as they are tested.
#[derive(Clone, Default)]
pub(super) struct Volumes(Rc<RefCell<BTreeMap<VolumeId, Tested>>>);

#[derive(Clone)]
pub(super) struct Tested {
    pub id: VolumeId,
    pub checker: Rc<RefCell<Checker>>,
    /// What it began with; none of the first one.
    base: Rc<Vec<u8>>,
    is_gone: Rc<Cell<bool>>,
    /// So many snapshots of it are asked for.
    pub is_asked: Turns,
    /// It's being rolled back.
    pub goes_back: Turns,
}

impl Tested {
    pub fn new(id: VolumeId, checker: Checker, base: Vec<u8>) -> Self {
        let (is_gone, is_asked, goes_back) = (Rc::default(), Turns::default(), Turns::default());
        Tested { id, checker: Rc::new(RefCell::new(checker)), base: Rc::new(base), is_gone, is_asked, goes_back }
    }

    /// Apart from what it began with, or together with it.
    pub fn apart(&self, offset: u64, data: &[u8]) -> Bytes {
        let base = self.base.iter().skip(offset as usize).chain(std::iter::repeat(&0));
        data.iter().zip(base).map(|(one, other)| one ^ other).collect()
    }
}

impl Judge for Tested {
    fn judge(&self, cut: Cut, shown: &[u8]) -> Result<(), String> {
        self.checker.borrow().judge_snapshot(cut, &self.apart(0, shown))
    }
}

impl Volumes {
    pub fn add(&self, tested: Tested) {
        self.0.borrow_mut().insert(tested.id, tested);
    }

    pub fn all(&self) -> Vec<Tested> {
        self.0.borrow().values().cloned().collect()
    }

    fn remove(&self, id: VolumeId) {
        if let Some(gone) = self.0.borrow_mut().remove(&id) {
            gone.is_gone.set(true);
        }
    }
}

/// Clients of a clone, through one of the machines.
pub(super) struct Clients {
    pub at: usize,
    pub workload: Workload,
}

struct CloneUnderTest {
    volume: ServedVolume,
    tested: Tested,
}

impl VolumeUnderTest for CloneUnderTest {
    fn size(&self) -> u64 {
        self.volume.size()
    }

    async fn read(&self, offset: u64, length: u64) -> Result<Segments, IoError> {
        let data = join(&self.volume.read(offset, length).await?);
        Ok(std::iter::once(self.tested.apart(offset, &data)).collect())
    }

    async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), IoError> {
        self.volume.write(offset, self.tested.apart(offset, &data), fua).await
    }

    async fn flush(&self) -> Result<(), IoError> {
        self.volume.flush().await
    }

    /// What it began with is to be there again.
    async fn trim(&self, offset: u64, length: u64, fua: bool) -> Result<(), IoError> {
        let base = self.tested.apart(offset, &vec![0; length as usize]);
        match base.iter().all(|byte| *byte == 0) {
            true => self.volume.trim(offset, length, fua).await,
            false => self.volume.write(offset, base, fua).await,
        }
    }

    async fn write_zeroes(&self, offset: u64, length: u64, fua: bool) -> Result<(), IoError> {
        let base = self.tested.apart(offset, &vec![0; length as usize]);
        match base.iter().all(|byte| *byte == 0) {
            true => self.volume.write_zeroes(offset, length, fua).await,
            false => self.volume.write(offset, base, fua).await,
        }
    }

    async fn block_status(&self, offset: u64, length: u64, limit: usize) -> Result<Vec<Run>, IoError> {
        self.volume.block_status(offset, length, limit).await
    }
}

impl Ring {
    /// Through a server that may die of something else meanwhile: then there's a clone that nobody uses.
    pub(super) fn snapshot_is_cloned(&mut self, at: usize) {
        let Some((node, _)) = self.nodes[at].clone().filter(|_| at < self.plan.servers) else { return };
        let taken = self.taken.all();
        if taken.is_empty() || self.council.volumes().len() > MOST {
            return;
        }
        let (epoch, known) = self.random.pick(&taken).clone();
        let size = self.council.size_in(epoch);
        let (seed, rules, taken, volumes, council) =
            (self.random.draw(), self.rules(), self.taken.clone(), self.volumes.clone(), self.council.clone());
        let world = node.world.clone();
        world.spawn_named("clone", async move {
            let Ok(shown) = node.shown_by(known.of.id, epoch, size).await else { return };
            taken.judge(node.world.core(), (epoch, known), shown.clone());
            let Some(id) = node.clone_snapshot(epoch).await else { return };
            node.world.core().note(id.0, || format!("volume {} is a clone of epoch {epoch}", id.0));
            if council.volumes().contains(&id) {
                volumes.add(Tested::new(id, Checker::new(seed, rules), shown));
            }
        });
    }

    pub(super) fn rules(&self) -> Rules {
        Rules { durability: self.plan.spec.layout.durability, reads_settle: false, late: true }
    }

    fn any_clone(&mut self) -> Option<Tested> {
        let clones: Vec<Tested> =
            self.volumes.all().into_iter().filter(|tested| tested.id != self.plan.spec.id).collect();
        (!clones.is_empty()).then(|| self.random.pick(&clones).clone())
    }

    /// Clients come to a clone, through any machine that knows of it.
    pub(super) fn clone_is_used(&mut self, at: usize) {
        let (Some(tested), Some((node, _))) = (self.any_clone(), self.nodes[at].clone()) else { return };
        let Some(clone) = under_test(&node, &tested) else { return };
        let workload = self.workload_of(&tested);
        workload.start(&node.world, &Rc::new(clone), self.random.between(self.plan.requests.clone()));
        self.clients.push(Clients { at, workload });
    }

    fn workload_of(&self, tested: &Tested) -> Workload {
        let is_gone = tested.is_gone.clone();
        let may_fail = Rc::new(move |error: &IoError, _, _, _| is_gone.get() && *error == IoError::Fenced);
        Workload::new(&self.core, tested.checker.clone(), self.plan.mix.clone(), may_fail)
    }

    /// One leaves the others for a map of its own while clients write to it and machines are started anew; if there's none, one is made.
    pub(super) async fn a_clone_leaves(&mut self) {
        let Some(tested) = self.any_clone() else {
            let at = self.random.index(self.plan.servers);
            self.snapshot_is_taken(at);
            self.wait().await;
            return self.snapshot_is_cloned(at);
        };
        let rate = self.random.between(4..64) << 16;
        self.migration_begins(1, (tested.id, true), Some(rate));
        for _ in 0..self.random.between(2..8) {
            let (at, other) = (self.random.index(self.nodes.len()), self.random.index(self.nodes.len()));
            self.clone_is_used(other);
            match self.random.below(8) {
                0 => self.council.turn_migration(),
                1..4 => {
                    self.stop(at);
                    self.start(at);
                }
                _ => {}
            }
            Sleep::until(&self.core, self.core.now() + Duration::from_millis(self.random.between(1..150))).await;
            self.keep_busy();
        }
    }

    pub(super) fn clone_is_removed(&mut self) {
        if let Some(tested) = self.any_clone() {
            self.remove_volume(tested.id);
        }
    }

    fn remove_volume(&mut self, id: VolumeId) {
        if self.council.remove_volume(id) {
            self.core.note(id.0, || format!("volume {} is removed", id.0));
            self.volumes.remove(id);
            self.taken.forget(|of| of.id == id);
        }
    }

    /// Once all is right: each clone has what was written to it.
    pub(super) async fn clones_are_right(&mut self, nodes: &[Node]) {
        for tested in self.volumes.all() {
            let node = self.random.pick(nodes).clone();
            let Some(clone) = under_test(&node, &tested) else {
                return self.core.fail(format!("{} doesn't know volume {}", node.id(), tested.id.0));
            };
            let workload = self.workload_of(&tested);
            on_machine(&self.core, &node.world.clone(), "read-back", async move { workload.read_back(&clone).await })
                .await;
        }
    }

    /// Whichever are removed, volumes and snapshots, and in whatever order: the others have what they had. In the end only what
    /// one volume has takes space.
    pub(super) async fn all_but_one_are_removed(&mut self, nodes: &[Node]) {
        let mut held: BTreeMap<VolumeId, Vec<u8>> = BTreeMap::new();
        for id in self.council.volumes() {
            let Some(content) = self.content(nodes, id).await else { return };
            held.insert(id, content);
        }
        let volumes: Vec<VolumeId> = held.keys().copied().collect();
        let stays = *self.random.pick(&volumes);
        loop {
            let volumes: Vec<VolumeId> = self.council.volumes().into_iter().filter(|&id| id != stays).collect();
            let snapshots = self.council.snapshots();
            let nth = match volumes.len() + snapshots.len() {
                0 => break,
                left => self.random.index(left),
            };
            match volumes.get(nth) {
                Some(&id) => self.remove_volume(id),
                None => self.remove_snapshot(snapshots[nth - volumes.len()]),
            }
            if self.random.one_in(3) {
                Sleep::until(&self.core, self.core.now() + GIVEN_BACK).await;
                let left = self.council.volumes();
                let id = *self.random.pick(&left);
                self.still_holds(nodes, id, &held[&id]).await;
            }
        }
        let servers = nodes[..self.plan.servers].to_vec();
        let map = self.council.maps()[&stays];
        let epochs = self.council.epochs(map);
        let newest = epochs.heads.get(&stays).map_or(1, |head| head.epoch);
        let head = epochs.history.reader(newest).expect("the volume is a reader").clone();
        self.comes("the space of what was removed is given back", || {
            servers.iter().filter_map(Node::drive).all(|drive| {
                let extents =
                    drive.extents_of(map, 0, u64::MAX, false).into_iter().collect::<std::collections::BTreeSet<_>>();
                let is_seen = |&first: &u64| !drive.is_empty(map, first, EXTENT / BLOCK, &head);
                drive.allocated_of(map) == extents.into_iter().filter(is_seen).count() as u64 * EXTENT
            })
        })
        .await;
        self.still_holds(nodes, stays, &held[&stays]).await;
    }

    async fn still_holds(&mut self, nodes: &[Node], id: VolumeId, held: &[u8]) {
        if self.content(nodes, id).await.is_some_and(|content| content != held) {
            self.core.fail(format!("volume {} isn't what it was before others were removed", id.0));
        }
    }

    /// All of a volume, through any server.
    async fn content(&mut self, nodes: &[Node], id: VolumeId) -> Option<Vec<u8>> {
        let (node, size) = (self.random.pick(nodes).clone(), self.council.size_of(id));
        let Some(volume) = node.volume_of(id) else {
            self.core.fail(format!("{} doesn't know volume {}", node.id(), id.0));
            return None;
        };
        let read = on_machine(&self.core, &node.world, "read all", async move { volume.read(0, size).await });
        match read.await {
            Ok(all) => Some(join(&all).to_vec()),
            Err(error) => {
                self.core.fail(format!("volume {} can't be read: {error}", id.0));
                None
            }
        }
    }
}

fn under_test(node: &Node, tested: &Tested) -> Option<CloneUnderTest> {
    let volume = ServedVolume::of(node.volume_of(tested.id)?);
    Some(CloneUnderTest { volume, tested: tested.clone() })
}
