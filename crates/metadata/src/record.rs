//! What the cluster agrees on, one type for each SQL table of `cluster.db`. All values were chosen by a proposer or
//! counted by the state machine, so every server holds the same.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use tepal_model::text::shown;
use tepal_model::{
    CHUNK, ClusterId, DriveId, Epoch, Layout, Lineage, MapId, MigrationStage, Ranges, ServerId, VolumeId,
};
use tepal_placement::{Geometry, Scatter, Table};

/// The pool that every cluster begins with.
pub const DEFAULT_POOL: &str = "default";
/// Begins what stands for the name of a volume that is there, as `id:7`, or for that of one of its snapshots, as `id:3` with its epoch. It
/// means the same whatever that is called by now. No name has a colon.
pub const BY_ID: &str = "id:";
/// Why drives are missing whose server was declared down.
pub const SERVER_IS_DOWN: &str = "its server is down";

/// The cluster itself: one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterRecord {
    /// Drawn when it was made; never 0.
    pub id: ClusterId,
    /// For people.
    pub name: String,
    /// By the wall clock of the server that made it, in milliseconds since 1970; for people.
    pub created_unix_ms: u64,
    /// Counts the changes of membership, of the states of servers and drives, and of the epochs that volumes write in.
    pub view: u64,
    /// For how long a server may serve unheard, in milliseconds; if it was never set, as [`crate::Timing`] has it.
    pub lease_ms: Option<u64>,
    /// The longest that leases may still have of which somebody holds one.
    pub longest_lease_ms: Option<u64>,
}

/// One rebuild of the cluster from its drives: what had been agreed after the state from which that was done is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebuildRecord {
    /// Its random number, never 0: what is agreed from then on has this history.
    pub history: u64,
    /// The view of the state from which it was rebuilt.
    pub after_view: u64,
    /// How many events there had been in that state.
    pub after_events: u64,
    /// The view in which the drives that were found count as having left. The rebuilt cluster begins with the next one.
    pub before_view: u64,
    /// The first map that may have been made by then, and isn't known.
    pub first_map: MapId,
    /// No such map has this number or a higher one.
    pub end_map: MapId,
}

/// One server: a `tepal serve` process, on one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRecord {
    /// Counted from `s1`.
    pub id: ServerId,
    /// Where other servers and gateways reach it, as `host:port` or `unix:PATH`.
    pub address: String,
    /// Whether it serves.
    pub state: ServerState,
    /// The view in which it came into this state.
    pub state_view: u64,
    /// Counts the data folders that it has had, from 0: with an empty one it is another member for the consensus.
    pub incarnation: u32,
    /// The random number of its data folder; 0 for the first server.
    pub folder: u64,
    /// How often its data folder had been opened when it last told; 0 if it never did.
    pub boot: u64,
    /// What it shares with all servers that may be lost together with it: a room, a building. `None` if it doesn't say.
    pub site: Option<String>,
    /// Whether what its drives hold shall go to others, and nothing new come.
    pub draining: bool,
}

/// Whether a server serves, as the cluster agrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerState {
    /// It serves.
    Up,
    /// It doesn't, and others act in its place.
    Down,
}

/// One labelled drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveRecord {
    /// As on its label.
    pub id: DriveId,
    /// The server that it was last seen on.
    pub server: ServerId,
    /// The pool whose volumes it serves.
    pub pool: String,
    /// Where it was last seen on that server. A hint: drives are found by label.
    pub path: String,
    /// Bytes.
    pub capacity: u64,
    /// What it's good for.
    pub state: DriveState,
    /// Why it is in this state, for people.
    pub reason: String,
    /// The view in which it came into this state.
    pub state_view: u64,
    /// Writes of this view and later ones may be missing on it, and it doesn't know which; while it is up, it does. Of the
    /// copies of an extent that all went away, the one with the highest number has everything.
    pub missed_since: Option<u64>,
    /// The generation of its label in which it was last taken into use; 0 if that isn't on record. What has a lower one is an older
    /// image of it.
    pub generation: u64,
    /// What the operator wants with it.
    pub purpose: DriveUse,
    /// What it's called besides its id, if it is: unique.
    pub name: Option<String>,
}

