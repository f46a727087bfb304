//! `tepal volume`.

use super::status::volume_state;
use super::wait::{self, Left, Waited};
use super::{CommandError, identity, limit, migration, transfer};
use crate::cli::{CreateVolumeArguments, Global, VolumeCommand};
use crate::client::Client;
use crate::locate;
use crate::output::{self, Outcome, Output, Progress};
use tepal_model::layout::plexes::Plexes;
use tepal_model::size::Size;
use tepal_model::{DriveId, Layout};
use tepal_server::api::types::{
    AcceptLoss, BY_ID, CloneSnapshot, CreateVolume, Loss, Range, Removal, RenameVolume, ResizeVolume, RewrapKey, Scrub,
    ScrubState, SnapshotInfo, VolumeInfo, VolumeRange, path, route,
};

#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("volume '{volume}' has {layout} as before: its change was cancelled")]
    CameBack { volume: String, layout: String },
    #[error("volume '{0}' shares its data as before: its flattening was cancelled")]
    StillShares(String),
    #[error("volume '{volume}' isn't there yet: it goes on in the background; {commands}")]
    Unfinished { volume: String, commands: String },
    #[error("of volume '{0}' nothing is lost with drives that failed: there is nothing to accept")]
    NothingLost(String),
    #[error(
        "requests for {bytes} of volume '{volume}' fail: with `--force --shown {tag}` the newest copies left of just these bytes are served \
         as they are; where an erasure code has too few fragments left, the bytes become zeros, in snapshots and clones too"
    )]
    LossNotAccepted { volume: String, bytes: String, tag: String },
    #[error(
        "of {bytes} of volume '{volume}' there is no copy at all: requests for them go on to fail; `tepal volume export {volume} \
         --keep-going` saves all else, and `tepal volume rm` removes it"
    )]
    NoCopyLeft { volume: String, bytes: String },
    #[error(
        "{bytes} of volume '{volume}' are lost with drives that failed: `tepal volume accept-loss {volume}` says where"
    )]
    LostParts { volume: String, bytes: String },
    #[error("volume '{volume}' was removed while it was being {doing}, when {done} of {total} were done")]
    Gone { volume: String, doing: &'static str, done: String, total: String },
    #[error("{what} is removed, and not all of its space is free yet: the rest is freed in the background")]
    Freeing { what: String },
    #[error("volume '{0}' isn't checked yet: it goes on in the background")]
    Unscrubbed(String),
    #[error("volume '{volume}' can't be scrubbed: {reason}")]
    Scrub { volume: String, reason: String },
    #[error("volume '{volume}': what drives have that are away wasn't checked ({}): scrub again when they are back", names(.drives))]
    Unchecked { volume: String, drives: Vec<DriveId> },
    #[error("volume '{volume}' is damaged on every copy that there is, restore it from elsewhere: {}", ranges(.damaged))]
    Damaged { volume: String, damaged: Vec<Range> },
    #[error(
        "snapshots of volume '{volume}' are damaged on every copy that is here, copy what is right of them elsewhere, and remove them: {snapshots}"
    )]
    DamagedSnapshots { volume: String, snapshots: String },
    #[error("volume '{volume}' is damaged on every copy that is here; bring back the drives that are away, and scrub again: {}", ranges(.unrepaired))]
    Unrepaired { volume: String, unrepaired: Vec<Range> },
}

