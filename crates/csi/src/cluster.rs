//! The cluster, as the driver asks it: over the API, by a way that it's given.

use crate::failure::Failure;
use crate::names::{SnapshotHandle, VolumeHandle};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::{Arc, OnceLock};
use tepal_model::{ClusterId, Epoch, Limits};
use tepal_server::api::types::{
    CloneSnapshot, ClusterInfo, CreateSnapshot, CreateVolume, Done, Grant, IdentityInfo, MapRun, PoolInfo, Removal,
    RenameVolume, Reserve, ResizeVolume, Right, RightInfo, ServerInfo, SnapshotInfo, SnapshotRemoval, SqlQuery,
    SqlRows, VolumeInfo, path, route,
};

/// Bytes of a volume that are looked at before all others.
const BEGINNING: u64 = 1 << 20;

/// What is done with a path of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// It's asked for.
    Get,
    /// Something is done or made.
    Post,
    /// It's removed.
    Delete,
}

/// The way to the cluster's servers. It blocks.
pub trait Api: Send + Sync + 'static {
    /// Asks one server that answers.
    ///
    /// # Errors
    ///
    /// If none answers, or one refuses it.
    fn ask(&self, method: Method, path: &str, body: &Value) -> Result<Value, Failure>;
}

/// What the driver wants of the cluster.
#[derive(Clone)]
pub struct Cluster {
    api: Arc<dyn Api>,
    id: Arc<OnceLock<ClusterId>>,
}

/// A snapshot, as a list has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedSnapshot {
    /// Its volume's id.
    pub volume: u64,
    /// Which one of that volume's.
    pub epoch: Epoch,
    /// Its own.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Milliseconds since 1970.
    pub created_unix_ms: u64,
}

type Said<T> = Result<T, Failure>;

impl Cluster {
    /// By this way.
    pub fn new(api: Arc<dyn Api>) -> Cluster {
        Cluster { api, id: Arc::default() }
    }

