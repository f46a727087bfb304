//! What waits, and for which drive: in each story a request once waited for a drive that isn't needed, or went on
//! without a drive that is here.

use super::*;
use crate::column::Blocks;
use crate::{Trouble, Within};
use futures_util::future::{Either, join3, select};
use tepal_model::EXTENT;

/// Story: a write was queued behind others when its client gave up, and was done all the same when its turn came, for
/// nobody.
#[test]
fn a_queued_write_is_dropped_with_its_client() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(0, 1, 3).await.unwrap();
        let ahead = rig.volume.groups()[0].line_up(Blocks::new(0, 3)).turn().await;
        let written = rig.within(1, rig.volume.write(100, Bytes::from(vec![2; 100]), false));
        let zeroed = rig.within(1, rig.volume.write_zeroes(BLOCK, BLOCK, true));
        let trimmed = rig.within(1, rig.volume.trim(2 * BLOCK, BLOCK));
        assert_eq!(join3(written, zeroed, trimmed).await, (None, None, None), "others are ahead of them");
        drop(ahead);
        rig.secs(1).await;
        let now = join(&rig.volume.read(0, 3 * BLOCK).await.unwrap());
        assert!(now.iter().all(|&byte| byte == 1), "nobody waits for it");
    });
}

/// Story: a write of an import waited for a drive while another import took its place. The write was retried by the
/// state of then, and overwrote the other import's data.
#[test]
fn an_earlier_revisions_write_never_lands_on_newer_data() {
    told(|world| async move {
        let rig = Rig::new(world, "stripe", 1).await;
        rig.write(3, 1, 1).await.unwrap();
        rig.lose(0).await;
        let (first, second) = (rig.volume.as_of(1), rig.volume.as_of(2));
        let data = |byte: u8| Bytes::from(vec![byte; BLOCK as usize]);
        let overtaken = first.write(3 * BLOCK, data(2), false);
        let later = second.write(3 * BLOCK, data(3), false);
        let change = async {
            rig.secs(1).await;
            rig.volume.changed("v1", (8 << 20, false), 2, None);
            rig.secs(1).await;
            rig.bring_back(0).await;
        };
        let (overtaken, later, ()) = join3(overtaken, later, change).await;
        assert_eq!((overtaken, later), (Err(IoError::Fenced), Ok(())));
        assert_eq!(rig.read(3).await, Ok(3));
        assert!(!first.is_current() && second.is_current() && rig.volume.is_current());
        assert_eq!(first.trim(3 * BLOCK, BLOCK).await, Err(IoError::Fenced));
        assert_eq!(rig.read(3).await, Ok(3));
    });
}

/// Story: a client gave up a queued write, went on by another gateway after seconds, and read the older data. Then the
/// write was done: reads waited for the writes that they met, and answered what they had read before the end of those
/// writes.
#[test]
fn a_read_waits_for_writes_that_were_long_queued() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(0, 1, 1).await.unwrap();
        let ahead = rig.volume.groups()[0].line_up(Blocks::new(0, 1)).turn().await;
        let left_behind = rig.write(0, 2, 1);
        let read = async {
            rig.secs(2).await;
            rig.read(0).await
        };
        let end = async {
            rig.secs(3).await;
            drop(ahead);
        };
        let (written, read, ()) = join3(left_behind, read, end).await;
        assert_eq!((written, read), (Ok(()), Ok(2)));
    });
}

/// Both drives of a mirror leave together with unflushed data, the second drive last. Only the second returns, with all
/// of the data.
async fn one_of_two_is_back_with_all(rig: &Rig) {
    rig.write(3, 1, 1).await.unwrap();
    let (first, second) = (rig.gate(0), rig.gate(1));
    rig.begin_losing(0);
    rig.begin_losing(1);
    rig.until_leaving(0).await;
    rig.until_leaving(1).await;
    first.send(()).unwrap();
    rig.until_agreed_to_have_left(0).await;
    second.send(()).unwrap();
    rig.secs(1).await;
    rig.bring_back(1).await;
    rig.secs(20).await;
    assert!(rig.is_up(1));
    assert_eq!(rig.read(3).await, Ok(1));
}

#[test]
fn a_flush_never_waits_for_data_another_drive_has() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2;durability=flush", 2).await;
        one_of_two_is_back_with_all(&rig).await;
        assert_eq!(rig.within(100, rig.volume.flush()).await, Some(Ok(())), "{:?}", rig.volume.health());
    });
}

