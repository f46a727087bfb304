//! `tepal csi`: the calls that an orchestrator makes, on real clusters, devices and filesystems.

mod data;
mod driver;
mod fences;
mod lists;
mod manifests;
mod many;
mod sanity;
mod sources;
mod stories;
mod targets;

/// As the driver has it: its own copy of the specification.
#[allow(dead_code, clippy::all, clippy::too_many_lines)]
#[rustfmt::skip]
mod spec {
    include!("../../crates/csi/src/spec/csi.v1.generated");
}
