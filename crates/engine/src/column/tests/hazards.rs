//! Two things at once that broke a promise: each story says which.

use super::*;
use futures_util::future::{Either, select};
use tepal_codec::checksum::crc;
use tepal_model::EXTENT;

#[test]
fn destaged_data_never_overwrites_newer_data() {
    told(|world| async move {
        for round in 0..12u64 {
            let rig =
                Rig::new(world.clone(), if round % 2 == 0 { "stripe" } else { "mirror:2" }, 1 + (round % 2) as usize)
                    .await;
            for block in 0..16 {
                rig.write(block, 1, 1).await.unwrap();
            }
            let drives: Vec<_> = (0..=round % 2).map(|nth| rig.engine.drive(DriveId(nth + 1)).unwrap()).collect();
            for drive in &drives {
                drive.checkpoint().await.unwrap();
            }
            for block in (0..16).step_by(2) {
                rig.write(block, 2, 1).await.unwrap();
            }
            for drive in drives {
                world.spawn_named("checkpoint", async move {
                    let _ = drive.checkpoint().await;
                });
            }
            world.sleep(Duration::from_micros(world.core().draw() % 400)).await;
            rig.volume.trim(8 * BLOCK, 8 * BLOCK).await.unwrap();
            rig.write(8, 9, 8).await.unwrap();
            world.sleep(Duration::from_secs(5)).await;
            for block in 8..16 {
                assert_eq!(rig.read(block).await, Ok(9), "round {round} block {block}: acknowledged and lost");
            }
        }
    });
}

#[test]
fn a_region_resolved_without_a_drive_stays_so_afterwards() {
    told(|world| async move {
        for round in 0..6usize {
            let mut rig = Rig::new(SimWorld::boot(world.core(), "server"), "mirror:2", 2).await;
            rig.write(0, 1, 1).await.unwrap();
            rig.world.sleep(Duration::from_secs(12)).await; // busy marks are taken back
            let (volume, core) = (rig.volume.clone(), rig.world.core().clone());
            rig.world.spawn_named("a write that the crash interrupts", async move {
                let _ = volume.write(0, Bytes::from(vec![2; BLOCK as usize]), false).await;
            });
            rig.world.sleep(Duration::from_micros(core.draw() % 600)).await;
            rig.world.kill();
            for disk in &rig.disks {
                disk.cut_power();
            }
            let here = round % 2;
            rig.restart(|nth| nth == here).await;
            let first = rig.read(0).await.unwrap();
            rig.world.sleep(Duration::from_secs(12)).await;
            rig.bring_back(1 - here).await;
            rig.until_healthy().await;
            for round in 0..2 {
                rig.lose(round % 2).await;
                assert_eq!(rig.read(0).await, Ok(first), "once seen, it stays");
                rig.bring_back(round % 2).await;
                rig.until_healthy().await;
            }
        }
    });
}

#[test]
fn a_flush_never_claims_writes_lost_with_a_drive() {
    told(|world| async move {
        let rig = Rig::new(world.clone(), "stripe;durability=flush", 1).await;
        rig.write(0, 1, 1).await.unwrap();
        rig.disks[0].pull();
        rig.disks[0].plug_in();
        rig.lose(0).await;
        let volume = rig.volume.clone();
        let while_away = Box::pin(async move { volume.flush().await });
        let waits = Box::pin(rig.world.sleep(Duration::from_secs(1)));
        let Either::Right((_, while_away)) = select(while_away, waits).await else { panic!("it waits for the drive") };
        let second = rig.volume.clone();
        let second = Box::pin(async move { second.flush().await });
        let Either::Right((_, second)) = select(second, Box::pin(rig.world.sleep(Duration::from_secs(1)))).await else {
            panic!("it waits for the drive")
        };
        rig.bring_back(0).await;
        let flushed = while_away.await;
        assert!(rig.read(0).await == Ok(1) || flushed.is_err(), "{flushed:?}");
        assert_eq!(second.await, flushed, "everybody is told who waited");
        assert_eq!(rig.volume.flush().await, Ok(()), "it's told once");
    });
}