pub fn run(global: &Global, output: Output, command: VolumeCommand) -> Result<Outcome, CommandError> {
    let client = locate::client(global)?;
    match command {
        VolumeCommand::Create(arguments) => {
            let volume: VolumeInfo = client.create(route::VOLUMES, &request(arguments))?;
            output.show(&volume, |volume| {
                format!("volume {} is made: {}, {}", volume.name, output::size(volume.size), volume.layout)
            })?;
        }
        VolumeCommand::Ls => {
            let volumes: Vec<VolumeInfo> = client.get(route::VOLUMES)?;
            output.show(&volumes, |volumes| list(volumes))?;
        }
        VolumeCommand::Show { name } => {
            let volume: VolumeInfo = client.get(&path(route::VOLUME, &name))?;
            output.show(&volume, page)?;
        }
        VolumeCommand::Resize { name, size, shrink, force } => {
            let asked = ResizeVolume { size, shrink, force, replica_of: None, import: None };
            let volume: VolumeInfo = client.post(&path(route::VOLUME_RESIZE, &name), &asked)?;
            output.show(&volume, |volume| format!("volume {} has {} now", volume.name, output::size(volume.size)))?;
        }
        VolumeCommand::Grant { name, right, to } => identity::grant(&client, output, &name, right, to)?,
        VolumeCommand::Revoke { name, to } => identity::revoke(&client, output, &name, &to)?,
        VolumeCommand::Fence { name, from } => identity::fence(&client, output, &name, from.as_deref())?,
        VolumeCommand::Limit { name, limits } => limit::volume(&client, output, &name, &limits)?,
        VolumeCommand::Rights { name } => identity::rights(&client, output, &name)?,
        VolumeCommand::Rename { name, new_name } => {
            let volume: VolumeInfo = client.post(&path(route::VOLUME_RENAME, &name), &RenameVolume { new_name })?;
            output.show(&volume, |volume| format!("volume {name} is called {} now", volume.name))?;
        }
        VolumeCommand::Rekey { name, key } => {
            let volume: VolumeInfo = client.post(&path(route::VOLUME_KEY, &name), &RewrapKey { key })?;
            output.show(&volume, |volume| {
                format!("the key of volume {name} is wrapped by key {} now", volume.key.as_deref().unwrap_or("-"))
            })?;
        }
        VolumeCommand::Clone { snapshot, name } => {
            let route = path(route::SNAPSHOT_CLONE, &snapshot.to_string());
            let volume: VolumeInfo = client.create(&route, &CloneSnapshot { name })?;
            output.show(&volume, |volume| {
                format!("volume {} is made of {snapshot}: {}", volume.name, output::size(volume.size))
            })?;
        }
        VolumeCommand::Rm { name, force, snapshots, wait } => {
            let route = format!("{}?force={force}&snapshots={snapshots}", path(route::VOLUME, &name));
            remove(&client, output, &name, &route, wait.waits())?;
        }
        VolumeCommand::Relayout { name, layout, pool, range, way } => {
            let to = migration::Destination { layout, pool, range };
            migration::relayout(&client, output, &name, &to, (way.rate(), way.wait.waits()))?;
        }
        VolumeCommand::Flatten { name, way } => {
            migration::flatten(&client, output, &name, (way.rate(), way.wait.waits()))?;
        }
        VolumeCommand::Migrations => migration::list(&client, output)?,
        VolumeCommand::Pause { name } => migration::pause(&client, output, &name)?,
        VolumeCommand::Resume { name } => migration::resume(&client, output, &name)?,
        VolumeCommand::Rate { name, rate } => migration::set_rate(&client, output, &name, rate)?,
        VolumeCommand::Cancel { name, wait } => migration::cancel(&client, output, &name, wait.waits())?,
        VolumeCommand::AcceptLoss { name, force, shown } => accept_loss(&client, output, &name, (force, shown))?,
        VolumeCommand::Scrub { name, wait } => scrub(&client, output, &name, wait.waits())?,
        VolumeCommand::Export(arguments) => transfer::export(&client.patient(), output, arguments)?,
        VolumeCommand::Import(arguments) => transfer::import(&client.patient(), output, arguments)?,
        VolumeCommand::Send(arguments) => transfer::history::send(&client.patient(), output, arguments)?,
        VolumeCommand::Receive(arguments) => transfer::history::receive(&client.patient(), output, arguments)?,
    }
    Ok(Outcome::Done)
}

fn request(arguments: CreateVolumeArguments) -> CreateVolume {
    let CreateVolumeArguments { name, size, layout, pool, key, plain } = arguments;
    CreateVolume { name, size, layout: layout.map(|layout| layout.to_string()), pool, key, plain, import: None }
}

fn remove(client: &Client, output: Output, name: &str, route: &str, wait: bool) -> Result<(), CommandError> {
    let mut removal: Removal = client.delete(route)?;
    let (id, total) = (removal.id, removal.allocated);
    let look = || Ok(client.get::<Vec<Removal>>(route::REMOVALS)?.into_iter().find(|other| other.id == id));
    let left = |going_on: &Option<Removal>| {
        let done = |now: &Removal| Left { done: total.saturating_sub(now.allocated), total, obstacles: Vec::new() };
        Ok(going_on.as_ref().map(done))
    };
    let (progress, first) = (Progress::new(format!("freeing the space of {name}")), Some(removal.clone()));
    if !wait {
        output.show(&removal, |_| format!("volume {name} is removed; its space is being freed"))?;
        return Ok(());
    }
    let Waited::Done(_) = wait::until(progress, first, look, left)? else {
        return Err(VolumeError::Freeing { what: format!("volume {name}") }.into());
    };
    removal.allocated = 0;
    output.show(&removal, |_| match total {
        0 => format!("volume {name} is removed"),
        _ => format!("volume {name} is removed, {} are free again", output::size(total)),
    })?;
    Ok(())
}

