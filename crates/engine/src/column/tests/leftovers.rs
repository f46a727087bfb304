//! Leftovers on one copy that the others don't have any more: they overwrite nothing, and hide nothing.

use super::clones::{CLONE, read, write};
use super::migrations::{Going, SOURCE, TARGET};
use super::*;
use crate::migration::Phase;
use crate::{ClusterView, Migration};
use tepal_codec::checksum::block_crcs;
use tepal_drive::Write;
use tepal_drive::world::Gather;
use tepal_model::{Lineage, Taking};

/// For copies to be made equal, and busy marks to be taken back.
const SETTLED: Duration = Duration::from_secs(10);

fn line(spans: &[(u32, u32)], own: u32) -> Lineage {
    Lineage::new(spans.iter().copied(), own).unwrap()
}

async fn write_to(drive: &Drive<SimWorld>, (map, first): (MapId, u64), byte: u8, lineage: &Lineage) {
    let data = Gather::from_iter([Bytes::from(vec![byte; BLOCK as usize])]);
    let crcs = data.iter().flat_map(|piece| block_crcs(piece)).collect::<Vec<u32>>().into();
    let (marks, taking) = (Vec::new(), Taking::Nothing);
    drive.write(Write { map, first, data, crcs, marks, durable: true, repair: false, taking, lineage }).await.unwrap();
}

/// Story: a drive was away while the oldest line of a piece was released, and back when the newer line was. There it
/// noted that the newer line hides the older. The note stayed when the older line was gone. When the volume came back,
/// its snapshot's data read as zeros on that drive.
#[test]
fn an_idle_note_hides_nothing_that_is_taken_over() {
    told(|world| async move {
        for nth in 0..3u64 {
            let world = SimWorld::boot(world.core(), "server");
            let (going, migrations) = Going::with_snapshot(world, (1, 1040)).await;
            let rig = &going.rig;
            let drive = rig.engine.drive(DriveId(nth + 1)).unwrap();
            going.follow(ClusterView { migrations: migrations.clone(), ..going.now() });
            going.until_taken().await;
            rig.world.sleep(SETTLED).await;
            // The chunk of the two that has yet to go.
            let is_left = |block: &u64| migrations[&SOURCE].phase(block * BLOCK) == Phase::Old;
            let at = [4, 1028].into_iter().find(is_left).unwrap();
            let target = rig.engine.map(TARGET).unwrap();
            let (column, offset) = target.striping().locate(at * BLOCK);
            let place = target.column(column).place(offset / BLOCK);
            let (older, newer) = (line(&[(0, 1)], 0), line(&[(0, 2)], 2));
            write_to(&drive, (TARGET, place), 7, &older).await;
            drive.clear(TARGET, (place, 1), Vec::new(), Taking::Nothing, &newer).await.unwrap();
            drive.uncover(TARGET, (place, 1), Taking::Nothing, &older).await.unwrap();
            going.move_on().await;
            going.move_on().await;
            rig.world.sleep(SETTLED).await;
            for left in 0..3 {
                for other in (0..3).filter(|other| *other != left) {
                    rig.lose(other).await;
                }
                assert_eq!(rig.read(at).await, Ok(1), "of drive {left}, with a note on drive {nth}");
                for other in (0..3).filter(|other| *other != left) {
                    rig.bring_back(other).await;
                }
                rig.until_healthy().await;
            }
        }
    });
}

/// Story: one copy had zeros of a clone where the other had nothing, and was away when the clone left: there was
/// nothing to be released. When that copy was back, and the other away, it handed its zeros over, onto the clone's
/// newer writes.
#[test]
fn one_copys_zeros_overwrite_nothing_with_the_other_away() {
    const AT: u64 = 600; // a region that has nothing else
    told(|world| async move {
        for has_zeros in 0..2 {
            let world = SimWorld::boot(world.core(), "server");
            let (mut going, mut begins) = Going::before(world, "mirror:2;extent=4M", "mirror:3").await;
            going.rig.write(0, 1, 40).await.unwrap();
            let clone = going.rig.cloned().await;
            let epochs = going.rig.epochs.clone();
            begins.epochs = [(SOURCE, epochs.clone()), (TARGET, epochs)].into();
            begins.volumes.insert(CLONE, SOURCE);
            let (source, agreed) = std::mem::take(&mut begins.migrations).pop_first().unwrap();
            going.follow(begins);
            let rig = &going.rig;
            let drive = rig.engine.drive(DriveId(has_zeros + 1)).unwrap();
            let source_map = rig.engine.map(SOURCE).unwrap();
            let (column, offset) = source_map.striping().locate(AT * BLOCK);
            let place = source_map.column(column).place(offset / BLOCK);
            write_to(&drive, (SOURCE, place), 0, &line(&[(0, 1), (3, 3)], 3)).await;
            let (this, other) = (has_zeros as usize, 1 - has_zeros as usize);
            rig.lose(this).await;
            let leaves = Migration { leaves: Some(CLONE), fence: agreed.chunks, ..Migration::clone(&agreed) };
            going.follow(ClusterView { migrations: [(source, Arc::new(leaves))].into(), ..going.now() });
            going.until_taken().await;
            write(&clone, AT, 9).await.unwrap();
            rig.world.sleep(SETTLED).await;
            rig.bring_back(this).await;
            rig.world.sleep(SETTLED).await;
            rig.lose(other).await;
            going.begin_window_anew();
            assert_eq!(read(&clone, AT).await, Ok(9), "zeros on drive {this}");
        }
    });
}
