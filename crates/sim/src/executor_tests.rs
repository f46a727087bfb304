use super::*;
use crate::world::SimWorld;
use futures_channel::oneshot;
use std::time::Duration;
use tepal_drive::world::Clock;

fn executor(seed: u64) -> Executor {
    Executor::new(seed, Limits { steps: 10_000, time: Duration::from_secs(60) }, false)
}

/// Ten workers that sleep and count; returns the order in which they came.
fn a_busy_run(seed: u64) -> (Vec<u64>, u64) {
    let executor = executor(seed);
    let core = executor.core().clone();
    let order = executor
        .run(async move {
            let order = Rc::new(RefCell::new(Vec::new()));
            let world = SimWorld::boot(&core, "server");
            for worker in 0..10 {
                let (order, world) = (order.clone(), world.clone());
                world.clone().spawn_named("worker", async move {
                    for round in 0..3 {
                        world.sleep(Duration::from_micros(round)).await;
                        order.borrow_mut().push(worker);
                    }
                });
            }
            Sleep::until(&core, Duration::from_millis(1)).await;
            order.take()
        })
        .unwrap();
    (order, executor.trace_hash())
}

#[test]
fn one_seed_always_takes_the_same_steps_and_another_seed_others() {
    let (order, hash) = a_busy_run(1);
    assert_eq!(order.len(), 30);
    assert_eq!(a_busy_run(1), (order.clone(), hash));
    let (other_order, other_hash) = a_busy_run(2);
    assert_ne!(other_order, order);
    assert_ne!(other_hash, hash);
}

#[test]
fn virtual_time_jumps_to_the_next_timer() {
    let executor = executor(1);
    let core = executor.core().clone();
    let now = executor.run(async move {
        Sleep::until(&core, Duration::from_secs(50)).await;
        core.now()
    });
    assert_eq!(now, Ok(Duration::from_secs(50)));
    assert!(executor.core().steps() < 5);
}

#[test]
fn a_dropped_timer_neither_moves_time_nor_hides_a_deadlock() {
    let executor = executor(1);
    let core = executor.core().clone();
    let failure = executor.run(async move {
        let mut sleep = Box::pin(Sleep::until(&core, Duration::from_secs(50)));
        assert!(futures_util::poll!(&mut sleep).is_pending());
        drop(sleep);
        std::future::pending::<()>().await;
    });
    assert!(matches!(failure, Err(Failure::Deadlock { now: Duration::ZERO, .. })), "{failure:?}");
}

#[test]
fn a_deadlock_names_the_tasks_that_wait() {
    let executor = executor(1);
    let core = executor.core().clone();
    let failure = executor.run(async move {
        let world = SimWorld::boot(&core, "server");
        for _ in 0..2 {
            world.spawn_named("stuck-writer", std::future::pending());
        }
        std::future::pending::<()>().await;
    });
    let story = failure.unwrap_err().to_string();
    assert!(story.contains("deadlock") && story.contains("server#1/stuck-writer x2"), "{story}");
}

#[test]
fn a_livelock_is_reported_after_the_step_limit_and_endless_waiting_after_the_time_limit() {
    async fn spin() {
        loop {
            let mut polled = false;
            std::future::poll_fn(|context| {
                context.waker().wake_by_ref();
                if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    }
    assert!(matches!(executor(1).run(spin()), Err(Failure::Livelock { .. })));

    let patient = executor(1);
    let core = patient.core().clone();
    let failure = patient.run(async move {
        loop {
            Sleep::until(&core, core.now() + Duration::from_secs(1)).await;
        }
        #[allow(unreachable_code)]
        ()
    });
    assert!(matches!(failure, Err(Failure::Stuck { .. })), "{failure:?}");
}

#[test]
fn a_killed_machine_drops_its_tasks_where_they_are_and_starts_no_more() {
    struct TellDrop(Option<oneshot::Sender<()>>, SimWorld);
    impl Drop for TellDrop {
        fn drop(&mut self) {
            self.1.spawn_named("ghost", async { panic!("a dead machine ran something") });
            let _ = self.0.take().map(|tell| tell.send(()));
        }
    }
    let executor = executor(3);
    let core = executor.core().clone();
    let ended = executor.run(async move {
        let (tell, told) = oneshot::channel();
        let world = SimWorld::boot(&core, "server");
        let guard = TellDrop(Some(tell), world.clone());
        world.clone().spawn_named("victim", async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        });
        Sleep::until(&core, Duration::from_millis(5)).await;
        world.kill();
        world.spawn_named("ghost", async { panic!("a dead machine ran something") });
        let woken = told.await.is_ok();
        let sleeps = futures_util::poll!(Box::pin(world.sleep(Duration::ZERO))).is_pending();
        Sleep::until(&core, Duration::from_millis(9)).await;
        woken && sleeps
    });
    assert_eq!(ended, Ok(true));
}

#[test]
fn a_sleep_of_steps_ends_between_two_polls_of_others() {
    let executor = executor(4);
    let core = executor.core().clone();
    let steps = executor.run(async move {
        let world = SimWorld::boot(&core, "server");
        for _ in 0..4 {
            let world = world.clone();
            world.clone().spawn_named("ticker", async move {
                for _ in 0..1_000 {
                    world.sleep(Duration::from_micros(1)).await;
                }
            });
        }
        let before = core.steps();
        Sleep::steps(&core, 500).await;
        core.steps() - before
    });
    assert!((500..520).contains(&steps.unwrap()));
}

#[test]
fn a_broken_rule_ends_the_run_with_its_story() {
    let executor = executor(1);
    let core = executor.core().clone();
    let failure = executor.run(async move {
        core.fail("first".to_owned());
        core.fail("second".to_owned());
        std::future::pending::<()>().await;
    });
    assert_eq!(failure, Err(Failure::Broken { now: Duration::ZERO, story: "first".to_owned() }));
}

#[test]
fn a_paused_machine_takes_no_step_while_time_goes_on_and_then_does_what_became_ready() {
    let executor = executor(1);
    let core = executor.core().clone();
    let ticks = executor.run(async move {
        let (world, ticks) = (SimWorld::boot(&core, "server"), Rc::new(Cell::new(0)));
        let (own, count) = (world.clone(), ticks.clone());
        world.spawn_named("clock", async move {
            loop {
                own.sleep(Duration::from_millis(1)).await;
                count.set(count.get() + 1);
            }
        });
        let mut seen = Vec::new();
        for (at, pauses) in [(5, true), (50, false), (52, false)] {
            Sleep::until(&core, Duration::from_millis(at) + Duration::from_micros(500)).await;
            seen.push(ticks.get());
            match pauses {
                true => world.pause(),
                false => world.resume(),
            }
        }
        // One tick became ready while it was paused; the next comes a while after that.
        Sleep::until(&core, core.now() + Duration::from_millis(2)).await;
        world.pause();
        world.kill(); // as any other
        seen
    });
    let ticks = ticks.unwrap();
    assert_eq!(ticks[..2], [5, 5], "none while it was paused");
    assert!((6..9).contains(&ticks[2]), "{ticks:?}");
}
