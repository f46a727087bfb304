//! Epochs that nobody sees any more: when it's sure that no drive has anything of them, nor ever will.

use super::*;
use crate::column::epochs::Writing;
use futures_util::future::{Either, select};
use tepal_model::EXTENT;
use tepal_model::history::Span;

const MAP: MapId = MapId(1);
const BLOCKS: u64 = EXTENT / BLOCK;

impl Rig {
    async fn quiet(&self) -> Vec<u32> {
        self.engine.quiet_columns(MAP, self.epochs.view).await
    }

    async fn have_nothing_of(&self, gap: Span) -> Vec<DriveId> {
        self.engine.has_nothing_of(MAP, &[gap]).await
    }

    /// Has the gap forgotten, as servers do that close gaps.
    async fn forget(&self, gap: Span) {
        assert_eq!(self.quiet().await.len(), self.disks.len(), "each column");
        assert_eq!(self.have_nothing_of(gap).await, [DriveId(1), DriveId(2)]);
    }

    /// Writes each block by itself, all with the same byte.
    async fn write_each(&self, blocks: impl Iterator<Item = u64>, byte: u8) {
        for block in blocks {
            self.write(block, byte, 1).await.unwrap();
        }
    }
}

#[test]
fn rolled_back_data_is_gone_once_drives_say_so() {
    for layout in ["mirror:2", "mirror:2;durability=flush"] {
        told(move |world| async move {
            let mut rig = Rig::new(world, layout, 2).await;
            rig.write(0, 1, 16).await.unwrap();
            rig.follow(&["0-1", "0-2"]);
            rig.write(0, 2, 2).await.unwrap();
            rig.volume.trim(4 * BLOCK, BLOCK).await.unwrap();
            rig.volume.flush().await.unwrap();
            rig.follow(&["0-1", "0-1,3-3"]);
            rig.write(1, 3, 1).await.unwrap();
            rig.volume.flush().await.unwrap();
            rig.forget((2, 2)).await;
            // The power fails at once.
            rig.disks.iter().for_each(SimDisk::cut_power);
            rig.agree(&["0-1", "0-3"]);
            rig.restart(|_| true).await;
            assert_eq!((rig.read(0).await, rig.read(1).await, rig.read(4).await), (Ok(1), Ok(3), Ok(1)));
            assert_eq!((rig.shown(1, 0).await, rig.shown(1, 1).await), (Ok(1), Ok(1)));
        });
    }
}

#[test]
fn a_gap_waits_for_writes_still_in_its_epochs() {
    told(|world| async move {
        let mut rig = Rig::new(world, "mirror:2;min_copies=2", 2).await;
        rig.write(0, 1, 16).await.unwrap();
        rig.follow(&["0-1", "0-2"]);
        rig.disks[1].set_faults(Faults { slowdown: 10_000, ..Faults::default() });
        let volume = rig.volume.clone();
        rig.world.spawn_named("write", async move { drop(volume.write(0, vec![2; 4096].into(), true).await) });
        let is_idle = || rig.volume.map().groups()[0].shared.order.under_way(0, u64::MAX / 2).is_empty();
        while is_idle() {
            rig.world.sleep(Duration::from_micros(20)).await;
        }
        rig.follow(&["0-1", "0-1,3-3"]);
        {
            let soon = Box::pin(rig.world.sleep(Duration::from_millis(2)));
            let early = select(Box::pin(rig.quiet()), soon).await;
            assert!(matches!(early, Either::Right(_)), "it's under way still");
        }
        rig.forget((2, 2)).await;
        rig.follow(&["0-1", "0-3"]);
        rig.world.sleep(Duration::from_secs(30)).await;
        assert_eq!(rig.read(0).await, Ok(1));
    });
}

#[test]
fn a_server_that_lacks_the_view_says_nothing() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        assert_eq!(rig.engine.quiet_columns(MapId(7), 0).await, []);
        assert_eq!(rig.engine.has_nothing_of(MapId(7), &[(2, 2)]).await, []);
        assert_eq!(rig.have_nothing_of((2, 2)).await, [DriveId(1), DriveId(2)], "there never was anything");
        assert_eq!(rig.have_nothing_of((1, 1)).await, [DriveId(1), DriveId(2)]);
        rig.write(0, 1, 1).await.unwrap();
        assert_eq!(rig.have_nothing_of((1, 1)).await, [], "it's seen, and was written");
    });
}