fn accept_loss(
    client: &Client,
    output: Output,
    name: &str,
    (force, shown): (bool, Option<String>),
) -> Result<(), CommandError> {
    let route = path(route::VOLUME_LOSS, name);
    let loss: Loss = client.get(&route)?;
    if loss.bytes == 0 {
        return Err(VolumeError::NothingLost(name.to_owned()).into());
    }
    let bytes = output::size(loss.bytes);
    if !force {
        let lost = format!(
            "{bytes} of volume {name} may miss writes that were acknowledged, or become zeros: {}",
            ranges(&loss.ranges)
        );
        output.show(&loss, |_| lost)?;
        return Err(VolumeError::LossNotAccepted { volume: name.to_owned(), bytes, tag: loss.tag }.into());
    }
    let accepted: Loss = client.post(&route, &AcceptLoss { tag: shown.unwrap_or(loss.tag) })?;
    let still: Loss = client.get(&route)?;
    if still.bytes < accepted.bytes {
        output.show(&accepted, |loss| {
            let (lost, bytes) = (ranges(&loss.ranges), output::size(loss.bytes - still.bytes));
            format!(
                "volume {name} is served as it is: {bytes} of it may miss writes that were acknowledged, or are zeros: {lost}"
            )
        })?;
    }
    match still.bytes {
        0 => Ok(()),
        bytes => Err(VolumeError::NoCopyLeft { volume: name.to_owned(), bytes: output::size(bytes) }.into()),
    }
}

fn scrub(client: &Client, output: Output, name: &str, wait: bool) -> Result<(), CommandError> {
    let begun: Scrub = client.post(&path(route::VOLUME_SCRUB, name), &serde_json::json!({}))?;
    let route = path(route::VOLUME_SCRUB, &format!("{BY_ID}{}", begun.volume_id));
    let mut far = (0, 0);
    let left = |scrub: &Scrub| {
        let runs = scrub.state == ScrubState::Running;
        far = (scrub.checked_bytes, scrub.total_bytes);
        Ok(runs.then(|| Left { done: scrub.checked_bytes, total: scrub.total_bytes, obstacles: Vec::new() }))
    };
    let by_id = format!("{BY_ID}{}", begun.volume_id);
    let (progress, look) = (Progress::new(format!("scrubbing {name}")), || client.get(&route));
    if !wait {
        output.show(&begun, |_| format!("volume {name} is being scrubbed"))?;
        return Ok(());
    }
    let waited = wait::until(progress, begun, look, left).map_err(|error| gone(error, name, "scrubbed", far))?;
    let Waited::Done(scrub) = waited else {
        return Err(VolumeError::Unscrubbed(name.to_owned()).into());
    };
    let lost = client.get::<Loss>(&path(route::VOLUME_LOSS, &by_id)).map_or(0, |loss| loss.bytes);
    output.show(&scrub, |scrub| {
        let checked = output::size(scrub.checked_bytes);
        let verdict = match scrub {
            Scrub { error: Some(_), .. } => "it ended before all was",
            Scrub { state, .. } if *state != ScrubState::Done => "it ended before all was",
            _ if lost > 0 => "some of it is lost with drives that failed",
            Scrub { damaged, .. } if !damaged.is_empty() => "some of it is damaged on every copy",
            Scrub { damaged_snapshots, .. } if !damaged_snapshots.is_empty() => {
                "some of its snapshots are damaged on every copy"
            }
            Scrub { unrepaired, .. } if !unrepaired.is_empty() => "some of it can't be repaired while drives are away",
            Scrub { unchecked_drives, .. } if !unchecked_drives.is_empty() => "not all drives were there to be checked",
            _ => "all is right now",
        };
        format!("volume {name}: {checked} checked, {} blocks repaired, {verdict}", scrub.repaired_blocks)
    })?;
    let volume = name.to_owned();
    match scrub.state {
        ScrubState::Done if !scrub.damaged.is_empty() => {
            Err(VolumeError::Damaged { volume, damaged: scrub.damaged }.into())
        }
        ScrubState::Done if lost > 0 => Err(VolumeError::LostParts { volume, bytes: output::size(lost) }.into()),
        ScrubState::Done if !scrub.damaged_snapshots.is_empty() => {
            let damaged = scrub.damaged_snapshots;
            let named = damaged.iter().map(|it| format!("{volume}@{} at {}", it.name, ranges(&it.damaged)));
            Err(VolumeError::DamagedSnapshots { snapshots: named.collect::<Vec<_>>().join("; "), volume }.into())
        }
        ScrubState::Done if !scrub.unrepaired.is_empty() => {
            Err(VolumeError::Unrepaired { volume, unrepaired: scrub.unrepaired }.into())
        }
        ScrubState::Done if !scrub.unchecked_drives.is_empty() => {
            Err(VolumeError::Unchecked { volume, drives: scrub.unchecked_drives }.into())
        }
        ScrubState::Done => Ok(()),
        ScrubState::Never | ScrubState::Running | ScrubState::Failed => {
            let reason = scrub.error.unwrap_or_else(|| "the server was restarted meanwhile; scrub again".to_owned());
            Err(VolumeError::Scrub { volume, reason }.into())
        }
    }
}

