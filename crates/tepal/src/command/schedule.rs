//! `tepal schedule`.

use super::CommandError;
use super::replicate::now_ms;
use crate::cli::{CreateScheduleArguments, Global, ScheduleCommand, SetScheduleArguments, TimesArguments};
use crate::client::Client;
use crate::locate;
use crate::output::{self, Outcome, Output};
use std::time::Duration;
use tepal_model::schedule::{Rhythm, period_text};
use tepal_server::api::types::{
    CreateSchedule, DEFAULT_KEEP, Done, ScheduleInfo, ScheduleRules, ScheduleRun, WorkKind, path, route,
};

/// What is asked for makes no sense as a whole.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    #[error("schedule '{0}' makes snapshots: it has no --within, but --every")]
    WithinOfSnapshots(String),
    #[error("schedule '{0}' scrubs: of --every, --at, --timezone and --keep it has none, only --within")]
    TimesOfScrubs(String),
    #[error("nothing is to be changed: say --every, --at, --timezone, --keep or --within")]
    NoChange,
}

pub fn run(global: &Global, output: Output, command: ScheduleCommand) -> Result<Outcome, CommandError> {
    let client = locate::client(global)?;
    let empty = serde_json::json!({});
    match command {
        ScheduleCommand::Create(arguments) => {
            let request = CreateSchedule { name: arguments.name.clone(), rules: rules(arguments) };
            let made: ScheduleInfo = client.create(route::SCHEDULES, &request)?;
            output
                .show(&made, |made| format!("schedule {} is made: {}, next {}", made.name, what(made), next(made)))?;
        }
        ScheduleCommand::Set(arguments) => set(&client, output, arguments)?,
        ScheduleCommand::Ls => {
            let all: Vec<ScheduleInfo> = client.get(route::SCHEDULES)?;
            output.show(&all, |all| list(all))?;
        }
        ScheduleCommand::Show { name } => {
            let shown: ScheduleInfo = client.get(&path(route::SCHEDULE, &name))?;
            output.show(&shown, page)?;
        }
        ScheduleCommand::Pause { name } => {
            let paused: ScheduleInfo = client.post_repeatable(&path(route::SCHEDULE_PAUSE, &name), &empty)?;
            output.show(&paused, |_| format!("schedule {name} rests"))?;
        }
        ScheduleCommand::Resume { name } => {
            let goes_on: ScheduleInfo = client.post_repeatable(&path(route::SCHEDULE_RESUME, &name), &empty)?;
            output.show(&goes_on, |goes_on| format!("schedule {name} goes on, next {}", next(goes_on)))?;
        }
        ScheduleCommand::Run { name } => {
            let run: ScheduleRun = client.post(&path(route::SCHEDULE_RUN, &name), &empty)?;
            output.show(&run, ran)?;
        }
        ScheduleCommand::Rm { name } => {
            let done: Done = client.delete(&path(route::SCHEDULE, &name))?;
            output.show(&done, |_| format!("schedule {name} is removed; its snapshots stay"))?;
        }
    }
    Ok(Outcome::Done)
}

fn rules(arguments: CreateScheduleArguments) -> ScheduleRules {
    let CreateScheduleArguments { snapshot: volume, pool, scrub, every: every_s, within: within_s, times, .. } =
        arguments;
    let TimesArguments { at, timezone: zone, keep } = times;
    let work = if scrub { WorkKind::Scrubs } else { WorkKind::Snapshots };
    ScheduleRules { work, volume, pool, every_s, at, zone, keep, within_s }
}

/// What isn't said stays.
fn set(client: &Client, output: Output, arguments: SetScheduleArguments) -> Result<(), CommandError> {
    let SetScheduleArguments { name, every, within, times } = arguments;
    let is_of_snapshots = every.is_some() || times.at.is_some() || times.timezone.is_some() || times.keep.is_some();
    if !is_of_snapshots && within.is_none() {
        return Err(ScheduleError::NoChange.into());
    }
    let ScheduleInfo { rules, .. } = client.get(&path(route::SCHEDULE, &name))?;
    match rules.work {
        WorkKind::Snapshots if within.is_some() => return Err(ScheduleError::WithinOfSnapshots(name).into()),
        WorkKind::Scrubs if is_of_snapshots => return Err(ScheduleError::TimesOfScrubs(name).into()),
        _ => {}
    }
    let rules = ScheduleRules {
        every_s: every.or(rules.every_s),
        at: times.at.or(rules.at),
        zone: times.timezone.or(rules.zone),
        keep: times.keep.or(rules.keep),
        within_s: within.or(rules.within_s),
        ..rules
    };
    let changed: ScheduleInfo = client.post_repeatable(&path(route::SCHEDULE, &name), &rules)?;
    output.show(&changed, |it| format!("schedule {name}: {}, next {}", what(it), next(it)))?;
    Ok(())
}

