//! `tepal dev tour`: what the product is for, in a minute, on real data.
//!
//! A volume of two copies over four drives, of four servers or of one, is written to and read back; then a program writes on
//! while a drive is pulled from under it and returns, and while the server through which it writes is killed and started again.
//! Of several servers one more is killed and one stands still, until the others have gone on, and then one is added. In the end every
//! byte is compared with the last write of it that was acknowledged, of several servers through another one; and a snapshot that was
//! made at first with what was written by then.

mod changes;
mod figures;
mod home;
mod pattern;
mod servers;
mod writer;

use super::cluster::Cluster;
use super::folder::{DevError, Folder, MEMORY};
use super::status::nbd_uri;
use super::up::{self, Was};
use super::{dir_option, quoted};
use crate::attach::nbd::NbdAddress;
use crate::attach::nbd::client::ConnectError;
use crate::cli::{TourArguments, UpArguments};
use crate::client::{Client, ClientError};
use crate::disk::{Disk, PATIENCE, Request};
use crate::interrupt::Interrupt;
use crate::output::{self, Output};
use changes::Kept;
use home::{Mark, ROOM};
use nix::errno::Errno;
use pattern::{Found, Stamp};
use serde::Serialize;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tepal_model::{BLOCK, DriveId, ServerId};
use tepal_server::api::types::{DriveInfo, DriveState, VolumeInfo, VolumeState, path, route};
use writer::{Ledger, Writer};

const VOLUME: &str = "v0";
const SIZE: u64 = 2 << 30;
const DRIVES: u32 = 4;
const SERVER: ServerId = ServerId(1);
/// The beginning of the volume, which is all that the tour uses.
const AREA: u64 = 128 << 20;
const BLOCKS: usize = (AREA / BLOCK) as usize;
/// One request of a long read or write.
const PIECE: u64 = 128 << 10;
const DEPTH: usize = 8;
/// Requests that must be answered after each failure before the tour goes on, and for how long at least.
const ANSWERS: u64 = 500;
const WHILE: Duration = Duration::from_millis(800);
/// For whatever the tour waits for.
const LIMIT: Duration = PATIENCE;
const LOOK: Duration = Duration::from_millis(10);

#[derive(Debug, thiserror::Error)]
pub enum TourError {
    #[error(
        "volume '{VOLUME}' is left alone, as {why}: name another folder by --dir, or remove it if it isn't needed \
         (tepal volume rm {VOLUME})"
    )]
    NotOurs { why: &'static str },
    #[error("the bytes at {offset} are wrong: {wanted:?} was acknowledged, and there is {found:?}")]
    Wrong { offset: u64, wanted: Stamp, found: Found },
    #[error("a request at {offset} failed: {}", errno.desc())]
    Refused { offset: u64, errno: Errno },
    #[error("waited {} s in vain: {what}", LIMIT.as_secs())]
    TooLong { what: String },
    #[error("the snapshot is wrong at {offset}: it was made when write {} to {} was the block's last, and has {found:?}", between.start(), between.end())]
    Snapshot { offset: u64, between: RangeInclusive<u64>, found: Found },
    #[error("scrub: {0}")]
    Scrub(String),
    #[error("the tour writes up to {} to {}, and {} are free there: make room, or name another folder by --dir",
        output::size(ROOM), folder.display(), output::size(*free))]
    NoRoom { folder: PathBuf, free: u64 },
    #[error("interrupted")]
    Interrupted,
    #[error("the writer can't be started: {0}")]
    Thread(io::Error),
    #[error("the writer has panicked")]
    Writer,
    #[error("standard output can't be written: {0}")]
    Output(#[from] io::Error),
    #[error(transparent)]
    Nbd(#[from] ConnectError),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Dev(#[from] DevError),
}

impl TourError {
    /// Of a request to the volume that didn't succeed; see [`Disk::keep_busy`].
    fn refused(offset: u64, errno: Errno) -> Self {
        match errno {
            Errno::EINTR => TourError::Interrupted,
            Errno::ETIMEDOUT => {
                TourError::TooLong { what: "the volume answers no request; `tepal status` tells why".to_owned() }
            }
            errno => TourError::Refused { offset, errno },
        }
    }
}

/// A step that went right.
#[derive(Serialize)]
struct Step {
    step: &'static str,
    ok: bool,
    text: String,
    seconds: f64,
}

struct Tour<'a> {
    cluster: Cluster,
    client: Client,
    interrupt: &'a Interrupt,
    output: Output,
    steps: Vec<Step>,
}

