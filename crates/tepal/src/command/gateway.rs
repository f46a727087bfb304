//! `tepal gateway`: asks servers what there is, and hands that to the gateway, which serves.

use super::CommandError;
use crate::cli::{GatewayArguments, Global};
use crate::client::Client;
use crate::locate;
use crate::output::Outcome;
use std::collections::BTreeMap;
use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tepal_server::api::types::route;
use tepal_server::config::ConfigError;
use tepal_server::gateway::{self, Account, Config, Directory};
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
    let GatewayArguments { own_session, listen, data_threads, log_file, insecure, require_tls, keys } = arguments;
    if own_session {
        nix::unistd::setsid().map_err(GatewayError::Session)?;
    }
    let config = Config::new(listen, data_threads, log_file, insecure, locate::identity(global))
        .and_then(|config| config.with_keys(keys))
        .and_then(|config| if require_tls { config.with_tls_required() } else { Ok(config) })
        .map_err(GatewayError::from)?;
    let account = Account::of(&config);
    // What anybody knows is news.
    let first: Directory = locate::client(global)?.post(route::DIRECTORY, &account.news(0))?;
    let (tell, news) = unbounded_channel();
    let (global, number) = (global.clone(), first.number);
    let asker = Asker { account: account.clone(), tell };
    let look = move || asker.ask_whoever_is_there(&global, number);
    thread::Builder::new().name("look".into()).spawn(look).map_err(GatewayError::Thread)?;
    gateway::run(config, first, news, account).map_err(GatewayError::from)?;
    Ok(Outcome::Done)
}

/// What asks servers, in a thread for each.
#[derive(Clone)]
struct Asker {
    account: Account,
    tell: UnboundedSender<Directory>,
}

impl Asker {
    /// Each server is asked by itself: one that stands still keeps no news of others back.
    fn ask_whoever_is_there(&self, global: &Global, known: u64) {
        let mut asked: BTreeMap<String, JoinHandle<()>> = BTreeMap::new();
        while !self.tell.is_closed() {
            asked.retain(|_, asking| !asking.is_finished());
            // A folder names only servers that run.
            if let Ok(client) = locate::client(global) {
                let new = client.servers().iter().filter(|server| !asked.contains_key(*server)).cloned();
                for server in new.collect::<Vec<_>>() {
                    let (one, asker) = (client.of(&server).impatient(), self.clone());
                    let asking = thread::Builder::new().name("ask".into()).spawn(move || asker.ask(&one, known));
                    if let Ok(asking) = asking {
                        asked.insert(server, asking);
                    }
                }
            }
            thread::sleep(LOOK);
        }
    }

    /// Until the server has another token than was known: it has another data folder then.
    fn ask(&self, server: &Client, mut known: u64) {
        while !self.tell.is_closed() {
            match server.post::<Directory>(route::DIRECTORY, &self.account.news(known)) {
                Ok(directory) if directory.number > known => {
                    known = directory.number;
                    let _ = self.tell.send(directory); // the gateway may be ending
                }
                Ok(_) => {}
                Err(error) if error.is_token() => return,
                Err(_) => thread::sleep(AGAIN),
            }
        }
    }
}
