//! The words of Tepal as types: ids, sizes, layouts, buffers and the kinds of error. No I/O, no async.

#![warn(missing_docs)]

pub mod buffer;
pub mod error;
pub mod history;
pub mod id;
pub mod layout;
pub mod limits;
pub mod migration;
pub mod origin;
pub mod ranges;
pub mod schedule;
pub mod size;
pub mod text;
pub mod version;

pub use buffer::{Buffer, Segments};
pub use error::IoError;
pub use history::{Epoch, History, Lineage};
pub use id::{ClusterId, DriveId, MapId, ServerId, VolumeId};
pub use layout::{Fragments, Layout};
pub use limits::{Limits, Rate, TokenBucket};
pub use migration::MigrationStage;
pub use origin::{Fate, Origin, Taken, Taking};
pub use ranges::Ranges;
pub use size::{BLOCK, CHUNK, EXTENT, MAX_REQUEST, MAX_VOLUME, REGION};
pub use version::{Digest, Version};
