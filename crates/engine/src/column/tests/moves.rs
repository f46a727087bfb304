//! A drive takes another's place in a column while it's used.

use super::clones::{read, with_clone, write};
use super::doubts::REQUEST;
use super::*;
use crate::places::{Placed, Placing};
use crate::servers::follow::{Agreed as Drives, ClusterView, DriveStatus};
use futures_util::future::join;
use tepal_codec::checksum::block_crcs;
use tepal_drive::world::Gather;
use tepal_drive::{DriveError, Write};
use tepal_model::{Lineage, ServerId, Taking};
use tepal_wire::message::Tag;

const ME: ServerId = ServerId(1);
/// Three drives, and so many columns: 0 is on the drives 1 and 2.
const DRIVES: u64 = 3;
/// The first of its blocks, and the last; others are of other columns.
const BLOCKS: std::ops::Range<u64> = 0..16;

/// A server alone, and what it follows.
struct Moving {
    rig: Rig,
    now: Arc<ClusterView>,
}

impl Moving {
    async fn new(world: SimWorld, layout: &'static str) -> Self {
        let rig = Rig::new(world, layout, DRIVES as usize).await;
        let mut moving = Moving { rig, now: Arc::default() };
        moving.follow(|_| {});
        moving
    }

    /// What is agreed next.
    fn follow(&mut self, change: impl Fn(&mut Placed)) {
        let known = self.now.places.get(&MapId(1)).cloned();
        let mut places = Places::clone(&known.unwrap_or_else(|| self.rig.volume.spec().places));
        change(&mut places.columns[0]);
        let agreed = Drives { server: ME, status: DriveStatus::Up(1) };
        let epochs = Some((MapId(1), self.rig.epochs.clone())).filter(|(_, epochs)| epochs.view > 0);
        let now = Arc::new(ClusterView {
            view: self.now.view + 1,
            drives: (1..=DRIVES).map(|id| (DriveId(id), agreed)).collect(),
            places: [(MapId(1), Arc::new(places))].into(),
            epochs: epochs.into_iter().collect(),
            ..ClusterView::default()
        });
        self.rig.engine.follow(ME, &self.now, &now);
        self.now = now;
    }

    fn join(&mut self, id: u64) {
        let since = self.now.view + 1;
        self.follow(|placed| placed.joins = Some(Placing { drive: DriveId(id), since }));
    }

    /// Drive 3 is to take the place of drive 1.
    fn begin(&mut self) {
        self.join(3);
    }

    /// It does, once it has everything.
    async fn finish(&mut self) {
        let view = self.now.view;
        while !self.rig.authority.0.lock().unwrap().joined.contains(&(0, DriveId(3), view)) {
            self.rig.world.sleep(Duration::from_millis(1)).await;
        }
        self.follow(|placed| {
            placed.joins = None;
            placed.holders[0] = Placing { drive: DriveId(3), since: view + 1 };
        });
    }

    /// What a drive holds of the column.
    fn held(&self, id: u64) -> usize {
        let area = self.rig.volume.copies_at(u64::from(self.rig.volume.spec().layout.extent))[0].1;
        let drive = self.rig.engine.drive(DriveId(id)).expect("it's here");
        drive.extents_of(MapId(1), 0, area, true).len() + drive.requests(MapId(1), 0, area).len()
    }

