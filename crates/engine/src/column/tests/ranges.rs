//! A volume with ranges of different layouts.

use super::migrations::{Going, SOURCE, TARGET};
use super::*;
use crate::column::{Blocks, Group};
use crate::epochs::Subject;
use crate::protocol::Kept;
use crate::servers::follow::ClusterView;
use crate::volume::Within;
use crate::{Laid, Migration};
use tepal_model::{CHUNK, EXTENT, Ranges};

const V: VolumeId = VolumeId(1);
const BORDER: u64 = CHUNK / BLOCK;

/// The second chunk of the volume goes to the other map, and all that the volume grows by.
async fn second_chunk_goes(world: SimWorld, (layout, to): (&'static str, &'static str)) -> (Going, ClusterView) {
    let (going, mut begins) = Going::before(world, layout, to).await;
    let migration = begins.migrations.get_mut(&SOURCE).unwrap();
    let laid = Arc::new(migration.from.clone());
    *migration = Arc::new(Migration { first: 1, chunks: 1, ..Migration::clone(migration) });
    begins.laid.insert(SOURCE, laid);
    (going, begins)
}

/// The only window has been taken over: the range has arrived.
async fn arrives(going: &Going) {
    going.until_taken().await;
    let mut now = going.now();
    let (_, migration) = now.migrations.pop_first().unwrap();
    let bytes = migration.first * CHUNK..u64::MAX;
    let before = now.ranges.get(&V).map_or(Ranges::all_in(now.volumes[&V]), |ranges| Ranges::clone(ranges));
    let after = before.with(&bytes, migration.target);
    now.laid.insert(migration.target, Arc::new(migration.to.clone()));
    match after.count() {
        1 => now.ranges.remove(&V),
        _ => now.ranges.insert(V, Arc::new(after.clone())),
    };
    now.volumes.insert(V, after.at(0));
    now.places.retain(|map, _| after.has(*map));
    going.follow(now);
}

/// The second chunk goes back to the map that the volume began in.
fn goes_back(going: &Going) {
    let mut now = going.now();
    let (from, to) = (now.laid[&TARGET].clone(), now.laid[&SOURCE].clone());
    let migration = Migration {
        source: TARGET,
        target: SOURCE,
        from: Laid::clone(&from),
        to: Laid::clone(&to),
        first: 1,
        chunks: 1,
        ends: false,
        seed: 3,
        done: 0,
        fence: 1,
        reversed: false,
        stage: tepal_model::MigrationStage::Running,
        rate: None,
        leaves: None,
        since: now.view,
    };
    now.migrations.insert(TARGET, Arc::new(migration));
    going.follow(now);
}

async fn holds(going: &Going, expected: impl Fn(u64) -> u8) {
    for block in (0..2 * BORDER).step_by(61).chain(BORDER - 4..BORDER + 4) {
        assert_eq!(going.rig.read(block).await, Ok(expected(block)), "{block}");
    }
}

const WAYS: [(&str, &str); 4] = [
    ("mirror:2", "mirror:3;extent=4K"),
    ("mirror:3;extent=4K", "stripe;extent=1M"),
    ("mirror:2", "ec:2+1"),
    ("ec:2+1", "mirror:2;extent=4K"),
];

#[test]
fn each_range_is_served_by_its_own_map_until_it_is_back() {
    told(|world| async move {
        for way in WAYS {
            let (going, begins) = second_chunk_goes(world.clone(), way).await;
            let rig = &going.rig;
            rig.write(0, 1, 2 * BORDER as usize).await.unwrap();
            going.follow(begins);
            rig.write(BORDER - 2, 2, 4).await.unwrap();
            arrives(&going).await;
            let two = |block| if (BORDER - 2..BORDER + 2).contains(&block) { 2 } else { 1 };
            holds(&going, two).await;
            rig.write(BORDER - 3, 3, 6).await.unwrap();
            rig.volume.trim((BORDER - 1) * BLOCK, 2 * BLOCK).await.unwrap();
            let three = |block| match block {
                _ if (BORDER - 1..BORDER + 1).contains(&block) => 0,
                _ if (BORDER - 3..BORDER + 3).contains(&block) => 3,
                _ => 1,
            };
            holds(&going, three).await;
            let all = Within { offset: 0, length: rig.volume.size(), limit: 8 };
            let runs = rig.volume.block_status(all).await.unwrap();
            let lengths: Vec<(u64, bool)> = runs.iter().map(|run| (run.length / BLOCK, run.mapped)).collect();
            // A stripe with a hole is held.
            if !way.0.starts_with("ec") {
                assert_eq!(lengths, [(BORDER - 1, true), (2, false), (BORDER - 1, true)], "{way:?}");
            }
            assert!(going.held(SOURCE) > 0 && going.held(TARGET) > 0);

            goes_back(&going);
            rig.write(BORDER + 9, 4, 1).await.unwrap();
            arrives(&going).await;
            holds(&going, |block| if block == BORDER + 9 { 4 } else { three(block) }).await;
            rig.engine.end_unknown_maps(|map| map == SOURCE).await;
            assert_eq!(going.held(TARGET), 0, "{way:?}");
        }
    });
}

