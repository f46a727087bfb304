//! A server that clients reach in several ways, and gateways of two identities.

use crate::bench::access::{ENCRYPTED, HOST, OPERATOR, PLAIN, TCP};
use crate::bench::suite::{Disk, Job, Run, Suite, fio, measured};
use crate::bench::systems::{MEMORY, Scratch, until};
use crate::failure::Failure;
use crate::process;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
/// Volumes that are made beside the two that are compared.
pub const QUIET: &str = "quiet";
pub const NOISY: &str = "noisy";
/// Whom nothing on a machine belongs to.
const NOBODY: &str = "65534";

pub struct Place {
    program: PathBuf,
    port: String,
    processes: Vec<Child>,
    scratch: Scratch,
    _drives: Scratch,
}

impl Drop for Place {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().rev() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Place {
    pub fn start(program: &Path, drive_size: &str, size: &str) -> Result<Place, Failure> {
        let program = program.canonicalize().map_err(Failure::file(program))?;
        let (scratch, drives) = (Scratch::new(&std::env::temp_dir())?, Scratch::new(Path::new(MEMORY))?);
        let [port, api] = [free_port()?, free_port()?];
        let mut place = Place { program, port, processes: Vec::new(), scratch, _drives: drives };
        process::succeed(place.tepal().args(["key", "create", "main", "--keys"]).arg(place.file("keys")), LIMIT)?;
        let mut serve = place.tepal();
        serve.arg("serve").arg("--data").arg(place.data()).args(["--create", "bench", "--api", &api]);
        serve.arg("--keys").arg(place.file("keys")).args(["--listen", &place.port]);
        serve.arg("--listen").arg(format!("unix:{}", place.socket("server").display()));
        for number in 0..4 {
            let drive = place._drives.file(&format!("drive{number}"));
            process::succeed(Command::new("truncate").args(["--size", drive_size]).arg(&drive), LIMIT)?;
            serve.arg("--drive").arg(drive);
        }
        place.spawn(serve, "server")?;
        for (volume, more) in [(PLAIN, &[][..]), (ENCRYPTED, &["--key", "main"]), (QUIET, &[]), (NOISY, &[])] {
            let create = ["volume", "create", volume, "--layout", "stripe", "--size", size];
            place.manage(&[&create[..], more].concat())?;
        }
        for (name, more) in [("root", &["--operator"][..]), ("web", &[])] {
            let to = place.file(name).display().to_string();
            place.manage(&[&["identity", "create", name, "--to", &to], more].concat())?;
        }
        place.manage(&["volume", "grant", PLAIN, "write", "web"])?;
        for (name, identity) in [(OPERATOR, "root"), (HOST, "web")] {
            let mut gateway = place.tepal();
            gateway.arg("--identity").arg(place.file(identity)).args(["--cluster", &api, "gateway", "--listen"]);
            gateway.arg(format!("unix:{}", place.socket(name).display()));
            place.spawn(gateway, name)?;
        }
        place.lay_out_for_libnbd()?;
        Ok(place)
    }

    /// Where libnbd looks for an identity that no URI names: fio takes none.
    fn lay_out_for_libnbd(&self) -> Result<(), Failure> {
        let folder = self.home().join(".pki/libnbd");
        std::fs::create_dir_all(&folder).map_err(Failure::file(&folder))?;
        for file in ["ca-cert.pem", "client-cert.pem", "client-key.pem"] {
            let to = folder.join(file);
            std::fs::copy(self.file("web").join(file), &to).map_err(Failure::file(&to))?;
            // Of a cluster that is gone in a few minutes, for another user of this machine.
            std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o644)).map_err(Failure::file(&to))?;
        }
        Ok(())
    }

    fn spawn(&mut self, mut command: Command, name: &str) -> Result<(), Failure> {
        let log = self.file(&format!("{name}.log"));
        let log = std::fs::File::create(&log).map_err(Failure::file(&log))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn().map_err(|source| Failure::Start { program: "tepal".into(), source })?;
        self.processes.push(child);
        let socket = self.socket(name);
        until("a process to serve", || UnixStream::connect(&socket).is_ok())
    }

    fn tepal(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env_remove("TEPAL_CLUSTER").env_remove("TEPAL_TOKEN").env_remove("TEPAL_IDENTITY");
        command
    }

    /// A management command.
    pub fn manage(&self, arguments: &[&str]) -> Result<(), Failure> {
        process::succeed(self.tepal().arg("--dir").arg(self.data()).args(arguments), LIMIT).map(drop)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.scratch.file(name)
    }

    fn data(&self) -> PathBuf {
        self.file("data")
    }

    fn home(&self) -> PathBuf {
        self.file("home")
    }

    fn socket(&self, name: &str) -> PathBuf {
        self.file(&format!("{name}.sock"))
    }

    /// By the server's unix socket.
    pub fn local(&self, volume: &str) -> Disk {
        Disk::Nbd { uri: format!("nbd+unix:///{volume}?socket={}", self.socket("server").display()) }
    }

    /// As a way is named.
    pub fn disk(&self, way: &str) -> Disk {
        match way {
            TCP => Disk::Nbd { uri: format!("nbd://{}/{PLAIN}", self.port) },
            OPERATOR | HOST => Disk::Nbd { uri: format!("nbd+unix:///{PLAIN}?socket={}", self.socket(way).display()) },
            volume => self.local(volume),
        }
    }

    /// libnbd reads an identity of somebody's home, and root has none.
    pub fn run_over_tls(&self, way: &str, job: &Job, suite: &Suite, repetition: u32) -> Result<Run, Failure> {
        let disk = Disk::Nbd { uri: format!("nbds://{}/{PLAIN}", self.port) };
        let plain = fio(job, &disk, &suite.size);
        let mut command = match is_root() {
            false => Command::new(plain.get_program()),
            true => {
                let mut command = Command::new("setpriv");
                command.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), "--clear-groups"]);
                command.arg(plain.get_program());
                command
            }
        };
        command.args(plain.get_args()).env("HOME", self.home()).current_dir(self.home());
        command.args(["--time_based", &format!("--runtime={}", suite.seconds)]);
        let output = process::succeed(&mut command, Duration::from_secs(suite.seconds) + LIMIT)?.stdout;
        measured(&output, way, job.name, repetition).map(|(run, _)| run)
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

fn free_port() -> Result<String, Failure> {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    address.map(|address| address.to_string()).map_err(Failure::file(Path::new("127.0.0.1")))
}
