//! A clone leaves the volumes that it shares data with, while all of them are used.

use super::clones::{CLONE, ORIGIN, epochs, read, write};
use super::migrations::{Going, SOURCE, TARGET};
use super::*;
use crate::{ClusterView, Migration};

/// For copies to be made equal, and busy marks to be taken back.
const SETTLED: Duration = Duration::from_secs(10);
/// For space to be given back.
const GIVEN_BACK: Duration = Duration::from_secs(12);

struct Leaving {
    going: Going,
    clone: Volume<SimWorld>,
    /// The bytes that the origin and its snapshot have on drives, without the clone.
    of_others: u64,
}

/// Blocks in both chunks: the origin's byte since the snapshot, and the clone's byte.
const BOTH: [(u64, u8, u8); 9] =
    [(0, 1, 1), (3, 2, 3), (4, 1, 4), (7, 2, 1), (21, 1, 0), (300, 0, 5), (1500, 1, 1), (1503, 2, 3), (1521, 1, 0)];

impl Leaving {
    /// A clone that shares these written runs, each a first block, a byte and a number of blocks; and the state that is
    /// agreed once the clone leaves.
    async fn before(
        world: SimWorld,
        layout: &'static str,
        to: &'static str,
        shared: &[(u64, u8, usize)],
    ) -> (Self, ClusterView) {
        let (mut going, mut begins) = Going::before(world, layout, to).await;
        for &(first, byte, count) in shared {
            going.rig.write(first, byte, count).await.unwrap();
        }
        let clone = going.rig.cloned().await;
        let epochs = going.rig.epochs.clone();
        begins.epochs = [(SOURCE, epochs.clone()), (TARGET, epochs)].into();
        begins.volumes.insert(CLONE, SOURCE);
        let (source, agreed) = begins.migrations.pop_first().unwrap();
        begins.migrations.insert(source, Arc::new(Migration { leaves: Some(CLONE), ..Migration::clone(&agreed) }));
        (Leaving { going, clone, of_others: 0 }, begins)
    }

    /// The same with blocks that have one copy each: rotten blocks can't be repaired.
    async fn before_of_one_copy(world: SimWorld) -> (Self, ClusterView) {
        Leaving::before(world, "stripe", "mirror:2;extent=4K", &[(0, 1, 40)]).await
    }

    async fn begin(world: SimWorld, layout: &'static str, to: &'static str) -> Self {
        let (mut leaving, begins) = Leaving::before(world, layout, to, &[(0, 1, 40), (1500, 1, 40)]).await;
        let Leaving { going, clone, .. } = &leaving;
        for block in [3, 7, 1503] {
            going.rig.write(block, 2, 1).await.unwrap();
        }
        let of_others = going.held(SOURCE);
        for (block, byte) in [(3, 3), (4, 4), (300, 5), (1503, 3)] {
            write(clone, block, byte).await.unwrap();
        }
        // A write of the clone's own, with the snapshot's byte.
        write(clone, 5, 1).await.unwrap();
        for block in [20, 1520] {
            clone.trim(block * BLOCK, 4 * BLOCK).await.unwrap();
        }
        going.follow(begins);
        leaving.of_others = of_others;
        leaving
    }

    /// All chunks are on their way at once.
    fn leave_at_once(&self, begins: ClusterView) {
        let whole = |(source, agreed): (MapId, Arc<Migration>)| {
            (source, Arc::new(Migration { fence: agreed.chunks, ..Migration::clone(&agreed) }))
        };
        let migrations = begins.migrations.into_iter().map(whole).collect();
        self.going.follow(ClusterView { migrations, ..begins });
    }

    /// Waits until no copy here is behind, and no log has a busy mark.
    async fn until_settled(&self) {
        self.going.rig.world.sleep(SETTLED).await;
    }

    /// Lets one of the shared blocks rot where it was written. Returns the block.
    async fn let_rot(&self) -> u64 {
        let rig = &self.going.rig;
        let drive = rig.engine.drive(DriveId(1)).unwrap();
        drive.checkpoint().await.unwrap();
        rig.disks[0].rot(drive.geometry().slots_start);
        let (snapshot, mut damaged) = (rig.volume.snapshot(1, 8 << 20), Vec::new());
        for block in 0..40 {
            if snapshot.read(block * BLOCK, BLOCK).await.is_err() {
                damaged.push(block);
            }
        }
        let [bad] = damaged[..] else { panic!("{damaged:?}") };
        bad
    }

