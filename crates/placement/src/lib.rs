//! Where the copies of an extent go: pure functions of a global map, the same on every machine.

#![warn(missing_docs)]

mod rotation;

pub use rotation::Rotation;
