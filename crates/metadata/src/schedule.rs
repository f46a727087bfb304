//! What is done again and again, as the cluster agrees on it: schedules of snapshots and scrubs, what came of them, and which snapshots
//! they have made.
//!
//! Who runs them, and when, is for servers. What is agreed here keeps a run from being done twice, and a snapshot from being removed that
//! was promised, whatever servers' clocks show.

use crate::refusal::Refusal;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use tepal_model::schedule::{Keep, Rhythm, stamp};
use tepal_model::text::shown;
use tepal_model::{Epoch, VolumeId};

/// Of each cluster.
pub const MOST_SCHEDULES: usize = 1000;
/// Characters of a schedule's name: those of its snapshots have the time too.
pub const LONGEST_SCHEDULE_NAME: usize = 100;

/// What a schedule does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Makes snapshots, and removes those of its own that aren't kept any more.
    Snapshots {
        /// Of what.
        of: Covered,
        /// When.
        rhythm: Rhythm,
        /// Which of them stay, of each volume.
        keep: Keep,
    },
    /// Has volumes scrubbed.
    Scrubs {
        /// Those of this pool; all, if none is said.
        pool: Option<String>,
        /// No volume stays unscrubbed for longer, in seconds.
        within_s: u64,
    },
}

/// Of what a schedule makes snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Covered {
    /// Of one volume, whatever it's called.
    Volume(VolumeId),
    /// Of each volume of a pool.
    Pool(String),
}

impl Work {
    /// In one word, as users and SQL see it.
    pub fn kind(&self) -> WorkKind {
        match self {
            Work::Snapshots { .. } => WorkKind::Snapshots,
            Work::Scrubs { .. } => WorkKind::Scrubs,
        }
    }

    /// The times at which it's done; none if it's not a matter of times.
    pub fn rhythm(&self) -> Option<Rhythm> {
        match self {
            Work::Snapshots { rhythm, .. } => Some(*rhythm),
            Work::Scrubs { .. } => None,
        }
    }
}

/// What a schedule does, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkKind {
    /// Snapshots.
    Snapshots,
    /// Scrubs.
    Scrubs,
}

/// A text is no kind of schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no kind of schedule")]
pub struct WorkKindError(String);

impl fmt::Display for WorkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WorkKind::Snapshots => "snapshots",
            WorkKind::Scrubs => "scrubs",
        })
    }
}

impl FromStr for WorkKind {
    type Err = WorkKindError;

    fn from_str(text: &str) -> Result<Self, WorkKindError> {
        match text {
            "snapshots" => Ok(WorkKind::Snapshots),
            "scrubs" => Ok(WorkKind::Scrubs),
            _ => Err(WorkKindError(shown(text))),
        }
    }
}

/// A schedule, and how it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleRecord {
    /// Never used again, unlike its name.
    pub id: u64,
    /// Unique among schedules.
    pub name: String,
    /// What it does.
    pub work: Work,
    /// Whether it rests.
    pub paused: bool,
    /// By the proposer's wall clock, in milliseconds since 1970; for people.
    pub created_unix_ms: u64,
    /// Times up to this one are over: what was due then was done, or won't be any more. Seconds since 1970.
    pub done_s: u64,
    /// When it was run last, by hand too, in milliseconds since 1970.
    pub last_run_unix_ms: Option<u64>,
    /// How many times have passed at which it should have been run, and wasn't.
    pub missed: u64,
    /// The last of them, in seconds since 1970.
    pub last_missed_s: Option<u64>,
    /// What went wrong in its last run.
    pub error: Option<String>,
}

impl ScheduleRecord {
    /// What its snapshot of this time is called.
    pub fn snapshot_name(&self, due_s: u64) -> String {
        format!("{}-{}", self.name, stamp(due_s))
    }

    /// When it's next to be run; none if it rests, or goes by no times.
    pub fn next_s(&self) -> Option<u64> {
        self.work.rhythm().filter(|_| !self.paused).map(|rhythm| rhythm.next(self.done_s))
    }
}

