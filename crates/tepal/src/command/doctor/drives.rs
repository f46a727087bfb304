//! Drives: away, failed, behind, full, rotting, not to be emptied.

use super::findings::{Finding, Severity, count, named};
use super::seen::Seen;
use crate::output;
use tepal_server::api::types::{DriveInfo, DriveState, VolumeInfo};

/// Hundredths of a drive from which on somebody should plan, and from which on it's urgent.
const FILLING: u64 = 85;
const NEARLY_FULL: u64 = 95;
/// What the cluster's status says of a drive on which nothing new can be written.
const FULL: &str = " full, ";
const NEARLY: &str = "nearly full, ";

pub fn findings(seen: &Seen) -> Vec<Finding> {
    let each = seen.drives.iter().flat_map(|drive| {
        let state = of_state(seen, drive);
        state.into_iter().chain(of_room(seen, drive)).chain(of_rot(seen, drive)).chain(stuck(drive))
    });
    each.collect()
}

/// The volumes that have copies on it.
fn volumes<'a>(seen: &'a Seen, drive: &DriveInfo) -> Vec<&'a VolumeInfo> {
    seen.volumes.iter().filter(|volume| volume.drives.contains(&drive.id)).collect()
}

fn names<'a>(volumes: &[&'a VolumeInfo]) -> Vec<&'a str> {
    volumes.iter().map(|volume| volume.name.as_str()).collect()
}

fn with_reason(text: String, drive: &DriveInfo) -> String {
    if drive.reason.is_empty() { text } else { format!("{text}: {}", drive.reason) }
}

fn fewer(seen: &Seen, drive: &DriveInfo) -> String {
    match &names(&volumes(seen, drive))[..] {
        [] => "no volume has a copy on it".to_owned(),
        all => format!("{} with copies on it lack one until it's back: {}", count(all.len(), "volume"), named(all)),
    }
}

fn of_state(seen: &Seen, drive: &DriveInfo) -> Option<Finding> {
    let (id, place) = (drive.called(), format!("{} on server {}", drive.path, drive.server));
    let subject = format!("drive {id}");
    match drive.state {
        DriveState::Up => None,
        // It's told with its server.
        DriveState::Missing if seen.is_down(drive.server) => None,
        DriveState::Missing => {
            let what = with_reason(format!("drive {id} at {place} is missing"), drive);
            let finding = Finding::new(Severity::Warning, subject, what, fewer(seen, drive));
            let finding = finding
                .hands("put the device back, at any path of any server: it's found by its label, and catches up");
            Some(finding.run("see whether a server sees it somewhere", "tepal drive scan").run(
                "if it never comes back, its copies are made again elsewhere: watch them, and remove nothing before",
                "tepal drive ls",
            ))
        }
        DriveState::Offline => {
            let what = with_reason(format!("drive {id} at {place} is offline"), drive);
            let finding = Finding::new(Severity::Warning, subject, what, fewer(seen, drive));
            Some(finding.run("have it used again, when the work on it is done", format!("tepal drive online {id}")))
        }
        DriveState::Failed => Some(of_failed(seen, drive, subject, &place)),
        DriveState::Behind => {
            let what = with_reason(format!("drive {id} at {place} is catching up"), drive);
            let why = "it has yet to get what it missed: until then its copies don't count";
            Some(Finding::new(Severity::Remark, subject, what, why).hands("wait: nothing is to be done"))
        }
    }
}

