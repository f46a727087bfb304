//! What keeps a volume from being healthy, for people: what happens to its requests, because of which drive, and what the
//! operator can do.

use crate::observed::Damaged;
use std::time::Duration;
use tepal_engine::Trouble;
use tepal_metadata::{DriveState, DriveUse, Lease, ServerState, State, Tick};
use tepal_model::{BLOCK, DriveId, Fragments, IoError, ServerId};

/// One line of reason.
pub fn reason(trouble: &Trouble, state: &State, volume: &str) -> String {
    match trouble {
        Trouble::Lost { drives } => {
            let held = named(drives, state);
            format!(
                "some of it is lost, and requests for that fail: only {held} had all that was acknowledged; `tepal volume accept-loss \
                 {volume}` says where, and can have older copies served where there are some; `tepal volume export --keep-going` saves all else"
            )
        }
        Trouble::AllWaits { drives } => all_wait(drives, state),
        Trouble::WritesWait { wanted, here, drives } => {
            let fragments =
                state.volume_called(volume).map_or(Fragments::copies(2), |record| record.layout.fragments());
            let rule = match fragments.are_copies() {
                true => format!("min_copies={wanted}"),
                false => {
                    format!("min_extra={} beyond {}", wanted.saturating_sub(fragments.data.into()), fragments.data)
                }
            };
            let copies = match (fragments.are_copies(), *here) {
                (true, 1) => "copy is",
                (true, _) => "copies are",
                (false, 1) => "fragment is",
                (false, _) => "fragments are",
            };
            let held = named(drives, state);
            if *here < fragments.data.into() {
                let data = fragments.data;
                return match drives.iter().any(|drive| may_return(*drive, state)) {
                    true => format!(
                        "reads and writes wait: {data} fragments are needed, and only {here} {copies} here without {held}: {}",
                        comeback(drives, state)
                    ),
                    false => format!(
                        "what was given up of it can be read, as zeros, and writes there wait: {data} fragments are needed, and only {here} \
                         {copies} here without {held}: add drives, to which fragments go by themselves"
                    ),
                };
            }
            let copy =
                format!("copy the volume to other drives: `tepal volume export {volume} | tepal volume import NEW`");
            let todo = match drives.iter().any(|drive| may_return(*drive, state)) {
                true => format!("{}; or, if it's gone for good, {copy}", comeback(drives, state)),
                false => copy,
            };
            format!("writes wait, reads go on: {rule}, and only {here} {copies} here without {held}: {todo}")
        }
        Trouble::Away { drive } | Trouble::Failed { drive } => fewer_without(*drive, state),
        // How many is said of the whole volume, as each server knows those that it leads.
        Trouble::Behind { drive, .. } => format!("drive {drive} is catching up"),
        Trouble::LedAnew { .. } => "parts of it are about to be led by other servers".to_owned(),
        Trouble::Comparing { .. } => "copies are being compared: not all may have got what was written last".to_owned(),
        Trouble::Obstacle(text) => text.clone(),
        Trouble::Stays { error: IoError::OutOfSpace } => {
            "a part of it stays where it is on the way to another layout: there's no room for it where it goes"
                .to_owned()
        }
        Trouble::Stays { error } => format!("a part of it stays where it is on the way to another layout: {error}"),
        Trouble::NotHandedOver { by } => {
            format!("a part of it waits to be handed over by {by}, to go to another layout")
        }
    }
}

fn all_wait(drives: &[DriveId], state: &State) -> String {
    let is_there = |drive: &&DriveId| state.drives.get(drive).is_some_and(|record| record.state.takes_writes());
    let (there, away): (Vec<&DriveId>, Vec<&DriveId>) = drives.iter().partition(is_there);
    let away: Vec<DriveId> = away.into_iter().copied().collect();
    if away.is_empty() {
        let ids = there.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        return format!("reads and writes wait until it's known what drives that have just returned hold ({ids})");
    }
    // Those that were removed meanwhile have been given up already.
    let waited_for: Vec<DriveId> = away.iter().copied().filter(|drive| may_return(*drive, state)).collect();
    if waited_for.is_empty() {
        return format!("reads and writes wait until it's known what others have of what {} held", named(&away, state));
    }
    format!(
        "reads and writes of what only {} had wait until it's back: {}; if it's gone for good, {} says what that costs",
        named(&waited_for, state),
        comeback(&waited_for, state),
        each(&waited_for, |drive| format!("`tepal drive rm {drive}`")),
    )
}

/// Runs of damaged blocks that are named.
const DAMAGED_NAMED: usize = 4;

/// What no copy has right of a volume.
pub fn damage(damaged: &Damaged) -> Option<String> {
    Some(format!("{}: write that again, or restore the volume from elsewhere", damaged_blocks(damaged)?))
}