/// A snapshot that a schedule has made and may remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeRecord {
    /// Of what the snapshot is.
    pub volume: VolumeId,
    /// And its epoch.
    pub epoch: Epoch,
    /// Who made it: [`ScheduleRecord::id`].
    pub schedule: u64,
    /// For which time, in seconds since 1970.
    pub due_s: u64,
    /// Why it's still there, though the schedule doesn't keep it any more.
    pub held: Option<String>,
}

/// The last whole scrub of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubRecord {
    /// Of which volume.
    pub volume: VolumeId,
    /// When it began: what was there then was read. Milliseconds since 1970.
    pub begun_unix_ms: u64,
    /// When it ended.
    pub done_unix_ms: u64,
}

/// All of it. No run is in it: a run that was cut off is found by what it has made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedules {
    /// By their ids.
    pub by_id: BTreeMap<u64, Arc<ScheduleRecord>>,
    /// The snapshots that schedules have made, by volume and epoch.
    pub made: BTreeMap<VolumeId, Arc<BTreeMap<Epoch, Arc<MadeRecord>>>>,
    /// Of volumes that were scrubbed.
    pub scrubs: BTreeMap<VolumeId, Arc<ScrubRecord>>,
}

impl Schedules {
    /// The schedule of this name.
    pub fn named(&self, name: &str) -> Option<&Arc<ScheduleRecord>> {
        self.by_id.values().find(|schedule| schedule.name == name)
    }

    /// The snapshots of a volume that a schedule has made.
    pub fn made_by(&self, schedule: u64, volume: VolumeId) -> impl Iterator<Item = &Arc<MadeRecord>> {
        let of_volume = self.made.get(&volume).into_iter().flat_map(|made| made.values());
        of_volume.filter(move |made| made.schedule == schedule)
    }

    /// Those of all volumes.
    pub fn all_made_by(&self, schedule: u64) -> impl Iterator<Item = &Arc<MadeRecord>> {
        self.made.values().flat_map(|made| made.values()).filter(move |made| made.schedule == schedule)
    }

    /// Which of a volume's snapshots of this schedule it doesn't keep any more, the oldest first. Never the one that was made last, nor
    /// that of the latest time.
    pub fn surplus(&self, schedule: &ScheduleRecord, volume: VolumeId) -> Vec<Arc<MadeRecord>> {
        let Work::Snapshots { rhythm, keep, .. } = &schedule.work else { return Vec::new() };
        let made: Vec<&Arc<MadeRecord>> = self.made_by(schedule.id, volume).collect();
        let times: BTreeSet<u64> = made.iter().map(|made| made.due_s).collect();
        let (kept, newest) = (keep.of(&times, rhythm.ahead), made.iter().map(|made| made.epoch).max());
        let surplus = made.into_iter().filter(|made| !kept.contains(&made.due_s) && Some(made.epoch) != newest);
        surplus.cloned().collect()
    }

    pub(crate) fn put_made(&mut self, record: Arc<MadeRecord>) {
        Arc::make_mut(self.made.entry(record.volume).or_default()).insert(record.epoch, record);
    }

    /// Whether there was one.
    pub(crate) fn drop_made(&mut self, volume: VolumeId, epoch: Epoch) -> bool {
        let Some(made) = self.made.get_mut(&volume).filter(|made| made.contains_key(&epoch)) else { return false };
        let made = Arc::make_mut(made);
        made.remove(&epoch);
        if made.is_empty() {
            self.made.remove(&volume);
        }
        true
    }
}

