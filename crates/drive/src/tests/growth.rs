//! Drives whose devices were enlarged.

use super::device::Torn;
use super::{MAP, Rig, SIZE, TestDevice};
use crate::geometry::{Geometry, LABEL_FIRST};
use crate::identity::label::{GROWN, LabelError, MOST_GROWTHS};
use crate::{DriveError, GrowError, Label, OpenError, grow, prepare_growth, raise, wipe};
use std::future::ready;
use tepal_model::{BLOCK, DriveId, EXTENT};

const DRIVE: DriveId = DriveId(2);

impl Rig {
    /// Enlarges the device, has the drive take all of it, and takes it into use again.
    pub fn grow(&mut self, size: u64) -> Result<(), GrowError> {
        self.device.resize(size);
        let prepared = Label { ..self.drive.label().clone() }.grown(size)?;
        self.pool.run_until(prepare_growth(&self.device, &prepared))?;
        let label = self.pool.run_until(grow(&self.device, DRIVE, size))?;
        assert_eq!(label, prepared);
        self.reopen();
        Ok(())
    }

    /// Takes the drive into use once more with its log.
    fn start(&mut self) -> Result<(), OpenError> {
        let label = self.pool.run_until(Label::read(&self.device))?;
        let label = Label { generation: label.generation + 1, ..label };
        let doubtful = self.pool.run_until(raise(&label, &self.device, self.log.as_ref(), 0))?;
        assert!(!doubtful);
        self.reopen();
        Ok(())
    }

    /// Writes extents of their number until there's no room. How many there are then.
    fn fill_up(&mut self, mut extents: u64) -> u64 {
        loop {
            match self.write(extents * 16, &[number(extents); 16], true) {
                Ok(()) => extents += 1,
                Err(full) => {
                    assert_eq!(full, DriveError::OutOfSpace);
                    return extents;
                }
            }
        }
    }

    fn check_extents(&mut self, extents: u64) {
        for extent in 0..extents {
            assert_eq!(self.read(extent * 16, 16).unwrap(), [number(extent); 16], "extent {extent}");
        }
        assert_eq!(self.read(extents * 16, 1).unwrap(), [0]);
        assert_eq!(self.drive.slots_unaccounted(), 0);
    }
}

fn number(extent: u64) -> u8 {
    1 + (extent % 250) as u8
}

/// Where the device has a label.
fn labels(device: &TestDevice) -> Vec<u64> {
    let platter = device.0.borrow();
    let blocks = platter.stable.chunks_exact(BLOCK as usize).enumerate();
    blocks.filter(|(_, block)| Label::decode(block).is_ok()).map(|(number, _)| number as u64 * BLOCK).collect()
}

#[test]
fn a_full_drive_that_grows_several_times_takes_more_and_keeps_all() {
    for log in [None, Some(4 << 20)] {
        let mut rig = Rig::on(TestDevice::new(SIZE), log.map(TestDevice::new));
        let (mut extents, mut size) = (rig.fill_up(0), SIZE);
        for (round, step) in [5 << 20, (70 << 10) + 512, 40 << 20, 1 << 20].into_iter().enumerate() {
            size += step;
            let before = rig.drive.usage().capacity;
            rig.grow(size).unwrap();
            rig.check_extents(extents);
            let more = rig.fill_up(extents);
            assert_eq!(more * EXTENT, rig.drive.usage().capacity);
            assert!(rig.drive.usage().capacity - before + (300 << 10) + step / 50 > step, "{step}: {more}");
            // What is new is checkpointed, lost from memory, overwritten, and taken into use as by a server.
            extents = more;
            if round % 2 == 0 {
                rig.pool.run_until(rig.drive.checkpoint()).unwrap();
            }
            rig.device.lose_power();
            rig.start().unwrap();
            rig.check_extents(extents);
            for extent in [0, extents / 2, extents - 1] {
                rig.write(extent * 16 + 3, &[number(extent)], true).unwrap();
            }
            let report = rig.pool.run_until(rig.drive.scrub(None, |_| ready(()))).unwrap();
            assert_eq!((report.blocks_checked, report.damaged.len()), (extents * 16, 0));
            assert_eq!(labels(&rig.device), [LABEL_FIRST, Geometry::label_last(size)]);
        }
        rig.clear(0, extents * 16);
        rig.pool.run_until(rig.drive.checkpoint()).unwrap(); // which discards slots of all sections
        rig.start().unwrap();
        rig.check_extents(0);
    }
}

#[test]
fn what_is_side_by_side_in_number_only_is_read_and_written_apart() {
    let mut rig = Rig::new();
    let extents = rig.fill_up(0);
    rig.grow(SIZE + (8 << 20)).unwrap();
    let first = rig.drive.geometry().slots;
    // The last slots of the first section are the reserve; over the boundary in one write.
    rig.write(extents * 16, &[77; 32 * 16], true).unwrap();
    assert_eq!(rig.read(extents * 16, 32 * 16).unwrap(), vec![77; 32 * 16]);
    rig.pool.run_until(rig.drive.checkpoint()).unwrap();
    rig.reopen();
    assert_eq!(rig.read(extents * 16, 32 * 16).unwrap(), vec![77; 32 * 16]);
    rig.clear(extents * 16, 32 * 16);
    rig.pool.run_until(rig.drive.checkpoint()).unwrap();
    assert_eq!(labels(&rig.device).len(), 2, "{first}");
    rig.reopen();
    rig.check_extents(extents);
}

