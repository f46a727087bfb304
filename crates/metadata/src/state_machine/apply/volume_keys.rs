//! The keys of encrypted volumes, wrapped by keys that the cluster doesn't have.
//!
//! Invariant: a volume is encrypted from its creation on, or never; and its key is the same for as long as the volume is there. A clone has
//! its origin's, as both have the same bytes on drives. Without the record of its key, nobody ever reads a volume again: so a removal
//! begins with that.

use super::{Draft, check_name};
use crate::access::{LONGEST_WRAPPED, VolumeKeyRecord};
use crate::command::{Command, Reply};
use crate::refusal::{Refusal, Thing};
use crate::state_machine::access::AccessChange;
use std::sync::Arc;
use tepal_model::VolumeId;

impl Draft {
    /// Of commands about volumes' keys; others are refused.
    pub(super) fn carry_out_of_volume_keys(&mut self, command: &Command) -> Result<Reply, Refusal> {
        match command {
            Command::CreateEncrypted { name, size, layout, pool, key, wrapped } => {
                check_wrapped(key, wrapped)?;
                let created = self.create_volume(name, *size, layout.as_deref(), pool)?;
                if let Reply::VolumeCreated { id, .. } = created {
                    self.put_key(VolumeKeyRecord { volume: id, key: key.clone(), wrapped: wrapped.clone() });
                }
                self.event("volume", name, format!("encrypted; its key is wrapped by key '{key}'"));
                Ok(created)
            }
            Command::RewrapKey { volume, key, wrapped, before } => {
                check_wrapped(key, wrapped)?;
                let record = self.volume(volume)?;
                let known = self.state.access.volume_keys.get(&record.id);
                let known = known.ok_or_else(|| Refusal::NotEncrypted(record.name.clone()))?;
                if known.wrapped != *before && known.wrapped != *wrapped {
                    return Err(Refusal::KeyChanged(record.name.clone()));
                }
                let text = format!("its key is wrapped by key '{key}', not by '{}' any more", known.key);
                self.put_key(VolumeKeyRecord { volume: record.id, key: key.clone(), wrapped: wrapped.clone() });
                self.event("volume", &record.name, text);
                Ok(Reply::Done)
            }
            _ => Err(Refusal::NoAuthority),
        }
    }

    fn put_key(&mut self, record: VolumeKeyRecord) {
        let record = Arc::new(record);
        self.access().volume_keys.insert(record.volume, record.clone());
        self.note(AccessChange::VolumeKey(record));
    }

    /// A clone has its origin's key.
    pub(super) fn share_key(&mut self, origin: VolumeId, clone: VolumeId) {
        if let Some(record) = self.state.access.volume_keys.get(&origin) {
            self.put_key(VolumeKeyRecord { volume: clone, ..VolumeKeyRecord::clone(record) });
        }
    }

    /// Nobody ever reads the volume again.
    pub(super) fn drop_key_of(&mut self, volume: VolumeId) {
        if self.state.access.volume_keys.contains_key(&volume) {
            self.access().volume_keys.remove(&volume);
            self.note(AccessChange::VolumeKeyGone(volume));
        }
    }
}

fn check_wrapped(key: &str, wrapped: &str) -> Result<(), Refusal> {
    check_name(Thing::Key, key)?;
    let is_hexadecimal = wrapped.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    if wrapped.is_empty() || wrapped.len() > LONGEST_WRAPPED || !is_hexadecimal {
        return Err(Refusal::WrappedKey { limit: LONGEST_WRAPPED });
    }
    Ok(())
}
