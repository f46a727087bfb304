//! Snapshots while requests are under way, are retried, and find no room: each story once went wrong, or nearly so.

use super::doubts::{AT, ask, killed_with_a_request_on_one_copy};
use super::*;
use crate::column::Blocks;
use crate::column::order::Queued;
use crate::{ClusterView, Head};
use futures_util::future::{Either, select};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use tepal_codec::checksum::block_crcs;
use tepal_drive::world::Gather;
use tepal_drive::{Change, Mark, MarkKind, Write};
use tepal_model::{EXTENT, Epoch, History, Lineage, ServerId, Taking};

impl Rig {
    /// Has the readers of the volume's map agreed: its snapshots, and at last the volume itself.
    pub fn agree(&mut self, readers: &[&str]) {
        let readers: Vec<Lineage> = readers.iter().map(|text| text.parse().unwrap()).collect();
        let (head, snapshots) = readers.split_last().unwrap();
        let view = self.epochs.view + 1;
        let heads = [(self.volume.id(), Head { epoch: head.newest(), since: view })].into();
        let snapshots = snapshots.iter().map(|reader| (reader.newest(), self.volume.id())).collect();
        self.epochs = Arc::new(Epochs { history: History::new(readers, 0), heads, snapshots, view });
    }

    /// The same, and the server acts by the agreed state.
    pub fn follow(&mut self, readers: &[&str]) {
        let before = self.view();
        self.agree(readers);
        self.engine.follow(ServerId(1), &before, &Arc::new(self.view()));
    }

    fn view(&self) -> ClusterView {
        let epochs = BTreeMap::from([(MapId(1), self.epochs.clone())]);
        ClusterView { view: self.epochs.view, epochs, ..ClusterView::default() }
    }

    /// A block's byte in the snapshot.
    pub async fn shown(&self, epoch: Epoch, block: u64) -> Result<u8, IoError> {
        let snapshot = self.volume.snapshot(epoch, self.volume.size());
        let data = join(&snapshot.read(block * BLOCK, BLOCK).await?);
        assert!(data.iter().all(|&byte| byte == data[0]), "a mixed block");
        Ok(data[0])
    }

    /// Has all data destaged.
    async fn checkpoint(&self) {
        for drive in self.engine.drives_here() {
            drive.checkpoint().await.unwrap();
        }
    }

    async fn power_cycle(&mut self) {
        self.world.kill();
        self.disks.iter().for_each(SimDisk::cut_power);
        self.restart(|_| true).await;
    }
}

/// Story: a snapshot's blocks were made equal without naming their requests. The copy that decided, and couldn't be
/// read, took a request's data from the other copy, which then forgot the request.
#[test]
fn a_request_in_doubt_stays_done_despite_rot() {
    for rots in [false, true] {
        told(move |world| async move {
            let mut rig = Rig::new(world, "mirror:2", 2).await;
            rig.write(AT, 1, 4).await.unwrap();
            rig.checkpoint().await;
            let slots = rig.engine.drive(DriveId(1)).unwrap().geometry().slots_start;
            killed_with_a_request_on_one_copy(&rig, 1, 9).await;
            if rots {
                rig.disks[0].rot(slots);
            }
            rig.agree(&["0-1", "0-2"]);
            rig.restart(|_| true).await;
            let byte = rig.read(AT).await.unwrap();
            assert_eq!(byte, if rots { 9 } else { 1 }, "the first copy decides, if it can");
            rig.write(AT, 5, 1).await.unwrap();
            ask(&rig, 9, 1, true).await.unwrap();
            assert_eq!(rig.read(AT).await, Ok(if rots { 5 } else { 9 }));
            assert_eq!(rig.shown(1, AT).await, Ok(byte));
        });
    }
}

/// Story: a server that was alone began again in the volume's first epoch, and wrote into its snapshots.
#[test]
fn a_server_starting_alone_writes_in_the_agreed_epoch() {
    told(|world| async move {
        let mut rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(0, 1, 1).await.unwrap();
        rig.follow(&["0-1", "0-2"]);
        rig.restart(|_| true).await;
        rig.write(0, 2, 1).await.unwrap();
        assert_eq!((rig.read(0).await, rig.shown(1, 0).await), (Ok(2), Ok(1)));
    });
}

