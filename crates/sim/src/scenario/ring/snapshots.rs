//! Snapshots of the ring's volume: taken, read and removed while all goes wrong, and judged.

use super::Ring;
use super::node::Node;
use crate::executor::Sleep;
use crate::scenario::life::on_machine;
use crate::scenario::taken::shown_by;
use std::time::Duration;
use tepal_model::buffer::join;
use tepal_model::{BLOCK, EXTENT, Epoch, IoError};

/// At most so many at a time: each is compared in the end.
pub(super) const MOST: usize = 4;
/// All know what is agreed by then.
const FOLLOWED: Duration = Duration::from_millis(50);
impl Ring {
    /// Somebody asks for a snapshot, through a server that may die of something else meanwhile.
    pub(super) fn snapshot_is_taken(&mut self, at: usize) {
        let Some((node, _)) = self.nodes[at].clone().filter(|_| at < self.plan.servers) else { return };
        if self.council.snapshots().len() >= MOST {
            return;
        }
        let (checker, taken) = (self.checker.clone(), self.taken.clone());
        let world = node.world.clone();
        world.spawn_named("snapshot", async move {
            let cut = checker.borrow_mut().snapshot_asked();
            let Some(epoch) = node.takes_snapshot().await else { return };
            let cut = checker.borrow_mut().snapshot_answered(cut);
            node.world.core().note(epoch.into(), || format!("a snapshot of epoch {epoch} was taken: {cut:?}"));
            if !node.keeps_snapshot(epoch) {
                return; // it was removed before it was answered
            }
            taken.add(epoch, Some(cut));
        });
    }

    /// Its lease ends, the others go on and take a snapshot, and it's back before it has heard of it.
    pub(super) async fn one_misses_a_snapshot(&mut self, at: usize) {
        let id = self.machines[at].id;
        self.council.cut_off(id, self.core.now());
        let ends = Duration::from_millis(self.random.between(18..30));
        Sleep::until(&self.core, self.core.now() + ends).await;
        self.keep_busy();
        let other = (at + 1 + self.random.index(self.plan.servers - 1)) % self.plan.servers;
        self.snapshot_is_taken(other);
        let back = Duration::from_micros(self.random.between(100..6_000));
        Sleep::until(&self.core, self.core.now() + back).await;
        self.council.join_again(id);
    }

    /// One of them is read while all goes on. It shows the same whenever it's read.
    pub(super) fn snapshot_is_read(&mut self, at: usize) {
        let Some((node, _)) = self.nodes[at].clone() else { return };
        let all = self.taken.all();
        if all.is_empty() {
            return;
        }
        let ((epoch, known), size, taken) = (self.random.pick(&all).clone(), self.plan.spec.size, self.taken.clone());
        let checker = self.checker.clone();
        let world = node.world.clone();
        world.spawn_named("read a snapshot", async move {
            match shown_by(&node.volume, epoch, size).await {
                Ok(shown) => taken.judge(node.world.core(), &checker, (epoch, known), shown),
                Err(IoError::Unavailable { .. }) if !taken.has(epoch) => {} // it was removed meanwhile
                Err(error) => node.world.core().fail(format!("the snapshot of epoch {epoch} can't be read: {error}")),
            }
        });
    }

    pub(super) fn snapshot_is_removed(&mut self) {
        let epochs = self.council.snapshots();
        if !epochs.is_empty() {
            let epoch = *self.random.pick(&epochs);
            self.remove_snapshot(epoch);
        }
    }

    fn remove_snapshot(&self, epoch: Epoch) {
        self.core.note(epoch.into(), || format!("the snapshot of epoch {epoch} is removed"));
        self.taken.remove(epoch);
        self.council.remove_snapshot(epoch);
    }

    /// Once all is right: each snapshot shows what it should, through any server, and all copies show the same. Once all are removed,
    /// only what the volume has takes space.
    pub(super) async fn snapshots_are_right(&mut self, nodes: &[Node]) {
        for (epoch, known) in self.taken.all() {
            let cut = known.cut;
            let (node, size) = (self.random.pick(nodes).clone(), self.plan.spec.size);
            let (taken, checker) = (self.taken.clone(), self.checker.clone());
            self.core.note(epoch.into(), || format!("the snapshot of epoch {epoch} is read: {cut:?}"));
            on_machine(&self.core, &node.world.clone(), "read a snapshot", async move {
                match shown_by(&node.volume, epoch, size).await {
                    Ok(shown) => taken.judge(node.world.core(), &checker, (epoch, known), shown),
                    Err(error) => {
                        node.world.core().fail(format!("the snapshot of epoch {epoch} can't be read: {error}"))
                    }
                }
            })
            .await;
        }
        self.volume_is_rolled_back(nodes).await;
        for epoch in self.council.snapshots() {
            self.remove_snapshot(epoch);
        }
        let servers = nodes[..self.plan.servers].to_vec();
        let (epochs, spec) = (self.council.epochs(), self.plan.spec.clone());
        let (map, head) = (spec.map, epochs.history.reader(epochs.head).expect("the volume is a reader").clone());
        self.comes("the space of snapshots is given back", || {
            servers.iter().filter_map(Node::drive).all(|drive| {
                let extents =
                    drive.extents_of(map, 0, u64::MAX, false).into_iter().collect::<std::collections::BTreeSet<_>>();
                let is_seen = |&first: &u64| !drive.is_empty(map, first, EXTENT / BLOCK, &head);
                drive.allocated_of(map) == extents.into_iter().filter(is_seen).count() as u64 * EXTENT
            })
        })
        .await;
    }
}

impl Ring {
    /// To one of the snapshots, and perhaps to another: then the volume shows what that does, through any server.
    async fn volume_is_rolled_back(&mut self, nodes: &[Node]) {
        let taken = self.taken.all();
        if taken.is_empty() {
            return;
        }
        for _ in 0..self.random.below(3) {
            let (epoch, known) = self.random.pick(&taken).clone();
            self.core.note(epoch.into(), || format!("the volume is rolled back to epoch {epoch}"));
            self.council.roll_back(epoch);
            Sleep::until(&self.core, self.core.now() + FOLLOWED).await;
            let (node, size) = (self.random.pick(nodes).clone(), self.plan.spec.size);
            on_machine(&self.core, &node.world.clone(), "read all", async move {
                match node.volume.read(0, size).await {
                    Ok(all) if known.shown == Some(join(&all).to_vec()) => {}
                    Ok(_) => node.world.core().fail(format!("the volume isn't what it was in epoch {epoch}")),
                    Err(error) => node.world.core().fail(format!("what was rolled back can't be read: {error}")),
                }
            })
            .await;
        }
    }
}
