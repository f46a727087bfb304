//! Front-ends: where clients' requests enter. Each is an adapter onto [`disk::VirtualDisk`]. And [`pulse`], which notices that
//! this process stood still: what it still has of clients may be out of date.

#![warn(missing_docs)]

pub mod disk;
pub mod nbd;
pub mod pulse;
