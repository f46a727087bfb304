//! Schedules, and the snapshots that they make and remove.
//!
//! Invariants:
//! 1. A schedule makes at most one snapshot of a volume for a time. Whoever asks again, or by what has changed since, changes nothing.
//! 2. It removes only what it has made, is recorded so, and isn't kept by its rules ([`Schedules::surplus`]) as the state is now; and
//!    nothing that has clones.
//! 3. What a schedule is about is there: it goes with its volume, or its pool. What it has made is there, and has the schedule.

use super::{Change, Draft, check_name, clipped};
use crate::command::Reply;
use crate::record::{BY_ID, SnapshotId, SnapshotRecord, VolumeRecord, VolumeState};
use crate::refusal::{Refusal, Thing};
use crate::schedule::{
    Covered, LONGEST_SCHEDULE_NAME, MOST_SCHEDULES, MadeRecord, ScheduleCommand, ScheduleRecord, ScheduleRefusal,
    Schedules, ScrubRecord, Work,
};
use crate::state_machine::schedules::ScheduleChange;
use std::sync::Arc;
use tepal_model::schedule::{ScheduleTextError, check_within, stamp};
use tepal_model::text::shown;
use tepal_model::{Epoch, VolumeId};

/// Characters of what went wrong.
const LONGEST_ERROR: usize = 400;
/// Numbers in the database are smaller.
const MOST: u64 = i64::MAX as u64;

impl Draft {
    pub(super) fn carry_out_of_schedule(&mut self, command: &ScheduleCommand) -> Result<Reply, Refusal> {
        use ScheduleCommand as Of;
        match command {
            Of::Create { name, work, from_s } => self.create_schedule(name, work, *from_s),
            Of::Change { name, work, from_s } => self.change_schedule(name, work, *from_s),
            Of::Pause { name, paused, from_s } => self.pause_schedule(name, *paused, *from_s),
            Of::Remove { name } => {
                let schedule = self.schedule_named(name)?;
                self.drop_schedule(&schedule, "removed; its snapshots stay");
                Ok(Reply::Done)
            }
            Of::Take { schedule, volume, due_s, done_s } => self.take(*schedule, *volume, *due_s, *done_s),
            Of::Ran { schedule, due, at_unix_ms, missed, error } => {
                self.ran(*schedule, *due, *at_unix_ms, *missed, error.as_deref())
            }
            Of::SetBack { schedule, done_s, to_s } => self.set_back(*schedule, *done_s, *to_s),
            Of::Expire { schedule, volume, epoch } => self.expire(*schedule, *volume, *epoch),
            Of::Hold { schedule, volume, epoch, why } => self.hold(*schedule, *volume, *epoch, why),
            Of::Scrubbed { volume, begun_unix_ms, done_unix_ms } => {
                self.scrubbed(*volume, *begun_unix_ms, *done_unix_ms)
            }
        }
    }

    fn create_schedule(&mut self, name: &str, work: &Work, from_s: u64) -> Result<Reply, Refusal> {
        check_name(Thing::Schedule, name)?;
        if name.len() > LONGEST_SCHEDULE_NAME {
            return Err(ScheduleRefusal::Name { limit: LONGEST_SCHEDULE_NAME }.into());
        }
        if self.state.schedules.named(name).is_some() {
            return Err(ScheduleRefusal::Exists(name.to_owned()).into());
        }
        if self.state.schedules.by_id.len() >= MOST_SCHEDULES {
            return Err(ScheduleRefusal::TooMany { limit: MOST_SCHEDULES }.into());
        }
        self.check_work(work)?;
        let told = self.told_of(work);
        let record = ScheduleRecord {
            id: self.state.counters.event, // each schedule that is made has an event of its own
            name: name.to_owned(),
            work: work.clone(),
            paused: false,
            created_unix_ms: self.unix_ms,
            done_s: work.rhythm().map_or(0, |rhythm| rhythm.latest(from_s)),
            last_run_unix_ms: None,
            missed: 0,
            last_missed_s: None,
            error: None,
        };
        self.put_schedule(record);
        self.event("schedule", name, format!("made: {told}"));
        Ok(Reply::Done)
    }

