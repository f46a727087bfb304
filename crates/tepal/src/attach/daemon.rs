//! The process behind one attached volume.
//!
//! It may be the way by which the kernel frees memory: dirty pages of the device are written through it. So it must never
//! wait for memory to be freed. All its pages are locked, those it gets later too; its allocations don't start write-back
//! (PR_SET_IO_FLUSHER, meant for just this); it's the last to be killed when memory runs out. The memory it needs is
//! bounded by what the kernel has under way: at most 128 requests of 1 MiB with FUSE. It reads no file after its start, and
//! writes only its log and its record, from a thread that no request waits for. None of this helps if the *server* runs on
//! this same machine: then write-back ends in a process that isn't protected, as with any file server mounted on itself.
//!
//! It's the process's main thread that looks after things here; requests pass through others. Any panic ends the process:
//! an error on the device is better than a device that silently stops.

use super::folder::{AttachmentFolder, Record, RunFolder};
use super::known::now_unix_ms;
use super::launch::Report;
use super::loop_device;
use super::nbd::client::{Client, Notice, PAUSES, Target};
use super::nbd::{Export, NbdAddress};
use super::netlink::KernelNbd;
use super::release::{self, Flush};
use super::{AttachError, Method, Unfit, fuse, relay};
use linux_raw_sys::prctl::PR_SET_IO_FLUSHER;
use nix::sys::mman::{MlockAllFlags, mlock, mlockall};
use nix::sys::signal::{SigSet, Signal};
use serde::{Deserialize, Serialize};
use std::ffi::c_void;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;
use tepal_server::descriptors;

/// What a daemon is to do: the last argument of its command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub volume: String,
    pub export: String,
    pub key: String,
    pub address: NbdAddress,
    pub read_only: bool,
    pub run_folder: PathBuf,
    pub method: Method,
    #[serde(default)]
    pub give_up_after: Option<Duration>,
}

/// What the main thread hears of.
enum Event {
    Lost(String),
    Waiting(String),
    Resumed {
        resent: usize,
    },
    GaveUp {
        requests: usize,
    },
    Signal(Signal),
    /// The kernel has let go of the device.
    Ended,
}

/// How often the server is asked whether the volume has grown or has another name. A request that isn't answered for so long waits.
const GROWTH_INTERVAL: Duration = Duration::from_secs(10);
/// Server's units that a block device can have.
const BLOCKS: std::ops::RangeInclusive<u32> = 1..=4096;
const SMALLEST_BLOCK: u32 = 512;
/// What one request must be able to carry.
const LARGEST_REQUEST: u32 = 4 << 20;

/// The daemon's entry: `order` is the argument that [`super::attach`] gave. Returns when the device is gone.
pub fn serve(order: &str) -> ExitCode {
    // Standard error is the daemon's log file. If the program logs there already, so much the better.
    let _ = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).with_target(false).try_init();
    let order: Order = match serde_json::from_str(order) {
        Ok(order) => order,
        Err(error) => {
            report(&Report::Failed { message: format!("the attach daemon doesn't understand its order: {error}") });
            return ExitCode::FAILURE;
        }
    };
    let place = match RunFolder::open(&order.run_folder) {
        Ok(run) => run.place(&order.key),
        Err(error) => return fail(&error),
    };
    protect();
    descriptors::raise();
    let (tell, events) = mpsc::channel();
    let started = place.claim().and_then(|claim| {
        let claim = claim.ok_or(AttachError::Starting { volume: order.volume.clone() })?;
        Ok((claim, Daemon::start(order, place, &tell)?))
    });
    match started {
        // The claim lives as long as the process.
        Ok((_claim, mut daemon)) => daemon.run(&events),
        Err(error) => fail(&error),
    }
}

fn fail(error: &AttachError) -> ExitCode {
    tracing::error!("{error}");
    report(&Report::Failed { message: error.to_string() });
    ExitCode::FAILURE
}

/// Tells the parent, and lets go of its pipe. True if it heard.
fn report(report: &Report) -> bool {
    let mut line = serde_json::to_vec(report).unwrap_or_default();
    line.push(b'\n');
    let mut output = std::io::stdout();
    let heard = output.write_all(&line).and_then(|()| output.flush()).is_ok();
    if let Ok(null) = OpenOptions::new().write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stdout(&null);
    }
    heard
}

