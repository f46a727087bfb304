//! Where a drive of a server sits: its device and, if its log isn't on it, the device of the log.

use crate::device::{FaultKind, SimDevice, SimDisk};
use crate::executor::Core;
use crate::random::Stream;
use std::ops::Range;
use std::rc::Rc;
use tepal_drive::error::OpenError;
use tepal_drive::geometry::{Geometry, MIN_LOG};
use tepal_drive::{NewDrive, format};

const DISKS: [&str; 5] = ["d0", "d1", "d2", "d3", "d4"];
const LOGS: [&str; 5] = ["log0", "log1", "log2", "log3", "log4"];

/// Clones are the same drive.
#[derive(Clone)]
pub struct Bay {
    pub disk: SimDisk,
    pub log: Option<SimDisk>,
}

impl Bay {
    pub fn new(core: &Rc<Core>, at: usize, size: u64, log: Option<u64>) -> Self {
        Bay { disk: SimDisk::new(core, DISKS[at], size), log: log.map(|length| SimDisk::new(core, LOGS[at], length)) }
    }

    /// Makes it a new drive, with the shortest log.
    pub async fn format(&self, mut new: NewDrive) -> Result<(), OpenError> {
        new.log_length = self.log.is_none().then_some(MIN_LOG);
        let (device, log) = self.open();
        format(&device, log.as_ref(), new).await.map(drop)
    }

    pub fn open(&self) -> (SimDevice, Option<SimDevice>) {
        (self.disk.open(), self.log.as_ref().map(SimDisk::open))
    }

    /// Its devices.
    pub fn disks(&self) -> impl Iterator<Item = &SimDisk> {
        std::iter::once(&self.disk).chain(&self.log)
    }

    /// The device that the log is on, and where it lies there.
    pub fn log_place(&self, geometry: &Geometry) -> (&SimDisk, Range<u64>) {
        let (disk, start) = match &self.log {
            Some(log) => (log, Geometry::log_device(log.size()).map_or(0, |(start, _)| start)),
            None => (&self.disk, geometry.log_start),
        };
        (disk, start..start + geometry.log_length)
    }

    pub fn is_plugged(&self) -> bool {
        self.disks().all(SimDisk::is_plugged)
    }

    /// Takes it away: all of it, or only one of its devices.
    pub fn pull(&self, random: &mut Stream) {
        match &self.log {
            None => self.disk.pull(),
            Some(log) => match random.below(3) {
                0 => self.disk.pull(),
                1 => log.pull(),
                _ => self.disks().for_each(SimDisk::pull),
            },
        }
    }

    pub fn plug_in(&self) {
        self.disks().for_each(SimDisk::plug_in);
    }

    /// How many faults of these kinds have struck it.
    pub fn struck(&self, kind: impl Fn(FaultKind) -> bool) -> usize {
        self.disks().map(|disk| disk.fault_log().count(&kind)).sum()
    }
}
