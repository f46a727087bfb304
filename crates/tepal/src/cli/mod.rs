//! What can be typed: every command, its arguments and its help, as types. What they do is in [`crate::command`].

mod csi;
mod dev;
mod identity;
mod key;
mod limits;
mod local;
mod plex;
mod replicate;
mod schedule;
mod snapshot;
mod storage;
mod usage;
pub mod value;
mod watching;

pub use csi::{CsiArguments, FenceName, Services};
pub use dev::{DevCommand, DownArguments, PartitionArguments, ServersArguments, TourArguments, UpArguments};
pub use identity::{AuthorityCommand, FilesArguments, IdentityCommand};
pub use key::KeyCommand;
pub use limits::{Limit, LimitsArguments};
pub use local::{AttachArguments, BenchArguments, DetachArguments, GatewayArguments, MethodName, ServeArguments};
pub use plex::{AttachPlexArguments, ParityArguments, PlexCommand};
pub use replicate::{DemoteArguments, ReplicateArguments, ReplicateCommand};
pub use schedule::{CreateScheduleArguments, ScheduleCommand, SetScheduleArguments, TimesArguments};
pub use snapshot::SnapshotCommand;
pub use storage::{
    AddDriveArguments, ClusterCommand, CreatePoolArguments, CreateVolumeArguments, DriveCommand, ExportArguments, Form,
    IMAGE_FORMATS, ImportArguments, LayoutCommand, PoolCommand, RebuildArguments, ReceiveArguments, SendArguments,
    SendForm, ServerCommand, TokenCommand, VolumeCommand,
};
pub use usage::Usage;
pub use value::{Group, Rate, VolumeRequest};
pub use watching::{EventsArguments, Order, Shown, TopArguments, TraceCommand, TraceSlowArguments};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, Parser)]
#[command(
    name = "tepal",
    version,
    about = "Virtual disks from the drives of ordinary machines",
    long_about = "Tepal turns the drives of ordinary machines into volumes: virtual disks that are created in a moment, \
        larger than any drive, and survive the loss of drives.\n\n\
        To see it work: `tepal dev tour`.",
    after_help = "Sizes: 64K, 10G, 1T (binary), or bytes. Exit status: 0 done, 1 failed, 2 wrong usage.",
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// Options that every command takes, before or after its name.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// The cluster's servers, as HOST:PORT of their admin API; else TEPAL_CLUSTER, else --dir.
    ///
    /// The token that they want is read from TEPAL_TOKEN.
    #[arg(long, global = true, value_name = "ADDR[,ADDR...]", value_parser = value::servers)]
    pub cluster: Option<String>,
    /// The folder of an identity, as `tepal identity create --to` makes it; else TEPAL_IDENTITY.
    ///
    /// Servers are asked over TLS then, and no token is needed. To `serve`, it's that by which the server joins.
    #[arg(long, global = true, value_name = "DIR")]
    pub identity: Option<PathBuf>,
    /// The folder of a development cluster, or a server's data folder; ./tepal-dev if nothing is said.
    #[arg(long, global = true, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// How to print.
    #[arg(short, long = "output", global = true, value_name = "FORMAT", default_value = "table")]
    pub output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// One JSON document on standard output; sizes in bytes.
    Json,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// A whole cluster of processes on this machine, for trying things out
    #[command(subcommand)]
    Dev(DevCommand),
    /// Make drives, pools and volumes what a file says: Vinum's configuration file, or TOML
    #[command(
        after_help = "Drives and volumes that the file doesn't name stay as they are. A volume that it names gets \
        exactly its plexes. Run twice, it changes nothing the second time.\n\n\
        Examples:\n  tepal apply raid10.conf --dry-run\n  tepal show --as toml > all.toml; tepal apply all.toml"
    )]
    Apply(ApplyArguments),
    /// Print drives, pools and volumes in a form that `tepal apply` reads
    Show(ShowArguments),
    /// Run one storage server
    Serve(Box<ServeArguments>),
    /// Serve the cluster's volumes over NBD on a client's machine, straight from the servers that have their data
    Gateway(GatewayArguments),
    /// Make a volume a block device of this machine
    Attach(AttachArguments),
    /// Take an attached volume away from this machine
    Detach(DetachArguments),
    /// Give volumes to Kubernetes: a driver that speaks CSI at a unix socket
    Csi(CsiArguments),
    /// Health at a glance
    Status,
    /// What is wrong with the cluster, why that matters, and what to do about it, the worst first
    #[command(
        after_help = "It changes nothing. Exit status: 0 nothing is wrong, 1 something is, 2 no server could be asked."
    )]
    Doctor,
    /// What has happened and who asked for it, the newest last
    #[command(after_help = "Examples:\n  tepal events --who alice --since 24h\n  tepal events --kind drive --follow")]
    Events(EventsArguments),
    /// Load and latency from second to second, by volume, server or drive
    Top(TopArguments),
    /// What slow requests wait for
    #[command(subcommand)]
    Trace(TraceCommand),
    /// The servers of the cluster
    #[command(subcommand)]
    Server(ServerCommand),
    /// The drives that servers own
    #[command(subcommand)]
    Drive(DriveCommand),
    /// Groups of drives with a policy
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Virtual disks
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Who is known to the cluster, by which certificate
    #[command(subcommand)]
    Identity(IdentityCommand),
    /// The keys of encrypted volumes
    #[command(subcommand)]
    Key(KeyCommand),
    /// What layouts of volumes promise and cost
    #[command(subcommand)]
    Layout(LayoutCommand),
    /// The plexes and subdisks of volumes whose layout names drives
    #[command(subcommand)]
    Plex(PlexCommand),
    /// What volumes held, kept under names
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Snapshots and scrubs that the cluster does by itself, again and again
    #[command(subcommand)]
    Schedule(ScheduleCommand),
    /// Send a volume's snapshots to another cluster, again and again; or list, promote and demote replicas
    #[command(
        args_conflicts_with_subcommands = true,
        subcommand_negates_reqs = true,
        after_help = "It runs in the foreground until it's stopped. Whatever cuts it off, it goes on from where it was. The token of \
        the other cluster is read from TEPAL_TO_TOKEN.\n\n\
        Examples:\n  tepal replicate v0 backup:7117 --every 10m --rate 50M\n  tepal replicate ls\n  \
        tepal --cluster backup:7117 replicate promote v0"
    )]
    Replicate(ReplicateArguments),
    /// The cluster as a whole
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Ask the cluster's metadata in SQL, read-only
    #[command(after_help = "Examples:\n  tepal sql 'select name, size from volumes'\n  \
        tepal sql 'select * from sqlite_schema'")]
    Sql {
        /// One SELECT statement, in SQLite's dialect
        query: String,
    },
    /// Raw drive against volume, in one table
    Bench(BenchArguments),
    /// Print the completions of a shell
    #[command(after_help = "For bash: tepal completions bash > ~/.local/share/bash-completion/completions/tepal")]
    Completions { shell: Shell },
    /// Write the manual pages, one for each command, into a folder.
    #[command(hide = true)]
    Man { folder: PathBuf },
    /// The process behind an attached volume.
    #[command(name = ATTACH_DAEMON, hide = true)]
    AttachDaemon { order: String },
}

