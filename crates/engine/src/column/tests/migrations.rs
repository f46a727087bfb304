//! A volume goes to another layout while it's used, and back.

use super::clones::{CLONE, with_clone};
use super::doubts::REQUEST;
use super::*;
use crate::column::Blocks;
use crate::column::migrating::handing::{Handing, What};
use crate::servers::follow::{Agreed, ClusterView, DriveStatus};
use crate::{Head, Laid, Migration};
use futures_util::future::{Either, select};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use tepal_codec::checksum::block_crcs;
use tepal_drive::Write;
use tepal_drive::world::Gather;
use tepal_model::size::chunk;
use tepal_model::{EXTENT, History, Lineage, MigrationStage, ServerId, Taking};
use tepal_wire::message::Tag;

const ME: ServerId = ServerId(1);
pub const SOURCE: MapId = MapId(1);
pub const TARGET: MapId = MapId(2);

/// The agreed state, and its follower.
pub struct Going {
    pub rig: Rig,
    pub before: RefCell<Arc<ClusterView>>,
}

impl Going {
    async fn new(world: SimWorld, layout: &'static str, to: &'static str) -> Self {
        let (going, begins) = Self::before(world, layout, to).await;
        going.follow(begins);
        going
    }

    /// The state that is agreed once the migration begins.
    pub async fn before(world: SimWorld, layout: &'static str, to: &'static str) -> (Self, ClusterView) {
        let rig = Rig::new(world, layout, 3).await;
        let laid = |layout: &str| Laid { layout: layout.parse().unwrap(), geometry: round(&places(1..=3, layout)) };
        let migration = Migration {
            source: SOURCE,
            target: TARGET,
            from: laid(layout),
            to: laid(to),
            first: 0,
            ends: false,
            chunks: rig.volume.size().div_ceil(chunk(laid(layout).layout.extent, laid(to).layout.extent)),
            seed: 7,
            done: 0,
            fence: 1,
            reversed: false,
            stage: MigrationStage::Running,
            rate: None,
            leaves: None,
            since: 5,
        };
        let agreed = Agreed { server: ME, status: DriveStatus::Up(1) };
        let now = ClusterView {
            view: 5,
            drives: (1..=3).map(|id| (DriveId(id), agreed)).collect(),
            places: [(SOURCE, places(1..=3, layout)), (TARGET, places(1..=3, to))].into(),
            volumes: [(VolumeId(1), SOURCE)].into(),
            migrations: [(SOURCE, Arc::new(migration))].into(),
            ..ClusterView::default()
        };
        (Going { rig, before: RefCell::default() }, now)
    }

    /// A volume with some blocks, written before a snapshot was taken; and the migration that is to begin.
    pub async fn with_snapshot(world: SimWorld, (byte, count): (u8, usize)) -> (Self, BTreeMap<MapId, Arc<Migration>>) {
        let (going, mut begins) = Self::before(world, "mirror:2", "mirror:3").await;
        going.rig.write(0, byte, count).await.unwrap();
        let readers = ["0-1", "0-2"].map(|reader| reader.parse::<Lineage>().unwrap());
        let heads = [(VolumeId(1), Head { epoch: 2, since: 5 })].into();
        let snapshots = [(1, VolumeId(1))].into();
        let epochs = Arc::new(Epochs { history: History::new(readers.to_vec(), 0), heads, snapshots, view: 5 });
        begins.epochs = [(SOURCE, epochs.clone()), (TARGET, epochs)].into();
        let migrations = std::mem::take(&mut begins.migrations);
        going.follow(begins);
        (going, migrations)
    }

    pub fn follow(&self, now: ClusterView) {
        let now = Arc::new(now);
        let before = self.before.replace(now.clone());
        self.rig.engine.follow(ME, &before, &now);
    }

    pub fn now(&self) -> ClusterView {
        let now = ClusterView::clone(&self.before.borrow());
        ClusterView { view: now.view + 1, ..now }
    }

