//! Schedules: asked for, looked at, and what running them takes of a server.

use super::conditions::tagged;
use super::extract::{Input, Named};
use super::failure::Failure;
use super::relay::Scope;
use super::types::{
    BY_ID, CreateSchedule, DEFAULT_KEEP, Done, ErrorKind, HeldSnapshot, ScheduleInfo, ScheduleRules, ScheduleRun,
    Scrub, ScrubQuery, ScrubState, SnapshotName, Unscrubbed, VolumesQuery, WorkKind, route,
};
use super::users::{self, Users};
use super::{Context, Shared, scrub, snapshots, volumes};
use crate::scheduling::{self, covered, wall_clock_ms};
use crate::tasks;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tepal_metadata::{
    self as metadata, Command, Covered, MadeRecord, Refusal, Reply, ScheduleCommand, ScheduleRecord, ScheduleRefusal,
    Versioned, VolumeRecord, Work, asked_by,
};
use tepal_model::VolumeId;
use tepal_model::schedule::{Rhythm, SCRUBS_WITHIN};
use tepal_model::text::shown;

/// How often it's looked whether a scrub has ended.
const LOOK: Duration = Duration::from_millis(500);

pub async fn list(State(context): State<Shared>) -> Json<Vec<ScheduleInfo>> {
    let state = context.parts.metadata.state();
    let mut all: Vec<ScheduleInfo> = state.schedules.by_id.values().map(|record| info(&state, record)).collect();
    all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Json(all)
}

pub async fn show(State(context): State<Shared>, name: Named) -> Result<Response, Failure> {
    one(&context, &name.0)
}

pub async fn create(
    State(context): State<Shared>,
    Input(CreateSchedule { name, rules }): Input<CreateSchedule>,
) -> Result<Response, Failure> {
    let (work, from_s) = (work(&context, rules).await?, wall_clock_ms() / 1000);
    context.propose(Command::Schedule(ScheduleCommand::Create { name: name.clone(), work, from_s })).await?;
    one(&context, &name)
}

pub async fn change(
    State(context): State<Shared>,
    name: Named,
    Input(rules): Input<ScheduleRules>,
) -> Result<Response, Failure> {
    let (work, from_s, name) = (work(&context, rules).await?, wall_clock_ms() / 1000, name.0);
    context.propose(Command::Schedule(ScheduleCommand::Change { name: name.clone(), work, from_s })).await?;
    one(&context, &name)
}

pub async fn remove(State(context): State<Shared>, name: Named) -> Result<Json<Done>, Failure> {
    context.propose(Command::Schedule(ScheduleCommand::Remove { name: name.0 })).await?;
    Ok(Json(Done {}))
}

pub async fn pause(State(context): State<Shared>, name: Named) -> Result<Response, Failure> {
    set_paused(&context, name.0, true).await
}

pub async fn resume(State(context): State<Shared>, name: Named) -> Result<Response, Failure> {
    set_paused(&context, name.0, false).await
}

async fn set_paused(context: &Context, name: String, paused: bool) -> Result<Response, Failure> {
    let from_s = wall_clock_ms() / 1000;
    context.propose(Command::Schedule(ScheduleCommand::Pause { name: name.clone(), paused, from_s })).await?;
    one(context, &name)
}

/// Snapshots are there when it's answered; scrubs begin, one after another.
pub async fn run(State(context): State<Shared>, name: Named) -> Result<Json<ScheduleRun>, Failure> {
    let state = context.parts.metadata.state();
    let schedule = record(&state, &name.0)?.clone();
    let volumes: Vec<Arc<VolumeRecord>> = covered(&state, &schedule.work).cloned().collect();
    let mut done = ScheduleRun::default();
    match &schedule.work {
        Work::Scrubs { .. } => {
            done.scrubs = volumes.iter().map(|volume| volume.name.clone()).collect();
            tasks::spawn(scrub_all(Steward::new(&context), schedule, volumes));
        }
        Work::Snapshots { .. } => {
            let (now, mut failed) = (wall_clock_ms(), Vec::new());
            for volume in volumes {
                match take(&context, &schedule, &volume, now / 1000, None).await {
                    Ok(made) => done.snapshots.extend(made),
                    Err(failure) => failed.push(failure),
                }
            }
            let error = failed.first().map(|failure| failure.text().to_owned());
            let ran = ScheduleCommand::Ran { schedule: schedule.id, due: None, at_unix_ms: now, missed: None, error };
            context.propose(Command::Schedule(ran)).await?;
            if let Some(failure) = failed.into_iter().next() {
                return Err(failure);
            }
        }
    }
    Ok(Json(done))
}

