//! Volumes: deleted, made longer, listed.

use super::making;
use super::publishing::{NOBODY, published};
use crate::capability::Capability;
use crate::driver::Driver;
use crate::failure::Failure;
use crate::health::condition;
use crate::names::{self, VolumeHandle};
use crate::parameters::Parameters;
use crate::sizes::{Range, bytes};
use crate::spec::list_volumes_response::{Entry, VolumeStatus};
use crate::spec::validate_volume_capabilities_response::Confirmed;
use crate::spec::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, DeleteVolumeRequest, DeleteVolumeResponse,
    ListVolumesRequest, ListVolumesResponse, ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse,
};
use tepal_server::api::types::VolumeInfo;
use tonic::Code;

/// A volume with snapshots stays for their sake, under a name that says so, and goes with the last one.
pub fn delete(driver: &Driver, asked: &DeleteVolumeRequest) -> Result<DeleteVolumeResponse, Failure> {
    let gone = Ok(DeleteVolumeResponse {});
    let handle = match driver.handle(&asked.volume_id) {
        Err(failure) if failure.is_not_found() => return gone,
        handle => handle?,
    };
    let _turn = driver.turns.take(handle.to_string())?;
    let volume = match driver.cluster.volume(&handle.by_id()) {
        Err(failure) if failure.is_not_found() => return gone,
        volume => volume?,
    };
    if names::is_deleted(&volume.name) {
        return gone;
    }
    if !names::is_ours(&volume.name) {
        let how = format!("`tepal volume rm {}` removes it", volume.name);
        return Err(Failure::precondition(format!("volume '{}' wasn't made by this driver: {how}", volume.name)));
    }
    if let Some(holder) = volume.reserved_by.as_ref().filter(|holder| *holder != NOBODY) {
        return Err(published(&volume, holder));
    }
    let removed = match volume.snapshots.is_empty() {
        true => driver.cluster.remove_volume(&handle),
        false if volume.clients > 0 => {
            return Err(Failure::precondition(format!(
                "volume '{}' is in use by {} clients",
                volume.name, volume.clients
            )));
        }
        false => driver.cluster.rename(&handle, names::deleted(handle.volume)).map(|_| ()),
    };
    match removed {
        Err(failure) if failure.is_not_found() => gone,
        removed => removed.and(gone),
    }
}

pub fn expand(
    driver: &Driver,
    asked: &ControllerExpandVolumeRequest,
) -> Result<ControllerExpandVolumeResponse, Failure> {
    let handle = driver.handle(&asked.volume_id)?;
    let range = asked.capacity_range.ok_or_else(|| Failure::invalid("the capacity range is missing"))?;
    let range = Range::of(Some(&range))?;
    if let Some(capability) = &asked.volume_capability {
        Capability::of(capability)?;
    }
    let _turn = driver.turns.take(handle.to_string())?;
    let (_, volume) = driver.volume(&asked.volume_id)?;
    let size = match range.is_beyond(volume.size) {
        true => driver.cluster.grow(&handle, range.size(None)?)?.size,
        false => volume.size,
    };
    match range.has(size) {
        true => Ok(ControllerExpandVolumeResponse { capacity_bytes: bytes(size), node_expansion_required: true }),
        false => Err(Failure::out_of_range(format!("volume '{}' has {size} bytes already", volume.name))),
    }
}

pub fn validate(
    driver: &Driver,
    asked: ValidateVolumeCapabilitiesRequest,
) -> Result<ValidateVolumeCapabilitiesResponse, Failure> {
    let handle = driver.handle(&asked.volume_id);
    if asked.volume_capabilities.is_empty() {
        return Err(Failure::invalid("the volume capabilities are missing"));
    }
    handle.and_then(|_| driver.volume(&asked.volume_id))?;
    let possible = Capability::all(&asked.volume_capabilities).and_then(|_| Parameters::of(&asked.parameters));
    let unconfirmed = |message| ValidateVolumeCapabilitiesResponse { confirmed: None, message };
    Ok(match possible {
        Err(failure) => unconfirmed(failure.message),
        Ok(_) if !asked.mutable_parameters.is_empty() => unconfirmed("volumes have no mutable parameters".to_owned()),
        Ok(_) => {
            let confirmed = Confirmed {
                volume_context: asked.volume_context,
                volume_capabilities: asked.volume_capabilities,
                parameters: asked.parameters,
                mutable_parameters: asked.mutable_parameters,
            };
            ValidateVolumeCapabilitiesResponse { confirmed: Some(confirmed), message: String::new() }
        }
    })
}

/// By their ids, so that what is made between two pages is on a later one.
pub fn list(driver: &Driver, asked: &ListVolumesRequest) -> Result<ListVolumesResponse, Failure> {
    let after = match asked.starting_token.as_str() {
        "" => 0,
        token => token.parse().map_err(|_| no_token(token))?,
    };
    let cluster = driver.cluster.id()?;
    let mut volumes = driver.cluster.volumes()?;
    volumes.retain(|volume| volume.id > after && !names::is_deleted(&volume.name));
    volumes.sort_unstable_by_key(|volume| volume.id);
    let next = page(&mut volumes, asked.max_entries)?.map(|last| last.id.to_string());
    let entry = |volume: &VolumeInfo| Entry {
        volume: Some(making::answer(volume, &VolumeHandle { cluster, volume: volume.id }, None)),
        status: Some(VolumeStatus { published_node_ids: Vec::new(), volume_condition: Some(condition(volume)) }),
    };
    Ok(ListVolumesResponse { entries: volumes.iter().map(entry).collect(), next_token: next.unwrap_or_default() })
}

pub fn no_token(token: &str) -> Failure {
    Failure::new(Code::Aborted, format!("'{}' is no token of a list", tepal_model::text::shown(token)))
}

/// Cuts a list to a page, and gives the last one of it if more follow.
pub fn page<T>(listed: &mut Vec<T>, most: i32) -> Result<Option<&T>, Failure> {
    let most = usize::try_from(most).map_err(|_| Failure::invalid("a page of less than 0 entries was asked for"))?;
    let follow = most > 0 && listed.len() > most;
    if follow {
        listed.truncate(most);
    }
    Ok(listed.last().filter(|_| follow))
}
