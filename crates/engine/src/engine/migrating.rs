//! Volumes that go from one map to another: what this server does when a migration is agreed.

use super::{Engine, State};
use crate::migration::Laid;
use crate::servers::follow::ClusterView;
use crate::volume::{Map, Use};
use std::collections::BTreeSet;
use std::sync::Arc;
use tepal_drive::world::World;
use tepal_model::MapId;

impl<W: World> Engine<W> {
    /// A migrating map that this server has for itself is shared first: no other server could take anything over.
    pub(crate) fn share_what_migrates(&self) {
        for map in self.maps().into_iter().filter(|map| !map.is_among() && map.migration().is_some()) {
            let engine = self.clone();
            self.world().spawn(Box::pin(async move { engine.share_map(&map).await }));
        }
    }

    /// Ends a map that no volume has any more, by the followed state: no data that counts is there.
    fn end_left_map(&self, map: &Map<W>) {
        map.leave();
        let (engine, map) = (self.clone(), map.clone());
        self.world().spawn(Box::pin(async move { engine.end_maps(vec![map], None).await }));
    }
}

impl<W: World> State<W> {
    /// Opens the maps that volumes go to, or come from, and tells all maps the agreed migrations. Returns the maps that
    /// it has opened.
    #[must_use = "nobody follows for them yet"]
    pub(super) fn arrange(&mut self, engine: &Engine<W>) -> Vec<Map<W>> {
        let Some((_, now)) = self.followed.clone() else { return Vec::new() };
        let mut opened = Vec::new();
        // The volumes' own maps come first: this server may have missed all of an earlier migration, by which the data
        // of the present one has come.
        for id in self.volumes.keys().flat_map(|id| now.maps_of(*id)).collect::<BTreeSet<_>>() {
            if let Some(laid) = now.laid.get(&id) {
                opened.extend(self.open_map(engine, &now, (id, laid)));
            }
        }
        for agreed in now.migrations.values() {
            for (id, other) in [(agreed.source, agreed.target), (agreed.target, agreed.source)] {
                if self.maps.contains_key(&other) {
                    opened.extend(self.open_map(engine, &now, (id, agreed.laid(id))));
                }
            }
        }
        // In this order: no map takes a volume that has left it for its own.
        for volume in self.volumes.values() {
            let goes = now.volumes.get(&volume.id()).filter(|&&id| id != volume.map().id());
            if let Some(map) = goes.and_then(|id| self.maps.get(id)) {
                volume.go_to(map.clone());
            }
            if now.volumes.contains_key(&volume.id()) {
                let ranges = now.ranges.get(&volume.id()).map(|ranges| &**ranges);
                volume.part(ranges, |id| self.maps.get(&id).cloned());
            }
        }
        for map in self.maps.values() {
            let agreed: Option<&Arc<_>> = now.migrations.values().find(|agreed| agreed.is_about(map.id()));
            let is_left = agreed.is_none()
                && !now.volumes.is_empty()
                && !now.is_in_use(map.id())
                && self.volumes.values().all(|volume| !volume.lists(map.id()));
            match is_left {
                true if map.is_cut_off() => {} // the map's end has begun
                true => engine.end_left_map(map),
                false => map.set_migration(agreed, now.own_of(map.id())),
            }
        }
        opened
    }

    /// `None` if the map is open already, or no followed state has its places.
    fn open_map(&mut self, engine: &Engine<W>, now: &ClusterView, (id, laid): (MapId, &Laid)) -> Option<Map<W>> {
        let places = now.places.get(&id).filter(|_| !self.maps.contains_key(&id))?;
        let Some(map) = Map::open(engine, (id, laid.clone()), Use::Among, places.clone()) else {
            tracing::error!(map = id.0, "a map that volumes go to is none");
            return None;
        };
        if let Some(epochs) = self.epochs_of(id) {
            map.go_on_with(epochs);
        }
        self.maps.insert(id, map.clone());
        Some(map)
    }
}
