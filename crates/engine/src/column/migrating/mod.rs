//! How a migration's target takes over from the source, a *window* of chunks at a time (Petal 2.3).
//!
//! The target takes over, the source hands over. The unit is a *piece*: the fenced blocks of 64 KiB of a column that
//! lie side by side. Before anything of a piece is served, the piece is taken over:
//! 1. The source hands over what each line of the history has of the piece, and the notes of requests. No client is
//!    served there any more.
//! 2. All copies of the target take the lines, newer lines first, like any write that is acknowledged. Then they take
//!    the notes.
//! 3. The source releases all of the piece, for good.
//!
//! Nothing notes how far this is: data that the source still has wasn't taken over, and data that it doesn't have any
//! more was. A later primary takes over again, which changes nothing: before the third step is over no client has
//! written at the target. Nothing else is ever taken out at the target, so data that the source has released in part
//! isn't lost. Newer lines come first, so that a partly written piece is never older than the source's, when a snapshot
//! is gone meanwhile and the layers that it kept apart are one. Therefore blocks that a line hides are zeros at first,
//! for the hidden blocks aren't there yet. When they are, they are hidden, and the zeros are taken out.
//!
//! Where one volume *leaves* others that have the map, the source releases only data that nobody else sees. Shared data
//! stays, and is handed over again to the target column's next primary: nobody ever writes shared data, and the
//! volume's own writes since are newer.
//!
//! All this is done with whole copies of blocks. Fragments of stripes are gathered into such copies before, on either side.
//!
//! `taking.rs` is the target's way through a window (`takeover.rs` has the progress), `asking.rs` what the target asks
//! of the source, and `landing.rs` how the target's copies get the data. `handing.rs` is the source's part, and
//! `handed.rs` what goes from source to target. `lines.rs` is what copies have of some blocks, on either side.
//! `untaken.rs` is how pieces that can't be taken over are read.

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
use crate::volume::table::Own;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tepal_drive::world::World;
use tepal_model::{BLOCK, IoError, VolumeId};

/// The migration of a column's map, and what the map has by the table where it doesn't have all.
pub type Way = (Option<Arc<MapMigration>>, Option<Arc<Own>>);

impl<W: World> State<W> {
    /// Whether these blocks of a volume are this map's to serve now.
    pub fn serves_blocks(&self, column: &Column, (volume, blocks): (VolumeId, Blocks)) -> Result<(), IoError> {
        let Some(migration) = self.migration_of(volume)? else { return self.has_blocks(column, blocks) };
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

    /// Whether the map has these blocks by the table: those of a range that goes nowhere. `Fenced` if not.
    pub fn has_blocks(&self, column: &Column, blocks: Blocks) -> Result<(), IoError> {
        match &self.own {
            Some(own) if !own.has_blocks(column.number, blocks) => Err(IoError::Fenced),
            _ => Ok(()),
        }
    }

    /// Whether some of these blocks are on their way to another map, or from one. While they are, such blocks are in whole
    /// copies ([`gather`](super::redundancy::Redundancy::gather)).
    pub fn are_on_their_way(&self, column: &Column, blocks: Blocks) -> bool {
        let Some(migration) = &self.migration else { return false };
        let is_going = |(part, phase): (Blocks, Phase)| match phase {
            Phase::Old => migration.takes() && !migration.others_stay(), // others are served from here meanwhile
            Phase::Fenced if migration.takes() => {
                self.takeover.missing((migration, column.number), part).next().is_some()
            }
            Phase::Fenced => true,
            Phase::New => false,
        };
        migration.phases(column.number, blocks).any(is_going)
    }

    /// The migration of this volume, if there is one. `Fenced` for a volume that has never had this map.
    pub fn migration_of(&self, volume: VolumeId) -> Result<Option<&Arc<MapMigration>>, IoError> {
        match &self.migration {
            Some(migration) if migration.agreed.takes(volume) => Ok(Some(migration)),
            Some(migration) if !migration.others_stay() => Err(IoError::Fenced),
            Some(_) | None => Ok(None),
        }
    }
}

impl<W: World> Group<W> {
    /// Goes on with the migration that is agreed now, and with what the map has by the table besides.
    pub fn set_migration(&self, (migration, own): &Way) {
        {
            let mut state = self.lock();
            let is_same = |(one, other): (&Arc<MapMigration>, &Arc<MapMigration>)| one.is_same_window(other);
            if !state.migration.as_ref().zip(migration.as_ref()).is_some_and(is_same) {
                state.takeover.begin_anew();
            }
            (state.migration, state.own) = (migration.clone(), own.clone());
            state.changes += 1; // blocks that are read from here on may be elsewhere already
            self.shared.has_migrated.store(true, Ordering::Release);
        }
        self.wake();
        self.start_taking_over();
    }

    /// Whether the holder of these blocks' turn may begin to change them.
    pub fn may_begin(&self, blocks: (VolumeId, Blocks)) -> Result<(), IoError> {
        match self.shared.has_migrated.load(Ordering::Acquire) {
            true => self.lock().serves_blocks(&self.shared.column, blocks),
            false => Ok(()),
        }
    }

    /// The parts of a volume's bytes in this column that are this map's to serve.
    pub fn own(&self, volume: VolumeId, bytes: Range<u64>) -> Vec<Range<u64>> {
        let migration = self.lock().migration_of(volume).map(|migration| migration.cloned());
        let migration = match migration {
            Ok(Some(migration)) => migration,
            Ok(None) => {
                return match &self.lock().own {
                    Some(own) => own.within(self.shared.column.number, &bytes),
                    None => vec![bytes],
                };
            }
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
