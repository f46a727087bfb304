//! Drives that leave and return in any order, at any moment: each story once broke a promise.

use super::*;
use crate::column::Group;
use futures_util::future::{Either, select};
use tepal_sim::Executor;
use tepal_sim::executor::Limits;

impl Rig {
    /// The agreement that the drive is down, or the news that it's up, waits until this is used.
    pub(super) fn gate(&self, nth: usize) -> oneshot::Sender<()> {
        let (sender, receiver) = oneshot::channel();
        self.authority.hold(DriveId(nth as u64 + 1), receiver);
        sender
    }
    /// The first drive is back from an absence in which it missed a write, and has caught up. It's agreed that the
    /// drive is up, but the news waits until the gate opens.
    pub(super) async fn first_returns_untold(&self) -> oneshot::Sender<()> {
        self.lose(0).await;
        self.write(0, 1, 1).await.unwrap();
        let told_up = self.gate(0);
        self.bring_back(0).await;
        self.secs(8).await;
        told_up
    }

    pub(super) fn begin_losing(&self, nth: usize) {
        let (engine, drive) = (self.engine.clone(), DriveId(nth as u64 + 1));
        self.world.spawn_named("losing", async move {
            engine.lose_drive(drive, Loss::Gone { drive, reason: "pulled".into() }).await;
        });
    }
    /// The drive's leaving has begun, and isn't agreed yet.
    pub(super) async fn until_leaving(&self, nth: usize) {
        while !self.volume.map().is_leaving(DriveId(nth as u64 + 1)) {
            self.world.sleep(Duration::from_micros(10)).await;
        }
    }
    pub(super) async fn until_agreed_to_have_left(&self, nth: usize) {
        while self.authority.standing(DriveId(nth as u64 + 1)) == Standing::Current {
            self.world.sleep(Duration::from_micros(10)).await;
        }
    }
    pub(super) async fn fail(&self, nth: usize) {
        let drive = DriveId(nth as u64 + 1);
        self.engine.lose_drive(drive, Loss::Retired { drive, reason: "worn out".into() }).await;
    }
    pub(super) async fn secs(&self, secs: u64) {
        self.world.sleep(Duration::from_secs(secs)).await;
    }
    pub(super) async fn within<T>(&self, secs: u64, work: impl Future<Output = T>) -> Option<T> {
        match select(Box::pin(work), Box::pin(self.world.sleep(Duration::from_secs(secs)))).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => None,
        }
    }
    pub(super) fn is_up(&self, nth: usize) -> bool {
        let drive = DriveId(nth as u64 + 1);
        self.volume.groups().iter().all(|group| {
            let state = group.lock();
            let member = state.members.list.iter().find(|member| member.id == drive);
            member.is_none_or(|member| member.drive().is_some() && member.is_current())
        })
    }
    /// Regions that the drive misses.
    pub(super) fn missed(&self, nth: usize) -> Vec<u64> {
        let drive = DriveId(nth as u64 + 1);
        let of_group = |group: &Group<SimWorld>| {
            let state = group.lock();
            let at = state.members.position(drive);
            at.map_or_else(Vec::new, |at| state.members.list[at].missed.regions().collect())
        };
        self.volume.groups().iter().flat_map(of_group).collect()
    }
}

#[test]
fn data_flushed_while_a_drive_leaves_survives_its_return() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2;durability=flush", 2).await;
        rig.write(0, 1, 1).await.unwrap();
        rig.volume.flush().await.unwrap();
        rig.secs(12).await;
        rig.write(0, 2, 1).await.unwrap();
        rig.disks[1].pull();
        rig.disks[1].plug_in();
        let gate = rig.gate(1);
        rig.begin_losing(1);
        rig.secs(7).await;
        gate.send(()).unwrap();
        rig.secs(1).await;
        assert_eq!(rig.volume.flush().await, Ok(()));
        rig.bring_back(1).await;
        rig.until_healthy().await;
        rig.lose(0).await;
        assert_eq!(rig.read(0).await, Ok(2), "acknowledged and flushed");
    });
}

