//! Messages of a primary to another server's drive, and changes before they are heard there.

use super::two_servers::{Carries, Two};
use super::*;
use crate::{DriveStatus, Head};
use tepal_codec::checksum::block_crcs;
use tepal_drive::world::Gather;
use tepal_drive::{Change, Mark, MarkKind, Write};
use tepal_model::{Epoch, History, Lineage, Taking};

/// Story: a column was to be led anew, as a drive joined it, once requests under way had ended. Meanwhile the earlier
/// group, cut off, said that a returned drive knows what it misses: in the newer view, in which no group had heard the
/// drive yet.
#[test]
fn a_cut_off_group_vouches_for_no_drive() {
    told(|world| async move {
        let two = Two::new(world, Standing::Behind(2), Arc::default()).await;
        let behind = DriveStatus::Behind(2, 3);
        let is_found_up = |view| two.authority.found_up.lock().unwrap().contains(&view);
        two.follow(3, behind, |_| {});
        while !is_found_up(3) {
            two.world.sleep(Duration::from_millis(10)).await;
        }
        let under_way = two.volume.seats()[0].group().unwrap().every_turn().await;
        two.follow(4, behind, |now| {
            let mut joined = Places::clone(&now.places[&MapId(1)]);
            joined.columns[0].joins = Some(Placing { drive: DriveId(3), since: 4 });
            now.places = [(MapId(1), Arc::new(joined))].into();
        });
        two.world.sleep(Duration::from_secs(2)).await;
        assert!(!is_found_up(4), "whoever leads now hasn't heard it");
        drop(under_way);
        while !is_found_up(4) {
            two.world.sleep(Duration::from_millis(10)).await;
        }
    });
}

/// The epochs of a view: the volume writes in the second epoch, and has these readers and snapshots.
fn epochs(view: View, readers: &[&str], snapshots: &[Epoch]) -> Arc<Epochs> {
    let history = History::new(readers.iter().map(|text| text.parse().unwrap()), 0);
    let heads = [(VolumeId(1), Head { epoch: 2, since: view })].into();
    let snapshots = snapshots.iter().map(|&epoch| (epoch, VolumeId(1))).collect();
    Arc::new(Epochs { history, heads, snapshots, view })
}

/// Writes a block of the first region to one drive.
pub async fn put(drive: &Drive<SimWorld>, first: u64, byte: u8, lineage: &Lineage, is_busy: bool) {
    let map = MapId(1);
    let data = Gather::from_iter([Bytes::from(vec![byte; BLOCK as usize])]);
    let crcs = data.iter().flat_map(|piece| block_crcs(piece)).collect::<Vec<u32>>().into();
    let busy = Change::Marked(Mark { map, region: 0, kind: MarkKind::Busy });
    let (marks, taking) = (Vec::from_iter(is_busy.then_some(busy)), Taking::Nothing);
    drive.write(Write { map, first, data, crcs, marks, durable: true, repair: false, taking, lineage }).await.unwrap();
}

/// Story: a write after a snapshot had reached one copy when all servers were killed, and was to be taken out of that
/// copy again: so the copy showed the snapshot's data. By the time that the copy's server heard of that, the snapshot
/// was gone, and its layer joined with the later one. The uncovering took out all the data that there was, and the copy
/// had nothing.
#[test]
fn a_late_uncovering_is_compared_anew() {
    told(|world| async move {
        let snapshot_is_there = epochs(3, &["0-1", "0-2"], &[1]);
        let two = Two::new(world, Standing::Current, snapshot_is_there.clone()).await;
        let (before, after): (Lineage, Lineage) = ("0-1".parse().unwrap(), "0-2".parse().unwrap());
        let copies = two.volume.copies_at(0);
        let first = |drive: &Drive<SimWorld>| copies.iter().find(|(id, _)| *id == drive.id()).unwrap().1;
        let drives = two.drives();
        for drive in &drives {
            put(drive, first(drive), 1, &before, false).await;
        }
        put(&drives[1], first(&drives[1]), 9, &after, true).await;

        two.post.carry_on(Carries::UntilUncover);
        let follow = |view, epochs: &Arc<Epochs>| {
            two.follow(view, DriveStatus::Up(2), |now| now.epochs = [(MapId(1), epochs.clone())].into());
        };
        follow(3, &snapshot_is_there);
        while !two.post.stands_still() {
            two.world.sleep(Duration::from_millis(1)).await;
        }
        follow(4, &epochs(4, &["0-2"], &[]));
        while drives.iter().any(|drive| drive.epochs_of(MapId(1), first(drive), 1).len() > 1) {
            two.world.sleep(Duration::from_millis(1)).await;
        }
        two.post.carry_on(Carries::All);
        while two.volume.recovery().unresolved_regions > 0 {
            two.world.sleep(Duration::from_millis(1)).await;
        }
        for drive in &drives {
            let copy = drive.read(MapId(1), first(drive), 1, &after).await.unwrap();
            assert_eq!(join(&copy)[0], 1, "the first copy decides, also of drive {}", drive.id());
        }
        assert_eq!(join(&two.volume.read(0, BLOCK).await.unwrap())[0], 1);
    });
}
