//! Which copy is believed when the drive that knew most leaves halfway: each story once broke a promise.

use super::*;
use crate::places::CopyStatus;
use futures_util::future::{Either, select};
use tepal_model::EXTENT;

/// A drive is unplugged without a flush of its cache, and loses it.
async fn unplug(rig: &Rig, nth: usize) {
    rig.disks[nth].pull();
    rig.lose(nth).await;
    rig.disks[nth].plug_in();
}

/// The second drive loses a write that both had, while the first isn't known to be up. The news of the first comes
/// before or after a long absence.
async fn the_second_loses_what_both_had(rig: Rig, is_told_before: bool) {
    let told_up = rig.first_returns_untold().await;
    assert!(rig.missed(0).is_empty() && !rig.is_up(0), "it has caught up, and isn't said to be up");
    rig.write(256, 2, 1).await.unwrap();
    unplug(&rig, 1).await;
    if is_told_before {
        told_up.send(()).unwrap();
        rig.secs(10).await;
    } else {
        rig.secs(10).await;
        drop(told_up);
    }
    rig.bring_back(1).await;
    rig.until_healthy().await;
    let summary = rig.volume.scrub(|_| {}).await.unwrap();
    assert_eq!(summary.unequal_extents, 0, "clean copies differ");
}

#[test]
fn copies_are_compared_after_a_knowing_drives_long_absence() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2;durability=flush", 2).await;
        the_second_loses_what_both_had(rig, false).await;
    });
}

#[test]
fn copies_are_compared_though_another_was_up_first() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2;durability=flush", 2).await;
        the_second_loses_what_both_had(rig, true).await;
    });
}

#[test]
fn data_read_of_an_abandoned_write_is_not_lost() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(3, 1, 1).await.unwrap();
        rig.secs(12).await;
        rig.disks[1].set_faults(Faults { slowdown: 10_000, ..Faults::default() });
        let soon = Box::pin(rig.world.sleep(Duration::from_millis(20)));
        let Either::Right((_, write)) = select(Box::pin(rig.write(3, 2, 1)), soon).await else {
            panic!("the second copy has it already")
        };
        let soon = Box::pin(rig.world.sleep(Duration::from_millis(20)));
        let Either::Right((_, read)) = select(Box::pin(rig.read(3)), soon).await else {
            panic!("it waits for the write")
        };
        rig.begin_losing(0);
        rig.until_agreed_to_have_left(0).await;
        rig.disks[1].pull();
        rig.begin_losing(1);
        rig.secs(1).await;
        let soon = Box::pin(rig.secs(1));
        let Either::Right((_, write)) = select(write, soon).await else { panic!("it waits for a copy") };
        drop(write);
        rig.disks[1].plug_in();
        rig.disks[1].set_faults(Faults::default());
        rig.bring_back(1).await;
        let first = read.await.unwrap();
        assert_eq!(rig.read(3).await, Ok(first), "once seen, it stays");
    });
}

#[test]
fn a_drive_that_leaves_while_agreed_up_is_believed() {
    told(|world| async move {
        let mut rig = Rig::new(SimWorld::boot(world.core(), "s"), "mirror:2", 2).await;
        rig.write(0, 1, 1).await.unwrap();
        rig.lose(0).await;
        rig.write(0, 2, 1).await.unwrap();
        let _told_up = rig.gate(0);
        rig.bring_back(0).await;
        rig.secs(8).await;
        rig.lose(1).await;
        rig.lose(0).await; // agreed to be up, but that isn't known here yet
        rig.authority.refuse_once();
        rig.bring_back(1).await;
        let written = rig.within(3, rig.write(0, 3, 1)).await;
        rig.restart(|_| true).await;
        rig.until_healthy().await;
        let read = rig.read(0).await;
        assert!(written.is_none() || read == Ok(3), "{written:?}, then {read:?}");
    });
}

