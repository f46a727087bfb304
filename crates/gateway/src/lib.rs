//! Front-ends: where clients' requests enter. Each is an adapter onto [`disk::VirtualDisk`].

#![warn(missing_docs)]

pub mod disk;
pub mod nbd;
pub mod pulse;
