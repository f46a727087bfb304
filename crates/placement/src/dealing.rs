//! An order in which neighbours are apart: groups of drives dealt to rows, the rows one after another.
//!
//! A ring can have any `n` neighbours of different groups if and only if no group has more than an `n`th of it: between two
//! of a group there are `n - 1` others.

use std::cmp::Reverse;

/// How many neighbours in a row can all be of different groups.
fn reach(groups: &[usize]) -> usize {
    let all: usize = groups.iter().sum();
    all.checked_div(groups.iter().copied().max().unwrap_or(0)).unwrap_or(0)
}

/// How many drives of a group may be used at most, that any `copies` neighbours can be of different groups: as many as
/// possible. There are at least `copies` groups, none empty.
pub fn most_of_a_group(groups: &[usize], copies: usize) -> usize {
    let mut most = groups.iter().copied().max().unwrap_or(0);
    while groups.iter().map(|count| *count.min(&most)).sum::<usize>() < copies * most {
        assert!(most > 1, "one of each of {} groups is enough for {copies} copies", groups.len());
        most -= 1;
    }
    most
}

/// A ring of all, in which as many neighbours as possible are of different groups. Equally full groups keep their order.
///
/// There are at least as many rows as the fullest group, dealt first, has members, and each row is at least `reach` long. So a
/// group comes round at the same place of the next row or later, or, if it was dealt over the last row and then the first, it
/// skips a row.
pub fn dealt<T: Copy>(mut groups: Vec<Vec<T>>) -> Vec<T> {
    groups.sort_by_key(|group| Reverse(group.len()));
    let sizes: Vec<usize> = groups.iter().map(Vec::len).collect();
    let all: Vec<T> = groups.into_iter().flatten().collect();
    let rows = all.len() / reach(&sizes).max(1);
    (0..rows).flat_map(|row| all.iter().skip(row).step_by(rows)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Story: two copies of an extent lay on one server, since the last drive of the map and its first were
        /// neighbours there.
        #[test]
        fn as_many_neighbours_as_can_be_are_of_different_groups(sizes in prop::collection::vec(1usize..9, 1..9)) {
            let ring = dealt(sizes.iter().enumerate().map(|(group, &size)| vec![group; size]).collect());
            prop_assert_eq!(ring.len(), sizes.iter().sum::<usize>());
            let reach = reach(&sizes);
            for first in 0..ring.len() {
                let met: BTreeSet<usize> = (first..first + reach).map(|at| ring[at % ring.len()]).collect();
                prop_assert_eq!(met.len(), reach, "{:?} at {}", ring, first);
            }
        }

        #[test]
        fn no_more_are_left_out_than_must_be(sizes in prop::collection::vec(1usize..9, 1..9), copies in 1usize..5) {
            prop_assume!(sizes.len() >= copies);
            let most = most_of_a_group(&sizes, copies);
            let cut = |most: usize| sizes.iter().map(|size| *size.min(&most)).collect::<Vec<_>>();
            prop_assert!(reach(&cut(most)) >= copies);
            let fullest = sizes.iter().copied().max().unwrap();
            prop_assert!(most == fullest || reach(&cut(most + 1)) < copies);
        }
    }
}
