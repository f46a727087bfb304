//! Space that a drive gives back in the background, of all maps.

use super::Engine;
use tepal_drive::Drive;
use tepal_drive::world::World;
use tepal_model::MapId;

impl<W: World> Engine<W> {
    /// Bytes, at least, on a drive that nobody needs any more and that are being given back: all bytes of maps that are
    /// gone or go with their last volume, and layers of other maps that no reader sees. `is_known` says which maps
    /// exist, as agreed.
    pub fn surplus_on(&self, drive: &Drive<W>, is_known: impl Fn(MapId) -> bool) -> u64 {
        let surplus = |(id, allocated): (MapId, u64)| match self.map(id).filter(|_| is_known(id)) {
            Some(map) if !map.is_cut_off() => drive.surplus_of(id, &map.epochs().history),
            // Nothing is known of a map that isn't opened yet.
            None if is_known(id) => 0,
            Some(_) | None => allocated,
        };
        drive.allocated().into_iter().map(surplus).sum()
    }
}
