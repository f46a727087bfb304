//! Which drives a new volume's map names, in which order, and what its copies must not share.
//!
//! Copies of an extent are on neighbours in the map, its end and beginning being neighbours too ([`crate::Rotation`]; Petal
//! 2.4, figure 5). So everything is done by the order. Invariants:
//! 1. Any `copies` neighbours are in different failure domains, of the kind that [`Chosen::domain`] says. Two sites alternate.
//! 2. Among such orders, it's one in which the drives of a server have neighbours on as many other servers as possible, in
//!    proportion to their drives, so that all survivors share the load of one that fails.
//! 3. The same candidates, given in any order, give the same answer.
//! 4. Drives of one server alone are in the order of their ids.
//!
//! Every drive gets an equal part of the volume, whatever its capacity, since a pool is of drives of one kind. A ring can't have
//! more than an `n`th of its drives in one domain if `n` neighbours are to be in different ones: what a domain has beyond
//! that is left out, the smallest drives of the fullest servers first.

use crate::dealing::{dealt, most_of_a_group};
use crate::spread::spread;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use tepal_model::layout::{FailureDomain, LayoutError, Protection};
use tepal_model::{DriveId, Layout, ServerId};

/// A drive that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// Its id, which no other candidate has.
    pub drive: DriveId,
    /// The server that has it.
    pub server: ServerId,
    /// The server's site, if it said one: the same for all its drives.
    pub site: Option<&'a str>,
    /// Bytes: of drives that can't all be used, the smallest are left out.
    pub capacity: u64,
}

/// The drives of a new map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// What no two copies of an extent share.
    pub domain: FailureDomain,
    /// By position.
    pub drives: Vec<DriveId>,
}

/// Why no drives can be chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChooseError {
    /// There are no candidates.
    #[error("there are no drives")]
    NoDrives,
    /// Whether two servers are at one site isn't known.
    #[error("domain=site needs the site of every server, and {0} has none")]
    NoSite(ServerId),
    /// The layout puts copies on neighbouring servers, and was asked not to care for servers.
    #[error("chained puts its two copies on neighbouring servers, so it can't have domain=drive")]
    ChainedDomain,
    /// Drives are named, and can't have what the layout says.
    #[error(transparent)]
    Explicit(LayoutError),
    /// There are fewer domains than copies.
    #[error(transparent)]
    TooFew(LayoutError),
}

