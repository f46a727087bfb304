//! Volumes: not served, lost, damaged, with fewer copies, on their way, incomplete, behind as a replica, not verified for long.

use super::findings::{Finding, Severity, count, named};
use super::seen::Seen;
use crate::output::{self, one_line};
use std::time::Duration;
use tepal_server::api::types::{
    Migration, MigrationState, Replication, ReplicationRole, ScrubState, VolumeInfo, VolumeState,
};

/// What a server says of a volume of which something had only drives that are gone.
const LOST: &str = "some of it is lost";
/// A replica that nobody writes to is old from then on.
const OLD_REPLICA: Duration = Duration::from_secs(24 * 3600);
/// Rounds that may fail to end before somebody should look.
const ROUNDS: u64 = 3;
/// Rot shows only when something is read.
const UNSCRUBBED: Duration = Duration::from_secs(40 * 24 * 3600);

pub fn findings(seen: &Seen) -> Vec<Finding> {
    let groups = [not_served(seen), reduced(seen), recovering(seen), unscrubbed(seen)];
    let each = seen.volumes.iter().flat_map(|volume| {
        let lost = lost(volume).into_iter().chain(damaged(volume));
        lost.chain(on_its_way(volume)).chain(incomplete(volume)).chain(replica(seen, volume)).chain(keyless(volume))
    });
    groups.into_iter().flatten().chain(each).collect()
}

fn keyless(volume: &VolumeInfo) -> Option<Finding> {
    let (name, key) = (&volume.name, volume.key.as_ref()?);
    let servers: Vec<String> = volume.keyless_servers.iter().map(ToString::to_string).collect();
    let first = servers.first()?;
    let what =
        format!("volume {name} is encrypted, and key '{key}' isn't in the folder of keys of {}", servers.join(", "));
    let why = "whoever opens it there is refused, or will be after the next start; without any copy of the key nobody ever reads it again";
    let finding = Finding::new(Severity::Warning, format!("volume {name}"), what, why);
    Some(finding.hands(format!(
        "copy the key's file to the --keys folder of {first}, from another server or the copy that was kept apart"
    )))
}

fn is_lost(volume: &VolumeInfo) -> bool {
    volume.state == VolumeState::Unavailable && volume.reason.iter().any(|reason| reason.contains(LOST))
}

fn names<'a>(volumes: &[&'a VolumeInfo]) -> Vec<&'a str> {
    volumes.iter().map(|volume| volume.name.as_str()).collect()
}

/// What servers say of the first of them.
fn said(volumes: &[&VolumeInfo]) -> String {
    let said = volumes.first().map(|volume| volume.reason.join("; ")).unwrap_or_default();
    one_line(&said)
}

fn lost(volume: &VolumeInfo) -> Option<Finding> {
    if !is_lost(volume) {
        return None;
    }
    let name = &volume.name;
    let what = format!("volume {name} has lost something: {}", volume.reason.join("; "));
    let why = "requests for that fail, and all else is served. Nothing more is lost as long as nobody gives it up";
    let finding = Finding::new(Severity::Critical, format!("volume {name}"), what, why);
    Some(
        finding
            .run("bring back every drive that had it, if there's any hope: look which are away", "tepal drive ls")
            .run("save all else at another place, before anything else", format!("tepal volume export {name} --keep-going > {name}.img"))
            .run("see whether a snapshot has what is lost", format!("tepal snapshot ls {name}"))
            .hands("only when no drive can come back: docs/operating/one-server.md says how older copies are served, and what that costs"),
    )
}

fn not_served(seen: &Seen) -> Option<Finding> {
    let all: Vec<&VolumeInfo> =
        seen.volumes.iter().filter(|volume| volume.state == VolumeState::Unavailable && !is_lost(volume)).collect();
    let first = all.first()?;
    let what = format!(
        "{} can't all be read or written: {}; of {}: {}",
        count(all.len(), "volume"),
        named(&names(&all)),
        first.name,
        said(&all)
    );
    let clients: u64 = all.iter().map(|volume| volume.clients).sum();
    let why =
        format!("requests wait, and nothing is lost by that; {} have them open", count(clients as usize, "client"));
    let finding = Finding::new(Severity::Critical, "volumes", what, why);
    let finding = finding.run("see which servers and drives are away, and bring them back", "tepal status");
    Some(finding.hands("clients go on by themselves then. Remove no drive that is away: it may have what no other has"))
}