    /// Everything of the window has been taken over: the next window begins, or the volume has arrived.
    pub async fn move_on(&self) {
        self.until_taken().await;
        let mut now = self.now();
        let migration = Migration::clone(now.migrations.pop_first().unwrap().1.as_ref());
        if migration.fence < migration.chunks {
            let (done, fence, since) = (migration.fence, migration.fence + 1, now.view);
            let migration = Migration { done, fence, since, ..migration };
            now.migrations.insert(migration.source, Arc::new(migration));
        } else if let Some(leaver) = migration.leaves {
            now.volumes.insert(leaver, migration.target);
        } else {
            now.volumes.insert(VolumeId(1), migration.target);
            now.places.remove(&migration.source);
        }
        self.follow(now);
    }

    pub fn turn_around(&self) {
        let mut now = self.now();
        let migration = Migration::clone(now.migrations.pop_first().unwrap().1.as_ref());
        let back = Migration {
            source: migration.target,
            target: migration.source,
            from: migration.to.clone(),
            to: migration.from.clone(),
            done: migration.chunks - migration.fence,
            fence: migration.chunks - migration.done,
            reversed: !migration.reversed,
            since: now.view,
            ..migration
        };
        if !back.is_of_a_part() {
            now.volumes.insert(back.leaves.unwrap_or(VolumeId(1)), back.source);
        }
        now.migrations.insert(back.source, Arc::new(back));
        self.follow(now);
    }

    /// Nobody remembers how much of the window has been taken over.
    pub fn begin_window_anew(&self) {
        for stage in [MigrationStage::Paused, MigrationStage::Running] {
            let mut now = self.now();
            let (source, agreed) = now.migrations.pop_first().unwrap();
            let agreed = Migration { stage, since: now.view, ..Migration::clone(&agreed) };
            now.migrations.insert(source, Arc::new(agreed));
            self.follow(now);
        }
    }

    /// Waits until all of the window has been taken over.
    pub async fn until_taken(&self) {
        let migration = self.before.borrow().migrations.values().next().unwrap().clone();
        let window = (migration.target, migration.since);
        while !(0..3).all(|column| self.rig.authority.0.lock().unwrap().taken_over.contains(&(column, window))) {
            self.rig.world.sleep(Duration::from_millis(5)).await;
        }
    }

    /// The map was this server's alone, and is shared now.
    async fn until_led_among_others(&self, map: MapId) {
        let map = self.rig.engine.map(map).unwrap();
        while map.groups().iter().filter(|group| group.shared.view > 0).count() < map.seats().len() {
            self.rig.world.sleep(Duration::from_millis(1)).await;
        }
    }

    pub fn held(&self, map: MapId) -> u64 {
        self.rig.engine.drives_here().iter().map(|drive| drive.allocated_of(map)).sum()
    }
}

/// From one layout to the other.
const WAYS: [(&str, &str); 5] = [
    ("mirror:2", "mirror:3;extent=4K"),
    ("mirror:3;extent=4K", "stripe;extent=1M"),
    ("mirror:2", "ec:2+1"),
    ("ec:2+1", "mirror:2;extent=4K"),
    ("ec:2+1", "ec:2+1;extent=384K"),
];

#[test]
fn a_volume_is_intact_at_every_migration_step() {
    told(|world| async move {
        for (layout, to) in WAYS {
            let going = Going::new(world.clone(), layout, to).await;
            let rig = &going.rig;
            for block in (0..2048).step_by(97) {
                rig.write(block, (block % 251) as u8, 3).await.unwrap();
            }
            for round in 1..=2u8 {
                // Across both chunks.
                rig.write(1020, 100 + round, 8).await.unwrap();
                rig.volume.trim(970 * BLOCK, 4 * BLOCK).await.unwrap();
                going.move_on().await;
                for block in [97, 1020, 1023, 1024, 1027, 1940, 970, 973] {
                    let expected = match block {
                        1020..1028 => 100 + round,
                        970..974 => 0,
                        _ => (block % 251) as u8,
                    };
                    assert_eq!(rig.read(block).await, Ok(expected), "{block} of {layout}, in round {round}");
                }
            }
            rig.engine.end_unknown_maps(|map| map == TARGET).await;
            assert_eq!(going.held(SOURCE), 0);
            rig.write(5, 9, 1).await.unwrap();
            assert_eq!(rig.read(5).await, Ok(9));
        }
    });
}

