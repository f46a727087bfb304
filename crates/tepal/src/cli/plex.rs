//! `tepal plex`.

use super::storage::WaitArguments;
use super::value;
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum PlexCommand {
    /// List volumes, their plexes and subdisks, with the state of each
    Ls {
        /// Only this volume
        #[arg(value_parser = value::name)]
        volume: Option<String>,
    },
    /// Wait until a plex has all its data: what its drives missed is copied by itself
    Start {
        /// The plex, as `plex ls` names it
        #[arg(value_parser = value::name)]
        plex: String,
        #[command(flatten)]
        wait: WaitArguments,
    },
    /// Make the parity of a raid5 plex that of its data; other plexes have nothing to initialise
    Init(ParityArguments),
    /// Compare the parity of a raid5 plex with its data, and change nothing
    Checkparity(ParityArguments),
    /// Compare the parity of a raid5 plex with its data, and write again what differs
    Rebuildparity(ParityArguments),
    /// Add a plex to a volume: said in the words of Vinum's file
    #[command(after_help = "Example: tepal plex attach myvol 'plex org concat' 'sd length 512m drive b'\n\n\
        It's filled while the volume is in use.")]
    Attach(AttachPlexArguments),
    /// Take a plex from a volume; what only this plex has stops that
    Detach {
        /// The plex, as `plex ls` names it
        #[arg(value_parser = value::name)]
        plex: String,
        #[command(flatten)]
        wait: WaitArguments,
    },
}

#[derive(Debug, Args)]
#[command(
    after_help = "It goes on step by step, whichever server is restarted. A command that was cut off says where --from goes on."
)]
pub struct ParityArguments {
    /// The plex, as `plex ls` names it; or a volume with an erasure code
    #[arg(value_parser = value::name)]
    pub plex: String,
    /// Begin at this byte of the volume
    #[arg(long, value_name = "OFFSET", value_parser = value::size, default_value = "0")]
    pub from: u64,
}

#[derive(Debug, Args)]
pub struct AttachPlexArguments {
    /// The volume's name
    #[arg(value_parser = value::name)]
    pub volume: String,
    /// A line of a plex, and lines of its subdisks
    #[arg(required = true, num_args = 1.., value_name = "LINE")]
    pub lines: Vec<String>,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
}
