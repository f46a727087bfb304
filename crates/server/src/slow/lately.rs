//! What a device has done lately, while slow requests are watched: a write waits for a batch of the drive's log, which others have
//! begun, so its own trace doesn't go there.

use super::trace::{Kind, Place, Step};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Operations that are remembered.
const REMEMBERED: usize = 512;
/// Of these, the longest that are told of one step.
const TOLD: usize = 8;
/// Steps that were done sooner waited for no device.
const WORTH_TELLING: Duration = Duration::from_millis(1);

/// One operation of a device, that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    pub name: &'static str,
    pub bytes: u64,
    pub began: Instant,
    pub took: Duration,
}

#[derive(Debug, Default)]
pub struct Lately(Mutex<VecDeque<Done>>);

impl Lately {
    pub fn note(&self, done: Done) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= REMEMBERED {
            all.pop_front();
        }
        all.push_back(done);
    }

    /// Adds to a step that has just ended what the device did meanwhile.
    pub fn tell(&self, step: &Place) {
        let (began, ended) = (step.began(), Instant::now());
        if ended - began < WORTH_TELLING {
            return;
        }
        let mut met: Vec<Done> = {
            let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.iter().filter(|done| done.began + done.took > began && done.began < ended).copied().collect()
        };
        met.sort_by_key(|done| std::cmp::Reverse(done.took));
        met.truncate(TOLD);
        met.sort_by_key(|done| done.began);
        for Done { name, bytes, began, took } in met {
            let step_of = Step::new(name, Kind::Internal).note("tepal.bytes", bytes);
            step.add_past(step_of, (began, took));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trace::Trace;
    use super::*;

    #[test]
    fn a_step_is_told_the_longest_that_was_done_meanwhile() {
        let lately = Lately::default();
        let before = Instant::now();
        let request = Trace::begin(Step::new("write", Kind::Server));
        let ms = Duration::from_millis;
        std::thread::sleep(2 * WORTH_TELLING);
        lately.note(Done { name: "device flush", bytes: 0, began: before - ms(9), took: ms(5) });
        for number in 1..=20 {
            lately.note(Done { name: "device write", bytes: number, began: before, took: ms(number) });
        }
        lately.tell(&request);
        let steps = request.trace().steps();
        let bytes: Vec<_> = steps[1..].iter().map(|step| step.notes.clone()).collect();
        let longest: Vec<_> = (13..=20).rev().map(|number: u64| vec![("tepal.bytes", number.into())]).collect();
        assert_eq!(bytes, longest);
        assert!(steps[1..].iter().all(|step| step.name == "device write" && step.within == Some(0)));
    }
}
