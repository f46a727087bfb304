//! What the cluster's state answers to commands.

use serde::{Deserialize, Serialize};
use tepal_model::{Epoch, MapId, ServerId, VolumeId};

/// What an accepted command came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// There is nothing else to say.
    Done,
    /// The new member.
    ServerJoined {
        /// The server's id.
        id: ServerId,
        /// Which of its data folders it is.
        incarnation: u32,
    },
    /// The new volume's ids.
    VolumeCreated {
        /// The volume's.
        id: VolumeId,
        /// Its map's.
        map: MapId,
    },
    /// The volume writes in another epoch, from this view on.
    SnapshotCreated {
        /// The snapshot's: the last that it sees.
        epoch: Epoch,
        /// The cluster's new one.
        view: u64,
    },
    /// The volume holds what the snapshot does, from this view on.
    RolledBack {
        /// The volume's new one.
        epoch: Epoch,
        /// The cluster's new one.
        view: u64,
    },
    /// The new volume may be written to from this view on.
    VolumeCloned {
        /// The volume's.
        id: VolumeId,
        /// The cluster's new one.
        view: u64,
    },
    /// Volumes go to this map from now on.
    MigrationBegun {
        /// The migration, which is known by the map that was made for it.
        id: MapId,
        /// The cluster's new one.
        view: u64,
    },
    /// The drive is out, but these volumes' maps still name it: it stays listed as failed, until it's removed once
    /// more after they are gone.
    DriveRetired {
        /// Their names.
        volumes: Vec<String>,
    },
}
