//! The protocol's plain stories, on simulated drives. Random schedules and faults are the simulator's.

mod absences;
mod among;
mod balance;
mod belief;
mod changed;
mod clones;
mod cuts;
mod doubts;
mod flattened;
mod for_others;
mod hazards;
mod late;
mod leading;
mod leftovers;
mod migrations;
mod moves;
mod pace;
mod resolving;
mod room;
mod sharing;
mod snapshots;
mod surplus;
mod two_servers;
mod waits;

use crate::epochs::Subject;
use crate::{Authority, Engine, Epochs, Places, Placing, Standing, View, Volume, VolumeHealth, VolumeSpec};
use bytes::Bytes;
use futures_channel::oneshot;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tepal_drive::world::Clock;
use tepal_drive::{Drive, Loss, NewDrive, Options, format};
use tepal_model::{BLOCK, ClusterId, DriveId, IoError, Layout, MapId, REGION, VolumeId, buffer::join};
use tepal_placement::Geometry;
use tepal_sim::device::Faults;
use tepal_sim::executor::Limits;
use tepal_sim::{Executor, SimDisk, SimWorld};

/// Drives that were ever down, and the view in which they left, if they still are.
type Left = Vec<(DriveId, Option<View>)>;

/// Agrees to everything, and remembers who left when, as the metadata does.
#[derive(Clone, Default)]
struct Agrees(Arc<Mutex<Agreed>>);

#[derive(Debug, Default)]
struct Agreed {
    view: View,
    left: Left,
    /// Drives whose leaving is agreed, or whose return is told, only then.
    held: Vec<(DriveId, oneshot::Receiver<()>)>,
    /// Once, that a drive is up can't be agreed.
    refuses: bool,
    /// Drives that have everything of a column, as was found in a view.
    joined: Vec<(usize, DriveId, View)>,
    /// Drives that can't have a column that they were to have, each as often as it was said.
    hopeless: Vec<(usize, Placing)>,
    /// Columns that have taken over all of a window: of which map, and which.
    taken_over: Vec<(usize, (MapId, View))>,
}

impl Agrees {
    fn say(&self, drive: DriveId, up: bool) -> Option<View> {
        let mut state = self.0.lock().unwrap();
        state.view += 1;
        let view = state.view;
        let left = state.left.iter().find(|(id, _)| *id == drive).and_then(|(_, left)| *left);
        state.left.retain(|(id, _)| *id != drive);
        state.left.push((drive, if up { None } else { left.or(Some(view)) }));
        Some(left.unwrap_or(view))
    }

    fn standing(&self, drive: DriveId) -> Standing {
        let state = self.0.lock().unwrap();
        let left = state.left.iter().find(|(id, _)| *id == drive).and_then(|(_, left)| *left);
        left.map_or(Standing::Current, Standing::Behind)
    }

    fn hold(&self, drive: DriveId, until: oneshot::Receiver<()>) {
        self.0.lock().unwrap().held.push((drive, until));
    }

    fn refuse_once(&self) {
        self.0.lock().unwrap().refuses = true;
    }

    /// Waits until the question about this drive may go on.
    fn pass(&self, drive: DriveId) -> impl Future<Output = ()> + use<> {
        let mut state = self.0.lock().unwrap();
        let held = state.held.iter().position(|(id, _)| *id == drive).map(|at| state.held.remove(at).1);
        async move {
            if let Some(held) = held {
                let _ = held.await; // sent or dropped, it's time
            }
        }
    }
}

