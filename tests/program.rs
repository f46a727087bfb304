//! Other programs: run with a limit on time, and not left behind.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// For a program that has little to do. Far more than it needs: a slow machine is no failure.
pub const LIMIT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(2);

/// Says why a test can't run here, and ends it.
#[macro_export]
macro_rules! skip {
    ($($why:tt)*) => {{
        println!("skipped: {}", format_args!($($why)*));
        return;
    }};
}

/// Ends a test whose programs aren't all here.
#[macro_export]
macro_rules! need {
    ($($program:expr),+) => {
        $(if $crate::program::find($program).is_none() {
            $crate::skip!("{} is missing here", $program);
        })+
    };
}

/// Ends a test that only root can run.
#[macro_export]
macro_rules! need_root {
    () => {
        if !$crate::program::is_root() {
            $crate::skip!("only root can do this");
        }
    };
}

pub struct Ended {
    what: String,
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Ended {
    /// What it wrote to standard output; panics if it failed.
    pub fn succeeded(self) -> String {
        assert!(self.status.success(), "{self}");
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The line of error that it ended with; panics unless that is what it did.
    pub fn refused(self, status: i32) -> String {
        assert_eq!(self.status.code(), Some(status), "{self}");
        let line = self.stderr.strip_suffix('\n').unwrap_or(&self.stderr);
        assert!(line.starts_with("error: ") && !line.contains('\n'), "not one line of error: {self}");
        line.to_owned()
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stdout = String::from_utf8_lossy(&self.stdout[..self.stdout.len().min(4000)]);
        write!(f, "{}: {}\n{stdout}{}", self.what, self.status, self.stderr)
    }
}

/// A command of whatever it takes to look like one, as in `command("qemu-io", ["-f", "raw"])`.
pub fn command<A: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(find(program).unwrap_or_else(|| program.into()));
    command.args(arguments);
    command
}

/// Runs to the end; panics if that takes too long.
pub fn run(command: &mut Command) -> Ended {
    run_within(command, LIMIT)
}

pub fn run_within(command: &mut Command, limit: Duration) -> Ended {
    let what = format!("{command:?}");
    // Without a function that runs before the program, this process isn't copied for it, with all that its tests have in memory.
    let mut child = begin(command.stdout(Stdio::piped()).stderr(Stdio::piped()), Stdio::null());
    let stdout = drain(child.stdout.take());
    let stderr = drain(child.stderr.take());
    let Some(status) = wait(&mut child, limit) else {
        kill_group(&mut child);
        let said = [stdout, stderr].map(|stream| String::from_utf8_lossy(&collect(stream)).into_owned());
        panic!("{what}: still running after {limit:?}\n{}", said.concat());
    };
    let (stdout, stderr) = (collect(stdout), String::from_utf8_lossy(&collect(stderr)).into_owned());
    Ended { what, status, stdout, stderr }
}

/// Starts a program that dies with the thread that started it, in a process group of its own.
pub fn spawn(command: &mut Command) -> Child {
    spawn_with(command, Stdio::null())
}

/// The same, with this as its standard input.
pub fn spawn_with(command: &mut Command, stdin: Stdio) -> Child {
    let die_with_the_test = || match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    };
    // Safety: prctl may be called between fork and exec.
    unsafe { command.pre_exec(die_with_the_test) };
    begin(command, stdin)
}

/// Starts a program in a process group of its own.
fn begin(command: &mut Command, stdin: Stdio) -> Child {
    command.process_group(0);
    if command.get_current_dir().is_none() {
        command.current_dir("/");
    }
    command.stdin(stdin);
    command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Its status, if it ends in time.
pub fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            return Some(status);
        }
        if Instant::now() > end {
            return None;
        }
        std::thread::sleep(LOOK);
    }
}

/// Kills a program and what it started in its group.
pub fn kill_group(child: &mut Child) {
    signal_group(child, libc::SIGKILL);
    let _ = child.wait(); // it's gone either way
}

pub fn signal_group(child: &Child, signal: libc::c_int) {
    // Safety: no memory is involved. If the group has gone there is nothing to do.
    unsafe { libc::kill(-(child.id() as libc::pid_t), signal) };
}

fn drain(stream: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // What was read before an error is all there is to show.
            let _ = stream.read_to_end(&mut bytes);
        }
        bytes
    })
}

fn collect(stream: JoinHandle<Vec<u8>>) -> Vec<u8> {
    stream.join().expect("a thread that can't panic")
}

/// Where a program is, if this machine has it.
pub fn find(program: &str) -> Option<PathBuf> {
    // The system's own folders are not in everybody's PATH.
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(system).map(|folder| folder.join(program)).find(|file| file.is_file())
}

pub fn is_root() -> bool {
    // Safety: it can't fail, and touches no memory.
    unsafe { libc::geteuid() == 0 }
}

/// Looks until there is something; panics if that takes too long.
pub fn until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited {limit:?} in vain: {what}");
        std::thread::sleep(LOOK);
    }
}

/// Looks all the while whether it stays so: panics as soon as it doesn't.
pub fn stays(what: &str, length: Duration, is_so: impl Fn() -> bool) {
    let end = Instant::now() + length;
    while Instant::now() < end {
        assert!(is_so(), "it doesn't stay so: {what}");
        std::thread::sleep(LOOK);
    }
}
