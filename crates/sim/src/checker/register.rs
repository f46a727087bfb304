//! One block as an atomic register: what it may hold, given everything that was asked and answered (after Wing and Gong
//! 1993, and Lowe 2017: the search goes on as answers come in).
//!
//! A [`State`] is one way in which the past may have happened. Invariants:
//! 1. Every state explains every answer so far; if none is left, an answer was wrong.
//! 2. A write that is under way, or of which nobody knows whether it was done, may be in a state or not. A state without it
//!    stands for those that apply it later too, so states are extended only when an answer asks for it.
//! 3. A write that can't be under way any more is never applied after an operation that began later.

use super::content::{Content, Span};
use super::pattern::{OpId, Value};
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeSet;

/// Position in the order of all that the checker was told.
pub type Moment = u64;

/// What a write makes of the block.
#[derive(Clone, Debug)]
pub enum Change {
    /// Some of its bytes are written over.
    Over(Span, Value),
    /// It's what it once was.
    Whole(Content),
}

impl Change {
    fn of(&self, before: &Content) -> Content {
        match self {
            Change::Over(span, value) => before.overlaid(span, *value),
            Change::Whole(content) => content.clone(),
        }
    }
}

#[derive(Clone, Debug)]
struct Pending {
    op: OpId,
    change: Change,
    begun: Moment,
    /// When its request ended without an answer that says whether it was done.
    over: Option<Moment>,
    /// When the machine that worked on it crashed.
    dead: Option<Moment>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    /// Which of the pending writes are in.
    applied: SmallVec<[OpId; 4]>,
    /// What the block held, one after another, since the oldest read under way began. The last is what it holds.
    path: SmallVec<[Content; 1]>,
    /// From which point of the path each read under way may have seen it.
    reads: SmallVec<[(OpId, u16); 2]>,
}

impl State {
    fn fresh(content: Content) -> Self {
        State { applied: SmallVec::new(), path: smallvec![content], reads: SmallVec::new() }
    }

    fn content(&self) -> &Content {
        self.path.last().expect("a path has an end")
    }

    fn with(&self, write: &Pending) -> Self {
        let mut next = self.clone();
        let place = next.applied.partition_point(|&op| op < write.op);
        next.applied.insert(place, write.op);
        next.path.push(write.change.of(self.content()));
        next.forget_path();
        next
    }

    /// Drops the part of the path that no read may see any more.
    fn forget_path(&mut self) {
        let end = self.path.len() as u16 - 1;
        let needed = self.reads.iter().map(|&(_, from)| from).min().unwrap_or(end);
        if needed > 0 {
            self.path.drain(..usize::from(needed));
            self.reads.iter_mut().for_each(|(_, from)| *from -= needed);
        }
    }

    /// From here on the read can only see what the block holds now.
    fn hide_past_from(&mut self, read: OpId) {
        let end = self.path.len() as u16 - 1;
        self.reads.iter_mut().filter(|(op, _)| *op == read).for_each(|(_, from)| *from = end);
        self.forget_path();
    }

    fn seen_by(&self, read: OpId) -> &[Content] {
        let from = self.reads.iter().find(|&&(op, _)| op == read).map_or(0, |&(_, from)| from);
        &self.path[usize::from(from)..]
    }
}

/// What the block may have held after the last flush, and until when; power loss may bring it back.
#[derive(Clone, Debug)]
struct Past {
    content: Content,
    applied: SmallVec<[OpId; 4]>,
    until: Moment,
}

/// If more can have become of a block than this, it counts as unknown: judging it would take too long.
const MOST_AFTER_LOSS: usize = 64;

/// No way is left in which the answers make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contradiction;

#[derive(Clone, Debug)]
pub struct Register {
    states: Vec<State>,
    pending: Vec<Pending>,
    past: Vec<Past>,
    keeps_past: bool,
}

impl Register {
    /// A block of which that is known. `keeps_past`: acknowledged writes may be lost with the power until they're flushed.
    pub fn new(content: Content, keeps_past: bool) -> Self {
        let states = vec![State::fresh(content)];
        Register { states, pending: Vec::new(), past: Vec::new(), keeps_past }
    }

    /// How many writes are under way or unsettled, how many reads are under way, and how often the block has changed since
    /// the oldest of them began. The ways in which it may have happened grow with each of these by a factor.
    pub fn load(&self) -> usize {
        let reads = self.states.first().map_or(0, |state| state.reads.len());
        let changes = self.states.iter().map(|state| state.path.len() - 1).max().unwrap_or(0);
        self.pending.len() + reads + changes
    }

