//! Stories of columns that an erasure code keeps.

use super::*;
use crate::Trouble;
use crate::column::Group;
use crate::protocol::Kept;
use std::time::Duration;
use tepal_codec::checksum::block_crcs;
use tepal_drive::Write;
use tepal_drive::world::Gather;
use tepal_model::{Lineage, Taking};
use tepal_sim::executor::Limits;
use tepal_sim::random::Stream;
use tepal_sim::{Executor, SimWorld};

/// Blocks that stories write: several stripes of several columns, and more than one region.
const BLOCKS: u64 = 1200;

/// A volume, and what it should show of each block.
struct Told {
    rig: Rig,
    blocks: Vec<u8>,
    /// The same of snapshots, by epoch.
    snapshots: Vec<(u32, Vec<u8>)>,
    byte: u8,
}

impl Told {
    async fn new(world: SimWorld, layout: &'static str, drives: usize) -> Self {
        let rig = Rig::new(world, layout, drives).await;
        assert!(rig.volume.groups().iter().all(|group| group.shared.kept == Kept::Stripes));
        Told { rig, blocks: vec![0; BLOCKS as usize], snapshots: Vec::new(), byte: 0 }
    }

    async fn write(&mut self, first: u64, count: u64) {
        self.byte = self.byte % 250 + 1;
        self.rig.write(first, self.byte, count as usize).await.unwrap();
        self.blocks[first as usize..(first + count) as usize].fill(self.byte);
    }

    async fn trim(&mut self, first: u64, count: u64) {
        self.rig.volume.trim(first * BLOCK, count * BLOCK).await.unwrap();
        self.blocks[first as usize..(first + count) as usize].fill(0);
    }

    fn snapshot(&mut self) {
        let epoch = self.snapshots.len() as u32 + 1;
        self.snapshots.push((epoch, self.blocks.clone()));
        let readers: Vec<String> = (1..=epoch + 1).map(|newest| format!("0-{newest}")).collect();
        self.rig.follow(&readers.iter().map(String::as_str).collect::<Vec<_>>());
    }

    async fn check(&self) {
        let data = join(&self.rig.volume.read(0, BLOCKS * BLOCK).await.unwrap());
        for (block, (bytes, wanted)) in data.chunks(BLOCK as usize).zip(&self.blocks).enumerate() {
            assert!(bytes.iter().all(|byte| byte == wanted), "block {block}: {} instead of {wanted}", bytes[0]);
        }
        for (epoch, blocks) in &self.snapshots {
            let snapshot = self.rig.volume.snapshot(*epoch, self.rig.volume.size());
            let data = join(&snapshot.read(0, BLOCKS * BLOCK).await.unwrap());
            for (block, (bytes, wanted)) in data.chunks(BLOCK as usize).zip(blocks).enumerate() {
                let found = bytes[0];
                assert!(bytes.iter().all(|byte| byte == wanted), "{epoch} {block}: {found} instead of {wanted}");
            }
        }
    }

    /// Returns when the log is empty.
    async fn until_destaged(&self) {
        let is_empty = |group: &Group<SimWorld>| group.shared.log.is_known_empty();
        while !self.rig.volume.groups().iter().all(is_empty) {
            self.rig.world.sleep(Duration::from_millis(100)).await;
        }
    }

    /// Returns when all drives that are here are up to date.
    async fn until_caught_up(&self) {
        let is_away = |problem: &Trouble| matches!(problem, Trouble::Away { .. });
        loop {
            match self.rig.volume.health() {
                VolumeHealth::Healthy => return,
                VolumeHealth::Degraded(troubles) if troubles.iter().all(is_away) => return,
                _ => self.rig.world.sleep(Duration::from_millis(10)).await,
            }
        }
    }

    async fn power_cycle(&mut self) {
        self.rig.world.kill();
        self.rig.disks.iter().for_each(SimDisk::cut_power);
        self.rig.restart(|_| true).await;
    }
}

#[test]
fn stripes_show_what_was_written_before_and_after_destaging() {
    told(|world| async move {
        for (layout, drives) in [("ec:2+1", 3), ("ec:4+2", 6), ("ec:3+2", 5)] {
            let mut told = Told::new(world.clone(), layout, drives).await;
            told.write(3, 1).await;
            told.write(10, 200).await;
            told.check().await;
            told.until_destaged().await;
            told.check().await;
            told.write(60, 7).await;
            told.trim(100, 60).await;
            told.write(500, 400).await;
            told.check().await;
            told.until_destaged().await;
            told.check().await;
        }
    });
}