/// The same of a snapshot, which nobody can write.
pub fn damage_of_snapshot(damaged: &Damaged) -> Option<String> {
    let blocks = damaged_blocks(damaged)?;
    Some(format!(
        "{blocks}: copy the rest of the snapshot elsewhere (`tepal volume export --keep-going`), and remove the snapshot; what its volume holds \
         now may be right"
    ))
}

/// How many, and where, as OFFSET+LENGTH in bytes.
fn damaged_blocks(damaged: &Damaged) -> Option<String> {
    let runs = damaged.runs();
    let count: u64 = runs.iter().map(|(_, count)| count).sum();
    let named = runs.iter().take(DAMAGED_NAMED);
    let named: Vec<String> = named.map(|(first, count)| format!("{}+{}", first * BLOCK, count * BLOCK)).collect();
    let more = if runs.len() > DAMAGED_NAMED { ", ..." } else { "" };
    let (blocks, them) = if count == 1 { ("block", "it") } else { ("blocks", "them") };
    let are = if count == 1 { "is" } else { "are" };
    (count > 0).then(|| {
        format!(
            "{count} {blocks} of {BLOCK} bytes {are} damaged on every copy that is here (at {}{more}), and reads of {them} fail",
            named.join(", ")
        )
    })
}

/// What has a part of an image.
pub fn incomplete(name: &str) -> String {
    format!(
        "an import of it hasn't come to its end: if no import is running, `tepal volume import {name}` does it again, and with --resume goes on"
    )
}

/// What has a part of a snapshot of its source.
pub fn receives(source: &str) -> String {
    format!(
        "a replica of {source}, of which it has a part of a newer snapshot: its own snapshots are whole, and the replication goes on with that"
    )
}

/// Why a server may serve nobody now, if that is so: it has to know that nobody has taken over from it.
pub fn no_lease(server: ServerId, lease: Lease, now: Tick) -> Option<String> {
    // In whatever view: one that is about to be followed is nothing to tell of.
    if lease.allows(u64::MAX, now) {
        return None;
    }
    let why = match lease {
        Lease::Down { .. } => "the others have declared it down, and it has yet to come back",
        Lease::Alone | Lease::Held { .. } | Lease::None => {
            "it has no lease, which it gets when a majority of the servers that vote is there: bring them back, or their network"
        }
    };
    Some(format!("server {server} may not serve volumes over several servers, their clients on it wait: {why}"))
}

/// All that is said of a volume. A drive that requests wait for isn't said to be missed as well.
pub fn reasons(troubles: &[Trouble], state: &State, volume: &str) -> Vec<String> {
    let mut reasons = Vec::new();
    for trouble in troubles {
        match trouble {
            Trouble::Away { drive } | Trouble::Failed { drive } if is_named(*drive, &reasons) => {}
            _ => reasons.push(reason(trouble, state, volume)),
        }
    }
    reasons
}

pub fn is_named(drive: DriveId, reasons: &[String]) -> bool {
    reasons.iter().any(|reason| reason.contains(&drive.to_string()))
}

/// What is waited for where a volume has fewer copies than it's to have, because of this drive.
pub fn fewer_without(drive: DriveId, state: &State) -> String {
    let held = named(&[drive], state);
    match state.drives.get(&drive) {
        Some(record) if record.state.takes_writes() => {
            format!("it has fewer copies for a moment: {held} has yet to say what it holds")
        }
        Some(record) if record.state != DriveState::Failed && record.purpose != DriveUse::Removed => {
            format!("it has fewer copies until {held} is back: {}", comeback(&[drive], state))
        }
        _ if state.maps.values().any(|map| map.layout.names(drive)) => {
            format!(
                "it has fewer copies until a spare (`tepal drive spare`) or `tepal drive replace` gives it a drive in place of {held}"
            )
        }
        _ => format!("it has fewer copies until others have what {held} held"),
    }
}

/// Why there's no volume on drives of this pool now.
pub fn no_drive_came(pool: &str, waited: Duration, away: &[DriveId], state: &State) -> String {
    let (held, waited) = (named(away, state), waited.as_secs());
    let comeback = comeback(away, state);
    format!("pool '{pool}' has no drive that is up, and none came in {waited} s: {held} was waited for: {comeback}")
}

/// Why a volume can't have the two copies that it would get.
pub fn too_few_for_two(rule: &str, away: &[DriveId], state: &State) -> String {
    let back = match away {
        [] => String::new(),
        _ => format!("bring back {} ({}), or ", named(away, state), comeback(away, state)),
    };
    format!("{rule}: {back}say `--layout stripe` for one copy")
}

