//! A server with its drives and one volume, as `tepal serve` would start and tend it: drives are opened, those that can't
//! be are declared down, those that return are taken in.

use super::agreement::{Agreement, Status};
use super::bay::Bay;
use super::record::{Record, VolumeState};
use crate::device::SimDevice;
use crate::workload::VolumeUnderTest;
use crate::world::SimWorld;
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tepal_drive::error::OpenError;
use tepal_drive::world::{Clock, DeviceError};
use tepal_drive::{Drive, Loss, Options};
use tepal_engine::{ClusterView, Engine, Epochs, Run, Standing, View, Volume, VolumeSpec, Within};
use tepal_model::{DriveId, IoError, Segments, ServerId};

/// Whether a refusal of the drive at this position is no surprise.
pub type Excuses = Rc<dyn Fn(usize, &OpenError) -> bool>;

/// The hardware and the papers of a server, which outlive its processes.
#[derive(Clone)]
pub struct Hardware {
    /// In the order of the volume's global map.
    pub bays: Vec<Bay>,
    pub agreement: Agreement,
    pub record: Record,
    pub options: Options,
    /// Why a drive's refusal to open is no surprise.
    pub excuses: Excuses,
    /// Told when the drive at this position was opened again, after it was away.
    pub returned: Rc<dyn Fn(usize)>,
    pub complete: Complete,
}

impl Hardware {
    /// The volume, with its copies as agreed.
    fn spec(&self) -> VolumeSpec {
        let spec = self.record.spec();
        VolumeSpec { places: self.agreement.places(spec.map), ..spec }
    }
}

/// The drives, by position, that were seen to miss nothing since they were away last.
pub type Complete = Rc<RefCell<BTreeSet<usize>>>;

/// Whoever tends the drives looks whether one is still there; nobody was told of what wasn't in service yet.
const PULLED_MEANWHILE: &str = "it was unplugged while it was being opened";

/// How often a server looks what was agreed.
const LOOK: Duration = Duration::from_micros(3_100);

/// One running process.
#[derive(Clone)]
pub struct Server {
    pub world: SimWorld,
    pub engine: Engine<SimWorld>,
    /// Until it was removed.
    volume: Option<Volume<SimWorld>>,
    hardware: Rc<Hardware>,
    /// The view that it acts by.
    followed: Rc<Cell<View>>,
}

/// The id of the drive in that place.
pub fn drive_id(at: usize) -> DriveId {
    DriveId(at as u64 + 1)
}

impl Server {
    /// Starts on that machine: opens what is plugged in, and serves.
    pub async fn start(world: SimWorld, hardware: Rc<Hardware>) -> Option<Self> {
        let engine = Engine::new(world.clone(), Arc::new(hardware.agreement.clone()));
        for at in 0..hardware.bays.len() {
            start_drive(&world, &engine, &hardware, at).await;
        }
        let volume = match hardware.record.state() {
            VolumeState::Gone => None,
            VolumeState::Active | VolumeState::Deleting => match engine.open_volume(hardware.spec()).await {
                Ok(volume) => Some(volume),
                Err(error) => {
                    world.core().fail(format!("the volume can't be opened: {error}"));
                    return None;
                }
            },
        };
        engine.all_volumes_opened();
        world.core().note(3, || format!("serves; {:?}", hardware.agreement));
        let server = Server { world, engine, volume, hardware, followed: Rc::default() };
        let (tended, follows) = (server.clone(), server.clone());
        server.world.spawn_named("tend-drives", async move { tended.tend().await });
        server.world.spawn_named("follow", async move { follows.follow().await });
        if server.hardware.record.state() == VolumeState::Deleting {
            server.begin_removal();
        }
        Some(server)
    }

    /// Its drives are closed one after the other.
    pub fn is_stopping(&self) -> bool {
        self.hardware.agreement.is_stopped()
    }

    pub fn volume(&self) -> &Volume<SimWorld> {
        self.volume.as_ref().expect("the scenario asks only while there is one")
    }

    /// What the volume and its snapshots see, as agreed.
    pub fn epochs(&self) -> Arc<Epochs> {
        self.hardware.record.epochs()
    }

