//! A drive on a device that forgets what wasn't flushed. Schedules and faults are the simulator's; these are the plain
//! stories.

mod device;
mod growth;
mod joins;
mod kept_image;
mod labels;
mod layers;
mod layers_model;
mod limits;
mod log_device;
mod log_end;
mod requests;
mod state_copy;
mod surplus;
mod tables;

use crate::world::{Clock, Gather, Random, Spawn, Tick, World};
use crate::{Change, Drive, DriveError, Mark, MarkKind, NewDrive, OpenError, Options, Write, format};
use bytes::Bytes;
use device::{Dice, Pace, TestDevice, let_others};
use futures_executor::{LocalPool, LocalSpawner};
use futures_util::future::LocalBoxFuture;
use futures_util::task::LocalSpawnExt;
use std::future::{pending, ready};
use std::time::Duration;
use tepal_codec::checksum::block_crcs;
use tepal_model::{BLOCK, ClusterId, DriveId, EXTENT, Lineage, MapId, Origin, Segments, Taking, buffer::join};

#[derive(Clone)]
struct TestWorld(LocalSpawner);

impl Clock for TestWorld {
    fn now(&self) -> Tick {
        Tick(Duration::ZERO)
    }
    fn sleep(&self, _: Duration) -> impl Future<Output = ()> {
        pending() // nothing here waits for a quiet second
    }
}
impl Random for TestWorld {
    fn next_u64(&self) -> u64 {
        4
    }
}
impl Spawn for TestWorld {
    fn spawn(&self, work: LocalBoxFuture<'static, ()>) {
        self.0.spawn_local(work).expect("the pool outlives the world");
    }
    fn give_way(&self) -> impl Future<Output = ()> {
        let_others(1)
    }
}
impl World for TestWorld {
    type Device = TestDevice;
}

const SIZE: u64 = 16 << 20;
const MAP: MapId = MapId(3);

struct Rig {
    pool: LocalPool,
    device: TestDevice,
    log: Option<TestDevice>,
    drive: Drive<TestWorld>,
    /// By which is read and written.
    lineage: Lineage,
}

impl Rig {
    fn new() -> Self {
        Self::on(TestDevice::new(SIZE), None)
    }

    fn on(device: TestDevice, log: Option<TestDevice>) -> Self {
        let mut pool = LocalPool::new();
        let new = NewDrive { cluster: ClusterId(1), drive: DriveId(2), pool: "p".into(), log_length: None };
        pool.run_until(format(&device, log.as_ref(), new)).unwrap();
        let drive = Self::open(&mut pool, &device, &log).unwrap();
        Rig { pool, device, log, drive, lineage: Lineage::default() }
    }

    fn open(
        pool: &mut LocalPool,
        device: &TestDevice,
        log: &Option<TestDevice>,
    ) -> Result<Drive<TestWorld>, OpenError> {
        let world = TestWorld(pool.spawner());
        pool.run_until(Drive::open(world, device.clone(), log.clone(), Options::default()))
    }

    fn reopen(&mut self) {
        self.pool = LocalPool::new(); // what the old one still ran is dropped where it was
        self.drive = Self::open(&mut self.pool, &self.device, &self.log).unwrap();
    }

    fn write(&mut self, first: u64, blocks: &[u8], durable: bool) -> Result<(), DriveError> {
        let data = content(blocks);
        let crcs: Vec<u32> = block_crcs(&data).collect();
        self.write_pieces(first, Gather::from_iter([data]), crcs, durable)
    }

    fn write_pieces(&mut self, first: u64, data: Gather, crcs: Vec<u32>, durable: bool) -> Result<(), DriveError> {
        let (crcs, marks) = (crcs.into(), Vec::new());
        let taking = Taking::Nothing;
        let lineage = &self.lineage;
        let write = Write { map: MAP, first, data, crcs, marks, durable, repair: false, taking, lineage };
        self.pool.run_until(self.drive.write(write))
    }

