//! Schedules as users see them: snapshots at their times, those that aren't kept any more removed, volumes scrubbed in time, whatever
//! happens to servers.

mod commands;
mod held;
mod missed;
mod scrubs;
mod servers;

use crate::program::{Ended, until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

/// However busy the machine is.
const SETTLE: Duration = Duration::from_secs(120);

/// The rows of a query's answer.
fn rows(said: &Value) -> Vec<Vec<Value>> {
    let rows = said["rows"].as_array().expect("rows").iter();
    rows.map(|row| row.as_array().expect("a row").clone()).collect()
}

/// The times of the snapshots that schedules have made, in seconds since 1970; each once, or it panics.
fn times(ask: impl Fn(&[&str]) -> Value) -> BTreeSet<u64> {
    let rows = rows(&ask(&["sql", "select due_s from schedule_snapshots"]));
    let times: Vec<u64> = rows.iter().filter_map(|row| row[0].as_u64()).collect();
    let set: BTreeSet<u64> = times.iter().copied().collect();
    assert_eq!(set.len(), times.len(), "a time has two snapshots: {times:?}");
    set
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    until(what, SETTLE, || is_so().then_some(()));
}

/// What was said to be made.
fn made(ended: Ended) -> Vec<String> {
    let said = ended.succeeded();
    let made = said.lines().filter_map(|line| line.strip_prefix("snapshot ")?.strip_suffix(" is made"));
    made.map(str::to_owned).collect()
}
