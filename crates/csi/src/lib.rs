//! A CSI driver: the cluster's volumes for Kubernetes and other orchestrators that speak the Container Storage Interface, version 1.12.
//!
//! ```text
//! orchestrator -- gRPC, a unix socket -- identity | controller | node
//!                                                   |            |
//!                                        cluster: the API   machine: attachments, mounts
//! ```
//!
//! Every call may come twice, late, or beside its opposite. So there's one call at a time for each volume (`turns`), each call looks at
//! what is there before it does something, and the driver itself remembers nothing.
//!
//! The way to the cluster and to this machine's attachments is given by who starts it: see [`Api`] and [`Machine`].

#![warn(missing_docs)]

mod capability;
mod cluster;
mod controller;
mod driver;
mod failure;
mod health;
mod identity;
mod machine;
mod names;
mod node;
mod parameters;
mod serve;
mod sizes;
mod topology;
mod turns;

/// The messages and services of the specification: written by a program from `proto/csi.proto`, see `tests/generated.rs`.
#[allow(dead_code, missing_docs, clippy::all, clippy::disallowed_methods, clippy::too_many_lines)]
#[rustfmt::skip]
mod spec {
    include!("spec/csi.v1.generated");
}

pub use cluster::{Api, Method};
pub use driver::{Fence, Settings};
pub use failure::Failure;
pub use identity::NAME;
pub use machine::{Device, Machine, Wanted};
pub use names::VolumeHandle;
pub use serve::{ServeError, serve};
pub use tonic::Code;
