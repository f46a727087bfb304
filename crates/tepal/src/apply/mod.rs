//! `tepal apply`: a cluster becomes what a file says, and stays as it is where it is so already.
//!
//! `vinum/` and `toml_file.rs` read a file into what is *wanted* (`wanted.rs`). `plan/` compares that with what there is, and gives the
//! steps, or refuses all of them. Drives are added first, since subdisks may take all that is free on a drive; then the plan of the
//! volumes is made. `print.rs` writes what there is in the forms that can be read.

mod plan;
mod print;
mod toml_file;
mod vinum;
mod wanted;

use crate::cli::{ApplyArguments, AttachPlexArguments, Global, ShowArguments, ShowForm};
use crate::client::{Client, ClientError};
use crate::command::CommandError;
use crate::locate;
use crate::output::{Outcome, Output};
use crate::picture::{self, Scene};
use plan::{Now, Plan, Step};
use serde::Serialize;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tepal_model::DriveId;
use tepal_server::api::types::{
    AddDrive, CreatePool, CreateSchedule, CreateVolume, Done, DriveInfo, DriveRemoved, DriveUse, Limits,
    MigrationState, NameDrive, PoolInfo, Relayout, ResizeVolume, ScheduleInfo, ServerInfo, SetDriveUse, VolumeInfo,
    path, route,
};
use wanted::{At, Wanted, Wrong};

#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("{}: {error}", file.display())]
    Read { file: PathBuf, error: std::io::Error },
    #[error("{}: {error}; nothing is drawn", file.display())]
    Write { file: PathBuf, error: std::io::Error },
    #[error("{}, {wrong}", file.display())]
    Wrong { file: PathBuf, wrong: Wrong },
    #[error("volume '{volume}' has layout {layout}, which names no plexes: `tepal volume relayout` changes it")]
    NoPlexes { volume: String, layout: String },
    #[error("the lines of a plex are one that begins with `plex` and those of its subdisks, which begin with `sd`")]
    NotAPlex,
    #[error("{error}; nothing of the file is done")]
    Undone { error: String },
    #[error("{error}; {done} of {all} steps are done: run it again to go on")]
    Stopped { error: String, done: usize, all: usize },
    #[error("{error}; not all that had been added for it could be taken out again: {left}")]
    Left { error: String, left: String },
}

/// So many volumes are being made at a time: half as many connections as a server takes for its API.
const AT_ONCE: usize = 64;
/// How often a volume is looked at that is on its way.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// So many looks in a row a volume may be held up on its way.
const BLOCKED: u32 = 50;

/// What was done, or would be.
#[derive(Serialize)]
struct Report {
    /// Whether it was only said.
    dry_run: bool,
    /// Lines of a difference.
    steps: Vec<String>,
    /// What is taken otherwise than it's written.
    notes: Vec<String>,
    /// Volumes on their way to another layout.
    under_way: Vec<String>,
}

pub fn apply(global: &Global, output: Output, arguments: &ApplyArguments) -> Result<Outcome, CommandError> {
    let wanted = read(arguments)?;
    let client = locate::client(global)?;
    let in_file = |wrong| ApplyError::Wrong { file: arguments.file.clone(), wrong };
    let report = applied(&client, &wanted, in_file, arguments.dry_run)?;
    output.show(&report, told)?;
    Ok(Outcome::Done)
}

/// Has the cluster become what is wanted, or says what that would take. `in_file` says where something is wrong.
fn applied(
    client: &Client,
    wanted: &Wanted,
    in_file: impl Fn(Wrong) -> ApplyError,
    dry_run: bool,
) -> Result<Report, CommandError> {
    let plan = Plan::of(wanted, &now(client)?).map_err(&in_file)?;
    if dry_run {
        return Ok(report(&plan, &plan.steps, true));
    }
    let first: Vec<Step> = plan.steps.iter().filter(|step| step.is_first()).cloned().collect();
    let mut undo = Undo::default();
    let prepared = prepare(client, &first, &mut undo).map_err(|error| error.to_string());
    let planned = prepared.and_then(|()| {
        let now = now(client).map_err(|error| error.to_string())?;
        Plan::of(wanted, &now).map_err(|wrong| in_file(wrong).to_string())
    });
    let plan = planned.map_err(|error| undo.all(client, error))?;
    let all = [first.as_slice(), &plan.steps].concat();
    let stopped = |(error, done)| ApplyError::Stopped { error, done: first.len() + done, all: all.len() };
    carry_out_all(client, &plan.steps).map_err(stopped)?;
    Ok(report(&plan, &all, false))
}

