//! Volumes as plexes and subdisks: their states, derived from the agreed state of drives and from what the primaries of the columns know.

use super::data::on_data_thread;
use super::extract::{Input, Named};
use super::failure::Failure;
use super::relay::Scope;
use super::types::{
    CheckParity, ErrorKind, ParityChecked, PartState, PlexInfo, PlexesInfo, Range, SubdiskInfo, VolumeState, path,
    route,
};
use super::{Context, Shared, volumes};
use crate::damage::union;
use crate::relay::RelayError;
use crate::world::ServerWorld;
use axum::Json;
use axum::body::to_bytes;
use axum::extract::State as Extract;
use std::collections::BTreeMap;
use tepal_engine::{Behind, ColumnCopies, Volume};
use tepal_metadata::{MapRecord, ServerState, State, VolumeRecord};
use tepal_model::layout::plexes::{Organization, Plex, Plexes, Subdisk};
use tepal_model::{Layout, MapId, REGION};
use tepal_placement::ColumnSubdisks;

/// So many bytes of a volume are compared in one step.
const STEP: u64 = 64 << 20;
/// The longest answer of another server.
const LONGEST: usize = 1 << 20;

pub async fn list(Extract(context): Extract<Shared>, scope: Scope) -> Json<Vec<PlexesInfo>> {
    let others = match scope {
        Scope::Cluster => context.ask_others::<Vec<PlexesInfo>>(route::PLEXES).await,
        Scope::Own => Vec::new(),
    };
    let mut elsewhere: BTreeMap<u64, Vec<PlexesInfo>> = BTreeMap::new();
    for said in others.into_iter().filter_map(|(_, said)| said).flatten() {
        elsewhere.entry(said.volume_id).or_default().push(said);
    }
    let state = context.parts.metadata.state();
    let one = |record| {
        let own = info(&context, &state, record);
        let others = elsewhere.remove(&own.volume_id).unwrap_or_default();
        others.into_iter().fold(own, put_together)
    };
    let records = state.active_volumes().map(|record| &**record);
    let mut all: Vec<PlexesInfo> = match scope {
        Scope::Cluster => records.map(one).collect(),
        Scope::Own => records.filter_map(|record| worth_saying(&context, &state, record)).collect(),
    };
    all.sort_unstable_by(|one, other| one.volume.cmp(&other.volume));
    Json(all)
}

pub async fn show(Extract(context): Extract<Shared>, scope: Scope, name: Named) -> Result<Json<PlexesInfo>, Failure> {
    let record = volumes::record_in(&context, scope, &name.0).await?;
    let own = info(&context, &context.parts.metadata.state(), &record);
    if scope == Scope::Own {
        return Ok(Json(own));
    }
    let others = context.ask_others::<PlexesInfo>(&path(route::VOLUME_PLEXES, &record.by_id())).await;
    let id = own.volume_id;
    let others = others.into_iter().filter_map(|(_, said)| said).filter(|said| said.volume_id == id);
    Ok(Json(others.fold(own, put_together)))
}

/// What the server that asks doesn't know as well: with many volumes the rest would be more than can be passed on.
fn worth_saying(context: &Context, state: &State, record: &VolumeRecord) -> Option<PlexesInfo> {
    let own = info(context, state, record);
    let says = |plex: &PlexInfo| plex.state != PartState::Up || plex.comparing > 0;
    (own.state != PartState::Up || own.plexes.iter().any(says)).then_some(own)
}

/// Each server knows of the columns that it leads: the worst that one says is so.
fn put_together(mut all: PlexesInfo, other: PlexesInfo) -> PlexesInfo {
    all.state = all.state.max(other.state);
    for (plex, said) in all.plexes.iter_mut().zip(other.plexes) {
        plex.comparing += said.comparing;
        for (disk, said) in plex.subdisks.iter_mut().zip(said.subdisks) {
            if disk.name == said.name && disk.drive == said.drive {
                disk.state = disk.state.max(said.state);
                disk.stale = (disk.stale + said.stale).min(disk.length);
            }
        }
        plex.state = of_plex(plex);
    }
    all
}