impl Authority for Agrees {
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
fn places(drives: impl IntoIterator<Item = u64>, layout: &str) -> Arc<Places> {
    let drives: Vec<DriveId> = drives.into_iter().map(DriveId).collect();
    let copies = layout.parse::<Layout>().unwrap().copies();
    Arc::new(Places::rotated(&drives, copies, 0).unwrap())
}

/// One column for each drive.
fn round(places: &Places) -> Geometry {
    Geometry::round(places.columns.len(), 64 << 10).unwrap()
}

struct Rig {
    world: SimWorld,
    disks: Vec<SimDisk>,
    authority: Arc<Agrees>,
    engine: Engine<SimWorld>,
    volume: Volume<SimWorld>,
    layout: &'static str,
    /// What the volume is opened with.
    epochs: Arc<Epochs>,
}

const NAMES: [&str; 4] = ["drive a", "drive b", "drive c", "drive d"];

impl Rig {
    async fn new(world: SimWorld, layout: &'static str, drives: usize) -> Self {
        let disks: Vec<SimDisk> =
            NAMES[..drives].iter().map(|name| SimDisk::new(world.core(), name, 16 << 20)).collect();
        for (nth, disk) in disks.iter().enumerate() {
            let new =
                NewDrive { cluster: ClusterId(1), drive: DriveId(nth as u64 + 1), pool: "p".into(), log_length: None };
            format(&disk.open(), None, new).await.unwrap();
        }
        let (authority, epochs) = (Arc::new(Agrees::default()), Arc::default());
        let (engine, volume) = Self::serve(&world, &disks, &authority, (layout, &epochs), |_| true).await;
        Rig { world, disks, authority, engine, volume, layout, epochs }
    }

    async fn serve(
        world: &SimWorld,
        disks: &[SimDisk],
        authority: &Arc<Agrees>,
        (layout, epochs): (&str, &Arc<Epochs>),
        is_here: impl Fn(usize) -> bool,
    ) -> (Engine<SimWorld>, Volume<SimWorld>) {
        let engine = Self::begin(world, disks, authority, is_here).await;
        let volume = engine.open_volume(Self::spec(disks.len() as u64, layout, epochs)).await.unwrap();
        engine.all_volumes_opened();
        (engine, volume)
    }

    /// No volume is open yet.
    async fn begin(
        world: &SimWorld,
        disks: &[SimDisk],
        authority: &Arc<Agrees>,
        is_here: impl Fn(usize) -> bool,
    ) -> Engine<SimWorld> {
        let engine = Engine::new(world.clone(), authority.clone());
        for (nth, disk) in disks.iter().enumerate() {
            let id = DriveId(nth as u64 + 1);
            if is_here(nth) {
                let drive = Drive::open(world.clone(), disk.open(), None, Options::default()).await.unwrap();
                engine.add_drive(drive, authority.standing(id));
            } else {
                let left = authority.say(id, false).unwrap();
                engine.add_absent_drive(id, left, true);
            }
        }
        engine
    }

    fn spec(drives: u64, layout: &str, epochs: &Arc<Epochs>) -> VolumeSpec {
        VolumeSpec {
            id: VolumeId(1),
            name: "v".into(),
            size: 8 << 20,
            layout: layout.parse().unwrap(),
            map: MapId(1),
            geometry: round(&places(1..=drives, layout)),
            places: places(1..=drives, layout),
            revision: 1,
            epochs: epochs.clone(),
        }
    }

    /// The process is killed and started again, with these drives.
    async fn restart(&mut self, is_here: impl Fn(usize) -> bool) {
        self.kill();
        let agreed = (self.layout, &self.epochs);
        let (engine, volume) = Self::serve(&self.world, &self.disks, &self.authority, agreed, is_here).await;
        (self.engine, self.volume) = (engine, volume);
    }

    fn kill(&mut self) {
        self.disks.iter().for_each(SimDisk::process_killed);
        self.world = SimWorld::boot(self.world.core(), "next life");
    }

    async fn lose(&self, nth: usize) {
        let drive = DriveId(nth as u64 + 1);
        self.engine.lose_drive(drive, Loss::Gone { drive, reason: "pulled".into() }).await;
    }

    async fn bring_back(&self, nth: usize) {
        let drive = Drive::open(self.world.clone(), self.disks[nth].open(), None, Options::default()).await.unwrap();
        let standing = self.authority.standing(drive.id());
        self.engine.add_drive(drive, standing);
    }

    async fn write(&self, block: u64, byte: u8, count: usize) -> Result<(), IoError> {
        let data = Bytes::from(vec![byte; count * BLOCK as usize]);
        self.volume.write(block * BLOCK, data, false).await
    }

    async fn read(&self, block: u64) -> Result<u8, IoError> {
        let data = join(&self.volume.read(block * BLOCK, BLOCK).await?);
        assert!(data.iter().all(|&byte| byte == data[0]), "a mixed block");
        Ok(data[0])
    }

