//! What every back-end must do, shown on each that this machine has.

mod conformance;
mod opening;
mod refused;
mod shutdown;

use super::{Backend, DriveDevice, OpenOptions, create_file};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use tepal_model::Buffer;

const WRITABLE: OpenOptions = OpenOptions { writable: true, backend: None };

fn on_data_thread<T>(future: impl Future<Output = T>) -> T {
    crate::data_threads::run_here(future).expect("a runtime")
}

/// A path that is removed with whatever is at it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(folder: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Scratch(Path::new(folder).join(format!("tepal-device-test-{}-{number}", std::process::id())))
    }

    /// A drive file of `size` bytes.
    fn file(folder: &str, size: u64) -> Self {
        let scratch = Scratch::new(folder);
        create_file(&scratch.0, size).expect("a new file");
        scratch
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A loop device over a file of its own.
struct LoopDevice {
    path: PathBuf,
    _file: Scratch,
}

impl LoopDevice {
    /// None where this user may not make one.
    fn new(size: u64) -> Option<Self> {
        let file = Scratch::file("/var/tmp", size);
        let made = Command::new("losetup").args(["--find", "--show"]).arg(&file.0).output();
        match made {
            Ok(output) if output.status.success() => {
                let path = String::from_utf8_lossy(&output.stdout).trim().into();
                Some(LoopDevice { path, _file: file })
            }
            other => {
                eprintln!("skipped: no loop device can be made here: {other:?}");
                None
            }
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}

/// A drive of some kind, and what must live as long as it.
struct Subject {
    name: &'static str,
    drive: DriveDevice,
    _file: Option<Scratch>,
    _device: Option<LoopDevice>,
}

/// A drive of each kind that this machine can have, of `size` zeros.
fn subjects(size: u64) -> Vec<Subject> {
    let file = |name, folder, backend| {
        let scratch = Scratch::file(folder, size);
        let options = OpenOptions { writable: true, backend };
        let drive = DriveDevice::open(&scratch.0, options).unwrap_or_else(|error| panic!("{name}: {error}"));
        Subject { name, drive, _file: Some(scratch), _device: None }
    };
    let memory = |name, drive| Subject { name, drive, _file: None, _device: None };
    let mut subjects = vec![
        memory("memory", DriveDevice::memory(size)),
        file("best for a file on a disk", "/var/tmp", None),
        file("plain on a disk", "/var/tmp", Some(Backend::Plain)),
        file("memory file", "/dev/shm", Some(Backend::MemoryFile)),
        file("plain on tmpfs", "/dev/shm", Some(Backend::Plain)),
    ];
    let quick = "read=1us,write=1us,iops=100000".parse().expect("a model");
    subjects.push(memory("emulated", DriveDevice::memory(size).emulate(quick)));
    for (name, backend) in [("best for a loop device", None), ("plain on a loop device", Some(Backend::Plain))] {
        if let Some(device) = LoopDevice::new(size) {
            let options = OpenOptions { writable: true, backend };
            let drive = DriveDevice::open(&device.path, options).unwrap_or_else(|error| panic!("{name}: {error}"));
            subjects.push(Subject { name, drive, _file: None, _device: Some(device) });
        }
    }
    subjects
}

/// Bytes that tell where they belong.
fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// A buffer that holds none of what a read must bring.
fn spoiled(length: usize) -> Buffer {
    let mut buffer = Buffer::take(length);
    buffer.fill(0xee);
    buffer
}
