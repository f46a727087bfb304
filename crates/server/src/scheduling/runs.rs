//! Runs of schedules that make snapshots.

use super::{AT_ONCE, Clock, leads};
use crate::api::{Steward, TakeError};
use futures_util::StreamExt;
use futures_util::stream;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tepal_metadata::{Covered, Metadata, ScheduleCommand, ScheduleRecord, State, VolumeRecord, Work};
use tepal_model::schedule::Due;

/// How often it's looked for what is due.
const LOOK: Duration = Duration::from_millis(200);
/// After a run that couldn't be carried out.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// So long a run is tried that can't be carried out, as drives or servers are away.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest that a run keeps the next one of the same schedule from coming, whatever the clock shows.
const LONGEST_REST: Duration = Duration::from_secs(600);
/// Errors of so many volumes are told.
const TOLD: usize = 3;

/// The volumes that a schedule is about, in order of their ids. Replicas of a pool get the snapshots of their sources.
pub fn covered<'a>(state: &'a State, work: &'a Work) -> impl Iterator<Item = &'a Arc<VolumeRecord>> {
    state.active_volumes().filter(move |volume| match work {
        Work::Snapshots { of: Covered::Volume(id), .. } => volume.id == *id,
        Work::Snapshots { of: Covered::Pool(pool), .. } => volume.pool == *pool && volume.replica.is_none(),
        Work::Scrubs { pool: Some(pool), .. } => volume.pool == *pool,
        Work::Scrubs { pool: None, .. } => true,
    })
}

/// What this server remembers of runs while it leads.
#[derive(Default)]
struct Memory {
    /// When a schedule was run last: however the clock jumps, it isn't run again at once.
    ran: BTreeMap<u64, Instant>,
    /// Since when a run can't be carried out, and when it was tried last.
    fails: BTreeMap<u64, (Instant, Instant)>,
}

impl Memory {
    fn may_begin(&self, schedule: &ScheduleRecord, now: Instant) -> bool {
        let every = schedule.work.rhythm().map_or(Duration::ZERO, |rhythm| Duration::from_secs(rhythm.every_s));
        let rested = |at: &Instant| now.duration_since(*at) >= (every / 2).min(LONGEST_REST);
        let waited = |(_, last): &(Instant, Instant)| now.duration_since(*last) >= TRY_AGAIN;
        self.ran.get(&schedule.id).is_none_or(rested) && self.fails.get(&schedule.id).is_none_or(waited)
    }

    /// Whether a run that can't be carried out is given up.
    fn gives_up(&self, schedule: u64, now: Instant) -> bool {
        self.fails.get(&schedule).is_some_and(|(since, _)| now.duration_since(*since) >= PATIENCE)
    }

