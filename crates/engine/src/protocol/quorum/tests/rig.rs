//! A column of a quorum layout: drives with their nodes, gateways, and faults of all kinds.

use super::super::gateway::{Gateway, Nodes, Told};
use super::super::node::{Node, Resolve, Versioned};
use super::super::shape::Shape;
use crate::map::Column;
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, join_all};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tepal_codec::cross::{cross, digest};
use tepal_drive::world::Clock;
use tepal_drive::{Drive, NewDrive, Options, format};
use tepal_model::layout::quorum::Quorum;
use tepal_model::{ClusterId, DriveId, Fragments, IoError, MapId, Segments, Version};
use tepal_sim::random::Stream;
use tepal_sim::{SimDisk, SimWorld};
use tepal_wire::Payload;
use tepal_wire::message::{Found, NodeAnswer, NodeFailure, NodeOperation};

/// One drive with its server.
pub struct Server {
    pub disk: SimDisk,
    world: SimWorld,
    pub node: Option<Node<SimWorld>>,
    /// No question arrives, and no answer.
    pub is_cut_off: bool,
    /// Counts the lives of the server.
    life: u64,
    /// It answers whatever it likes.
    pub lies: bool,
    /// It's broken, and stays so.
    is_broken: bool,
    /// How many changes of the column's drives it has heard of.
    heard: usize,
}

/// Which drives the column has, by the numbers of their servers.
#[derive(Clone, Debug)]
pub struct Seats {
    servers: Vec<usize>,
    /// The fragment that moves, to the server there.
    joining: Option<usize>,
}

pub struct Rig {
    pub world: SimWorld,
    pub shape: Arc<Shape>,
    pub servers: RefCell<Vec<Server>>,
    random: RefCell<Stream>,
    /// Messages take so long at most, in microseconds.
    pub delay: Cell<u64>,
    column: Column,
    /// The column's drives, as they were agreed one after another.
    agreed: RefCell<Vec<Rc<Seats>>>,
}

const NAMES: [&str; 9] =
    ["drive a", "drive b", "drive c", "drive d", "drive e", "drive f", "drive g", "drive h", "drive i"];

async fn new_disk(world: &SimWorld, number: usize) -> SimDisk {
    let disk = SimDisk::new(world.core(), NAMES[number], 96 << 20);
    let drive = DriveId(number as u64 + 1);
    let new = NewDrive { cluster: ClusterId(1), drive, pool: "p".into(), log_length: None };
    format(&disk.open(), None, new).await.expect("a new drive");
    disk
}

impl Server {
    fn new(world: SimWorld, disk: SimDisk) -> Self {
        let (node, is_cut_off, lies, is_broken) = (None, false, false, false);
        Server { disk, world, node, is_cut_off, life: 0, lies, is_broken, heard: 1 }
    }
}

impl Rig {
    pub async fn new(world: SimWorld, layout: &str, seed: u64) -> Rc<Self> {
        let quorum: Quorum = layout.parse().expect("a quorum");
        let fragments = Fragments { data: quorum.data(), code: quorum.count() - quorum.data() };
        let column = Column::new(MapId(3), 1, 4, fragments);
        let disks = join_all((0..quorum.count().into()).map(|number| new_disk(&world, number))).await;
        let server = |disk| Server::new(world.clone(), disk);
        let seats = Seats { servers: (0..quorum.count().into()).collect(), joining: None };
        let rig = Rc::new(Rig {
            world: world.clone(),
            shape: Arc::new(Shape::new(quorum)),
            servers: RefCell::new(disks.into_iter().map(server).collect()),
            random: RefCell::new(Stream::new(seed)),
            delay: Cell::new(300),
            column,
            agreed: RefCell::new(vec![Rc::new(seats)]),
        });
        for number in 0..usize::from(quorum.count()) {
            rig.start(number).await;
        }
        rig
    }

    pub fn draw(&self, below: u64) -> u64 {
        self.random.borrow_mut().below(below)
    }

