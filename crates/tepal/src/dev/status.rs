//! `tepal dev status`: the processes and addresses of a development cluster, also when its servers don't answer.

use super::cluster::Cluster;
use super::network::{Cut, Cuts, Subnet};
use super::process::ProcessState;
use crate::command::CommandError;
use crate::locate::Addresses;
use crate::output::{self, Output};
use serde::Serialize;
use tepal_model::ServerId;

#[derive(Serialize)]
struct DevStatus {
    dir: String,
    /// Of a server that runs: `http://HOST:PORT`.
    api: Option<String>,
    /// The socket's path.
    nbd: String,
    /// For `nbdinfo --list` and the like; a volume is this with its name after the third slash.
    nbd_uri: String,
    /// The process of the gateway at that socket; none of one server alone, which serves there itself.
    gateway: Option<DevGateway>,
    /// The file with the API's token.
    token_file: String,
    /// The network of an isolated cluster.
    network: Option<String>,
    /// What is cut in it.
    cuts: Vec<Cut>,
    servers: Vec<DevServer>,
}

#[derive(Serialize)]
struct DevGateway {
    state: &'static str,
    pid: Option<i32>,
    log: String,
}

#[derive(Serialize)]
struct DevServer {
    id: ServerId,
    state: &'static str,
    pid: Option<i32>,
    api: Option<String>,
    /// In which it runs, for `ip netns exec`; none unless the cluster is isolated.
    namespace: Option<String>,
    log: String,
}

/// The URI of a volume in a cluster whose socket is at `socket`.
pub fn nbd_uri(volume: &str, socket: &std::path::Path) -> String {
    format!("nbd+unix:///{volume}?socket={}", socket.display())
}

pub fn run(cluster: &Cluster, output: Output) -> Result<(), CommandError> {
    let folder = cluster.folder();
    let network = cluster.network();
    let mut servers = Vec::new();
    for (id, state) in cluster.states()? {
        let (word, pid) = said(state);
        // Those of a server that was killed are nobody's.
        let addresses: Option<Addresses> = cluster.addresses(id)?.filter(|_| pid.is_some());
        let api = addresses.map(|addresses| format!("http://{}", addresses.api));
        let namespace = network.as_ref().map(|network| network.namespace(id));
        servers.push(DevServer { id, state: word, pid, api, namespace, log: folder.log(id).display().to_string() });
    }
    let gateway = cluster.gateway_state()?.map(|state| {
        let (state, pid) = said(state);
        DevGateway { state, pid, log: folder.gateway().join("log").display().to_string() }
    });
    let status = DevStatus {
        gateway,
        dir: folder.path().display().to_string(),
        api: servers.iter().find_map(|server| server.api.clone()),
        nbd: folder.socket().display().to_string(),
        nbd_uri: nbd_uri("", &folder.socket()),
        token_file: folder.data(ServerId(1)).join("token").display().to_string(),
        network: cluster.plan().isolated.as_ref().map(Subnet::to_string),
        cuts: cluster.cuts()?,
        servers,
    };
    output.show(&status, page)?;
    Ok(())
}

fn said(state: ProcessState) -> (&'static str, Option<i32>) {
    match state {
        ProcessState::Running { pid } => ("running", Some(pid)),
        ProcessState::Paused { pid } => ("paused", Some(pid)),
        ProcessState::Down => ("down", None),
    }
}

fn page(status: &DevStatus) -> String {
    let mut facts = vec![
        ("folder", status.dir.clone()),
        ("api", status.api.clone().unwrap_or_default()),
        ("nbd", nbd_uri("NAME", std::path::Path::new(&status.nbd))),
    ];
    facts.extend(status.network.iter().map(|network| ("network", network.clone())));
    if !status.cuts.is_empty() {
        facts.push(("cut", Cuts(&status.cuts).to_string()));
    }
    let facts = output::facts(&facts);
    let row = |server: &DevServer| {
        let pid = server.pid.map(|pid| pid.to_string()).unwrap_or_default();
        vec![server.id.to_string(), server.state.to_owned(), pid, server.log.clone()]
    };
    let gateway = status.gateway.iter().map(|gateway| {
        let pid = gateway.pid.map(|pid| pid.to_string()).unwrap_or_default();
        vec!["gateway".to_owned(), gateway.state.to_owned(), pid, gateway.log.clone()]
    });
    let rows = status.servers.iter().map(row).chain(gateway);
    format!("{facts}\n{}", output::table(&["process", "state", ">pid", "log"], rows))
}