/// The power goes at each of the writes in turn, of which nothing, the first sector, or all that came before is there.
#[test]
fn a_growth_that_the_power_cut_off_is_done_or_not_and_loses_nothing() {
    for log in [None, Some(4 << 20)] {
        let mut made = Rig::on(TestDevice::new(SIZE), log.map(TestDevice::new));
        let extents = made.fill_up(0);
        made.write(3, &[number(0)], true).unwrap();
        let size = SIZE + (9 << 20);
        made.device.resize(size);
        let prepared = made.drive.label().grown(size).unwrap();
        let (mut olds, mut news) = (0, 0);
        for (torn, keeps) in [(Torn::No, false), (Torn::No, true), (Torn::Yes, false), (Torn::Yes, true)] {
            for writes in 1.. {
                let (device, log) = (made.device.clone_deep(), made.log.as_ref().map(TestDevice::clone_deep));
                let mut pool = futures_executor::LocalPool::new();
                device.0.borrow_mut().power_for = Some((writes, torn));
                let done = pool.run_until(async {
                    prepare_growth(&device, &prepared).await?;
                    grow(&device, DRIVE, size).await
                });
                if keeps {
                    let mut platter = device.0.borrow_mut();
                    let (now, torn) = (platter.now.clone(), platter.stable[..512].to_vec());
                    platter.stable = now;
                    platter.stable[..512].copy_from_slice(&torn);
                }
                device.lose_power();
                let Ok(drive) = Rig::open(&mut pool, &device, &log) else { panic!("cut off at write {writes}") };
                let mut rig = Rig { pool, device, log, drive, lineage: made.lineage.clone() };
                rig.start().unwrap();
                rig.check_extents(extents);
                match rig.drive.label().size {
                    SIZE => {
                        olds += 1;
                        assert!(done.is_err());
                        assert_eq!(labels(&rig.device), [LABEL_FIRST, Geometry::label_last(SIZE)]);
                        rig.grow(size).unwrap();
                    }
                    now => {
                        news += 1;
                        assert_eq!(now, size);
                    }
                }
                assert_eq!(labels(&rig.device), [LABEL_FIRST, Geometry::label_last(size)]);
                let more = rig.fill_up(extents);
                assert!(more > extents + 130);
                rig.start().unwrap();
                rig.check_extents(more);
                if done.is_ok() {
                    break;
                }
            }
        }
        assert!(olds > 10 && news > 4, "{olds} {news}");
    }
}

/// Story: a growth was cut off, and its label stayed at the device's end. Later the first copy couldn't be read: the label at the end
/// counted, of a drive of another size.
#[test]
fn a_label_that_a_cut_off_growth_left_is_gone_with_the_next_use() {
    let mut rig = Rig::new();
    rig.write(0, &[1; 40], true).unwrap();
    let size = 2 * SIZE;
    rig.device.resize(size);
    let left = rig.drive.label().grown(size).unwrap().encode();
    rig.device.0.borrow_mut().now[Geometry::label_last(size) as usize..].copy_from_slice(&left);
    rig.restart().unwrap();
    assert_eq!(labels(&rig.device), [LABEL_FIRST, Geometry::label_last(SIZE)]);
    assert_eq!(rig.drive.label().size, SIZE);
}

#[test]
fn the_label_that_was_the_last_is_none_on_a_device_cut_to_end_there() {
    let mut rig = Rig::new();
    rig.write(0, &[1; 40], true).unwrap();
    rig.grow(2 * SIZE).unwrap();
    rig.device.resize(SIZE);
    let cut = LabelError::CutShort { labelled: 2 * SIZE, found: SIZE };
    assert_eq!(rig.pool.run_until(Label::read(&rig.device)), Err(cut.clone()));
    assert_eq!(rig.pool.run_until(grow(&rig.device, DRIVE, SIZE)), Err(GrowError::Label(cut)));
    rig.device.fill(LABEL_FIRST, BLOCK, 0);
    assert_eq!(rig.pool.run_until(Label::read(&rig.device)), Err(LabelError::Missing), "without the first copy");
    // And one that was cut short and is long again is doubtful.
    rig.device.resize(2 * SIZE);
    rig.device.fill(LABEL_FIRST, 512, 0);
    let label = Label { generation: 9, ..rig.drive.label().clone() };
    rig.device.0.borrow_mut().now[..BLOCK as usize].copy_from_slice(&label.encode());
    assert_eq!(rig.restart(), Ok(true));
}

