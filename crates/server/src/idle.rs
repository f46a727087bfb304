//! Whether a thread is really left alone, for tests.

use std::fs;
use std::time::Duration;

/// Longer than any period at which something would look again and again.
const LONG: Duration = Duration::from_millis(300);
/// A page that must be fetched, or a debugger, wakes a thread too, but not for ever.
const LOOKS: u32 = 20;

/// Fails unless the thread, of this process, gets to sleep for a long time without waking once.
pub fn assert_sleeps(thread: i32) {
    let switches = || {
        let status = fs::read_to_string(format!("/proc/self/task/{thread}/status")).expect("the thread lives");
        status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).expect("a Linux machine").to_owned()
    };
    let slept = |_| {
        let before = switches();
        std::thread::sleep(LONG);
        switches() == before
    };
    assert!((0..LOOKS).any(slept), "the thread wakes at least once every {LONG:?}");
}
