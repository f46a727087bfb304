//! What each drive is due: in proportion to its capacity, but no domain more than one copy of each column.

use super::drives::Drives;
use crate::share::STEP;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use tepal_model::layout::FailureDomain;

/// Fair shares are counted in parts of a copy.
pub const ONE: i64 = 1 << ONE_LOG2;
const ONE_LOG2: u32 = 20;

/// The copies that each drive is due of a table, by position, in parts of [`ONE`].
pub fn shares(drives: &Drives, columns: usize, copies: usize, domain: FailureDomain) -> Vec<i64> {
    let mut shares = vec![0; drives.len()];
    stretches(drives, columns, copies, domain).for_each(|(drive, begin, end)| shares[drive as usize] = end - begin);
    shares
}

/// The copies that each drive gets of a new table, by position: its share, rounded up or down, and so for each domain. There
/// are at least as many domains as copies.
///
/// Shares lie one after the other on a line, and a copy is for the share that a whole number lies in (systematic sampling: Madow
/// 1949). With each `number` they lie further along by the golden section, so that each share is met about as often as it's
/// due.
pub fn quotas(drives: &Drives, columns: usize, copies: usize, domain: FailureDomain, number: u64) -> Vec<u32> {
    let along = (number.wrapping_mul(STEP) >> (u64::BITS - ONE_LOG2)) as i64;
    let mut quotas = vec![0; drives.len()];
    for (drive, begin, end) in stretches(drives, columns, copies, domain) {
        quotas[drive as usize] = ((end + along) / ONE - (begin + along) / ONE) as u32;
    }
    quotas
}

/// The drives that may hold something, each with its stretch of a line, which is its share long. Those of a domain lie side by
/// side, and domains that are full begin and end at whole numbers.
fn stretches(
    drives: &Drives,
    columns: usize,
    copies: usize,
    domain: FailureDomain,
) -> impl Iterator<Item = (u32, i64, i64)> {
    let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    drives.used().for_each(|drive| groups.entry(drives.domain(domain, drive)).or_default().push(drive));
    let size = |group: &Vec<u32>| group.iter().map(|drive| u128::from(drives.capacity(*drive))).sum::<u128>();
    let mut groups: Vec<(u128, Vec<u32>)> = groups.into_values().map(|group| (size(&group), group)).collect();
    groups.sort_by_key(|(size, _)| Reverse(*size));
    let (mut left, mut total) = (copies as u128, groups.iter().map(|(size, _)| *size).sum::<u128>());
    let all = columns as u128 * ONE as u128;
    let (mut base, mut before) = (0, 0);
    let mut stretches = Vec::new();
    for (size, group) in groups {
        // A domain that is due more than all columns once gets that, and so does each one before it.
        let is_full = left > 0 && size * left >= total;
        let (whole, of) = if is_full { (all, size) } else { (all * left, total) };
        for drive in group {
            let after = before + u128::from(drives.capacity(drive));
            stretches.push((drive, (base + whole * before / of) as i64, (base + whole * after / of) as i64));
            before = after;
        }
        if is_full {
            (base, before, left, total) = (base + all, 0, left - 1, total - size);
        }
    }
    stretches.into_iter()
}