pub fn run(dir: &Path, output: Output, arguments: &TourArguments) -> Result<(), TourError> {
    let interrupt = Interrupt::catch()?;
    let begun = Instant::now();
    let is_new = Folder::open(dir).is_err();
    if is_new {
        home::check_room(if arguments.memory { Path::new(MEMORY) } else { dir })?;
    }
    let up = UpArguments {
        servers: is_new.then_some(arguments.servers),
        // One a server is enough for two copies.
        drives: is_new.then_some(if arguments.servers == 1 { DRIVES } else { 1 }),
        drive_size: None,
        memory: arguments.memory,
        emulate: None,
        isolate: false,
        volumes: Vec::new(),
        detach: true,
    };
    let (cluster, was) = up::bring_up(dir, &up, &interrupt)?;
    let client = cluster.client()?;
    let mut tour = Tour { cluster, client, interrupt: &interrupt, output, steps: Vec::new() };
    let outcome = tour.walk(begun).and_then(|()| {
        let said = serde_json::json!({ "ok": true, "steps": tour.steps });
        Ok(output.show(&said, |_| next(&tour.cluster))?)
    });
    if let Err(error) = &outcome {
        // Who can't be told that a cluster was left up gets none.
        tour.tidy_up(was, matches!(error, TourError::Interrupted | TourError::Output(_)));
    }
    outcome
}