    fn change_schedule(&mut self, name: &str, work: &Work, from_s: u64) -> Result<Reply, Refusal> {
        let mut record = self.schedule_named(name)?;
        if record.work == *work {
            return Ok(Reply::Done);
        }
        let is_alike = match (&record.work, work) {
            (Work::Snapshots { of: before, .. }, Work::Snapshots { of, .. }) => before == of,
            (Work::Scrubs { pool: before, .. }, Work::Scrubs { pool, .. }) => before == pool,
            _ => false,
        };
        if !is_alike {
            return Err(ScheduleRefusal::Other(name.to_owned()).into());
        }
        self.check_work(work)?;
        if record.work.rhythm() != work.rhythm() {
            record.done_s = work.rhythm().map_or(0, |rhythm| rhythm.latest(from_s));
        }
        record.work = work.clone();
        let told = self.told_of(work);
        self.put_schedule(record);
        self.event("schedule", name, format!("changed: {told}"));
        Ok(Reply::Done)
    }

    fn check_work(&self, work: &Work) -> Result<(), Refusal> {
        let rule = |error: ScheduleTextError| ScheduleRefusal::Rule { rule: error.to_string() };
        let pool = match work {
            Work::Snapshots { of, rhythm, keep } => {
                rhythm.check().map_err(rule)?;
                keep.check().map_err(rule)?;
                match of {
                    Covered::Volume(id) => {
                        self.active_volume(*id)?;
                        None
                    }
                    Covered::Pool(pool) => Some(pool),
                }
            }
            Work::Scrubs { pool, within_s } => {
                check_within(*within_s).map_err(rule)?;
                pool.as_ref()
            }
        };
        match pool.filter(|pool| !self.state.pools.contains_key(*pool)) {
            Some(pool) => Err(Refusal::NoPool(shown(pool))),
            None => Ok(()),
        }
    }

    /// As people read it.
    fn told_of(&self, work: &Work) -> String {
        match work {
            Work::Snapshots { of, rhythm, keep } => {
                let of = match of {
                    Covered::Volume(id) => {
                        let name = self.state.volumes.get(id).map(|volume| volume.name.clone());
                        format!("volume {}", name.unwrap_or_default())
                    }
                    Covered::Pool(pool) => format!("each volume of pool {pool}"),
                };
                format!("snapshots of {of}, {}, of which {keep} are kept", rhythm.told())
            }
            Work::Scrubs { pool, within_s } => {
                let of = pool.as_ref().map_or("all volumes".to_owned(), |pool| format!("all volumes of pool {pool}"));
                format!("scrubs of {of} within {}", tepal_model::schedule::period_text(*within_s))
            }
        }
    }

    fn pause_schedule(&mut self, name: &str, paused: bool, from_s: u64) -> Result<Reply, Refusal> {
        let mut record = self.schedule_named(name)?;
        if record.paused == paused {
            return Ok(Reply::Done);
        }
        record.paused = paused;
        if !paused {
            record.done_s = record.work.rhythm().map_or(0, |rhythm| rhythm.latest(from_s));
        }
        self.put_schedule(record);
        self.event("schedule", name, if paused { "rests" } else { "goes on" }.to_owned());
        Ok(Reply::Done)
    }

    fn take(&mut self, schedule: u64, volume: VolumeId, due_s: u64, done_s: Option<u64>) -> Result<Reply, Refusal> {
        let schedule = self.schedule(schedule)?;
        let record = self.active_volume(volume)?;
        let Work::Snapshots { of, .. } = &schedule.work else { return Err(not_covered(&schedule, &record)) };
        let is_covered = match of {
            Covered::Volume(id) => *id == record.id,
            Covered::Pool(pool) => *pool == record.pool,
        };
        if !is_covered {
            return Err(not_covered(&schedule, &record));
        }
        if done_s.is_some_and(|done_s| done_s != schedule.done_s) {
            return Err(ScheduleRefusal::Changed(schedule.name).into());
        }
        if self.state.schedules.made_by(schedule.id, volume).any(|made| made.due_s == due_s) {
            return Ok(Reply::Done);
        }
        if record.import.is_some() {
            return Err(Refusal::Incomplete(record.name)); // as of one that is made by hand
        }
        let (epoch, name) = (record.epoch, schedule.snapshot_name(due_s));
        let reply = self.keep_as_snapshot(record, &name, None)?;
        self.put_made(MadeRecord { volume, epoch, schedule: schedule.id, due_s: due_s.min(MOST), held: None });
        Ok(reply)
    }

