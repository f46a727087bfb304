//! What the copies of a volume really don't share, as its drives are now.

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

/// The widest domain that no two copies of any column share; `drive` at least, since the copies of a column are on different
/// ones. `None` if there's only one copy. `columns` have the places of their copies.
pub fn domain(columns: &[Vec<Place<'_>>]) -> Option<FailureDomain> {
    if columns.iter().all(|places| places.len() < 2) {
        return None;
    }
    let by_site = columns.iter().all(|places| {
        let sites: BTreeSet<&str> = places.iter().filter_map(|place| place.site).collect();
        sites.len() == places.len()
    });
    let by_server = columns.iter().all(|places| {
        let servers: BTreeSet<ServerId> = places.iter().map(|place| place.server).collect();
        servers.len() == places.len()
    });
    Some(match (by_site, by_server) {
        (true, _) => FailureDomain::Site,
        (false, true) => FailureDomain::Server,
        (false, false) => FailureDomain::Drive,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rotation;

    #[test]
    fn the_domain_is_the_widest_that_no_two_copies_share() {
        use FailureDomain::{Drive, Server, Site};
        for (copies, places, expected) in [
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
            let rotation = Rotation::new(drives.len(), copies).unwrap();
            let column = |column| rotation.holders(column).map(|drive| drives[drive]).collect();
            let columns: Vec<Vec<Place<'_>>> = (0..rotation.columns()).map(column).collect();
            assert_eq!(domain(&columns), expected, "{copies} on {places}");
        }
    }
}
