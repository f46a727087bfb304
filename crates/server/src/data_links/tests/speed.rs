//! What a request costs. Times are shown, and not judged: machines differ.

use super::rig::*;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::time::{Duration, Instant};
use tepal_engine::Peers;

fn processor_time() -> Duration {
    let mut usage = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    usage.tv_sec = usage.tv_sec.max(0);
    Duration::new(usage.tv_sec as u64, usage.tv_nsec as u32)
}

#[test]
fn requests_between_two_threads_and_their_processor_time() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for place in [socket(), tcp()] {
            let server = Server::start(&place, 1).await;
            let asker = Asker::to(&server.address);
            assert!(asker.ask(0, read(1, 1)).await.is_ok());
            for (what, question, at_once, total) in [
                ("reads of 4 KiB", read(1, 1), 1, 5_000),
                ("reads of 4 KiB", read(1, 1), 8, 20_000),
                ("reads of 4 KiB", read(1, 1), 64, 50_000),
                ("writes of 4 KiB", write(1, 1), 64, 50_000),
                ("reads of 256 KiB", read(1, 64), 16, 4_000),
                ("writes of 256 KiB", write(1, 64), 16, 4_000),
            ] {
                let (links, begin, used) = (asker.links.clone(), Instant::now(), processor_time());
                let done = asker.threads.run_on(0, move || async move {
                    let ask = || links.ask(ANSWERS, question.clone());
                    let mut under_way: FuturesUnordered<_> = (0..at_once).map(|_| ask()).collect();
                    let mut begun = at_once;
                    while let Some(reply) = under_way.next().await {
                        reply.expect("it's answered");
                        if begun < total {
                            begun += 1;
                            under_way.push(ask());
                        }
                    }
                    begun
                });
                assert_eq!(within(done).await, Ok(total));
                let (took, used) = (begin.elapsed(), processor_time() - used);
                let each = used.as_secs_f64() * 1e6 / f64::from(total);
                let rate = f64::from(total) / took.as_secs_f64();
                println!("{}: {what}, {at_once} at once: {rate:.0} a second, {each:.2} us of CPU each", server.address);
            }
        }
    });
}
