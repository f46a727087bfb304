//! What happens to a read, a write and a flush of a volume.
//!
//! ```text
//! Volume (volume/, map.rs): its bytes go round the columns of its map, which its clones have too
//!    |
//! protocol/primary: Group, one for each column: order, marks, copies (Petal 2.4), recovery
//!    |
//! Holder (holder.rs): tepal_drive::Drive, or one of another server: servers/
//! ```

#![warn(missing_docs)]

mod authority;
mod bell;
mod engine;
mod epochs;
mod health;
mod holder;
mod map;
mod migration;
mod places;
mod protocol;
mod rate;
mod scrub;
mod seen_through;
mod servers;
mod volume;

pub use authority::{Authority, View};
pub use engine::{Engine, Standing};
pub use epochs::{Epochs, Head};
pub use health::{Trouble, VolumeHealth};
pub use map::{VolumeSpec, byte_of_volume};
pub use migration::{Laid, Migration};
pub use places::{CopyChange, CopyStatus, Placed, Places, Placing};
pub use scrub::ScrubSummary;
pub use servers::follow::{Agreed, ClusterView, DriveStatus};
pub use servers::peers::{Alone, Peers, Question, Reply, Unreachable};
pub use volume::{OpenVolumeError, Recovery, Run, Snapshot, Volume, Within};
