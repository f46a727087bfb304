//! The protocol's plain stories, on simulated drives. Random schedules and faults are left to the simulator.

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
mod gaps;
mod given_up;
mod hazards;
mod late;
mod leading;
mod leftovers;
mod live;
mod migrations;
mod moves;
mod pace;
mod ranges;
mod resolving;
mod rig;
mod room;
mod seam;
mod sharing;
mod snapshots;
mod stripes;
mod surplus;
mod two_servers;
mod waits;

use crate::epochs::Subject;
use crate::{Engine, Epochs, Places, Placing, Standing, View, Volume, VolumeHealth, VolumeSpec};
use bytes::Bytes;
use futures_channel::oneshot;
use futures_util::FutureExt;
use rig::{Agrees, Rig, formatted, opened, places, round, spec, told};
use std::sync::Arc;
use std::time::Duration;
use tepal_drive::world::Clock;
use tepal_drive::{Drive, Loss};
use tepal_model::{BLOCK, DriveId, IoError, MapId, REGION, VolumeId, buffer::join};
use tepal_sim::device::Faults;
use tepal_sim::{SimDisk, SimWorld};

#[test]
fn bytes_of_any_alignment_are_read_back_as_written() {
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
fn requests_past_the_volumes_end_are_refused() {
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
fn a_returned_drive_misses_nothing_after_catching_up() {
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
fn a_drive_alone_after_restart_serves_no_missed_region() {
    told(|world| async move {
        let mut rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(0, 1, 1).await.unwrap();
        rig.lose(0).await;
        rig.write(0, 2, 1).await.unwrap();
        rig.restart(|nth| nth == 0).await; // only the drive that doesn't know
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
fn the_last_drive_to_leave_is_believed_afterwards() {
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
fn copies_that_differ_after_crashes_are_resolved_before_reads() {
    told(|world| async move {
        let mut rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(0, 1, 1).await.unwrap();
        let (volume, core) = (rig.volume.clone(), rig.world.core().clone());
        rig.world.spawn_named("a write that the crash interrupts", async move {
            let _ = volume.write(0, Bytes::from(vec![2; BLOCK as usize]), false).await;
        });
        rig.world.sleep(Duration::from_micros(core.draw() % 900)).await;
        // The story's own task goes on: only the tasks of the old life end, with their world.
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
fn a_flush_reports_once_that_unflushed_data_was_lost() {
    // Story: a flush was acknowledged without a look at the drives that were away.
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
fn a_rotten_block_is_served_and_repaired_from_elsewhere() {
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
fn rot_without_another_copy_fails_only_that_block() {
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
fn writes_wait_until_min_copies_are_here() {
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
fn a_full_drive_refuses_a_write_on_all_copies() {
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
fn a_removed_volume_frees_its_space_and_refuses_requests() {
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
fn a_drive_absent_during_volume_removal_frees_its_space() {
    // Story: the drive was behind only in the removed volume, and stayed behind for ever; marks about the drive stayed
    // too.
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
fn a_cut_off_with_all_drives_away_is_final() {
    // Story: nothing was found to clear on the drives that were here, and so no absent drive was waited for.
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