/// Story: zeros passed for nothing, so a copy kept them. In a source map, such zeros were handed over once more.
#[test]
fn a_copy_keeps_no_zeros_where_another_holds_nothing() {
    told(|world| async move {
        let mut rig = Rig::new(world, "mirror:2", 2).await;
        rig.follow(&["0-1", "0-2"]);
        rig.write(0, 0, 16).await.unwrap();
        rig.lose(1).await;
        rig.volume.trim(0, 16 * BLOCK).await.unwrap();
        rig.bring_back(1).await;
        rig.until_healthy().await;
        assert_eq!(rig.engine.drive(DriveId(2)).unwrap().epochs_of(MapId(1), 0, 16), []);
    });
}

/// Story: a write that hadn't begun when it came to wait for a drive began two snapshots later in the epoch of the
/// first snapshot, which had been read meanwhile.
#[test]
fn a_write_waiting_across_two_snapshots_is_in_neither() {
    for (offset, length) in [(0, BLOCK), (100, 100), (BLOCK - 100, 200)] {
        for is_trim in [false, true] {
            told(move |world| async move {
                let mut rig = Rig::new(world, "mirror:2;min_copies=2", 2).await;
                rig.write(0, 1, 3).await.unwrap();
                rig.lose(1).await;
                let volume = rig.volume.clone();
                let write = async move {
                    match is_trim {
                        true => volume.write_zeroes(offset, length, false).await,
                        false => volume.write(offset, Bytes::from(vec![5; length as usize]), false).await,
                    }
                };
                let waits = Box::pin(rig.world.sleep(Duration::from_secs(1)));
                let Either::Right((_, write)) = select(Box::pin(write), waits).await else { panic!("with one copy") };
                rig.follow(&["0-1", "0-2"]);
                assert_eq!((rig.shown(1, 0).await, rig.shown(1, 1).await), (Ok(1), Ok(1)));
                rig.follow(&["0-1", "0-2", "0-3"]);
                assert_eq!((rig.shown(2, 0).await, rig.shown(2, 1).await), (Ok(1), Ok(1)));
                rig.bring_back(1).await;
                write.await.unwrap();
                for epoch in [1, 2] {
                    assert_eq!((rig.shown(epoch, 0).await, rig.shown(epoch, 1).await), (Ok(1), Ok(1)), "{epoch}");
                }
                let now = join(&rig.volume.read(0, 2 * BLOCK).await.unwrap());
                let byte = if is_trim { 0 } else { 5 };
                let at = offset as usize..(offset + length) as usize;
                assert!(now.iter().enumerate().all(|(nth, &is)| is == if at.contains(&nth) { byte } else { 1 }));
            });
        }
    }
}

#[test]
fn a_snapshot_read_waits_for_its_epochs_writes() {
    told(|world| async move {
        for round in 0..4u64 {
            let mut rig = Rig::new(SimWorld::boot(world.core(), "server"), "mirror:2", 2).await;
            rig.write(0, 1, 3).await.unwrap();
            rig.checkpoint().await;
            rig.slow_down(20);
            let volume = rig.volume.clone();
            rig.world.spawn_named("write", async move {
                let (offset, length) = if round % 2 == 0 { (0, 2 * BLOCK) } else { (BLOCK, 100) };
                volume.write(offset, Bytes::from(vec![5; length as usize]), false).await.unwrap();
            });
            for readers in [&["0-1", "0-2"][..], &["0-1", "0-2", "0-3"]] {
                rig.world.sleep(Duration::from_micros(world.core().draw() % 3_000)).await;
                rig.follow(readers);
            }
            let shown = |rig: &Rig, epoch| rig.volume.snapshot(epoch, rig.volume.size());
            let (first, second) = (shown(&rig, 1), shown(&rig, 2));
            let first_seen = join(&first.read(0, 3 * BLOCK).await.unwrap());
            let second_seen = join(&second.read(0, 3 * BLOCK).await.unwrap());
            rig.world.sleep(Duration::from_secs(20)).await;
            assert_eq!(join(&first.read(0, 3 * BLOCK).await.unwrap()), first_seen);
            assert_eq!(join(&second.read(0, 3 * BLOCK).await.unwrap()), second_seen);
            let is_in = |seen: &Bytes| seen[BLOCK as usize] == 5;
            assert!(is_in(&second_seen) || !is_in(&first_seen), "what the older one shows, the newer one does");
        }
    });
}