    /// Starts a server that is down.
    pub async fn start(self: &Rc<Self>, number: usize) {
        let (world, disk) = {
            let mut servers = self.servers.borrow_mut();
            let server = &mut servers[number];
            if server.is_broken {
                return;
            }
            server.world = SimWorld::boot(self.world.core(), NAMES[number]);
            server.life += 1;
            (server.world.clone(), server.disk.clone())
        };
        let drive = Drive::open(world.clone(), disk.open(), None, Options::default()).await.expect("the drive opens");
        let node = Node::new(world, drive, &self.column, self.shape.clone(), self.resolver(number));
        self.servers.borrow_mut()[number].node = Some(node);
    }

    /// A node asks the others as a gateway does.
    fn resolver(self: &Rc<Self>, number: usize) -> Resolve<SimWorld> {
        let rig = Rc::downgrade(self);
        Resolve::ByTest(Rc::new(move |blocks| {
            let Some(rig) = rig.upgrade() else { return Box::pin(std::future::ready(())) };
            let (_, client) = rig.gateway(100 + number as u64);
            Box::pin(async move {
                for block in blocks {
                    let _ = client.column().resolve(block).await; // another time
                }
            })
        }))
    }

    /// The process is killed, or its machine loses its power too.
    pub fn kill(&self, number: usize, with_power: bool) {
        let mut servers = self.servers.borrow_mut();
        let server = &mut servers[number];
        server.world.kill();
        server.node = None;
        match with_power {
            true => server.disk.cut_power(),
            false => server.disk.process_killed(),
        }
    }

    /// A gateway in a process of its own.
    pub fn gateway(self: &Rc<Self>, writer: u64) -> (SimWorld, Client) {
        let world = SimWorld::boot(self.world.core(), "gateway");
        let gateway = Arc::new(Gateway::new(self.shape.clone(), writer));
        let heard = Rc::new(Cell::new(self.agreed.borrow().len()));
        let nodes = Wires { rig: self.clone(), writer, at: heard.get(), heard };
        (world.clone(), Client { world, gateway, nodes })
    }

    /// A server with an empty drive.
    async fn add_server(self: &Rc<Self>) -> usize {
        let number = self.servers.borrow().len();
        let disk = new_disk(&self.world, number).await;
        let server = Server { heard: self.agreed.borrow().len(), ..Server::new(self.world.clone(), disk) };
        self.servers.borrow_mut().push(server);
        self.start(number).await;
        number
    }

    /// The column has other drives. Servers hear of it sooner or later, once they are reached.
    fn agree(self: &Rc<Self>, seats: Seats) {
        self.agreed.borrow_mut().push(Rc::new(seats));
        let agreed = self.agreed.borrow().len();
        for number in 0..self.servers.borrow().len() {
            let rig = self.clone();
            self.world.spawn_named("news", async move {
                rig.world.sleep(Duration::from_micros(rig.draw(30_000))).await;
                while !rig.servers.borrow()[number].is_broken && !rig.hears(number, agreed) {
                    rig.world.sleep(Duration::from_millis(3)).await;
                }
            });
        }
    }

    /// Whether a server hears of so many changes: one that is up, and reached.
    fn hears(&self, number: usize, agreed: usize) -> bool {
        let server = &mut self.servers.borrow_mut()[number];
        let is_up = !server.is_cut_off && server.node.is_some();
        if is_up {
            server.heard = server.heard.max(agreed);
        }
        is_up
    }

    /// A fragment moves to another drive, while everything goes on; from a drive that is broken by then, or from one that answers all
    /// the while, and afterwards.
    pub async fn move_a_fragment(self: &Rc<Self>) {
        let seats = Seats::clone(self.agreed.borrow().last().expect("the first"));
        // Where as many lie as may be faulty, no other fragment can be spared.
        let quorum = self.shape.quorum;
        let lying = seats.servers.iter().position(|number| self.servers.borrow()[*number].lies);
        let fragment = match lying.filter(|_| quorum.faults() == quorum.liars()) {
            Some(lying) => lying,
            None => self.draw(seats.servers.len() as u64) as usize,
        };
        let (from, to) = (seats.servers[fragment], self.add_server().await);
        if self.draw(2) == 0 {
            self.break_down(from);
        }
        let mut servers = seats.servers;
        servers[fragment] = to;
        self.agree(Seats { servers: servers.clone(), joining: Some(fragment) });
        let (_, filler) = self.gateway(200 + to as u64);
        while self.fill(&filler).await.is_err() {
            if self.draw(4) == 0 {
                self.kill(to, self.draw(2) == 0);
                self.start(to).await;
            }
            self.world.sleep(Duration::from_millis(5)).await;
        }
        self.agree(Seats { servers, joining: None });
    }

