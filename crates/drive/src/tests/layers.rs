//! Stories of snapshots, as one drive sees them.

use super::{Dice, MAP, Pace, Rig, let_others};
use crate::DriveError;
use std::future::ready;
use tepal_model::{BLOCK, EXTENT, History, Lineage, Taking};

pub fn lineage(text: &str) -> Lineage {
    text.parse().unwrap()
}

/// That of the first reader; its own epochs follow from all of them.
pub fn among(readers: &[&str]) -> Lineage {
    let first = lineage(readers[0]);
    history(readers).reader(first.newest()).unwrap().clone()
}

pub fn history(readers: &[&str]) -> History {
    History::new(readers.iter().map(|text| lineage(text)), 0)
}

impl Rig {
    pub fn reader(&mut self, lineage: Lineage) -> &mut Self {
        self.lineage = lineage;
        self
    }

    pub fn reclaim(&mut self, readers: &[&str]) {
        self.pool.run_until(self.drive.reclaim(MAP, &history(readers))).unwrap();
    }

    pub fn checkpoint(&mut self) {
        self.pool.run_until(self.drive.checkpoint()).unwrap();
    }

    fn extents(&self) -> u64 {
        self.drive.allocated_of(MAP) / EXTENT
    }

    fn hides_nothing(&self) -> bool {
        self.drive.shared.lock().hidden.is_empty()
    }

    fn power_cycle(&mut self) {
        self.device.lose_power();
        self.reopen();
    }
}

/// One snapshot, of epoch 1, of a volume that goes on in epoch 2.
const SNAPSHOT: [&str; 2] = ["0-1", "0-2"];

fn with_snapshot() -> Rig {
    let mut rig = Rig::new();
    rig.write(0, &[1; 40], true).unwrap();
    rig.lineage = among(&["0-2", "0-1"]);
    rig
}

#[test]
fn a_snapshot_keeps_what_is_overwritten_and_nothing_is_copied_for_that() {
    let mut rig = with_snapshot();
    rig.write(3, &[2; 2], true).unwrap();
    rig.write(16, &[3; 16], true).unwrap();
    for _ in 0..2 {
        let expected = [vec![1; 3], vec![2; 2], vec![1; 11], vec![3; 16], vec![1; 8]].concat();
        assert_eq!(rig.reader(lineage("0-2")).read(0, 40).unwrap(), expected);
        assert_eq!(rig.reader(lineage("0-1")).read(0, 40).unwrap(), [1; 40]);
        assert_eq!(rig.drive.present(MAP, 3, 2, 9, &lineage("2-2")), [(2, true)]);
        assert_eq!(rig.drive.present(MAP, 0, 3, 9, &lineage("2-2")), [(3, false)], "it's seen in the older layer");
        assert_eq!(rig.drive.extents_of(MAP, 0, u64::MAX, false), [0, 16, 32]);
        assert_eq!((rig.extents(), rig.drive.slots_unaccounted()), (5, 0));
        assert_eq!(rig.drive.epochs_of(MAP, 0, 40), [1, 2]);
        assert_eq!(rig.drive.epochs_of(MAP, 5, 11), [1]);
        rig.checkpoint();
        rig.power_cycle();
    }
    rig.pool.run_until(rig.drive.remove_map(MAP)).unwrap();
    assert_eq!((rig.extents(), rig.drive.slots_unaccounted()), (0, 0));
}

/// Story: what was trimmed after a snapshot was back after the second checkpoint: the log had come round.
#[test]
fn what_is_trimmed_after_a_snapshot_stays_so_through_checkpoints_and_power_losses() {
    let mut rig = with_snapshot();
    rig.write(8, &[2; 4], true).unwrap();
    rig.clear(4, 30);
    rig.write(20, &[3], true).unwrap();
    let expected = [vec![1; 4], vec![0; 16], vec![3], vec![0; 13], vec![1; 6], vec![0; 2]].concat();
    for _ in 0..3 {
        assert_eq!(rig.reader(lineage("0-2")).read(0, 42).unwrap(), expected);
        let runs = [(4, true), (16, false), (1, true), (13, false), (6, true), (2, false)];
        assert_eq!(rig.drive.present(MAP, 0, 42, 9, &lineage("0-2")), runs);
        assert!(rig.drive.is_empty(MAP, 4, 16, &lineage("0-2")) && !rig.drive.is_empty(MAP, 4, 17, &lineage("0-2")));
        assert_eq!(rig.reader(lineage("0-1")).read(0, 42).unwrap(), [vec![1; 40], vec![0; 2]].concat());
        assert_eq!(rig.drive.epochs_of(MAP, 4, 4), [1, 2], "the note is of the later epoch");
        rig.checkpoint();
        rig.power_cycle();
    }
    assert_eq!(rig.extents(), 4, "a note takes no slot");
    rig.pool.run_until(rig.drive.remove_map(MAP)).unwrap();
    assert!(rig.hides_nothing() && rig.drive.epochs_of(MAP, 0, u64::MAX).is_empty());
}

