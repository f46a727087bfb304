//! Epochs of a map that nobody sees any more, and that have to be forgotten for good: whether anything may still be
//! written in them, and whether drives have anything of them.
//!
//! The answers are certain if they are asked for in this order, of all servers that have drives of the map. First
//! [`Engine::quiet_columns`]: each column has a primary under which no change of an earlier view is under way any more.
//! Then [`Engine::has_nothing_of`].

use super::Engine;
use crate::view::View;
use futures_util::future::join_all;
use tepal_drive::world::World;
use tepal_model::history::Span;
use tepal_model::{DriveId, MapId};

impl<W: World> Engine<W> {
    /// The columns of a map that this server leads by this view or a later one, once no change that was begun in an
    /// earlier view is under way there, nor on drives here.
    pub async fn quiet_columns(&self, map: MapId, view: View) -> Vec<u32> {
        let Some(map) = self.map(map).filter(|map| !map.is_cut_off()) else { return Vec::new() };
        if !self.shared.is_alone && self.followed() < view {
            return Vec::new();
        }
        if map.is_among() {
            self.shared.authority.adopted(view).await;
        }
        join_all((0..map.seats().len()).map(|column| map.ended(column))).await;
        let groups = map.groups();
        let quiet = groups.iter().map(|group| async move { group.until_all_have_ended().await.then_some(group) });
        let quiet = join_all(quiet).await.into_iter().flatten().map(|group| group.shared.column.number);
        quiet.filter_map(|column| u32::try_from(column).ok()).collect()
    }

    /// The drives of a map that are here and have nothing in these epochs, which nobody sees: layers of these epochs
    /// are given back first. From then on the drives have nothing there, whatever happens to them, if nothing is
    /// written there any more.
    pub async fn has_nothing_of(&self, map: MapId, gaps: &[Span]) -> Vec<DriveId> {
        let Some(map) = self.map(map).filter(|map| !map.is_cut_off()) else { return Vec::new() };
        let (epochs, drives) = (map.epochs(), map.drives_here());
        let asked = drives.iter().map(|drive| async {
            match drive.has_nothing_of(map.id(), &epochs.history, gaps).await {
                Ok(has_nothing) => has_nothing.then_some(drive.id()),
                Err(loss) => {
                    tracing::debug!(drive = %drive.id(), %loss, "what nobody sees isn't given back");
                    None
                }
            }
        });
        join_all(asked).await.into_iter().flatten().collect()
    }
}
