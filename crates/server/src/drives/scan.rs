//! Looking around for devices that are drives, or could be.

use super::identity::{Seen, Verdict, judge};
use super::look::{distinct, same_place};
use super::{Drives, signature};
use crate::device::{self, DriveDevice, OpenOptions};
use std::path::{Path, PathBuf};
use tepal_drive::Label;
use tepal_drive::label::LabelError;
use tepal_drive::world::Device;
use tepal_model::{ClusterId, DriveId, size::Size};

/// A device that was found.
#[derive(Clone, Debug)]
pub struct ScannedDrive {
    pub path: PathBuf,
    pub size: u64,
    pub fitness: Fitness,
    pub label: Option<(ClusterId, DriveId)>,
    /// For people.
    pub detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fitness {
    Free,
    Ours,
    OursUnused,
    Foreign,
    Unfit,
    /// It carries somebody's data.
    Occupied,
}

/// Smallest device that is listed if it isn't configured, in bytes: floppies and empty loop devices are not.
const SMALLEST: u64 = tepal_drive::geometry::MIN_DRIVE;

impl Drives {
    /// The configured and recorded paths, and this machine's block devices. Nothing is written, and nothing kept open.
    pub async fn scan(&self) -> Vec<ScannedDrive> {
        let state = self.parts.metadata.state();
        let named = self.configured.iter().flat_map(|drive| [Some(drive.path.clone()), drive.log.clone()]).flatten();
        let recorded = state.drives_of_server(self.server).map(|record| PathBuf::from(&record.path));
        let named = distinct(named.chain(recorded));
        let all = distinct(named.iter().cloned().chain(block_devices()));
        let mut found = Vec::new();
        for path in all {
            let is_named = named.contains(&path);
            if let Some(scanned) = self.scan_one(path).await
                && (is_named || (scanned.size >= SMALLEST && scanned.fitness != Fitness::Unfit))
            {
                found.push(scanned);
            }
        }
        found
    }

    async fn scan_one(&self, path: PathBuf) -> Option<ScannedDrive> {
        let open = self.open();
        let used = open.values().find(|open| {
            same_place(&open.path, &path) || self.log_path(&open.path).is_some_and(|log| same_place(&log, &path))
        });
        if let Some(open) = used {
            let label = open.drive.label();
            let is_log = !same_place(&open.path, &path);
            let detail = if is_log { format!("log of drive {}", label.drive) } else { "in use".to_owned() };
            let size = open.device.size();
            let label = Some((label.cluster, label.drive));
            return Some(ScannedDrive { path, size, fitness: Fitness::Ours, label, detail });
        }
        let owned = path.clone();
        let looked =
            self.parts.threads.run_on(self.some_thread(), move || async move { glance(&owned).await }).await.ok()?;
        Some(match looked {
            Ok(glanced) => self.describe(path, glanced),
            Err(error) => {
                let detail = error.to_string();
                ScannedDrive { path, size: 0, fitness: Fitness::Unfit, label: None, detail }
            }
        })
    }

    fn log_path(&self, drive: &Path) -> Option<PathBuf> {
        self.configured.iter().find(|configured| configured.path == drive)?.log.clone()
    }

    fn describe(&self, path: PathBuf, glanced: Glanced) -> ScannedDrive {
        let state = self.parts.metadata.state();
        let label = glanced.label.as_ref().ok().map(|label| (label.cluster, label.drive));
        let seen = Seen { path: path.clone(), label: glanced.label };
        let here = (self.server, &self.paths_in_use());
        let verdict = judge(std::slice::from_ref(&seen), &state, &Default::default(), here).pop();
        let foreign = label.is_some_and(|(cluster, _)| cluster != state.cluster.id);
        let (fitness, detail) = match verdict.expect("one verdict for one device") {
            Verdict::Refused(why) if foreign => (Fitness::Foreign, why.to_string()),
            Verdict::Refused(why) if label.is_some() => (Fitness::OursUnused, why.to_string()),
            Verdict::Refused(why) => (Fitness::Unfit, why.to_string()),
            Verdict::Ours(label) => {
                let record = state.drives.get(&label.drive);
                (Fitness::OursUnused, record.map_or_else(String::new, |record| format!("drive is {}", record.state)))
            }
            Verdict::Unrecorded(_) => (Fitness::OursUnused, "labelled, but not in the cluster's records".to_owned()),
            Verdict::LogOf(drive) => (Fitness::OursUnused, format!("log of drive {drive}")),
            Verdict::Blank if glanced.size < SMALLEST => {
                (Fitness::Unfit, format!("a drive has at least {}", Size(SMALLEST)))
            }
            Verdict::Blank => match glanced.content {
                None => (Fitness::Free, "empty".to_owned()),
                Some(what) => (Fitness::Occupied, what.to_owned()),
            },
        };
        ScannedDrive { path, size: glanced.size, fitness, label, detail }
    }
}

struct Glanced {
    size: u64,
    label: Result<Label, LabelError>,
    content: Option<&'static str>,
}

async fn glance(path: &Path) -> Result<Glanced, device::OpenError> {
    let device = DriveDevice::open(path, OpenOptions { writable: false, backend: None })?;
    let label = Label::read(&device).await;
    let content = signature::content(&device).await.unwrap_or(Some("data that can't be read"));
    Ok(Glanced { size: device.size(), label, content })
}

/// This machine's block devices, by the kernel's list.
pub fn block_devices() -> Vec<PathBuf> {
    let list = std::fs::read_to_string("/proc/partitions").unwrap_or_default();
    let names = list.lines().skip(2).filter_map(|line| line.split_whitespace().nth(3));
    names.filter(|name| !name.starts_with("ram")).map(|name| Path::new("/dev").join(name.replace('!', "/"))).collect()
}
