//! Copies of the cluster's state: torn, rotten, too long, earlier than what is there.

use super::{Rig, TestDevice};
use crate::geometry::MIN_DRIVE;
use crate::{KeepError, Label, StateCopies, StateCopy, StateOrder, read_state_copies};
use tepal_model::{BLOCK, DriveId};

fn order(view: u64) -> StateOrder {
    StateOrder { view, events: 0, history: 0 }
}

/// Longer than what is written together.
fn state(view: u64) -> StateCopy {
    StateCopy::new(order(view), &vec![view as u8; 70_001])
}

impl Rig {
    fn keep(&mut self, copy: &StateCopy) -> Result<(), KeepError> {
        self.pool.run_until(self.drive.keep_state(copy))
    }

    fn copies(&mut self) -> StateCopies {
        let label = self.drive.label().clone();
        self.pool.run_until(read_state_copies(&self.device, &label)).unwrap()
    }

    /// The views of what is whole, and how many places are damaged.
    fn views(&mut self) -> (Vec<u64>, usize) {
        let copies = self.copies();
        let content = |view: u64| vec![view as u8; 70_001];
        assert!(copies.whole.iter().all(|copy| copy.content() == content(copy.order().view)));
        (copies.whole.iter().map(|copy| copy.order().view).collect(), copies.damaged.len())
    }

    /// Where a place of the state starts.
    fn place(&self, number: u64) -> usize {
        let geometry = self.drive.geometry();
        (geometry.state_start + number * geometry.state_length) as usize
    }
}

#[test]
fn the_latest_state_is_kept_and_outlives_power_loss_and_restarts() {
    let mut rig = Rig::new();
    assert_eq!(rig.views(), (vec![], 0), "what the device held before is no copy");
    for view in 1..=5 {
        rig.keep(&state(view)).unwrap();
        rig.device.lose_power();
        assert_eq!(rig.views().0[0], view);
        rig.reopen();
        assert_eq!(rig.pool.run_until(rig.drive.kept_order()).unwrap(), Some(order(view)));
        rig.keep(&state(view)).unwrap();
    }
    assert_eq!(rig.views(), (vec![5, 4], 0));
}

#[test]
fn a_torn_write_leaves_the_state_before_it() {
    for reached in [0, 1, 2, 17] {
        let mut rig = Rig::new();
        rig.keep(&state(1)).unwrap();
        rig.keep(&state(2)).unwrap();
        let before = rig.device.0.borrow().now.clone();
        rig.keep(&state(3)).unwrap();
        {
            let (start, from) = (rig.place(0), rig.place(0) + reached * BLOCK as usize);
            let mut platter = rig.device.0.borrow_mut();
            let end = start + rig.drive.geometry().state_length as usize;
            platter.now[from..end].copy_from_slice(&before[from..end]);
            platter.stable = platter.now.clone();
        }
        rig.reopen();
        let (whole, _) = rig.views();
        assert_eq!(whole[0], 2, "{reached} blocks were written");
        rig.keep(&state(4)).unwrap();
        assert_eq!(rig.views(), (vec![4, 2], 0));
    }
}

#[test]
fn a_rotten_copy_is_known_as_one_and_the_other_is_not_given_up_for_it() {
    for at in [0, 40, 3000, BLOCK as usize, 70_000] {
        let mut rig = Rig::new();
        rig.keep(&state(1)).unwrap();
        rig.keep(&state(2)).unwrap();
        let rotten = rig.place(1) + at;
        rig.device.0.borrow_mut().now[rotten] ^= 1;
        assert_eq!(rig.views(), (vec![1], 1), "byte {at}");
        rig.reopen();
        rig.keep(&state(3)).unwrap();
        assert_eq!(rig.views(), (vec![3, 1], 0));
    }
}

#[test]
fn what_is_too_long_or_earlier_is_refused_and_what_was_kept_stays() {
    let mut rig = Rig::on(TestDevice::new(MIN_DRIVE), None);
    rig.keep(&state(5)).unwrap();
    assert_eq!(rig.keep(&state(4)), Err(KeepError::Later { kept: order(5), given: order(4) }));
    let room = rig.drive.geometry().state_length;
    let long = StateCopy::new(order(6), &vec![0; (room - BLOCK + 1) as usize]);
    assert_eq!(rig.keep(&long), Err(KeepError::TooLong { needed: room + BLOCK, room }));
    assert_eq!(rig.views(), (vec![5], 0));
    let longest = StateCopy::new(order(6), &vec![6; (room - BLOCK) as usize]);
    rig.keep(&longest).unwrap();
    assert_eq!(rig.copies().whole[0].content().len() as u64, room - BLOCK);
}

/// Story: what has no event, as the generation in which a drive is used, was kept in the second place, and the first one was read.
#[test]
fn of_states_of_one_order_the_one_that_was_kept_last_is_read() {
    for before in [0, 1, 2] {
        let mut rig = Rig::new();
        (1..=before).for_each(|view| rig.keep(&state(view)).unwrap());
        for content in [[1; 9], [2; 9], [3; 9], [2; 9]] {
            rig.keep(&StateCopy::new(order(7), &content)).unwrap();
            rig.device.lose_power();
            assert_eq!(rig.copies().whole[0].content(), content, "after {before}");
            rig.reopen();
        }
        rig.keep(&state(8)).unwrap();
        assert_eq!(rig.copies().whole[0].order(), order(8));
    }
}

#[test]
fn what_another_drive_kept_on_this_device_is_nothing() {
    let mut rig = Rig::new();
    rig.keep(&state(1)).unwrap();
    let stranger = Label { drive: DriveId(77), ..rig.drive.label().clone() };
    let found = rig.pool.run_until(read_state_copies(&rig.device, &stranger)).unwrap();
    assert!(found.whole.is_empty());
}

#[test]
fn a_drive_whose_flush_fails_has_not_kept_it_and_is_lost() {
    let mut rig = Rig::new();
    rig.keep(&state(1)).unwrap();
    rig.device.0.borrow_mut().flush_fails = true;
    assert!(matches!(rig.keep(&state(2)), Err(KeepError::Lost(_))));
    assert!(rig.drive.loss().is_some());
}

/// Story: a copy whose first bytes had rotted counted as if none had been kept.
#[test]
fn what_is_in_a_place_and_is_no_copy_is_a_damaged_one_unless_it_was_there_before_the_drive() {
    let device = TestDevice::new(MIN_DRIVE);
    let length = device.0.borrow().now.len();
    let blank = 1 << 20; // what tells whether it's in use
    device.0.borrow_mut().now[blank..length - blank].fill(0x5a);
    let mut rig = Rig::on(device, None);
    assert_eq!(rig.views(), (vec![], 0));
    rig.keep(&state(1)).unwrap();
    rig.keep(&state(2)).unwrap();
    assert_eq!(rig.views(), (vec![2, 1], 0));
    let first = rig.place(1);
    rig.device.0.borrow_mut().now[first..first + 8].fill(0);
    assert_eq!(rig.views(), (vec![1], 1));
}