#[test]
fn writes_during_a_migration_survive_its_return() {
    for (layout, to) in [("mirror:2", "stripe;extent=4K")].into_iter().chain(WAYS) {
        comes_back(layout, to);
    }
}

fn comes_back(layout: &'static str, to: &'static str) {
    told(move |world| async move {
        let going = Going::new(world, layout, to).await;
        let rig = &going.rig;
        rig.write(0, 1, 30).await.unwrap();
        rig.write(1024, 1, 30).await.unwrap();
        going.move_on().await;
        rig.write(10, 2, 1).await.unwrap();
        rig.write(1034, 2, 1).await.unwrap();
        going.turn_around();
        rig.write(11, 3, 1).await.unwrap();
        going.move_on().await;
        going.move_on().await;
        rig.engine.end_unknown_maps(|map| map == SOURCE).await;
        for (block, byte) in [(0, 1), (10, 2), (11, 3), (12, 1), (1024, 1), (1034, 2), (1035, 1)] {
            assert_eq!(rig.read(block).await, Ok(byte), "{block}");
        }
        assert_eq!(going.held(TARGET), 0);
    });
}

/// Story: a server knew that a map was left before it followed that, didn't end the map then, and never looked again.
/// No returned drive of the map was ever found to know what it misses.
#[test]
fn a_left_map_is_given_back_holding_nothing_down() {
    told(|world| async move {
        let going = Going::new(world, "mirror:2", "mirror:3;extent=4K").await;
        let rig = &going.rig;
        rig.write(0, 1, 30).await.unwrap();
        going.move_on().await;
        rig.engine.end_unknown_maps(|map| map == TARGET).await;
        going.move_on().await;
        rig.lose(0).await;
        rig.write(5, 2, 1).await.unwrap();
        rig.bring_back(0).await;
        for _ in 0..1000 {
            rig.world.sleep(Duration::from_millis(10)).await;
            if (rig.authority.standing(DriveId(1)), going.held(SOURCE)) == (Standing::Current, 0) {
                return assert_eq!((rig.read(5).await, rig.read(6).await), (Ok(2), Ok(1)));
            }
        }
        panic!("drive 1 is {:?}, {} bytes are held", rig.authority.standing(DriveId(1)), going.held(SOURCE));
    });
}

/// Story: while a server stood still, a volume arrived in another map, and went on to a third map. The server opened
/// the second map, but not the third, of which it led columns, until something else was agreed: until then the
/// migration stood still.
#[test]
fn a_server_that_missed_a_migration_joins_the_next() {
    told(|world| async move {
        const BETWEEN: MapId = MapId(9);
        let (going, mut now) = Going::before(world, "mirror:2", "mirror:3").await;
        let missed = now.migrations.remove(&SOURCE).unwrap();
        let migration = Migration { source: BETWEEN, ..Migration::clone(&missed) };
        now.laid = [(BETWEEN, Arc::new(migration.from.clone()))].into();
        now.places = [(BETWEEN, now.places[&SOURCE].clone()), (TARGET, now.places[&TARGET].clone())].into();
        now.volumes = [(VolumeId(1), BETWEEN)].into();
        now.migrations = [(BETWEEN, Arc::new(migration))].into();
        going.follow(now);
        let target = going.rig.engine.map(TARGET).expect("the volume is on its way there");
        let leads = || target.groups().len() == target.seats().len();
        while !leads() {
            going.rig.world.sleep(Duration::from_millis(1)).await;
        }
    });
}

