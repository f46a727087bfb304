//! A volume that this server had for itself is shared with servers that have joined, or with gateways elsewhere.

use super::Engine;
use crate::column::flush::flush_all;
use crate::volume::{Map, Use};
use futures_util::future::join_all;
use std::collections::BTreeMap;
use tepal_drive::world::World;
use tepal_model::VolumeId;

impl<W: World> Engine<W> {
    /// From the end of this on, other servers may lead columns of the volume's map, and gateways elsewhere be served. Its clients here
    /// wait until what is under way has ended, and are told of nothing. For good: what is acknowledged is stable from then on,
    /// whatever the layout's durability.
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
        // What has begun ends; what comes later waits behind this, and finds that it has to go elsewhere.
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
