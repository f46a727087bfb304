//! Development clusters.

use super::value::{self, Group, VolumeRequest};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use tepal_model::ServerId;

#[derive(Debug, Subcommand)]
pub enum DevCommand {
    /// Start a cluster in --dir, or start it again with its data; Ctrl-C stops it
    Up(UpArguments),
    /// The newcomer's first minute: a cluster, a volume, failures under a writer, and every byte compared
    Tour(TourArguments),
    /// Show the cluster's processes and addresses
    Status,
    /// Stop the cluster; its data stays
    Down(DownArguments),
    /// Kill servers at once, as a crash would (SIGKILL)
    Kill(ServersArguments),
    /// Start servers that are down
    Start(ServersArguments),
    /// Freeze servers (SIGSTOP)
    Pause(ServersArguments),
    /// Let frozen servers go on (SIGCONT)
    Resume(ServersArguments),
    /// Cut the network between servers of a cluster that was made with --isolate
    Partition(PartitionArguments),
    /// Mend everything that was cut
    Heal,
}

#[derive(Clone, Debug, Default, Args)]
#[command(after_help = "Example: tepal dev up --volume v0=2G,layout=chained --detach\n\n\
    What isn't said stays as it was when the cluster was made.")]
pub struct UpArguments {
    /// How many servers [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), allow_negative_numbers = true)]
    pub servers: Option<u32>,
    /// How many drives each server has [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), allow_negative_numbers = true)]
    pub drives: Option<u32>,
    /// How large each drive is [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = value::drive_size, allow_negative_numbers = true)]
    pub drive_size: Option<u64>,
    /// Put the drives in memory (/dev/shm): fast, and gone with the machine
    #[arg(long)]
    pub memory: bool,
    /// Slow the drives to a model: hdd, sata-ssd, nvme, rz29, or read=100us,iops=5000,bandwidth=200M
    #[arg(long, value_name = "MODEL", value_parser = value::model)]
    pub emulate: Option<String>,
    /// Give each server a network namespace of its own, so that `dev partition` can cut it off (needs root)
    #[arg(long)]
    pub isolate: bool,
    /// A volume to create if it isn't there yet. May be given again
    #[arg(long = "volume", value_name = "NAME=SIZE[,layout=LAYOUT]")]
    pub volumes: Vec<VolumeRequest>,
    /// Return as soon as the cluster is up
    #[arg(long)]
    pub detach: bool,
}

#[derive(Clone, Debug, Args)]
pub struct TourArguments {
    /// How many servers a new cluster gets: with three or more, one is killed and one frozen too
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000), allow_negative_numbers = true)]
    pub servers: u32,
    /// Put the drives in memory (/dev/shm): fast, and gone with the machine
    #[arg(long)]
    pub memory: bool,
}

#[derive(Clone, Debug, Args)]
pub struct DownArguments {
    /// Remove the cluster with all its data; type its folder again
    #[arg(long, value_name = "DIR")]
    pub purge: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Example: tepal dev partition s1,s2 s3\n\n\
    What is sent is lost without a word, as on a cut cable. Cuts add up, until `dev heal` or `dev down`.")]
pub struct PartitionArguments {
    /// Servers of one side
    #[arg(value_name = "A,B")]
    pub first: Group,
    /// Servers of the other side
    #[arg(value_name = "C,D")]
    pub second: Group,
    /// Cut only what the first side sends to the second
    #[arg(long)]
    pub one_way: bool,
}

#[derive(Clone, Debug, Args)]
pub struct ServersArguments {
    /// Servers, as s1
    #[arg(required = true, value_name = "SERVER")]
    pub servers: Vec<ServerId>,
}
