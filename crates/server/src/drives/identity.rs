//! Who a drive is, by its label, and whether this server may use it.
//!
//! Invariants:
//! 1. What is used under a drive's id is the drive that was last used under it: never a copy of it, and never an older
//!    image. Whoever can't be told apart from another is refused, and so is that other.
//! 2. A refusal changes nothing on the drive.
//!
//! Copies are told apart by the label's generation, which is raised each time a drive is taken into use and written down on
//! the server before anything else is written to the drive ([`super::generations`]), and in the metadata before it's used.

use std::collections::BTreeMap;
use std::path::PathBuf;
use tepal_drive::Label;
use tepal_drive::label::{LabelError, Role};
use tepal_metadata::{DriveState, State};
use tepal_model::{ClusterId, DriveId, ServerId};

/// A device that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub path: PathBuf,
    pub label: Result<Label, LabelError>,
}

/// What becomes of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A drive of this cluster, to be used.
    Ours(Label),
    /// A drive of this cluster that no record tells of: new if it's empty, else one that was removed.
    Unrecorded(Label),
    /// The log of that drive.
    LogOf(DriveId),
    /// It has no label.
    Blank,
    Refused(Refused),
}

/// Why a device isn't used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error(
        "it belongs to another cluster, {cluster}, as drive {drive}: if that has lost its servers' folders, `tepal cluster rebuild` begins \
         again with what its drives keep; if it's not needed any more, `tepal drive wipe` empties it"
    )]
    Foreign { cluster: ClusterId, drive: DriveId },
    #[error("it and {} both say that they are drive {drive}, and neither is newer: remove the copy", other.display())]
    Cloned { drive: DriveId, other: PathBuf },
    #[error(
        "it is an older image of drive {drive}, which is at {}: of generation {generation}, and that one of {newest}",
        other.display()
    )]
    OlderCopy { drive: DriveId, other: PathBuf, generation: u64, newest: u64 },
    #[error("it is an older image of drive {drive}: of generation {generation}, and it was last used in {newest}")]
    Older { drive: DriveId, generation: u64, newest: u64 },
    #[error(
        "drive {drive} has failed and is not used any more: {reason}. Remove it by `tepal drive rm {drive}`, and add a new one; or this one, \
         if it's sound, once `tepal drive wipe` has emptied it"
    )]
    Failed { drive: DriveId, reason: String },
    #[error(
        "drive {drive} is in use by server {server}, so this is a copy of it, or the same device: stop that server, or take the \
         drive out of it, and start this one again"
    )]
    InUseAt { drive: DriveId, server: ServerId },
    #[error("drive {drive} was removed from this cluster and still holds data: `tepal drive wipe` empties it")]
    Removed { drive: DriveId },
    #[error("{0}")]
    Label(LabelError),
}

/// Judges all devices together: which of two copies counts shows only beside the other. `in_use` are the drives that are
/// open now at `me`, with their paths; `generations` are those in which each drive was last used.
pub fn judge(
    seen: &[Seen],
    state: &State,
    generations: &BTreeMap<DriveId, u64>,
    (me, in_use): (ServerId, &BTreeMap<DriveId, PathBuf>),
) -> Vec<Verdict> {
    seen.iter().map(|one| judge_one(one, seen, state, generations, (me, in_use))).collect()
}

