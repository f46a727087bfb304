//! `tepal drive inspect` and `tepal drive check`: a drive looked at without a server, by the server's own code. Nothing is
//! written to it.

use super::overlay::{Overlay, OverlayWorld};
use crate::output::{self, Outcome, Output};
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};
use tepal_drive::label::{LabelError, Role};
use tepal_drive::world::Device;
use tepal_drive::{Drive, DriveError, Label, MarkKind, OpenError, Options};
use tepal_model::size::Size;
use tepal_model::{BLOCK, ClusterId, DriveId, MapId};
use tepal_server::device::DriveDevice;
use tepal_server::unserved::{self, UnservedError, block_on};

#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    #[error(transparent)]
    Unserved(#[from] UnservedError),
    #[error("{}: {error}", path.display())]
    Open { path: PathBuf, error: Box<OpenError> },
    #[error("{} holds only the log of drive {drive}: name that drive, and this one by --log", path.display())]
    OnlyLog { path: PathBuf, drive: DriveId },
    #[error("{}: its log is on a device of its own, {log}: name it by --log", path.display())]
    LogElsewhere { path: PathBuf, log: DriveId },
    #[error("{}: {error}", path.display())]
    Drive { path: PathBuf, error: DriveError },
    #[error("standard output can't be written: {0}")]
    Output(#[from] io::Error),
}

/// What the label says.
#[derive(Serialize)]
struct LabelReport {
    path: String,
    drive: DriveId,
    cluster: ClusterId,
    pool: String,
    generation: u64,
    size: u64,
    role: String,
    /// Bytes of each place for the cluster's state; 0 if it keeps none.
    state_length: u64,
    /// A server has it open, so only the label could be read.
    in_use: bool,
    content: Option<Content>,
}

#[derive(Serialize)]
struct Content {
    capacity: u64,
    used: u64,
    log_length: u64,
    log_used: u64,
    map_memory: u64,
    /// Of each global map, the bytes that the drive holds, in whole extents.
    maps: Vec<MapReport>,
    busy_regions: usize,
    stale_regions: usize,
}

#[derive(Serialize)]
struct MapReport {
    map: MapId,
    allocated: u64,
}

#[derive(Serialize)]
struct CheckReport {
    path: String,
    drive: DriveId,
    /// Nothing is damaged, and no invariant is broken.
    right: bool,
    blocks_checked: u64,
    damaged: Vec<DamagedRange>,
    /// Space that is neither free nor in use.
    slots_unaccounted: i64,
    problems: Vec<String>,
}

/// Bytes of what the drive holds of a map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct DamagedRange {
    map: MapId,
    offset: u64,
    length: u64,
}

pub fn inspect(output: Output, path: &Path, log: Option<&Path>) -> Result<Outcome, OfflineError> {
    let report = match unserved::open(path, false) {
        Ok(device) => block_on(inspect_free(path, device, log))?,
        Err(UnservedError::InUse(_)) => label_report(path, unserved::peek(path)?, true, None),
        Err(error) => return Err(error.into()),
    };
    output.show(&report, inspect_page)?;
    Ok(Outcome::Done)
}

pub fn check(output: Output, path: &Path, log: Option<&Path>) -> Result<Outcome, OfflineError> {
    let report = block_on(check_free(path, unserved::open(path, false)?, log))?;
    output.show(&report, check_page)?;
    Ok(if report.right { Outcome::Done } else { Outcome::Bad })
}

fn label_report(path: &Path, label: Label, in_use: bool, content: Option<Content>) -> LabelReport {
    LabelReport {
        path: path.display().to_string(),
        drive: label.drive,
        cluster: label.cluster,
        pool: label.pool,
        generation: label.generation,
        size: label.size,
        role: label.role.to_string(),
        state_length: label.state_length,
        in_use,
        content,
    }
}

async fn inspect_free(path: &Path, device: DriveDevice, log: Option<&Path>) -> Result<LabelReport, OfflineError> {
    let label = unserved::read_label(path, &device).await?;
    let complete = match label.role {
        Role::Data { .. } => true,
        Role::DataWithLogOn { .. } => log.is_some(),
        Role::LogOf { .. } => false,
    };
    if !complete {
        return Ok(label_report(path, label, false, None));
    }
    let drive = open_drive(path, device, log).await?;
    let usage = drive.usage();
    let marks = drive.marks();
    let count = |kind: MarkKind| marks.iter().filter(|mark| mark.kind == kind).count();
    let maps = drive.allocated().into_iter().map(|(map, allocated)| MapReport { map, allocated }).collect();
    let content = Content {
        capacity: usage.capacity,
        used: usage.used,
        log_length: usage.log_length,
        log_used: usage.log_used,
        map_memory: usage.map_memory,
        maps,
        busy_regions: count(MarkKind::Busy),
        stale_regions: marks.len() - count(MarkKind::Busy),
    };
    Ok(label_report(path, label, false, Some(content)))
}

