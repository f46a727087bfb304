//! New volumes: blank, or of what a snapshot or another volume holds.
//!
//! What was begun and not ended is ended by the next call of the same name: everything is looked up by names that follow from it.

use crate::capability::{Capability, Kind};
use crate::cluster::ListedSnapshot;
use crate::driver::Driver;
use crate::failure::Failure;
use crate::names::{self, SnapshotHandle, VolumeHandle};
use crate::parameters::{self, Parameters};
use crate::sizes::{Range, bytes};
use crate::spec::volume_content_source::Type;
use crate::spec::{CreateVolumeRequest, CreateVolumeResponse, Volume, VolumeContentSource};
use crate::topology;
use std::collections::HashMap;
use tepal_model::Layout;
use tepal_model::text::shown;
use tepal_server::api::types::{CreateVolume, DEFAULT_POOL, SnapshotInfo, VolumeInfo};
use tonic::Code;

/// What a volume is to be.
struct Wanted<'a> {
    /// As the cluster calls it.
    called: String,
    range: Range,
    parameters: Parameters,
    source: Option<Source>,
    asked: &'a CreateVolumeRequest,
}

/// What a volume begins with.
#[derive(Clone, Copy)]
enum Source {
    Snapshot(SnapshotHandle),
    Volume(VolumeHandle),
}

pub fn create(driver: &Driver, asked: &CreateVolumeRequest) -> Result<CreateVolumeResponse, Failure> {
    let called = names::of(names::given("the volume's name", &asked.name)?);
    let capabilities = Capability::all(&asked.volume_capabilities)?;
    parameters::none("a volume that can be modified", &asked.mutable_parameters)?;
    let source = asked.volume_content_source.as_ref().map(|source| Source::of(driver, source)).transpose()?;
    let (range, parameters) = (Range::of(asked.capacity_range.as_ref())?, Parameters::of(&asked.parameters)?);
    if source.is_none() {
        capabilities.iter().try_for_each(|capability| has_room_for(capability, range))?;
    }
    let wanted = Wanted { called, range, parameters, source, asked };
    let _turn = driver.turns.take(wanted.called.clone())?;
    let _passing = match &wanted.source {
        Some(Source::Volume(_)) => Some(driver.turns.take(names::passing(&wanted.called))?),
        Some(Source::Snapshot(_)) | None => None,
    };
    let volume = match driver.cluster.volume(&wanted.called) {
        Ok(there) => wanted.completed(driver, there)?,
        Err(failure) if failure.is_not_found() => wanted.make(driver)?,
        Err(failure) => return Err(failure),
    };
    let handle = VolumeHandle { cluster: driver.cluster.id()?, volume: volume.id };
    let limits = &wanted.parameters.limits;
    // Also of one that an earlier call has made, and that has none yet.
    let volume = match !limits.is_none() && volume.limits.is_none() {
        true => driver.cluster.limit(&handle, limits)?,
        false => volume,
    };
    let volume = answer(&volume, &handle, asked.volume_content_source.clone());
    Ok(CreateVolumeResponse { volume: Some(volume) })
}

/// Whether the filesystem can be made that is wanted on a blank volume.
fn has_room_for(capability: &Capability, range: Range) -> Result<(), Failure> {
    let Kind::Mount { filesystem: Some(filesystem), .. } = &capability.kind else { return Ok(()) };
    let (size, least, name) = (range.size(None)?, filesystem.least(), filesystem.name());
    match size < least {
        true => Err(Failure::out_of_range(format!(
            "the volume would have {size} bytes, and {name} needs {least} ({} MiB) at least",
            least >> 20
        ))),
        false => Ok(()),
    }
}

/// A volume as the orchestrator has it. It's reached from everywhere.
pub fn answer(volume: &VolumeInfo, handle: &VolumeHandle, content_source: Option<VolumeContentSource>) -> Volume {
    Volume {
        capacity_bytes: bytes(volume.size),
        volume_id: handle.to_string(),
        volume_context: HashMap::new(),
        content_source,
        accessible_topology: Vec::new(),
    }
}

