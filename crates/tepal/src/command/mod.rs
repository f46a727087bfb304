//! What each command does. The cluster's own are thin: ask the API, print the answer.

mod attach;
mod bench;
mod cluster;
mod csi;
mod doctor;
mod drive;
mod events;
mod gateway;
pub mod hold;
mod identity;
mod joining;
mod key;
mod layout;
pub mod limit;
mod migration;
mod offline;
mod overlay;
mod plex;
mod pool;
mod rebuild;
mod replicate;
pub mod schedule;
mod serve;
mod server;
mod snapshot;
mod snapshot_removal;
mod source;
mod sql;
mod status;
mod top;
mod trace;
mod transfer;
mod volume;
mod wait;
mod wipe;

use crate::apply;
use crate::attach::AttachError;
use crate::attach::nbd::client::ConnectError;
use crate::cli::{self, Cli, Command};
use crate::client::ClientError;
use crate::dev::{self, DevError, TourError};
use crate::locate::LocateError;
use crate::output::{Outcome, Output};
use std::io;
use std::io::Write;
use std::path::PathBuf;

/// Why a command failed. What it says is the one line that the user gets.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error(transparent)]
    Locate(#[from] LocateError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Apply(#[from] apply::ApplyError),
    #[error("standard output can't be written: {0}")]
    Output(#[from] io::Error),
    #[error("{}: the manual can't be written: {error}", folder.display())]
    Manual { folder: PathBuf, error: io::Error },
    #[error(transparent)]
    Dev(#[from] DevError),
    #[error(transparent)]
    Tour(#[from] TourError),
    #[error(transparent)]
    Attach(#[from] AttachError),
    #[error(transparent)]
    Nbd(#[from] ConnectError),
    #[error(transparent)]
    Transfer(#[from] transfer::TransferError),
    #[error(transparent)]
    Offline(#[from] offline::OfflineError),
    #[error(transparent)]
    Wipe(#[from] wipe::WipeError),
    #[error(transparent)]
    Identity(#[from] identity::IdentityError),
    #[error(transparent)]
    Key(#[from] tepal_server::keys::KeyError),
    #[error(transparent)]
    Limit(#[from] limit::LimitError),
    #[error(transparent)]
    Pool(#[from] pool::PoolError),
    #[error(transparent)]
    Layout(#[from] tepal_model::layout::LayoutError),
    #[error(transparent)]
    Plex(#[from] plex::PlexError),
    #[error(transparent)]
    Drive(#[from] drive::DriveArgumentError),
    #[error(transparent)]
    Volume(#[from] volume::VolumeError),
    #[error(transparent)]
    Snapshot(#[from] snapshot::SnapshotError),
    #[error(transparent)]
    Schedule(#[from] schedule::ScheduleError),
    #[error(transparent)]
    Trace(#[from] trace::TraceError),
    #[error(transparent)]
    Bench(#[from] bench::BenchError),
    #[error(transparent)]
    Serve(#[from] serve::ServeError),
    #[error(transparent)]
    Gateway(#[from] gateway::GatewayError),
    #[error(transparent)]
    Csi(#[from] csi::CsiError),
    #[error(transparent)]
    Rebuild(#[from] rebuild::RebuildError),
    #[error(transparent)]
    Replicate(Box<replicate::ReplicateError>),
}

impl From<replicate::ReplicateError> for CommandError {
    fn from(error: replicate::ReplicateError) -> Self {
        CommandError::Replicate(Box::new(error))
    }
}

pub fn run(cli: Cli) -> Result<Outcome, CommandError> {
    let Cli { global, command } = cli;
    let output = Output::new(global.output);
    match command {
        Command::Dev(command) => dev::run(&global, output, command),
        Command::Serve(arguments) => serve::run(&global, *arguments),
        Command::Gateway(arguments) => gateway::run(&global, arguments),
        Command::Attach(arguments) => attach::attach(&global, output, arguments),
        Command::Detach(arguments) => attach::detach(output, arguments),
        Command::Csi(arguments) => csi::run(&global, arguments),
        Command::AttachDaemon { order } => Ok(attach::daemon(&order)),
        Command::Apply(arguments) => apply::apply(&global, output, &arguments),
        Command::Show(arguments) => apply::show(&global, output, &arguments),
        Command::Status => status::run(&global, output),
        Command::Doctor => doctor::run(&global, output),
        Command::Events(arguments) => events::run(&global, output, &arguments),
        Command::Top(arguments) => top::run(&global, output, &arguments),
        Command::Trace(command) => trace::run(&global, output, command),
        Command::Server(command) => server::run(&global, output, command),
        Command::Drive(command) => drive::run(&global, output, command),
        Command::Pool(command) => pool::run(&global, output, command),
        Command::Volume(command) => volume::run(&global, output, command),
        Command::Identity(command) => identity::run(&global, output, command),
        Command::Key(command) => key::run(output, command),
        Command::Layout(command) => layout::run(output, &command),
        Command::Plex(command) => plex::run(&global, output, command),
        Command::Snapshot(command) => snapshot::run(&global, output, command),
        Command::Schedule(command) => schedule::run(&global, output, command),
        Command::Cluster(command) => cluster::run(&global, output, command),
        Command::Replicate(arguments) => replicate::run(&global, output, arguments),
        Command::Sql { query } => sql::run(&global, output, query),
        Command::Bench(arguments) => bench::run(&global, output, &arguments),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut cli::tree(), "tepal", &mut script);
            io::stdout().write_all(&script)?;
            Ok(Outcome::Done)
        }
        Command::Man { folder } => {
            let written = clap_mangen::generate_to(cli::tree(), &folder);
            written.map(|()| Outcome::Done).map_err(|error| CommandError::Manual { folder, error })
        }
    }
}
