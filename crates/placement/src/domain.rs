//! What the copies of a volume really don't share, as its drives are now.

use crate::rotation::Rotation;
use std::collections::BTreeSet;
use tepal_model::ServerId;
use tepal_model::layout::FailureDomain;

/// Where a drive is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// The server that has it.
    pub server: ServerId,
    /// The server's site, if it said one.
    pub site: Option<&'a str>,
}

impl Rotation {
    /// The widest domain that no two copies of any extent share; `drive` at least, since a drive has one position.
    /// `None` if there's only one copy. `places` are those of the drives, by position.
    pub fn domain(&self, places: &[Place<'_>]) -> Option<FailureDomain> {
        assert_eq!(places.len(), self.columns(), "each drive of the map has a place");
        if self.copies() == 1 {
            return None;
        }
        let sites: Option<Vec<&str>> = places.iter().map(|place| place.site).collect();
        let servers: Vec<ServerId> = places.iter().map(|place| place.server).collect();
        Some(match sites {
            Some(sites) if self.are_apart(&sites) => FailureDomain::Site,
            _ if self.are_apart(&servers) => FailureDomain::Server,
            _ => FailureDomain::Drive,
        })
    }

    /// Whether no column has two copies in one of these, given by position.
    fn are_apart<T: Ord>(&self, domains: &[T]) -> bool {
        let apart = |column| self.holders(column).map(|drive| &domains[drive]).collect::<BTreeSet<_>>().len();
        (0..self.columns()).all(|column| apart(column) == self.copies())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_domain_is_the_widest_that_no_two_copies_share() {
        use FailureDomain::{Drive, Server, Site};
        for (copies, places, domain) in [
            (1, "a1 a1", None),
            (2, "a1 a1 a2", Some(Drive)),
            (2, "a1 a2 a1 a2", Some(Server)),
            (2, "a1 b2 a3 b4", Some(Site)),
            (2, "a1 b2 a3", Some(Server)),
            (2, "a1 -2 b3", Some(Server)),
            (2, "a1 b1", Some(Site)),
            (3, "a1 b2 c3", Some(Site)),
            (3, "a1 b2 a3 b4", Some(Server)),
        ] {
            let place = |word: &'static str| Place {
                site: Some(&word[..1]).filter(|site| *site != "-"),
                server: ServerId(word[1..].parse().unwrap()),
            };
            let drives: Vec<Place<'_>> = places.split(' ').map(place).collect();
            assert_eq!(Rotation::new(drives.len(), copies).unwrap().domain(&drives), domain, "{copies} on {places}");
        }
    }
}