#[test]
fn a_returned_drive_knows_what_others_missed_meanwhile() {
    told(|world| async move {
        let mut rig = Rig::new(SimWorld::boot(world.core(), "s"), "mirror:3", 3).await;
        rig.write(0, 1, 1).await.unwrap();
        rig.secs(12).await;
        rig.lose(2).await;
        rig.lose(1).await;
        rig.write(0, 2, 1).await.unwrap();
        rig.bring_back(1).await;
        rig.secs(60).await;
        assert!(rig.is_up(1) && rig.missed(1).is_empty());
        rig.restart(|nth| nth == 1).await;
        rig.engine.retire_absent(DriveId(1), u64::MAX);
        assert_eq!(rig.read(0).await, Ok(2));
        rig.bring_back(2).await;
        rig.secs(60).await;
        let mut seen = Vec::new();
        for _ in 0..4 {
            seen.push(rig.read(0).await);
        }
        rig.lose(1).await;
        seen.push(rig.read(0).await);
        assert!(seen.iter().all(|read| *read == Ok(2)), "{seen:?}");
    });
}

#[test]
fn no_request_hangs_when_the_drive_that_knows_fails() {
    told(|world| async move {
        for _ in 0..6 {
            let rig = Rig::new(SimWorld::boot(world.core(), "s"), "mirror:2", 2).await;
            for region in 0..8 {
                rig.write(region * 256, 1, 1).await.unwrap();
            }
            rig.lose(1).await;
            for region in 0..8u64 {
                rig.write(region % 2 * 16 + region / 2 * 512, 2, 16).await.unwrap();
            }
            rig.bring_back(1).await;
            let core = rig.world.core().clone();
            rig.world.sleep(Duration::from_micros(core.draw() % 9000)).await;
            rig.fail(0).await;
            rig.secs(20).await;
            for region in 0..8u64 {
                let done = rig.within(100, rig.write(region % 2 * 16 + region / 2 * 512, 3, 1)).await;
                assert!(done.is_some(), "a write to region {region} hangs: {:?}", rig.volume.health());
            }
            assert!(rig.within(100, rig.volume.scrub(|_| {})).await.is_some(), "scrub hangs");
        }
    });
}

#[test]
fn catching_up_waits_only_for_drives_with_the_region() {
    told(|world| async move {
        for _ in 0..6 {
            let rig = Rig::new(SimWorld::boot(world.core(), "s"), "mirror:2", 4).await;
            rig.volume.resize(64 << 20);
            let extents: Vec<u64> = (0..16).flat_map(|group| (0..4).map(move |col| group * 64 + col)).collect();
            for extent in &extents {
                rig.write(extent * 16, 1, 1).await.unwrap();
            }
            rig.lose(1).await;
            for extent in &extents {
                rig.write(extent * 16, 2, 1).await.unwrap();
            }
            rig.bring_back(1).await;
            let core = rig.world.core().clone();
            rig.world.sleep(Duration::from_micros(core.draw() % 20000)).await;
            rig.lose(0).await;
            rig.secs(100).await;
            let left = rig.missed(1).into_iter().filter(|region| region % 4 == 1).count();
            assert_eq!(left, 0, "column (1,2) isn't caught up though both are here");
        }
    });
}

#[test]
fn copies_become_equal_though_the_source_left_during_copying() {
    told(|world| async move {
        for _ in 0..10 {
            let rig = Rig::new(SimWorld::boot(world.core(), "s"), "mirror:2;durability=flush", 2).await;
            for region in 0..8 {
                rig.write(region % 2 * 16 + region / 2 * 512, 1, 1).await.unwrap();
            }
            rig.volume.flush().await.unwrap();
            rig.secs(12).await;
            rig.lose(1).await;
            for region in 0..8 {
                rig.write(region % 2 * 16 + region / 2 * 512, 2, 1).await.unwrap();
            }
            rig.volume.flush().await.unwrap();
            rig.bring_back(1).await;
            for region in 0..8 {
                rig.write(region % 2 * 16 + region / 2 * 512 + 1, 3, 1).await.unwrap();
            }
            let core = rig.world.core().clone();
            rig.world.sleep(Duration::from_micros(core.draw() % 4000)).await;
            rig.disks[0].pull();
            rig.disks[0].plug_in();
            rig.lose(0).await;
            rig.bring_back(0).await;
            rig.until_healthy().await;
            let summary = rig.volume.scrub(|_| {}).await.unwrap();
            assert_eq!(summary.unequal_extents, 0, "clean copies differ");
        }
    });
}

#[test]
fn removing_a_volume_ends_a_drives_absence_from_it() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        let spec = VolumeSpec { id: VolumeId(2), name: "w".into(), map: MapId(2), ..rig.volume.spec() };
        let other = rig.engine.open_volume(spec).await.unwrap();
        rig.lose(1).await;
        rig.write(0, 1, 1).await.unwrap();
        other.write(0, Bytes::from(vec![5; 4096]), false).await.unwrap();
        rig.bring_back(1).await;
        rig.engine.remove_volume(VolumeId(2), |_| false).await;
        rig.secs(100).await;
        assert!(rig.is_up(1), "{:?}", rig.volume.health());
    });
}

