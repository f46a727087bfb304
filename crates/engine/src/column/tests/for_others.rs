//! Requests of other servers at a primary: they take no room while they wait for drives, and aren't done after the
//! other server has stopped asking.

use super::*;
use crate::column::redundancy::Given;
use crate::column::{Blocks, Group};
use futures_util::future::join;
use tepal_model::buffer::join as join_pieces;
use tepal_model::{Lineage, Origin};
use tepal_wire::message::Tag;

/// Story: another server's requests for a volume whose drive was away took all the room between two servers, so
/// requests for other volumes waited too.
#[test]
fn another_servers_request_waits_shortly_and_never_runs_later() {
    told(|world| async move {
        let rig = Rig::new(world, "stripe", 1).await;
        rig.write(3, 1, 1).await.unwrap();
        rig.lose(0).await;
        let group = rig.volume.groups()[0].for_others();
        let data = |byte: u8| [Bytes::from(vec![byte; BLOCK as usize])].into_iter().collect();
        assert_eq!(
            rig.within(5, group.write(VolumeId(1), 3 * BLOCK, data(2), true, None)).await,
            Some(Err(IoError::NotNow))
        );
        assert_eq!(rig.within(5, group.zero(VolumeId(1), 0..8 * BLOCK, false, None)).await, Some(Err(IoError::NotNow)));
        assert_eq!(
            rig.within(5, group.read(Subject::now(VolumeId(1)), 0, BLOCK)).await.map(|read| read.err()),
            Some(Some(IoError::NotNow))
        );
        rig.bring_back(0).await;
        assert_eq!(rig.read(3).await, Ok(1), "what was given up isn't done");
        group.write(VolumeId(1), 3 * BLOCK, data(4), true, None).await.unwrap();
        assert_eq!(rig.read(3).await, Ok(4));
    });
}

/// A block's checksum is computed where the block enters. A wrong checksum shows whether it was computed again.
#[test]
fn a_primary_keeps_the_checksums_that_come_with_data() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        let group = rig.volume.groups()[0].for_others();
        let given =
            |sums| Given { data: [Bytes::from(vec![5; 2 * BLOCK as usize])].into_iter().collect(), sums: Some(sums) };
        group.write(VolumeId(1), 0, given([7, 8].into_iter().collect()), true, None).await.unwrap();
        let copies: Vec<_> = group.lock().members.here().cloned().collect();
        let (map, place) = (group.shared.column.map, group.shared.column.place(0));
        for copy in &copies {
            let (sums, _) = copy.content(map, place, 2, &Lineage::default()).await.unwrap();
            assert_eq!(sums, [Some(7), Some(8)]);
        }
        // Checksums of parts of blocks are of no use.
        group.write(VolumeId(1), BLOCK + 1, given([7, 8, 9].into_iter().collect()), true, None).await.unwrap();
        for copy in &copies {
            let (sums, _) = copy.content(map, place, 4, &Lineage::default()).await.unwrap();
            assert!(sums[1..].iter().all(|sum| sum.is_some_and(|sum| sum > 9)), "{sums:?}");
        }
    });
}

