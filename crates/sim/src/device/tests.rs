use super::*;
use crate::executor::{Executor, Limits, Sleep};
use smallvec::smallvec;

const SIZE: u64 = 64 * BLOCK;

fn block(byte: u8) -> Gather {
    smallvec![Bytes::from(vec![byte; BLOCK as usize])]
}

/// Runs `story` with one drive of 64 blocks and the executor's core.
fn with_disk<F: Future<Output = T> + 'static, T: 'static>(seed: u64, story: impl FnOnce(SimDisk, Rc<Core>) -> F) -> T {
    let executor = Executor::new(seed, Limits::default(), false);
    let disk = SimDisk::new(executor.core(), "d0", SIZE);
    executor.run(story(disk, executor.core().clone())).unwrap()
}

async fn first_byte(device: &SimDevice, offset: u64) -> Result<u8, DeviceError> {
    device.read(offset, Buffer::take(BLOCK as usize)).await.map(|data| data[0])
}

#[test]
fn what_was_written_is_read_and_a_fresh_drive_holds_zeros() {
    with_disk(1, |disk, _| async move {
        let device = disk.open();
        let mut pieces = block(1);
        pieces.extend(block(2));
        device.write(8 * BLOCK, pieces).await.unwrap();
        let read = device.read(7 * BLOCK, Buffer::take(4 * BLOCK as usize)).await.unwrap();
        assert_eq!(read.chunks(BLOCK as usize).map(|b| b[9]).collect::<Vec<_>>(), [0, 1, 2, 0]);
        assert_eq!(disk.counters().bytes_written, 2 * BLOCK);
        assert!(disk.fault_log().struck.is_empty());
    });
}

#[test]
fn a_flushed_write_survives_every_power_cut_and_an_unflushed_one_not_always() {
    let mut lost = 0;
    for seed in 0..50 {
        lost += with_disk(seed, |disk, _| async move {
            let device = disk.open();
            device.write(0, block(1)).await.unwrap();
            device.flush().await.unwrap();
            device.write(BLOCK, block(2)).await.unwrap();
            disk.cut_power();
            let device = disk.open();
            assert_eq!(first_byte(&device, 0).await, Ok(1));
            u32::from(first_byte(&device, BLOCK).await == Ok(0))
        });
    }
    assert!((10..40).contains(&lost), "{lost}");
}

#[test]
fn a_kill_keeps_what_had_returned_and_ends_what_had_not_old_or_new_in_each_sector() {
    let (mut old, mut new, mut torn) = (0, 0, 0);
    for seed in 0..60 {
        let sectors = with_disk(seed, |disk, _| async move {
            let device = disk.open();
            device.write(0, block(1)).await.unwrap();
            let mut late = Box::pin(device.write(BLOCK, block(2)));
            assert!(futures_util::poll!(&mut late).is_pending());
            disk.process_killed();
            assert!(matches!(late.await, Err(DeviceError::Gone(_))));
            let device = disk.open();
            assert_eq!(first_byte(&device, 0).await, Ok(1));
            let read = device.read(BLOCK, Buffer::take(BLOCK as usize)).await.unwrap();
            read.chunks(SECTOR as usize).map(|sector| sector[0]).collect::<Vec<_>>()
        });
        old += u32::from(sectors == [0; 8]);
        new += u32::from(sectors == [2; 8]);
        torn += u32::from(sectors.contains(&0) && sectors.contains(&2));
    }
    assert!(old > 5 && new > 5 && torn > 5, "{old} {new} {torn}");
}

#[test]
fn a_write_goes_on_when_its_future_is_dropped() {
    with_disk(1, |disk, core| async move {
        let device = disk.open();
        let mut write = Box::pin(device.write(0, block(1)));
        assert!(futures_util::poll!(&mut write).is_pending());
        drop(write);
        Sleep::until(&core, Duration::from_secs(1)).await;
        assert_eq!(first_byte(&device, 0).await, Ok(1));
    });
}

#[test]
fn each_armed_fault_strikes_does_its_harm_and_is_logged() {
    let always = Rate::at_most(1, 1_000_000);
    with_disk(7, |disk, _| async move {
        let device = disk.open();
        device.write(0, block(1)).await.unwrap();

        disk.set_faults(Faults { lost_write: always, ..Faults::default() });
        device.write(0, block(2)).await.unwrap();
        assert_eq!(first_byte(&device, 0).await, Ok(1));
        assert_eq!(disk.fault_log().damaged().collect::<Vec<_>>(), [0]);
        device.write(0, block(3)).await.unwrap();
        assert_eq!(disk.fault_log().damaged().count(), 0, "writing again mends it");

        disk.set_faults(Faults { misdirected_write: always, ..Faults::default() });
        device.write(0, block(4)).await.unwrap();
        let FaultKind::MisdirectedWrite { landed } = disk.fault_log().struck[1].kind else { panic!("not misdirected") };
        assert_eq!(first_byte(&device, 0).await, Ok(3));
        assert_eq!(first_byte(&device, landed).await, Ok(4));
        assert_eq!(disk.fault_log().damaged().count(), 2);

        disk.set_faults(Faults { misdirected_read: always, ..Faults::default() });
        assert_ne!(first_byte(&device, 0).await, Ok(3));
        assert_eq!(first_byte(&device, 0).await, Ok(3));

        disk.set_faults(Faults { read_error: always, write_error: always, ..Faults::default() });
        assert!(first_byte(&device, 0).await.is_err());
        assert!(device.write(BLOCK, block(5)).await.is_err());
        assert_eq!(first_byte(&device, 0).await, Ok(3));
        assert_eq!(device.write(BLOCK, block(5)).await, Ok(()));

        disk.set_faults(Faults { flush_error: always, ..Faults::default() });
        assert!(device.flush().await.is_err());
        assert_eq!(device.flush().await, Ok(()));
        assert_eq!(disk.fault_log().struck.len(), 6);

        disk.rot(8 * BLOCK);
        let rotten = device.read(8 * BLOCK, Buffer::take(BLOCK as usize)).await.unwrap();
        assert!(rotten.iter().any(|&byte| byte != 0));
    });
}

