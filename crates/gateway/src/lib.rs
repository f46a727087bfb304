//! Front-ends: where clients' requests enter. Each is an adapter onto [`disk::VirtualDisk`].

pub mod disk;
pub mod nbd;
