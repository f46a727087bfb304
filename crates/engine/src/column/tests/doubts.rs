//! Requests that are sent again, as nobody knows whether they were carried out.

use super::*;
use tepal_codec::checksum::block_crcs;
use tepal_drive::world::Gather;
use tepal_drive::{Change, Mark, MarkKind, Write};
use tepal_model::{Lineage, Origin, Taking};
use tepal_wire::message::Tag;

pub const REQUEST: Origin = Origin { gateway: 1, slot: 2, number: 3, view: 4 };

/// In the first column of two, at the start of an extent. Recovery comes to its region last.
pub const AT: u64 = 1920;

/// A gateway's write to the blocks from [`AT`] on.
pub async fn ask(rig: &Rig, byte: u8, count: usize, is_in_doubt: bool) -> Result<(), IoError> {
    let group = rig.volume.seats()[0].group().unwrap();
    let data = Gather::from_iter([Bytes::from(vec![byte; count * BLOCK as usize])]);
    group.write(VolumeId(1), AT / 2 * BLOCK, data.into(), false, Some(Tag { origin: REQUEST, is_in_doubt })).await
}

/// The servers are killed when the request has reached one copy of its first block, and not the other.
pub async fn killed_with_a_request_on_one_copy(rig: &Rig, nth: usize, byte: u8) {
    rig.disks.iter().for_each(SimDisk::process_killed);
    let world = SimWorld::boot(rig.world.core(), "its last moment");
    let drive = opened(&world, &rig.disks[nth]).await;
    let data = Gather::from_iter([Bytes::from(vec![byte; BLOCK as usize])]);
    let crcs = data.iter().flat_map(|piece| block_crcs(piece)).collect::<Vec<u32>>().into();
    let mark = |region| Change::Marked(Mark { map: MapId(1), region, kind: MarkKind::Busy });
    let marks = (0..8).map(mark).collect();
    let first = rig.volume.copies_at(AT * BLOCK)[nth].1;
    let taking = Taking::Request(REQUEST);
    let lineage = Lineage::default();
    let write =
        Write { map: MapId(1), first, data, crcs, marks, durable: true, repair: false, taking, lineage: &lineage };
    drive.write(write).await.unwrap();
}

/// The servers were killed so, and are back.
async fn with_a_request_on_one_copy(world: SimWorld, nth: usize) -> Rig {
    let mut rig = Rig::new(world, "mirror:2", 2).await;
    rig.write(AT, 1, 4).await.unwrap();
    killed_with_a_request_on_one_copy(&rig, nth, 9).await;
    rig.restart(|_| true).await;
    rig
}

/// Whether each copy of the request's first block has taken the request.
fn taken(rig: &Rig) -> Vec<bool> {
    let copies = rig.volume.copies_at(AT * BLOCK).into_iter();
    let has_taken = |(at, first)| {
        let drive = rig.engine.drive(at).unwrap();
        drive.requests(MapId(1), first, 1).iter().any(|taken| taken.origin == REQUEST)
    };
    copies.map(has_taken).collect()
}

/// Story: all holders were killed, and their clients were told of errors for requests under way.
#[test]
fn after_all_restart_retried_requests_run_exactly_once() {
    told(|world| async move {
        let mut rig = Rig::new(world, "mirror:2", 2).await;
        ask(&rig, 1, 4, false).await.unwrap();
        rig.write(AT + 2, 2, 1).await.unwrap();
        rig.restart(|_| true).await;
        ask(&rig, 1, 4, true).await.unwrap();
        for (block, byte) in [(0, 1), (1, 1), (2, 2), (3, 1)] {
            assert_eq!(rig.read(AT + block).await.unwrap(), byte, "block {block}");
        }
        // Nothing is known of another request.
        ask(&rig, 3, 6, true).await.unwrap();
        assert_eq!(
            [rig.read(AT + 3).await.unwrap(), rig.read(AT + 5).await.unwrap()],
            [1, 3],
            "the part that wasn't done"
        );
    });
}

/// Story: a request's data on one copy was taken back when the copies were made equal, and that copy still said that
/// the request was done.
#[test]
fn the_copy_that_decides_also_decides_about_requests() {
    for nth in [0, 1] {
        told(move |world| async move {
            let rig = with_a_request_on_one_copy(world, nth).await;
            let byte = rig.read(AT).await.unwrap();
            assert_eq!(taken(&rig), [byte == 9; 2]);
            rig.write(AT, 5, 1).await.unwrap();
            ask(&rig, 9, 1, true).await.unwrap();
            assert_eq!(rig.read(AT).await.unwrap(), if byte == 9 { 5 } else { 9 });
        });
    }
}

/// Story: a write of a part of a block, before the region was resolved, wrote one copy's data to the other copy, which
/// still said that it had taken another request.
#[test]
fn a_partial_write_copies_no_content_without_its_requests() {
    for nth in [0, 1] {
        told(move |world| async move {
            let rig = with_a_request_on_one_copy(world, nth).await;
            match nth {
                0 => rig.volume.write(AT * BLOCK + 100, Bytes::from(vec![7; 100]), false).await.unwrap(),
                _ => rig.volume.write_zeroes(AT * BLOCK + 100, 100, false).await.unwrap(),
            }
            // Any copy may be the only one that is left.
            for ((at, first), taken) in rig.volume.copies_at(AT * BLOCK).into_iter().zip(taken(&rig)) {
                let drive = rig.engine.drive(at).unwrap();
                let content = join(&drive.read(MapId(1), first, 1, &Lineage::default()).await.unwrap());
                assert_eq!((content[100], content[0] == 9), (if nth == 0 { 7 } else { 0 }, taken), "copy {at}");
            }
        });
    }
}
