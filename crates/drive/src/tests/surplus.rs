//! What is said to be given back, and what then is.

use super::joins::two_layers;
use super::layers::{among, history};
use super::{MAP, Rig, content};
use crate::world::Gather;
use crate::{Reclaimed, Write};
use std::collections::BTreeMap;
use tepal_codec::checksum::block_crcs;
use tepal_model::{EXTENT, Epoch, History, Taking};

/// Four extents, three snapshots, of epochs 1 to 3, and the volume, of epoch 4: after each snapshot one extent less was overwritten.
const ROW: [&str; 4] = ["0-1", "0-2", "0-3", "0-4"];

fn in_a_row() -> Rig {
    let mut rig = Rig::new();
    for (nth, reader) in ROW.iter().enumerate() {
        rig.lineage = among(&[&[*reader], &ROW[..nth]].concat());
        rig.write(0, &vec![nth as u8 + 1; 16 * (4 - nth)], true).unwrap();
    }
    rig
}

fn extents(kept: &BTreeMap<Epoch, u64>) -> Vec<(Epoch, u64)> {
    kept.iter().map(|(&reader, &bytes)| (reader, bytes / EXTENT)).collect()
}

#[test]
fn a_snapshot_keeps_what_was_overwritten_before_the_next_one() {
    let kept = [(1, 3), (2, 2), (3, 1), (4, 1)];
    for (gone, (reader, extents_kept)) in kept.into_iter().enumerate() {
        let mut rig = in_a_row();
        for _ in 0..2 {
            assert_eq!(extents(&rig.drive.kept_alone(MAP, &history(&ROW))), kept, "epoch {reader}");
            assert_eq!(rig.drive.surplus_of(MAP, &history(&ROW)), 0);
            rig.checkpoint();
            rig.reopen();
        }
        let left = ROW.iter().enumerate().filter(|(at, _)| *at != gone).map(|(_, reader)| reader.parse().unwrap());
        let (left, before) = (History::new(left, 4), rig.drive.allocated_of(MAP));
        assert_eq!(rig.drive.surplus_of(MAP, &left), extents_kept * EXTENT);
        assert_eq!(rig.pool.run_until(rig.drive.reclaim(MAP, &left)).unwrap(), Reclaimed::All);
        assert_eq!(before - rig.drive.allocated_of(MAP), extents_kept * EXTENT, "epoch {reader}");
        assert_eq!(rig.drive.surplus_of(MAP, &left), 0);
    }
}

#[test]
fn a_snapshot_keeps_what_its_volume_was_trimmed_of() {
    let readers = ["0-1", "0-2"];
    let mut rig = Rig::new();
    rig.write(0, &[1; 64], true).unwrap();
    rig.lineage = among(&["0-2", "0-1"]);
    rig.clear(8, 40); // two of the extents wholly, and half of others
    rig.write(16, &[2], true).unwrap();
    let kept = rig.drive.kept_alone(MAP, &history(&readers));
    assert_eq!(extents(&kept), [(1, 2), (2, 1)], "one was written to again, and is twice there");
    let before = rig.drive.allocated_of(MAP);
    rig.reclaim(&["0-2"]);
    assert_eq!(before - rig.drive.allocated_of(MAP), kept[&1]);
}

#[test]
fn what_was_written_before_a_rollback_is_surplus_unless_a_snapshot_sees_it() {
    let mut rig = in_a_row();
    let rolled_back = ["0-1", "0-2", "0-2,5-5"];
    assert_eq!(rig.drive.surplus_of(MAP, &history(&rolled_back)), 3 * EXTENT, "of epochs 3 and 4");
    assert_eq!(rig.drive.surplus_of(MAP, &history(&["0-1", "0-2"])), 0, "nothing is known of later epochs");
    rig.reclaim(&rolled_back);
    assert_eq!(rig.drive.surplus_of(MAP, &history(&rolled_back)), 0);
}

#[test]
fn what_is_being_written_to_is_left_for_later_and_that_is_told() {
    let mut rig = two_layers();
    let (newest, data) = (rig.lineage.clone(), content(&[7; 8]));
    let crcs: Vec<u32> = block_crcs(&data).collect();
    let (data, crcs, marks, taking) = (Gather::from_iter([data]), crcs.into(), Vec::new(), Taking::Nothing);
    let write = Write { map: MAP, first: 8, data, crcs, marks, durable: true, repair: false, taking, lineage: &newest };
    let prepared = rig.drive.prepare(&write).unwrap();
    let mut reclaim = || {
        let ended = rig.pool.run_until(rig.drive.reclaim(MAP, &history(&["0-2"]))).unwrap();
        (ended, rig.drive.surplus_of(MAP, &history(&["0-2"])))
    };
    assert_eq!(reclaim(), (Reclaimed::SomeLater, EXTENT));
    rig.pool.run_until(rig.drive.commit(prepared, write)).unwrap();
    rig.pool.run_until(rig.drive.checkpoint()).unwrap();
    let ended = rig.pool.run_until(rig.drive.reclaim(MAP, &history(&["0-2"]))).unwrap();
    assert_eq!((ended, rig.drive.surplus_of(MAP, &history(&["0-2"]))), (Reclaimed::All, 0));
}
