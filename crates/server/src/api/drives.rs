//! Drives.

use super::extract::{Input, Named, Options};
use super::failure::Failure;
use super::relay::Scope;
use super::types::{
    AddDrive, DriveInfo, DriveRemoved, ForceQuery, Found, FoundDrive, NameDrive, OpenDriveInfo, ReplaceDrive,
    SetDriveUse, route,
};
use super::{Context, Shared, conditions};
use crate::drives::{DriveOperationError, Fitness, Kept, NOTHING_THERE, NewDriveRequest, OpenDrive, ScannedDrive};
use crate::moving::{self, DriveSpace, Spaces};
use axum::Json;
use axum::extract::State;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tepal_metadata::{
    self as metadata, ColumnRecord, Command, DEFAULT_POOL, DriveRecord, DriveState, DriveUse, ProposeError, Refusal,
    SERVER_IS_DOWN, ServerState, Versioned,
};
use tepal_model::DriveId;
use tepal_model::text::shown as readable;

/// How long the removal of a drive waits until others have what it holds.
const CATCH_UP: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

pub async fn list(State(context): State<Shared>, scope: Scope) -> Json<Vec<DriveInfo>> {
    let mut drives = all(&context, scope).await;
    if scope == Scope::Cluster {
        say_obstacles(&context.parts.metadata.state(), &mut drives);
    }
    Json(drives)
}

/// Why drives that are to be emptied aren't, among all drives.
pub fn say_obstacles(state: &metadata::State, all: &mut [DriveInfo]) {
    if !state.drives.values().any(|record| moving::is_emptied(state, record)) {
        return;
    }
    let obstacles = moving::obstacles(state, &spaces(all));
    all.iter_mut().for_each(|drive| drive.stuck = obstacles.get(&drive.id).cloned());
}

/// Of those that are open.
fn spaces(drives: &[DriveInfo]) -> Spaces {
    let open = drives.iter().filter(|drive| drive.open.is_some());
    open.map(|drive| (drive.id, DriveSpace { capacity: drive.capacity, used: drive.used })).collect()
}

/// What all servers say of their drives, for who moves copies.
#[derive(Clone)]
pub struct Survey(Weak<Context>);

impl Survey {
    pub(super) fn new(context: &Shared) -> Self {
        Survey(Arc::downgrade(context))
    }
}

impl moving::Survey for Survey {
    async fn spaces(&self) -> Spaces {
        match self.0.upgrade() {
            Some(context) => spaces(&all(&context, Scope::Cluster).await),
            None => Spaces::new(), // the server stops
        }
    }
}

/// The drives of all servers; of those that don't answer, as they are on record.
pub async fn all(context: &Context, scope: Scope) -> Vec<DriveInfo> {
    let mut all = of_server(context);
    if scope == Scope::Own {
        return all;
    }
    let state = context.parts.metadata.state();
    for (server, said) in context.ask_others::<Vec<DriveInfo>>(route::DRIVES).await {
        match said {
            Some(drives) => all.extend(drives),
            None => all.extend(state.drives_of_server(server).map(|record| info(&state, record, None))),
        }
    }
    all.sort_by_key(|drive| drive.server);
    all
}

pub async fn show(State(context): State<Shared>, id: Named) -> Result<Response, Failure> {
    shown(&context, id.parse()?).await
}

pub async fn scan(State(context): State<Shared>, scope: Scope) -> Json<Vec<FoundDrive>> {
    let found = context.drives.scan().await;
    let mut all: Vec<FoundDrive> = found.into_iter().map(|scanned| found_drive(&context, scanned)).collect();
    if scope == Scope::Cluster {
        let others = context.ask_others::<Vec<FoundDrive>>(route::DRIVES_SCAN).await;
        all.extend(others.into_iter().filter_map(|(_, said)| said).flatten());
    }
    Json(all)
}

pub async fn add(State(context): State<Shared>, Input(add): Input<AddDrive>) -> Result<Response, Failure> {
    if !context.parts.metadata.state().servers.contains_key(&add.server) {
        return Err(Refusal::NoServer(add.server).into());
    }
    if add.server != context.server {
        let body = serde_json::to_string(&add).map_err(Failure::bad)?;
        return context.have_done(add.server, Method::POST.to_string(), route::DRIVES.to_owned(), body).await;
    }
    let path = PathBuf::from(&add.path);
    if !path.is_absolute() {
        let path = readable(&add.path);
        return Err(Failure::bad(format!("'{path}' is not an absolute path on server {}", add.server)));
    }
    let pool = add.pool.unwrap_or_else(|| DEFAULT_POOL.to_owned());
    let request = NewDriveRequest { path, pool, create: add.create, force: add.force };
    let id = context.drives.add(request).await?;
    one(&context, id).map(IntoResponse::into_response)
}

