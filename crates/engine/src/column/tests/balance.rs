//! Which copy is read, where one copy is another server's.

use super::two_servers::Two;
use super::*;
use crate::DriveStatus;
use futures_util::future::join_all;
use tepal_sim::device::Faults;

const BLOCKS: u64 = 256;

#[test]
fn reads_stay_local_until_another_drive_is_idler() {
    told(|world| async move {
        let two = Two::new(world, Standing::Current, Arc::default()).await;
        two.follow(3, DriveStatus::Up(2), |_| {});
        let volume = &two.volume;
        volume.write(0, Bytes::from(vec![1; (BLOCKS * BLOCK) as usize]), false).await.unwrap();
        for drive in two.drives() {
            drive.checkpoint().await.unwrap();
        }

        for block in 0..BLOCKS {
            volume.read(block * BLOCK, BLOCK).await.unwrap();
        }
        assert_eq!(two.post.take_reads(), 0, "both drives were idle each time");

        let all_at_once = || join_all((0..64).map(|block| volume.read(block * 4 * BLOCK, BLOCK)));
        two.disk.set_faults(Faults { slowdown: 10, ..Faults::default() });
        all_at_once().await.into_iter().for_each(|read| drop(read.unwrap()));
        let shared = two.post.take_reads();
        assert!(shared >= 16, "{shared} of 64 went there");
    });
}
