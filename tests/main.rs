//! Tests of the real binary: real processes that are killed, real drives that are pulled, real clients.
//!
//! `cargo xtask test --integration` builds the binary, installs the clients and runs this. `TEPAL` names another binary. A test
//! whose client is missing here, or that needs root, prints `skipped: REASON` and passes.
//!
//! Everything that a test starts is its own, in a folder of its own, and ends with it, also if it fails: see [`cluster`] and
//! [`program`].

mod program;

mod cluster;
mod nbd;
mod room;
mod rot;

mod access;
mod api;
mod bad_input;
mod clients;
mod console;
mod drives;
mod durability;
mod encryption;
mod filesystems;
mod kubernetes;
mod metadata;
mod metrics;
mod packages;
mod power;
mod rebuild;
mod relayout;
mod replication;
mod schedules;
mod servers;
mod snapshots;
mod transfers;
mod vinum;
mod volumes;
mod watching;
