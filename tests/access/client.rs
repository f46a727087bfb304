//! Clients over TLS, with the files of an identity.

use crate::nbd::{Address, Nbd};
use crate::program::{self, Ended, command, run};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

/// Where a client finds a server, and by which certificate it comes.
pub struct Door<'a> {
    pub address: &'a Address,
    /// With ca-cert.pem, client-cert.pem and client-key.pem.
    pub identity: &'a Path,
}

impl Door<'_> {
    /// As QEMU's tools take it.
    fn arguments(&self, volume: &str) -> [String; 4] {
        let credentials = format!("tls-creds-x509,id=t,endpoint=client,dir={}", self.identity.display());
        let server = match self.address {
            Address::Unix(path) => format!("server.type=unix,server.path={},tls-hostname=localhost", path.display()),
            Address::Tcp(address) => {
                let (host, port) = address.rsplit_once(':').expect("a port");
                format!("server.type=inet,server.host={host},server.port={port}")
            }
        };
        let image = format!("driver=nbd,{server},export={volume},tls-creds=t");
        ["--object".to_owned(), credentials, "--image-opts".to_owned(), image]
    }

    /// Runs commands of qemu-io on one connection.
    pub fn io(&self, volume: &str, options: &[&str], commands: &[&str]) -> Ended {
        let [object, credentials, by_options, image] = self.arguments(volume);
        let mut qemu_io = command("qemu-io", [object, credentials, by_options]);
        qemu_io.args(options);
        for each in commands {
            qemu_io.args(["-c", each]);
        }
        run(qemu_io.arg(image))
    }

    /// What the server lists, in order; the error, if it lists nothing.
    pub fn list(&self) -> Result<Vec<String>, String> {
        let Address::Tcp(address) = self.address else { panic!("a TCP address") };
        let uri = format!("nbds://{address}/?tls-certificates={}", self.identity.display());
        let said = run(command("nbdinfo", ["--list", "--json", "--no-content", &uri]).env("LIBNBD_DEBUG", "0"));
        if !said.status.success() {
            return Err(said.stderr);
        }
        let said: serde_json::Value = serde_json::from_str(&said.succeeded()).expect("JSON");
        let exports = said["exports"].as_array().expect("a list").iter();
        Ok(exports.map(|export| export["export-name"].as_str().expect("a name").to_owned()).collect())
    }

    /// A client of ours that goes by QEMU: it has the volume without TLS, and QEMU has it over TLS.
    pub fn through_qemu(&self, volume: &str, socket: PathBuf) -> ThroughQemu {
        let [object, credentials, by_options, image] = self.arguments(volume);
        let mut qemu = command("qemu-nbd", [object, credentials, by_options, image, "--persistent".into()]);
        qemu.arg("--shared=4").arg("--cache=none").arg("--socket").arg(&socket);
        let process = program::spawn(&mut qemu);
        let through = ThroughQemu { process, socket };
        program::until("qemu-nbd to serve", SOON, || UnixStream::connect(&through.socket).ok());
        through
    }
}

pub struct ThroughQemu {
    process: Child,
    socket: PathBuf,
}

impl ThroughQemu {
    pub fn connect(&self) -> Nbd {
        Nbd::open(&Address::Unix(self.socket.clone()), "").expect("qemu-nbd serves one export")
    }
}

impl Drop for ThroughQemu {
    fn drop(&mut self) {
        program::kill_group(&mut self.process);
    }
}
