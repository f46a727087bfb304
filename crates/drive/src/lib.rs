//! One drive: label, log, physical map, space and scrub, over an injected device.
//!
//! A drive holds, for each global map, a sparse space of blocks, numbered as the map's placement says, and of each extent a layer for
//! each epoch in which it was written: who reads says which epochs it sees. It never returns a
//! block that doesn't match its checksum, and never loses what it acknowledged as durable. `docs/formats.md` has its bytes.
//!
//! ```text
//! write --+-- large: to a free slot --+
//!         +-- small -----------------+--> log (group commit) --> applied: map, pending --> acknowledged
//!                                                                   |
//!                                     destage: slots, checksums <---+--> checkpoint: tables, log's start moves up
//! ```

#![warn(missing_docs)]

mod checkpoint;
mod commit;
mod destage;
mod drive;
pub mod error;
pub mod extent;
pub mod geometry;
mod grow;
mod identity;
mod keep;
mod layers;
pub mod log;
mod open;
mod patience;
mod read;
mod scrub;
mod state;
pub mod table;
#[cfg(test)]
mod tests;
mod watch;
pub mod world;
mod write;

pub use drive::{Drive, Options, Usage};
pub use error::{DriveError, Loss, OpenError};
pub use grow::{GrowError, grow, prepare_growth};
pub use identity::label::{self, Label};
pub use identity::state_copy::{ReadCopiesError, StateCopies, StateCopy, StateOrder, read_state_copies};
pub use keep::KeepError;
pub use layers::reclaim::Reclaimed;
pub use log::{Change, Mark, MarkKind};
pub use open::{NewDrive, format, raise, wipe};
pub use scrub::ScrubReport;
pub use write::{Prepared, Refused, Write};
