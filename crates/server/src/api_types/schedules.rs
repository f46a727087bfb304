//! Schedules: what is done again and again.

use super::described;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tepal_model::schedule::{Ahead, Keep, TimeOfDay};

pub use tepal_metadata::WorkKind;

/// What a schedule does. Of scrubs and snapshots, each has some of these and not the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleRules {
    /// Snapshots, or scrubs.
    #[schemars(with = "described::WorkText")]
    pub work: WorkKind,
    /// Of snapshots: the volume's name.
    #[serde(default)]
    pub volume: Option<String>,
    /// The pool whose volumes it's about. Of snapshots, either this or a volume; of scrubs, all volumes if it isn't said.
    #[serde(default)]
    pub pool: Option<String>,
    /// Of snapshots: from one time to the next, in seconds.
    #[serde(default)]
    pub every_s: Option<u64>,
    /// Of snapshots: one of the times, as `02:30`; midnight, if it isn't said.
    #[serde(default)]
    #[schemars(with = "Option<described::TimeText>")]
    pub at: Option<TimeOfDay>,
    /// Of snapshots: how far local time is ahead of UTC, as `+02:00`; `UTC`, if it isn't said.
    #[serde(default)]
    #[schemars(with = "Option<described::ZoneText>")]
    pub zone: Option<Ahead>,
    /// Of snapshots: how many of each volume stay of each kind; see [`DEFAULT_KEEP`].
    #[serde(default)]
    #[schemars(with = "Option<described::KeepCounts>")]
    pub keep: Option<Keep>,
    /// Of scrubs: no volume stays unscrubbed for longer, in seconds; 30 days, if it isn't said.
    #[serde(default)]
    pub within_s: Option<u64>,
}

/// What is kept if nothing is said.
pub const DEFAULT_KEEP: Keep = Keep { last: 0, hourly: 24, daily: 7, weekly: 4, monthly: 12, yearly: 0 };

/// A new schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CreateSchedule {
    /// Unique among schedules.
    #[schemars(regex(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"))]
    pub name: String,
    /// What it does.
    #[serde(flatten)]
    pub rules: ScheduleRules,
}

/// A schedule, and how it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleInfo {
    /// Its name.
    pub name: String,
    /// What it does; all that there is of it is said.
    #[serde(flatten)]
    pub rules: ScheduleRules,
    /// Whether it rests.
    pub paused: bool,
    /// When it was made, in milliseconds since 1970.
    pub created_unix_ms: u64,
    /// When it's next to be run: of scrubs, when the next volume is due. None if it rests.
    pub next_unix_ms: Option<u64>,
    /// When it was run last.
    pub last_run_unix_ms: Option<u64>,
    /// How many times have passed at which it should have been run, and wasn't.
    pub missed: u64,
    /// The last of them.
    pub last_missed_unix_ms: Option<u64>,
    /// What went wrong in its last run.
    pub error: Option<String>,
    /// So many snapshots are there that it has made, and may remove.
    pub snapshots: u64,
    /// Those of them that it doesn't keep any more, and can't remove.
    pub held: Vec<HeldSnapshot>,
    /// Of scrubs: the volume that has been unscrubbed for the longest, and since when.
    pub oldest: Option<Unscrubbed>,
}

/// A snapshot that stays, though its schedule doesn't keep it any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeldSnapshot {
    /// As `VOLUME@SNAP`.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// For how long nobody has scrubbed a volume, as far as that is on record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unscrubbed {
    /// The volume's name.
    pub volume: String,
    /// When its last whole scrub began, or when it was made if there was none; in milliseconds since 1970.
    pub since_unix_ms: u64,
}

/// What a run by hand did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleRun {
    /// The snapshots that it made, as `VOLUME@SNAP`; those that aren't kept any more are removed soon.
    pub snapshots: Vec<String>,
    /// The volumes that are being scrubbed now, one after another.
    pub scrubs: Vec<String>,
}

/// What a scrub is asked for with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScrubQuery {
    /// It may take so long, in milliseconds, and disturbs the less. As fast as it goes, if it isn't said; that hurries one that runs, too.
    #[serde(default)]
    pub take_ms: Option<u64>,
}
