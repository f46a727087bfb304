//! What this crate is given of the world: how long things take, the clock, and the way to other servers.

use crate::leases::{Term, Tick};
use crate::peers::{NoTransport, Transport};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Leases of clusters that haven't agreed on any, in milliseconds. No version may have less than an earlier one had: leases of that one
/// may still run.
pub const DEFAULT_LEASE_MS: u64 = 1_500;

/// How soon silence is noticed. The same on all servers of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How often a leader says that it's there.
    pub heartbeat: Duration,
    /// A voter asks to be elected when it has heard of no leader for one to two of these after that leader's own lease,
    /// two more.
    pub election: Duration,
    /// How long a server may serve without being heard, unless the cluster has agreed on another length ([`crate::Command::SetLease`]).
    pub lease: Term,
    /// A voter that is down for longer is replaced by another server.
    pub gone_after: Duration,
}

impl Default for Timing {
    /// A server that fell silent is down within 2 s, and one that led within 5 s.
    fn default() -> Self {
        Timing {
            heartbeat: Duration::from_millis(150),
            election: Duration::from_millis(500),
            lease: Term {
                length: Duration::from_millis(DEFAULT_LEASE_MS),
                drift_ppm: 10_000,
                margin: Duration::from_millis(100),
            },
            gone_after: Duration::from_secs(600),
        }
    }
}

/// What surrounds a server's metadata.
#[derive(Clone)]
pub struct Surroundings {
    /// The way to other servers.
    pub transport: Arc<dyn Transport>,
    /// How soon silence is noticed.
    pub timing: Timing,
    /// Monotonic, and going on while the machine sleeps: a lease ends in that time too.
    pub clock: Clock,
}

/// What time it is on this machine.
pub type Clock = Arc<dyn Fn() -> Tick + Send + Sync>;

impl Surroundings {
    /// Those of a server that has others, or may have some.
    pub fn new(transport: Arc<dyn Transport>, clock: Clock) -> Surroundings {
        Surroundings { transport, timing: Timing::default(), clock }
    }

    /// Of a server that never has others: it has no lease to keep, so any clock will do.
    pub fn alone() -> Surroundings {
        let begun = Instant::now();
        Surroundings::new(Arc::new(NoTransport), Arc::new(move || Tick(begun.elapsed())))
    }
}