#[test]
fn an_absent_drives_gap_data_goes_on_its_return() {
    told(|world| async move {
        let mut rig = Rig::new(world, "mirror:2", 2).await;
        rig.write(0, 1, 16).await.unwrap();
        rig.follow(&["0-1", "0-2"]);
        rig.write(0, 2, 16).await.unwrap();
        rig.lose(1).await;
        rig.follow(&["0-1", "0-1,3-3"]);
        rig.write(3, 3, 1).await.unwrap();
        assert_eq!(rig.have_nothing_of((2, 2)).await, [DriveId(1)]);
        rig.bring_back(1).await;
        rig.until_healthy().await;
        rig.forget((2, 2)).await;
        rig.follow(&["0-1", "0-3"]);
        rig.lose(0).await;
        assert_eq!((rig.read(0).await, rig.read(3).await), (Ok(1), Ok(3)), "from the one that was away");
    });
}

/// Each rollback keeps some data and leaves other data out, and takes no more time or space than the first.
#[test]
fn thousands_of_rollbacks_cost_no_more_than_a_few() {
    const ROUNDS: u64 = 5_000;
    const EACH: u64 = 100;
    told(|world| async move {
        let mut rig = Rig::new(world, "mirror:2;extent=64K", 2).await;
        rig.write_each(0..8 * BLOCKS, 1).await;
        let (mut newest, mut took, mut held) = (1, Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let began = rig.world.now();
            let byte = (round % 250) as u8;
            rig.write(round % 8 * BLOCKS + round % 3, byte, 1).await.unwrap();
            let [kept, left_out, next] = [newest, newest + 1, newest + 2];
            rig.follow(&[&format!("0-{kept}"), &format!("0-{left_out}")]);
            rig.write(round % 8 * BLOCKS + round % 5, 251, 2).await.unwrap();
            rig.follow(&[&format!("0-{kept}"), &format!("0-{kept},{next}-{next}")]);
            rig.follow(&[&format!("0-{kept},{next}-{next}")]);
            rig.forget((left_out, left_out)).await;
            rig.follow(&[&format!("0-{next}")]);
            assert_eq!(rig.read(round % 8 * BLOCKS + round % 3).await, Ok(byte));
            newest = next;
            took.push(rig.world.now().0 - began.0);
            if round % EACH == EACH - 1 {
                let of_first = rig.engine.drive(DriveId(1)).unwrap();
                held.push((rig.volume.allocated(), of_first.epochs_of(MAP, 0, u64::MAX / 2).len()));
            }
        }
        let sum = |took: &[Duration]| took.iter().sum::<Duration>();
        let (first, last) = (sum(&took[..EACH as usize]), sum(&took[(ROUNDS - EACH) as usize..]));
        assert!(last < 2 * first, "{first:?} for the first, {last:?} for the last");
        let most = held.iter().max().unwrap();
        assert!(*most <= (2 * 9 * EXTENT, 9), "{held:?}");
    });
}

/// Story: a read of another server's drive was on its way while a gap of the history was closed. The drive had moved
/// its note that a block was taken out into the gap, which the read didn't see, and returned the block's older bytes.
#[test]
fn plans_from_before_a_gap_closed_are_made_again() {
    told(|world| async move {
        let mut rig = Rig::new(world, "stripe", 1).await;
        rig.follow(&["0-3", "0-3,5-5"]);
        let group = rig.volume.seats()[0].group().unwrap();
        let then = group.lock().moment();
        assert!(group.lock().is_as_at(then, std::iter::empty()));
        let mut writing = Writing::of(VolumeId(1));
        assert_eq!(group.seen_by(&mut writing).unwrap().unwrap().to_string(), "0-3,5-5");
        rig.follow(&["0-3", "0-5"]);
        assert!(!group.lock().is_as_at(then, std::iter::empty()));
        assert!(!group.sees_as_before(&writing));
        assert_eq!(group.seen_by(&mut writing).unwrap().unwrap().to_string(), "0-5", "in the same epoch");
        assert!(group.sees_as_before(&writing));
        // Its epoch is nobody's newest any more, as a snapshot was made and removed.
        rig.follow(&["0-3", "0-7"]);
        assert_eq!(group.seen_by(&mut writing).unwrap().unwrap().to_string(), "0-5");
    });
}