    pub fn under_test(&self) -> Rc<ServedVolume> {
        Rc::new(ServedVolume(self.volume().clone()))
    }

    /// The volume was removed: nobody may use it from here on, and its space is given back.
    pub fn begin_removal(&self) {
        self.hardware.record.become_state(VolumeState::Deleting);
        let (server, id) = (self.clone(), self.volume().id());
        self.world.spawn_named("remove", async move {
            server.engine.remove_volume(id, |_| false).await;
            server.world.sleep(Duration::from_millis(2)).await; // until that is agreed
            server.hardware.record.become_state(VolumeState::Gone);
            server.world.core().note(5, || "the volume is gone".to_owned());
            // A drive that came back meanwhile was told that the volume is there.
            for drive in server.engine.drives_here() {
                free_unknown(&server.engine, &server.hardware, &drive).await;
            }
        });
    }

    /// Does what follows from what is agreed about snapshots.
    async fn follow(self) {
        let mut before = ClusterView::default();
        loop {
            self.world.sleep(LOOK).await;
            let record = &self.hardware.record;
            if record.view() == before.view {
                continue;
            }
            let now = Arc::new(record.followed());
            self.engine.follow(ServerId(1), &before, &now);
            self.followed.set(now.view);
            before = ClusterView::clone(&now);
        }
    }

    /// Returns once it acts by that view.
    pub async fn wait_until_it_follows(&self, view: View) {
        while self.followed.get() < view {
            self.world.sleep(LOOK).await;
        }
    }

    /// Takes in what has returned.
    async fn tend(self) {
        loop {
            self.world.sleep(Duration::from_millis(5)).await;
            self.note_complete();
            for at in 0..self.hardware.bays.len() {
                let (bay, id) = (&self.hardware.bays[at], drive_id(at));
                let returned = bay.is_plugged() && matches!(self.hardware.agreement.status(id), Status::Away(_));
                if !returned || self.engine.drive(id).is_some() {
                    continue;
                }
                // It may still be on its way out.
                self.engine.lose_drive(id, Loss::Gone { drive: id, reason: "it was unplugged".to_owned() }).await;
                let Status::Away(left) = self.hardware.agreement.status(id) else { continue };
                let (options, (device, log)) = (self.hardware.options.clone(), bay.open());
                let handles: Vec<SimDevice> = std::iter::once(&device).chain(&log).cloned().collect();
                match Drive::open(self.world.clone(), device, log, options).await {
                    Ok(drive) if !handles.iter().all(SimDevice::is_live) => drive.pull(PULLED_MEANWHILE),
                    Ok(drive) => {
                        self.world.core().note(left, || format!("drive {id} returns, with {:?}", drive.marks()));
                        (self.hardware.returned)(at);
                        put_in_service(&self.engine, &self.hardware, drive, Standing::Behind(left)).await;
                    }
                    Err(error) => {
                        refused(&self.world, &self.hardware, at, &error);
                    }
                }
            }
        }
    }

    /// Only what misses something itself, or waits to be compared, isn't complete although it's up.
    fn note_complete(&self) {
        let left = self.volume.as_ref().map(Volume::recovery).unwrap_or_default();
        if left.stale_regions == 0 && left.unresolved_regions == 0 {
            let all = 0..self.hardware.bays.len();
            let up = all.filter(|at| self.hardware.agreement.status(drive_id(*at)) == Status::Up);
            self.hardware.complete.borrow_mut().extend(up);
        }
    }

    /// Somebody saw that the drive was pulled.
    pub fn tell_pulled(&self, at: usize) {
        let engine = self.engine.clone();
        self.world.spawn_named("notice", async move {
            let id = drive_id(at);
            engine.lose_drive(id, Loss::Gone { drive: id, reason: "it was unplugged".to_owned() }).await;
        });
    }

    /// The drives that are open.
    pub fn drives(&self) -> impl Iterator<Item = (usize, Drive<SimWorld>)> + '_ {
        (0..self.hardware.bays.len()).filter_map(|at| self.engine.drive(drive_id(at)).map(|drive| (at, drive)))
    }
}

