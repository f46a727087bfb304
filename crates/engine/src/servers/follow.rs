//! The agreed state of all servers' drives, and what this server does about it: which columns it leads, which drives of
//! others it asks, and which it doesn't ask any more.

use crate::column::Group;
use crate::engine::{Engine, Standing};
use crate::epochs::Epochs;
use crate::migration::{Laid, Migration};
use crate::places::{Placed, Places, Placing};
use crate::servers::seat::Seated;
use crate::view::View;
use crate::volume::Map;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use tepal_drive::Loss;
use tepal_drive::world::World;
use tepal_model::{DriveId, MapId, Ranges, ServerId, VolumeId};

/// No server's id.
const OUTSIDE: ServerId = ServerId(0);

/// The state of all drives at one moment. A later state's view isn't lower.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// The state's number.
    pub view: View,
    /// Every drive of the cluster.
    pub drives: BTreeMap<DriveId, Agreed>,
    /// The epochs of maps that have, or had, snapshots or clones.
    pub epochs: BTreeMap<MapId, Arc<Epochs>>,
    /// The places of all maps, including migrations' sources and targets.
    pub places: BTreeMap<MapId, Arc<Places>>,
    /// The map of each volume: of a migrating volume, the source. Nothing changes for a volume that isn't named.
    pub volumes: BTreeMap<VolumeId, MapId>,
    /// The ranges of the volumes that have several. Of these, `volumes` names the map of one.
    pub ranges: BTreeMap<VolumeId, Arc<Ranges>>,
    /// How the data is laid out in these maps.
    pub laid: BTreeMap<MapId, Arc<Laid>>,
    /// Migrations by their sources. Where only a range goes, the volume's ranges name the map that it began at until the end.
    pub migrations: BTreeMap<MapId, Arc<Migration>>,
}

/// What is agreed about one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The drive's server.
    pub server: ServerId,
    /// Whether the drive takes part.
    pub status: DriveStatus,
}

/// Whether a drive takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveStatus {
    /// The drive is up since that view. It has every write, or knows itself what it misses.
    Up(View),
    /// The drive left in the first view, is open again since the second one, and it isn't known yet what it misses.
    Behind(View, View),
    /// The drive left in that view; it may return.
    Away(View),
    /// The drive left in that view, for good.
    Retired(View),
}

impl ClusterView {
    /// The maps of a volume's ranges.
    pub(crate) fn maps_of(&self, volume: VolumeId) -> Vec<MapId> {
        match self.ranges.get(&volume) {
            Some(ranges) => ranges.maps(),
            None => self.volumes.get(&volume).copied().into_iter().collect(),
        }
    }

    /// Whether a volume has any of its bytes in that map, by its record.
    pub(crate) fn is_in_use(&self, map: MapId) -> bool {
        self.volumes.values().any(|id| *id == map) || self.ranges.values().any(|ranges| ranges.has(map))
    }

    /// The bytes that a map has by the ranges of its volumes, which are the same for all of them; `None`: all bytes.
    pub(crate) fn own_of(&self, map: MapId) -> Option<Vec<Range<u64>>> {
        if let Some(ranges) = self.ranges.values().find(|ranges| ranges.has(map)) {
            return Some(ranges.of(map));
        }
        // A range that goes to a map of its own is in the volume's ranges when it's there.
        let about = self.migrations.values().find(|agreed| agreed.is_about(map))?;
        (about.is_of_a_part() && about.began() != map).then(Vec::new)
    }

    /// The primary of a column: a function of the agreed state alone. It's the server of the drive that has had its
    /// place and been up for the longest. If no drive is up, it's the server of the drive that returned first. Of
    /// several, it's the first in the order of the map. So a returned drive takes over no leadership, and a new
    /// primary's drive has taken all requests of the earlier primary.
    pub fn primary(&self, placed: &Placed) -> Option<ServerId> {
        let leads = |placing: &Placing| {
            let agreed = self.drives.get(&placing.drive)?;
            match agreed.status {
                DriveStatus::Up(since) => Some((0, since.max(placing.since), agreed.server)),
                DriveStatus::Behind(_, since) => Some((1, since.max(placing.since), agreed.server)),
                DriveStatus::Away(_) | DriveStatus::Retired(_) => None,
            }
        };
        let leading = placed.holders.iter().filter_map(leads);
        leading.min_by_key(|&(rank, since, _)| (rank, since)).map(|(.., server)| server)
    }