/// As this server knows.
fn info(context: &Context, state: &State, record: &VolumeRecord) -> PlexesInfo {
    let (health, _) = volumes::health_besides_space(context, state, record);
    let copies = context.volumes.served(record.id).map(|volume| volume.copies()).unwrap_or_default();
    let migration = state.migration_of(record).filter(|migration| !migration.cancelled);
    let coming = migration.and_then(|migration| Some((migration, migration.layout.plexes()?)));
    let own = state.map_of(record).map(|map| (map.id, record.layout.plexes()));
    let mut plexes = match (&coming, &own) {
        (Some((migration, plexes)), _) => described(state, &record.name, plexes, migration.target, &copies),
        (None, Some((map, Some(plexes)))) => described(state, &record.name, plexes, *map, &copies),
        (None, _) => Vec::new(),
    };
    if let Some((migration, wanted)) = coming {
        let filled = migration.done * 100 / migration.chunks.max(1);
        let (before, from) = (record.layout.plexes(), record.map);
        note_new(&mut plexes, (wanted, before), filled);
        // What stays is used where it is meanwhile.
        if let Some(before) = before {
            let old = described(state, &record.name, before, from, &copies);
            let old: Vec<SubdiskInfo> = old.into_iter().flat_map(|plex| plex.subdisks).collect();
            for disk in plexes.iter_mut().flat_map(|plex| &mut plex.subdisks).filter(|disk| disk.filled.is_none()) {
                if let Some(old) = old.iter().find(|old| is_same_place(disk, old)) {
                    disk.state = disk.state.max(old.state);
                    disk.stale = (disk.stale + old.stale).min(disk.length);
                }
            }
        }
    }
    plexes.iter_mut().for_each(|plex| plex.state = of_plex(plex));
    PlexesInfo {
        volume: record.name.clone(),
        volume_id: record.id.0,
        size: record.size,
        layout: record.layout.to_string(),
        state: of_volume(health),
        plexes,
    }
}

fn is_same_place(one: &SubdiskInfo, other: &SubdiskInfo) -> bool {
    one.drive == other.drive && one.drive_offset == other.drive_offset && one.plex_offset == other.plex_offset
}

/// Subdisks that the layout before doesn't have are being filled.
fn note_new(plexes: &mut [PlexInfo], (wanted, before): (&Plexes, Option<&Plexes>), filled: u64) {
    let is_there = |disk: &Subdisk| {
        before.is_some_and(|before| {
            before.subdisks().any(|old| {
                (old.drive, old.drive_offset, old.plex_offset) == (disk.drive, disk.drive_offset, disk.plex_offset)
            })
        })
    };
    for (disk, wanted) in plexes.iter_mut().flat_map(|plex| &mut plex.subdisks).zip(wanted.subdisks()) {
        if !is_there(wanted) {
            disk.filled = Some(filled);
            let state = if filled == 0 { PartState::Empty } else { PartState::Initializing };
            disk.state = disk.state.max(state);
        }
    }
}

fn of_volume(health: VolumeState) -> PartState {
    match health {
        VolumeState::Healthy => PartState::Up,
        VolumeState::Recovering | VolumeState::Degraded => PartState::Degraded,
        VolumeState::Unavailable => PartState::Down,
    }
}

