//! One simulated member of a ring: a process that follows what is agreed and serves clients. A server has a drive too; a
//! gateway hasn't, and nobody waits for it.

use super::council::importing::Import;
use super::council::{Council, Voice};
use super::importing::stage_of;
use super::network::Network;
use super::old_place::{OldPlace, Way};
use crate::device::SimDisk;
use crate::scenario::server::ServedVolume;
use crate::world::SimWorld;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tepal_codec::xts::{KEY, SectorCipher};
use tepal_drive::world::{Clock, Random};
use tepal_drive::{Drive, Loss, Options};
use tepal_engine::{ClusterView, DriveStatus, Engine, Epochs, Live, Standing, View, Volume};
use tepal_model::{DriveId, Epoch, ServerId, VolumeId};

/// How often a server looks what was agreed.
const LOOK: Duration = Duration::from_micros(1_300);
/// Until a drive is closed that was given up: a minute.
const MOST_LOOKS: u32 = 46_000;

/// What outlives its processes.
pub struct Machine {
    pub id: ServerId,
    pub name: &'static str,
    /// A server's.
    pub drive: Option<(DriveId, SimDisk)>,
}

impl Machine {
    pub fn disk(&self) -> Option<&SimDisk> {
        self.drive.as_ref().map(|(_, disk)| disk)
    }
}

/// One running process.
#[derive(Clone)]
pub struct Node {
    pub world: SimWorld,
    pub engine: Engine<SimWorld>,
    /// That was there first; perhaps it's removed in the end.
    pub volume: Volume<SimWorld>,
    clones: Rc<RefCell<BTreeMap<VolumeId, Volume<SimWorld>>>>,
    machine: Rc<Machine>,
    council: Council,
    voice: Voice,
    /// Its drive is let go, to be opened anew.
    reopens: Rc<Cell<bool>>,
    /// Its drive is back: what was agreed before says nothing of that.
    back_since: Rc<Cell<View>>,
    /// How often the volume was taken from its holders, as it has heard.
    pub holder: Rc<Cell<u64>>,
    /// Where the volume is imported from, if it was when the process began.
    way: Option<Way>,
    /// As it has heard last, and by which revision of the record.
    pub import: Rc<Cell<Option<(Import, u64)>>>,
}

impl Node {
    pub fn start(
        world: SimWorld,
        machine: Rc<Machine>,
        council: &Council,
        (network, old_place): (&Network, &OldPlace),
    ) -> Self {
        let kept = council.kept_by(machine.id).filter(|_| machine.drive.is_some());
        let voice = if machine.drive.is_some() { council.voice(machine.id) } else { council.listener(machine.id) };
        let engine = Engine::among(world.clone(), Arc::new(voice.clone()), network.port(machine.id));
        let (mut spec, holder) = (council.spec(), Rc::new(Cell::new(council.holder())));
        if council.has_codes() {
            const QUIET: [u64; 4] = [0, 2, 50, 2_000];
            engine.destage_after(Duration::from_millis(QUIET[world.next_u64() as usize % QUIET.len()]));
        }
        if let Some(kept) = &kept {
            spec.places = kept.places[&spec.map].clone();
            spec.epochs = kept.epochs.get(&spec.map).cloned().unwrap_or_default();
        }
        let import = council.import();
        let way = import.map(|import| Way::new(old_place.clone(), stage_of(Some(import))));
        let live = |(import, way): (Import, Way)| Arc::new(Live::new(Box::new(way), spec.revision, import.done));
        spec.live = import.zip(way.clone()).map(live);
        let import = Rc::new(Cell::new(import.map(|import| (import, spec.revision))));
        let volume = unlocked(engine.open_volume_among(spec).expect("the volume could be made"));
        engine.all_volumes_opened();
        network.add_host(machine.id, &world, &engine);
        let (clones, council) = (Rc::default(), council.clone());
        let (reopens, back_since) = (Rc::default(), Rc::default());
        let node =
            Node { world, engine, volume, clones, machine, council, voice, reopens, back_since, holder, way, import };
        if let Some(kept) = kept {
            let kept = dated(kept, &ClusterView::default());
            node.world.core().note(kept.view, || format!("{} begins with view {}", node.id(), kept.view));
            node.engine.follow(node.id(), &ClusterView::default(), &kept);
            node.voice.follow(&kept);
        }
        let (tends, follows) = (node.clone(), node.clone());
        if let Some((id, disk)) = node.machine.drive.clone() {
            node.world.spawn_named("open", async move { tends.open_drive(id, disk).await });
        }
        node.world.spawn_named("follow", async move { follows.follow().await });
        if node.way.is_some() && node.machine.drive.is_some() {
            let copies = node.clone();
            node.world.spawn_named("copy", async move { copies.keep_copying().await });
        }
        node
    }