/// Story: a server opened a clone by a state from before the clone left for a map of its own. The left map was open
/// from then on, and nobody led it, nor the target of its other volume, until something else was agreed: that volume,
/// opened later, was taken for one whose map is led.
#[test]
fn the_map_a_clone_left_is_led_for_others() {
    told(|world| async move {
        const OF_CLONE: MapId = MapId(9);
        let (Going { mut rig, .. }, mut now) = Going::before(world, "mirror:2", "mirror:3").await;
        let laid = now.migrations[&SOURCE].from.clone();
        now.volumes.insert(CLONE, OF_CLONE);
        now.places.insert(OF_CLONE, now.places[&SOURCE].clone());
        now.laid = [SOURCE, OF_CLONE].map(|id| (id, Arc::new(laid.clone()))).into();
        rig.kill();
        let engine = Rig::engine_with_drives(&rig.world, &rig.disks, &rig.authority, |_| true).await;
        engine.follow(ME, &ClusterView::default(), &Arc::new(now));
        let of_origin = VolumeSpec { epochs: with_clone(), ..Rig::spec(3, "mirror:2", &rig.epochs) };
        engine.open_volume_among(VolumeSpec { id: CLONE, name: "c".into(), ..of_origin.clone() }).unwrap();
        engine.open_volume_among(of_origin).unwrap();
        for id in [OF_CLONE, SOURCE, TARGET] {
            let map = engine.map(id).expect("a volume has it, or is on its way there");
            while map.groups().len() < map.seats().len() {
                rig.world.sleep(Duration::from_millis(1)).await;
            }
        }
    });
}

/// Story: a request was carried out, and its answer was lost. Its blocks went to another map, another client wrote to
/// them there, and then the request was retried.
#[test]
fn a_request_done_before_migrating_does_not_run_again() {
    told(|world| async move {
        let (going, begins) = Going::before(world, "mirror:2", "mirror:3").await;
        let ask = async |map: MapId, is_in_doubt| {
            let first = going.rig.engine.map(map).unwrap().seats()[0].group().unwrap();
            let data = Gather::from_iter([Bytes::from(vec![1; BLOCK as usize])]);
            first.write(VolumeId(1), 0, data.into(), false, Some(Tag { origin: REQUEST, is_in_doubt })).await
        };
        ask(SOURCE, false).await.unwrap();
        assert_eq!(going.rig.read(0).await, Ok(1));
        going.follow(begins);
        while !going.before.borrow().migrations.is_empty() {
            going.move_on().await;
        }
        going.rig.write(0, 2, 1).await.unwrap();
        ask(TARGET, true).await.unwrap();
        assert_eq!(going.rig.read(0).await, Ok(2));
    });
}

/// Story: another server's write waited for its piece to be taken over, and wasn't queued yet. As long as other pieces
/// were taken meanwhile it never gave up: when it had its turn, its client had been gone for a second, and had written
/// newer data by another gateway.
#[test]
fn another_servers_request_waits_shortly_for_its_piece() {
    told(|world| async move {
        let (going, mut begins) = Going::before(world, "mirror:2", "mirror:3").await;
        let rig = &going.rig;
        rig.write(0, 1, 1).await.unwrap();
        let (_, migration) = begins.migrations.pop_first().unwrap();
        let all = Migration { fence: migration.chunks, ..Migration::clone(&migration) };
        begins.migrations.insert(SOURCE, Arc::new(all));
        let group = |map| {
            let map = rig.engine.map(map)?;
            let (column, offset) = map.striping().locate(0);
            Some((map.seats()[column].group()?, offset))
        };
        going.follow(begins);
        going.until_taken().await;
        let (source, there) = group(SOURCE).unwrap();
        let keeps_it_there = source.line_up(Blocks::touched(there, there + BLOCK)).turn().await;
        going.begin_window_anew();
        let (target, offset) = group(TARGET).unwrap();
        let target = target.for_others();
        let data = [Bytes::from(vec![9; BLOCK as usize])].into_iter().collect();
        let write = rig.within(1, target.write(VolumeId(1), offset, data, true, None));
        let others = async {
            loop {
                rig.world.sleep(Duration::from_millis(50)).await;
                target.wake();
            }
        };
        match select(Box::pin(write), Box::pin(others)).await {
            Either::Left((written, _)) => assert_eq!(written, Some(Err(IoError::NotNow))),
            Either::Right((never, _)) => never,
        }
        drop(keeps_it_there);
        rig.write(0, 2, 1).await.unwrap();
        rig.world.sleep(Duration::from_secs(2)).await;
        assert_eq!(rig.read(0).await, Ok(2));
    });
}

