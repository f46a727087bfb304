//! A volume and its replica: the two sides, and what both have.

use super::ReplicateError;
use crate::client::{Client, ClientError};
use crate::command::CommandError;
use crate::output;
use std::time::{SystemTime, UNIX_EPOCH};
use tepal_codec::checksum::crc;
use tepal_model::Epoch;
use tepal_server::api::types::{ClusterInfo, CreateVolume, Follow, ReplicaOf, SnapshotInfo, VolumeInfo, path, route};

/// Connections to each of the two clusters that are kept.
pub const CONNECTIONS: usize = 8;

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// How a replica is made.
pub struct NewReplica {
    pub layout: Option<String>,
    pub pool: Option<String>,
    pub key: Option<String>,
    /// An encrypted volume may have one that isn't.
    pub plain: bool,
}

/// A volume of a cluster, as it was when it was last looked at.
pub struct Side {
    pub client: Client,
    pub cluster: ClusterInfo,
    pub volume: VolumeInfo,
}

impl Side {
    pub fn find(client: Client, name: &str) -> Result<Self, ClientError> {
        let volume = client.get(&path(route::VOLUME, name))?;
        Ok(Side { cluster: client.get(route::CLUSTER)?, volume, client })
    }

    pub fn look(&mut self) -> Result<(), ClientError> {
        self.volume = self.client.get(&path(route::VOLUME, &self.volume.by_id()))?;
        Ok(())
    }

    pub fn of(&self) -> ReplicaOf {
        ReplicaOf { cluster: self.cluster.id, volume_id: self.volume.id }
    }

    pub fn there(&self) -> String {
        there(&self.client, &self.cluster)
    }

    /// The volume as people call it from elsewhere.
    pub fn called(&self) -> String {
        format!("volume '{}' of {}", self.volume.name, self.there())
    }

    pub fn snapshot_of_epoch(&self, epoch: Epoch) -> Option<&SnapshotInfo> {
        self.volume.snapshots.iter().find(|snapshot| snapshot.epoch == epoch)
    }
}

fn there(client: &Client, cluster: &ClusterInfo) -> String {
    format!("cluster '{}' at {}", cluster.name, client.servers().join(","))
}

pub struct Link {
    pub source: Side,
    pub target: Side,
}

impl Link {
    /// The replica is made if there is none.
    pub fn new(
        (source, volume): (Client, &str),
        (target, called): (Client, &str),
        new: NewReplica,
    ) -> Result<Self, CommandError> {
        let source = Side::find(source.keeping(CONNECTIONS), volume)?;
        let target = target.keeping(CONNECTIONS);
        let (found, is_new): (VolumeInfo, bool) = match target.get(&path(route::VOLUME, called)) {
            Err(error) if error.is_not_found() => {
                let size = source.volume.size;
                let NewReplica { layout, pool, key, plain } = new;
                if source.volume.key.is_some() && key.is_none() && !plain {
                    return Err(ReplicateError::Plain(volume.to_owned()).into());
                }
                let create = CreateVolume { name: called.to_owned(), size, layout, pool, key, plain, import: None };
                (target.create(route::VOLUMES, &create)?, true)
            }
            found => (found?, false),
        };
        let target = Side { cluster: target.get(route::CLUSTER)?, volume: found, client: target };
        let mut link = Link { source, target };
        if link.source.of() == link.target.of() {
            return Err(ReplicateError::Itself(volume.to_owned()).into());
        }
        // The server that made it doesn't know of others' drives.
        if link.target.volume.replica.is_none() && (is_new || is_blank(&link.target.volume)) {
            let (of, called) = (link.source.of(), link.source.called());
            let follow = Follow { of, called, base: None, force: false };
            let path = path(route::VOLUME_FOLLOW, &link.target.volume.by_id());
            link.target.volume = link.target.client.post_repeatable(&path, &follow)?;
        }
        link.check()?;
        Ok(link)
    }

    /// Whether the target follows the source.
    pub fn check(&self) -> Result<(), CommandError> {
        let (of, target) = (self.source.of(), &self.target.volume);
        let (name, there) = (target.name.clone(), self.target.there());
        let error = match &target.replica {
            Some(replica) if replica.of == of => return Ok(()),
            Some(replica) => ReplicateError::OfOther { name, there, source_name: replica.called.clone() },
            None if target.snapshots.iter().any(|it| it.copy_of.is_some_and(|copy| copy.of == of)) => {
                let address = self.target.client.servers().join(",");
                let (source_name, volume) = (self.source.called(), self.source.volume.name.clone());
                let own = self.source.client.servers().join(",");
                ReplicateError::Promoted { name, there, source_name, volume, address, own }
            }
            None => ReplicateError::Taken { name, there },
        };
        Err(error.into())
    }

