//! All drives and volumes of one server, and what happens when a drive leaves or returns.

use crate::answer::{Askers, CopyId};
use crate::applied::{Applied, Slots};
use crate::authority::{Authority, View};
use crate::follow::{ClusterView, DriveStatus};
use crate::holder::Holder;
use crate::map::VolumeSpec;
use crate::peers::{Alone, Peers};
use crate::protocol::primary::Group;
use crate::protocol::primary::members::Presence;
use crate::seat::Taken;
use crate::volume::{OpenVolumeError, Volume};
use futures_channel::oneshot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tepal_drive::world::World;
use tepal_drive::{Drive, Loss};
use tepal_model::{DriveId, IoError, MapId, ServerId, VolumeId};

/// Cheap to clone.
pub struct Engine<W: World> {
    pub(crate) shared: Arc<Shared<W>>,
}

impl<W: World> Clone for Engine<W> {
    fn clone(&self) -> Self {
        Engine { shared: self.shared.clone() }
    }
}

pub(crate) struct Shared<W: World> {
    pub world: W,
    pub authority: Arc<dyn Authority>,
    pub peers: Arc<dyn Peers>,
    /// Who asks about this server's drives.
    pub askers: Askers,
    /// What this server's drives have taken of the requests of gateways.
    pub applied: Applied,
    /// For what this server asks as a gateway.
    pub slots: Slots,
    state: Mutex<State<W>>,
}

struct State<W: World> {
    /// Whether all volumes are open: before, nobody can tell whether a drive misses something.
    complete: bool,
    drives: BTreeMap<DriveId, Entry<W>>,
    volumes: BTreeMap<VolumeId, Volume<W>>,
    /// Drives of which it's being agreed that they are up again.
    settling: BTreeSet<DriveId>,
    /// Which server this is, and the state that was followed last, unless it's alone.
    followed: Option<(ServerId, Arc<ClusterView>)>,
}

/// After it could not be agreed that a drive is up.
const AGREE_AGAIN: Duration = Duration::from_secs(5);
/// The same where a newer view may have been the reason.
const AGREE_SOON: Duration = Duration::from_millis(50);

struct Entry<W: World> {
    status: Status<W>,
    left: Option<View>,
    /// Names this opening of a drive of this server, for other servers. Not 0.
    opening: u64,
    /// Every request that was sent for the first time in that view or a later one has reached it.
    up_since: View,
}

impl<W: World> Entry<W> {
    fn drive(&self) -> Option<&Drive<W>> {
        match &self.status {
            Status::Here(drive) => Some(drive),
            Status::There(_) | Status::Leaving(_) | Status::Missing | Status::Failed => None,
        }
    }
}

enum Status<W: World> {
    Here(Drive<W>),
    /// On this other server.
    There(ServerId),
    /// Being declared down; these wait for the end of it.
    Leaving(Vec<oneshot::Sender<()>>),
    Missing,
    Failed,
}

/// How far a drive's leaving is.
enum Leave {
    /// It had left before.
    Gone,
    UnderWay(oneshot::Receiver<()>),
    /// For that reason.
    Begun(Loss),
}

/// What the metadata says of a drive that is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It's up: it has every write, or knows itself what it misses.
    Current,
    /// It was up in that view last. It takes part, and is up again when it has noted what it misses.
    Behind(View),
}

impl Standing {
    fn of(left: Option<View>) -> Self {
        left.map_or(Standing::Current, Standing::Behind)
    }

    pub(crate) fn left(self) -> Option<View> {
        match self {
            Standing::Current => None,
            Standing::Behind(view) => Some(view),
        }
    }
}

impl<W: World> Engine<W> {
    /// A server that is alone.
    pub fn new(world: W, authority: Arc<dyn Authority>) -> Self {
        Self::among(world, authority, Arc::new(Alone))
    }