fn of_failed(seen: &Seen, drive: &DriveInfo, subject: String, place: &str) -> Finding {
    let id = drive.called();
    let what = with_reason(format!("drive {id} at {place} has failed"), drive);
    if drive.copies == 0 {
        let finding =
            Finding::new(Severity::Remark, subject, what, "no volume needs it any more; it's only still listed");
        return finding.run("take it out", format!("tepal drive rm {id}"));
    }
    let volumes = volumes(seen, drive);
    let why = format!(
        "its content isn't relied on again, and {} of columns are still to be made on others, of {}",
        count(usize::try_from(drive.copies).unwrap_or(usize::MAX), "copy").replace("copys", "copies"),
        named(&names(&volumes))
    );
    let mut finding = Finding::new(Severity::Warning, subject, what, why);
    for volume in volumes.iter().filter(|volume| volume.losses_left == 0).take(3) {
        let save = format!("copy away what '{}' has left, as parts of it have no second copy now", volume.name);
        finding = finding.run(save, format!("tepal volume export {0} --keep-going > {0}.img", volume.name));
    }
    finding
        .run("watch its copies go down: they are made again on other drives that have room", "tepal drive ls")
        .run("when it has 0 copies", format!("tepal drive rm {id}"))
}

fn of_room(seen: &Seen, drive: &DriveInfo) -> Option<Finding> {
    if drive.open.is_none() || drive.capacity == 0 {
        return None;
    }
    let (id, left) = (drive.called(), drive.capacity.saturating_sub(drive.used));
    let said = format!("{} of {} are left", output::size(left), output::size(drive.capacity));
    let is_named = |reason: &String| reason.contains(&drive.id.to_string()) && reason.contains(FULL);
    let is_full = seen.status.reason.iter().any(|reason| is_named(reason) && !reason.contains(NEARLY));
    let used = u128::from(drive.used) * 100 / u128::from(drive.capacity);
    let (severity, how, why) = match used {
        _ if is_full => {
            (Severity::Critical, "full", "writes that need new space fail on it, and filesystems go read-only")
        }
        used if used >= NEARLY_FULL.into() => (Severity::Warning, "nearly full", "writes fail when it's full"),
        used if used >= FILLING.into() => {
            (Severity::Remark, "filling", "a drive takes weeks to buy; writes fail when it's full")
        }
        _ => return None,
    };
    let what = format!("drive {id} on server {} is {how}: {said}", drive.server);
    let mut finding = Finding::new(severity, format!("drive {id}"), what, why);
    if drive.reclaiming > 0 {
        finding =
            finding.hands(format!("{} of it are being freed already: wait for that", output::size(drive.reclaiming)));
    }
    let add = format!("tepal drive add {} /dev/NEW --pool {}", drive.server, drive.pool);
    Some(
        finding
            .run("add a drive to the pool: copies spread to it by themselves", add)
            .run("or see which snapshots keep much, and remove what nobody needs", "tepal snapshot ls")
            .hands("or run fstrim in the filesystems on volumes"),
    )
}

fn of_rot(seen: &Seen, drive: &DriveInfo) -> Option<Finding> {
    let open = drive.open.as_ref().filter(|open| open.read_errors + open.block_errors > 0)?;
    let id = drive.called();
    let what = format!(
        "drive {id} at {} on server {} has had {} reads that failed, and {} blocks that were damaged",
        drive.path, drive.server, open.read_errors, open.block_errors
    );
    let why = "what was damaged is written again from other copies; a drive that rots may fail as a whole";
    let mut finding = Finding::new(Severity::Warning, format!("drive {id}"), what, why);
    for volume in volumes(seen, drive).into_iter().take(3) {
        let text = format!("verify all copies of '{}'", volume.name);
        finding = finding.run(text, format!("tepal volume scrub {}", volume.name));
    }
    Some(finding.run("if it goes on, empty it while it can still be read", format!("tepal drive drain {id}")))
}

fn stuck(drive: &DriveInfo) -> Option<Finding> {
    let why_not = drive.stuck.as_ref()?;
    let id = drive.called();
    let what = format!("drive {id} on server {} isn't emptied: {why_not}", drive.server);
    let why = format!("it's to hold nothing any more, and still has {}", output::size(drive.used));
    let finding = Finding::new(Severity::Warning, format!("drive {id}"), what, why);
    let add = format!("tepal drive add {} /dev/NEW --pool {}", drive.server, drive.pool);
    Some(
        finding
            .run("give its copies a place", add)
            .run("or keep it in use", format!("tepal drive drain {id} --cancel")),
    )
}