    async fn fill(&self, filler: &Client) -> Result<(), IoError> {
        let (column, room) = (filler.column(), filler.column().room());
        let mut at = 0;
        while at < room {
            for run in column.have_versions(&(at..room)).await? {
                let blocks = at..at + run.length;
                at = blocks.end;
                for first in (blocks.start..blocks.end).step_by(64).take_while(|_| run.holds) {
                    column.fill(first, (blocks.end - first).min(64) as u32).await?;
                }
            }
        }
        Ok(())
    }

    /// The drive's server is gone for good.
    fn break_down(&self, number: usize) {
        self.kill(number, true);
        self.servers.borrow_mut()[number].is_broken = true;
    }

    /// The nodes of the column's drives whose servers don't lie.
    pub fn honest_nodes(&self) -> Vec<Node<SimWorld>> {
        let (servers, agreed) = (self.servers.borrow(), self.agreed.borrow());
        let of_column = agreed.last().expect("the first").servers.iter().map(|number| &servers[*number]);
        of_column.filter(|server| !server.lies).filter_map(|server| server.node.clone()).collect()
    }

    /// `heard`: how many changes of the column's drives the asker had heard of when it began.
    async fn ask(self: Rc<Self>, number: usize, heard: usize, question: NodeOperation, payload: Payload) -> Told {
        let here = self.servers.borrow()[number].life;
        self.travel().await;
        let is_there = |server: &Server| {
            !server.is_cut_off && server.node.is_some() && server.life == here && server.heard == heard
        };
        let (node, world, lies) = {
            let servers = self.servers.borrow();
            let server = &servers[number];
            if !is_there(server) {
                return None;
            }
            (server.node.clone()?, server.world.clone(), server.lies)
        };
        // The server goes on whoever waits; when it's killed it doesn't.
        let (sender, answer) = futures_channel::oneshot::channel();
        let rig = self.clone();
        world.spawn_named("request", async move {
            let asked = question.clone();
            let of_server = rig.clone();
            let may_write = move || of_server.servers.borrow()[number].heard <= heard;
            let mut told = answered(&node, question, payload, may_write).await;
            if lies {
                told = rig.lied(number, &asked, told);
            }
            let _ = sender.send(told);
        });
        let told = match answer.await {
            Ok(told) => told?,
            Err(_) => return None,
        };
        self.travel().await;
        let servers = self.servers.borrow();
        let server = &servers[number];
        (!server.is_cut_off && server.node.is_some() && server.life == here).then_some(told)
    }

    async fn travel(&self) {
        let most = self.delay.get();
        // Few messages take much longer than the others.
        let slow = if self.draw(40) == 0 { 40 } else { 1 };
        let time = self.draw(most.max(1)) * slow;
        self.world.sleep(Duration::from_micros(time)).await;
    }

    /// What a liar says instead; `None` if it keeps silent.
    fn lied(
        &self,
        number: usize,
        question: &NodeOperation,
        told: Option<(NodeAnswer, Segments)>,
    ) -> Option<(NodeAnswer, Segments)> {
        let (answer, data) = told?;
        Some(match (answer, self.draw(4)) {
            (answer, 0) => (answer, data),
            (_, 1) if self.draw(3) == 0 => return None,
            (NodeAnswer::Time { .. }, _) => {
                let time = [0, 1, u64::MAX, u64::MAX / 2][self.draw(4) as usize];
                (NodeAnswer::Time { time }, data)
            }
            (NodeAnswer::Present { mut runs }, _) => {
                runs.iter_mut().for_each(|run| run.holds = !run.holds);
                (NodeAnswer::Present { runs }, data)
            }
            (NodeAnswer::Versions { mut versions }, 1) => {
                // Other data, of the same versions.
                let _ = &mut versions;
                let data =
                    data.iter().map(|piece| piece.iter().map(|byte| byte ^ 0x5a).collect::<Vec<u8>>().into()).collect();
                (NodeAnswer::Versions { versions }, data)
            }
            (NodeAnswer::Versions { mut versions }, kind) => {
                let (first, fragment) = match question {
                    NodeOperation::Read { first, .. } => (*first, vec![0xee; self.shape.fragment()]),
                    _ => (0, Vec::new()),
                };
                let count = usize::from(self.shape.quorum.count());
                for (at, one) in versions.iter_mut().enumerate() {
                    if let Found::Has { version, holds, is_complete, digests } = &mut one.found {
                        *is_complete = true;
                        match (kind, self.draw(3)) {
                            // A version that nobody has written, later or earlier.
                            (2, 0) => {
                                version.time = [u64::MAX, version.time + 1, 1][self.draw(3) as usize];
                                if *holds && !digests.is_empty() {
                                    let mut forged = vec![[7; 32]; count];
                                    forged[number] = digest(&fragment);
                                    version.cross = cross(first + at as u64, &forged);
                                    *digests = forged;
                                }
                            }
                            (2, 1) => *version = Version { time: version.time.saturating_sub(1), ..*version },
                            (2, _) => version.writer ^= 1,
                            _ => *holds = !*holds,
                        }
                    }
                }
                (NodeAnswer::Versions { versions }, data)
            }
            (NodeAnswer::Written | NodeAnswer::Completed, 1) => (NodeAnswer::Failed(NodeFailure::OutOfSpace), data),
            (answer, _) => (answer, data),
        })
    }
}

