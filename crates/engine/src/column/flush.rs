//! Flushing: all acknowledged data is stable on every copy that is here, or the client is told.

use super::Group;
use super::members::Presence;
use crate::holder::Holder;
use crate::volume::Volume;
use futures_channel::oneshot;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::sync::Arc;
use tepal_drive::Loss;
use tepal_drive::world::World;
use tepal_model::{DriveId, IoError, VolumeId};

/// Lost unflushed data. Every flush that was asked for before one reported a loss must report the loss too.
#[derive(Debug, Default)]
pub(crate) struct LostUnflushed {
    times: u64,
    /// How many losses a flush of each volume has reported.
    said: BTreeMap<VolumeId, u64>,
    reason: String,
}

impl LostUnflushed {
    pub fn add(&mut self, reason: String) {
        self.times += 1;
        self.reason = reason;
    }

    /// A new clone has lost nothing yet.
    pub fn begin_with(&mut self, volumes: impl Iterator<Item = VolumeId>) {
        for volume in volumes {
            self.said.entry(volume).or_insert(self.times);
        }
    }

    fn said(&self, volume: VolumeId) -> u64 {
        self.said.get(&volume).copied().unwrap_or(0)
    }

    /// The loss that a flush of a volume must report, if it began when `said_before` losses had been reported.
    fn say(&mut self, volume: VolumeId, said_before: u64) -> Option<String> {
        self.said.insert(volume, self.times);
        (self.times > said_before).then(|| self.reason.clone())
    }
}

enum Plan<W: World> {
    /// The drives that are here.
    Go(Vec<Holder<W>>),
    /// A drive is leaving, or away with data that must be flushed.
    Wait(oneshot::Receiver<()>),
    Refuse(IoError),
}

impl<W: World> Volume<W> {
    /// Returns when all acknowledged data is on stable media, on each copy that is here. Waits while a drive leaves, or
    /// is away with data that no other drive has. `Unavailable` if some of the data was lost before it was stable: the
    /// flushes under way then report the loss, later ones don't.
    pub async fn flush(&self) -> Result<(), IoError> {
        // Volumes on several servers acknowledge only stable data.
        let groups: Vec<Group<W>> = self.groups().into_iter().filter(|group| group.shared.view == 0).collect();
        let said: Vec<u64> = groups.iter().map(|group| group.lock().unflushed.lost.said(self.id())).collect();
        loop {
            let mut drives = BTreeMap::new();
            let (mut waits, mut refused) = (None, None);
            // Every group is asked: a loss that a group reports once, this flush reports for all groups.
            for (group, &said) in groups.iter().zip(&said) {
                match group.plan_flush(self.id(), said) {
                    // The group has been shared meanwhile, for which all of its data was flushed.
                    Plan::Refuse(IoError::Fenced) if self.is_among() && !self.is_cut_off() => {}
                    Plan::Go(here) => drives.extend(here.into_iter().map(|drive| (drive.id(), drive))),
                    Plan::Refuse(error) => refused = refused.or(Some(error)),
                    Plan::Wait(change) => waits = waits.or(Some(change)),
                }
            }
            if let Some(error) = refused {
                return Err(error);
            }
            if let Some(change) = waits {
                let _ = change.await; // dropped unsent only when the volume goes
                continue;
            }
            let lost = flush_all(drives.into_values().collect()).await;
            if lost.is_empty() {
                return Ok(());
            }
            groups[0].lose(lost).await;
        }
    }
}

impl<W: World> Group<W> {
    /// How often unflushed data was lost.
    pub fn times_lost(&self) -> u64 {
        self.lock().unflushed.lost.times
    }

    /// The reason of the last loss, if there were more than `before`.
    pub fn lost_since(&self, before: u64) -> Option<String> {
        let state = self.lock();
        let lost = &state.unflushed.lost;
        (lost.times > before).then(|| lost.reason.clone())
    }

    fn plan_flush(&self, volume: VolumeId, said: u64) -> Plan<W> {
        let mut state = self.lock();
        if let Err(error) = state.serves_volume(volume) {
            return Plan::Refuse(error);
        }
        if let Some(reason) = state.unflushed.lost.say(volume, said) {
            return Plan::Refuse(IoError::Unavailable { reason });
        }
        state.forget_what_others_have();
        let leaving =
            state.members.list.iter().any(|member| matches!(member.presence, Presence::Leaving | Presence::Unheard));
        if leaving || !state.unflushed.alone.is_empty() {
            return Plan::Wait(Group::next_change(&mut state));
        }
        Plan::Go(state.members.here().cloned().collect())
    }
}

/// Flushes drives. Returns the drives that the flush found lost, or that were lost before.
pub(crate) async fn flush_all<W: World>(drives: Vec<Holder<W>>) -> Vec<(DriveId, Arc<Loss>)> {
    let outcomes = join_all(drives.iter().map(Holder::flush)).await;
    drives.iter().zip(outcomes).filter_map(|(drive, outcome)| outcome.err().map(|loss| (drive.id(), loss))).collect()
}
