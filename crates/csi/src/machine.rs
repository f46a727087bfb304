//! This machine's devices, as the driver has volumes attached: by a way that it's given. A device outlives the driver.

use crate::failure::Failure;
use crate::names::VolumeHandle;
use std::path::PathBuf;
use tepal_server::api::types::VolumeInfo;

/// How a volume is to be attached.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// Which one.
    pub volume: &'a VolumeInfo,
    /// What the attachment is known by.
    pub handle: VolumeHandle,
    /// Who has it alone.
    pub holder: Option<&'a str>,
    /// Whether no writes are allowed.
    pub read_only: bool,
}

/// A volume's device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Such as `/dev/loop7`.
    pub path: PathBuf,
    /// Whether it allows no writes.
    pub read_only: bool,
    /// Whether it's served. Otherwise all I/O fails.
    pub is_served: bool,
    /// Why I/O waits, if it does.
    pub waits: Option<String>,
    /// By whose word it was attached, if somebody was to have it alone.
    pub holder: Option<String>,
}

/// Attaches volumes. It blocks.
pub trait Machine: Send + Sync + 'static {
    /// Makes the volume a device. It has none that is served.
    ///
    /// # Errors
    ///
    /// If it can't be had, or what is left of an earlier one is in use.
    fn attach(&self, wanted: &Wanted<'_>) -> Result<Device, Failure>;

    /// The volume's device, if it has one. No server is asked.
    ///
    /// # Errors
    ///
    /// If what is attached can't be looked at.
    fn device(&self, volume: &VolumeHandle) -> Result<Option<Device>, Failure>;

    /// The devices that are served, and whose they are. No server is asked.
    ///
    /// # Errors
    ///
    /// If what is attached can't be looked at.
    fn devices(&self) -> Result<Vec<(VolumeHandle, Device)>, Failure>;

    /// Takes the device away once what was written to it has reached the volume. Nothing, if it has none.
    ///
    /// # Errors
    ///
    /// If somebody uses it, or its volume can't be reached.
    fn detach(&self, volume: &VolumeHandle) -> Result<(), Failure>;

    /// Takes the device away, at once and whoever uses it: all I/O on it fails from then on, and it goes with its last user. For what
    /// can't reach its volume any more.
    ///
    /// # Errors
    ///
    /// If not even that can be done.
    fn discard(&self, volume: &VolumeHandle) -> Result<(), Failure>;

    /// Has the device be as large as its volume, now rather than in some seconds.
    ///
    /// # Errors
    ///
    /// If whoever serves it can't be told.
    fn follow_growth(&self, volume: &VolumeHandle) -> Result<(), Failure>;
}
