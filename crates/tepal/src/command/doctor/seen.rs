//! What servers say, as far as they do.

use super::super::events::{Event, Wanted};
use super::super::replicate::now_ms;
use super::findings::count;
use crate::client::{Client, ClientError};
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::time::Duration;
use tepal_model::ServerId;
use tepal_server::api::types::{
    ClusterInfo, DriveInfo, PoolInfo, Replication, ScheduleInfo, Scrub, ServerInfo, ServerState, Status, Usage,
    VolumeInfo, path, route,
};

/// More than a server waits for others when it puts a status together.
const ANSWER: Duration = Duration::from_secs(6);
/// Volumes that are asked for their scrubs: each costs a question to every server.
const MOST_SCRUBS: usize = 200;
/// Events that are looked through for when a server went down.
const MOST_EVENTS: u64 = 200;

/// All that was seen. What couldn't be asked is none, or empty, and said in `not_told`.
pub struct Seen {
    pub now_ms: u64,
    /// Of the server that knows most.
    pub status: Status,
    /// What other servers say that serve nobody.
    pub others: Vec<Status>,
    /// Addresses where no server answers, each with why.
    pub silent: Vec<(String, String)>,
    pub cluster: Option<ClusterInfo>,
    pub drives: Vec<DriveInfo>,
    pub pools: Vec<PoolInfo>,
    pub volumes: Vec<VolumeInfo>,
    pub scrubs: Vec<Scrub>,
    pub schedules: Vec<ScheduleInfo>,
    pub replications: Vec<Replication>,
    pub usage: Option<Usage>,
    /// What happened to servers lately, the newest last.
    pub events: Vec<Event>,
    pub not_told: Vec<String>,
    /// Of a development cluster, whose servers are started by `tepal dev`.
    pub dev: Option<PathBuf>,
}

impl Seen {
    /// Asks each address for the status, and the one that knows most for the rest.
    pub fn ask(client: &Client, dev: Option<PathBuf>) -> Result<Seen, ClientError> {
        let addresses = client.servers().to_vec();
        let said: Vec<Result<Status, ClientError>> = std::thread::scope(|scope| {
            let of = |address: &String| client.of(address).answered_within(ANSWER);
            let asking: Vec<_> =
                addresses.iter().map(|address| scope.spawn(move || of(address).get::<Status>(route::STATUS))).collect();
            let lost = |_| Err(ClientError::Address(String::new()));
            asking.into_iter().map(|one| one.join().unwrap_or_else(lost)).collect()
        });
        let (mut statuses, mut silent, mut first_error) = (Vec::new(), Vec::new(), None);
        for (address, said) in addresses.into_iter().zip(said) {
            match said {
                Ok(status) => statuses.push((address, status)),
                Err(error) => {
                    silent.push((address, error.to_string()));
                    first_error.get_or_insert(error);
                }
            }
        }
        // One that is cut off knows an earlier view, and may not serve.
        statuses.sort_by_key(|(_, status)| (std::cmp::Reverse(status.view), status.health));
        let mut statuses = statuses.into_iter();
        let Some((best, status)) = statuses.next() else {
            return Err(first_error.unwrap_or(ClientError::Address(String::new())));
        };
        let best = client.of(&best).answered_within(ANSWER * 3);
        Ok(Seen::of(&best, status, statuses.map(|(_, status)| status).collect(), silent, dev))
    }

    fn of(
        client: &Client,
        status: Status,
        others: Vec<Status>,
        silent: Vec<(String, String)>,
        dev: Option<PathBuf>,
    ) -> Seen {
        let mut not_told = Vec::new();
        let cluster = told(&mut not_told, "the cluster", client.get(route::CLUSTER));
        let drives = told(&mut not_told, "drives", client.get(route::DRIVES)).unwrap_or_default();
        let pools = told(&mut not_told, "pools", client.get(route::POOLS)).unwrap_or_default();
        let volumes: Vec<VolumeInfo> = told(&mut not_told, "volumes", client.get(route::VOLUMES)).unwrap_or_default();
        let replications = told(&mut not_told, "replications", client.get(route::REPLICATIONS)).unwrap_or_default();
        let usage = told(&mut not_told, "use over time", client.get(route::USAGE));
        let of_servers = Wanted { kind: Some("server"), ..Wanted::default() };
        let events = told(&mut not_told, "events", of_servers.ask(client, MOST_EVENTS)).unwrap_or_default();
        let scrubs = scrubs(client, &volumes, &mut not_told);
        let schedules = told(&mut not_told, "schedules", client.get(route::SCHEDULES)).unwrap_or_default();
        let now_ms = now_ms();
        Seen {
            now_ms,
            status,
            others,
            silent,
            cluster,
            drives,
            pools,
            volumes,
            scrubs,
            schedules,
            replications,
            usage,
            events,
            not_told,
            dev,
        }
    }

    pub fn looked_at(&self) -> Vec<String> {
        let mut all = vec![
            count(self.status.servers.len(), "server"),
            count(self.drives.len(), "drive"),
            count(self.pools.len(), "pool"),
            count(self.volumes.len(), "volume"),
        ];
        all.push(count(self.volumes.iter().filter(|volume| volume.migration.is_some()).count(), "migration"));
        all.push(count(self.volumes.iter().filter(|volume| volume.replica.is_some()).count(), "replica"));
        all.push(count(self.scrubs.len(), "scrub"));
        all.push(count(self.schedules.len(), "schedule"));
        all.push("majority, versions, encryption, space and its growth".to_owned());
        all
    }

    pub fn server(&self, id: ServerId) -> Option<&ServerInfo> {
        self.status.servers.iter().find(|server| server.id == id)
    }

    pub fn is_down(&self, id: ServerId) -> bool {
        self.server(id).is_none_or(|server| server.state == ServerState::Down)
    }

    /// Of one that is up and says nothing only the records are known.
    pub fn is_silent(&self, server: &ServerInfo) -> bool {
        server.state != ServerState::Down && server.version.is_empty()
    }
}

fn told<T>(not_told: &mut Vec<String>, what: &str, said: Result<T, ClientError>) -> Option<T> {
    said.inspect_err(|error| not_told.push(format!("{what}: {error}"))).ok()
}

fn scrubs(client: &Client, volumes: &[VolumeInfo], not_told: &mut Vec<String>) -> Vec<Scrub> {
    let scrub = |volume: &VolumeInfo| ask::<Scrub>(client, &path(route::VOLUME_SCRUB, &volume.by_id()));
    let said: Vec<Result<Scrub, ClientError>> = volumes.iter().take(MOST_SCRUBS).map(scrub).collect();
    if let Some(error) = said.iter().find_map(|said| said.as_ref().err()) {
        not_told.push(format!("some scrubs: {error}"));
    }
    if volumes.len() > MOST_SCRUBS {
        not_told.push(format!("scrubs of all but the first {MOST_SCRUBS} volumes"));
    }
    said.into_iter().filter_map(Result::ok).collect()
}

fn ask<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T, ClientError> {
    client.get(path)
}
