//! The plexes that a file wants, on drives that there are: lengths and offsets that the file leaves open are chosen. What the volume has
//! already stays where it is.

use super::Drives;
use super::space::Space;
use crate::apply::wanted::{WantedPlex, WantedSubdisk, WantedVolume, Wrong};
use tepal_model::DriveId;
use tepal_model::layout::plexes::{MAX_PLEX, Organization, Plex, Plexes, Subdisk};
use tepal_model::size::{BLOCK, exact};

/// What the plexes of a volume come to. Their subdisks are taken of the space.
pub fn settle(
    (volume, plexes): (&WantedVolume, &[WantedPlex]),
    before: Option<&Plexes>,
    (drives, space, notes): (&Drives, &mut Space, &mut Vec<Wrong>),
) -> Result<Plexes, Wrong> {
    let mut settled = Vec::new();
    for (number, plex) in plexes.iter().enumerate() {
        let before = before.and_then(|before| before.plexes().get(number));
        let before = before.filter(|before| is_alike(before.organization, plex.organization));
        let own = format!("{}.p{number}", volume.name);
        let name = plex.name.clone().filter(|name| *name != own);
        let own = name.clone().unwrap_or(own);
        let subdisks = subdisks((plex, &own), before, (drives, &mut *space, &mut *notes))?;
        settled.push(Plex { name, organization: plex.organization, subdisks });
    }
    Plexes::new(settled).map_err(|error| Wrong::new(volume.at, format!("volume {}: {error}", volume.name)))
}

fn is_alike(one: Organization, other: Organization) -> bool {
    std::mem::discriminant(&one) == std::mem::discriminant(&other)
}

fn subdisks(
    (plex, own): (&WantedPlex, &str),
    before: Option<&Plex>,
    (drives, space, notes): (&Drives, &mut Space, &mut Vec<Wrong>),
) -> Result<Vec<Subdisk>, Wrong> {
    let mut wanted: Vec<&WantedSubdisk> = plex.subdisks.iter().collect();
    let stripe = match plex.organization {
        Organization::Concat => None,
        Organization::Striped { stripe } | Organization::Raid5 { stripe } => Some(stripe),
    };
    if let Some(stripe) = stripe {
        in_order(&mut wanted, stripe)?;
    }
    let ids = wanted.iter().map(|disk| drives.id(disk)).collect::<Result<Vec<DriveId>, Wrong>>()?;
    let had = |at: usize| before.and_then(|before| before.subdisks.get(at)).filter(|had| had.drive == ids[at]);
    let lengths = lengths(&wanted, &ids, (&had, stripe), (space, notes))?;
    let (mut settled, mut end) = (Vec::new(), 0u64);
    for (at, disk) in wanted.iter().enumerate() {
        let (drive, length) = (ids[at], lengths[at]);
        let plex_offset = match stripe {
            None => disk.plex_offset.unwrap_or(end),
            Some(_) => 0,
        };
        let default = format!("{own}.s{at}");
        let name = disk.name.clone().filter(|name| *name != default);
        let stays = had(at).filter(|had| had.length == length);
        let stays = stays.filter(|had| disk.drive_offset.is_none_or(|offset| offset == had.drive_offset));
        let drive_offset = match (stays, disk.drive_offset) {
            (Some(had), _) => had.drive_offset,
            (None, Some(offset)) => offset,
            (None, None) => space.first_fit(drive, length).ok_or_else(|| {
                let left = exact(space.largest(drive).unwrap_or(0));
                let text =
                    format!("drive {} has no free piece of {}: its largest is {left}", disk.drive, exact(length));
                Wrong::new(disk.at, text)
            })?,
        };
        if drive_offset.checked_add(length).is_none_or(|end| end > 2 * MAX_PLEX) {
            return Err(Wrong::new(disk.at, "it's longer than any drive"));
        }
        let one = Subdisk { name, drive, drive_offset, length, plex_offset };
        if let Some(had) = had(at) {
            space.give_back(had);
        }
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

/// The subdisks of a plex with stripes are where their numbers say. A file that is printed may have them in any order.
fn in_order(wanted: &mut [&WantedSubdisk], stripe: u64) -> Result<(), Wrong> {
    if wanted.iter().all(|disk| disk.plex_offset.is_some()) {
        wanted.sort_by_key(|disk| disk.plex_offset);
    }
    let is_else = |(disk, number): &(&&WantedSubdisk, u64)| {
        disk.plex_offset.is_some_and(|offset| Some(offset) != stripe.checked_mul(*number))
    };
    match wanted.iter().zip(0..).find(is_else) {
        Some((disk, number)) => {
            let place = exact(stripe.saturating_mul(number));
            let text = format!("with stripes, each subdisk begins a stripe after the one before: this one at {place}");
            Err(Wrong::new(disk.at, text))
        }
        None => Ok(()),
    }
}

/// How long each is: whole blocks, and with stripes whole stripes, as many of each.
fn lengths<'a>(
    wanted: &[&WantedSubdisk],
    ids: &[DriveId],
    (had, stripe): (&impl Fn(usize) -> Option<&'a Subdisk>, Option<u64>),
    (space, notes): (&Space, &mut Vec<Wrong>),
) -> Result<Vec<u64>, Wrong> {
    // So that two that take all that is free don't take the same.
    let mut space = space.clone();
    let mut lengths = Vec::new();
    for (at, disk) in wanted.iter().enumerate() {
        let length = match (disk.length, had(at)) {
            (Some(length), _) => length / BLOCK * BLOCK,
            (None, Some(had)) => had.length,
            (None, None) => match space.largest(ids[at]) {
                Some(0) => return Err(Wrong::new(disk.at, format!("drive {} has no free piece", disk.drive))),
                Some(length) => length,
                None => stripe.unwrap_or(BLOCK), // of a drive that is to be added: a stand-in until then
            },
        };
        if let (None, Some(offset)) = (had(at), space.first_fit(ids[at], length.max(1))) {
            let plex_offset = 0;
            space.take(&Subdisk { name: None, drive: ids[at], drive_offset: offset, length, plex_offset });
        }
        lengths.push(length);
    }
    if let Some(stripe) = stripe {
        let shortest = lengths.iter().copied().min().unwrap_or(0) / stripe * stripe;
        lengths.fill(shortest);
    }
    for (disk, &length) in wanted.iter().zip(&lengths) {
        if length == 0 {
            let least = exact(stripe.unwrap_or(BLOCK));
            return Err(Wrong::new(disk.at, format!("too short: it has at least {least}")));
        }
        if let Some(asked) = disk.length.filter(|asked| *asked != length) {
            let why = if stripe.is_some() { "whole stripes, as many on each subdisk" } else { "whole blocks of 4K" };
            notes.push(Wrong::new(disk.at, format!("{} of {} are used: {why}", exact(length), exact(asked))));
        }
    }
    Ok(lengths)
}
