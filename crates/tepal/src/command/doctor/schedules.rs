//! Schedules: those that go wrong, that miss times, and that can't remove what they don't keep.

use super::findings::{Finding, Severity, count, named};
use super::seen::Seen;
use crate::output;
use std::time::Duration;
use tepal_server::api::types::ScheduleInfo;

/// What was missed before that is past.
const LATELY: Duration = Duration::from_secs(24 * 3600);

pub fn findings(seen: &Seen) -> Vec<Finding> {
    let each =
        |schedule: &ScheduleInfo| [wrong(schedule), missed(seen, schedule), unscrubbed(seen, schedule), held(schedule)];
    seen.schedules.iter().flat_map(each).flatten().collect()
}

fn subject(schedule: &ScheduleInfo) -> String {
    format!("schedule {}", schedule.name)
}

fn wrong(schedule: &ScheduleInfo) -> Option<Finding> {
    let error = schedule.error.as_ref()?;
    let what = format!("schedule {} went wrong: {error}", schedule.name);
    let why = "what it's for isn't done: snapshots are missing, or rot stays unnoticed";
    let finding = Finding::new(Severity::Warning, subject(schedule), what, why);
    let run = format!("tepal schedule run {}", schedule.name);
    Some(finding.hands("mend what the error names").run("then run it, or wait for its next time", run))
}

fn missed(seen: &Seen, schedule: &ScheduleInfo) -> Option<Finding> {
    let last = schedule.last_missed_unix_ms?;
    if Duration::from_millis(seen.now_ms.saturating_sub(last)) > LATELY {
        return None;
    }
    let (missed, at) = (count(usize::try_from(schedule.missed).unwrap_or(usize::MAX), "time"), output::time(last));
    let what = format!("schedule {} has missed {missed}, the last {at} UTC, and made up for that once", schedule.name);
    let why = "between its snapshots there is more time than was wanted";
    let finding = Finding::new(Severity::Remark, subject(schedule), what, why);
    let run = format!("tepal events --kind schedule --subject {}", schedule.name);
    Some(finding.run("see when; no majority of the servers was there then, or a clock jumped", run))
}

/// It's to be seen to within a time, which is over.
fn unscrubbed(seen: &Seen, schedule: &ScheduleInfo) -> Option<Finding> {
    let (oldest, within) = (schedule.oldest.as_ref()?, Duration::from_secs(schedule.rules.within_s?));
    let age = Duration::from_millis(seen.now_ms.saturating_sub(oldest.since_unix_ms));
    if age <= within {
        return None;
    }
    let (volume, age) = (&oldest.volume, output::span(age));
    let what = format!("volume {volume} wasn't scrubbed for {age}, though schedule {} is for that", schedule.name);
    let why =
        "rot shows when something is read: what rots on one drive is repaired only as long as another one is right";
    let finding = Finding::new(Severity::Warning, subject(schedule), what, why);
    Some(match schedule.paused {
        true => finding.run("have it go on", format!("tepal schedule resume {}", schedule.name)),
        false => finding.run("see what is in its way", format!("tepal schedule show {}", schedule.name)),
    })
}

fn held(schedule: &ScheduleInfo) -> Option<Finding> {
    let names: Vec<&str> = schedule.held.iter().map(|held| &*held.name).collect();
    let first = schedule.held.first()?;
    let what = format!("schedule {} can't remove {}: {}", schedule.name, count(names.len(), "snapshot"), named(&names));
    let why = "they take space until whatever holds them lets go";
    let finding = Finding::new(Severity::Remark, subject(schedule), what, why);
    Some(finding.hands(format!("of {}: {}", first.name, first.reason)))
}
