//! `tepal volume import --live`: servers import the volume while it's used. The command waits, and nothing depends on that.

use super::TransferError;
use crate::cli::ImportArguments;
use crate::client::Client;
use crate::command::CommandError;
use crate::command::volume::gone;
use crate::command::wait::{self, Left, Waited};
use crate::output::{self, Output, Progress};
use tepal_gateway::nbd::address::is_address;
use tepal_model::text::shown;
use tepal_server::api::types::{ImportLive, LiveImport, LiveImportState, VolumeInfo, path, route};

pub fn import(client: &Client, output: Output, arguments: ImportArguments, from: String) -> Result<(), CommandError> {
    let ImportArguments { name, size, layout, pool, key, no_wait, .. } = arguments;
    if !is_address(&from) {
        return Err(TransferError::NotLive(shown(&from)).into());
    }
    let layout = layout.map(|layout| layout.to_string());
    let asked = ImportLive { name: name.clone(), from, size, layout, pool, key };
    let volume: VolumeInfo = client.create(route::LIVE_IMPORTS, &asked)?;
    if no_wait {
        output.show(&volume, |_| {
            format!("volume {name} can be used, and is imported in the background; {}", shown_by(&name))
        })?;
        return Ok(());
    }
    let volume = see_through(client, volume)?;
    output.show(&volume, |volume| {
        format!(
            "{} are in volume {}, and where they came from isn't needed any more",
            output::size(volume.size),
            volume.name
        )
    })?;
    Ok(())
}

fn shown_by(name: &str) -> String {
    format!("`tepal volume show {name}` shows how far it is, `tepal volume pause {name}` has it rest")
}

/// The volume once all of it is there.
fn see_through(client: &Client, volume: VolumeInfo) -> Result<VolumeInfo, CommandError> {
    let (name, route) = (volume.name.clone(), path(route::VOLUME, &volume.by_id()));
    let (mut far, mut cancelled) = ((0, 0), false);
    let left = |volume: &VolumeInfo| {
        let Some(LiveImport { state, done_bytes, total_bytes, reason, .. }) = volume.live.clone() else {
            return Ok(None);
        };
        far = (done_bytes, total_bytes);
        let obstacles = match state {
            LiveImportState::Running => reason.into_iter().collect(),
            LiveImportState::Paused => vec![format!("it rests: `tepal volume resume {}` has it go on", volume.name)],
            LiveImportState::Cancelled => {
                cancelled = true;
                return Ok(None);
            }
        };
        Ok(Some(Left { done: done_bytes, total: total_bytes, obstacles }))
    };
    let look = || client.get(&route);
    let waited = wait::until(Progress::new(format!("importing {name}")), volume, look, left);
    let reason = match waited.map_err(|error| gone(error, &name, "imported", far))? {
        Waited::Done(volume) if !cancelled => return Ok(volume),
        Waited::Done(_) => format!(
            "it was cancelled; `tepal volume resume {name}` has it go on after all, `tepal volume rm {name}` removes it"
        ),
        Waited::Interrupted(_) => shown_by(&name),
    };
    Err(TransferError::LiveHalfway { name, reason }.into())
}

/// How far it is, for people.
pub fn line(live: &LiveImport) -> String {
    let (done, total) = (output::size(live.done_bytes), output::size(live.total_bytes));
    let way = match live.state {
        LiveImportState::Running => "goes on",
        LiveImportState::Paused => "rests",
        LiveImportState::Cancelled => "is cancelled: what isn't there can't be read",
    };
    format!("{done} of {total} are there, the rest comes from {}; it {way}", shown(&live.from))
}