#[test]
fn a_drive_that_knows_nothing_vouches_for_no_other() {
    told(|world| async move {
        let mut rig = Rig::new(SimWorld::boot(world.core(), "s"), "mirror:3", 3).await;
        rig.write(0, 1, 1).await.unwrap();
        rig.secs(12).await;
        rig.lose(1).await;
        rig.lose(2).await;
        rig.write(0, 2, 1).await.unwrap();
        rig.restart(|nth| nth == 1).await;
        rig.engine.retire_absent(DriveId(1), u64::MAX);
        rig.secs(20).await;
        assert!(rig.is_up(1) && rig.read(0).await.is_err());
        rig.bring_back(2).await;
        rig.secs(20).await;
        assert!(rig.is_up(2));
        for _ in 0..4 {
            let read = rig.within(100, rig.read(0)).await;
            assert!(matches!(read, Some(Err(IoError::Lost { .. }))), "what was newest has failed: {read:?}");
        }
        assert!(matches!(rig.volume.health(), VolumeHealth::Unavailable(_)));
    });
}

#[test]
fn a_drive_just_agreed_up_survives_the_others_failure() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        let told_up = rig.first_returns_untold().await;
        rig.fail(1).await;
        rig.secs(1).await;
        told_up.send(()).unwrap();
        rig.secs(20).await;
        assert_eq!((rig.read(0).await, rig.is_up(0)), (Ok(1), true));
    });
}

#[test]
fn a_waiting_drive_is_up_when_the_awaited_fails() {
    told(|world| async move {
        for while_here in [false, true] {
            let rig = Rig::new(SimWorld::boot(world.core(), "s"), "mirror:2;min_copies=2", 3).await;
            for extent in 0..6 {
                rig.write(extent * 16, 1, 1).await.unwrap();
            }
            rig.lose(1).await;
            if while_here {
                rig.authority.refuse_once();
                rig.bring_back(1).await;
                rig.secs(1).await;
                rig.fail(0).await;
            } else {
                rig.lose(0).await;
                rig.bring_back(1).await;
                rig.secs(1).await;
                rig.engine.retire_absent(DriveId(1), u64::MAX);
            }
            let written = rig.within(100, rig.write(16, 2, 1)).await;
            assert_eq!(written, Some(Ok(())), "drives b and c are here and whole: {:?}", rig.volume.health());
            rig.secs(10).await; // its copy of the part that was written counts before
            assert!(rig.is_up(1));
            rig.fail(2).await;
            assert_eq!(rig.read(16).await, Ok(2), "drive b has it too");
        }
    });
}

#[test]
fn space_freed_by_flushes_is_found_on_every_copy() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2;durability=flush", 2).await;
        rig.volume.resize(1 << 30);
        let mut block = 0;
        while rig.write(block, 7, 16).await.is_ok() {
            block += 16;
        }
        rig.volume.trim(0, EXTENT).await.unwrap();
        rig.write(16, 8, 16).await.unwrap(); // to a new slot; the old slot is free after the flush
        assert_eq!(rig.write(block, 9, 16).await, Ok(()));
    });
}

#[test]
fn a_failing_drive_with_an_only_copy_is_kept() {
    told(|world| async move {
        for alone in [false, true] {
            let rig = Rig::new(SimWorld::boot(world.core(), "s"), "mirror:2", 2).await;
            let (text, drives) = if alone { ("stripe", 1..=1) } else { ("mirror:2", 1..=2) };
            let (layout, places) = (text.parse().unwrap(), places(drives, text));
            let spec = VolumeSpec {
                id: VolumeId(2),
                name: "w".into(),
                map: MapId(2),
                layout,
                geometry: round(&places),
                places,
                ..rig.volume.spec()
            };
            let other = rig.engine.open_volume(spec).await.unwrap();
            rig.write(0, 1, 256).await.unwrap();
            other.write(0, Bytes::from(vec![5; 4096]), false).await.unwrap();
            let drive = rig.engine.drive(DriveId(1)).unwrap();
            drive.checkpoint().await.unwrap();
            let unreadable = std::iter::once(drive.geometry().slots_start..16 << 20).collect();
            rig.disks[0].set_faults(Faults { unreadable, ..Faults::default() });
            for block in (0..256).step_by(4) {
                assert_eq!(rig.read(block).await, Ok(1));
                rig.secs(1).await;
            }
            assert!(drive.usage().read_errors >= 64);
            rig.disks[0].set_faults(Faults::default());
            assert_eq!(rig.engine.drive(DriveId(1)).is_some(), alone);
            assert_eq!(join(&other.read(0, BLOCK).await.unwrap())[0], 5);
        }
    });
}