/// The plexes of one map, with what is known of its columns here.
fn described(state: &State, volume: &str, plexes: &Plexes, map: MapId, copies: &[ColumnCopies]) -> Vec<PlexInfo> {
    let mut all: Vec<PlexInfo> =
        plexes.plexes().iter().enumerate().map(|(at, plex)| bare(state, volume, (at, plex))).collect();
    let Ok(columns) = tepal_placement::subdisks_of_columns(plexes) else { return all };
    if let Some(map) = state.maps.get(&map) {
        note_coming(&mut all, map, &columns);
    }
    let data = u64::from(plexes.fragments().data);
    for column in copies.iter().filter(|column| column.map == map) {
        let Some(there) = columns.get(column.column) else { continue };
        for &(plex, at) in there {
            let disk = &mut all[plex].subdisks[at];
            for copy in column.behind.iter().filter(|copy| copy.drive == disk.drive) {
                let found = match copy.why {
                    Behind::CatchesUp => PartState::Reviving,
                    Behind::Waits => PartState::Stale,
                    Behind::Away => PartState::Down,
                    Behind::Failed => PartState::Faulty,
                };
                disk.state = disk.state.max(found);
                // A region of a raid5 plex lies on all its data drives, and one at the end may be cut short.
                disk.stale = (disk.stale + copy.regions * REGION / data).min(disk.length);
            }
        }
        if let [(plex, _), ..] = there[..]
            && matches!(plexes.plexes()[plex].organization, Organization::Raid5 { .. })
        {
            all[plex].comparing += column.comparing * REGION;
        }
    }
    all
}

/// Columns that another drive is to have than has them are on their way to it.
fn note_coming(plexes: &mut [PlexInfo], map: &MapRecord, columns: &[ColumnSubdisks]) {
    for (number, plex) in plexes.iter_mut().enumerate() {
        for (at, disk) in plex.subdisks.iter_mut().enumerate() {
            let of_disk = map.columns.iter().zip(columns).filter(|(_, there)| there.contains(&(number, at)));
            let has: Vec<bool> = of_disk.map(|(column, _)| column.is_held_by(disk.drive)).collect();
            let come = has.iter().filter(|has| **has).count();
            if come < has.len() {
                disk.filled = Some((come * 100 / has.len()) as u64);
                disk.state = disk.state.max(PartState::Initializing);
            }
        }
    }
}

/// A plex, as is agreed of its drives.
fn bare(state: &State, volume: &str, (number, plex): (usize, &Plex)) -> PlexInfo {
    let name = plex.name.clone().unwrap_or_else(|| format!("{volume}.p{number}"));
    let stripe = plex.organization.stripe();
    let subdisk = |(at, disk): (u64, &Subdisk)| {
        let drive = state.drives.get(&disk.drive);
        SubdiskInfo {
            name: disk.name.clone().unwrap_or_else(|| format!("{name}.s{at}")),
            drive: disk.drive,
            drive_name: drive.and_then(|drive| drive.name.clone()),
            drive_offset: disk.drive_offset,
            length: disk.length,
            plex_offset: stripe.map_or(disk.plex_offset, |stripe| stripe * at),
            state: drive.map_or(PartState::Faulty, |drive| drive.state.into()),
            stale: 0,
            filled: None,
        }
    };
    let subdisks = (0..).zip(&plex.subdisks).map(subdisk).collect();
    PlexInfo {
        organization: plex.organization.word().to_owned(),
        stripe,
        size: plex.size(),
        state: PartState::Up,
        comparing: 0,
        subdisks,
        name,
    }
}

/// A plex whose subdisks are all in one state has that state, and so has one with subdisks that are up or will be soon. Of a `raid5` plex
/// one subdisk may be missing.
fn of_plex(plex: &PlexInfo) -> PartState {
    let states = || plex.subdisks.iter().map(|disk| disk.state);
    let unusable = |state: &PartState| *state >= PartState::Empty;
    let worst = states().max().unwrap_or(PartState::Up);
    let missing = states().filter(unusable).count();
    match plex.organization == "raid5" {
        _ if missing == 0 && worst > PartState::Up => worst,
        true if missing == 0 && plex.comparing > 0 => PartState::Initializing,
        _ if missing == 0 => PartState::Up,
        true if missing == 1 => PartState::Degraded,
        true => worst,
        false if missing == plex.subdisks.len() => states().min().unwrap_or(worst),
        false => PartState::Degraded,
    }
}