#[test]
fn a_volume_without_snapshots_notes_nothing_of_what_is_trimmed() {
    let mut rig = Rig::new();
    rig.write(0, &[1; 40], true).unwrap();
    rig.lineage = among(&["0-5"]);
    rig.write(3, &[2], true).unwrap();
    assert_eq!(rig.drive.epochs_of(MAP, 0, 40), [1], "an older layer that nobody else sees is written to");
    rig.clear(2, 1 << 50);
    assert_eq!(rig.read(0, 40).unwrap(), [vec![1; 2], vec![0; 38]].concat());
    assert!(rig.hides_nothing() && rig.extents() == 1);
}

#[test]
fn all_of_a_large_volume_with_a_snapshot_is_trimmed_by_one_note() {
    let mut rig = with_snapshot();
    rig.clear(1, 1 << 50);
    rig.clear(1 << 51, 5);
    assert_eq!(rig.drive.shared.lock().hidden.of(MAP).collect::<Vec<_>>(), [(2, 1..(1 << 50) + 1)]);
    assert_eq!(rig.read(0, 40).unwrap(), [vec![1], vec![0; 39]].concat());
}

/// Story: snapshots were given up until the volume alone saw two of its epochs. It was trimmed in the later one, and what was then
/// written to the layer of the earlier one stayed hidden.
#[test]
fn what_is_written_after_a_trim_is_seen_whatever_layers_there_are() {
    let mut rig = with_snapshot();
    rig.write(5, &[2], true).unwrap();
    rig.lineage = among(&["0-3", "0-1"]);
    rig.clear(0, 3);
    rig.write(0, &[9, 9, 9, 9], true).unwrap();
    assert_eq!(rig.read(0, 6).unwrap(), [9, 9, 9, 9, 1, 2]);
    rig.reclaim(&["0-1", "0-3"]);
    assert_eq!(rig.read(0, 6).unwrap(), [9, 9, 9, 9, 1, 2]);
    rig.power_cycle();
    assert_eq!(rig.read(0, 6).unwrap(), [9, 9, 9, 9, 1, 2]);
}

#[test]
fn what_is_rolled_back_is_gone_and_its_space_comes_back() {
    let mut rig = with_snapshot();
    rig.write(0, &[2; 20], true).unwrap();
    rig.clear(30, 10);
    rig.reader(among(&["0-1,3-3", "0-1"])).write(1, &[3], true).unwrap();
    assert_eq!(rig.read(0, 40).unwrap(), [vec![1, 3], vec![1; 38]].concat());
    rig.reclaim(&["0-1", "0-1,3-3"]);
    assert_eq!(rig.read(0, 40).unwrap(), [vec![1, 3], vec![1; 38]].concat());
    assert_eq!((rig.drive.epochs_of(MAP, 0, 40), rig.extents()), (vec![1, 3], 4));
    assert!(rig.hides_nothing());
}

#[test]
fn a_snapshot_that_is_given_up_costs_nothing_after_its_space_was_reclaimed() {
    let mut rig = with_snapshot();
    rig.write(3, &[2; 10], true).unwrap();
    rig.clear(16, 16);
    rig.clear(33, 1);
    let expected = [vec![1; 3], vec![2; 10], vec![1; 3], vec![0; 16], vec![1, 0], vec![1; 6]].concat();
    rig.reclaim(&SNAPSHOT);
    assert_eq!((rig.extents(), rig.drive.epochs_of(MAP, 0, 40)), (4, vec![1, 2]), "the snapshot sees all of it");
    assert_eq!(rig.reader(lineage("0-1")).read(0, 40).unwrap(), [1; 40]);
    rig.reclaim(&["0-2"]);
    for _ in 0..2 {
        assert_eq!(rig.reader(lineage("0-2")).read(0, 40).unwrap(), expected);
        assert_eq!((rig.extents(), rig.drive.slots_unaccounted(), rig.hides_nothing()), (2, 0, true));
        rig.checkpoint();
        rig.power_cycle();
    }
}

