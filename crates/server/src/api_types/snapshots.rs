//! Snapshots of volumes, and how they differ.

use super::{BY_ID, CopyOf, described};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use tepal_model::text::{NAME_RULE, is_name, shown};
use tepal_model::{DriveId, Epoch};

/// Between a volume's name and a snapshot's. Neither has one.
const AT: char = '@';

/// `VOLUME@SNAP`, as it's written everywhere.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotName {
    /// The volume's name.
    pub volume: String,
    /// The snapshot's own, unique among those of the volume.
    pub snapshot: String,
}

/// A text isn't the name of a snapshot, or not that of what can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotNameError {
    /// Say which snapshot.
    #[error("'{0}' is not a snapshot: write VOLUME@SNAP, as in v0@monday")]
    NoSnapshot(String),
    /// Choose another name.
    #[error("'{0}' is not a name: {NAME_RULE}")]
    Name(String),
}

impl FromStr for SnapshotName {
    type Err = SnapshotNameError;

    fn from_str(text: &str) -> Result<Self, SnapshotNameError> {
        let (volume, snapshot) = text.split_once(AT).ok_or_else(|| SnapshotNameError::NoSnapshot(shown(text)))?;
        Ok(SnapshotName { volume: name(volume)?, snapshot: name(snapshot)? })
    }
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{AT}{}", self.volume, self.snapshot)
    }
}

fn name(text: &str) -> Result<String, SnapshotNameError> {
    if is_name(text) { Ok(text.to_owned()) } else { Err(SnapshotNameError::Name(shown(text))) }
}

/// A volume that begins with what the snapshot holds. Nothing is copied: either may be removed before the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CloneSnapshot {
    /// The new volume's.
    #[schemars(regex(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"))]
    pub name: String,
}

/// What can be read: `VOLUME`, or `VOLUME@SNAP`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceName {
    /// As it is now.
    Volume(String),
    /// As it was.
    Snapshot(SnapshotName),
}

impl SourceName {
    /// The volume's name.
    pub fn volume(&self) -> &str {
        match self {
            SourceName::Volume(name) | SourceName::Snapshot(SnapshotName { volume: name, .. }) => name,
        }
    }
}

impl FromStr for SourceName {
    type Err = SnapshotNameError;

    fn from_str(text: &str) -> Result<Self, SnapshotNameError> {
        match text.contains(AT) {
            true => text.parse().map(SourceName::Snapshot),
            false => name(text).map(SourceName::Volume),
        }
    }
}

impl fmt::Display for SourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceName::Volume(name) => f.write_str(name),
            SourceName::Snapshot(name) => name.fmt(f),
        }
    }
}

/// What a volume held at some moment, under a name. What servers would say that don't answer is missing from its counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotInfo {
    /// The volume's name.
    pub volume: String,
    /// As [`VolumeInfo::id`](super::VolumeInfo::id).
    #[serde(default)]
    pub volume_id: u64,
    /// Unique among the volume's snapshots, and may change.
    pub name: String,
    /// Tells it from all other snapshots that the volume has or had; a later one's is higher.
    pub epoch: Epoch,
    /// The volume's when it was made, in bytes.
    pub size: u64,
    /// By the clock of the server that was asked, in milliseconds since 1970.
    pub created_unix_ms: u64,
    /// NBD connections that have it open.
    #[serde(default)]
    pub clients: u64,
    /// Of them, those of gateways that aren't servers.
    #[serde(default)]
    pub clients_of_gateways: u64,
    /// Exports and comparisons that read it.
    #[serde(default)]
    pub exports: u64,
    /// Bytes on drives, copies counted, that come back if this snapshot is removed and nothing else: at least so many. None where that
    /// wasn't counted: it's in lists of snapshots, and in what is shown of one.
    #[serde(default)]
    pub unique: Option<u64>,
    /// Drives of the volume that are away, or whose server doesn't answer: what they hold isn't in `unique`.
    #[serde(default)]
    #[schemars(with = "Vec<described::DriveText>")]
    pub uncounted_drives: Vec<DriveId>,
    /// Blocks of it that no copy has right, as far as was seen: at least so many. The volume itself may be right.
    #[serde(default)]
    pub damaged_blocks: u64,
    /// What is wrong with it, for people.
    #[serde(default)]
    pub reason: Vec<String>,
    /// The snapshot of another volume that it's a copy of, if replication has made it.
    #[serde(default)]
    pub copy_of: Option<CopyOf>,
}

impl SnapshotInfo {
    /// `VOLUME@SNAP`.
    pub fn full_name(&self) -> SnapshotName {
        SnapshotName { volume: self.volume.clone(), snapshot: self.name.clone() }
    }