/// What is said of volumes that the loss of one drive is the end of. It's no trouble: it may have been asked for.
pub fn one_copy(volumes: &[&str]) -> Option<String> {
    const NAMED: usize = 4;
    let first = volumes.first()?;
    let named = volumes.iter().take(NAMED).map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
    let more = volumes.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let (volumes, have) = if volumes.len() == 1 { ("volume", "has") } else { ("volumes", "have") };
    Some(format!(
        "{volumes} {named}{more} {have} no second copy: what is on a drive is lost with it; `tepal volume relayout {first} --layout mirror:2` \
         makes one, where the pool has two drives"
    ))
}

/// Each drive with its state and place.
fn named(drives: &[DriveId], state: &State) -> String {
    let one = |id: DriveId| match state.drives.get(&id) {
        Some(record) if record.state == DriveState::Up => format!("drive {id} (at {}, just started)", record.path),
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
        Some(record) if is_down(record.server, state) => {
            format!("start server {}, or resume it if it's paused", record.server)
        }
        Some(record) => format!("put it back at {}", record.path),
        None => "put it back".to_owned(),
    };
    each(drives.iter().copied().filter(|drive| may_return(*drive, state)).collect::<Vec<_>>().as_slice(), one)
}

fn is_down(server: ServerId, state: &State) -> bool {
    state.servers.get(&server).is_some_and(|record| record.state == ServerState::Down)
}

fn may_return(drive: DriveId, state: &State) -> bool {
    state.drives.get(&drive).is_some_and(|record| record.state != DriveState::Failed)
}

/// What is the same of several is said once.
fn each(drives: &[DriveId], one: impl Fn(DriveId) -> String) -> String {
    let mut all: Vec<String> = Vec::new();
    for text in drives.iter().map(|drive| one(*drive)) {
        if !all.contains(&text) {
            all.push(text);
        }
    }
    all.join(", ")
}

/// Migrations can be kept to a rate, live imports can't.
pub fn no_rate_of_live(volume: &str) -> String {
    format!(
        "volume '{volume}' is being imported live, which has no rate: copying gives way to clients by itself; `tepal volume pause {volume}` \
         has it rest, `tepal volume resume {volume}` go on"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tepal_metadata::{Command, DEFAULT_POOL, Metadata};
    use tepal_model::ClusterId;

    /// Story: right after a start `drive 1 (up at /d1)` was given as a reason why a volume isn't whole.
    #[tokio::test(flavor = "current_thread")]
    async fn a_drive_that_is_missed_is_in_a_sentence_that_says_what_is_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let (server, id) = (ServerId(1), DriveId(1));
        let created = Metadata::create(folder.path(), ClusterId(1), "test", server, "unix:/s", 0).await;
        let metadata = created.expect("a cluster");
        let (pool, path) = (DEFAULT_POOL.to_owned(), "/d1".to_owned());
        let add = Command::AddDrive { id, server, pool, path, capacity: 1 << 30, spare: false };
        metadata.propose(add).await.expect("added");
        let reason = |trouble| reason(&trouble, &metadata.state(), "v");
        let missed = || reason(Trouble::Away { drive: id });
        assert!(missed().ends_with("(at /d1, just started) has yet to say what it holds"), "{}", missed());
        assert!(!reason(Trouble::WritesWait { wanted: 2, here: 1, drives: vec![id] }).contains("(up at"));
        let both = [Trouble::AllWaits { drives: vec![id] }, Trouble::Away { drive: id }];
        assert_eq!(reasons(&both, &metadata.state(), "v").len(), 1, "it's said once");
        for (to, said) in [
            (DriveState::Missing, "(missing at /d1) is back: put it back at /d1"),
            (DriveState::Offline, "(offline at /d1) is back: `tepal drive online"),
            (DriveState::Failed, "until others have what drive"),
        ] {
            let change = Command::SetDriveState { id, to, reason: "a test".to_owned(), expected_view: None };
            metadata.propose(change).await.expect("it's accepted");
            assert!(missed().contains(said), "{}", missed());
        }
    }

    #[test]
    fn a_server_without_a_lease_says_what_it_waits_for() {
        let at = |millis| Tick(Duration::from_millis(millis));
        let held = Lease::Held { view: 9, until: at(100) };
        for (lease, now, said) in [
            (Lease::Alone, 100, None),
            (held, 99, None),
            (held, 100, Some("a majority")),
            (Lease::None, 0, Some("a majority")),
            (Lease::Down { view: 3 }, 0, Some("declared it down")),
        ] {
            let text = no_lease(ServerId(2), lease, at(now));
            assert_eq!(text.is_some(), said.is_some(), "{lease:?}: {text:?}");
            assert!(text.unwrap_or_default().contains(said.unwrap_or_default()), "{lease:?}");
        }
    }
}
