//! Under which conditions a command is carried out that somebody asks for: once for each key, and only while a thing is as he saw it.
//! Both are looked at where the command is applied, so that nothing comes between.

use crate::realm::Scope;
use crate::schedule::ScheduleRecord;
use crate::state::State;
use serde::{Deserialize, Serialize};
use tepal_codec::checksum::crc;
use tepal_model::{DriveId, Epoch, VolumeId};

/// A thing that several people may change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Versioned {
    /// A volume's record.
    Volume(VolumeId),
    /// Who may do what with a volume.
    Rights(VolumeId),
    /// What a schedule does, by its name.
    Schedule(String),
    /// What operators want with a drive, and what they call it.
    Drive(DriveId),
    /// A volume's snapshot, by its epoch.
    Snapshot(VolumeId, Epoch),
    /// What a pool gives its volumes, by its name.
    Pool(String),
    /// Who may do what with all volumes of a pool, by its name.
    PoolRights(String),
    /// Who may do what with all volumes.
    ClusterRights,
}

impl State {
    /// Another one after each change of the thing; `None` if there is no such thing. Servers agree on it, so how it's made stays the same.
    pub fn tag_of(&self, thing: &Versioned) -> Option<String> {
        match thing {
            Versioned::Volume(id) => Some(volume_tag(*id, self.volumes.get(id)?.revision)),
            Versioned::Rights(id) => {
                self.volumes.get(id)?;
                let grants = self.access.grants_of(*id);
                let text: String = grants.map(|grant| format!("{} {}\n", grant.to, grant.right)).collect();
                Some(format!("\"r{}-{:08x}\"", id.0, crc(text.as_bytes())))
            }
            Versioned::Schedule(name) => self.schedules.named(name).map(|schedule| schedule_tag(schedule)),
            Versioned::Drive(id) => {
                let drive = self.drives.get(id)?;
                Some(tag(&format!("d{id}"), &(&drive.name, drive.purpose, &drive.pool)))
            }
            Versioned::Snapshot(volume, epoch) => {
                let snapshot = self.snapshots_of(*volume).find(|snapshot| snapshot.epoch == *epoch)?;
                Some(tag(&format!("n{}-{epoch}", volume.0), &snapshot.name))
            }
            Versioned::Pool(name) => {
                let pool = self.pools.get(name)?;
                let key = self.access.pool_keys.get(name).map(|record| &record.key);
                let layout = pool.layout.as_ref().map(ToString::to_string);
                Some(tag("p", &(name, layout, key)))
            }
            Versioned::PoolRights(name) => {
                self.pools.get(name)?;
                Some(self.scope_tag(&Scope::Pool(name.clone())))
            }
            Versioned::ClusterRights => Some(self.scope_tag(&Scope::Cluster)),
        }
    }

    fn scope_tag(&self, scope: &Scope) -> String {
        let grants: Vec<_> = self.access.grants_on(scope).map(|grant| (&grant.to, grant.right)).collect();
        tag("g", &(scope.to_string(), grants))
    }
}

/// The tag of a volume that has this revision.
pub fn volume_tag(id: VolumeId, revision: u64) -> String {
    format!("\"v{}-{revision}\"", id.0)
}

/// Of what a schedule is to do, and not of what it has done.
fn schedule_tag(schedule: &ScheduleRecord) -> String {
    tag(&format!("s{}", schedule.id), &(&schedule.name, &schedule.work, schedule.paused))
}

fn tag(of: &str, content: &impl Serialize) -> String {
    let text = serde_json::to_string(content).unwrap_or_default();
    format!("\"{of}-{:08x}\"", crc(text.as_bytes()))
}
