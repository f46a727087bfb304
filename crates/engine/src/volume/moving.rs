//! Where a volume's columns are, and what becomes of what drives hold that have no place any more.

use super::Volume;
use crate::places::{Placed, Places};
use std::sync::Arc;
use tepal_drive::world::World;

impl<W: World> Volume<W> {
    pub(crate) fn places(&self) -> Arc<Places> {
        self.shared.places.lock().expect("nothing panics while it holds it").clone()
    }

    /// Where a column is, as far as is known here.
    pub(crate) fn placed(&self, column: usize) -> Placed {
        self.places().columns.get(column).cloned().unwrap_or_default()
    }

    /// As agreed from now on. The groups of columns that are elsewhere now are to be opened anew.
    pub(crate) fn is_placed(&self, places: Arc<Places>) {
        *self.shared.places.lock().expect("nothing panics while it holds it") = places;
    }
}