#[test]
fn a_flush_reports_nothing_lost_when_redundant_drives_fail() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2;durability=flush", 2).await;
        one_of_two_is_back_with_all(&rig).await;
        rig.engine.retire_absent(DriveId(1), u64::MAX);
        assert_eq!(rig.within(100, rig.volume.flush()).await, Some(Ok(())));
    });
}

#[test]
fn a_flush_reports_nothing_lost_when_redundant_drives_forget() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2;durability=flush", 2).await;
        one_of_two_is_back_with_all(&rig).await;
        rig.disks[0].pull();
        rig.disks[0].plug_in();
        rig.bring_back(0).await;
        assert_eq!(rig.within(100, rig.volume.flush()).await, Some(Ok(())));
        rig.until_healthy().await;
        rig.lose(1).await;
        assert_eq!(rig.read(3).await, Ok(1));
    });
}

#[test]
fn reads_continue_on_a_drive_just_agreed_up() {
    told(|world| async move {
        let mut rig = Rig::new(SimWorld::boot(world.core(), "s"), "mirror:2", 2).await;
        let told_up = rig.first_returns_untold().await;
        rig.write(1, 2, 1).await.unwrap();
        rig.fail(1).await;
        assert_eq!((rig.read(0).await, rig.read(1).await), (Ok(1), Ok(2)), "drive a has all of it");
        assert_eq!(rig.within(10, rig.write(1, 3, 1)).await, Some(Ok(())), "drive a is agreed to be complete");
        told_up.send(()).unwrap();
        rig.secs(1).await;
        assert!(rig.is_up(0));
        rig.restart(|nth| nth == 0).await;
        rig.engine.retire_absent(DriveId(2), u64::MAX);
        assert_eq!((rig.read(0).await, rig.read(1).await), (Ok(1), Ok(3)), "drive a is believed after a crash");
    });
}

#[test]
fn a_drive_waiting_in_one_column_serves_another() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 3).await;
        for extent in 0..3 {
            rig.write(extent * 16, 1, 1).await.unwrap();
        }
        rig.lose(1).await;
        rig.write(0, 2, 1).await.unwrap();
        rig.write(16, 2, 1).await.unwrap();
        rig.lose(0).await;
        rig.bring_back(1).await;
        rig.secs(20).await;
        rig.write(17, 3, 1).await.unwrap();
        rig.fail(2).await;
        rig.secs(20).await;
        assert!(!rig.is_up(1), "what drives a and b hold, only a knows");
        assert_eq!((rig.read(16).await, rig.read(17).await), (Ok(2), Ok(3)), "drive b has all that c had");
        assert_eq!(rig.within(5, rig.write(17, 4, 1)).await, Some(Ok(())), "drive b is agreed to be complete there");
        rig.bring_back(0).await;
        assert_eq!(rig.within(100, rig.write(17, 5, 1)).await, Some(Ok(())), "{:?}", rig.volume.health());
        rig.secs(20).await;
        assert!(rig.is_up(1));
        assert_eq!((rig.read(0).await, rig.read(16).await, rig.read(17).await), (Ok(2), Ok(2), Ok(5)));
    });
}

#[test]
fn lost_data_keeps_no_drive_from_being_up() {
    told(|world| async move {
        let mut rig = Rig::new(SimWorld::boot(world.core(), "s"), "mirror:3", 3).await;
        rig.write(0, 1, 1).await.unwrap();
        rig.lose(1).await;
        rig.lose(2).await;
        rig.write(0, 2, 1).await.unwrap();
        let drive = rig.engine.drive(DriveId(1)).unwrap();
        drive.checkpoint().await.unwrap();
        rig.disks[0].rot(drive.geometry().slots_start); // so the block can't be copied
        rig.bring_back(1).await;
        rig.bring_back(2).await;
        rig.secs(20).await;
        rig.write(5, 3, 1).await.unwrap(); // the region is marked busy
        rig.world.kill();
        rig.restart(|nth| nth > 0).await;
        rig.engine.retire_absent(DriveId(1), u64::MAX);
        rig.lose(2).await;
        rig.bring_back(2).await;
        rig.secs(60).await;
        assert!(rig.is_up(2), "{:?}", rig.volume.health());
        let VolumeHealth::Unavailable(troubles) = rig.volume.health() else { panic!("the first region is lost") };
        let compares = troubles.iter().any(|trouble| matches!(trouble, Trouble::Comparing { .. }));
        assert!(!compares, "there's nothing to compare: {troubles:?}");
    });
}

