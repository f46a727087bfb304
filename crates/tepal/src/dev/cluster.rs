//! A development cluster's servers: started, waited for, asked, stopped.

use super::folder::{DevError, FIRST, Folder, Lock, Plan};
use super::network::{Cut, Cuts, Network};
use super::process::{OWN_SESSION, ProcessState, ServerProcess, Who};
use crate::client::Client;
use crate::interrupt::Interrupt;
use crate::locate::{Addresses, Keyring, read_token};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tepal_model::ServerId;
use tepal_server::api::types::{ServerInfo, route};

pub struct Cluster {
    folder: Folder,
    plan: Plan,
}

/// A server that was started just now.
struct Started {
    server: ServerId,
    child: Child,
    log_path: PathBuf,
    log_start: u64,
}

/// So long a server may take to answer after its start. Replay of the largest logs included.
const START_LIMIT: Duration = Duration::from_secs(60);
/// After so long, whoever waits is told for what.
const REMARK: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(5);
/// What new clusters are called.
const NAME: &str = "dev";
const ANY_PORT: &str = "127.0.0.1:0";

impl Cluster {
    pub fn open(dir: &Path) -> Result<Self, DevError> {
        Self::new(Folder::open(dir)?)
    }

    pub fn new(folder: Folder) -> Result<Self, DevError> {
        let plan = folder.plan()?.ok_or_else(|| DevError::NoCluster(folder.named().to_owned()))?;
        Self::with_plan(folder, plan)
    }

    pub fn with_plan(folder: Folder, plan: Plan) -> Result<Self, DevError> {
        let cluster = Cluster { folder, plan };
        for id in cluster.servers() {
            cluster.process(id).adopt(&cluster.folder.data(id))?;
        }
        Ok(cluster)
    }

    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    pub fn servers(&self) -> Vec<ServerId> {
        (1..=self.plan.servers).map(ServerId).collect()
    }

    pub fn process(&self, server: ServerId) -> ServerProcess {
        ServerProcess::new(Who::Server(server), &self.folder.data(server))
    }

    /// Where a server's clients find it.
    pub fn socket_of(&self, server: ServerId) -> PathBuf {
        match self.plan.servers {
            1 => self.folder.socket(),
            _ => self.folder.own_socket(server),
        }
    }

    /// Of an isolated cluster.
    pub fn network(&self) -> Option<Network> {
        self.plan.isolated.map(|subnet| Network::of(self.folder.path(), subnet))
    }

    pub fn addresses(&self, server: ServerId) -> Result<Option<Addresses>, DevError> {
        Ok(Addresses::read(&self.folder.data(server))?)
    }

    /// A client of the servers that run.
    pub fn client(&self) -> Result<Client, DevError> {
        let mut servers = Vec::new();
        let mut token = None;
        for (id, state) in self.states()? {
            // One that is paused would let everybody wait.
            if matches!(state, ProcessState::Running { .. }) {
                servers.extend(self.addresses(id)?.map(|addresses| addresses.api));
            }
            token = token.or(read_token(&self.folder.data(id))?);
        }
        match servers.is_empty() {
            true => Err(DevError::Down { server: ServerId(1) }),
            false => Ok(Client::new(servers, token)),
        }
    }

    /// Starts servers that are down, all at once, as some may wait for others; returns when all serve.
    pub fn start(&self, servers: &[ServerId], interrupt: &Interrupt) -> Result<(), DevError> {
        let started = self.spawn_all(servers)?;
        self.see_started(started, interrupt, || Ok(None))
    }

    /// The same, for who has locked the folder: others may start what these wait for.
    pub fn start_unlocked(&self, servers: &[ServerId], lock: Lock, interrupt: &Interrupt) -> Result<(), DevError> {
        let started = self.spawn_all(servers)?;
        drop(lock);
        self.see_started(started, interrupt, || self.folder.lock_soon().map(Some))
    }

    /// Notes one server after the other when it serves; `lock` keeps others from changing the folder meanwhile.
    fn see_started(
        &self,
        started: Vec<Started>,
        interrupt: &Interrupt,
        lock: impl Fn() -> Result<Option<Lock>, DevError>,
    ) -> Result<(), DevError> {
        for started in started {
            let server = started.server;
            let address = self.wait_for_started(started, interrupt)?;
            let _lock = lock()?;
            self.note_start(server, address)?;
        }
        Ok(())
    }

    fn spawn_all(&self, servers: &[ServerId]) -> Result<Vec<Started>, DevError> {
        if let Some(network) = self.network() {
            network.ensure(self.folder.path(), &self.servers())?;
        }
        servers.iter().map(|server| self.spawn(*server)).collect()
    }