/// Says of a volume that isn't there any more what became of it, and how far it came.
pub fn gone(error: CommandError, name: &str, doing: &'static str, (done, total): (u64, u64)) -> CommandError {
    match error {
        CommandError::Client(error) if error.is_not_found() => {
            let (done, total) = (output::size(done), output::size(total));
            VolumeError::Gone { volume: name.to_owned(), doing, done, total }.into()
        }
        error => error,
    }
}

fn names(drives: &[DriveId]) -> String {
    drives.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// As bytes of the volume; the first few, so that an error stays one readable line.
pub fn ranges(damaged: &[Range]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<String> =
        damaged.iter().take(SHOWN).map(|range| format!("{}+{}", range.offset, range.length)).collect();
    match damaged.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more ranges", shown.join(", ")),
    }
}

/// A layout as a list has room for it.
pub fn outline(layout: &str) -> String {
    let read = layout.parse::<Layout>().ok();
    read.as_ref().and_then(Layout::plexes).map_or_else(|| layout.to_owned(), Plexes::outline)
}

fn list(volumes: &[VolumeInfo]) -> String {
    let row = |volume: &VolumeInfo| {
        vec![
            volume.name.clone(),
            output::size(volume.size),
            output::size(volume.allocated),
            volume_outline(volume) + if volume.key.is_some() { ", encrypted" } else { "" },
            volume.pool.clone(),
            volume_state(volume.state).to_owned(),
            volume.origin.clone().unwrap_or_default(),
            volume.reason.join("; "),
        ]
    };
    let columns = ["name", ">size", ">allocated", "layout", "pool", "state", "origin", "reason"];
    output::table(&columns, volumes.iter().map(row))
}

