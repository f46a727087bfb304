//! The drives that are here, and which of them count.

use super::{Choice, RebuildError, Request};
use crate::unserved::{self, UnservedError};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use tepal_drive::label::{LabelError, Role};
use tepal_drive::{Label, StateCopies, StateCopy, StateOrder};
use tepal_metadata::State;
use tepal_model::{ClusterId, DriveId, ServerId};

/// A drive that is here.
#[derive(Clone, Debug)]
pub struct Seen {
    pub path: PathBuf,
    pub server: Option<ServerId>,
    pub label: Label,
    pub copies: StateCopies,
}

/// Why a drive that is here doesn't count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassedOver {
    /// The drive was used later, in this generation: it isn't here.
    OlderImage { newest: u64 },
    /// It keeps a state that isn't of the past of the one that goes on.
    OtherPast(StateOrder),
}

impl Seen {
    /// The latest copy that is whole.
    pub fn copy(&self) -> Option<&StateCopy> {
        self.copies.whole.first()
    }

    /// Whether it keeps a state that isn't of the past of that one.
    pub fn is_of_other_past(&self, state: &State) -> Option<PassedOver> {
        let is_other = |kept: &StateOrder| !state.has_past(kept.history, kept.view, kept.events);
        self.copy().map(StateCopy::order).filter(is_other).map(PassedOver::OtherPast)
    }

    fn is_older_image(&self, generations: &BTreeMap<DriveId, u64>) -> Option<PassedOver> {
        let newest = generations.get(&self.label.drive).copied()?;
        (self.label.generation < newest).then_some(PassedOver::OlderImage { newest })
    }
}

/// Those that are older than any copy of any state says, set apart: they aren't believed in anything.
pub fn without_older_images(seen: Vec<Seen>) -> (Vec<Seen>, Vec<(Seen, PassedOver)>) {
    let mut generations: BTreeMap<DriveId, u64> = BTreeMap::new();
    for copy in seen.iter().flat_map(|one| &one.copies.whole) {
        // The latest one is read again, and then an error is told.
        let Ok(state) = State::from_copy(copy.content()) else { continue };
        for record in state.drives.values() {
            let newest = generations.entry(record.id).or_default();
            *newest = record.generation.max(*newest);
        }
    }
    set_apart(seen, |one| one.is_older_image(&generations))
}

/// Those that count, and those that don't.
pub fn set_apart(
    seen: Vec<Seen>,
    is_passed_over: impl Fn(&Seen) -> Option<PassedOver>,
) -> (Vec<Seen>, Vec<(Seen, PassedOver)>) {
    let (mut count, mut others) = (Vec::new(), Vec::new());
    for one in seen {
        match is_passed_over(&one) {
            None => count.push(one),
            Some(why) => others.push((one, why)),
        }
    }
    (count, others)
}

/// What is here.
#[derive(Debug, Default)]
pub struct Looked {
    pub seen: Vec<Seen>,
    /// What is passed over, and is to be told of.
    pub unreadable: Vec<RebuildError>,
}

/// All that were asked for, or that there are; one that has two names is one. One that is in use stops it, also if nobody has named it.
pub async fn look(request: &Request) -> Result<Looked, RebuildError> {
    let (mut looked, mut in_use, mut names) = (Looked::default(), Vec::new(), BTreeSet::new());
    for (path, server) in &request.drives {
        if !names.insert(path.canonicalize().unwrap_or_else(|_| path.clone())) {
            continue;
        }
        match look_at(path.clone(), *server).await {
            Ok(found) => looked.seen.extend(found),
            Err(error) if request.choice == Choice::Named => return Err(error),
            Err(RebuildError::Drive(UnservedError::InUse(path))) => {
                in_use.extend(unserved::peek(&path).map(|label| (path, label.cluster)));
            }
            Err(error) if request.choice == Choice::All && was_never_a_drive(&error) => {}
            Err(error) => looked.unreadable.push(error),
        }
    }
    let Looked { seen, unreadable } = &mut looked;
    let is_among = |cluster: &ClusterId| seen.is_empty() || seen.iter().any(|one: &Seen| one.label.cluster == *cluster);
    match in_use.into_iter().find(|(_, cluster)| is_among(cluster)) {
        Some((path, _)) => Err(UnservedError::InUse(path).into()),
        None if seen.is_empty() && !unreadable.is_empty() => Err(unreadable.remove(0)),
        None => Ok(looked),
    }
}

/// Whether it's a device without a label, or nothing that could have one.
fn was_never_a_drive(error: &RebuildError) -> bool {
    match error {
        RebuildError::Drive(UnservedError::Label { error, .. }) => matches!(error, LabelError::Missing),
        RebuildError::Copies { .. } => false,
        _ => true,
    }
}

