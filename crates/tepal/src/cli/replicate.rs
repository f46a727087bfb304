//! Replication to another cluster.

use super::value::{self, Rate};
use clap::{Args, Subcommand};
use tepal_model::Layout;

#[derive(Debug, Args)]
pub struct ReplicateArguments {
    #[command(subcommand)]
    pub command: Option<ReplicateCommand>,
    /// The volume to send
    #[arg(value_parser = value::name, required = true)]
    pub volume: Option<String>,
    /// Servers of the other cluster, as HOST:PORT of their admin API
    #[arg(value_name = "TO", value_parser = value::servers, required = true)]
    pub to: Option<String>,
    /// From the beginning of a round to that of the next one
    #[arg(long, value_name = "TIME", value_parser = value::patience, default_value = "10m")]
    pub every: u64,
    /// Send what there is now, and end
    #[arg(long)]
    pub once: bool,
    /// The replica's name there; the volume's, if not said
    #[arg(long = "as", value_name = "NAME", value_parser = value::name)]
    pub called: Option<String>,
    /// Bytes a second at most, as 50M; `auto` for as many as the link takes
    #[arg(long, value_parser = value::rate, default_value = "auto")]
    pub rate: Rate,
    /// So many earlier snapshots stay on both sides, besides the newest
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub keep: usize,
    /// The layout of the replica, when it's made
    #[arg(long, value_parser = value::layout, allow_hyphen_values = true)]
    pub layout: Option<Layout>,
    /// The pool of the replica, when it's made
    #[arg(long, value_parser = value::name)]
    pub pool: Option<String>,
    /// Encrypt the replica, when it's made: the name of a key that servers there have
    #[arg(long, value_name = "NAME", value_parser = value::name)]
    pub key: Option<String>,
    /// Leave the replica of an encrypted volume unencrypted, when it's made
    #[arg(long, conflicts_with = "key")]
    pub plain: bool,
}

#[derive(Debug, Subcommand)]
pub enum ReplicateCommand {
    /// List replicas, and replications that run, with how far each is behind
    #[command(visible_alias = "status")]
    Ls {
        /// Of this volume alone
        #[arg(value_parser = value::name)]
        volume: Option<String>,
    },
    /// Make a replica an ordinary volume, with the content of its newest whole snapshot
    #[command(
        after_help = "What its source was written since that snapshot isn't in it: the answer says how old it is."
    )]
    Promote {
        /// The replica
        #[arg(value_parser = value::name)]
        volume: String,
        /// Even while replication writes to it, which ends with an error; or if no snapshot of it is whole
        #[arg(long)]
        force: bool,
    },
    /// Make a volume a replica of the one that was promoted in its place, without sending all of it again
    #[command(
        after_help = "Refused if the volume has changes that the other one lacks, and says how many. Nothing is sent: \
        `tepal replicate`, asking the other cluster, does that.\n\n\
        Example: tepal replicate demote v0 --source backup:7117"
    )]
    Demote(DemoteArguments),
}

#[derive(Debug, Args)]
pub struct DemoteArguments {
    /// The volume that is to follow
    #[arg(value_parser = value::name)]
    pub volume: String,
    /// Servers of the cluster with the volume that it follows, as HOST:PORT of their admin API
    #[arg(long, value_name = "ADDR", value_parser = value::servers)]
    pub source: String,
    /// The name of the volume that it follows; its own, if not said
    #[arg(long, value_name = "NAME", value_parser = value::name)]
    pub source_volume: Option<String>,
    /// Give up what has changed in it since the newest snapshot that both have
    #[arg(long)]
    pub discard: bool,
    /// Even while clients have it open: their writes fail from then on
    #[arg(long)]
    pub force: bool,
}
