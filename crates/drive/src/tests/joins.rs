//! What comes in between while layers are joined.

use super::layers::{among, history, lineage};
use super::{Dice, MAP, Pace, Rig, TestDevice, content, let_others};
use crate::geometry::MIN_DRIVE;
use crate::world::Gather;
use crate::{Drive, Write};
use bytes::Bytes;
use futures_util::future::{join, join3, select};
use futures_util::task::LocalSpawnExt;
use std::cell::RefCell;
use tepal_codec::checksum::block_crcs;
use tepal_model::{EXTENT, Lineage, Taking, buffer::join as join_bytes};

impl Rig {
    pub fn spawn(&self, work: impl Future<Output = ()> + 'static) {
        self.pool.spawner().spawn_local(work).unwrap();
    }
}

impl TestDevice {
    /// Of what wasn't flushed, some is there after the power loss.
    pub fn lose_power_for_some(&self, dice: &mut Dice) {
        let mut platter = self.0.borrow_mut();
        let mut stable = platter.stable.clone();
        let unflushed = std::mem::take(&mut platter.unflushed);
        for range in unflushed.into_iter().filter(|_| dice.roll(2) == 0) {
            stable[range.clone()].copy_from_slice(&platter.now[range]);
        }
        platter.now = stable.clone();
        platter.stable = stable;
    }
}

/// A layer of epoch 1 and one of epoch 2, which nobody can tell apart.
pub fn two_layers() -> Rig {
    let mut rig = Rig::on(TestDevice::new(MIN_DRIVE), None);
    rig.write(0, &[1; 16], true).unwrap();
    rig.reader(lineage("0-2")).write(0, &[2], true).unwrap();
    rig.checkpoint();
    rig.lineage = among(&["0-2"]);
    rig
}

/// The same, about to be joined: blocks have been asked for, and not yet read.
fn joining() -> Rig {
    let mut rig = two_layers();
    rig.device.0.borrow_mut().pace = Pace::Slow(200);
    let drive = rig.drive.clone();
    rig.spawn(async move { assert!(drive.reclaim(MAP, &history(&["0-2"])).await.is_ok()) });
    while rig.drive.shared.lock().joining.is_empty() {
        rig.pool.run_until(let_others(1));
    }
    rig.device.0.borrow_mut().pace = Pace::Prompt; // for what comes now
    rig
}

/// Reclaiming has come to its end, and so has what it left for later.
fn check(mut rig: Rig, expected: [u8; 16]) {
    rig.pool.run_until_stalled();
    assert!(rig.drive.shared.lock().joining.is_empty());
    assert_eq!(rig.read(0, 16).unwrap(), expected);
    rig.checkpoint();
    rig.reclaim(&["0-2"]);
    assert_eq!(rig.read(0, 16).unwrap(), expected);
    assert_eq!((rig.drive.allocated_of(MAP), rig.drive.slots_unaccounted()), (EXTENT, 0));
    rig.device.lose_power();
    rig.reopen();
    assert_eq!(rig.read(0, 16).unwrap(), expected);
}