#[test]
fn a_huge_sparse_volume_is_trimmed_without_one_copy() {
    let executor = Executor::new(1, Limits { steps: 100_000_000, time: Duration::from_secs(360_000) }, false);
    let world = SimWorld::boot(executor.core(), "server");
    let outcome = executor.run(async move {
        let rig = Rig::new(world, "mirror:2;extent=4M", 2).await;
        let size = 4u64 << 40;
        rig.volume.resize(size);
        rig.write(0, 1, 1).await.unwrap();
        rig.lose(1).await;
        let survivor = rig.engine.drive(DriveId(1)).unwrap();
        let trimmed = rig.within(3600, rig.volume.trim(1 << 20, size - (1 << 20))).await;
        let health = rig.volume.health();
        rig.secs(1).await;
        let lost = rig.engine.drive(DriveId(1)).is_none();
        assert!(
            !lost,
            "the survivor is lost: {:?} log {} {trimmed:?} {health:?}",
            survivor.loss(),
            survivor.usage().log_length
        );
        assert_eq!(rig.within(100, rig.read(0)).await, Some(Ok(1)));
    });
    outcome.unwrap();
}

#[test]
fn a_flush_reports_data_lost_when_drives_left_together() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2;durability=flush", 2).await;
        rig.write(3, 1, 1).await.unwrap();
        rig.volume.flush().await.unwrap();
        rig.secs(12).await;
        rig.write(3, 2, 1).await.unwrap();
        rig.disks[0].pull();
        rig.disks[0].plug_in();
        let (first, second) = (rig.gate(0), rig.gate(1));
        rig.begin_losing(0);
        rig.until_leaving(0).await;
        rig.begin_losing(1);
        rig.until_leaving(1).await;
        second.send(()).unwrap();
        rig.until_agreed_to_have_left(1).await;
        first.send(()).unwrap();
        rig.secs(1).await;
        let volume = rig.volume.clone();
        let flush = Box::pin(async move { volume.flush().await });
        rig.bring_back(0).await;
        rig.bring_back(1).await;
        rig.until_healthy().await;
        let flushed = flush.await;
        let read = rig.read(3).await;
        assert!(read == Ok(2) || flushed.is_err(), "{read:?} {flushed:?}");
    });
}

#[test]
fn every_present_drive_names_an_absent_drives_misses() {
    told(|world| async move {
        for _ in 0..30 {
            let mut rig = Rig::new(SimWorld::boot(world.core(), "s"), "mirror:3;durability=flush", 3).await;
            rig.write(0, 1, 1).await.unwrap();
            rig.volume.flush().await.unwrap();
            rig.secs(12).await;
            rig.write(0, 2, 1).await.unwrap();
            rig.disks[2].pull();
            rig.disks[2].plug_in();
            rig.begin_losing(2);
            let core = rig.world.core().clone();
            rig.world.sleep(Duration::from_micros(core.draw() % 1500)).await;
            rig.world.kill();
            rig.restart(|nth| nth != 2).await;
            assert_eq!(rig.read(0).await, Ok(2));
            rig.volume.flush().await.unwrap();
            rig.secs(12).await;
            let marks: Vec<_> = (1..3).map(|id| rig.engine.drive(DriveId(id)).unwrap().marks()).collect();
            rig.restart(|nth| nth == 1).await;
            rig.engine.retire_absent(DriveId(1), u64::MAX);
            assert_eq!(rig.read(0).await, Ok(2));
            rig.bring_back(2).await;
            rig.secs(30).await;
            rig.lose(1).await;
            assert_eq!(rig.read(0).await, Ok(2), "marks on the first two before the last restart: {marks:?}");
        }
    });
}

#[test]
fn a_drive_may_return_while_its_leaving_ends() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(0, 1, 1).await.unwrap();
        let core = rig.world.core().clone();
        rig.begin_losing(1);
        rig.world.sleep(Duration::from_micros(core.draw() % 300)).await;
        rig.bring_back(1).await; // the leaving is agreed already, marks are on their way
        assert!(rig.within(100, rig.until_healthy()).await.is_some(), "{:?}", rig.volume.health());
    });
}