#[test]
fn an_uncopyable_block_stops_no_other_region_catching_up() {
    told(|world| async move {
        let rig = Rig::new(world.clone(), "mirror:2", 2).await;
        rig.lose(1).await;
        rig.write(0, 2, 1).await.unwrap();
        for region in 1..8 {
            rig.write(region * 256, 2, 1).await.unwrap();
        }
        let drive = rig.engine.drive(DriveId(1)).unwrap();
        drive.checkpoint().await.unwrap();
        rig.disks[0].rot(drive.geometry().slots_start);
        assert!(rig.read(0).await.is_err());
        rig.bring_back(1).await;
        rig.world.sleep(Duration::from_secs(120)).await;
        assert_eq!(rig.volume.recovery().stale_regions, 1, "{:?}", rig.volume.health());
    });
}

#[test]
fn a_drive_catching_up_serves_alone_what_it_has() {
    told(|world| async move {
        let mut rig = Rig::new(SimWorld::boot(world.core(), "server"), "mirror:2", 2).await;
        for group in 0..4 {
            rig.write(group * 512, 1, 1).await.unwrap();
        }
        rig.lose(1).await;
        rig.write(0, 2, 1).await.unwrap();
        rig.write(512, 2, 1).await.unwrap();
        let drive = rig.engine.drive(DriveId(1)).unwrap();
        drive.checkpoint().await.unwrap();
        rig.disks[0].rot(drive.geometry().slots_start); // so the first region can't be copied
        rig.bring_back(1).await;
        rig.world.sleep(Duration::from_secs(120)).await;
        assert_eq!(rig.volume.recovery().stale_regions, 1);
        rig.write(1024, 3, 1).await.unwrap();
        let failed = Loss::Retired { drive: DriveId(1), reason: "it is worn out".into() };
        rig.engine.lose_drive(DriveId(1), failed).await;
        for life in 0..2 {
            assert!(rig.read(0).await.is_err(), "it misses this, and says so");
            assert_eq!((rig.read(512).await, rig.read(1024).await, rig.read(1536).await), (Ok(2), Ok(3), Ok(1)));
            assert!(matches!(rig.volume.health(), VolumeHealth::Unavailable(_)), "{:?}", rig.volume.health());
            rig.write(512, 2, 1).await.unwrap();
            if life == 0 {
                rig.restart(|nth| nth == 1).await;
                rig.engine.retire_absent(DriveId(1), u64::MAX);
            }
        }
    });
}

/// Another block with the same CRC.
fn twin(block: &[u8]) -> Vec<u8> {
    let changed = |bit: usize| {
        let mut other = block.to_vec();
        other[bit / 8] ^= 1 << (bit % 8);
        other
    };
    let difference = |bit| crc(&changed(bit)) ^ crc(block);
    // Which of 32 bits undo the change of the first bit: elimination over their differences.
    let mut basis: Vec<(u32, u32)> = Vec::new();
    let reduce = |basis: &[(u32, u32)], mut value: (u32, u32)| {
        for other in basis {
            if value.0 ^ other.0 < value.0 {
                value = (value.0 ^ other.0, value.1 ^ other.1);
            }
        }
        value
    };
    for nth in 0..32 {
        let reduced = reduce(&basis, (difference(32 + nth), 1 << nth));
        basis.push(reduced);
        basis.sort_unstable_by(|a, b| b.cmp(a));
    }
    let (left, bits) = reduce(&basis, (difference(0), 0));
    assert_eq!(left, 0);
    let mut other = changed(0);
    (0..32).filter(|nth| bits >> nth & 1 == 1).for_each(|nth| other[4 + nth / 8] ^= 1 << (nth % 8));
    other
}

