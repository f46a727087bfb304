//! What goes over which connection.
//!
//! Volumes and drives don't wait in one line: what a primary is asked waits for what it asks of drives of the asker, and two servers
//! whose windows are full of requests for volumes would wait for each other for ever. What a drive is asked keeps its order, whichever
//! thread asks, so there's one lane for all drives of a server. What volumes are asked has none: each data thread has a lane of its own,
//! and is told the answers without another thread's help.

use tepal_engine::Question;
use tepal_model::{DriveId, MapId, VolumeId};
use tepal_wire::Payload;
use tepal_wire::handshake::{Grant, Hello, Role, Sender};
use tepal_wire::message::{DriveOperation, DriveRequest, Request, VolumeOperation, VolumeRequest};

/// One of the lines to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// What primaries ask of drives.
    Drives,
    /// What gateways ask of primaries, from the data thread of that number, or another that shares its lane.
    Volumes(u16),
}

impl Lane {
    /// A server of many cores has no more lanes for volumes to each other server.
    pub const MOST_FOR_VOLUMES: u16 = 8;

    /// Those of a process that has so many data threads.
    pub fn all(threads: usize) -> impl Iterator<Item = Lane> {
        let for_volumes = threads.min(usize::from(Lane::MOST_FOR_VOLUMES));
        std::iter::once(Lane::Drives).chain((0..for_volumes).map(Lane::for_volumes_of))
    }

    fn for_volumes_of(thread: usize) -> Lane {
        Lane::Volumes((thread % usize::from(Lane::MOST_FOR_VOLUMES)) as u16)
    }

    /// Where a data thread asks that. `None` is for no data link.
    pub fn of(request: &Request, thread: usize) -> Option<Lane> {
        match request {
            Request::Drive(_) => Some(Lane::Drives),
            Request::Volume(_) => Some(Lane::for_volumes_of(thread)),
            Request::Metadata | Request::Api => None,
        }
    }

    /// Whether that may come over it.
    pub fn carries(self, request: &Request) -> bool {
        match request {
            Request::Drive(_) => self == Lane::Drives,
            Request::Volume(_) => matches!(self, Lane::Volumes(_)),
            Request::Metadata | Request::Api => false,
        }
    }

    /// Whether such a caller may use it: clients ask for volumes alone, and who isn't in the cluster for nothing.
    pub fn is_open_to(self, sender: &Sender) -> bool {
        match sender {
            Sender::Server { .. } => true,
            Sender::Client { .. } => matches!(self, Lane::Volumes(_)),
            Sender::Newcomer => false,
        }
    }

    /// What a caller's hello is about. Lane 0 of a server has the metadata and the API.
    pub fn named(hello: &Hello) -> Option<Lane> {
        let mut all = Lane::all(usize::from(Lane::MOST_FOR_VOLUMES));
        let named = all.find(|lane| lane.role_and_number() == (hello.role, hello.lane));
        named.filter(|lane| lane.is_open_to(&hello.sender))
    }

    /// As in a hello.
    pub fn role_and_number(self) -> (Role, u16) {
        match self {
            Lane::Drives => (Role::Server, 1),
            Lane::Volumes(number) => (Role::Gateway, number),
        }
    }

    /// Bytes: what is under way in a tenth of a second at 5 Gbit/s. Requests: to be heard, thousands of columns may wait at a
    /// time for what is under way behind them.
    pub fn grant(self) -> Grant {
        match self {
            Lane::Drives => Grant { requests: 16 << 10, bytes: 64 << 20 },
            Lane::Volumes(_) => Grant { requests: 4 << 10, bytes: 64 << 20 },
        }
    }

    /// Whether nobody waits for a server that is up and can't be reached. Primaries go on without its drives; there is no
    /// volume but where its primary is.
    pub fn gives_up(self) -> bool {
        self == Lane::Drives
    }

    /// A question that does nothing.
    pub fn nothing(self) -> Question {
        let request = match self {
            Lane::Drives => Request::Drive(DriveRequest {
                drive: DriveId(u64::MAX),
                opening: u64::MAX,
                map: MapId(u32::MAX),
                column: 0,
                operation: DriveOperation::Present { first: 0, count: 1, look: 1 },
            }),
            Lane::Volumes(_) => Request::Volume(VolumeRequest {
                volume: VolumeId(u64::MAX),
                column: 0,
                operation: VolumeOperation::Status { offset: 0, length: 1, limit: 1 },
            }),
        };
        Question { view: 0, request, payload: Payload::none() }
    }
}
