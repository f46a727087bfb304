//! What keeps a volume from being healthy, for people: what happens to its requests, because of which drive, and what the
//! operator can do.

use crate::observed::Damaged;
use tepal_engine::Trouble;
use tepal_metadata::{DriveState, State};
use tepal_model::{BLOCK, DriveId};

/// One line of reason.
pub fn reason(trouble: &Trouble, state: &State, volume: &str) -> String {
    match trouble {
        Trouble::Lost { drives } => {
            let held = named(drives, state);
            format!(
                "some of it is lost: only {held} held it, and requests for that fail; restore the volume from elsewhere"
            )
        }
        Trouble::AllWaits { drives } => format!(
            "reads and writes of what only {} held wait until it's back: {}; or, if it's gone for good, have them fail: {}",
            named(drives, state),
            comeback(drives, state),
            each(drives, |drive| format!("`tepal drive rm {drive} --force`")),
        ),
        Trouble::WritesWait { wanted, here, drives } => {
            let copies = if *here == 1 { "copy is" } else { "copies are" };
            let held = named(drives, state);
            let copy =
                format!("copy the volume to other drives: `tepal volume export {volume} | tepal volume import NEW`");
            let todo = match drives.iter().any(|drive| may_return(*drive, state)) {
                true => format!("{}; or, if it's gone for good, {copy}", comeback(drives, state)),
                false => copy,
            };
            format!(
                "writes wait, reads go on: min_copies={wanted}, and only {here} {copies} here without {held}: {todo}"
            )
        }
        Trouble::Away { drive } | Trouble::Failed { drive } => named(&[*drive], state),
        Trouble::Behind { drive, regions } => format!("drive {drive} is catching up: {regions} regions to go"),
        Trouble::Comparing { regions } => format!("{regions} regions are being compared after a crash"),
        Trouble::Obstacle(text) => text.clone(),
    }
}

/// Offsets of damaged blocks that are named.
const DAMAGED_NAMED: usize = 4;

/// What no copy has right.
pub fn damage(damaged: &Damaged) -> String {
    let first: Vec<String> = damaged.first(DAMAGED_NAMED).iter().map(ToString::to_string).collect();
    let more = if damaged.count() > DAMAGED_NAMED { ", ..." } else { "" };
    format!(
        "{} blocks of {BLOCK} bytes are damaged on every copy that is here (at {}{more}), and reads of them fail: write them again, or \
         restore the volume from elsewhere",
        damaged.count(),
        first.join(", ")
    )
}

/// Each drive with its state and place.
fn named(drives: &[DriveId], state: &State) -> String {
    let one = |id: DriveId| match state.drives.get(&id) {
        Some(record) => format!("drive {id} ({} at {})", record.state, record.path),
        None => format!("drive {id} (removed)"),
    };
    each(drives, one)
}

/// How drives are brought back.
fn comeback(drives: &[DriveId], state: &State) -> String {
    let one = |id: DriveId| match state.drives.get(&id) {
        Some(record) if record.state == DriveState::Offline => format!("`tepal drive online {id}`"),
        Some(record) if record.state.takes_writes() => "wait until those it learns from are back".to_owned(),
        Some(record) => format!("put it back at {}", record.path),
        None => "put it back".to_owned(),
    };
    each(drives.iter().copied().filter(|drive| may_return(*drive, state)).collect::<Vec<_>>().as_slice(), one)
}

fn may_return(drive: DriveId, state: &State) -> bool {
    state.drives.get(&drive).is_some_and(|record| record.state != DriveState::Failed)
}

fn each(drives: &[DriveId], one: impl Fn(DriveId) -> String) -> String {
    drives.iter().map(|drive| one(*drive)).collect::<Vec<_>>().join(", ")
}