/// Story: a write that some copies had, and that waited for others to return, kept its asker's place for as long, and
/// so did all requests that waited for its turn. No other volume of that server could be asked for anything, nor was a
/// server heard any more that was started anew.
#[test]
fn a_begun_write_outlives_its_asker_unlike_queued_requests() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2;min_copies=2", 2).await;
        rig.write(3, 1, 1).await.unwrap();
        let group = rig.volume.groups()[0].for_others();
        let tag = |number, is_in_doubt| {
            Some(Tag { origin: Origin { gateway: 1, slot: number as u32, number, view: 4 }, is_in_doubt })
        };
        let write = |byte: u8, tag| {
            let data = [Bytes::from(vec![byte; BLOCK as usize])].into_iter().collect();
            rig.within(5, group.write(VolumeId(1), 3 * BLOCK, data, true, tag))
        };
        rig.disks[1].set_faults(Faults { slowdown: 1_000, ..Faults::default() });
        let lose = async {
            rig.world.sleep(Duration::from_millis(2)).await;
            rig.lose(1).await;
        };
        let (begun, ()) = join(write(2, tag(1, false)), lose).await;
        assert_eq!(begun, Some(Err(IoError::Unsure)));
        assert_eq!(write(2, tag(1, true)).await, Some(Err(IoError::NotNow)), "it's in line behind itself");
        assert_eq!(write(7, tag(2, false)).await, Some(Err(IoError::NotNow)));
        let clear = rig.within(5, group.zero(VolumeId(1), 0..8 * BLOCK, false, None)).await;
        assert_eq!(clear, Some(Err(IoError::NotNow)));
        let read = rig.within(5, group.read(Subject::now(VolumeId(1)), 3 * BLOCK, BLOCK)).await;
        assert_eq!(read.map(|read| read.err()), Some(Some(IoError::NotNow)));
        rig.disks[1].set_faults(Faults::default());
        rig.bring_back(1).await;
        assert_eq!(rig.read(3).await, Ok(2), "what has begun is done, and nothing that was given up");
        assert_eq!(write(3, tag(3, false)).await, Some(Ok(())));
        assert_eq!(write(2, tag(1, true)).await, Some(Ok(())));
        assert_eq!(rig.read(3).await, Ok(3), "it was done once");
    });
}

/// Story: a request to clear past a volume's end waited for the drives that know what there is to clear, and kept the
/// asker's place.
#[test]
fn clearing_for_another_server_waits_shortly_for_drives() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(3, 1, 1).await.unwrap();
        rig.lose(1).await;
        rig.write(3, 2, 1).await.unwrap();
        rig.lose(0).await;
        rig.bring_back(1).await;
        let group = rig.volume.groups()[0].for_others();
        assert_eq!(rig.within(5, group.clear_past(VolumeId(1), 0)).await, Some(Err(IoError::NotNow)));
    });
}

/// A write of another server that fills bytes.
async fn fill(group: &Group<SimWorld>, (offset, length): (u64, u64), byte: u8) -> Result<(), IoError> {
    let data = [Bytes::from(vec![byte; length as usize])].into_iter().collect();
    group.write(VolumeId(1), offset, data, true, None).await
}

/// Story: a client's write of a part of a block waited until copies were equal, and was queued anew then. The client
/// had gone meanwhile, and come back, and its later write was overwritten. For a while after that was
/// mended, such a write was told to ask again: where copies might differ again each time, it never had its turn.
#[test]
fn a_write_waiting_for_equal_copies_keeps_its_place() {
    told(|world| async move {
        let mut rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(0, 1, 8).await.unwrap();
        rig.restart(|_| true).await; // so the copies may differ
        rig.slow_down(30);
        let group = rig.volume.groups()[0].for_others();
        let is_unsettled = || rig.volume.recovery().unresolved_regions > 0;
        let later = async {
            rig.world.sleep(Duration::from_millis(1)).await;
            assert!(is_unsettled(), "the other one waits");
            rig.write(3, 2, 1).await.unwrap();
        };
        let (filled, ()) = join(fill(&group, (3 * BLOCK, 512), 9), later).await;
        assert!(!is_unsettled(), "it waited for that");
        assert_eq!(filled, Ok(()));
        assert_eq!(rig.read(3).await, Ok(2));
    });
}

/// Story: another server's request gave its place up after a second, also behind writes that waited for no drive, but
/// were slow. Behind endless slow writes it never had its turn.
#[test]
fn another_servers_request_keeps_its_place_behind_slow_writes() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        let group = rig.volume.groups()[0].for_others();
        let slow = group.line_up(Blocks::new(0, 3)).turn().await;
        let others = async {
            let zeros = group.zero(VolumeId(1), 0..2 * BLOCK, false, None);
            let read = group.read(Subject::now(VolumeId(1)), BLOCK, BLOCK);
            let ((filled, zeroed), read) = join(join(fill(&group, (0, 3 * BLOCK), 2), zeros), read).await;
            assert_eq!((filled, zeroed), (Ok(()), Ok(())));
            assert!(read.is_ok(), "{:?}", read.err());
        };
        let end = async {
            rig.world.sleep(Duration::from_secs(3)).await;
            drop(slow);
        };
        join(others, end).await;
        assert_eq!((rig.read(0).await, rig.read(1).await, rig.read(2).await), (Ok(0), Ok(0), Ok(2)));
    });
}

