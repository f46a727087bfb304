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

/// Knows what may be shown by a volume.
pub trait Judge: Clone {
    /// In words what is wrong with all that a snapshot shows, if anything.
    fn judge(&self, cut: Cut, shown: &[u8]) -> Result<(), String>;
}

impl Judge for Rc<RefCell<Checker>> {
    fn judge(&self, cut: Cut, shown: &[u8]) -> Result<(), String> {
        self.borrow().judge_snapshot(cut, shown)
    }
}

/// Those that are there and may be read. Clones are the same.
#[derive(Clone)]
pub struct Taken<J: Judge>(Rc<RefCell<BTreeMap<Epoch, Known<J>>>>);

#[derive(Clone)]
pub struct Known<J> {
    /// Of whose volume it is.
    pub of: J,
    /// `None` if nothing was promised of what is in it.
    pub cut: Option<Cut>,
    pub shown: Option<Vec<u8>>,
}

impl<J: Judge> Default for Taken<J> {
    fn default() -> Self {
        Taken(Rc::default())
    }
}

impl<J: Judge> Taken<J> {
    pub fn add(&self, of: J, epoch: Epoch, cut: Option<Cut>) {
        self.0.borrow_mut().insert(epoch, Known { of, cut, shown: None });
    }

    pub fn remove(&self, epoch: Epoch) {
        self.0.borrow_mut().remove(&epoch);
    }

    /// All of a volume that is gone.
    pub fn forget(&self, is_gone: impl Fn(&J) -> bool) {
        self.0.borrow_mut().retain(|_, known| !is_gone(&known.of));
    }

    pub fn has(&self, epoch: Epoch) -> bool {
        self.0.borrow().contains_key(&epoch)
    }

    pub fn all(&self) -> Vec<(Epoch, Known<J>)> {
        self.0.borrow().iter().map(|(&epoch, known)| (epoch, known.clone())).collect()
    }

    fn known(&self, epoch: Epoch) -> Option<Known<J>> {
        self.0.borrow().get(&epoch).cloned()
    }

    /// What is shown by it is a consistent cut, and the same whenever it's read: also if it has been removed since it was read.
    pub fn judge(&self, core: &Core, (epoch, known): (Epoch, Known<J>), shown: Vec<u8>) {
        let known = self.known(epoch).unwrap_or(known);
        if let Some(Err(wrong)) = known.cut.map(|cut| known.of.judge(cut, &shown)) {
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
