//! `tepal cluster rebuild`: begins again with a cluster from what its drives keep.

use super::CommandError;
use crate::cli::{Global, RebuildArguments};
use crate::dev::{DevError, FIRST, Folder};
use crate::locate;
use crate::output::{self, Outcome, Output};
use std::path::{Path, PathBuf};
use tepal_model::ServerId;
use tepal_server::config::{self, ConfigError};
use tepal_server::rebuild::{self, Choice, Others, Report, Request, Standing};

#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    #[error(transparent)]
    Rebuild(#[from] rebuild::RebuildError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(
        "{} still has its part of the cluster's state: start the servers that have theirs, and the others join them. If these are no majority \
         of those that vote, take raft.db and cluster.db out of this folder first", .0.display()
    )]
    NotLost(PathBuf),
}

/// Of a development cluster: what it may not have any more, and what it has.
struct Development {
    data: PathBuf,
    server: ServerId,
    /// By their servers.
    drives: Vec<(PathBuf, Option<ServerId>)>,
}

pub fn run(global: &Global, output: Output, arguments: RebuildArguments) -> Result<Outcome, CommandError> {
    let named = locate::dir(global);
    let (_lock, development) = match Folder::open(&named) {
        Ok(folder) => (Some(folder.lock()?), Some(development(&folder, arguments.server)?)),
        Err(DevError::NoCluster(_)) => (None, None),
        Err(error) => return Err(error.into()),
    };
    let report = carry_out(&named, development, arguments)?;
    output.show(&report, page)?;
    Ok(Outcome::Done)
}

fn development(folder: &Folder, wanted: Option<ServerId>) -> Result<Development, CommandError> {
    let servers: Vec<ServerId> = folder.servers()?;
    if let Some(kept) = servers.iter().find(|server| folder.is_member(**server)) {
        return Err(RebuildError::NotLost(folder.data(*kept)).into());
    }
    let server = wanted.unwrap_or(FIRST);
    let drives = servers.iter().map(|server| (folder.drives_there(*server), Some(*server)));
    let drives = drives.flat_map(|(paths, server)| paths.into_iter().map(move |path| (path, server))).collect();
    Ok(Development { data: folder.data(server), server, drives })
}

fn carry_out(
    named: &Path,
    development: Option<Development>,
    arguments: RebuildArguments,
) -> Result<Report, RebuildError> {
    let RebuildArguments { drives, server, peers, partial, without_missing, history, dry_run, .. } = arguments;
    let others = match (partial, without_missing) {
        (true, _) => Others::WillCome,
        (false, true) => Others::AreGivenUp,
        (false, false) => Others::MustBeFound,
    };
    let (folder, server, known) = match development {
        Some(Development { data, server, drives }) => (data, Some(server), Some(drives)),
        None => (config::absolute("dir", named)?, server, None),
    };
    let for_this = |paths: Vec<PathBuf>| paths.into_iter().map(|path| (path, None)).collect();
    let (choice, drives) = match known {
        _ if !drives.is_empty() => (Choice::Named, for_this(drives)),
        Some(known) => (Choice::Expected, known),
        None => (Choice::All, for_this(rebuild::block_devices())),
    };
    let plan = rebuild::plan(Request { folder, drives, choice, server, peers, others, history })?;
    if !dry_run {
        plan.carry_out()?;
    }
    Ok(plan.report(!dry_run))
}

/// As `--history` wants it.
fn kept(view: u64, events: u64, history: &str) -> String {
    let of = if history == "0" { String::new() } else { format!(", history {history}") };
    format!("view {view}, event {events}{of}")
}

fn page(report: &Report) -> String {
    let servers = report.servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let mut facts = vec![
        ("cluster", format!("{} ({})", report.name, report.cluster)),
        ("state", kept(report.view, report.events, &report.history)),
        ("servers", servers),
        ("begins with", format!("{} in {}", report.server, report.folder)),
    ];
    facts.extend(report.notes.iter().map(|note| ("note", note.clone())));
    let what = match report.done {
        true => format!("rebuilt: start server {} with its drives now", report.server),
        false => "nothing was done yet: this is what there is".to_owned(),
    };
    let none = || "-".to_owned();
    let drives = report.drives.iter().map(|drive| {
        let keeps = drive.view.zip(drive.events).zip(drive.history.as_ref());
        let keeps = keeps.map(|((view, events), history)| kept(view, events, history));
        let at = drive.path.clone();
        let at = match drive.standing {
            Standing::Found => at.unwrap_or_else(none),
            Standing::NotFound => "not found".to_owned(),
            Standing::OlderImage => format!("{} (older image)", at.unwrap_or_else(none)),
            Standing::OtherPast => format!("{} (given up)", at.unwrap_or_else(none)),
        };
        vec![
            drive.id.to_string(),
            drive.server.map_or_else(none, |server| server.to_string()),
            at,
            keeps.unwrap_or_else(none),
        ]
    });
    let volumes = report.volumes.iter().map(|volume| {
        let parts = format!("{} of {}", volume.parts_found, volume.parts);
        vec![volume.name.clone(), output::size(volume.size), volume.snapshots.to_string(), parts]
    });
    [
        output::facts(&facts),
        output::table(&["DRIVE", "WAS ON", "FOUND AT", "KEEPS"], drives),
        output::table(&["VOLUME", "SIZE", "SNAPSHOTS", "PARTS WITH A COPY HERE"], volumes),
        what,
    ]
    .join("\n")
}
