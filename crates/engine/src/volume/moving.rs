//! Where a map's columns are: what is agreed for all volumes that have it.

use super::Map;
use crate::places::{Placed, Places};
use std::sync::Arc;
use tepal_drive::world::World;

impl<W: World> Map<W> {
    pub fn places(&self) -> Arc<Places> {
        self.shared.places.lock().expect("nothing panics while it holds it").clone()
    }

    /// Where a column is, as far as is known here.
    pub fn placed(&self, column: usize) -> Placed {
        self.places().columns.get(column).cloned().unwrap_or_default()
    }

    /// As agreed from now on. The groups of columns that are elsewhere now are to be opened anew.
    pub fn set_places(&self, places: Arc<Places>) {
        *self.shared.places.lock().expect("nothing panics while it holds it") = places;
    }
}