fn reduced(seen: &Seen) -> Option<Finding> {
    let all: Vec<&VolumeInfo> = seen
        .volumes
        .iter()
        .filter(|volume| volume.state == VolumeState::Degraded && volume.damaged_blocks == 0)
        .collect();
    let first = all.first()?;
    let bare: Vec<&VolumeInfo> = all.iter().copied().filter(|volume| volume.losses_left == 0).collect();
    let what = format!(
        "{} {} fewer copies than asked for: {}; of {}: {}",
        count(all.len(), "volume"),
        if all.len() == 1 { "has" } else { "have" },
        named(&names(&all)),
        first.name,
        said(&all)
    );
    let why = match &bare[..] {
        [] => "all is served, and each outlives one more loss at least".to_owned(),
        bare => format!("all is served, but one more loss may be the end of data of {}", named(&names(bare))),
    };
    let finding = Finding::new(Severity::Warning, "volumes", what, why);
    let finding = finding.run("bring back what is away", "tepal status");
    Some(
        finding
            .run("watch copies being made", "tepal drive ls")
            .hands("if none is being made, the pool lacks room or drives: add one"),
    )
}

fn recovering(seen: &Seen) -> Option<Finding> {
    let all: Vec<&VolumeInfo> = seen.volumes.iter().filter(|volume| volume.state == VolumeState::Recovering).collect();
    let regions: u64 = all.iter().map(|volume| volume.recovery.stale_regions + volume.recovery.busy_regions).sum();
    let rate: u64 = all.iter().map(|volume| volume.recovery.bytes_per_second).sum();
    all.first()?;
    let what = format!(
        "{} {} brought up to date: {}; {regions} MiB are left, {}/s now",
        count(all.len(), "volume"),
        if all.len() == 1 { "is being" } else { "are being" },
        named(&names(&all)),
        output::size(rate)
    );
    let why = "copies that are behind don't count until then";
    Some(Finding::new(Severity::Remark, "volumes", what, why).hands("wait: nothing is to be done"))
}

fn damaged(volume: &VolumeInfo) -> Option<Finding> {
    if volume.damaged_blocks == 0 {
        return None;
    }
    let name = &volume.name;
    let what =
        format!("volume {name} has {} that no copy here has right", count(volume.damaged_blocks as usize, "block"));
    let why = "reads of exactly these fail until they are written again; all else is right";
    let finding = Finding::new(Severity::Critical, format!("volume {name}"), what, why);
    let finding = match volume.uncounted_drives.is_empty() {
        true => finding,
        false => finding.run("bring back the drives that are away first: they may have them right", "tepal drive ls"),
    };
    Some(
        finding
            .run("find all such blocks, and repair what can be", format!("tepal volume scrub {name}"))
            .run("save all else", format!("tepal volume export {name} --keep-going > {name}.img"))
            .hands("write these places again from a backup or a snapshot: `tepal volume show` names them"),
    )
}

fn on_its_way(volume: &VolumeInfo) -> Option<Finding> {
    let (name, way) = (&volume.name, volume.migration.as_ref()?);
    let Migration { done_bytes, total_bytes, to, .. } = way;
    let far = format!("{} of {} done", output::size(*done_bytes), output::size(*total_bytes));
    let subject = format!("volume {name}");
    match way.state {
        MigrationState::Running => None,
        MigrationState::Paused => {
            let what = format!("the way of volume {name} to {to} is paused, {far}");
            let why = "it stays between two layouts, and depends on the drives of both, until somebody resumes it";
            let finding = Finding::new(Severity::Warning, subject, what, why);
            let finding = finding.run("let it go on", format!("tepal volume resume {name}"));
            Some(finding.run("or have it go back", format!("tepal volume cancel {name}")))
        }
        MigrationState::Blocked => {
            let what = format!("the way of volume {name} to {to} is stuck, {far}: {}", way.reason.join("; "));
            let why = "it depends on the drives of both layouts until it's there";
            let mut finding = Finding::new(Severity::Warning, subject, what, why);
            if way.lacks_room {
                let pool = way.to_pool.as_ref().unwrap_or(&volume.pool);
                finding = finding.run(
                    "give it room: one more drive is enough",
                    format!("tepal drive add SERVER /dev/NEW --pool {pool}"),
                );
            } else {
                finding = finding.run("bring back what is away", "tepal status");
            }
            Some(finding.run("or have it go back", format!("tepal volume cancel {name}")))
        }
    }
}

