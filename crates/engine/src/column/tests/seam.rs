//! What every protocol that keeps a column has to do: the same stories, told with each protocol. A protocol that keeps
//! more than one fragment also has stories of its own.

use super::*;
use crate::protocol::{IS_CHECKED, Kept};
use tepal_model::Origin;
use tepal_wire::message::Tag;

/// Tells a story with a volume of which each part needs each of its drives, by each protocol.
fn told_by_each<F: Future<Output = ()> + 'static>(story: impl Fn(Rig) -> F + Clone + 'static) {
    for (kept, layout, drives) in
        [(Kept::Copies, "stripe", 2), (Kept::Checked, "stripe", 2), (Kept::Stripes, "ec:2+1;min_extra=1", 3)]
    {
        let story = story.clone();
        told(move |world| {
            let story = story.clone();
            async move {
                IS_CHECKED.set(kept == Kept::Checked);
                let rig = Rig::new(world, layout, drives).await;
                assert!(rig.volume.groups().iter().all(|group| group.shared.kept == kept));
                story(rig).await;
                IS_CHECKED.set(false);
            }
        });
    }
}

#[test]
fn written_bytes_are_read_and_cleared_bytes_are_zeros() {
    told_by_each(|rig| async move {
        let mut model = vec![0u8; 1 << 20];
        for (step, (at, length)) in
            [(0, 1), (4095, 2), (70_000, 200_000), (65_536, 65_536), (5, 4091)].into_iter().enumerate()
        {
            let data: Vec<u8> = (0..length).map(|byte| (byte * 7 + step) as u8).collect();
            model[at..at + length].copy_from_slice(&data);
            rig.volume.write(at as u64, data.into(), step % 2 == 0).await.unwrap();
        }
        rig.volume.trim(100_000, 50_000).await.unwrap();
        model[100_000..150_000].fill(0);
        rig.volume.write_zeroes(65_536, 10, true).await.unwrap();
        model[65_536..65_546].fill(0);
        assert_eq!(join(&rig.volume.read(0, 1 << 20).await.unwrap()), model);
    });
}

#[test]
fn requests_wait_until_an_absent_drive_returns() {
    told_by_each(|rig| async move {
        rig.write(0, 1, 32).await.unwrap();
        rig.lose(0).await;
        let both = futures_util::future::join(rig.write(0, 2, 32), rig.read(20));
        let return_later = async {
            rig.world.sleep(Duration::from_secs(1)).await;
            rig.bring_back(0).await;
        };
        let ((written, read), ()) = futures_util::future::join(both, return_later).await;
        written.unwrap();
        assert!([1, 2].contains(&read.unwrap()));
        assert_eq!((rig.read(0).await, rig.read(31).await), (Ok(2), Ok(2)));
    });
}

#[test]
fn acknowledged_writes_survive_a_power_loss() {
    told_by_each(|mut rig| async move {
        rig.write(3, 1, 40).await.unwrap();
        rig.volume.trim(5 * BLOCK, BLOCK).await.unwrap();
        rig.world.kill();
        rig.disks.iter().for_each(SimDisk::cut_power);
        rig.restart(|_| true).await;
        assert_eq!((rig.read(3).await, rig.read(5).await, rig.read(42).await), (Ok(1), Ok(0), Ok(1)));
    });
}

#[test]
fn a_snapshot_and_its_volume_show_their_own_data() {
    told_by_each(|mut rig| async move {
        rig.write(0, 1, 32).await.unwrap();
        rig.follow(&["0-1", "0-2"]);
        rig.write(7, 2, 1).await.unwrap();
        rig.volume.trim(8 * BLOCK, BLOCK).await.unwrap();
        assert_eq!((rig.read(7).await, rig.read(8).await), (Ok(2), Ok(0)));
        assert_eq!((rig.shown(1, 7).await, rig.shown(1, 8).await), (Ok(1), Ok(1)));
    });
}

#[test]
fn a_retried_request_runs_once() {
    told_by_each(|rig| async move {
        let group = rig.volume.seats()[0].group().unwrap();
        let ask = async |byte: u8, number: u64, is_in_doubt| {
            let origin = Origin { gateway: 1, slot: 2, number, view: 4 };
            let data = [Bytes::from(vec![byte; BLOCK as usize])].into_iter().collect();
            group.write(VolumeId(1), 0, data, false, Some(Tag { origin, is_in_doubt })).await
        };
        ask(1, 3, false).await.unwrap();
        let other = group.write(VolumeId(1), 0, [Bytes::from(vec![2; 4096])].into_iter().collect(), false, None);
        other.await.unwrap();
        ask(1, 3, true).await.unwrap();
        assert_eq!(rig.read(0).await, Ok(2), "the first one was done before");
    });
}

#[test]
fn the_status_names_held_blocks_and_no_others() {
    told_by_each(|rig| async move {
        rig.write(3, 1, 2).await.unwrap();
        let within = crate::Within { offset: 0, length: 8 << 20, limit: 10 };
        let runs = rig.volume.block_status(within).await.unwrap();
        let runs: Vec<(u64, bool)> = runs.into_iter().map(|run| (run.length / BLOCK, run.mapped)).collect();
        assert_eq!(runs, [(3, false), (2, true), ((8 << 20) / BLOCK - 5, false)]);
        rig.volume.trim(0, 8 << 20).await.unwrap();
        let runs = rig.volume.block_status(within).await.unwrap();
        assert!(matches!(runs.as_slice(), [run] if !run.mapped), "{runs:?}");
    });
}