    fn slow_down(&self, slowdown: u32) {
        self.disks.iter().for_each(|disk| disk.set_faults(Faults { slowdown, ..Faults::default() }));
    }

    async fn until_healthy(&self) {
        while self.volume.health() != VolumeHealth::Healthy {
            self.world.sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Runs the story under a few schedules.
fn told<F: Future<Output = ()> + 'static>(story: impl Fn(SimWorld) -> F) {
    for seed in 0..20 {
        let executor = Executor::new(seed, Limits::default(), false);
        let world = SimWorld::boot(executor.core(), "server");
        if let Err(failure) = executor.run(story(world)) {
            panic!("seed {seed}: {failure}");
        }
    }
}

#[test]
fn bytes_of_any_alignment_are_written_and_read_back() {
    told(|world| async move {
        for (layout, drives) in [("stripe", 3), ("mirror:2", 3), ("mirror:3;extent=4K;durability=flush", 4)] {
            let rig = Rig::new(world.clone(), layout, drives).await;
            let mut model = vec![0u8; 1 << 20];
            for (step, (at, length)) in
                [(0, 1), (4095, 2), (70_000, 200_000), (65_536, 65_536), (5, 4091), (300_001, 13)]
                    .into_iter()
                    .enumerate()
            {
                let data: Vec<u8> = (0..length).map(|byte| (byte * 7 + step) as u8).collect();
                model[at..at + length].copy_from_slice(&data);
                rig.volume.write(at as u64, data.into(), step % 2 == 0).await.unwrap();
            }
            rig.volume.trim(100_000, 50_000).await.unwrap();
            model[100_000..150_000].fill(0);
            assert_eq!(&join(&rig.volume.read(0, 1 << 20).await.unwrap())[..], &model[..], "{layout}");
            assert_eq!(&join(&rig.volume.read(99_990, 70_003).await.unwrap())[..], &model[99_990..169_993]);
        }
    });
}

#[test]
fn what_reaches_past_the_end_is_refused() {
    told(|world| async move {
        let rig = Rig::new(world, "stripe", 1).await;
        let size = rig.volume.size();
        for (offset, length) in [(size, 1), (size - 1, 2), (u64::MAX, 1), (u64::MAX, 0), (0, u64::MAX)] {
            let outcome = rig.volume.read(offset, length).await.map(drop);
            assert_eq!(outcome, Err(IoError::OutOfRange { offset, length, size }));
        }
        assert!(rig.volume.read(size, 0).await.unwrap().is_empty());
    });
}

#[test]
fn a_drive_that_was_away_misses_nothing_once_it_has_caught_up() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        for block in 0..40 {
            rig.write(block, 1, 1).await.unwrap();
        }
        rig.lose(0).await;
        assert!(matches!(rig.volume.health(), VolumeHealth::Degraded(_)));
        rig.write(3, 2, 5).await.unwrap();
        rig.volume.trim(20 * BLOCK, 4 * BLOCK).await.unwrap();
        rig.bring_back(0).await;
        rig.write(7, 3, 1).await.unwrap();
        assert_eq!((rig.read(3).await, rig.read(7).await, rig.read(21).await), (Ok(2), Ok(3), Ok(0)));
        rig.until_healthy().await;
        rig.lose(1).await;
        let mut found = Vec::new();
        for block in [2, 3, 6, 7, 8, 20, 23, 24] {
            found.push(rig.read(block).await.unwrap());
        }
        assert_eq!(found, [1, 2, 2, 3, 1, 0, 0, 1]);
    });
}

#[test]
fn a_drive_that_missed_writes_serves_none_of_them_after_a_restart_without_the_others() {
    told(|world| async move {
        let mut rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(0, 1, 1).await.unwrap();
        rig.lose(0).await;
        rig.write(0, 2, 1).await.unwrap();
        rig.restart(|nth| nth == 0).await; // only the one that doesn't know
        let reading = rig.volume.clone();
        let waits = rig.world.sleep(Duration::from_secs(20));
        futures_util::pin_mut!(waits);
        let read = Box::pin(reading.read(0, BLOCK));
        let waiting = match futures_util::future::select(read, waits).await {
            futures_util::future::Either::Left((outcome, _)) => panic!(
                "it answered {:?}, {:?} {:?}",
                outcome.map(|data| join(&data)[0]),
                rig.volume.health(),
                rig.authority.0.lock().unwrap()
            ),
            futures_util::future::Either::Right((_, read)) => read,
        };
        rig.bring_back(1).await;
        assert_eq!(waiting.await.map(|data| join(&data)[0]), Ok(2));
        rig.until_healthy().await;
    });
}

