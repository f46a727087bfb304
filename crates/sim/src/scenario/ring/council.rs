//! What is agreed in a ring of simulated servers, and who may take part in agreeing: a small fake of the metadata.

use crate::executor::{Core, SharedTime, Sleep};
use crate::scenario::readers::Readers;
use futures_channel::oneshot;
use futures_util::future::{BoxFuture, ready};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tepal_drive::Loss;
use tepal_engine::{
    Agreed, Authority, ClusterView, DriveStatus, Epochs, Laid, Migration, Placed, Places, Placing, View, VolumeSpec,
};
use tepal_model::{CHUNK, DriveId, Epoch, MapId, MigrationStage, ServerId, VolumeId};
use tepal_wire::message::DriveFailure;

/// How long a server that is cut off goes on serving, and after which time the others go on without it.
pub const LEASE: Duration = Duration::from_millis(20);
pub const SURELY_OVER: Duration = Duration::from_millis(25);

/// Clones are the same.
#[derive(Clone)]
pub struct Council(Arc<Mutex<State>>);

struct State {
    time: SharedTime,
    /// A majority of them agrees; if there are none, whoever is there.
    voters: Vec<ServerId>,
    now: ClusterView,
    /// Of the volume that was there first.
    spec: VolumeSpec,
    readers: Readers,
    /// Of the columns that a drive joins, whose place it's to take.
    moving: BTreeMap<(MapId, usize), DriveId>,
    /// No map has had a higher id.
    newest_map: MapId,
    /// Of the map that volumes go to, the columns that have taken over all of the window.
    taken_over: BTreeSet<usize>,
    /// Servers that don't reach the others now, and since when.
    cut_off: BTreeMap<ServerId, Duration>,
    dead: BTreeMap<ServerId, Duration>,
    /// The process of each server that was started last.
    voices: BTreeMap<ServerId, Heard>,
    /// Who waits until all know a view.
    waiting: Vec<(ServerId, View, oneshot::Sender<()>)>,
    asked: VecDeque<(ServerId, Change, oneshot::Sender<Option<Answer>>)>,
}

/// In which view a drive was up last or is up again, and the newest one.
type Answer = (View, View);

#[derive(Clone, Debug)]
enum Change {
    /// If it's as it was in that view.
    Down(DriveId, Loss, View),
    /// If nothing has changed since that view.
    Up(DriveId, View),
    /// The first can't be reached from the second, if nothing has changed since that view: its drives are away.
    CutOff(ServerId, ServerId, View),
    /// It's open again: answered with the view in which it was up last.
    Back(DriveId),
    /// The volume goes on in a new epoch: answered with the one that was kept.
    Snapshot(VolumeId),
    /// A new volume goes on from that snapshot: answered with its id.
    Clone(Epoch),
    /// A drive that joins a column has everything, if nothing has changed since that view.
    Joined((MapId, usize), Placing, View),
    /// It has no room.
    CannotJoin((MapId, usize), Placing),
    /// A column of a map that volumes go to has taken over all of the window that is agreed since that view.
    TakenOver((MapId, usize), View),
}

/// What a process has heard.
#[derive(Clone, Default)]
struct Heard {
    /// The state that it follows.
    known: Arc<Mutex<ClusterView>>,
    /// Until when it may serve.
    lease: Arc<Mutex<Duration>>,
    /// Who waits until it follows a view.
    catching_up: Arc<Mutex<Vec<CatchingUp>>>,
}

type CatchingUp = (View, oneshot::Sender<()>);

/// One server's part in it.
#[derive(Clone)]
pub struct Voice {
    council: Council,
    me: ServerId,
    heard: Heard,
}