#[test]
fn a_missed_block_is_copied_despite_an_equal_checksum() {
    told(|world| async move {
        let rig = Rig::new(world.clone(), "mirror:2", 2).await;
        let old = vec![7; BLOCK as usize];
        let new = twin(&old);
        assert!(crc(&old) == crc(&new) && old != new);
        rig.volume.write(0, old.into(), false).await.unwrap();
        rig.lose(1).await;
        rig.volume.write(0, new.clone().into(), false).await.unwrap();
        rig.bring_back(1).await;
        rig.until_healthy().await;
        rig.lose(0).await;
        assert_eq!(join(&rig.volume.read(0, BLOCK).await.unwrap()), new);
    });
}

#[test]
fn a_write_goes_on_after_its_region_caught_up() {
    told(|world| async move {
        let rig = Rig::new(world.clone(), "mirror:2;min_copies=2;durability=flush", 2).await;
        for region in 0..8 {
            rig.write(region * 256, 2, 1).await.unwrap();
        }
        let drive = rig.engine.drive(DriveId(1)).unwrap();
        drive.checkpoint().await.unwrap();
        rig.disks[1].pull();
        rig.disks[1].plug_in();
        rig.lose(1).await;
        let volume = rig.volume.clone();
        let mut write = Box::pin(async move { volume.write(0, Bytes::from(vec![5; 4096]), false).await });
        let waits = Box::pin(rig.world.sleep(Duration::from_secs(1)));
        let Either::Right((_, again)) = select(write, waits).await else { panic!() };
        write = again;
        // The last region can't catch up: both copies are damaged there.
        rig.disks[0].rot(drive.geometry().slots_start + 7 * EXTENT);
        rig.bring_back(1).await;
        let waits = Box::pin(rig.world.sleep(Duration::from_secs(100)));
        let done = matches!(select(write, waits).await, Either::Left(_));
        let now = rig.write(256, 6, 1).await;
        assert!(
            done,
            "it still waits; stale regions: {}; a later write to the next region: {now:?}",
            rig.volume.recovery().stale_regions
        );
    });
}

#[test]
fn a_read_given_up_while_resolving_leaks_nothing() {
    told(|world| async move {
        for _ in 0..6 {
            let mut rig = Rig::new(SimWorld::boot(world.core(), "server"), "mirror:2", 2).await;
            let (volume, core) = (rig.volume.clone(), rig.world.core().clone());
            for region in 0..7 {
                let volume = volume.clone();
                rig.world.spawn_named("a write that the crash interrupts", async move {
                    let _ = volume.write(region << 20, Bytes::from(vec![2; 256 * BLOCK as usize]), false).await;
                });
            }
            rig.world.sleep(Duration::from_micros(core.draw() % 900)).await;
            rig.world.kill();
            for disk in &rig.disks {
                disk.cut_power();
            }
            rig.restart(|_| true).await;
            for _ in 0..20 {
                let volume = rig.volume.clone();
                let read = Box::pin(async move { volume.read(6 << 20, BLOCK).await });
                let goes = Box::pin(rig.world.sleep(Duration::from_micros(core.draw() % 4000)));
                select(read, goes).await;
            }
            rig.world.sleep(Duration::from_secs(20)).await;
            let _ = rig.volume.read(0, 7 << 20).await;
            for nth in 1..=2 {
                let drive = rig.engine.drive(DriveId(nth)).unwrap();
                assert_eq!(drive.slots_unaccounted(), 0, "slots leaked");
            }
            rig.volume.trim(0, 8 << 20).await.unwrap();
            for nth in 1..=2 {
                let drive = rig.engine.drive(DriveId(nth)).unwrap();
                assert_eq!((drive.usage().used, drive.slots_unaccounted()), (0, 0), "trimmed space isn't back");
            }
        }
    });
}

