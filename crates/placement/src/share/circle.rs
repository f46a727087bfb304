//! The circle: which drive a point belongs to, if any (V:Drive 2.1, figure 1, with a stretch factor below 1).
//!
//! A circle is cut into cells. A drive claims cells in proportion to its capacity, the last of them in part, where the hash of
//! its id says. Invariants:
//! 1. A cell belongs to one claim at most. Of two claims that meet, the one with the greater hash has the cell, the other goes on
//!    to where its next hash says. So the same drives, in any order, give the same circle, and a drive that comes or goes
//!    displaces few claims of others: about half of the part of the cells that are taken.
//! 2. Neither the cells nor the bytes of a claim follow from which drives there are now: they are the [`Scale`].

use super::hash::{mix, pair};
use tepal_model::DriveId;

/// Claims of all drives when a scale is chosen: for each drive, but in all, and for each drive of a very large pool. A drive
/// of many claims is found sooner, and one that is displaced matters less; but the tables should stay in a processor's cache.
const CLAIMS_OF_DRIVE: u64 = 64;
const FEWEST_CLAIMS: u64 = 1 << 13;
const MOST_CLAIMS: u64 = 1 << 16;
const CLAIMS_OF_ONE_OF_MANY: u64 = 4;
/// Least cells for a claim when a scale is chosen, and when a scale is still accepted.
const ROOMY: u64 = 32;
const CROWDED: u64 = 4;
const FEWEST_CELLS_LOG2: u32 = 12;
const MOST_CELLS_LOG2: u32 = 30;

/// How finely a circle is cut: chosen once, with a new global map, and kept by all maps that follow from it. Two scales place
/// nearly everything differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Bytes that a claim stands for; not 0.
    pub claim: u64,
    /// The cells are two to this power; 12 to 30.
    pub cells_log2: u32,
}

impl Scale {
    /// For drives of these capacities in bytes, and until they are 8 times as much. `None` if they have none.
    pub fn of(capacities: impl Iterator<Item = u64> + Clone) -> Option<Scale> {
        let used = capacities.filter(|capacity| *capacity > 0);
        let total: u128 = used.clone().map(u128::from).sum();
        let drives = used.clone().count() as u64;
        let wanted = (drives * CLAIMS_OF_DRIVE).clamp(FEWEST_CLAIMS, MOST_CLAIMS).max(drives * CLAIMS_OF_ONE_OF_MANY);
        let claim = (total > 0).then(|| (total / u128::from(wanted)).clamp(1, u64::MAX.into()) as u64)?;
        let claims: u64 = used.map(|capacity| capacity.div_ceil(claim)).sum();
        let cells_log2 = (claims * ROOMY).next_power_of_two().ilog2();
        Some(Scale { claim, cells_log2: cells_log2.clamp(FEWEST_CELLS_LOG2, MOST_CELLS_LOG2) })
    }
}

/// A drive's right to a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// The drive's position.
    pub drive: u32,
    /// How much of a claim it is: 1, or less for a drive's last one.
    pub part: f32,
}

/// Why there is no circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowded {
    pub claims: u64,
    pub cells: u64,
}

#[derive(Clone, Debug)]
pub struct Circle {
    cells_log2: u32,
    /// A bit per cell: whether it's claimed.
    claimed: Vec<u64>,
    /// How many claims there are before each word of `claimed`.
    before: Vec<u32>,
    /// By cell.
    claims: Vec<Claim>,
}

impl Circle {
    /// `drives` are ids and capacities, by position.
    pub fn new(drives: &[(DriveId, u64)], scale: Scale) -> Result<Circle, Crowded> {
        assert!(scale.claim > 0 && (FEWEST_CELLS_LOG2..=MOST_CELLS_LOG2).contains(&scale.cells_log2), "{scale:?}");
        let cells = 1 << scale.cells_log2;
        let claims_of = |capacity: u64| capacity.div_ceil(scale.claim);
        let claims = drives.iter().fold(0u64, |sum, (_, capacity)| sum.saturating_add(claims_of(*capacity)));
        if claims > cells / CROWDED {
            return Err(Crowded { claims, cells });
        }
        let mut wanted = Vec::with_capacity(claims as usize);
        for (position, &(drive, capacity)) in drives.iter().enumerate() {
            for number in 0..claims_of(capacity) {
                let bytes = (capacity - number * scale.claim).min(scale.claim);
                let claim = Claim { drive: position as u32, part: (bytes as f64 / scale.claim as f64) as f32 };
                wanted.push((pair(drive.0, number), drive, claim));
            }
        }
        wanted.sort_unstable_by_key(|(hash, drive, _)| std::cmp::Reverse((*hash, *drive)));
        let mut claimed = vec![0u64; (cells / 64) as usize];
        let mut placed = Vec::with_capacity(wanted.len());
        for (hash, _, claim) in wanted {
            let tries = (1..).map(|attempt| (pair(hash, attempt) >> (64 - scale.cells_log2)) as usize);
            let cell = { tries }.find(|cell| claimed[cell / 64] >> (cell % 64) & 1 == 0).expect("most cells are free");
            claimed[cell / 64] |= 1 << (cell % 64);
            placed.push((cell, claim));
        }
        placed.sort_unstable_by_key(|(cell, _)| *cell);
        let count = |sum: &mut u32, word: &u64| Some(std::mem::replace(sum, *sum + word.count_ones()));
        let before = claimed.iter().scan(0, count).collect();
        let claims = placed.into_iter().map(|(_, claim)| claim).collect();
        Ok(Circle { cells_log2: scale.cells_log2, claimed, before, claims })
    }

    pub fn cells(&self) -> f64 {
        (1u64 << self.cells_log2) as f64
    }

    pub fn claims(&self) -> &[Claim] {
        &self.claims
    }

    /// The claims that a key's points hit, in order, each as the number of points until then and the index of the claim.
    /// Endless; the points are drawn with replacement.
    pub fn hits(&self, key: u64) -> impl Iterator<Item = (u64, usize)> + '_ {
        let shift = 32 - self.cells_log2;
        let draws = (0u64..).flat_map(move |pair_of_points| {
            let bits = mix(key.wrapping_add(pair_of_points.wrapping_mul(super::hash::STEP)));
            let cells = [(bits >> 32) as u32 >> shift, bits as u32 >> shift];
            [(2 * pair_of_points + 1, cells[0]), (2 * pair_of_points + 2, cells[1])]
        });
        draws.filter_map(move |(points, cell)| Some((points, self.claim_at(cell as usize)?)))
    }

    fn claim_at(&self, cell: usize) -> Option<usize> {
        let (word, bit) = (self.claimed[cell / 64], 1u64 << (cell % 64));
        (word & bit != 0).then(|| self.before[cell / 64] as usize + (word & (bit - 1)).count_ones() as usize)
    }
}
