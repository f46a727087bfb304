//! Runs of blocks or bytes that hold something or don't, neighbours of one kind being one run.

use std::collections::BTreeSet;

pub fn add_run(runs: &mut Vec<(u64, bool)>, length: u64, holds: bool) {
    match runs.last_mut() {
        _ if length == 0 => {}
        Some(last) if last.1 == holds => last.0 += length,
        _ => runs.push((length, holds)),
    }
}

/// Adds so many blocks: those of the set hold something.
pub fn add_runs(runs: &mut Vec<(u64, bool)>, count: u64, of_set: &BTreeSet<u64>) {
    let mut at = 0;
    for &block in of_set.range(..count) {
        add_run(runs, block - at, false);
        add_run(runs, 1, true);
        at = block + 1;
    }
    add_run(runs, count - at, false);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_a_set_and_all_others_become_runs() {
        let mut runs = Vec::new();
        for (count, set) in
            [(5, vec![]), (3, vec![]), (4, vec![0, 1, 3]), (2, vec![0, 1, 7]), (0, vec![]), (1 << 40, vec![])]
        {
            add_runs(&mut runs, count, &set.into_iter().collect());
        }
        assert_eq!(runs, [(8, false), (2, true), (1, false), (3, true), (1 << 40, false)]);
    }
}