/// `tepal plex attach`: as if the lines stood behind the volume in a file that has all that is there.
pub fn attach_plex(client: &Client, output: Output, arguments: &AttachPlexArguments) -> Result<Outcome, CommandError> {
    let AttachPlexArguments { volume, lines, dry_run } = arguments;
    let now = now(client)?;
    let found: VolumeInfo = client.get(&path(route::VOLUME, volume))?;
    let Some(text) = print::vinum_of(&now, &found) else {
        return Err(ApplyError::NoPlexes { volume: found.name, layout: found.layout }.into());
    };
    let before = text.lines().count();
    let in_lines = |Wrong { at, text }: Wrong| {
        let at = At { line: at.line.saturating_sub(before).max(1), ..at };
        ApplyError::Wrong { file: PathBuf::from("the plex"), wrong: Wrong { at, text } }
    };
    let wanted = vinum::parse(&(text + &lines.join("\n"))).map_err(in_lines)?;
    if !matches!(&wanted.volumes[..], [_]) || !wanted.drives.is_empty() {
        return Err(ApplyError::NotAPlex.into());
    }
    let report = applied(client, &wanted, in_lines, *dry_run)?;
    output.show(&report, told)?;
    Ok(Outcome::Done)
}

fn report(plan: &Plan, steps: &[Step], dry_run: bool) -> Report {
    let going = steps.iter().filter_map(|step| match step {
        Step::Relayout { name, .. } if !dry_run => Some(name.clone()),
        _ => None,
    });
    Report {
        dry_run,
        steps: steps.iter().map(ToString::to_string).collect(),
        notes: grouped(&plan.notes),
        under_way: plan.under_way.iter().cloned().chain(going).collect(),
    }
}

/// What is said of several places is said once.
fn grouped(notes: &[Wrong]) -> Vec<String> {
    let mut places: Vec<(&str, Vec<String>)> = Vec::new();
    for note in notes {
        match places.iter_mut().find(|(text, _)| *text == note.text) {
            Some((_, places)) => places.push(note.at.line.to_string()),
            None => places.push((&note.text, vec![note.at.line.to_string()])),
        }
    }
    let told = |(text, lines): &(&str, Vec<String>)| {
        let of = if lines.len() == 1 { "line" } else { "lines" };
        format!("{of} {}: {text}", lines.join(", "))
    };
    places.iter().map(told).collect()
}

fn told(report: &Report) -> String {
    let mut lines: Vec<String> = report.notes.iter().map(|note| format!("note: {note}")).collect();
    lines.extend(report.steps.iter().cloned());
    if report.steps.is_empty() {
        lines.push("nothing to change".to_owned());
    }
    if !report.under_way.is_empty() {
        let names = report.under_way.join(", ");
        lines.push(format!(
            "on the way to another layout in the background: {names}; `tepal volume migrations` tells of it"
        ));
    }
    if report.dry_run && !report.steps.is_empty() {
        lines.push("nothing is changed: that is what `tepal apply` would do".to_owned());
    }
    lines.join("\n")
}

fn read(arguments: &ApplyArguments) -> Result<Wanted, ApplyError> {
    let file = &arguments.file;
    let failed = |error| ApplyError::Read { file: file.clone(), error };
    let text = match file.as_os_str() == "-" {
        true => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map(|_| text)
        }
        false => std::fs::read_to_string(file),
    };
    let text = text.map_err(failed)?;
    let read = if is_toml(file, &text) { toml_file::parse(&text) } else { vinum::parse(&text) };
    let mut wanted = read.map_err(|wrong| ApplyError::Wrong { file: file.clone(), wrong })?;
    if let Some(folder) = &arguments.devices {
        let folder = std::path::absolute(folder).map_err(failed)?;
        for drive in &mut wanted.drives {
            let device = Path::new(&drive.device);
            // What is nowhere below /dev is at its own place.
            let place = device.strip_prefix("/dev").map_or_else(|_| folder.join(device), |name| folder.join(name));
            drive.device = place.to_string_lossy().into_owned();
        }
    }
    Ok(wanted)
}

/// By its name, or else by its first line that says something: Vinum's lines have no brackets and no `=`.
fn is_toml(file: &Path, text: &str) -> bool {
    let says = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let first = text.lines().map(str::trim).find(says).unwrap_or_default();
    file.extension().is_some_and(|extension| extension == "toml") || first.starts_with('[') || first.contains('=')
}

fn now(client: &Client) -> Result<Now, CommandError> {
    let drives: Vec<DriveInfo> = client.get(route::DRIVES)?;
    let servers: Vec<ServerInfo> = client.get(route::SERVERS)?;
    let server = match &servers[..] {
        [only] => Some(only.id),
        _ => None,
    };
    let (servers, pools) = (servers.iter().map(|server| server.id).collect(), client.get(route::POOLS)?);
    let schedules = schedules(client)?;
    Ok(Now { drives, pools, volumes: client.get(route::VOLUMES)?, schedules, servers, server })
}

