//! Emptying what is given up: a region of which too few fragments are left, by an operator's word.

use super::stripe::Stripe;
use crate::column::background::Stuck;
use crate::column::members::RegionState;
use crate::column::read::Failed;
use crate::column::{Blocks, Group, State};
use crate::map::ROWS;
use crate::protocol::copies::recover::Copy;
use tepal_drive::world::World;

impl<W: World> Group<W> {
    /// Takes out all that members hold of a given-up region, in place and in the log, in each line of the map's history.
    pub(super) async fn empty_region(&self, region: u64) -> Result<(), Stuck> {
        let (first, count) = self.shared.column.blocks_of(region);
        for stripe in Stripe::touched(&self.shared.column, Blocks::new(first, count)) {
            let blocks = stripe.blocks();
            let _turn = self.shared.order.line_up_repair(blocks.first, blocks.count).turn().await;
            loop {
                let (members, changes) = {
                    let mut state = self.lock();
                    state.serves().map_err(Stuck::Failed)?;
                    if state.members.clean(region) != RegionState::GivenUp || !state.members.are_all_here() {
                        return Err(Stuck::Waits(Group::next_change(&mut state)));
                    }
                    (self.parts_of_all(&state, stripe), state.changes)
                };
                match self.empty_stripe(members).await {
                    Ok(()) if self.lock().changes == changes => break,
                    Ok(()) => {} // a drive that came or went may hold something yet
                    Err(Failed::Lost(id, loss)) => self.lose(vec![(id, loss)]).await,
                    Err(Failed::Away) => {} // the lines are others by now
                    Err(Failed::Io(error)) => return Err(Stuck::Failed(error)),
                }
                self.shared.world.give_way().await;
            }
            self.shared.log.lock().stripes.remove(&stripe.number);
        }
        Ok(())
    }

    /// The rows of a stripe in place on all members that are here, and its blocks in their logs, each with the number of blocks.
    fn parts_of_all(&self, state: &State<W>, stripe: Stripe) -> [(Vec<Copy<W>>, u64); 2] {
        [(stripe.rows(&(0..ROWS)), ROWS), (stripe.blocks(), stripe.blocks().count)].map(|(blocks, count)| {
            let members = 0..state.members.list.len();
            (members.filter_map(|at| self.copy(state, at, blocks.first)).collect(), count)
        })
    }

    async fn empty_stripe(&self, parts: [(Vec<Copy<W>>, u64); 2]) -> Result<(), Failed> {
        for (members, count) in parts {
            for line in self.lines(count, members.iter()).await? {
                for member in &members {
                    self.uncover_run(&member.on(&line), &(0..count), &[]).await?;
                }
            }
        }
        Ok(())
    }
}
