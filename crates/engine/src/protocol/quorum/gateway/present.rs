//! Which blocks may hold something.

use super::ask::why;
use super::{Column, Nodes};
use std::ops::Range;
use tepal_drive::world::World;
use tepal_model::{BLOCK, IoError};
use tepal_wire::Payload;
use tepal_wire::message::{NodeAnswer, NodeOperation, Run};

impl<W: World, N: Nodes> Column<W, N> {
    /// Runs of blocks from the first one on, at least one. A run holds something if any of the nodes that answer has something of it: so
    /// none does that holds nothing, but for nodes that lie.
    pub async fn present(&self, blocks: Range<u64>) -> Result<Vec<Run>, IoError> {
        self.with_same_drives(async |column: &Self| column.runs(&blocks, false).await).await
    }

    /// The same of blocks that have a version, whether or not they hold something since. By the drives that the column had.
    pub async fn have_versions(&self, blocks: &Range<u64>) -> Result<Vec<Run>, IoError> {
        self.runs(blocks, true).await
    }

    async fn runs(&self, blocks: &Range<u64>, versions: bool) -> Result<Vec<Run>, IoError> {
        let (first, count) = (blocks.start, blocks.end - blocks.start);
        let question = NodeOperation::Present { first, count, versions };
        let (count_all, mut refused) = (self.count_voters(), Vec::new());
        let ask = |(node, drive)| (node, drive, question.clone(), Payload::none());
        let mut asked = self.ask(self.voters().map(ask).collect());
        let needed = usize::from(self.shape.quorum.thresholds().answers);
        let mut all: Vec<Vec<Run>> = Vec::new();
        while all.len() < needed {
            let Some(said) = asked.next().await else {
                self.nodes.goes_on()?;
                return Err(why(&refused));
            };
            refused.extend(said.what.as_ref().err());
            if refused.len() > count_all - needed {
                return Err(why(&refused));
            }
            if let Ok((NodeAnswer::Present { runs }, _)) = said.what
                && runs.iter().any(|run| run.length > 0)
            {
                all.push(runs);
            }
        }
        Ok(united(&all, count))
    }
}

impl<W: World, N: Nodes> Column<W, N> {
    /// The same of bytes: runs from the first one on.
    pub async fn status(&self, offset: u64, length: u64) -> Result<Vec<(u64, bool)>, IoError> {
        let blocks = offset / BLOCK..(offset + length).div_ceil(BLOCK);
        let mut at = blocks.start * BLOCK;
        let mut runs = Vec::new();
        for run in self.present(blocks).await? {
            let end = at + run.length * BLOCK;
            let (from, to) = (at.clamp(offset, offset + length), end.clamp(offset, offset + length));
            if from < to {
                runs.push((to - from, run.holds));
            }
            at = end;
        }
        Ok(runs)
    }
}

/// Up to where the first of them ends.
fn united(all: &[Vec<Run>], most: u64) -> Vec<Run> {
    let end_of = |runs: &Vec<Run>| runs.iter().fold(0u64, |end, run| end.saturating_add(run.length));
    let end = all.iter().map(end_of).min().unwrap_or(0).min(most);
    let mut ends: Vec<(u64, i32)> = Vec::new();
    for runs in all {
        let mut at: u64 = 0;
        for run in runs {
            let next = at.saturating_add(run.length).min(end);
            if run.holds && at < next {
                ends.extend([(at, 1), (next, -1)]);
            }
            at = next;
        }
    }
    ends.sort_unstable();
    let mut runs: Vec<Run> = Vec::new();
    let (mut at, mut depth) = (0, 0);
    for (place, change) in ends.into_iter().chain([(end, 0)]) {
        if place > at {
            match runs.last_mut() {
                Some(last) if last.holds == (depth > 0) => last.length += place - at,
                _ => runs.push(Run { length: place - at, holds: depth > 0 }),
            }
            at = place;
        }
        depth += change;
    }
    runs
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn what_any_node_holds_is_held() {
        let run = |length, holds| Run { length, holds };
        let one = vec![run(2, false), run(3, true), run(5, false)];
        let other = vec![run(4, false), run(2, true), run(1, false)];
        assert_eq!(united(&[one.clone(), other], 10), [run(2, false), run(4, true), run(1, false)]);
        assert_eq!(united(&[one], 4), [run(2, false), run(2, true)]);
    }
}