async fn scrub_all(steward: Steward, schedule: Arc<ScheduleRecord>, volumes: Vec<Arc<VolumeRecord>>) {
    for volume in volumes {
        let at_unix_ms = wall_clock_ms();
        let command = match steward.scrub(&volume, None, at_unix_ms.saturating_sub(1)).await {
            Ok((begun_unix_ms, done_unix_ms)) => {
                ScheduleCommand::Scrubbed { volume: volume.id, begun_unix_ms, done_unix_ms }
            }
            Err(error) => {
                let error = Some(format!("volume {}: {error}", volume.name));
                ScheduleCommand::Ran { schedule: schedule.id, due: None, at_unix_ms, missed: None, error }
            }
        };
        if let Err(error) = steward.agree(&schedule, command).await {
            tracing::warn!(volume = volume.name, error, "what came of a scrub isn't noted");
        }
    }
}

/// What is meant, with what isn't said.
async fn work(context: &Context, rules: ScheduleRules) -> Result<Work, Failure> {
    let ScheduleRules { work, volume, pool, every_s, at, zone, keep, within_s } = rules;
    match work {
        WorkKind::Snapshots => {
            let of = match (volume, pool) {
                (Some(volume), None) => Covered::Volume(volumes::record(context, &volume).await?.id),
                (None, Some(pool)) => Covered::Pool(pool),
                _ => return Err(Failure::bad("say either a volume or a pool of which snapshots are to be made")),
            };
            let every_s = every_s.ok_or_else(|| Failure::bad("say every how many seconds"))?;
            if within_s.is_some() {
                return Err(Failure::bad("snapshots are made every so many seconds, not within"));
            }
            let rhythm = Rhythm { every_s, at: at.unwrap_or_default(), ahead: zone.unwrap_or_default() };
            Ok(Work::Snapshots { of, rhythm, keep: keep.unwrap_or(DEFAULT_KEEP) })
        }
        WorkKind::Scrubs => {
            if volume.is_some() || every_s.is_some() || at.is_some() || zone.is_some() || keep.is_some() {
                return Err(Failure::bad("of scrubs a pool may be said, and within how many seconds; nothing else"));
            }
            Ok(Work::Scrubs { pool, within_s: within_s.unwrap_or(SCRUBS_WITHIN) })
        }
    }
}

fn record<'a>(state: &'a metadata::State, name: &str) -> Result<&'a Arc<ScheduleRecord>, Failure> {
    state.schedules.named(name).ok_or_else(|| Refusal::from(ScheduleRefusal::None(shown(name))).into())
}

fn one(context: &Context, name: &str) -> Result<Response, Failure> {
    let state = context.parts.metadata.state();
    let told = Json(info(&state, record(&state, name)?));
    Ok(tagged(&state, &Versioned::Schedule(name.to_owned()), told))
}

fn rules(state: &metadata::State, work: &Work) -> ScheduleRules {
    let mut rules = ScheduleRules {
        work: work.kind(),
        volume: None,
        pool: None,
        every_s: None,
        at: None,
        zone: None,
        keep: None,
        within_s: None,
    };
    match work {
        Work::Snapshots { of, rhythm: Rhythm { every_s, at, ahead }, keep } => {
            match of {
                Covered::Volume(id) => rules.volume = state.volumes.get(id).map(|volume| volume.name.clone()),
                Covered::Pool(pool) => rules.pool = Some(pool.clone()),
            }
            rules.every_s = Some(*every_s);
            (rules.at, rules.zone, rules.keep) = (Some(*at), Some(*ahead), Some(*keep));
        }
        Work::Scrubs { pool, within_s } => (rules.pool, rules.within_s) = (pool.clone(), Some(*within_s)),
    }
    rules
}

/// As it's agreed.
pub fn info(state: &metadata::State, record: &ScheduleRecord) -> ScheduleInfo {
    let made: Vec<&Arc<MadeRecord>> = state.schedules.all_made_by(record.id).collect();
    let held = |made: &&Arc<MadeRecord>| {
        let snapshot = state.snapshots_of(made.volume).find(|snapshot| snapshot.epoch == made.epoch)?;
        let volume = state.volumes.get(&made.volume)?.name.clone();
        let name = SnapshotName { volume, snapshot: snapshot.name.clone() }.to_string();
        Some(HeldSnapshot { name, reason: made.held.clone()? })
    };
    let now = wall_clock_ms();
    let next_scrub = scheduling::next_scrub_ms(state, record, now).filter(|_| !record.paused);
    ScheduleInfo {
        name: record.name.clone(),
        rules: rules(state, &record.work),
        paused: record.paused,
        created_unix_ms: record.created_unix_ms,
        next_unix_ms: record.next_s().map(|next| next * 1000).or(next_scrub),
        last_run_unix_ms: record.last_run_unix_ms,
        missed: record.missed,
        last_missed_unix_ms: record.last_missed_s.map(|last| last.saturating_mul(1000)),
        error: record.error.clone(),
        snapshots: made.len() as u64,
        held: made.iter().filter_map(held).collect(),
        oldest: oldest(state, record, now),
    }
}