fn judge_one(
    one: &Seen,
    seen: &[Seen],
    state: &State,
    generations: &BTreeMap<DriveId, u64>,
    (me, in_use): (ServerId, &BTreeMap<DriveId, PathBuf>),
) -> Verdict {
    let label = match &one.label {
        Ok(label) => label,
        Err(LabelError::Missing) => return Verdict::Blank,
        Err(error) => return Verdict::Refused(Refused::Label(error.clone())),
    };
    let drive = label.drive;
    if label.cluster != state.cluster.id {
        return Verdict::Refused(Refused::Foreign { cluster: label.cluster, drive });
    }
    if let Some(other) = in_use.get(&drive) {
        return Verdict::Refused(Refused::Cloned { drive, other: other.clone() });
    }
    if let Some(refused) = copy_of_another(one, label, seen) {
        return Verdict::Refused(refused);
    }
    if let Role::LogOf { drive } = label.role {
        return Verdict::LogOf(drive);
    }
    let record = state.drives.get(&drive);
    // Another server may have used it last, or this one's file may be lost.
    let on_record = record.map_or(0, |record| record.generation);
    let newest = generations.get(&drive).copied().unwrap_or(0).max(on_record);
    if label.generation < newest {
        return Verdict::Refused(Refused::Older { drive, generation: label.generation, newest });
    }
    match record {
        None => Verdict::Unrecorded(label.clone()),
        Some(record) if record.state == DriveState::Failed => {
            Verdict::Refused(Refused::Failed { drive, reason: record.reason.clone() })
        }
        Some(record) if record.server != me && record.state.takes_writes() => {
            Verdict::Refused(Refused::InUseAt { drive, server: record.server })
        }
        Some(_) => Verdict::Ours(label.clone()),
    }
}