    /// Stands for its full name in requests, whatever it's called by then: see [`BY_ID`].
    pub fn by_id(&self) -> String {
        format!("{BY_ID}{}@{}", self.volume_id, self.epoch)
    }
}

/// A removed snapshot. What only it kept is freed in the background.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotRemoval {
    /// An agreed view in which it's gone: all is freed when [`VolumeInfo::reclaimed_view`](super::VolumeInfo::reclaimed_view) is this one
    /// or a later one.
    pub view: u64,
}

/// The query of what is shown of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShowSnapshotQuery {
    /// Count [`SnapshotInfo::unique`], for which drives look at what was trimmed. True, if not said.
    #[serde(default = "yes")]
    pub count: bool,
}

fn yes() -> bool {
    true
}

/// The query of the list of snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotQuery {
    /// Those of this volume alone.
    #[serde(default)]
    pub volume: Option<String>,
}

/// Keeps what a volume holds now. Its clients go on meanwhile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CreateSnapshot {
    /// The volume's name.
    pub volume: String,
    /// 1 to 128 of `A-Z a-z 0-9 . _ -`, not beginning with `.` or `-`. No other snapshot of the volume may have it.
    #[schemars(regex(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"))]
    pub name: String,
}

/// Gives a snapshot another name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RenameSnapshot {
    /// As [`CreateSnapshot::name`].
    #[schemars(regex(pattern = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"))]
    pub new_name: String,
}

/// The query of GET `diff`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiffQuery {
    /// The snapshot of the same volume to compare with, by its name or by [`BY_ID`] and its epoch; if none is named, the volume as it is
    /// now.
    #[serde(default)]
    pub to: Option<String>,
    /// Where to begin, in bytes: 0, or [`SnapshotDiff::next`].
    #[serde(default)]
    pub offset: u64,
    /// Of the volume as it is now: as of [`RangeQuery::epoch`](super::RangeQuery::epoch).
    #[serde(default)]
    pub epoch: Option<Epoch>,
    /// As of [`RangeQuery::revision`](super::RangeQuery::revision).
    #[serde(default)]
    pub revision: Option<u64>,
    /// Compare nothing: say what drives have noted as written or taken out, which may be the same bytes.
    #[serde(default)]
    pub noted: bool,
}

/// Where what was asked for first has other bytes than what it was compared with. A part of it: so much as can be
/// compared at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotDiff {
    /// Bytes of the snapshot that is compared.
    pub from_size: u64,
    /// Bytes of what it's compared with. What a longer one has past the end of the other differs where it isn't zero.
    pub to_size: u64,
    /// Ascending, in whole blocks of 4096 bytes but for the last one of a volume.
    pub runs: Vec<Difference>,
    /// Up to here everything was compared: ask on from here. None if that is the end.
    pub next: Option<u64>,
}

/// A run of bytes that differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// The first one, counted from the volume's start.
    pub offset: u64,
    /// How many.
    pub length: u64,
    /// What is there in what was compared with.
    pub kind: DifferenceKind,
}

/// What changed bytes have become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    /// Not all of a block is zero.
    Data,
    /// All of it.
    Zero,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_named_by_its_volume_and_its_own_name() {
        let name: SnapshotName = "v0@monday".parse().expect("a name");
        assert_eq!((name.volume.as_str(), name.snapshot.as_str()), ("v0", "monday"));
        assert_eq!(name.to_string(), "v0@monday");
        assert_eq!("v0".parse(), Ok(SourceName::Volume("v0".into())));
        assert_eq!("v0@monday".parse(), Ok(SourceName::Snapshot(name)));
    }

    #[test]
    fn what_is_no_snapshot_is_refused_with_the_part_at_fault() {
        let long = "a".repeat(1000);
        for (text, said) in [
            ("", "VOLUME@SNAP"),
            ("v0", "VOLUME@SNAP"),
            ("@a", "'' is not a name"),
            ("v0@", "'' is not a name"),
            ("v0@a@b", "'a@b' is not a name"),
            ("../v@a", "'../v' is not a name"),
            ("v@a/b", "'a/b' is not a name"),
            (&format!("v@{long}"), "is not a name"),
            (&format!("{long}@a"), "is not a name"),
        ] {
            let error = text.parse::<SnapshotName>().expect_err(text).to_string();
            assert!(error.contains(said) && error.len() < 250, "{text}: {error}");
        }
        assert!("v0@".parse::<SourceName>().is_err() && "".parse::<SourceName>().is_err());
    }
}
