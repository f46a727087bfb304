use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use tepal_model::layout::FailureDomain;
use tepal_model::{DriveId, Layout, ServerId};

/// A pool: for each server its site, `-` if it has none, and how many drives it has. Drive 203 is the third of server 2.
pub fn pool(servers: &[(&'static str, usize)]) -> Vec<Candidate<'static>> {
    let of_server = |(number, &(site, drives)): (u32, &(&'static str, usize))| {
        (1..=drives as u64).map(move |drive| Candidate {
            drive: DriveId(u64::from(number) * 100 + drive),
            server: ServerId(number),
            site: Some(site).filter(|site| *site != "-"),
            capacity: 1 << 40,
        })
    };
    (1..).zip(servers).flat_map(of_server).collect()
}

pub fn equal(servers: usize, drives: usize) -> Vec<Candidate<'static>> {
    pool(&vec![("-", drives); servers])
}

pub fn layout(text: &str) -> Layout {
    text.parse().unwrap()
}

/// The server of each position.
pub fn ring(chosen: &Chosen) -> Vec<u64> {
    chosen.drives.iter().map(|drive| drive.0 / 100).collect()
}

fn rotation(chosen: &Chosen, layout: &Layout) -> Rotation {
    Rotation::new(chosen.drives.len(), layout.fragments().count()).unwrap()
}

/// For each two servers, how many copies the second has of columns that the first has copies of.
fn shared(ring: &[u64], rotation: &Rotation) -> BTreeMap<(u64, u64), usize> {
    let mut shared = BTreeMap::new();
    for column in 0..rotation.columns() {
        let holders: Vec<u64> = rotation.holders(column).map(|drive| ring[drive]).collect();
        for one in 0..holders.len() {
            for other in (0..holders.len()).filter(|other| *other != one) {
                *shared.entry((holders[one], holders[other])).or_default() += 1;
            }
        }
    }
    shared
}

/// The least distance of two drives of one server.
fn closest(ring: &[u64]) -> usize {
    let next = |at: usize| (1..=ring.len()).find(|distance| ring[(at + distance) % ring.len()] == ring[at]);
    (0..ring.len()).filter_map(next).min().unwrap()
}

/// Changing one of these means that servers of two versions would come to different maps: don't, unless the command that
/// makes a volume gets a new version.
#[test]
fn orders_are_as_they_were_in_the_first_release() {
    for (servers, text, domain, order) in [
        ("-3", "stripe", "server", "1 1 1"),
        ("-4", "mirror:2", "drive", "1 1 1 1"),
        ("-2 -2", "stripe", "server", "1 2 1 2"),
        ("-3 -2 -1", "stripe", "server", "1 2 1 2 1 3"),
        ("-1 -1 -1 -1", "chained", "server", "1 2 3 4"),
        ("-2 -2 -2 -2", "chained", "server", "2 1 3 4 1 2 3 4"),
        ("-3 -3 -3", "mirror:3", "server", "1 2 3 1 2 3 1 2 3"),
        ("-2 -2", "mirror:3", "drive", "1 2 1 2"),
        ("-3 -1 -1 -1", "chained", "server", "1 2 1 3 1 4"),
        ("a1 a1 b1 b1", "chained", "site", "1 3 2 4"),
        ("a1 a1 b1 b1", "chained;domain=server", "server", "1 3 2 4"),
        ("a1 b1 a1 b1", "mirror:3", "server", "1 2 3 4"),
        ("a1 a1 a1 b1", "chained", "site", "1 4"),
        ("a1 a1 a1 b1", "chained;domain=server", "server", "1 4 2 3"),
        ("a2 b1 b1 c2", "mirror:3", "site", "1 2 4 1 3 4"),
        ("a1 b1 -1", "chained", "server", "3 1 2"),
        ("a2 b1", "mirror:2;domain=drive", "drive", "1 1 2"),
    ] {
        let size = |word: &str| word[1..].parse().unwrap();
        let servers: Vec<(&'static str, usize)> = servers.split(' ').map(|word| (&word[..1], size(word))).collect();
        let chosen = choose(&pool(&servers), &layout(text)).unwrap();
        let ring = ring(&chosen).iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!((chosen.domain.to_string().as_str(), ring.as_str()), (domain, order), "{text} on {servers:?}");
    }
}

#[test]
fn drives_of_one_server_are_in_the_order_of_their_ids() {
    for text in ["stripe", "mirror:2", "mirror:3;domain=drive"] {
        let chosen = choose(&equal(1, 6), &layout(text)).unwrap();
        assert!(chosen.drives.is_sorted(), "{text}: {chosen:?}");
    }
}

#[test]
fn what_a_layout_asks_for_and_the_drives_have_not_is_refused_with_what_is_missing() {
    for (candidates, text, said) in [
        (vec![], "stripe", "no drives"),
        (equal(1, 3), "chained", "2 copies on different servers, and there are 1"),
        (equal(1, 3), "mirror:2;domain=server", "2 copies on different servers, and there are 1"),
        (equal(2, 1), "mirror:3", "3 copies on different drives, and there are 2"),
        (equal(2, 2), "chained;domain=drive", "can't have domain=drive"),
        (equal(2, 2), "mirror:2;domain=site", "s1 has none"),
        (pool(&[("a", 1), ("-", 1)]), "mirror:2;domain=site", "s2 has none"),
        (pool(&[("a", 1), ("a", 1)]), "mirror:2;domain=site", "2 copies on different sites, and there are 1"),
        (pool(&[("a", 1), ("b", 1)]), "mirror:3;domain=site", "3 copies on different sites, and there are 2"),
    ] {
        let refused = choose(&candidates, &layout(text)).unwrap_err().to_string();
        assert!(refused.contains(said), "{text}: {refused}");
    }
}

#[test]
fn the_smallest_drives_of_the_fullest_servers_are_left_out() {
    let mut candidates = pool(&[("a", 3), ("a", 2), ("b", 3)]);
    candidates[0].capacity = 1 << 30;
    candidates[4].capacity = 1 << 30;
    let left_out = |text: &str| {
        let chosen = choose(&candidates, &layout(text)).unwrap();
        let used: BTreeSet<DriveId> = chosen.drives.into_iter().collect();
        candidates
            .iter()
            .map(|candidate| candidate.drive.0)
            .filter(|id| !used.contains(&DriveId(*id)))
            .collect::<Vec<_>>()
    };
    assert_eq!(left_out("mirror:2"), [101, 202], "site a has two more than b");
    assert_eq!(left_out("mirror:2;domain=server"), [0; 0]);
    assert_eq!(left_out("mirror:3;domain=server"), [101, 303], "two of each server");
}

/// The paper's chain, with any number of drives on each server: whichever server fails, each other has the second copies of
/// at most so much of it as comes to an equal share, rounded up to whole columns.
#[test]
fn no_survivor_has_more_than_its_share_of_the_second_copies_of_a_server() {
    let layout = layout("chained");
    for servers in 2..=12 {
        for drives in [1, 2, 3, 4, 5, 6, 8, 10, 12] {
            let chosen = choose(&equal(servers, drives), &layout).unwrap();
            let ring = ring(&chosen);
            let most = shared(&ring, &rotation(&chosen, &layout)).into_values().max().unwrap();
            assert_eq!(most, (2 * drives).div_ceil(servers - 1), "{servers} servers with {drives} drives: {ring:?}");
        }
    }
}

#[test]
fn more_copies_are_nearly_as_even() {
    for (copies, text) in [(3, "mirror:3"), (4, "mirror:4")] {
        for servers in copies..=12 {
            for drives in [1, 2, 3, 4, 6, 8] {
                let chosen = choose(&equal(servers, drives), &layout(text)).unwrap();
                let ring = ring(&chosen);
                let most = shared(&ring, &rotation(&chosen, &layout(text))).into_values().max().unwrap();
                let even = (copies * (copies - 1) * drives).div_ceil(servers - 1);
                assert!(most <= even + 2, "{text} on {servers} servers with {drives} drives: {most}, {ring:?}");
            }
        }
    }
}

#[test]
fn large_pools_keep_the_rules_too() {
    for (servers, drives) in [(100, 1), (40, 12), (300, 12)] {
        let chosen = choose(&equal(servers, drives), &layout("chained")).unwrap();
        let ring = ring(&chosen);
        let distinct: BTreeSet<DriveId> = chosen.drives.iter().copied().collect();
        assert_eq!(distinct.len(), servers * drives);
        let most = shared(&ring, &rotation(&chosen, &layout("chained"))).into_values().max().unwrap();
        assert!(most <= 3 && closest(&ring) >= 3, "{servers} servers with {drives} drives: {most}");
    }
}

fn any_pool() -> impl Strategy<Value = Vec<Candidate<'static>>> {
    let site = prop_oneof![Just("a"), Just("b"), Just("c")];
    let sited = prop::collection::vec((site, 1usize..6), 1..7);
    let siteless = prop::collection::vec((Just("-"), 1usize..6), 1..7);
    let mixed = prop::collection::vec((prop_oneof![Just("-"), Just("b")], 1usize..6), 1..7);
    prop_oneof![sited, siteless, mixed].prop_map(|servers| pool(&servers))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Story: two copies of an extent lay on one server, since the last drive of the map and its first were neighbours there.
    #[test]
    fn copies_share_no_failure_domain_and_it_is_the_widest_that_can_be_had(
        candidates in any_pool(),
        copies in 1u8..5,
        wanted in prop_oneof![Just(None), Just(Some(FailureDomain::Drive)), Just(Some(FailureDomain::Server)), Just(Some(FailureDomain::Site))],
    ) {
        let mut layout = layout(&if copies == 1 { "stripe".to_owned() } else { format!("mirror:{copies}") });
        layout.domain = wanted;
        let is_known = candidates.iter().all(|candidate| candidate.site.is_some());
        let enough = |domain| domains(&candidates, domain) >= usize::from(copies) && (domain != FailureDomain::Site || is_known);
        let widest = [FailureDomain::Site, FailureDomain::Server, FailureDomain::Drive].into_iter().find(|domain| enough(*domain));
        let expected = match wanted {
            Some(domain) => Some(domain).filter(|domain| enough(*domain)),
            None => widest,
        };
        let chosen = choose(&candidates, &layout);
        prop_assert_eq!(chosen.as_ref().ok().map(|chosen| chosen.domain), expected, "{:?}", chosen);
        let Ok(chosen) = chosen else { return Ok(()) };
        let places: Vec<Place<'_>> = chosen.drives.iter().map(|id| place(&candidates, *id)).collect();
        let rotation = rotation(&chosen, &layout);
        let of_column = |column| rotation.holders(column).map(|drive| places[drive]).collect::<Vec<Place<'_>>>();
        let found = domain(&(0..rotation.columns()).map(of_column).collect::<Vec<_>>());
        prop_assert!(copies == 1 || found >= Some(chosen.domain), "{:?} is really {:?}", chosen, found);
        let distinct: BTreeSet<DriveId> = chosen.drives.iter().copied().collect();
        prop_assert_eq!(distinct.len(), chosen.drives.len());
        if copies == 1 || chosen.domain == FailureDomain::Drive {
            prop_assert_eq!(chosen.drives.len(), candidates.len(), "a drive was left out for nothing");
        }
    }

    #[test]
    fn the_same_drives_in_any_order_give_the_same_map(
        (candidates, shuffled) in any_pool().prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
        text in prop_oneof![Just("stripe"), Just("mirror:2"), Just("chained"), Just("mirror:3;domain=drive")],
    ) {
        prop_assert_eq!(choose(&candidates, &layout(text)), choose(&shuffled, &layout(text)));
    }

    /// Two sites take turns, as Petal's even and odd servers: all copies but those of one site may be lost.
    #[test]
    fn a_whole_site_of_two_can_be_lost(
        drives in prop::collection::vec(1usize..6, 2..9),
        text in prop_oneof![Just("chained"), Just("mirror:2;domain=site")],
    ) {
        let servers: Vec<(&'static str, usize)> = ["even", "odd"].into_iter().cycle().zip(drives).collect();
        let candidates = pool(&servers);
        let chosen = choose(&candidates, &layout(text)).unwrap();
        prop_assert_eq!(chosen.domain, FailureDomain::Site);
        let sites: Vec<Option<&str>> = chosen.drives.iter().map(|id| place(&candidates, *id).site).collect();
        prop_assert!((0..sites.len()).all(|at| sites[at] != sites[(at + 1) % sites.len()]), "{:?}", sites);
        let of_site = |site| candidates.iter().filter(|candidate| candidate.site == Some(site)).count();
        prop_assert_eq!(sites.len(), 2 * of_site("even").min(of_site("odd")), "no drive is left out for nothing");
    }

    /// With unequal servers, each takes over in proportion to its drives; a server that has much of the ring can't choose.
    #[test]
    fn unequal_servers_share_in_proportion(sizes in prop::collection::vec(1usize..9, 3..9)) {
        let layout = layout("chained");
        let servers: Vec<(&'static str, usize)> = sizes.iter().map(|size| ("-", *size)).collect();
        let chosen = choose(&pool(&servers), &layout).unwrap();
        let ring = ring(&chosen);
        let drives = |server| ring.iter().filter(|other| **other == server).count();
        prop_assume!(sizes.iter().all(|size| 3 * size <= ring.len()));
        for ((failed, other), columns) in shared(&ring, &rotation(&chosen, &layout)) {
            let even = (2 * drives(failed) * drives(other)).div_ceil(ring.len() - drives(failed));
            prop_assert!(columns <= even + 2, "s{} has {} of s{}'s, {} would be even: {:?}", other, columns, failed, even, ring);
        }
    }
}

fn domains(candidates: &[Candidate<'_>], domain: FailureDomain) -> usize {
    let name = |candidate: &Candidate<'_>| match domain {
        FailureDomain::Drive => candidate.drive.to_string(),
        FailureDomain::Server => candidate.server.to_string(),
        FailureDomain::Site => candidate.site.unwrap_or_default().to_owned(),
    };
    candidates.iter().map(name).collect::<BTreeSet<_>>().len()
}

fn place<'a>(candidates: &[Candidate<'a>], drive: DriveId) -> Place<'a> {
    let found = candidates.iter().find(|candidate| candidate.drive == drive).unwrap();
    Place { server: found.server, site: found.site }
}
