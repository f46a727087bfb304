//! Volumes and their maps.

use super::snapshots::as_read;
use super::{Draft, check_name, clipped, place};
use crate::access::Limited;
use crate::command::{Command, GROWS_CLEARED, QUORUM, ROLLBACKS_NOTED, Reply};
use crate::record::{Cleared, ColumnRecord, HolderRecord, ImportRecord, MapRecord, VolumeRecord, VolumeState};
use crate::refusal::{Refusal, Thing};
use tepal_model::history::FIRST_EPOCH;
use tepal_model::layout::quorum::Timing;
use tepal_model::size::Size;
use tepal_model::size::{MAX_ERASURE_CODED, MAX_QUORUM};
use tepal_model::{DriveId, Layout, Lineage, MAX_VOLUME, MapId, VolumeId};
use tepal_placement::{ColumnHolders, Table};

/// Sizes are a multiple of a disk's smallest sector.
const SECTOR: u64 = 512;
const IMPORT_BEGINS: &str = "an import begins to write to it";

impl Draft {
    pub(super) fn create_volume(
        &mut self,
        name: &str,
        size: u64,
        layout: Option<&str>,
        pool: &str,
    ) -> Result<Reply, Refusal> {
        check_name(Thing::Volume, name)?;
        check_size(size)?;
        let layout = place::wanted(&self.state, pool, layout)?;
        self.check_quorum(&layout)?;
        check_size_for(&layout, size)?;
        if self.state.volume_named(name).is_some() {
            return Err(Refusal::VolumeExists(name.to_owned()));
        }

        let (id, map) = (VolumeId(self.state.counters.volume), MapId(self.state.counters.map));
        let next_map = map.0.checked_add(1).ok_or(Refusal::NoMapsLeft)?;
        let (settled, table) = place::allot(&self.state, pool, &layout, (map, None), self.version)?;
        self.state.counters.map = next_map;
        self.state.counters.volume += 1;
        let made_in = self.state.view();
        let drives = self.make_map(map, id, settled, &table);
        let text = format!("created: {}, {layout}, on {drives} drives of pool {pool}", Size(size));
        self.put_volume(VolumeRecord {
            id,
            name: name.to_owned(),
            size,
            layout,
            pool: pool.to_owned(),
            map,
            ranges: None,
            epoch: FIRST_EPOCH,
            lineage: as_read(&Lineage::default()),
            epoch_since: made_in,
            begun_in: 0,
            cut_in: 0,
            revision: 1,
            state: VolumeState::Active,
            created_unix_ms: self.unix_ms,
            origin: None,
            import: None,
            replica: None,
        });
        self.event("volume", name, text);
        Ok(Reply::VolumeCreated { id, map })
    }

    /// Of commands about imports; others are refused.
    pub(super) fn carry_out_of_import(&mut self, command: &Command) -> Result<Reply, Refusal> {
        match command {
            Command::CreateForImport { create, import } => self.create_for_import(create, *import),
            Command::NoteImport { name, import, done } => self.note_import(name, *import, *done),
            Command::FinishImport { name, import } => self.finish_import(name, *import),
            _ => Err(Refusal::NoAuthority),
        }
    }

    fn create_for_import(&mut self, create: &Command, import: u64) -> Result<Reply, Refusal> {
        let created = self.carry_out(create)?;
        if let Reply::VolumeCreated { id, .. } = created {
            let mut volume = self.volume_by_id(id)?;
            volume.import = Some(ImportRecord { id: import.min(i64::MAX as u64), done: 0 });
            let name = volume.name.clone();
            self.put_volume(volume);
            self.event("volume", &name, IMPORT_BEGINS.to_owned());
        }
        Ok(created)
    }

    /// Adds a map with all its columns, and says how many drives hold some.
    pub(super) fn make_map(&mut self, id: MapId, volume: VolumeId, layout: Layout, table: &Table) -> usize {
        let made_in = self.state.view();
        let column = |drives: &ColumnHolders| ColumnRecord {
            holders: drives.iter().map(|drive| HolderRecord::complete(*drive, made_in)).collect(),
            joining: None,
        };
        let (width, chunk) = (table.geometry.width(), table.geometry.chunk());
        let columns: Vec<ColumnRecord> = table.columns.iter().map(column).collect();
        let newest_epoch = FIRST_EPOCH;
        let map = MapRecord { id, volume, layout, width, chunk, columns: columns.clone(), made_in, newest_epoch };
        let drives = map.drives().len();
        self.put_map(map);
        for (column, record) in (0..).zip(columns) {
            self.put_column(id, column, record);
        }
        drives
    }

