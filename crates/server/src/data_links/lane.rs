//! What goes over which connection. Volumes and drives don't wait in one line: what a primary is asked waits for what it asks of
//! drives of the asker, and two servers whose windows are full of requests for volumes would wait for each other for ever.
//!
//! What volumes are asked has one line too, whichever thread asks: what a client left behind that is gone is carried out before what it
//! asks when it's back, maybe on another thread. Were there a line for each thread, an old write could land over newer ones.

use std::time::Duration;
use tepal_engine::Question;
use tepal_model::{DriveId, Lineage, MapId, VolumeId};
use tepal_wire::Payload;
use tepal_wire::handshake::{Grant, Hello, Role, Sender};
use tepal_wire::message::{DriveOperation, DriveRequest, Request, VolumeOperation, VolumeRequest};

/// One of the lines to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// What primaries ask of drives.
    Drives,
    /// What gateways ask of primaries.
    Volumes,
}

impl Lane {
    /// Each of them.
    pub const ALL: [Lane; 2] = [Lane::Drives, Lane::Volumes];

    /// `None` is for no data link.
    pub fn of(request: &Request) -> Option<Lane> {
        match request {
            Request::Drive(_) => Some(Lane::Drives),
            Request::Volume(_) => Some(Lane::Volumes),
            Request::Metadata | Request::Api => None,
        }
    }

    /// Whether such a caller may use it: clients ask for volumes alone, and who isn't in the cluster for nothing.
    pub fn is_open_to(self, sender: &Sender) -> bool {
        match sender {
            Sender::Server { .. } => true,
            Sender::Client { .. } => self == Lane::Volumes,
            Sender::Newcomer => false,
        }
    }

    /// What a caller's hello is about. Lane 0 of a server has the metadata and the API.
    pub fn named(hello: &Hello) -> Option<Lane> {
        let named = Lane::ALL.into_iter().find(|lane| lane.role_and_number() == (hello.role, hello.lane));
        named.filter(|lane| lane.is_open_to(&hello.sender))
    }

    /// As in a hello.
    pub fn role_and_number(self) -> (Role, u16) {
        match self {
            Lane::Drives => (Role::Server, 1),
            Lane::Volumes => (Role::Gateway, 0),
        }
    }

    /// Bytes: what is under way in a tenth of a second at 5 Gbit/s. Requests: to be heard, thousands of columns may wait at a
    /// time for what is under way behind them.
    pub fn grant(self) -> Grant {
        match self {
            Lane::Drives => Grant { requests: 16 << 10, bytes: 64 << 20 },
            Lane::Volumes => Grant { requests: 4 << 10, bytes: 64 << 20 },
        }
    }

    /// Whether nobody waits for a server that is up and can't be reached. Primaries go on without its drives; there is no
    /// volume but where its primary is.
    pub fn gives_up(self) -> bool {
        self == Lane::Drives
    }

    /// Whether a question goes with whoever asked: a client that is gone may be back by another gateway, and have written something
    /// newer there. What a primary has begun on drives goes on without those who asked for it.
    pub fn leaves_with_asker(self) -> bool {
        self == Lane::Volumes
    }

    /// After how long what this machine still has to deliver is dropped, and the connection with it: else it's delivered whenever the
    /// network is back, also when its asker has long gone.
    pub fn delivers_within(self) -> Option<Duration> {
        self.leaves_with_asker().then_some(Duration::from_millis(700))
    }

    /// A question that does nothing.
    pub fn nothing(self) -> Question {
        let request = match self {
            Lane::Drives => Request::Drive(DriveRequest {
                drive: DriveId(u64::MAX),
                opening: u64::MAX,
                map: MapId(u32::MAX),
                column: 0,
                operation: DriveOperation::Present { first: 0, count: 1, look: 1, lineage: Lineage::default() },
            }),
            Lane::Volumes => Request::Volume(VolumeRequest {
                volume: VolumeId(u64::MAX),
                map: MapId(u32::MAX),
                column: 0,
                operation: VolumeOperation::Status { offset: 0, length: 1, limit: 1, at: None },
            }),
        };
        Question { view: 0, revision: 0, request, payload: Payload::none() }
    }
}
