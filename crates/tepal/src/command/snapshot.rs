//! `tepal snapshot`.

use super::source::{Kind, Source};
use super::{CommandError, snapshot_removal};
use crate::cli::{Global, SnapshotCommand};
use crate::client::Client;
use crate::locate;
use crate::output::{self, Outcome, Output, Progress};
use std::collections::BTreeSet;
use std::io::Write;
use tepal_model::DriveId;
use tepal_server::api::types::{
    BY_ID, CreateSnapshot, Difference, DifferenceKind, Done, RenameSnapshot, SnapshotDiff, SnapshotInfo, SnapshotName,
    SourceName, VolumeInfo, path, route,
};

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("{from} and {to} are of different volumes: name two snapshots of one")]
    OtherVolume { from: SnapshotName, to: SourceName },
    #[error("{0} has another size than when it was begun to be read: read a snapshot of it")]
    Resized(SourceName),
    #[error("{gone} was removed when it was compared up to {done}: nothing is said of what has its name now")]
    Gone { gone: String, done: String },
}

pub fn run(global: &Global, output: Output, command: SnapshotCommand) -> Result<Outcome, CommandError> {
    let client = locate::client(global)?;
    match command {
        SnapshotCommand::Create { name } => {
            let request = CreateSnapshot { volume: name.volume.clone(), name: name.snapshot.clone() };
            let made: SnapshotInfo = client.create(route::SNAPSHOTS, &request)?;
            output.show(&made, |made| format!("snapshot {name} is made, of {}", output::size(made.size)))?;
        }
        SnapshotCommand::Ls { volume } => {
            let query = volume.map_or_else(String::new, |volume| format!("?volume={volume}"));
            let snapshots: Vec<SnapshotInfo> = client.get(&format!("{}{query}", route::SNAPSHOTS))?;
            output.show(&snapshots, |snapshots| list(snapshots))?;
        }
        SnapshotCommand::Show { name } => {
            let snapshot: SnapshotInfo = client.get(&path(route::SNAPSHOT, &name.to_string()))?;
            output.show(&snapshot, page)?;
        }
        SnapshotCommand::Rm { name, force, wait } => snapshot_removal::remove(&client, output, &name, (force, wait))?,
        SnapshotCommand::Rollback { name, force } => {
            let route = path(route::SNAPSHOT_ROLLBACK, &name.to_string());
            let volume: VolumeInfo = client.post(&format!("{route}?force={force}"), &Done {})?;
            output.show(&volume, |volume| {
                format!("volume {} holds what {name} does, {}", volume.name, output::size(volume.size))
            })?;
        }
        SnapshotCommand::Rename { name, new_name } => {
            let route = path(route::SNAPSHOT_RENAME, &name.to_string());
            let snapshot: SnapshotInfo = client.post(&route, &RenameSnapshot { new_name })?;
            output.show(&snapshot, |snapshot| format!("snapshot {name} is called {} now", snapshot.full_name()))?;
        }
        SnapshotCommand::Diff { from, to } => diff(&client.patient(), output, from, to)?,
    }
    Ok(Outcome::Done)
}

fn diff(client: &Client, output: Output, from: SnapshotName, to: Option<SourceName>) -> Result<(), CommandError> {
    let to = to.unwrap_or_else(|| SourceName::Volume(from.volume.clone()));
    if to.volume() != from.volume {
        return Err(SnapshotError::OtherVolume { from, to }.into());
    }
    let [one, other] = [&SourceName::Snapshot(from.clone()), &to].map(|name| Source::find(client, name));
    let (one, other) = (one?, other?);
    let mut progress = Progress::new(format!("comparing {from} with {to}"));
    let (mut runs, mut cut_off): (Vec<Difference>, _) = (Vec::new(), None);
    let mut pages = Differences::new(client, &one, &other)?;
    while let Some(page) = pages.next()? {
        progress.set(page.next.unwrap_or(page.to_size), page.to_size);
        runs.extend(page.runs);
        cut_off = (page.from_size > page.to_size).then_some((page.from_size, page.to_size));
    }
    drop(progress);
    if let Some((before, after)) = cut_off {
        let (before, after) = (output::size(before), output::size(after));
        // Standard output is for the answer alone.
        let _ = writeln!(
            std::io::stderr(),
            "{to} ends at {after}, and {from} at {before}: what {from} has past the end of {to} isn't listed, nor in what `tepal volume \
             export --since` writes: it's gone where {to} is"
        );
    }
    output.show(&joined(runs), |runs| differences(runs))?;
    Ok(())
}

/// The differences of a snapshot and something else of its volume, asked for page by page.
pub struct Differences<'a> {
    client: &'a Client,
    /// All but the offset.
    question: String,
    from: &'a Source<'a>,
    to: &'a Source<'a>,
    /// `None` at the end.
    next: Option<u64>,
}

