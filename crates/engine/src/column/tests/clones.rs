//! Volumes of one map: a volume and clones of a snapshot of it.

use super::*;
use crate::{Agreed as Drives, ClusterView, DriveStatus, Head};
use std::collections::BTreeMap;
use tepal_codec::checksum::block_crcs;
use tepal_drive::world::Gather;
use tepal_drive::{Change, Mark, MarkKind, Write};
use tepal_model::{History, Lineage, Origin, ServerId, Taking};
use tepal_wire::message::Tag;

const ME: ServerId = ServerId(1);
pub const ORIGIN: VolumeId = VolumeId(1);
pub const CLONE: VolumeId = VolumeId(2);
const REQUEST: Origin = Origin { gateway: 1, slot: 2, number: 3, view: 4 };

fn lineage(text: &str) -> Lineage {
    text.parse().unwrap()
}

/// The epochs that are agreed in a view: these volumes with what they see, and the snapshots of these epochs.
pub fn epochs(view: View, volumes: &[(VolumeId, &str)], snapshots: &[&str]) -> Arc<Epochs> {
    let head = |&(id, text): &(VolumeId, &str)| (id, Head { epoch: lineage(text).newest(), since: 0 });
    let readers = volumes.iter().map(|(_, text)| *text).chain(snapshots.iter().copied()).map(lineage);
    let snapshots = snapshots.iter().map(|text| (lineage(text).newest(), ORIGIN)).collect();
    Arc::new(Epochs { history: History::new(readers, 3), heads: volumes.iter().map(head).collect(), snapshots, view })
}

/// A snapshot was taken of the first epoch, and cloned.
pub fn with_clone() -> Arc<Epochs> {
    epochs(2, &[(ORIGIN, "0-2"), (CLONE, "0-1,3-3")], &["0-1"])
}

impl Rig {
    fn act_by(&self, epochs: &Arc<Epochs>) {
        let drive = |id| (DriveId(id), Drives { server: ME, status: DriveStatus::Up(1) });
        let drives: BTreeMap<_, _> = (1..=self.disks.len() as u64).map(drive).collect();
        let epochs_now = [(MapId(1), epochs.clone())].into();
        let now = ClusterView { view: epochs.view, drives, epochs: epochs_now, ..ClusterView::default() };
        self.engine.follow(ME, &ClusterView::default(), &Arc::new(now));
    }

    pub async fn open_clone(&self) -> Volume<SimWorld> {
        let epochs = self.epochs.clone();
        let spec = VolumeSpec { id: CLONE, name: "c".into(), epochs, ..self.volume.spec() };
        self.engine.open_volume(spec).await.unwrap()
    }

    /// Makes a clone of what the volume holds now.
    pub async fn cloned(&mut self) -> Volume<SimWorld> {
        self.epochs = with_clone();
        self.act_by(&self.epochs);
        self.open_clone().await
    }
}

pub async fn write(volume: &Volume<SimWorld>, block: u64, byte: u8) -> Result<(), IoError> {
    volume.write(block * BLOCK, Bytes::from(vec![byte; BLOCK as usize]), false).await
}

pub async fn read(volume: &Volume<SimWorld>, block: u64) -> Result<u8, IoError> {
    Ok(join(&volume.read(block * BLOCK, BLOCK).await?)[0])
}

#[test]
fn a_clone_begins_as_its_snapshot_without_sharing_writes() {
    told(|world| async move {
        for layout in ["mirror:2", "stripe", "mirror:2;durability=flush"] {
            let mut rig = Rig::new(world.clone(), layout, 3).await;
            rig.write(0, 1, 40).await.unwrap();
            let clone = rig.cloned().await;
            rig.write(3, 2, 1).await.unwrap();
            write(&clone, 3, 3).await.unwrap();
            write(&clone, 4, 4).await.unwrap();
            clone.write(5 * BLOCK + 7, Bytes::from_static(&[5]), false).await.unwrap();
            clone.trim(20 * BLOCK, 4 * BLOCK).await.unwrap();
            let before = rig.volume.snapshot(1, 8 << 20);
            for (block, of_origin, of_clone) in [(0, 1, 1), (3, 2, 3), (4, 1, 4), (5, 1, 1), (21, 1, 0)] {
                assert_eq!((rig.read(block).await, read(&clone, block).await), (Ok(of_origin), Ok(of_clone)));
                assert_eq!(join(&before.read(block * BLOCK, 1).await.unwrap())[0], 1);
            }
            assert_eq!(join(&clone.read(5 * BLOCK + 6, 3).await.unwrap())[..], [1, 5, 1], "merged with what it sees");
            clone.resize(2 * BLOCK);
            clone.clear_past_end().await.unwrap();
            clone.resize(8 << 20);
            assert_eq!((rig.read(3).await, read(&clone, 3).await), (Ok(2), Ok(0)), "only the clone was cut");
            rig.world.sleep(Duration::from_secs(10)).await;
        }
    });
}

