//! The equipment of the stories: one server, its drives and a volume.

use crate::{Authority, CopyChange, Engine, Epochs, Places, Placing, Standing, View, Volume, VolumeHealth, VolumeSpec};
use bytes::Bytes;
use futures_channel::oneshot;
use futures_util::future::{BoxFuture, join_all, ready};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tepal_drive::world::Clock;
use tepal_drive::{Drive, Loss, NewDrive, Options, format};
use tepal_model::{BLOCK, ClusterId, DriveId, IoError, Layout, MapId, VolumeId, buffer::join};
use tepal_placement::Geometry;
use tepal_sim::device::Faults;
use tepal_sim::executor::Limits;
use tepal_sim::{Executor, SimDisk, SimWorld};

/// Drives that were ever down, and the view in which they left, if they are still down.
pub type Left = Vec<(DriveId, Option<View>)>;

/// Agrees to everything, and remembers when each drive left, as the metadata does.
#[derive(Clone, Default)]
pub struct Agrees(pub Arc<Mutex<Agreed>>);

#[derive(Debug, Default)]
pub struct Agreed {
    pub view: View,
    pub left: Left,
    /// Drives whose leaving is agreed, or whose return is told, only when the receiver resolves.
    pub held: Vec<(DriveId, oneshot::Receiver<()>)>,
    /// Where copies are, and which are complete.
    pub places: BTreeMap<MapId, Places>,
    /// How many complete copies a column needs.
    pub needed: usize,
    /// Columns in which copies were passed over, one entry for each agreement.
    pub passed: Vec<(usize, Vec<DriveId>)>,
    /// The next agreement that a drive is up is refused, once.
    pub refuses: bool,
    /// Columns of which a joining drive has everything, with the view in which that was found.
    pub joined: Vec<(usize, DriveId, View)>,
    /// Columns that a drive can't join, one entry for each time that it was said.
    pub hopeless: Vec<(usize, Placing)>,
    /// Columns that have taken over all of a window: of which map, and which.
    pub taken_over: Vec<(usize, (MapId, View))>,
}

impl Agrees {
    pub fn say(&self, drive: DriveId, up: bool) -> Option<View> {
        let mut state = self.0.lock().unwrap();
        state.view += 1;
        let view = state.view;
        let left = state.left.iter().find(|(id, _)| *id == drive).and_then(|(_, left)| *left);
        state.left.retain(|(id, _)| *id != drive);
        state.left.push((drive, if up { None } else { left.or(Some(view)) }));
        if up {
            state.places.values_mut().for_each(|places| places.is_up_again(drive, |_| false));
        }
        Some(left.unwrap_or(view))
    }

    /// The agreed places and copies of a map; at first, the given ones.
    pub fn places(&self, map: MapId, at_first: &Places) -> Arc<Places> {
        Arc::new(self.0.lock().unwrap().places.entry(map).or_insert_with(|| at_first.clone()).clone())
    }

    pub fn standing(&self, drive: DriveId) -> Standing {
        let state = self.0.lock().unwrap();
        let left = state.left.iter().find(|(id, _)| *id == drive).and_then(|(_, left)| *left);
        left.map_or(Standing::Current, Standing::Behind)
    }

    pub fn hold(&self, drive: DriveId, until: oneshot::Receiver<()>) {
        self.0.lock().unwrap().held.push((drive, until));
    }

    pub fn refuse_once(&self) {
        self.0.lock().unwrap().refuses = true;
    }

    /// Waits until the question about this drive may go on.
    pub fn pass(&self, drive: DriveId) -> impl Future<Output = ()> + use<> {
        let mut state = self.0.lock().unwrap();
        let held = state.held.iter().position(|(id, _)| *id == drive).map(|at| state.held.remove(at).1);
        async move {
            if let Some(held) = held {
                let _ = held.await; // sent or dropped, the question may go on
            }
        }
    }
}