#[test]
fn the_drive_that_left_last_is_believed_when_all_were_away() {
    told(|world| async move {
        let mut rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(0, 1, 1).await.unwrap();
        rig.lose(1).await;
        rig.write(0, 2, 1).await.unwrap();
        rig.lose(0).await;
        rig.restart(|_| true).await;
        assert_eq!(rig.read(0).await, Ok(2));
        rig.until_healthy().await;
        rig.lose(0).await;
        assert_eq!(rig.read(0).await, Ok(2));
    });
}

#[test]
fn copies_that_differ_after_a_crash_are_settled_before_anyone_reads_them() {
    told(|world| async move {
        let mut rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(0, 1, 1).await.unwrap();
        let (volume, core) = (rig.volume.clone(), rig.world.core().clone());
        rig.world.spawn_named("a write that the crash interrupts", async move {
            let _ = volume.write(0, Bytes::from(vec![2; BLOCK as usize]), false).await;
        });
        rig.world.sleep(Duration::from_micros(core.draw() % 900)).await;
        // The story's own task goes on: only what the old life left behind ends, with its world.
        rig.restart(|_| true).await;
        let first = rig.read(0).await.unwrap();
        assert!(first == 1 || first == 2);
        rig.until_healthy().await; // the old life may have declared a drive down
        for round in 0..6 {
            rig.lose(round % 2).await;
            assert_eq!(rig.read(0).await, Ok(first), "once seen, it stays");
            rig.bring_back(round % 2).await;
            rig.until_healthy().await;
        }
    });
}

#[test]
fn a_flush_fails_once_if_what_was_not_flushed_is_lost_with_the_only_drive_that_had_it() {
    // It was acknowledged without a look at the drives that were away.
    told(|world| async move {
        for (layout, drives) in [("stripe;durability=flush", 1), ("mirror:2;durability=flush", 2)] {
            let rig = Rig::new(world.clone(), layout, drives).await;
            rig.write(3, 1, 1).await.unwrap();
            rig.volume.flush().await.unwrap();
            for away in 0..drives {
                rig.write(3, 2 + away as u8, 1).await.unwrap();
                rig.disks[away].pull();
                rig.lose(away).await;
            }
            let mut flush = Box::pin(rig.volume.flush());
            assert!((&mut flush).now_or_never().is_none(), "{layout}: it may still return with all of it");
            for back in (0..drives).rev() {
                rig.disks[back].plug_in();
                rig.bring_back(back).await;
            }
            let newest = rig.read(3).await.unwrap() == 1 + drives as u8;
            assert_eq!(flush.await.is_ok(), newest, "{layout}");
            assert_eq!(rig.volume.flush().await, Ok(()), "{layout}: it has been told");
        }
    });
}

#[test]
fn a_rotten_block_is_served_from_the_other_copy_and_repaired() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(0, 9, 16).await.unwrap();
        for nth in 0..2u64 {
            let drive = rig.engine.drive(DriveId(nth + 1)).unwrap();
            drive.checkpoint().await.unwrap();
            let slots = drive.geometry().slots_start;
            rig.disks[nth as usize].rot(slots + nth * 3 * BLOCK);
        }
        for block in 0..16 {
            assert_eq!(rig.read(block).await, Ok(9));
        }
        let summary = rig.volume.scrub(|_| {}).await.unwrap();
        assert_eq!((summary.blocks_checked, summary.lost.len(), summary.unequal_extents), (32, 0, 0));
        let again = rig.volume.scrub(|_| {}).await.unwrap();
        assert_eq!((again.repaired, again.lost.len()), (0, 0));
    });
}

