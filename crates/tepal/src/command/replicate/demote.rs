//! `tepal replicate demote`: a volume follows the one that was promoted in its place.

use super::link::{CONNECTIONS, Side, common};
use super::round::written_since;
use super::{CommandError, ReplicateError};
use crate::cli::{DemoteArguments, Global};
use crate::command::snapshot::Differences;
use crate::command::source::Source;
use crate::locate;
use crate::output::{self, Outcome, Output, Progress};
use tepal_server::api::types::{Done, Follow, SnapshotInfo, VolumeInfo, path, route};

pub fn run(global: &Global, output: Output, arguments: &DemoteArguments) -> Result<Outcome, CommandError> {
    let DemoteArguments { volume, source, source_volume, discard, force } = arguments;
    let mut own = Side::find(locate::client(global)?.keeping(CONNECTIONS), volume)?;
    let source = Side::find(locate::other(source)?, source_volume.as_ref().unwrap_or(volume))?;
    let (name, source_name) = (own.volume.name.clone(), source.called());
    if source.of() == own.of() {
        return Err(ReplicateError::Itself(name).into());
    }
    if source.volume.replica.is_some() {
        return Err(ReplicateError::SourceIsReplica(source.volume.name.clone()).into());
    }
    let Some((_, base)) = common(&source, &own) else {
        return Err(ReplicateError::NothingShared { name, source_name }.into());
    };
    let was_replica = own.volume.replica.is_some();
    let follow = Follow { of: source.of(), called: source_name.clone(), base: Some(base.epoch), force: *force };
    // From now on nobody else writes to it, so what is found is all there is.
    own.volume = own.client.post(&path(route::VOLUME_FOLLOW, &own.volume.by_id()), &follow)?;
    let bytes = own_changes(&own, &base);
    let has_changes = !matches!(bytes, Ok(0)) || own.volume.size != base.size;
    // A part of a snapshot is nothing that its source lacks.
    let is_own = !(was_replica && own.volume.incomplete.is_some());
    if has_changes && is_own && !discard {
        if !was_replica {
            let promote = format!("{}?force=false", path(route::VOLUME_PROMOTE, &own.volume.by_id()));
            let _: VolumeInfo = own.client.post(&promote, &Done {})?;
        }
        let (base, bytes) = (base.full_name().to_string(), output::size(bytes?));
        return Err(ReplicateError::WouldLose { name, source_name, base, bytes }.into());
    }
    // What was written again as it was is noted as written still.
    if has_changes || written_since(&own.client, &base)? > 0 {
        let query = format!("?force=true&replica_of={}", source.of());
        let path = format!("{}{query}", path(route::SNAPSHOT_ROLLBACK, &base.by_id()));
        own.volume = own.client.post_repeatable(&path, &Done {})?;
    }
    output.show(&own.volume, |now| {
        let given_up = match bytes {
            Ok(bytes) if has_changes => format!("; {} that it had changed since are given up", output::size(bytes)),
            _ => String::new(),
        };
        format!(
            "volume {} is a replica of {source_name}, and holds what both did in {}{given_up}; `tepal replicate {} TO`, asking that \
             cluster, sends what it lacks",
            now.name,
            base.full_name(),
            source.volume.name
        )
    })?;
    Ok(Outcome::Done)
}

/// Bytes in which the volume differs from its snapshot.
fn own_changes(own: &Side, base: &SnapshotInfo) -> Result<u64, CommandError> {
    let base = Source::of_snapshot(&own.client, base.clone());
    let now = Source::of_volume(&own.client, &own.volume);
    let mut progress = Progress::new(format!("comparing {} with {}", now.name, base.name));
    let (mut pages, mut bytes) = (Differences::new(&own.client, &base, &now)?, 0);
    while let Some(page) = pages.next()? {
        bytes += page.runs.iter().map(|run| run.length).sum::<u64>();
        progress.set(page.next.unwrap_or(page.to_size), page.to_size);
    }
    Ok(bytes + base.size.saturating_sub(now.size))
}
