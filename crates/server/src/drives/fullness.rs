//! How full drives are: said before writes fail for want of space, and while they do.

use super::OpenDrive;
use std::collections::BTreeMap;
use tepal_model::DriveId;
use tepal_model::size::Size;

/// Less than this is left of a drive that counts as full.
const FULL: u64 = 1 << 20;
/// A drive is nearly full if less than this part of it is left,
const NEARLY: u64 = 20;
/// unless it's so large that this much is left.
const PLENTY: u64 = 64 << 30;

/// Drives that are named of those that are full.
pub const NAMED: usize = 4;

/// A drive, and how much of it is used.
#[derive(Clone, Copy, Debug)]
pub struct Filled {
    pub id: DriveId,
    /// Bytes, as all of these.
    pub capacity: u64,
    pub used: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fullness {
    #[default]
    Ample,
    NearlyFull,
    /// Writes that need new space fail.
    Full,
}

impl Fullness {
    /// Of a drive with so many bytes for volumes.
    pub fn of(capacity: u64, used: u64) -> Self {
        let left = capacity.saturating_sub(used);
        match () {
            _ if left < FULL => Fullness::Full,
            _ if left < PLENTY.min(capacity / NEARLY) => Fullness::NearlyFull,
            _ => Fullness::Ample,
        }
    }

    /// What it means, for people.
    pub fn text(self, capacity: u64, used: u64) -> String {
        let left = format!("{} of {} are left", Size(capacity.saturating_sub(used)), Size(capacity));
        match self {
            Fullness::Ample => left,
            Fullness::NearlyFull => format!("nearly full, {left}: remove or trim something before writes fail"),
            Fullness::Full => {
                format!(
                    "full, {left}: writes that need new space fail until something is removed or trimmed, or drives are added"
                )
            }
        }
    }

    /// The same of several drives that are as full: the first few are named. `of` says whose they are, or nothing.
    pub fn text_of(self, drives: &[Filled], of: &str) -> String {
        let ids: Vec<DriveId> = drives.iter().map(|drive| drive.id).collect();
        let (noun, verb) = if ids.len() == 1 { ("drive", "is") } else { ("drives", "are") };
        let (capacity, used) =
            drives.iter().fold((0, 0), |(capacity, used), drive| (capacity + drive.capacity, used + drive.used));
        format!("{noun} {}{of} {verb} {}", first(&ids, NAMED), self.text(capacity, used))
    }
}

/// The first few of many things, and how many more there are.
pub fn first(things: &[impl ToString], most: usize) -> String {
    let named: Vec<String> = things.iter().take(most).map(ToString::to_string).collect();
    match (things.len() - named.len(), named.split_last()) {
        (0, Some((last, others))) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        (0, _) => named.concat(),
        (more, _) => format!("{} and {more} more", named.join(", ")),
    }
}

/// Says in the log when it changes for one of these drives.
pub fn log_changes(known: &mut BTreeMap<DriveId, Fullness>, open: &BTreeMap<DriveId, OpenDrive>) {
    known.retain(|id, _| open.contains_key(id));
    for (id, open) in open {
        let usage = open.drive.usage();
        let now = Fullness::of(usage.capacity, usage.used);
        let before = known.insert(*id, now).unwrap_or_default();
        if now != before {
            let text = now.text(usage.capacity, usage.used);
            match now {
                Fullness::Ample => tracing::info!(drive = %id, text, "drive has space again"),
                Fullness::NearlyFull | Fullness::Full => tracing::warn!(drive = %id, text, "drive fills up"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story: of several drives that were full one was named, and somebody made room on that one.
    #[test]
    fn of_several_full_drives_the_first_few_are_named_and_the_others_counted() {
        let drives = |count| (1..=count).map(|id| Filled { id: DriveId(id), capacity: 1 << 30, used: 1 << 30 });
        let text = |count| Fullness::Full.text_of(&drives(count).collect::<Vec<_>>(), " of pool 'p'");
        let id = |id| DriveId(id).to_string();
        assert!(text(1).starts_with(&format!("drive {} of pool 'p' is full, 0 of 1G are left", id(1))), "{}", text(1));
        assert!(text(2).starts_with(&format!("drives {} and {} of pool 'p' are full, 0 of 2G", id(1), id(2))));
        assert!(text(6).starts_with(&format!("drives {}, {}, {}, {} and 2 more of", id(1), id(2), id(3), id(4))));
    }

    #[test]
    fn a_drive_is_nearly_full_in_time_and_full_when_hardly_anything_fits() {
        let (mib, gib, tib) = (1 << 20, 1 << 30, 1 << 40);
        let cases = [
            (gib, 0, Fullness::Ample),
            (gib, gib - gib / NEARLY, Fullness::Ample),
            (gib, gib - gib / NEARLY + 1, Fullness::NearlyFull),
            (gib, gib - mib, Fullness::NearlyFull),
            (gib, gib - mib + 1, Fullness::Full),
            (gib, gib, Fullness::Full),
            (gib, gib + 1, Fullness::Full),
            (100 * tib, 100 * tib - PLENTY, Fullness::Ample),
            (100 * tib, 100 * tib - PLENTY + 1, Fullness::NearlyFull),
        ];
        for (capacity, used, wanted) in cases {
            assert_eq!(Fullness::of(capacity, used), wanted, "{used} of {capacity}");
        }
    }
}