#[test]
fn old_data_is_not_believed_without_the_newer_copies() {
    told(|world| async move {
        let mut rig = Rig::new(SimWorld::boot(world.core(), "s"), "mirror:3", 3).await;
        rig.write(0, 1, 1).await.unwrap();
        rig.secs(12).await;
        rig.lose(2).await;
        rig.lose(1).await;
        rig.write(0, 2, 1).await.unwrap();
        let drive = rig.engine.drive(DriveId(1)).unwrap();
        drive.checkpoint().await.unwrap();
        rig.disks[0].rot(drive.geometry().slots_start); // so the block can't be copied
        rig.bring_back(1).await;
        rig.secs(60).await;
        assert!(rig.is_up(1) && !rig.missed(1).is_empty());
        rig.restart(|nth| nth == 1).await;
        rig.engine.retire_absent(DriveId(1), u64::MAX);
        rig.bring_back(2).await;
        rig.secs(60).await;
        let read = rig.within(100, rig.read(0)).await;
        assert!(!matches!(read, Some(Ok(1))), "old data: {read:?}");
    });
}

#[test]
fn a_drive_is_up_again_after_a_refused_agreement() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        rig.lose(1).await;
        rig.write(0, 1, 1).await.unwrap();
        rig.authority.refuse_once();
        rig.bring_back(1).await;
        rig.secs(300).await;
        assert!(rig.is_up(1), "{:?}", rig.volume.health());
    });
}

#[test]
fn marks_of_a_removed_volume_are_taken_back() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        let spec = VolumeSpec { id: VolumeId(2), name: "w".into(), map: MapId(2), size: 8 << 30, ..rig.volume.spec() };
        let other = rig.engine.open_volume(spec).await.unwrap();
        rig.lose(1).await;
        other.write(0, Bytes::from(vec![5; 4096]), false).await.unwrap();
        other.trim(0, 8 << 30).await.unwrap();
        rig.bring_back(1).await;
        rig.world.sleep(Duration::from_micros(rig.world.core().draw() % 3000)).await;
        rig.engine.remove_volume(VolumeId(2), |_| false).await;
        rig.secs(100).await;
        for id in 1..3 {
            let drive = rig.engine.drive(DriveId(id)).unwrap();
            rig.engine.free_unknown(&drive, |map| map == MapId(1)).await.unwrap();
            let left = drive.marks().iter().filter(|mark| mark.map == MapId(2)).count();
            assert_eq!(left, 0, "marks of a removed volume on drive {id}");
        }
    });
}

#[test]
fn removing_an_unresolved_volume_lets_a_drive_return() {
    told(|world| async move {
        let mut rig = Rig::new(SimWorld::boot(world.core(), "s"), "mirror:2", 2).await;
        let spec =
            VolumeSpec { id: VolumeId(2), name: "w".into(), map: MapId(2), size: 256 << 20, ..rig.volume.spec() };
        let other = rig.engine.open_volume(spec.clone()).await.unwrap();
        rig.write(0, 1, 1).await.unwrap();
        rig.secs(12).await;
        rig.lose(1).await;
        for region in 0..150u64 {
            other.write((region % 2 * 16 + region / 2 * 512) * BLOCK, Bytes::from(vec![5; 4096]), false).await.unwrap();
        }
        rig.world.kill();
        rig.restart(|nth| nth == 0).await;
        rig.engine.open_volume(spec).await.unwrap();
        rig.bring_back(1).await;
        rig.world.sleep(Duration::from_micros(rig.world.core().draw() % 200)).await;
        rig.engine.remove_volume(VolumeId(2), |_| false).await;
        rig.secs(100).await;
        assert!(rig.is_up(1), "{:?}", rig.volume.health());
    });
}

#[test]
fn a_drive_is_up_again_despite_another_copys_failure() {
    told(|world| async move {
        let mut rig = Rig::new(world, "mirror:2;min_copies=2", 3).await;
        for extent in 0..6 {
            rig.write(extent * 16, 1, 1).await.unwrap();
        }
        rig.lose(1).await;
        rig.fail(0).await;
        rig.bring_back(1).await;
        rig.secs(60).await;
        for again in [false, true] {
            let written = rig.within(100, rig.write(16, 2, 1)).await;
            assert_eq!(written, Some(Ok(())), "drives b and c are here and whole: {:?}", rig.volume.health());
            assert!(rig.is_up(1));
            // The data of drives a and b is lost: b was away when it was written last, and never says otherwise.
            for lost in [0, 3] {
                assert!(matches!(rig.within(100, rig.read(lost * 16)).await, Some(Err(IoError::Lost { .. }))));
            }
            if !again {
                rig.restart(|nth| nth > 0).await;
                rig.engine.retire_absent(DriveId(1), u64::MAX);
                rig.secs(20).await;
            }
        }
    });
}