async fn open_drive(path: &Path, device: DriveDevice, log: Option<&Path>) -> Result<Drive<OverlayWorld>, OfflineError> {
    let path = path.to_owned();
    match unserved::read_label(&path, &device).await?.role {
        Role::LogOf { drive } => return Err(OfflineError::OnlyLog { path, drive }),
        Role::DataWithLogOn { log: elsewhere } if log.is_none() => {
            return Err(OfflineError::LogElsewhere { path, log: elsewhere });
        }
        Role::Data { .. } | Role::DataWithLogOn { .. } => {}
    }
    let log = log.map(|log| unserved::open(log, false)).transpose()?.map(Overlay::new);
    let options = Options { discard: false, ..Options::default() };
    let opened = Drive::open(OverlayWorld, Overlay::new(device), log, options).await;
    opened.map_err(|error| OfflineError::Open { path, error: Box::new(error) })
}

async fn check_free(path: &Path, device: DriveDevice, log: Option<&Path>) -> Result<CheckReport, OfflineError> {
    let mut problems = label_problems(&device).await;
    let drive = match open_drive(path, device, log).await {
        Ok(drive) => drive,
        // The drive's own state is what the check is about; whatever else fails is an error of the command.
        Err(OfflineError::Open { error, path }) if is_damage(&error) => {
            problems.push(format!("it can't be opened: {error}"));
            return Ok(CheckReport {
                path: path.display().to_string(),
                drive: DriveId(0),
                right: false,
                blocks_checked: 0,
                damaged: Vec::new(),
                slots_unaccounted: 0,
                problems,
            });
        }
        Err(error) => return Err(error),
    };
    let unaccounted = drive.slots_unaccounted();
    if unaccounted != 0 {
        problems.push(format!("{unaccounted} slots are neither free nor in use"));
    }
    let scrub = drive.scrub(None, |_| async {}).await;
    let scrub = scrub.map_err(|error| OfflineError::Drive { path: path.to_owned(), error })?;
    let damaged: Vec<(MapId, u64)> = scrub.damaged.iter().map(|&(map, block, _)| (map, block)).collect();
    let damaged = ranges(&damaged);
    Ok(CheckReport {
        path: path.display().to_string(),
        drive: drive.id(),
        right: damaged.is_empty() && problems.is_empty(),
        blocks_checked: scrub.blocks_checked,
        damaged,
        slots_unaccounted: unaccounted,
        problems,
    })
}