impl Source {
    fn of(driver: &Driver, said: &VolumeContentSource) -> Result<Source, Failure> {
        let cluster = driver.cluster.id()?;
        let unknown = |what: &str, id: &str| Failure::not_found(format!("there is no {what} '{}'", shown(id)));
        match &said.r#type {
            Some(Type::Snapshot(said)) => {
                let found = SnapshotHandle::parse(&said.snapshot_id).filter(|found| found.of.cluster == cluster);
                found.map(Source::Snapshot).ok_or_else(|| unknown("snapshot", &said.snapshot_id))
            }
            Some(Type::Volume(said)) => {
                let found = VolumeHandle::parse(&said.volume_id).filter(|found| found.cluster == cluster);
                found.map(Source::Volume).ok_or_else(|| unknown("volume", &said.volume_id))
            }
            None => Err(Failure::invalid("the content source is neither a snapshot nor a volume")),
        }
    }
}

impl Wanted<'_> {
    /// The volume that is there by that name, if it's what is wanted.
    fn completed(&self, driver: &Driver, there: VolumeInfo) -> Result<VolumeInfo, Failure> {
        let handle = VolumeHandle { cluster: driver.cluster.id()?, volume: there.id };
        if let Some(Source::Volume(_)) = self.source {
            drop_passing(driver, &self.called)?;
        }
        let is_another = |what: String| Failure::exists(format!("volume '{}' is there, {what}", self.asked.name));
        self.came_from(&there).map_err(is_another)?;
        if let Some(layout) = &self.parameters.layout
            && there.layout.parse::<Layout>().ok().as_ref() != Some(layout)
        {
            return Err(is_another(format!("with layout {}", there.layout)));
        }
        if self.parameters.key.is_some() && there.key.is_none() {
            return Err(is_another("and isn't encrypted".to_owned()));
        }
        if let Some(pool) = self.parameters.pool.as_ref().filter(|pool| **pool != there.pool) {
            return Err(is_another(format!("in pool '{}' and not in '{pool}'", there.pool)));
        }
        // A clone that is as large as its source was made, and not made longer.
        if self.range.is_beyond(there.size) && self.source_size(driver)? == Some(there.size) {
            return driver.cluster.grow(&handle, self.range.size(Some(there.size))?);
        }
        match self.range.has(there.size) {
            true => Ok(there),
            false => Err(is_another(format!("with {} bytes", there.size))),
        }
    }

    /// Whether the volume that is there began with what is wanted.
    fn came_from(&self, there: &VolumeInfo) -> Result<(), String> {
        let made_of = there.made_of.as_deref();
        let is_it = match self.source {
            None => made_of.is_none(),
            Some(Source::Snapshot(wanted)) => made_of == Some(&*wanted.by_id()),
            // The snapshot by whose way it was made goes then: one that stays is another.
            Some(Source::Volume(wanted)) => {
                let passing = format!("@{}", names::passing(&self.called));
                let of_it = made_of.and_then(|made_of| made_of.split_once('@')).map(|(of, _)| of);
                of_it == Some(&*wanted.by_id()) && there.origin.as_ref().is_none_or(|origin| origin.ends_with(&passing))
            }
        };
        match (is_it, there.origin.as_deref().or(made_of)) {
            (true, _) => Ok(()),
            (false, Some(other)) => Err(format!("and is a clone of {other}")),
            (false, None) => Err("and is no clone".to_owned()),
        }
    }

    fn source_size(&self, driver: &Driver) -> Result<Option<u64>, Failure> {
        match self.source {
            None => Ok(None),
            Some(Source::Snapshot(handle)) => driver.cluster.snapshot(&handle).map(|snapshot| Some(snapshot.size)),
            Some(Source::Volume(handle)) => driver.cluster.volume(&handle.by_id()).map(|volume| Some(volume.size)),
        }
    }

    fn make(&self, driver: &Driver) -> Result<VolumeInfo, Failure> {
        match self.source {
            None => self.make_blank(driver),
            Some(Source::Snapshot(handle)) => {
                let snapshot = driver.cluster.snapshot(&handle)?;
                self.fits(&driver.cluster.volume(&handle.of.by_id())?, snapshot.size)?;
                self.clone_of(driver, &handle, snapshot.size)
            }
            Some(Source::Volume(handle)) => {
                let (_, volume) = driver.volume(&handle.to_string())?;
                self.fits(&volume, volume.size)?;
                let passing = self.passing_snapshot(driver, &handle)?;
                let made = self.clone_of(driver, &SnapshotHandle { of: handle, epoch: passing.epoch }, passing.size);
                // Also after a failure: nobody may come and ask again.
                let dropped = drop_passing(driver, &self.called);
                made.and_then(|made| dropped.map(|()| made))
            }
        }
    }

    fn make_blank(&self, driver: &Driver) -> Result<VolumeInfo, Failure> {
        let pool = match &self.parameters.pool {
            Some(pool) => Some(pool.clone()),
            None => topology::pool_near(&driver.cluster, self.asked.accessibility_requirements.as_ref())?,
        };
        let asked = CreateVolume {
            name: self.called.clone(),
            size: self.range.size(None)?,
            layout: self.parameters.layout.as_ref().map(ToString::to_string),
            pool: pool.clone(),
            key: self.parameters.key.clone(),
            plain: false,
            import: None,
        };
        driver.cluster.create_volume(&asked).map_err(|failure| match failure.is_not_found() {
            // It's a parameter that is wrong; what wasn't found is no thing that the call is about.
            true => Failure::invalid(format!("pool '{}': {failure}", pool.as_deref().unwrap_or(DEFAULT_POOL))),
            false => failure,
        })
    }

    /// A clone is where its source is, and as that is.
    fn fits(&self, source: &VolumeInfo, size: u64) -> Result<(), Failure> {
        self.range.size(Some(size))?;
        let Parameters { pool, layout, key, limits: _ } = &self.parameters;
        let is_elsewhere = pool.as_ref().is_some_and(|pool| *pool != source.pool);
        let has_another =
            layout.as_ref().is_some_and(|layout| source.layout.parse::<Layout>().ok().as_ref() != Some(layout));
        match is_elsewhere || has_another || (key.is_some() && source.key.is_none()) {
            false => Ok(()),
            true => Err(Failure::invalid(format!(
                "a clone shares its source's data, in pool '{}' with layout {}{}: leave these parameters out, or say the same",
                source.pool,
                source.layout,
                if source.key.is_some() { ", encrypted" } else { ", not encrypted" }
            ))),
        }
    }

    fn clone_of(&self, driver: &Driver, snapshot: &SnapshotHandle, size: u64) -> Result<VolumeInfo, Failure> {
        let made = driver.cluster.clone_snapshot(&snapshot.by_id(), &self.called)?;
        let wanted = self.range.size(Some(size))?;
        match wanted > made.size {
            true => driver.cluster.grow(&VolumeHandle { cluster: snapshot.of.cluster, volume: made.id }, wanted),
            false => Ok(made),
        }
    }

    /// Of the moment: what an earlier call has left may be old.
    fn passing_snapshot(&self, driver: &Driver, of: &VolumeHandle) -> Result<SnapshotInfo, Failure> {
        let name = names::passing(&self.called);
        match driver.cluster.create_snapshot(of, &name) {
            Err(failure) if failure.code == Code::FailedPrecondition => {
                drop_passing(driver, &self.called)?;
                driver.cluster.create_snapshot(of, &name)
            }
            made => made,
        }
    }
}

/// Nothing is left of the way by which a volume was cloned.
fn drop_passing(driver: &Driver, called: &str) -> Result<(), Failure> {
    let left = driver.cluster.snapshots(Some(&names::passing(called)))?;
    left.iter().try_for_each(|left| drop_one(driver, left))
}

/// What a driver has left that ended while it cloned volumes. Those that are being cloned now are left alone.
pub fn drop_all_passing(driver: &Driver) -> Result<(), Failure> {
    for left in driver.cluster.snapshots(None)?.iter().filter(|one| names::is_passing(&one.name)) {
        if let Ok(_turn) = driver.turns.take(left.name.clone()) {
            drop_one(driver, left)?;
        }
    }
    Ok(())
}

fn drop_one(driver: &Driver, left: &ListedSnapshot) -> Result<(), Failure> {
    let of = VolumeHandle { cluster: driver.cluster.id()?, volume: left.volume };
    match driver.cluster.remove_snapshot(&SnapshotHandle { of, epoch: left.epoch }) {
        Err(failure) if !failure.is_not_found() => Err(failure),
        _ => super::snapshots::drop_deleted(driver, &of),
    }
}