/// What the operator wants with a drive, in whatever state it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DriveUse {
    /// To hold its share.
    Active,
    /// To hold nothing any more: what it has shall go to others.
    Draining,
    /// To hold nothing until another one has to be replaced.
    Spare,
    /// To be forgotten once others have what it held.
    Removed,
}

/// What a drive is good for. The legal changes are listed in [`DriveState::may_become`] and nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DriveState {
    /// In service; it has every acknowledged write, or its own log says in which regions it hasn't yet.
    Up,
    /// There, and taking new writes, but it missed some and hasn't noted yet which.
    Behind,
    /// Not there: unplugged, its server is down, or it doesn't answer.
    Missing,
    /// Taken out by the operator.
    Offline,
    /// Retired for good: errors, a failed flush, damage, or removed while maps still name it.
    Failed,
}

impl DriveState {
    /// Each of them.
    pub const ALL: [DriveState; 5] =
        [DriveState::Up, DriveState::Behind, DriveState::Missing, DriveState::Offline, DriveState::Failed];

    /// The states that may follow this one. A drive that left `Up` gets back only through `Behind`, since it may have
    /// missed writes; a failed one never does.
    pub const fn may_become(self) -> &'static [DriveState] {
        use DriveState::{Behind, Failed, Missing, Offline, Up};
        match self {
            Up => &[Behind, Missing, Offline, Failed],
            Behind => &[Up, Missing, Offline, Failed],
            Missing => &[Behind, Offline, Failed],
            Offline => &[Behind, Failed],
            Failed => &[],
        }
    }

    /// Whether new writes go to it.
    pub fn takes_writes(self) -> bool {
        matches!(self, DriveState::Up | DriveState::Behind)
    }
}

/// Drives of one kind, for volumes that share them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRecord {
    /// Unique.
    pub name: String,
    /// For volumes that are created without a layout; `stripe` if neither says.
    pub layout: Option<Layout>,
}

/// One virtual disk: an entry of the volume directory (Petal 2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRecord {
    /// Counted from 1.
    pub id: VolumeId,
    /// Unique among the active volumes; the name of a volume that is being deleted may be used again.
    pub name: String,
    /// Bytes: a multiple of 512, at most 2^63.
    pub size: u64,
    /// As the user asked for it; the map says what came of it.
    pub layout: Layout,
    /// The pool whose drives it uses.
    pub pool: String,
    /// Its global map. Clones of a volume have the same. Of several ranges, the map of one.
    pub map: MapId,
    /// Its ranges, if there are several. Clones have the same.
    pub ranges: Option<Ranges>,
    /// The newest of its lineage, in which it writes. Raised by each snapshot and each rollback.
    pub epoch: Epoch,
    /// The epochs that it sees. Which of them nobody else does follows from all readers: [`crate::State::history_of`] says it.
    pub lineage: Lineage,
    /// The view in which it began to write in its epoch; 0 if that isn't on record.
    pub epoch_since: u64,
    /// The epoch in which it went on when it was rolled back last; 0 if it never was, or that isn't on record.
    pub begun_in: Epoch,
    /// The revision that it had when it was made smaller last; 0 if it never was, or that isn't on record.
    pub cut_in: u64,
    /// Counts the changes of this record, from 1, on which requests depend. A snapshot changes nothing for them, and doesn't count; a
    /// rollback does.
    pub revision: u64,
    /// Whether it's in use or on its way out.
    pub state: VolumeState,
    /// By the proposer's wall clock, in milliseconds since 1970; for people.
    pub created_unix_ms: u64,
    /// Which snapshot it's a clone of, if it is one. That may be gone.
    pub origin: Option<SnapshotId>,
    /// The import that has begun to write to it. Without one it's whole.
    pub import: Option<ImportRecord>,
    /// The volume that it follows, if it's a replica: only replication writes to it then.
    pub replica: Option<ReplicaRecord>,
}

