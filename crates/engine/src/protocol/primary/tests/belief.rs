//! Which copy is believed when the drive that knew most leaves in the middle: each story once broke a promise.

use super::*;

/// A drive has its cache flushed by nobody, and loses it.
async fn unplug(rig: &Rig, nth: usize) {
    rig.disks[nth].pull();
    rig.lose(nth).await;
    rig.disks[nth].plug_in();
}

/// The second drive loses a write that both had, while the first isn't known to be up; that is told before or after long.
async fn the_second_loses_what_both_had(rig: Rig, is_told_before: bool) {
    rig.lose(0).await;
    rig.write(0, 1, 1).await.unwrap();
    let told_up = rig.gate(0);
    rig.bring_back(0).await;
    rig.secs(8).await;
    assert!(rig.missed(0).is_empty() && !rig.is_up(0), "it has caught up, and isn't said to be up");
    rig.write(256, 2, 1).await.unwrap();
    unplug(&rig, 1).await;
    if is_told_before {
        told_up.send(()).unwrap();
        rig.secs(10).await;
    } else {
        rig.secs(10).await;
        drop(told_up);
    }
    rig.bring_back(1).await;
    rig.until_healthy().await;
    let summary = rig.volume.scrub(|_| {}).await.unwrap();
    assert_eq!(summary.unequal_extents, 0, "clean copies differ");
}

#[test]
fn copies_are_compared_although_the_drive_that_knew_more_was_away_for_long() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2;durability=flush", 2).await;
        the_second_loses_what_both_had(rig, false).await;
    });
}

#[test]
fn copies_are_compared_although_the_other_was_up_before_the_one_that_knew_more_was_back() {
    told(|world| async move {
        let rig = Rig::new(world, "mirror:2;durability=flush", 2).await;
        the_second_loses_what_both_had(rig, true).await;
    });
}
