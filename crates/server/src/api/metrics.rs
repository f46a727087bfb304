//! Numbers for Prometheus, taken when they are asked for.

use super::Shared;
use super::drives::of_server;
use super::failure::Failure;
use super::requests::Readings;
use super::types::ErrorKind;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

type Labels = [(&'static str, String); 1];
type Gauges = Family<Labels, Gauge>;

const CONTENT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub async fn show(State(context): State<Shared>) -> Result<Response, Failure> {
    let mut registry = Registry::with_prefix("tepal");
    let mut set = |name: &str, help: &str, values: Vec<(Labels, u64)>| {
        let gauges = Gauges::default();
        for (labels, value) in values {
            gauges.get_or_create(&labels).set(i64::try_from(value).unwrap_or(i64::MAX));
        }
        registry.register(name, help, gauges);
    };
    let drives = of_server(&context);
    let label = |id: &dyn ToString| [("drive", id.to_string())];
    set(
        "drive_capacity_bytes",
        "Bytes that volumes could take of the drive",
        drives.iter().map(|d| (label(&d.id), d.capacity)).collect(),
    );
    set(
        "drive_used_bytes",
        "Bytes that volumes take of the drive",
        drives.iter().map(|d| (label(&d.id), d.used)).collect(),
    );
    let open: Vec<_> = drives.iter().filter_map(|d| d.open.as_ref().map(|open| (label(&d.id), open))).collect();
    set(
        "drive_open",
        "1 if the drive is in service",
        drives.iter().map(|d| (label(&d.id), d.open.is_some().into())).collect(),
    );
    set(
        "drive_log_used_bytes",
        "Bytes of the drive's log in use",
        open.iter().map(|(l, o)| (l.clone(), o.log_used)).collect(),
    );
    set(
        "drive_map_memory_bytes",
        "Memory of the drive's map",
        open.iter().map(|(l, o)| (l.clone(), o.map_memory)).collect(),
    );
    set(
        "drive_read_errors",
        "Reads that the drive failed",
        open.iter().map(|(l, o)| (l.clone(), o.read_errors)).collect(),
    );
    set(
        "drive_damaged_blocks",
        "Blocks that didn't match",
        open.iter().map(|(l, o)| (l.clone(), o.damaged_blocks)).collect(),
    );
    let volumes = context.parts.engine.volumes();
    let label = |name: String| [("volume", name)];
    set("volume_size_bytes", "Size of the volume", volumes.iter().map(|v| (label(v.spec().name), v.size())).collect());
    set(
        "volume_allocated_bytes",
        "Bytes on drives, copies counted",
        volumes.iter().map(|v| (label(v.spec().name), v.allocated())).collect(),
    );
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