impl VolumeRecord {
    /// Which map has which of its bytes. While a range is on its way, the map that it was in when that began.
    pub fn table(&self) -> Ranges {
        self.ranges.clone().unwrap_or_else(|| Ranges::all_in(self.map))
    }

    /// Whether a range of it has this map.
    pub fn has(&self, map: MapId) -> bool {
        self.map == map || self.ranges.as_ref().is_some_and(|ranges| ranges.has(map))
    }

    /// The maps of its ranges, each once.
    pub fn maps(&self) -> Vec<MapId> {
        self.ranges.as_ref().map_or_else(|| vec![self.map], Ranges::maps)
    }
}

/// A volume of another cluster, or of this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaSource {
    /// The cluster's id.
    pub cluster: ClusterId,
    /// The volume's id there, below 2^63.
    pub volume: VolumeId,
}

/// What makes a volume a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaRecord {
    /// What it follows.
    pub source: ReplicaSource,
    /// How that is called, for people.
    pub called: String,
    /// When its source held what its newest whole snapshot holds, in milliseconds since 1970 by the source's clock, or later if nothing has
    /// changed since; 0 before the first snapshot is whole.
    pub as_of_unix_ms: u64,
    /// The epoch of the source's snapshot of which it has a part, if so.
    pub receives: Option<Epoch>,
    /// The epoch of its own newest whole snapshot, which its source has or had too.
    pub base: Option<Epoch>,
}

/// Of which snapshot of the source a snapshot is a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRecord {
    /// Of which volume.
    pub source: ReplicaSource,
    /// The snapshot's epoch there.
    pub epoch: Epoch,
    /// When it was made there, in milliseconds since 1970.
    pub unix_ms: u64,
}

/// What makes a volume a part of something, until that is all there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportRecord {
    /// A random number of whoever writes; 0 if nobody does who could go on, as the volume was cut off since.
    pub id: u64,
    /// From the beginning on, bytes of what is imported are in the volume, on stable media: at least so many.
    pub done: u64,
}

impl VolumeRecord {
    /// Stands for its name in requests and commands, as long as it's there: see [`BY_ID`].
    pub fn by_id(&self) -> String {
        format!("{BY_ID}{}", self.id.0)
    }

    /// Whether it wasn't rolled back since it wrote in that epoch: so what was read of it then goes together with what is read now. That
    /// it sees the epoch doesn't say so: where a gap was closed, it sees what it had left out.
    pub fn goes_on_from(&self, epoch: Epoch) -> bool {
        epoch >= self.begun_in && self.lineage.sees(epoch)
    }

    /// Whether it wasn't made smaller since it had that revision: as large as it was then again, it has zeros where something was.
    pub fn is_whole_since(&self, revision: u64) -> bool {
        revision >= self.cut_in
    }
}

/// A volume at the moment from which on nothing was left past its end. Another one of the same name, another size, also one that it
/// doesn't have any more, and what a rollback has brought back make it another; and so does a window on its way to another layout: what
/// one server takes for gone already, and another for still to come, neither of them has cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cleared {
    /// The volume's id.
    pub volume: VolumeId,
    /// Of its record.
    pub revision: u64,
    /// In which it wrote.
    pub epoch: Epoch,
    /// The view in which its way to another map was last changed; 0 if it goes nowhere.
    #[serde(default)]
    pub window: u64,
}

/// Names a snapshot for good, whatever it's called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotId {
    /// The volume that it's of.
    pub volume: VolumeId,
    /// The newest that it sees.
    pub epoch: Epoch,
}

/// Whether a volume is in use or on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeState {
    /// It may be served.
    Active,
    /// Removed by the user: serves nobody; its space is being freed.
    Deleting,
}