/// Story: each day a snapshot was made, blocks were trimmed, and the snapshot of the day before was given up. The first one was
/// kept, and so was a note for each day, until the log had no room for more.
#[test]
fn notes_do_not_pile_up_while_snapshots_come_and_go() {
    let mut rig = with_snapshot();
    for day in 2..30u64 {
        let (volume, snapshot) = (format!("0-{}", day + 1), format!("0-{day}"));
        rig.reader(lineage(&snapshot)).clear(day, 2);
        rig.reclaim(&["0-1", &snapshot, &volume]);
    }
    assert_eq!(rig.read(0, 40).unwrap(), [vec![1; 2], vec![0; 29], vec![1; 9]].concat());
    assert_eq!(rig.drive.shared.lock().hidden.of(MAP).collect::<Vec<_>>(), [(2, 2..31)]);
    rig.write(5, &[3; 3], true).unwrap();
    assert_eq!(rig.read(4, 5).unwrap(), [0, 3, 3, 3, 0]);
    assert_eq!(rig.reader(lineage("0-1")).read(0, 40).unwrap(), [1; 40]);
}

#[test]
fn what_a_history_does_not_know_is_left_alone() {
    let mut rig = with_snapshot();
    rig.write(3, &[2; 10], true).unwrap();
    rig.reader(lineage("0-3")).write(4, &[3; 3], true).unwrap();
    rig.clear(8, 1);
    rig.reclaim(&["0-2"]);
    assert_eq!(rig.drive.epochs_of(MAP, 0, 16), [2, 3]);
    assert_eq!(rig.reader(lineage("0-3")).read(2, 8).unwrap(), [1, 2, 3, 3, 3, 2, 0, 2]);
    assert_eq!(rig.reader(lineage("0-2")).read(2, 8).unwrap(), [1, 2, 2, 2, 2, 2, 2, 2]);
}

/// Story: a block of a layer had rotted. Its layer was given up, and what could have been had from another copy was lost.
#[test]
fn a_damaged_block_stays_where_it_is_and_its_layer_with_it() {
    let mut rig = with_snapshot();
    rig.reader(lineage("0-1")).write(7, &[77], true).unwrap();
    rig.reader(lineage("0-2")).write(3, &[2; 2], true).unwrap();
    rig.checkpoint();
    let rotten = rig.device.rot(&[77; BLOCK as usize]);
    assert!(rotten >= 1);
    rig.reclaim(&["0-2"]);
    assert_eq!(rig.read(7, 1), Err(DriveError::Damaged { blocks: vec![7] }));
    assert_eq!(rig.drive.epochs_of(MAP, 0, 16), [1, 2]);
    assert_eq!(rig.drive.epochs_of(MAP, 8, 8), [2], "the others were moved");
    let report = rig.pool.run_until(rig.drive.scrub(None, |_| ready(()))).unwrap();
    assert_eq!(report.damaged, [(MAP, 7, 1)]);
    rig.reader(among(&["0-2"])).write(7, &[8], true).unwrap();
    rig.reclaim(&["0-2"]);
    assert_eq!(rig.read(0, 16).unwrap(), [1, 1, 1, 2, 2, 1, 1, 8, 1, 1, 1, 1, 1, 1, 1, 1]);
    assert_eq!(rig.drive.epochs_of(MAP, 0, 16), [2]);
}

#[test]
fn a_scrub_finds_rot_in_what_only_a_snapshot_sees() {
    let mut rig = with_snapshot();
    rig.write(0, &[2; 40], true).unwrap();
    rig.checkpoint();
    rig.device.rot(&[1; BLOCK as usize]);
    let report = rig.pool.run_until(rig.drive.scrub(None, |_| ready(()))).unwrap();
    let mut damaged = report.damaged;
    damaged.sort_unstable();
    assert_eq!(damaged, (0..40).map(|block| (MAP, block, 1)).collect::<Vec<_>>());
    assert_eq!(report.blocks_checked, 80);
    assert_eq!(rig.read(0, 40).unwrap(), [2; 40]);
}

/// Every second block of so many is trimmed, until the log has no room for another note.
fn without_room_for_notes(blocks: u64) -> (Rig, u64) {
    let mut rig = Rig::new();
    for first in (0..blocks).step_by(64) {
        rig.write(first, &[1; 64], true).unwrap();
    }
    rig.lineage = among(&["0-2", "0-1"]);
    let trimmed = (0..blocks).step_by(2).find(|&block| {
        let has_room = rig.drive.shared.lock().hidden.has_room(MAP, 2, block, 1);
        if has_room {
            rig.clear(block, 1);
        }
        !has_room
    });
    (rig, trimmed.expect("a log of a megabyte has no room for so many"))
}