/// What rules say, as people read it.
pub fn told(rules: &ScheduleRules) -> String {
    let of = match (&rules.volume, &rules.pool) {
        (Some(volume), _) => format!("volume {volume}"),
        (None, Some(pool)) => format!("pool {pool}"),
        (None, None) => "all volumes".to_owned(),
    };
    match rules.work {
        WorkKind::Scrubs => {
            let within = rules.within_s.unwrap_or(tepal_model::schedule::SCRUBS_WITHIN);
            format!("scrubs of {of} within {}", period_text(within))
        }
        WorkKind::Snapshots => {
            let (at, ahead) = (rules.at.unwrap_or_default(), rules.zone.unwrap_or_default());
            let rhythm = Rhythm { every_s: rules.every_s.unwrap_or(0), at, ahead };
            format!("snapshots of {of} {}, keeping {}", rhythm.told(), rules.keep.unwrap_or(DEFAULT_KEEP))
        }
    }
}

fn what(schedule: &ScheduleInfo) -> String {
    told(&schedule.rules)
}

fn next(schedule: &ScheduleInfo) -> String {
    match schedule.next_unix_ms {
        _ if schedule.paused => "when it's resumed".to_owned(),
        None => "-".to_owned(),
        Some(next) if next <= now_ms() => "now".to_owned(),
        Some(next) => format!("{} UTC", output::time(next)),
    }
}

fn time(unix_ms: Option<u64>) -> String {
    unix_ms.map_or_else(|| "-".to_owned(), output::time)
}

fn list(all: &[ScheduleInfo]) -> String {
    let row = |schedule: &ScheduleInfo| {
        let missed = match schedule.last_missed_unix_ms {
            Some(last) => format!("{}, last {}", schedule.missed, output::time(last)),
            None => "0".to_owned(),
        };
        let remarks = schedule.error.iter().cloned().chain(held(schedule)).collect::<Vec<_>>().join("; ");
        let next = if schedule.paused { "paused".to_owned() } else { time(schedule.next_unix_ms) };
        vec![schedule.name.clone(), what(schedule), next, time(schedule.last_run_unix_ms), missed, remarks]
    };
    output::table(&["name", "what", "next (UTC)", "last run (UTC)", "missed", "wrong"], all.iter().map(row))
}

fn held(schedule: &ScheduleInfo) -> Option<String> {
    match schedule.held.len() {
        0 => None,
        1 => Some("1 snapshot can't be removed".to_owned()),
        more => Some(format!("{more} snapshots can't be removed")),
    }
}

fn page(schedule: &ScheduleInfo) -> String {
    let mut facts = vec![
        ("name", schedule.name.clone()),
        ("what", what(schedule)),
        ("next", next(schedule)),
        ("last run", time(schedule.last_run_unix_ms)),
        ("created", time(Some(schedule.created_unix_ms))),
    ];
    if schedule.rules.work == WorkKind::Snapshots {
        facts.push(("snapshots", schedule.snapshots.to_string()));
        let last = schedule.last_missed_unix_ms.map(|last| format!(" times, the last {} UTC", output::time(last)));
        facts.push(("missed", format!("{}{}", schedule.missed, last.unwrap_or_default())));
    }
    if let Some(oldest) = &schedule.oldest {
        let age = Duration::from_millis(now_ms().saturating_sub(oldest.since_unix_ms));
        facts.push(("oldest", format!("volume {} wasn't scrubbed for {}", oldest.volume, output::span(age))));
    }
    facts.extend(schedule.error.iter().map(|error| ("error", error.clone())));
    facts.extend(schedule.held.iter().map(|held| ("held", format!("{}: {}", held.name, held.reason))));
    output::facts(&facts)
}

fn ran(run: &ScheduleRun) -> String {
    let made = run.snapshots.iter().map(|name| format!("snapshot {name} is made\n"));
    let scrubs = run.scrubs.iter().map(|name| format!("volume {name} is being scrubbed, or will be\n"));
    let all: String = made.chain(scrubs).collect();
    if all.is_empty() {
        "nothing is made: that of this second is there already, or there is no volume".to_owned()
    } else {
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(rules: serde_json::Value) -> ScheduleInfo {
        let mut all = serde_json::json!({
            "name": "daily", "paused": false, "created_unix_ms": 0, "next_unix_ms": 1_795_395_121_000u64,
            "last_run_unix_ms": null, "missed": 2, "last_missed_unix_ms": 60_000, "error": null, "snapshots": 3, "held": [],
            "oldest": null,
        });
        let (Some(all), Some(rules)) = (all.as_object_mut(), rules.as_object()) else { panic!("objects") };
        all.extend(rules.clone());
        serde_json::from_value(all.clone().into()).expect("a schedule")
    }

    #[test]
    fn a_list_says_what_next_and_what_was_missed() {
        let keep = serde_json::json!({ "daily": 7 });
        let rules = serde_json::json!({
            "work": "snapshots", "volume": "v0", "every_s": 86_400, "at": "02:30", "zone": "+02:00", "keep": keep
        });
        let line = list(&[schedule(rules)]);
        for part in ["every 1d at 02:30 +02:00, keeping daily=7  2026-11-23 00:52:01  -", "2, last 1970-01-01 00:01:00"]
        {
            assert!(line.contains(part), "{line}");
        }
        let scrubs = schedule(serde_json::json!({ "work": "scrubs", "within_s": 2_592_000 }));
        assert_eq!(what(&scrubs), "scrubs of all volumes within 30d");
    }
}
