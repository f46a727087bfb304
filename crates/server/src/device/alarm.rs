//! Waiting with the precision of a kernel timer. tokio's own timers count whole milliseconds, and an emulated NVMe drive
//! answers in a tenth of one.

use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Handle, Id};

/// Alarms that nobody waits for, and the runtime that they are registered with.
struct Idle {
    runtime: Id,
    alarms: Vec<AsyncFd<OwnedFd>>,
}

thread_local! {
    static IDLE: RefCell<Option<Idle>> = const { RefCell::new(None) };
}

pub(super) async fn wait_until(due: Instant) {
    if due <= Instant::now() {
        return;
    }
    if ring_until(due).await.is_err() {
        // No descriptor was left for a timer: a less precise one will do.
        tokio::time::sleep_until(due.into()).await;
    }
}

async fn ring_until(due: Instant) -> io::Result<()> {
    let runtime = Handle::current().id();
    let idle = IDLE.with_borrow_mut(|idle| idle.as_mut().filter(|idle| idle.runtime == runtime)?.alarms.pop());
    let alarm = match idle {
        Some(alarm) => alarm,
        None => {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
            // SAFETY: the descriptor is open and owned by the AsyncFd.
            unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE)? }
        }
    };
    let left = due.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
    let never = Timespec { tv_sec: 0, tv_nsec: 0 };
    let once = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    let setting = Itimerspec { it_interval: never, it_value: once };
    rustix::time::timerfd_settime(&alarm, TimerfdTimerFlags::empty(), &setting)?;
    loop {
        let mut ready = alarm.readable().await?;
        match rustix::io::read(&alarm, &mut [0u8; 8]) {
            Ok(_) => break,
            Err(Errno::AGAIN) => ready.clear_ready(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    IDLE.with_borrow_mut(|idle| match idle {
        Some(idle) if idle.runtime == runtime => idle.alarms.push(alarm),
        _ => *idle = Some(Idle { runtime, alarms: vec![alarm] }),
    });
    Ok(())
}
