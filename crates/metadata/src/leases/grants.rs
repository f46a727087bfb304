//! The leader's side of all leases, for one time of its leadership.

use super::{Term, Tick};
use std::collections::BTreeMap;
use std::time::Duration;
use tepal_model::ServerId;

/// Why something that leases forbid can't be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("server {server} may serve for another {left:?}; ask again then")]
pub struct StillHeld {
    pub server: ServerId,
    pub left: Duration,
}

/// Why a server gets no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoGrant {
    #[error("it is being declared down")]
    BeingDeclared,
    /// It's heard, and doesn't hear: so it serves nobody, and another one should.
    #[error("it has long held no lease, whatever was granted")]
    Deaf,
}

/// A request for a lease.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub arrived: Tick,
    /// The view that the server had adopted when it asked.
    pub adopted: u64,
    /// Whether it held a lease when it asked.
    pub holds: bool,
}

#[derive(Debug)]
pub struct Grants {
    /// What is granted from now on.
    term: Term,
    /// The longest that somebody may still hold.
    longest: Term,
    /// Since when nothing longer than `term` is granted.
    since: Tick,
    /// Leases of before may last until one wait after this.
    begun: Tick,
    servers: BTreeMap<ServerId, Granted>,
}

#[derive(Debug, Default)]
struct Granted {
    /// When the leases have surely ended that were granted in each view that the server may still be acting in.
    ends: BTreeMap<u64, Tick>,
    /// Since which view it was last found to be up, and when that was: it needs time to ask for its first lease.
    up: Option<(u64, Tick)>,
    /// When it last asked and held a lease.
    held: Tick,
    /// The view in which the server came into the state that it is being declared down from.
    declared: Option<u64>,
}

impl Granted {
    /// When the server was first found to be up since this view; now, if it wasn't yet.
    fn found_up(&mut self, since: u64, now: Tick) -> Tick {
        match self.up {
            Some((known, found)) if known == since => found,
            _ => self.up.insert((since, now)).1,
        }
    }
}

impl Grants {
    /// `now` is when this leadership began, or later.
    pub fn new(now: Tick, term: Term) -> Grants {
        Grants { term, longest: term, since: now, begun: now, servers: BTreeMap::new() }
    }

    /// From now on leases are of this term; before, some may have been of the longest one.
    pub fn set_term(&mut self, term: Term, longest: Term, now: Tick) {
        if self.term != term {
            self.since = now;
        }
        (self.term, self.longest) = (term, longest);
    }

    /// Whether all leases have surely ended that were longer than those of now.
    pub fn long_ones_have_ended(&self, now: Tick) -> bool {
        now >= self.since.max(self.begun).after(self.longest.wait())
    }

    /// This leader hasn't listened until `now`: the silence meanwhile says nothing of the others.
    pub fn deaf_until(&mut self, now: Tick) {
        self.begun = self.begun.max(now);
    }

    /// Grants or renews the lease of a server that is up since the view `up_since`: for how long, from when its request left. The grant
    /// carries `view`.
    pub fn grant(&mut self, server: ServerId, up_since: u64, asked: Asked, view: u64) -> Result<Duration, NoGrant> {
        let Asked { arrived, adopted, holds } = asked;
        let granted = self.servers.entry(server).or_default();
        match granted.declared {
            Some(declared) if declared >= up_since => return Err(NoGrant::BeingDeclared),
            _ => granted.declared = None,
        }
        let patient_until =
            granted.found_up(up_since, arrived).max(granted.held).max(self.begun).after(self.term.wait());
        if holds {
            granted.held = granted.held.max(arrived);
        } else if arrived >= patient_until {
            return Err(NoGrant::Deaf);
        }
        let end = arrived.after(self.term.wait());
        // What it held in earlier views it uses in the one that it has adopted since.
        let later = granted.ends.split_off(&adopted);
        let longest = granted.ends.values().copied().chain([end]).max().unwrap_or(end);
        granted.ends = later;
        for (view, end) in [(adopted.min(view), longest), (view, end)] {
            let known = granted.ends.entry(view).or_insert(end);
            *known = end.max(*known);
        }
        Ok(self.term.length)
    }

    /// When every lease of this server has surely ended.
    pub fn ends(&self, server: ServerId) -> Tick {
        let last = self.servers.get(&server).and_then(|granted| granted.ends.values().max().copied());
        last.unwrap_or_default().max(self.begun.after(self.longest.wait()))
    }

    /// Begins to declare a silent server down, which is up since the view `up_since`: from now on it gets no lease,
    /// until it's up since a later view.
    pub fn declare(&mut self, server: ServerId, up_since: u64, now: Tick) -> Result<(), StillHeld> {
        let granted = self.servers.entry(server).or_default();
        let up = granted.found_up(up_since, now);
        let end = self.ends(server).max(up.after(self.term.wait()));
        if now < end {
            return Err(StillHeld { server, left: now.until(end) });
        }
        self.servers.entry(server).or_default().declared = Some(up_since);
        Ok(())
    }

    /// Whether none of these servers can act in a view before `view` any more.
    pub fn adopted(&self, view: u64, servers: impl Iterator<Item = ServerId>, now: Tick) -> Result<(), StillHeld> {
        for server in servers {
            let end = match self.servers.get(&server) {
                Some(granted) if !granted.ends.is_empty() => granted.ends.range(..view).map(|(_, end)| *end).max(),
                _ => Some(self.begun.after(self.longest.wait())),
            };
            if let Some(end) = end
                && now < end
            {
                return Err(StillHeld { server, left: now.until(end) });
            }
        }
        Ok(())
    }
}