/// Nothing, if it's a device that holds only the log of a drive.
async fn look_at(path: PathBuf, server: Option<ServerId>) -> Result<Option<Seen>, RebuildError> {
    let device = unserved::open(&path, false)?;
    let label = unserved::read_label(&path, &device).await?;
    if matches!(label.role, Role::LogOf { .. }) {
        return Ok(None);
    }
    match tepal_drive::read_state_copies(&device, &label).await {
        Ok(copies) => Ok(Some(Seen { path, server, label, copies })),
        Err(error) => Err(RebuildError::Copies { path, error }),
    }
}

/// Each drive once, by its id: of two images the newer one.
pub fn of_one_cluster(seen: Vec<Seen>) -> Result<Vec<Seen>, RebuildError> {
    let mut drives: BTreeMap<DriveId, Seen> = BTreeMap::new();
    let first = seen.first().ok_or(RebuildError::NoDrives)?;
    let (path, cluster) = (first.path.clone(), first.label.cluster);
    for one in seen {
        if one.label.cluster != cluster {
            let (other_path, other) = (one.path, one.label.cluster);
            return Err(RebuildError::Clusters { path, cluster, other_path, other });
        }
        let drive = one.label.drive;
        match drives.get(&drive).map(|known| known.label.generation.cmp(&one.label.generation)) {
            Some(std::cmp::Ordering::Greater) => {}
            Some(std::cmp::Ordering::Equal) => {
                let path = drives.remove(&drive).map(|known| known.path).unwrap_or_default();
                return Err(RebuildError::Cloned { drive, path, other: one.path });
            }
            Some(std::cmp::Ordering::Less) | None => drop(drives.insert(drive, one)),
        }
    }
    Ok(drives.into_values().collect())
}

/// The drive with the latest whole copy of all, or of those of one history.
pub fn latest(seen: &[Seen], history: Option<u64>) -> Result<(&Seen, &StateCopy), RebuildError> {
    let copies = || seen.iter().filter_map(|one| Some((one, one.copy()?)));
    let is_wanted = |order: StateOrder| history.is_none_or(|wanted| order.history == wanted);
    let latest = copies().filter(|(_, copy)| is_wanted(copy.order())).max_by_key(|(_, copy)| copy.order());
    latest.ok_or_else(|| match history.filter(|_| copies().next().is_some()) {
        Some(wanted) => RebuildError::NoHistory { wanted, has: pasts(seen) },
        None => RebuildError::NoState,
    })
}

/// The latest state of each history, and where it is.
pub fn pasts(seen: &[Seen]) -> Vec<(PathBuf, StateOrder)> {
    let mut pasts: BTreeMap<u64, (PathBuf, StateOrder)> = BTreeMap::new();
    for (one, order) in seen.iter().filter_map(|one| Some((one, one.copy()?.order()))) {
        let known = pasts.get(&order.history).map(|(_, known)| *known);
        if known.is_none_or(|known| known < order) {
            pasts.insert(order.history, (one.path.clone(), order));
        }
    }
    pasts.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::super::Others;
    use super::*;
    use crate::device::{self, DriveDevice, OpenOptions};
    use std::io;
    use std::path::Path;
    use tepal_drive::NewDrive;

    fn open(path: &Path) -> DriveDevice {
        DriveDevice::open(path, OpenOptions { writable: true, backend: None }).expect("ours")
    }

    async fn make(folder: &Path, name: &str, cluster: u128) -> PathBuf {
        let path = folder.join(name);
        device::create_file(&path, 64 << 20).expect("space");
        let (cluster, drive) = (ClusterId(cluster), DriveId(name.len() as u64));
        let new = NewDrive { cluster, drive, pool: "default".into(), log_length: None };
        tepal_drive::format(&open(&path), None, new).await.expect("blank");
        path
    }

    /// Story: drives that a server had open were passed over without a word where none was named, and counted as lost.
    #[test]
    fn a_drive_of_the_cluster_that_is_in_use_is_not_passed_over_also_if_nobody_named_it() {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = scratch.path();
        let looked = crate::unserved::block_on(async {
            let (ours, used, strange) =
                (make(folder, "a", 1).await, make(folder, "bb", 1).await, make(folder, "ccc", 2).await);
            let blank = folder.join("blank");
            device::create_file(&blank, 64 << 20).expect("space");
            let request = |drives: &[&PathBuf]| Request {
                folder: folder.join("data"),
                drives: drives.iter().map(|path| (PathBuf::clone(path), None)).collect(),
                choice: Choice::All,
                server: None,
                peers: None,
                others: Others::WillCome,
                history: None,
            };
            let _servers = [open(&used), open(&strange)];
            let drives = [&ours, &blank, &strange, &ours];
            let looked = look(&request(&drives)).await.expect("another cluster's is none of ours");
            assert!(looked.unreadable.is_empty(), "{:?}", looked.unreadable);
            assert_eq!(looked.seen.iter().map(|one| &one.path).collect::<Vec<_>>(), [&ours]);
            for drives in [&[&ours, &used][..], &[&used, &blank]] {
                let refused = look(&request(drives)).await;
                assert!(matches!(&refused, Err(RebuildError::Drive(UnservedError::InUse(path))) if *path == used));
            }
            Ok::<_, io::Error>(())
        });
        looked.expect("a runtime");
    }
}