#[test]
fn a_failed_drive_never_counts_as_returning() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        rig.engine.drive(DriveId(1)).unwrap().retire("a flush failed");
        rig.lose(0).await;
        assert!(!rig.engine.awaits_drive(DriveId(1)), "a failed flush is never tried again");
    });
}

/// Story: a returned drive that had not caught up was asked which blocks are mapped. A copy of the volume so left out
/// blocks that the drive had missed.
#[test]
fn a_drive_is_never_asked_for_missed_mappings() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        rig.lose(0).await;
        rig.write(0, 1, 1).await.unwrap();
        rig.disks[1].set_faults(Faults { slowdown: 10_000, ..Faults::default() });
        rig.bring_back(0).await;
        let found = rig.volume.block_status(Within { offset: 0, length: BLOCK, limit: 1 }).await.unwrap();
        assert!(found[0].mapped);
        assert!(!rig.missed(0).is_empty(), "it had caught up before");
    });
}

#[test]
fn a_hole_reported_during_a_trim_stays_empty() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(0, 1, 16).await.unwrap();
        rig.secs(12).await;
        rig.disks[1].set_faults(Faults { slowdown: 10_000, ..Faults::default() });
        let soon = Box::pin(rig.world.sleep(Duration::from_millis(20)));
        let Either::Right((_, trim)) = select(Box::pin(rig.volume.trim(0, 16 * BLOCK)), soon).await else {
            panic!("the second copy is trimmed already")
        };
        let looked = Box::pin(rig.volume.block_status(Within { offset: 0, length: 16 * BLOCK, limit: 1 }));
        let soon = Box::pin(rig.world.sleep(Duration::from_millis(20)));
        let (found, look) = match select(looked, soon).await {
            Either::Left((found, _)) => (Some(found), None),
            Either::Right((_, look)) => (None, Some(look)),
        };
        rig.begin_losing(0);
        rig.until_agreed_to_have_left(0).await;
        rig.disks[1].pull();
        rig.begin_losing(1);
        rig.secs(1).await;
        drop(trim);
        rig.disks[1].plug_in();
        rig.disks[1].set_faults(Faults::default());
        rig.bring_back(1).await;
        let found = match look {
            Some(look) => look.await,
            None => found.expect("it was found before"),
        };
        let mapped = found.unwrap()[0].mapped;
        assert!(mapped || rig.read(0).await == Ok(0), "a hole, and then data again");
    });
}

#[test]
fn copies_become_equal_despite_a_briefly_unreadable_deciding_copy() {
    told(|world| async move {
        for _ in 0..4 {
            let mut rig = Rig::new(SimWorld::boot(world.core(), "s"), "mirror:2", 2).await;
            rig.write(32, 1, 16).await.unwrap();
            let slots = rig.engine.drive(DriveId(1)).unwrap().geometry().slots_start;
            rig.secs(12).await;
            rig.disks[1].set_faults(Faults { slowdown: 10_000, ..Faults::default() });
            let volume = rig.volume.clone();
            rig.world.spawn_named("a write that the crash interrupts", async move {
                let _ = volume.write(32 * BLOCK, Bytes::from(vec![2; 16 * BLOCK as usize]), false).await;
            });
            rig.world.sleep(Duration::from_millis(20)).await;
            rig.engine.drive(DriveId(1)).unwrap().checkpoint().await.unwrap();
            rig.world.kill();
            for disk in &rig.disks {
                disk.cut_power();
            }
            let unreadable = std::iter::once(slots..slots + 8 * EXTENT).collect();
            rig.disks[0].set_faults(Faults { unreadable, ..Faults::default() });
            rig.disks[1].set_faults(Faults::default());
            rig.restart(|_| true).await;
            let first = rig.read(32).await;
            rig.secs(20).await;
            rig.disks[0].set_faults(Faults::default());
            rig.secs(20).await;
            for round in 0..2 {
                rig.lose(round).await;
                assert_eq!(rig.read(32).await, first, "once seen, it stays");
                rig.bring_back(round).await;
                rig.until_healthy().await;
            }
        }
    });
}