/// What a volume held at some moment, under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRecord {
    /// The volume that it's of.
    pub volume: VolumeId,
    /// Unique among the volume's snapshots. Never has an `@`, so that `VOLUME@NAME` has one meaning.
    pub name: String,
    /// The newest of its lineage, which tells it from all other readers of the volume's map.
    pub epoch: Epoch,
    /// The epochs that it sees.
    pub lineage: Lineage,
    /// The volume's when it was made, in bytes.
    pub size: u64,
    /// By the proposer's wall clock, in milliseconds since 1970; for people.
    pub created_unix_ms: u64,
    /// What it's a copy of, if replication has made it.
    pub copy_of: Option<CopyRecord>,
}

impl SnapshotRecord {
    /// Stands for its name in commands, as long as it's there: see [`BY_ID`].
    pub fn by_id(&self) -> String {
        format!("{BY_ID}{}", self.epoch)
    }
}

/// A global map: its columns stay, but their copies move between drives, and it has a newest epoch. Never used again after
/// its volumes are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapRecord {
    /// Counted from 1; on every drive that holds something of it.
    pub id: MapId,
    /// For which it was made. That may be gone, and clones of it still have the map.
    pub volume: VolumeId,
    /// The volume's layout with its failure domain settled: `domain` is always `Some` here.
    pub layout: Layout,
    /// How many columns a set has: see [`Geometry`].
    pub width: u32,
    /// By how many rows a set is filled before the next one takes its turn.
    pub chunk: u32,
    /// A multiple of the width. Each drive that is named has a drive record.
    pub columns: Vec<ColumnRecord>,
    /// The view in which it was made; 0 if that isn't on record.
    pub made_in: u64,
    /// The last that was handed out to a volume or snapshot, whether that is still there or not. None is handed out twice.
    pub newest_epoch: Epoch,
}

impl MapRecord {
    /// The unit of placement, in bytes.
    pub fn extent(&self) -> u32 {
        self.layout.extent
    }

    /// How extents go round the columns.
    pub fn geometry(&self) -> Geometry {
        let geometry = Geometry::of_map(&self.layout, self.columns.len(), self.width, self.chunk);
        geometry.expect("a map is made, and read, with columns that go together with its layout")
    }

    /// The drives that hold something: those that come first in a column in order of the columns, then the others. Where each
    /// drive has one column, and copies are on neighbours, it's the order of the drives.
    pub fn drives(&self) -> Vec<DriveId> {
        let mut seen = BTreeSet::new();
        let copies = self.columns.iter().map(|column| column.holders.len()).max().unwrap_or(0);
        let of_copy = |copy: usize| self.columns.iter().filter_map(move |column| column.holders.get(copy));
        (0..copies).flat_map(of_copy).map(|holder| holder.drive).filter(|drive| seen.insert(*drive)).collect()
    }

    /// Whether a drive has, or gets, a copy of any column.
    pub fn uses(&self, drive: DriveId) -> bool {
        self.columns.iter().any(|column| column.uses(drive))
    }

    /// What it will be when the moves that are under way are done.
    pub fn table(&self) -> Table {
        let to = |column: &ColumnRecord, drive: DriveId| match &column.joining {
            Some(join) if join.from == drive => join.to,
            _ => drive,
        };
        let holders = |column: &ColumnRecord| column.holders.iter().map(|holder| to(column, holder.drive)).collect();
        let domain = self.layout.domain.expect("a map's is settled");
        Table { geometry: self.geometry(), domain, columns: self.columns.iter().map(holders).collect() }
    }
}

/// Who holds one column of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnRecord {
    /// Different drives, as many as the layout has copies. The first that is up leads.
    pub holders: SmallVec<[HolderRecord; 2]>,
    /// Who takes the place of one of them.
    pub joining: Option<JoinRecord>,
}

impl ColumnRecord {
    /// The drives that have a copy or get one, first the holders.
    pub fn users(&self) -> impl Iterator<Item = DriveId> {
        self.holders.iter().map(|holder| holder.drive).chain(self.joining.iter().map(|join| join.to))
    }

    /// Whether a drive has a copy or gets one.
    pub fn uses(&self, drive: DriveId) -> bool {
        self.users().any(|user| user == drive)
    }

    /// Whether a drive's copy counts.
    pub fn is_held_by(&self, drive: DriveId) -> bool {
        self.holders.iter().any(|holder| holder.drive == drive)
    }
}

