//! Blocks that rot: scrubs look for them, what no copy has right is remembered, and people are told.

mod events;
mod file;
mod scrubs;

pub use events::DamageEvents;
pub use file::DamageFile;
pub use scrubs::{Scrubs, union};