/// Story: a server was cut off while the other drive returned, took writes, and left again. The server heard only that
/// the drive had left, which it knew already, and took its own drive, which had left in between, for the one that knew
/// most: new data read as zeros.
#[test]
fn an_absent_drive_that_was_up_meanwhile_is_awaited() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(0, 1, 1).await.unwrap();
        rig.lose(1).await;
        rig.lose(0).await;
        let other = DriveId(2);
        rig.engine.lose_as_agreed(other, Loss::Gone { drive: other, reason: "as agreed".into() }, 9).await;
        rig.follow_copies(8, &[(1, CopyStatus::PassedOver(7)), (2, CopyStatus::Complete)]);
        rig.bring_back(0).await;
        let (read, wait) = (Box::pin(rig.read(0)), Box::pin(rig.world.sleep(Duration::from_secs(1))));
        let Either::Right((_, read)) = select(read, wait).await else { panic!("it can't know") };
        let drive = opened(&rig.world, &rig.disks[1]).await;
        rig.engine.add_drive(drive, Standing::Behind(9));
        assert_eq!(read.await, Ok(1));
    });
}

impl Rig {
    /// Follows a state of that view that says which of the first column's copies on these drives are complete.
    fn follow_copies(&self, view: u64, copies: &[(u64, CopyStatus)]) {
        let mut places = Places::clone(&self.volume.spec().places);
        places.incomplete = copies.iter().map(|&(drive, status)| ((0, DriveId(drive)), status)).collect();
        places.incomplete.retain(|_, status| *status != CopyStatus::Complete);
        for column in 1..places.columns.len() {
            let others = copies.iter().filter(|(_, status)| *status != CopyStatus::Complete);
            places.incomplete.extend(others.map(|&(drive, status)| ((column, DriveId(drive)), status)));
        }
        self.volume.map().set_copies(&places, view);
    }
}

/// Story: a drive that wasn't found when a cluster was rebuilt counted as having been up last, as it might have gone on
/// alone. When it was removed by hand, data that others had too was an error everywhere.
#[test]
fn removing_a_drive_that_was_maybe_last_loses_nothing() {
    for is_believed in [true, false] {
        told(move |world| async move {
            let mut rig = Rig::new(SimWorld::boot(world.core(), "s"), "mirror:2", 2).await;
            rig.write(0, 1, 1).await.unwrap();
            rig.secs(12).await;
            {
                let mut agreed = rig.authority.0.lock().unwrap();
                (agreed.view, agreed.left) = (12, vec![(DriveId(1), Some(10)), (DriveId(2), Some(11))]);
                let places = agreed.places.values_mut().next().unwrap();
                let passed = |column| ((column, DriveId(1)), CopyStatus::PassedOver(10));
                places.incomplete = (0..places.columns.len()).map(passed).collect();
            }
            rig.restart(|nth| nth == 0).await;
            assert!(rig.within(20, rig.read(0)).await.is_none(), "it waits for what the other may know");
            if is_believed {
                rig.follow_copies(13, &[(2, CopyStatus::PassedOver(10))]);
            }
            rig.engine.retire_absent(DriveId(2), 11);
            let read = rig.within(20, rig.read(0)).await.expect("nobody is waited for");
            assert_eq!(read.ok(), is_believed.then_some(1));
        });
    }
}

/// Of three drives, the last leaves while its log says what the second misses. Then the second catches up.
#[test]
fn a_returned_drives_old_news_of_others_does_not_count() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:3;durability=flush", 3).await;
        rig.write(0, 1, 1).await.unwrap();
        rig.secs(12).await;
        rig.lose(1).await;
        rig.write(0, 2, 1).await.unwrap();
        rig.lose(2).await;
        let _told_up = rig.gate(1);
        rig.bring_back(1).await;
        while !rig.missed(1).is_empty() {
            rig.world.sleep(Duration::from_millis(1)).await;
        }
        rig.bring_back(2).await;
        assert_eq!(rig.missed(1), [] as [u64; 0], "the first drive was there, and knows better");
    });
}