/// A drive that has a copy of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HolderRecord {
    /// The drive.
    pub drive: DriveId,
    /// The view since which it counts: it has all that was written before. 0 if that isn't on record.
    pub since: u64,
    /// Whether it has all that was acknowledged or read since.
    pub status: CopyStatus,
}

impl HolderRecord {
    /// A drive that has everything.
    pub fn complete(drive: DriveId, since: u64) -> Self {
        HolderRecord { drive, since, status: CopyStatus::Complete }
    }
}

/// Whether a copy has all that was acknowledged or read: the in-sync set of a column. Nothing is acknowledged, and no difference between
/// copies settled, without a complete copy before it's agreed that the copy is passed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyStatus {
    /// It has, also while its drive is away.
    #[default]
    Complete,
    /// The others went on without it in that view. It's complete again when its drive is up.
    PassedOver(u64),
    /// An operator let the newest of the others be served as they are, in that view: it won't return.
    GivenUp(u64),
}

impl CopyStatus {
    /// Whether it has everything.
    pub fn is_complete(self) -> bool {
        self == CopyStatus::Complete
    }
}

const PASSED_OVER: &str = "passed over in ";
const GIVEN_UP: &str = "given up in ";

impl fmt::Display for CopyStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CopyStatus::Complete => f.write_str("complete"),
            CopyStatus::PassedOver(view) => write!(f, "{PASSED_OVER}{view}"),
            CopyStatus::GivenUp(view) => write!(f, "{GIVEN_UP}{view}"),
        }
    }
}

impl FromStr for CopyStatus {
    type Err = StateNameError;

    fn from_str(text: &str) -> Result<Self, StateNameError> {
        let view = |prefix| text.strip_prefix(prefix).and_then(|view| view.parse().ok());
        let passed_over = view(PASSED_OVER).map(CopyStatus::PassedOver);
        let found = passed_over.or_else(|| view(GIVEN_UP).map(CopyStatus::GivenUp));
        let found = found.or((text == "complete").then_some(CopyStatus::Complete));
        found.ok_or_else(|| StateNameError { what: "copy", text: shown(text) })
    }
}

/// A drive that gets a copy of a column: new writes go to it, and it's brought up to date, but it doesn't count yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinRecord {
    /// That drive.
    pub to: DriveId,
    /// The holder whose place it takes when it has everything.
    pub from: DriveId,
    /// The view since which it gets new writes.
    pub since: u64,
}

/// What goes from one map to another, chunk by chunk: all volumes of the source, or one of them that leaves the others.
///
/// The chunks have an order of their own ([`Scatter`]). Of the first ones in it, up to `done`, the target has everything; up to
/// `fence` the target takes it over; the source has the others. What the volumes were grown by since it began, the target
/// has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationRecord {
    /// That of the map which was made for it.
    pub id: MapId,
    /// From which it goes. The volumes have this one until the end; of a range, the one that it was in when it began.
    pub source: MapId,
    /// To which it goes.
    pub target: MapId,
    /// What the volumes have when they are there, as it was asked for.
    pub layout: Layout,
    /// The only volume that goes, with its snapshots; all of the source's, if none is named.
    pub leaves: Option<VolumeId>,
    /// The chunk in which the range begins that goes; 0 if volumes go from their beginning on.
    pub first: u64,
    /// Whether the range ends with its chunks. If not, what volumes grow by is of it.
    pub ends: bool,
    /// Of the order of chunks.
    pub seed: u64,
    /// How many chunks there are.
    pub chunks: u64,
    /// So many have gone.
    pub done: u64,
    /// So many have gone or are about to: more than `done`.
    pub fence: u64,
    /// Whether it goes on.
    pub stage: MigrationStage,
    /// Whether the chunks go back to where they came from. Their order is the other way round then.
    pub cancelled: bool,
    /// Bytes a second at most, copies not counted, of the whole cluster.
    pub rate: Option<u64>,
    /// The view in which its window, its stage or its direction changed last: it had no other one in that view, so servers that
    /// name it mean the same.
    pub since: u64,
    /// By the proposer's wall clock, in milliseconds since 1970; for people.
    pub begun_unix_ms: u64,
}

