//! A drive takes another's place in a column while the column is used.

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
/// Three drives, and as many columns: column 0 is on the drives 1 and 2.
const DRIVES: u64 = 3;
/// The blocks of column 0's first extent.
const BLOCKS: std::ops::Range<u64> = 0..16;

/// A server alone, and the state that it follows.
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

    /// Follows the next state.
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

    /// Drive 3 takes the place, once it has everything.
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

/// Sixteen blocks, which no client has written.
async fn put(drive: &Drive<SimWorld>, map: MapId, first: u64) -> Result<(), DriveError> {
    let data = Gather::from_iter([Bytes::from(vec![9; 16 * BLOCK as usize])]);
    let crcs: Vec<u32> = data.iter().flat_map(|piece| block_crcs(piece)).collect();
    let (marks, taking, lineage) = (Vec::new(), Taking::Nothing, &Lineage::default());
    let (durable, repair, crcs) = (true, false, crcs.into());
    drive.write(Write { map, first, data, crcs, marks, durable, repair, taking, lineage }).await
}

#[test]
fn a_column_moves_under_writes_freeing_its_old_drive() {
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
                // The drive keeps its other mirrored columns.
                assert_eq!(moving.rig.volume.is_on(DriveId(1)), layout != "stripe");
                moving.until_given_back(1).await;
            };
            join(write, change).await;
            // The remaining drives have everything.
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

/// A joining drive's word is worth nothing before: its data may be from another time.
#[test]
fn a_joining_drives_earlier_data_is_seen_by_nobody() {
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
fn a_joining_drive_that_left_begins_anew() {
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
        // The drive is back, but the move isn't finished.
        moving.join(1);
        moving.rig.write(1, 3, 1).await.unwrap();
        moving.follow(|placed| placed.joins = None);
        moving.until_given_back(1).await;
        moving.rig.write(1, 4, 1).await.unwrap();
        moving.rig.lose(0).await;
        assert_eq!((moving.rig.read(1).await, moving.rig.read(2).await), (Ok(4), Ok(1)));
    });
}

/// Story: a write went on without the drive at once, while an agreement that it had its place was under way. Then the
/// drive led, without the last writes.
#[test]
fn a_joining_drive_without_room_leaves_only_by_agreement() {
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

/// Story: the server was killed when it was agreed that the column had moved, and before the column's space was given
/// back.
#[test]
fn a_moved_columns_space_is_freed_after_a_restart() {
    told(|world| async move {
        // Of trimmed blocks only the requests are remembered.
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

/// Story: only drives that came, and all of them at a start, were looked through. Their data of a volume that was
/// opened later stayed.
#[test]
fn a_late_opened_volumes_moved_columns_are_freed_too() {
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

/// A map's columns are in one place for all its volumes: one move brings each volume's data, and is given back once.
#[test]
fn a_column_moves_with_snapshot_and_clone_under_writes() {
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
            // The remaining drives have everything, of each line.
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