    fn note(&mut self, schedule: u64, outcome: Outcome, now: Instant) {
        match outcome {
            Outcome::Over => {
                self.fails.remove(&schedule);
                self.ran.insert(schedule, now);
            }
            Outcome::Again => {
                self.fails.entry(schedule).or_insert((now, now)).1 = now;
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Over,
    Again,
}

/// What is due now. Of each schedule that isn't paused.
fn due(state: &State, now_s: u64) -> Vec<(Arc<ScheduleRecord>, Due)> {
    let of = |schedule: &Arc<ScheduleRecord>| {
        let rhythm = schedule.work.rhythm().filter(|_| !schedule.paused)?;
        Some((schedule.clone(), rhythm.look(schedule.done_s, now_s))).filter(|(_, due)| *due != Due::Nothing)
    };
    state.schedules.by_id.values().filter_map(of).collect()
}

/// Until the server stops.
pub async fn keep_running(metadata: Metadata, steward: Steward, clock: Clock) {
    let mut memory = Memory::default();
    loop {
        tokio::time::sleep(LOOK).await;
        if !leads(&metadata) {
            memory = Memory::default();
            continue;
        }
        let (state, now) = (metadata.state(), Instant::now());
        memory.ran.retain(|id, _| state.schedules.by_id.contains_key(id));
        memory.fails.retain(|id, _| state.schedules.by_id.contains_key(id));
        let due = due(&state, clock() / 1000).into_iter().filter(|(schedule, _)| memory.may_begin(schedule, now));
        let due: Vec<_> = due.map(|(schedule, due)| (memory.gives_up(schedule.id, now), schedule, due)).collect();
        let running = stream::iter(due).map(|(gives_up, schedule, due)| {
            let run = Run { steward: &steward, state: &state, schedule: schedule.clone(), gives_up };
            async move { (run.schedule.id, run.carry_out(due, clock).await) }
        });
        let ended: Vec<(u64, Outcome)> = running.buffer_unordered(AT_ONCE).collect().await;
        ended.into_iter().for_each(|(id, outcome)| memory.note(id, outcome, Instant::now()));
    }
}

struct Run<'a> {
    steward: &'a Steward,
    /// As it was when it began.
    state: &'a State,
    schedule: Arc<ScheduleRecord>,
    /// Whether it's over even if it can't be carried out.
    gives_up: bool,
}

impl Run<'_> {
    async fn carry_out(&self, due: Due, clock: Clock) -> Outcome {
        let (schedule, done_s) = (self.schedule.id, self.schedule.done_s);
        match due {
            Due::Nothing => Outcome::Over,
            Due::WentBack { to_s } => self.agree(ScheduleCommand::SetBack { schedule, done_s, to_s }).await,
            Due::Now { due_s, passed, is_late } => {
                let taken = match self.take_all(due_s).await {
                    Some(taken) if taken.waits && !self.gives_up => return Outcome::Again,
                    Some(taken) => taken,
                    None => return Outcome::Over, // somebody else has done it
                };
                let missed = self.missed((due_s, passed), is_late && taken.made > 0);
                let (error, at_unix_ms) = (taken.error(), clock());
                let due = Some((due_s, done_s));
                self.agree(ScheduleCommand::Ran { schedule, due, at_unix_ms, missed, error }).await
            }
        }
    }

    async fn agree(&self, command: ScheduleCommand) -> Outcome {
        match self.steward.agree(&self.schedule, command).await {
            Ok(()) => Outcome::Over,
            Err(error) => {
                tracing::debug!(schedule = self.schedule.name, %error, "a run of a schedule isn't noted");
                Outcome::Again
            }
        }
    }

    /// Of each volume, one after another; none if the schedule has changed meanwhile.
    async fn take_all(&self, due_s: u64) -> Option<Taken> {
        let mut taken = Taken::default();
        for volume in covered(self.state, &self.schedule.work) {
            match self.steward.take(&self.schedule, volume, due_s, Some(self.schedule.done_s)).await {
                Ok(made) => taken.made += u64::from(made.is_some()),
                Err(TakeError::Changed) => return None,
                Err(TakeError::VolumeGone) => {}
                Err(TakeError::Failed { text, waits }) => {
                    taken.waits |= waits;
                    taken.errors.push(format!("volume {}: {text}", volume.name));
                }
            }
        }
        Some(taken)
    }

    /// How many times weren't used, and the last of them. Times that a snapshot was made for were: whoever led then didn't come to note it.
    fn missed(&self, (due_s, passed): (u64, u64), is_late: bool) -> Option<(u64, u64)> {
        let between = |time: &u64| (self.schedule.done_s + 1..due_s).contains(time);
        let made = self.state.schedules.all_made_by(self.schedule.id).map(|made| made.due_s);
        let made: BTreeSet<u64> = made.filter(between).collect();
        let count = passed.saturating_sub(made.len() as u64) + u64::from(is_late);
        let every = self.schedule.work.rhythm().map_or(0, |rhythm| rhythm.every_s);
        let last = if is_late { due_s } else { due_s.saturating_sub(every) };
        (count > 0).then_some((count, last))
    }
}

/// What came of a run.
#[derive(Default)]
struct Taken {
    made: u64,
    errors: Vec<String>,
    /// Whether some of them go away with time.
    waits: bool,
}

impl Taken {
    fn error(&self) -> Option<String> {
        let told = self.errors.iter().take(TOLD).cloned().collect::<Vec<_>>().join("; ");
        match self.errors.len().saturating_sub(TOLD) {
            _ if self.errors.is_empty() => None,
            0 => Some(told),
            more => Some(format!("{told}; and {more} more")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_a_few_volumes_are_told() {
        let taken = |count: usize| Taken { errors: vec!["e".to_owned(); count], ..Taken::default() };
        let told = [0, 1, 3, 5].map(|count| taken(count).error());
        assert_eq!(
            told,
            [None, Some("e"), Some("e; e; e"), Some("e; e; e; and 2 more")].map(|it| it.map(str::to_owned))
        );
    }

    #[test]
    fn a_run_that_cannot_be_carried_out_is_given_up_in_the_end() {
        let (begun, mut memory) = (Instant::now(), Memory::default());
        assert!(!memory.gives_up(1, begun));
        memory.note(1, Outcome::Again, begun);
        memory.note(1, Outcome::Again, begun + PATIENCE / 2);
        assert!(!memory.gives_up(1, begun + PATIENCE / 2));
        assert!(memory.gives_up(1, begun + PATIENCE));
        memory.note(1, Outcome::Over, begun + PATIENCE);
        assert!(!memory.gives_up(1, begun + 2 * PATIENCE));
    }

    #[test]
    fn a_wild_clock_runs_nothing_more_often_than_at_half_its_distance() {
        let (begun, mut memory) = (Instant::now(), Memory::default());
        let work = |every_s| Work::Snapshots {
            of: Covered::Pool("p".to_owned()),
            rhythm: tepal_model::schedule::Rhythm { every_s, at: Default::default(), ahead: Default::default() },
            keep: tepal_model::schedule::Keep { last: 1, ..Default::default() },
        };
        let schedule = |every_s| ScheduleRecord {
            id: 1,
            name: "s".to_owned(),
            work: work(every_s),
            paused: false,
            created_unix_ms: 0,
            done_s: 0,
            last_run_unix_ms: None,
            missed: 0,
            last_missed_s: None,
            error: None,
        };
        assert!(memory.may_begin(&schedule(10), begun));
        memory.note(1, Outcome::Over, begun);
        assert!(!memory.may_begin(&schedule(10), begun + Duration::from_secs(4)));
        assert!(memory.may_begin(&schedule(10), begun + Duration::from_secs(5)));
        assert!(!memory.may_begin(&schedule(86_400), begun + LONGEST_REST / 2));
        assert!(memory.may_begin(&schedule(86_400), begun + LONGEST_REST));
    }
}