    async fn has(&self, block: u64) -> (u8, u8) {
        (self.going.rig.read(block).await.unwrap(), read(&self.clone, block).await.unwrap())
    }

    async fn expect(&self, changed: &[(u64, u8, u8)]) {
        for (block, of_origin, of_clone) in BOTH {
            let now = changed.iter().rfind(|(at, ..)| *at == block);
            let expected = now.map_or((of_origin, of_clone), |&(_, of_origin, of_clone)| (of_origin, of_clone));
            assert_eq!(self.has(block).await, expected, "block {block}");
        }
        let snapshot = self.going.rig.volume.snapshot(1, 8 << 20);
        for block in [0, 3, 21, 1503, 1521] {
            assert_eq!(join(&snapshot.read(block * BLOCK, 1).await.unwrap())[0], 1);
        }
    }

    /// Now each map is read by its own volumes alone.
    async fn part(&self) {
        let now = self.going.now();
        let epochs = [
            (SOURCE, epochs(now.view, &[(ORIGIN, "0-2")], &["0-1"])),
            (TARGET, epochs(now.view, &[(CLONE, "0-1,3-3")], &[])),
        ];
        self.going.follow(ClusterView { epochs: epochs.into(), ..now });
        self.going.rig.world.sleep(GIVEN_BACK).await;
    }
}

#[test]
fn a_leaving_clone_takes_its_data_without_the_others() {
    told(|world| async move {
        for (layout, to) in [("mirror:2", "mirror:3;extent=4K"), ("stripe;extent=4K", "mirror:2;extent=1M")] {
            let leaving = Leaving::begin(world.clone(), layout, to).await;
            let mut changed = Vec::new();
            for round in 1..=2u8 {
                for block in [4, 1503] {
                    leaving.going.rig.write(block, 10 + round, 1).await.unwrap();
                    write(&leaving.clone, block, 20 + round).await.unwrap();
                    changed.push((block, 10 + round, 20 + round));
                }
                leaving.expect(&changed).await;
                leaving.going.move_on().await;
                leaving.expect(&changed).await;
            }
            leaving.part().await;
            leaving.expect(&changed).await;
            // One block was new to the origin.
            let copies = u64::from(layout.starts_with("mirror")) + 1;
            let of_others = leaving.going.held(SOURCE);
            assert!(of_others <= leaving.of_others + copies * (64 << 10), "{of_others} of {}", leaving.of_others);
            // The volumes are independent now.
            leaving.going.rig.engine.remove_one_of_several(ORIGIN).now_or_never();
            leaving.going.rig.engine.end_unknown_maps(|map| map == TARGET).await;
            assert_eq!(leaving.going.held(SOURCE), 0);
            for (block, _, of_clone) in changed {
                let last = if of_clone == 21 { 22 } else { of_clone };
                assert_eq!(read(&leaving.clone, block).await, Ok(last));
            }
        }
    });
}

/// Story: blocks of the origin that a clone sees stay at the source, so they are handed over again to the next primary.
/// They must not overwrite the clone's own writes.
#[test]
fn a_repeated_takeover_overwrites_no_newer_write() {
    told(|world| async move {
        let leaving = Leaving::begin(world, "mirror:2", "mirror:3;extent=4K").await;
        let mut changed = Vec::new();
        for fenced in 0..2 {
            for byte in 30..33 {
                leaving.going.begin_window_anew();
                leaving.expect(&changed).await;
                // The snapshot's byte, a trim, and another byte.
                for (block, is_own) in [(3, byte), (1503, byte), (4, 1), (300, 0)] {
                    match is_own {
                        0 => leaving.clone.trim(block * BLOCK, BLOCK).await.unwrap(),
                        byte => write(&leaving.clone, block, byte).await.unwrap(),
                    }
                    let of_origin = BOTH.iter().find(|(at, ..)| *at == block).unwrap().1;
                    changed.push((block, of_origin, is_own));
                }
                leaving.expect(&changed).await;
            }
            leaving.going.move_on().await;
            leaving.expect(&changed).await;
            assert_eq!(read(&leaving.clone, 5).await, Ok(1), "in window {fenced}");
        }
    });
}

