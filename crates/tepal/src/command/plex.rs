//! `tepal plex`: volumes as plexes and subdisks, and what is done about one of these.

use super::CommandError;
use super::migration::{self, Destination};
use super::volume::ranges;
use super::wait::{self, Left, Waited};
use crate::apply;
use crate::cli::{Global, ParityArguments, PlexCommand};
use crate::client::Client;
use crate::interrupt::Interrupt;
use crate::locate;
use crate::output::{self, Outcome, Output, Progress};
use serde::Serialize;
use std::time::{Duration, Instant};
use tepal_model::Layout;
use tepal_model::layout::Protection;
use tepal_model::layout::plexes::{Plexes, PlexesError};
use tepal_model::size::{Size, exact};
use tepal_server::api::types::{
    BY_ID, CheckParity, ParityChecked, PartState, PlexInfo, PlexesInfo, Range, SubdiskInfo, VolumeInfo, path, route,
};

#[derive(Debug, thiserror::Error)]
pub enum PlexError {
    #[error("there is no plex '{0}'; `tepal plex ls` lists them")]
    None(String),
    #[error("several volumes have a plex '{0}': name one of them with `name` in the file that made it")]
    Several(String),
    #[error("plex '{plex}' is {state}: {why}")]
    Held { plex: String, state: PartState, why: String },
    #[error("plex '{0}' goes on reviving in the background; `tepal plex start {0}` waits again")]
    Unwaited(String),
    #[error("plex '{0}' is {1}, and has no parity")]
    NoParity(String, String),
    #[error("stopped; `--from {}` goes on there", exact(*.0))]
    Stopped(u64),
    #[error("{error}; `--from {}` goes on there", exact(*.from))]
    CutOff { from: u64, error: String },
    #[error(
        "the parity of {what} isn't that of its data in {bytes}: {ranges}; `tepal plex rebuildparity {what}` writes it again"
    )]
    Unequal { what: String, bytes: String, ranges: String },
    #[error(
        "{bytes} of {what} couldn't be compared, as not all its drives are here and up to date: again when they are"
    )]
    Unchecked { what: String, bytes: String },
    #[error("plex '{0}' is the only one of its volume; `tepal volume rm` removes the volume")]
    Only(String),
    #[error("without plex '{plex}', its volume would have no copy of a part: {rule}")]
    Needed { plex: String, rule: String },
}

/// For so long servers may be away meanwhile.
const AWAY: Duration = Duration::from_secs(120);
const AGAIN: Duration = Duration::from_millis(500);

pub fn run(global: &Global, output: Output, command: PlexCommand) -> Result<Outcome, CommandError> {
    let client = locate::client(global)?;
    match command {
        PlexCommand::Ls { volume: None } => {
            let all: Vec<PlexesInfo> = client.get(route::PLEXES)?;
            output.show(&all, |all| table(all))?;
        }
        PlexCommand::Ls { volume: Some(volume) } => {
            let one: PlexesInfo = client.get(&path(route::VOLUME_PLEXES, &volume))?;
            output.show(std::slice::from_ref(&one), table)?;
        }
        PlexCommand::Start { plex, wait } => start(&client, output, &plex, wait.waits())?,
        PlexCommand::Init(arguments) => init(&client, output, &arguments)?,
        PlexCommand::Checkparity(arguments) => parity(&client, output, &arguments, false)?,
        PlexCommand::Rebuildparity(arguments) => parity(&client, output, &arguments, true)?,
        PlexCommand::Attach(arguments) => return apply::attach_plex(&client, output, &arguments),
        PlexCommand::Detach { plex, wait } => detach(&client, output, &plex, wait.waits())?,
    }
    Ok(Outcome::Done)
}

/// Volumes, plexes and subdisks, each below what it's a part of.
fn table(all: &[PlexesInfo]) -> String {
    let mut rows = Vec::new();
    for volume in all {
        let layout = if volume.plexes.is_empty() { volume.layout.clone() } else { String::new() };
        let size = output::size(volume.size);
        rows.push(vec![volume.volume.clone(), volume.state.to_string(), size, layout, String::new(), String::new()]);
        for plex in &volume.plexes {
            rows.push(plex_row(plex));
            rows.extend(plex.subdisks.iter().map(subdisk_row));
        }
    }
    output::table(&["name", "state", ">size", "organization", "drive", "remark"], rows)
}

fn plex_row(plex: &PlexInfo) -> Vec<String> {
    let comparing = match plex.comparing {
        0 => String::new(),
        bytes => format!("parity of {} is compared with data", Size(bytes)),
    };
    vec![plex.name.clone(), plex.state.to_string(), output::size(plex.size), plex.organized(), String::new(), comparing]
}

fn subdisk_row(disk: &SubdiskInfo) -> Vec<String> {
    let drive = disk.drive_called();
    vec![disk.name.clone(), disk.state.to_string(), output::size(disk.length), String::new(), drive, remark(disk)]
}