/// Servers of an earlier version know none.
fn schedules(client: &Client) -> Result<Vec<ScheduleInfo>, ClientError> {
    match client.get(route::SCHEDULES) {
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        said => said,
    }
}

/// What was made, to be taken out again.
#[derive(Default)]
struct Undo {
    pools: Vec<String>,
    drives: Vec<DriveId>,
}

impl Undo {
    /// Takes out what is still empty.
    fn all(&self, client: &Client, error: String) -> ApplyError {
        let mut left = Vec::new();
        let drives: Vec<DriveInfo> = client.get(route::DRIVES).unwrap_or_default();
        for id in &self.drives {
            match drives.iter().find(|drive| drive.id == *id) {
                Some(drive) if drive.copies == 0 && drive.moving == 0 => {
                    let removed =
                        client.delete::<DriveRemoved>(&format!("{}?force=false", path(route::DRIVE, &id.to_string())));
                    left.extend(removed.err().map(|error| error.to_string()));
                }
                _ => left.push(format!("drive {id} has something by now")),
            }
        }
        for pool in &self.pools {
            left.extend(client.delete::<Done>(&path(route::POOL, pool)).err().map(|error| error.to_string()));
        }
        match left.is_empty() {
            true => ApplyError::Undone { error },
            false => ApplyError::Left { error, left: left.join("; ") },
        }
    }
}

