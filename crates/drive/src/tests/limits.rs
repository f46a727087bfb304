//! A drive at its limits: nearly full, and with more marks than its log can hold.

use super::{MAP, Rig};
use crate::write::Refused;
use crate::{Change, DriveError, Loss, Mark, MarkKind, Write};
use bytes::Bytes;
use std::borrow::Cow;
use tepal_codec::checksum::block_crcs;
use tepal_model::{BLOCK, DriveId, EXTENT, Taking};

/// Far from each other, so that each takes a word of its own.
fn sparse(number: u64) -> Change {
    Change::Marked(Mark { map: MAP, region: number * 64, kind: MarkKind::Stale(DriveId(9)) })
}

/// Story: half of a full drive was freed, and held while its device was told so. Writes found no space meanwhile.
#[test]
fn space_that_is_being_discarded_is_waited_for() {
    let mut rig = Rig::new();
    let extents = rig.drive.usage().capacity / EXTENT;
    for extent in 0..extents {
        rig.write(extent * 16, &[1; 16], true).unwrap();
    }
    rig.clear(0, extents / 2 * 16);
    rig.device.0.borrow_mut().discard_takes = 50;
    rig.drive.start_checkpoint(&mut rig.drive.shared.lock());
    for _ in 0..1000 {
        if rig.drive.shared.lock().space.free() < 10 {
            break;
        }
        rig.pool.try_run_one();
    }
    assert!(rig.drive.shared.lock().space.free() < 10, "the discard is under way");
    for extent in 0..extents / 2 {
        rig.write(extent * 16, &[2; 16], true).unwrap();
    }
    assert_eq!(rig.write(extents * 16, &[3], true), Err(DriveError::OutOfSpace));
    rig.pool.run_until(rig.drive.checkpoint()).unwrap();
    assert_eq!((rig.drive.slots_unaccounted(), rig.read(0, 1).unwrap()), (0, vec![2]));
}

/// Story: a client wrote to and trimmed places far from each other while another drive was away. Their marks outgrew the
/// log: the drive was retired by its next checkpoint, and with it all that it held.
#[test]
fn a_write_whose_marks_have_no_room_in_the_log_is_refused_before_anything_is_written() {
    let mut rig = Rig::new();
    rig.write(0, &[1], true).unwrap();
    let data = Bytes::from(vec![2; BLOCK as usize]);
    let mut taken = 0;
    loop {
        let marks = (taken..taken + 500).map(sparse).collect();
        let crcs = Cow::from(block_crcs(&data).collect::<Vec<u32>>());
        let data = [data.clone()].into_iter().collect();
        let (first, taking, lineage) = (taken, Taking::Nothing, &rig.lineage);
        let write = Write { map: MAP, first, data, crcs, marks, durable: true, repair: false, taking, lineage };
        if let Err(error) = rig.pool.run_until(rig.drive.write(write.clone())) {
            assert_eq!(error, DriveError::OutOfSpace);
            assert_eq!(rig.drive.prepare(&write).err(), Some(Refused::Full));
            break;
        }
        rig.pool.run_until(rig.drive.checkpoint()).unwrap();
        taken += 500;
    }
    assert!(taken >= 4000, "{taken}");
    assert_eq!((rig.drive.marks().len() as u64, rig.drive.loss()), (taken, None));
    rig.write(7, &[3], true).expect("it brings no marks");
    rig.pool.run_until(rig.drive.record(vec![Change::UnmarkedMap { map: MAP }], true)).unwrap();
    assert_eq!(rig.drive.slots_unaccounted(), 0);
}

#[test]
fn marks_for_which_the_log_has_no_room_are_refused_and_room_comes_back_with_those_that_go() {
    let mut rig = Rig::new();
    let mut taken = 0;
    for _ in 0..3 {
        loop {
            match rig.pool.run_until(rig.drive.record((taken..taken + 300).map(sparse).collect(), true)) {
                Ok(()) => taken += 300,
                Err(refused) => break assert_eq!(refused, DriveError::OutOfSpace),
            }
        }
        assert_eq!((rig.drive.marks().len() as u64, rig.drive.loss()), (taken, None));
        rig.reopen();
        rig.pool.run_until(rig.drive.checkpoint()).unwrap();
        rig.write(0, &[1], true).unwrap();
        rig.pool.run_until(rig.drive.record(vec![Change::UnmarkedMap { map: MAP }], true)).unwrap();
        assert_eq!(rig.drive.marks(), []);
        taken = 0;
    }
}

/// Marks that come with what can't be refused. Even so nothing hangs, and what the drive has it keeps.
#[test]
fn a_drive_with_more_marks_than_its_log_holds_is_gone_and_not_retired() {
    let mut rig = Rig::new();
    rig.write(0, &[1], true).unwrap();
    let mut taken = 0;
    let refused = loop {
        let marks = (taken..taken + 1000).map(sparse).collect();
        match rig.pool.run_until(rig.drive.clear(MAP, (16, 1), marks, Taking::Nothing, &rig.lineage)) {
            Ok(()) => taken += 1000,
            Err(refused) => break refused,
        }
        assert!(taken < 100_000, "a log of a megabyte has no room for them");
    };
    let DriveError::Lost(loss) = refused else { panic!("{refused}") };
    assert!(matches!(&*loss, Loss::Gone { reason, .. } if reason.contains("marks")), "{loss}");
    rig.device.lose_power();
    rig.reopen();
    assert_eq!(rig.read(0, 1).unwrap(), [1]);
    assert!(rig.drive.marks().len() as u64 >= taken);
}
