//! Snapshots of volumes, their clones, and what makes a volume go on in a new epoch (section 2.2 of the paper).
//!
//! What is kept of a reader is the epochs that it sees. Which data that is, and who else sees it, is for those who hold the data,
//! by [`State::history_of`](crate::State::history_of).

use super::{Draft, check_name};
use crate::command::{GAPS_CLOSED, ROLLBACKS_NOTED, ROLLBACKS_REVISE, Reply};
use crate::record::{CopyRecord, SnapshotId, SnapshotRecord, VolumeRecord};
use crate::refusal::{Refusal, Thing};
use std::sync::Arc;
use tepal_model::history::{MAX_SPANS, next_epochs};
use tepal_model::size::Size;
use tepal_model::text::shown;
use tepal_model::{Epoch, Lineage, VolumeId};

/// Of a volume and its clones in all, each of which counts for one. Whoever holds their data goes through all of them for each extent.
pub const MAX_SNAPSHOTS: usize = 1024;

impl Draft {
    pub(super) fn create_snapshot(&mut self, volume: &str, name: &str) -> Result<Reply, Refusal> {
        let record = self.volume(volume)?;
        if record.import.is_some() {
            return Err(Refusal::Incomplete(volume.to_owned())); // a part of an image would pass for a whole one
        }
        self.check_not_live(&record)?;
        self.keep_as_snapshot(record, name, None)
    }

    /// What the volume holds now.
    pub(super) fn keep_as_snapshot(
        &mut self,
        record: VolumeRecord,
        name: &str,
        copy_of: Option<CopyRecord>,
    ) -> Result<Reply, Refusal> {
        let volume = record.name.clone();
        self.check_not_of_quorum(&record, "there are no snapshots")?;
        self.check_snapshot_name(&record, name)?;
        self.check_readers(&record)?;
        let snapshot = SnapshotRecord {
            volume: record.id,
            name: name.to_owned(),
            epoch: record.epoch,
            lineage: record.lineage.clone(),
            size: record.size,
            created_unix_ms: self.unix_ms,
            copy_of,
        };
        let (epoch, size) = (snapshot.epoch, Size(snapshot.size));
        let from = snapshot.lineage.clone();
        let record = self.go_on_from(&from, record)?;
        let view = record.epoch_since;
        self.put_snapshot(snapshot);
        self.put_volume(record);
        self.event("snapshot", &subject(&volume, name), format!("made: {size}, of epoch {epoch}, in view {view}"));
        Ok(Reply::SnapshotCreated { epoch, view })
    }

    pub(super) fn roll_back(&mut self, volume: &str, name: &str) -> Result<Reply, Refusal> {
        let record = self.volume(volume)?;
        self.check_not_replica(&record)?;
        let snapshot = self.snapshot(&record, name)?;
        let resized = (record.size != snapshot.size).then_some((record.size, snapshot.size));
        let mut record = self.go_on_from(&snapshot.lineage, record)?;
        let (epoch, view) = (record.epoch, record.epoch_since);
        record.size = snapshot.size;
        if self.version >= ROLLBACKS_NOTED {
            record.begun_in = epoch;
        }
        // What an import had begun is gone; no snapshot is of a part of one.
        let had_import = record.import.take().is_some();
        if let Some(replica) = &mut record.replica {
            replica.receives = None;
            if replica.base != Some(snapshot.epoch) {
                let made = snapshot.copy_of.map_or(snapshot.created_unix_ms, |copy| copy.unix_ms);
                (replica.base, replica.as_of_unix_ms) = (Some(snapshot.epoch), made);
            }
        }
        match resized.is_some() || had_import || self.version >= ROLLBACKS_REVISE {
            true => self.revise(record),
            false => self.put_volume(record),
        }
        let sizes = resized.map(|(from, to)| format!(", resized from {} to {}", Size(from), Size(to)));
        let text =
            format!("rolled back to snapshot {name}{}: epoch {epoch}, in view {view}", sizes.unwrap_or_default());
        self.event("volume", volume, text);
        Ok(Reply::RolledBack { epoch, view })
    }

    pub(super) fn clone_volume(&mut self, volume: &str, snapshot: &str, name: &str) -> Result<Reply, Refusal> {
        let record = self.volume(volume)?;
        let kept = self.snapshot(&record, snapshot)?;
        if self.state.migration_of(&record).is_some_and(|migration| migration.leaves.is_some()) {
            return Err(Refusal::Flattening(volume.to_owned())); // it would have to leave the others too
        }
        check_name(Thing::Volume, name)?;
        if self.state.volume_named(name).is_some() {
            return Err(Refusal::VolumeExists(name.to_owned()));
        }
        self.check_readers(&record)?;
        let origin = SnapshotId { volume: record.id, epoch: kept.epoch };
        let (id, mut clone) = (VolumeId(self.state.counters.volume), self.go_on_from(&kept.lineage, record)?);
        self.state.counters.volume += 1;
        clone = VolumeRecord {
            id,
            name: name.to_owned(),
            size: kept.size,
            revision: 1,
            created_unix_ms: self.unix_ms,
            origin: Some(origin),
            import: None,
            replica: None,
            begun_in: 0,
            cut_in: 0,
            ..clone
        };
        let (view, size) = (clone.epoch_since, Size(clone.size));
        self.share_key(origin.volume, id);
        self.put_volume(clone);
        self.event("volume", name, format!("made as a clone of {}: {size}, in view {view}", subject(volume, snapshot)));
        Ok(Reply::VolumeCloned { id, view })
    }

