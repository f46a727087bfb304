//! Who leads where the agreed state and a server's knowledge of its own drives are of different views.

use super::two_servers::{HOME, Two};
use super::*;
use crate::DriveStatus;
use tepal_drive::Loss;

fn leads(two: &Two) -> bool {
    two.volume.seats().iter().any(|seat| seat.group().is_some())
}

/// The other server is to lead by its second drive.
fn others_go_on_without_the_first(two: &Two) {
    two.follow(4, DriveStatus::Behind(2, 4), |now| {
        now.drives.get_mut(&DriveId(2)).unwrap().server = HOME;
        now.drives.get_mut(&DriveId(1)).unwrap().status = DriveStatus::Away(3);
    });
}

fn gone_on_without(drive: DriveId) -> Loss {
    Loss::Gone { drive, reason: "others have gone on without it".to_owned() }
}

/// Story: a server that had been started anew followed first the last state of its earlier process: that it leads. But
/// its drive had left since then, as the server knew by now. It led, and had the other drive, which had gone on alone,
/// marked as stale; its own drive was stale, too.
#[test]
fn a_state_before_its_drive_left_elects_no_server() {
    told(|world| async move {
        let two = Two::standing(world, [Standing::Behind(5), Standing::Current], Arc::default()).await;
        two.follow(3, DriveStatus::Up(2), |_| {});
        two.world.sleep(Duration::from_secs(2)).await;
        assert!(!leads(&two), "it leads by what was known in view 3");

        two.follow(7, DriveStatus::Up(2), |now| {
            now.drives.get_mut(&DriveId(1)).unwrap().status = DriveStatus::Behind(5, 7);
        });
        two.volume.write(0, Bytes::from(vec![1; BLOCK as usize]), true).await.unwrap();
        assert_eq!(join(&two.volume.read(0, BLOCK).await.unwrap())[0], 1);
    });
}

/// Story: one of two drives of a volume's only server had left when other servers began to use the volume. In the view
/// in which the drive left the server didn't lead, as if the view were from before, and as nothing changed it never
/// did.
#[test]
fn a_server_leads_even_when_its_drive_just_left() {
    told(|world| async move {
        let two = Two::new(world, Standing::Current, Arc::default()).await;
        two.home.add_absent_drive(DriveId(2), 3, true);
        two.follow(3, DriveStatus::Away(3), |now| now.drives.get_mut(&DriveId(2)).unwrap().server = HOME);
        two.volume.write(0, Bytes::from(vec![1; BLOCK as usize]), true).await.unwrap();
        assert_eq!(join(&two.volume.read(0, BLOCK).await.unwrap())[0], 1);
    });
}

/// Story: servers that couldn't reach a drive went on without it, and its own server, which still had it, was to lead.
/// Until that server let go of the drive, the drive was taken for a complete one.
#[test]
fn a_passed_over_drives_server_leads_after_letting_go() {
    told(|world| async move {
        let two = Two::new(world, Standing::Current, Arc::default()).await;
        two.home.add_absent_drive(DriveId(2), 2, true);
        others_go_on_without_the_first(&two);
        two.world.sleep(Duration::from_secs(2)).await;
        assert!(!leads(&two), "its drive is taken for one that has everything");
        two.home.lose_as_agreed(DriveId(1), gone_on_without(DriveId(1)), 3).await;
        two.world.sleep(Duration::from_secs(2)).await;
        assert!(leads(&two));
    });
}

/// Story: the same while the server let go of the drive: that takes as long as all maps take to mark what the drive
/// misses. What others had said of the drive was forgotten.
#[test]
fn no_server_leads_while_letting_go_of_its_drive() {
    told(|world| async move {
        let two = Two::new(world, Standing::Current, Arc::default()).await;
        two.home.add_absent_drive(DriveId(2), 2, true);
        two.home.lose_drive(DriveId(1), gone_on_without(DriveId(1))).await; // the leaving isn't agreed here, so it doesn't end
        others_go_on_without_the_first(&two);
        two.world.sleep(Duration::from_secs(2)).await;
        assert!(!leads(&two));
    });
}