    pub fn begin_write(&mut self, op: OpId, change: Change, begun: Moment) {
        self.pending.push(Pending { op, change, begun, over: None, dead: None });
    }

    pub fn begin_read(&mut self, op: OpId) {
        for state in &mut self.states {
            state.reads.push((op, state.path.len() as u16 - 1));
        }
    }

    /// The write was acknowledged. `durable`: so that it survives power loss.
    pub fn end_write(&mut self, op: OpId, durable: bool, now: Moment) -> Result<(), Contradiction> {
        // It was settled already if its client was fenced, and others have written since.
        let Some(begun) = self.pending.iter().find(|write| write.op == op).map(|write| write.begun) else {
            return Ok(());
        };
        self.narrow(now, &[], None, |state| state.applied.contains(&op))?;
        if durable {
            self.past.retain(|past| past.applied.contains(&op));
        }
        self.settle(|write| write.op == op || write.over.is_some_and(|over| over < begun));
        Ok(())
    }

    /// The read returned; `fits` says which contents show what it returned. `settles`: a write whose machine had
    /// crashed before the read began is done by now, or never will be.
    pub fn end_read(
        &mut self,
        op: OpId,
        fits: impl Fn(&Content) -> bool,
        settles: Option<Moment>,
        now: Moment,
    ) -> Result<(), Contradiction> {
        let settled = |write: &Pending| settles.zip(write.dead).is_some_and(|(begun, dead)| dead < begun);
        let settled: SmallVec<[OpId; 4]> = self.pending.iter().filter(|w| settled(w)).map(|w| w.op).collect();
        self.narrow(now, &settled, Some(op), |state| state.seen_by(op).iter().any(&fits))?;
        self.end_read_unseen(op);
        if !settled.is_empty() {
            self.settle(|write| settled.contains(&write.op));
        }
        Ok(())
    }

    /// Whether the block may have shown this at some time since the read began. Other than by a read's answer, nothing is
    /// settled by it: who asks what is mapped doesn't wait for the writes that are under way.
    pub fn may_show(&self, op: OpId, fits: impl Fn(&Content) -> bool) -> bool {
        let shows = |state: &State| state.seen_by(op).iter().any(&fits);
        self.states.iter().any(shows) || self.reachable().iter().any(shows)
    }

    /// The read gave nothing.
    pub fn end_read_unseen(&mut self, op: OpId) {
        for state in &mut self.states {
            state.reads.retain(|&mut (read, _)| read != op);
            state.forget_path();
        }
        self.merge();
    }

    /// Nobody will learn whether this write was done.
    pub fn abandon_write(&mut self, op: OpId, now: Moment) {
        if let Some(write) = self.pending.iter_mut().find(|write| write.op == op) {
            write.over.get_or_insert(now);
        }
    }

    /// The write was refused: none of it may ever be seen.
    pub fn refuse_write(&mut self, op: OpId) -> Result<(), Contradiction> {
        if self.states.iter().all(|state| state.applied.contains(&op)) {
            return Err(Contradiction);
        }
        self.states.retain(|state| !state.applied.contains(&op));
        self.past.retain(|past| !past.applied.contains(&op));
        self.settle(|write| write.op == op);
        Ok(())
    }

    /// A flush that began at `begun` was acknowledged: what was overwritten before that can't come back.
    pub fn flushed(&mut self, begun: Moment) {
        self.past.retain(|past| past.until >= begun);
    }

    /// The machine crashed: nothing of it goes on.
    pub fn crashed(&mut self, now: Moment) {
        for write in &mut self.pending {
            write.over.get_or_insert(now);
            write.dead.get_or_insert(now);
        }
    }

    /// The power failed. Every request was abandoned before.
    pub fn power_lost(&mut self) {
        if self.keeps_past {
            self.states = self.possible_or_past().into_iter().map(State::fresh).collect();
            self.past.clear();
            self.pending.clear();
        }
    }

    /// The block is this from now on, whatever became of it; nothing is under way.
    pub fn restore(&mut self, content: Content) {
        self.states = vec![State::fresh(content)];
        self.past.clear();
        self.pending.clear();
    }

