//! One storage server: what `tepal serve` runs.
//!
//! ```text
//! serve -- data folder, metadata -- drives: found, identified, put in service -- volumes opened -- then clients:
//!   data threads: NBD connections -> exports -> engine -> drives -> devices
//!   control:      admin API, drive agent, metadata
//! ```

#![warn(missing_docs)]

mod access;
mod agreed;
pub mod api;
pub mod api_types;
mod authority;
pub mod config;
mod connection;
mod damage;
mod data_folder;
pub mod data_links;
pub mod data_threads;
pub mod descriptors;
pub mod device;
mod drives;
mod error;
mod following;
mod gaps;
pub mod gateway;
#[cfg(test)]
mod idle;
mod importing;
mod keeping;
pub mod keys;
mod log;
mod membership;
mod migrating;
mod moving;
mod nbd;
mod news;
mod observed;
mod peers;
pub mod private_file;
pub mod rebuild;
mod relay;
mod scheduling;
mod serve;
mod slow;
mod tasks;
mod throttle;
pub mod unserved;
mod volumes;
pub mod world;

pub use access::{Trust, fingerprint};
pub use error::ServeError;
pub use serve::serve;