#[test]
fn a_torn_first_label_of_a_grown_drive_has_its_other_copy() {
    for torn_from in [512, BLOCK as usize - 512] {
        let mut rig = Rig::new();
        rig.write(0, &[1], true).unwrap();
        rig.grow(2 * SIZE).unwrap();
        rig.device.resize(3 * SIZE);
        let newer = Label { generation: 2, ..rig.drive.label().clone() }.encode();
        rig.device.0.borrow_mut().now[..torn_from].copy_from_slice(&newer[..torn_from]);
        assert_eq!(rig.restart(), Ok(false), "torn from {torn_from}");
        assert_eq!((rig.read(0, 1).unwrap(), rig.drive.label().size), (vec![1], 2 * SIZE));
    }
}

#[test]
fn a_growth_that_gains_nothing_is_refused_with_what_it_lacks() {
    let mut rig = Rig::new();
    assert_eq!(rig.grow(SIZE), Err(GrowError::NoRoom { size: SIZE }));
    assert_eq!(rig.grow(SIZE + 511), Err(GrowError::NoRoom { size: SIZE }));
    let Err(GrowError::TooLittle { beyond: BLOCK, needed }) = rig.grow(SIZE + BLOCK) else { panic!("it's too little") };
    assert!(rig.grow(SIZE + needed).is_err());
    let slots = rig.drive.geometry().slots;
    rig.grow(SIZE + BLOCK + needed).unwrap();
    assert_eq!(rig.drive.geometry().slots, slots + 1);
    let page = rig.drive.label().encode();
    assert_eq!(u32::from_le_bytes(page[8..12].try_into().unwrap()), GROWN);
}

#[test]
fn a_drive_whose_label_has_no_room_for_another_size_says_what_to_do() {
    let mut rig = Rig::new();
    rig.write(0, &[1; 40], true).unwrap();
    let step = 192 << 10;
    let mut label = rig.drive.label().clone();
    for nth in 1..=MOST_GROWTHS as u64 {
        let size = SIZE + nth * step;
        if nth % 100 == 0 {
            rig.grow(size).unwrap();
            label = rig.drive.label().clone();
        } else {
            label = label.grown(size).unwrap();
            rig.device.resize(size);
            rig.pool.run_until(label.write(&rig.device)).unwrap();
            rig.reopen();
        }
    }
    let size = label.size + step;
    rig.device.resize(size);
    let refused = rig.pool.run_until(grow(&rig.device, DRIVE, size)).unwrap_err();
    assert_eq!(refused, GrowError::TooOften);
    assert!(refused.to_string().contains("drain"), "{refused}");
    assert_eq!(rig.read(0, 40).unwrap(), [1; 40]);
    let extents = rig.fill_up(3);
    rig.start().unwrap();
    assert!(extents > 650, "{extents}");
    assert_eq!(rig.read(3 * 16, 1).unwrap(), [number(3)]);
}

/// Story: a drive was put back as it had been before it grew, and grew again. Pages of checksums from the first time looked newer than
/// those that it wrote.
#[test]
fn pages_that_an_earlier_growth_left_count_for_nothing() {
    let mut rig = Rig::new();
    let extents = rig.fill_up(0);
    let earlier = rig.device.clone_deep();
    rig.grow(SIZE + (8 << 20)).unwrap();
    let more = rig.fill_up(extents);
    for _ in 0..3 {
        rig.write((more - 1) * 16, &[9], true).unwrap();
        rig.pool.run_until(rig.drive.checkpoint()).unwrap();
    }
    rig.device.0.borrow_mut().now[..SIZE as usize].copy_from_slice(&earlier.0.borrow().now);
    let now = rig.device.0.borrow().now.clone();
    rig.device.0.borrow_mut().stable = now;
    rig.reopen();
    rig.check_extents(extents);
    rig.grow(SIZE + (8 << 20)).unwrap();
    let table = rig.drive.geometry().sums.clone();
    let page = table.runs[1].first;
    let at = [0, 1].map(|copy| table.offset(copy, page) as usize);
    assert!(at.iter().all(|&at| rig.device.0.borrow().now[at..at + BLOCK as usize].iter().all(|&byte| byte == 0)));
    let more = rig.fill_up(extents);
    rig.check_extents(more);
}

/// Story: a grown drive was wiped, and its device cut to one of the sizes before: it was a drive again.
#[test]
fn a_grown_drive_that_was_wiped_has_no_label_at_any_size() {
    let mut rig = Rig::new();
    rig.grow(2 * SIZE).unwrap();
    let older = rig.drive.label().encode();
    rig.grow(3 * SIZE).unwrap();
    for size in [SIZE, 2 * SIZE] {
        rig.device.0.borrow_mut().now[Geometry::label_last(size) as usize..][..older.len()].copy_from_slice(&older);
    }
    rig.pool.run_until(wipe(&rig.device)).unwrap();
    assert_eq!(labels(&rig.device), []);
    assert_eq!(rig.drive.allocated_of(MAP), 0);
}

#[test]
fn a_log_device_does_not_grow() {
    let log = TestDevice::new(4 << 20);
    let mut rig = Rig::on(TestDevice::new(SIZE), Some(log.clone()));
    log.resize(8 << 20);
    let refused = rig.pool.run_until(grow(&log, DriveId(!2), 8 << 20));
    assert!(matches!(refused, Err(GrowError::Log(_))), "{refused:?}");
}
