//! Full drives after a crash: one copy has data for which another has no room.

use super::*;
use tepal_codec::checksum::block_crcs;
use tepal_drive::world::Gather;
use tepal_drive::{Change, DriveError, Mark, MarkKind, Write};
use tepal_model::{EXTENT, Lineage, Taking};

/// Another map, which takes the room.
const OTHERS: MapId = MapId(77);
/// A block in the first column.
const NEW: u64 = 128;

async fn put(
    drive: &Drive<SimWorld>,
    (map, first, count): (MapId, u64, usize),
    byte: u8,
    lineage: &Lineage,
) -> Result<(), DriveError> {
    let data = Gather::from_iter([Bytes::from(vec![byte; count * BLOCK as usize])]);
    let crcs = data.iter().flat_map(|piece| block_crcs(piece)).collect::<Vec<u32>>().into();
    let mark = |region| Change::Marked(Mark { map: MapId(1), region, kind: MarkKind::Busy });
    let marks = if map == MapId(1) { (0..8).map(mark).collect() } else { Vec::new() };
    let (durable, repair, taking) = (true, map == OTHERS, Taking::Nothing);
    drive.write(Write { map, first, data, crcs, marks, durable, repair, taking, lineage }).await
}

impl Rig {
    fn drive(&self, nth: usize) -> Drive<SimWorld> {
        self.engine.drive(DriveId(nth as u64 + 1)).unwrap()
    }

    /// Leaves a drive no room, not even the room that is kept back.
    async fn fill_up(&self, nth: usize) {
        let (drive, in_extent) = (self.drive(nth), EXTENT / BLOCK);
        let mut extent = 0;
        while put(&drive, (OTHERS, extent * in_extent, in_extent as usize), 3, &Lineage::default()).await.is_ok() {
            extent += 1;
        }
    }

    /// Leaves a drive room for so many extents, beside the room that is kept back.
    async fn leave_room(&self, nth: usize, extents: u64) {
        const STAYS: MapId = MapId(78);
        const GOES: MapId = MapId(79);
        let (drive, in_extent, lineage) = (self.drive(nth), EXTENT / BLOCK, Lineage::default());
        let fill =
            async |map, extent: u64| put(&drive, (map, extent * in_extent, in_extent as usize), 3, &lineage).await;
        for extent in 0..extents {
            fill(GOES, extent).await.unwrap();
        }
        let mut extent = 0;
        while fill(STAYS, extent).await.is_ok() {
            extent += 1;
        }
        drive.remove_map(GOES).await.unwrap();
    }

    /// All servers are killed when a write has reached one copy.
    async fn killed_with_a_write_on(&mut self, nth: usize, block: u64, byte: u8) {
        self.disks.iter().for_each(SimDisk::process_killed);
        let world = SimWorld::boot(self.world.core(), "its last moment");
        let drive = opened(&world, &self.disks[nth]).await;
        let copies = self.volume.copies_at(block * BLOCK);
        let first = copies.into_iter().find(|(id, _)| *id == drive.id()).unwrap().1;
        let seen = self.epochs.newest_line();
        put(&drive, (MapId(1), first, 4), byte, &seen).await.unwrap();
        self.restart(|_| true).await;
    }

    /// Expects the same block on every copy, whichever of the drives is asked alone.
    async fn all_say(&self, block: u64, byte: u8) {
        self.until_healthy().await;
        for nth in 0..self.disks.len() {
            let others: Vec<usize> = (0..self.disks.len()).filter(|&other| other != nth).collect();
            for &other in &others {
                self.lose(other).await;
            }
            assert_eq!(self.read(block).await, Ok(byte), "block {block} of drive {nth}");
            for &other in &others {
                self.bring_back(other).await;
            }
            self.until_healthy().await;
        }
    }
}

/// Story: a drive was full to the last block when its server was killed. Another drive's data of unacknowledged writes
/// had no room there, and reads of all of the region failed for want of room, also of snapshots.
#[test]
fn a_crashed_write_without_room_elsewhere_is_taken_back() {
    for (layout, drives) in [("mirror:2", 2), ("mirror:3", 3)] {
        for (full, got) in [(0, 1), (1, 0), (drives - 1, 0)] {
            told(move |world| async move {
                let mut rig = Rig::new(world, layout, drives).await;
                rig.write(0, 1, 64).await.unwrap();
                rig.fill_up(full).await;
                let used = rig.drive(got).usage().used;
                rig.killed_with_a_write_on(got, NEW, 2).await;
                assert_eq!((rig.read(NEW).await, rig.read(0).await), (Ok(0), Ok(1)));
                rig.all_say(NEW, 0).await;
                assert_eq!(rig.drive(got).usage().used, used, "its space is given back");
                assert_eq!(rig.drive(got).slots_unaccounted(), 0);
            });
        }
    }
}

