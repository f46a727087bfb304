//! What the metadata says of the volume: kept through every crash.

use std::cell::Cell;
use std::rc::Rc;
use tepal_engine::VolumeSpec;

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
}

impl Record {
    pub fn new(spec: VolumeSpec) -> Self {
        let (size, state) = (Rc::new(Cell::new(spec.size)), Rc::new(Cell::new(VolumeState::Active)));
        Record { spec: Rc::new(spec), size, state }
    }

    pub fn spec(&self) -> VolumeSpec {
        VolumeSpec { size: self.size.get(), ..(*self.spec).clone() }
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