/// One step, over all servers: each compares in the columns that it leads.
pub async fn check_parity(
    Extract(context): Extract<Shared>,
    scope: Scope,
    name: Named,
    Input(wanted): Input<CheckParity>,
) -> Result<Json<ParityChecked>, Failure> {
    let record = volumes::record_in(&context, scope, &name.0).await?;
    let own = check_here(&context, &record, wanted).await?;
    if scope == Scope::Own {
        return Ok(Json(own));
    }
    let all = with_others(&context, &record, (own, wanted)).await?;
    let state = context.parts.metadata.state();
    let columns = state.map_of(&record).map_or(0, |map| map.geometry().columns() as u64);
    if all.columns != columns {
        let text = format!(
            "{} of the {columns} parts of volume '{}' have nobody who can compare them now: try again in a moment; `tepal volume show \
             {}` may say why",
            columns.saturating_sub(all.columns),
            record.name,
            record.name
        );
        return Err(Failure::new(ErrorKind::Unavailable, text));
    }
    Ok(Json(all))
}

async fn check_here(context: &Context, record: &VolumeRecord, wanted: CheckParity) -> Result<ParityChecked, Failure> {
    let state = context.parts.metadata.state();
    if record.ranges.is_some() {
        let text = format!(
            "volume '{}' has ranges with layouts of their own, and parity is compared of volumes with one: `tepal volume scrub` reads and \
             repairs all of it",
            record.name
        );
        return Err(Failure::new(ErrorKind::Conflict, text));
    }
    if record.layout.fragments().are_copies() {
        let text = format!(
            "volume '{}' has layout {}, which has no parity; `tepal volume scrub` compares copies",
            record.name,
            Layout { domain: None, ..record.layout.clone() }
        );
        return Err(Failure::new(ErrorKind::Conflict, text));
    }
    if state.migration_of(record).is_some() {
        let text = format!(
            "volume '{}' is on its way to another layout, which computes parity anew: afterwards (`tepal volume migrations`)",
            record.name
        );
        return Err(Failure::new(ErrorKind::Conflict, text));
    }
    let volume = volumes::open(context, record).await?;
    // Stripes count where they begin: whole ones of any extent.
    let step = STEP.next_multiple_of(u64::from(record.layout.extent));
    let (start, end) = (wanted.offset.min(record.size), wanted.offset.saturating_add(step).min(record.size));
    let check = move |volume: Volume<ServerWorld>| async move { volume.check_code(start..end, wanted.rebuild).await };
    let checked = on_data_thread(context, volume, check).await?;
    let range = |range: std::ops::Range<u64>| Range { offset: range.start, length: range.end - range.start };
    Ok(ParityChecked {
        next: (end < record.size).then_some(end),
        size: record.size,
        columns: checked.columns as u64,
        unequal: union(checked.unequal.into_iter().map(range).collect()),
        unchecked: checked.unchecked,
    })
}

async fn with_others(
    context: &Context,
    record: &VolumeRecord,
    (mut all, wanted): (ParityChecked, CheckParity),
) -> Result<ParityChecked, Failure> {
    let state = context.parts.metadata.state();
    let is_other = |id| id != context.server;
    let others = state.servers.values().filter(|server| is_other(server.id) && server.state != ServerState::Down);
    let body = serde_json::to_string(&wanted).map_err(|error| Failure::new(ErrorKind::Internal, error))?;
    let asking = others.map(|server| {
        let route = path(route::VOLUME_PARITY, &record.by_id());
        context.have_done(server.id, "POST".to_owned(), route, body.clone())
    });
    for answer in futures_util::future::join_all(asking).await {
        let (head, body) = answer?.into_parts();
        let body = to_bytes(body, LONGEST).await.map_err(|error| Failure::new(ErrorKind::Internal, error))?;
        let text = || String::from_utf8_lossy(&body).into_owned();
        if !head.status.is_success() {
            let error = RelayError::Refused { status: head.status.as_u16(), said: text() };
            return Err(Failure::new(error.kind(), error));
        }
        let said: ParityChecked =
            serde_json::from_slice(&body).map_err(|error| Failure::new(ErrorKind::Internal, error))?;
        all.columns += said.columns;
        all.unchecked += said.unchecked;
        all.unequal = union([all.unequal, said.unequal].concat());
    }
    Ok(all)
}