fn incomplete(volume: &VolumeInfo) -> Option<Finding> {
    let part = volume.incomplete.filter(|_| volume.replica.is_none() && volume.imports == 0)?;
    let name = &volume.name;
    let what = format!("volume {name} has the first {} of an import that didn't end", output::size(part.done));
    let finding =
        Finding::new(Severity::Warning, format!("volume {name}"), what, "whoever uses it reads half an image");
    Some(finding.run("go on with the same image", format!("tepal volume import {name} --resume < IMAGE")))
}

fn replica(seen: &Seen, volume: &VolumeInfo) -> Option<Finding> {
    let name = &volume.name;
    let sent = seen.replications.iter().find(|it| it.volume_id == volume.id);
    let is_source = sent.is_some_and(|it| it.role == ReplicationRole::Source);
    let as_of = match (&volume.replica, sent) {
        (_, Some(Replication { as_of_unix_ms, .. })) => *as_of_unix_ms,
        (Some(replica), None) => replica.as_of_unix_ms,
        (None, None) => return None,
    };
    let age = Duration::from_millis(seen.now_ms.saturating_sub(as_of));
    let borne =
        sent.map_or(OLD_REPLICA, |it| Duration::from_millis(it.every_ms.saturating_mul(ROUNDS)).max(OLD_REPLICA / 24));
    let trouble = sent.and_then(|it| it.error.clone());
    if as_of > 0 && age <= borne && trouble.is_none() {
        return None;
    }
    let other = sent.map(|it| it.other.clone()).or_else(|| Some(volume.replica.as_ref()?.called.clone()))?;
    let ways = if is_source {
        format!("the replica of volume {name} at {other}")
    } else {
        format!("volume {name}, a replica of {other},")
    };
    let far = match as_of {
        0 => "has no whole snapshot yet".to_owned(),
        _ => format!("is {} behind", output::span(age)),
    };
    let why_not = trouble.map_or(String::new(), |error| format!("; the last round ended with: {error}"));
    let what = format!("{ways} {far}{why_not}");
    let why = "what was written since is lost if the source is lost now";
    let finding = Finding::new(Severity::Warning, format!("volume {name}"), what, why);
    let finding = finding.run("see how far it is, and which error it meets", "tepal replicate ls");
    Some(match sent {
        Some(_) => finding.hands("mend what the error names: the replication goes on by itself"),
        None => {
            finding.run("start the replication again, where its source is", "tepal replicate VOLUME TO --every 10m")
        }
    })
}

/// Nothing is known from before a server's start, so only what has run for that long is judged.
fn unscrubbed(seen: &Seen) -> Option<Finding> {
    let up_for =
        seen.status.servers.iter().filter(|server| !server.version.is_empty()).map(|server| server.uptime_ms).min()?;
    let is_old = |ms: u64| Duration::from_millis(ms) > UNSCRUBBED;
    let scrub = |volume: &VolumeInfo| seen.scrubs.iter().find(|scrub| scrub.volume_id == volume.id);
    let is_due = |volume: &&VolumeInfo| {
        let is_grown = is_old(seen.now_ms.saturating_sub(volume.created_unix_ms));
        is_grown
            && scrub(volume).is_some_and(|scrub| match (scrub.state, scrub.done_unix_ms) {
                (ScrubState::Running, _) => false,
                _ if scrub.recorded_unix_ms.is_some_and(|begun| !is_old(seen.now_ms.saturating_sub(begun))) => false,
                (_, Some(done)) => is_old(seen.now_ms.saturating_sub(done)),
                (_, None) => is_old(up_for),
            })
    };
    let all: Vec<&VolumeInfo> = seen.volumes.iter().filter(is_due).collect();
    all.first()?;
    let what = format!(
        "{} {} not verified for {}: {}",
        count(all.len(), "volume"),
        if all.len() == 1 { "was" } else { "were" },
        output::span(UNSCRUBBED),
        named(&names(&all))
    );
    let why =
        "rot shows when something is read: what rots on one drive is repaired only as long as another one is right";
    let mut finding = Finding::new(Severity::Warning, "volumes", what, why);
    for volume in all.iter().take(3) {
        finding = finding.run("read and compare all copies, under use", format!("tepal volume scrub {}", volume.name));
    }
    Some(finding)
}
