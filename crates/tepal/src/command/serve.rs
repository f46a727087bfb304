//! `tepal serve`: settings from the command line and the file, then the server takes over.

use super::{CommandError, joining};
use crate::cli::{Global, ServeArguments};
use crate::output::Outcome;
use tepal_server::config::{Config, ConfigError, DriveSettings, Settings};

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Joining(#[from] joining::JoiningError),
    #[error(transparent)]
    Server(#[from] tepal_server::ServeError),
    #[error("the process can't leave its session: {0}")]
    Session(nix::errno::Errno),
}

pub fn run(global: &Global, arguments: ServeArguments) -> Result<Outcome, CommandError> {
    Ok(serve(global, arguments).map(|()| Outcome::Done)?)
}

fn serve(global: &Global, arguments: ServeArguments) -> Result<(), ServeError> {
    if arguments.own_session {
        nix::unistd::setsid().map_err(ServeError::Session)?;
    }
    let file = arguments.config.as_deref().map(Settings::read).transpose().map_err(ConfigError::from)?;
    let token = arguments.join_token.clone();
    let settings = Settings { identity: global.identity.clone(), ..settings(arguments) };
    let mut settings = settings.or(file.unwrap_or_default());
    if let Some(token) = token {
        joining::prepare(&mut settings, &token)?;
    }
    let config = Config::new(settings)?;
    Ok(tepal_server::serve(config)?)
}

fn settings(arguments: ServeArguments) -> Settings {
    let given = |list: Vec<String>| Some(list).filter(|list| !list.is_empty());
    let drives: Vec<DriveSettings> = arguments.drives.into_iter().map(DriveSettings::Path).collect();
    Settings {
        data: arguments.data,
        server: arguments.server,
        create: arguments.create,
        join: given(arguments.join),
        site: arguments.site,
        peers: arguments.peers,
        drives: Some(drives).filter(|drives| !drives.is_empty()),
        pool: arguments.pool,
        listen: given(arguments.listen),
        api: arguments.api,
        replace_after: arguments.replace_after,
        emulate: arguments.emulate,
        data_threads: arguments.data_threads,
        log_file: arguments.log_file,
        insecure: arguments.insecure.then_some(true),
        require_tls: arguments.require_tls.then_some(true),
        names: given(arguments.names),
        identity: None,
        keys: arguments.keys,
    }
}