impl Council {
    pub fn new(time: SharedTime, voters: Vec<ServerId>, spec: VolumeSpec, owner: impl Fn(DriveId) -> ServerId) -> Self {
        let agreed = |&id: &DriveId| (id, Agreed { server: owner(id), status: DriveStatus::Up(1) });
        let drives = spec.places.drives().iter().map(agreed).collect();
        let places = [(spec.map, spec.places.clone())].into();
        let volumes = [(spec.id, spec.map)].into();
        let laid = [(spec.map, Arc::new(laid_of(&spec)))].into();
        let now = ClusterView { view: 1, drives, places, volumes, laid, ..ClusterView::default() };
        let (readers, newest_map) = (Readers::of(spec.id), spec.map);
        let (cut_off, dead, voices) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (waiting, asked) = (Vec::new(), VecDeque::new());
        Council(Arc::new(Mutex::new(State {
            time,
            voters,
            now,
            spec,
            readers,
            moving: BTreeMap::new(),
            newest_map,
            taken_over: BTreeSet::new(),
            cut_off,
            dead,
            voices,
            waiting,
            asked,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn now(&self) -> ClusterView {
        self.lock().now.clone()
    }

    pub fn voice(&self, me: ServerId) -> Voice {
        let heard = Heard::default();
        self.lock().voices.insert(me, heard.clone());
        Voice { council: self.clone(), me, heard }
    }

    /// For who has no say, and leads nothing.
    pub fn listener(&self, me: ServerId) -> Voice {
        Voice { council: self.clone(), me, heard: Heard::default() }
    }

    /// Whether a server, or a gateway, hears what is agreed.
    pub fn reaches(&self, server: ServerId) -> bool {
        let state = self.lock();
        state.has_majority() && !state.cut_off.contains_key(&server)
    }

    pub fn cut_off(&self, server: ServerId, at: Duration) {
        self.lock().cut_off.entry(server).or_insert(at);
    }

    pub fn join_again(&self, server: ServerId) {
        self.lock().cut_off.remove(&server);
    }

    pub fn died(&self, server: ServerId, at: Duration) {
        let mut state = self.lock();
        state.dead.insert(server, at);
        state.asked.retain(|(by, ..)| *by != server);
        state.waiting.retain(|(by, ..)| *by != server);
        state.voices.remove(&server);
    }

    pub fn revive(&self, server: ServerId) {
        self.lock().dead.remove(&server);
    }

    /// Whether all drives are up.
    pub fn all_are_up(&self) -> bool {
        self.lock().now.drives.values().all(|agreed| matches!(agreed.status, DriveStatus::Up(_)))
    }

    /// Whether the others go on without a server.
    pub fn is_down(&self, server: ServerId) -> bool {
        is_away(&self.lock().now, server)
    }

    /// The volume's record, as the next who looks hears of it.
    pub fn spec(&self) -> VolumeSpec {
        self.lock().spec.clone()
    }

    /// The volume's record is another from now on; what was sent by the one before is stale.
    pub fn change_record(&self) {
        self.lock().spec.revision += 1;
    }

    /// The epochs that are kept.
    pub fn snapshots(&self) -> Vec<Epoch> {
        self.lock().readers.kept()
    }

    /// That volume and its clones, as far as they are there.
    pub fn volumes(&self) -> Vec<VolumeId> {
        self.lock().readers.volumes()
    }

    /// What a clone is opened with.
    pub fn spec_of_clone(&self, id: VolumeId) -> VolumeSpec {
        let state = self.lock();
        let map = state.now.volumes[&id];
        let (laid, places) = (&state.now.laid[&map], state.now.places[&map].clone());
        let (layout, geometry) = (laid.layout.clone(), laid.geometry);
        let epochs = state.now.epochs.get(&map).cloned().unwrap_or_default();
        let (name, revision) = (format!("v{}", id.0), 1);
        VolumeSpec { id, name, revision, map, layout, geometry, places, epochs, ..state.spec.clone() }
    }

    /// Which map each volume has; of one that goes, the one that it leaves.
    pub fn maps(&self) -> BTreeMap<VolumeId, MapId> {
        self.lock().now.volumes.clone()
    }

    /// Nobody needs a snapshot any more: whether that is agreed.
    pub fn remove_snapshot(&self, epoch: Epoch) -> bool {
        self.lock().change_readers(|readers, _| readers.remove(epoch))
    }

    /// Nobody needs a volume any more, nor its snapshots: whether that is agreed.
    pub fn remove_volume(&self, id: VolumeId) -> bool {
        let mut state = self.lock();
        let is_agreed = state.change_readers(|readers, _| readers.remove_volume(id));
        if is_agreed {
            state.forget_volume(id);
        }
        is_agreed
    }

    /// The volume is again what it was: whether that is agreed.
    pub fn roll_back(&self, to: Epoch) -> bool {
        self.lock().change_readers(|readers, view| readers.roll_back(to, view))
    }

    /// A drive is to take another's place in a column, if it's up and has none there: whether that is agreed.
    pub fn begin_move(&self, of: (MapId, usize), copy: usize, to: DriveId) -> bool {
        let mut state = self.lock();
        let placed = &state.now.places[&of.0].columns[of.1];
        let is_up = matches!(state.now.drives[&to].status, DriveStatus::Up(_));
        if !is_up || placed.joins.is_some() || placed.has(to) {
            return false;
        }
        let from = placed.holders[copy].drive;
        state.moving.insert(of, from);
        state.place(of, |placed, since| placed.joins = Some(Placing { drive: to, since }));
        true
    }

    /// The move of a column is called off.
    pub fn end_move(&self, of: (MapId, usize)) {
        let mut state = self.lock();
        if state.moving.remove(&of).is_some() {
            state.place(of, |placed, _| placed.joins = None);
        }
    }

    /// All volumes that have this one's map, or this one alone, are to go to a map of that form, unless some go somewhere already:
    /// whether that is agreed.
    pub fn begin_migration(&self, (of, alone): (VolumeId, bool), (to, places): (Laid, Places), seed: u64) -> bool {
        let mut state = self.lock();
        let source = state.now.volumes[&of];
        let is_shared = state.now.volumes.values().filter(|map| **map == source).count() > 1;
        if !state.now.migrations.is_empty() || (alone && !is_shared) {
            return false;
        }
        state.now.view += 1;
        state.newest_map.0 += 1;
        let target = state.newest_map;
        let (from, chunks) = (Laid::clone(&state.now.laid[&source]), state.spec.size.div_ceil(CHUNK));
        let (done, fence, reversed, stage, rate, since) = (0, 1, false, MigrationStage::Running, None, state.now.view);
        let leaves = alone.then_some(of);
        let migration =
            Migration { source, target, from, to, chunks, seed, done, fence, reversed, stage, rate, leaves, since };
        state.now.places.insert(target, Arc::new(places));
        state.now.migrations.insert(source, Arc::new(migration));
        state.tell_epochs();
        state.taken_over.clear();
        true
    }

    /// It rests, or goes on.
    pub fn change_migration(&self, to: MigrationStage) {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(migration) = state.now.migrations.values_mut().next() else { return };
        if migration.stage != to {
            state.now.view += 1;
            let migration = Arc::make_mut(migration);
            (migration.stage, migration.since) = (to, state.now.view);
            state.taken_over.clear();
        }
    }

    /// It goes the other way from now on.
    pub fn turn_migration(&self) {
        let mut state = self.lock();
        let Some((_, was)) = state.now.migrations.pop_first() else { return };
        state.now.view += 1;
        state.taken_over.clear();
        let was = Migration::clone(&was);
        let next = Migration {
            source: was.target,
            target: was.source,
            from: was.to,
            to: was.from,
            done: was.chunks - was.fence,
            fence: was.chunks - was.done,
            stage: MigrationStage::Running,
            reversed: !was.reversed,
            since: state.now.view,
            ..was
        };
        let (map, laid, leaves) = (next.source, next.from.clone(), next.leaves);
        state.now.migrations.insert(map, Arc::new(next));
        state.go_to_map(was.source, leaves, (map, &laid));
    }

    /// Whether volumes go anywhere.
    pub fn migrates(&self) -> bool {
        !self.lock().now.migrations.is_empty()
    }

    /// Whether a drive joins any column.
    pub fn moves_anything(&self) -> bool {
        !self.lock().moving.is_empty()
    }

    /// What the volumes of a map and their snapshots see.
    pub fn epochs(&self, map: MapId) -> Arc<Epochs> {
        self.lock().now.epochs.get(&map).cloned().unwrap_or_default()
    }

    /// Whether one acts by it that the others go on without another.
    pub fn is_down_for(&self, one: ServerId, other: ServerId) -> bool {
        let known = self.lock().voices.get(&one).map(|heard| heard.known.clone());
        match known {
            Some(known) => is_away(&lock(&known), other),
            // Gateways have no say.
            None => self.is_down(other) && self.reaches(one),
        }
    }

    /// Answers one question after another, and declares servers down that have been away for too long.
    pub async fn serve(self, core: Rc<Core>) {
        let mut random = core.fork();
        loop {
            Sleep::until(&core, core.now() + Duration::from_micros(random.between(50..2_000))).await;
            let now = core.now();
            let late: BTreeSet<ServerId> = {
                let state = self.lock();
                let away = state.cut_off.iter().chain(&state.dead);
                away.filter(|&(_, &since)| now > since + SURELY_OVER).map(|(&server, _)| server).collect()
            };
            let mut state = self.lock();
            if !state.has_majority() {
                continue;
            }
            for server in late {
                state.server_down(server);
            }
            state.tell_who_waits();
            let position = state.asked.iter().position(|(by, ..)| !state.cut_off.contains_key(by));
            if let Some((by, change, answer)) = position.and_then(|at| state.asked.remove(at)) {
                let view = state.apply(&change);
                core.note(view.unwrap_or(0), || format!("{by} asked: {change:?}; view {}", state.now.view));
                let _ = answer.send(view.map(|view| (view, state.now.view))); // whoever asked may be dead
            }
        }
    }
}

fn laid_of(spec: &VolumeSpec) -> Laid {
    Laid { layout: spec.layout.clone(), geometry: spec.geometry }
}

fn goes_with(agreed: &Migration, id: VolumeId) -> bool {
    agreed.leaves.is_none_or(|leaver| leaver == id)
}

/// Whether by this state the others go on without a server.
fn is_away(state: &ClusterView, server: ServerId) -> bool {
    let mut of_server = state.drives.values().filter(|agreed| agreed.server == server).peekable();
    let is_known = of_server.peek().is_some();
    is_known && of_server.all(|agreed| matches!(agreed.status, DriveStatus::Away(_) | DriveStatus::Retired(_)))
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Whether enough of the voters are there, and reach each other.
    fn has_majority(&self) -> bool {
        let is_there = |id: &&ServerId| !self.dead.contains_key(id) && !self.cut_off.contains_key(id);
        self.voters.iter().filter(is_there).count() > self.voters.len() / 2 || self.voters.is_empty()
    }

    /// A process that died and one whose lease has ended act no more.
    fn is_adopted(&self, view: View, by: ServerId) -> bool {
        let now = self.time.now();
        let acts = |heard: &Heard| now < *lock(&heard.lease) && lock(&heard.known).view < view;
        self.voices.iter().all(|(&server, heard)| server == by || !acts(heard))
    }

    fn tell_who_waits(&mut self) {
        for (by, view, waits) in std::mem::take(&mut self.waiting) {
            if !self.cut_off.contains_key(&by) && self.is_adopted(view, by) {
                let _ = waits.send(()); // whoever asked may have given up
            } else {
                self.waiting.push((by, view, waits));
            }
        }
    }

    /// What a volume that leaves others shares with them stays shared: whether it's agreed.
    fn change_readers(&mut self, change: impl Fn(&mut Readers, View)) -> bool {
        let mut readers = self.readers.clone();
        change(&mut readers, self.now.view + 1);
        let leaver = self.now.migrations.values().next().and_then(|agreed| Some((agreed.leaves?, agreed)));
        if let Some((leaver, agreed)) = leaver {
            let is_other = |id| self.now.volumes.get(&id).is_some_and(|map| agreed.is_about(*map));
            let [seen, by_others] = self.readers.seen_by(leaver, is_other);
            let [still, still_by_others] = readers.seen_by(leaver, is_other);
            let shared = seen.intersection(&by_others);
            if shared.into_iter().any(|epoch| still.contains(epoch) && !still_by_others.contains(epoch)) {
                return false;
            }
        }
        self.readers = readers;
        self.now.view += 1;
        self.tell_epochs();
        true
    }

    /// Maps that nobody has any more are forgotten, and who goes alone goes nowhere.
    fn forget_volume(&mut self, id: VolumeId) {
        self.now.volumes.remove(&id);
        let volumes = &self.now.volumes;
        let goes = |agreed: &Migration| volumes.iter().any(|(&id, &map)| map == agreed.source && goes_with(agreed, id));
        self.now.migrations.retain(|_, agreed| goes(agreed));
        self.forget_maps();
        self.tell_epochs();
    }

    fn forget_maps(&mut self) {
        let targets: Vec<MapId> = self.now.migrations.values().map(|agreed| agreed.target).collect();
        let volumes: BTreeSet<MapId> = self.now.volumes.values().copied().collect();
        let is_used = |map: &MapId| volumes.contains(map) || targets.contains(map);
        self.now.places.retain(|map, _| is_used(map));
        self.now.epochs.retain(|map, _| is_used(map));
        self.now.laid.retain(|map, _| is_used(map));
        self.moving.retain(|(map, _), _| is_used(map));
    }

    /// A column has everything of the window; with the last one it's over.
    fn take_over(&mut self, map: MapId, column: usize, since: View) -> Option<View> {
        let is_said = |now: &&Arc<Migration>| (now.target, now.since) == (map, since);
        self.now.migrations.values().find(is_said)?;
        self.taken_over.insert(column);
        if self.taken_over.len() == self.now.places[&map].columns.len() {
            self.window_is_over();
        }
        Some(self.now.view)
    }

    /// The next chunk; or they have arrived.
    fn window_is_over(&mut self) {
        self.now.view += 1;
        self.taken_over.clear();
        let Some((_, was)) = self.now.migrations.pop_first() else { return };
        let mut next = Migration { since: self.now.view, ..(*was).clone() };
        if was.fence < was.chunks {
            (next.done, next.fence) = (was.fence, was.fence + 1);
            self.now.migrations.insert(next.source, Arc::new(next));
        } else {
            self.go_to_map(was.source, was.leaves, (was.target, &was.to));
            self.forget_maps();
        }
    }

    /// The records of volumes that have gone from a map, or of one that has left the others, name another one from now on.
    fn go_to_map(&mut self, before: MapId, leaves: Option<VolumeId>, (map, laid): (MapId, &Laid)) {
        let goes = |id: &VolumeId| leaves.is_none_or(|leaver| leaver == *id);
        self.now.volumes.iter_mut().filter(|(id, at)| **at == before && goes(id)).for_each(|(_, at)| *at = map);
        self.now.laid.insert(map, Arc::new(laid.clone()));
        if self.now.volumes.get(&self.spec.id) == Some(&map) {
            self.spec.map = map;
            (self.spec.layout, self.spec.geometry) = (laid.layout.clone(), laid.geometry);
            self.spec.places = self.now.places[&map].clone();
        }
        self.tell_epochs();
    }

    fn drives_along_with(&self, server: ServerId, other: ServerId) -> BTreeSet<DriveId> {
        let is_of =
            |id: &DriveId, whose: ServerId| self.now.drives.get(id).is_some_and(|agreed| agreed.server == whose);
        let columns = self.now.places.values().flat_map(|table| &table.columns);
        let is_left = |map: &MapId| self.now.migrations.contains_key(map);
        let left = self.now.places.iter().filter(|(map, _)| is_left(map)).flat_map(|(_, table)| &table.columns);
        let left = left.filter(|placed| placed.holders.len() > 1);
        let shared = columns.filter(|placed| placed.all().any(|id| is_of(&id, other)));
        // What volumes leave is asked of whoever has it.
        shared.chain(left).flat_map(Placed::all).filter(|id| is_of(id, server)).collect()
    }

    fn server_down(&mut self, server: ServerId) {
        let up = |agreed: &Agreed| !matches!(agreed.status, DriveStatus::Away(_) | DriveStatus::Retired(_));
        let drives = self.now.drives.iter().filter(|(_, agreed)| agreed.server == server && up(agreed));
        let drives: Vec<DriveId> = drives.map(|(&id, _)| id).collect();
        for id in drives {
            self.down(id, true);
        }
    }

    fn down(&mut self, drive: DriveId, may_return: bool) -> View {
        let view = self.now.view;
        let agreed = self.now.drives.get_mut(&drive).expect("it's one of the ring's");
        let (left, is_change) = match agreed.status {
            DriveStatus::Up(_) => (view, true),
            DriveStatus::Behind(left, _) => (left, true),
            DriveStatus::Away(left) => (left, !may_return),
            DriveStatus::Retired(left) => (left, false),
        };
        if is_change {
            agreed.status = if may_return { DriveStatus::Away(left) } else { DriveStatus::Retired(left) };
            self.now.view += 1;
        }
        left
    }

    /// As of now. Of two maps between which volumes go it's the same.
    fn tell_epochs(&mut self) {
        let maps: Vec<MapId> = self.now.places.keys().copied().collect();
        for map in maps {
            let about = self.now.migrations.values().find(|agreed| agreed.is_about(map));
            let are_one = |other: MapId| other == map || about.is_some_and(|agreed| agreed.is_about(other));
            let is_reader = |id: VolumeId| self.now.volumes.get(&id).is_some_and(|map| are_one(*map));
            let epochs = self.readers.epochs_of(is_reader, self.now.view);
            self.now.epochs.insert(map, Arc::new(epochs));
        }
    }

    /// In a new view.
    fn place(&mut self, (map, column): (MapId, usize), change: impl Fn(&mut Placed, View)) {
        self.now.view += 1;
        let view = self.now.view;
        let table = self.now.places.get_mut(&map).expect("its copies move");
        change(&mut Arc::make_mut(table).columns[column], view);
    }

    /// Whether that drive still joins the column, since then.
    fn joins(&self, (map, column): (MapId, usize), joins: Placing) -> bool {
        self.now.places.get(&map).is_some_and(|table| table.columns[column].joins == Some(joins))
    }

    /// `None` if it doesn't apply any more.
    fn apply(&mut self, change: &Change) -> Option<View> {
        match change {
            Change::Down(drive, loss, known) => match self.now.drives[drive].status {
                DriveStatus::Behind(left, since) if since > *known => Some(left), // it left, and is back
                _ => Some(self.down(*drive, matches!(loss, Loss::Gone { .. }))),
            },
            Change::CutOff(_, _, view) if *view != self.now.view => None,
            Change::CutOff(server, by, _) => {
                let shared = self.drives_along_with(*server, *by);
                for drive in shared {
                    if !matches!(self.now.drives[&drive].status, DriveStatus::Away(_) | DriveStatus::Retired(_)) {
                        self.down(drive, true);
                    }
                }
                Some(self.now.view)
            }
            Change::Up(_, view) if *view != self.now.view => None,
            Change::Up(drive, _) => {
                let agreed = self.now.drives.get_mut(drive)?;
                if let DriveStatus::Behind(..) = agreed.status {
                    self.now.view += 1;
                    agreed.status = DriveStatus::Up(self.now.view);
                }
                matches!(agreed.status, DriveStatus::Up(_)).then_some(self.now.view)
            }
            Change::Back(drive) => {
                let left = self.down(*drive, true);
                self.now.view += 1;
                let view = self.now.view;
                let agreed = self.now.drives.get_mut(drive)?;
                agreed.status = DriveStatus::Behind(left, view);
                Some(left)
            }
            Change::Joined(_, _, view) if *view != self.now.view => None,
            Change::Joined(column, joins, _) => {
                let is_up = matches!(self.now.drives[&joins.drive].status, DriveStatus::Up(_));
                let from = self.moving.get(column).copied().filter(|_| is_up && self.joins(*column, *joins))?;
                self.moving.remove(column);
                self.place(*column, |placed, since| {
                    let was = placed.holders.iter_mut().find(|placing| placing.drive == from);
                    *was.expect("it had a place when the move began") = Placing { drive: joins.drive, since };
                    placed.joins = None;
                });
                Some(self.now.view)
            }
            Change::CannotJoin(column, joins) => {
                if self.joins(*column, *joins) {
                    self.moving.remove(column);
                    self.place(*column, |placed, _| placed.joins = None);
                }
                Some(self.now.view)
            }
            Change::Snapshot(volume) => {
                let epoch = self.readers.take_snapshot(*volume, self.now.view + 1)?;
                self.now.view += 1;
                self.tell_epochs();
                Some(epoch.into())
            }
            Change::Clone(epoch) => {
                let of = self.readers.volume_of(*epoch)?;
                if self.now.migrations.values().any(|agreed| agreed.leaves == Some(of)) {
                    return None; // it would have to leave the others too
                }
                let id = self.readers.clone_snapshot(*epoch, self.now.view + 1)?;
                self.now.view += 1;
                self.now.volumes.insert(id, self.now.volumes[&of]);
                self.tell_epochs();
                Some(id.0)
            }
            Change::TakenOver((map, column), since) => self.take_over(*map, *column, *since),
        }
    }
}

impl Voice {
    fn ask(&self, change: Change) -> BoxFuture<'static, Option<Answer>> {
        let (answer, answered) = oneshot::channel();
        self.council.lock().asked.push_back((self.me, change, answer));
        Box::pin(async move { answered.await.ok().flatten() })
    }

    /// Says that a drive of this server is open again. The view in which it was up last.
    pub async fn report_open(&self, drive: DriveId) -> Option<View> {
        self.ask(Change::Back(drive)).await.map(|(left, _)| left)
    }

    /// Takes a snapshot of a volume: its epoch, once all write in the next one.
    pub async fn take_snapshot(&self, of: VolumeId) -> Option<Epoch> {
        let (epoch, view) = self.ask(Change::Snapshot(of)).await?;
        self.clone().caught_up(view).await;
        self.adopted(view).await;
        Epoch::try_from(epoch).ok()
    }

    /// A clone of a snapshot, if that is still kept.
    pub async fn clone_snapshot(&self, epoch: Epoch) -> Option<VolumeId> {
        self.ask(Change::Clone(epoch)).await.map(|(id, _)| VolumeId(id))
    }

    /// Returns once it follows that view.
    async fn caught_up(self, view: View) {
        let (caught_up, wait) = oneshot::channel();
        lock(&self.heard.catching_up).push((view, caught_up));
        self.tell_who_catches_up();
        let _ = wait.await; // dropped when its process has ended
    }

    fn tell_who_catches_up(&self) {
        let known = self.known().view;
        for (_, waits) in lock(&self.heard.catching_up).extract_if(.., |(view, _)| *view <= known) {
            let _ = waits.send(()); // whoever asked may have given up
        }
    }

    pub fn known(&self) -> ClusterView {
        lock(&self.heard.known).clone()
    }

    /// From now on it follows this state.
    pub fn follow(&self, now: &ClusterView) {
        *lock(&self.heard.known) = now.clone();
        self.tell_who_catches_up();
    }

    /// It has heard the others at that time, and leads something until its lease ends.
    pub fn note_heard(&self, at: Duration) {
        *lock(&self.heard.lease) = at + LEASE;
    }
}

impl Authority for Voice {
    fn drive_down(&self, drive: DriveId, loss: Loss) -> BoxFuture<'static, Option<View>> {
        let (voice, agreed) = (self.clone(), self.ask(Change::Down(drive, loss, self.known().view)));
        Box::pin(async move {
            let (left, newest) = agreed.await?;
            voice.caught_up(newest).await;
            Some(left)
        })
    }

    fn up_again(&self, drive: DriveId, view: View) -> BoxFuture<'static, Option<View>> {
        let agreed = self.ask(Change::Up(drive, view));
        Box::pin(async move { agreed.await.map(|(view, _)| view) })
    }

    fn cut_off(&self, server: ServerId, view: View) -> BoxFuture<'static, bool> {
        let heard = self.ask(Change::CutOff(server, self.me, view));
        Box::pin(async move { heard.await.is_some() })
    }

    fn heeds(
        &self,
        from: ServerId,
        view: View,
        map: MapId,
        column: usize,
    ) -> BoxFuture<'static, Result<(), DriveFailure>> {
        let known = self.known();
        let placed = known.places.get(&map).and_then(|table| table.columns.get(column));
        let heeds = match placed.map(|placed| known.primary(placed)) {
            _ if known.view < view => Err(DriveFailure::Busy),
            Some(Some(primary)) if primary == from => Ok(()),
            _ => Err(DriveFailure::NotPrimary),
        };
        Box::pin(ready(heeds))
    }

    fn joined(&self, map: MapId, column: usize, joins: Placing, view: View) -> BoxFuture<'static, bool> {
        let agreed = self.ask(Change::Joined((map, column), joins, view));
        Box::pin(async move { agreed.await.is_some() })
    }

    fn cannot_join(&self, map: MapId, column: usize, joins: Placing) -> BoxFuture<'static, bool> {
        let agreed = self.ask(Change::CannotJoin((map, column), joins));
        Box::pin(async move { agreed.await.is_some() })
    }

    fn taken_over(&self, target: MapId, column: usize, since: View) -> BoxFuture<'static, bool> {
        let agreed = self.ask(Change::TakenOver((target, column), since));
        Box::pin(async move { agreed.await.is_some() })
    }

    fn adopted(&self, view: View) -> BoxFuture<'static, ()> {
        let (answer, answered) = oneshot::channel();
        self.council.lock().waiting.push((self.me, view, answer));
        Box::pin(async move {
            if answered.await.is_err() {
                std::future::pending::<()>().await; // the run is over
            }
        })
    }

    fn may_serve(&self) -> bool {
        let now = self.council.lock().time.now();
        now < *lock(&self.heard.lease)
    }
}