    /// What a request writes: so many blocks.
    fn write_of(&mut self, origin: Origin, first: u64, count: usize) {
        let data = Gather::from_iter([Bytes::from(vec![origin.number as u8; count * BLOCK as usize])]);
        let crcs = data.iter().flat_map(|piece| block_crcs(piece)).collect::<Vec<u32>>().into();
        let (marks, taking) = (Vec::new(), Taking::Request(origin));
        let lineage = &self.lineage;
        let write = Write { map: MAP, first, data, crcs, marks, durable: true, repair: false, taking, lineage };
        self.pool.run_until(self.drive.write(write)).unwrap();
    }

    fn clear(&mut self, first: u64, count: u64) {
        let clear = self.drive.clear(MAP, (first, count), Vec::new(), Taking::Nothing, &self.lineage);
        self.pool.run_until(clear).unwrap();
    }

    fn read(&mut self, first: u64, count: u64) -> Result<Vec<u8>, DriveError> {
        let segments: Segments = self.pool.run_until(self.drive.read(MAP, first, count, &self.lineage))?;
        Ok(join(&segments).chunks(BLOCK as usize).map(uniform).collect())
    }
}

/// Blocks of these bytes.
fn content(blocks: &[u8]) -> Bytes {
    blocks.iter().map(|&byte| [byte; BLOCK as usize]).collect::<Vec<_>>().concat().into()
}

fn uniform(block: &[u8]) -> u8 {
    assert!(block == [block[0]; BLOCK as usize], "a mixed block");
    block[0]
}

#[test]
fn what_was_never_written_reads_as_zeros() {
    assert_eq!(Rig::new().read(5, 40), Ok(vec![0; 40]));
}

#[test]
fn data_that_lies_in_many_pieces_of_memory_is_written_as_one() {
    // From within an extent over the whole of one into a third, cut where extents aren't and where they are.
    for lengths in [&[1, 4, 20, 3][..], &[6, 16, 6], &[28], &[1; 28]] {
        let mut rig = Rig::new();
        let blocks: Vec<u8> = (1..=28).collect();
        let mut rest: Vec<u8> = blocks.iter().flat_map(|&byte| [byte; BLOCK as usize]).collect();
        let crcs: Vec<u32> = block_crcs(&rest).collect();
        let piece = |&count: &usize| Bytes::from(rest.drain(..count * BLOCK as usize).collect::<Vec<u8>>());
        let data = lengths.iter().map(piece).collect();
        rig.write_pieces(10, data, crcs, true).unwrap();
        assert_eq!(rig.read(10, 28), Ok(blocks), "{lengths:?}");
    }
}

#[test]
fn small_and_large_writes_survive_power_loss_before_and_after_a_checkpoint() {
    for log in [None, Some(TestDevice::new(4 << 20))] {
        for checkpoint in [false, true] {
            let mut rig = Rig::on(TestDevice::new(SIZE), log.as_ref().map(|_| TestDevice::new(4 << 20)));
            rig.write(0, &[1; 40], true).unwrap();
            rig.write(3, &[2; 2], true).unwrap();
            rig.write(16, &[3; 16], true).unwrap();
            if checkpoint {
                rig.pool.run_until(rig.drive.checkpoint()).unwrap();
            }
            let mut expected = [vec![1; 3], vec![2; 2], vec![1; 11], vec![3; 16], vec![1; 8], vec![0; 4]].concat();
            for _ in 0..2 {
                assert_eq!(rig.read(0, 44).unwrap(), expected);
                rig.device.lose_power();
                rig.reopen();
            }
            rig.write(4, &[9], true).unwrap();
            expected[4] = 9;
            assert_eq!(rig.read(0, 44).unwrap(), expected);
        }
    }
}