fn prepare(client: &Client, steps: &[Step], undo: &mut Undo) -> Result<(), ClientError> {
    for step in steps {
        match step {
            Step::CreatePool { name, layout } => {
                let request = CreatePool { name: name.clone(), layout: layout.clone() };
                let _: PoolInfo = client.create(route::POOLS, &request)?;
                undo.pools.push(name.clone());
            }
            Step::AddDrive { name, server, path: device, pool, is_spare } => {
                let (pool, create, force) = (pool.clone(), None, false);
                let request = AddDrive { server: *server, path: device.clone(), pool, create, force };
                let added: DriveInfo = client.post(route::DRIVES, &request)?;
                undo.drives.push(added.id);
                name_drive(client, added.id, name)?;
                if *is_spare {
                    set_use(client, added.id, DriveUse::Spare)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn name_drive(client: &Client, id: DriveId, name: &str) -> Result<(), ClientError> {
    let request = NameDrive { name: Some(name.to_owned()) };
    client.post_repeatable::<DriveInfo>(&path(route::DRIVE_NAME, &id.to_string()), &request).map(drop)
}

fn set_use(client: &Client, id: DriveId, to: DriveUse) -> Result<(), ClientError> {
    client.post_repeatable::<DriveInfo>(&path(route::DRIVE_USE, &id.to_string()), &SetDriveUse { to }).map(drop)
}

/// In order, but for volumes that are made side by side: the servers do what many of them cost once. An error comes with how many steps
/// are done.
fn carry_out_all(client: &Client, steps: &[Step]) -> Result<(), (String, usize)> {
    let is_new = |step: &Step| matches!(step, Step::CreateVolume { .. });
    let mut done = 0;
    for alike in steps.chunk_by(|one, next| is_new(one) && is_new(next)) {
        done += at_once(alike, |step| carry_out(client, step)).map_err(|(error, of_these)| (error, done + of_these))?;
    }
    Ok(())
}

/// Does steps of which none needs another, so that [`AT_ONCE`] are under way. After the first that fails none is begun. How many were done.
fn at_once(steps: &[Step], carry_out: impl Fn(&Step) -> Result<(), String> + Sync) -> Result<usize, (String, usize)> {
    let (left, failed) = (Mutex::new(steps.iter()), Mutex::new(None));
    let done = AtomicUsize::new(0);
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some(step) = next() {
            match carry_out(step) {
                Ok(()) => done.fetch_add(1, Ordering::Relaxed),
                Err(error) => {
                    *left.lock().unwrap_or_else(PoisonError::into_inner) = [].iter();
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    return;
                }
            };
        }
    };
    std::thread::scope(|scope| {
        (1..AT_ONCE.min(steps.len())).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        None => Ok(done.into_inner()),
        Some(error) => Err((error, done.into_inner())),
    }
}

fn limit(client: &Client, name: &str, limits: &Limits) -> Result<VolumeInfo, ClientError> {
    client.post(&path(route::VOLUME_LIMITS, name), limits)
}

fn carry_out(client: &Client, step: &Step) -> Result<(), String> {
    let done = match step {
        Step::CreateSchedule { name, rules } => {
            let (name, rules) = (name.clone(), rules.clone());
            client.create::<ScheduleInfo>(route::SCHEDULES, &CreateSchedule { name, rules }).map(drop)
        }
        Step::ChangeSchedule { name, rules, .. } => {
            client.post_repeatable::<ScheduleInfo>(&path(route::SCHEDULE, name), rules).map(drop)
        }
        Step::CreateVolume { name, size, layout, pool, key, limits, .. } => {
            let (called, layout, pool, key) = (name.clone(), layout.clone(), pool.clone(), key.clone());
            let create = CreateVolume { name: called, size: *size, layout, pool, key, plain: false, import: None };
            let made = client.create::<VolumeInfo>(route::VOLUMES, &create);
            made.and_then(|made| if limits.is_none() { Ok(made) } else { limit(client, name, limits) }).map(drop)
        }
        Step::Limit { name, to, .. } => limit(client, name, to).map(drop),
        Step::Relayout { name, layout, .. } => {
            let request = Relayout { layout: Some(layout.clone()), pool: None, range: None, rate: None };
            client.post::<VolumeInfo>(&path(route::VOLUME_RELAYOUT, name), &request).map(drop)
        }
        Step::Grow { name, to, .. } => {
            wait_until_there(client, name)?;
            let request = ResizeVolume { size: *to, shrink: false, force: false, replica_of: None, import: None };
            client.post::<VolumeInfo>(&path(route::VOLUME_RESIZE, name), &request).map(drop)
        }
        Step::NameDrive { id, name } => name_drive(client, *id, name),
        Step::SetUse { id, to, .. } => set_use(client, *id, *to),
        Step::CreatePool { .. } | Step::AddDrive { .. } => Ok(()),
    };
    done.map_err(|error| error.to_string())
}

/// What a volume goes to has room for it to grow; what it has may have none.
fn wait_until_there(client: &Client, name: &str) -> Result<(), String> {
    let mut blocked = 0;
    loop {
        let volume: VolumeInfo = client.get(&path(route::VOLUME, name)).map_err(|error| error.to_string())?;
        match volume.migration {
            None => return Ok(()),
            Some(migration) if migration.state == MigrationState::Running => blocked = 0,
            Some(migration) => {
                blocked += 1;
                if blocked > BLOCKED {
                    let why = migration.reason.join("; ");
                    return Err(format!("volume {name} grows when it has its new layout, and that is held up: {why}"));
                }
            }
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

pub fn show(global: &Global, output: Output, arguments: &ShowArguments) -> Result<Outcome, CommandError> {
    let client = locate::client(global)?;
    let now = now(&client)?;
    let form = if arguments.picture.is_some() { ShowForm::Picture } else { arguments.form };
    let scene =
        || -> Result<Scene, CommandError> { Ok(Scene::new(&now.drives, &now.volumes, client.get(route::PLEXES)?)) };
    if let Some(Some(file)) = &arguments.picture {
        let failed = |error| ApplyError::Write { file: file.clone(), error };
        std::fs::write(file, picture::svg(&scene()?)).map_err(failed)?;
        output.say(&format!("the picture is in {}", file.display()))?;
        return Ok(Outcome::Done);
    }
    let text = match form {
        ShowForm::Vinum => print::vinum(&now),
        ShowForm::Toml => print::toml(&now),
        ShowForm::Picture => picture::terminal(&scene()?, has_colours()),
        ShowForm::Svg => picture::svg(&scene()?),
    };
    output.say(text.trim_end())?;
    Ok(Outcome::Done)
}

/// Whether standard output is a terminal whose user wants colours (no-color.org).
fn has_colours() -> bool {
    let refuses = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    std::io::stdout().is_terminal() && !refuses
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn steps(number: usize) -> Vec<Step> {
        let step = |number: usize| Step::CreateVolume {
            name: format!("v{number}"),
            size: 4096,
            layout: None,
            pool: None,
            key: None,
            limits: Limits::default(),
            told: String::new(),
        };
        (0..number).map(step).collect()
    }

    #[test]
    fn steps_that_none_needs_are_each_done_once() {
        for number in [0, 1, AT_ONCE + 3] {
            let seen = Mutex::new(Vec::new());
            let note = |step: &Step| {
                seen.lock().expect("nobody panics").push(step.to_string());
                Ok(())
            };
            assert_eq!(at_once(&steps(number), note), Ok(number));
            let seen = seen.into_inner().expect("nobody panics");
            assert_eq!((seen.len(), seen.iter().collect::<BTreeSet<_>>().len()), (number, number));
        }
    }

    #[test]
    fn after_a_step_that_fails_none_is_begun_and_those_that_are_done_are_counted() {
        let begun = AtomicUsize::new(0);
        let fail = |step: &Step| {
            begun.fetch_add(1, Ordering::Relaxed);
            if step.to_string().starts_with("+ volume v5:") { Err("full".to_owned()) } else { Ok(()) }
        };
        let all = steps(100_000);
        let (error, done) = at_once(&all, fail).expect_err("one fails");
        let begun = begun.into_inner();
        assert_eq!((&*error, done), ("full", begun - 1));
        assert!(begun < all.len(), "{begun}");
    }
}