/// A drive is opened by either copy of its label; a check wants both.
async fn label_problems(device: &DriveDevice) -> Vec<String> {
    let last = device.size() / BLOCK * BLOCK - BLOCK;
    let mut problems = Vec::new();
    for (place, offset) in [("first", 0), ("last", last)] {
        let read = device.read(offset, tepal_model::Buffer::take(BLOCK as usize)).await;
        let problem = match read {
            Ok(page) => Label::decode(&page).err().map(|error| error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        problems.extend(problem.map(|problem| format!("the {place} copy of the label: {problem}")));
    }
    // Without any label it's no drive, which opening it says.
    if problems.len() == 2 { Vec::new() } else { problems }
}

fn is_damage(error: &OpenError) -> bool {
    match error {
        OpenError::Label(error) => !matches!(error, LabelError::Missing | LabelError::Format { .. }),
        OpenError::LogMissing { .. }
        | OpenError::LogForeign { .. }
        | OpenError::LogOlder { .. }
        | OpenError::Role { .. } => false,
        _ => true,
    }
}

/// Neighbouring blocks of a map as one range.
fn ranges(damaged: &[(MapId, u64)]) -> Vec<DamagedRange> {
    let mut sorted = damaged.to_vec();
    sorted.sort_unstable();
    sorted.dedup(); // in several layers
    let mut ranges: Vec<DamagedRange> = Vec::new();
    for (map, block) in sorted {
        let offset = block * BLOCK;
        match ranges.last_mut() {
            Some(last) if last.map == map && last.offset + last.length == offset => last.length += BLOCK,
            _ => ranges.push(DamagedRange { map, offset, length: BLOCK }),
        }
    }
    ranges
}

fn inspect_page(report: &LabelReport) -> String {
    let mut facts = vec![
        ("path", report.path.clone()),
        ("drive", report.drive.to_string()),
        ("cluster", report.cluster.to_string()),
        ("pool", report.pool.clone()),
        ("generation", report.generation.to_string()),
        ("size", output::size(report.size)),
        ("role", report.role.clone()),
    ];
    match &report.content {
        None if report.in_use => facts.push(("content", "not read: a server has it open".to_owned())),
        None => facts.push(("content", "not read: the other device is needed (--log)".to_owned())),
        Some(content) => {
            let used = format!("{} of {}", output::size(content.used), output::size(content.capacity));
            let log = format!("{} of {}", output::size(content.log_used), output::size(content.log_length));
            facts.push(("used", used));
            facts.push(("log used", log));
            facts.push(("map", format!("{} in memory", output::size(content.map_memory))));
            facts.push(("busy regions", content.busy_regions.to_string()));
            facts.push(("stale regions", content.stale_regions.to_string()));
            let maps =
                content.maps.iter().map(|map| ("holds", format!("{} of map {}", Size(map.allocated), map.map.0)));
            facts.extend(maps);
        }
    }
    output::facts(&facts)
}

fn check_page(report: &CheckReport) -> String {
    let checked = output::size(report.blocks_checked * BLOCK);
    if report.right {
        return format!("{}: all is right, {checked} checked", report.path);
    }
    let mut lines = vec![format!("{}: damaged, {checked} checked", report.path)];
    lines.extend(report.problems.iter().map(|problem| format!("  {}", output::one_line(problem))));
    let damaged = report.damaged.iter();
    lines.extend(damaged.map(|range| format!("  map {}: bytes {}+{}", range.map.0, range.offset, range.length)));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use tepal_server::device::{self, OpenOptions};

    #[test]
    fn damaged_blocks_are_told_as_ranges() {
        let (a, b) = (MapId(1), MapId(2));
        let range = |map, offset, length| DamagedRange { map, offset, length };
        assert_eq!(ranges(&[(a, 3), (b, 4), (a, 1), (a, 2)]), [range(a, 4096, 12288), range(b, 16384, 4096)]);
        assert_eq!(ranges(&[]), []);
    }

    fn made() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("space");
        let path = folder.path().join("drive");
        device::create_file(&path, 64 << 20).expect("space");
        let made = path.clone();
        block_on(async move {
            let device = DriveDevice::open(&made, OpenOptions { writable: true, backend: None }).expect("ours");
            let new = tepal_drive::NewDrive {
                cluster: ClusterId(1),
                drive: DriveId(2),
                pool: "default".into(),
                log_length: None,
            };
            tepal_drive::format(&device, None, new).await.expect("blank");
            let drive = Drive::open(tepal_server::world::ServerWorld, device.into(), None, Options::default())
                .await
                .expect("made just now");
            drive.close().await.expect("closed");
            Ok::<(), OfflineError>(())
        })
        .expect("a runtime");
        (folder, path)
    }

    #[test]
    fn a_sound_drive_is_found_right_and_one_whose_label_is_half_gone_is_not() {
        let (_folder, path) = made();
        let report = block_on(check_free(&path, unserved::open(&path, false).expect("free"), None)).expect("checked");
        assert!(report.right, "{:?}", report.problems);
        let file = File::options().write(true).open(&path).expect("ours");
        file.write_all_at(&[0xff; 100], (64 << 20) - 4000).expect("space");
        let report = block_on(check_free(&path, unserved::open(&path, false).expect("free"), None)).expect("checked");
        assert!(!report.right && report.problems[0].contains("last copy of the label"), "{:?}", report.problems);
    }

    #[test]
    fn what_is_no_drive_is_refused() {
        let folder = tempfile::tempdir().expect("space");
        let path = folder.path().join("other");
        device::create_file(&path, 64 << 20).expect("space");
        let checked = block_on(check_free(&path, unserved::open(&path, false).expect("free"), None));
        assert!(matches!(
            checked,
            Err(OfflineError::Unserved(UnservedError::Label { error: LabelError::Missing, .. }))
        ));
    }
}