    fn ran(
        &mut self,
        schedule: u64,
        due: Option<(u64, u64)>,
        at_unix_ms: u64,
        missed: Option<(u64, u64)>,
        error: Option<&str>,
    ) -> Result<Reply, Refusal> {
        let mut record = self.schedule(schedule)?;
        if let Some((due_s, done_s)) = due {
            if record.done_s != done_s {
                return Err(ScheduleRefusal::Changed(record.name).into());
            }
            record.done_s = due_s.min(MOST);
        }
        record.last_run_unix_ms = Some(at_unix_ms.min(MOST));
        let name = record.name.clone();
        if let Some((count, last_s)) = missed.filter(|(count, _)| *count > 0) {
            record.missed = record.missed.saturating_add(count).min(MOST);
            record.last_missed_s = Some(last_s.min(MOST));
            let times = if count == 1 { "1 time".to_owned() } else { format!("{count} times") };
            self.event("schedule", &name, format!("missed {times}, the last {}; made up for once", stamp(last_s)));
        }
        let error = error.map(|error| clipped(error, LONGEST_ERROR));
        match (&record.error, &error) {
            (before, Some(now)) if before.as_ref() != Some(now) => {
                self.event("schedule", &name, format!("went wrong: {now}"));
            }
            (Some(_), None) => self.event("schedule", &name, "goes right again".to_owned()),
            _ => {}
        }
        record.error = error;
        self.put_schedule(record);
        Ok(Reply::Done)
    }

    fn set_back(&mut self, schedule: u64, done_s: u64, to_s: u64) -> Result<Reply, Refusal> {
        let mut record = self.schedule(schedule)?;
        if record.done_s != done_s {
            return Err(ScheduleRefusal::Changed(record.name).into());
        }
        record.done_s = to_s.min(MOST);
        let text = format!("the clock went back behind {}: it goes on by the clock", stamp(done_s));
        let name = record.name.clone();
        self.put_schedule(record);
        self.event("schedule", &name, text);
        Ok(Reply::Done)
    }

    /// What it is about, if the schedule has made it and doesn't keep it.
    fn surplus(
        &self,
        schedule: &ScheduleRecord,
        volume: VolumeId,
        epoch: Epoch,
    ) -> Result<(VolumeRecord, SnapshotRecord, MadeRecord), Refusal> {
        let volume = self.active_volume(volume)?;
        let snapshot = self.snapshot(&volume, &format!("{BY_ID}{epoch}"))?;
        let (named, name) = (format!("{}@{}", volume.name, snapshot.name), schedule.name.clone());
        let made = self.state.schedules.made_by(schedule.id, volume.id).find(|made| made.epoch == epoch);
        let Some(made) = made else {
            return Err(ScheduleRefusal::NotMade { schedule: name, snapshot: named }.into());
        };
        if !self.state.schedules.surplus(schedule, volume.id).iter().any(|surplus| surplus.epoch == epoch) {
            return Err(ScheduleRefusal::Kept { schedule: name, snapshot: named }.into());
        }
        let made = MadeRecord::clone(made);
        Ok((volume, snapshot, made))
    }

    fn expire(&mut self, schedule: u64, volume: VolumeId, epoch: Epoch) -> Result<Reply, Refusal> {
        let schedule = self.schedule(schedule)?;
        let (volume, snapshot, _) = self.surplus(&schedule, volume, epoch)?;
        let of_it = SnapshotId { volume: volume.id, epoch };
        let clones = self.state.active_volumes().filter(|clone| clone.origin == Some(of_it));
        let clones: Vec<&str> = clones.map(|clone| &*clone.name).take(5).collect();
        if !clones.is_empty() {
            let snapshot = format!("{}@{}", volume.name, snapshot.name);
            return Err(ScheduleRefusal::HasClones { snapshot, clones: clones.join(", ") }.into());
        }
        self.remove_snapshot(&volume.name, &snapshot.name)
    }

    fn hold(&mut self, schedule: u64, volume: VolumeId, epoch: Epoch, why: &str) -> Result<Reply, Refusal> {
        let schedule = self.schedule(schedule)?;
        let (volume, snapshot, mut made) = self.surplus(&schedule, volume, epoch)?;
        let why = clipped(why, LONGEST_ERROR);
        if made.held.as_ref() == Some(&why) {
            return Ok(Reply::Done);
        }
        let subject = format!("{}@{}", volume.name, snapshot.name);
        self.event("snapshot", &subject, format!("schedule {} would remove it, and can't: {why}", schedule.name));
        made.held = Some(why);
        self.put_made(made);
        Ok(Reply::Done)
    }