    fn spawn(&self, server: ServerId) -> Result<Started, DevError> {
        self.folder.check_memory(&self.plan)?;
        self.folder.share_token(server, &self.servers())?;
        let data = self.folder.data(server);
        // One that a kill has left would be taken for the new server's.
        let _ = fs::remove_file(Addresses::file(&data));
        let log_path = self.folder.log(server);
        let log = OpenOptions::new().append(true).create(true).mode(0o600).open(&log_path);
        let log = log.map_err(|error| DevError::File { path: log_path.clone(), error })?;
        let log_start = log.metadata().map(|found| found.len()).unwrap_or(0);
        let failed = |reason: String| DevError::Start { server, reason, log: log_path.clone() };
        let mut command = self.command(server, log);
        if let Some(network) = self.network() {
            network.enter(server, &mut command)?;
        }
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        if let Err(error) = self.process(server).record(child.id()) {
            return Err(match child.try_wait() {
                Ok(Some(_)) => failed(last_error(&log_path, log_start)),
                _ => error.into(),
            });
        }
        Ok(Started { server, child, log_path, log_start })
    }

    /// The address of its API.
    fn wait_for_started(&self, started: Started, interrupt: &Interrupt) -> Result<String, DevError> {
        let Started { server, mut child, log_path, log_start } = started;
        let ended = move || child.try_wait().is_ok_and(|status| status.is_some());
        self.wait_until_ready(server, ended, interrupt, |reason| {
            let reason = reason.unwrap_or_else(|| last_error(&log_path, log_start));
            DevError::Start { server, reason, log: log_path.clone() }
        })
    }

    /// Waits for a server that runs: whoever started it may have been killed before it was ready.
    pub fn wait_for_running(&self, server: ServerId, interrupt: &Interrupt) -> Result<(), DevError> {
        let log = self.folder.log(server);
        let ended = || self.process(server).state().is_ok_and(|state| state == ProcessState::Down);
        let address = self.wait_until_ready(server, ended, interrupt, |reason| {
            let reason = reason.unwrap_or_else(|| last_error(&log, 0));
            DevError::Start { server, reason, log: log.clone() }
        })?;
        self.note_start(server, address)
    }

    fn note_start(&self, server: ServerId, address: String) -> Result<(), DevError> {
        let data = self.folder.data(server);
        // Not the plan of when the command began: other servers' addresses were noted since.
        let plan = self.folder.plan()?;
        let mut plan = plan.ok_or_else(|| DevError::NoCluster(self.folder.named().to_owned()))?;
        plan.note_api(server, address.clone());
        self.folder.save(&plan)?;
        if let (Some(keyring), Some(token)) = (Keyring::find(), read_token(&data)?) {
            // Only a convenience, which some machines may not allow.
            let _ = keyring.put(&address, &token);
        }
        Ok(())
    }

    /// Data threads for each of so many processes. They share the machine: with one for each core each would only be in the others' way.
    pub(super) fn threads_of_each(processes: usize) -> String {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        (cores / processes.max(1)).max(1).to_string()
    }

    fn command(&self, server: ServerId, log: File) -> Command {
        // The very program that runs, even if its file was replaced meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command.arg("serve").arg(OWN_SESSION);
        command.arg("--data").arg(self.folder.data(server));
        command.arg("--server").arg(server.to_string());
        let others: Vec<ServerId> = self.servers().into_iter().filter(|other| *other != server).collect();
        // The first one joins too if its data folder was lost: there is a cluster already.
        let begins = server == FIRST && !others.iter().any(|other| self.folder.is_member(*other));
        if begins {
            command.arg("--create").arg(NAME);
        }
        let network = self.network();
        for other in others.into_iter().filter(|_| !begins) {
            command.arg("--join").arg(match &network {
                Some(network) => network.peers(other),
                None => format!("unix:{}", self.folder.peers(other).display()),
            });
        }
        for number in 0..self.plan.drives {
            command.arg("--drive").arg(self.folder.drive(server, number));
        }
        command.arg("--listen").arg(format!("unix:{}", self.socket_of(server).display()));
        command.arg("--data-threads").arg(Self::threads_of_each(self.servers().len()));
        // Perhaps there is none yet: the folder is looked at when a key is needed.
        command.arg("--keys").arg(self.folder.keys());
        match &network {
            // Nobody but this machine reaches these addresses.
            Some(network) => {
                command.arg("--peers").arg(network.peers(server)).arg("--api").arg(network.api(server));
                command.arg("--insecure");
            }
            None => {
                // The same as before, if nobody else has it now.
                let before = self.plan.api_of(server).filter(|address| TcpListener::bind(address).is_ok());
                command.arg("--api").arg(before.unwrap_or(ANY_PORT));
            }
        }
        if let Some(model) = &self.plan.emulate {
            command.arg("--emulate").arg(model);
        }
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command
    }

