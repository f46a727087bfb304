//! Full drives after a crash: what one copy has got and another has no room for.

use super::*;
use tepal_codec::checksum::block_crcs;
use tepal_drive::world::Gather;
use tepal_drive::{Change, DriveError, Mark, MarkKind, Write};
use tepal_model::{EXTENT, Lineage, Taking};

/// Of something else.
const OTHERS: MapId = MapId(77);
/// In the first column.
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
    let marks = if map == OTHERS { Vec::new() } else { (0..8).map(mark).collect() };
    let (durable, repair, taking) = (true, map == OTHERS, Taking::Nothing);
    drive.write(Write { map, first, data, crcs, marks, durable, repair, taking, lineage }).await
}

impl Rig {
    fn drive(&self, nth: usize) -> Drive<SimWorld> {
        self.engine.drive(DriveId(nth as u64 + 1)).unwrap()
    }

    /// A drive has nothing left, not even what is kept back.
    async fn fill_up(&self, nth: usize) {
        let (drive, in_extent) = (self.drive(nth), EXTENT / BLOCK);
        let mut extent = 0;
        while put(&drive, (OTHERS, extent * in_extent, in_extent as usize), 3, &Lineage::default()).await.is_ok() {
            extent += 1;
        }
    }

    /// All are killed when a write has reached one copy.
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

    /// Every copy says the same of a block, whichever of the drives is asked alone.
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

/// Story: a drive was full to the last block when its server was killed. What another had got of writes that nobody had been told of
/// had no room there, and reads of all of the region failed for want of room, also of snapshots.
#[test]
fn what_a_crash_left_on_one_copy_is_taken_back_where_the_other_has_no_room_for_it() {
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

/// Story: the same of what a snapshot keeps, which is written beside it.
#[test]
fn a_write_beside_a_snapshot_is_taken_back_where_a_copy_has_no_room_for_it_and_the_snapshot_stays() {
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

/// Where there's room, what the first copy has stays.
#[test]
fn what_has_room_on_all_copies_is_not_taken_back() {
    told(|world| async move {
        let mut rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(0, 1, 64).await.unwrap();
        rig.killed_with_a_write_on(0, NEW, 2).await;
        let decided = rig.read(NEW).await.unwrap();
        rig.all_say(NEW, decided).await;
        assert_eq!(rig.read(0).await, Ok(1));
    });
}

/// Story: a drive that was away has missed more than it has room for. Those that have it are read, and it's told what was
/// acknowledged when there's room; nothing is taken back for it.
#[test]
fn a_full_drive_that_is_behind_keeps_nobody_from_reading_and_takes_nothing_back() {
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

/// Story: the edge of a trim lay in a block of which nothing was there. Zeros were written to it, for which a full drive had no room: so
/// a volume couldn't be shrunk to a size that ends within a block.
#[test]
fn the_edges_of_a_trim_take_no_room_where_there_is_nothing() {
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