/// Story: behind endless writes a request kept its place for ever, even when another server led by then.
#[test]
fn another_servers_request_leaves_after_seconds_or_once_deposed() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        let group = rig.volume.groups()[0].for_others();
        let slow = group.line_up(Blocks::new(0, 1)).turn().await;
        assert_eq!(rig.within(4, fill(&group, (0, BLOCK), 2)).await, None, "its place is kept");
        assert_eq!(rig.within(6, fill(&group, (0, BLOCK), 2)).await, Some(Err(IoError::NotNow)));
        let end = async {
            rig.world.sleep(Duration::from_millis(100)).await;
            group.cut_off();
        };
        let (filled, ()) = join(rig.within(1, fill(&group, (0, BLOCK), 2)), end).await;
        assert_eq!(filled, Some(Err(IoError::Fenced)));
        drop(slow);
    });
}

/// Story: another server's request kept its place for seconds behind writes that were queued themselves behind a write
/// that waited for a drive. It took room for as long.
#[test]
fn another_servers_request_leaves_soon_behind_held_up_writes() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        let group = rig.volume.groups()[0].for_others();
        let waits_for_drives = group.line_up(Blocks::new(0, 2)).turn().await;
        waits_for_drives.lend();
        let behind = group.line_up(Blocks::new(1, 3));
        assert_eq!(rig.within(1, fill(&group, (3 * BLOCK, BLOCK), 2)).await, Some(Err(IoError::NotNow)));
        drop((waits_for_drives, behind));
        assert_eq!(fill(&group, (3 * BLOCK, BLOCK), 2).await, Ok(()));
    });
}

/// Story: a write that had begun, and then had no copy to merge with, kept its turn for itself until a drive returned.
/// Others' requests waited behind it for seconds, as behind a slow drive.
#[test]
fn a_begun_write_that_cannot_merge_lends_its_turn() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2;min_copies=2", 2).await;
        rig.write(3, 1, 1).await.unwrap();
        let group = rig.volume.groups()[0].for_others();
        rig.disks[1].set_faults(Faults { slowdown: 1_000, ..Faults::default() });
        let lose = async {
            rig.world.sleep(Duration::from_millis(2)).await;
            rig.lose(1).await;
        };
        let (begun, ()) = join(rig.within(5, fill(&group, (3 * BLOCK, 512), 2)), lose).await;
        assert_eq!(begun, Some(Err(IoError::Unsure)));
        rig.disks[1].set_faults(Faults::default());
        rig.lose(0).await;
        rig.bring_back(1).await;
        rig.world.sleep(Duration::from_secs(1)).await;
        assert_eq!(rig.within(1, fill(&group, (3 * BLOCK, BLOCK), 5)).await, Some(Err(IoError::NotNow)));
        rig.bring_back(0).await;
        assert_eq!(fill(&group, (3 * BLOCK + 512, 512), 3).await, Ok(()));
        let block = group.read(Subject::now(VolumeId(1)), 3 * BLOCK, 1536).await.map(|read| join_pieces(&read));
        let expected = [[2; 512], [3; 512], [1; 512]].concat();
        assert_eq!(block.as_deref(), Ok(&expected[..]));
    });
}

/// Story: the asker of zeros that begin and end within blocks was let go, and told to ask again, though nothing had to
/// wait for drives.
#[test]
fn zeros_that_wait_for_nothing_are_done_when_answered() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(0, 1, 4).await.unwrap();
        let group = rig.volume.groups()[0].for_others();
        assert_eq!(group.zero(VolumeId(1), 100..3 * BLOCK + 100, false, None).await, Ok(()));
        let edge = join_pieces(&rig.volume.read(0, 200).await.unwrap());
        assert_eq!((&edge[..100], &edge[100..]), (&[1; 100][..], &[0; 100][..]));
        assert_eq!((rig.read(1).await, rig.read(2).await), (Ok(0), Ok(0)));
    });
}