fn page(volume: &VolumeInfo) -> String {
    let drives: Vec<String> = volume.drives.iter().map(ToString::to_string).collect();
    let mut facts = vec![
        ("name", volume.name.clone()),
        ("size", output::size(volume.size)),
        ("allocated", format!("{} on drives, copies counted", output::size(volume.allocated))),
        ("layout", layouts(volume)),
        ("pool", pools(volume)),
        ("drives", drives.join(" ")),
        ("clients", clients(volume)),
        ("state", volume_state(volume.state).to_owned()),
    ];
    if let Some(domain) = &volume.domain {
        let drives = if volume.losses_left == 1 { "drive" } else { "drives" };
        let outlives = match volume.losses_left {
            0 => "no lost drive".to_owned(),
            left => format!("any {left} lost {drives}, as it is now"),
        };
        facts.insert(4, ("copies", format!("on different {domain}s")));
        facts.insert(5, ("outlives", outlives));
    }
    if volume.reclaiming > 0 {
        facts.insert(
            3,
            ("being freed", format!("{} of that, which nobody sees any more", output::size(volume.reclaiming))),
        );
    }
    if volume.ranges.len() > 1 {
        facts.extend(volume.ranges.iter().map(|range| ("range", of_range(range, volume))));
    }
    facts.extend(volume.key.iter().map(|key| ("encrypted", format!("its key is wrapped by key '{key}'"))));
    if let (Some(key), [_, ..]) = (&volume.key, &volume.keyless_servers[..]) {
        let servers: Vec<String> = volume.keyless_servers.iter().map(ToString::to_string).collect();
        facts.push(("can't read it", format!("{}: key '{key}' isn't in their folders of keys", servers.join(", "))));
    }
    if !volume.limits.is_none() {
        facts.push(("limits", limit::said(&volume.limits)));
    }
    facts.extend(volume.reserved_by.iter().map(|holder| ("reserved by", holder.clone())));
    facts.extend(volume.origin.iter().map(|origin| ("clone of", origin.clone())));
    facts.extend(volume.replica.iter().map(|replica| {
        let held = match replica.as_of_unix_ms {
            0 => "nothing whole of it yet".to_owned(),
            as_of => format!("its newest whole snapshot is as of {} UTC", output::time(as_of)),
        };
        ("replica of", format!("{}; {held}", replica.called))
    }));
    facts.extend(volume.snapshots.iter().map(|snapshot| ("snapshot", of_snapshot(snapshot))));
    facts.extend(volume.migration.iter().map(|way| ("on its way", migration::line(way))));
    facts.extend(volume.migration.iter().flat_map(|way| &way.reason).map(|reason| ("in its way", reason.clone())));
    facts.extend(volume.reason.iter().map(|reason| ("reason", reason.clone())));
    facts.extend(volume.live.iter().map(|live| ("import", transfer::live::line(live))));
    facts.extend(volume.incomplete.map(|part| {
        let done = output::size(part.done);
        let part = match &volume.replica {
            Some(_) => format!("a newer snapshot is there up to {done}"),
            None => format!("an import of it hasn't ended; --resume goes on after {done}"),
        };
        ("incomplete", part)
    }));
    if volume.recovery.stale_regions > 0 {
        let rate = Size(volume.recovery.bytes_per_second);
        facts.push(("catching up", format!("{} regions of 1M, {rate}/s now", volume.recovery.stale_regions)));
    }
    output::facts(&facts)
}

fn clients(volume: &VolumeInfo) -> String {
    let also = [(volume.imports, "imports"), (volume.exports, "exports")];
    let also = also.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!(", {count} {what}"));
    also.fold(volume.clients.to_string(), |said, more| said + &more)
}

/// The layouts of its ranges, each once.
fn layouts(volume: &VolumeInfo) -> String {
    each_once(&volume.layout, volume.ranges.iter().map(|range| &*range.layout))
}

fn pools(volume: &VolumeInfo) -> String {
    each_once(&volume.pool, volume.ranges.iter().map(|range| &*range.pool))
}

fn each_once<'a>(only: &'a str, of_ranges: impl ExactSizeIterator<Item = &'a str>) -> String {
    if of_ranges.len() < 2 {
        return only.to_owned();
    }
    let mut seen: Vec<&str> = Vec::new();
    of_ranges.for_each(|one| {
        if !seen.contains(&one) {
            seen.push(one)
        }
    });
    seen.join(", ")
}

fn volume_outline(volume: &VolumeInfo) -> String {
    if volume.ranges.len() < 2 { outline(&volume.layout) } else { layouts(volume) }
}

fn of_range(range: &VolumeRange, volume: &VolumeInfo) -> String {
    let is_elsewhere = volume.ranges.iter().any(|other| other.pool != volume.pool);
    let pool = if is_elsewhere { format!(" in pool {}", range.pool) } else { String::new() };
    format!("{}: {}{pool}", migration::between(&range.between), range.layout)
}

fn of_snapshot(snapshot: &SnapshotInfo) -> String {
    let (size, time) = (output::size(snapshot.size), output::time(snapshot.created_unix_ms));
    let reasons = snapshot.reason.iter().map(|reason| format!("; {reason}"));
    format!("{}, of {size}, {time} UTC{}", snapshot.name, reasons.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_first_damaged_ranges_and_counts_the_rest() {
        let range = |offset| Range { offset, length: 4096 };
        assert_eq!(ranges(&[range(0), range(8192)]), "0+4096, 8192+4096");
        let many: Vec<Range> = (0..20).map(range).collect();
        assert!(ranges(&many).ends_with("7+4096 and 12 more ranges"));
    }
}