/// A node does what it's asked.
async fn answered(
    node: &Node<SimWorld>,
    question: NodeOperation,
    payload: Payload,
    may_write: impl Fn() -> bool + 'static,
) -> Option<(NodeAnswer, Segments)> {
    let (data, _) = payload.into_parts();
    let fragments = (!data.is_empty()).then(|| data.concat().into());
    Some(node.answer(question, fragments, Rc::new(may_write)).await)
}

/// A gateway, as its client uses it.
#[derive(Clone)]
pub struct Client {
    pub world: SimWorld,
    pub gateway: Arc<Gateway>,
    nodes: Wires,
}

impl Client {
    pub fn column(&self) -> super::super::gateway::Column<SimWorld, Wires> {
        self.gateway.column(&self.world, (0, &self.nodes.rig.column), self.nodes.clone())
    }
}

/// The way of a gateway to the nodes.
#[derive(Clone)]
pub struct Wires {
    rig: Rc<Rig>,
    writer: u64,
    /// How many changes of the column's drives the gateway has heard of, and had when these drives were looked up.
    heard: Rc<Cell<usize>>,
    at: usize,
}

impl Wires {
    fn seats(&self) -> Rc<Seats> {
        self.rig.agreed.borrow()[self.at - 1].clone()
    }
}

impl Nodes for Wires {
    fn drives(&self) -> Vec<DriveId> {
        self.seats().servers.iter().map(|number| DriveId(*number as u64 + 1)).collect()
    }

    fn joining(&self) -> Option<usize> {
        self.seats().joining
    }

    fn are_current(&self) -> bool {
        self.heard.get() == self.at
    }

    fn anew(&self) -> Self {
        Wires { at: self.heard.get(), ..self.clone() }
    }

    fn is_here(&self, drive: DriveId) -> bool {
        drive.0 == self.writer
    }

    fn ask(&self, drive: DriveId, question: NodeOperation, payload: Payload) -> LocalBoxFuture<'static, Told> {
        let (number, at) = (drive.0 as usize - 1, self.at);
        let (rig, heard) = (self.rig.clone(), self.heard.clone());
        async move {
            loop {
                // The gateway hears of changes from whom it asks, sooner or later.
                let agreed = rig.agreed.borrow().len();
                if heard.get() < agreed && rig.draw(20) == 0 {
                    heard.set(agreed);
                }
                match rig.clone().ask(number, at, question.clone(), payload.clone()).await {
                    Some(told) => return Some(told),
                    None if rig.draw(2) == 0 => return None,
                    // A link that tries again by itself, for as long as the server is away.
                    None => rig.world.sleep(Duration::from_millis(5)).await,
                }
            }
        }
        .boxed_local()
    }

    fn goes_on(&self) -> Result<(), IoError> {
        Ok(())
    }
}

/// A version of one block, for stories of one node.
pub fn versioned(first: u64, time: u64, fragments: Option<bytes::Bytes>, count: u32) -> Versioned {
    Versioned { first, count, version: Version { time, writer: 9, cross: [0; 32] }, fragments, digests: Vec::new() }
}