#[test]
fn destaged_data_takes_its_fragments_and_no_more() {
    told(|world| async move {
        let mut told = Told::new(world, "ec:2+1", 3).await;
        told.write(0, 480).await;
        told.until_destaged().await;
        let of_drive = |drive: u64| told.rig.engine.drive(DriveId(drive)).unwrap().allocated_of(MapId(1));
        assert_eq!((1..=3).map(of_drive).sum::<u64>(), 480 * BLOCK / 2 * 3);
        told.trim(0, BLOCKS).await;
        told.until_destaged().await;
        let of_drive = |drive: u64| told.rig.engine.drive(DriveId(drive)).unwrap().allocated_of(MapId(1));
        assert_eq!((1..=3).map(of_drive).sum::<u64>(), 0);
    });
}

#[test]
fn a_large_write_of_new_stripes_skips_the_log() {
    told(|world| async move {
        let mut told = Told::new(world, "ec:2+1", 3).await;
        told.until_destaged().await; // it's known then that the log has nothing
        told.write(0, 480).await;
        let of_drive = |drive: u64| told.rig.engine.drive(DriveId(drive)).unwrap().allocated_of(MapId(1));
        assert_eq!((1..=3).map(of_drive).sum::<u64>(), 480 * BLOCK / 2 * 3);
        told.rig.lose(1).await;
        told.check().await;
        told.write(30, 300).await;
        told.check().await;
    });
}

#[test]
fn data_outlives_as_many_drives_as_there_is_code() {
    told(|world| async move {
        for (layout, drives, lost) in [("ec:2+1", 3, vec![1]), ("ec:4+2;min_extra=0", 6, vec![0, 4])] {
            for destaged in [false, true] {
                let mut told = Told::new(world.clone(), layout, drives).await;
                told.write(0, 700).await;
                if destaged {
                    told.until_destaged().await;
                }
                for &nth in &lost {
                    told.rig.lose(nth).await;
                }
                told.check().await;
                told.write(90, 40).await;
                told.check().await;
                told.until_destaged().await;
                told.check().await;
            }
        }
    });
}

#[test]
fn a_returned_drive_catches_up_with_what_changed() {
    told(|world| async move {
        let mut told = Told::new(world, "ec:2+1", 3).await;
        told.write(0, 700).await;
        told.until_destaged().await;
        told.rig.lose(0).await;
        told.write(90, 200).await;
        told.trim(400, 200).await;
        told.until_destaged().await;
        told.write(10, 20).await;
        told.rig.bring_back(0).await;
        told.rig.until_healthy().await;
        told.rig.lose(2).await;
        told.check().await;
    });
}

#[test]
fn stripes_survive_power_losses_at_any_moment() {
    tell_many("ec:2+1", 3);
}

#[test]
fn wide_stripes_survive_power_losses_at_any_moment() {
    tell_many("ec:3+2;min_extra=0", 5);
}

fn tell_many(layout: &'static str, drives: usize) {
    const SEEDS: u64 = 20;
    for seed in 0..SEEDS {
        let executor = Executor::new(seed, Limits::default(), false);
        let world = SimWorld::boot(executor.core(), "server");
        if let Err(failure) = executor.run(any_story(world, layout, drives, seed)) {
            panic!("seed {seed}: {failure}");
        }
    }
}

/// Writes, discards, snapshots, lost and returned drives, power losses, in any order.
async fn any_story(world: SimWorld, layout: &'static str, drives: usize, seed: u64) {
    let mut told = Told::new(world, layout, drives).await;
    let code = told.rig.volume.groups()[0].shared.fragments.code as usize;
    let mut random = Stream::new(seed);
    let mut away: Vec<usize> = Vec::new();
    for _ in 0..60 {
        let first = random.between(0..BLOCKS - 300);
        match random.between(0..16) {
            0..6 => {
                let count = random.between(1..4);
                told.write(first, count).await;
            }
            6..8 => {
                let count = random.between(1..300);
                told.write(first, count).await;
            }
            8 => {
                let count = random.between(1..300);
                told.trim(first, count).await;
            }
            9 => told.snapshot(),
            10 if away.len() < code => {
                told.until_caught_up().await;
                let nth = random.between(0..drives as u64) as usize;
                if !away.contains(&nth) {
                    told.rig.lose(nth).await;
                    away.push(nth);
                }
            }
            11 if !away.is_empty() => {
                let nth = away.remove(0);
                told.rig.bring_back(nth).await;
                told.until_caught_up().await;
            }
            12 => told.until_destaged().await,
            13 => {
                told.power_cycle().await;
                away.clear();
            }
            14 => told.rig.world.sleep(Duration::from_millis(random.between(0..3000))).await,
            _ => told.check().await,
        }
    }
    told.check().await;
    for nth in away {
        told.rig.bring_back(nth).await;
    }
    told.rig.until_healthy().await;
    told.until_destaged().await;
    for nth in 0..code {
        told.rig.lose((nth + 1) % drives).await;
    }
    told.check().await;
}