    async fn until_given_back(&self, id: u64) {
        while self.held(id) > 0 {
            self.rig.world.sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Sixteen blocks, which nobody has asked for.
async fn put(drive: &Drive<SimWorld>, map: MapId, first: u64) -> Result<(), DriveError> {
    let data = Gather::from_iter([Bytes::from(vec![9; 16 * BLOCK as usize])]);
    let crcs: Vec<u32> = data.iter().flat_map(|piece| block_crcs(piece)).collect();
    let (marks, taking, lineage) = (Vec::new(), Taking::Nothing, &Lineage::default());
    let (durable, repair, crcs) = (true, false, crcs.into());
    drive.write(Write { map, first, data, crcs, marks, durable, repair, taking, lineage }).await
}

#[test]
fn a_column_moves_to_another_drive_while_it_is_written_and_the_drive_that_had_it_gives_all_back() {
    told(|world| async move {
        for layout in ["mirror:2", "stripe", "mirror:2;durability=flush"] {
            let mut moving = Moving::new(world.clone(), layout).await;
            for block in BLOCKS {
                moving.rig.write(block, 1, 1).await.unwrap();
            }
            assert!(moving.held(1) > 0 && moving.held(3) == 0);
            let volume = moving.rig.volume.clone();
            let write = async move {
                for round in 2..60u8 {
                    for block in BLOCKS.step_by(3) {
                        let data = Bytes::from(vec![round; BLOCK as usize]);
                        volume.write(block * BLOCK, data, false).await.unwrap();
                        assert_eq!(
                            tepal_model::buffer::join(&volume.read(block * BLOCK, BLOCK).await.unwrap())[0],
                            round
                        );
                    }
                }
            };
            let change = async {
                moving.begin();
                moving.finish().await;
                // What else it has of mirrors, it keeps.
                assert_eq!(moving.rig.volume.is_on(DriveId(1)), layout != "stripe");
                moving.until_given_back(1).await;
            };
            join(write, change).await;
            // What is left has everything.
            moving.rig.volume.flush().await.unwrap();
            moving.rig.lose(0).await;
            if layout != "stripe" {
                moving.rig.lose(1).await;
            }
            for block in BLOCKS {
                assert_eq!(
                    moving.rig.read(block).await.unwrap(),
                    if block % 3 == 0 { 59 } else { 1 },
                    "{layout} {block}"
                );
            }
        }
    });
}

/// Its word is worth nothing before: what it has may be from another time.
#[test]
fn what_a_drive_that_joins_held_from_earlier_is_seen_by_nobody() {
    told(|world| async move {
        let mut moving = Moving::new(world, "mirror:2").await;
        let stale = moving.rig.engine.drive(DriveId(3)).unwrap();
        put(&stale, MapId(1), 0).await.unwrap();
        moving.rig.write(2, 1, 1).await.unwrap();
        moving.begin();
        moving.finish().await;
        moving.rig.lose(1).await;
        for block in BLOCKS {
            assert_eq!(moving.rig.read(block).await.unwrap(), u8::from(block == 2), "{block}");
        }
    });
}

#[test]
fn a_drive_that_left_while_it_joined_begins_anew_and_a_move_can_be_called_off() {
    told(|world| async move {
        let mut moving = Moving::new(world, "mirror:2").await;
        moving.rig.write(1, 1, 2).await.unwrap();
        moving.begin();
        moving.rig.lose(2).await;
        moving.rig.write(1, 2, 1).await.unwrap();
        moving.rig.bring_back(2).await;
        moving.finish().await;
        moving.until_given_back(1).await;
        moving.rig.lose(1).await;
        assert_eq!((moving.rig.read(1).await, moving.rig.read(2).await), (Ok(2), Ok(1)));
        moving.rig.bring_back(1).await;
        moving.rig.until_healthy().await;
        // Back, but not to the end.
        moving.join(1);
        moving.rig.write(1, 3, 1).await.unwrap();
        moving.follow(|placed| placed.joins = None);
        moving.until_given_back(1).await;
        moving.rig.write(1, 4, 1).await.unwrap();
        moving.rig.lose(0).await;
        assert_eq!((moving.rig.read(1).await, moving.rig.read(2).await), (Ok(4), Ok(1)));
    });
}

/// Story: the drive was done without at once, while it was being agreed that it had its place. Then it led, without the last writes.
#[test]
fn a_drive_that_has_no_room_to_join_is_done_without_when_that_is_agreed_and_costs_no_write() {
    told(|world| async move {
        let mut moving = Moving::new(world, "mirror:2").await;
        let full = moving.rig.engine.drive(DriveId(3)).unwrap();
        let mut first = 0;
        while put(&full, MapId(9), first).await.is_ok() {
            first += 16;
        }
        moving.rig.write(1, 1, 2).await.unwrap();
        moving.begin();
        let joins = moving.now.places[&MapId(1)].columns[0].joins.unwrap();
        let volume = moving.rig.volume.clone();
        let write = async move { volume.write(BLOCK, Bytes::from(vec![2; BLOCK as usize]), false).await };
        let change = async {
            let said = || moving.rig.authority.0.lock().unwrap().hopeless.clone();
            while said().len() < 2 {
                moving.rig.world.sleep(Duration::from_millis(1)).await;
            }
            assert_eq!(said(), [(0, joins), (0, joins)]);
            moving.follow(|placed| placed.joins = None);
        };
        let (written, ()) = join(write, change).await;
        written.unwrap();
        assert!(moving.rig.authority.0.lock().unwrap().joined.is_empty());
        moving.until_given_back(3).await;
        for lost in [0, 1] {
            moving.rig.lose(lost).await;
            assert_eq!((moving.rig.read(1).await, moving.rig.read(2).await), (Ok(2), Ok(1)));
            moving.rig.bring_back(lost).await;
            moving.rig.until_healthy().await;
        }
    });
}

/// Story: the server was killed when it was agreed that the column had moved, and before its space was given back.
#[test]
fn what_a_drive_holds_of_columns_that_have_moved_is_given_back_after_a_restart_too() {
    told(|world| async move {
        // Of what was trimmed only the requests are remembered.
        for is_trimmed in [false, true] {
            let mut moving = Moving::new(world.clone(), "mirror:2").await;
            moving.rig.write(1, 1, 2).await.unwrap();
            if is_trimmed {
                let group = moving.rig.volume.seats()[0].group().unwrap();
                let tag = Tag { origin: REQUEST, is_in_doubt: false };
                group.zero(VolumeId(1), 0..16 * BLOCK, false, Some(tag)).await.unwrap();
            }
            moving.begin();
            moving.finish().await;
            moving.rig.restart(|_| true).await;
            let now = std::mem::take(&mut moving.now);
            moving.rig.engine.follow(ME, &ClusterView::default(), &now);
            moving.now = now;
            assert!(moving.held(1) > 0, "it's trimmed: {is_trimmed}");
            moving.rig.engine.all_volumes_opened();
            moving.until_given_back(1).await;
            assert_eq!(moving.rig.read(1).await, Ok(if is_trimmed { 0 } else { 1 }));
        }
    });
}

/// Story: only drives that came, and all of them at a start, were looked through. What they held of a volume that was opened later stayed.
#[test]
fn what_a_drive_holds_of_a_volume_that_is_opened_after_all_others_is_given_back_too() {
    told(|world| async move {
        let mut moving = Moving::new(world.clone(), "mirror:2").await;
        moving.rig.write(1, 1, 2).await.unwrap();
        moving.begin();
        moving.finish().await;
        moving.rig.kill();
        let rig = &mut moving.rig;
        rig.engine = Rig::engine_with_drives(&rig.world, &rig.disks, &rig.authority, |_| true).await;
        rig.engine.all_volumes_opened();
        rig.engine.follow(ME, &ClusterView::default(), &moving.now);
        rig.volume = rig.engine.open_volume(Rig::spec(DRIVES, rig.layout, &rig.epochs)).await.unwrap();
        assert!(moving.held(1) > 0);
        moving.until_given_back(1).await;
        assert_eq!(moving.rig.read(1).await, Ok(1));
    });
}

/// A map's columns are where they are for all its volumes: one move brings what each of them has, and is given back once.
#[test]
fn a_column_moves_with_what_a_volume_its_snapshot_and_its_clone_have_while_both_are_written() {
    told(|world| async move {
        for layout in ["mirror:2", "mirror:2;durability=flush"] {
            let mut moving = Moving::new(world.clone(), layout).await;
            for block in BLOCKS {
                moving.rig.write(block, 1, 1).await.unwrap();
            }
            moving.rig.epochs = with_clone();
            moving.follow(|_| {});
            let clone = moving.rig.open_clone().await;
            moving.rig.write(1, 2, 1).await.unwrap();
            write(&clone, 1, 3).await.unwrap();
            clone.trim(2 * BLOCK, BLOCK).await.unwrap();
            let (origin, of_clone) = (moving.rig.volume.clone(), clone.clone());
            let writes = async move {
                for round in 4..40 {
                    write(&origin, 3, round).await.unwrap();
                    write(&of_clone, 4, round).await.unwrap();
                }
            };
            let change = async {
                moving.begin();
                moving.finish().await;
                moving.until_given_back(1).await;
            };
            join(writes, change).await;
            let (volume, before) = (moving.rig.volume.clone(), moving.rig.volume.snapshot(1, 8 << 20));
            assert_eq!(clone.allocated(), volume.allocated(), "they have one map");
            // What is left has everything, of each line.
            volume.flush().await.unwrap();
            clone.flush().await.unwrap();
            moving.rig.lose(1).await;
            for (block, of_origin, of_clone) in [(0, 1, 1), (1, 2, 3), (2, 1, 0), (3, 39, 1), (4, 1, 39)] {
                assert_eq!((moving.rig.read(block).await, read(&clone, block).await), (Ok(of_origin), Ok(of_clone)));
                let kept = tepal_model::buffer::join(&before.read(block * BLOCK, 1).await.unwrap())[0];
                assert_eq!(kept, 1, "{layout} {block}");
            }
        }
    });
}
