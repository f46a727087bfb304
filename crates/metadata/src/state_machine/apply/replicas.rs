//! Volumes that follow a volume of another cluster. Which snapshots both have is known by what the replica's copies say of their originals.
//!
//! Invariant: a replica that is whole holds what it held as an ordinary volume, or what its newest copy does; only replication changes it.
//! A part of a snapshot makes it incomplete, until that is whole or given up.

use super::{Draft, clipped};
use crate::command::{Command, Reply};
use crate::record::{BY_ID, CopyRecord, ImportRecord, ReplicaRecord, ReplicaSource, SnapshotRecord, VolumeRecord};
use crate::refusal::Refusal;
use tepal_model::Epoch;

impl Draft {
    /// Of commands about replicas; others are refused.
    pub(super) fn carry_out_of_replica(&mut self, command: &Command) -> Result<Reply, Refusal> {
        match command {
            Command::Follow { name, source, called, base } => self.follow(name, *source, called, *base),
            Command::Promote { name, force } => self.promote(name, *force),
            Command::Receive { name, source, import, base, before, epoch, done } => {
                self.receive(name, *source, (*import, *base, *before), (*epoch, *done))
            }
            Command::Received { name, import, snapshot, taken_unix_ms } => {
                self.received(name, *import, snapshot, *taken_unix_ms)
            }
            Command::NoteReplica { name, source, as_of_unix_ms } => self.note_replica(name, *source, *as_of_unix_ms),
            Command::Replicated { source, import, command } => self.replicated(*source, *import, command),
            _ => Err(Refusal::NotReplicated),
        }
    }

    fn follow(
        &mut self,
        name: &str,
        source: ReplicaSource,
        called: &str,
        base: Option<Epoch>,
    ) -> Result<Reply, Refusal> {
        let mut volume = self.volume(name)?;
        if let Some(replica) = volume.replica.as_ref().filter(|replica| replica.source != source) {
            return Err(other(&volume.name, replica));
        }
        if source.volume.0 > i64::MAX as u64 {
            return Err(Refusal::NoVolumeId(source.volume));
        }
        self.check_not_live(&volume)?;
        if volume.replica.is_none() && volume.import.is_some() {
            return Err(Refusal::Incomplete(name.to_owned()));
        }
        let called = clipped(called, 400);
        let text = format!("is a replica of {called} from now on");
        match &mut volume.replica {
            Some(replica) => replica.called = called,
            None => {
                let found = base.map(|base| self.snapshot(&volume, &format!("{BY_ID}{base}"))).transpose()?;
                let made = |it: &SnapshotRecord| it.copy_of.map_or(it.created_unix_ms, |copy| copy.unix_ms);
                let as_of_unix_ms = found.as_ref().map_or(0, made);
                volume.replica = Some(ReplicaRecord { source, called, as_of_unix_ms, receives: None, base });
            }
        }
        volume.revision += 1;
        self.put_volume(volume);
        self.next_view(); // when nobody acts by an earlier one, nobody writes to it any more
        self.event("volume", name, text);
        Ok(Reply::Done)
    }

    /// What it has received of a snapshot that isn't whole is nothing that its source lacks, and no state that the source ever had.
    fn promote(&mut self, name: &str, force: bool) -> Result<Reply, Refusal> {
        let volume = self.volume(name)?;
        let Some(replica) = volume.replica.clone() else { return Err(Refusal::NoReplica(name.to_owned())) };
        let whole = replica.base.and_then(|base| self.snapshot(&volume, &format!("{BY_ID}{base}")).ok());
        let reply = match (volume.import, whole) {
            (None, _) => Reply::Done,
            (Some(_), Some(whole)) => {
                self.replicates = true;
                self.roll_back(name, &whole.name)?
            }
            (Some(_), None) if force => Reply::Done,
            (Some(_), None) => return Err(Refusal::NothingWhole(name.to_owned())),
        };
        let mut volume = self.volume(name)?;
        volume.replica = None;
        if let Some(import) = &mut volume.import {
            import.id = 0; // who wrote it writes no more
        }
        self.revise(volume);
        self.event("volume", name, format!("promoted: it was a replica of {}", replica.called));
        Ok(reply)
    }

