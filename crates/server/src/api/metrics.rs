//! Numbers for Prometheus, taken when they are asked for.

use super::drives::of_server;
use super::failure::Failure;
use super::requests::Readings;
use super::types::{DriveInfo, ErrorKind, Health, Migration, MigrationState, ScheduleInfo, VolumeInfo, VolumeState};
use super::{Context, Shared, cluster, exposition, schedules, volumes};
use crate::moving;
use crate::scheduling::{unscrubbed_since_ms, wall_clock_ms};
use crate::world::ServerWorld;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};
use tepal_engine::Volume;
use tepal_metadata::{DriveState, Metadata, ServerState, State as Agreed};
use tepal_model::{DriveId, ServerId};

type Labels = [(&'static str, String); 1];
type StateLabels = [(&'static str, String); 2];

/// What the name of a counter ends with.
const COUNTER: &str = "_total";

/// The name that follows `tepal_`, what it is, and its value; none is left out. A name that ends with [`COUNTER`] is a counter's, any
/// other a gauge's.
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
    ("drive_read_errors_total", "Reads that the drive failed", |drive| Some(drive.open.as_ref()?.read_errors)),
    ("drive_block_errors_total", "Blocks that couldn't be read or didn't match, each time", |drive| {
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
    ("volume_recovery_copied_bytes_total", "Bytes that were copied to make copies equal", |volume| {
        Some(volume.recovery().copied)
    }),
    ("volume_recovery_bytes_per_second", "The same, in a second, now", |volume| Some(volume.recovery().rate)),
    (
        "volume_repaired_blocks_total",
        "Damaged blocks, of what this server led, that were written again from another copy",
        |volume| Some(volume.repaired()),
    ),
];

/// As this server alone knows it: the worst that any server says is so.
const OF_VOLUME_INFOS: [Gauged<VolumeInfo>; 6] = [
    ("volume_limit_requests_per_second", "Requests that all clients of a server together may make", |info| {
        info.limits.iops.map(|rate| rate.per_second)
    }),
    ("volume_limit_bytes_per_second", "Bytes that all clients of a server together may read and write", |info| {
        info.limits.bandwidth.map(|rate| rate.per_second)
    }),
    (
        "volume_losses_left",
        "Drives that may be lost, whichever they are, and all of the volume can still be read",
        |info| Some(info.losses_left),
    ),
    ("volume_damaged_blocks", "Blocks that no copy had right when they were last read", |info| {
        Some(info.damaged_blocks)
    }),
    ("volume_clients", "NBD connections to this server that have the volume open", |info| Some(info.clients)),
    (
        "volume_replica_timestamp_seconds",
        "When the source held what the replica's newest whole snapshot holds",
        |info| info.replica.as_ref().map(|replica| replica.as_of_unix_ms / 1000).filter(|seconds| *seconds > 0),
    ),
];

/// Of a volume, by its name.
const OF_SNAPSHOTS: [Gauged<(String, u64)>; 1] =
    [("volume_snapshots", "Snapshots that the volume has", |(_, count)| Some(*count))];

/// Of a volume, by its name.
const OF_LIMITS: [Gauged<(String, u64)>; 1] =
    [("volume_requests_held_back_total", "Requests that had to wait, as a limit said", |(_, count)| Some(*count))];

/// Of a volume, by its name.
const OF_SCRUBS: [Gauged<(String, u64)>; 1] = [(
    "volume_scrubbed_timestamp_seconds",
    "When the last whole scrub on record began, or when the volume was made if there's none: no older rot is unnoticed",
    |(_, since)| Some(since / 1000),
)];

/// Of a schedule, by its name, as agreed.
const OF_SCHEDULES: [Gauged<ScheduleInfo>; 5] = [
    ("schedule_missed_total", "Times that passed without the run that was due", |schedule| Some(schedule.missed)),
    ("schedule_last_run_timestamp_seconds", "When it was run last; 0 if it wasn't", |schedule| {
        Some(schedule.last_run_unix_ms.unwrap_or(0) / 1000)
    }),
    ("schedule_failed", "1 if something went wrong in its last run", |schedule| Some(schedule.error.is_some().into())),
    ("schedule_paused", "1 if it rests until it's resumed", |schedule| Some(schedule.paused.into())),
    ("schedule_held_snapshots", "Its snapshots that it doesn't keep any more, and can't remove", |schedule| {
        Some(schedule.held.len() as u64)
    }),
];

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
const OF_METADATA: [Gauged<Metadata>; 8] = [
    ("metadata_view", "The agreed view that is known here", |metadata| Some(metadata.state().view())),
    ("metadata_leads", "1 if this server leads what servers agree on", |metadata| {
        Some((metadata.leader() == Some(metadata.server())).into())
    }),
    ("metadata_votes", "1 if this server votes", |metadata| {
        Some(metadata.voters().contains(&metadata.server()).into())
    }),
    ("metadata_lease", "1 if this server may serve, as it reaches a majority of those that vote", |metadata| {
        Some(metadata.lease().allows(u64::MAX, metadata.now()).into())
    }),
    ("metadata_lacks_room", "1 if the cluster's state can't be written here", |metadata| {
        Some(metadata.lack_of_room().is_some().into())
    }),
    ("servers", "Servers that the cluster has, as agreed", |metadata| Some(metadata.state().servers.len() as u64)),
    ("servers_up", "Servers that are up, as agreed", |metadata| {
        let state = metadata.state();
        Some(state.servers.values().filter(|server| server.state == ServerState::Up).count() as u64)
    }),
    ("events_total", "What has happened to servers, drives, pools and volumes so far", |metadata| {
        Some(metadata.state().happenings())
    }),
];

/// How this server is.
const OF_SERVER: [Gauged<Context>; 5] = [
    (
        "health",
        "0 if all is as it should be, as this server sees it; 1 recovering, 2 degraded, 3 unavailable",
        |context| {
            Some(match cluster::health(context).0 {
                Health::Ok => 0,
                Health::Recovering => 1,
                Health::Degraded => 2,
                Health::Unavailable => 3,
            })
        },
    ),
    ("start_time_seconds", "When the server was started, in seconds since 1970", |context| {
        Some(unix_s().saturating_sub(context.started.elapsed().as_secs()))
    }),
    ("clock_seconds", "The server's clock, in seconds since 1970", |_| Some(unix_s())),
    ("certificate_expiry_timestamp_seconds", "When the server's certificate ends, if it has one", |context| {
        context.access.credentials().ends()
    }),
    ("open_to_others", "1 if other machines may reach the server without encryption", |context| {
        Some(context.access.credentials().is_open().into())
    }),
];

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

pub async fn show(State(context): State<Shared>) -> Result<Response, Failure> {
    let mut registry = Registry::with_prefix("tepal");
    of_this_server(&mut registry, &context);
    of_drives(&mut registry, &context);
    of_volumes(&mut registry, &context);
    of_schedules(&mut registry, &context);
    let mut text = String::new();
    encode(&mut text, &registry).map_err(|error| Failure::new(ErrorKind::Internal, error))?;
    Ok(([(CONTENT_TYPE, exposition::CONTENT)], exposition::of_open_metrics(&text)).into_response())
}

fn of_this_server(registry: &mut Registry, context: &Context) {
    let server = || ("server", context.server.to_string());
    register(registry, &OF_METADATA, std::slice::from_ref(&context.parts.metadata), |_| server());
    register(registry, &OF_SERVER, std::slice::from_ref(context), |_| server());
    let builds = Family::<StateLabels, Gauge>::default();
    builds.get_or_create(&[server(), ("version", env!("CARGO_PKG_VERSION").to_owned())]).set(1);
    registry.register("build_info", "1, with the version that the server runs", builds);
}

fn of_drives(registry: &mut Registry, context: &Context) {
    let drives = of_server(context);
    let label = |drive: DriveId| ("drive", drive.to_string());
    register(registry, &OF_DRIVES, &drives, |drive| label(drive.id));
    let copies = copies_of_server(&context.parts.metadata.state(), context.server);
    register(registry, &OF_COPIES, &copies, |copies| label(copies.drive));
    let states = DriveState::ALL.map(|state| (state, state.to_string()));
    let now: Vec<_> = drives.iter().map(|drive| (label(drive.id), drive.state)).collect();
    register_states(registry, ("drive_state", "1 of the state that the drive is in, as agreed"), &states, &now);
    let open = context.drives.open();
    let meters = open.iter().map(|(id, open)| (id.to_string(), open.drive.device().meter()));
    registry.register_collector(Box::new(Readings::take("drive_io", "drive", meters)));
}

fn of_volumes(registry: &mut Registry, context: &Context) {
    let state = context.parts.metadata.state();
    let label = |name: &str| ("volume", name.to_owned());
    let volumes = context.parts.engine.volumes();
    register(registry, &OF_VOLUMES, &volumes, |volume| label(&volume.spec().name));
    let infos: Vec<VolumeInfo> = state.active_volumes().map(|record| volumes::info(context, &state, record)).collect();
    register(registry, &OF_VOLUME_INFOS, &infos, |info| label(&info.name));
    let states = [
        (VolumeState::Healthy, "healthy".to_owned()),
        (VolumeState::Recovering, "recovering".to_owned()),
        (VolumeState::Degraded, "degraded".to_owned()),
        (VolumeState::Unavailable, "unavailable".to_owned()),
    ];
    let now: Vec<_> = infos.iter().map(|info| (label(&info.name), info.state)).collect();
    register_states(
        registry,
        ("volume_state", "1 of the state that the volume is in, as this server knows it"),
        &states,
        &now,
    );
    let counted = state.active_volumes().map(|record| (record.name.clone(), state.count_snapshots(record.id) as u64));
    register(registry, &OF_SNAPSHOTS, &counted.collect::<Vec<_>>(), |(name, _)| label(name));
    let now = wall_clock_ms();
    let scrubbed = state.active_volumes().map(|record| (record.name.clone(), unscrubbed_since_ms(&state, record, now)));
    register(registry, &OF_SCRUBS, &scrubbed.collect::<Vec<_>>(), |(name, _)| label(name));
    let ways: Vec<_> = infos.into_iter().filter_map(|info| Some((info.name, info.migration?))).collect();
    register(registry, &OF_MIGRATIONS, &ways, |(name, _)| label(name));
    context.observations.keep(|id| volumes.iter().any(|volume| volume.id() == id));
    let observed: Vec<_> = volumes.iter().map(|v| (v.spec().name, context.observations.of(v.id()))).collect();
    let held_back = observed.iter().map(|(name, observed)| (name.clone(), observed.held_back.load(Ordering::Relaxed)));
    register(registry, &OF_LIMITS, &held_back.collect::<Vec<_>>(), |(name, _)| label(name));
    let meters = observed.iter().map(|(name, observed)| (name.clone(), &observed.meter));
    registry.register_collector(Box::new(Readings::take("volume_request", "volume", meters)));
}

fn of_schedules(registry: &mut Registry, context: &Context) {
    let state = context.parts.metadata.state();
    let infos: Vec<ScheduleInfo> =
        state.schedules.by_id.values().map(|record| schedules::info(&state, record)).collect();
    register(registry, &OF_SCHEDULES, &infos, |schedule| ("schedule", schedule.name.clone()));
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
        let values = things.iter().filter_map(|thing| Some(([label(thing)], value(thing)?)));
        if let Some(name) = name.strip_suffix(COUNTER) {
            let counters = Family::<Labels, Counter>::default();
            values.for_each(|(labels, value)| {
                counters.get_or_create(&labels).inc_by(value);
            });
            registry.register(name, *help, counters);
        } else {
            let gauges = Family::<Labels, Gauge>::default();
            values.for_each(|(labels, value)| {
                gauges.get_or_create(&labels).set(i64::try_from(value).unwrap_or(i64::MAX));
            });
            registry.register(*name, *help, gauges);
        }
    }
}

/// One gauge for each state that a thing may be in: 1 of the one that it's in, else 0, so that a sum over time tells how long it was so.
fn register_states<S: PartialEq>(
    registry: &mut Registry,
    (name, help): (&'static str, &'static str),
    states: &[(S, String)],
    now: &[((&'static str, String), S)],
) {
    let gauges = Family::<StateLabels, Gauge>::default();
    for (label, is_in) in now {
        for (state, word) in states {
            gauges.get_or_create(&[label.clone(), ("state", word.clone())]).set((is_in == state).into());
        }
    }
    registry.register(name, help, gauges);
}