#[test]
fn a_write_that_was_not_promised_is_old_or_new_after_power_loss_and_a_flush_promises_it() {
    let mut rig = Rig::new();
    rig.write(0, &[1; 16], true).unwrap();
    rig.write(0, &[2; 16], false).unwrap();
    rig.write(20, &[2], false).unwrap();
    rig.device.lose_power();
    rig.reopen();
    assert_eq!((rig.read(0, 16).unwrap(), rig.read(20, 1).unwrap()), (vec![1; 16], vec![0]));
    rig.write(0, &[3; 16], false).unwrap();
    rig.write(20, &[3], false).unwrap();
    rig.pool.run_until(rig.drive.flush()).unwrap();
    rig.device.lose_power();
    rig.reopen();
    assert_eq!((rig.read(0, 16).unwrap(), rig.read(20, 1).unwrap()), (vec![3; 16], vec![3]));
}

#[test]
fn a_slot_freed_by_an_unpromised_write_is_not_reused_before_a_flush() {
    let mut rig = Rig::new();
    rig.write(0, &[1; 16], true).unwrap();
    rig.write(0, &[2; 16], false).unwrap(); // frees the first slot, if it holds
    rig.write(16, &[3; 16], false).unwrap(); // would like to have it
    rig.device.0.borrow_mut().stable = {
        // The drive's cache wrote everything but the log, as it may.
        let platter = rig.device.0.borrow();
        let geometry = rig.drive.geometry();
        let log = geometry.log_start as usize..(geometry.log_start + geometry.log_length) as usize;
        let mut stable = platter.now.clone();
        stable[log.clone()].copy_from_slice(&platter.stable[log]);
        stable
    };
    rig.device.lose_power();
    rig.reopen();
    assert_eq!(rig.read(0, 16).unwrap(), vec![1; 16]);
}

#[test]
fn cleared_space_comes_back_and_reads_as_zeros() {
    let mut rig = Rig::new();
    rig.write(0, &[1; 48], true).unwrap();
    assert_eq!(rig.drive.allocated_of(MAP), 3 * EXTENT);
    rig.clear(8, 32);
    assert_eq!(rig.drive.allocated_of(MAP), 2 * EXTENT);
    let expected = [vec![1; 8], vec![0; 32], vec![1; 8]].concat();
    assert_eq!(rig.read(0, 48).unwrap(), expected);
    assert_eq!(rig.drive.present(MAP, 0, 50, 100, &rig.lineage), [(8, true), (32, false), (8, true), (2, false)]);
    rig.device.lose_power();
    rig.reopen();
    assert_eq!(rig.read(0, 48).unwrap(), expected);
    rig.pool.run_until(rig.drive.remove_map(MAP)).unwrap();
    assert_eq!((rig.drive.usage().used, rig.drive.slots_unaccounted()), (0, 0));
}

#[test]
fn a_full_drive_says_so_before_the_acknowledgement_and_still_takes_overwrites() {
    let mut rig = Rig::new();
    let mut extents = 0;
    while rig.write(extents * 16, &[1; 16], true).is_ok() {
        extents += 1;
    }
    assert_eq!(extents * EXTENT, rig.drive.usage().capacity);
    assert_eq!(rig.write(extents * 16, &[1], true), Err(DriveError::OutOfSpace));
    for round in 2..6 {
        for extent in 0..extents {
            rig.write(extent * 16, &[round; 16], true).unwrap();
        }
    }
    rig.device.lose_power();
    rig.reopen();
    assert_eq!(rig.read(0, extents * 16).unwrap(), vec![5; extents as usize * 16]);
    rig.clear(0, 16);
    rig.write(extents * 16, &[1], true).unwrap();
}

