//! `tepal snapshot rm`: what only the snapshot kept is freed in the background, and may be waited for.

use super::CommandError;
use super::volume::VolumeError;
use super::wait::{self, Left, Waited};
use crate::client::{Client, ClientError};
use crate::output::{self, Output, Progress};
use serde::Serialize;
use tepal_model::DriveId;
use tepal_server::api::types::{
    BY_ID, DriveInfo, DriveState, SnapshotInfo, SnapshotName, SnapshotRemoval, VolumeInfo, path, route,
};

/// What is printed as JSON when it was waited for.
#[derive(Serialize)]
struct Freed {
    #[serde(flatten)]
    removal: SnapshotRemoval,
    /// Bytes that couldn't be freed.
    reclaiming: u64,
    /// What these hold is freed when they are back.
    uncounted_drives: Vec<DriveId>,
}

pub fn remove(
    client: &Client,
    output: Output,
    name: &SnapshotName,
    (force, wait): (bool, bool),
) -> Result<(), CommandError> {
    // How much comes back is known best as long as it's there.
    let found = wait.then(|| client.get::<SnapshotInfo>(&path(route::SNAPSHOT, &name.to_string()))).transpose()?;
    let kept = found.as_ref().and_then(|found| found.unique).unwrap_or(0);
    let route = path(route::SNAPSHOT, &found.as_ref().map_or_else(|| name.to_string(), SnapshotInfo::by_id));
    let removal: SnapshotRemoval = client.delete(&format!("{route}?force={force}"))?;
    let mut freeing = Freeing { view: removal.view, total: kept, has_begun: false };
    let volume = found.map_or_else(String::new, |found| format!("{BY_ID}{}", found.volume_id));
    let look = || look(client, &volume);
    let progress = Progress::new(format!("freeing what only {name} kept"));
    let waited = match wait {
        true => wait::until(progress, look()?, look, |seen| Ok(freeing.left(seen)))?,
        false => {
            output.show(&removal, |_| format!("snapshot {name} is removed; what only it kept is being freed"))?;
            return Ok(());
        }
    };
    let Waited::Done(seen) = waited else {
        return Err(VolumeError::Freeing { what: format!("snapshot {name}") }.into());
    };
    let reclaiming = seen.volume.as_ref().map_or(0, |volume| volume.reclaiming);
    let freed = freeing.total.saturating_sub(reclaiming);
    let away: Vec<DriveId> = seen.uncounted.iter().map(|drive| drive.id).collect();
    output.show(&Freed { removal, reclaiming, uncounted_drives: away }, |done| {
        let mut text = match freed {
            0 => format!("snapshot {name} is removed"),
            _ => format!("snapshot {name} is removed, {} are free again", output::size(freed)),
        };
        if done.reclaiming > 0 {
            text += &format!(
                "; {} stay as long as there are blocks that can't be read: `tepal volume scrub {}` repairs them",
                output::size(done.reclaiming),
                name.volume
            );
        }
        if !done.uncounted_drives.is_empty() {
            let drives: Vec<String> = done.uncounted_drives.iter().map(ToString::to_string).collect();
            text +=
                &format!("; what drives that are away hold of it is freed when they are back: {}", drives.join(", "));
        }
        text
    })?;
    Ok(())
}

/// What was seen of a volume; nothing once it's gone itself.
#[derive(Default)]
struct Seen {
    volume: Option<VolumeInfo>,
    /// Those of its drives of which nobody says how far they are.
    uncounted: Vec<DriveInfo>,
}

fn look(client: &Client, volume: &str) -> Result<Seen, ClientError> {
    let volume: VolumeInfo = match client.get(&path(route::VOLUME, volume)) {
        Err(error) if error.is_not_found() => return Ok(Seen::default()),
        said => said?,
    };
    let mut uncounted = Vec::new();
    if !volume.uncounted_drives.is_empty() {
        uncounted = client.get::<Vec<DriveInfo>>(route::DRIVES)?;
        uncounted.retain(|drive| volume.uncounted_drives.contains(&drive.id));
    }
    Ok(Seen { volume: Some(volume), uncounted })
}

/// How what is seen is judged.
struct Freeing {
    /// That of the removal.
    view: u64,
    /// Bytes that are to be freed, as far as that is known.
    total: u64,
    /// Some of it was seen.
    has_begun: bool,
}

impl Freeing {
    /// Nothing is left when all drives that are here are done. Those that aren't are told of, and not waited for.
    fn left(&mut self, seen: &Seen) -> Option<Left> {
        let volume = seen.volume.as_ref()?;
        self.total = self.total.max(volume.reclaiming);
        self.has_begun |= volume.reclaiming > 0;
        let is_unheard = |drive: &DriveInfo| matches!(drive.state, DriveState::Up | DriveState::Behind);
        if volume.reclaimed_view >= self.view && !seen.uncounted.iter().any(is_unheard) {
            return None;
        }
        let obstacle = |drive: &DriveInfo| match is_unheard(drive) {
            true => format!("server {} doesn't say how far drive {} is", drive.server, drive.id),
            false => format!(
                "drive {} at {} is {}: what it holds is freed when it's back",
                drive.id, drive.path, drive.state
            ),
        };
        let done = if self.has_begun { self.total - volume.reclaiming } else { 0 };
        Some(Left { done, total: self.total, obstacles: seen.uncounted.iter().map(obstacle).collect() })
    }
}