/// Whether another device has the same id, and is as new or newer.
fn copy_of_another(one: &Seen, label: &Label, seen: &[Seen]) -> Option<Refused> {
    let others = seen.iter().filter(|other| other.path != one.path);
    let same = others.filter_map(|other| other.label.as_ref().ok().map(|found| (&other.path, found)));
    let same = same.filter(|(_, found)| found.drive == label.drive && found.cluster == label.cluster);
    let (other, found) = same.max_by_key(|(_, found)| found.generation)?;
    let (drive, other) = (label.drive, other.clone());
    match found.generation.cmp(&label.generation) {
        std::cmp::Ordering::Less => None,
        std::cmp::Ordering::Equal => Some(Refused::Cloned { drive, other }),
        std::cmp::Ordering::Greater => {
            Some(Refused::OlderCopy { drive, other, generation: label.generation, newest: found.generation })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tepal_metadata::{ClusterRecord, Command, DriveRecord, Metadata};

    const CLUSTER: ClusterId = ClusterId(7);
    const UP: DriveId = DriveId(1);
    const FAILED: DriveId = DriveId(2);
    const UNKNOWN: DriveId = DriveId(3);

    fn label(drive: DriveId, generation: u64) -> Label {
        let role = Role::Data { log_length: 1 << 20 };
        Label {
            cluster: CLUSTER,
            drive,
            pool: "default".into(),
            generation,
            size: 64 << 20,
            role,
            doubtful: false,
            state_length: 0,
            outgrown: Vec::new(),
        }
    }

    fn seen(path: &str, label: Label) -> Seen {
        Seen { path: path.into(), label: Ok(label) }
    }

    /// A cluster with a drive that is up and one that has failed.
    async fn state() -> Arc<State> {
        let folder = tempfile::tempdir().expect("a folder");
        let metadata =
            Metadata::create(folder.path(), CLUSTER, "test", ServerId(1), "unix:/s", 0).await.expect("a cluster");
        for id in [UP, FAILED] {
            let path = format!("/{id}");
            let add = Command::AddDrive {
                id,
                server: ServerId(1),
                pool: "default".into(),
                path,
                capacity: 1 << 30,
                spare: false,
            };
            metadata.propose(add).await.expect("a drive");
        }
        let failed = DriveState::Failed;
        let fail = Command::SetDriveState { id: FAILED, to: failed, reason: "flush".into(), expected_view: None };
        metadata.propose(fail).await.expect("a failed drive");
        let state = metadata.state();
        metadata.shutdown().await;
        state
    }

    fn verdicts(seen: &[Seen], state: &State) -> Vec<Verdict> {
        judge(seen, state, &BTreeMap::from([(UP, 5)]), (ServerId(1), &BTreeMap::new()))
    }

    #[tokio::test(flavor = "current_thread")]
    async fn each_device_is_used_or_refused_by_name() {
        let state = state().await;
        let _: &ClusterRecord = &state.cluster;
        let foreign = Label { cluster: ClusterId(8), ..label(UP, 9) };
        let log = Label { role: Role::LogOf { drive: UP }, ..label(DriveId(!UP.0), 1) };
        let cut = LabelError::CutShort { labelled: 10, found: 5 };
        let cases: Vec<(Result<Label, LabelError>, Verdict)> = vec![
            (Ok(label(UP, 5)), Verdict::Ours(label(UP, 5))),
            // Its label was raised just before a crash, before that was written down.
            (Ok(label(UP, 6)), Verdict::Ours(label(UP, 6))),
            (Ok(label(UP, 4)), Verdict::Refused(Refused::Older { drive: UP, generation: 4, newest: 5 })),
            (Ok(label(FAILED, 1)), Verdict::Refused(Refused::Failed { drive: FAILED, reason: "flush".into() })),
            (Ok(label(UNKNOWN, 1)), Verdict::Unrecorded(label(UNKNOWN, 1))),
            (Ok(foreign), Verdict::Refused(Refused::Foreign { cluster: ClusterId(8), drive: UP })),
            (Ok(log), Verdict::LogOf(UP)),
            (Err(LabelError::Missing), Verdict::Blank),
            (Err(cut.clone()), Verdict::Refused(Refused::Label(cut))),
            (Err(LabelError::Damaged), Verdict::Refused(Refused::Label(LabelError::Damaged))),
        ];
        for (found, verdict) in cases {
            let one = Seen { path: "/a".into(), label: found };
            assert_eq!(verdicts(std::slice::from_ref(&one), &state), [verdict], "{one:?}");
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn of_two_copies_the_newer_is_used_and_if_neither_is_none() {
        let state = state().await;
        let newer = verdicts(&[seen("/a", label(UP, 6)), seen("/b", label(UP, 5))], &state);
        assert_eq!(newer[0], Verdict::Ours(label(UP, 6)));
        let older = Refused::OlderCopy { drive: UP, other: "/a".into(), generation: 5, newest: 6 };
        assert_eq!(newer[1], Verdict::Refused(older));

        let clones = verdicts(&[seen("/a", label(UP, 5)), seen("/b", label(UP, 5))], &state);
        let cloned = |other: &str| Verdict::Refused(Refused::Cloned { drive: UP, other: other.into() });
        assert_eq!(clones, [cloned("/b"), cloned("/a")]);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_copy_of_a_drive_in_use_is_refused_however_new_it_says_it_is() {
        let state = state().await;
        let in_use = BTreeMap::from([(UP, PathBuf::from("/a"))]);
        let verdicts = judge(&[seen("/b", label(UP, 99))], &state, &BTreeMap::new(), (ServerId(1), &in_use));
        assert_eq!(verdicts, [Verdict::Refused(Refused::Cloned { drive: UP, other: "/a".into() })]);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn an_image_of_before_another_server_used_the_drive_is_refused_though_this_one_knows_of_no_newer() {
        let mut state = State::clone(&*state().await);
        let record =
            DriveRecord { state: DriveState::Missing, generation: 7, ..DriveRecord::clone(&state.drives[&UP]) };
        state.drives.insert(UP, Arc::new(record));
        let older = Refused::Older { drive: UP, generation: 6, newest: 7 };
        assert_eq!(verdicts(&[seen("/a", label(UP, 6))], &state), [Verdict::Refused(older)]);
        assert_eq!(verdicts(&[seen("/a", label(UP, 7))], &state), [Verdict::Ours(label(UP, 7))]);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_another_server_uses_is_refused_before_anything_is_written_to_it() {
        let state = state().await;
        let judged = |me| judge(&[seen("/a", label(UP, 9))], &state, &BTreeMap::new(), (me, &BTreeMap::new()));
        let in_use = Refused::InUseAt { drive: UP, server: ServerId(1) };
        assert_eq!(judged(ServerId(2)), [Verdict::Refused(in_use)]);
        assert_eq!(judged(ServerId(1)), [Verdict::Ours(label(UP, 9))]);
    }
}