impl Authority for Agrees {
    fn count_copies(&self, map: MapId, column: usize, change: CopyChange, _: View) -> BoxFuture<'static, Option<View>> {
        let mut state = self.0.lock().unwrap();
        let (view, needed) = (state.view, state.needed.max(1));
        state.passed.push((column, change.passed.clone()));
        let agreed = state.places.get_mut(&map).is_none_or(|places| places.count(column, &change, view, needed));
        Box::pin(ready(agreed.then_some(view)))
    }
    fn joined(&self, _: MapId, column: usize, joins: Placing, view: View) -> BoxFuture<'static, bool> {
        self.0.lock().unwrap().joined.push((column, joins.drive, view));
        Box::pin(ready(true))
    }
    /// Agrees when it's asked again.
    fn cannot_join(&self, _: MapId, column: usize, joins: Placing) -> BoxFuture<'static, bool> {
        let mut state = self.0.lock().unwrap();
        let is_agreed = state.hopeless.contains(&(column, joins));
        state.hopeless.push((column, joins));
        Box::pin(ready(is_agreed))
    }
    fn taken_over(&self, map: MapId, column: usize, since: View) -> BoxFuture<'static, bool> {
        self.0.lock().unwrap().taken_over.push((column, (map, since)));
        Box::pin(ready(true))
    }
    fn drive_down(&self, drive: DriveId, _: Loss) -> BoxFuture<'static, Option<View>> {
        let (agrees, pass) = (self.clone(), self.pass(drive));
        Box::pin(async move {
            pass.await;
            agrees.say(drive, false)
        })
    }
    fn copies(&self, map: MapId) -> Option<(Arc<Places>, View)> {
        let state = self.0.lock().unwrap();
        Some((Arc::new(state.places.get(&map)?.clone()), state.view))
    }
    fn up_again(&self, drive: DriveId, _: View) -> BoxFuture<'static, Option<View>> {
        if std::mem::take(&mut self.0.lock().unwrap().refuses) {
            return Box::pin(ready(None));
        }
        let (agreed, pass) = (self.say(drive, true), self.pass(drive));
        Box::pin(async move {
            pass.await;
            agreed
        })
    }
}

/// Copies on neighbours.
pub fn places(drives: impl IntoIterator<Item = u64>, layout: &str) -> Arc<Places> {
    let drives: Vec<DriveId> = drives.into_iter().map(DriveId).collect();
    let copies = layout.parse::<Layout>().unwrap().fragments().count();
    Arc::new(Places::rotated(&drives, copies, 0).unwrap())
}

/// One column for each drive.
pub fn round(places: &Places) -> Geometry {
    Geometry::round(places.columns.len(), 64 << 10).unwrap()
}

/// A volume that has a column for each drive, and that nothing was done to yet.
pub fn spec(id: u32, layout: &str, places: Arc<Places>) -> VolumeSpec {
    VolumeSpec {
        id: VolumeId(id.into()),
        name: format!("v{id}"),
        size: 8 << 20,
        layout: layout.parse().unwrap(),
        map: MapId(id),
        geometry: round(&places),
        places,
        revision: 1,
        is_replica: false,
        is_encrypted: false,
        live: None,
        epochs: Arc::default(),
    }
}

/// A new drive.
pub async fn formatted(world: &SimWorld, id: u64) -> SimDisk {
    const NAMES: [&str; 7] = ["drive a", "drive b", "drive c", "drive d", "drive e", "drive f", "drive g"];
    let disk = SimDisk::new(world.core(), NAMES[id as usize - 1], 16 << 20);
    let new = NewDrive { cluster: ClusterId(1), drive: DriveId(id), pool: "p".into(), log_length: None };
    format(&disk.open(), None, new).await.unwrap();
    disk
}

pub async fn opened(world: &SimWorld, disk: &SimDisk) -> Drive<SimWorld> {
    Drive::open(world.clone(), disk.open(), None, Options::default()).await.unwrap()
}

pub struct Rig {
    pub world: SimWorld,
    pub disks: Vec<SimDisk>,
    pub authority: Arc<Agrees>,
    pub engine: Engine<SimWorld>,
    pub volume: Volume<SimWorld>,
    pub layout: &'static str,
    /// The epochs that the volume is opened with.
    pub epochs: Arc<Epochs>,
}

