//! A volume that its server had for itself is shared while it's used.

use super::*;
use crate::servers::follow::{Agreed, ClusterView, DriveStatus};
use futures_util::future::{Either, join_all, select};
use tepal_model::ServerId;

const ME: ServerId = ServerId(1);

fn all_up_in(view: View, drives: u64) -> Arc<ClusterView> {
    let agreed = Agreed { server: ME, status: DriveStatus::Up(1) };
    Arc::new(ClusterView {
        view,
        drives: (1..=drives).map(|id| (DriveId(id), agreed)).collect(),
        ..ClusterView::default()
    })
}

impl Rig {
    /// What the server does when the cluster gets a second one.
    async fn share(&self) {
        self.engine.follow(ME, &ClusterView::default(), &all_up_in(5, self.disks.len() as u64));
        self.engine.share_volume(VolumeId(1)).await;
    }
}

#[test]
fn sharing_a_volume_delays_requests_and_repeats_none() {
    told(|world| async move {
        for layout in ["mirror:2", "stripe", "mirror:2;durability=flush"] {
            let rig = Rig::new(world.clone(), layout, 3).await;
            let writes = async |block: u64| {
                for byte in 1..=20 {
                    rig.write(block, byte, 1).await.unwrap();
                    assert_eq!(rig.read(block).await.unwrap(), byte, "{layout}");
                }
            };
            let share = async {
                rig.world.sleep(Duration::from_millis(3)).await;
                rig.share().await;
                assert!(rig.volume.is_among());
                rig.volume.flush().await.unwrap();
            };
            futures_util::future::join(join_all((0..40).map(writes)), share).await;
            for block in 0..40 {
                assert_eq!(rig.read(block).await.unwrap(), 20);
            }
        }
    });
}

#[test]
fn acknowledged_data_is_stable_once_a_volume_is_shared() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2;durability=flush", 2).await;
        rig.write(3, 7, 1).await.unwrap();
        rig.share().await;
        let mut rig = rig;
        for disk in &rig.disks {
            disk.cut_power();
        }
        rig.restart(|_| true).await;
        assert_eq!(rig.read(3).await.unwrap(), 7);
    });
}

#[test]
fn a_shared_volumes_cut_off_data_stays_gone() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2", 3).await;
        rig.write(1000, 7, 20).await.unwrap();
        rig.share().await;
        rig.volume.resize(1005 * BLOCK);
        rig.volume.clear_past_end().await.unwrap();
        assert!(matches!(rig.read(1005).await, Err(IoError::OutOfRange { .. })));
        rig.volume.resize(8 << 20);
        for (block, byte) in [(1000, 7), (1004, 7), (1005, 0), (1019, 0)] {
            assert_eq!(rig.read(block).await.unwrap(), byte, "{block}");
        }
    });
}

/// Story: a write of a part of a block kept its turn while the only drive that had the rest was away. The volume was
/// shared only when that drive was back, and no later write of the column was begun until then.
#[test]
fn a_waiting_write_that_never_began_delays_no_sharing() {
    told(|world| async move {
        let rig = Rig::new(world, "stripe", 1).await;
        rig.write(3, 1, 1).await.unwrap();
        rig.lose(0).await;
        let write = rig.volume.write(3 * BLOCK, Bytes::from(vec![2; 512]), true);
        let share = async {
            rig.world.sleep(Duration::from_millis(10)).await;
            rig.within(5, rig.share()).await
        };
        match select(Box::pin(write), Box::pin(share)).await {
            Either::Left((written, _)) => panic!("its drive is away: {written:?}"),
            Either::Right((shared, _)) => assert_eq!(shared, Some(()), "it waits for the drive"),
        }
    });
}
