//! The plexes that a file wants, on drives that there are: lengths and offsets that the file leaves open are chosen. What the volume has
//! already stays where it is.

use super::Drives;
use super::space::Space;
use crate::apply::wanted::{WantedPlex, WantedSubdisk, WantedVolume, Wrong};
use tepal_model::DriveId;
use tepal_model::layout::plexes::{MAX_PLEX, Plex, Plexes, Subdisk};
use tepal_model::size::{BLOCK, exact};

/// What the plexes of a volume come to.
pub struct Settled {
    pub plexes: Plexes,
    /// Whether all lengths are known: not if a subdisk takes all of a drive that is to be added first.
    pub is_final: bool,
}

/// A plex with what it's to have of an earlier one.
struct Kept<'a> {
    plex: &'a WantedPlex,
    /// Its own name, or the one that its number gives it.
    name: String,
    /// In the order of the plex.
    subdisks: Vec<(&'a WantedSubdisk, DriveId)>,
    before: Option<&'a Plex>,
}

/// Whether a plex goes on from an earlier one.
type GoesOn = dyn Fn(&Kept<'_>, &Plex) -> bool;

impl<'a> Kept<'a> {
    /// The subdisk that was at this place on this drive.
    fn had(&self, at: usize) -> Option<&'a Subdisk> {
        self.before.and_then(|before| before.subdisks.get(at)).filter(|had| had.drive == self.subdisks[at].1)
    }
}

/// Settles all plexes of a volume. Their subdisks are taken of the space, and the places of those that go are given back.
pub fn settle(
    (volume, plexes): (&WantedVolume, &[WantedPlex]),
    before: Option<&Plexes>,
    (drives, space, notes): (&Drives, &mut Space, &mut Vec<Wrong>),
) -> Result<Settled, Wrong> {
    let kept = keep(&volume.name, plexes, before, drives)?;
    let stays = |disk: &Subdisk| kept.iter().any(|kept| (0..kept.subdisks.len()).any(|at| kept.had(at) == Some(disk)));
    before.into_iter().flat_map(Plexes::subdisks).filter(|disk| !stays(disk)).for_each(|disk| space.give_back(disk));
    let (mut settled, mut is_final) = (Vec::new(), true);
    for (number, kept) in kept.iter().enumerate() {
        let (lengths, are_known) = lengths(kept, space, notes)?;
        is_final &= are_known;
        let name = kept.plex.name.clone().filter(|name| *name != format!("{}.p{number}", volume.name));
        let subdisks = subdisks(kept, &lengths, space, notes)?;
        settled.push(Plex { name, organization: kept.plex.organization, subdisks });
    }
    let wrong = |error| Wrong::new(volume.at, format!("volume {}: {error}", volume.name));
    Ok(Settled { plexes: Plexes::new(settled).map_err(wrong)?, is_final })
}

/// Which earlier plex each goes on from: the one of its name, else one on the same drives, else the one of its number.
fn keep<'a>(
    volume: &str,
    plexes: &'a [WantedPlex],
    before: Option<&'a Plexes>,
    drives: &Drives,
) -> Result<Vec<Kept<'a>>, Wrong> {
    let mut all = Vec::new();
    for (number, plex) in plexes.iter().enumerate() {
        let mut subdisks: Vec<&WantedSubdisk> = plex.subdisks.iter().collect();
        // A file that is printed may have them in any order.
        if subdisks.iter().all(|disk| disk.plex_offset.is_some()) {
            subdisks.sort_by_key(|disk| disk.plex_offset);
        }
        let subdisks = subdisks.into_iter().map(|disk| Ok((disk, drives.id(disk)?))).collect::<Result<_, Wrong>>()?;
        let name = plex.name.clone().unwrap_or_else(|| format!("{volume}.p{number}"));
        all.push(Kept { plex, name, subdisks, before: None });
    }
    let mut left: Vec<(usize, &Plex)> = before.map_or(&[][..], |before| before.plexes()).iter().enumerate().collect();
    let is_named = |kept: &Kept<'_>, had: &Plex| had.name.is_some() && had.name == kept.plex.name;
    let has_drives = |kept: &Kept<'_>, had: &Plex| {
        had.subdisks.iter().map(|disk| disk.drive).eq(kept.subdisks.iter().map(|(_, drive)| *drive))
    };
    let begins_so = |kept: &Kept<'_>, had: &Plex| {
        let (had, now) = (had.subdisks.first(), kept.subdisks.first());
        had.zip(now).is_some_and(|(had, now)| had.drive == now.1)
    };
    let ways: [&GoesOn; 3] = [&is_named, &has_drives, &begins_so];
    for is_it in ways {
        for (number, kept) in all.iter_mut().enumerate().filter(|(_, kept)| kept.before.is_none()) {
            let alike = |had: &Plex| {
                std::mem::discriminant(&had.organization) == std::mem::discriminant(&kept.plex.organization)
            };
            // The one of the same number, if it's one of several.
            let found = left.iter().filter(|(_, had)| alike(had) && is_it(kept, had));
            if let Some(&(at, had)) = found.min_by_key(|(at, _)| at.abs_diff(number)) {
                kept.before = Some(had);
                left.retain(|(other, _)| *other != at);
            }
        }
    }
    Ok(all)
}