    fn scrubbed(&mut self, volume: VolumeId, begun_unix_ms: u64, done_unix_ms: u64) -> Result<Reply, Refusal> {
        let volume = self.active_volume(volume)?.id;
        let (begun_unix_ms, done_unix_ms) = (begun_unix_ms.min(MOST), done_unix_ms.min(MOST));
        let record = Arc::new(ScrubRecord { volume, begun_unix_ms, done_unix_ms });
        self.schedules().scrubs.insert(volume, record.clone());
        self.changes.push(Change::Schedules(ScheduleChange::Scrub(record)));
        Ok(Reply::Done)
    }

    fn schedules(&mut self) -> &mut Schedules {
        Arc::make_mut(&mut self.state.schedules)
    }

    fn put_schedule(&mut self, record: ScheduleRecord) {
        let record = Arc::new(record);
        self.schedules().by_id.insert(record.id, record.clone());
        self.changes.push(Change::Schedules(ScheduleChange::Schedule(record)));
    }

    fn put_made(&mut self, record: MadeRecord) {
        let record = Arc::new(record);
        self.schedules().put_made(record.clone());
        self.changes.push(Change::Schedules(ScheduleChange::Made(record)));
    }

    /// Whoever made the snapshot has nothing to do with it any more.
    pub(super) fn forget_made(&mut self, volume: VolumeId, epoch: Epoch) {
        let is_made = self.state.schedules.made.get(&volume).is_some_and(|made| made.contains_key(&epoch));
        if is_made && self.schedules().drop_made(volume, epoch) {
            self.changes.push(Change::Schedules(ScheduleChange::MadeGone(volume, epoch)));
        }
    }

    fn drop_schedule(&mut self, record: &ScheduleRecord, why: &str) {
        let made = self.state.schedules.all_made_by(record.id).map(|made| (made.volume, made.epoch));
        for (volume, epoch) in made.collect::<Vec<_>>() {
            self.forget_made(volume, epoch);
        }
        self.schedules().by_id.remove(&record.id);
        self.changes.push(Change::Schedules(ScheduleChange::ScheduleGone(record.id)));
        self.event("schedule", &record.name, why.to_owned());
    }

    /// What went with a volume that is gone.
    pub(super) fn drop_schedules_of(&mut self, volume: &VolumeRecord) {
        let is_its = |work: &Work| matches!(work, Work::Snapshots { of: Covered::Volume(id), .. } if *id == volume.id);
        self.drop_schedules(is_its, &format!("removed with volume {}", volume.name));
        if self.state.schedules.scrubs.contains_key(&volume.id) {
            self.schedules().scrubs.remove(&volume.id);
            self.changes.push(Change::Schedules(ScheduleChange::ScrubGone(volume.id)));
        }
    }

    /// The same of a pool.
    pub(super) fn drop_schedules_of_pool(&mut self, pool: &str) {
        let is_its = |work: &Work| match work {
            Work::Snapshots { of: Covered::Pool(name), .. } | Work::Scrubs { pool: Some(name), .. } => name == pool,
            _ => false,
        };
        self.drop_schedules(is_its, &format!("removed with pool {pool}"));
    }

    fn drop_schedules(&mut self, which: impl Fn(&Work) -> bool, why: &str) {
        let gone = self.state.schedules.by_id.values().filter(|schedule| which(&schedule.work)).cloned();
        for schedule in gone.collect::<Vec<_>>() {
            self.drop_schedule(&schedule, why);
        }
    }

    fn schedule(&self, id: u64) -> Result<ScheduleRecord, Refusal> {
        let found = self.state.schedules.by_id.get(&id).map(|record| ScheduleRecord::clone(record));
        Ok(found.ok_or_else(|| ScheduleRefusal::None(id.to_string()))?)
    }

    fn schedule_named(&self, name: &str) -> Result<ScheduleRecord, Refusal> {
        let found = self.state.schedules.named(name).map(|record| ScheduleRecord::clone(record));
        Ok(found.ok_or_else(|| ScheduleRefusal::None(shown(name)))?)
    }

    fn active_volume(&self, id: VolumeId) -> Result<VolumeRecord, Refusal> {
        let found = self.state.volumes.get(&id).filter(|volume| volume.state == VolumeState::Active);
        found.map(|record| VolumeRecord::clone(record)).ok_or(Refusal::NoVolumeId(id))
    }
}

fn not_covered(schedule: &ScheduleRecord, volume: &VolumeRecord) -> Refusal {
    ScheduleRefusal::NotCovered { schedule: schedule.name.clone(), volume: volume.name.clone() }.into()
}
