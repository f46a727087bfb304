//! Labels that were torn, overwritten or left behind.

use super::{Rig, SIZE, TestDevice};
use crate::geometry::{Geometry, LABEL_FIRST};
use crate::identity::label::LabelError;
use crate::{Label, OpenError, raise, wipe};
use tepal_model::BLOCK;

const BLOCK_BYTES: usize = BLOCK as usize;

impl TestDevice {
    pub fn resize(&self, size: u64) {
        let mut platter = self.0.borrow_mut();
        platter.now.resize(size as usize, 0);
        platter.stable.resize(size as usize, 0);
    }

    pub fn fill(&self, offset: u64, length: u64, byte: u8) {
        let range = offset as usize..(offset + length) as usize;
        let mut platter = self.0.borrow_mut();
        platter.now[range.clone()].fill(byte);
        platter.stable[range].fill(byte);
    }
}

impl Rig {
    /// Takes the drive into use once more, as a server does when it starts. Whether it's doubtful.
    pub fn restart(&mut self) -> Result<bool, OpenError> {
        let label = self.pool.run_until(Label::read(&self.device))?;
        let label = Label { generation: label.generation + 1, ..label };
        let doubtful = self.pool.run_until(raise(&label, &self.device, None, 0))?;
        self.reopen();
        Ok(doubtful)
    }
}

/// Story: a drive's device had been lengthened, so that nobody looked for the last copy of its label where it was. The power
/// failed while the first copy was written: the drive was refused for good.
#[test]
fn a_label_that_was_torn_on_a_lengthened_device_has_its_other_copy() {
    for torn_from in [512, BLOCK_BYTES - 512] {
        let mut rig = Rig::new();
        rig.write(0, &[1], true).unwrap();
        rig.device.resize(SIZE + (5 << 20) + 512);
        let newer = Label { generation: 2, ..rig.drive.label().clone() }.encode();
        rig.device.0.borrow_mut().now[..torn_from].copy_from_slice(&newer[..torn_from]);
        assert_eq!(rig.restart(), Ok(false), "torn from {torn_from}");
        assert_eq!((rig.read(0, 1).unwrap(), rig.drive.label().generation), (vec![1], 2));
        rig.device.fill(LABEL_FIRST, BLOCK, 0);
        let missing = rig.pool.run_until(Label::read(&rig.device));
        assert_eq!(missing, Err(LabelError::Missing), "what may be a drive within this device is none");
    }
}

/// Story: a drive was cut short, and long again. The server that noticed was killed before it had looked through what was on
/// it; the next one had a whole label, and believed the drive.
#[test]
fn a_drive_that_was_cut_short_is_doubtful_through_restarts_until_it_is_believed() {
    for left_there in [0, 0x77] {
        let mut rig = Rig::new();
        assert_eq!(rig.restart(), Ok(false));
        rig.device.fill(SIZE - (1 << 20), 1 << 20, left_there);
        assert_eq!(rig.restart(), Ok(true), "{left_there}");
        assert_eq!(rig.restart(), Ok(true));
        rig.pool.run_until(rig.drive.believe()).unwrap();
        assert_eq!(rig.restart(), Ok(false));
    }
}

/// Story: a device that had been lengthened was wiped, and later cut to its old size: the drive was back.
#[test]
fn a_wiped_device_has_no_label_whatever_its_size_was_or_will_be() {
    let mut rig = Rig::new();
    rig.device.resize(2 * SIZE);
    rig.pool.run_until(wipe(&rig.device)).unwrap();
    for size in [2 * SIZE, SIZE] {
        rig.device.resize(size);
        assert_eq!(rig.pool.run_until(Label::read(&rig.device)), Err(LabelError::Missing), "{size}");
    }
}

/// Story: somebody wrote to the start of a drive's device while it was in use. Its server went on until the next checkpoint
/// but one had nothing to follow, and the drive was refused when it was started again.
#[test]
fn a_drive_whose_start_was_overwritten_while_in_use_is_mended_and_doubtful() {
    let mut rig = Rig::new();
    rig.write(0, &[1; 40], true).unwrap();
    rig.pool.run_until(rig.drive.checkpoint()).unwrap();
    rig.write(3, &[2; 2], true).unwrap();
    assert_eq!(rig.pool.run_until(rig.drive.look_at_label()), Ok(false));
    let tables_end = rig.drive.geometry().slots_start;
    rig.device.fill(0, tables_end, 0x33);
    assert_eq!(rig.pool.run_until(rig.drive.look_at_label()), Ok(true));
    assert_eq!(rig.pool.run_until(rig.drive.look_at_label()), Ok(false));
    rig.device.lose_power();
    assert_eq!(rig.restart(), Ok(true));
    assert_eq!(rig.read(0, 40).unwrap(), [vec![1; 3], vec![2; 2], vec![1; 35]].concat());
    rig.device.fill(Geometry::label_last(SIZE), BLOCK, 0);
    assert_eq!(rig.pool.run_until(rig.drive.look_at_label()), Ok(true));
}

#[test]
fn a_drive_in_use_whose_labels_are_gone_or_anothers_is_left_alone() {
    for other in [false, true] {
        let mut rig = Rig::new();
        rig.write(0, &[1], true).unwrap();
        if other {
            let stranger = Label { drive: tepal_model::DriveId(77), ..rig.drive.label().clone() };
            rig.pool.run_until(stranger.write(&rig.device)).unwrap();
        } else {
            rig.device.fill(LABEL_FIRST, BLOCK, 0);
            rig.device.fill(Geometry::label_last(SIZE), BLOCK, 0);
        }
        let before = rig.device.0.borrow().now.clone();
        rig.pool.run_until(rig.drive.look_at_label()).unwrap_err();
        rig.write(0, &[2], true).unwrap_err();
        assert!(rig.device.0.borrow().now == before, "nothing was written");
    }
}

#[test]
fn a_bad_sector_in_a_label_is_written_anew_while_the_drive_is_in_use() {
    let mut rig = Rig::new();
    for bad in [LABEL_FIRST, Geometry::label_last(SIZE)] {
        rig.device.0.borrow_mut().unreadable = vec![bad as usize + 9];
        assert_eq!(rig.pool.run_until(rig.drive.look_at_label()), Ok(false), "nothing else is doubtful for that");
        assert!(rig.device.0.borrow().unreadable.is_empty());
    }
    assert_eq!(rig.restart(), Ok(false));
}