/// Story: a request to release blocks came when the volume had turned around twice: the blocks had been written again
/// there meanwhile, and were gone.
#[test]
fn requests_from_before_a_turnaround_are_refused() {
    told(|world| async move {
        let (going, mut begins) = Going::before(world, "mirror:2", "stripe;extent=4K").await;
        let rig = &going.rig;
        rig.write(0, 1, 40).await.unwrap();
        let (source, migration) = begins.migrations.pop_first().unwrap();
        let all = Migration { fence: migration.chunks, ..Migration::clone(&migration) };
        begins.migrations.insert(source, Arc::new(all));
        going.follow(begins);
        going.until_led_among_others(source).await;
        for byte in 2..6 {
            let late = going.before.borrow().migrations.values().next().unwrap().clone();
            let (blocks, lines) = (Blocks::new(0, 1), Epochs::default().lines_digest(None));
            let asked = |what, since| Handing { what, blocks, target: late.target, since, lines };
            going.turn_around();
            rig.write(0, byte, 30).await.unwrap();
            going.turn_around();
            let now = going.before.borrow().migrations.values().next().unwrap().clone();
            assert_eq!((now.target, now.done, now.fence), (late.target, late.done, late.fence));
            for group in rig.engine.map(now.source).unwrap().groups() {
                assert!(asked(What::HandOver, now.since).at(&group).await.is_ok());
                for what in [What::HandOver, What::Release] {
                    let outcome = asked(what, late.since).at(&group).await.map(drop);
                    assert_eq!(outcome, Err(IoError::NotNow));
                }
            }
            assert_eq!((rig.read(0).await, rig.read(35).await), (Ok(byte), Ok(1)));
            going.turn_around();
        }
        going.move_on().await;
        assert_eq!((rig.read(0).await, rig.read(29).await, rig.read(35).await), (Ok(5), Ok(5), Ok(1)));
    });
}

/// Story: a volume of a tebibyte with little data was asked for piece by piece.
#[test]
fn source_columns_say_which_chunks_hold_anything() {
    told(|world| async move {
        for (byte, expected) in [(Some(1), BTreeSet::from([1])), (None, BTreeSet::new())] {
            let (going, mut begins) = Going::before(world.clone(), "stripe", "mirror:2;extent=4K").await;
            let rig = &going.rig;
            if let Some(byte) = byte {
                rig.write(1024 + 77, byte, 3).await.unwrap();
            }
            let (source, migration) = begins.migrations.pop_first().unwrap();
            let rests =
                Migration { fence: migration.chunks, stage: MigrationStage::Paused, ..Migration::clone(&migration) };
            begins.migrations.insert(source, Arc::new(rests));
            going.follow(begins);
            let target = loop {
                rig.world.sleep(Duration::from_millis(5)).await;
                match rig.engine.map(TARGET) {
                    Some(map) if map.groups().len() == 3 => break map,
                    _ => {}
                }
            };
            let (migration, mut found) = (target.migration().unwrap(), BTreeSet::new());
            for column in 0..3 {
                found.extend(target.groups()[0].ask_what_is_held(&migration, column).await.expect("it's known"));
            }
            assert_eq!(found, expected);
            // A request goes to its map, whatever is known of chunks.
            for block in [5, 1024 + 78] {
                rig.write(block, 9, 1).await.unwrap();
                assert_eq!(rig.read(block).await, Ok(9));
            }
            assert_eq!(rig.read(1024 + 77).await, Ok(byte.unwrap_or(0)));
        }
    });
}

/// Story: blocks that had been trimmed after a snapshot took room in the new layout, though nobody had asked whether
/// there was any.
#[test]
fn trimmed_snapshot_blocks_take_no_room_at_the_target() {
    told(|world| async move {
        let (going, migrations) = Going::with_snapshot(world, (1, 64)).await;
        let rig = &going.rig;
        rig.volume.trim(0, 32 * BLOCK).await.unwrap();
        let before = going.held(SOURCE);
        going.follow(ClusterView { migrations, ..going.now() });
        going.move_on().await;
        going.move_on().await;
        rig.engine.end_unknown_maps(|map| map == TARGET).await;
        assert_eq!((going.held(TARGET), going.held(SOURCE)), (before / 2 * 3, 0));
        assert_eq!((rig.read(0).await, rig.read(31).await, rig.read(32).await), (Ok(0), Ok(0), Ok(1)));
        let snapshot = rig.volume.snapshot(1, rig.volume.size());
        assert!(join(&snapshot.read(0, 64 * BLOCK).await.unwrap()).iter().all(|&byte| byte == 1));
    });
}

