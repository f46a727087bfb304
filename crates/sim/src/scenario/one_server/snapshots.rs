//! Snapshots of a lone server's volume: taken, read, removed and rolled back to while all goes wrong, and judged.

use super::hands::pause;
use super::plan::{Hazard, Plan};
use crate::checker::{Checker, Cut, Kind};
use crate::executor::Core;
use crate::random::Stream;
use crate::scenario::convergence::{Unsettled, snapshots_give_back};
use crate::scenario::record::Record;
use crate::scenario::server::Server;
use crate::scenario::taken::{Known, Taken, shown_by};
use crate::workload::Workload;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use tepal_model::layout::Durability;
use tepal_model::{Epoch, IoError};

/// At most so many at a time.
pub const MOST: usize = 3;

/// What is known of the volume's snapshots, which outlives all processes. Clones are the same.
#[derive(Clone)]
pub struct Album {
    pub core: Rc<Core>,
    pub record: Record,
    pub checker: Rc<RefCell<Checker>>,
    pub workload: Workload,
    pub taken: Taken<Rc<RefCell<Checker>>>,
    /// Those that are agreed on, and whose requests aren't answered yet.
    pub asked: Rc<RefCell<BTreeMap<Epoch, Cut>>>,
    pub durability: Durability,
    /// The volume's bytes.
    pub size: u64,
}

impl Album {
    /// A server's clients want something of it, a few times, while others go on.
    pub async fn use_often(self, server: Server, mut random: Stream) {
        for _ in 0..random.skewed(24) {
            pause(&self.core, &mut random).await;
            let all = self.taken.all();
            match random.weighted(&[4, 4, 1]) {
                0 if self.record.snapshots().len() < MOST => self.take(&server, &mut random).await,
                1 if !all.is_empty() => {
                    let (album, one, reader) = (self.clone(), random.pick(&all).clone(), server.clone());
                    server.world.spawn_named("read a snapshot", async move { album.read(&reader, one).await });
                }
                2 if !all.is_empty() => self.remove(random.pick(&all).0),
                _ => {}
            }
        }
    }

    /// It's answered when the server acts by it, and what it shows is stable.
    async fn take(&self, server: &Server, random: &mut Stream) {
        let cut = self.checker.borrow_mut().snapshot_asked();
        pause(&self.core, random).await; // until it's agreed
        let Some((epoch, view)) = self.record.take_snapshot() else { return };
        self.core.note(epoch.into(), || format!("a snapshot of epoch {epoch} is agreed"));
        self.asked.borrow_mut().insert(epoch, cut);
        server.wait_until_it_follows(view).await;
        if self.durability == Durability::Flush && !self.workload.flush(&*server.under_test()).await {
            self.asked.borrow_mut().remove(&epoch);
            return self.remove(epoch); // whoever wanted it was told that it isn't what it should be
        }
        let answered = self.checker.borrow_mut().snapshot_answered(cut);
        self.core.note(epoch.into(), || format!("a snapshot of epoch {epoch} was taken: {answered:?}"));
        self.asked.borrow_mut().remove(&epoch);
        self.taken.add(self.checker.clone(), epoch, Some(answered));
    }

    async fn read(&self, server: &Server, (epoch, known): (Epoch, Known<Rc<RefCell<Checker>>>)) {
        match shown_by(server.volume(), epoch, self.size).await {
            Ok(shown) => self.taken.judge(&self.core, (epoch, known), shown),
            Err(IoError::Unavailable { .. }) if !self.taken.has(epoch) => {} // it was removed meanwhile
            // Of what one drive can't read, the others' copies may be closed already.
            Err(IoError::Damaged { .. } | IoError::Lost { .. } | IoError::Unavailable { .. })
                if server.is_stopping() => {}
            Err(error) if self.workload.is_excused(&error, Kind::Read, 0, self.size) => {}
            Err(error) => self.core.fail(format!("the snapshot of epoch {epoch} can't be read: {error}")),
        }
    }

    fn remove(&self, epoch: Epoch) {
        self.core.note(epoch.into(), || format!("the snapshot of epoch {epoch} is removed"));
        self.taken.remove(epoch);
        self.record.remove_snapshot(epoch);
    }

    pub fn remove_all(&self) {
        self.record.snapshots().into_iter().for_each(|epoch| self.remove(epoch));
    }

    /// Nobody was told of those that were agreed on, but they are there. With a cache, what was acknowledged may be gone from them; from
    /// then on they don't change.
    pub fn server_died(&self) {
        for (epoch, cut) in std::mem::take(&mut *self.asked.borrow_mut()) {
            let cut = self.checker.borrow_mut().snapshot_answered(cut);
            let promised = Some(cut).filter(|_| self.durability == Durability::Strict);
            self.taken.add(self.checker.clone(), epoch, promised);
        }
    }

    /// While no server runs, or nobody uses the volume, it becomes one of those that were read.
    pub fn roll_back(&self, random: &mut Stream) -> bool {
        let promised = |(epoch, known): (Epoch, Known<_>)| Some((epoch, known.cut?, known.shown?));
        let all: Vec<(Epoch, Cut, Vec<u8>)> = self.taken.all().into_iter().filter_map(promised).collect();
        if all.is_empty() {
            return false;
        }
        let (epoch, cut, shown) = random.pick(&all).clone();
        self.core.note(epoch.into(), || format!("the volume is rolled back to epoch {epoch}"));
        self.record.roll_back(epoch);
        if let Err(wrong) = self.checker.borrow_mut().rolled_back(cut, &shown) {
            self.core.fail(format!("epoch {epoch}: {wrong}"));
        }
        true
    }

    /// Nothing goes wrong any more: each shows what it should, and the volume becomes what some were. Once all are removed, only what the
    /// volume has takes space.
    pub async fn all_are_right(&self, server: &Server, plan: &Plan, mut random: Stream) -> Result<(), Unsettled> {
        for one in self.taken.all() {
            self.read(server, one).await;
        }
        for _ in 0..random.below(3) {
            if !self.roll_back(&mut random) {
                break;
            }
            server.wait_until_it_follows(self.record.view()).await;
            self.workload.read_back(&*server.under_test()).await;
        }
        self.remove_all();
        server.wait_until_it_follows(self.record.view()).await;
        if plan.hazard == Hazard::Corruption && !plan.mirrored() {
            return Ok(()); // what is damaged stays where it is
        }
        snapshots_give_back(server).await
    }
}