    /// What was cut off comes back by no growth: whoever asks for it has cleared what lies past the end of this very volume, which
    /// wasn't longer, nor saw anything else, since.
    pub(super) fn resize_volume(
        &mut self,
        name: &str,
        size: u64,
        shrink: bool,
        cleared: Option<Cleared>,
    ) -> Result<Reply, Refusal> {
        check_size(size)?;
        let mut volume = self.volume(name)?;
        self.check_not_replica(&volume)?;
        self.check_not_live(&volume)?;
        let from = volume.size;
        self.check_size_in_maps(&volume, size)?;
        if size == from {
            return Ok(Reply::Done);
        }
        if size < from && !shrink {
            return Err(Refusal::Shrink { name: name.to_owned(), from, to: size });
        }
        if size > from && self.version >= GROWS_CLEARED && cleared != Some(self.state.as_cleared(&volume)) {
            return Err(Refusal::NotCleared(name.to_owned()));
        }
        volume.size = size;
        if size < from && self.version >= ROLLBACKS_NOTED {
            volume.cut_in = volume.revision + 1;
        }
        let replicates = self.replicates;
        if let Some(import) = volume.import.as_mut().filter(|_| size < from && !replicates) {
            // What was cut off is missing, also if the volume grows again.
            *import = ImportRecord { id: 0, done: import.done.min(size) };
        }
        self.revise(volume);
        self.event("volume", name, format!("resized from {} to {}", Size(from), Size(size)));
        Ok(Reply::Done)
    }

    /// Whether the layouts of the range at the volume's end allow so much.
    fn check_size_in_maps(&self, volume: &VolumeRecord, size: u64) -> Result<(), Refusal> {
        match &volume.ranges {
            None => check_size_for(&volume.layout, size)?,
            Some(ranges) => {
                let last = self.state.maps.get(&ranges.at(u64::MAX)).expect("each range's map exists");
                check_size_for(&last.layout, size)?;
            }
        }
        match self.state.migration_of(volume).filter(|migration| !migration.ends) {
            Some(migration) => check_size_for(&migration.layout, size),
            None => Ok(()),
        }
    }

    fn note_import(&mut self, name: &str, import: u64, done: u64) -> Result<Reply, Refusal> {
        let mut volume = self.volume(name)?;
        self.check_not_replica(&volume)?;
        self.check_not_live(&volume)?;
        let is_news = volume.import.is_none_or(|before| before.id != import);
        volume.import = Some(ImportRecord { id: import.min(i64::MAX as u64), done: done.min(volume.size) });
        self.revise(volume);
        if is_news {
            self.event("volume", name, IMPORT_BEGINS.to_owned());
        }
        Ok(Reply::Done)
    }

    fn finish_import(&mut self, name: &str, import: u64) -> Result<Reply, Refusal> {
        let mut volume = self.volume(name)?;
        self.check_not_replica(&volume)?;
        self.check_not_live(&volume)?;
        if volume.import.is_none_or(|own| own.id != import) {
            return Err(Refusal::ImportChanged(name.to_owned()));
        }
        volume.import = None;
        self.revise(volume);
        self.event("volume", name, "all of an import is there".to_owned());
        Ok(Reply::Done)
    }

    pub(super) fn rename_volume(&mut self, name: &str, new_name: &str) -> Result<Reply, Refusal> {
        let mut volume = self.volume(name)?;
        check_name(Thing::Volume, new_name)?;
        if self.state.volume_named(new_name).is_some() {
            return Err(Refusal::VolumeExists(new_name.to_owned()));
        }
        volume.name = new_name.to_owned();
        self.revise(volume);
        self.event("volume", new_name, format!("renamed from {name}"));
        Ok(Reply::Done)
    }

    pub(super) fn remove_volume(&mut self, name: &str, with_snapshots: bool) -> Result<Reply, Refusal> {
        let mut volume = self.volume(name)?;
        let snapshots = self.state.count_snapshots(volume.id);
        if snapshots > 0 && !with_snapshots {
            return Err(Refusal::VolumeHasSnapshots { name: name.to_owned(), snapshots });
        }
        self.drop_snapshots_of(volume.id);
        self.drop_grants_of(volume.id);
        self.drop_key_of(volume.id);
        self.drop_live_import_of(volume.id);
        self.drop_limits_of(&Limited::Volume(volume.id));
        self.drop_schedules_of(&volume);
        volume.state = VolumeState::Deleting;
        let maps = volume.maps();
        self.revise(volume);
        let is_needed =
            |map: &MapId| self.state.readers_of(*map).next().is_some() || self.state.migration_about(*map).is_some();
        if maps.iter().any(is_needed) {
            self.next_view(); // drives give back what only it saw when nobody acts in an earlier one
        }
        let with = match snapshots {
            0 => String::new(),
            1 => " with its snapshot".to_owned(),
            more => format!(" with its {more} snapshots"),
        };
        self.event("volume", name, format!("removed{with}; its space is being freed"));
        Ok(Reply::Done)
    }