/// The drive of a fragment took a write and lost it, with its checksum: no read notices.
async fn loses_a_write(told: &Told, fragment: usize) {
    let (place, id) = first_row(told, fragment);
    let data = Gather::from_iter([Bytes::from(vec![77; BLOCK as usize])]);
    let crcs = data.iter().flat_map(|piece| block_crcs(piece)).collect::<Vec<u32>>().into();
    let (map, taking, lineage) = (MapId(1), Taking::Nothing, Lineage::default());
    let (marks, repair) = (Vec::new(), false);
    let lost = Write { map, first: place, data, crcs, marks, durable: true, repair, taking, lineage: &lineage };
    told.rig.engine.drive(id).unwrap().write(lost).await.unwrap();
}

/// Where the first row of the first column is, and the drive that has a fragment of it.
fn first_row(told: &Told, fragment: usize) -> (u64, DriveId) {
    let group = told.rig.volume.seats()[0].group().unwrap();
    let (state, column) = (group.lock(), &group.shared.column);
    let place = column.place(column.block_of_row(0));
    (place, state.members.list.iter().find(|it| it.fragment == fragment).unwrap().id)
}

/// The first row of a fragment can't be read any more.
async fn rots(told: &Told, fragment: usize) {
    let (place, id) = first_row(told, fragment);
    let drive = told.rig.engine.drive(id).unwrap();
    drive.checkpoint().await.unwrap();
    let offset = drive.place_of(MapId(1), place, Lineage::default().newest()).unwrap();
    told.rig.disks[id.0 as usize - 1].rot(offset);
}

#[test]
fn parity_that_is_not_of_its_data_is_found_and_written_again() {
    told(|world| async move {
        let mut told = Told::new(world.clone(), "ec:2+1", 3).await;
        told.write(0, 200).await;
        told.until_destaged().await;
        let all = 0..told.rig.volume.size();
        let right = told.rig.volume.check_code(all.clone(), false).await.unwrap();
        assert_eq!((right.unequal.len(), right.unchecked, right.columns), (0, 0, 3));
        loses_a_write(&told, 2).await;

        let found = told.rig.volume.check_code(all.clone(), false).await.unwrap();
        assert_eq!(found.unequal, told.rig.volume.check_code(all.clone(), false).await.unwrap().unequal, "it stays");
        assert_eq!(found.unequal.iter().map(|range| range.end - range.start).sum::<u64>(), 32 * BLOCK);
        assert_eq!(told.rig.volume.check_code(1 << 20..2 << 20, false).await.unwrap().unequal.len(), 0);
        assert!(!told.rig.volume.check_code(all.clone(), true).await.unwrap().unequal.is_empty());
        assert_eq!(told.rig.volume.check_code(all.clone(), false).await.unwrap().unequal, []);
        told.check().await;

        told.rig.lose(0).await;
        let found = told.rig.volume.check_code(all, false).await.unwrap();
        assert!(found.unchecked > 0 && found.unequal.is_empty(), "{found:?}");
    });
}

/// Story: data was decoded with wrong parity, and by that the right parity was taken for wrong, and written again.
#[test]
fn right_parity_stays_while_wrong_parity_is_decoded_from() {
    told(|world| async move {
        let mut told = Told::new(world, "ec:2+2;min_extra=0", 4).await;
        told.write(0, 200).await;
        told.until_destaged().await;
        let all = 0..told.rig.volume.size();
        let (_, data) = first_row(&told, 0);
        told.rig.secs(10).await; // so the drive misses nothing
        told.rig.lose(data.0 as usize - 1).await;
        loses_a_write(&told, 2).await;
        let seen = told.rig.volume.check_code(all.clone(), false).await.unwrap();
        assert_eq!(seen.unequal.iter().map(|range| range.end - range.start).sum::<u64>(), 32 * BLOCK);
        let repaired = told.rig.volume.check_code(all.clone(), true).await.unwrap();
        assert_eq!((repaired.unequal, repaired.unchecked > 0), (Vec::new(), true), "it isn't known which is wrong");

        told.rig.bring_back(data.0 as usize - 1).await;
        told.rig.until_healthy().await;
        let scrubbed = told.rig.volume.scrub(|_| {}).await.unwrap();
        assert_eq!(scrubbed.unequal_extents, 1);
        assert_eq!(told.rig.volume.check_code(all, false).await.unwrap().unequal, []);
        let parity = [2, 3].map(|fragment| first_row(&told, fragment).1.0 as usize - 1);
        for nth in (0..4).filter(|nth| !parity.contains(nth)) {
            told.rig.lose(nth).await;
        }
        told.check().await; // by parity alone
    });
}