/// Story: a snapshot held a write that was under way when it was taken, and a read that was sent after the snapshot
/// still found older data.
#[test]
fn a_read_after_a_snapshot_misses_no_data() {
    told(|world| async move {
        let mut were_under_way = 0;
        for _ in 0..30 {
            let mut rig = Rig::new(SimWorld::boot(world.core(), "server"), "mirror:2", 2).await;
            rig.write(0, 1, 1).await.unwrap();
            rig.checkpoint().await;
            rig.slow_down(20);
            let volume = rig.volume.clone();
            rig.world.spawn_named("write", async move {
                volume.write(0, Bytes::from(vec![5; BLOCK as usize]), false).await.unwrap();
            });
            rig.world.sleep(Duration::from_micros(world.core().draw() % 3_000)).await;
            rig.follow(&["0-1", "0-2"]);
            let read = rig.read(0).await;
            let shown = rig.shown(1, 0).await;
            assert_eq!(read, shown, "nothing has been written since");
            were_under_way += usize::from(shown == Ok(5));
        }
        assert!(were_under_way > 0, "all writes came after the snapshots");
    });
}

/// Story: a write of a part of a block took the rest from before a rollback, and wrote it after the rollback.
#[test]
fn a_write_merges_with_the_epoch_it_writes_in() {
    told(|world| async move {
        for round in 0..10u64 {
            let mut rig = Rig::new(SimWorld::boot(world.core(), "server"), "mirror:2", 2).await;
            rig.write(0, 1, 1).await.unwrap();
            rig.follow(&["0-1", "0-2"]);
            rig.write(0, 2, 1).await.unwrap();
            rig.checkpoint().await;
            rig.slow_down(20);
            let volume = rig.volume.clone();
            rig.world.spawn_named("write", async move {
                match round % 2 {
                    0 => volume.write(100, Bytes::from(vec![5; 100]), false).await.unwrap(),
                    _ => volume.write_zeroes(100, 100, false).await.unwrap(),
                }
            });
            rig.world.sleep(Duration::from_micros(world.core().draw() % 4_000)).await;
            rig.follow(&["0-1", "0-1,3-3"]);
            rig.world.sleep(Duration::from_secs(20)).await;
            let now = join(&rig.volume.read(0, BLOCK).await.unwrap());
            let rest = now.iter().enumerate().filter(|(nth, _)| !(100..200).contains(nth));
            assert!(rest.map(|(_, &byte)| byte).all(|byte| byte == 1), "round {round}: it's rolled back: {}", now[0]);
        }
    });
}

/// Story: data past a shortened volume's end was still being cleared when the volume was rolled back to a longer size.
/// The data that the rollback had brought back was cleared as well, in the newer epoch.
#[test]
fn an_earlier_cut_never_clears_a_rollbacks_data() {
    told(|world| async move {
        for round in 0..30u64 {
            let mut rig = Rig::new(SimWorld::boot(world.core(), "server"), "mirror:2", 2).await;
            let whole = rig.volume.size();
            rig.write(16, 7, 16).await.unwrap();
            rig.follow(&["0-1", "0-2"]);
            rig.write(40, 8, 1).await.unwrap();
            rig.checkpoint().await;
            rig.slow_down(20);
            let volume = rig.volume.clone();
            // Begun before the volume is shortened: the clear waits for this write.
            let written = volume.clone();
            rig.world.spawn_named("write", async move {
                let _ = written.write(20 * BLOCK, Bytes::from(vec![9; BLOCK as usize]), false).await;
            });
            rig.world.sleep(Duration::from_micros(world.core().draw() % 300)).await;
            rig.volume.resize(EXTENT);
            rig.world.spawn_named("clear", async move {
                let _ = volume.clear_past_end().await; // the clear ends when the volume grows
            });
            rig.world.sleep(Duration::from_micros(world.core().draw() % 20_000)).await;
            rig.volume.resize(whole);
            rig.follow(&["0-1", "0-1,3-3"]);
            rig.world.sleep(Duration::from_secs(20)).await;
            for block in 16..32 {
                let now = rig.read(block).await;
                // The writer of this hadn't been told that the write was done, so it may come after the rollback.
                assert!(now == Ok(7) || (block, now.clone()) == (20, Ok(9)), "round {round}, block {block}: {now:?}");
            }
        }
    });
}

