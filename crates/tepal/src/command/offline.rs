//! `tepal drive inspect` and `tepal drive check`: a drive looked at without a server, by the server's own code. Nothing is
//! written to it.

use super::overlay::{Overlay, OverlayWorld};
use crate::output::{self, Outcome, Output};
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};
use tepal_drive::geometry::Geometry;
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
    /// Bytes that the device has beyond the drive's end, which isn't used.
    beyond: u64,
    /// What is said of that.
    #[serde(skip)]
    unused: Option<String>,
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
    /// Bytes that the device has beyond the drive's end, which isn't used. That is no damage.
    beyond: u64,
    /// What is said of that.
    #[serde(skip)]
    unused: Option<String>,
    problems: Vec<String>,
}

/// Bytes of a volume that lie side by side on the drive too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct DamagedRange {
    map: MapId,
    /// The volumes that have them, as the drive's copy of the cluster's state says; none if it doesn't know.
    volumes: Vec<String>,
    /// In them; where it isn't known which they are, in what drives hold of the map.
    offset: u64,
    length: u64,
    /// Where they are on the drive; none of what has moved meanwhile.
    drive_offset: Option<u64>,
}

pub fn inspect(output: Output, path: &Path, log: Option<&Path>) -> Result<Outcome, OfflineError> {
    let report = match unserved::open(path, false) {
        Ok(device) => block_on(inspect_free(path, device, log))?,
        Err(UnservedError::InUse(_)) => label_report(path, unserved::peek(path)?, unserved::size(path)?, None, true),
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

/// `size` is the device's.
fn label_report(path: &Path, label: Label, size: u64, content: Option<Content>, in_use: bool) -> LabelReport {
    let (beyond, unused) = (label.beyond(size), unused(&label, size));
    LabelReport {
        path: path.display().to_string(),
        drive: label.drive,
        cluster: label.cluster,
        pool: label.pool,
        generation: label.generation,
        size: label.size,
        role: label.role.to_string(),
        state_length: label.state_length,
        beyond,
        unused,
        in_use,
        content,
    }
}

async fn inspect_free(path: &Path, device: DriveDevice, log: Option<&Path>) -> Result<LabelReport, OfflineError> {
    let (label, size) = (unserved::read_label(path, &device).await?, device.size());
    let complete = match label.role {
        Role::Data { .. } => true,
        Role::DataWithLogOn { .. } => log.is_some(),
        Role::LogOf { .. } => false,
    };
    if !complete {
        return Ok(label_report(path, label, size, None, false));
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
    Ok(label_report(path, label, size, Some(content), false))
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
    let (mut problems, size) = (label_problems(&device).await, device.size());
    let state = match Label::read(&device).await {
        Ok(label) => unserved::kept_state(&device, &label).await,
        Err(_) => None, // which opening it says
    };
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
                beyond: 0,
                unused: None,
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
    let damaged = scrub.damaged.iter().map(|&(map, block, epoch)| {
        let known = state.as_ref().and_then(|state| unserved::volumes_of(state, map, block));
        let (volumes, offset) = known.unwrap_or_else(|| (Vec::new(), block * BLOCK));
        DamagedRange { map, volumes, offset, length: BLOCK, drive_offset: drive.place_of(map, block, epoch) }
    });
    let damaged = joined(damaged.collect());
    Ok(CheckReport {
        path: path.display().to_string(),
        drive: drive.id(),
        right: damaged.is_empty() && problems.is_empty(),
        blocks_checked: scrub.blocks_checked,
        damaged,
        slots_unaccounted: unaccounted,
        beyond: drive.label().beyond(size),
        unused: unused(drive.label(), size),
        problems,
    })
}

/// A drive is opened by either copy of its label; a check wants both.
async fn label_problems(device: &DriveDevice) -> Vec<String> {
    // Where the drive ended when it was labelled: the device may have grown since.
    let labelled = Label::read(device).await.map_or(device.size(), |label| label.size);
    let last = Geometry::label_last(labelled);
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

/// Neighbours as one range, in order of the maps and of what is where in their volumes.
fn joined(mut damaged: Vec<DamagedRange>) -> Vec<DamagedRange> {
    damaged.sort_by_key(|one| (one.map, one.offset, one.drive_offset));
    let mut ranges: Vec<DamagedRange> = Vec::new();
    for one in damaged {
        let follows = |last: &&mut DamagedRange| {
            let on_drive = last.drive_offset.map(|offset| offset + last.length);
            (last.map, last.offset + last.length, on_drive) == (one.map, one.offset, one.drive_offset)
        };
        match ranges.last_mut().filter(follows) {
            Some(last) => last.length += one.length,
            None => ranges.push(one),
        }
    }
    ranges
}

fn damaged_line(range: &DamagedRange) -> String {
    let DamagedRange { map, volumes, offset, length, drive_offset } = range;
    let names: Vec<String> = volumes.iter().map(|name| format!("'{name}'")).collect();
    let of = match &names[..] {
        [] => format!("map {}, of which the drive doesn't know the volume: bytes {offset}+{length} of it", map.0),
        [name] => format!("volume {name}: bytes {offset}+{length}"),
        names => format!("volumes {}: bytes {offset}+{length}", names.join(", ")),
    };
    let place = drive_offset.map(|offset| format!(", at {offset} of the drive")).unwrap_or_default();
    format!("  {of}{place}")
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
    facts.extend(report.unused.clone().map(|text| ("beyond", text)));
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

/// What is said of a device that has been enlarged since it was labelled.
fn unused(label: &Label, size: u64) -> Option<String> {
    let beyond = label.beyond(size);
    let room = output::size(beyond);
    let what = match label.grown(size) {
        Ok(_) => format!("`tepal drive grow {}` has it used", label.drive),
        Err(why) => why.to_string(),
    };
    (beyond > 0).then(|| format!("the device has grown by {room} since the drive took its size: {what}"))
}

fn check_page(report: &CheckReport) -> String {
    let checked = output::size(report.blocks_checked * BLOCK);
    let verdict = if report.right { "all is right" } else { "damaged" };
    let mut lines = vec![format!("{}: {verdict}, {checked} checked", report.path)];
    lines.extend(report.problems.iter().map(|problem| format!("  {}", output::one_line(problem))));
    lines.extend(report.damaged.iter().map(damaged_line));
    lines.extend(report.unused.iter().map(|text| format!("  {text}")));
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
        let range = |map, offset, length, at| {
            let volumes = if map == 1 { vec!["v".to_owned()] } else { Vec::new() };
            DamagedRange { map: MapId(map), volumes, offset, length, drive_offset: Some(at) }
        };
        let single = vec![range(1, 8192, BLOCK, 73_728), range(2, 0, BLOCK, 0), range(1, 4096, BLOCK, 69_632)];
        let apart = range(1, 12_288, BLOCK, 4096); // beside them in the volume alone
        let found = joined([single, vec![apart.clone()]].concat());
        assert_eq!(found, [range(1, 4096, 8192, 69_632), apart, range(2, 0, BLOCK, 0)]);
        let lines: Vec<String> = found.iter().map(damaged_line).collect();
        assert_eq!(lines[0], "  volume 'v': bytes 4096+8192, at 69632 of the drive");
        assert!(lines[2].starts_with("  map 2, of which the drive doesn't know the volume: bytes 0+4096"), "{lines:?}");
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

    /// Story: of a drive whose file had been made longer it was said that it's damaged, as it has no label at the file's end.
    #[test]
    fn a_drive_whose_device_has_grown_is_right_and_what_it_does_not_use_is_told() {
        let (_folder, path) = made();
        File::options().write(true).open(&path).expect("ours").set_len(96 << 20).expect("space");
        let report = block_on(check_free(&path, unserved::open(&path, false).expect("free"), None)).expect("checked");
        assert_eq!((report.right, report.beyond), (true, 32 << 20), "{:?}", report.problems);
        let page = check_page(&report);
        assert!(
            page.contains("has grown by 32M") && page.contains(&format!("`tepal drive grow {}`", report.drive)),
            "{page}"
        );
        let report = block_on(inspect_free(&path, unserved::open(&path, false).expect("free"), None)).expect("read");
        assert_eq!((report.size, report.beyond), (64 << 20, 32 << 20));
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
