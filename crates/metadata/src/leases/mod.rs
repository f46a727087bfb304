//! Leases: who may serve, decided without a wall clock (Petal 2.1; Gray and Cheriton 1989).
//!
//! Every server renews a lease with the leader of the metadata, and serves only while it holds one. Invariants:
//! 1. The holder stops before the leader lets go: it counts from when its request *left*, the leader from when the
//!    request *arrived*, and the leader waits longer by what two clocks may drift apart, and a margin.
//! 2. A leader grants only what a majority has confirmed after the request arrived: that it still led. So whoever leads
//!    after it was elected later than the request arrived.
//! 3. A new leader knows nothing of the grants before it, and lets nobody go before one full wait since it led.
//! 4. Whom the leader has begun to declare down gets no lease until it has returned in a later view.
//! 5. A lease is used only in the view that came with it, or a later one.
//! 6. A renewal names the view that its server acts by, not the newest that it knows: what it held in earlier ones, it uses.
//! 7. How long a lease lasts is what the grant says. It may be changed: a new leader, who doesn't know what was granted before it, waits
//!    for the longest that somebody may still hold.
//!
//! [`held`] and [`grants`] are the rules, over given instants; [`keeper`] and [`watchman`] are the tasks that run them.

pub mod grants;
pub mod held;
pub mod keeper;
#[cfg(test)]
mod tests;
pub mod watchman;

use std::time::Duration;

/// A point on one machine's monotonic clock; points of two machines are never compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(pub Duration);

impl Tick {
    /// So much later.
    pub fn after(self, span: Duration) -> Tick {
        Tick(self.0.saturating_add(span))
    }

    /// How long until `later`; none if it has passed.
    pub fn until(self, later: Tick) -> Duration {
        later.0.saturating_sub(self.0)
    }
}

/// How long a lease lasts, and how much longer the leader waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    /// By the holder's clock, from when its request left.
    pub length: Duration,
    /// By how much one clock may run faster than another: millionths.
    pub drift_ppm: u32,
    /// What the leader waits besides.
    pub margin: Duration,
}

impl Term {
    /// How long after a request arrived the lease that it got has surely ended.
    pub fn wait(&self) -> Duration {
        let nanos = self.length.as_nanos() * u128::from(self.drift_ppm) / 1_000_000;
        let drift = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.length.saturating_add(drift).saturating_add(self.margin)
    }
}
