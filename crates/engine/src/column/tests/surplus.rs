//! What is reported of space that comes back in the background, and of space that a snapshot keeps.

use super::*;
use tepal_model::EXTENT;

/// Late enough for postponed work, too.
const SETTLED: Duration = Duration::from_secs(20);
const COPIES: u64 = 2;
const BLOCKS: u64 = EXTENT / BLOCK;

impl Rig {
    async fn write_extents(&self, count: u64, byte: u8) {
        for nth in 0..count {
            self.write(nth * BLOCKS, byte, BLOCKS as usize).await.unwrap();
        }
    }
}

#[test]
fn a_removed_snapshots_space_is_surplus_until_given_back() {
    told(|world| async move {
        let mut rig = Rig::new(world, "mirror:2", 2).await;
        rig.write_extents(4, 1).await;
        rig.follow(&["0-1", "0-2"]);
        rig.write_extents(3, 2).await;
        rig.world.sleep(SETTLED).await;
        let of_snapshot = 3 * COPIES * EXTENT;
        assert_eq!(rig.volume.kept_by_snapshots(), [(1, of_snapshot)].into());
        assert_eq!((rig.volume.surplus(), rig.volume.reclaimed()), (0, rig.epochs.view));

        let before = rig.epochs.view;
        rig.lose(1).await;
        rig.follow(&["0-2"]);
        let reclaimed = rig.volume.reclaimed();
        assert!(reclaimed <= before, "{reclaimed}: it has only begun");
        assert_eq!(rig.volume.surplus(), of_snapshot / COPIES, "as far as drives are here");
        rig.world.sleep(SETTLED).await;
        assert_eq!((rig.volume.surplus(), rig.volume.reclaimed()), (0, rig.epochs.view));

        rig.bring_back(1).await;
        assert_eq!(rig.volume.surplus(), of_snapshot / COPIES, "what has come back has that too");
        assert!(rig.volume.reclaimed() <= before);
        rig.until_healthy().await;
        rig.world.sleep(SETTLED).await;
        assert_eq!((rig.volume.surplus(), rig.volume.reclaimed()), (0, rig.epochs.view));
        assert_eq!(rig.volume.allocated(), 4 * COPIES * EXTENT);
    });
}

#[test]
fn a_gone_maps_space_is_all_surplus() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 2).await;
        rig.write_extents(4, 1).await;
        let drive = rig.engine.drive(DriveId(1)).unwrap();
        assert_eq!(rig.engine.surplus_on(&drive, |_| true), 0);
        let other = Engine::new(rig.world.clone(), rig.authority.clone());
        assert_eq!(other.surplus_on(&drive, |map| map == MapId(1)), 0, "its volume isn't opened yet");
        assert_eq!(other.surplus_on(&drive, |_| false), 4 * EXTENT);
    });
}
