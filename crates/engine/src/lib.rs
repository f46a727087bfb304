//! What happens to a read, a write and a flush of a volume.
//!
//! ```text
//! Volume (volume/, map.rs): its bytes go round the columns of its map, which its clones have too
//!    |
//! column/: Group, one for each column, leads it: order, marks, who is here, background work
//!    |  column/redundancy.rs: the seam
//! protocol/: keeps its data. primary/ has whole copies (Petal 2.4)
//!    |
//! Holder (holder.rs): tepal_drive::Drive, or one of another server: servers/
//! ```

#![warn(missing_docs)]

mod authority;
mod bell;
mod column;
mod engine;
mod epochs;
mod health;
mod holder;
mod map;
mod migration;
mod places;
mod protocol;
mod rate;
mod runs;
mod scrub;
mod seen_through;
mod servers;
mod view;
mod volume;

pub use authority::Authority;
pub use engine::{Engine, Standing};
pub use epochs::{Epochs, Head};
pub use health::{Trouble, VolumeHealth};
pub use map::{VolumeSpec, byte_of_volume};
pub use migration::{Laid, Migration};
pub use places::{CopyChange, CopyStatus, Placed, Places, Placing};
pub use scrub::ScrubSummary;
pub use servers::follow::{Agreed, ClusterView, DriveStatus};
pub use servers::peers::{Alone, Peers, Question, Reply, Unreachable};
pub use view::View;
pub use volume::{
    Behind, CodeChecked, ColumnCopies, CopyBehind, Later, Live, OldPlace, OpenVolumeError, Recovery, Run, Snapshot,
    Volume, Within,
};
