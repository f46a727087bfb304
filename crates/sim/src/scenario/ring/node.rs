//! One simulated server of a ring: a process with a drive, which follows what is agreed and is a gateway too.

use super::council::{Council, LEASE, Voice};
use super::network::Network;
use crate::device::SimDisk;
use crate::scenario::server::ServedVolume;
use crate::world::SimWorld;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tepal_drive::world::Clock;
use tepal_drive::{Drive, Loss, Options};
use tepal_engine::{ClusterView, DriveStatus, Engine, Standing, Volume, VolumeSpec};
use tepal_model::{DriveId, ServerId};

/// How often a server looks what was agreed.
const LOOK: Duration = Duration::from_micros(700);

/// What outlives the processes of a server.
pub struct Machine {
    pub id: ServerId,
    pub drive: DriveId,
    pub disk: SimDisk,
}

/// One running process.
#[derive(Clone)]
pub struct Node {
    pub world: SimWorld,
    pub engine: Engine<SimWorld>,
    pub volume: Volume<SimWorld>,
    machine: Rc<Machine>,
    council: Council,
    voice: Voice,
    /// Its drive is let go, to be opened anew.
    reopens: Rc<Cell<bool>>,
}

impl Node {
    pub fn start(
        world: SimWorld,
        machine: Rc<Machine>,
        council: &Council,
        network: &Network,
        spec: VolumeSpec,
    ) -> Self {
        let voice = council.voice(machine.id);
        let engine = Engine::among(world.clone(), Arc::new(voice.clone()), network.port(machine.id));
        let volume = engine.open_volume_among(spec).expect("the volume could be made");
        engine.all_volumes_opened();
        network.serves(machine.id, &world, &engine);
        let node = Node { world, engine, volume, machine, council: council.clone(), voice, reopens: Rc::default() };
        let (tends, follows) = (node.clone(), node.clone());
        node.world.spawn_named("open", async move { tends.open_drive().await });
        node.world.spawn_named("follow", async move { follows.follow().await });
        node
    }

    pub fn under_test(&self) -> Rc<ServedVolume> {
        Rc::new(ServedVolume::of(self.volume.clone()))
    }

    pub fn id(&self) -> ServerId {
        self.machine.id
    }

    async fn open_drive(&self) {
        let device = self.machine.disk.open();
        match Drive::open(self.world.clone(), device, None, Options::default()).await {
            Ok(drive) => {
                let Some(left) = self.voice.is_back(self.machine.drive).await else { return };
                self.world.core().note(left, || format!("{} is back, with {:?}", drive.id(), drive.marks()));
                self.engine.add_drive(drive, Standing::Behind(left));
            }
            Err(error) => self.world.core().fail(format!("drive {} can't be opened: {error}", self.machine.drive)),
        }
    }

    /// Does what follows from what is agreed; while it hears nothing, its lease runs out.
    async fn follow(&self) {
        let (mut before, mut heard) = (self.voice.known(), self.world.core().now());
        loop {
            self.world.sleep(LOOK).await;
            let core = self.world.core();
            if !self.council.reaches(self.machine.id) {
                self.voice.serves(core.now() < heard + LEASE);
                continue;
            }
            heard = core.now();
            let now = Arc::new(self.council.now());
            if now.view != before.view {
                self.engine.follow(self.machine.id, &before, &now);
                self.voice.knows(&now);
                before = ClusterView::clone(&now);
            }
            self.voice.serves(true);
            // The others have gone on without its drive.
            let id = self.machine.drive;
            let is_here = self.engine.drive(id).is_some();
            if matches!(now.drives[&id].status, DriveStatus::Away(_)) && is_here && !self.reopens.replace(true) {
                let node = self.clone();
                self.world.spawn_named("open", async move {
                    node.engine.lose_drive(id, Loss::Gone { drive: id, reason: "declared down".to_owned() }).await;
                    node.reopens.set(false);
                    node.open_drive().await;
                });
            }
        }
    }
}