#[test]
fn a_clone_that_comes_back_shares_again() {
    told(|world| async move {
        let leaving = Leaving::begin(world, "mirror:2", "stripe;extent=4K").await;
        let before = leaving.going.held(SOURCE);
        leaving.going.move_on().await;
        let changed = [(4, 1, 9), (1503, 2, 9)];
        for (block, _, of_clone) in changed {
            write(&leaving.clone, block, of_clone).await.unwrap();
        }
        for _ in 0..3 {
            leaving.going.turn_around();
            leaving.expect(&changed).await;
        }
        let mut changed = changed.to_vec();
        for byte in 10..12 {
            // Blocks that have come back are asked for again, and must not come again.
            for (block, of_origin) in [(4, 1), (1503, 2), (21, 1)] {
                write(&leaving.clone, block, byte).await.unwrap();
                changed.push((block, of_origin, byte));
            }
            leaving.going.begin_window_anew();
            leaving.expect(&changed).await;
            leaving.clone.trim(21 * BLOCK, BLOCK).await.unwrap();
            changed.push((21, 1, 0));
            leaving.going.move_on().await;
            leaving.expect(&changed).await;
        }
        leaving.going.rig.engine.end_unknown_maps(|map| map == SOURCE).await;
        assert_eq!((leaving.going.held(SOURCE), leaving.going.held(TARGET)), (before, 0));
        leaving.expect(&changed).await;
    });
}

/// Story: a drive was away when a clone wrote a shared block's data again, or when the clone's own data was released.
/// When the drive was back, one copy had something as the clone's own that the other copy didn't have: data, or a note
/// that hides zeros. The copy handed that over, onto the clone's newer writes.
#[test]
fn the_clones_data_on_one_copy_overwrites_nothing_newer() {
    told(|world| async move {
        let kinds = [(1, false), (1, true), (5, true), (0, false), (0, true)];
        for (away, byte, is_away_when_it_leaves) in kinds.iter().flat_map(|&(byte, is)| [(0, byte, is), (1, byte, is)])
        {
            // Blocks that are taken out are as the origin has them, too: zeros.
            let of_origin = byte.min(1);
            let shared = [(0, 1, 40), (0, of_origin, 1)];
            let (leaving, begins) = Leaving::before(world.clone(), "mirror:2", "mirror:3", &shared).await;
            let change = async || match byte {
                0 => leaving.clone.trim(0, BLOCK).await.unwrap(),
                byte => write(&leaving.clone, 0, byte).await.unwrap(),
            };
            let (rig, clone) = (&leaving.going.rig, &leaving.clone);
            let migrations = begins.migrations.clone();
            leaving.going.follow(ClusterView { migrations: [].into(), ..begins });
            if is_away_when_it_leaves {
                change().await;
                leaving.until_settled().await;
                rig.lose(away).await;
            } else {
                rig.lose(away).await;
                change().await;
                rig.bring_back(away).await;
            }
            leaving.until_settled().await;
            leaving.leave_at_once(ClusterView { migrations, ..leaving.going.now() });
            leaving.going.until_taken().await;
            write(clone, 0, 9).await.unwrap();
            leaving.until_settled().await;
            if is_away_when_it_leaves {
                rig.bring_back(away).await;
                leaving.until_settled().await;
            }
            for other in [1 - away, away] {
                rig.lose(other).await;
                leaving.going.begin_window_anew();
                let has = (leaving.has(0).await, leaving.has(1).await);
                assert_eq!(has, ((of_origin, 9), (1, 1)), "without drive {other}, where drive {away} was away, {byte}");
                rig.bring_back(other).await;
                leaving.until_settled().await;
            }
            leaving.going.move_on().await;
            assert_eq!(leaving.has(0).await, (of_origin, 9));
        }
    });
}