/// Story: one copy had a block in the line that was written, the other showed the same by an older line. The first
/// copy's block was rotten. Of the other copy only the written line was asked for, where it has nothing: zeros went to
/// the new layout.
#[test]
fn an_older_lines_block_migrates_despite_rot_in_newer() {
    told(|world| async move {
        let (going, migrations) = Going::with_snapshot(world, (7, 16)).await;
        let rig = &going.rig;
        rig.lose(1).await;
        rig.write(0, 7, 16).await.unwrap();
        rig.bring_back(1).await;
        rig.until_healthy().await;
        let slots = rig.engine.drive(DriveId(1)).unwrap().geometry().slots_start;
        (0..4).for_each(|slot| rig.disks[0].rot(slots + slot * EXTENT));
        going.follow(ClusterView { migrations, ..going.now() });
        going.move_on().await;
        going.move_on().await;
        assert_eq!((rig.read(0).await, rig.read(1).await), (Ok(7), Ok(7)));
        let snapshot = rig.volume.snapshot(1, rig.volume.size());
        assert!(join(&snapshot.read(0, 16 * BLOCK).await.unwrap()).iter().all(|&byte| byte == 7));
    });
}

/// Story: zeros were written where nothing was while a drive was away: it has nothing there, which is the same. Its
/// copy was handed over, so nothing was to be released. Later writes at the target were overwritten when the other copy
/// handed over its zeros.
#[test]
fn zeros_on_one_copy_only_overwrite_nothing_newer() {
    told(|world| async move {
        for away in 0..2 {
            let (going, mut begins) = Going::before(world.clone(), "mirror:2", "mirror:3").await;
            let rig = &going.rig;
            let (source, migration) = begins.migrations.pop_first().unwrap();
            going.follow(ClusterView { migrations: [].into(), ..begins });
            rig.lose(away).await;
            rig.write(0, 0, 16).await.unwrap();
            rig.write(64, 5, 16).await.unwrap();
            rig.bring_back(away).await;
            rig.until_healthy().await;
            let all = Migration { fence: migration.chunks, since: 6, ..Migration::clone(&migration) };
            going.follow(ClusterView { migrations: [(source, Arc::new(all))].into(), ..going.now() });
            going.until_taken().await;
            rig.write(3, 9, 1).await.unwrap();
            rig.write(70, 9, 1).await.unwrap();
            for other in [away, 1 - away] {
                rig.lose(other).await;
                going.begin_window_anew();
                assert_eq!((rig.read(3).await, rig.read(70).await), (Ok(9), Ok(9)), "without drive {other}");
                assert_eq!((rig.read(4).await, rig.read(71).await), (Ok(0), Ok(5)));
                rig.bring_back(other).await;
                rig.until_healthy().await;
            }
            going.move_on().await;
            assert_eq!((rig.read(3).await, rig.read(70).await), (Ok(9), Ok(9)));
        }
    });
}

/// Story: the source left the fenced blocks to the target, and the target cleared only where it had something itself.
#[test]
fn blocks_cut_off_before_their_takeover_stay_gone() {
    told(|world| async move {
        let (going, mut begins) = Going::before(world, "mirror:2", "mirror:3;extent=4K").await;
        let rig = &going.rig;
        rig.write(1500, 7, 100).await.unwrap();
        let (source, migration) = begins.migrations.pop_first().unwrap();
        let paused =
            Migration { fence: migration.chunks, stage: MigrationStage::Paused, ..Migration::clone(&migration) };
        begins.migrations.insert(source, Arc::new(paused));
        going.follow(begins);
        let size = rig.volume.size();
        rig.volume.resize(1530 * BLOCK);
        rig.volume.clear_past_end().await.unwrap();
        rig.volume.resize(size);
        for (block, byte) in [(1499, 0), (1500, 7), (1529, 7), (1530, 0), (1599, 0)] {
            assert_eq!(rig.read(block).await, Ok(byte), "{block}");
        }
    });
}

