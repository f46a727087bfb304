//! Snapshots of the ring's volumes: taken, read and removed while all goes wrong, and judged.

use super::Ring;
use super::node::Node;
use crate::executor::Sleep;
use crate::scenario::life::on_machine;
use crate::scenario::taken::shown_by;
use std::time::Duration;
use tepal_model::buffer::join;
use tepal_model::{Epoch, IoError, VolumeId};

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
        let (of, taken) = (self.random.pick(&self.volumes.all()).clone(), self.taken.clone());
        if of.goes_back.are_taken() {
            return;
        }
        let (world, turn) = (node.world.clone(), of.is_asked.take());
        world.spawn_named("snapshot", async move {
            let _turn = turn;
            let cut = of.checker.borrow_mut().snapshot_asked();
            let Some(epoch) = node.take_snapshot(of.id).await else { return };
            let cut = of.checker.borrow_mut().snapshot_answered(cut);
            let id = of.id.0;
            node.world.core().note(epoch.into(), || format!("a snapshot of volume {id} was taken, {epoch}: {cut:?}"));
            if !node.keeps_snapshot(epoch) {
                return; // it was removed before it was answered
            }
            taken.add(of, epoch, Some(cut));
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
        let ((epoch, known), taken) = (self.random.pick(&all).clone(), self.taken.clone());
        let size = self.council.size_in(epoch);
        let world = node.world.clone();
        world.spawn_named("read a snapshot", async move {
            match node.shown_by(known.of.id, epoch, size).await {
                Ok(shown) => taken.judge(node.world.core(), (epoch, known), shown),
                Err(_) if !taken.has(epoch) => {} // it was removed meanwhile
                Err(_) if node.volume_of(known.of.id).is_none() => {} // it hasn't heard of the clone that it's of
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

    pub(super) fn remove_snapshot(&self, epoch: Epoch) {
        if self.council.remove_snapshot(epoch) {
            self.core.note(epoch.into(), || format!("the snapshot of epoch {epoch} is removed"));
            self.taken.remove(epoch);
        }
    }

    /// Once all is right: each snapshot shows what it should, through any server.
    pub(super) async fn snapshots_are_right(&mut self, nodes: &[Node]) {
        for (epoch, known) in self.taken.all() {
            let cut = known.cut;
            let (node, size) = (self.random.pick(nodes).clone(), self.council.size_in(epoch));
            let taken = self.taken.clone();
            self.core.note(epoch.into(), || format!("the snapshot of epoch {epoch} is read: {cut:?}"));
            on_machine(&self.core, &node.world.clone(), "read a snapshot", async move {
                match node.shown_by(known.of.id, epoch, size).await {
                    Ok(shown) => taken.judge(node.world.core(), (epoch, known), shown),
                    Err(error) => {
                        node.world.core().fail(format!("the snapshot of epoch {epoch} can't be read: {error}"))
                    }
                }
            })
            .await;
        }
        self.volumes_are_rolled_back(nodes).await;
        self.all_but_one_are_removed(nodes).await;
    }
}

impl Ring {
    /// To one of the snapshots, and perhaps to another: then its volume shows what that does, through any server.
    async fn volumes_are_rolled_back(&mut self, nodes: &[Node]) {
        let taken = self.taken.all();
        if taken.is_empty() {
            return;
        }
        for _ in 0..self.random.below(3) {
            let (epoch, known) = self.random.pick(&taken).clone();
            self.core.note(epoch.into(), || format!("volume {} is rolled back to epoch {epoch}", known.of.id.0));
            self.council.roll_back(epoch);
            Sleep::until(&self.core, self.core.now() + FOLLOWED).await;
            let (node, size) = (self.random.pick(nodes).clone(), self.council.size_in(epoch));
            on_machine(&self.core, &node.world.clone(), "read all", async move {
                let Some(volume) = node.volume_of(known.of.id) else {
                    return node.world.core().fail(format!("{} doesn't know volume {}", node.id(), known.of.id.0));
                };
                match volume.read(0, size).await {
                    Ok(all) if known.shown == Some(join(&all).to_vec()) => {}
                    Ok(_) => node.world.core().fail(format!("the volume isn't what it was in epoch {epoch}")),
                    Err(error) => node.world.core().fail(format!("what was rolled back can't be read: {error}")),
                }
            })
            .await;
        }
    }
}

impl Node {
    pub(super) async fn shown_by(&self, of: VolumeId, epoch: Epoch, size: u64) -> Result<Vec<u8>, IoError> {
        shown_by(&self.volume_of(of).ok_or(IoError::Fenced)?, epoch, size).await
    }
}
