//! What lies behind the log's end after a power loss, and must never be taken for its continuation.

use super::{Rig, SIZE, TestDevice};
use crate::extent::ExtentKey;
use crate::geometry::{Geometry, LABEL_FIRST};
use crate::{Change, Label, Mark, MarkKind, OpenError, raise};
use tepal_model::history::FIRST_EPOCH;
use tepal_model::{BLOCK, DriveId};

impl TestDevice {
    /// Cuts the power. Of what wasn't flushed, what lies within these bytes survives.
    fn lose_power_except(&self, kept: std::ops::Range<u64>) {
        let kept = kept.start as usize..kept.end as usize;
        let mut platter = self.0.borrow_mut();
        let mut stable = platter.stable.clone();
        stable[kept.clone()].copy_from_slice(&platter.now[kept]);
        platter.stable = stable.clone();
        platter.now = stable;
        platter.unflushed.clear();
    }
}

impl Rig {
    fn log(&self) -> std::ops::Range<u64> {
        let geometry = self.drive.geometry();
        geometry.log_start..geometry.log_start + geometry.log_length
    }

    /// Where in the device the next batch goes, and how many blocks there are before the log's end.
    fn head(&self) -> (u64, u64) {
        let ring = &self.drive.shared.lock().ring;
        (self.drive.geometry().log_start + ring.head.offset, (ring.length - ring.head.offset) / BLOCK)
    }
}

/// Story: a large write's batch was stable and its data wasn't, so that the log ended before it. The next batch didn't fit
/// there and went to the log's start. The next replay found the abandoned one again, and ended before it.
#[test]
fn an_abandoned_batch_does_not_hide_the_one_that_went_to_the_start_of_the_log() {
    let mut rig = Rig::new();
    let mark = |region| Change::Marked(Mark { map: super::MAP, region, kind: MarkKind::Stale(DriveId(9)) });
    for region in 0.. {
        match rig.head().1 {
            1 => break,
            50 => rig.pool.run_until(rig.drive.checkpoint()).unwrap(), // so that none comes by itself later
            _ => {}
        }
        rig.pool.run_until(rig.drive.record(vec![mark(region % 7)], true)).unwrap();
    }
    rig.write(0, &[1; 16], false).unwrap();
    rig.device.lose_power_except(rig.log());
    rig.reopen();
    assert!(rig.drive.dropped_tail());
    assert_eq!(rig.head().1, 1, "it has ended before the large write");
    rig.write(100, &[2], true).unwrap();
    rig.device.lose_power();
    rig.reopen();
    assert_eq!(rig.read(100, 1).unwrap(), [2], "acknowledged as durable");
}

/// Story: of two batches that nobody had flushed a power loss tore the first. The same write was made again, and its batch
/// was the same to the bit: so the second, abandoned one followed it in the next replay, long after reads had shown that
/// it was lost.
#[test]
fn what_a_power_loss_took_does_not_come_back_when_the_write_before_it_is_repeated() {
    let mut rig = Rig::new();
    rig.write(16, &[9; 2], true).unwrap();
    rig.write(16, &[1], false).unwrap();
    let second = rig.head().0;
    rig.write(17, &[2], false).unwrap();
    rig.device.lose_power_except(second..second + 2 * BLOCK);
    rig.reopen();
    assert_eq!(rig.read(16, 2).unwrap(), [9, 9]);
    rig.write(16, &[1], true).unwrap();
    rig.device.lose_power();
    rig.reopen();
    assert_eq!(rig.read(16, 2).unwrap(), [1, 9]);
}

/// Story: a large write was stable, and only a batch behind a torn one said so. Its data rotted, which looked like a power loss that had
/// taken it, so the log was to end before it; and then that batch said that more had been stable. The drive was refused.
#[test]
fn rotten_data_of_a_batch_that_was_stable_is_a_damaged_block_also_if_only_what_is_behind_the_end_knows() {
    let mut rig = Rig::new();
    rig.write(0, &[1; 16], true).unwrap();
    let slot = rig.drive.shared.lock().map.get(ExtentKey { map: super::MAP, index: 0, epoch: FIRST_EPOCH }).unwrap().0;
    let (rotten, torn) = (rig.drive.geometry().block_offset(slot, 3) as usize, rig.head().0 as usize);
    rig.write(16, &[2], false).unwrap();
    rig.write(17, &[3], false).unwrap();
    {
        let mut platter = rig.device.0.borrow_mut();
        platter.now[rotten] ^= 1;
        platter.now[torn] ^= 1;
    }
    rig.reopen();
    assert!(!rig.drive.dropped_tail());
    assert_eq!(rig.read(4, 12).unwrap(), [1; 12]);
    assert!(rig.read(3, 1).is_err(), "another copy's to repair");
    assert_eq!(rig.read(16, 2).unwrap(), [0, 0]);
}