pub async fn remove(
    State(context): State<Shared>,
    id: Named,
    Options(ForceQuery { force }): Options<ForceQuery>,
) -> Result<Json<DriveRemoved>, Failure> {
    let id: DriveId = id.parse()?;
    let end = Instant::now() + CATCH_UP;
    loop {
        let kept_elsewhere = if force { Kept::new() } else { kept_elsewhere(&context, id).await };
        match context.drives.remove(id, force, &kept_elsewhere, conditions::with).await {
            Err(DriveOperationError::Metadata(ProposeError::Refused(Refusal::LastCopy { .. })))
                if Instant::now() < end && others_may_catch_up(&context, id) =>
            {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            removed => return Ok(Json(DriveRemoved { id, still_named_by: removed? })),
        }
    }
}

/// By what is agreed the drive may go: others that should have all of it are up. Then a primary only hasn't said yet that they have; it
/// may act by a state from before a copy moved, or a server began.
fn others_may_catch_up(context: &Context, id: DriveId) -> bool {
    context.parts.metadata.check(&Command::RemoveDrive { id, force: false }).is_ok()
}

/// What other servers say of the columns that they lead. Who doesn't answer has said of none that others have it.
async fn kept_elsewhere(context: &Context, id: DriveId) -> Kept {
    if context.drives.endangered_without(id, &Kept::new()).is_empty() {
        return Kept::new(); // there is nothing to ask
    }
    let said = context.ask_others::<Kept>(&route::DRIVE_KEPT.replace("{id}", &id.to_string())).await;
    said.into_iter().filter_map(|(_, kept)| kept).flatten().collect()
}

pub async fn kept(State(context): State<Shared>, id: Named) -> Result<Json<Kept>, Failure> {
    Ok(Json(context.drives.kept_without(id.parse()?)))
}

pub async fn offline(State(context): State<Shared>, id: Named) -> Result<Json<DriveInfo>, Failure> {
    let id = id.parse()?;
    context.drives.offline(id).await?;
    one(&context, id)
}

pub async fn online(State(context): State<Shared>, id: Named) -> Result<Json<DriveInfo>, Failure> {
    let id = id.parse()?;
    context.drives.online(id).await?;
    one(&context, id)
}

pub async fn grow(State(context): State<Shared>, id: Named) -> Result<Json<DriveInfo>, Failure> {
    let id = id.parse()?;
    context.drives.grow(id).await?;
    one(&context, id)
}

/// Also of a drive that is away.
pub async fn set_use(
    State(context): State<Shared>,
    id: Named,
    Input(SetDriveUse { to }): Input<SetDriveUse>,
) -> Result<Response, Failure> {
    let id: DriveId = id.parse()?;
    context.propose(Command::SetDriveUse { id, to }).await?;
    shown(&context, id).await
}

/// Also of a drive that is away.
pub async fn set_name(
    State(context): State<Shared>,
    id: Named,
    Input(NameDrive { name }): Input<NameDrive>,
) -> Result<Response, Failure> {
    let id: DriveId = id.parse()?;
    context.propose(Command::NameDrive { id, name }).await?;
    shown(&context, id).await
}

/// Also of a drive that is away, or gone for good.
pub async fn replace(
    State(context): State<Shared>,
    id: Named,
    Input(ReplaceDrive { by }): Input<ReplaceDrive>,
) -> Result<Json<DriveInfo>, Failure> {
    let from: DriveId = id.parse()?;
    context.propose(Command::ReplaceDrive { from, to: by }).await?;
    whichever(&context, by).await
}

/// A drive of any server, with its tag.
async fn shown(context: &Context, id: DriveId) -> Result<Response, Failure> {
    let state = context.parts.metadata.state(); // no newer than what is told
    let Json(said) = whichever(context, id).await?;
    // Its server may not have heard yet of what was just agreed.
    let agreed = state.drives.get(&id).map(|record| info(&state, record, None));
    let told = match agreed {
        Some(DriveInfo { name, purpose, .. }) => DriveInfo { name, purpose, ..said },
        None => said,
    };
    Ok(conditions::tagged(&state, &Versioned::Drive(id), Json(told)))
}

/// A drive of any server.
async fn whichever(context: &Context, id: DriveId) -> Result<Json<DriveInfo>, Failure> {
    let mut drives = all(context, Scope::Cluster).await;
    say_obstacles(&context.parts.metadata.state(), &mut drives);
    let found = drives.into_iter().find(|drive| drive.id == id);
    found.map(Json).ok_or_else(|| Refusal::NoDrive(id).into())
}

fn one(context: &Context, id: DriveId) -> Result<Json<DriveInfo>, Failure> {
    of_server(context).into_iter().find(|drive| drive.id == id).map(Json).ok_or_else(|| Refusal::NoDrive(id).into())
}

/// The drives of this server.
pub fn of_server(context: &Context) -> Vec<DriveInfo> {
    let (state, open) = (context.parts.metadata.state(), context.drives.open());
    let is_known = |map| state.maps.contains_key(&map);
    let info = |record: &Arc<DriveRecord>| {
        let open = open.get(&record.id);
        let reclaiming = open.map_or(0, |open| context.parts.engine.surplus_on(&open.drive, is_known));
        DriveInfo { reason: reason(context, record), reclaiming, ..info(&state, record, open) }
    };
    state.drives_of_server(context.server).map(info).collect()
}

/// Why the drive is in its state, and what is at its path now if that can't be used either.
pub fn reason(context: &Context, record: &DriveRecord) -> String {
    let found = context.drives.refused().remove(Path::new(&record.path));
    let is_news = |found: &String| found != NOTHING_THERE && !record.reason.contains(found.as_str());
    let stated = stated(&context.parts.metadata.state(), record);
    match found.filter(is_news) {
        Some(found) if record.state != DriveState::Up => format!("{stated}; what is there now: {found}"),
        _ => stated,
    }
}

/// Why the drive is in its state, as it's agreed. Once its server is back, that is no reason any more.
fn stated(state: &metadata::State, record: &DriveRecord) -> String {
    let is_back = state.servers.get(&record.server).is_some_and(|server| server.state == ServerState::Up);
    match record.state == DriveState::Missing && record.reason == SERVER_IS_DOWN && is_back {
        true => format!("its server is back, and hasn't found it at {}", record.path),
        false => record.reason.clone(),
    }
}

/// Without what is being freed.
pub fn info(state: &metadata::State, record: &DriveRecord, open: Option<&OpenDrive>) -> DriveInfo {
    let columns = || state.maps.values().flat_map(|map| &map.columns);
    let moves =
        |column: &&ColumnRecord| column.joining.is_some_and(|join| join.to == record.id || join.from == record.id);
    let usage = open.map(|open| open.drive.usage());
    DriveInfo {
        id: record.id,
        name: record.name.clone(),
        server: record.server,
        pool: record.pool.clone(),
        path: record.path.clone(),
        state: record.state,
        reason: stated(state, record),
        purpose: match record.purpose {
            DriveUse::Active if state.servers.get(&record.server).is_some_and(|server| server.draining) => {
                DriveUse::Draining
            }
            purpose => purpose,
        },
        copies: columns().filter(|column| column.is_held_by(record.id)).count() as u64,
        moving: columns().filter(moves).count() as u64,
        stuck: None,
        capacity: usage.map_or(record.capacity, |usage| usage.capacity),
        used: usage.map_or(0, |usage| usage.used),
        reclaiming: 0,
        open: open.zip(usage).map(|(open, usage)| OpenDriveInfo {
            backend: open.device.backend().to_string(),
            backend_reason: open.device.backend_reason().to_string(),
            emulated: open.device.emulated().map(ToString::to_string),
            log_length: usage.log_length,
            log_used: usage.log_used,
            map_memory: usage.map_memory,
            read_errors: usage.read_errors,
            block_errors: usage.block_errors,
        }),
    }
}

fn found_drive(context: &Context, scanned: ScannedDrive) -> FoundDrive {
    let what = match scanned.fitness {
        Fitness::Free => Found::Free,
        Fitness::Ours => Found::Ours,
        Fitness::OursUnused => Found::OursUnused,
        Fitness::Foreign => Found::Foreign,
        Fitness::Unfit => Found::Unfit,
        Fitness::Occupied => Found::InUse,
    };
    FoundDrive {
        server: context.server,
        path: scanned.path.display().to_string(),
        size: scanned.size,
        what,
        id: scanned.label.map(|(_, drive)| drive),
        cluster: scanned.label.map(|(cluster, _)| cluster),
        detail: scanned.detail,
    }
}