    pub(super) fn remove_snapshot(&mut self, volume: &str, name: &str) -> Result<Reply, Refusal> {
        let record = self.volume(volume)?;
        let snapshot = self.snapshot(&record, name)?;
        self.check_not_needed(&record, &snapshot)?;
        self.drop_snapshot(record.id, snapshot.epoch);
        self.next_view(); // drives give back what only it saw when nobody acts in an earlier one
        self.event("snapshot", &subject(volume, name), "removed".to_owned());
        Ok(Reply::Done)
    }

    pub(super) fn rename_snapshot(&mut self, volume: &str, name: &str, new_name: &str) -> Result<Reply, Refusal> {
        let record = self.volume(volume)?;
        let snapshot = self.snapshot(&record, name)?;
        self.check_not_needed(&record, &snapshot)?;
        self.check_snapshot_name(&record, new_name)?;
        self.forget_made(snapshot.volume, snapshot.epoch); // who gives it a name wants to have it
        self.put_snapshot(SnapshotRecord { name: new_name.to_owned(), ..snapshot });
        self.event("snapshot", &subject(volume, new_name), format!("renamed from {name}"));
        Ok(Reply::Done)
    }

    pub(super) fn drop_snapshots_of(&mut self, volume: VolumeId) {
        let epochs: Vec<Epoch> = self.state.snapshots_of(volume).map(|snapshot| snapshot.epoch).collect();
        for epoch in epochs {
            self.drop_snapshot(volume, epoch);
        }
    }

    /// The volume, which sees what `from` does and writes in an epoch that none has written in, in a new view.
    fn go_on_from(&mut self, from: &Lineage, mut volume: VolumeRecord) -> Result<VolumeRecord, Refusal> {
        let map = self.state.maps.get(&volume.map).expect("each volume's map exists");
        let maps = self.state.family_of(&volume);
        let tells_views = self.version >= GAPS_CLOSED && maps.iter().any(|&map| self.state.has_drives_away(map));
        let run = next_epochs(map.newest_epoch, self.state.view() + 1, tells_views);
        let (first, newest) = run.ok_or_else(|| Refusal::NoEpochsLeft(volume.name.clone()))?;
        let lineage = from.with_run(first, newest).ok_or_else(|| self.no_more_spans(&volume))?;
        volume.epoch = newest;
        volume.lineage = as_read(&lineage);
        maps.into_iter().for_each(|map| self.raise_newest_epoch(map, newest));
        volume.epoch_since = self.next_view();
        Ok(volume)
    }

    /// Why the volume can't be kept apart from what it leaves out.
    fn no_more_spans(&self, volume: &VolumeRecord) -> Refusal {
        let name = volume.name.clone();
        if self.state.family_of(volume).iter().any(|map| self.state.migration_about(*map).is_some()) {
            return Refusal::GapsWaitForMigration(name);
        }
        if volume.ranges.is_some() {
            return Refusal::GapsWaitForRanges(name);
        }
        match self.state.gaps_wait(volume.map) {
            (false, _) => Refusal::ClonesTooDeep { name, limit: MAX_SPANS - 1 },
            (true, drives) => Refusal::GapsStay { name, drives },
        }
    }

    /// Whether the volume's map may have one more.
    fn check_readers(&self, volume: &VolumeRecord) -> Result<(), Refusal> {
        let of_volume = |other: &Arc<VolumeRecord>| 1 + self.state.count_snapshots(other.id);
        match self.state.readers_of(volume.map).map(of_volume).sum::<usize>() > MAX_SNAPSHOTS {
            true => Err(Refusal::TooManySnapshots { volume: volume.name.clone(), limit: MAX_SNAPSHOTS }),
            false => Ok(()),
        }
    }

    fn check_snapshot_name(&self, volume: &VolumeRecord, name: &str) -> Result<(), Refusal> {
        check_name(Thing::Snapshot, name)?;
        match self.state.snapshot_named(volume.id, name) {
            Some(_) => Err(Refusal::SnapshotExists { volume: volume.name.clone(), name: name.to_owned() }),
            None => Ok(()),
        }
    }

    /// By its name, or by what stands for it.
    pub(super) fn snapshot(&self, volume: &VolumeRecord, name: &str) -> Result<SnapshotRecord, Refusal> {
        let found = self.state.snapshot_called(volume.id, name).map(|record| SnapshotRecord::clone(record));
        found.ok_or_else(|| Refusal::NoSnapshot { volume: volume.name.clone(), name: shown(name) })
    }
}

/// The same epochs, with the newest as its own: as it's read back from where it's stored, which doesn't say what is a reader's
/// own. So a state that is read back equals the one that was written.
pub fn as_read(lineage: &Lineage) -> Lineage {
    Lineage::new(lineage.spans().iter().copied(), lineage.newest()).expect("the spans are those of a lineage")
}

/// As people write it.
fn subject(volume: &str, name: &str) -> String {
    format!("{volume}@{name}")
}