/// Story: a block was damaged, and wrong parity was among the fragments that it was decoded from, though others gave what it was.
#[test]
fn a_damaged_block_is_decoded_from_what_gives_its_checksum() {
    told(|world| async move {
        for scrubs in [false, true] {
            let mut told = Told::new(world.clone(), "ec:2+2;min_extra=0", 4).await;
            told.write(0, 200).await;
            told.until_destaged().await;
            loses_a_write(&told, 2).await;
            rots(&told, 0).await;
            if scrubs {
                told.rig.volume.scrub(|_| {}).await.unwrap();
            }
            told.check().await;
            told.rig.volume.scrub(|_| {}).await.unwrap();
            assert_eq!(told.rig.volume.check_code(0..told.rig.volume.size(), false).await.unwrap().unequal, []);
            let data = [0, 1].map(|fragment| first_row(&told, fragment).1);
            for id in data {
                told.rig.lose(id.0 as usize - 1).await;
            }
            told.check().await;
        }
    });
}

/// Both fragments of parity are of other data than the rest, and one of the rest can't be read.
#[test]
fn a_block_that_nothing_gives_is_damaged_rather_than_wrong() {
    told(|world| async move {
        let mut told = Told::new(world, "ec:2+2;min_extra=0", 4).await;
        told.write(0, 200).await;
        told.until_destaged().await;
        loses_a_write(&told, 2).await;
        loses_a_write(&told, 3).await;
        rots(&told, 0).await;
        assert!(matches!(told.rig.read(0).await, Err(IoError::Damaged { .. })));
        told.rig.volume.scrub(|_| {}).await.unwrap();
        assert!(matches!(told.rig.read(0).await, Err(IoError::Damaged { .. })));
        assert_eq!(told.rig.read(1).await, Ok(1));
    });
}

/// Story: more fragments of a row were rotten than others give back. The rebuild of each met the other, and had that one rebuilt, without
/// end: writes to the row waited, and logs grew.
#[test]
fn rot_beyond_repair_is_tried_once_in_a_while() {
    told(|world| async move {
        let mut told = Told::new(world.clone(), "ec:2+1", 3).await;
        told.write(0, 200).await;
        told.until_destaged().await;
        rots(&told, 0).await;
        rots(&told, 1).await;
        assert!(matches!(told.rig.read(0).await, Err(IoError::Damaged { .. })));
        let before = world.core().steps();
        world.sleep(Duration::from_secs(10)).await;
        let steps = world.core().steps() - before;
        assert!(steps < 20_000, "{steps} steps in ten seconds in which nobody asked for anything");
        told.write(0, 200).await;
        told.until_destaged().await;
        told.check().await;
    });
}

/// Story: of five drives, two had missed what was written to a region, and a third one, which had it, was away after a crash. So the region
/// couldn't be settled, the two weren't up, and nothing could be written to the column.
#[test]
fn a_region_that_waits_for_a_drive_holds_up_no_other_region() {
    told(|world| async move {
        let mut rig = Rig::new(world, "ec:3+2", 5).await;
        let place = |rig: &Rig, block: u64| {
            let map = rig.engine.map(MapId(1)).unwrap();
            let (column, offset) = map.striping().locate(block * BLOCK);
            (column, map.column(column).region_of(offset / BLOCK))
        };
        let (column, region) = place(&rig, 0);
        let is_other = |block: &u64| {
            let (of, other) = place(&rig, *block);
            of == column && other != region
        };
        let elsewhere = (0..rig.volume.size() / BLOCK).find(is_other).unwrap();
        rig.write(0, 1, 200).await.unwrap();
        rig.secs(10).await;
        rig.lose(4).await;
        rig.write(0, 2, 3).await.unwrap();
        rig.restart(|nth| nth < 3).await;
        assert_eq!(rig.read(0).await, Ok(2));
        rig.restart(|nth| nth != 2).await;
        assert_eq!(rig.within(30, rig.write(elsewhere, 3, 2)).await, Some(Ok(())));
        assert_eq!(rig.within(5, rig.read(0)).await, None, "two of three fragments are here");
        rig.bring_back(2).await;
        assert_eq!((rig.read(0).await, rig.read(elsewhere).await), (Ok(2), Ok(3)));
        rig.until_healthy().await;
    });
}