#[test]
fn overwrites_under_way_do_not_make_a_drive_look_full() {
    let mut rig = Rig::new();
    let extents = rig.drive.usage().capacity / EXTENT;
    for extent in 0..extents - 1 {
        rig.write(extent * 16, &[1; 16], true).unwrap();
    }
    let lineage = Lineage::default();
    let whole = |extent: u64| {
        let data = Bytes::from(vec![2; EXTENT as usize]);
        let crcs = block_crcs(&data).collect::<Vec<u32>>().into();
        let data = Gather::from_iter([data]);
        Write {
            map: MAP,
            first: extent * 16,
            data,
            crcs,
            marks: Vec::new(),
            durable: true,
            repair: false,
            taking: Taking::Nothing,
            lineage: &lineage,
        }
    };
    let under_way: Vec<_> = (0..extents - 1)
        .map(|extent| (extent, rig.drive.prepare(&whole(extent)).expect("an overwrite finds room")))
        .collect();
    rig.write((extents - 1) * 16, &[3; 16], true).expect("the last extent is free");
    for (extent, prepared) in under_way {
        rig.pool.run_until(rig.drive.commit(prepared, whole(extent))).unwrap();
    }
    assert_eq!(rig.read(0, extents * 16).unwrap(), [vec![2; extents as usize * 16 - 16], vec![3; 16]].concat());
}

#[test]
fn many_small_writes_go_round_the_log_and_all_are_there() {
    let mut rig = Rig::new();
    let mut expected = vec![0; 512];
    for step in 0..4000u64 {
        let at = step * 7919 % 511;
        expected[at as usize] = (step % 251) as u8;
        expected[at as usize + 1] = (step % 13) as u8;
        rig.write(at, &[(step % 251) as u8, (step % 13) as u8], step % 3 == 0).unwrap();
        if step % 997 == 0 {
            rig.reopen(); // kill -9: what was written to the device stays
        }
    }
    assert_eq!(rig.read(0, 512).unwrap(), expected);
    let log = rig.drive.usage();
    assert!(log.log_used < log.log_length, "{log:?}");
}

#[test]
fn rot_is_never_returned_and_an_overwrite_mends_it() {
    let mut rig = Rig::new();
    rig.write(0, &[7; 20], true).unwrap();
    rig.pool.run_until(rig.drive.checkpoint()).unwrap();
    assert_eq!(rig.device.rot(&[7; BLOCK as usize]), 20 + 4, "the log has the last four too");
    let damaged = (0..20).collect();
    assert_eq!(rig.read(0, 22), Err(DriveError::Damaged { blocks: damaged }));
    let report = rig.pool.run_until(rig.drive.scrub(None, |_| ready(()))).unwrap();
    assert_eq!((report.blocks_checked, report.damaged.len()), (20, 20));
    rig.write(0, &[8; 20], true).unwrap();
    assert_eq!(rig.read(0, 20), Ok(vec![8; 20]));
}

#[test]
fn a_drive_marks_a_hundred_thousand_regions_in_the_smallest_log_and_forgets_them_with_their_map() {
    let mut rig = Rig::new();
    let mark = |region| Change::Marked(Mark { map: MAP, region, kind: MarkKind::Stale(DriveId(9)) });
    const REGIONS: u64 = 100_000;
    for first in (0..REGIONS).step_by(10_000) {
        rig.pool.run_until(rig.drive.record((first..first + 10_000).map(mark).collect(), true)).unwrap();
        rig.pool.run_until(rig.drive.checkpoint()).unwrap();
    }
    rig.reopen();
    assert_eq!(rig.drive.marks().len() as u64, REGIONS);
    rig.pool.run_until(rig.drive.remove_map(MAP)).unwrap();
    rig.reopen();
    assert_eq!(rig.drive.marks(), []);
}

#[test]
fn marks_survive_and_are_taken_back() {
    let mut rig = Rig::new();
    let mark = |region, kind| Mark { map: MAP, region, kind };
    let marks = [mark(1, MarkKind::Busy), mark(1, MarkKind::Stale(DriveId(9))), mark(4, MarkKind::Busy)];
    rig.pool.run_until(rig.drive.record(marks.map(Change::Marked).to_vec(), true)).unwrap();
    rig.pool.run_until(rig.drive.checkpoint()).unwrap();
    rig.pool.run_until(rig.drive.record(vec![Change::Unmarked(marks[0])], true)).unwrap();
    rig.device.lose_power();
    rig.reopen();
    assert_eq!(rig.drive.marks(), [marks[1], marks[2]]);
}

