//! A thread that ends while its drives are at work.

use super::{Scratch, WRITABLE, on_data_thread, pattern, spoiled, subjects};
use crate::data_threads::DataThreads;
use crate::device::DriveDevice;
use futures_util::FutureExt;
use tepal_drive::world::Device;
use tepal_model::{BLOCK, Buffer};

const SIZE: u64 = 16 << 20;
const PAGE: usize = BLOCK as usize;

#[test]
fn what_was_begun_is_done_when_the_threads_have_stopped() {
    for subject in subjects(SIZE) {
        let threads = DataThreads::start(2).expect("threads");
        for thread in 0..2u64 {
            let drive = subject.drive.clone();
            let begin = move || async move {
                for i in 0..300 {
                    let offset = (i * 2 + thread) * BLOCK;
                    let data = [Buffer::copy_of(&pattern(offset + 1, PAGE)).freeze()].into_iter().collect();
                    let drive = drive.clone();
                    let mut write = Box::pin(async move { drive.write(offset, data).await });
                    if (&mut write).now_or_never().is_none() {
                        tokio::task::spawn_local(write);
                    }
                }
            };
            on_data_thread(threads.run_on(thread as usize, begin)).expect("the thread runs");
        }
        threads.stop();
        if subject.name.starts_with("plain") {
            continue; // what waits for one of its threads has not begun
        }
        on_data_thread(async {
            for block in 0..600 {
                let read = subject.drive.read(block * BLOCK, spoiled(PAGE)).await.expect("a read");
                assert!(read[..] == pattern(block * BLOCK + 1, PAGE), "{}, block {block}", subject.name);
            }
        });
    }
}

#[test]
fn a_thread_uses_a_drive_again_in_a_later_runtime() {
    for subject in subjects(SIZE) {
        for round in 0..3u64 {
            on_data_thread(async {
                let data = [Buffer::copy_of(&pattern(round, PAGE)).freeze()].into_iter().collect();
                subject.drive.write(0, data).await.expect("a write");
                let _ = subject.drive.read(0, spoiled(PAGE)).now_or_never(); // left behind
                let read = subject.drive.read(0, spoiled(PAGE)).await.expect("a read");
                assert!(read[..] == pattern(round, PAGE), "{}, round {round}", subject.name);
            });
        }
    }
}

#[test]
fn an_idle_ring_never_wakes_its_thread() {
    let file = Scratch::file("/var/tmp", SIZE);
    let drive = DriveDevice::open(&file.0, WRITABLE).expect("a drive");
    let threads = DataThreads::start(1).expect("threads");
    let read = move || async move {
        drive.read(0, spoiled(PAGE)).await.expect("a read");
        rustix::thread::gettid()
    };
    let thread = on_data_thread(threads.run_on(0, read)).expect("the thread runs");
    crate::idle::assert_sleeps(thread.as_raw_nonzero().get());
}