    /// The epoch of a snapshot that it asked for.
    pub async fn take_snapshot(&self, of: VolumeId) -> Option<Epoch> {
        self.voice.take_snapshot(of).await
    }

    pub async fn clone_snapshot(&self, epoch: Epoch) -> Option<VolumeId> {
        self.voice.clone_snapshot(epoch).await
    }

    /// `None` if it doesn't know of it, or not any more.
    pub fn volume_of(&self, id: VolumeId) -> Option<Volume<SimWorld>> {
        if id == self.volume.id() { Some(self.volume.clone()) } else { self.clones.borrow().get(&id).cloned() }
    }

    pub fn keeps_snapshot(&self, epoch: Epoch) -> bool {
        self.council.snapshots().contains(&epoch)
    }

    pub fn under_test(&self) -> Rc<ServedVolume> {
        Rc::new(ServedVolume::of(self.volume.clone()))
    }

    pub fn id(&self) -> ServerId {
        self.machine.id
    }

    pub fn disk(&self) -> Option<&SimDisk> {
        self.machine.disk()
    }

    pub fn drive(&self) -> Option<Drive<SimWorld>> {
        self.machine.drive.as_ref().and_then(|(id, _)| self.engine.drive(*id))
    }

    async fn open_drive(&self, id: DriveId, disk: SimDisk) {
        // Nobody opens a drive that is open.
        let mut looks = 0;
        while disk.is_open() {
            if looks == MOST_LOOKS {
                return self.world.core().fail(format!("drive {id} was given up, and is still open"));
            }
            looks += 1;
            self.world.sleep(LOOK).await;
        }
        match Drive::open(self.world.clone(), disk.open(), None, Options::default()).await {
            Ok(drive) => {
                let Some((left, view)) = self.voice.report_open(id).await else { return };
                self.back_since.set(view);
                self.voice.clone().caught_up(view).await;
                self.world.core().note(left, || format!("{id} is back, with {:?}", drive.marks()));
                self.engine.add_drive(drive, Standing::Behind(left));
            }
            Err(error) => self.world.core().fail(format!("drive {id} can't be opened: {error}")),
        }
    }

    /// Does what follows from what is agreed; while it hears nothing, its lease runs out.
    async fn follow(&self) {
        let (mut before, mut random) = (self.voice.known(), self.world.core().fork());
        loop {
            self.world.sleep(LOOK).await;
            if !self.council.reaches(self.machine.id) {
                continue;
            }
            let heard = self.world.core().now();
            self.voice.hear(heard);
            let (spec, now) = (self.council.spec(), dated(self.council.now(), &before));
            self.holder.set(self.council.holder()); // before the volume has a later revision
            let import = self.council.import();
            let copied = import.map(|import| import.done);
            self.volume.changed(&spec.name, (spec.size, spec.is_replica), spec.revision, copied);
            if random.one_in(4) {
                self.world.sleep(Duration::from_micros(random.skewed(5_000))).await; // the engine's threads are at something else
            }
            self.follow_import(import, spec.revision);
            if *now != before {
                match self.machine.drive {
                    Some(_) => self.engine.follow(self.machine.id, &before, &now),
                    None => self.engine.follow_from_outside(&now),
                }
                self.open_and_end_volumes();
                self.end_what_is_gone();
                self.voice.follow(&now);
                before = ClusterView::clone(&now);
            }
            if let Some((id, disk)) = &self.machine.drive {
                self.voice.note_heard(heard);
                self.reopen_if_given_up(*id, disk, &now);
            }
        }
    }