/// See the module's description. What a container forbids is done without, and said in the log.
fn protect() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        std::process::abort();
    }));
    // Threads started later inherit both.
    let mut set = SigSet::empty();
    for signal in SIGNALS {
        set.add(signal);
    }
    if let Err(error) = set.thread_block() {
        tracing::warn!("can't hold back signals: {error}");
    }
    // SAFETY: prctl with these arguments touches no memory.
    if unsafe { nix::libc::prctl(PR_SET_IO_FLUSHER as i32, 1, 0, 0, 0) } != 0 {
        tracing::warn!("no PR_SET_IO_FLUSHER: a machine short of memory may stop here");
    }
    // What is reserved and not in use yet must not be filled in: the allocator reserves a gigabyte.
    let on_use = MlockAllFlags::from_bits_retain(nix::libc::MCL_ONFAULT);
    let all = MlockAllFlags::MCL_CURRENT.union(MlockAllFlags::MCL_FUTURE).union(on_use);
    if let Err(error) = mlockall(all).and_then(|()| lock_program()) {
        tracing::warn!("can't lock memory ({error}): a machine short of memory may stop here");
    }
    if let Err(error) = fs::write("/proc/self/oom_score_adj", "-1000") {
        tracing::warn!("can't be spared when memory runs out: {error}");
    }
    // Its file is called exe, since it was started by that name in /proc.
    // SAFETY: the argument is a C string, which the kernel copies.
    unsafe { nix::libc::prctl(nix::libc::PR_SET_NAME, c"tepal-attach".as_ptr(), 0, 0, 0) };
}

/// Keeps the program itself in memory, also what of it wasn't needed so far: it may lie on the very volume that is attached.
fn lock_program() -> nix::Result<()> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for line in maps.lines() {
        // Range, rights, offset, device, inode, path. See proc_pid_maps(5).
        let fields: Vec<&str> = line.split_whitespace().collect();
        let &[range, rights, _, _, inode, ..] = fields.as_slice() else { continue };
        let is_file = inode != "0" && rights != "---p"; // a gap between a library's parts can't be filled in
        let Some((from, end)) = range.split_once('-').filter(|_| is_file) else { continue };
        let (Ok(from), Ok(end)) = (usize::from_str_radix(from, 16), usize::from_str_radix(end, 16)) else { continue };
        let Some(start) = NonNull::new(from as *mut c_void) else { continue };
        // SAFETY: the range is mapped, and locking changes nothing in it.
        unsafe { mlock(start, end - from) }?;
    }
    Ok(())
}

/// That the volume may have grown.
pub const LOOK: Signal = Signal::SIGUSR1;
const SIGNALS: [Signal; 5] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, LOOK];

struct Daemon {
    client: Arc<Client>,
    front: Front,
    place: AttachmentFolder,
    record: Record,
    /// It waits for answers, and not for a connection.
    is_unanswered: bool,
}

/// The kernel's side.
enum Front {
    Fuse,
    Nbd(KernelNbd),
}

