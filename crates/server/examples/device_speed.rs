//! What a drive's reads cost through its device: `device_speed PATH [uring|plain|memory] [DEPTH] [THREADS] [SECONDS]`.
//!
//! Random reads of 4 KiB from all of the drive, at a depth on each data thread. Prints operations a second, and CPU time
//! of the whole process for each, the kernel's part included.

use std::error::Error;
use std::time::{Duration, Instant};
use tepal_drive::world::{Device, Random};
use tepal_model::{BLOCK, Buffer};
use tepal_server::data_threads::DataThreads;
use tepal_server::device::{Backend, DriveDevice, OpenOptions};
use tepal_server::world::ServerWorld;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize, default: u64| arguments.get(place).map_or(Ok(default), |text| text.parse());
    let path = arguments.first().ok_or("usage: device_speed PATH [uring|plain|memory] [DEPTH] [THREADS] [SECONDS]")?;
    let backend = match arguments.get(1).map(String::as_str) {
        Some("uring") => Some(Backend::Uring),
        Some("plain") => Some(Backend::Plain),
        Some("memory") => Some(Backend::MemoryFile),
        _ => None,
    };
    let (depth, count, seconds) = (number(2, 32)?, number(3, 1)?, number(4, 3)?);
    let drive = DriveDevice::open(path, OpenOptions { writable: false, backend })?;
    println!("{}: {}", drive.backend(), drive.backend_reason());

    let threads = DataThreads::start(count as usize)?;
    let (started, cpu) = (Instant::now(), cpu_time());
    let running: Vec<_> = (0..count as usize)
        .map(|thread| {
            let drive = drive.clone();
            let until = started + Duration::from_secs(seconds);
            threads.run_on(thread, move || async move {
                let tasks: Vec<_> =
                    (0..depth).map(|_| tokio::task::spawn_local(read_until(drive.clone(), until))).collect();
                futures_util::future::join_all(tasks).await.into_iter().map(Result::unwrap_or_default).sum::<u64>()
            })
        })
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let done = runtime.block_on(futures_util::future::join_all(running));
    let operations: u64 = done.into_iter().sum::<Result<u64, _>>()?;
    let (elapsed, cpu) = (started.elapsed(), cpu_time() - cpu);
    println!(
        "depth {depth} on {count} threads: {:.0} reads/s, {:.2} us of CPU each",
        operations as f64 / elapsed.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / operations as f64
    );
    Ok(())
}

async fn read_until(drive: DriveDevice, until: Instant) -> u64 {
    let blocks = drive.size() / BLOCK;
    let mut done = 0;
    while Instant::now() < until {
        let offset = ServerWorld.next_u64() % blocks * BLOCK;
        if drive.read(offset, Buffer::take(BLOCK as usize)).await.is_err() {
            break;
        }
        done += 1;
        if done % 64 == 0 {
            tokio::task::yield_now().await; // a read from memory never waits
        }
    }
    done
}

/// CPU time of this process so far, user and system.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
