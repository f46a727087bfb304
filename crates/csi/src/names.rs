//! Names and ids: what the orchestrator calls things, and what the cluster calls them.
//!
//! Invariants:
//! 1. The same name of the orchestrator is always the same name of the cluster, and no two share one.
//! 2. An id is never another thing's: it has the cluster's id and the volume's, which isn't used again.
//! 3. What the driver made is known by its name: it removes nothing else.

use crate::failure::Failure;
use ring::digest::{SHA256, digest};
use std::fmt;
use std::fmt::Write;
use std::str::FromStr;
use tepal_model::text::{is_name, shown};
use tepal_model::{ClusterId, Epoch};
use tepal_server::api::types::BY_ID;

/// Begins the names of what is called as the orchestrator calls it.
const PLAIN: &str = "csi-";
/// Begins the names of what can't be called so.
const HASHED: &str = "csi_";
/// Begins the names of volumes that were deleted, while snapshots of them are left.
const DELETED: &str = "csi_deleted-";
/// Begins the names of snapshots that last as long as it takes to clone a volume.
const PASSING: &str = "csi_clone-";

/// What a volume or snapshot is called that the orchestrator calls `name`.
pub fn of(name: &str) -> String {
    let plain = format!("{PLAIN}{name}");
    if is_name(&plain) { plain } else { format!("{HASHED}{}", hash(name)) }
}

/// What the snapshot is called by whose way the volume of this name is cloned from another volume.
pub fn passing(volume: &str) -> String {
    format!("{PASSING}{}", hash(volume))
}

/// What a volume is called that was deleted and whose snapshots are left.
pub fn deleted(volume: u64) -> String {
    format!("{DELETED}{volume}")
}

/// Whether a volume was deleted as far as the orchestrator knows.
pub fn is_deleted(name: &str) -> bool {
    name.starts_with(DELETED)
}

/// Whether a snapshot is only there for the time of a clone.
pub fn is_passing(name: &str) -> bool {
    name.starts_with(PASSING)
}

/// Whether the driver made it.
pub fn is_ours(name: &str) -> bool {
    name.starts_with(PLAIN) || name.starts_with(HASHED)
}

fn hash(text: &str) -> String {
    digest(&SHA256, text.as_bytes()).as_ref().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // to a string it can't fail
        text
    })
}

/// A volume, as the orchestrator has it: `CLUSTER-7`. Also what the volume's attachment is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeHandle {
    /// The cluster.
    pub cluster: ClusterId,
    /// The volume's id there.
    pub volume: u64,
}

/// A snapshot, as the orchestrator has it: `CLUSTER-7@3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotHandle {
    /// The volume that it's a snapshot of.
    pub of: VolumeHandle,
    /// Which one.
    pub epoch: Epoch,
}

/// A machine, as the orchestrator has it: `CLUSTER-NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeHandle {
    /// The cluster whose volumes it uses.
    pub cluster: ClusterId,
    /// What it's called there: as a holder of volumes, and as an identity.
    pub name: String,
}

impl VolumeHandle {
    /// `None` if no driver ever gave it.
    pub fn parse(text: &str) -> Option<VolumeHandle> {
        let (cluster, volume) = text.split_once('-')?;
        Some(VolumeHandle { cluster: cluster.parse().ok()?, volume: number(volume)? })
    }

    /// What stands for its name in requests.
    pub fn by_id(&self) -> String {
        format!("{BY_ID}{}", self.volume)
    }
}

impl SnapshotHandle {
    /// `None` if no driver ever gave it.
    pub fn parse(text: &str) -> Option<SnapshotHandle> {
        let (of, epoch) = text.split_once('@')?;
        Some(SnapshotHandle { of: VolumeHandle::parse(of)?, epoch: number(epoch)? })
    }

    /// What stands for its name in requests.
    pub fn by_id(&self) -> String {
        format!("{}@{}", self.of.by_id(), self.epoch)
    }
}

impl NodeHandle {
    /// `None` if no driver ever gave it.
    pub fn parse(text: &str) -> Option<NodeHandle> {
        let (cluster, name) = text.split_once('-')?;
        Some(NodeHandle { cluster: cluster.parse().ok()?, name: Some(name).filter(|name| is_name(name))?.to_owned() })
    }
}

/// As it's written, and in no other way: ids are compared as texts.
fn number<T: FromStr + ToString>(text: &str) -> Option<T> {
    text.parse().ok().filter(|number: &T| number.to_string() == text)
}

impl fmt::Display for VolumeHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.cluster, self.volume)
    }
}

impl fmt::Display for SnapshotHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.of, self.epoch)
    }
}

impl fmt::Display for NodeHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.cluster, self.name)
    }
}

/// A name that the orchestrator gives.
///
/// # Errors
///
/// If it's none.
pub fn given<'a>(what: &str, name: &'a str) -> Result<&'a str, Failure> {
    match name {
        "" => Err(Failure::invalid(format!("{what} is missing"))),
        _ if name.chars().any(char::is_control) => {
            Err(Failure::invalid(format!("{what} '{}' has control characters", shown(name).escape_debug())))
        }
        _ => Ok(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_name_has_one_of_its_own_that_the_cluster_takes() {
        let long = "A".repeat(128);
        let names = ["pvc-1", "PVC-1", "a b", "a/b", "ü", "", ".x", &long, &long[..124], &long[..125], "csi-pvc-1"];
        let mapped: BTreeSet<String> = names.iter().map(|name| of(name)).collect();
        assert_eq!(mapped.len(), names.len(), "{mapped:?}");
        assert!(mapped.iter().all(|name| is_name(name) && is_ours(name)), "{mapped:?}");
        assert_eq!((of("pvc-1"), of(&long)), ("csi-pvc-1".to_owned(), of(&long)));
        for name in [deleted(7), passing("v"), passing(&long)] {
            assert!(is_name(&name) && is_ours(&name) && !mapped.contains(&name), "{name}");
        }
    }

    #[test]
    fn ids_are_read_as_they_are_written() {
        let cluster = "0123456789abcdef0123456789abcdef";
        let volume = VolumeHandle::parse(&format!("{cluster}-7")).expect("an id");
        assert_eq!((volume.volume, volume.to_string()), (7, format!("{cluster}-7")));
        let snapshot = SnapshotHandle::parse(&format!("{cluster}-7@3")).expect("an id");
        assert_eq!(
            (snapshot.of, snapshot.by_id(), snapshot.to_string()),
            (volume, "id:7@3".into(), format!("{cluster}-7@3"))
        );
        let node = NodeHandle::parse(&format!("{cluster}-worker-1.example")).expect("an id");
        assert_eq!((node.name.as_str(), node.to_string()), ("worker-1.example", format!("{cluster}-worker-1.example")));
        for wrong in [
            "",
            "7",
            "x-7",
            &format!("{cluster}-07"),
            &format!("{cluster}-+7"),
            &format!("{cluster}-"),
            &format!("{cluster}-7@3"),
        ] {
            assert_eq!(VolumeHandle::parse(wrong), None, "{wrong}");
        }
        assert_eq!(NodeHandle::parse("some-node"), None);
    }
}
