//! Where the blocks of a column are in stripes, and stripes on drives.

use crate::column::{Blocks, Group};
use crate::map::{Column, ROWS};
use std::ops::Range;
use tepal_drive::world::World;

/// One stripe of a column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stripe {
    column: Column,
    pub number: u64,
}

impl Stripe {
    /// The stripe that a block of the column is in.
    pub fn of(column: &Column, block: u64) -> Self {
        Stripe { column: *column, number: block / column.in_stripe() }
    }

    pub fn numbered(column: &Column, number: u64) -> Self {
        Stripe { column: *column, number }
    }

    /// The stripes that blocks touch.
    pub fn touched(column: &Column, blocks: Blocks) -> impl Iterator<Item = Stripe> + use<> {
        let column = *column;
        let numbers = blocks.first / column.in_stripe()..blocks.end().div_ceil(column.in_stripe());
        numbers.filter(move |_| blocks.count > 0).map(move |number| Stripe { column, number })
    }

    /// All blocks of the stripe.
    pub fn blocks(&self) -> Blocks {
        Blocks::new(self.number * self.column.in_stripe(), self.column.in_stripe())
    }

    pub fn region(&self) -> u64 {
        self.column.region_of(self.blocks().first)
    }

    /// The blocks that some rows have of one data fragment.
    pub fn unit(&self, fragment: usize, rows: &Range<u64>) -> Blocks {
        Blocks::new(self.blocks().first + fragment as u64 * ROWS + rows.start, rows.end - rows.start)
    }

    /// Some rows in place, as blocks of each member.
    pub fn rows(&self, rows: &Range<u64>) -> Blocks {
        Blocks::new(self.column.block_of_row(self.number * ROWS + rows.start), rows.end - rows.start)
    }

    /// The data fragment that blocks are of, and their rows. The blocks are of one fragment.
    pub fn locate(&self, blocks: Blocks) -> (usize, Range<u64>) {
        let first = blocks.first - self.blocks().first;
        let row = first % ROWS;
        ((first / ROWS) as usize, row..row + blocks.count)
    }
}

impl<W: World> Group<W> {
    /// The rows in place of all stripes that blocks touch.
    pub(crate) fn rows_of(&self, blocks: Blocks) -> Blocks {
        let column = &self.shared.column;
        let (first, end) = (blocks.first / column.in_stripe(), blocks.end().div_ceil(column.in_stripe()));
        Blocks::new(column.block_of_row(first * ROWS), (end - first) * ROWS)
    }
}

/// Runs of consecutive numbers that are chosen.
pub(super) fn runs(end: u64, is_chosen: impl Fn(u64) -> bool) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for number in (0..end).filter(|&number| is_chosen(number)) {
        match runs.last_mut() {
            Some(run) if run.end == number => run.end += 1,
            _ => runs.push(number..number + 1),
        }
    }
    runs
}