/// Story: a request was under way to the map that a range had left, and was carried out there when the range had arrived elsewhere.
#[test]
fn a_map_refuses_blocks_of_ranges_it_does_not_have() {
    told(|world| async move {
        let (going, begins) = second_chunk_goes(world, ("mirror:2", "mirror:3")).await;
        going.rig.write(0, 1, 2 * BORDER as usize).await.unwrap();
        going.follow(begins);
        arrives(&going).await;
        let subject = Subject { volume: V, at: None };
        for (id, is_own) in [(SOURCE, 0), (TARGET, 1)] {
            let map = going.rig.engine.map(id).unwrap();
            for chunk in 0..2u64 {
                let (column, within) = map.striping().locate(chunk * CHUNK);
                let group = map.seats()[column].group().unwrap();
                let read = group.read(subject, within, BLOCK).await.map(drop);
                let write = group.may_begin((V, Blocks::new(within / BLOCK, 1)));
                let expected = if chunk == is_own { Ok(()) } else { Err(IoError::Fenced) };
                assert_eq!((read, write), (expected.clone(), expected), "{id:?} and chunk {chunk}");
            }
        }
    });
}

#[test]
fn a_range_that_turns_around_is_where_it_began() {
    told(|world| async move {
        let (going, begins) = second_chunk_goes(world, ("mirror:2", "mirror:3;extent=4K")).await;
        let rig = &going.rig;
        rig.write(0, 1, 2 * BORDER as usize).await.unwrap();
        going.follow(begins);
        rig.write(BORDER + 1, 2, 1).await.unwrap();
        going.turn_around();
        rig.write(BORDER + 2, 3, 1).await.unwrap();
        arrives(&going).await;
        rig.engine.end_unknown_maps(|map| map == SOURCE).await;
        holds(&going, |block| {
            if block == BORDER + 1 {
                2
            } else if block == BORDER + 2 {
                3
            } else {
                1
            }
        })
        .await;
        assert_eq!(going.held(TARGET), 0);
    });
}

#[test]
fn what_a_volume_grows_by_is_of_its_last_range() {
    told(|world| async move {
        let (going, begins) = second_chunk_goes(world, ("mirror:2", "stripe")).await;
        going.follow(begins);
        arrives(&going).await;
        let rig = &going.rig;
        let size = rig.volume.size();
        rig.volume.resize(size + CHUNK);
        rig.write(size / BLOCK, 7, 3).await.unwrap();
        assert_eq!(rig.read(size / BLOCK + 2).await, Ok(7));
        assert_eq!(going.held(SOURCE), 0);
        rig.volume.resize(size);
        rig.volume.clear_past_end().await.unwrap();
        rig.volume.resize(size + CHUNK);
        assert_eq!(rig.read(size / BLOCK + 2).await, Ok(0));
    });
}

/// Story: of rows in place it was asked by their own numbers, which are greater than those of any block, whether the map still has
/// them. That was another range, in another map: so the scrub passed over rotten fragments, and called the drive mended.
#[test]
fn rot_in_place_is_mended_in_each_range() {
    told(|world| async move {
        for way in [("mirror:2", "ec:2+1"), ("ec:2+1", "mirror:2;extent=4K")] {
            let (going, begins) = second_chunk_goes(world.clone(), way).await;
            let rig = &going.rig;
            rig.write(0, 1, 2 * BORDER as usize).await.unwrap();
            going.follow(begins);
            arrives(&going).await;
            let is_destaged = |group: &Group<SimWorld>| group.shared.log.is_known_empty();
            while !rig.volume.groups().iter().filter(|group| group.shared.kept == Kept::Stripes).all(is_destaged) {
                rig.world.sleep(Duration::from_millis(100)).await;
            }
            let drive = rig.engine.drive(DriveId(1)).unwrap();
            let (slots, start) = (u64::from(drive.geometry().slots), drive.geometry().slots_start);
            (0..slots).for_each(|slot| rig.disks[0].rot(start + slot * EXTENT));
            let found = rig.volume.scrub(|_| {}).await.unwrap();
            assert!(found.repaired > 0 && found.lost.is_empty() && found.unrepaired.is_empty(), "{found:?}");
            let again = rig.volume.scrub(|_| {}).await.unwrap();
            assert_eq!(again.repaired, 0, "the first one left {} blocks, {way:?}", again.repaired);
            let left = drive.scrub(None, |_| std::future::ready(())).await.unwrap();
            assert_eq!(left.damaged, [], "{way:?}");
            rig.lose(1).await;
            holds(&going, |_| 1).await;
        }
    });
}