/// Another map, which takes the room.
const OTHERS: MapId = MapId(77);

async fn fill(drive: &Drive<SimWorld>) {
    for extent in 0.. {
        let data = Gather::from_iter([Bytes::from(vec![3; EXTENT as usize])]);
        let crcs = data.iter().flat_map(|piece| block_crcs(piece)).collect::<Vec<u32>>().into();
        let (map, marks, taking, first) = (OTHERS, Vec::new(), Taking::Nothing, extent * EXTENT / BLOCK);
        let lineage = &Lineage::default();
        if drive
            .write(Write { map, first, data, crcs, marks, durable: true, repair: false, taking, lineage })
            .await
            .is_err()
        {
            break;
        }
    }
}

fn byte_of(block: u64) -> u8 {
    (block % 251) as u8 + 1
}

#[test]
fn pieces_without_room_are_read_at_the_source() {
    told(|world| async move {
        let (going, begins) = Going::before(world, "stripe", "mirror:3").await;
        let (rig, blocks) = (&going.rig, || (0..2048).step_by(5));
        for block in blocks() {
            rig.write(block, byte_of(block), 1).await.unwrap();
        }
        let drive = rig.engine.drive(DriveId(3)).unwrap();
        fill(&drive).await;
        going.follow(begins);
        let mut written = BTreeSet::new();
        for block in blocks().step_by(13) {
            match rig.write(block, 255, 1).await {
                Ok(()) => drop(written.insert(block)),
                Err(error) => assert_eq!(error, IoError::OutOfSpace),
            }
        }
        assert!(written.len() < blocks().step_by(13).count());
        let expected = |block| if written.contains(&block) { 255 } else { byte_of(block) };
        for block in blocks() {
            assert_eq!(rig.read(block).await, Ok(expected(block)), "{block}");
            assert_eq!(rig.read(block + 1).await, Ok(0), "{block}");
        }
        drive.remove_map(OTHERS).await.unwrap();
        for _ in 0..2 {
            going.move_on().await;
        }
        for block in blocks() {
            assert_eq!(rig.read(block).await, Ok(expected(block)), "{block}");
        }
    });
}

#[test]
fn a_block_that_nobody_can_read_is_an_error_there_only_and_its_piece_is_written_again_when_the_volume_has_turned_around()
 {
    told(|world| async move {
        let (going, mut begins) = Going::before(world, "stripe", "mirror:2;extent=4K").await;
        let rig = &going.rig;
        for block in 0..2048 {
            rig.write(block, byte_of(block), 1).await.unwrap();
        }
        let drive = rig.engine.drive(DriveId(1)).unwrap();
        drive.checkpoint().await.unwrap();
        rig.disks[0].rot(drive.geometry().slots_start);
        let mut damaged = Vec::new();
        for block in 0..2048 {
            if rig.read(block).await.is_err() {
                damaged.push(block);
            }
        }
        let [bad] = damaged[..] else { panic!("{damaged:?}") };
        let (source, migration) = begins.migrations.pop_first().unwrap();
        let all = Migration { fence: migration.chunks, ..Migration::clone(&migration) };
        begins.migrations.insert(source, Arc::new(all));
        going.follow(begins);
        let error = IoError::Damaged { offset: bad * BLOCK, length: BLOCK };
        for block in 0..2048 {
            let expected = if block == bad { Err(error.clone()) } else { Ok(byte_of(block)) };
            assert_eq!(rig.read(block).await, expected, "{block}");
        }
        assert_eq!(rig.write(bad, 7, 1).await, Err(error));
        going.turn_around();
        rig.write(bad, 7, 1).await.unwrap();
        going.move_on().await;
        for block in 0..2048 {
            let expected = if block == bad { 7 } else { byte_of(block) };
            assert_eq!(rig.read(block).await, Ok(expected), "{block}");
        }
    });
}