#[test]
fn a_write_that_goes_astray_is_struck_in_one_place_and_lands_in_another() {
    let always = Rate::at_most(9, 1_000_000);
    with_disk(1, |disk, _| async move {
        let (device, within, astray) = (disk.open(), 0..8 * BLOCK, 32 * BLOCK..40 * BLOCK);
        disk.set_faults(Faults { misdirected_write: always, within, astray: astray.clone(), ..Faults::default() });
        device.write(8 * BLOCK, block(1)).await.unwrap();
        assert_eq!(first_byte(&device, 8 * BLOCK).await, Ok(1), "it's outside");
        device.write(0, block(2)).await.unwrap();
        let FaultKind::MisdirectedWrite { landed } = disk.fault_log().struck[0].kind else { panic!("not misdirected") };
        assert!(astray.contains(&landed));
        let long: Gather = (0..8).flat_map(block).collect();
        disk.set_faults(Faults { misdirected_write: always, astray: 0..4 * BLOCK, ..Faults::default() });
        device.write(8 * BLOCK, long).await.unwrap();
        assert_eq!(first_byte(&device, 9 * BLOCK).await, Ok(1), "it doesn't fit anywhere else");
    });
}

#[test]
fn damage_to_a_log_is_sure_to_be_seen_once_the_log_has_gone_on() {
    with_disk(1, |disk, _| async move {
        let device = disk.open();
        disk.watch_log(4 * BLOCK..8 * BLOCK);
        disk.rot(9 * BLOCK);
        assert!(!disk.log_end_is_unsure(), "it's outside");
        disk.rot(5 * BLOCK);
        for round in 0..3 {
            assert!(disk.log_end_is_unsure(), "round {round}");
            device.write(6 * BLOCK, block(1)).await.unwrap();
            device.flush().await.unwrap();
            device.flush().await.unwrap(); // nothing new
        }
        assert!(!disk.log_end_is_unsure());
    });
}

#[test]
fn unreadable_bytes_stay_so_until_they_are_written() {
    with_disk(1, |disk, _| async move {
        let device = disk.open();
        let bad = 2 * BLOCK..2 * BLOCK + SECTOR;
        disk.set_faults(Faults { unreadable: vec![bad], ..Faults::default() });
        for _ in 0..3 {
            assert!(first_byte(&device, 2 * BLOCK).await.is_err());
        }
        assert_eq!(first_byte(&device, 3 * BLOCK).await, Ok(0));
        device.write(2 * BLOCK, block(1)).await.unwrap();
        assert_eq!(first_byte(&device, 2 * BLOCK).await, Ok(1));
    });
}

#[test]
fn a_pulled_drive_is_gone_until_it_is_put_back_and_opened_again() {
    with_disk(1, |disk, _| async move {
        let before = disk.open();
        before.write(0, block(1)).await.unwrap();
        before.flush().await.unwrap();
        disk.pull();
        assert!(matches!(first_byte(&before, 0).await, Err(DeviceError::Gone(_))));
        assert!(matches!(disk.open().flush().await, Err(DeviceError::Gone(_))));
        disk.plug_in();
        assert!(matches!(first_byte(&before, 0).await, Err(DeviceError::Gone(_))));
        assert_eq!(first_byte(&disk.open(), 0).await, Ok(1));
    });
}

#[test]
fn an_image_is_a_drive_of_its_own() {
    with_disk(1, |disk, core| async move {
        let device = disk.open();
        device.write(0, block(1)).await.unwrap();
        let clone = SimDisk::from_image(&core, "clone", &disk.image());
        device.write(0, block(2)).await.unwrap();
        assert_eq!(first_byte(&clone.open(), 0).await, Ok(1));
        disk.restore(&clone.image());
        assert_eq!(first_byte(&disk.open(), 0).await, Ok(1));
    });
}

#[test]
fn operations_overtake_each_other_and_a_slow_drive_is_slow() {
    let time = |slowdown| {
        with_disk(3, |disk, core| async move {
            disk.set_faults(Faults { slowdown, ..Faults::default() });
            let device = disk.open();
            let order = Rc::new(RefCell::new(Vec::new()));
            let one = |i: u64| {
                let (device, order) = (device.clone(), order.clone());
                async move {
                    device.write(i * BLOCK, block(i as u8)).await.unwrap();
                    order.borrow_mut().push(i);
                }
            };
            futures_util::future::join_all((0..20).map(one)).await;
            assert!(!order.borrow().is_sorted());
            core.now()
        })
    };
    assert!(time(50) > 20 * time(1));
}

#[test]
#[should_panic(expected = "read of 1+4096")]
fn an_unaligned_request_is_a_bug_of_the_caller() {
    with_disk(1, |disk, _| async move { disk.open().read(1, Buffer::take(4096)).await.map(drop) }).unwrap();
}
