//! `tepal csi`: gives the driver its way to the cluster and to this machine's attachments; the rest is in [`tepal_csi`].

mod api;
mod machine;

use super::{CommandError, attach};
use crate::attach::{DaemonCommand, NbdAddress};
use crate::cli::{ATTACH_DAEMON, CsiArguments, FenceName, Global, Services};
use crate::output::Outcome;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tepal_csi::{Fence, Settings};
use tracing_subscriber::EnvFilter;

#[derive(Debug, thiserror::Error)]
pub enum CsiError {
    #[error("clients of a gateway can't have a volume for themselves alone: say --fence rights, or --fence none")]
    GatewayReserves,
    #[error("{}: {error}", path.display())]
    Token { path: PathBuf, error: io::Error },
    #[error("a runtime can't be started: {0}")]
    Runtime(io::Error),
    #[error(transparent)]
    Serve(#[from] tepal_csi::ServeError),
}

pub fn run(global: &Global, arguments: CsiArguments) -> Result<Outcome, CommandError> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(false);
    let _ = log.with_target(false).try_init(); // if there's one already, so much the better
    let fence = match arguments.fence {
        FenceName::Reservation if arguments.gateway.is_some() => return Err(CsiError::GatewayReserves.into()),
        FenceName::Reservation => Fence::Reservation,
        FenceName::Rights => Fence::Rights,
        FenceName::None => Fence::None,
    };
    let api = Arc::new(api::Servers::find(global, arguments.token_file)?);
    let settings = Settings {
        controller: arguments.services != Services::Node,
        node: arguments.services != Services::Controller,
        node_name: arguments.node.unwrap_or_else(attach::machine),
        site: arguments.site,
        server: arguments.server,
        most_volumes: arguments.most_volumes,
        fence,
        notes: arguments.run_folder.join("csi"),
    };
    let daemon = match arguments.attach_by {
        None => DaemonCommand::this_program(ATTACH_DAEMON),
        Some(words) => {
            let mut words = words.0.into_iter();
            let program = words.next().unwrap_or_default().into();
            DaemonCommand { program, arguments: words.chain([ATTACH_DAEMON.to_owned()]).collect() }
        }
    };
    let machine = Arc::new(machine::Attachments {
        global: global.clone(),
        servers: api.clone(),
        gateway: arguments.gateway.map(NbdAddress::Unix),
        method: arguments.method.map(Into::into),
        give_up_after: arguments.give_up_after.map(Duration::from_millis),
        run_folder: arguments.run_folder,
        daemon,
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CsiError::Runtime)?;
    let served = runtime.block_on(tepal_csi::serve(&arguments.endpoint, settings, api, machine));
    served.map_err(CsiError::from)?;
    Ok(Outcome::Done)
}