impl<'a> Differences<'a> {
    /// Of what was found by names: these may have gone over to another volume in between.
    pub fn new(client: &'a Client, from: &'a Source<'a>, to: &'a Source<'a>) -> Result<Self, SnapshotError> {
        let (Kind::Snapshot(snapshot), true) = (&from.kind, from.volume == to.volume) else {
            return Err(SnapshotError::Gone { gone: from.described(), done: output::size(0) });
        };
        let named = match &to.kind {
            Kind::Volume { epoch, revision } => format!("epoch={epoch}&revision={revision}"),
            Kind::Snapshot(to) => format!("to={BY_ID}{}", to.epoch),
        };
        let question = format!("{}?{named}", path(route::SNAPSHOT_DIFF, &snapshot.by_id()));
        Ok(Differences { client, question, from, to, next: Some(0) })
    }

    pub fn next(&mut self) -> Result<Option<SnapshotDiff>, CommandError> {
        let Some(offset) = self.next else { return Ok(None) };
        let page = self.client.get::<SnapshotDiff>(&format!("{}&offset={offset}", self.question));
        let page = page.map_err(|error| match error.is_not_found() {
            true => CommandError::from(self.gone(offset)),
            false => error.into(),
        })?;
        if self.to.size != page.to_size {
            return Err(SnapshotError::Resized(self.to.name.clone()).into());
        }
        self.next = page.next;
        Ok(Some(page))
    }

    /// Which of the two isn't there any more.
    fn gone(&self, offset: u64) -> SnapshotError {
        let is_gone = |source: &&Source<'_>| source.map(0, 1).is_err_and(|error| error.is_not_found());
        let gone = [self.to, self.from].into_iter().find(is_gone).unwrap_or(self.from);
        SnapshotError::Gone { gone: gone.described(), done: output::size(offset) }
    }
}

/// Where one answer ended, a run may have been cut in two.
fn joined(runs: Vec<Difference>) -> Vec<Difference> {
    let mut joined: Vec<Difference> = Vec::new();
    for run in runs {
        match joined.last_mut() {
            Some(last) if last.offset + last.length == run.offset && last.kind == run.kind => last.length += run.length,
            _ => joined.push(run),
        }
    }
    joined
}

fn list(snapshots: &[SnapshotInfo]) -> String {
    let row = |snapshot: &SnapshotInfo| {
        vec![
            snapshot.full_name().to_string(),
            output::size(snapshot.size),
            unique(snapshot),
            output::time(snapshot.created_unix_ms),
            snapshot.clients.to_string(),
            snapshot.reason.join("; "),
        ]
    };
    let columns = ["name", ">size", ">unique", "created (UTC)", ">clients", "reason"];
    let mut text = output::table(&columns, snapshots.iter().map(row));
    let uncounted: BTreeSet<DriveId> = snapshots.iter().flat_map(|it| it.uncounted_drives.iter().copied()).collect();
    if !uncounted.is_empty() {
        text += &format!("+ and what these drives hold, which are away: {}\n", names(uncounted));
    }
    text
}

/// With a mark if some drives weren't there to be counted.
fn unique(snapshot: &SnapshotInfo) -> String {
    let more = if snapshot.uncounted_drives.is_empty() { "" } else { "+" };
    snapshot.unique.map_or("?".to_owned(), |unique| output::size(unique) + more)
}

fn names(drives: impl IntoIterator<Item = DriveId>) -> String {
    drives.into_iter().map(|drive| drive.to_string()).collect::<Vec<_>>().join(", ")
}

fn page(snapshot: &SnapshotInfo) -> String {
    let away = match snapshot.uncounted_drives.as_slice() {
        [] => String::new(),
        drives => format!("; and what these drives hold, which are away: {}", names(drives.iter().copied())),
    };
    let mut facts = vec![
        ("name", snapshot.full_name().to_string()),
        ("size", output::size(snapshot.size)),
        ("unique", format!("{} on drives, copies counted, come back if it's removed{away}", unique(snapshot))),
        ("created", format!("{} UTC", output::time(snapshot.created_unix_ms))),
        ("epoch", snapshot.epoch.to_string()),
        ("clients", snapshot.clients.to_string()),
    ];
    facts.extend(snapshot.reason.iter().map(|reason| ("reason", reason.clone())));
    output::facts(&facts)
}

fn differences(runs: &[Difference]) -> String {
    let kind = |kind| match kind {
        DifferenceKind::Data => "data",
        DifferenceKind::Zero => "zero",
    };
    let row = |run: &Difference| vec![run.offset.to_string(), run.length.to_string(), kind(run.kind).to_owned()];
    let bytes: u64 = runs.iter().map(|run| run.length).sum();
    match runs {
        [] => "nothing differs".to_owned(),
        _ => {
            let table = output::table(&[">offset", ">length", "kind"], runs.iter().map(row));
            format!("{table}{} differ\n", output::size(bytes))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_was_cut_where_an_answer_ended_is_one() {
        let run = |offset, length, kind| Difference { offset, length, kind };
        let data = DifferenceKind::Data;
        let cut = vec![run(0, 4096, data), run(4096, 8192, data), run(12288, 4096, DifferenceKind::Zero)];
        assert_eq!(joined(cut), [run(0, 12288, data), run(12288, 4096, DifferenceKind::Zero)]);
        assert_eq!(differences(&[]), "nothing differs");
        let table = differences(&[run(0, 12288, data)]);
        assert_eq!(table, "OFFSET  LENGTH  KIND\n     0   12288  data\n12K differ\n");
    }
}
