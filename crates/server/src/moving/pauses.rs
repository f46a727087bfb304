//! Drives to which a move was called off, most often for want of room: how long none is begun to them.

use super::room::{DriveSpace, Spaces};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tepal_model::DriveId;

/// After the first move that is called off, and at most. Each time it's twice as long.
const SHORTEST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(600);
/// A drive that has so much more room, in parts of what it has when empty, is tried at once.
const MORE: u64 = 50;

#[derive(Debug, Default)]
pub struct Pauses(BTreeMap<DriveId, Pause>);

#[derive(Debug)]
struct Pause {
    began: Instant,
    length: Duration,
    /// What was left of the drive, if that was known.
    left: Option<u64>,
}

impl Pauses {
    /// A move to this drive was called off. Several that were under way at a time count as one.
    pub fn called_off(&mut self, to: DriveId, spaces: &Spaces, now: Instant) {
        let left = spaces.get(&to).map(DriveSpace::left);
        match self.0.get_mut(&to) {
            Some(pause) if pause.is_over(now) => {
                *pause = Pause { began: now, length: (pause.length * 2).min(LONGEST), left };
            }
            Some(_) => {}
            None => drop(self.0.insert(to, Pause { began: now, length: SHORTEST, left })),
        }
    }

    /// A move to this drive was done.
    pub fn done(&mut self, to: DriveId) {
        self.0.remove(&to);
    }

    /// Drives that have more room now aren't waited for, nor those that are gone.
    pub fn look(&mut self, spaces: &Spaces) {
        let has_more = |before: Option<u64>, now: &DriveSpace| {
            before.is_some_and(|before| now.left() > before.saturating_add(now.capacity / MORE))
        };
        self.0.retain(|id, pause| spaces.get(id).is_none_or(|now| !has_more(pause.left, now)));
    }

    pub fn holds(&self, to: DriveId, now: Instant) -> bool {
        self.0.get(&to).is_some_and(|pause| !pause.is_over(now))
    }
}

impl Pause {
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.began) >= self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVE: DriveId = DriveId(7);

    fn with_left(left: u64) -> Spaces {
        [(DRIVE, DriveSpace { capacity: 1000, used: 1000 - left })].into()
    }

    #[test]
    fn each_move_that_is_called_off_makes_the_next_wait_longer_until_there_is_room() {
        let (mut pauses, mut now, mut waited) = (Pauses::default(), Instant::now(), Vec::new());
        for _ in 0..9 {
            pauses.called_off(DRIVE, &with_left(10), now);
            pauses.called_off(DRIVE, &with_left(10), now); // another that was under way
            pauses.look(&with_left(20));
            let began = now;
            while pauses.holds(DRIVE, now) {
                now += Duration::from_secs(1);
            }
            waited.push((now - began).as_secs());
        }
        assert_eq!(waited, [5, 10, 20, 40, 80, 160, 320, 600, 600]);
        pauses.called_off(DRIVE, &with_left(10), now);
        pauses.look(&with_left(31));
        assert!(!pauses.holds(DRIVE, now));
        pauses.called_off(DRIVE, &with_left(31), now);
        assert!(pauses.holds(DRIVE, now + SHORTEST / 2) && !pauses.holds(DRIVE, now + SHORTEST));
        pauses.done(DRIVE);
        assert!(!pauses.holds(DRIVE, now));
    }
}
