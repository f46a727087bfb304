//! The way of a volume's gateway to the nodes of a column: a call for drives of this server, a question for those of others.

use super::gateway::{Column, Gateway, Nodes, Told};
use super::node::{Node, Resolve};
use super::shape::Shape;
use crate::engine::{self, Engine};
use crate::places::{Places, Placing};
use crate::servers::peers::Question;
use crate::volume::{Map, Volume};
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use tepal_drive::world::World;
use tepal_model::buffer::join;
use tepal_model::layout::quorum::Quorum;
use tepal_model::{DriveId, IoError, MapId, Segments};
use tepal_wire::Payload;
use tepal_wire::message::{Answer, NodeAnswer, NodeFailure, NodeOperation, Request};
use tepal_wire::message::{VolumeAnswer, VolumeFailure, VolumeOperation, VolumeRequest};

/// A map whose columns nobody leads.
pub(crate) struct Led {
    gateway: Gateway,
    shape: Arc<Shape>,
    /// Drives of this server that have yet to be brought up to date, and in how many columns.
    behind: Mutex<BTreeMap<DriveId, u64>>,
    /// Drives of this server that join columns, and are being filled.
    filled: Mutex<Vec<(usize, Placing)>>,
}

impl Led {
    /// `writer` is the number of this server, or gateway, among all that run.
    pub fn by_gateways(quorum: Quorum, writer: u64) -> Self {
        let shape = Arc::new(Shape::new(quorum));
        let gateway = Gateway::new(shape.clone(), writer);
        Led { gateway, shape, behind: Mutex::default(), filled: Mutex::default() }
    }

    pub fn quorum(&self) -> Quorum {
        self.shape.quorum
    }

    fn lock_behind(&self) -> MutexGuard<'_, BTreeMap<DriveId, u64>> {
        self.behind.lock().expect("nothing panics while it holds the list")
    }

    /// So many columns of a drive may lack something.
    pub fn is_behind(&self, drive: DriveId, columns: u64) {
        let mut behind = self.lock_behind();
        match columns {
            0 => behind.remove(&drive),
            columns => behind.insert(drive, columns),
        };
    }

    /// Drives of this server that may lack something, and in how many columns.
    pub fn behind(&self) -> BTreeMap<DriveId, u64> {
        self.lock_behind().clone()
    }

    /// A drive is filled for a column from now on; `false` if it is already.
    pub fn begins_to_fill(&self, column: usize, joins: Placing) -> bool {
        let mut filled = self.lock_filled();
        let is_new = !filled.contains(&(column, joins));
        filled.extend(is_new.then_some((column, joins)));
        is_new
    }

    pub fn ends_to_fill(&self, column: usize, joins: Placing) {
        self.lock_filled().retain(|known| *known != (column, joins));
    }

    fn lock_filled(&self) -> MutexGuard<'_, Vec<(usize, Placing)>> {
        self.filled.lock().expect("nothing panics while it holds the list")
    }

    /// How often each drive has answered what can't be right.
    pub fn lies(&self) -> BTreeMap<DriveId, u64> {
        self.gateway.lies()
    }
}

/// The nodes of this server's drives, of all maps.
pub(crate) struct NodesHere<W: World>(Mutex<BTreeMap<(DriveId, MapId, usize), Node<W>>>);

impl<W: World> Default for NodesHere<W> {
    fn default() -> Self {
        NodesHere(Mutex::default())
    }
}

impl<W: World> NodesHere<W> {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(DriveId, MapId, usize), Node<W>>> {
        self.0.lock().expect("nothing panics while it holds the nodes")
    }

    /// The drive isn't here any more: nothing of it stays open.
    pub fn forget_drive(&self, drive: DriveId) {
        self.lock().retain(|(of, _, _), _| *of != drive);
    }

    /// Nobody uses these maps any more.
    pub fn forget(&self, map: MapId) {
        self.lock().retain(|(_, of, _), _| *of != map);
    }

    /// The drive has no part of the column any more. Returns when nothing of it changes any more.
    pub async fn forget_part(&self, drive: DriveId, map: MapId, column: usize) {
        let node = self.lock().remove(&(drive, map, column));
        if let Some(node) = node {
            node.retire().await;
        }
    }
}

impl<W: World> Engine<W> {
    /// The node of a column on a drive of this server; `None` if the drive isn't here, or has no part of the column.
    pub(crate) fn node(&self, drive: DriveId, map: &Map<W>, column: usize) -> Option<Node<W>> {
        let led = map.by_gateways()?;
        let (opened, _) = self.opened(drive)?;
        if !map.placed(column).concerns(drive) {
            return None;
        }
        let mut nodes = self.shared.nodes.lock();
        let node = nodes.entry((drive, map.id(), column));
        let new = || {
            let engine = Arc::downgrade(&self.shared);
            let resolve = Resolve::AsGateway(AsGateway { engine, map: map.id(), column });
            Node::new(self.world().clone(), opened.clone(), &map.column(column), led.shape.clone(), resolve)
        };
        let node = node.or_insert_with(new);
        if !node.is_of(&opened) {
            *node = new();
        }
        Some(node.clone())
    }

