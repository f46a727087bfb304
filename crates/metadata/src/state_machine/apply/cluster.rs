//! The cluster and its servers.

use super::{Draft, check_name, clipped};
use crate::command::Reply;
use crate::record::{ClusterRecord, DEFAULT_POOL, PoolRecord, ServerRecord, ServerState};
use crate::refusal::{Refusal, Thing};
use tepal_model::{ClusterId, ServerId};

const MAX_ADDRESS: usize = 255;

impl Draft {
    pub(super) fn init_cluster(
        &mut self,
        id: ClusterId,
        name: &str,
        server: ServerId,
        address: &str,
    ) -> Result<Reply, Refusal> {
        if self.state.is_set_up() {
            return Err(Refusal::ClusterExists { name: self.state.cluster.name.clone() });
        }
        check_name(Thing::Cluster, name)?;
        check_address(address)?;
        if id == ClusterId(0) {
            return Err(Refusal::ClusterId);
        }
        self.put_cluster(ClusterRecord { id, name: name.to_owned(), created_unix_ms: self.unix_ms, view: 1 });
        self.put_pool(PoolRecord { name: DEFAULT_POOL.to_owned(), layout: None });
        self.put_server(ServerRecord { id: server, address: address.to_owned(), state: ServerState::Up });
        self.event("cluster", name, format!("cluster {id} begins on server {server} at {address}"));
        Ok(Reply::Done)
    }

    pub(super) fn add_server(&mut self, id: ServerId, address: &str) -> Result<Reply, Refusal> {
        check_address(address)?;
        if self.state.servers.contains_key(&id) {
            return Err(Refusal::ServerExists(id));
        }
        self.put_server(ServerRecord { id, address: address.to_owned(), state: ServerState::Up });
        self.next_view();
        self.event("server", &id.to_string(), format!("joined at {address}"));
        Ok(Reply::Done)
    }

    pub(super) fn set_server_address(&mut self, id: ServerId, address: &str) -> Result<Reply, Refusal> {
        check_address(address)?;
        let mut server = self.server(id)?;
        if server.address == address {
            return Ok(Reply::Done);
        }
        server.address = address.to_owned();
        self.put_server(server);
        self.event("server", &id.to_string(), format!("moved to {address}"));
        Ok(Reply::Done)
    }

    pub(super) fn set_server_state(&mut self, id: ServerId, to: ServerState, reason: &str) -> Result<Reply, Refusal> {
        let mut server = self.server(id)?;
        if server.state == to {
            return Err(Refusal::ServerAlready { id, state: to });
        }
        let from = server.state;
        server.state = to;
        self.put_server(server);
        self.next_view();
        self.event("server", &id.to_string(), format!("{from} -> {to}: {}", clipped(reason, 800)));
        Ok(Reply::Done)
    }

    fn server(&self, id: ServerId) -> Result<ServerRecord, Refusal> {
        self.state.servers.get(&id).map(|record| ServerRecord::clone(record)).ok_or(Refusal::NoServer(id))
    }
}

fn check_address(address: &str) -> Result<(), Refusal> {
    let well_formed = match address.strip_prefix("unix:") {
        Some(path) => !path.is_empty(),
        None => address.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()),
    };
    if well_formed && address.len() <= MAX_ADDRESS && !address.contains(char::is_control) {
        Ok(())
    } else {
        Err(Refusal::Address(clipped(address, MAX_ADDRESS)))
    }
}