impl Daemon {
    /// Connects, makes the device, and tells the parent.
    fn start(order: Order, place: AttachmentFolder, tell: &Sender<Event>) -> Result<Daemon, AttachError> {
        let Order { volume, export, address, read_only, method, give_up_after, .. } = order;
        watch_signals(tell.clone());
        let heard = tell.clone();
        let observer = move |notice: Notice<'_>| {
            let event = match notice {
                Notice::Lost(broken) => Event::Lost(broken.to_string()),
                Notice::Waiting(trouble) => Event::Waiting(trouble.to_string()),
                Notice::Resumed { resent } => Event::Resumed { resent },
                Notice::GaveUp { requests } => Event::GaveUp { requests },
            };
            let _ = heard.send(event); // nobody listens any more when the process is ending
        };
        let target = Target { address: address.clone(), volume: volume.clone(), export: export.clone(), read_only };
        let client = Arc::new(Client::open(target, PAUSES, Box::new(observer))?);
        give_up_after.map_or(Ok(()), |patience| client.give_up_after(patience))?;
        let block = fit(&volume, &client.export())?;
        let ended = tell.clone();
        let ended = move || drop(ended.send(Event::Ended));
        let (front, device) = match method {
            Method::Fuse => (Front::Fuse, make_loop(&client, read_only, block, &place, ended)?),
            Method::Nbd => make_nbd(&client, read_only, block, ended)?,
        };
        let size = client.size();
        let pid = std::process::id();
        let (waiting, waiting_since_unix_ms) = (None, None);
        let record = Record {
            volume,
            export,
            device,
            method,
            address,
            read_only,
            size,
            pid,
            waiting,
            waiting_since_unix_ms,
            looks_when_told: true,
        };
        let daemon = Daemon { client, front, place, record, is_unanswered: false };
        daemon.announce()?;
        Ok(daemon)
    }

    /// Writes the record and tells the parent; takes the device back if either can't be done.
    fn announce(&self) -> Result<(), AttachError> {
        let Record { device, method, read_only, size, .. } = self.record.clone();
        let written = self.place.write_record(&self.record);
        if written.is_ok() && report(&Report::Attached { device, method, read_only, size }) {
            tracing::info!("volume '{}' is {}", self.record.volume, self.record.device.display());
            return Ok(());
        }
        release::release(&self.place, &self.record, Flush::GiveUp)?;
        written
    }

    fn run(&mut self, events: &Receiver<Event>) -> ExitCode {
        loop {
            match events.recv_timeout(GROWTH_INTERVAL) {
                Ok(Event::Ended) | Err(RecvTimeoutError::Disconnected) => {
                    tracing::info!("volume '{}' is detached", self.record.volume);
                    self.client.close();
                    return ExitCode::SUCCESS;
                }
                Ok(Event::Signal(LOOK)) => self.look_again(),
                Ok(Event::Signal(signal)) => self.end_if_unused(signal),
                Ok(Event::Lost(reason)) => self.now_waiting(Some(reason)),
                Ok(Event::Waiting(reason)) => self.now_waiting(Some(reason)),
                Ok(Event::Resumed { resent }) => {
                    tracing::info!("connected again; {resent} requests sent again");
                    self.now_waiting(None);
                    self.follow_growth();
                }
                Ok(Event::GaveUp { requests }) => {
                    tracing::error!("{requests} requests were waited for too long, and failed (--give-up-after)");
                }
                // An error here is an outage that the client notices by itself.
                Err(RecvTimeoutError::Timeout) => {
                    self.look_at_the_oldest();
                    self.look_again();
                }
            }
        }
    }

    /// A server that is connected may not answer: it stands still, or itself waits for drives.
    fn look_at_the_oldest(&mut self) {
        let waited = self.client.waited().filter(|waited| *waited >= GROWTH_INTERVAL);
        match (waited, self.is_unanswered) {
            (Some(waited), false) if self.record.waiting.is_none() => {
                self.now_waiting(Some("the server is connected, and doesn't answer: see `tepal status`".to_owned()));
                let waited = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
                self.record.waiting_since_unix_ms = Some(now_unix_ms().saturating_sub(waited));
                self.is_unanswered = true;
                self.save();
            }
            (None, true) => self.now_waiting(None),
            _ => {}
        }
    }

    fn look_again(&mut self) {
        if let Ok(Some(name)) = self.client.look_again() {
            self.now_called(name);
        }
    }

    fn now_called(&mut self, name: String) {
        if name != self.record.volume {
            tracing::info!("volume '{}' is called '{name}' now", self.record.volume);
            self.record.volume = name;
            self.save();
        }
    }

    fn now_waiting(&mut self, reason: Option<String>) {
        if let Some(reason) = &reason {
            tracing::warn!("I/O waits: {reason}");
        }
        let since = self.record.waiting_since_unix_ms.unwrap_or_else(now_unix_ms);
        self.record.waiting_since_unix_ms = reason.is_some().then_some(since);
        self.record.waiting = reason;
        self.is_unanswered = false;
        self.save();
    }

    fn save(&self) {
        if let Err(error) = self.place.write_record(&self.record) {
            tracing::warn!("{error}");
        }
    }

    /// A larger volume makes the device larger.
    fn follow_growth(&mut self) {
        let size = self.client.size();
        if size == self.record.size {
            return;
        }
        let device = &self.record.device;
        let grown = match &self.front {
            // The loop driver asks FUSE, which answers from other threads.
            Front::Fuse => loop_device::grow(device),
            Front::Nbd(kernel) => kernel.grow(device, size),
        };
        match grown {
            Ok(()) => tracing::info!("the volume grew from {} to {size} bytes", self.record.size),
            Err(error) => tracing::warn!("the volume grew to {size} bytes, but {} can't: {error}", device.display()),
        }
        self.record.size = size;
        self.save();
    }

    /// Told to end, it does so only if that harms nobody.
    fn end_if_unused(&self, signal: Signal) {
        let released = match &self.record.waiting {
            Some(reason) => Err(AttachError::Unreachable {
                volume: self.record.volume.clone(),
                device: self.record.device.clone(),
                reason: reason.clone(),
            }),
            None => release::release(&self.place, &self.record, Flush::First),
        };
        match released {
            Ok(()) => tracing::info!("ending after {signal}"),
            Err(error) => tracing::warn!("{signal} has no effect: {error}"),
        }
    }
}