#[derive(Debug, Args)]
pub struct ApplyArguments {
    /// Vinum's configuration file, or TOML; `-` for standard input
    pub file: PathBuf,
    /// Say what would be done, as a difference, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Take the file's device /dev/X to be DIR/X
    #[arg(long, value_name = "DIR")]
    pub devices: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ShowArguments {
    /// In which form
    #[arg(long = "as", value_name = "FORM", default_value = "toml")]
    pub form: ShowForm,
    /// Draw it: in the terminal, or to an SVG file
    #[arg(long, value_name = "FILE.svg", num_args = 0..=1, require_equals = true, conflicts_with = "form")]
    pub picture: Option<Option<PathBuf>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ShowForm {
    /// Vinum's configuration file: drives, and volumes of plexes and subdisks
    Vinum,
    /// Everything
    Toml,
    /// A picture for terminals: who lies on what, with the state of each
    Picture,
    /// The same picture as SVG
    Svg,
}

/// The hidden command that `attach` starts as a process of its own.
pub const ATTACH_DAEMON: &str = "attach-daemon";

/// Reads a command line. Help and version count as [`Usage`] too: they are printed instead of anything being done.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, Usage> {
    let (tree, arguments) = (Cli::command(), arguments.into_iter().collect::<Vec<_>>());
    let wrong = |error| Usage::new(error, &tree, &arguments);
    let matches = tree.clone().try_get_matches_from(&arguments).map_err(wrong)?;
    let cli = Cli::from_arg_matches(&matches).map_err(wrong)?;
    match conflict(&cli.command) {
        None => Ok(cli),
        Some(conflict) => Err(wrong(tree.clone().error(clap::error::ErrorKind::ArgumentConflict, conflict))),
    }
}

/// Options of which one excludes a value of another.
fn conflict(command: &Command) -> Option<&'static str> {
    match command {
        Command::Volume(VolumeCommand::Export(ExportArguments { since: Some(_), form: Form::Tepal, .. })) => {
            Some("--since goes with --as rbd-diff, or without --as: '--as tepal' is of all of a volume")
        }
        Command::Volume(VolumeCommand::Send(SendArguments { since: Some(_), form: SendForm::Rbd, .. })) => Some(
            "--since doesn't go with '--as rbd': `tepal volume export --since SNAP --as rbd-diff` writes the newer differences",
        ),
        _ => None,
    }
}

/// The whole command tree, for completions and manual pages.
pub fn tree() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Cli, Usage> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn the_command_tree_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_options_are_accepted_before_and_after_the_verb() {
        for line in [
            "tepal --dir d -o json volume ls",
            "tepal volume --dir d ls -o json",
            "tepal volume ls --dir d --output json",
            "tepal -ojson volume --dir=d ls",
        ] {
            let cli = parsed(line).unwrap_or_else(|usage| panic!("{line}: {usage:?}"));
            assert_eq!(cli.global.dir, Some(PathBuf::from("d")), "{line}");
            assert_eq!(cli.global.output, Format::Json, "{line}");
        }
    }

    #[test]
    fn every_command_explains_itself() {
        fn walk(command: &clap::Command, path: &str) {
            assert!(command.get_about().is_some(), "{path} has no help");
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                let id = argument.get_id().as_str();
                assert!(argument.get_help().is_some() || id == "shell", "{path}: {id} has no help");
            }
            for child in command.get_subcommands().filter(|child| !child.is_hide_set()) {
                walk(child, &format!("{path} {}", child.get_name()));
            }
        }
        walk(&Cli::command(), "tepal");
    }
}