/// Story: a column was led anew while the taking back of a busy mark was in line. The mark was found, and counted as being in the log.
#[test]
fn marks_are_what_the_log_says_once_what_was_in_line_has_been_applied() {
    let mut rig = Rig::new();
    let busy = Mark { map: MAP, region: 3, kind: MarkKind::Busy };
    rig.pool.run_until(rig.drive.record(vec![Change::Marked(busy)], true)).unwrap();
    let taken_back = rig.drive.record(vec![Change::Unmarked(busy)], false);
    assert_eq!(rig.drive.marks(), [busy]);
    rig.pool.run_until(rig.drive.catch_up_with_line()).unwrap();
    assert_eq!(rig.drive.marks(), []);
    rig.pool.run_until(taken_back).unwrap();
    let applied = rig.drive.shared.lock().applied;
    rig.pool.run_until(rig.drive.catch_up_with_line()).unwrap();
    assert_eq!(rig.drive.shared.lock().applied, applied, "nothing is written for it");
}

#[test]
fn a_failed_flush_retires_the_drive_and_the_write_is_not_acknowledged() {
    let mut rig = Rig::new();
    rig.write(0, &[1], true).unwrap();
    rig.device.0.borrow_mut().flush_fails = true;
    assert!(matches!(rig.write(0, &[2], true), Err(DriveError::Lost(_))));
    rig.device.0.borrow_mut().flush_fails = false;
    assert!(matches!(rig.write(0, &[3], true), Err(DriveError::Lost(_))), "it's never retried into success");
    assert!(matches!(rig.read(0, 1), Err(DriveError::Lost(_))));
}

#[test]
fn a_rotten_batch_in_the_middle_of_the_log_is_damage_and_at_its_end_a_torn_tail() {
    let mut rig = Rig::new();
    for byte in 1..5 {
        rig.write(u64::from(byte), &[byte], true).unwrap();
    }
    let mut last = Rig::new();
    last.device = rig.device.clone_deep();
    assert_eq!(last.device.rot(&[4; BLOCK as usize]), 1);
    last.reopen();
    assert_eq!(last.read(3, 2).unwrap(), [3, 0]);
    assert_eq!(rig.device.rot(&[2; BLOCK as usize]), 1);
    let opened = Rig::open(&mut rig.pool, &rig.device, &None);
    assert_eq!(opened.err(), Some(OpenError::LogDamaged { sequence: 2 }));
}

/// Story: a copy of a drive, made while it was in use, was put back. Its generation was the newest, and it was believed.
#[test]
fn an_image_that_lacks_a_batch_that_was_stable_is_not_taken_into_use() {
    let mut rig = Rig::new();
    rig.write(0, &[1], true).unwrap();
    let image = rig.device.clone_deep();
    rig.write(0, &[2], true).unwrap();
    let (known, label) = (rig.drive.durable(), rig.drive.label().clone());
    let label = crate::Label { generation: label.generation + 1, ..label };
    let older = rig.pool.run_until(crate::raise(&label, &image, None, known));
    assert_eq!(older, Err(OpenError::Older { found: known - 1, known }));
    assert!(image.0.borrow().now == image.0.borrow().stable, "nothing was written");
    for checkpointed in [false, true] {
        if checkpointed {
            rig.pool.run_until(rig.drive.checkpoint()).unwrap();
        }
        let known = rig.drive.durable();
        assert_eq!(rig.pool.run_until(crate::raise(&label, &rig.device.clone_deep(), None, known)), Ok(false));
    }
}

/// A second header that is stable before its pages hid that they were older; a second power loss then took the first ones.
#[test]
fn the_second_header_is_written_when_the_second_pages_are_stable() {
    let mut rig = Rig::new();
    rig.device.0.borrow_mut().second_header_early = false; // formatting flushes all at once
    for first in [0, 16] {
        rig.write(first, &[1; 16], true).unwrap();
        rig.pool.run_until(rig.drive.checkpoint()).unwrap();
    }
    assert!(!rig.device.0.borrow().second_header_early);
}