#[test]
fn where_there_is_no_room_for_another_note_zeros_hide_what_a_snapshot_keeps() {
    let (mut rig, full_at) = without_room_for_notes(1600);
    rig.write(full_at + 18, &[5; 3], true).unwrap();
    let before = rig.extents();
    rig.clear(full_at + 7, 33);
    rig.clear(full_at + 100, 1);
    assert!(rig.extents() > before);
    let mut expected: Vec<u8> = (0..1600).map(|block| u8::from(block >= full_at || block % 2 == 1)).collect();
    expected[full_at as usize + 7..full_at as usize + 40].fill(0);
    expected[full_at as usize + 100] = 0;
    for _ in 0..2 {
        assert_eq!(rig.reader(lineage("0-2")).read(0, 1600).unwrap(), expected);
        assert_eq!(rig.reader(lineage("0-1")).read(0, 1600).unwrap(), [1; 1600]);
        rig.checkpoint();
        rig.power_cycle();
    }
    rig.reader(among(&["0-2", "0-1"])).clear(0, 1600);
    assert_eq!(rig.drive.shared.lock().hidden.of(MAP).count(), 1, "neighbours are one range");
    rig.reclaim(&["0-2"]);
    assert_eq!((rig.extents(), rig.hides_nothing(), rig.drive.slots_unaccounted()), (0, true, 0));
}

#[test]
fn without_room_for_notes_nor_for_zeros_a_trim_says_so_and_what_was_overwritten_does_not_come_back() {
    let (mut rig, full_at) = without_room_for_notes(1600);
    rig.write(full_at + 3, &[5], true).unwrap();
    let mut extent = 1000;
    while rig.write(extent * 16, &[6; 16], true).is_ok() {
        extent += 1;
    }
    let clear = rig.drive.clear(MAP, (full_at + 1, 200), Vec::new(), Taking::Nothing, &rig.lineage);
    assert_eq!(rig.pool.run_until(clear), Err(DriveError::OutOfSpace));
    let overwritten = rig.read(full_at + 3, 1).unwrap()[0];
    assert!([0, 5].contains(&overwritten), "not what it was in the snapshot: {overwritten}");
    assert_eq!(rig.drive.slots_unaccounted(), 0);
}

/// Story: the power failed while space was being reclaimed.
#[test]
fn a_crash_in_the_midst_of_reclaiming_changes_nothing_that_is_seen() {
    for steps in 0..40 {
        let mut dice = Dice(steps);
        let mut rig = with_snapshot();
        rig.write(3, &[2; 10], true).unwrap();
        rig.clear(15, 3);
        rig.reader(among(&["0-3", "0-2", "0-1"])).write(30, &[3; 10], true).unwrap();
        if steps % 2 == 0 {
            rig.checkpoint();
        }
        let drive = rig.drive.clone();
        let work = async move { drop(drive.reclaim(MAP, &history(&["0-3"])).await) };
        rig.spawn(work);
        rig.device.0.borrow_mut().pace = Pace::Random(dice);
        rig.pool.run_until(let_others(2 * steps as u32));
        rig.device.lose_power_for_some(&mut dice);
        rig.reopen();
        let expected = [vec![1; 3], vec![2; 10], vec![1; 2], vec![0; 3], vec![1; 12], vec![3; 10]].concat();
        assert_eq!(rig.reader(lineage("0-3")).read(0, 40).unwrap(), expected, "after {steps}");
        rig.reclaim(&["0-3"]);
        assert_eq!(rig.read(0, 40).unwrap(), expected);
        assert_eq!((rig.extents(), rig.hides_nothing(), rig.drive.slots_unaccounted()), (3, true, 0));
    }
}

#[test]
fn what_is_uncovered_is_what_others_see_again_and_its_space_is_given_back() {
    let mut rig = with_snapshot();
    let used = rig.extents();
    rig.write(4, &[2; 4], true).unwrap();
    rig.clear(10, 4);
    rig.write(41, &[3], true).unwrap();
    let seen = rig.lineage.clone();
    rig.pool.run_until(rig.drive.uncover(MAP, (0, 48), Taking::Nothing, &seen)).unwrap();
    for _ in 0..2 {
        assert_eq!(rig.reader(lineage("0-2")).read(0, 42).unwrap(), [vec![1; 40], vec![0; 2]].concat());
        assert_eq!(rig.drive.epochs_of(MAP, 0, 48), [1]);
        assert_eq!((rig.extents(), rig.drive.slots_unaccounted()), (used, 0));
        assert!(rig.hides_nothing());
        rig.checkpoint();
        rig.power_cycle();
    }
}
