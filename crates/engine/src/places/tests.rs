//! Every history of up to five servers and eight steps, against an oracle that knows which writes were acknowledged. Of a copy the
//! oracle only remembers whether it has all of them, so histories that come to the same are followed once.

use super::*;
use std::collections::BTreeSet;

/// One step: of which server, or of a client.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The process ends, and its drive is away.
    Kill(usize),
    /// The process begins again, or its network is whole again.
    Start(usize),
    /// The drive is gone for good, with its server.
    Lose(usize),
    /// The server runs, and reaches nobody.
    Cut(usize),
    /// Acknowledged, if it can be.
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Server {
    Runs,
    IsDead,
    IsCutOff,
    IsLost,
}

/// What is so, what is agreed, and what the oracle knows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    servers: Vec<Server>,
    /// Drives that are up, as agreed.
    up: BTreeSet<usize>,
    /// Drives that have failed, as agreed.
    failed: BTreeSet<usize>,
    /// Copies that aren't complete, as agreed; the views don't matter for who comes to the same.
    incomplete: BTreeSet<usize>,
    /// Of each copy, whether it has every acknowledged write.
    has_all: Vec<bool>,
}

/// Servers whose votes count are the first ones; copies are on the first ones.
struct Shape {
    servers: usize,
    voters: usize,
    copies: usize,
}

impl World {
    fn new(shape: &Shape) -> Self {
        World {
            servers: vec![Server::Runs; shape.servers],
            up: (0..shape.copies).collect(),
            failed: BTreeSet::new(),
            incomplete: BTreeSet::new(),
            has_all: vec![true; shape.copies],
        }
    }

    fn places(&self) -> Places {
        let holders = (0..self.has_all.len()).map(|at| Placing { drive: DriveId(at as u64), since: 1 });
        let mut places = Places::complete(vec![Placed { holders: holders.collect(), joins: None, in_place_of: 0 }]);
        let passed = |&at: &usize| ((0, DriveId(at as u64)), CopyStatus::PassedOver(1));
        places.incomplete = self.incomplete.iter().map(passed).collect();
        places
    }

    fn follow(&mut self, places: &Places) {
        self.incomplete = places.incomplete.keys().map(|(_, drive)| drive.0 as usize).collect();
    }

    fn has_majority(&self, shape: &Shape) -> bool {
        (0..shape.voters).filter(|&at| self.servers[at] == Server::Runs).count() > shape.voters / 2
    }

    /// Copies on servers that run and reach the others.
    fn here(&self) -> BTreeSet<usize> {
        (0..self.has_all.len()).filter(|&at| self.servers[at] == Server::Runs).collect()
    }

    /// The copies that requests are answered from.
    fn believed(&self, shape: &Shape) -> BTreeSet<usize> {
        let places = self.places();
        let complete = |at: &usize| places.status(0, DriveId(*at as u64)) == CopyStatus::Complete;
        if self.has_majority(shape) { self.here().into_iter().filter(complete).collect() } else { BTreeSet::new() }
    }

    /// What happens by itself while a majority is there: who is away is declared down, one after another; who is back catches up.
    fn settle(&mut self, shape: &Shape) {
        if !self.has_majority(shape) {
            return;
        }
        let here = self.here();
        self.up.retain(|at| here.contains(at));
        let lost = (0..self.has_all.len()).filter(|&at| self.servers[at] == Server::IsLost);
        self.failed.extend(lost);
        if self.believed(shape).is_empty() {
            return; // nobody can tell what those that are back miss
        }
        for at in here {
            self.has_all[at] = true;
            self.up.insert(at);
            let (failed, mut places) = (self.failed.clone(), self.places());
            places.is_up_again(DriveId(at as u64), |drive| failed.contains(&(drive.0 as usize)));
            self.follow(&places);
        }
    }

    fn write(&mut self, shape: &Shape) {
        if self.believed(shape).is_empty() {
            return; // it waits, or fails
        }
        let (here, mut places) = (self.here(), self.places());
        let passed: Vec<usize> = (0..self.has_all.len()).filter(|at| !here.contains(at)).collect();
        let change = CopyChange { passed: passed.iter().map(|&at| DriveId(at as u64)).collect(), complete: Vec::new() };
        assert!(places.count(0, &change, 1, 1), "a complete copy is here: {self:?}");
        self.follow(&places);
        passed.into_iter().for_each(|at| self.has_all[at] = false);
    }

    fn after(&self, step: Step, shape: &Shape) -> Self {
        let mut next = self.clone();
        match step {
            Step::Kill(at) if next.servers[at] != Server::IsLost => next.servers[at] = Server::IsDead,
            Step::Start(at) if next.servers[at] != Server::IsLost => next.servers[at] = Server::Runs,
            Step::Cut(at) if next.servers[at] == Server::Runs => next.servers[at] = Server::IsCutOff,
            Step::Lose(at) => next.servers[at] = Server::IsLost,
            Step::Kill(_) | Step::Start(_) | Step::Cut(_) => {}
            Step::Write => next.write(shape),
        }
        next.settle(shape);
        next
    }

    /// The promise.
    fn check(&self, shape: &Shape) {
        let believed = self.believed(shape);
        for &at in &believed {
            assert!(self.has_all[at], "an acknowledged write is lost: {self:?}");
        }
        let can_be_served = self.has_majority(shape) && self.here().iter().any(|&at| self.has_all[at]);
        assert!(!can_be_served || !believed.is_empty(), "a complete copy isn't served: {self:?}");
    }
}

#[test]
fn no_history_loses_a_write_or_waits_beside_a_complete_copy() {
    let shapes = [(1, 1, 1), (2, 1, 2), (3, 3, 1), (3, 3, 2), (3, 3, 3), (4, 3, 2), (5, 5, 2), (5, 5, 3), (5, 3, 3)];
    for (servers, voters, copies) in shapes {
        let shape = Shape { servers, voters, copies };
        let mut steps = vec![Step::Write];
        for at in 0..servers {
            steps.extend([Step::Kill(at), Step::Start(at), Step::Lose(at), Step::Cut(at)]);
        }
        let first = World::new(&shape);
        let (mut seen, mut newest) = (BTreeSet::from([first.clone()]), vec![first]);
        for _ in 0..8 {
            let mut next = Vec::new();
            for world in &newest {
                for &step in &steps {
                    let after = world.after(step, &shape);
                    after.check(&shape);
                    if seen.insert(after.clone()) {
                        next.push(after);
                    }
                }
            }
            newest = next;
        }
    }
}