fn oldest(state: &metadata::State, record: &ScheduleRecord, now_ms: u64) -> Option<Unscrubbed> {
    let volumes = covered(state, &record.work).filter(|_| record.work.kind() == WorkKind::Scrubs);
    let since = |volume: &Arc<VolumeRecord>| (scheduling::unscrubbed_since_ms(state, volume, now_ms), volume.clone());
    let (since_unix_ms, volume) = volumes.map(since).min_by_key(|(since, _)| *since)?;
    Some(Unscrubbed { volume: volume.name.clone(), since_unix_ms })
}

/// Makes a volume's snapshot of this time, if there's none yet; its name, if it was made now.
async fn take(
    context: &Context,
    schedule: &ScheduleRecord,
    volume: &VolumeRecord,
    due_s: u64,
    done_s: Option<u64>,
) -> Result<Option<String>, Failure> {
    let served = volumes::open(context, volume).await?;
    let command = ScheduleCommand::Take { schedule: schedule.id, volume: volume.id, due_s, done_s };
    let Reply::SnapshotCreated { view, .. } = context.propose(Command::Schedule(command)).await? else {
        return Ok(None);
    };
    let name = SnapshotName { volume: volume.name.clone(), snapshot: schedule.snapshot_name(due_s) };
    snapshots::settle(context, &name, view, served).await?;
    Ok(Some(name.to_string()))
}

/// Why a volume got no snapshot.
pub enum TakeError {
    /// The schedule isn't as it was any more.
    Changed,
    /// There is no such volume any more.
    VolumeGone,
    /// Anything else.
    Failed {
        /// What went wrong.
        text: String,
        /// Whether it may go away with time.
        waits: bool,
    },
}

/// What running schedules takes of a server.
#[derive(Clone)]
pub struct Steward(Weak<Context>);

impl Steward {
    pub(super) fn new(context: &Shared) -> Self {
        Steward(Arc::downgrade(context))
    }

    /// Makes a volume's snapshot of this time, if there's none yet. Its name, if it was made now.
    pub async fn take(
        &self,
        schedule: &ScheduleRecord,
        volume: &VolumeRecord,
        due_s: u64,
        done_s: Option<u64>,
    ) -> Result<Option<String>, TakeError> {
        let Some(context) = self.0.upgrade() else { return Err(TakeError::Changed) };
        let taken = asked_by(who(schedule), take(&context, schedule, volume, due_s, done_s)).await;
        taken.map_err(|failure| {
            let state = context.parts.metadata.state();
            let is_changed = state.schedules.by_id.get(&schedule.id).is_none_or(|now| now.done_s != schedule.done_s);
            if is_changed {
                return TakeError::Changed;
            }
            if !state.active_volumes().any(|now| now.id == volume.id) {
                return TakeError::VolumeGone;
            }
            let waits = matches!(failure.kind(), ErrorKind::Unavailable | ErrorKind::OutOfSpace);
            TakeError::Failed { text: failure.text().to_owned(), waits }
        })
    }