/// A change of schedules. Times are those of the proposer's wall clock, which it chose for everybody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleCommand {
    /// Adds a schedule.
    Create {
        /// Unique among schedules.
        name: String,
        /// What it does.
        work: Work,
        /// Of times, the first one after this, in seconds since 1970, is the first that is due.
        from_s: u64,
    },
    /// The schedule does this from now on: of the same kind, and with the same volumes.
    Change {
        /// The schedule's.
        name: String,
        /// What it does.
        work: Work,
        /// As of a new one.
        from_s: u64,
    },
    /// It rests, or goes on.
    Pause {
        /// The schedule's.
        name: String,
        /// Whether it rests.
        paused: bool,
        /// Times up to this one aren't missed if it goes on, in seconds since 1970.
        from_s: u64,
    },
    /// The schedule is gone. Its snapshots stay, and are nobody's.
    Remove {
        /// The schedule's.
        name: String,
    },
    /// Makes a snapshot. That of the same time is made once: asked again, nothing changes.
    Take {
        /// The schedule's id.
        schedule: u64,
        /// Of which volume.
        volume: VolumeId,
        /// The time for which it's made, in seconds since 1970.
        due_s: u64,
        /// The schedule's `done_s` as the proposer knows it; refused if that has changed. None if it's made by hand.
        done_s: Option<u64>,
    },
    /// A run is over.
    Ran {
        /// The schedule's id.
        schedule: u64,
        /// The time for which it was, and the schedule's `done_s` before; refused if that has changed. None if it was by hand.
        due: Option<(u64, u64)>,
        /// When it ended, in milliseconds since 1970.
        at_unix_ms: u64,
        /// How many times have passed before without a run, and the last of them.
        missed: Option<(u64, u64)>,
        /// What went wrong.
        error: Option<String>,
    },
    /// The clock has gone back far: times up to `to_s` are over, those after it aren't.
    SetBack {
        /// The schedule's id.
        schedule: u64,
        /// As it was; refused if it has changed.
        done_s: u64,
        /// Seconds since 1970.
        to_s: u64,
    },
    /// Removes a snapshot that the schedule made and doesn't keep any more. Refused if it does keep it, or the snapshot has clones.
    Expire {
        /// The schedule's id.
        schedule: u64,
        /// Of which volume.
        volume: VolumeId,
        /// Which snapshot.
        epoch: Epoch,
    },
    /// Such a snapshot can't be removed now, or not for another reason than before.
    Hold {
        /// The schedule's id.
        schedule: u64,
        /// Of which volume.
        volume: VolumeId,
        /// Which snapshot.
        epoch: Epoch,
        /// Why.
        why: String,
    },
    /// A volume was scrubbed, all of it.
    Scrubbed {
        /// Which volume.
        volume: VolumeId,
        /// Milliseconds since 1970.
        begun_unix_ms: u64,
        /// The same.
        done_unix_ms: u64,
    },
}

/// Why a command about schedules wasn't carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each message says what it is, and what to do")]
pub enum ScheduleRefusal {
    #[error("there is no schedule '{0}': `tepal schedule ls` lists them")]
    None(String),
    #[error("schedule '{0}' exists already")]
    Exists(String),
    #[error(
        "there are {limit} schedules, and no more are possible: one for a pool takes the place of many for volumes"
    )]
    TooMany { limit: usize },
    #[error("a schedule's name has at most {limit} characters, since those of its snapshots have the time too")]
    Name { limit: usize },
    /// One of [`tepal_model::schedule::ScheduleTextError`]'s rules.
    #[error("{rule}")]
    Rule { rule: String },
    #[error("schedule '{0}' does something else, or with other volumes: remove it, and create another one")]
    Other(String),
    #[error("schedule '{0}' changed meanwhile; look again")]
    Changed(String),
    #[error("schedule '{schedule}' makes no snapshots of volume '{volume}'")]
    NotCovered { schedule: String, volume: String },
    #[error("snapshot '{snapshot}' isn't one that schedule '{schedule}' has made")]
    NotMade { schedule: String, snapshot: String },
    #[error("schedule '{schedule}' keeps snapshot '{snapshot}'")]
    Kept { schedule: String, snapshot: String },
    #[error("snapshot '{snapshot}' has clones: {clones}")]
    HasClones { snapshot: String, clones: String },
}

impl From<ScheduleRefusal> for Refusal {
    fn from(refusal: ScheduleRefusal) -> Refusal {
        Refusal::Schedule(refusal)
    }
}
