//! Snapshots of volumes.

use super::value;
use clap::Subcommand;
use tepal_server::api::types::{SnapshotName, SourceName};

#[derive(Debug, Subcommand)]
pub enum SnapshotCommand {
    /// Keep what a volume holds now, while it's used
    #[command(
        after_help = "Example: tepal snapshot create v0@monday\n\nWhatever was acknowledged before is in it, and nothing \
        that is written after it's done. It takes space as the volume changes."
    )]
    Create {
        /// The volume, and the snapshot's name: 1 to 128 of A-Z a-z 0-9 . _ -
        #[arg(value_name = "VOLUME@SNAP", value_parser = value::snapshot)]
        name: SnapshotName,
    },
    /// List snapshots, and what comes back on drives if one of them is removed
    Ls {
        /// Of this volume alone
        #[arg(value_parser = value::name)]
        volume: Option<String>,
    },
    /// Show one snapshot
    Show {
        /// The snapshot
        #[arg(value_name = "VOLUME@SNAP", value_parser = value::snapshot)]
        name: SnapshotName,
    },
    /// Remove a snapshot; what only it kept is freed in the background
    Rm {
        /// The snapshot
        #[arg(value_name = "VOLUME@SNAP", value_parser = value::snapshot)]
        name: SnapshotName,
        /// Even while it's in use, by clients or by an export or comparison: they get errors from then on
        #[arg(long)]
        force: bool,
        /// Wait until what only it kept is free, and show how far it is
        #[arg(long)]
        wait: bool,
    },
    /// Have a volume hold what a snapshot does; what it holds now is lost, unless another snapshot keeps it
    #[command(after_help = "All snapshots stay. The volume gets the size that it had.")]
    Rollback {
        /// The snapshot
        #[arg(value_name = "VOLUME@SNAP", value_parser = value::snapshot)]
        name: SnapshotName,
        /// Even while the volume is in use, by clients or by an export or import: what they know of it is wrong from then on
        #[arg(long)]
        force: bool,
    },
    /// Give a snapshot another name
    Rename {
        /// The snapshot
        #[arg(value_name = "VOLUME@SNAP", value_parser = value::snapshot)]
        name: SnapshotName,
        /// The name that it gets
        #[arg(value_parser = value::name)]
        new_name: String,
    },
    /// List the bytes in which a snapshot differs from another one, or from the volume as it is now
    #[command(
        after_help = "What drives have noted as written or taken out in between is read in both and compared, in blocks \
        of 4K. 'zero' is what has become zeros."
    )]
    Diff {
        /// The snapshot
        #[arg(value_name = "VOLUME@A", value_parser = value::snapshot)]
        from: SnapshotName,
        /// What it's compared with, of the same volume
        #[arg(value_name = "VOLUME@B", value_parser = value::source)]
        to: Option<SourceName>,
    },
}
