//! Stories of requests that were sent again.

use super::{MAP, Rig};
use tepal_model::{Fate, Origin, Taken, Taking};

fn origin(number: u64) -> Origin {
    Origin { gateway: 1, slot: 2, number, view: 3 }
}

fn taken(rig: &Rig, number: u64) -> Vec<(u64, u64)> {
    match rig.drive.fate(origin(number), MAP, 0, 2000) {
        Fate::Known { taken } => taken.into_iter().map(|taken| (taken.first, taken.count)).collect(),
        other => panic!("{other:?}"),
    }
}

/// Story: all servers were restarted at once, and nobody knew any more which of the writes under way had been carried out: their
/// clients were told of errors.
#[test]
fn what_has_taken_a_request_is_known_after_a_power_loss_and_checkpoints() {
    let mut rig = Rig::new();
    // Through the log in several batches; to fresh slots; both.
    for (number, first, count) in [(1, 100, 3), (2, 40, 33), (3, 160, 64), (4, 321, 700)] {
        rig.write_of(origin(number), first, count);
        for checkpoints in 0..3 {
            assert_eq!(taken(&rig, number), [(first, count as u64)]);
            if checkpoints > 0 {
                rig.pool.run_until(rig.drive.checkpoint()).unwrap();
            }
            rig.device.lose_power();
            rig.reopen();
        }
    }
    rig.pool.run_until(rig.drive.clear(MAP, (320, 40), Vec::new(), Taking::Request(origin(5)), &rig.lineage)).unwrap();
    rig.reopen();
    assert_eq!(taken(&rig, 5), [(320, 40)]);
    assert_eq!(taken(&rig, 6), []);
    assert_eq!(rig.drive.fate(origin(4), MAP, 0, 2000), Fate::Superseded);
}

#[test]
fn what_is_made_equal_to_another_copy_has_taken_what_that_has() {
    let mut rig = Rig::new();
    rig.write_of(origin(1), 10, 10);
    let other = Taken { origin: Origin { gateway: 7, ..origin(9) }, first: 13, count: 2 };
    rig.pool.run_until(rig.drive.adopt(MAP, (12, 4), vec![other])).unwrap();
    for _ in 0..2 {
        assert_eq!(taken(&rig, 1), [(10, 2), (16, 4)]);
        assert_eq!(rig.drive.requests(MAP, 12, 4), [other]);
        rig.device.lose_power();
        rig.reopen();
    }
    rig.pool.run_until(rig.drive.remove_map(MAP)).unwrap();
    assert_eq!(rig.drive.requests(MAP, 0, u64::MAX), []);
}
