//! `tepal bench`: what a volume costs, beside the raw drive under it. A few seconds a row; nothing that exists is written to.
//!
//! The raw drive is a file of its own beside one of the drives, reached by the server's own device code: so both columns go
//! through the same kernel to the same disk. Beside an emulated drive it keeps the same pace.

use super::CommandError;
use super::attach::nbd_address;
use crate::attach::nbd::client::ConnectError;
use crate::cli::{BenchArguments, Global};
use crate::client::{Client, ClientError};
use crate::disk::{Disk, PATIENCE, Request};
use crate::interrupt::Interrupt;
use crate::locate;
use crate::output::{self, Outcome, Output, Progress};
use bytes::Bytes;
use nix::errno::Errno;
use serde::Serialize;
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tepal_drive::world::{Device, DeviceError, Gather};
use tepal_model::size::Size;
use tepal_model::{BLOCK, Buffer};
use tepal_server::api::types::{CreateVolume, DEFAULT_POOL, DriveInfo, PoolInfo, Removal, VolumeInfo, path, route};
use tepal_server::device::emulate::Model;
use tepal_server::device::{self, CreateError, DriveDevice, OpenOptions, create_file};
use tokio::task::JoinSet;

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("--size {size} is more than pool '{pool}' has free, which is {free}")]
    NoRoom { size: Size, pool: String, free: Size },
    #[error("a request to the volume failed at {offset}: {}", errno.desc())]
    Volume { offset: u64, errno: Errno },
    #[error("the volume answered no request for {} s: `tepal status` tells why", PATIENCE.as_secs())]
    NoAnswer,
    #[error("the raw drive's file: {0}")]
    RawCreate(#[from] CreateError),
    #[error("the raw drive's file: {0}")]
    RawOpen(#[from] device::OpenError),
    #[error("the raw drive's file: {0}")]
    Raw(#[from] DeviceError),
    #[error("the raw drive's file: {0}")]
    System(#[from] io::Error),
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Nbd(#[from] ConnectError),
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// One kind of access.
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    is_write: bool,
    size: u64,
    depth: usize,
    /// Else one after the other, from the beginning.
    random: bool,
}

const fn shape(name: &'static str, is_write: bool, size: u64, depth: usize, random: bool) -> Shape {
    Shape { name, is_write, size, depth, random }
}

const K4: u64 = 4 << 10;
const M1: u64 = 1 << 20;
const SHAPES: [Shape; 6] = [
    shape("4K random read, 1 at once", false, K4, 1, true),
    shape("4K random read, 32 at once", false, K4, 32, true),
    shape("1M read, 8 at once", false, M1, 8, false),
    shape("4K random write, 1 at once", true, K4, 1, true),
    shape("4K random write, 32 at once", true, K4, 32, true),
    shape("1M write, 8 at once", true, M1, 8, false),
];

#[derive(Serialize)]
struct Report {
    layout: String,
    seconds: u64,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    what: &'static str,
    raw: Option<Measured>,
    volume: Measured,
}

#[derive(Clone, Copy, Serialize)]
struct Measured {
    requests_per_second: f64,
    bytes_per_second: f64,
    /// Of each request, on the average.
    microseconds: f64,
}

impl Measured {
    fn new(shape: Shape, requests: u64, time: Duration) -> Self {
        let rate = requests as f64 / time.as_secs_f64().max(1e-9);
        Measured {
            requests_per_second: rate,
            bytes_per_second: rate * shape.size as f64,
            microseconds: if rate > 0.0 { shape.depth as f64 / rate * 1e6 } else { 0.0 },
        }
    }
}

/// Where the requests of a shape go.
struct Offsets {
    shape: Shape,
    slots: u64,
    at: u64,
}

impl Offsets {
    fn new(shape: Shape, area: u64) -> Self {
        Offsets { shape, slots: area / shape.size, at: 0x9e37_79b9 }
    }

    fn next(&mut self) -> u64 {
        if !self.shape.random {
            self.at = (self.at + 1) % self.slots;
            return self.at * self.shape.size;
        }
        self.at ^= self.at << 13;
        self.at ^= self.at >> 7;
        self.at ^= self.at << 17;
        self.at % self.slots * self.shape.size
    }
}

/// Bytes that nothing can shorten.
fn noise(length: u64) -> Bytes {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut bytes = Vec::with_capacity(length as usize);
    while (bytes.len() as u64) < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.into()
}

pub fn run(global: &Global, output: Output, arguments: &BenchArguments) -> Result<Outcome, CommandError> {
    let client = locate::client(global)?;
    let (layout, pool, key) = match &arguments.name {
        Some(name) => {
            let like: VolumeInfo = client.get(&path(route::VOLUME, name))?;
            (Some(like.layout), Some(like.pool), like.key)
        }
        None => (arguments.layout.as_ref().map(ToString::to_string), None, None),
    };
    check_room(&client, pool.as_deref(), arguments.size)?;
    let interrupt = Interrupt::catch()?;
    let raw = RawDrive::beside(&client, arguments.size, &interrupt)?;
    let name = format!("tepal-bench-{}", std::process::id());
    let request =
        CreateVolume { name: name.clone(), size: arguments.size, layout, pool, key, plain: false, import: None };
    let volume: VolumeInfo = client.post(route::VOLUMES, &request)?;
    let outcome = nbd_address(global, &client, &volume).and_then(|address| {
        let disk = Disk::open(&address, &name, &interrupt).map_err(BenchError::from)?;
        Ok(measure(arguments, &volume.layout, raw.as_ref(), &disk, &interrupt)?)
    });
    // Also after a failure; which of two errors is told is the first.
    let removed = client.delete::<Removal>(&format!("{}?force=true", path(route::VOLUME, &name)));
    let report = outcome?;
    removed?;
    output.show(&report, page)?;
    Ok(Outcome::Done)
}

/// The whole size is written. How many copies that makes the pool itself finds out.
fn check_room(client: &Client, pool: Option<&str>, size: u64) -> Result<(), CommandError> {
    let pool: PoolInfo = client.get(&path(route::POOL, pool.unwrap_or(DEFAULT_POOL)))?;
    let free = pool.capacity.saturating_sub(pool.used);
    match size <= free {
        true => Ok(()),
        false => Err(BenchError::NoRoom { size: Size(size), pool: pool.name, free: Size(free) }.into()),
    }
}

fn measure(
    arguments: &BenchArguments,
    layout: &str,
    raw: Option<&RawDrive>,
    disk: &Disk,
    interrupt: &Interrupt,
) -> Result<Report, BenchError> {
    let time = Duration::from_secs(arguments.seconds);
    let mut progress = Progress::new("measuring");
    let steps = SHAPES.len() as u64 + 1;
    volume_fill(disk, arguments.size, interrupt)?;
    let mut rows = Vec::new();
    for (step, shape) in (1..).zip(SHAPES) {
        progress.set(step, steps);
        let raw = raw.map(|raw| raw.measure(shape, time)).transpose()?;
        let volume = volume_measure(disk, shape, arguments.size, time, interrupt)?;
        if interrupt.is_raised() {
            return Err(BenchError::Interrupted);
        }
        rows.push(Row { what: shape.name, raw, volume });
    }
    Ok(Report { layout: layout.to_owned(), seconds: arguments.seconds, rows })
}

fn volume_fill(disk: &Disk, area: u64, interrupt: &Interrupt) -> Result<(), BenchError> {
    let data = noise(M1);
    let mut pieces = (0..area / M1).map(|piece| piece * M1);
    let next = || pieces.next().filter(|_| !interrupt.is_raised());
    keep_busy(disk, 8, next, |offset| Request::write(offset, data.clone(), offset)).map(|_| ())
}

fn volume_measure(
    disk: &Disk,
    shape: Shape,
    area: u64,
    time: Duration,
    interrupt: &Interrupt,
) -> Result<Measured, BenchError> {
    let data = noise(shape.size);
    let mut offsets = Offsets::new(shape, area);
    let begun = Instant::now();
    let next = || (begun.elapsed() < time && !interrupt.is_raised()).then(|| offsets.next());
    let requests = keep_busy(disk, shape.depth, next, |offset| match shape.is_write {
        true => Request::write(offset, data.clone(), offset),
        false => Request::read(offset, shape.size as u32, offset),
    })?;
    Ok(Measured::new(shape, requests, begun.elapsed()))
}

/// How many requests were answered.
fn keep_busy(
    disk: &Disk,
    depth: usize,
    mut next: impl FnMut() -> Option<u64>,
    request: impl Fn(u64) -> Request<u64>,
) -> Result<u64, BenchError> {
    let (mut answered, mut failed) = (0, None);
    disk.keep_busy(
        depth,
        || next().map(&request),
        |_, _| (),
        |offset, answer| match answer {
            Ok(()) => answered += 1,
            Err(Errno::EINTR) => failed = Some(BenchError::Interrupted),
            Err(Errno::ETIMEDOUT) => failed = Some(BenchError::NoAnswer),
            Err(errno) => failed = Some(BenchError::Volume { offset, errno }),
        },
    );
    failed.map_or(Ok(answered), Err)
}

/// A file beside a drive. It's removed when this is dropped.
struct RawDrive {
    path: PathBuf,
    area: u64,
    emulated: Option<Model>,
}

impl Drop for RawDrive {
    fn drop(&mut self) {
        // A file of ours in a folder that we could write to; if it can't go, nobody can do anything here.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl RawDrive {
    /// `None` where the drives are block devices or not on this machine: there is no room beside them.
    fn beside(client: &Client, area: u64, interrupt: &Interrupt) -> Result<Option<Self>, CommandError> {
        let drives: Vec<DriveInfo> = client.get(route::DRIVES)?;
        let mut files = drives.iter().filter_map(|drive| Some((drive, Path::new(&drive.path).canonicalize().ok()?)));
        let Some((drive, file)) = files.find(|(_, path)| path.is_file()) else { return Ok(None) };
        let emulated = match drive.open.as_ref().and_then(|open| open.emulated.as_ref()).map(|text| text.parse()) {
            None => None,
            Some(Ok(model)) => Some(model),
            // Another version's server: beside a faster one, the volume would look slow.
            Some(Err(_)) => return Ok(None),
        };
        let path = file.with_file_name(format!("tepal-bench-{}", std::process::id()));
        match create_file(&path, area / BLOCK * BLOCK) {
            Err(CreateError::PermissionDenied { .. }) => return Ok(None),
            created => created.map_err(BenchError::from)?,
        }
        let raw = RawDrive { path, area, emulated };
        raw.fill(interrupt)?;
        Ok(Some(raw))
    }

    fn fill(&self, interrupt: &Interrupt) -> Result<(), BenchError> {
        self.with_device(async |device| {
            let data = noise(M1);
            for piece in 0..self.area / M1 {
                if interrupt.is_raised() {
                    return Err(BenchError::Interrupted);
                }
                device.write(piece * M1, Gather::from_iter([data.clone()])).await?;
            }
            Ok(device.flush().await?)
        })
    }

    fn with_device<T>(&self, work: impl AsyncFnOnce(DriveDevice) -> Result<T, BenchError>) -> Result<T, BenchError> {
        let device = DriveDevice::open(&self.path, OpenOptions { writable: true, backend: None })?;
        let device = match &self.emulated {
            Some(model) => device.emulate(model.clone()),
            None => device,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        tokio::task::LocalSet::new().block_on(&runtime, work(device))
    }

    /// Writes are flushed, each batch of what is in flight together: so a layout with durability=strict does too.
    fn measure(&self, shape: Shape, time: Duration) -> Result<Measured, BenchError> {
        self.with_device(async |device| {
            let data = noise(shape.size);
            let mut offsets = Offsets::new(shape, self.area);
            let (begun, mut requests) = (Instant::now(), 0);
            if shape.is_write {
                while begun.elapsed() < time {
                    let mut batch = JoinSet::new();
                    for _ in 0..shape.depth {
                        let (device, data, offset) = (device.clone(), data.clone(), offsets.next());
                        batch.spawn_local(async move { device.write(offset, Gather::from_iter([data])).await });
                    }
                    while let Some(written) = batch.join_next().await {
                        written.map_err(io::Error::from)??;
                    }
                    device.flush().await?;
                    requests += shape.depth as u64;
                }
            } else {
                let mut in_flight = VecDeque::new();
                let mut begin = || {
                    let (device, offset) = (device.clone(), offsets.next());
                    tokio::task::spawn_local(async move {
                        device.read(offset, Buffer::take(shape.size as usize)).await.map(drop)
                    })
                };
                in_flight.extend((0..shape.depth).map(|_| begin()));
                while let Some(read) = in_flight.pop_front() {
                    read.await.map_err(io::Error::from)??;
                    requests += 1;
                    if begun.elapsed() < time {
                        in_flight.push_back(begin());
                    }
                }
            }
            Ok(Measured::new(shape, requests, begun.elapsed()))
        })
    }
}

fn page(report: &Report) -> String {
    let cell = |measured: Measured| {
        vec![
            format!("{:.0}", measured.requests_per_second),
            output::rate(measured.bytes_per_second as u64, Duration::from_secs(1)),
            format!("{:.0}", measured.microseconds),
        ]
    };
    let row = |row: &Row| {
        let raw = row.raw.map_or_else(|| vec!["".to_owned(); 3], cell);
        let share = row.raw.map(|raw| row.volume.requests_per_second / raw.requests_per_second.max(1e-9));
        let share = share.map(|share| format!("{share:.2}")).unwrap_or_default();
        [vec![row.what.to_owned()], raw, cell(row.volume), vec![share]].concat()
    };
    let volume = report.layout.clone();
    let columns = ["access", ">raw/s", ">raw", ">us", ">volume/s", ">volume", ">us", ">of raw"];
    let table = output::table(&columns, report.rows.iter().map(row));
    format!(
        "volume: {volume}; raw: a file beside a drive, its writes flushed together; {} s each\n\n{table}",
        report.seconds
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_stay_inside_of_the_area_and_reach_most_of_it() {
        for shape in SHAPES {
            let area = 32 << 20;
            let mut offsets = Offsets::new(shape, area);
            let seen: std::collections::HashSet<u64> = (0..100_000).map(|_| offsets.next()).collect();
            assert!(seen.iter().all(|offset| offset + shape.size <= area && offset.is_multiple_of(shape.size)));
            assert!(seen.len() as u64 > area / shape.size * 9 / 10, "{}", shape.name);
        }
    }
}