    /// Has a node do what it's asked, if this server may serve.
    pub(crate) async fn answer_by_node(
        &self,
        (drive, map, column): (DriveId, &Map<W>, usize),
        question: NodeOperation,
        payload: Payload,
        may_write: Rc<dyn Fn() -> bool>,
    ) -> (NodeAnswer, Segments) {
        let not_here = || (NodeAnswer::Failed(NodeFailure::NotHere), Segments::new());
        let Some(node) = self.node(drive, map, column) else { return not_here() };
        let authority = self.shared.authority.clone();
        let (data, _) = payload.into_parts();
        let fragments = (!data.is_empty()).then(|| join(&data));
        let may = move || authority.may_serve() && may_write();
        let told = node.answer(question, fragments, Rc::new(may)).await;
        match self.shared.authority.may_serve() {
            true => told,
            false => not_here(),
        }
    }
}

/// Nodes ask others in the name of a volume of their map.
pub(crate) struct AsGateway<W: World> {
    /// Weak: the engine owns its nodes.
    engine: Weak<engine::Shared<W>>,
    map: MapId,
    column: usize,
}

impl<W: World> AsGateway<W> {
    /// Reads blocks: what is complete is told to all nodes.
    pub async fn resolve(&self, blocks: Vec<u64>) {
        let Some(engine) = self.engine.upgrade().map(|shared| Engine { shared }) else { return };
        let Some(volume) = engine.volumes().into_iter().find(|volume| volume.has(self.map)) else { return };
        let Some(map) = engine.map(self.map) else { return };
        let Some(led) = map.by_gateways() else { return };
        let Some(way) = volume.by_gateway(&map, led, self.column) else { return };
        for block in blocks {
            if let Err(error) = way.resolve(block).await {
                tracing::debug!(block, %error, "a version of a quorum layout stays as it is");
            }
        }
    }
}

impl<W: World> Volume<W> {
    /// The way to a column that nobody leads.
    pub(crate) fn by_gateway(&self, map: &Map<W>, led: &Led, column: usize) -> Option<Column<W, Way<W>>> {
        let engine = self.engine()?;
        let way = Way { volume: self.clone(), map: map.clone(), column, places: map.places() };
        Some(led.gateway.column(engine.world(), (column, &map.column(column)), way))
    }
}

/// The nodes of one column, for one volume.
pub(crate) struct Way<W: World> {
    volume: Volume<W>,
    map: Map<W>,
    column: usize,
    /// Where the map's columns are, as it was known when the way was made.
    places: Arc<Places>,
}

impl<W: World> Clone for Way<W> {
    fn clone(&self) -> Self {
        let Way { volume, map, column, places } = self;
        Way { volume: volume.clone(), map: map.clone(), column: *column, places: places.clone() }
    }
}

impl<W: World> Nodes for Way<W> {
    fn drives(&self) -> Vec<DriveId> {
        let placed = &self.places.columns[self.column];
        let mut drives: Vec<DriveId> = placed.drives().collect();
        if let Some(joins) = placed.joins {
            drives[placed.in_place_of] = joins.drive;
        }
        drives
    }

    fn joining(&self) -> Option<usize> {
        let placed = &self.places.columns[self.column];
        placed.joins.map(|_| placed.in_place_of)
    }

    fn are_current(&self) -> bool {
        let now = self.map.places();
        Arc::ptr_eq(&now, &self.places) || now.columns.get(self.column) == self.places.columns.get(self.column)
    }

    fn anew(&self) -> Self {
        Way { places: self.map.places(), ..self.clone() }
    }

    fn is_here(&self, drive: DriveId) -> bool {
        self.volume.engine().is_some_and(|engine| engine.opened(drive).is_some())
    }

    fn ask(&self, drive: DriveId, operation: NodeOperation, payload: Payload) -> LocalBoxFuture<'static, Told> {
        let way = self.clone();
        async move {
            let engine = way.volume.engine()?;
            if engine.opened(drive).is_some() {
                let of_asker = way.clone();
                let may_write: Rc<dyn Fn() -> bool> = Rc::new(move || {
                    !of_asker.volume.is_cut_off() && of_asker.volume.is_current() && of_asker.are_current()
                });
                return Some(engine.answer_by_node((drive, &way.map, way.column), operation, payload, may_write).await);
            }
            let (_, now) = engine.followed_state()?;
            let server = now.drives.get(&drive)?.server;
            let since = way.places.columns[way.column].since();
            let operation = VolumeOperation::Node { drive, since, operation };
            let (volume, map) = (way.volume.id(), way.map.id());
            let request = Request::Volume(VolumeRequest { volume, map, column: way.column as u32, operation });
            let (view, revision) = (engine.followed(), way.volume.asked_as_of());
            let reply = engine.shared.peers.ask(server, Question { view, revision, request, payload }).await.ok()?;
            match reply.answer {
                Answer::Volume(VolumeAnswer::Node(answer)) => Some((answer, reply.payload.into_parts().0)),
                Answer::Volume(VolumeAnswer::Failed(VolumeFailure::Io(IoError::NotAllowed))) => {
                    refused(NodeFailure::NotAllowed)
                }
                Answer::Volume(VolumeAnswer::Failed(VolumeFailure::Io(IoError::Fenced))) => {
                    refused(NodeFailure::Fenced)
                }
                _ => None,
            }
        }
        .boxed_local()
    }

    fn goes_on(&self) -> Result<(), IoError> {
        match (self.volume.engine(), self.volume.is_cut_off() || self.map.is_cut_off()) {
            (None, _) => Err(IoError::Stopping),
            (Some(_), true) => Err(IoError::Fenced),
            (Some(_), false) if !self.volume.is_current() => Err(IoError::Fenced),
            (Some(_), false) => Ok(()),
        }
    }
}

fn refused(failure: NodeFailure) -> Told {
    Some((NodeAnswer::Failed(failure), Segments::new()))
}