impl Rig {
    pub async fn new(world: SimWorld, layout: &'static str, drives: usize) -> Self {
        let disks = join_all((1..=drives as u64).map(|id| formatted(&world, id))).await;
        let (authority, epochs) = (Arc::new(Agrees::default()), Arc::default());
        let (engine, volume) = Self::serve(&world, &disks, &authority, (layout, &epochs), |_| true).await;
        Rig { world, disks, authority, engine, volume, layout, epochs }
    }

    pub async fn serve(
        world: &SimWorld,
        disks: &[SimDisk],
        authority: &Arc<Agrees>,
        (layout, epochs): (&str, &Arc<Epochs>),
        is_here: impl Fn(usize) -> bool,
    ) -> (Engine<SimWorld>, Volume<SimWorld>) {
        let engine = Self::engine_with_drives(world, disks, authority, is_here).await;
        let mut spec = Self::spec(disks.len() as u64, layout, epochs);
        authority.0.lock().unwrap().needed = spec.layout.fragments().data.into();
        spec.places = authority.places(spec.map, &spec.places);
        let volume = engine.open_volume(spec).await.unwrap();
        engine.all_volumes_opened();
        (engine, volume)
    }

    /// An engine without open volumes.
    pub async fn engine_with_drives(
        world: &SimWorld,
        disks: &[SimDisk],
        authority: &Arc<Agrees>,
        is_here: impl Fn(usize) -> bool,
    ) -> Engine<SimWorld> {
        let engine = Engine::new(world.clone(), authority.clone());
        for (nth, disk) in disks.iter().enumerate() {
            let id = DriveId(nth as u64 + 1);
            if is_here(nth) {
                let drive = opened(world, disk).await;
                engine.add_drive(drive, authority.standing(id));
            } else {
                let left = authority.say(id, false).unwrap();
                engine.add_absent_drive(id, left, true);
            }
        }
        engine
    }

    pub fn spec(drives: u64, layout: &str, epochs: &Arc<Epochs>) -> VolumeSpec {
        VolumeSpec { epochs: epochs.clone(), ..spec(1, layout, places(1..=drives, layout)) }
    }

    /// The process is killed and started again, with these drives.
    pub async fn restart(&mut self, is_here: impl Fn(usize) -> bool) {
        self.kill();
        let agreed = (self.layout, &self.epochs);
        let (engine, volume) = Self::serve(&self.world, &self.disks, &self.authority, agreed, is_here).await;
        (self.engine, self.volume) = (engine, volume);
    }

    pub fn kill(&mut self) {
        self.disks.iter().for_each(SimDisk::process_killed);
        self.world = SimWorld::boot(self.world.core(), "next life");
    }

    pub async fn lose(&self, nth: usize) {
        let drive = DriveId(nth as u64 + 1);
        self.engine.lose_drive(drive, Loss::Gone { drive, reason: "pulled".into() }).await;
    }

    pub async fn bring_back(&self, nth: usize) {
        let drive = opened(&self.world, &self.disks[nth]).await;
        let standing = self.authority.standing(drive.id());
        self.engine.add_drive(drive, standing);
    }

    pub async fn write(&self, block: u64, byte: u8, count: usize) -> Result<(), IoError> {
        let data = Bytes::from(vec![byte; count * BLOCK as usize]);
        self.volume.write(block * BLOCK, data, false).await
    }

    pub async fn read(&self, block: u64) -> Result<u8, IoError> {
        let data = join(&self.volume.read(block * BLOCK, BLOCK).await?);
        assert!(data.iter().all(|&byte| byte == data[0]), "a mixed block");
        Ok(data[0])
    }

    pub fn slow_down(&self, slowdown: u32) {
        self.disks.iter().for_each(|disk| disk.set_faults(Faults { slowdown, ..Faults::default() }));
    }

    pub async fn until_healthy(&self) {
        while self.volume.health() != VolumeHealth::Healthy {
            self.world.sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Runs the story under a few schedules.
pub fn told<F: Future<Output = ()> + 'static>(story: impl Fn(SimWorld) -> F) {
    for seed in 0..20 {
        let executor = Executor::new(seed, Limits::default(), false);
        let world = SimWorld::boot(executor.core(), "server");
        if let Err(failure) = executor.run(story(world)) {
            panic!("seed {seed}: {failure}");
        }
    }
}
