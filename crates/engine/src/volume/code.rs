//! Comparison of an erasure code with the data that it's of, step by step: who asks knows how far it is, and goes on after anything.

use super::read_write::in_volume;
use super::{Map, Volume};
use crate::column::Blocks;
use crate::servers::seat::Seated;
use std::ops::Range;
use tepal_drive::world::World;
use tepal_model::{BLOCK, IoError};

/// What a comparison of code with data found, in the columns that this server leads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeChecked {
    /// How many columns of the map that is.
    pub columns: usize,
    /// Bytes of the volume whose code isn't that of their data, in order.
    pub unequal: Vec<Range<u64>>,
    /// Bytes of the volume that couldn't be compared, as not all drives have their part of them up to date.
    pub unchecked: u64,
}

impl<W: World> Volume<W> {
    /// Compares code with data, in the stripes that begin within these bytes of the volume. With `repairs`, code that isn't that of its
    /// data is written again. `NotNow` while the volume is on its way to another layout.
    pub async fn check_code(&self, bytes: Range<u64>, repairs: bool) -> Result<CodeChecked, IoError> {
        let Some(map) = self.only_map() else { return Err(IoError::NotNow) };
        let mut checked = CodeChecked::default();
        for (column, seat) in map.seats().iter().enumerate() {
            let Seated::Here(group) = seat.now() else { continue };
            checked.columns += 1;
            let Range { start, end } = map.striping().within(column, bytes.clone());
            if start >= end {
                continue;
            }
            let blocks = Blocks::touched(start, end);
            let found = group.shared.kept.check_code(&group, blocks, repairs).await?;
            checked.unchecked += found.unchecked * BLOCK;
            let mut unequal = found.unequal;
            match repairs {
                false => unequal.extend(found.undecided),
                true => checked.unchecked += found.undecided.iter().map(|stripe| stripe.count * BLOCK).sum::<u64>(),
            }
            for stripe in unequal {
                checked.unequal.extend(self.bytes_of(map, column, stripe));
            }
        }
        checked.unequal.sort_unstable_by_key(|range| range.start);
        Ok(checked)
    }

    /// Where in the volume blocks of a column are.
    fn bytes_of(&self, map: &Map<W>, column: usize, blocks: Blocks) -> Vec<Range<u64>> {
        let end = self.end_in(map, column);
        in_volume(map, column, (blocks.first * BLOCK).min(end)..(blocks.end() * BLOCK).min(end)).collect()
    }
}