/// A window has at most so many of them, 16 GiB where chunks are as short as may be, however long the volume is. What part of a volume is
/// on its way matters to clients up to some hundred GiB (Petal 2.3 has one to ten percent); past that, how much memory and how long an
/// answer a window takes.
pub const LONGEST_WINDOW: u64 = (16 << 30) / CHUNK;

impl MigrationRecord {
    /// Whether the volume goes with it.
    pub fn takes(&self, volume: &VolumeRecord) -> bool {
        let has_it = volume.has(self.source) || volume.has(self.target);
        has_it && self.leaves.is_none_or(|id| id == volume.id)
    }

    /// Whether only a range goes.
    pub fn is_of_a_part(&self) -> bool {
        self.first > 0 || self.ends
    }

    /// The bytes that go, in chunks of so many. Without an end, up to `u64::MAX`.
    pub fn bytes(&self, chunk: u64) -> std::ops::Range<u64> {
        self.first * chunk..if self.ends { (self.first + self.chunks) * chunk } else { u64::MAX }
    }

    /// Whether it's about this map.
    pub fn is_about(&self, map: MapId) -> bool {
        self.source == map || self.target == map
    }

    /// The order of the chunks, as it was when it began.
    pub fn order(&self) -> Scatter {
        Scatter::new(self.chunks, self.seed)
    }

    /// Whether its numbers are ones that it can have.
    pub(crate) fn is_sound(&self) -> bool {
        self.done < self.fence && self.fence <= self.chunks && self.source != self.target
    }
}

/// Something that happened, for people. Only the latest [`EVENTS_KEPT`] are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRecord {
    /// Counted from 1, in the order in which things were agreed.
    pub seq: u64,
    /// By the proposer's wall clock, in milliseconds since 1970.
    pub unix_ms: u64,
    /// A word such as `drive`, `volume`, `cluster`.
    pub kind: String,
    /// The thing's id or name.
    pub subject: String,
    /// One sentence.
    pub text: String,
    /// Who asked for it: the name of an identity, or how it came; none if it came by itself.
    pub who: Option<String>,
}

/// How many events are kept; older ones go.
pub const EVENTS_KEPT: u64 = 10_000;

/// A text isn't a state's name. Of a long text the beginning is shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a state of a {what}")]
pub struct StateNameError {
    what: &'static str,
    text: String,
}

/// States print as the words that users and SQL see, and read back from them.
macro_rules! state_names {
    ($name:ident, $what:literal, $($variant:ident = $word:literal),+) => {
        impl $name {
            /// As users and SQL see it.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = StateNameError;
            fn from_str(text: &str) -> Result<Self, StateNameError> {
                match text {
                    $($word => Ok($name::$variant),)+
                    _ => Err(StateNameError { what: $what, text: shown(text) }),
                }
            }
        }
    };
}

state_names!(ServerState, "server", Up = "up", Down = "down");
state_names!(
    DriveState,
    "drive",
    Up = "up",
    Behind = "behind",
    Missing = "missing",
    Offline = "offline",
    Failed = "failed"
);
state_names!(DriveUse, "drive", Active = "active", Draining = "draining", Spare = "spare", Removed = "removed");
state_names!(VolumeState, "volume", Active = "active", Deleting = "deleting");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_that_left_up_comes_back_only_through_behind() {
        for state in DriveState::ALL {
            assert_eq!(state.may_become().contains(&DriveState::Up), state == DriveState::Behind, "{state}");
            assert!(!state.may_become().contains(&state), "{state} is no change of itself");
        }
        assert!(DriveState::Failed.may_become().is_empty());
    }

    #[test]
    fn states_read_back_as_they_print() {
        for state in DriveState::ALL {
            assert_eq!(state.to_string().parse(), Ok(state));
        }
        assert!("UP".parse::<DriveState>().is_err());
    }
}
