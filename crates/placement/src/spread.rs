//! The most even ring: places of two drives are exchanged as long as that makes it better.
//!
//! What is good, most important first:
//! 1. Any `copies` neighbours are in different failure domains. The ring that is given is so, and stays so.
//! 2. Where servers or sites are no failure domains, neighbours are on different ones all the same.
//! 3. A server that fails has neighbours on all others, in proportion to their drives: they take over its reads, and later
//!    bring it up to date. The sum over pairs of servers of the square of what they share is least then.
//! 4. Drives of a server are far from each other. Those between two that failed carry what both shared with them, the more the
//!    fewer they are.
//!
//! Deterministic: integers, in a fixed order. At most [`TRIES`] exchanges are looked at, so that the largest pools don't take long
//! either; in rings of more than about 100 drives only near ones, so that all places come in turn several times.

use tepal_model::layout::FailureDomain;

/// How many exchanges are tried.
const TRIES: usize = 60_000;
/// So often all places come in turn, if it still makes a difference.
const ROUNDS: usize = 8;
/// Drives of a server that are so far from each other are far enough.
const APART: usize = 12;
/// Of costs.
const UNIT: i64 = 1 << 24;
const SAME_SITE: i64 = UNIT << 6;
const SAME_SERVER: i64 = UNIT << 12;
/// No server.
const NOBODY: usize = usize::MAX;

/// A ring of servers, each as often as it has drives, made more even. `sites` has the site of each server.
pub fn spread(ring: Vec<usize>, sites: &[usize], domain: FailureDomain, copies: usize) -> Vec<usize> {
    let length = ring.len();
    if copies < 2 || sites.len() < 2 {
        return ring; // nothing is shared, or nobody is there to share it with
    }
    let mut ring = Ring::new(ring, sites, domain, copies);
    let near = (TRIES / ROUNDS / length).max(1);
    for _ in 0..ROUNDS {
        let before = ring.cost;
        for one in 0..length {
            for other in one + 1..length.min(one + 1 + near) {
                ring.exchange_if_better(one, other);
            }
        }
        if ring.cost == before {
            break;
        }
    }
    ring.places
}

struct Ring<'a> {
    /// Which server each drive is on, by position.
    places: Vec<usize>,
    sites: &'a [usize],
    domain: FailureDomain,
    copies: usize,
    /// How many drives each server has.
    drives: Vec<usize>,
    /// For each two servers, how many copies of columns of the one the other has.
    shared: Vec<i64>,
    cost: i64,
}

impl<'a> Ring<'a> {
    fn new(places: Vec<usize>, sites: &'a [usize], domain: FailureDomain, copies: usize) -> Self {
        let mut drives = vec![0; sites.len()];
        places.iter().for_each(|server| drives[*server] += 1);
        let shared = vec![0; sites.len() * sites.len()];
        let empty = vec![NOBODY; places.len()];
        let mut ring = Ring { places: empty, sites, domain, copies, drives, shared, cost: 0 };
        for (place, server) in places.into_iter().enumerate() {
            ring.fill(place, server);
        }
        ring
    }

    fn exchange_if_better(&mut self, one: usize, other: usize) {
        if self.places[one] == self.places[other] {
            return;
        }
        let before = self.cost;
        self.exchange(one, other);
        if self.cost >= before || !self.is_allowed(one) || !self.is_allowed(other) {
            self.exchange(one, other);
        }
    }

    fn exchange(&mut self, one: usize, other: usize) {
        let (first, second) = (self.clear(one), self.clear(other));
        self.fill(one, second);
        self.fill(other, first);
    }

    /// Whether the copies that are here and near have different failure domains.
    fn is_allowed(&self, place: usize) -> bool {
        let here = self.places[place];
        (1..self.copies).all(|distance| {
            self.at_distance(place, distance).into_iter().all(|there| match self.domain {
                FailureDomain::Drive => true,
                FailureDomain::Server => there != here,
                FailureDomain::Site => self.sites[there] != self.sites[here],
            })
        })
    }

    /// Who is so many places before and after.
    fn at_distance(&self, place: usize, distance: usize) -> [usize; 2] {
        let length = self.places.len();
        let (before, after) = (place.checked_sub(distance), place + distance);
        let before = before.unwrap_or_else(|| place + length - distance);
        [self.places[before], self.places[if after < length { after } else { after - length }]]
    }

    fn fill(&mut self, place: usize, server: usize) {
        self.count(place, server, 1);
        self.places[place] = server;
    }

    fn clear(&mut self, place: usize) -> usize {
        let server = std::mem::replace(&mut self.places[place], NOBODY);
        self.count(place, server, -1);
        server
    }

    /// Adds to the cost, or takes from it, what a server at an empty place has to do with all others.
    fn count(&mut self, place: usize, server: usize, sign: i64) {
        let reach = (self.places.len() / self.drives[server]).min(APART).max(self.copies).min(self.places.len());
        for distance in 1..reach {
            // Two drives at this distance have so many columns in common.
            let columns = self.copies.saturating_sub(distance) as i64;
            for other in self.at_distance(place, distance).into_iter().filter(|other| *other != NOBODY) {
                if other == server {
                    self.cost += sign * (self.closeness(server, distance) + columns * SAME_SERVER);
                } else if columns > 0 {
                    self.share(server, other, sign * columns);
                }
            }
        }
    }

    fn share(&mut self, one: usize, other: usize, columns: i64) {
        let shared = &mut self.shared[one.min(other) * self.sites.len() + one.max(other)];
        let squares = (*shared + columns).pow(2) - shared.pow(2);
        *shared += columns;
        self.cost += squares * (UNIT / (self.drives[one] * self.drives[other]) as i64);
        if self.sites[one] == self.sites[other] {
            self.cost += columns * SAME_SITE;
        }
    }

    /// One is next to each other, none as far as drives of the server are from each other on average: little beside the evenness
    /// of a server's neighbours, but where those are equally good.
    fn closeness(&self, server: usize, distance: usize) -> i64 {
        let (length, drives) = (self.places.len() as i64, self.drives[server] as i64);
        let missing = (length - distance as i64 * drives).max(0) * (1 << 10) / length;
        UNIT / drives * (missing.pow(4) >> 24) / (1 << 16)
    }
}
