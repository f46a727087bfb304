//! One table of behaviours for all back-ends.

use super::{Subject, on_data_thread, pattern, spoiled, subjects};
use crate::device::DriveDevice;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::join_all;
use tepal_drive::world::{Device, DeviceError, Gather};
use tepal_model::{BLOCK, Buffer};

const SIZE: u64 = 64 << 20;
const PAGE: usize = BLOCK as usize;

/// Shows a behaviour on every subject, and names the one that lacks it.
fn every_backend(behaviour: impl AsyncFn(&DriveDevice)) {
    for Subject { name, drive, .. } in &subjects(SIZE) {
        println!("{name}: {} ({})", drive.backend(), drive.backend_reason());
        on_data_thread(behaviour(drive));
    }
}

fn gather(pieces: impl IntoIterator<Item = Bytes>) -> Gather {
    pieces.into_iter().collect()
}

fn aligned(data: &[u8]) -> Gather {
    gather([Buffer::copy_of(data).freeze()])
}

async fn read(drive: &DriveDevice, offset: u64, length: usize) -> Buffer {
    drive.read(offset, spoiled(length)).await.expect("a read")
}

#[test]
fn what_was_written_is_read() {
    every_backend(async |drive| {
        assert_eq!(drive.size(), SIZE);
        let lengths = [PAGE, 2 * PAGE, 3 * PAGE, 64 << 10, (64 << 10) + PAGE, 1 << 20, (1 << 20) + PAGE, 9 << 20];
        for (seed, length) in (1..).zip(lengths) {
            for offset in [0, BLOCK, 7 * BLOCK, (16 << 20) - BLOCK, SIZE - length as u64] {
                let data = pattern(seed ^ offset, length);
                drive.write(offset, aligned(&data)).await.expect("a write");
                assert!(read(drive, offset, length).await[..] == data, "{offset}+{length}");
            }
        }
        assert!(read(drive, 40 << 20, PAGE).await.iter().all(|&byte| byte == 0), "never written");
        drive.flush().await.expect("a flush");
    });
}

#[test]
fn pieces_are_written_one_after_another_wherever_they_are_in_memory() {
    every_backend(async |drive| {
        let cases: [&[usize]; 7] = [
            &[PAGE; 2],
            &[PAGE, 3 * PAGE, 2 * PAGE, PAGE, PAGE],
            &[100, PAGE - 100],
            &[1, PAGE, PAGE - 1],
            &[0, PAGE, 0],
            &[PAGE; 1025],
            &[PAGE; 3000],
        ];
        for (case, lengths) in cases.iter().enumerate() {
            for shift in [0, 1, 2, 8, 512, 1000] {
                let length: usize = lengths.iter().sum();
                let data = pattern((case * 10_000 + shift) as u64, length);
                let mut moved = vec![0; shift];
                moved.extend_from_slice(&data);
                let memory = Buffer::copy_of(&moved).freeze();
                let mut at = shift;
                let pieces = gather(lengths.iter().map(|length| {
                    at += length;
                    memory.slice(at - length..at)
                }));
                drive.write(BLOCK, pieces).await.expect("a write");
                assert!(read(drive, BLOCK, length).await[..] == data, "case {case} shifted by {shift}");
            }
        }
    });
}

#[test]
fn the_later_of_two_writes_wins_where_they_overlap() {
    every_backend(async |drive| {
        let mut expected = vec![0; 64 * PAGE];
        for step in 0..200u64 {
            let (first, blocks) = ((step * 7 % 60) as usize, 1 + (step % 4) as usize);
            let data = pattern(step + 1, blocks * PAGE);
            expected[first * PAGE..][..data.len()].copy_from_slice(&data);
            drive.write((first * PAGE) as u64, aligned(&data)).await.expect("a write");
        }
        assert!(read(drive, 0, expected.len()).await[..] == expected);
    });
}

#[test]
fn many_operations_at_once_all_end_rightly() {
    every_backend(async |drive| {
        for round in 0..4u64 {
            // More than the ring's submission queue, and in one round more than the kernel is given at a time.
            let count = if round == 3 { 3001 } else { 256 << round };
            let place = |i: u64| (i * 5 % count) * BLOCK;
            let writes = (0..count).map(|i| drive.write(place(i), aligned(&pattern(round ^ (i << 8), PAGE))));
            assert!(join_all(writes).await.into_iter().all(|outcome| outcome.is_ok()), "round {round}");
            let reads = (0..count).map(|i| drive.read(place(i), spoiled(PAGE)));
            for (i, read) in (0..).zip(join_all(reads).await) {
                assert!(read.expect("a read")[..] == pattern(round ^ (i << 8), PAGE), "round {round}, operation {i}");
            }
        }
    });
}

#[test]
fn a_dropped_future_harms_nobody() {
    every_backend(async |drive| {
        drive.write(0, aligned(&pattern(1, 1 << 20))).await.expect("a write");
        for step in 0..500u64 {
            // Begun by one poll, then dropped, while the memory of earlier ones is used again.
            let _ = drive.read(step % 200 * BLOCK, spoiled(PAGE)).now_or_never();
            let _ = drive.write((32 << 20) + step * BLOCK, aligned(&pattern(step, PAGE))).now_or_never();
            let _ = drive.flush().now_or_never();
            if step % 10 == 0 {
                let buffers: Vec<Buffer> = (0..32).map(|_| spoiled(PAGE)).collect();
                tokio::task::yield_now().await;
                assert!(buffers.iter().all(|buffer| buffer.iter().all(|&byte| byte == 0xee)), "step {step}");
            }
        }
        assert!(read(drive, 0, 1 << 20).await[..] == pattern(1, 1 << 20));
    });
}