    /// Comes after the engine knows whether all of the volume is there.
    fn follow_import(&self, import: Option<Import>, revision: u64) {
        self.import.set(import.map(|import| (import, revision)));
        if let Some((import, live)) = import.zip(self.volume.live()) {
            live.is_copied(revision, import.done);
        }
        self.way.iter().for_each(|way| way.set(stage_of(import)));
    }

    /// Whether it's agreed that so much of the volume is there for good.
    pub async fn note_imported(&self, done: u64) -> bool {
        self.voice.note_imported(done).await
    }

    pub async fn end_import(&self) {
        self.voice.end_import().await;
    }

    fn open_and_end_volumes(&self) {
        let there = self.council.volumes();
        let mut clones = self.clones.borrow_mut();
        for &id in there.iter().filter(|&&id| id != self.volume.id()) {
            let open = || {
                let opened = self.engine.open_volume_among(self.council.spec_of_clone(id));
                unlocked(opened.expect("its map could be made"))
            };
            clones.entry(id).or_insert_with(open);
        }
        clones.retain(|id, _| there.contains(id));
        for gone in self.engine.volumes().into_iter().filter(|volume| !there.contains(&volume.id())) {
            gone.cut_off();
            let engine = self.engine.clone();
            self.world.spawn_named("remove", async move { engine.remove_one_of_several(gone.id()).await });
        }
    }

    /// Maps that volumes have left; also of what its drive held when it was away.
    fn end_what_is_gone(&self) {
        let node = self.clone();
        self.world.spawn_named("end maps", async move {
            let is_known = |map| node.council.now().places.contains_key(&map);
            node.engine.end_unknown_maps(is_known).await;
            if let Some(drive) = node.drive() {
                let _ = node.engine.free_unknown(&drive, is_known).await; // if it's lost, that is noticed where it matters
            }
        });
    }

    /// The others may have gone on without its drive.
    fn reopen_if_given_up(&self, id: DriveId, disk: &SimDisk, now: &ClusterView) {
        let is_away = matches!(now.drives[&id].status, DriveStatus::Away(_)) && now.view >= self.back_since.get();
        if is_away && self.engine.drive(id).is_some() && !self.reopens.replace(true) {
            let (node, disk) = (self.clone(), disk.clone());
            self.world.spawn_named("open", async move {
                node.engine.lose_drive(id, Loss::Gone { drive: id, reason: "declared down".to_owned() }).await;
                node.reopens.set(false);
                node.open_drive(id, disk).await;
            });
        }
    }
}

/// What is said of epochs is of the state in which this process heard it first, which differs from server to server.
fn dated(mut now: ClusterView, before: &ClusterView) -> Arc<ClusterView> {
    for (map, epochs) in now.epochs.iter_mut().filter(|(_, epochs)| !epochs.heads.is_empty()) {
        let says = |epochs: &Epochs| (epochs.history.clone(), epochs.heads.clone(), epochs.snapshots.clone());
        let known = before.epochs.get(map).filter(|known| says(known) == says(epochs));
        *epochs = known.cloned().unwrap_or_else(|| Arc::new(Epochs { view: now.view, ..Epochs::clone(epochs) }));
    }
    Arc::new(now)
}

/// An encrypted volume's key is known everywhere, and all of them have the same.
fn unlocked(volume: Volume<SimWorld>) -> Volume<SimWorld> {
    if volume.is_locked() {
        let key: [u8; KEY] = std::array::from_fn(|at| at as u8);
        volume.unlock(SectorCipher::new(&key).expect("its halves differ"));
    }
    volume
}