impl Tour<'_> {
    fn walk(&mut self, begun: Instant) -> Result<(), TourError> {
        self.repair()?;
        let volume = home::volume(&self.cluster, &self.client)?;
        let disk = Arc::new(Disk::open(&NbdAddress::Unix(self.cluster.folder().socket()), VOLUME, self.interrupt)?);
        home::check_content(&self.client, &disk, &volume)?;
        Mark { volume: volume.id, pulled: None }.write(&self.cluster)?;
        let drives: Vec<DriveInfo> = self.client.get(route::DRIVES)?;
        let servers = self.cluster.servers().len();
        let text = format!(
            "{} with {} drives {} up, and volume {VOLUME}: {}, {}",
            if servers == 1 { "a server".to_owned() } else { format!("{servers} servers") },
            drives.len(),
            if servers == 1 { "is" } else { "are" },
            output::size(volume.size),
            volume.layout
        );
        self.tell("up", begun, text)?;
        let ledger = self.fill(&disk)?;
        self.compare("read", &disk, &ledger, SERVER)?;
        let seed = ledger.seed;
        let writer = Writer::start(disk.clone(), ledger)?;
        // What the writer found is the better story, if it found something.
        let (kept, ledger) = match self.change_all(&writer, &volume, seed) {
            Ok(kept) => (kept, writer.finish()?),
            Err(error) if writer.has_ended() => return Err(writer.finish().err().unwrap_or(error)),
            Err(error) => return Err(error),
        };
        disk.flush().map_err(|errno| TourError::refused(0, errno))?;
        self.compare_through_another(&volume, &ledger)?;
        self.compare_snapshot(&kept)?;
        self.scrub()?;
        self.speed(&disk, ledger)?;
        self.space()
    }

    /// All that happens under the writer.
    fn change_all(&mut self, writer: &Writer, volume: &VolumeInfo, seed: u64) -> Result<Kept, TourError> {
        let kept = self.take_a_snapshot(writer, seed)?;
        self.pull_a_drive(writer, volume)?;
        self.kill_the_server(writer)?;
        self.lose_servers(writer)?;
        self.add_a_server(writer)?;
        self.give_another_layout(writer)?;
        Ok(kept)
    }

    /// What the volume has at first, and what it's given: a tour after this one gives the first again.
    fn layouts(&self) -> [&'static str; 2] {
        home::LAYOUTS[usize::from(self.cluster.servers().len() > 1)]
    }

    fn tell(&mut self, step: &'static str, since: Instant, text: String) -> Result<(), TourError> {
        let seconds = since.elapsed().as_secs_f64();
        self.output.say(&format!("ok  {text}"))?;
        self.steps.push(Step { step, ok: true, text, seconds });
        if self.interrupt.is_raised() { Err(TourError::Interrupted) } else { Ok(()) }
    }

    /// Looks until there is something, or it takes too long.
    fn until<T>(
        &self,
        what: impl Fn() -> String,
        mut look: impl FnMut() -> Result<Option<T>, TourError>,
    ) -> Result<T, TourError> {
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            if self.interrupt.wait(LOOK) {
                return Err(TourError::Interrupted);
            }
            if Instant::now() > end {
                return Err(TourError::TooLong { what: what() });
            }
        }
    }

    /// Brings back a drive that a tour took offline and couldn't bring back.
    fn repair(&self) -> Result<(), TourError> {
        if let Some(Mark { pulled: Some(drive), .. }) = Mark::read(&self.cluster) {
            let drives: Vec<DriveInfo> = self.client.get(route::DRIVES)?;
            if drives.iter().any(|found| found.id == drive && found.state == DriveState::Offline) {
                self.change(drive, route::DRIVE_ONLINE)?;
                self.wait_until_whole(drive)?;
            }
        }
        Ok(())
    }

    fn change(&self, drive: DriveId, route: &str) -> Result<DriveInfo, TourError> {
        Ok(self.client.post(&path(route, &drive.to_string()), &serde_json::json!({}))?)
    }

    fn wait_until_whole(&self, drive: DriveId) -> Result<(), TourError> {
        let what = || format!("drive {drive} to be up and volume {VOLUME} healthy again");
        self.until(what, || {
            let drives: Vec<DriveInfo> = self.client.get(route::DRIVES)?;
            let volumes: Vec<VolumeInfo> = self.client.get(route::VOLUMES)?;
            let up = drives.iter().any(|found| found.id == drive && found.state == DriveState::Up);
            let whole = volumes.iter().filter(|volume| volume.name == VOLUME);
            let whole = whole.into_iter().all(|volume| volume.state == VolumeState::Healthy);
            Ok((up && whole).then_some(()))
        })
    }

    /// Fills the area with known data.
    fn fill(&mut self, disk: &Disk) -> Result<Ledger, TourError> {
        let since = Instant::now();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seed = now.as_nanos() as u64 ^ u64::from(std::process::id()) << 48;
        let ledger = Ledger { seed, versions: vec![1; BLOCKS] };
        let per_piece = (PIECE / BLOCK) as usize;
        let mut pieces = (0..BLOCKS / per_piece).map(|piece| {
            let first = piece * per_piece;
            let data = pattern::blocks((first..first + per_piece).map(|block| ledger.stamp(block)));
            Request::write(piece as u64 * PIECE, data, piece as u64 * PIECE)
        });
        let mut failed = None;
        let interrupt = self.interrupt;
        disk.keep_busy(
            DEPTH,
            || if interrupt.is_raised() { None } else { pieces.next() },
            |_, _| (),
            |offset, answer| {
                if let Err(errno) = answer {
                    failed = Some(TourError::refused(offset, errno));
                }
            },
        );
        if let Some(error) = failed {
            return Err(error);
        }
        disk.flush().map_err(|errno| TourError::refused(0, errno))?;
        let speed = output::rate(AREA, since.elapsed());
        self.tell("write", since, format!("{} of known data written: {speed}", output::size(AREA)))?;
        Ok(ledger)
    }

    /// What was written through one server is the same through all of them.
    fn compare_through_another(&mut self, volume: &VolumeInfo, ledger: &Ledger) -> Result<(), TourError> {
        let drives: Vec<DriveInfo> = self.client.get(route::DRIVES)?;
        let holders = drives.iter().filter(|drive| volume.drives.contains(&drive.id)).map(|drive| drive.server);
        let server = holders.max().unwrap_or(SERVER);
        let socket = self.cluster.socket_of(server);
        let disk = Disk::open(&NbdAddress::Unix(socket), VOLUME, self.interrupt)?;
        self.compare("compare", &disk, ledger, server)
    }

    /// Reads the whole area, and has each block looked at.
    fn read_area(&self, disk: &Disk, check: impl Fn(usize, Found) -> Result<(), TourError>) -> Result<(), TourError> {
        let mut pieces = (0..AREA / PIECE).map(|piece| Request::read(piece * PIECE, PIECE as u32, piece * PIECE));
        let mut wrong = None;
        let interrupt = self.interrupt;
        disk.keep_busy(
            DEPTH,
            || if interrupt.is_raised() { None } else { pieces.next() },
            |_, bytes| bytes.chunks(BLOCK as usize).map(pattern::read).collect::<Vec<Found>>(),
            |offset, answer| {
                let checked = match answer {
                    Err(errno) => Err(TourError::refused(offset, errno)),
                    Ok(found) => {
                        let first = (offset / BLOCK) as usize;
                        (first..).zip(found).try_for_each(|(block, found)| check(block, found))
                    }
                };
                if let Err(error) = checked {
                    wrong.get_or_insert(error);
                }
            },
        );
        wrong.map_or(Ok(()), Err)
    }

    /// Reads the whole area, and compares every byte.
    fn compare(&mut self, step: &'static str, disk: &Disk, ledger: &Ledger, server: ServerId) -> Result<(), TourError> {
        let since = Instant::now();
        self.read_area(disk, |block, found| ledger.check(block, found))?;
        let speed = output::rate(AREA, since.elapsed());
        let text = match step {
            "read" => format!("read back, every byte as it was written: {speed}"),
            _ => {
                let area = output::size(AREA);
                let through = if server == SERVER { String::new() } else { format!(" through server {server}") };
                format!("all {area} compared{through}: each block is its last acknowledged write")
            }
        };
        self.tell(step, since, text)
    }

    /// Lets the writer go on for a while after something happened to it.
    fn go_on(&self, writer: &Writer) -> Result<u64, TourError> {
        let (before, since) = (writer.answered(), Instant::now());
        self.until(
            || "the writer to go on".to_owned(),
            || {
                if writer.has_ended() {
                    return Err(TourError::Writer);
                }
                let answered = writer.answered() - before;
                Ok((answered >= ANSWERS && since.elapsed() >= WHILE).then_some(answered))
            },
        )
    }

    fn pull_a_drive(&mut self, writer: &Writer, volume: &VolumeInfo) -> Result<(), TourError> {
        self.go_on(writer)?;
        let Some(&drive) = volume.drives.first() else {
            return Err(TourError::TooLong { what: "a drive of the volume".to_owned() });
        };
        let since = Instant::now();
        writer.forget_waits();
        Mark { volume: volume.id, pulled: Some(drive) }.write(&self.cluster)?;
        self.change(drive, route::DRIVE_OFFLINE)?;
        let answered = self.go_on(writer)?;
        let wait = writer.longest_wait().as_millis();
        let text = format!(
            "drive {drive} pulled under a writer: {answered} reads and writes went on without it, none waited over {wait} ms"
        );
        self.tell("pull", since, text)?;
        let since = Instant::now();
        self.change(drive, route::DRIVE_ONLINE)?;
        self.wait_until_whole(drive)?;
        Mark { volume: volume.id, pulled: None }.write(&self.cluster)?;
        let took = since.elapsed().as_secs_f64();
        self.tell("return", since, format!("drive {drive} is back: it caught up on what it missed in {took:.1} s"))
    }

    fn kill_the_server(&mut self, writer: &Writer) -> Result<(), TourError> {
        self.go_on(writer)?;
        let since = Instant::now();
        writer.forget_waits();
        self.cluster.process(SERVER).kill().map_err(DevError::from)?;
        let down = Instant::now();
        self.cluster.start(&[SERVER], self.interrupt)?;
        let restart = down.elapsed().as_millis();
        // Its port may be another now.
        self.client = self.cluster.client()?;
        let answered = self.go_on(writer)?;
        let wait = writer.longest_wait().as_millis();
        let text = format!(
            "server {SERVER} killed under the writer (SIGKILL) and started: serving after {restart} ms; \
             requests waited {wait} ms, none failed, {answered} since"
        );
        self.tell("kill", since, text)?;
        // Two copies outlive the loss of one: it must have what it missed before another is lost.
        self.wait_until_all_is_whole()
    }

    /// After a failure the cluster stays for whoever wants to look; after Ctrl-C it's as it was.
    fn tidy_up(&self, was: Was, unattended: bool) {
        // All of it is to leave things better than they are; the next tour does what can't be done now.
        if let Some(mark @ Mark { pulled: Some(drive), .. }) = Mark::read(&self.cluster)
            && self.change(drive, route::DRIVE_ONLINE).is_ok()
        {
            let _ = Mark { pulled: None, ..mark }.write(&self.cluster);
        }
        if unattended && was == Was::Down {
            let _ = self.cluster.stop();
        } else {
            self.wake();
        }
    }
}