#[test]
fn a_scrub_never_calls_an_absent_drives_data_lost() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(0, 9, 16).await.unwrap();
        let drive = rig.engine.drive(DriveId(1)).unwrap();
        drive.checkpoint().await.unwrap();
        let slots = drive.geometry().slots_start;
        rig.secs(12).await;
        rig.lose(1).await;
        rig.write(512, 8, 16).await.unwrap();
        drive.checkpoint().await.unwrap();
        for extent in 0..2 {
            rig.disks[0].rot(slots + extent * EXTENT);
        }
        let found = rig.volume.scrub(|_| {}).await.unwrap();
        assert_eq!((found.lost, found.unrepaired), (vec![], vec![0, 2 * REGION]));
        rig.bring_back(1).await;
        rig.secs(20).await;
        // The second block was written while the drive was away.
        let found = rig.volume.scrub(|_| {}).await.unwrap();
        assert_eq!((found.repaired, found.lost, found.unrepaired), (1, vec![2 * REGION], vec![]));
        assert_eq!(rig.read(0).await, Ok(9));
    });
}

#[test]
fn a_read_during_its_volumes_removal_returns_no_zeros() {
    told(|world| async move {
        let mut rig = Rig::new(SimWorld::boot(world.core(), "s"), "mirror:2", 2).await;
        rig.write(0, 7, 16).await.unwrap();
        for drive in rig.engine.drives_here() {
            drive.checkpoint().await.unwrap();
        }
        rig.secs(12).await;
        rig.restart(|_| true).await; // so that the checksums have to be read first
        rig.secs(12).await;
        let slow =
            |slowdown| rig.disks.iter().for_each(|disk| disk.set_faults(Faults { slowdown, ..Faults::default() }));
        slow(10_000);
        let removal = async {
            rig.world.sleep(Duration::from_millis(1)).await;
            slow(1);
            rig.engine.remove_volume(VolumeId(1), |_| false).await;
        };
        let (read, ()) = futures_util::future::join(rig.read(0), removal).await;
        assert!(matches!(read, Ok(7) | Err(IoError::Fenced)), "{read:?}");
    });
}

/// Story: a drive was back, and had just caught up with a region, of which it missed only another block. Rot on the
/// other drive there was called lost.
#[test]
fn a_scrub_never_calls_an_uncopied_block_lost() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(0, 9, 16).await.unwrap();
        let drive = rig.engine.drive(DriveId(1)).unwrap();
        drive.checkpoint().await.unwrap();
        rig.secs(12).await;
        rig.lose(1).await;
        rig.write(40, 8, 4).await.unwrap();
        rig.disks[0].rot(drive.geometry().slots_start);
        rig.disks[1].set_faults(Faults { slowdown: 30, ..Faults::default() });
        rig.bring_back(1).await;
        assert_eq!(rig.volume.recovery().stale_regions, 1);
        let early = rig.volume.scrub(|_| {}).await.unwrap();
        assert_eq!((early.lost, early.repaired + early.unrepaired.len() as u64), (vec![], 1));
        rig.until_healthy().await;
        let found = rig.volume.scrub(|_| {}).await.unwrap();
        assert_eq!((found.repaired, found.lost, found.unrepaired), (1 - early.repaired, vec![], vec![]));
        assert_eq!(rig.read(0).await, Ok(9));
    });
}

#[test]
fn a_scrub_calls_blocks_a_returned_drive_missed_lost() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(0, 9, 16).await.unwrap();
        rig.secs(12).await;
        rig.lose(1).await;
        rig.write(0, 8, 1).await.unwrap();
        let drive = rig.engine.drive(DriveId(1)).unwrap();
        drive.checkpoint().await.unwrap();
        rig.disks[0].rot(drive.geometry().slots_start);
        assert_eq!(rig.volume.scrub(|_| {}).await.unwrap().unrepaired, [0], "it may return with it");
        rig.bring_back(1).await;
        let found = rig.volume.scrub(|_| {}).await.unwrap();
        assert_eq!((found.lost, found.unrepaired), (vec![0], vec![]));
    });
}

/// A discard of an empty range takes no turn. But an earlier write must not be left behind the discard, or the data
/// would be there afterwards.
#[test]
fn an_empty_discard_waits_for_an_earlier_write() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        rig.slow_down(100);
        let (written, discarded) = futures_util::join!(rig.write(0, 1, 4), rig.volume.trim(0, 4 * BLOCK));
        assert_eq!((written, discarded), (Ok(()), Ok(())));
        assert_eq!(rig.read(0).await, Ok(0), "what was discarded last");
    });
}
