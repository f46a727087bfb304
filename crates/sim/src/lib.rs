//! Whole machines in one thread, repeatable from one seed: simulated time, drives and power; workloads; and the checker
//! that knows what a volume promised (docs/durability.md).
//!
//! Start with [`executor`], then [`device`], then [`checker`]; [`scenario`] puts them together.

pub mod checker;
pub mod command;
pub mod device;
pub mod executor;
pub mod kept;
pub mod random;
pub mod scenario;
pub mod workload;
pub mod world;

pub use device::{SimDevice, SimDisk};
pub use executor::Executor;
pub use world::SimWorld;
