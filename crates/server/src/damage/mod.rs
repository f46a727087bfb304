//! Blocks that rot: scrubs look for them, what no copy has right is remembered, and people are told.

mod events;
mod file;
mod pace;
mod scrubs;
mod seen;

pub use events::DamageEvents;
pub use file::DamageFile;
pub use scrubs::{Scrubs, union};
