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
}

pub struct Rig {
    pub world: SimWorld,
    pub shape: Arc<Shape>,
    pub servers: RefCell<Vec<Server>>,
    random: RefCell<Stream>,
    /// Messages take so long at most, in microseconds.
    pub delay: Cell<u64>,
    column: Column,
}

const NAMES: [&str; 8] = ["drive a", "drive b", "drive c", "drive d", "drive e", "drive f", "drive g", "drive h"];

impl Rig {
    pub async fn new(world: SimWorld, layout: &str, seed: u64) -> Rc<Self> {
        let quorum: Quorum = layout.parse().expect("a quorum");
        let fragments = Fragments { data: quorum.data(), code: quorum.count() - quorum.data() };
        let column = Column::new(MapId(3), 1, 4, fragments);
        let disks = join_all((0..quorum.count()).map(|number| {
            let disk = SimDisk::new(world.core(), NAMES[usize::from(number)], 96 << 20);
            let drive = DriveId(u64::from(number) + 1);
            let new = NewDrive { cluster: ClusterId(1), drive, pool: "p".into(), log_length: None };
            async move {
                format(&disk.open(), None, new).await.expect("a new drive");
                disk
            }
        }))
        .await;
        let server = |disk| Server { disk, world: world.clone(), node: None, is_cut_off: false, life: 0, lies: false };
        let rig = Rc::new(Rig {
            world: world.clone(),
            shape: Arc::new(Shape::new(quorum)),
            servers: RefCell::new(disks.into_iter().map(server).collect()),
            random: RefCell::new(Stream::new(seed)),
            delay: Cell::new(300),
            column,
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
        let nodes = Wires { rig: self.clone(), writer };
        (world.clone(), Client { world, gateway, nodes })
    }

    async fn ask(self: Rc<Self>, number: usize, question: NodeOperation, payload: Payload) -> Told {
        let here = self.servers.borrow()[number].life;
        self.travel().await;
        let is_there = |server: &Server| !server.is_cut_off && server.node.is_some() && server.life == here;
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
            let mut told = answered(&node, question, payload).await;
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
        is_there(&servers[number]).then_some(told)
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
async fn answered(node: &Node<SimWorld>, question: NodeOperation, payload: Payload) -> Option<(NodeAnswer, Segments)> {
    let (data, _) = payload.into_parts();
    let fragments = (!data.is_empty()).then(|| data.concat().into());
    Some(node.answer(question, fragments, Rc::new(|| true)).await)
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
}

impl Nodes for Wires {
    fn drives(&self) -> Vec<DriveId> {
        (0..self.rig.servers.borrow().len()).map(|number| DriveId(number as u64 + 1)).collect()
    }

    fn is_here(&self, drive: DriveId) -> bool {
        drive.0 == self.writer
    }

    fn ask(&self, drive: DriveId, question: NodeOperation, payload: Payload) -> LocalBoxFuture<'static, Told> {
        let number = drive.0 as usize - 1;
        let rig = self.rig.clone();
        async move {
            loop {
                match rig.clone().ask(number, question.clone(), payload.clone()).await {
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
