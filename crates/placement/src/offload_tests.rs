//! Reads after a failure, shifted along the chain (Petal 2.4): whatever a server's neighbours have too much, their other
//! neighbours have copies of, and so on. That an even share can be had is shown by a flow from columns to servers.

use crate::choose_tests::{equal, layout, ring};
use crate::{Rotation, choose};

/// The part of the reads of each column that its first copy serves when the first drive of a chain is gone, if all columns are
/// read as much; its second copy serves the rest. The paper's figure 5 with one drive on each server.
fn read_shares(drives: usize) -> Vec<f64> {
    let survivors = (drives - 1) as f64;
    // Column 0 has its first copy on the drive that is gone; each further one leans a little more on its own first copy.
    (0..drives).map(|column| column as f64 / survivors).collect()
}

#[test]
fn with_one_drive_on_each_server_the_survivors_of_a_chain_read_equally_much() {
    for drives in 2..40 {
        let rotation = Rotation::new(drives, 2).unwrap();
        let mut load = vec![0.0; drives];
        for (column, share) in read_shares(drives).into_iter().enumerate() {
            let holders: Vec<usize> = rotation.holders(column).collect();
            load[holders[0]] += share;
            load[holders[1]] += 1.0 - share;
        }
        // The last column leans on nobody but the last drive, so nothing goes to the one that is gone.
        assert!(load[0].abs() < 1e-9, "{drives}: {load:?}");
        let even = drives as f64 / (drives - 1) as f64;
        assert!(load[1..].iter().all(|load| (load - even).abs() < 1e-9), "{drives}: {load:?}");
    }
}

/// Whether `reads` reads of each column, each at one of the servers that have it, can be dealt so that no server has more than
/// `most`: augmenting paths, one read after the other.
fn can_be_dealt(columns: &[Vec<usize>], servers: usize, reads: usize, most: usize) -> bool {
    let mut at: Vec<Vec<usize>> = columns.iter().map(|holders| vec![0; holders.len()]).collect();
    let mut load = vec![0; servers];
    for column in 0..columns.len() {
        for _ in 0..reads {
            let mut seen = vec![false; servers];
            if !add_read(column, columns, &mut at, &mut load, most, &mut seen) {
                return false;
            }
        }
    }
    true
}

fn add_read(
    column: usize,
    columns: &[Vec<usize>],
    at: &mut [Vec<usize>],
    load: &mut [usize],
    most: usize,
    seen: &mut [bool],
) -> bool {
    for holder in 0..columns[column].len() {
        let server = columns[column][holder];
        if std::mem::replace(&mut seen[server], true) {
            continue;
        }
        let has_room = load[server] < most || {
            let place = |other: usize| columns[other].iter().position(|there| *there == server);
            let movable: Vec<(usize, usize)> = (0..columns.len())
                .filter_map(|other| Some((other, place(other)?)))
                .filter(|&(o, p)| at[o][p] > 0)
                .collect();
            movable.into_iter().any(|(other, place)| {
                let moved = add_read(other, columns, at, load, most, seen);
                if moved {
                    at[other][place] -= 1;
                    load[server] -= 1;
                }
                moved
            })
        };
        if has_room {
            at[column][holder] += 1;
            load[server] += 1;
            return true;
        }
    }
    false
}

#[test]
fn whichever_server_fails_the_reads_can_be_even_over_all_survivors() {
    for servers in 3..=8 {
        for drives in [1, 2, 3, 4, 6] {
            let layout = layout("chained");
            let ring = ring(&choose(&equal(servers, drives), &layout).unwrap());
            let rotation = Rotation::new(ring.len(), 2).unwrap();
            for failed in 0..servers {
                let survivors = |column| {
                    let holders = rotation.holders(column).map(|drive| ring[drive] as usize - 1);
                    holders.filter(|server| *server != failed).collect::<Vec<_>>()
                };
                let columns: Vec<Vec<usize>> = (0..rotation.columns()).map(survivors).collect();
                // Of each column as many reads as there are survivors: an even share is the number of columns then.
                let reads = servers - 1;
                let (even, who) = (columns.len(), format!("s{} of {servers} with {drives} drives", failed + 1));
                assert!(can_be_dealt(&columns, servers, reads, even), "{who}: {ring:?}");
                assert!(!can_be_dealt(&columns, servers, reads, even - 1), "{who}: less than even");
            }
        }
    }
}

/// A drive between two that failed has the reads of both: the fewer drives there are between them, the more each has to carry.
#[test]
fn no_drive_has_more_than_half_again_as_much_to_read_when_a_server_fails() {
    for servers in 3..=8 {
        for drives in [1, 2, 3, 4, 6] {
            let layout = layout("chained");
            let ring = ring(&choose(&equal(servers, drives), &layout).unwrap());
            let rotation = Rotation::new(ring.len(), 2).unwrap();
            for failed in 1..=servers as u64 {
                let survivors = |column| {
                    let holders = rotation.holders(column);
                    holders.filter(|drive| ring[*drive] != failed).collect::<Vec<_>>()
                };
                let columns: Vec<Vec<usize>> = (0..rotation.columns()).map(survivors).collect();
                assert!(can_be_dealt(&columns, ring.len(), 2, 3), "s{failed} of {servers} with {drives}: {ring:?}");
            }
        }
    }
}