/// Story: a shared block rotted when the clone had it already. The block had to be handed over again, like all shared
/// blocks, couldn't be, and writes around it failed until the clone was called back.
#[test]
fn rot_in_a_taken_shared_block_stops_no_write() {
    told(|world| async move {
        let (leaving, begins) = Leaving::before_of_one_copy(world).await;
        leaving.leave_at_once(begins);
        leaving.going.until_taken().await;
        let bad = leaving.let_rot().await;
        let mut expected = 1;
        for byte in 7..10 {
            leaving.going.begin_window_anew();
            assert_eq!(read(&leaving.clone, bad).await, Ok(expected));
            for block in (0..40).filter(|block| byte > 7 || *block != bad) {
                write(&leaving.clone, block, byte).await.unwrap();
            }
            if byte > 7 {
                expected = byte;
            }
        }
        leaving.going.move_on().await;
        assert_eq!((read(&leaving.clone, bad).await, read(&leaving.clone, bad + 1).await), (Ok(9), Ok(9)));
    });
}

#[test]
fn an_unreadable_shared_block_goes_once_the_clone_overwrites() {
    told(|world| async move {
        let (leaving, begins) = Leaving::before_of_one_copy(world).await;
        let (going, clone) = (&leaving.going, &leaving.clone);
        let bad = leaving.let_rot().await;
        leaving.leave_at_once(begins);
        let error = IoError::Damaged { offset: bad * BLOCK, length: BLOCK };
        for block in 0..40 {
            let expected = if block == bad { Err(error.clone()) } else { Ok(1) };
            assert_eq!(read(clone, block).await, expected, "{block}");
        }
        assert_eq!(write(clone, bad, 7).await, Err(error.clone()));
        going.turn_around();
        write(clone, bad, 7).await.unwrap();
        going.turn_around();
        going.until_taken().await;
        for byte in 8..10 {
            assert_eq!(read(clone, bad).await, Ok(byte - 1));
            write(clone, bad, byte).await.unwrap();
            // At the source the block is as damaged as before.
            going.begin_window_anew();
        }
        going.move_on().await;
        for block in 0..40 {
            assert_eq!(read(clone, block).await, Ok(if block == bad { 9 } else { 1 }), "{block}");
        }
        assert_eq!(going.rig.read(bad).await, Err(error));
    });
}

/// Story: nothing of an unreadable shared block was at the target to be hidden. A clone's clear of the block left no
/// trace, and the block was handed over again, or seen again after the clone came back.
#[test]
fn a_cleared_unreadable_shared_block_stays_cleared() {
    told(|world| async move {
        for is_out_before in [true, false] {
            let (leaving, begins) = Leaving::before_of_one_copy(world.clone()).await;
            let (going, clone) = (&leaving.going, &leaving.clone);
            let bad = leaving.let_rot().await;
            match is_out_before {
                true => clone.trim(bad * BLOCK, BLOCK).await.unwrap(),
                false => write(clone, bad, 7).await.unwrap(),
            }
            leaving.leave_at_once(begins);
            going.until_taken().await;
            clone.trim(bad * BLOCK, BLOCK).await.unwrap();
            for byte in 4..6 {
                going.begin_window_anew();
                assert_eq!(read(clone, bad).await, Ok(0));
                write(clone, bad + 1, byte).await.unwrap();
            }
            for _ in 0..3 {
                going.turn_around();
                assert_eq!((read(clone, bad).await, read(clone, bad + 1).await), (Ok(0), Ok(5)), "{is_out_before}");
                assert!(going.rig.read(bad).await.is_err());
            }
        }
    });
}

/// Story: a volume had left others for a map of its own, and was removed before its server had followed that. By the
/// followed state the volume was still on its way, and the others' map was ended with it.
#[test]
fn removing_a_just_departed_volume_keeps_the_others_map() {
    told(|world| async move {
        let leaving = Leaving::begin(world, "mirror:2", "mirror:3;extent=4K").await;
        leaving.going.until_taken().await;
        let engine = &leaving.going.rig.engine;
        engine.remove_volume(CLONE, |map| map == SOURCE).await;
        assert_eq!(leaving.going.held(TARGET), 0);
        for (block, of_origin, _) in BOTH {
            assert_eq!(leaving.going.rig.read(block).await, Ok(of_origin), "block {block}");
        }
        leaving.going.rig.write(9, 7, 1).await.unwrap();
        assert_eq!(leaving.going.rig.read(9).await, Ok(7));
    });
}
