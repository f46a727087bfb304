//! The gateway's side of a quorum layout: it runs the protocol, and the nodes only keep what they are told (Ursa Minor, section 3.2.3).
//!
//! 1. A *write* first asks for the time: the greatest that the answering nodes know, of which it takes a later one. Then it has all
//!    nodes keep the new version, and is done when N - T have it. The others get it in the background.
//! 2. A *read* asks all nodes which version is the latest, and M of them for their fragments too. The greatest version is the
//!    *candidate*. If N - T nodes have it, or if more than B nodes were told so, it's *complete*, and the answer. If at least so many
//!    have it that it may have been complete, it's *repairable*: it's written to those that lack it, and then it's the answer. Else it's
//!    *incomplete*: no earlier read can have returned it, and the one before it is looked at.
//! 3. Nodes are told which versions are complete, along with later requests: then they forget older ones.
//!
//! Invariants:
//! 1. No time is used twice by a gateway, and each is later than that of all writes that were complete when the write began.
//! 2. What a read returns is on N - T nodes, B of which may lie, before it's returned: later reads don't go back.
//! 3. A fragment counts if its digest is the one that the version names; a node that sends another one is named.
//! 4. A write that covers a part of a block has the block for itself among the writes of this gateway, from before it reads the rest.
//! 5. Answers are counted together only if the column had the same drives from the first question to the last answer. A node answers
//!    nobody who knows the column's drives of before: see [`joins`](super::joins).

mod answers;
mod ask;
mod fill;
mod hints;
mod present;
mod read;
mod time;
mod turns;
mod write;

use super::shape::Shape;
use futures_util::future::LocalBoxFuture;
use hints::Hints;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tepal_drive::world::World;
use tepal_model::{DriveId, IoError};
use tepal_wire::Payload;
use tepal_wire::message::{NodeAnswer, NodeOperation};
use time::Times;
use turns::Turns;

/// The nodes of a column, as a gateway reaches them. The column's drives are those of one moment, until [`anew`](Nodes::anew).
pub(crate) trait Nodes: Clone + 'static {
    /// The drives of the column, in the order of their fragments. Of a fragment that moves, the drive that is to get it.
    fn drives(&self) -> Vec<DriveId>;

    /// The fragment that moves to another drive: neither drive's word counts until the fragment is there.
    fn joining(&self) -> Option<usize>;

    /// Whether the column still has these drives, as far as is known here.
    fn are_current(&self) -> bool;

    /// The same with the drives that the column has now.
    fn anew(&self) -> Self;

    /// Whether a drive is of this very process: asking it is a call.
    fn is_here(&self, drive: DriveId) -> bool;

    /// Asks one node. It may take as long as the node's server is away.
    fn ask(&self, drive: DriveId, question: NodeOperation, payload: Payload) -> LocalBoxFuture<'static, Told>;

    /// Whether requests still make sense: the volume is there, and the client may use it.
    fn goes_on(&self) -> Result<(), IoError>;
}

/// An answer and its data; `None` if none came, and none will come.
pub(crate) type Told = Option<(NodeAnswer, tepal_model::Segments)>;

/// What a gateway knows of one map.
pub(crate) struct Gateway {
    pub shape: Arc<Shape>,
    /// Names this gateway in versions.
    writer: u64,
    columns: Mutex<BTreeMap<usize, Arc<ColumnState>>>,
}

/// What a gateway knows of one column.
#[derive(Default)]
struct ColumnState {
    times: Mutex<Times>,
    hints: Mutex<Hints>,
    turns: Turns,
    /// Bytes on their way to each node that nobody waits for any more.
    lingering: Mutex<BTreeMap<DriveId, u64>>,
    /// How often each node sent what can't be right.
    lies: Mutex<BTreeMap<DriveId, u64>>,
}

impl Gateway {
    /// No other gateway has the same number.
    pub fn new(shape: Arc<Shape>, writer: u64) -> Self {
        Gateway { shape, writer, columns: Mutex::default() }
    }

    /// The way to one column.
    pub fn column<W: World, N: Nodes>(
        &self,
        world: &W,
        (number, column): (usize, &crate::map::Column),
        nodes: N,
    ) -> Column<W, N> {
        let state = self.lock().entry(number).or_default().clone();
        let room = super::node::room_of(column);
        Column { world: world.clone(), nodes, shape: self.shape.clone(), writer: self.writer, room, state }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Arc<ColumnState>>> {
        self.columns.lock().expect("nothing panics while it holds the columns")
    }

    /// How often each drive's node has sent what can't be right.
    pub fn lies(&self) -> BTreeMap<DriveId, u64> {
        let mut all: BTreeMap<DriveId, u64> = BTreeMap::new();
        for column in self.lock().values() {
            for (drive, count) in column.lies.lock().expect("nothing panics while it holds the list").iter() {
                *all.entry(*drive).or_default() += count;
            }
        }
        all
    }
}

/// A column as one request uses it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Column<W: World, N: Nodes> {
    world: W,
    nodes: N,
    shape: Arc<Shape>,
    writer: u64,
    /// How many blocks a column has at most.
    room: u64,
    state: Arc<ColumnState>,
}

impl<W: World, N: Nodes> Column<W, N> {
    /// How many blocks the column has at most.
    pub fn room(&self) -> u64 {
        self.room
    }

    /// Whether the column still has the drives that it had when this was made.
    pub fn is_current(&self) -> bool {
        self.nodes.are_current()
    }

    /// The nodes whose answers count.
    fn voters(&self) -> impl Iterator<Item = (usize, DriveId)> + use<W, N> {
        let joining = self.nodes.joining();
        self.nodes.drives().into_iter().enumerate().filter(move |(node, _)| joining != Some(*node))
    }

    /// How many there are.
    fn count_voters(&self) -> usize {
        usize::from(self.shape.quorum.count()) - usize::from(self.nodes.joining().is_some())
    }

    /// Does what may be done again, while the column has the same drives from its beginning to its end.
    async fn with_same_drives<T>(&self, act: impl AsyncFn(&Self) -> Result<T, IoError>) -> Result<T, IoError> {
        loop {
            let column = Column { nodes: self.nodes.anew(), ..self.clone() };
            let outcome = act(&column).await;
            if column.is_current() {
                return outcome;
            }
        }
    }

    /// A node sent what can't be right.
    fn has_lied(&self, drive: DriveId) {
        let mut lies = self.state.lies.lock().expect("nothing panics while it holds the list");
        let count = lies.entry(drive).or_default();
        *count += 1;
        if count.is_power_of_two() {
            tracing::warn!(%drive, times = *count, "a drive of a quorum layout answers what can't be right");
        }
    }
}