#[test]
fn removing_either_volume_leaves_the_other_and_frees_space() {
    told(|world| async move {
        for (gone, stays, text) in [(ORIGIN, CLONE, "0-1,3-3"), (CLONE, ORIGIN, "0-2")] {
            let mut rig = Rig::new(world.clone(), "mirror:2", 2).await;
            rig.write(0, 1, 64).await.unwrap();
            let clone = rig.cloned().await;
            for block in 0..32 {
                rig.write(block, 2, 1).await.unwrap();
                write(&clone, block, 3).await.unwrap();
            }
            let (removed, left) = if gone == ORIGIN { (&rig.volume, &clone) } else { (&clone, &rig.volume) };
            rig.act_by(&epochs(3, &[(stays, text)], &[]));
            rig.engine.remove_one_of_several(gone).await;
            assert_eq!(read(removed, 40).await, Err(IoError::Fenced));
            assert_eq!(write(removed, 40, 9).await, Err(IoError::Fenced));
            let byte = if stays == CLONE { 3 } else { 2 };
            assert_eq!((read(left, 0).await, read(left, 40).await), (Ok(byte), Ok(1)));
            assert_eq!(left.allocated(), 2 * 64 * BLOCK, "as if there had never been another");
            write(left, 40, 7).await.unwrap();
            assert_eq!(read(left, 40).await, Ok(7));
            assert_eq!(rig.volume.health(), VolumeHealth::Healthy);
            rig.engine.remove_volume(stays, |_| false).await;
            assert_eq!(left.allocated(), 0);
        }
    });
}

/// The map must be visited once when drives come and go, and all its lines be copied.
#[test]
fn a_returned_drive_catches_up_with_a_clone_too() {
    told(|world| async move {
        let mut rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(0, 1, 20).await.unwrap();
        let clone = rig.cloned().await;
        rig.lose(0).await;
        rig.write(3, 2, 1).await.unwrap();
        write(&clone, 3, 3).await.unwrap();
        clone.trim(7 * BLOCK, BLOCK).await.unwrap();
        rig.bring_back(0).await;
        write(&clone, 4, 4).await.unwrap();
        rig.until_healthy().await;
        rig.lose(1).await;
        for (block, of_origin, of_clone) in [(0, 1, 1), (3, 2, 3), (4, 1, 4), (7, 1, 0)] {
            assert_eq!((rig.read(block).await, read(&clone, block).await), (Ok(of_origin), Ok(of_clone)));
        }
    });
}

#[test]
fn a_removed_volumes_requests_end_while_its_map_stays() {
    told(|world| async move {
        let mut rig = Rig::new(world, "stripe", 1).await;
        rig.write(3, 1, 1).await.unwrap();
        let clone = rig.cloned().await;
        rig.lose(0).await;
        let (waiting, again) = (write(&clone, 3, 2), read(&clone, 3));
        let remove = async {
            rig.world.sleep(Duration::from_millis(50)).await;
            clone.cut_off();
        };
        let (written, read, ()) = futures_util::future::join3(waiting, again, remove).await;
        assert_eq!((written, read), (Err(IoError::Fenced), Err(IoError::Fenced)));
        rig.bring_back(0).await;
        assert_eq!(rig.read(3).await, Ok(1));
    });
}

/// The servers are killed when a request for a volume that sees this has reached one copy of two, and not the other. A
/// request of the other volume has reached one copy too.
async fn killed_with_requests_on_one_copy(rig: &Rig, nth: usize, seen: &str, other: &str) {
    rig.disks.iter().for_each(SimDisk::process_killed);
    let world = SimWorld::boot(rig.world.core(), "its last moment");
    let drive = opened(&world, &rig.disks[nth]).await;
    let first = rig.volume.copies_at(0)[nth].1;
    let later = Origin { slot: REQUEST.slot + 1, ..REQUEST };
    for (seen, byte, origin) in [(seen, 9u8, REQUEST), (other, 8, later)] {
        let data = Gather::from_iter([Bytes::from(vec![byte; BLOCK as usize])]);
        let crcs = data.iter().flat_map(|piece| block_crcs(piece)).collect::<Vec<u32>>().into();
        let marks = (0..8).map(|region| Change::Marked(Mark { map: MapId(1), region, kind: MarkKind::Busy })).collect();
        let (taking, lineage) = (Taking::Request(origin), lineage(seen));
        let (map, durable, repair) = (MapId(1), true, false);
        drive.write(Write { map, first, data, crcs, marks, durable, repair, taking, lineage: &lineage }).await.unwrap();
    }
}

/// Notes of requests are of blocks, whichever volume the requests were for.
#[test]
fn a_request_in_doubt_runs_once_beside_other_volumes() {
    told(|world| async move {
        for (id, seen, other) in [(ORIGIN, "0-2", "0-1,3-3"), (CLONE, "0-1,3-3", "0-2")] {
            for nth in 0..2 {
                let mut rig = Rig::new(world.clone(), "mirror:2", 2).await;
                rig.write(0, 1, 4).await.unwrap();
                rig.cloned().await;
                killed_with_requests_on_one_copy(&rig, nth, seen, other).await;
                rig.restart(|_| true).await;
                let clone = rig.open_clone().await;
                let group = rig.volume.seats()[0].group().unwrap();
                let data = Gather::from_iter([Bytes::from(vec![9; BLOCK as usize])]);
                let asked = group.write(id, 0, data.into(), false, Some(Tag { origin: REQUEST, is_in_doubt: true }));
                assert_eq!(asked.await, Ok(()));
                rig.until_healthy().await;
                let (of_origin, of_clone) = (rig.read(0).await.unwrap(), read(&clone, 0).await.unwrap());
                let [asked, beside] = if id == ORIGIN { [of_origin, of_clone] } else { [of_clone, of_origin] };
                assert_eq!(asked, 9);
                // The first copy's data decides about the request that nobody retries.
                assert_eq!(beside, if nth == 0 { 8 } else { 1 });
                // Each copy alone has the same.
                rig.lose(nth).await;
                assert_eq!((rig.read(0).await.unwrap(), read(&clone, 0).await.unwrap()), (of_origin, of_clone));
            }
        }
    });
}