    /// Two may have planned a round from the same state: what the second one leaves out, as the replica had it then, the first one may have
    /// changed since.
    fn receive(
        &mut self,
        name: &str,
        source: ReplicaSource,
        (import, base, before): (u64, Option<Epoch>, Option<u64>),
        (epoch, done): (Epoch, u64),
    ) -> Result<Reply, Refusal> {
        let mut volume = self.replica_of(name, source)?;
        let own = volume.import.map(|own| own.id);
        let goes_on = own == Some(import);
        let is_that = |copy: CopyRecord| (copy.source, copy.epoch) == (source, epoch);
        let has_it = self.state.snapshots_of(volume.id).any(|snapshot| snapshot.copy_of.is_some_and(is_that));
        let changed = || Refusal::ImportChanged(name.to_owned());
        let replica = volume.replica.as_mut().filter(|replica| replica.base == base).ok_or_else(changed)?;
        if has_it || !(goes_on && replica.receives == Some(epoch) || !goes_on && own == before) {
            return Err(changed());
        }
        replica.receives = Some(epoch);
        volume.import = Some(ImportRecord { id: import.min(i64::MAX as u64), done: done.min(volume.size) });
        match goes_on {
            true => self.put_volume(volume),
            false => self.revise(volume), // nothing that an earlier one has under way is written any more
        }
        Ok(Reply::Done)
    }

    fn received(&mut self, name: &str, import: u64, snapshot: &str, taken_unix_ms: u64) -> Result<Reply, Refusal> {
        let mut volume = self.volume(name)?;
        let Some(replica) = &mut volume.replica else { return Err(Refusal::NoReplica(name.to_owned())) };
        let receives = replica.receives.filter(|_| volume.import.is_some_and(|own| own.id == import));
        let Some(epoch) = receives else { return Err(Refusal::ImportChanged(name.to_owned())) };
        let unix_ms = taken_unix_ms.min(i64::MAX as u64);
        (replica.receives, replica.as_of_unix_ms) = (None, replica.as_of_unix_ms.max(unix_ms));
        replica.base = Some(volume.epoch);
        let copy_of = CopyRecord { source: replica.source, epoch, unix_ms };
        volume.import = None;
        volume.revision += 1;
        self.keep_as_snapshot(volume, snapshot, Some(copy_of))
    }

    fn note_replica(&mut self, name: &str, source: ReplicaSource, as_of_unix_ms: u64) -> Result<Reply, Refusal> {
        let mut volume = self.replica_of(name, source)?;
        let is_whole = volume.import.is_none();
        if let Some(replica) = volume.replica.as_mut().filter(|replica| is_whole && replica.as_of_unix_ms > 0) {
            replica.as_of_unix_ms = replica.as_of_unix_ms.max(as_of_unix_ms.min(i64::MAX as u64));
            self.put_volume(volume);
        }
        Ok(Reply::Done)
    }

    fn replicated(&mut self, source: ReplicaSource, import: Option<u64>, command: &Command) -> Result<Reply, Refusal> {
        let is_allowed =
            matches!(command, Command::ResizeVolume { .. } | Command::RollBack { .. } | Command::RemoveSnapshot { .. });
        let name = command.clone().subject().filter(|_| is_allowed).map(|subject| subject.volume.clone());
        let Some(name) = name else { return Err(Refusal::NotReplicated) };
        let own = self.replica_of(&name, source)?.import.map(|own| own.id);
        if matches!(command, Command::ResizeVolume { .. }) && (import.is_none() || own != import) {
            return Err(Refusal::ImportChanged(name));
        }
        self.replicates = true;
        self.carry_out(command)
    }

    fn replica_of(&self, name: &str, source: ReplicaSource) -> Result<VolumeRecord, Refusal> {
        let volume = self.volume(name)?;
        match &volume.replica {
            None => Err(Refusal::NoReplica(name.to_owned())),
            Some(replica) if replica.source != source => Err(other(name, replica)),
            Some(_) => Ok(volume),
        }
    }

    /// Whether anybody may change what the volume holds.
    pub(super) fn check_not_replica(&self, volume: &VolumeRecord) -> Result<(), Refusal> {
        match &volume.replica {
            Some(replica) if !self.replicates => {
                Err(Refusal::IsReplica { name: volume.name.clone(), source_name: replica.called.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Whether the snapshot isn't one by which a replica goes on.
    pub(super) fn check_not_needed(&self, volume: &VolumeRecord, snapshot: &SnapshotRecord) -> Result<(), Refusal> {
        let is_needed = |replica: &ReplicaRecord| {
            replica.base == Some(snapshot.epoch) || snapshot.copy_of.is_some_and(|copy| copy.source == replica.source)
        };
        match &volume.replica {
            Some(replica) if is_needed(replica) => self.check_not_replica(volume),
            _ => Ok(()),
        }
    }
}

fn other(name: &str, replica: &ReplicaRecord) -> Refusal {
    Refusal::OtherReplica { name: name.to_owned(), source_name: replica.called.clone() }
}
