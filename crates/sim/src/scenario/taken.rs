//! The snapshots that a scenario took: when that was, and what each showed when it was first read.

use crate::checker::{Checker, Cut};
use crate::executor::Core;
use crate::world::SimWorld;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use tepal_engine::Volume;
use tepal_model::buffer::join;
use tepal_model::{Epoch, IoError};

/// What is read at once.
const PIECE: u64 = 256 << 10;

/// Those that are there and may be read. Clones are the same.
#[derive(Clone, Default)]
pub struct Taken(Rc<RefCell<BTreeMap<Epoch, Known>>>);

#[derive(Clone)]
pub struct Known {
    /// `None` if nothing was promised of what is in it.
    pub cut: Option<Cut>,
    pub shown: Option<Vec<u8>>,
}

impl Taken {
    pub fn add(&self, epoch: Epoch, cut: Option<Cut>) {
        self.0.borrow_mut().insert(epoch, Known { cut, shown: None });
    }

    pub fn remove(&self, epoch: Epoch) {
        self.0.borrow_mut().remove(&epoch);
    }

    pub fn has(&self, epoch: Epoch) -> bool {
        self.0.borrow().contains_key(&epoch)
    }

    pub fn all(&self) -> Vec<(Epoch, Known)> {
        self.0.borrow().iter().map(|(&epoch, known)| (epoch, known.clone())).collect()
    }

    fn known(&self, epoch: Epoch) -> Option<Known> {
        self.0.borrow().get(&epoch).cloned()
    }

    /// What is shown by it is a consistent cut, and the same whenever it's read: also if it has been removed since it was read.
    pub fn judge(&self, core: &Core, checker: &RefCell<Checker>, (epoch, known): (Epoch, Known), shown: Vec<u8>) {
        let known = self.known(epoch).unwrap_or(known);
        if let Some(Err(wrong)) = known.cut.map(|cut| checker.borrow().judge_snapshot(cut, &shown)) {
            return core.fail(format!("epoch {epoch}: {wrong}"));
        }
        if known.shown.as_ref().is_some_and(|before| *before != shown) {
            return core.fail(format!("the snapshot of epoch {epoch} shows something else than before"));
        }
        if let Some(known) = self.0.borrow_mut().get_mut(&epoch) {
            known.shown = Some(shown);
        }
    }
}

/// All of a snapshot.
pub async fn shown_by(volume: &Volume<SimWorld>, epoch: Epoch, size: u64) -> Result<Vec<u8>, IoError> {
    let snapshot = volume.snapshot(epoch, size);
    let mut shown = Vec::with_capacity(size as usize);
    for offset in (0..size).step_by(PIECE as usize) {
        shown.extend_from_slice(&join(&snapshot.read(offset, PIECE.min(size - offset)).await?));
    }
    Ok(shown)
}
