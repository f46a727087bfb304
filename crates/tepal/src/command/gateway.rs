//! `tepal gateway`: asks servers what there is, and hands that to the gateway, which serves.

use super::CommandError;
use crate::cli::{GatewayArguments, Global};
use crate::client::Client;
use crate::locate;
use crate::output::Outcome;
use std::collections::BTreeSet;
use std::io;
use std::thread;
use std::time::Duration;
use tepal_server::api::types::route;
use tepal_server::config::ConfigError;
use tepal_server::gateway::{self, Config, Directory};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Gateway(#[from] gateway::GatewayError),
    #[error("a thread can't be started: {0}")]
    Thread(io::Error),
    #[error("the process can't leave its session: {0}")]
    Session(nix::errno::Errno),
}

/// Between looks for servers that weren't running before.
const LOOK: Duration = Duration::from_secs(2);
/// After a server didn't answer.
const AGAIN: Duration = Duration::from_millis(500);

pub fn run(global: &Global, arguments: GatewayArguments) -> Result<Outcome, CommandError> {
    let GatewayArguments { own_session, listen, data_threads, log_file, insecure } = arguments;
    if own_session {
        nix::unistd::setsid().map_err(GatewayError::Session)?;
    }
    let config = Config::new(listen, data_threads, log_file, insecure).map_err(GatewayError::from)?;
    let first: Directory = locate::client(global)?.get(route::DIRECTORY)?;
    let (tell, news) = unbounded_channel();
    let (global, number) = (global.clone(), first.number);
    let look = move || ask_whoever_is_there(&global, number, &tell);
    thread::Builder::new().name("look".into()).spawn(look).map_err(GatewayError::Thread)?;
    gateway::run(config, first, news).map_err(GatewayError::from)?;
    Ok(Outcome::Done)
}

/// Each server is asked by itself: one that stands still keeps no news of others back.
fn ask_whoever_is_there(global: &Global, known: u64, tell: &UnboundedSender<Directory>) {
    let mut asked = BTreeSet::new();
    while !tell.is_closed() {
        // A folder names only servers that run.
        if let Ok(client) = locate::client(global) {
            for server in client.servers().iter().filter(|server| !asked.contains(*server)).cloned().collect::<Vec<_>>()
            {
                let (one, tell) = (client.of(&server).impatient(), tell.clone());
                let asking = thread::Builder::new().name("ask".into()).spawn(move || ask(&one, known, &tell));
                if asking.is_ok() {
                    asked.insert(server);
                }
            }
        }
        thread::sleep(LOOK);
    }
}

fn ask(server: &Client, mut known: u64, tell: &UnboundedSender<Directory>) {
    while !tell.is_closed() {
        match server.get::<Directory>(&format!("{}?after={known}", route::DIRECTORY)) {
            Ok(directory) if directory.number > known => {
                known = directory.number;
                let _ = tell.send(directory); // the gateway may be ending
            }
            Ok(_) => {}
            Err(_) => thread::sleep(AGAIN),
        }
    }
}