    /// Whether this state says the same of these drives as an earlier state.
    pub(crate) fn says_the_same(&self, earlier: &ClusterView, of: &[DriveId]) -> bool {
        of.iter().all(|id| self.drives.get(id) == earlier.drives.get(id))
    }
}

impl<W: World> Engine<W> {
    /// Does what follows from a state. `before` is the state that was followed last. Callers take turns.
    pub fn follow(&self, me: ServerId, before: &ClusterView, now: &Arc<ClusterView>) {
        self.give_up_and_follow(me, now);
        let gone = before.drives.iter().filter(|(id, agreed)| agreed.server != me && !now.drives.contains_key(id));
        gone.for_each(|(&id, _)| self.forget_drive(id));
        for (&id, agreed) in &now.drives {
            let earlier = before.drives.get(&id);
            if agreed.server == me {
                self.follow_own_drive(id, agreed.status);
            } else if earlier.is_some_and(|earlier| earlier.server != agreed.server) {
                self.follow_carried_drive(id, agreed.status);
            } else if earlier != Some(agreed) {
                self.follow_drive(id, *agreed, earlier.map(|earlier| earlier.status));
            }
        }
        self.share_what_migrates();
        self.follow_places(before);
        self.fill_what_joins();
        self.take_columns(me, now);
        // What returned drives miss is known in this view too.
        self.maps().iter().flat_map(Map::groups).for_each(|group| group.tell_noted());
        let own = now.drives.iter().filter(|(_, agreed)| agreed.server == me);
        own.for_each(|(&id, _)| self.settle_if_known(id));
    }

    /// The same for a gateway outside the cluster's servers: it has no drives and leads nothing, and only has to know
    /// the primaries.
    pub fn follow_from_outside(&self, now: &Arc<ClusterView>) {
        self.give_up_and_follow(OUTSIDE, now);
    }

    /// Requests carry the view as soon as it's known. So groups that serve nobody in the view are cut off before.
    fn give_up_and_follow(&self, me: ServerId, now: &Arc<ClusterView>) {
        self.will_follow(me, now.clone());
        for map in self.maps_among() {
            self.give_up_columns(&map, me, now);
        }
        self.has_followed(now.view);
    }

    pub(crate) fn take_columns(&self, me: ServerId, now: &ClusterView) {
        for map in self.maps_among() {
            self.take_columns_of(&map, me, now);
        }
    }

    /// Follows for a map that is new here: the state of its columns is known already.
    pub(crate) fn follow_for(&self, map: &Map<W>) {
        if let Some((me, now)) = self.followed_state() {
            self.give_up_columns(map, me, &now);
            self.take_columns_of(map, me, &now);
        }
    }

    fn maps_among(&self) -> impl Iterator<Item = Map<W>> {
        self.maps().into_iter().filter(Map::is_among)
    }

    /// Adds an own drive that couldn't be opened, as absent. Drives that can be opened are added by the caller that
    /// opens them, when that is agreed.
    fn follow_own_drive(&self, id: DriveId, status: DriveStatus) {
        if let DriveStatus::Away(left) | DriveStatus::Retired(left) = status
            && !self.knows_drive(id)
        {
            self.add_absent_drive(id, left, matches!(status, DriveStatus::Away(_)));
        }
    }

    fn follow_drive(&self, id: DriveId, Agreed { server, status }: Agreed, earlier: Option<DriveStatus>) {
        match status {
            DriveStatus::Up(_) if matches!(earlier, Some(DriveStatus::Behind(..))) => self.remote_is_current(id),
            DriveStatus::Up(_) => self.add_remote_drive(id, server, Standing::Current),
            DriveStatus::Behind(left, _) => {
                let engine = self.clone();
                // If it wasn't noticed here that the drive left, that comes first.
                self.world().spawn(Box::pin(async move {
                    engine.lose_as_agreed(id, gone(id), left).await;
                    engine.take_remote_as_agreed(id, server);
                }));
            }
            DriveStatus::Away(left) | DriveStatus::Retired(left) => {
                let may_return = matches!(status, DriveStatus::Away(_));
                if !self.knows_drive(id) {
                    return self.add_absent_drive(id, left, may_return);
                }
                let loss = if may_return {
                    gone(id)
                } else {
                    Loss::Retired { drive: id, reason: "it was retired".to_owned() }
                };
                let engine = self.clone();
                self.world().spawn(Box::pin(async move {
                    engine.lose_as_agreed(id, loss, left).await;
                    if !may_return {
                        engine.retire_absent(id, left);
                    }
                }));
            }
        }
    }