    /// Has it agreed. What went wrong, if it couldn't be, and may be later; what is refused is nothing any more.
    pub async fn agree(&self, schedule: &ScheduleRecord, command: ScheduleCommand) -> Result<(), String> {
        let Some(context) = self.0.upgrade() else { return Ok(()) };
        let agreed = asked_by(who(schedule), context.propose(Command::Schedule(command))).await;
        match agreed {
            Err(failure) if failure.kind() != ErrorKind::Conflict && failure.kind() != ErrorKind::NotFound => {
                Err(failure.text().to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Removes a snapshot that the schedule doesn't keep any more. Whether there's nothing left to do; else it's said why it stays.
    pub async fn expire(&self, schedule: &ScheduleRecord, made: &MadeRecord) -> bool {
        let Some(context) = self.0.upgrade() else { return true };
        let (schedule_id, volume, epoch) = (schedule.id, made.volume, made.epoch);
        let name = SnapshotName { volume: format!("{BY_ID}{}", volume.0), snapshot: format!("{BY_ID}{epoch}") };
        let users =
            || async { Ok(Users::of_snapshot(&snapshots::everywhere(&context, &name, snapshots::IN_SHORT).await?)) };
        let is_free = match users::that_stay(&context, users).await {
            Ok(users) => users.refuse("it", users::GET_ERRORS).map_err(|_| users.told()),
            Err(_) => return false,
        };
        let why = match is_free {
            Err(why) => why,
            Ok(()) => {
                let command = ScheduleCommand::Expire { schedule: schedule_id, volume, epoch };
                match asked_by(who(schedule), context.propose(Command::Schedule(command))).await {
                    Ok(_) => return true,
                    Err(failure) if failure.kind() == ErrorKind::NotFound => return true,
                    Err(failure) if failure.kind() == ErrorKind::Conflict => failure.text().to_owned(),
                    Err(_) => return false,
                }
            }
        };
        let command = ScheduleCommand::Hold { schedule: schedule_id, volume, epoch, why };
        let _ = self.agree(schedule, command).await;
        false
    }

    /// Bytes of volumes on drives, copies counted.
    pub async fn sizes(&self) -> BTreeMap<VolumeId, u64> {
        let Some(context) = self.0.upgrade() else { return BTreeMap::new() };
        let (_, all) = volumes::page(&context, Scope::Cluster, None, (route::VOLUMES, &VolumesQuery::default())).await;
        all.into_iter().map(|volume| (VolumeId(volume.id), volume.allocated)).collect()
    }

    /// Scrubs a volume, all of it, in this time if it can. When it began and ended; a scrub that somebody has begun after `since` counts.
    /// Or why it wasn't whole.
    pub async fn scrub(&self, volume: &VolumeRecord, take: Option<Duration>, since: u64) -> Result<(u64, u64), String> {
        let take_ms = take.map(|take| u64::try_from(take.as_millis()).unwrap_or(u64::MAX));
        let is_new = |scrub: &Scrub| scrub.begun_unix_ms.is_some_and(|begun| begun > since);
        let mut is_asked = false;
        loop {
            let Some(context) = self.0.upgrade() else { return Err("the server stops".to_owned()) };
            let state = context.parts.metadata.state();
            let is_there = state.active_volumes().any(|now| now.id == volume.id);
            if !is_there {
                return Err("it was removed meanwhile".to_owned());
            }
            let seen = scrub::look(&context, Scope::Cluster, &volume.by_id()).await;
            let seen = seen.map_err(|failure| failure.text().to_owned())?;
            match (seen.state, whole(&seen)) {
                (ScrubState::Running, _) => {}
                (ScrubState::Done, Ok(times)) if is_new(&seen) => return Ok(times),
                (ScrubState::Done, Err(why)) if is_asked => return Err(why),
                (ScrubState::Failed, _) if is_asked => return Err(seen.error.unwrap_or_default()),
                _ if is_asked => return Err("a server was restarted meanwhile".to_owned()),
                _ => {
                    let begun = scrub::begin(&context, Scope::Cluster, &volume.by_id(), ScrubQuery { take_ms }).await;
                    begun.map_err(|failure| failure.text().to_owned())?;
                    is_asked = true;
                }
            }
            drop(context);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Has a scrub that somebody has begun counted as the volume's last one, once it has read everything.
    pub async fn note_scrub(self, volume: VolumeId, begun_unix_ms: Option<u64>) {
        loop {
            tokio::time::sleep(LOOK).await;
            let Some(context) = self.0.upgrade() else { return };
            let Ok(seen) = scrub::look(&context, Scope::Cluster, &format!("{BY_ID}{}", volume.0)).await else { return };
            match (seen.state, whole(&seen)) {
                (ScrubState::Running, _) => {}
                (ScrubState::Done, Ok((began, done_unix_ms))) if begun_unix_ms.is_some_and(|ours| ours <= began) => {
                    let command = ScheduleCommand::Scrubbed { volume, begun_unix_ms: began, done_unix_ms };
                    let _ = context.propose(Command::Schedule(command)).await; // else the next one counts
                    return;
                }
                _ => return,
            }
        }
    }
}

/// As events say who asked.
fn who(schedule: &ScheduleRecord) -> String {
    format!("schedule {}", schedule.name)
}

/// When a scrub began and ended that has read everything.
fn whole(scrub: &Scrub) -> Result<(u64, u64), String> {
    if !scrub.unchecked_drives.is_empty() {
        let drives: Vec<String> = scrub.unchecked_drives.iter().take(5).map(ToString::to_string).collect();
        return Err(format!("drives that are away weren't read: {}", drives.join(", ")));
    }
    scrub.begun_unix_ms.zip(scrub.done_unix_ms).ok_or_else(|| "it isn't done".to_owned())
}
