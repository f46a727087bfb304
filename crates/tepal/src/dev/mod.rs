//! Development clusters: server processes on this machine, all of whose state is in one folder.
//!
//! ```text
//! DIR/cluster.json   how the cluster was made, and the port of its API
//! DIR/lock           held by whichever `tepal dev` command changes something
//! DIR/foreground.json  the process of the `dev up` that stops the cluster when it's interrupted
//! DIR/nbd.sock       the volumes: of the only server, or through a gateway of its own, which outlives every server
//! DIR/gateway/       the gateway's process and log
//! DIR/tour.json      the volume that a tour has made, so that no other is ever taken for it
//! DIR/s1/            the server's data folder: metadata, token, addresses.json
//! DIR/s1/peers.sock  where other servers find it
//! DIR/s1/nbd.sock    the volumes through one of several servers
//! DIR/s1/driveN      its drives; links to /dev/shm with --memory
//! DIR/s1/process     its process, and since when it runs: a number alone could be another's by now
//! DIR/s1/stopping     while it's being stopped
//! DIR/s1/log
//! ```
//!
//! What an isolated cluster has outside of it, until it's down, is said in [`network`].

mod cluster;
mod folder;
mod gateway;
mod network;
mod partition;
mod process;
mod status;
mod tour;
mod up;

pub use folder::{DevError, FIRST, Folder};
pub use tour::TourError;

use crate::cli::{DevCommand, DownArguments, Global, ServersArguments};
use crate::command::CommandError;
use crate::interrupt::Interrupt;
use crate::locate;
use crate::output::{Outcome, Output};
use cluster::Cluster;
use process::ProcessState;
use serde_json::json;
use std::path::Path;
use tepal_model::ServerId;

pub fn run(global: &Global, output: Output, command: DevCommand) -> Result<Outcome, CommandError> {
    let dir = locate::dir(global);
    match command {
        DevCommand::Up(arguments) => up::run(&dir, output, arguments)?,
        DevCommand::Tour(arguments) => tour::run(&dir, output, &arguments)?,
        DevCommand::Status => status::run(&Cluster::open(&dir)?, output)?,
        DevCommand::Down(arguments) => down(&dir, output, arguments)?,
        DevCommand::Kill(servers) => kill(&dir, output, &servers)?,
        DevCommand::Start(servers) => start(&dir, output, &servers)?,
        DevCommand::Pause(servers) => pause(&dir, output, &servers)?,
        DevCommand::Resume(servers) => resume(&dir, output, &servers)?,
        DevCommand::Partition(arguments) => partition::partition(&Cluster::open(&dir)?, output, &arguments)?,
        DevCommand::Heal => partition::heal(&Cluster::open(&dir)?, output)?,
    }
    Ok(Outcome::Done)
}

fn down(dir: &Path, output: Output, arguments: DownArguments) -> Result<(), CommandError> {
    let DownArguments { purge } = arguments;
    let folder = Folder::open(dir)?;
    if let Some(typed) = &purge {
        folder.is_meant_by(typed)?;
    }
    let lock = folder.lock()?;
    let cluster = Cluster::new(folder)?;
    cluster.folder().leave_foreground()?;
    let stopped = cluster.stop()?;
    drop(lock);
    let shown = cluster.folder().shown();
    if purge.is_some() {
        cluster.folder().purge()?;
        output
            .show(&json!({ "stopped": stopped, "purged": true }), |_| format!("the cluster in {shown} is removed"))?;
        return Ok(());
    }
    let text = match stopped.is_empty() {
        true => format!("the cluster in {shown} was not running"),
        false => format!("the cluster in {shown} is stopped; `tepal dev up` brings it back with its data"),
    };
    output.show(&json!({ "stopped": stopped, "purged": false }), |_| text)?;
    Ok(())
}

/// The cluster and its servers that were named, all of which must exist before anything is done.
fn named<'a>(cluster: &Cluster, servers: &'a ServersArguments) -> Result<&'a [ServerId], DevError> {
    match servers.servers.iter().find(|id| !cluster.servers().contains(id)) {
        Some(&server) => Err(DevError::NoServer { server, folder: cluster.folder().path().to_owned() }),
        None => Ok(&servers.servers),
    }
}

fn kill(dir: &Path, output: Output, servers: &ServersArguments) -> Result<(), CommandError> {
    let cluster = Cluster::open(dir)?;
    for &id in named(&cluster, servers)? {
        let process = cluster.process(id);
        if process.state().map_err(DevError::from)? == ProcessState::Down {
            return Err(DevError::Down { server: id }.into());
        }
        process.kill().map_err(DevError::from)?;
    }
    tell(output, &servers.servers, "killed")
}

fn start(dir: &Path, output: Output, servers: &ServersArguments) -> Result<(), CommandError> {
    let cluster = Cluster::open(dir)?;
    let lock = cluster.folder().lock()?;
    cluster.folder().check_state(cluster.plan())?;
    let interrupt = Interrupt::catch()?;
    for &id in named(&cluster, servers)? {
        if let ProcessState::Running { pid } | ProcessState::Paused { pid } =
            cluster.process(id).state().map_err(DevError::from)?
        {
            return Err(DevError::Running { server: id, pid }.into());
        }
    }
    cluster.start_unlocked(&servers.servers, lock, &interrupt)?;
    tell(output, &servers.servers, "started")
}

fn pause(dir: &Path, output: Output, servers: &ServersArguments) -> Result<(), CommandError> {
    let cluster = Cluster::open(dir)?;
    for &id in named(&cluster, servers)? {
        cluster.process(id).pause().map_err(DevError::from)?;
    }
    tell(output, &servers.servers, "paused")
}

fn resume(dir: &Path, output: Output, servers: &ServersArguments) -> Result<(), CommandError> {
    let cluster = Cluster::open(dir)?;
    for &id in named(&cluster, servers)? {
        cluster.process(id).resume().map_err(DevError::from)?;
    }
    tell(output, &servers.servers, "resumed")
}

fn tell(output: Output, servers: &[ServerId], done: &str) -> Result<(), CommandError> {
    let words: Vec<String> = servers.iter().map(|id| format!("{id} {done}")).collect();
    output.show(&json!({ done: servers }), |_| words.join("\n"))?;
    Ok(())
}

/// The option that names the folder, for commands that are to be pasted; nothing if it's the default one.
fn dir_option(folder: &Folder) -> String {
    match folder.named() == Path::new(locate::DEFAULT_DIR) {
        true => String::new(),
        false => format!(" --dir {}", quoted(&folder.shown())),
    }
}

/// As a word of a shell's command line.
fn quoted(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/+:@%,=".contains(&byte);
    match !text.is_empty() && text.bytes().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}
