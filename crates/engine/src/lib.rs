//! What happens to a read, a write and a flush of a volume.
//!
//! ```text
//! Volume (volume.rs, map.rs): its bytes go round the columns of its map
//!    |
//! protocol/primary: Group, one for each column: order, marks, copies (Petal 2.4), recovery
//!    |
//! Holder (holder.rs): tepal_drive::Drive, or one of another server (remote.rs), where answer.rs hears what is asked
//! ```

mod answer;
mod applied;
mod authority;
mod engine;
mod follow;
mod health;
mod holder;
mod map;
mod peers;
mod protocol;
mod remote;
mod scrub;
mod seat;
mod seen_through;
mod volume;

pub use authority::{Authority, View};
pub use engine::{Engine, Standing};
pub use follow::{Agreed, ClusterView, DriveStatus};
pub use health::{Trouble, VolumeHealth};
pub use map::VolumeSpec;
pub use peers::{Alone, Peers, Question, Reply, Unreachable};
pub use scrub::ScrubSummary;
pub use volume::{OpenVolumeError, Recovery, Run, Volume};