#[test]
fn operations_of_many_tasks_are_all_woken() {
    every_backend(async |drive| {
        let tasks: Vec<_> = (0..64u64)
            .map(|task| {
                let drive = drive.clone();
                tokio::task::spawn_local(async move {
                    for step in 0..50u64 {
                        let offset = (task * 50 + step) * BLOCK;
                        let data = pattern(offset + 1, PAGE);
                        drive.write(offset, aligned(&data)).await.expect("a write");
                        assert!(read(&drive, offset, PAGE).await[..] == data, "task {task}, step {step}");
                        if step % 25 == 0 {
                            drive.flush().await.expect("a flush");
                        }
                    }
                })
            })
            .collect();
        join_all(tasks).await.into_iter().for_each(|task| task.expect("no panic"));
    });
}

#[test]
fn any_thread_may_use_any_drive() {
    for Subject { name, drive, .. } in &subjects(SIZE) {
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || {
                    on_data_thread(async {
                        for step in 0..50 {
                            let offset = (step * 4 + thread) * BLOCK;
                            drive.write(offset, aligned(&pattern(offset + 1, PAGE))).await.expect("a write");
                        }
                    });
                });
            }
        });
        on_data_thread(async {
            for block in 0..200 {
                let offset = block * BLOCK;
                assert!(read(drive, offset, PAGE).await[..] == pattern(offset + 1, PAGE), "{name}, block {block}");
            }
        });
    }
}

#[test]
fn discarded_bytes_are_writable_again_and_their_neighbours_stay() {
    every_backend(async |drive| {
        let data = pattern(3, 3 << 20);
        drive.write(0, aligned(&data)).await.expect("a write");
        drive.discard(1 << 20, 1 << 20).await.expect("a discard");
        assert!(read(drive, 0, 1 << 20).await[..] == data[..1 << 20]);
        assert!(read(drive, 2 << 20, 1 << 20).await[..] == data[2 << 20..]);
        drive.write(1 << 20, aligned(&data[..PAGE])).await.expect("a write");
        assert!(read(drive, 1 << 20, PAGE).await[..] == data[..PAGE]);
    });
}

#[test]
fn nothing_past_the_end_is_touched() {
    every_backend(async |drive| {
        let reaches = |error| matches!(error, Some(DeviceError::Failed { .. }));
        for offset in [SIZE, SIZE - BLOCK, u64::MAX - BLOCK + 1, u64::MAX - 2 * BLOCK + 1] {
            let length = 2 * PAGE;
            assert!(reaches(drive.read(offset, spoiled(length)).await.err()), "read at {offset}");
            assert!(reaches(drive.write(offset, aligned(&vec![1; length])).await.err()), "write at {offset}");
            assert!(reaches(drive.discard(offset, length as u64).await.err()), "discard at {offset}");
        }
        assert!(read(drive, SIZE - BLOCK, PAGE).await.iter().all(|&byte| byte == 0));
    });
}

#[test]
fn nothing_is_done_at_once_and_rightly() {
    every_backend(async |drive| {
        assert_eq!(drive.read(SIZE, spoiled(0)).await.expect("a read").len(), 0);
        drive.write(SIZE, gather([])).await.expect("a write");
        drive.write(0, gather([Bytes::new()])).await.expect("a write");
        drive.discard(SIZE, 0).await.expect("a discard");
    });
}

#[test]
fn an_emulated_drive_takes_its_time_and_keeps_nobody_from_working_meanwhile() {
    let slow = |model: &str| DriveDevice::memory(SIZE).emulate(model.parse().expect("a model"));
    // What so many reads at once take: at least; and by far less than one after another.
    let cases = [("read=5ms", 1, 5, 10_000), ("read=100ms", 100, 100, 5_000), ("iops=1000", 100, 100, 10_000)];
    for (model, reads, least, most) in cases {
        let drive = slow(model);
        let started = std::time::Instant::now();
        on_data_thread(join_all((0..reads).map(|_| drive.read(0, spoiled(PAGE)))));
        let millis = started.elapsed().as_millis();
        assert!((least..most).contains(&millis), "{model}: {millis} ms");
    }
    assert!(slow("nvme").emulated().is_some_and(|model| model.to_string().starts_with("read=80us")));
}

#[test]
fn a_file_that_was_cut_short_is_a_device_that_is_gone() {
    for Subject { name, drive, _file: file, .. } in &subjects(SIZE) {
        let Some(file) = file else { continue };
        let cut = std::fs::OpenOptions::new().write(true).open(&file.0).expect("the file");
        // Also where the end is now inside of a block.
        for end in [SIZE - 8 * BLOCK, SIZE - 8 * BLOCK - 1000, 0] {
            cut.set_len(end).expect("cut short");
            let outcome = on_data_thread(drive.read(SIZE - 16 * BLOCK, spoiled(16 * PAGE)));
            assert!(matches!(outcome, Err(DeviceError::Gone(_))), "{name} cut to {end}: {outcome:?}");
        }
    }
}
