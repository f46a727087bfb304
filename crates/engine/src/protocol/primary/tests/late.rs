//! What a primary says to another server's drive, and what has changed when it's heard there.

use super::two_servers::Two;
use super::*;
use crate::DriveStatus;

/// Story: a column was to be led anew, as a drive joined it, once what was under way had ended. The group of before, cut off, said meanwhile
/// that a drive which had returned knows what it misses: in the newer view, in which nobody had heard it yet.
#[test]
fn who_is_cut_off_vouches_for_nobody_in_the_newer_view() {
    told(|world| async move {
        let two = Two::new(world, Standing::Behind(2), Arc::default()).await;
        let behind = DriveStatus::Behind(2, 3);
        let is_found_up = |view| two.authority.found_up.lock().unwrap().contains(&view);
        two.follow(3, behind, |_| {});
        while !is_found_up(3) {
            two.world.sleep(Duration::from_millis(10)).await;
        }
        let under_way = two.volume.seats()[0].group().unwrap().every_turn().await;
        two.follow(4, behind, |now| {
            let mut joined = Places::clone(&now.places[&MapId(1)]);
            joined.columns[0].joins = Some(Placing { drive: DriveId(3), since: 4 });
            now.places = [(MapId(1), Arc::new(joined))].into();
        });
        two.world.sleep(Duration::from_secs(2)).await;
        assert!(!is_found_up(4), "whoever leads now hasn't heard it");
        drop(under_way);
        while !is_found_up(4) {
            two.world.sleep(Duration::from_millis(10)).await;
        }
    });
}
