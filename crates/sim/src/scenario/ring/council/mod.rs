//! What is agreed in a ring of simulated servers, and who may take part in agreeing: a small fake of the metadata.

pub mod gaps;
pub mod importing;
mod migrations;
mod moves;
mod voice;
mod volumes;

use crate::executor::{Core, SharedTime, Sleep};
use crate::scenario::readers::Readers;
use futures_channel::oneshot;
use importing::Import;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tepal_drive::Loss;
use tepal_engine::{Agreed, ClusterView, CopyChange, DriveStatus, Laid, Placed, Placing, View, VolumeSpec};
use tepal_model::{DriveId, Epoch, MapId, ServerId, VolumeId};
use voice::Heard;
pub use voice::Voice;

/// How long a server that is cut off goes on serving, and after which time the others go on without it.
pub const LEASE: Duration = Duration::from_millis(20);
pub const SURELY_OVER: Duration = Duration::from_millis(25);

/// Clones are the same.
#[derive(Clone)]
pub struct Council(Arc<Mutex<State>>);

struct State {
    time: SharedTime,
    /// A majority of them agrees; if there are none, whoever is there.
    has_codes: bool,
    voters: Vec<ServerId>,
    now: ClusterView,
    /// Of the volume that was there first.
    spec: VolumeSpec,
    /// How often that volume was taken from its holders.
    holder: u64,
    /// Of that volume, until all of it is there.
    import: Option<Import>,
    readers: Readers,
    /// Of each volume, and of each when a snapshot of it was taken.
    sizes: BTreeMap<VolumeId, u64>,
    sizes_then: BTreeMap<Epoch, u64>,
    /// Of the columns that a drive joins, whose place it's to take.
    moving: BTreeMap<(MapId, usize), DriveId>,
    /// Of the drives that are away, since which view they are.
    away: BTreeMap<DriveId, View>,
    /// No map has had a higher id.
    newest_map: MapId,
    /// Of the map that volumes go to, the columns that have taken over all of the window.
    taken_over: BTreeSet<usize>,
    /// Servers that don't reach the others now, and since when.
    cut_off: BTreeMap<ServerId, Duration>,
    dead: BTreeMap<ServerId, Duration>,
    /// The process of each server that was started last.
    voices: BTreeMap<ServerId, Heard>,
    /// What each server has followed last: its next process begins with it.
    followed: BTreeMap<ServerId, ClusterView>,
    /// Who waits until all know a view.
    waiting: Vec<(ServerId, View, oneshot::Sender<()>)>,
    asked: VecDeque<(ServerId, Change, oneshot::Sender<Option<Answer>>)>,
}

/// In which view a drive left or is up again, and the newest one.
type Answer = (View, View);

#[derive(Clone, Debug)]
enum Change {
    /// If it's as it was in that view.
    Down(DriveId, Loss, View),
    /// If nothing has changed since that view.
    Up(DriveId, View),
    /// The first can't be reached from the second, if nothing has changed since that view: its drives are away.
    CutOff(ServerId, ServerId, View),
    /// It's open again: answered with the view in which it had left.
    Back(DriveId),
    /// The volume goes on in a new epoch: answered with the one that was kept.
    Snapshot(VolumeId),
    /// A new volume goes on from that snapshot: answered with its id.
    Clone(Epoch),
    /// Which copies of a column are complete, if nothing has changed since that view.
    CountCopies((MapId, usize), CopyChange, View),
    /// A drive that joins a column has everything, if nothing has changed since that view.
    Joined((MapId, usize), Placing, View),
    /// It has no room.
    CannotJoin((MapId, usize), Placing),
    /// A column of a map that volumes go to has taken over all of the window that is agreed since that view.
    TakenOver((MapId, usize), View),
    /// So much of the volume that is imported is there for good.
    Imported(u64),
    /// All of it is.
    ImportEnds,
}

impl Council {
    pub fn new(time: SharedTime, voters: Vec<ServerId>, spec: VolumeSpec, owner: impl Fn(DriveId) -> ServerId) -> Self {
        let agreed = |&id: &DriveId| (id, Agreed { server: owner(id), status: DriveStatus::Up(1) });
        let drives = spec.places.drives().iter().map(agreed).collect();
        let places = [(spec.map, spec.places.clone())].into();
        let volumes = [(spec.id, spec.map)].into();
        let has_codes = !spec.layout.fragments().are_copies();
        let laid = [(spec.map, Arc::new(laid_of(&spec)))].into();
        let now = ClusterView { view: 1, drives, places, volumes, laid, ..ClusterView::default() };
        let (readers, newest_map, sizes) = (Readers::of(spec.id), spec.map, [(spec.id, spec.size)].into());
        let (cut_off, dead, voices, followed) = Default::default();
        let (waiting, asked) = (Vec::new(), VecDeque::new());
        Council(Arc::new(Mutex::new(State {
            time,
            voters,
            has_codes,
            now,
            spec,
            holder: 0,
            import: None,
            readers,
            sizes,
            sizes_then: BTreeMap::new(),
            moving: BTreeMap::new(),
            away: BTreeMap::new(),
            newest_map,
            taken_over: BTreeSet::new(),
            cut_off,
            dead,
            voices,
            followed,
            waiting,
            asked,
        })))
    }