    /// One of several.
    pub fn among(world: W, authority: Arc<dyn Authority>, peers: Arc<dyn Peers>) -> Self {
        let slots = Slots::new(world.next_u64());
        let state = Mutex::new(State {
            complete: false,
            drives: BTreeMap::new(),
            volumes: BTreeMap::new(),
            settling: BTreeSet::new(),
            followed: None,
        });
        Engine {
            shared: Arc::new(Shared {
                world,
                authority,
                peers,
                askers: Askers::default(),
                applied: Applied::default(),
                slots,
                state,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<W>> {
        self.shared.state.lock().expect("nothing panics while it holds the engine's lists")
    }

    pub(crate) fn world(&self) -> &W {
        &self.shared.world
    }

    /// A drive that was opened. One that was away is noticed by all volumes, which bring it up to date.
    pub fn add_drive(&self, drive: Drive<W>, standing: Standing) {
        let id = drive.id();
        {
            // At one moment: nobody can have it leave before all volumes know that it's here.
            let mut state = self.lock();
            let opening = self.shared.world.next_u64() | 1;
            let up_since = if standing == Standing::Current { state.followed_view() + 1 } else { View::MAX };
            let status = Status::Here(drive.clone());
            state.drives.insert(id, Entry { status, left: standing.left(), opening, up_since });
            let holder = Holder::Here(drive);
            state.volumes.values().for_each(|volume| volume.member_returned(&holder, standing));
        }
        self.settle_if_known(id);
        // It may have been missing for being the primary of its columns.
        let followed = self.lock().followed.clone();
        if let Some((me, now)) = followed {
            self.take_columns(me, &now);
        }
    }

    /// A drive that the metadata knows and that isn't here.
    pub fn add_absent_drive(&self, id: DriveId, left: View, may_return: bool) {
        let status = if may_return { Status::Missing } else { Status::Failed };
        self.lock().drives.insert(id, Entry { status, left: Some(left), opening: 0, up_since: View::MAX });
    }

    /// A drive of another server, which is up and to be reached. One that was away is noticed by all volumes.
    pub fn add_remote_drive(&self, id: DriveId, server: ServerId, standing: Standing) {
        let groups: Vec<Group<W>> = {
            let mut state = self.lock();
            state.drives.insert(
                id,
                Entry { status: Status::There(server), left: standing.left(), opening: 0, up_since: View::MAX },
            );
            state.volumes.values().flat_map(Volume::groups).collect()
        };
        groups.into_iter().for_each(|group| group.start_hearing(id, server, standing));
    }

    /// It's agreed that a drive of another server is up again.
    pub fn remote_is_current(&self, id: DriveId) {
        if let Some(entry) = self.lock().drives.get_mut(&id).filter(|entry| matches!(entry.status, Status::There(_))) {
            entry.left = None;
        }
        self.volumes().iter().flat_map(Volume::groups).for_each(|group| group.remote_is_current(id));
    }

    /// The drive, if it's one of this server that is here, and the name of this opening of it.
    pub(crate) fn opened(&self, id: DriveId) -> Option<(Drive<W>, u64)> {
        let state = self.lock();
        let entry = state.drives.get(&id)?;
        Some((entry.drive()?.clone(), entry.opening))
    }

    /// The name of this opening of a drive, and since when it's up.
    pub(crate) fn opening_of(&self, drive: &Drive<W>) -> Option<(u64, View)> {
        let state = self.lock();
        let entry = state.drives.get(&drive.id())?;
        entry.drive().filter(|now| now.is_same(drive)).map(|_| (entry.opening, entry.up_since))
    }

    /// Whether a drive was added, be it as one that is away.
    pub fn knows_drive(&self, id: DriveId) -> bool {
        self.lock().drives.contains_key(&id)
    }

    /// Whether a drive is away and may return.
    pub fn awaits_drive(&self, id: DriveId) -> bool {
        self.lock().drives.get(&id).is_some_and(|entry| matches!(entry.status, Status::Missing))
    }

    pub fn drive(&self, id: DriveId) -> Option<Drive<W>> {
        self.lock().drives.get(&id)?.drive().cloned()
    }

    pub fn drives_here(&self) -> Vec<Drive<W>> {
        self.lock().drives.values().filter_map(Entry::drive).cloned().collect()
    }

    /// Names of volumes of which this drive may have the only copy of something that is here and up to date.
    pub fn volumes_with_last_copy_on(&self, id: DriveId) -> Vec<String> {
        let volumes = self.volumes().into_iter().filter(|volume| volume.may_be_alone(id));
        volumes.map(|volume| volume.spec().name).collect()
    }

    /// Forgets a drive that no volume uses.
    pub fn forget_drive(&self, id: DriveId) {
        self.lock().drives.remove(&id);
    }

    /// The drive serves no more: first that is agreed, then every volume marks what it misses, then writes go on.
    /// Returns when all that is done, whoever began it.
    pub async fn lose_drive(&self, id: DriveId, loss: Loss) {
        self.leave(id, loss, None).await;
    }

    /// The same where it's agreed already: the drive was up in that view last.
    pub(crate) async fn has_left(&self, id: DriveId, loss: Loss, left: View) {
        self.leave(id, loss, Some(left)).await;
    }

    async fn leave(&self, id: DriveId, loss: Loss, agreed: Option<View>) {
        let end = match self.begin_leave(id, &loss) {
            Leave::Gone => return,
            Leave::UnderWay(end) => end,
            Leave::Begun(loss) => {
                let (over, end) = oneshot::channel();
                let engine = self.clone();
                // A task of its own: who noticed may be the request of a client that goes away.
                self.world().spawn(Box::pin(async move {
                    engine.finish_leave(id, loss, agreed).await;
                    let _ = over.send(()); // nobody may wait any more
                    if agreed.is_none() {
                        engine.take_again(id).await;
                    }
                }));
                end
            }
        };
        let _ = end.await; // dropped unsent only when the engine goes
    }

    /// A drive of another server that was given up here may have been back already, as agreed: then nothing new will be heard of
    /// it.
    async fn take_again(&self, id: DriveId) {
        self.world().sleep(AGREE_SOON).await;
        let followed = self.lock().followed.clone();
        let Some((me, now)) = followed else { return };
        let Some(agreed) = now.drives.get(&id).filter(|agreed| agreed.server != me && self.awaits_drive(id)) else {
            return;
        };
        if let DriveStatus::Behind(left, _) = agreed.status {
            self.add_remote_drive(id, agreed.server, Standing::Behind(left));
        }
    }

    /// A drive that left before won't return: requests that wait for it end, with an error where only it had the data.
    /// That must have been agreed.
    pub fn retire_absent(&self, id: DriveId) {
        {
            let mut state = self.lock();
            match state.drives.get_mut(&id).map(|entry| &mut entry.status) {
                Some(status @ Status::Missing) => *status = Status::Failed,
                _ => return,
            }
        }
        self.volumes().iter().for_each(|volume| volume.member_retired(id));
    }

    async fn finish_leave(&self, id: DriveId, loss: Loss, agreed: Option<View>) {
        let may_return = matches!(loss, Loss::Gone { .. });
        tracing::debug!(drive = %id, %loss, "drive left");
        self.volumes().iter().for_each(|volume| volume.member_leaving(id));
        // As agreed, whatever was known here: it may just have been agreed that it's up.
        let agreed = match agreed {
            Some(left) => Some(left),
            None => self.shared.authority.drive_down(id, loss).await,
        };
        let Some(left) = agreed else {
            return; // it can't be agreed: this server is stopping, or cut off; nothing is acknowledged meanwhile
        };
        let waiting = loop {
            for volume in self.volumes().into_iter().filter(|volume| volume.is_leaving(id)) {
                volume.member_left(id, left, may_return).await;
            }
            let mut state = self.lock();
            if state.volumes.values().any(|volume| volume.is_leaving(id)) {
                continue; // it was opened meanwhile
            }
            let Some(entry) = state.drives.get_mut(&id) else { return };
            entry.left = Some(left);
            let status = if may_return { Status::Missing } else { Status::Failed };
            break match std::mem::replace(&mut entry.status, status) {
                Status::Leaving(waiting) => waiting,
                Status::Here(_) | Status::There(_) | Status::Missing | Status::Failed => Vec::new(),
            };
        };
        for sender in waiting {
            let _ = sender.send(()); // who has given up waiting needs no answer
        }
        self.volumes().iter().for_each(Volume::wake);
    }

    /// The same for a loss that somebody met: it may be of an earlier opening of a drive that has returned since.
    pub(crate) async fn lose_met(&self, id: DriveId, loss: Loss) {
        if self.drive(id).is_none_or(|drive| drive.loss().is_some()) {
            self.lose_drive(id, loss).await;
        }
    }

    fn begin_leave(&self, id: DriveId, loss: &Loss) -> Leave {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(entry) = state.drives.get_mut(&id) else { return Leave::Gone };
        match &mut entry.status {
            Status::Missing | Status::Failed => Leave::Gone,
            Status::Leaving(waiting) => {
                let (sender, receiver) = oneshot::channel();
                waiting.push(sender);
                Leave::UnderWay(receiver)
            }
            Status::Here(drive) => {
                drive.pull(&loss.to_string());
                // It may have failed before: then it won't return, whoever takes it out.
                let failed = drive.loss().filter(|own| matches!(**own, Loss::Retired { .. }));
                let loss = failed.map_or_else(|| loss.clone(), |own| Loss::clone(&own));
                entry.status = Status::Leaving(Vec::new());
                Leave::Begun(loss)
            }
            Status::There(_) => {
                entry.status = Status::Leaving(Vec::new());
                Leave::Begun(loss.clone())
            }
        }
    }

    /// Serves a volume. What a crash left unsettled is settled as it's read, and in the background.
    pub async fn open_volume(&self, spec: VolumeSpec) -> Result<Volume<W>, OpenVolumeError> {
        let volume = {
            // At one moment, so that no drive comes or goes unnoticed.
            let mut state = self.lock();
            let volume = Volume::open(self, spec, false)?;
            for column in 0..volume.seats().len() {
                let group = volume.open_group(self, column, 0, |id| state.presence(id));
                volume.seats()[column].take(Taken::Here(group));
            }
            state.volumes.insert(volume.id(), volume.clone());
            volume
        };
        volume.start_recovery();
        Ok(volume)
    }

    /// The same where several servers are primaries: of which columns this one is, is to be told.
    pub fn open_volume_among(&self, spec: VolumeSpec) -> Result<Volume<W>, OpenVolumeError> {
        let volume = Volume::open(self, spec, true)?;
        self.lock().volumes.insert(volume.id(), volume.clone());
        Ok(volume)
    }

    /// The view of the state that was followed last; 0 if this server is alone.
    pub(crate) fn followed(&self) -> View {
        self.lock().followed_view()
    }

    pub(crate) fn will_follow(&self, me: ServerId, now: Arc<ClusterView>) {
        self.lock().followed = Some((me, now));
    }

    /// Others were the primary of this group's column since it was opened, unnoticed by this server, which is it again.
    pub(crate) fn lead_anew(&self, group: &Group<W>) {
        let map = group.shared.column.map;
        let Some(volume) = self.volumes().into_iter().find(|volume| volume.spec().map == map) else { return };
        let (column, view) = (group.shared.column.number, self.followed());
        if volume.seats()[column].is_still(group) {
            volume.begin_yield(column, None);
            let engine = self.clone();
            self.world().spawn(Box::pin(async move { engine.lead(volume.id(), column, view).await }));
        }
    }

    /// From that view on this server is the primary of a column. Whoever was it before must not be it any more in any state
    /// that its server knows, or that server must be down.
    pub async fn lead(&self, id: VolumeId, column: usize, view: View) {
        let Some(volume) = self.volume(id) else { return };
        let (map, drives) = (volume.spec().map, volume.holders(column));
        volume.ended(column).await;
        // Nothing of earlier primaries is under way on the drives of this server from here on.
        for drive in drives.iter().copied() {
            if let Some((_, opening)) = self.opened(drive) {
                let copy = CopyId { drive, map, column };
                if !self.shared.askers.admit(copy, None, view, opening).await {
                    return; // somebody is it in a later view, which will be known here
                }
            }
        }
        let (group, hearing) = {
            let state = self.lock();
            if !state.volumes.contains_key(&id)
                || state.followed_view() != view
                || volume.seats()[column].group().is_some()
            {
                return;
            }
            let group = volume.open_group(self, column, view, |id| state.presence(id));
            volume.seats()[column].take(Taken::Here(group.clone()));
            let there = |id: &DriveId| match state.drives.get(id) {
                Some(Entry { status: Status::There(server), left, .. }) => Some((*id, *server, Standing::of(*left))),
                _ => None,
            };
            (group, drives.iter().filter_map(there).collect::<Vec<_>>())
        };
        for (id, server, standing) in hearing {
            group.start_hearing(id, server, standing);
        }
        group.start_recovery();
    }

    /// Call this once all volumes that exist have been opened: only then can a drive be found to know what it misses.
    pub fn all_volumes_opened(&self) {
        let drives: Vec<DriveId> = {
            let mut state = self.lock();
            state.complete = true;
            state.drives.keys().copied().collect()
        };
        drives.into_iter().for_each(|id| self.settle_if_known(id));
    }

    pub fn volume(&self, id: VolumeId) -> Option<Volume<W>> {
        self.lock().volumes.get(&id).cloned()
    }

    pub fn volumes(&self) -> Vec<Volume<W>> {
        self.lock().volumes.values().cloned().collect()
    }

    /// Ends all use of a volume and gives its space back on the drives that are here.
    pub async fn remove_volume(&self, id: VolumeId) {
        let Some(volume) = self.volume(id) else { return };
        volume.remove().await;
        let drives: Vec<DriveId> = {
            let mut state = self.lock();
            state.volumes.remove(&id);
            state.drives.keys().copied().collect()
        };
        drives.into_iter().for_each(|id| self.settle_if_known(id)); // they may have been behind in this volume only
    }

    /// Gives back what a drive holds for maps that are gone, marks too: their volumes were removed while it was away.
    pub async fn free_unknown(&self, drive: &Drive<W>, known: impl Fn(MapId) -> bool) -> Result<(), IoError> {
        let marked = drive.marks().into_iter().map(|mark| mark.map);
        let maps: BTreeSet<MapId> = drive.allocated().into_iter().map(|(map, _)| map).chain(marked).collect();
        for map in maps.into_iter().filter(|&map| !known(map)) {
            drive.remove_map(map).await.map_err(|error| IoError::Unavailable { reason: error.to_string() })?;
        }
        Ok(())
    }

    /// A drive that knows by itself what it misses in each volume is up again, once that is agreed.
    pub(crate) fn settle_if_known(&self, id: DriveId) {
        let view = self.followed();
        if self.behind(id).is_none() || !self.volumes().iter().all(|volume| self.is_known_in(volume, id, view)) {
            return;
        }
        let Some(drive) = self.begin_settling(id) else { return };
        let engine = self.clone();
        self.world().spawn(Box::pin(async move {
            let up_in = engine.shared.authority.up_again(id, view).await;
            let agreed = up_in.is_some();
            // It may have left meanwhile, and even be back: then it may miss something again.
            if up_in.is_some_and(|view| engine.note_current(&drive, view)) {
                tracing::debug!(drive = %id, "drive is up again");
                engine.volumes().iter().for_each(|volume| volume.member_is_current(&Holder::Here(drive.clone())));
            }
            drop(drive);
            if !agreed {
                engine.world().sleep(if view == 0 { AGREE_AGAIN } else { AGREE_SOON }).await;
            }
            engine.end_settling(id);
            engine.settle_if_known(id);
        }));
    }

    /// Whether what a drive of this server misses in a volume is known: to this server or to the other primaries.
    fn is_known_in(&self, volume: &Volume<W>, id: DriveId, view: View) -> bool {
        let Some((_, opening)) = self.opened(id) else { return false };
        let map = volume.spec().map;
        let mut columns = (0..volume.seats().len()).filter(|&column| volume.holders(column).contains(&id));
        columns.all(|column| match volume.seats()[column].now() {
            Taken::Here(group) => group.knows_what_it_misses(id),
            Taken::There(server, _) => {
                self.shared.askers.is_noted(CopyId { drive: id, map, column }, server, opening, view)
            }
            Taken::Vacant => false,
        })
    }

    /// The drive, if it's here, wasn't up when it was added, and all volumes are open.
    fn behind(&self, id: DriveId) -> Option<Drive<W>> {
        let state = self.lock();
        let entry = state.drives.get(&id).filter(|entry| state.complete && entry.left.is_some())?;
        entry.drive().cloned()
    }

    /// The same, if nobody is at it already.
    fn begin_settling(&self, id: DriveId) -> Option<Drive<W>> {
        let drive = self.behind(id)?;
        self.lock().settling.insert(id).then_some(drive)
    }

    /// Whether it's being agreed that the drive is up.
    pub(crate) fn is_settling(&self, id: DriveId) -> bool {
        self.lock().settling.contains(&id)
    }

    fn end_settling(&self, id: DriveId) {
        self.lock().settling.remove(&id);
    }

    fn note_current(&self, drive: &Drive<W>, view: View) -> bool {
        let mut state = self.lock();
        let Some(entry) = state.drives.get_mut(&drive.id()) else { return false };
        let same = matches!(&entry.status, Status::Here(now) if now.is_same(drive));
        if same {
            entry.left = None;
            entry.up_since = view;
        }
        same
    }
}

impl<W: World> State<W> {
    fn followed_view(&self) -> View {
        self.followed.as_ref().map_or(0, |(_, now)| now.view)
    }

    fn presence(&self, id: DriveId) -> (Presence<W>, Option<View>) {
        match self.drives.get(&id) {
            None => (Presence::Missing, Some(0)),
            Some(entry) => {
                let presence = match &entry.status {
                    Status::Here(drive) => Presence::Here(Holder::Here(drive.clone())),
                    Status::There(_) if entry.left.is_none() => Presence::Unheard,
                    Status::There(_) => Presence::Missing,
                    Status::Leaving(_) => Presence::Leaving,
                    Status::Missing => Presence::Missing,
                    Status::Failed => Presence::Failed,
                };
                (presence, entry.left)
            }
        }
    }
}