/// The device's block size, if the volume can be one.
fn fit(volume: &str, export: &Export) -> Result<u32, AttachError> {
    let unfit = |what| Err(AttachError::Unfit { volume: volume.into(), what });
    if !BLOCKS.contains(&export.minimum) || !export.minimum.is_power_of_two() {
        return unfit(Unfit::Block(export.minimum));
    }
    if export.maximum < LARGEST_REQUEST {
        return unfit(Unfit::Maximum(export.maximum));
    }
    let block = export.minimum.max(SMALLEST_BLOCK);
    if export.size < u64::from(block) || export.size > i64::MAX as u64 {
        return unfit(Unfit::Size(export.size));
    }
    Ok(block)
}

pub(super) fn make_loop(
    client: &Arc<Client>,
    read_only: bool,
    block: u32,
    place: &AttachmentFolder,
    ended: impl FnOnce() + Send + 'static,
) -> Result<PathBuf, AttachError> {
    let mountpoint = place.mountpoint();
    fuse::serve(Arc::clone(client), read_only, &mountpoint, ended)
        .map_err(|source| AttachError::file("mount FUSE at", &mountpoint, source))?;
    let file = mountpoint.join(fuse::FILE);
    let attached = open_file(&file, read_only).and_then(|file| loop_device::attach(&file, read_only, block));
    let device = attached.map_err(|source| {
        let _ = release::unmount(&mountpoint); // the first error is the one to tell
        AttachError::file("make a loop device of", &file, source)
    })?;
    if !loop_device::is_direct(&device) {
        tracing::warn!("{} has no direct I/O: it will be slow", device.display());
    }
    Ok(device)
}

fn open_file(path: &Path, read_only: bool) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(!read_only).open(path)
}

fn make_nbd(
    client: &Arc<Client>,
    read_only: bool,
    block: u32,
    ended: impl FnOnce() + Send + 'static,
) -> Result<(Front, PathBuf), AttachError> {
    let missing = AttachError::Unsupported { method: Method::Nbd, missing: "the kernel's nbd module" };
    let failed = |source| AttachError::Device { doing: "make", device: "/dev/nbd".into(), source };
    let kernel = KernelNbd::find().map_err(failed)?.ok_or(missing)?;
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    relay::serve(Arc::clone(client), ours, ended).map_err(failed)?;
    let flags = relay::flags(client.export().flags, read_only);
    let size = client.size() / u64::from(block) * u64::from(block);
    let device = kernel.connect(theirs.as_fd(), size, block, flags).map_err(failed)?;
    Ok((Front::Nbd(kernel), device))
}

fn watch_signals(tell: Sender<Event>) {
    let watch = move || {
        let mut set = SigSet::empty();
        for signal in SIGNALS {
            set.add(signal);
        }
        while let Ok(signal) = set.wait() {
            if tell.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("signals".into()).spawn(watch) {
        tracing::warn!("no thread for signals: {error}");
    }
}
