//! Which bytes of drives no subdisk has.

use std::collections::BTreeMap;
use tepal_model::DriveId;
use tepal_model::layout::plexes::Subdisk;
use tepal_model::size::BLOCK;

/// The free pieces of drives.
#[derive(Clone, Debug, Default)]
pub struct Space {
    /// Bytes of each drive; `None` of a drive that is to be added, whose size isn't known yet.
    capacities: BTreeMap<DriveId, Option<u64>>,
    /// First byte and end of what is taken, in any order.
    taken: BTreeMap<DriveId, Vec<(u64, u64)>>,
}

impl Space {
    pub fn add_drive(&mut self, drive: DriveId, capacity: Option<u64>) {
        self.capacities.insert(drive, capacity);
    }

    pub fn take(&mut self, disk: &Subdisk) {
        self.taken.entry(disk.drive).or_default().push((disk.drive_offset, disk.end()));
    }

    /// What a subdisk had may be taken again.
    pub fn give_back(&mut self, disk: &Subdisk) {
        let taken = self.taken.entry(disk.drive).or_default();
        if let Some(at) = taken.iter().position(|piece| *piece == (disk.drive_offset, disk.end())) {
            taken.swap_remove(at);
        }
    }

    /// Whole blocks that are free side by side, as first byte and length.
    fn pieces(&self, drive: DriveId) -> Vec<(u64, u64)> {
        let mut taken = self.taken.get(&drive).cloned().unwrap_or_default();
        let end = self.capacities.get(&drive).copied().flatten().unwrap_or(u64::MAX);
        taken.push((end, end));
        taken.sort_unstable();
        let (mut pieces, mut at) = (Vec::new(), 0u64);
        for (first, past) in taken {
            let length = first.saturating_sub(at) / BLOCK * BLOCK;
            if length > 0 {
                pieces.push((at, length));
            }
            at = at.max(past);
        }
        pieces
    }

    /// The length of the longest free piece of a drive; `None` if the drive's size isn't known.
    pub fn largest(&self, drive: DriveId) -> Option<u64> {
        self.capacities.get(&drive).copied().flatten()?;
        Some(self.pieces(drive).into_iter().map(|(_, length)| length).max().unwrap_or(0))
    }

    /// Where the first free piece of so many bytes begins.
    pub fn first_fit(&self, drive: DriveId, length: u64) -> Option<u64> {
        self.pieces(drive).into_iter().find(|piece| piece.1 >= length).map(|(first, _)| first)
    }

    /// Whether all bytes of a subdisk are free.
    pub fn has(&self, disk: &Subdisk) -> bool {
        let capacity = self.capacities.get(&disk.drive).copied().flatten().unwrap_or(u64::MAX);
        let mut taken = self.taken.get(&disk.drive).into_iter().flatten();
        disk.end() <= capacity && !taken.any(|(first, end)| *first < disk.end() && disk.drive_offset < *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVE: DriveId = DriveId(1);

    fn disk(drive_offset: u64, length: u64) -> Subdisk {
        Subdisk { name: None, drive: DRIVE, drive_offset, length, plex_offset: 0 }
    }

    #[test]
    fn pieces_are_what_is_between_subdisks() {
        let mut space = Space::default();
        space.add_drive(DRIVE, Some(100 * BLOCK + 5));
        assert_eq!((space.largest(DRIVE), space.first_fit(DRIVE, BLOCK)), (Some(100 * BLOCK), Some(0)));
        for (offset, length) in [(10 * BLOCK, 20 * BLOCK), (0, 5 * BLOCK), (90 * BLOCK, 10 * BLOCK)] {
            assert!(space.has(&disk(offset, length)));
            space.take(&disk(offset, length));
        }
        assert_eq!(space.largest(DRIVE), Some(60 * BLOCK));
        assert_eq!(space.first_fit(DRIVE, 5 * BLOCK), Some(5 * BLOCK));
        assert_eq!(space.first_fit(DRIVE, 6 * BLOCK), Some(30 * BLOCK));
        assert_eq!(space.first_fit(DRIVE, 61 * BLOCK), None);
        assert!(!space.has(&disk(4 * BLOCK, BLOCK)) && !space.has(&disk(99 * BLOCK, 2 * BLOCK)));
        space.give_back(&disk(0, 5 * BLOCK));
        assert_eq!(space.first_fit(DRIVE, 6 * BLOCK), Some(0));
    }

    #[test]
    fn a_drive_of_unknown_size_has_room_for_all() {
        let mut space = Space::default();
        space.add_drive(DRIVE, None);
        assert_eq!((space.largest(DRIVE), space.first_fit(DRIVE, 1 << 50)), (None, Some(0)));
    }
}