    pub(crate) fn is_agreed_up(&self, id: DriveId) -> bool {
        matches!(self.agreed_status(id), Some(DriveStatus::Up(_)))
    }

    /// Whether it's agreed that another server's drive is up.
    pub(crate) fn is_agreed_up_elsewhere(&self, id: DriveId) -> bool {
        let of = |(me, now): (ServerId, Arc<ClusterView>)| Some((me, *now.drives.get(&id)?));
        let agreed = self.followed_state().and_then(of);
        agreed.is_some_and(|(me, agreed)| agreed.server != me && matches!(agreed.status, DriveStatus::Up(_)))
    }

    /// Whether it's agreed that a drive is open again.
    pub(crate) fn is_agreed_back(&self, id: DriveId) -> bool {
        matches!(self.agreed_status(id), Some(DriveStatus::Behind(..) | DriveStatus::Up(_)))
    }

    fn agreed_status(&self, id: DriveId) -> Option<DriveStatus> {
        self.followed_state().and_then(|(_, now)| now.drives.get(&id).map(|agreed| agreed.status))
    }

    /// Adds a returned drive by the state of now: more may be agreed than when its return was found.
    fn take_remote_as_agreed(&self, id: DriveId, server: ServerId) {
        let Some((_, now)) = self.followed_state() else { return };
        match now.drives.get(&id).filter(|agreed| agreed.server == server).map(|agreed| agreed.status) {
            Some(DriveStatus::Up(_)) => self.add_remote_drive(id, server, Standing::Current),
            Some(DriveStatus::Behind(left, _)) => self.add_remote_drive(id, server, Standing::Behind(left)),
            Some(DriveStatus::Away(_) | DriveStatus::Retired(_)) | None => {}
        }
    }

    /// The drive was carried to another server: whatever state is followed first, the drive has left its earlier
    /// server.
    fn follow_carried_drive(&self, id: DriveId, status: DriveStatus) {
        use DriveStatus::{Away, Behind, Retired, Up};
        let (Up(left) | Behind(left, _) | Away(left) | Retired(left)) = status;
        let engine = self.clone();
        self.world().spawn(Box::pin(async move {
            engine.lose_as_agreed(id, gone(id), left).await;
            // More may have been agreed meanwhile.
            let Some((me, now)) = engine.followed_state() else { return };
            if let Some(agreed) = now.drives.get(&id).filter(|agreed| agreed.server != me) {
                engine.follow_drive(id, *agreed, None);
            }
        }));
    }

    fn give_up_columns(&self, map: &Map<W>, me: ServerId, now: &ClusterView) {
        for column in 0..map.seats().len() {
            let placed = map.placed(column);
            let primary = now.primary(&placed);
            let is_elsewhere = |group: Group<W>| group.shared.placed != placed;
            if primary == Some(me) && map.seats()[column].group().is_some_and(is_elsewhere) {
                map.begin_yield(column, None); // with other drives the column begins anew
            } else if primary != Some(me) {
                map.begin_yield(column, primary.map(|server| (server, now.view)));
            } else {
                continue;
            }
            // Most states change nothing here.
            if !map.seats()[column].ending().is_empty() {
                let map = map.clone();
                self.world().spawn(Box::pin(async move { map.ended(column).await }));
            }
        }
    }

    fn take_columns_of(&self, map: &Map<W>, me: ServerId, now: &ClusterView) {
        for column in 0..map.seats().len() {
            let placed = map.placed(column);
            let leads = matches!(map.seats()[column].now(), Seated::Here(_));
            if leads || now.primary(&placed) != Some(me) {
                continue;
            }
            let (engine, id) = (self.clone(), map.id());
            self.world().spawn(Box::pin(async move { engine.lead(id, column).await }));
        }
    }
}

fn gone(id: DriveId) -> Loss {
    Loss::Gone { drive: id, reason: "it's agreed that it's down".to_owned() }
}