/// Story: one bad sector, where nothing that counts was, kept a drive from being opened for good.
#[test]
fn a_bad_sector_in_the_free_part_of_the_log_or_in_one_label_does_not_keep_a_drive_from_use() {
    let mut rig = Rig::new();
    rig.write(0, &[1], true).unwrap();
    let free = rig.head().0 + 5 * BLOCK;
    for bad in [free, rig.log().end - BLOCK, LABEL_FIRST, Geometry::label_last(SIZE)] {
        rig.device.0.borrow_mut().unreadable = vec![bad as usize + 700];
        let label = rig.drive.label().clone();
        let label = Label { generation: label.generation + 1, ..label };
        let blank = rig.pool.run_until(raise(&label, &rig.device, None, rig.drive.durable()));
        assert_eq!(blank, Ok(false), "{bad}");
        rig.reopen();
        assert_eq!((rig.read(0, 1).unwrap(), rig.drive.label()), (vec![1], &label), "{bad}");
        assert!(rig.device.0.borrow().unreadable.is_empty(), "it's written anew");
    }
}

/// Story: the power failed while a batch was written, and the drive couldn't read the torn sector, as drives may. It was
/// refused as long as that sector was bad, which was until it would be written: for good.
#[test]
fn a_log_that_ends_in_a_torn_sector_that_cannot_be_read_ends_before_it() {
    let mut rig = Rig::new();
    rig.write(0, &[1], true).unwrap();
    let torn = rig.head().0 as usize;
    for torn in [vec![torn + 9], vec![torn + 1, torn + 7000]] {
        rig.device.0.borrow_mut().unreadable = torn;
        rig.reopen();
        assert!(rig.drive.dropped_tail(), "others are preferred: it may have been acknowledged");
        assert!(rig.device.0.borrow().unreadable.is_empty(), "it's written anew");
        assert_eq!(rig.read(0, 1).unwrap(), [1]);
    }
    rig.write(0, &[2], true).unwrap();
    rig.reopen();
    assert_eq!((rig.read(0, 1).unwrap(), rig.drive.dropped_tail()), (vec![2], false));
}

/// A drive that can't be read here and there isn't one with a torn sector: what it has acknowledged may be readable later.
#[test]
fn a_log_that_cannot_be_read_is_refused_and_left_as_it_is() {
    let mut rig = Rig::new();
    rig.write(0, &[1], true).unwrap();
    let first = rig.head().0;
    rig.write(0, &[2], true).unwrap();
    let second = rig.head().0;
    let far = rig.log().end - BLOCK;
    let stories = [
        ("a later batch knows that it was stable", vec![first], 0, false),
        ("another place can't be read either", vec![second, far], 0, false),
        ("the server knows that it was stable", vec![second], 3, false),
        ("the last batch, as far as anybody knows", vec![second, second + BLOCK], 0, true),
    ];
    rig.write(0, &[3], true).unwrap();
    for (story, bad, known, opens) in stories {
        let device = rig.device.clone_deep();
        device.0.borrow_mut().unreadable = bad.iter().map(|at| *at as usize + 5).collect();
        let before = device.0.borrow().now.clone();
        let label = rig.drive.label().clone();
        let raised = rig.pool.run_until(raise(&label, &device, None, known));
        let opened = raised.and_then(|_| Rig::open(&mut rig.pool, &device, &None).map(drop));
        match opened.err() {
            None => assert!(opens, "{story}"),
            Some(OpenError::LogUnread { .. }) => {
                assert!(!opens && device.0.borrow().now == before, "{story}: something was written");
            }
            Some(other) => panic!("{story}: {other}"),
        }
    }
}