/// Story: the same with blocks that a snapshot keeps: the write is placed beside them.
#[test]
fn a_write_beside_snapshots_is_taken_back_without_room() {
    for (layout, drives) in [("mirror:2", 2), ("mirror:3", 3)] {
        for (full, got) in [(0, 1), (1, 0)] {
            told(move |world| async move {
                let mut rig = Rig::new(world, layout, drives).await;
                rig.write(0, 1, 8).await.unwrap();
                rig.follow(&["0-1", "0-2"]);
                rig.fill_up(full).await;
                let used = rig.drive(got).usage().used;
                rig.killed_with_a_write_on(got, 6, 2).await;
                for block in 0..12 {
                    assert_eq!(rig.read(block).await, Ok(u8::from(block < 8)), "block {block}");
                    assert_eq!(rig.shown(1, block).await, Ok(u8::from(block < 8)), "block {block}");
                }
                rig.all_say(6, 1).await;
                rig.all_say(8, 0).await;
                assert_eq!(rig.drive(got).usage().used, used, "its space is given back");
            });
        }
    }
}

/// Where there's room, the first copy's data stays.
#[test]
fn a_crashed_write_with_room_everywhere_stays() {
    told(|world| async move {
        let mut rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(0, 1, 64).await.unwrap();
        rig.killed_with_a_write_on(0, NEW, 2).await;
        let decided = rig.read(NEW).await.unwrap();
        rig.all_say(NEW, decided).await;
        assert_eq!(rig.read(0).await, Ok(1));
    });
}

/// Story: a drive that was away has missed more than it has room for. The drives that have the data are read, and the
/// drive catches up with acknowledged data when there's room; nothing is taken back for it.
#[test]
fn a_full_drive_that_is_behind_blocks_no_read() {
    told(|world| async move {
        let mut rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(0, 1, 64).await.unwrap();
        rig.fill_up(1).await;
        rig.lose(1).await;
        rig.write(NEW, 5, 16).await.unwrap();
        rig.killed_with_a_write_on(0, NEW + 32, 2).await;
        let decided = rig.read(NEW + 32).await.unwrap();
        assert_eq!((rig.read(NEW).await, rig.read(0).await), (Ok(5), Ok(1)));
        rig.world.sleep(Duration::from_secs(30)).await;
        assert_ne!(rig.volume.health(), VolumeHealth::Healthy);
        rig.drive(1).remove_map(OTHERS).await.unwrap();
        rig.all_say(NEW, 5).await;
        rig.all_say(NEW + 32, decided).await;
    });
}

/// Story: the edge of a trim lay in an empty block. Zeros were written to the block, for which a full drive had no
/// room: so a volume couldn't be shrunk to a size that ends within a block.
#[test]
fn a_trims_edges_take_no_room_in_empty_blocks() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(0, 5, 1).await.unwrap();
        for nth in 0..2 {
            rig.fill_up(nth).await;
        }
        for (from, end) in
            [(BLOCK / 2, 40 * BLOCK + 1), (30 * BLOCK + 9, 30 * BLOCK + 90), (31 * BLOCK - 9, 31 * BLOCK + 9)]
        {
            assert_eq!(rig.volume.trim(from, end - from).await, Ok(()), "{from}..{end}");
        }
        let left = join(&rig.volume.read(0, BLOCK).await.unwrap());
        assert_eq!((left[BLOCK as usize / 2 - 1], left[BLOCK as usize / 2]), (5, 0));
    });
}

/// Story: all of a volume was written again, and there was no room to have all of that in the log at a time. Writes failed, though what
/// was logged before could go in place without taking room.
#[test]
fn a_logged_write_waits_for_room_that_destaging_gives_back() {
    told(|world| async move {
        const UNIT: u64 = EXTENT / BLOCK;
        let rig = Rig::new(world, "ec:2+1", 3).await;
        let units = rig.volume.size() / EXTENT;
        rig.write(0, 1, (units * UNIT) as usize).await.unwrap();
        rig.until_healthy().await;
        for nth in 0..3 {
            rig.leave_room(nth, 10).await;
        }
        for unit in 0..units {
            rig.write(unit * UNIT + 3, unit as u8 + 2, 5).await.unwrap();
        }
        for unit in 0..units {
            assert_eq!(rig.read(unit * UNIT + 3).await, Ok(unit as u8 + 2), "{unit}");
            assert_eq!(rig.read(unit * UNIT).await, Ok(1), "{unit}");
        }
    });
}

/// There's nothing to give back.
#[test]
fn a_logged_write_without_room_fails_after_a_while() {
    told(|world| async move {
        let rig = Rig::new(world, "ec:2+1", 3).await;
        rig.write(0, 1, 1).await.unwrap();
        for nth in 0..3 {
            rig.fill_up(nth).await;
        }
        let began = rig.world.now();
        assert_eq!(rig.write(NEW, 2, 1).await, Err(IoError::OutOfSpace));
        assert!(rig.world.now().0 - began.0 < Duration::from_secs(10));
        assert_eq!(rig.write(NEW, 2, 1).await, Err(IoError::OutOfSpace));
        assert_eq!((rig.read(0).await, rig.read(NEW).await), (Ok(1), Ok(0)));
    });
}