    /// The newest snapshot that both have, as each has it.
    pub fn common(&self) -> Option<(SnapshotInfo, SnapshotInfo)> {
        common(&self.source, &self.target)
    }

    /// Begins the names of snapshots that are made for this pair of volumes, whichever of them is the source.
    pub fn prefix(&self) -> String {
        let mut both = [self.source.of().to_string(), self.target.of().to_string()];
        both.sort();
        format!("replica-{:08x}-", crc(both.join("+").as_bytes()))
    }

    /// The name of one that is made now.
    pub fn name_now(&self) -> String {
        let ms = now_ms();
        let time: String = output::time(ms).chars().filter(|c| !"-:".contains(*c)).collect();
        format!("{}{}.{:03}Z", self.prefix(), time.replace(' ', "T"), ms % 1000)
    }
}

/// Nobody has written to it, or kept something of it, as far as drives say, which all have to be there.
fn is_blank(volume: &VolumeInfo) -> bool {
    let is_new = volume.revision == 1 && volume.epoch == 1;
    is_new
        && volume.uncounted_drives.is_empty()
        && volume.allocated == 0
        && volume.snapshots.is_empty()
        && volume.incomplete.is_none()
}

pub fn common(source: &Side, target: &Side) -> Option<(SnapshotInfo, SnapshotInfo)> {
    let (of_source, of_target) = (source.of(), target.of());
    let mut newest_first: Vec<&SnapshotInfo> = target.volume.snapshots.iter().collect();
    newest_first.sort_by_key(|snapshot| std::cmp::Reverse(snapshot.epoch));
    newest_first.into_iter().find_map(|there| {
        let is_same = |here: &&SnapshotInfo| are_same((here, of_source), (there, of_target));
        source.volume.snapshots.iter().find(is_same).map(|here| (here.clone(), there.clone()))
    })
}

/// Whether one is a copy of the other, or both are of a third. A snapshot that only has the other's name is another one; and one that was
/// given another name isn't looked for.
fn are_same((one, of_one): (&SnapshotInfo, ReplicaOf), (other, of_other): (&SnapshotInfo, ReplicaOf)) -> bool {
    let ids = |it: &SnapshotInfo, of| [Some((of, it.epoch)), it.copy_of.map(|copy| (copy.of, copy.epoch))];
    let (of_one, of_other) = (ids(one, of_one), ids(other, of_other));
    let is_shared = of_one.iter().flatten().any(|id| of_other.iter().flatten().any(|other| other == id));
    is_shared && one.name == other.name && one.size == other.size
}

#[cfg(test)]
mod tests {
    use super::*;
    use tepal_model::ClusterId;
    use tepal_server::api::types::CopyOf;

    fn snapshot(name: &str, epoch: Epoch, copy_of: Option<CopyOf>) -> SnapshotInfo {
        let text = format!(
            r#"{{"volume": "v", "volume_id": 1, "name": "{name}", "epoch": {epoch}, "size": 4096, "created_unix_ms": 0}}"#
        );
        SnapshotInfo { copy_of, ..serde_json::from_str(&text).expect("readable") }
    }

    #[test]
    fn only_a_copy_is_taken_for_the_same_snapshot() {
        let [here, there, third] = [1, 2, 3].map(|id| ReplicaOf { cluster: ClusterId(id), volume_id: 7 });
        let copy = |of, epoch| Some(CopyOf { of, epoch, taken_unix_ms: 5 });
        let original = snapshot("a", 4, None);
        let same = |other: &SnapshotInfo| are_same((&original, here), (other, there));
        assert!(same(&snapshot("a", 9, copy(here, 4))));
        assert!(!same(&snapshot("a", 4, None)), "it only has the name");
        assert!(!same(&snapshot("a", 9, copy(here, 5))) && !same(&snapshot("a", 9, copy(third, 4))));
        assert!(!same(&snapshot("b", 9, copy(here, 4))), "it was given another name");
        assert!(!same(&SnapshotInfo { size: 8192, ..snapshot("a", 9, copy(here, 4)) }));
        // And the other way round, and by way of a third.
        assert!(are_same((&snapshot("a", 9, copy(there, 4)), here), (&original, there)));
        assert!(are_same((&snapshot("a", 9, copy(third, 2)), here), (&snapshot("a", 8, copy(third, 2)), there)));
    }
}
