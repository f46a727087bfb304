//! Volumes that are used while they are imported.
//!
//! Invariants:
//! 1. A volume is imported live from its creation on, or never. What makes it something else than one line of data with one record, a
//!    snapshot or another layout, waits for the end.
//! 2. The bytes that are there for good only become more, in one revision of the volume's record: drives may fail for good.

use super::{Draft, clipped};
use crate::access::{LiveRecord, LiveStage};
use crate::command::{Command, LiveCommand, Reply};
use crate::record::VolumeRecord;
use crate::refusal::Refusal;
use crate::state_machine::access::AccessChange;
use std::sync::Arc;
use tepal_model::VolumeId;

/// Of the address of an export.
const LONGEST_ADDRESS: usize = 4096;

impl Draft {
    pub(super) fn carry_out_of_live_import(&mut self, command: &LiveCommand) -> Result<Reply, Refusal> {
        match command {
            LiveCommand::Import { create, from, length } => self.import_live(create, from, *length),
            LiveCommand::Note { volume, done } => self.note_live(*volume, *done),
            LiveCommand::Finish { volume } => self.finish_live(*volume),
            LiveCommand::Set { name, stage } => self.set_live(name, *stage),
        }
    }

    fn import_live(&mut self, create: &Command, from: &str, length: u64) -> Result<Reply, Refusal> {
        let (Command::CreateVolume { name, size, .. } | Command::CreateEncrypted { name, size, .. }) = create else {
            return Err(Refusal::LiveAddress { limit: LONGEST_ADDRESS });
        };
        if from.is_empty() || from.len() > LONGEST_ADDRESS || length > *size {
            return Err(Refusal::LiveAddress { limit: LONGEST_ADDRESS });
        }
        let reply = self.carry_out(create)?;
        let volume = self.volume(name)?;
        let is_by_gateways = volume.layout.quorum().is_some();
        if !volume.layout.fragments().are_copies() || volume.layout.plexes().is_some() || is_by_gateways {
            return Err(Refusal::LiveLayout(name.clone()));
        }
        let record =
            LiveRecord { volume: volume.id, from: from.to_owned(), length, done: 0, stage: LiveStage::Running };
        self.put_live(record);
        self.event("volume", name, format!("is imported from {} while it's used", clipped(from, 400)));
        Ok(reply)
    }

    fn note_live(&mut self, volume: VolumeId, done: u64) -> Result<Reply, Refusal> {
        let (volume, mut live) = self.live_import(volume)?;
        let done = done.min(volume.size);
        if done > live.done {
            live.done = done;
            self.put_live(live);
        }
        Ok(Reply::Done)
    }

    fn finish_live(&mut self, volume: VolumeId) -> Result<Reply, Refusal> {
        let (volume, live) = self.live_import(volume)?;
        if live.done < volume.size {
            return Err(Refusal::LiveHalfway(volume.name));
        }
        self.drop_live_import_of(volume.id);
        let name = volume.name.clone();
        // Nobody who takes it for one that is imported is served any more.
        self.revise(volume);
        self.event("volume", &name, format!("all of it is there: {} is let go", clipped(&live.from, 400)));
        Ok(Reply::Done)
    }

    fn set_live(&mut self, name: &str, stage: LiveStage) -> Result<Reply, Refusal> {
        let volume = self.volume(name)?;
        let (_, live) = self.live_import(volume.id)?;
        if live.stage == stage {
            return Ok(Reply::Done);
        }
        // A late or repeated `pause` must not have the old place read again.
        if (live.stage, stage) == (LiveStage::Cancelled, LiveStage::Paused) {
            return Err(Refusal::LiveCancelled(volume.name));
        }
        self.put_live(LiveRecord { stage, ..live });
        self.event("volume", name, format!("its live import is {stage}"));
        Ok(Reply::Done)
    }

    /// Some of what was there is lost, and the old place has it: of what its client had written there, as it was before. It's another
    /// revision, or somebody would go by how far the import was. An old place that is let go isn't read any more.
    pub(super) fn copy_anew(&mut self, volume: &VolumeRecord) {
        let live = self.state.access.live_imports.get(&volume.id);
        let Some(live) = live.filter(|live| live.stage != LiveStage::Cancelled) else { return };
        self.put_live(LiveRecord { done: 0, ..LiveRecord::clone(live) });
        self.revise(volume.clone());
    }

    fn live_import(&self, id: VolumeId) -> Result<(VolumeRecord, LiveRecord), Refusal> {
        let volume = self.state.volumes.get(&id).ok_or(Refusal::NoVolumeId(id))?;
        let live = self.state.access.live_imports.get(&id);
        let live = live.ok_or_else(|| Refusal::NotLive(volume.name.clone()))?;
        Ok((VolumeRecord::clone(volume), LiveRecord::clone(live)))
    }

    fn put_live(&mut self, record: LiveRecord) {
        let record = Arc::new(record);
        self.access().live_imports.insert(record.volume, record.clone());
        self.note(AccessChange::LiveImport(record));
    }

    pub(super) fn drop_live_import_of(&mut self, volume: VolumeId) {
        if self.state.access.live_imports.contains_key(&volume) {
            self.access().live_imports.remove(&volume);
            self.note(AccessChange::LiveImportGone(volume));
        }
    }

    /// A volume all of which is in this cluster.
    pub(super) fn whole_volume(&self, name: &str) -> Result<VolumeRecord, Refusal> {
        let volume = self.volume(name)?;
        self.check_not_live(&volume).map(|()| volume)
    }

    /// Whether all of the volume is in this cluster.
    pub(super) fn check_not_live(&self, volume: &VolumeRecord) -> Result<(), Refusal> {
        match self.state.access.live_imports.contains_key(&volume.id) {
            true => Err(Refusal::Live(volume.name.clone())),
            false => Ok(()),
        }
    }
}
