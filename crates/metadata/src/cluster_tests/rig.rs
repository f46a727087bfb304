//! The servers of a test: each on a runtime of its own, so that it can be killed at any moment.

use crate::peers::Calling;
use crate::record::{DEFAULT_POOL, ServerState};
use crate::scratch::Scratch;
use crate::{
    Command, JoinError, JoinRequest, Lease, Metadata, ProposeError, Reply, State, Surroundings, Term, Timing,
    Transport, TransportError,
};
use openraft::type_config::async_runtime::watch::WatchReceiver;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tepal_model::{ClusterId, ServerId};
use tokio::runtime::Runtime;

pub const CLUSTER: ClusterId = ClusterId(0xc1);

/// What takes longer never happens, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// Fast, so that tests are; long enough for a machine that is busy.
pub fn timing() -> Timing {
    let lease = Term { length: Duration::from_millis(500), drift_ppm: 10_000, margin: Duration::from_millis(50) };
    Timing {
        heartbeat: Duration::from_millis(40),
        election: Duration::from_millis(200),
        lease,
        gone_after: Duration::from_secs(2),
    }
}

/// The network: servers by address, and what is wrong between them.
#[derive(Default)]
pub struct Net {
    servers: Mutex<BTreeMap<String, Metadata>>,
    /// Nothing gets from the first to the second: neither requests nor answers.
    cut: Mutex<BTreeSet<(String, String)>>,
    /// Requests of servers that are cut off, as a network keeps them that brings them later; with whom they are for.
    kept: Mutex<Vec<(String, Vec<u8>)>>,
    /// Of so many messages one is lost, and others late.
    faulty: Mutex<Option<u64>>,
    count: Mutex<u64>,
}

impl Net {
    /// A number that differs from message to message, the same in every run.
    fn chance(&self) -> u64 {
        let mut count = self.count.lock().unwrap();
        *count += 1;
        let mut x = count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x ^ (x >> 31)
    }

    fn passes(&self, from: &str, to: &str) -> bool {
        let lost = self.faulty.lock().unwrap().is_some_and(|one_in| self.chance().is_multiple_of(one_in));
        !lost && !self.cut.lock().unwrap().contains(&(from.to_owned(), to.to_owned()))
    }

    fn delay(&self) -> Duration {
        match *self.faulty.lock().unwrap() {
            Some(_) => Duration::from_millis(self.chance() % 8),
            None => Duration::ZERO,
        }
    }

    /// Has all requests arrive that were sent to a server while it was cut off.
    pub async fn deliver(&self, to: &Metadata, address: &str) {
        let kept: Vec<_> = self.kept.lock().unwrap().extract_if(.., |(kept_for, _)| kept_for == address).collect();
        for (_, request) in kept {
            to.answer("late", &request).await;
        }
    }

    pub fn faulty(&self, one_in: Option<u64>) {
        *self.faulty.lock().unwrap() = one_in;
    }
}

struct Link {
    net: Arc<Net>,
    from: String,
}

impl Transport for Link {
    fn call(&self, address: &str, request: Vec<u8>, _within: Duration) -> Calling {
        let (net, from, to) = (self.net.clone(), self.from.clone(), address.to_owned());
        Box::pin(async move {
            let lost = |what: &str| TransportError(format!("{what} was lost"));
            tokio::time::sleep(net.delay()).await;
            let server = net.servers.lock().unwrap().get(&to).cloned();
            let Some(server) = server.filter(|_| net.passes(&from, &to)) else {
                net.kept.lock().unwrap().push((to, request));
                return Err(lost("the request"));
            };
            let runtime = tokio::runtime::Handle::current();
            // A request that arrived twice.
            if net.faulty.lock().unwrap().is_some() && net.chance().is_multiple_of(16) {
                let (server, from, request) = (server.clone(), from.clone(), request.clone());
                runtime.spawn(async move { server.answer(&from, &request).await });
            }
            let answer = server.answer(&from, &request).await;
            tokio::time::sleep(net.delay()).await;
            if net.passes(&to, &from) { Ok(answer) } else { Err(lost("the answer")) }
        })
    }
}

pub struct Cluster {
    pub net: Arc<Net>,
    scratch: Scratch,
    pub running: BTreeMap<u32, (Runtime, Metadata)>,
}

pub fn address(server: u32) -> String {
    format!("h:{server}")
}