/// Story: a write of the snapshot's epoch ended after the epoch was flushed, and was lost with the power.
#[test]
fn a_shown_snapshot_survives_a_power_cut_despite_caches() {
    told(|world| async move {
        for layout in ["stripe;durability=flush", "mirror:2;durability=flush"] {
            let mut rig = Rig::new(SimWorld::boot(world.core(), "server"), layout, 2).await;
            rig.write(0, 1, 1).await.unwrap();
            rig.volume.flush().await.unwrap();
            rig.slow_down(20);
            let volume = rig.volume.clone();
            rig.world.spawn_named("write", async move {
                volume.write(0, Bytes::from(vec![2; BLOCK as usize]), false).await.unwrap();
            });
            rig.world.sleep(Duration::from_micros(world.core().draw() % 3_000)).await;
            rig.follow(&["0-1", "0-2"]);
            rig.volume.flush().await.unwrap();
            let shown = rig.shown(1, 0).await.unwrap();
            rig.power_cycle().await;
            assert_eq!(rig.shown(1, 0).await, Ok(shown), "{layout}");
        }
    });
}

/// Story: while a snapshot was read it was removed, drives joined its layers with later ones, and the read found holes.
#[test]
fn a_snapshot_removed_during_a_read_never_shows_holes() {
    told(|world| async move {
        for round in 0..6u8 {
            let mut rig = Rig::new(SimWorld::boot(world.core(), "server"), "mirror:2", 2).await;
            rig.write(0, 1, 256).await.unwrap();
            rig.follow(&["0-1", "0-2"]);
            rig.write(0, 2, 64).await.unwrap();
            rig.volume.trim(64 * BLOCK, 64 * BLOCK).await.unwrap();
            rig.checkpoint().await;
            let (volume, size) = (rig.volume.clone(), rig.volume.size());
            let read = async move {
                let mut outcomes = Vec::new();
                for block in (0..256).step_by(32) {
                    outcomes.push(volume.snapshot(1, size).read(block * BLOCK, 32 * BLOCK).await);
                }
                outcomes
            };
            let later = Duration::from_micros(world.core().draw() % 12_000);
            let remove = async {
                rig.world.sleep(later).await;
                rig.follow(&["0-2"]);
                rig.write(32, 7 + round, 200).await.unwrap();
            };
            let (outcomes, ()) = futures_util::future::join(read, remove).await;
            for outcome in outcomes {
                match outcome {
                    Ok(data) => assert!(join(&data).iter().all(|&byte| byte == 1), "another's data, or none"),
                    Err(IoError::Unavailable { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    });
}

/// Every second block was trimmed after a snapshot, until notes of the trims had taken all the room that notes may
/// take.
async fn full_of_notes(world: SimWorld, layout: &'static str, drives: usize) -> Rig {
    let mut rig = Rig::new(world, layout, drives).await;
    for block in (0..1600).step_by(64) {
        rig.write(block, 1, 64).await.unwrap();
    }
    rig.follow(&["0-1", "0-2"]);
    for block in (0..1500).step_by(2) {
        rig.volume.trim(block * BLOCK, BLOCK).await.unwrap();
    }
    rig
}

#[test]
fn a_trim_without_room_for_notes_spares_the_snapshot() {
    for (layout, drives) in [("stripe", 1), ("mirror:2", 2)] {
        told(move |world| async move {
            let rig = full_of_notes(world, layout, drives).await;
            rig.volume.resize(1 << 30);
            let mut block = 4096;
            while rig.write(block, 7, 16).await.is_ok() {
                block += 16;
            }
            let mut refused = 0;
            let trims = (1501..1600).step_by(7);
            for first in trims.clone() {
                match rig.volume.trim(first * BLOCK, BLOCK).await {
                    Ok(()) => assert_eq!(rig.read(first).await, Ok(0)),
                    Err(IoError::OutOfSpace) => refused += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            assert!(refused > 0, "{layout}: there's room");
            for block in 0..1600 {
                let trimmed = (block < 1500 && block % 2 == 0) || trims.clone().any(|first| first == block);
                let now = rig.read(block).await.unwrap();
                assert!(if trimmed { now <= 1 } else { now == 1 }, "{layout}: block {block} is {now}");
                assert_eq!(rig.shown(1, block).await, Ok(1), "{layout}");
            }
        });
    }
}

/// Another map, which takes the room.
const OTHERS: MapId = MapId(77);

/// Leaves one drive no room for notes, nor for data.
async fn fill(rig: &Rig, nth: usize) {
    let drive = rig.engine.drive(DriveId(nth as u64 + 1)).unwrap();
    let zeros = Bytes::from(vec![3; EXTENT as usize]);
    let write = async |extent: u64, lineage: &Lineage| {
        let data = Gather::from_iter([zeros.clone()]);
        let crcs = data.iter().flat_map(|piece| block_crcs(piece)).collect::<Vec<u32>>().into();
        let (marks, taking, first) = (Vec::new(), Taking::Nothing, extent * EXTENT / BLOCK);
        drive
            .write(Write { map: OTHERS, first, data, crcs, marks, durable: true, repair: false, taking, lineage })
            .await
    };
    for extent in 0..90 {
        write(extent, &Lineage::default()).await.unwrap();
    }
    let history = History::new(["0-1", "0-2"].map(|text| text.parse().unwrap()), 0);
    let later = history.reader(2).unwrap();
    for block in (0..90 * EXTENT / BLOCK).step_by(2) {
        drive.clear(OTHERS, (block, 1), Vec::new(), Taking::Nothing, later).await.unwrap();
    }
    let mut extent = 1000;
    while write(extent, later).await.is_ok() {
        extent += 1;
    }
}

/// Expects of each block, whatever it is now, that a copy of it is whole, and that all copies are the same.
async fn all_can_be_read(rig: &Rig, trimmed: u64) {
    for block in 0..64 {
        let now = rig.read(block).await.unwrap();
        assert!(now == 1 || (now == 0 && block == trimmed), "block {block} is {now}");
        assert_eq!(rig.shown(1, block).await, Ok(1));
    }
    rig.until_healthy().await;
    let first = rig.read(trimmed).await;
    for nth in 0..2 {
        rig.lose(nth).await;
        assert_eq!(
            (rig.read(trimmed).await, rig.shown(1, trimmed).await),
            (first.clone(), Ok(1)),
            "once seen, it stays"
        );
        rig.bring_back(nth).await;
        rig.until_healthy().await;
    }
}

/// Story: where one of two copies had no room left to hide blocks that a snapshot keeps, no block around there could be
/// read any more.
#[test]
fn a_trim_without_room_on_one_copy_stays_readable() {
    for full in [0, 1] {
        told(move |world| async move {
            let mut rig = Rig::new(world, "mirror:2", 2).await;
            rig.write(0, 1, 64).await.unwrap();
            rig.follow(&["0-1", "0-2"]);
            fill(&rig, full).await;
            assert_eq!(rig.volume.trim(3 * BLOCK, BLOCK).await, Err(IoError::OutOfSpace));
            all_can_be_read(&rig, 3).await;
        });
    }
}

/// Story: the same after a crash, where the copy that decides had been trimmed.
#[test]
fn copies_become_equal_after_a_crashed_trim_despite_fullness() {
    for full in [0, 1] {
        told(move |world| async move {
            let mut rig = Rig::new(world, "mirror:2", 2).await;
            rig.write(0, 1, 64).await.unwrap();
            rig.follow(&["0-1", "0-2"]);
            fill(&rig, full).await;
            rig.disks.iter().for_each(SimDisk::process_killed);
            let world = SimWorld::boot(rig.world.core(), "its last moment");
            let drive = opened(&world, &rig.disks[1 - full]).await;
            let first = rig.volume.copies_at(3 * BLOCK)[1 - full].1;
            let mark = |region| Change::Marked(Mark { map: MapId(1), region, kind: MarkKind::Busy });
            let marks = (0..8).map(mark).collect();
            let seen = rig.epochs.history.reader(2).unwrap();
            drive.clear(MapId(1), (first, 1), marks, Taking::Nothing, seen).await.unwrap();
            rig.restart(|_| true).await;
            all_can_be_read(&rig, 3).await;
        });
    }
}

/// Story: an unreadable block was written again with the same bytes while a drive was away. By the checksum that drive
/// had the block already, so the block wasn't copied, and was lost with the other drive.
#[test]
fn a_rotten_block_rewritten_with_equal_bytes_is_copied() {
    told(|world| async move {
        let mut rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(0, 9, 16).await.unwrap();
        rig.follow(&["0-1", "0-2"]);
        rig.checkpoint().await;
        for (nth, drive) in rig.engine.drives_here().iter().enumerate() {
            rig.disks[nth].rot(drive.geometry().slots_start);
        }
        let mut bad = Vec::new();
        for block in 0..16 {
            if rig.shown(1, block).await.is_err() {
                bad.push(block);
            }
        }
        assert!(!bad.is_empty());
        rig.lose(1).await;
        for &block in &bad {
            rig.write(block, 9, 1).await.unwrap();
        }
        rig.bring_back(1).await;
        rig.world.sleep(Duration::from_secs(10)).await;
        rig.lose(0).await;
        for block in 0..16 {
            assert_eq!(rig.read(block).await, Ok(9), "{block}");
            assert_eq!(rig.shown(1, block).await.is_err(), bad.contains(&block), "{block}");
        }
    });
}

/// Story: a scrub passed over rot past the end of its volume, and said nothing of it, though a longer snapshot showed
/// the block, or another volume.
#[test]
fn rot_past_the_volumes_end_is_repaired_or_reported() {
    const LOST: &[u64] = &[16 * BLOCK];
    for (layout, drives, repaired, lost) in [("mirror:2", 2, 1, &[][..]), ("stripe", 1, 0, LOST)] {
        told(move |world| async move {
            let mut rig = Rig::new(world, layout, drives).await;
            rig.write(16, 9, 16).await.unwrap();
            rig.follow(&["0-1", "0-2"]);
            rig.volume.resize(EXTENT);
            rig.volume.clear_past_end().await.unwrap();
            rig.checkpoint().await;
            rig.disks[0].rot(rig.engine.drive(DriveId(1)).unwrap().geometry().slots_start);
            let found = rig.volume.scrub(|_| {}).await.unwrap();
            assert_eq!(
                (found.repaired, found.lost.as_slice(), found.unrepaired.len()),
                (repaired, lost, 0),
                "{layout}"
            );
            let shown = rig.volume.snapshot(1, 2 * EXTENT).read(16 * BLOCK, BLOCK).await;
            assert_eq!(shown.is_ok(), lost.is_empty(), "{layout}");
        });
    }
}

/// Story: a write of a part of a block had chosen its epoch when its drive left, and gave its turn up. When the drive
/// was back a snapshot had been taken and read: then the write was made in the earlier epoch, and the snapshot showed
/// it.
#[test]
fn giving_up_a_turn_gives_up_the_writes_epoch() {
    let gave_up = Arc::new(AtomicUsize::new(0));
    let counted = gave_up.clone();
    told(move |world| {
        let gave_up = counted.clone();
        async move {
            let mut rig = Rig::new(world, "stripe", 1).await;
            rig.write(3, 1, 1).await.unwrap();
            rig.checkpoint().await;
            rig.power_cycle().await; // so that the block has to be read
            rig.slow_down(1_000);
            let volume = rig.volume.clone();
            let write = volume.write(3 * BLOCK, Bytes::from(vec![2; 512]), true);
            let others = async {
                rig.world.sleep(Duration::from_millis(1)).await;
                rig.lose(0).await;
                rig.slow_down(1);
                rig.world.sleep(Duration::from_secs(1)).await;
                let has_given_up = matches!(rig.volume.groups()[0].line_up(Blocks::new(3, 1)), Queued::First(_));
                rig.follow(&["0-1", "0-2"]);
                rig.bring_back(0).await;
                has_given_up
            };
            let (written, has_given_up) = futures_util::future::join(write, others).await;
            written.unwrap();
            if has_given_up {
                gave_up.fetch_add(1, Ordering::Relaxed);
                assert_eq!(rig.shown(1, 3).await, Ok(1), "the snapshot has changed");
            }
            let read = volume.read(3 * BLOCK, 1024).await.map(|read| join(&read));
            assert_eq!(read.as_deref(), Ok(&[[2; 512], [1; 512]].concat()[..]));
        }
    });
    assert!(gave_up.load(Ordering::Relaxed) > 0, "it had always begun");
}
