//! The cluster and its servers.

use super::{Draft, check_name, clipped};
use crate::command::{REALM, Reply};
use crate::record::{ClusterRecord, DEFAULT_POOL, PoolRecord, SERVER_IS_DOWN, ServerRecord, ServerState};
use crate::refusal::{Refusal, Thing};
use crate::timing::DEFAULT_LEASE_MS;
use std::cmp::Ordering;
use std::ops::RangeInclusive;
use tepal_model::{ClusterId, ServerId};

const MAX_ADDRESS: usize = 255;
/// Shorter ones end while a busy machine does something else; longer ones are no use to clients that wait.
const LEASE_MS: RangeInclusive<u64> = 300..=60_000;
/// The bits of a number that SQL holds as a positive integer.
const NUMBER: u64 = i64::MAX as u64;

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
        self.put_cluster(ClusterRecord {
            id,
            name: name.to_owned(),
            created_unix_ms: self.unix_ms,
            view: 1,
            lease_ms: None,
            longest_lease_ms: None,
        });
        self.put_pool(PoolRecord { name: DEFAULT_POOL.to_owned(), layout: None });
        self.state.counters.server = server.0.checked_add(1).ok_or(Refusal::NoServersLeft)?;
        self.put_server(ServerRecord {
            id: server,
            address: address.to_owned(),
            state: ServerState::Up,
            state_view: 1,
            incarnation: 0,
            folder: 0,
            boot: 0,
            site: None,
            draining: false,
        });
        self.event("cluster", name, format!("cluster {id} begins on server {server} at {address}"));
        Ok(Reply::Done)
    }

    pub(super) fn set_lease(&mut self, ms: u64) -> Result<Reply, Refusal> {
        if !LEASE_MS.contains(&ms) {
            return Err(Refusal::Lease { ms });
        }
        let mut cluster = ClusterRecord::clone(&self.state.cluster);
        if cluster.lease_ms == Some(ms) {
            return Ok(Reply::Done);
        }
        cluster.lease_ms = Some(ms);
        let longest = cluster.longest_lease_ms.unwrap_or(DEFAULT_LEASE_MS);
        cluster.longest_lease_ms = Some(longest.max(ms));
        let name = cluster.name.clone();
        self.put_cluster(cluster);
        self.event(
            "cluster",
            &name,
            format!("a server may be silent for {ms} ms from now on, before others take over"),
        );
        Ok(Reply::Done)
    }

    pub(super) fn end_long_leases(&mut self, ms: u64) -> Result<Reply, Refusal> {
        let mut cluster = ClusterRecord::clone(&self.state.cluster);
        if cluster.lease_ms == Some(ms) && cluster.longest_lease_ms > Some(ms) {
            cluster.longest_lease_ms = Some(ms);
            self.put_cluster(cluster);
        }
        Ok(Reply::Done)
    }

    pub(super) fn join_server(
        &mut self,
        folder: u64,
        address: &str,
        claim: Option<ServerId>,
    ) -> Result<Reply, Refusal> {
        check_address(address)?;
        let folder = folder & NUMBER;
        if let Some(known) = self.state.servers.values().find(|server| server.folder == folder) {
            return Ok(Reply::ServerJoined { id: known.id, incarnation: known.incarnation });
        }
        let server = match claim {
            Some(id) if id.0 != self.state.counters.server => self.replaced_folder(id)?,
            // The one that's next may also be asked for by name.
            Some(_) | None => self.new_server()?,
        };
        let (id, incarnation) = (server.id, server.incarnation);
        self.put_server(ServerRecord { address: address.to_owned(), folder, boot: 0, ..server });
        let what = if incarnation > 0 { "joined anew with an empty folder" } else { "joined" };
        self.event("server", &id.to_string(), format!("{what} at {address}"));
        Ok(Reply::ServerJoined { id, incarnation })
    }

    fn new_server(&mut self) -> Result<ServerRecord, Refusal> {
        let id = ServerId(self.state.counters.server);
        self.state.counters.server = id.0.checked_add(1).ok_or(Refusal::NoServersLeft)?;
        let state_view = self.next_view();
        let (address, state) = (String::new(), ServerState::Down);
        let (site, draining) = (None, false);
        Ok(ServerRecord { id, address, state, state_view, incarnation: 0, folder: 0, boot: 0, site, draining })
    }

    fn replaced_folder(&self, id: ServerId) -> Result<ServerRecord, Refusal> {
        let mut server = self.server(id)?;
        if server.state == ServerState::Up {
            return Err(Refusal::ServerIsUp(id));
        }
        server.incarnation = server.incarnation.checked_add(1).ok_or(Refusal::NoServersLeft)?;
        Ok(server)
    }

    pub(super) fn server_started(&mut self, id: ServerId, incarnation: u32, boot: u64) -> Result<Reply, Refusal> {
        let mut server = self.server(id)?;
        let boot = boot & NUMBER;
        if incarnation != server.incarnation {
            return Err(Refusal::ServerReplaced(id));
        }
        match boot.cmp(&server.boot) {
            Ordering::Less => return Err(Refusal::FolderOld(id)),
            Ordering::Equal => return Ok(Reply::Done),
            Ordering::Greater => server.boot = boot,
        }
        let view = self.next_view();
        self.lose_drives_of(id, "its server was started anew", view);
        self.event("server", &id.to_string(), format!("{} -> up: started", server.state));
        server.state = ServerState::Up;
        server.state_view = view;
        self.put_server(server);
        Ok(Reply::Done)
    }

    pub(super) fn remove_server(&mut self, id: ServerId) -> Result<Reply, Refusal> {
        self.server(id)?;
        let drives = self.state.drives_of_server(id).count();
        if drives > 0 {
            return Err(Refusal::ServerHasDrives { id, drives });
        }
        if self.state.servers.len() == 1 {
            return Err(Refusal::LastServer(id));
        }
        self.drop_server(id);
        if self.version >= REALM {
            self.revoke_server(id);
        }
        self.next_view();
        self.event("server", &id.to_string(), "removed by the operator".to_owned());
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

    pub(super) fn set_server_site(&mut self, id: ServerId, site: Option<&str>) -> Result<Reply, Refusal> {
        site.map_or(Ok(()), |site| check_name(Thing::Site, site))?;
        let mut server = self.server(id)?;
        if server.site.as_deref() == site {
            return Ok(Reply::Done);
        }
        server.site = site.map(str::to_owned);
        self.put_server(server);
        let text = site.map_or_else(|| "no longer says its site".to_owned(), |site| format!("is at site {site}"));
        self.event("server", &id.to_string(), text);
        Ok(Reply::Done)
    }

    pub(super) fn set_server_state(
        &mut self,
        id: ServerId,
        to: ServerState,
        reason: &str,
        expected_view: Option<u64>,
    ) -> Result<Reply, Refusal> {
        let mut server = self.server(id)?;
        if expected_view.is_some_and(|view| view != server.state_view) {
            return Err(Refusal::ServerChanged { id, state: server.state, state_view: server.state_view });
        }
        if server.state == to {
            return Err(Refusal::ServerAlready { id, state: to });
        }
        let view = self.next_view();
        self.event("server", &id.to_string(), format!("{} -> {to}: {}", server.state, clipped(reason, 800)));
        if to == ServerState::Down {
            self.lose_drives_of(id, SERVER_IS_DOWN, view);
        }
        server.state = to;
        server.state_view = view;
        self.put_server(server);
        Ok(Reply::Done)
    }

    pub(super) fn server(&self, id: ServerId) -> Result<ServerRecord, Refusal> {
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
