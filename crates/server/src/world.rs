//! The production side of the injected world: the machine's clock and randomness, tokio's tasks, and real drives.

use crate::observed::metered::MeteredDevice;
use crate::slow::{self, Kind, Step};
use futures_util::future::LocalBoxFuture;
use std::cell::RefCell;
use std::sync::LazyLock;
use std::time::Duration;
use tepal_drive::world::{Clock, Random, Spawn, Tick, World};
use tokio::time::Instant;

/// The world of a data thread: a tokio runtime inside a `LocalSet`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerWorld;

/// All ticks of this process count from here.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Clock for ServerWorld {
    fn now(&self) -> Tick {
        let start = *START; // made by the first call, which then is its own start
        Tick(Instant::now().duration_since(start))
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// Random numbers asked of the kernel at a time.
const BATCH: usize = 64;

struct Drawn {
    bytes: [u8; BATCH * 8],
    used: usize,
}

thread_local! {
    static DRAWN: RefCell<Drawn> = const { RefCell::new(Drawn { bytes: [0; BATCH * 8], used: BATCH * 8 }) };
}

impl Random for ServerWorld {
    /// The kernel's own random numbers, fetched in batches: fit for ids that nobody may guess, and with no seed to keep.
    fn next_u64(&self) -> u64 {
        DRAWN.with_borrow_mut(|drawn| {
            if drawn.used == drawn.bytes.len() {
                fill(&mut drawn.bytes);
                drawn.used = 0;
            }
            let number = &mut drawn.bytes[drawn.used..drawn.used + 8];
            drawn.used += 8;
            let value = u64::from_le_bytes((&*number).try_into().expect("eight bytes"));
            number.fill(0); // given once, kept nowhere
            value
        })
    }
}

fn fill(bytes: &mut [u8]) {
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(more) => filled += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => panic!("this machine gives no random numbers, so no id would be unique: {errno}"),
        }
    }
}

impl Spawn for ServerWorld {
    fn spawn(&self, work: LocalBoxFuture<'static, ()>) {
        tokio::task::spawn_local(work);
    }

    async fn give_way(&self) {
        tokio::task::yield_now().await; // tokio looks at its sockets and rings before it goes on
    }
}

impl World for ServerWorld {
    type Device = MeteredDevice;

    fn seen<F: Future>(&self, name: &'static str, wait: F) -> impl Future<Output = F::Output> {
        slow::step(move || Step::new(name, Kind::Internal), wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn random_numbers_of_all_threads_differ() {
        let draw = || (0..10 * BATCH).map(|_| ServerWorld.next_u64()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(draw)).collect();
        let drawn: Vec<u64> = threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
        assert_eq!(drawn.iter().collect::<HashSet<_>>().len(), drawn.len());
        let ones: u32 = drawn.iter().map(|number| number.count_ones()).sum();
        assert!((ones as f64 / (drawn.len() * 64) as f64 - 0.5).abs() < 0.02);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn the_clock_goes_on_by_at_least_what_was_slept() {
        let before = ServerWorld.now();
        ServerWorld.sleep(Duration::from_millis(5)).await;
        assert!(ServerWorld.now().0 - before.0 >= Duration::from_millis(5));
    }
}