    pub(super) fn finish_remove_volume(&mut self, id: VolumeId) -> Result<Reply, Refusal> {
        let volume = self.volume_by_id(id)?;
        if volume.state != VolumeState::Deleting {
            return Err(Refusal::NotDeleting(volume.name));
        }
        self.drop_volume(id);
        self.end_migrations_of_nobody();
        volume.maps().into_iter().for_each(|map| self.drop_map_of_nobody(map));
        self.forget_removed_drives();
        self.event("volume", &volume.name, "its space is free".to_owned());
        Ok(Reply::Done)
    }

    /// A map that no volume has any more, and none goes to or from, is gone.
    pub(super) fn drop_map_of_nobody(&mut self, map: MapId) {
        let is_needed =
            self.state.volumes.values().any(|volume| volume.has(map)) || self.state.migration_about(map).is_some();
        if !is_needed && self.state.maps.contains_key(&map) {
            self.drop_map(map);
        }
    }

    /// Whether this version makes volumes of such a layout.
    pub(super) fn check_quorum(&self, layout: &Layout) -> Result<(), Refusal> {
        let text = || layout.to_string();
        match layout.quorum() {
            Some(_) if self.version < QUORUM => {
                Err(Refusal::Layout { rule: format!("layout {}: not all servers know it", text()) })
            }
            Some(quorum) if quorum.timing() == Timing::Sync => Err(Refusal::SyncQuorum(text())),
            _ => Ok(()),
        }
    }

    /// Refuses what can't be done with a volume that gateways keep.
    pub(super) fn check_not_of_quorum(&self, volume: &VolumeRecord, what: &'static str) -> Result<(), Refusal> {
        match volume.layout.quorum() {
            None => Ok(()),
            Some(_) => {
                let (volume, layout) = (volume.name.clone(), volume.layout.to_string());
                Err(Refusal::NotOfQuorum { volume, layout, what: what.to_owned() })
            }
        }
    }

    /// Refuses to empty a drive that can't be emptied: a fragment moves while its volume goes on without it.
    pub(super) fn check_not_kept_by_quorum(&self, drive: DriveId) -> Result<(), Refusal> {
        let is_kept =
            |volume: &&std::sync::Arc<VolumeRecord>| volume.layout.quorum().is_some_and(|of| of.faults() == 0);
        let mut of_quorum = self.state.volumes.values().filter(is_kept);
        let uses = |volume: &&std::sync::Arc<VolumeRecord>| {
            self.state.maps.get(&volume.map).is_some_and(|map| map.uses(drive))
        };
        match of_quorum.find(uses) {
            None => Ok(()),
            Some(volume) => {
                let (volume, layout) = (volume.name.clone(), volume.layout.to_string());
                Err(Refusal::DriveOfQuorum { drive, volume, layout })
            }
        }
    }

    /// Stores a changed record, under its next revision.
    pub(super) fn revise(&mut self, mut volume: VolumeRecord) {
        volume.revision += 1;
        self.put_volume(volume);
    }

    pub(super) fn volume(&self, name: &str) -> Result<VolumeRecord, Refusal> {
        let found = self.state.volume_named(name).map(|record| VolumeRecord::clone(record));
        found.ok_or_else(|| Refusal::NoVolume(clipped(name, 140)))
    }

    fn volume_by_id(&self, id: VolumeId) -> Result<VolumeRecord, Refusal> {
        self.state.volumes.get(&id).map(|record| VolumeRecord::clone(record)).ok_or(Refusal::NoVolumeId(id))
    }
}

/// What [`Draft::carry_out_of_import`] carries out.
pub(super) fn is_of_import(command: &Command) -> bool {
    matches!(command, Command::CreateForImport { .. } | Command::NoteImport { .. } | Command::FinishImport { .. })
}

/// Whether a volume of this layout may be so long.
pub(super) fn check_size_for(layout: &Layout, size: u64) -> Result<(), Refusal> {
    match layout.plexes() {
        Some(plexes) if size > plexes.size() => Err(Refusal::SizeOfPlexes { size, room: plexes.size() }),
        None if layout.quorum().is_some() && size > MAX_QUORUM => Err(Refusal::SizeOfStripes { size }),
        None if !layout.fragments().are_copies() && size > MAX_ERASURE_CODED => Err(Refusal::SizeOfStripes { size }),
        _ => Ok(()),
    }
}

/// Whether a volume may be so long.
pub fn check_size(size: u64) -> Result<(), Refusal> {
    if size == 0 || size > MAX_VOLUME || !size.is_multiple_of(SECTOR) {
        return Err(Refusal::Size { size });
    }
    Ok(())
}