#[test]
fn rot_without_another_copy_is_an_error_on_that_block_only() {
    told(|world| async move {
        let rig = Rig::new(world, "stripe", 1).await;
        rig.write(0, 9, 16).await.unwrap();
        let drive = rig.engine.drive(DriveId(1)).unwrap();
        drive.checkpoint().await.unwrap();
        rig.disks[0].rot(drive.geometry().slots_start + 3 * BLOCK);
        assert_eq!(rig.read(2).await, Ok(9));
        assert_eq!(rig.read(3).await, Err(IoError::Damaged { offset: 3 * BLOCK, length: BLOCK }));
        rig.write(3, 8, 1).await.unwrap();
        assert_eq!(rig.read(3).await, Ok(8));
    });
}

#[test]
fn writes_wait_below_min_copies_and_go_on_when_there_are_enough() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2;min_copies=2", 2).await;
        rig.lose(1).await;
        let volume = rig.volume.clone();
        let write = Box::pin(async move { volume.write(0, Bytes::from(vec![5; 4096]), false).await });
        let waits = Box::pin(rig.world.sleep(Duration::from_secs(9)));
        let futures_util::future::Either::Right((_, write)) = futures_util::future::select(write, waits).await else {
            panic!("it was acknowledged with one copy");
        };
        rig.bring_back(1).await;
        assert_eq!(write.await, Ok(()));
    });
}

#[test]
fn a_full_drive_refuses_a_write_on_all_copies_and_reads_stay_as_they_were() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        rig.volume.resize(1 << 30);
        let mut block = 0;
        while rig.write(block, 7, 16).await.is_ok() {
            block += 16;
        }
        assert_eq!(rig.write(block, 8, 16).await, Err(IoError::OutOfSpace));
        assert_eq!(rig.read(block).await, Ok(0));
        rig.write(0, 9, 256).await.unwrap();
        rig.volume.trim(0, REGION).await.unwrap();
        rig.write(block, 8, 200).await.unwrap();
        assert_eq!((rig.read(0).await, rig.read(block).await), (Ok(0), Ok(8)));
    });
}

#[test]
fn a_removed_volume_gives_all_its_space_back_and_answers_nobody() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 3).await;
        rig.write(0, 1, 300).await.unwrap();
        assert!(rig.volume.allocated() > 0);
        rig.engine.remove_volume(VolumeId(1), |_| false).await;
        for nth in 1..=3 {
            let drive = rig.engine.drive(DriveId(nth)).unwrap();
            assert_eq!((drive.usage().used, drive.slots_unaccounted()), (0, 0));
        }
        assert_eq!(rig.read(0).await, Err(IoError::Fenced));
        assert_eq!(rig.write(0, 1, 1).await, Err(IoError::Fenced));
    });
}

#[test]
fn a_drive_that_was_away_when_a_volume_was_removed_gives_its_space_back_and_is_up_again() {
    // It was behind in that volume only, and stayed so for ever; marks about it stayed too.
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(0, 1, 300).await.unwrap();
        rig.lose(1).await;
        rig.write(0, 2, 300).await.unwrap();
        futures_util::future::join(rig.engine.remove_volume(VolumeId(1), |_| false), rig.bring_back(1)).await;
        for drive in rig.engine.drives_here() {
            rig.engine.free_unknown(&drive, |_| false).await.unwrap();
        }
        rig.world.sleep(Duration::from_secs(1)).await;
        for nth in 1..=2 {
            let drive = rig.engine.drive(DriveId(nth)).unwrap();
            assert_eq!((drive.usage().used, drive.marks()), (0, vec![]), "drive {nth}");
            assert_eq!(rig.authority.standing(DriveId(nth)), Standing::Current, "drive {nth}");
        }
    });
}

#[test]
fn what_is_cut_off_while_the_drives_that_have_it_are_away_does_not_come_back() {
    // Nothing was found to clear on the drives that were here, and so nothing was waited for.
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(300, 7, 1).await.unwrap();
        rig.lose(0).await;
        rig.lose(1).await;
        rig.volume.resize(1 << 20);
        let return_later = async {
            rig.world.sleep(Duration::from_millis(10)).await;
            rig.bring_back(0).await;
            rig.bring_back(1).await;
        };
        let (cleared, ()) = futures_util::future::join(rig.volume.clear_past_end(), return_later).await;
        cleared.unwrap();
        rig.volume.resize(8 << 20);
        assert_eq!(rig.read(300).await, Ok(0));
    });
}