fn subdisks(
    kept: &Kept<'_>,
    lengths: &[u64],
    space: &mut Space,
    notes: &mut Vec<Wrong>,
) -> Result<Vec<Subdisk>, Wrong> {
    let (mut settled, mut end) = (Vec::new(), 0u64);
    for (at, (&(disk, drive), &length)) in kept.subdisks.iter().zip(lengths).enumerate() {
        let plex_offset = plex_offset(kept, (at, disk), end, notes)?;
        let default = format!("{}.s{at}", kept.name);
        let name = disk.name.clone().filter(|name| *name != default);
        let had = kept.had(at);
        had.into_iter().for_each(|had| space.give_back(had));
        let on = |drive_offset| Subdisk { name: name.clone(), drive, drive_offset, length, plex_offset };
        let stays = had.map(|had| had.drive_offset).filter(|offset| space.has(&on(*offset)));
        let drive_offset = disk.drive_offset.or(stays).or_else(|| space.first_fit(drive, length)).ok_or_else(|| {
            let left = exact(space.largest(drive).unwrap_or(0));
            let text = format!("drive {} has no free piece of {}: its largest is {left}", disk.drive, exact(length));
            Wrong::new(disk.at, text)
        })?;
        if drive_offset.checked_add(length).is_none_or(|end| end > 2 * MAX_PLEX) {
            return Err(Wrong::new(disk.at, "it's longer than any drive"));
        }
        let one = on(drive_offset);
        if !space.has(&one) {
            let (offset, length) = (exact(drive_offset), exact(length));
            let text = format!("{length} from {offset} on aren't free on drive {}", disk.drive);
            return Err(Wrong::new(disk.at, text));
        }
        space.take(&one);
        end = plex_offset.saturating_add(length);
        settled.push(one);
    }
    Ok(settled)
}

/// Where a subdisk begins in a concatenated plex; with stripes, its number says it, and 0 stands for that.
fn plex_offset(
    kept: &Kept<'_>,
    (at, disk): (usize, &WantedSubdisk),
    end: u64,
    notes: &mut Vec<Wrong>,
) -> Result<u64, Wrong> {
    match (kept.plex.organization.stripe(), disk.plex_offset) {
        (None, None) => Ok(end),
        (None, Some(offset)) => {
            let whole = offset / BLOCK * BLOCK;
            if whole != offset {
                let text = format!(
                    "it begins at whole blocks of 4K in the plex: {} is taken as {}",
                    exact(offset),
                    exact(whole)
                );
                notes.push(Wrong::new(disk.at, text));
            }
            Ok(whole)
        }
        (Some(_), None) => Ok(0),
        (Some(stripe), Some(offset)) => {
            // A stripe may have been rounded up.
            let place = stripe.saturating_mul(at as u64);
            match place.checked_sub(offset).is_some_and(|less| less < BLOCK * at.max(1) as u64) {
                true => Ok(0),
                false => {
                    let place = exact(place);
                    let text =
                        format!("with stripes, each subdisk begins a stripe after the one before: this one at {place}");
                    Err(Wrong::new(disk.at, text))
                }
            }
        }
    }
}

/// How long each is: whole blocks, and with stripes whole stripes, as many of each. And whether that is known of all.
fn lengths(kept: &Kept<'_>, space: &Space, notes: &mut Vec<Wrong>) -> Result<(Vec<u64>, bool), Wrong> {
    // So that two that take all that is free don't take the same.
    let mut space = space.clone();
    let mut lengths: Vec<Option<u64>> = Vec::new();
    for (at, &(disk, drive)) in kept.subdisks.iter().enumerate() {
        let length = match (disk.length, kept.had(at)) {
            (Some(length), _) => Some(length / BLOCK * BLOCK),
            (None, Some(had)) => Some(had.length),
            (None, None) => match space.largest(drive) {
                Some(0) => return Err(Wrong::new(disk.at, format!("drive {} has no free piece", disk.drive))),
                largest => largest,
            },
        };
        if let (None, Some(length)) = (kept.had(at), length)
            && let Some(drive_offset) = space.first_fit(drive, length.max(1))
        {
            space.take(&Subdisk { name: None, drive, drive_offset, length, plex_offset: 0 });
        }
        lengths.push(length);
    }
    let is_known = lengths.iter().all(Option::is_some);
    let least = kept.plex.organization.stripe().unwrap_or(BLOCK);
    let shortest = lengths.iter().flatten().copied().min().unwrap_or(least) / least * least;
    let whole = |length: Option<u64>| match kept.plex.organization.stripe() {
        Some(_) => shortest,
        None => length.unwrap_or(BLOCK), // a stand-in, until the drive is added
    };
    let lengths: Vec<u64> = lengths.into_iter().map(whole).collect();
    for ((disk, _), &length) in kept.subdisks.iter().zip(&lengths) {
        if length == 0 {
            return Err(Wrong::new(disk.at, format!("too short: it has at least {}", exact(least))));
        }
        if let Some(asked) = disk.length.filter(|asked| *asked != length && is_known) {
            let why = if kept.plex.organization.stripe().is_some() {
                "whole stripes, as many on each subdisk"
            } else {
                "whole blocks of 4K"
            };
            notes.push(Wrong::new(disk.at, format!("{} of {} are used: {why}", exact(length), exact(asked))));
        }
    }
    Ok((lengths, is_known))
}
