//! The holder's side of a lease.

use super::Tick;
use std::time::Duration;

/// What a server may do now, as far as the cluster agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// There is no other server that could take over: it may always serve.
    Alone,
    /// It may serve in views from `view` on, until then.
    Held {
        /// The view that came with it.
        view: u64,
        /// By this server's clock.
        until: Tick,
    },
    /// It may not serve: it has none yet, or never asked.
    None,
    /// It may not serve, and the cluster agreed that it is down since this view: others have taken over. It has to
    /// return first ([`crate::Metadata::return_to_service`]).
    Down {
        /// In which it was agreed.
        view: u64,
    },
}

impl Lease {
    /// The lease that a grant gives, for so long. `sent` is when the granted request left this server, by this server's clock.
    pub fn from_grant(sent: Tick, length: Duration, view: u64) -> Lease {
        Lease::Held { view, until: sent.after(length) }
    }

    /// Whether a request may be served now, in the view `view`. Ask again after every wait: time passes there.
    pub fn allows(&self, view: u64, now: Tick) -> bool {
        match *self {
            Lease::Alone => true,
            Lease::Held { view: since, until } => view >= since && now < until,
            Lease::None | Lease::Down { .. } => false,
        }
    }

    /// This lease or `grant`, whichever lasts longer: answers can arrive out of order.
    pub fn renewed(self, grant: Lease) -> Lease {
        match (self, grant) {
            (Lease::Held { until, .. }, Lease::Held { until: new, .. }) if new < until => self,
            _ => grant,
        }
    }
}
