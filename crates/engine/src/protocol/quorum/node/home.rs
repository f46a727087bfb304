//! What a node knows of blocks at home.

use super::bytes::{Home, homes_of};
use super::{Node, REMEMBERED, State};
use std::ops::Range;
use std::sync::Arc;
use tepal_drive::DriveError;
use tepal_drive::world::World;

impl<W: World> Node<W> {
    /// Which blocks of homes these blocks' are among.
    pub(super) fn homes_with(&self, blocks: &Range<u64>) -> Range<u64> {
        let together = self.shape().homes_together();
        blocks.start / together..blocks.end.div_ceil(together)
    }

    /// The drive's block that tells of homes.
    pub(super) fn homes_place(&self, number: u64) -> u64 {
        self.0.parts[1] + number
    }

    /// Sees to it that the homes of these blocks are remembered, and looks at them with the state, all at one moment.
    pub(super) async fn with_homes<T>(
        &self,
        blocks: &Range<u64>,
        look: impl FnOnce(&mut State, &[Arc<Vec<Home>>]) -> T,
    ) -> Result<T, DriveError> {
        let numbers = self.homes_with(blocks);
        let mut read: Vec<(u64, Arc<Vec<Home>>)> = Vec::new();
        let mut moves = self.lock().moves;
        loop {
            let missing: Vec<u64> = {
                let mut state = self.lock();
                if state.moves == moves {
                    read.drain(..).for_each(|(number, homes)| state.remember(number, homes));
                } else {
                    read.clear();
                }
                moves = state.moves;
                let missing: Vec<u64> = numbers.clone().filter(|number| !state.homes.contains_key(number)).collect();
                if missing.is_empty() {
                    let homes: Vec<Arc<Vec<Home>>> = numbers.map(|number| state.homes[&number].clone()).collect();
                    let seen = look(&mut state, &homes);
                    state.forget_homes();
                    return Ok(seen);
                }
                missing
            };
            for number in missing {
                let together = self.shape().homes_together();
                let homes = match self.read_blocks(self.homes_place(number), 1).await {
                    Ok(block) => homes_of(&block, number * together, self.shape()),
                    // Which versions there were is known no more: the node says nothing of these blocks until they are written to it.
                    Err(DriveError::Damaged { .. }) => {
                        (0..together).map(|_| Home { is_lost: true, ..Home::default() }).collect()
                    }
                    Err(error) => return Err(error),
                };
                read.push((number, Arc::new(homes)));
            }
        }
    }
}

impl State {
    /// Homes that are remembered already stay as they are.
    fn remember(&mut self, number: u64, homes: Arc<Vec<Home>>) {
        if self.homes.contains_key(&number) {
            return;
        }
        self.homes.insert(number, homes);
        self.remembered.push_back(number);
    }

    /// Forgets what was remembered first, beyond what a node may remember. Not while something moves home.
    pub(super) fn forget_homes(&mut self) {
        while self.remembered.len() > REMEMBERED && !self.is_settling {
            let Some(number) = self.remembered.pop_front() else { return };
            self.homes.remove(&number);
        }
    }
}