#[test]
fn a_drive_that_returns_during_resolving_is_compared_too() {
    told(|world| async move {
        for round in 0..10usize {
            let mut rig = Rig::new(SimWorld::boot(world.core(), "server"), "mirror:2", 2).await;
            rig.write(0, 1, 256).await.unwrap();
            rig.world.sleep(Duration::from_secs(12)).await;
            for block in [3, 40, 80, 120, 160, 200, 240] {
                let volume = rig.volume.clone();
                rig.world.spawn_named("a write that the crash interrupts", async move {
                    let _ = volume.write(block * BLOCK, Bytes::from(vec![2; BLOCK as usize]), false).await;
                });
            }
            let core = rig.world.core().clone();
            rig.world.sleep(Duration::from_micros(core.draw() % 400)).await;
            rig.world.kill();
            for disk in &rig.disks {
                disk.cut_power();
            }
            let here = round % 2;
            rig.restart(|nth| nth == here).await;
            rig.world.sleep(Duration::from_micros(core.draw() % 300)).await;
            rig.bring_back(1 - here).await;
            rig.until_healthy().await;
            rig.world.sleep(Duration::from_secs(12)).await;
            let summary = rig.volume.scrub(|_| {}).await.unwrap();
            assert_eq!(summary.unequal_extents, 0, "copies differ for ever");
        }
    });
}

#[test]
fn reads_that_are_given_up_leave_the_queues() {
    told(|world| async move {
        let rig = Rig::new(world.clone(), "mirror:2", 2).await;
        rig.write(0, 2, 16).await.unwrap();
        for nth in 1..=2 {
            rig.engine.drive(DriveId(nth)).unwrap().checkpoint().await.unwrap();
        }
        for _ in 0..50 {
            let volume = rig.volume.clone();
            let read = Box::pin(async move { volume.read(0, 16 * BLOCK).await });
            let goes = Box::pin(rig.world.sleep(Duration::from_micros(3)));
            select(read, goes).await;
        }
        rig.world.sleep(Duration::from_secs(2)).await;
        let queues: Vec<usize> = (1..=2).map(|nth| rig.engine.drive(DriveId(nth)).unwrap().reading()).collect();
        assert_eq!(queues, [0, 0]);
    });
}

#[test]
fn a_write_lost_on_one_drive_is_never_acknowledged() {
    told(|world| async move {
        let rig = Rig::new(world, "stripe;durability=flush", 2).await;
        rig.write(0, 1, 32).await.unwrap();
        rig.volume.flush().await.unwrap();
        rig.disks[1].set_faults(Faults { slowdown: 10_000, ..Faults::default() });
        let write = rig.write(15, 2, 2);
        let outage = async {
            rig.world.sleep(Duration::from_millis(20)).await; // the first drive has its block by now, and nobody flushes
            rig.disks[0].pull();
            rig.lose(0).await;
            rig.disks[0].plug_in();
            rig.bring_back(0).await;
        };
        let (written, ()) = futures_util::future::join(write, outage).await;
        let read = rig.read(15).await;
        assert!(written.is_err() || read == Ok(2), "{written:?}, then {read:?}");
    });
}

#[test]
fn a_write_lost_on_one_copy_is_written_again() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2;durability=flush", 2).await;
        rig.write(0, 1, 16).await.unwrap();
        rig.lose(0).await;
        rig.write(0, 2, 16).await.unwrap(); // so the second drive alone is believed
        rig.volume.flush().await.unwrap();
        rig.disks[0].set_faults(Faults { slowdown: 10_000, ..Faults::default() });
        rig.bring_back(0).await;
        let write = rig.write(3, 3, 1);
        let outage = async {
            rig.world.sleep(Duration::from_millis(20)).await; // the second drive has the block by now, and the slow one doesn't
            rig.disks[1].pull();
            rig.lose(1).await;
            rig.disks[1].plug_in();
            rig.bring_back(1).await;
        };
        let (written, ()) = futures_util::future::join(write, outage).await;
        written.unwrap();
        assert_eq!(rig.read(3).await, Ok(3));
        rig.world.sleep(Duration::from_secs(100)).await;
        assert_eq!(rig.read(3).await, Ok(3));
    });
}
