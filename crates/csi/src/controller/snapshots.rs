//! Snapshots: made, deleted, listed.

use super::volumes::{no_token, page};
use crate::cluster::ListedSnapshot;
use crate::driver::Driver;
use crate::failure::Failure;
use crate::names::{self, SnapshotHandle, VolumeHandle};
use crate::parameters;
use crate::sizes::bytes;
use crate::spec::list_snapshots_response::Entry;
use crate::spec::{
    CreateSnapshotRequest, CreateSnapshotResponse, DeleteSnapshotRequest, DeleteSnapshotResponse, ListSnapshotsRequest,
    ListSnapshotsResponse, Snapshot,
};
use prost_types::Timestamp;
use tepal_model::ClusterId;
use tonic::Code;

pub fn create(driver: &Driver, asked: &CreateSnapshotRequest) -> Result<CreateSnapshotResponse, Failure> {
    let name = names::of(names::given("the snapshot's name", &asked.name)?);
    parameters::none("a snapshot", &asked.parameters)?;
    let source = driver.handle(&asked.source_volume_id)?;
    let _turn = driver.turns.take(format!("snapshot {name}"))?;
    let there = driver.cluster.snapshots(Some(&name))?;
    if there.iter().any(|one| one.volume != source.volume) {
        return Err(Failure::exists(format!("snapshot '{}' is there, of another volume", asked.name)));
    }
    let made = match there.into_iter().next() {
        Some(there) => there,
        None => make(driver, &source, &name)?,
    };
    Ok(CreateSnapshotResponse { snapshot: Some(answer(source.cluster, &made)) })
}

fn make(driver: &Driver, source: &VolumeHandle, name: &str) -> Result<ListedSnapshot, Failure> {
    driver.volume(&source.to_string())?;
    match driver.cluster.create_snapshot(source, name) {
        Ok(made) => Ok(ListedSnapshot {
            volume: made.volume_id,
            epoch: made.epoch,
            name: made.name,
            size: made.size,
            created_unix_ms: made.created_unix_ms,
        }),
        // An earlier call has made it through another server, and it wasn't known here.
        Err(failure) if failure.code == Code::FailedPrecondition => {
            let there = driver.cluster.snapshots(Some(name))?;
            there.into_iter().find(|one| one.volume == source.volume).ok_or(failure)
        }
        Err(failure) => Err(failure),
    }
}

pub fn delete(driver: &Driver, asked: &DeleteSnapshotRequest) -> Result<DeleteSnapshotResponse, Failure> {
    if asked.snapshot_id.is_empty() {
        return Err(Failure::invalid("the snapshot id is missing"));
    }
    let (gone, cluster) = (Ok(DeleteSnapshotResponse {}), driver.cluster.id()?);
    let Some(handle) = SnapshotHandle::parse(&asked.snapshot_id).filter(|handle| handle.of.cluster == cluster) else {
        return gone;
    };
    let _turn = driver.turns.take(handle.to_string())?;
    match driver.cluster.snapshot(&handle) {
        Err(failure) if failure.is_not_found() => {}
        Err(failure) => return Err(failure),
        Ok(there) if !names::is_ours(&there.name) => {
            let name = there.full_name();
            let how = format!("`tepal snapshot rm {name}` removes it");
            return Err(Failure::precondition(format!("snapshot '{name}' wasn't made by this driver: {how}")));
        }
        Ok(_) => match driver.cluster.remove_snapshot(&handle) {
            Err(failure) if !failure.is_not_found() => return Err(failure),
            _ => {}
        },
    }
    drop_deleted(driver, &handle.of)?;
    gone
}

/// A volume that was deleted goes with its last snapshot.
pub fn drop_deleted(driver: &Driver, volume: &VolumeHandle) -> Result<(), Failure> {
    let found = match driver.cluster.volume(&volume.by_id()) {
        Err(failure) if failure.is_not_found() => return Ok(()),
        found => found?,
    };
    if !names::is_deleted(&found.name) || !found.snapshots.is_empty() {
        return Ok(());
    }
    match driver.cluster.remove_volume(volume) {
        Err(failure) if !failure.is_not_found() => Err(failure),
        _ => Ok(()),
    }
}

/// In the order in which their volumes were made, and of each the oldest first.
pub fn list(driver: &Driver, asked: &ListSnapshotsRequest) -> Result<ListSnapshotsResponse, Failure> {
    let cluster = driver.cluster.id()?;
    let after = match asked.starting_token.as_str() {
        "" => None,
        token => Some(SnapshotHandle::parse(token).ok_or_else(|| no_token(token))?),
    };
    let handle = |one: &ListedSnapshot| {
        let of = VolumeHandle { cluster, volume: one.volume };
        SnapshotHandle { of, epoch: one.epoch }
    };
    let order = |handle: &SnapshotHandle| (handle.of.volume, handle.epoch);
    let mut listed = driver.cluster.snapshots(None)?;
    listed.retain(|one| {
        let (id, of) = (handle(one), handle(one).of.to_string());
        !names::is_passing(&one.name)
            && (asked.snapshot_id.is_empty() || asked.snapshot_id == id.to_string())
            && (asked.source_volume_id.is_empty() || asked.source_volume_id == of)
            && after.is_none_or(|after| order(&id) > order(&after))
    });
    let next_token = page(&mut listed, asked.max_entries)?.map(|last| handle(last).to_string()).unwrap_or_default();
    let entry = |one: &ListedSnapshot| Entry { snapshot: Some(answer(cluster, one)) };
    Ok(ListSnapshotsResponse { entries: listed.iter().map(entry).collect(), next_token })
}

fn answer(cluster: ClusterId, one: &ListedSnapshot) -> Snapshot {
    let of = VolumeHandle { cluster, volume: one.volume };
    let seconds = i64::try_from(one.created_unix_ms / 1000).unwrap_or(i64::MAX);
    let nanos = i32::try_from(one.created_unix_ms % 1000 * 1_000_000).unwrap_or(0);
    Snapshot {
        size_bytes: bytes(one.size),
        snapshot_id: SnapshotHandle { of, epoch: one.epoch }.to_string(),
        source_volume_id: of.to_string(),
        creation_time: Some(Timestamp { seconds, nanos }),
        ready_to_use: true,
        group_snapshot_id: String::new(),
    }
}
