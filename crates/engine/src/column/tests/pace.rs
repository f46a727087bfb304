//! How fast a volume goes to another layout: at its rate, and as clients let it.

use super::migrations::{Going, TARGET};
use super::*;
use crate::Migration;
use futures_util::future::{Either, join_all, select};
use std::cell::Cell;
use std::rc::Rc;
use tepal_model::CHUNK;

/// Blocks of each of the volume's chunks, one chunk of which is the first window.
const WRITTEN: usize = 1024;

/// A volume with data in the first window, which begins now, with that rate.
async fn begun(world: SimWorld, rate: Option<u64>) -> Going {
    let (going, mut begins) = Going::before(world, "mirror:2", "mirror:3").await;
    for chunk in 0..2 {
        going.rig.write(chunk * CHUNK / BLOCK, 1, WRITTEN).await.unwrap();
    }
    let (source, migration) = begins.migrations.pop_first().unwrap();
    begins.migrations.insert(source, Arc::new(Migration { rate, ..Migration::clone(&migration) }));
    going.follow(begins);
    going
}

async fn until_taken(going: &Going) -> Duration {
    let began = going.rig.world.now();
    going.until_taken().await;
    going.rig.world.now().0 - began.0
}

#[test]
fn a_migration_keeps_to_its_rate_when_that_changes() {
    told(|world| async move {
        let bytes = WRITTEN as u64 * BLOCK;
        for seconds in [2, 20] {
            let going = begun(world.clone(), Some(bytes / seconds)).await;
            let took = until_taken(&going).await.as_secs_f64() / seconds as f64;
            assert!((0.95..1.5).contains(&took), "{took} of {seconds} s");
        }
        let going = begun(world, Some(bytes / 1000)).await;
        going.rig.world.sleep(Duration::from_secs(5)).await;
        assert!(going.held(TARGET) < 3 * bytes, "not all of its copies are there");
        let mut now = going.now();
        let (source, migration) = now.migrations.pop_first().unwrap();
        now.migrations.insert(source, Arc::new(Migration { rate: None, ..Migration::clone(&migration) }));
        going.follow(now);
        assert!(until_taken(&going).await < Duration::from_secs(5));
    });
}

/// Story: only the clients of the target were counted, and in the beginning there are none. How long a drive takes is
/// up to chance, so all seeds are looked at together.
#[test]
fn clients_of_the_source_get_most_of_the_time() {
    let sums = Rc::new(Cell::new([Duration::ZERO; 2]));
    told(|world| {
        let sums = sums.clone();
        async move {
            let begun_on_slow_drives = async || {
                let going = begun(world.clone(), None).await;
                let slow = || Faults { slowdown: 20, ..Faults::default() };
                going.rig.disks.iter().for_each(|disk| disk.set_faults(slow()));
                going
            };
            let alone = until_taken(&begun_on_slow_drives().await).await;
            let going = begun_on_slow_drives().await;
            let client = async |first: u64| {
                loop {
                    going.rig.read(CHUNK / BLOCK + first).await.unwrap();
                }
            };
            let clients = join_all((0..16).map(client));
            let Either::Left((beside, _)) = select(Box::pin(until_taken(&going)), Box::pin(clients)).await else {
                panic!("clients read for ever")
            };
            let [of_alone, of_beside] = sums.get();
            sums.set([of_alone + alone, of_beside + beside]);
        }
    });
    let [alone, beside] = sums.get();
    assert!(beside > alone * 2, "{beside:?} beside clients, {alone:?} alone");
}