    fn ask<T: DeserializeOwned>(&self, method: Method, path: &str, body: &impl Serialize) -> Said<T> {
        let body = serde_json::to_value(body).map_err(|error| Failure::internal(error.to_string()))?;
        let said = self.api.ask(method, path, &body)?;
        serde_json::from_value(said).map_err(|error| Failure::internal(format!("a server's answer to {path}: {error}")))
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> Said<T> {
        self.ask(Method::Get, path, &Value::Null)
    }

    /// The cluster's id, which never changes.
    pub fn id(&self) -> Said<ClusterId> {
        match self.id.get() {
            Some(id) => Ok(*id),
            None => {
                let cluster: ClusterInfo = self.get(route::CLUSTER)?;
                Ok(*self.id.get_or_init(|| cluster.id))
            }
        }
    }

    /// All volumes, by name.
    pub fn volumes(&self) -> Said<Vec<VolumeInfo>> {
        self.get(route::VOLUMES)
    }

    /// By its name, or what stands for it.
    pub fn volume(&self, name: &str) -> Said<VolumeInfo> {
        self.get(&path(route::VOLUME, name))
    }

    /// All pools.
    pub fn pools(&self) -> Said<Vec<PoolInfo>> {
        self.get(route::POOLS)
    }

    /// All servers.
    pub fn servers(&self) -> Said<Vec<ServerInfo>> {
        self.get(route::SERVERS)
    }

    /// Makes a volume.
    pub fn create_volume(&self, volume: &CreateVolume) -> Said<VolumeInfo> {
        self.ask(Method::Post, route::VOLUMES, volume)
    }

    /// Holds what is asked for of a volume to so much.
    pub fn limit(&self, volume: &VolumeHandle, limits: &Limits) -> Said<VolumeInfo> {
        self.ask(Method::Post, &path(route::VOLUME_LIMITS, &volume.by_id()), limits)
    }

    /// Makes a volume of what a snapshot holds.
    pub fn clone_snapshot(&self, snapshot: &str, name: &str) -> Said<VolumeInfo> {
        self.ask(Method::Post, &path(route::SNAPSHOT_CLONE, snapshot), &CloneSnapshot { name: name.to_owned() })
    }

    /// Makes a volume longer.
    pub fn grow(&self, volume: &VolumeHandle, size: u64) -> Said<VolumeInfo> {
        let asked = ResizeVolume { size, shrink: false, force: false, replica_of: None, import: None };
        self.ask(Method::Post, &path(route::VOLUME_RESIZE, &volume.by_id()), &asked)
    }

    /// Gives a volume another name.
    pub fn rename(&self, volume: &VolumeHandle, new_name: String) -> Said<VolumeInfo> {
        self.ask(Method::Post, &path(route::VOLUME_RENAME, &volume.by_id()), &RenameVolume { new_name })
    }

    /// Removes a volume that has no snapshots, and that nobody uses.
    pub fn remove_volume(&self, volume: &VolumeHandle) -> Said<()> {
        let _: Removal = self.ask(Method::Delete, &path(route::VOLUME, &volume.by_id()), &Value::Null)?;
        Ok(())
    }

    /// Whether drives hold anything of a volume.
    pub fn has_data(&self, volume: &VolumeHandle, size: u64) -> Said<bool> {
        let mut offset = 0;
        while offset < size {
            let route = path(route::VOLUME_MAP, &volume.by_id());
            // Where anything is, its beginning mostly is.
            let length = if offset == 0 { size.min(BEGINNING) } else { size - offset };
            let runs: Vec<MapRun> = self.get(&format!("{route}?offset={offset}&length={length}"))?;
            if runs.iter().any(|run| run.mapped) {
                return Ok(true);
            }
            match runs.iter().map(|run| run.length).sum::<u64>() {
                0 => return Err(Failure::internal("a server says nothing of what a volume holds")),
                length => offset += length,
            }
        }
        Ok(false)
    }

    /// Makes a snapshot of a volume.
    pub fn create_snapshot(&self, of: &VolumeHandle, name: &str) -> Said<SnapshotInfo> {
        self.ask(Method::Post, route::SNAPSHOTS, &CreateSnapshot { volume: of.by_id(), name: name.to_owned() })
    }

    /// By what stands for its name.
    pub fn snapshot(&self, snapshot: &SnapshotHandle) -> Said<SnapshotInfo> {
        self.get(&format!("{}?count=false", path(route::SNAPSHOT, &snapshot.by_id())))
    }

    /// Removes a snapshot that nobody reads.
    pub fn remove_snapshot(&self, snapshot: &SnapshotHandle) -> Said<()> {
        let _: SnapshotRemoval = self.ask(Method::Delete, &path(route::SNAPSHOT, &snapshot.by_id()), &Value::Null)?;
        Ok(())
    }

    /// Those that are called so, or all; the oldest volume's first, and of that the oldest.
    pub fn snapshots(&self, called: Option<&str>) -> Said<Vec<ListedSnapshot>> {
        // Names have no quotes: see `names`.
        let only = called.map_or_else(String::new, |name| format!("and s.name = '{name}'"));
        let query = format!(
            "select s.volume, s.epoch, s.name, s.size, s.created_unix_ms from snapshots s join volumes v on v.id = s.volume \
             where v.state = 'active' {only} order by s.volume, s.epoch"
        );
        let said: SqlRows = self.ask(Method::Post, route::SQL, &SqlQuery { query })?;
        let row = |row: &Vec<Value>| {
            let number = |at: usize| row.get(at)?.as_u64().or_else(|| row.get(at)?.as_str()?.parse().ok());
            Some(ListedSnapshot {
                volume: number(0)?,
                epoch: number(1)?.try_into().ok()?,
                name: row.get(2)?.as_str()?.to_owned(),
                size: number(3)?,
                created_unix_ms: number(4)?,
            })
        };
        let rows: Option<Vec<ListedSnapshot>> = said.rows.iter().map(row).collect();
        rows.ok_or_else(|| Failure::internal("a server's list of snapshots is not as expected"))
    }

    /// Has one holder alone use a volume. `take`: whoever has it or uses it is cut off.
    pub fn reserve(&self, volume: &VolumeHandle, holder: &str, take: bool) -> Said<()> {
        let asked = Reserve { holder: holder.to_owned(), take };
        let _: Done = self.ask(Method::Post, &path(route::VOLUME_RESERVATION, &volume.by_id()), &asked)?;
        Ok(())
    }

    /// Cuts off that holder; it's nobody's then.
    pub fn release(&self, volume: &VolumeHandle, holder: &str) -> Said<()> {
        let route = path(route::VOLUME_RESERVATION, &volume.by_id());
        let _: Done = self.ask(Method::Delete, &format!("{route}?from={holder}"), &json!({}))?;
        Ok(())
    }

    /// Who is known.
    pub fn identities(&self) -> Said<Vec<IdentityInfo>> {
        self.get(route::IDENTITIES)
    }

    /// Who may use a volume.
    pub fn rights(&self, volume: &VolumeHandle) -> Said<Vec<RightInfo>> {
        self.get(&path(route::VOLUME_RIGHTS, &volume.by_id()))
    }

    /// Lets somebody use a volume.
    pub fn grant(&self, volume: &VolumeHandle, to: &str, right: Right) -> Said<()> {
        let asked = Grant { to: to.to_owned(), right };
        let _: Done = self.ask(Method::Post, &path(route::VOLUME_RIGHTS, &volume.by_id()), &asked)?;
        Ok(())
    }

    /// Nothing is written by that right any more when this returns.
    pub fn withdraw(&self, volume: &VolumeHandle, from: &str) -> Said<()> {
        let route = path(route::VOLUME_RIGHTS, &volume.by_id());
        let _: Done = self.ask(Method::Delete, &format!("{route}?to={from}"), &Value::Null)?;
        Ok(())
    }
}
