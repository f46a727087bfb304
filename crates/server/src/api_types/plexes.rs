//! Volumes as plexes and subdisks, each with its state (Lehey, FREENIX 1999).

use super::{DriveState, Range, described};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use tepal_model::DriveId;
use tepal_model::size::exact;

/// A volume and its parts, as they are now: states are derived, and kept nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlexesInfo {
    /// The volume's name.
    pub volume: String,
    /// As [`VolumeInfo::id`](super::VolumeInfo::id).
    pub volume_id: u64,
    /// Bytes.
    pub size: u64,
    /// As [`VolumeInfo::layout`](super::VolumeInfo::layout).
    pub layout: String,
    /// `up`, `degraded` (it has all its data, and lacks a part that it should have) or `down`.
    pub state: PartState,
    /// Empty of a volume whose layout names no drives. Of one that goes to other plexes, those.
    pub plexes: Vec<PlexInfo>,
}

/// A copy of a volume, or of a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlexInfo {
    /// Its own, or `VOLUME.p0` by its number.
    pub name: String,
    /// `concat`, `striped` or `raid5`.
    pub organization: String,
    /// Bytes of one subdisk before the next has its turn; null of `concat`.
    pub stripe: Option<u64>,
    /// Bytes of the volume that it reaches to.
    pub size: u64,
    /// That of its subdisks, where it's the same for all; else `degraded`, if something of it can't be used.
    pub state: PartState,
    /// Bytes whose parity has yet to be compared with their data since a crash.
    pub comparing: u64,
    /// In order.
    pub subdisks: Vec<SubdiskInfo>,
}

impl PlexInfo {
    /// For people: `concat`, or `striped 512K`.
    pub fn organized(&self) -> String {
        let stripe = self.stripe.map(|stripe| format!(" {}", exact(stripe))).unwrap_or_default();
        format!("{}{stripe}", self.organization)
    }
}

/// A stretch of one drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SubdiskInfo {
    /// Its own, or `VOLUME.p0.s0` by its number.
    pub name: String,
    /// That has it.
    #[schemars(with = "described::DriveText")]
    pub drive: DriveId,
    /// What the drive is called besides.
    pub drive_name: Option<String>,
    /// Bytes from the beginning of what volumes may use of the drive.
    pub drive_offset: u64,
    /// Bytes.
    pub length: u64,
    /// Bytes from the beginning of the plex; with stripes, of its first stripe.
    pub plex_offset: u64,
    /// What it's good for now.
    pub state: PartState,
    /// About so many bytes of changes it lacks, as far as is known: written while its drive was away.
    pub stale: u64,
    /// Per cent of the volume that have come, while it's filled for the first time.
    pub filled: Option<u64>,
}

impl SubdiskInfo {
    /// For people: its drive's name, else the drive's id.
    pub fn drive_called(&self) -> String {
        self.drive_name.clone().unwrap_or_else(|| self.drive.to_string())
    }
}

/// What a part of a volume is good for, in Vinum's words. The worst come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PartState {
    /// All of it is used.
    Up,
    /// It's filled for the first time; or parity is compared with data since a crash.
    Initializing,
    /// Its drive was away, and gets what it missed.
    Reviving,
    /// Its drive is here, and what it missed can't be had now.
    Stale,
    /// It's to be filled, and that hasn't begun.
    Empty,
    /// Some of its parts can't be used.
    Degraded,
    /// Its drive isn't here, and may return.
    Down,
    /// Its drive is gone for good.
    Faulty,
}

/// Of a drive.
impl From<DriveState> for PartState {
    fn from(state: DriveState) -> Self {
        match state {
            DriveState::Up => PartState::Up,
            DriveState::Behind => PartState::Stale,
            DriveState::Missing | DriveState::Offline => PartState::Down,
            DriveState::Failed => PartState::Faulty,
        }
    }
}

impl fmt::Display for PartState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PartState::Up => "up",
            PartState::Initializing => "initializing",
            PartState::Reviving => "reviving",
            PartState::Stale => "stale",
            PartState::Empty => "empty",
            PartState::Degraded => "degraded",
            PartState::Down => "down",
            PartState::Faulty => "faulty",
        })
    }
}

/// Compares parity with data in a step of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckParity {
    /// The first byte of the volume.
    pub offset: u64,
    /// Parity that isn't that of its data is written again.
    #[serde(default)]
    pub rebuild: bool,
}

/// What was found in one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ParityChecked {
    /// Where the next step begins; null after the last one.
    pub next: Option<u64>,
    /// Bytes of the volume.
    pub size: u64,
    /// Columns that were compared.
    #[serde(default)]
    pub columns: u64,
    /// What has other parity than its data, in stripes.
    pub unequal: Vec<Range>,
    /// Bytes that couldn't be compared, as not all their drives are here and up to date.
    pub unchecked: u64,
}
