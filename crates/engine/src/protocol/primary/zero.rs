//! Zeros, with space or without, and what lies past a volume's end.

use super::members::{Copies, NOT_MISSED};
use super::order::Place;
use super::write::{Data, Written};
use super::{Blocks, Group, HasTurn, State};
use crate::seen_through::{Asker, SeenThrough};
use std::collections::BTreeSet;
use std::ops::Range;
use tepal_drive::world::{Gather, World};
use tepal_model::{BLOCK, Buffer, EXTENT, IoError};

/// Blocks are taken out in steps of this many bytes, so that marks and turns stay small.
const STEP: u64 = 64 << 20;
/// Zeros that are to be allocated are written in steps of this many bytes.
const ZEROS_STEP: u64 = 1 << 20;

impl<W: World> Group<W> {
    /// Zeros, stable when this returns; `allocate` keeps the space.
    pub async fn zero(&self, Range { start: from, end }: Range<u64>, allocate: bool) -> Result<(), IoError> {
        let step = if allocate { ZEROS_STEP } else { STEP };
        let mut at = from;
        while at < end {
            let next = ((at / step + 1) * step).min(end);
            let (inner, inner_end) = (at.next_multiple_of(BLOCK), next / BLOCK * BLOCK);
            if allocate || inner >= inner_end {
                self.write(at, zeros(at..next), true).await?;
            } else {
                let place = self.line_up(Blocks::touched(at, next));
                let group = self.clone();
                let clear = |asker| async move { group.clear(place, asker, at..next, inner..inner_end).await };
                SeenThrough::new(self.shared.world.clone(), clear).await?;
            }
            at = next;
        }
        Ok(())
    }

    /// Takes out what lies past the volume's end: what was cut off doesn't come back when the volume grows again. No two
    /// of these, nor a change of size, may be under way at a time.
    pub async fn clear_past(&self, end: u64) -> Result<(), IoError> {
        let steps = loop {
            let change = {
                let mut state = self.lock();
                state.serves()?;
                if state.members.clean(NOT_MISSED) != Copies::Waiting {
                    break self.steps_past(&state, end);
                }
                Group::next_change(&mut state) // those who know what there is are away
            };
            let _ = change.await; // dropped unsent only when the volume goes
        };
        // Only where something is: there may be exbibytes between.
        for step in steps {
            self.zero(end.max(step * STEP)..(step + 1) * STEP, false).await?;
        }
        Ok(())
    }

    /// The steps in which something lies past the end, or may: where all that have it are away.
    fn steps_past(&self, state: &State<W>, end: u64) -> BTreeSet<u64> {
        let column = &self.shared.column;
        let waits = |&region: &u64| state.members.clean(region) == Copies::Waiting;
        let away = state.members.list.iter().flat_map(|member| member.missed.regions()).filter(waits);
        let runs =
            self.extents(state).map(|first| (first, EXTENT / BLOCK)).chain(away.map(|region| column.blocks_of(region)));
        runs.filter(|(first, count)| (first + count) * BLOCK > end).map(|(first, _)| first * BLOCK / STEP).collect()
    }

    /// The first blocks of the drives' extents that hold anything.
    pub fn extents(&self, state: &State<W>) -> impl Iterator<Item = u64> {
        let column = self.shared.column;
        let members = state.members.list.iter().enumerate();
        members.flat_map(move |(at, member)| {
            let extents = member.drive().map(|drive| drive.extents_of(column.map)).unwrap_or_default();
            let places = extents.into_iter().map(move |first| column.at_place(first));
            places.filter(move |&(copy, _)| copy == at).map(|(_, block)| block)
        })
    }

    /// Takes out the whole blocks, `inner`, and merges the edges.
    async fn clear(&self, place: Place, asker: Asker, all: Range<u64>, inner: Range<u64>) -> Result<(), IoError> {
        let blocks = Blocks::touched(all.start, all.end);
        let (mut turn, mut begun) = (place.turn().await, false);
        loop {
            match self.clear_under_turn(&turn, &all, &inner).await? {
                Written::Done => return Ok(()),
                Written::Waits { change, begun: now } => {
                    begun |= now;
                    turn = self.wait_for_copies(turn, &asker, change, begun, blocks).await?;
                }
            }
        }
    }

    async fn clear_under_turn(&self, turn: &HasTurn, all: &Range<u64>, inner: &Range<u64>) -> Result<Written, IoError> {
        let mut edges_begun = false;
        for edge in [all.start..inner.start, inner.end..all.end] {
            if edge.is_empty() {
                continue;
            }
            let data = Gather::from_iter([self.merge_edges(edge.start, &zeros(edge.clone())).await?]);
            let data = Data::new(edge.start / BLOCK, data);
            if let Written::Waits { change, begun } = self.write_blocks(turn, data, true).await? {
                return Ok(Written::Waits { change, begun: begun || edges_begun });
            }
            edges_begun = true;
        }
        match self.clear_blocks(turn, Blocks::touched(inner.start, inner.end)).await? {
            Written::Waits { change, begun } => Ok(Written::Waits { change, begun: begun || edges_begun }),
            Written::Done => Ok(Written::Done),
        }
    }
}

fn zeros(range: Range<u64>) -> Gather {
    Gather::from_iter([Buffer::zeroed((range.end - range.start) as usize).freeze()])
}