impl Cluster {
    pub fn new() -> Cluster {
        let mut cluster = Cluster { net: Arc::default(), scratch: Scratch::new(), running: BTreeMap::new() };
        let folder = cluster.folder(1);
        std::fs::create_dir(&folder).unwrap();
        let runtime = runtime();
        let founding = Metadata::found(&folder, CLUSTER, "test", ServerId(1), "h:1", 1);
        runtime.block_on(founding).unwrap();
        cluster.start(1).unwrap();
        cluster
    }

    /// Of `servers` servers, all up and as many voting as should.
    pub fn of(servers: u32) -> Cluster {
        let mut cluster = Cluster::new();
        for server in 2..=servers {
            cluster.join(server, &[1], None).unwrap();
        }
        for server in 1..=servers {
            cluster.run(server, Metadata::wait_for_its_place).unwrap();
        }
        let voters = match servers {
            0..=2 => 1,
            3..=4 => 3,
            _ => 5,
        };
        cluster.all_up_and_agreed(servers, voters);
        cluster
    }

    /// Waits until the first `servers` servers are up and everybody knows of so many voters.
    pub fn all_up_and_agreed(&self, servers: u32, voters: usize) {
        self.eventually("all are up, and the voters agreed on", |cluster| {
            (1..=servers).for_each(|server| cluster.bring_back(server));
            (1..=servers)
                .all(|server| cluster.is(1, server, ServerState::Up) && cluster.agreed_voters(server) == voters)
        });
    }

    /// Returns a server to service that was declared down, as its process does by itself: it may also have been silent
    /// because the machine is busy.
    pub fn bring_back(&self, server: u32) {
        if matches!(self.metadata(server).lease(), Lease::Down { .. }) {
            let _ = self.run(server, Metadata::return_to_service);
        }
    }

    /// Whether it may serve now, once it's back.
    pub fn may_serve(&self, server: u32) -> bool {
        self.bring_back(server);
        let metadata = self.metadata(server);
        metadata.lease().allows(metadata.state().view(), metadata.now())
    }

    /// How many voters a majority has agreed on, as far as this server knows.
    pub fn agreed_voters(&self, server: u32) -> usize {
        let metrics = self.metadata(server).member.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        match &metrics.committed_membership_config.membership().get_joint_config()[..] {
            [voters] if metrics.membership_config == metrics.committed_membership_config => voters.len(),
            _ => 0,
        }
    }

    pub fn folder(&self, server: u32) -> PathBuf {
        self.scratch.path().join(format!("s{server}"))
    }

    pub fn surroundings(&self, server: u32) -> Surroundings {
        let link = Link { net: self.net.clone(), from: address(server) };
        let clock = Surroundings::alone().clock;
        Surroundings { timing: timing(), ..Surroundings::new(Arc::new(link), clock) }
    }

    fn put(&mut self, server: u32, runtime: Runtime, metadata: Metadata) {
        self.net.servers.lock().unwrap().insert(address(server), metadata.clone());
        self.running.insert(server, (runtime, metadata));
    }

    pub fn start(&mut self, server: u32) -> Result<(), crate::OpenError> {
        let runtime = runtime();
        let folder = self.folder(server);
        let opening = Metadata::open_among(&folder, self.surroundings(server));
        let metadata = runtime.block_on(opening)?;
        self.put(server, runtime, metadata);
        Ok(())
    }

