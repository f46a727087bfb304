//! Which machine has a volume: agreed on in the cluster, so that a machine which doesn't answer any more can't write to it.

use crate::capability::Capability;
use crate::driver::{Driver, Fence};
use crate::failure::Failure;
use crate::names::{NodeHandle, VolumeHandle};
use crate::spec::{
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse, ControllerUnpublishVolumeRequest,
    ControllerUnpublishVolumeResponse,
};
use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};
use tepal_model::text::shown;
use tepal_server::api::types::{Right, VolumeInfo};
use tonic::Code;

/// In the context of a publication: who has the volume alone.
pub const HOLDER: &str = "holder";
/// Who has a volume that no machine has any more.
pub const NOBODY: &str = "csi-unpublished";

pub fn publish(
    driver: &Driver,
    asked: &ControllerPublishVolumeRequest,
) -> Result<ControllerPublishVolumeResponse, Failure> {
    let handle = driver.handle(&asked.volume_id);
    if asked.node_id.is_empty() {
        return Err(Failure::invalid("the node id is missing"));
    }
    let capability = Capability::required(asked.volume_capability.as_ref())?;
    if asked.readonly {
        return Err(Failure::invalid("readonly isn't for publishing: an access mode of readers is"));
    }
    let handle = handle?;
    let _turn = driver.turns.take(handle.to_string())?;
    let (_, volume) = driver.volume(&asked.volume_id)?;
    let node = known(driver, &asked.node_id)?;
    let mut publish_context = HashMap::new();
    match driver.settings.fence {
        Fence::Reservation if !capability.shared => {
            publish_context.insert(HOLDER.to_owned(), reserve(driver, &handle, &volume, &node)?);
        }
        Fence::Reservation => match &volume.reserved_by {
            Some(holder) if holder == NOBODY => driver.cluster.release(&handle, NOBODY)?,
            Some(holder) => return Err(published(&volume, holder)),
            None => {}
        },
        Fence::Rights => grant(driver, &handle, &volume, &node, &capability)?,
        Fence::None => {}
    }
    Ok(ControllerPublishVolumeResponse { publish_context })
}

/// A node of this cluster.
fn known(driver: &Driver, node_id: &str) -> Result<NodeHandle, Failure> {
    let unknown = || Failure::not_found(format!("there is no node '{}'", shown(node_id)));
    let node = NodeHandle::parse(node_id).ok_or_else(unknown)?;
    if node.cluster != driver.cluster.id()? {
        return Err(unknown());
    }
    let is_known = |name: &str| Ok::<_, Failure>(driver.cluster.identities()?.iter().any(|one| one.name == name));
    match driver.settings.fence == Fence::Rights && !is_known(&node.name)? {
        true => Err(Failure::not_found(format!("there is no identity '{}' for that node", node.name))),
        false => Ok(node),
    }
}

pub fn published(volume: &VolumeInfo, holder: &str) -> Failure {
    Failure::precondition(format!("volume '{}' is published to '{}'", volume.name, machine_of(holder)))
}

/// Who has the volume from now on. A machine is another holder each time: what it has left of an earlier time stays cut off.
fn reserve(driver: &Driver, handle: &VolumeHandle, volume: &VolumeInfo, node: &NodeHandle) -> Result<String, Failure> {
    let is_free = match &volume.reserved_by {
        Some(holder) if machine_of(holder) == node.name => return Ok(holder.clone()),
        Some(holder) if holder == NOBODY => true,
        Some(holder) => return Err(published(volume, holder)),
        None => false,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let holder = format!("{}.{now}", node.name);
    driver.cluster.reserve(handle, &holder, is_free)?;
    Ok(holder)
}

fn machine_of(holder: &str) -> &str {
    let parts = holder.rsplit_once('.').filter(|(_, time)| time.bytes().all(|byte| byte.is_ascii_digit()));
    parts.map_or(holder, |(machine, _)| machine)
}

fn grant(
    driver: &Driver,
    handle: &VolumeHandle,
    volume: &VolumeInfo,
    node: &NodeHandle,
    capability: &Capability,
) -> Result<(), Failure> {
    let rights = driver.cluster.rights(handle)?;
    // Whoever may write keeps others out, and whoever wants it alone is kept out by all.
    let is_in_the_way = |right: &Right| *right != Right::Read || !capability.shared;
    let other = rights.iter().find(|one| one.to != node.name && is_in_the_way(&one.right));
    if let Some(other) = other.filter(|_| !capability.shared || capability.read_only) {
        return Err(published(volume, &other.to));
    }
    let right = if capability.read_only { Right::Read } else { Right::Write };
    match rights.iter().any(|one| one.to == node.name && one.right == right) {
        true => Ok(()),
        false => driver.cluster.grant(handle, &node.name, right),
    }
}

/// The machine writes nothing any more when this is answered, whatever state it's in.
pub fn unpublish(
    driver: &Driver,
    asked: &ControllerUnpublishVolumeRequest,
) -> Result<ControllerUnpublishVolumeResponse, Failure> {
    let done = Ok(ControllerUnpublishVolumeResponse {});
    let handle = match driver.handle(&asked.volume_id) {
        Err(failure) if failure.is_not_found() => return done,
        handle => handle?,
    };
    let _turn = driver.turns.take(handle.to_string())?;
    let volume = match driver.cluster.volume(&handle.by_id()) {
        Err(failure) if failure.is_not_found() => return done,
        volume => volume?,
    };
    let node = NodeHandle::parse(&asked.node_id).map(|node| node.name);
    // No node is said: it's for all.
    let is_meant = |name: &str| asked.node_id.is_empty() || node.as_deref() == Some(name);
    let taken = match driver.settings.fence {
        Fence::Reservation => match volume.reserved_by.filter(|holder| is_meant(machine_of(holder))) {
            // Free for all, it would be free for the machine that is cut off.
            Some(holder) if holder != NOBODY => driver.cluster.reserve(&handle, NOBODY, true),
            _ => Ok(()),
        },
        Fence::Rights => {
            let rights = driver.cluster.rights(&handle)?;
            rights.iter().filter(|one| is_meant(&one.to)).try_for_each(|one| driver.cluster.withdraw(&handle, &one.to))
        }
        Fence::None => Ok(()),
    };
    match taken {
        // Another call has done it.
        Err(failure) if !matches!(failure.code, Code::NotFound | Code::FailedPrecondition) => Err(failure),
        _ => done,
    }
}