async fn start_drive(world: &SimWorld, engine: &Engine<SimWorld>, hardware: &Hardware, at: usize) {
    let (bay, id, agreement) = (&hardware.bays[at], drive_id(at), &hardware.agreement);
    let standing = match agreement.status(id) {
        Status::Retired(left) => return engine.add_absent_drive(id, left, false),
        Status::Up => Standing::Current,
        Status::Away(left) => {
            hardware.complete.borrow_mut().remove(&at);
            Standing::Behind(left)
        }
    };
    if !bay.is_plugged() {
        return engine.add_absent_drive(id, agreement.declare_down(id, true), true);
    }
    let (device, log) = bay.open();
    let handles: Vec<SimDevice> = std::iter::once(&device).chain(&log).cloned().collect();
    match Drive::open(world.clone(), device, log, hardware.options.clone()).await {
        Ok(drive) if !handles.iter().all(SimDevice::is_live) => {
            drive.pull(PULLED_MEANWHILE);
            engine.add_absent_drive(id, agreement.declare_down(id, true), true);
        }
        Ok(drive) => {
            world.core().note(4, || format!("drive {id} starts {standing:?}, with {:?}", drive.marks()));
            put_in_service(engine, hardware, drive, standing).await;
        }
        Err(error) => {
            let gone = refused(world, hardware, at, &error);
            engine.add_absent_drive(id, agreement.declare_down(id, gone), gone);
        }
    }
}

/// Gives a drive to the engine; if the volume was removed while it was away, its space comes back.
async fn put_in_service(engine: &Engine<SimWorld>, hardware: &Hardware, drive: Drive<SimWorld>, standing: Standing) {
    if standing != Standing::Current {
        hardware.agreement.note_behind(drive.id());
    }
    engine.add_drive(drive.clone(), standing);
    free_unknown(engine, hardware, &drive).await;
}

async fn free_unknown(engine: &Engine<SimWorld>, hardware: &Hardware, drive: &Drive<SimWorld>) {
    let known = |_| hardware.record.state() != VolumeState::Gone;
    let _ = engine.free_unknown(drive, known).await; // if the drive is lost, that is noticed where it matters
}

/// Whether a drive that can't be opened may return: it does if it only was pulled again.
fn refused(world: &SimWorld, hardware: &Hardware, at: usize, error: &OpenError) -> bool {
    use tepal_drive::label::LabelError;
    if let OpenError::Device(DeviceError::Gone(_)) | OpenError::Label(LabelError::Device(DeviceError::Gone(_))) = error
    {
        return true;
    }
    if !(hardware.excuses)(at, error) {
        world.core().fail(format!("drive {at} can't be opened: {error}"));
    }
    false
}

/// The engine's volume, as a client sees it.
pub struct ServedVolume(Volume<SimWorld>);

impl ServedVolume {
    pub fn of(volume: Volume<SimWorld>) -> Self {
        ServedVolume(volume)
    }
}

impl VolumeUnderTest for ServedVolume {
    fn size(&self) -> u64 {
        self.0.size()
    }

    async fn read(&self, offset: u64, length: u64) -> Result<Segments, IoError> {
        self.0.read(offset, length).await
    }

    async fn write(&self, offset: u64, data: Bytes, fua: bool) -> Result<(), IoError> {
        self.0.write(offset, data, fua).await
    }

    async fn flush(&self) -> Result<(), IoError> {
        self.0.flush().await
    }

    async fn trim(&self, offset: u64, length: u64, _fua: bool) -> Result<(), IoError> {
        self.0.trim(offset, length).await
    }

    async fn write_zeroes(&self, offset: u64, length: u64, _fua: bool) -> Result<(), IoError> {
        let allocate = offset.is_multiple_of(3); // either way, by what the seed drew
        self.0.write_zeroes(offset, length, allocate).await
    }

    async fn block_status(&self, offset: u64, length: u64, limit: usize) -> Result<Vec<Run>, IoError> {
        self.0.block_status(Within { offset, length, limit }).await
    }

    /// While the volume is imported.
    fn passes_over_trims(&self) -> bool {
        self.0.live().is_some()
    }
}