    pub fn join(&mut self, server: u32, through: &[u32], claim: Option<ServerId>) -> Result<(), crate::JoinError> {
        let folder = self.folder(server);
        std::fs::create_dir_all(&folder).unwrap();
        let request = JoinRequest {
            cluster: Some(CLUSTER),
            name: Some("test".to_owned()),
            through: through.iter().map(|server| address(*server)).collect(),
            address: address(server),
            claim,
        };
        let runtime = runtime();
        let until = Instant::now() + PATIENCE;
        let metadata = loop {
            match runtime.block_on(Metadata::join(&folder, &request, self.surroundings(server))) {
                Err(JoinError::Unreachable(_)) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(20))
                }
                joined => break joined?,
            }
        };
        self.put(server, runtime, metadata);
        Ok(())
    }

    /// A server is found from now on where one of that number would be.
    pub fn move_to(&mut self, server: u32, place: u32) {
        let mut servers = self.net.servers.lock().unwrap();
        let moved = servers.remove(&address(server)).expect("it runs");
        servers.insert(address(place), moved);
        drop(servers);
        let id = self.metadata(server).server();
        self.propose(server, Command::SetServerAddress { id, address: address(place) }).unwrap();
    }

    /// At once, whatever it was doing.
    pub fn kill(&mut self, server: u32) {
        self.net.servers.lock().unwrap().remove(&address(server));
        let (runtime, metadata) = self.running.remove(&server).expect("it runs");
        runtime.shutdown_background();
        drop(metadata);
        // What a process that was killed had asked of the disk, the kernel does before it lets go of the lock.
        File::open(self.folder(server).join("LOCK")).unwrap().lock().unwrap();
    }

    pub fn metadata(&self, server: u32) -> &Metadata {
        &self.running[&server].1
    }

    pub fn state(&self, server: u32) -> Arc<State> {
        self.metadata(server).state()
    }

    pub fn voters(&self, server: u32) -> BTreeSet<u64> {
        let sets = self.metadata(server).member.voters();
        if sets.len() == 1 { sets[0].clone() } else { BTreeSet::new() }
    }

    /// The server that leads, in the eyes of a majority of those that run.
    pub fn leader(&self) -> Option<u32> {
        let mut believed: BTreeMap<ServerId, usize> = BTreeMap::new();
        for (_, metadata) in self.running.values() {
            if let Some(leader) = metadata.leader() {
                *believed.entry(leader).or_default() += 1;
            }
        }
        let leader = believed.into_iter().find(|(_, by)| 2 * by > self.running.len()).map(|(leader, _)| leader.0);
        leader.filter(|leader| self.running.contains_key(leader))
    }

    pub fn run<'a, R, F: Future<Output = R>>(&'a self, server: u32, body: impl FnOnce(&'a Metadata) -> F) -> R {
        let (runtime, metadata) = &self.running[&server];
        runtime.block_on(body(metadata))
    }

    /// In the background of that server.
    pub fn begin<R: Send + 'static>(
        &self,
        server: u32,
        work: impl Future<Output = R> + Send + 'static,
    ) -> tokio::task::JoinHandle<R> {
        self.running[&server].0.spawn(work)
    }

    pub fn propose(&self, server: u32, command: Command) -> Result<Reply, ProposeError> {
        self.run(server, |metadata| metadata.propose(command))
    }

    /// Whatever was sent to it while it, or who sent it, was cut off arrives there now.
    pub fn deliver(&self, server: u32) {
        let address = address(server);
        self.run(server, |metadata| self.net.deliver(metadata, &address));
    }

    /// Whether a request for this server, which says this, was sent and hasn't arrived.
    pub fn is_kept(&self, server: u32, text: &str) -> bool {
        let kept = self.net.kept.lock().unwrap();
        let says = |request: &[u8]| request.windows(text.len()).any(|part| part == text.as_bytes());
        kept.iter().any(|(to, request)| *to == address(server) && says(request))
    }

    /// Nothing gets from `from` to `to` from now on, or everything again.
    pub fn cut(&self, from: u32, to: u32, cut: bool) {
        let way = (address(from), address(to));
        let mut all = self.net.cut.lock().unwrap();
        if cut {
            all.insert(way)
        } else {
            all.remove(&way)
        };
    }

    pub fn isolate(&self, server: u32, cut: bool) {
        for other in 1..=9 {
            self.cut(server, other, cut);
            self.cut(other, server, cut);
        }
    }

    pub fn eventually(&self, what: &str, condition: impl Fn(&Cluster) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !condition(self) {
            assert!(Instant::now() < until, "not in {PATIENCE:?}: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn is(&self, seen_by: u32, server: u32, state: ServerState) -> bool {
        self.state(seen_by).servers.get(&ServerId(server)).is_some_and(|server| server.state == state)
    }

    /// Everybody who runs holds the same.
    pub fn agree(&self) {
        self.eventually("all hold the same state", |cluster| {
            let mut states = cluster.running.values().map(|(_, metadata)| metadata.state());
            let first = states.next().expect("one runs");
            states.all(|state| state == first)
        });
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.net.servers.lock().unwrap().clear();
        for (_, (runtime, _)) in std::mem::take(&mut self.running) {
            runtime.shutdown_background();
        }
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

pub fn pool(name: &str) -> Command {
    Command::CreatePool { name: name.to_owned(), layout: None }
}

pub fn has_pool(state: &State, name: &str) -> bool {
    state.pools.contains_key(name)
}

pub fn add_drive(id: u64, server: u32) -> Command {
    let (server, path) = (ServerId(server), format!("/d{id}"));
    Command::AddDrive {
        id: tepal_model::DriveId(id),
        server,
        pool: DEFAULT_POOL.to_owned(),
        path,
        capacity: 1 << 30,
        spare: false,
    }
}
