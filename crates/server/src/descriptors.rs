//! How many files a process may have open, and who may have how many of them.
//!
//! ```text
//! 0 ............................. limit - kept ............................ limit
//!   NBD clients, and everybody else            | everybody else: drives, other servers, the API, the cluster's state
//! ```
//!
//! Invariant: however many NBD clients come, they have none of the last `kept` descriptors, and of those neither the API's callers
//! nor other servers and gateways can take more than their share. So a drive that returns can be opened, and commands are answered.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Kept back where there are enough; else a half is.
const KEPT: u64 = 512;
/// Most connections of the API, and of other servers and gateways: a quarter each of what is kept back.
const MOST: u64 = KEPT / 4;

/// Who may have how many descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// A client whose descriptor has this number or a higher one is turned away.
    pub clients: u64,
    /// Connections of the API.
    pub api: usize,
    /// Connections of other servers and of gateways.
    pub peers: usize,
}

impl Shares {
    /// As this process's limit is now.
    pub fn now() -> Self {
        Shares::of(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
    }

    fn of(limit: u64) -> Self {
        let kept = KEPT.min(limit / 2);
        let callers = (kept / 4).clamp(1, MOST) as usize;
        Shares { clients: limit - kept, api: callers, peers: callers }
    }
}

/// Raises the limit as far as this process may. The usual one of 1024 is for programs that can't count any further (`select`).
pub fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!(?current, ?maximum, %error, "the limit of open files can't be raised");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_and_callers_together_leave_a_quarter_of_a_small_limit_or_256() {
        for (limit, clients, callers, left) in
            [(64, 32, 8, 16), (200, 100, 25, 50), (1024, 512, 128, 256), (1 << 20, (1 << 20) - 512, 128, 256)]
        {
            let shares = Shares::of(limit);
            assert_eq!(shares, Shares { clients, api: callers, peers: callers }, "{limit}");
            assert_eq!(limit - shares.clients - 2 * callers as u64, left, "{limit}");
        }
    }
}
