//! What clients may take of this server, before and after they have negotiated.

use crate::disk::VirtualDisk;
use std::time::Duration;
use tepal_model::MAX_REQUEST;

/// Clients count bytes in signed numbers, and QEMU wants to round them up to 1 GiB.
const LARGEST_EXPORT: u64 = (1 << 63) - (1 << 30);

/// What clients see of a disk's size: all of it, unless they couldn't count that far.
pub fn exported_size(disk: &impl VirtualDisk) -> u64 {
    disk.size().min(LARGEST_EXPORT)
}

/// Bounds on clients. The defaults suit a server of a few GiB of memory.
///
/// Memory that clients can make the server hold is at most `connections * (connection_base_bytes + 256 KiB)` for what every
/// connection may use without asking, and `shared_bytes` for all of them together beyond that.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at a time; more are closed at once.
    pub connections: usize,
    /// A connection whose descriptor has this number or a higher one is closed at once. The system gives the lowest free number, so
    /// those from here on stay free for whatever else the process needs, however many clients come.
    pub descriptors: u64,
    /// Of the connections, how many may be negotiating. One more, and the one that has been at it longest is closed: honest clients
    /// take milliseconds.
    pub negotiating: usize,
    /// From accepting a connection to the end of its negotiation.
    pub handshake: Duration,
    /// Options that one client may send.
    pub options: usize,
    /// Longest data of an option that is looked at; longer ones are skipped and refused.
    pub option_bytes: usize,
    /// Requests of one connection that are under way at a time.
    pub requests: usize,
    /// Payload that one connection may have under way: being received, at the disk, or waiting to be sent.
    pub connection_bytes: u64,
    /// The part of it that every connection has without asking.
    pub connection_base_bytes: u64,
    /// The rest, for all connections together.
    pub shared_bytes: u64,
    /// How long a client that keeps memory others wait for may move no byte, and how long a closing connection may take to
    /// finish what is under way. Both end between one and two of these.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 1024,
            descriptors: u64::MAX,
            negotiating: 128,
            handshake: Duration::from_secs(30),
            options: 1024,
            option_bytes: 64 << 10,
            requests: 1024,
            connection_bytes: 64 << 20,
            connection_base_bytes: 1 << 20,
            shared_bytes: 512 << 20,
            patience: Duration::from_secs(30),
        }
    }
}

impl Limits {
    /// The same, raised where nobody could be served otherwise: a request of the largest size must be able to start.
    pub fn workable(mut self) -> Self {
        self.connections = self.connections.max(1);
        self.negotiating = self.negotiating.max(1);
        self.options = self.options.max(1);
        self.requests = self.requests.max(1);
        self.connection_bytes = self.connection_bytes.max(MAX_REQUEST);
        self.shared_bytes = self.shared_bytes.max(MAX_REQUEST);
        self.patience = self.patience.max(Duration::from_millis(1));
        self
    }
}