    /// Whether the first volume began with an erasure code.
    pub fn has_codes(&self) -> bool {
        self.lock().has_codes
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

    /// What a server's database has when a process of it starts: what the one before has followed last. Of the rest it hears later.
    /// Only if the first volume lies where it did then.
    pub fn kept_by(&self, server: ServerId) -> Option<ClusterView> {
        let state = self.lock();
        let kept = state.followed.get(&server)?;
        (kept.volumes.get(&state.spec.id) == Some(&state.spec.map)).then(|| kept.clone())
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
            state.copier_is_heard(&mut random);
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
    Laid { layout: spec.layout.clone(), geometry: spec.geometry.clone() }
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
    fn is_adopted(&self, view: View, by: Option<ServerId>) -> bool {
        let now = self.time.now();
        let acts =
            |heard: &Heard| now < (*lock(&heard.lease)).max(*lock(&heard.granted)) && lock(&heard.known).view < view;
        self.voices.iter().all(|(&server, heard)| Some(server) == by || !acts(heard))
    }

    fn tell_who_waits(&mut self) {
        for (by, view, waits) in std::mem::take(&mut self.waiting) {
            if !self.cut_off.contains_key(&by) && self.is_adopted(view, Some(by)) {
                let _ = waits.send(()); // whoever asked may have given up
            } else {
                self.waiting.push((by, view, waits));
            }
        }
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
        let drives = self.now.drives.iter().filter(|(_, agreed)| agreed.server == server);
        let drives: Vec<DriveId> = drives.map(|(&id, _)| id).collect();
        self.down(drives, true);
    }

    /// All in one view. In which one it left, for each.
    fn down(&mut self, drives: impl IntoIterator<Item = DriveId>, may_return: bool) -> Vec<View> {
        let next = self.now.view + 1;
        let mut take_down = |drive: DriveId| {
            let agreed = self.now.drives.get_mut(&drive).expect("it's one of the ring's");
            let (left, is_change) = match agreed.status {
                DriveStatus::Up(_) => (next, true),
                DriveStatus::Behind(left, _) => (left, true),
                DriveStatus::Away(left) => (left, !may_return),
                DriveStatus::Retired(left) => (left, false),
            };
            if is_change {
                agreed.status = if may_return { DriveStatus::Away(left) } else { DriveStatus::Retired(left) };
                self.away.insert(drive, next);
                self.now.view = next;
            }
            left
        };
        drives.into_iter().map(&mut take_down).collect()
    }

    fn one_down(&mut self, drive: DriveId, may_return: bool) -> View {
        self.down([drive], may_return)[0]
    }

    /// The drives of a server that share something with those of the one that complains are down.
    fn cut_off(&mut self, server: ServerId, by: ServerId) -> View {
        self.down(self.drives_along_with(server, by), true);
        self.now.view
    }

    /// `None` if it doesn't apply any more.
    fn apply(&mut self, change: &Change) -> Option<View> {
        match change {
            Change::Down(drive, loss, known) => match self.now.drives.get(drive)?.status {
                DriveStatus::Behind(left, since) if since > *known => Some(left), // it left, and is back
                _ => Some(self.one_down(*drive, matches!(loss, Loss::Gone { .. }))),
            },
            Change::CutOff(_, _, view) if *view != self.now.view => None,
            Change::CutOff(server, by, _) => Some(self.cut_off(*server, *by)),
            Change::Up(_, view) if *view != self.now.view => None,
            Change::Up(drive, _) => {
                let agreed = self.now.drives.get_mut(drive)?;
                if let DriveStatus::Behind(..) = agreed.status {
                    self.now.view += 1;
                    agreed.status = DriveStatus::Up(self.now.view);
                    self.is_up_again(*drive);
                }
                matches!(self.now.drives[drive].status, DriveStatus::Up(_)).then_some(self.now.view)
            }
            Change::CountCopies(_, _, view) if *view != self.now.view => None,
            Change::CountCopies(column, change, view) => self.count(*column, change).then_some(*view),
            Change::Back(drive) => {
                let left = self.one_down(*drive, true);
                self.now.view += 1;
                let view = self.now.view;
                let agreed = self.now.drives.get_mut(drive)?;
                agreed.status = DriveStatus::Behind(left, view);
                self.away.remove(drive);
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
            Change::Snapshot(_) if self.import.is_some() => None,
            Change::Snapshot(volume) => {
                self.readers.note_drives_away(!self.away.is_empty());
                let epoch = self.readers.take_snapshot(*volume, self.now.view + 1)?;
                self.sizes_then.insert(epoch, self.sizes[volume]);
                self.now.view += 1;
                self.tell_epochs();
                Some(epoch.into())
            }
            Change::Clone(epoch) => self.clone_snapshot(*epoch),
            Change::TakenOver((map, column), since) => self.take_over(*map, *column, *since),
            Change::Imported(done) => self.is_imported(*done),
            Change::ImportEnds => self.import_ends(),
        }
    }

    /// A new volume goes on from that snapshot, and has its volume's maps.
    fn clone_snapshot(&mut self, epoch: Epoch) -> Option<View> {
        let of = self.readers.volume_of(epoch)?;
        if self.now.migrations.values().any(|agreed| agreed.leaves == Some(of)) {
            return None; // it would have to leave the others too
        }
        self.readers.note_drives_away(!self.away.is_empty());
        let id = self.readers.clone_snapshot(epoch, self.now.view + 1)?;
        self.now.view += 1;
        self.now.volumes.insert(id, self.now.volumes[&of]);
        if let Some(ranges) = self.now.ranges.get(&of).cloned() {
            self.now.ranges.insert(id, ranges);
        }
        self.sizes.insert(id, self.sizes_then[&epoch]);
        self.tell_epochs();
        Some(id.0)
    }
}
