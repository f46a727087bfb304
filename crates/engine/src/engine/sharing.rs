//! A volume that this server had for itself is shared with servers that have joined, or with gateways elsewhere.

use super::Engine;
use crate::column::flush::flush_all;
use crate::volume::{Map, Use};
use futures_util::future::join_all;
use std::collections::BTreeMap;
use tepal_drive::world::World;
use tepal_model::VolumeId;

impl<W: World> Engine<W> {
    /// Once this is done, other servers may lead columns of the volume's map, and gateways elsewhere may be served.
    /// This server's clients wait until requests under way have ended, and notice nothing else. Sharing is for good:
    /// from then on acknowledged data is stable, whatever the layout's durability.
    pub async fn share_volume(&self, id: VolumeId) {
        if let Some(volume) = self.volume(id) {
            self.share_map(volume.map()).await;
        }
    }

    pub(super) async fn share_map(&self, map: &Map<W>) {
        if !map.go_on(Use::Alone, Use::BeingShared) {
            return;
        }
        let groups = map.groups();
        // Requests that have begun end. Later requests wait behind these turns, and find that they have to go to the
        // primaries.
        let turns = join_all(groups.iter().map(|group| group.every_turn())).await;
        loop {
            let here = groups.iter().flat_map(|group| group.lock().members.here().cloned().collect::<Vec<_>>());
            let drives: BTreeMap<_, _> = here.map(|drive| (drive.id(), drive)).collect();
            let lost = flush_all(drives.into_values().collect()).await;
            match groups.first() {
                Some(group) if !lost.is_empty() => group.lose(lost).await,
                _ => break,
            }
        }
        map.go_on(Use::BeingShared, Use::Among);
        (0..groups.len()).for_each(|column| map.begin_yield(column, None));
        drop(turns);
        self.follow_for(map);
    }
}
