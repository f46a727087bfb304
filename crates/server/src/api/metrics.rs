//! Numbers for Prometheus, taken when they are asked for.

use super::Shared;
use super::drives::of_server;
use super::failure::Failure;
use super::migrations::of_volume;
use super::requests::Readings;
use super::types::{DriveInfo, ErrorKind, Migration, MigrationState};
use crate::moving;
use crate::world::ServerWorld;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::sync::Arc;
use tepal_engine::Volume;
use tepal_metadata::{Metadata, ServerState, State as Agreed, VolumeRecord};
use tepal_model::{DriveId, ServerId};

type Labels = [(&'static str, String); 1];
type Gauges = Family<Labels, Gauge>;

const CONTENT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The name that follows `tepal_`, what it is, and its value; none is left out.
type Gauged<T> = (&'static str, &'static str, fn(&T) -> Option<u64>);

const OF_DRIVES: [Gauged<DriveInfo>; 8] = [
    ("drive_capacity_bytes", "Bytes that volumes could take of the drive", |drive| Some(drive.capacity)),
    ("drive_used_bytes", "Bytes that volumes take of the drive", |drive| Some(drive.used)),
    ("drive_reclaiming_bytes", "Of them, those that nobody needs any more and that are being freed", |drive| {
        Some(drive.reclaiming)
    }),
    ("drive_open", "1 if the drive is in service", |drive| Some(drive.open.is_some().into())),
    ("drive_log_used_bytes", "Bytes of the drive's log in use", |drive| Some(drive.open.as_ref()?.log_used)),
    ("drive_map_memory_bytes", "Memory of the drive's map", |drive| Some(drive.open.as_ref()?.map_memory)),
    ("drive_read_errors", "Reads that the drive failed", |drive| Some(drive.open.as_ref()?.read_errors)),
    ("drive_block_errors", "Blocks that couldn't be read or didn't match, each time", |drive| {
        Some(drive.open.as_ref()?.block_errors)
    }),
];

/// What is agreed of a drive.
struct Copies {
    drive: DriveId,
    held: u64,
    coming: u64,
}

const OF_COPIES: [Gauged<Copies>; 2] = [
    ("drive_copies", "Copies of volumes' columns that the drive holds", |copies| Some(copies.held)),
    ("drive_copies_moving", "Copies of volumes' columns that are on their way to the drive", |copies| {
        Some(copies.coming)
    }),
];

const OF_VOLUMES: [Gauged<Volume<ServerWorld>>; 8] = [
    ("volume_size_bytes", "Size of the volume", |volume| Some(volume.size())),
    ("volume_allocated_bytes", "Bytes on this server's drives, copies counted", |volume| Some(volume.allocated())),
    (
        "volume_reclaiming_bytes",
        "Of them, those that nobody sees any more and that are being freed, copies counted",
        |volume| Some(volume.surplus()),
    ),
    (
        "volume_recovery_stale_regions",
        "Regions, of what this server leads, in which a copy isn't up to date",
        |volume| Some(volume.recovery().stale_regions),
    ),
    ("volume_recovery_unresolved_regions", "Regions, of what this server leads, whose copies may differ", |volume| {
        Some(volume.recovery().unresolved_regions)
    }),
    ("volume_recovery_copied_bytes", "Bytes that were copied to make copies equal", |volume| {
        Some(volume.recovery().copied)
    }),
    ("volume_recovery_bytes_per_second", "The same, in a second, now", |volume| Some(volume.recovery().rate)),
    (
        "volume_repaired_blocks",
        "Damaged blocks, of what this server led, that were written again from another copy",
        |volume| Some(volume.repaired()),
    ),
];

/// Of a volume, by its name.
const OF_SNAPSHOTS: [Gauged<(String, u64)>; 1] =
    [("volume_snapshots", "Snapshots that the volume has", |(_, count)| Some(*count))];

/// Of a volume that goes to another layout, by its name.
const OF_MIGRATIONS: [Gauged<(String, Migration)>; 6] = [
    ("volume_migration_done_bytes", "Bytes of the volume, holes too, that have their new layout", |(_, way)| {
        Some(way.done_bytes)
    }),
    ("volume_migration_total_bytes", "Bytes of the volume, holes too, that get another layout", |(_, way)| {
        Some(way.total_bytes)
    }),
    ("volume_migration_bytes_per_second", "Of them, as many as got it in a second, lately", |(_, way)| Some(way.rate)),
    ("volume_migration_seconds_left", "Until all of them have, if it goes on like that", |(_, way)| way.seconds_left),
    ("volume_migration_paused", "1 if it rests until it's resumed", |(_, way)| {
        Some((way.state == MigrationState::Paused).into())
    }),
    ("volume_migration_blocked", "1 if something is in its way", |(_, way)| {
        Some((way.state == MigrationState::Blocked).into())
    }),
];

/// What this server is to the cluster.
const OF_METADATA: [Gauged<Metadata>; 5] = [
    ("metadata_view", "The agreed view that is known here", |metadata| Some(metadata.state().view())),
    ("metadata_leads", "1 if this server leads what servers agree on", |metadata| {
        Some((metadata.leader() == Some(metadata.server())).into())
    }),
    ("metadata_votes", "1 if this server votes", |metadata| {
        Some(metadata.voters().contains(&metadata.server()).into())
    }),
    ("servers_up", "Servers that are up, as agreed", |metadata| {
        let state = metadata.state();
        Some(state.servers.values().filter(|server| server.state == ServerState::Up).count() as u64)
    }),
    ("events", "What has happened to servers, drives, pools and volumes so far", |metadata| {
        Some(metadata.state().happenings())
    }),
];

pub async fn show(State(context): State<Shared>) -> Result<Response, Failure> {
    let mut registry = Registry::with_prefix("tepal");
    register(&mut registry, &OF_DRIVES, &of_server(&context), |drive| ("drive", drive.id.to_string()));
    let state = context.parts.metadata.state();
    let copies = copies_of_server(&state, context.server);
    register(&mut registry, &OF_COPIES, &copies, |copies| ("drive", copies.drive.to_string()));
    let (metadata, server) = (context.parts.metadata.clone(), context.server);
    register(&mut registry, &OF_METADATA, &[metadata], |_| ("server", server.to_string()));
    let volumes = context.parts.engine.volumes();
    register(&mut registry, &OF_VOLUMES, &volumes, |volume| ("volume", volume.spec().name));
    let counted = state.active_volumes().map(|record| (record.name.clone(), state.count_snapshots(record.id) as u64));
    register(&mut registry, &OF_SNAPSHOTS, &counted.collect::<Vec<_>>(), |(name, _)| ("volume", name.clone()));
    let way = |record: &Arc<VolumeRecord>| Some((record.name.clone(), of_volume(&context, &state, record)?));
    let ways: Vec<_> = state.active_volumes().filter_map(way).collect();
    register(&mut registry, &OF_MIGRATIONS, &ways, |(name, _)| ("volume", name.clone()));
    context.observations.keep(|id| volumes.iter().any(|volume| volume.id() == id));
    let observed: Vec<_> = volumes.iter().map(|v| (v.spec().name, context.observations.of(v.id()))).collect();
    let meters = observed.iter().map(|(name, observed)| (name.clone(), &observed.meter));
    registry.register_collector(Box::new(Readings::take("volume_request", "volume", meters)));
    let open = context.drives.open();
    let meters = open.iter().map(|(id, open)| (id.to_string(), open.drive.device().meter()));
    registry.register_collector(Box::new(Readings::take("drive_io", "drive", meters)));
    let mut text = String::new();
    encode(&mut text, &registry).map_err(|error| Failure::new(ErrorKind::Internal, error))?;
    Ok(([(CONTENT_TYPE, CONTENT)], text).into_response())
}

/// Of its drives, open or not.
fn copies_of_server(state: &Agreed, server: ServerId) -> Vec<Copies> {
    let (mut held, mut coming) = (BTreeMap::<DriveId, u64>::new(), BTreeMap::<DriveId, u64>::new());
    let columns = state.maps.values().flat_map(|map| &map.columns);
    columns.flat_map(|column| &column.holders).for_each(|holder| *held.entry(holder.drive).or_default() += 1);
    moving::joins(state).for_each(|(.., join)| *coming.entry(join.to).or_default() += 1);
    let of = |counts: &BTreeMap<DriveId, u64>, drive| counts.get(&drive).copied().unwrap_or(0);
    let drives = state.drives_of_server(server).map(|record| record.id);
    drives.map(|drive| Copies { drive, held: of(&held, drive), coming: of(&coming, drive) }).collect()
}

fn register<T>(
    registry: &mut Registry,
    gauged: &[Gauged<T>],
    things: &[T],
    label: impl Fn(&T) -> (&'static str, String),
) {
    for (name, help, value) in gauged {
        let gauges = Gauges::default();
        for thing in things {
            if let Some(value) = value(thing) {
                gauges.get_or_create(&[label(thing)]).set(i64::try_from(value).unwrap_or(i64::MAX));
            }
        }
        registry.register(*name, *help, gauges);
    }
}