fn remark(disk: &SubdiskInfo) -> String {
    match (disk.state, disk.stale, disk.filled) {
        (PartState::Initializing | PartState::Empty, _, Some(filled)) => format!("{filled} % have come"),
        (PartState::Reviving, stale, _) => format!("{} are left to copy", Size(stale)),
        (PartState::Down | PartState::Stale, stale @ 1.., _) => format!("{} changed without it", Size(stale)),
        _ => String::new(),
    }
}

/// A plex, and the volume that it's of.
fn find(client: &Client, name: &str) -> Result<(PlexesInfo, usize), CommandError> {
    let all: Vec<PlexesInfo> = client.get(route::PLEXES)?;
    let place = |volume: &PlexesInfo| volume.plexes.iter().position(|plex| plex.name == name);
    let mut found: Vec<(PlexesInfo, usize)> =
        all.into_iter().filter_map(|volume| place(&volume).map(|at| (volume, at))).collect();
    match found.pop() {
        None => Err(PlexError::None(name.to_owned()).into()),
        Some(_) if !found.is_empty() => Err(PlexError::Several(name.to_owned()).into()),
        Some(found) => Ok(found),
    }
}

fn start(client: &Client, output: Output, name: &str, wait: bool) -> Result<(), CommandError> {
    let (volume, at) = find(client, name)?;
    let route = path(route::VOLUME_PLEXES, &format!("{BY_ID}{}", volume.volume_id));
    let plex_in = |volume: &PlexesInfo| volume.plexes.get(at).filter(|plex| plex.name == name).cloned();
    let told = |plex: &PlexInfo| format!("plex {name} is {}", plex.state);
    let first = plex_in(&volume).ok_or_else(|| PlexError::None(name.to_owned()))?;
    if !wait {
        output.show(&first, told)?;
        return Ok(());
    }
    let mut most = 0;
    let left = |volume: &PlexesInfo| {
        let plex = plex_in(volume).ok_or_else(|| PlexError::None(name.to_owned()))?;
        if let Some(why) = held(&plex) {
            return Err(PlexError::Held { plex: name.to_owned(), state: plex.state, why }.into());
        }
        let stale: u64 = plex.subdisks.iter().map(|disk| disk.stale).sum::<u64>() + plex.comparing;
        let filled = plex.subdisks.iter().filter_map(|disk| disk.filled).min();
        most = most.max(stale);
        let (done, total) = match filled {
            Some(filled) => (filled * plex.size / 100, plex.size),
            None => (most - stale, most),
        };
        Ok((plex.state != PartState::Up).then_some(Left { done, total, obstacles: Vec::new() }))
    };
    match wait::until(Progress::new(format!("reviving {name}")), volume, || client.get(&route), left)? {
        Waited::Interrupted(_) => Err(PlexError::Unwaited(name.to_owned()).into()),
        Waited::Done(volume) => {
            let plex = plex_in(&volume).ok_or_else(|| PlexError::None(name.to_owned()))?;
            Ok(output.show(&plex, told)?)
        }
    }
}

/// Why a plex doesn't become whole by itself.
fn held(plex: &PlexInfo) -> Option<String> {
    let disk = plex.subdisks.iter().max_by_key(|disk| disk.state)?;
    let drive = disk.drive_called();
    match disk.state {
        PartState::Down => Some(format!(
            "drive {drive} isn't here; put it back, and what it missed is copied (`tepal drive online` if it was taken offline)"
        )),
        PartState::Faulty => Some(format!(
            "drive {drive} is gone for good: `tepal drive replace {} OTHER` gives its subdisks another",
            disk.drive
        )),
        _ => None,
    }
}

fn init(client: &Client, output: Output, arguments: &ParityArguments) -> Result<(), CommandError> {
    if let Ok((volume, at)) = find(client, &arguments.plex)
        && volume.plexes[at].organization != "raid5"
    {
        let plex = &volume.plexes[at];
        output.show(plex, |plex| {
            format!(
                "plex {} needs none: a {} plex is made as zeros, or filled from another",
                plex.name, plex.organization
            )
        })?;
        return Ok(());
    }
    parity(client, output, arguments, true)
}

/// What was compared.
#[derive(Serialize)]
struct Compared {
    volume: String,
    /// Where it began.
    from: u64,
    /// Bytes of the volume.
    size: u64,
    /// Whether what differed was written again.
    rebuilt: bool,
    unequal: Vec<Range>,
    unchecked_bytes: u64,
}

