//! What happens to a read, a write and a flush of a volume.
//!
//! ```text
//! Volume (volume.rs): bytes -> blocks, edges merged, CRCs computed
//!    |
//! protocol/primary: order, marks, copies (Petal 2.4)        recovery: what makes copies equal again
//!    |                                                          |
//! Members (members.rs): the drives of the volume, and who of them knows what
//!    |
//! tepal_drive::Drive
//! ```

mod authority;
mod engine;
mod health;
mod map;
mod members;
mod order;
mod presence;
pub mod protocol;
mod recovery;
mod seen_through;
mod volume;

pub use authority::{Authority, View};
pub use engine::{Engine, Standing};
pub use health::{Trouble, VolumeHealth};
pub use map::VolumeSpec;
pub use recovery::scrub::ScrubSummary;
pub use volume::{OpenVolumeError, Recovery, Run, Volume};