/// What to do next, ready to paste.
fn next(cluster: &Cluster) -> String {
    let folder = cluster.folder();
    let (tepal, dir) = (program(), dir_option(folder));
    let uri = quoted(&nbd_uri(VOLUME, &folder.socket()));
    let root = if nix::unistd::geteuid().is_root() { "" } else { "sudo " };
    let rows = [
        (format!("{tepal}{dir} status"), "how the cluster is"),
        (format!("nbdinfo {uri}"), "the volume, as any NBD client sees it"),
        (format!("{root}{tepal}{dir} attach {VOLUME}"), "the volume as a disk of this machine"),
        (format!("{tepal}{dir} dev down"), "stop it; `dev up` brings it back"),
    ];
    let width = rows.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    let lines: String = rows.iter().map(|(command, text)| format!("  {command:width$}  # {text}\n")).collect();
    format!("\nAll of it was right. The cluster stays up:\n{lines}")
}

/// This program, as it can be called from where the user is.
fn program() -> String {
    let Ok(exe) = std::env::current_exe() else { return "tepal".to_owned() };
    let search = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&search).map(|folder| folder.join("tepal")).find(|path| path.is_file());
    match found.and_then(|path| path.canonicalize().ok()) {
        Some(path) if path == exe => "tepal".to_owned(),
        _ => {
            let here = std::env::current_dir().ok();
            let short = here.and_then(|here| exe.strip_prefix(here).ok().map(|short| Path::new(".").join(short)));
            quoted(&short.unwrap_or(exe).display().to_string())
        }
    }
}
