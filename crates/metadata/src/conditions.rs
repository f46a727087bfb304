//! Under which conditions a command is carried out that somebody asks for: once for each key, and only while a thing is as he saw it.
//! Both are looked at where the command is applied, so that nothing comes between.

use crate::schedule::ScheduleRecord;
use crate::state::State;
use serde::{Deserialize, Serialize};
use tepal_codec::checksum::crc;
use tepal_model::VolumeId;

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
        }
    }
}

/// The tag of a volume that has this revision.
pub fn volume_tag(id: VolumeId, revision: u64) -> String {
    format!("\"v{}-{revision}\"", id.0)
}

/// Of what a schedule is to do, and not of what it has done.
fn schedule_tag(schedule: &ScheduleRecord) -> String {
    let rules = serde_json::to_string(&(&schedule.name, &schedule.work, schedule.paused)).unwrap_or_default();
    format!("\"s{}-{:08x}\"", schedule.id, crc(rules.as_bytes()))
}