#[test]
fn layers_are_joined() {
    check(joining(), [2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
}

/// Story: a block of a snapshot that had been given up was being moved when it was written to. What was moved came back over it.
#[test]
fn a_write_that_comes_in_between_wins() {
    let mut rig = joining();
    rig.write(5, &[7; 2], true).unwrap();
    check(rig, [2, 1, 1, 1, 1, 7, 7, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
}

/// Story: a large write went to its slot directly, as nothing was there. Then what was moved there came out of the log, on top of it.
#[test]
fn a_large_write_that_comes_in_between_wins() {
    for span in [1..16, 8..16, 0..16] {
        let mut rig = joining();
        rig.write(span.start, &vec![7; span.clone().count()], true).unwrap();
        let expected = std::array::from_fn(|block| match block as u64 {
            block if span.contains(&block) => 7,
            block => 1 + u8::from(block == 0),
        });
        check(rig, expected);
    }
}

/// What is under way when layers are to be joined, or while they are. What it has brought to its slot must not be overwritten by what
/// comes there out of the log.
#[test]
fn a_large_write_that_has_been_prepared_wins_however_late_it_comes() {
    for (seed, story) in (0..8).flat_map(|seed| ["before", "in between", "given back"].map(|story| (seed, story))) {
        let mut rig = match story {
            "before" => two_layers(),
            _ => joining(),
        };
        if story == "given back" {
            rig.reader(lineage("0-2")).clear(0, 1);
        }
        let newest = rig.lineage.clone();
        let data = content(&[7; 8]);
        let crcs: Vec<u32> = block_crcs(&data).collect();
        let (data, crcs, marks, taking) = (Gather::from_iter([data]), crcs.into(), Vec::new(), Taking::Nothing);
        let write =
            Write { map: MAP, first: 8, data, crcs, marks, durable: true, repair: false, taking, lineage: &newest };
        let prepared = rig.drive.prepare(&write).unwrap();
        let mut expected = [2, 1, 1, 1, 1, 1, 1, 1, 7, 7, 7, 7, 7, 7, 7, 7];
        if story == "given back" {
            rig.write(3, &[3], true).unwrap();
            (expected[0], expected[3]) = (0, 3);
        }
        rig.reader(among(&["0-2"]));
        rig.pool.run_until_stalled();
        rig.reclaim(&["0-2"]);
        assert_eq!(rig.drive.shared.lock().in_flight.values().sum::<u32>(), 1);
        rig.device.0.borrow_mut().pace = Pace::Random(Dice(seed));
        let (committed, checkpointed) =
            rig.pool.run_until(join(rig.drive.commit(prepared, write), rig.drive.checkpoint()));
        committed.unwrap();
        checkpointed.unwrap();
        check(rig, expected);
    }
}

#[test]
fn a_trim_that_comes_in_between_wins() {
    let mut rig = joining();
    rig.clear(5, 2);
    check(rig, [2, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
}

/// The server that trims may not have heard yet that the snapshot was given up.
#[test]
fn a_trim_that_hides_what_is_being_moved_wins() {
    for newest in ["0-2", "0-3"] {
        let mut rig = joining();
        rig.reader(lineage(newest)).clear(5, 2);
        rig.pool.run_until_stalled();
        assert_eq!(rig.read(0, 8).unwrap(), [2, 1, 1, 1, 1, 0, 0, 1]);
        rig.reader(lineage(newest));
        rig.reclaim(&[newest]);
        rig.checkpoint();
        assert_eq!(rig.read(0, 8).unwrap(), [2, 1, 1, 1, 1, 0, 0, 1]);
    }
}

#[test]
fn what_was_written_to_the_older_layer_in_between_is_not_lost() {
    let mut rig = joining();
    rig.reader(lineage("0-1")).write(5, &[7; 2], true).unwrap();
    rig.reader(among(&["0-2"]));
    check(rig, [2, 1, 1, 1, 1, 7, 7, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
}

#[test]
fn a_layer_that_was_given_back_and_taken_again_in_between_takes_nothing_of_the_older_one() {
    let mut rig = joining();
    rig.reader(lineage("0-2")).clear(0, 16);
    rig.write(1, &[7; 12], true).unwrap();
    rig.reader(among(&["0-2"]));
    check(rig, [0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0]);
}

#[test]
fn one_who_gives_up_reclaiming_leaves_no_layer_that_cannot_be_joined() {
    let mut rig = two_layers();
    rig.device.0.borrow_mut().pace = Pace::Slow(200);
    {
        let readers = history(&["0-2"]);
        let drive = rig.drive.clone();
        let mut reclaim = Box::pin(drive.reclaim(MAP, &readers));
        rig.pool.run_until(select(reclaim.as_mut(), Box::pin(let_others(100))));
        assert_eq!(rig.drive.shared.lock().joining.len(), 2);
    }
    assert!(rig.drive.shared.lock().joining.is_empty());
}

/// One who writes to half of each extent, and knows what must be there.
struct Writer<'a> {
    drive: &'a Drive<super::TestWorld>,
    lineage: &'a Lineage,
    half: u64,
    blocks: &'a RefCell<Vec<u8>>,
}

const EXTENTS: u64 = 3;

impl Writer<'_> {
    async fn work(&self, mut dice: Dice) {
        for _ in 0..8 {
            let first = dice.roll(EXTENTS) * 16 + self.half * 8 + dice.roll(2) * dice.roll(8);
            let room = 8 - first % 8;
            let count = if dice.roll(2) == 0 { room } else { 1 + dice.roll(room) };
            let value = 1 + dice.roll(200) as u8;
            if dice.roll(3) == 0 {
                let clear = self.drive.clear(MAP, (first, count), Vec::new(), Taking::Nothing, self.lineage);
                clear.await.unwrap();
                self.blocks.borrow_mut()[first as usize..(first + count) as usize].fill(0);
            } else {
                self.write(first, count, value).await;
                self.blocks.borrow_mut()[first as usize..(first + count) as usize].fill(value);
            }
            let found = self.drive.read(MAP, first, count, self.lineage).await.unwrap();
            let expected = content(&self.blocks.borrow()[first as usize..(first + count) as usize]);
            assert!(join_bytes(&found) == expected, "blocks {first} on");
        }
    }

    async fn write(&self, first: u64, count: u64, value: u8) {
        let data = content(&vec![value; count as usize]);
        let crcs = block_crcs(&data).collect::<Vec<u32>>().into();
        let (data, marks, taking) = (Gather::from_iter([data]), Vec::new(), Taking::Nothing);
        let (durable, lineage) = (value < 100, self.lineage);
        let write = Write { map: MAP, first, data, crcs, marks, durable, repair: false, taking, lineage };
        self.drive.write(write).await.unwrap();
    }
}

#[test]
fn what_is_written_and_trimmed_while_layers_are_joined_is_there_and_so_is_what_a_snapshot_keeps() {
    for seed in 0..30 {
        let mut dice = Dice(seed);
        let mut rig = Rig::on(TestDevice::new(MIN_DRIVE), None);
        rig.device.0.borrow_mut().pace = Pace::Random(Dice(seed + 1));
        let blocks = RefCell::new(vec![0; EXTENTS as usize * 16]);
        let mut readers = vec!["0-1".to_owned()];
        let mut kept: Option<(String, Bytes)> = None;
        for epoch in 1..7 {
            let texts: Vec<&str> = readers.iter().map(String::as_str).collect();
            let (history, lineage) = (history(&texts), among(&texts));
            let writer = |half| Writer { drive: &rig.drive, lineage: &lineage, half, blocks: &blocks };
            let (one, other) = (writer(0), writer(1));
            let writes = join(one.work(Dice(dice.roll(1 << 30))), other.work(Dice(dice.roll(1 << 30))));
            let drive = &rig.drive;
            let reclaims = async {
                for _ in 0..4 {
                    drive.reclaim(MAP, &history).await.unwrap();
                }
            };
            let checkpoints = async { drive.checkpoint().await.unwrap() };
            rig.pool.run_until(join3(writes, reclaims, checkpoints));
            let expected = content(&blocks.borrow());
            let found = rig.pool.run_until(rig.drive.read(MAP, 0, EXTENTS * 16, &lineage)).unwrap();
            assert!(join_bytes(&found) == expected, "seed {seed}, epoch {epoch}");
            if let Some((text, kept)) = &kept {
                let snapshot = super::layers::lineage(text);
                let found = rig.pool.run_until(rig.drive.read(MAP, 0, EXTENTS * 16, &snapshot)).unwrap();
                assert!(join_bytes(&found) == *kept, "seed {seed}, snapshot {text}");
            }
            if epoch % 2 == 1 {
                kept = Some((readers[0].clone(), expected)); // the one before it is given up
            }
            let snapshot = kept.as_ref().map(|(text, _)| text.clone());
            readers = std::iter::once(format!("0-{}", epoch + 1)).chain(snapshot).collect();
        }
        rig.reader(lineage("0-7"));
        rig.reclaim(&["0-7"]);
        assert_eq!((rig.drive.slots_unaccounted(), rig.drive.shared.lock().joining.len()), (0, 0));
        let extents = blocks.borrow().chunks(16).filter(|extent| extent.iter().any(|&byte| byte != 0)).count() as u64;
        assert_eq!(rig.drive.allocated_of(MAP), extents * EXTENT, "seed {seed}");
        assert!(rig.read(0, EXTENTS * 16).unwrap() == *blocks.borrow(), "seed {seed}");
    }
}