fn parity(client: &Client, output: Output, arguments: &ParityArguments, rebuild: bool) -> Result<(), CommandError> {
    let what = &arguments.plex;
    let (id, volume) = match find(client, what) {
        Ok((volume, at)) if volume.plexes[at].organization != "raid5" => {
            return Err(PlexError::NoParity(what.clone(), volume.plexes[at].organization.clone()).into());
        }
        Ok((volume, _)) => (volume.volume_id, volume.volume),
        // A volume with another code than that of raid5.
        Err(CommandError::Plex(PlexError::None(_))) => match client.get::<VolumeInfo>(&path(route::VOLUME, what)) {
            Ok(volume) => (volume.id, volume.name),
            Err(error) if error.is_not_found() => return Err(PlexError::None(what.clone()).into()),
            Err(error) => return Err(error.into()),
        },
        Err(error) => return Err(error),
    };
    let route = path(route::VOLUME_PARITY, &format!("{BY_ID}{id}"));
    let mut compared =
        Compared { volume, from: arguments.from, size: 0, rebuilt: rebuild, unequal: Vec::new(), unchecked_bytes: 0 };
    let mut progress = Progress::new(format!("comparing the parity of {what}"));
    let interrupt = Interrupt::catch()?;
    let mut next = Some(arguments.from);
    while let Some(offset) = next {
        let step = stepped(client, &route, CheckParity { offset, rebuild }, &interrupt)?;
        next = step.next;
        compared.size = step.size;
        compared.unchecked_bytes += step.unchecked;
        compared.unequal.extend(step.unequal);
        progress.set(next.unwrap_or(step.size), step.size);
    }
    drop(progress);
    output.show(&compared, |compared| told(what, compared))?;
    let (what, bytes) = (what.clone(), compared.unequal.iter().map(|range| range.length).sum());
    match compared {
        Compared { rebuilt: false, ref unequal, .. } if !unequal.is_empty() => {
            let ranges = ranges(unequal);
            Err(PlexError::Unequal { what, bytes: output::size(bytes), ranges }.into())
        }
        Compared { unchecked_bytes: 0, .. } => Ok(()),
        Compared { unchecked_bytes, .. } => {
            Err(PlexError::Unchecked { what, bytes: output::size(unchecked_bytes) }.into())
        }
    }
}

/// One step, as often as it takes while servers are away.
fn stepped(
    client: &Client,
    route: &str,
    wanted: CheckParity,
    interrupt: &Interrupt,
) -> Result<ParityChecked, CommandError> {
    let began = Instant::now();
    loop {
        if interrupt.is_raised() {
            return Err(PlexError::Stopped(wanted.offset).into());
        }
        match client.post_repeatable::<ParityChecked>(route, &wanted) {
            Ok(checked) => return Ok(checked),
            Err(error) if (error.is_no_answer() || error.is_unavailable()) && began.elapsed() < AWAY => {
                if interrupt.wait(AGAIN) {
                    return Err(PlexError::Stopped(wanted.offset).into());
                }
            }
            Err(error) if wanted.offset == 0 => return Err(error.into()),
            Err(error) => return Err(PlexError::CutOff { from: wanted.offset, error: error.to_string() }.into()),
        }
    }
}

fn told(what: &str, compared: &Compared) -> String {
    let all = output::size(compared.size.saturating_sub(compared.from));
    let bytes: u64 = compared.unequal.iter().map(|range| range.length).sum();
    match (bytes, compared.rebuilt) {
        (0, _) if compared.unchecked_bytes > 0 => format!("{what}: no difference was found in what could be compared"),
        (0, _) => format!("{what}: {all} compared, parity is that of the data"),
        (bytes, true) => format!("{what}: {all} compared, the parity of {} is written again", output::size(bytes)),
        (bytes, false) => format!("{what}: {all} compared, the parity of {} is wrong", output::size(bytes)),
    }
}

fn detach(client: &Client, output: Output, name: &str, wait: bool) -> Result<(), CommandError> {
    let (volume, at) = find(client, name)?;
    let volume: VolumeInfo = client.get(&path(route::VOLUME, &format!("{BY_ID}{}", volume.volume_id)))?;
    let layout: Option<Layout> = volume.layout.parse().ok();
    let Some((layout, plexes)) = layout.as_ref().and_then(|layout| Some((layout, layout.plexes()?))) else {
        return Err(PlexError::None(name.to_owned()).into());
    };
    let mut left = plexes.plexes().to_vec();
    // Names by number stay: those of the plexes behind it would change.
    for (number, plex) in left.iter_mut().enumerate() {
        plex.name.get_or_insert_with(|| format!("{}.p{number}", volume.name));
    }
    if left.len() == 1 || at >= left.len() {
        return Err(PlexError::Only(name.to_owned()).into());
    }
    left.remove(at);
    let needed = |error: PlexesError| PlexError::Needed { plex: name.to_owned(), rule: error.to_string() };
    let plexes = Plexes::new(left).map_err(needed)?;
    let min_copies = layout.min_copies.min(plexes.plexes().len() as u8);
    let to = Layout { protection: Protection::Plexes(plexes.into()), min_copies, ..layout.clone() };
    migration::relayout(
        client,
        output,
        &volume.name,
        &Destination { layout: Some(to), pool: None, range: None },
        (None, wait),
    )
}