    /// The only drive that had all of this block was without power, while requests are under way.
    pub fn cache_lost(&mut self) {
        if !self.keeps_past {
            return;
        }
        let (mut seen, mut left) = (self.reachable(), self.possible_or_past());
        self.past.clear();
        if seen.len() * left.len() > MOST_AFTER_LOSS {
            let mut any = self.states[0].clone();
            any.path = smallvec![Content::of(Value::Anything)];
            any.applied = self.pending.iter().map(|write| write.op).collect();
            any.applied.sort_unstable();
            any.reads.iter_mut().for_each(|(_, from)| *from = 0);
            (seen, left) = (BTreeSet::from([any]), BTreeSet::from([Content::of(Value::Anything)]));
        }
        // A write under way may have been undone; it'll be made again. Or nothing was lost, and a part of it that was done
        // before stays done. A read under way may have seen both.
        let after = |seen: &State, content: &Content| {
            let mut state = State { applied: SmallVec::new(), ..seen.clone() };
            state.path.push(content.clone());
            state.forget_path();
            state
        };
        let lost = seen.iter().flat_map(|seen| left.iter().map(|content| after(seen, content)));
        let states: BTreeSet<State> = lost.chain(seen.iter().cloned()).collect();
        self.states = states.into_iter().collect();
    }

    /// What a read that begins now may return.
    pub fn possible(&self) -> BTreeSet<Content> {
        self.reachable().iter().map(|state| state.content().clone()).collect()
    }

    fn possible_or_past(&self) -> BTreeSet<Content> {
        self.possible().into_iter().chain(self.past.iter().map(|past| past.content.clone())).collect()
    }

    /// Every state there can be, whichever of the pending writes are in.
    fn reachable(&self) -> BTreeSet<State> {
        let mut reached = BTreeSet::new();
        let mut open = self.states.clone();
        while let Some(state) = open.pop() {
            if reached.insert(state.clone()) {
                open.extend(self.pending.iter().filter(|write| self.may_follow(&state, write)).map(|w| state.with(w)));
            }
        }
        reached
    }

    /// Keeps the states of which `goal` is true, and the shortest extensions of the others of which it is. Writes that
    /// `read` settles can't be added later, so what they'd make of a state is kept too; they came before the read.
    fn narrow(
        &mut self,
        now: Moment,
        settled: &[OpId],
        read: Option<OpId>,
        goal: impl Fn(&State) -> bool,
    ) -> Result<(), Contradiction> {
        if settled.is_empty() && self.states.iter().all(&goal) {
            return Ok(());
        }
        let mut found = BTreeSet::new();
        let mut visited = BTreeSet::new();
        let mut open = self.states.clone();
        while let Some(state) = open.pop() {
            let reached = goal(&state);
            let fresh = if reached { found.insert(state.clone()) } else { visited.insert(state.clone()) };
            if !fresh {
                continue;
            }
            for write in self.pending.iter().filter(|write| self.may_follow(&state, write)) {
                let settles = settled.contains(&write.op);
                if settles || !reached {
                    let mut next = state.with(write);
                    read.filter(|_| settles).into_iter().for_each(|read| next.hide_past_from(read));
                    open.push(next);
                }
            }
        }
        if self.keeps_past {
            self.past.extend(visited.into_iter().map(|state| Past {
                content: state.content().clone(),
                applied: state.applied,
                until: now,
            }));
        }
        if found.is_empty() {
            return Err(Contradiction); // the states stay, for the story
        }
        self.states = found.into_iter().collect();
        Ok(())
    }

    fn may_follow(&self, state: &State, write: &Pending) -> bool {
        let later = |op: &OpId| {
            let begun = self.pending.iter().find(|other| other.op == *op).map(|other| other.begun);
            write.over.zip(begun).is_some_and(|(over, begun)| over < begun)
        };
        !state.applied.contains(&write.op) && !state.applied.iter().any(later)
    }

    /// These writes are in or they never will be.
    fn settle(&mut self, settled: impl Fn(&Pending) -> bool) {
        for write in self.pending.extract_if(.., |write| settled(write)) {
            for state in &mut self.states {
                state.applied.retain(|op| *op != write.op);
            }
        }
        self.merge();
    }

    /// Joins states that have become equal, and drops those that an other stands for: one in which fewer unsettled writes
    /// are used up.
    fn merge(&mut self) {
        if self.states.len() < 2 {
            return;
        }
        self.states.sort();
        self.states.dedup();
        let over: SmallVec<[OpId; 8]> = self.pending.iter().filter(|w| w.over.is_some()).map(|w| w.op).collect();
        if over.is_empty() {
            return;
        }
        let stands_for = |one: &State, other: &State| {
            one.applied.len() < other.applied.len()
                && one.path == other.path
                && one.reads == other.reads
                && one.applied.iter().all(|op| other.applied.contains(op))
                && other.applied.iter().all(|op| one.applied.contains(op) || over.contains(op))
        };
        let covered: Vec<bool> = self.states.iter().map(|o| self.states.iter().any(|one| stands_for(one, o))).collect();
        let mut covered = covered.into_iter();
        self.states.retain(|_| !covered.next().unwrap_or(false));
    }
}