/// Chooses and orders the drives for a layout. If it says no failure domain, it's the widest of which there are as many as
/// copies: sites, if every server said where it is, else servers, else drives.
pub fn choose(candidates: &[Candidate<'_>], layout: &Layout) -> Result<Chosen, ChooseError> {
    if candidates.is_empty() {
        return Err(ChooseError::NoDrives);
    }
    let domain = settled(candidates, layout)?;
    let copies = usize::from(layout.fragments().count());
    let found = count(candidates, domain);
    if found < copies {
        let (layout, fragments) = (layout.to_string(), layout.fragments());
        return Err(ChooseError::TooFew(LayoutError::TooFewDomains { layout, fragments, domain, found }));
    }
    let mut servers = servers_of(candidates);
    limit(&mut servers, domain, copies);
    Ok(Chosen { domain, drives: in_order(servers, domain, copies) })
}

/// What no two copies will share.
pub fn settled(candidates: &[Candidate<'_>], layout: &Layout) -> Result<FailureDomain, ChooseError> {
    let is_chained = layout.protection == Protection::Chained;
    let without_site = candidates.iter().filter(|drive| drive.site.is_none()).map(|drive| drive.server).min();
    let enough = |domain: FailureDomain| count(candidates, domain) >= usize::from(layout.fragments().count());
    match (layout.domain, without_site) {
        (Some(FailureDomain::Site), Some(server)) => Err(ChooseError::NoSite(server)),
        (Some(FailureDomain::Drive), _) if is_chained => Err(ChooseError::ChainedDomain),
        (Some(domain), _) => Ok(domain),
        (None, None) if enough(FailureDomain::Site) => Ok(FailureDomain::Site),
        (None, _) if is_chained || enough(FailureDomain::Server) => Ok(FailureDomain::Server),
        (None, _) => Ok(FailureDomain::Drive),
    }
}

/// How many domains of a kind there are.
fn count(candidates: &[Candidate<'_>], domain: FailureDomain) -> usize {
    fn distinct<T: Ord>(all: impl Iterator<Item = T>) -> usize {
        all.collect::<BTreeSet<_>>().len()
    }
    match domain {
        FailureDomain::Drive => candidates.len(),
        FailureDomain::Server => distinct(candidates.iter().map(|drive| drive.server)),
        FailureDomain::Site => distinct(candidates.iter().map(|drive| drive.site)),
    }
}

/// A server and what may be used of it.
struct Server {
    /// Its site's number. Servers that say no site are at one of their own.
    site: usize,
    /// The largest first.
    drives: Vec<DriveId>,
}

/// By id.
fn servers_of(candidates: &[Candidate<'_>]) -> Vec<Server> {
    let sites: BTreeSet<Option<&str>> = candidates.iter().map(|drive| drive.site).collect();
    let number = |site: Option<&str>| sites.iter().take_while(|known| **known < site).count();
    let mut sorted: Vec<&Candidate<'_>> = candidates.iter().collect();
    sorted.sort_unstable_by_key(|drive| (drive.server, Reverse(drive.capacity), drive.drive));
    let of_one = sorted.chunk_by(|one, next| one.server == next.server);
    let server = |drives: &[&Candidate<'_>]| Server {
        site: number(drives[0].site),
        drives: drives.iter().map(|drive| drive.drive).collect(),
    };
    of_one.map(server).collect()
}

/// Leaves out what a ring with `copies` neighbours in different domains has no place for.
fn limit(servers: &mut Vec<Server>, domain: FailureDomain, copies: usize) {
    match domain {
        FailureDomain::Drive => {}
        FailureDomain::Server => {
            let most = most_of_a_group(&servers.iter().map(|server| server.drives.len()).collect::<Vec<_>>(), copies);
            servers.iter_mut().for_each(|server| server.drives.truncate(most));
        }
        FailureDomain::Site => {
            let mut sizes = BTreeMap::new();
            servers.iter().for_each(|server| *sizes.entry(server.site).or_default() += server.drives.len());
            let most = most_of_a_group(&sizes.values().copied().collect::<Vec<_>>(), copies);
            for (site, size) in sizes {
                for _ in most..size {
                    let of_site = servers.iter_mut().filter(|server| server.site == site);
                    of_site.max_by_key(|server| server.drives.len()).expect("the site has drives").drives.pop();
                }
            }
            servers.retain(|server| !server.drives.is_empty());
        }
    }
}

/// First a ring of the servers that keeps the rules, then the most even one; then each server's drives by id.
fn in_order(mut servers: Vec<Server>, domain: FailureDomain, copies: usize) -> Vec<DriveId> {
    let mut of_site: BTreeMap<usize, Vec<Vec<usize>>> = BTreeMap::new();
    for (number, server) in servers.iter_mut().enumerate() {
        server.drives.sort_unstable();
        of_site.entry(server.site).or_default().push(vec![number; server.drives.len()]);
    }
    let ring = match domain {
        FailureDomain::Site => dealt(of_site.into_values().map(dealt).collect()),
        FailureDomain::Server | FailureDomain::Drive => dealt(in_turn(of_site.into_values().collect())),
    };
    let sites: Vec<usize> = servers.iter().map(|server| server.site).collect();
    let ring = spread(ring, &sites, domain, copies);
    let mut drives: Vec<_> = servers.into_iter().map(|server| server.drives.into_iter()).collect();
    ring.into_iter().map(|server| drives[server].next().expect("it's in the ring as often as it has drives")).collect()
}

/// The first of each list, then the second of each, and so on.
fn in_turn<T>(lists: Vec<Vec<T>>) -> Vec<T> {
    let mut lists: Vec<_> = lists.into_iter().map(Vec::into_iter).collect();
    let longest = lists.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
    (0..longest).flat_map(|_| lists.iter_mut().filter_map(Iterator::next).collect::<Vec<_>>()).collect()
}
