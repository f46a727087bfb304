//! What the metadata says of the volume: kept through every crash.

use super::readers::Readers;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use tepal_engine::{ClusterView, Epochs, View, VolumeSpec};
use tepal_model::Epoch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeState {
    Active,
    /// It was removed: nobody may use it, and its space is to be given back.
    Deleting,
    /// All drives that were there have given its space back; others do when they return.
    Gone,
}

/// Clones are the same record.
#[derive(Clone)]
pub struct Record {
    spec: Rc<VolumeSpec>,
    size: Rc<Cell<u64>>,
    state: Rc<Cell<VolumeState>>,
    readers: Rc<RefCell<Readers>>,
    /// Counts the changes of its snapshots.
    view: Rc<Cell<View>>,
}

impl Record {
    pub fn new(spec: VolumeSpec) -> Self {
        let (size, state) = (Rc::new(Cell::new(spec.size)), Rc::new(Cell::new(VolumeState::Active)));
        let readers = Rc::new(RefCell::new(Readers::of(spec.id)));
        Record { spec: Rc::new(spec), size, state, readers, view: Rc::default() }
    }

    pub fn spec(&self) -> VolumeSpec {
        VolumeSpec { size: self.size.get(), epochs: self.epochs(), ..(*self.spec).clone() }
    }

    /// What the volume and its snapshots see.
    pub fn epochs(&self) -> Arc<Epochs> {
        Arc::new(self.readers.borrow().epochs(self.view()))
    }

    /// The newest state of what can be followed; 0 if the volume never had a snapshot.
    pub fn view(&self) -> View {
        self.view.get()
    }

    /// What a server follows that is alone, but for the drives.
    pub fn followed(&self) -> ClusterView {
        let epochs = BTreeMap::from([(self.spec.map, self.epochs())]);
        ClusterView { view: self.view(), epochs, ..ClusterView::default() }
    }

    fn next_view(&self) -> View {
        self.view.set(self.view.get() + 1);
        self.view.get()
    }

    /// The epochs of those that are kept.
    pub fn snapshots(&self) -> Vec<Epoch> {
        self.readers.borrow().kept()
    }

    /// The epoch that is kept, and since when the volume writes in another.
    pub fn take_snapshot(&self) -> Option<(Epoch, View)> {
        let view = self.next_view();
        self.readers.borrow_mut().take_snapshot(self.spec.id, view).map(|epoch| (epoch, view))
    }

    pub fn remove_snapshot(&self, epoch: Epoch) {
        self.next_view();
        self.readers.borrow_mut().remove(epoch);
    }

    pub fn roll_back(&self, to: Epoch) {
        let view = self.next_view();
        self.readers.borrow_mut().roll_back(to, view);
    }

    pub fn resize(&self, size: u64) {
        self.size.set(size);
    }

    pub fn state(&self) -> VolumeState {
        self.state.get()
    }

    pub fn become_state(&self, state: VolumeState) {
        self.state.set(state);
    }
}
