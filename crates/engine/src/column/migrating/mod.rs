//! What a map that volumes go to takes over from the one that they leave, a *window* of chunks at a time (Petal 2.3).
//!
//! The target takes over, the source hands over. The unit is a *piece*: the fenced blocks of 64 KiB of a column that lie side by side.
//! Before anything of it is served, it's taken over:
//! 1. The source hands over what each line of the history has of it, and the notes of requests. No client is served there any more.
//! 2. All copies of the target take that, newer lines first, as any write that is acknowledged. Then the notes.
//! 3. The source releases all of it, for good.
//!
//! Nothing is noted of how far this is: what the source still has wasn't taken over, and what it hasn't, was. Whoever leads
//! later does it again, which changes nothing: before the third step is over no client has written at the target. Nothing else is ever
//! taken out there, so what the source has let go in part isn't lost. Newer lines come first, so that what is there in part is never
//! older than what the source has, when a snapshot is gone meanwhile and what it parted is one; what a line hides is
//! therefore zeros at first, for what it hides isn't there yet; when that is, it's hidden, and the zeros are taken out.
//!
//! Where one volume *leaves* others that have the map, the source releases only what nobody else sees. What it shares stays, and is handed
//! over by whoever leads the target's column next, too: nobody ever writes that, and what the volume has written since is newer.
//!
//! `taking.rs` is the target's way through a window (`takeover.rs` has how far it is), `asking.rs` what it asks of the source, and
//! `landing.rs` how its copies come to have what it was given. `handing.rs` is the source's part, and `handed.rs` what goes from the one
//! to the other; `lines.rs` is what copies have of some blocks, on either side. `untaken.rs` is how what can't be taken over is read.

mod asking;
mod handed;
pub mod handing;
mod landing;
mod lines;
pub mod takeover;
pub mod taking;
mod untaken;

pub(super) use untaken::is_read_there;

use super::{Blocks, Group, State};
use crate::map::Column;
use crate::migration::Phase;
use crate::volume::MapMigration;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tepal_drive::world::World;
use tepal_model::{BLOCK, IoError, VolumeId};

impl<W: World> State<W> {
    /// Whether these blocks of a volume are this map's to serve now.
    pub fn serves_blocks(&self, column: &Column, (volume, blocks): (VolumeId, Blocks)) -> Result<(), IoError> {
        let Some(migration) = self.migration_of(volume)? else { return Ok(()) };
        let is_here = |(part, phase): (Blocks, Phase)| match phase {
            Phase::Old => !migration.takes(),
            Phase::Fenced => {
                migration.takes() && self.takeover.missing((migration, column.number), part).next().is_none()
            }
            Phase::New => migration.takes(),
        };
        match migration.phases(column.number, blocks).all(is_here) {
            true => Ok(()),
            false => Err(IoError::Fenced),
        }
    }

    /// How this volume goes from one map to another, if it does. `Fenced` of one that has never had this map.
    pub fn migration_of(&self, volume: VolumeId) -> Result<Option<&Arc<MapMigration>>, IoError> {
        match &self.migration {
            Some(migration) if migration.agreed.takes(volume) => Ok(Some(migration)),
            Some(migration) if !migration.others_stay() => Err(IoError::Fenced),
            Some(_) | None => Ok(None),
        }
    }
}

impl<W: World> Group<W> {
    /// As agreed from now on.
    pub fn set_migration(&self, migration: &Option<Arc<MapMigration>>) {
        {
            let mut state = self.lock();
            let is_same = |(one, other): (&Arc<MapMigration>, &Arc<MapMigration>)| one.is_same_window(other);
            if !state.migration.as_ref().zip(migration.as_ref()).is_some_and(is_same) {
                state.takeover.begin_anew();
            }
            state.migration = migration.clone();
            state.changes += 1; // what is read from here on may be elsewhere already
            self.shared.has_migrated.store(true, Ordering::Release);
        }
        self.wake();
        self.start_taking_over();
    }

    /// Whoever has the turn of these blocks of a volume may begin to change them.
    pub fn may_begin(&self, blocks: (VolumeId, Blocks)) -> Result<(), IoError> {
        match self.shared.has_migrated.load(Ordering::Acquire) {
            true => self.lock().serves_blocks(&self.shared.column, blocks),
            false => Ok(()),
        }
    }

    /// The bytes of the column that are this map's to serve, of these of a volume.
    pub fn own(&self, volume: VolumeId, bytes: Range<u64>) -> Vec<Range<u64>> {
        let migration = self.lock().migration_of(volume).map(|migration| migration.cloned());
        let migration = match migration {
            Ok(Some(migration)) => migration,
            Ok(None) => return vec![bytes],
            Err(_) => return Vec::new(),
        };
        let mut own: Vec<Range<u64>> = Vec::new();
        for (part, phase) in migration.phases(self.shared.column.number, Blocks::touched(bytes.start, bytes.end)) {
            if (phase == Phase::Old) == migration.takes() {
                continue;
            }
            let part = bytes.start.max(part.first * BLOCK)..bytes.end.min(part.end() * BLOCK);
            match own.last_mut() {
                Some(last) if last.end == part.start => last.end = part.end,
                _ => own.push(part),
            }
        }
        own
    }
}