    /// The address of its API, once it serves there and over NBD.
    fn wait_until_ready(
        &self,
        server: ServerId,
        mut ended: impl FnMut() -> bool,
        interrupt: &Interrupt,
        failed: impl Fn(Option<String>) -> DevError,
    ) -> Result<String, DevError> {
        let begun = Instant::now();
        let mut is_remarked = false;
        loop {
            if ended() {
                return Err(failed(None));
            }
            if begun.elapsed() > REMARK && !std::mem::replace(&mut is_remarked, true) {
                // If standard error is closed there is nobody to tell.
                let _ = writeln!(io::stderr(), "server {server} doesn't serve yet{}", self.obstacles(server)?);
            }
            if let Some(addresses) = self.addresses(server)? {
                let token = read_token(&self.folder.data(server))?;
                let client = Client::new(vec![addresses.api.clone()], token).impatient();
                let answer = client.get::<Vec<ServerInfo>>(route::SERVERS);
                match answer {
                    Ok(_) if addresses.serves() => return Ok(addresses.api),
                    Err(error) if !error.is_no_answer() => return Err(error.into()),
                    _ => {}
                }
            }
            if interrupt.wait(LOOK) {
                self.process(server).stop()?;
                return Err(DevError::Interrupted);
            }
            if begun.elapsed() > START_LIMIT {
                let obstacles = self.obstacles(server)?;
                self.process(server).stop()?;
                return Err(failed(Some(format!("it doesn't answer after {} s{obstacles}", START_LIMIT.as_secs()))));
            }
        }
    }

    /// What may keep a server from coming up, as the rest of a sentence: others that aren't there, and cuts.
    fn obstacles(&self, server: ServerId) -> Result<String, DevError> {
        let states = self.states()?;
        let others = |is_so: fn(&ProcessState) -> bool| {
            let others = states.iter().filter(|(other, state)| *other != server && is_so(state));
            others.map(|(other, _)| other.to_string()).collect::<Vec<_>>().join(" ")
        };
        let (down, paused) = (
            others(|state| matches!(state, ProcessState::Down)),
            others(|state| matches!(state, ProcessState::Paused { .. })),
        );
        let mut text = String::new();
        if !down.is_empty() {
            text += &format!("; it may need others, which are down: `tepal dev start {down}`");
        }
        if !paused.is_empty() {
            text += &format!("; it may need others, which are paused: `tepal dev resume {paused}`");
        }
        let cuts = self.cuts()?.into_iter().filter(|cut| cut.from == server || cut.to == server);
        let cuts: Vec<Cut> = cuts.collect();
        if !cuts.is_empty() {
            text += &format!("; its network is cut ({}): `tepal dev heal` mends it", Cuts(&cuts));
        }
        Ok(text)
    }

    /// What is cut between the servers.
    pub fn cuts(&self) -> Result<Vec<Cut>, DevError> {
        Ok(self.network().map(|network| network.cuts(&self.servers())).transpose()?.unwrap_or_default())
    }

    /// Stops all servers in good order, and says which were running. The network of an isolated cluster goes too.
    pub fn stop(&self) -> Result<Vec<ServerId>, DevError> {
        self.stop_gateway()?;
        let servers = self.servers();
        // All at once: each takes a while, and none should notice that the others are gone.
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let stopping: Vec<_> = servers.iter().map(|id| (*id, scope.spawn(|| self.process(*id).stop()))).collect();
            stopping.into_iter().map(|(id, outcome)| (id, outcome.join().expect("it doesn't panic"))).collect()
        });
        let mut stopped = Vec::new();
        for (id, outcome) in outcomes {
            if outcome? {
                stopped.push(id);
            }
        }
        if let Some(keyring) = Keyring::find() {
            self.plan.api.iter().chain(self.plan.apis.values()).for_each(|address| keyring.remove(address));
        }
        if self.plan.isolated.is_some() {
            Network::remove(self.folder.path())?;
        }
        Ok(stopped)
    }

    pub fn states(&self) -> Result<Vec<(ServerId, ProcessState)>, DevError> {
        self.servers().into_iter().map(|id| Ok((id, self.process(id).state()?))).collect()
    }
}

/// Why a process ended, by what it logged since.
pub fn last_error(log: &Path, from: u64) -> String {
    const MOST: u64 = 64 << 10;
    let read = || -> std::io::Result<String> {
        let mut file = File::open(log)?;
        let from = from.max(file.metadata()?.len().saturating_sub(MOST));
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let lines = || text.lines().rev().filter(|line| !line.trim().is_empty());
    let error = lines().find_map(|line| line.strip_prefix("error: ")).or_else(|| lines().next());
    error.unwrap_or("it ended without a word").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_failed_start_is_what_it_logged_since() {
        let scratch = tempfile::tempdir().expect("space");
        let log = scratch.path().join("log");
        let old = "error: of an earlier start\n";
        for (text, reason) in [
            ("", "it ended without a word"),
            ("INFO x\n\n", "INFO x"),
            ("INFO x\nerror: the port is taken\nINFO y\n", "the port is taken"),
        ] {
            fs::write(&log, format!("{old}{text}")).expect("ours");
            assert_eq!(last_error(&log, old.len() as u64), reason);
        }
    }
}
