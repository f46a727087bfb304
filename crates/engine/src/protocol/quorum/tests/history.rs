//! Whether what clients of one block saw is what one block after the other would have done: linearizability of a register whose writes
//! are all different (Gibbons and Korach 1997).

use std::collections::BTreeMap;
use std::time::Duration;

/// What a client did with one block. A request that has no end may have been done, now or later.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    pub is_write: bool,
    /// 0 is what the block had at first.
    pub value: u64,
    pub begun: Duration,
    pub ended: Option<Duration>,
}

/// From the first moment at which a value was surely there to the last one at which it was surely still there; or the other way
/// round, if it need never have been there for long.
#[derive(Clone, Copy, Debug)]
struct Zone {
    value: u64,
    first_end: Duration,
    last_begin: Duration,
}

impl Zone {
    fn is_forward(&self) -> bool {
        self.first_end < self.last_begin
    }
}

/// An error that says what is wrong.
pub fn check(history: &[Done]) -> Result<(), String> {
    let mut of: BTreeMap<u64, Vec<Done>> = BTreeMap::new();
    for done in history.iter().filter(|done| done.is_write || done.ended.is_some()) {
        of.entry(done.value).or_default().push(*done);
    }
    let mut zones = Vec::new();
    for (value, all) in of {
        let write = all.iter().find(|done| done.is_write);
        let reads = || all.iter().filter(|done| !done.is_write);
        match write {
            None if value != 0 => return Err(format!("{value} was read and never written")),
            Some(write) if reads().any(|read| read.ended.is_some_and(|end| end < write.begun)) => {
                return Err(format!("{value} was read before it was written"));
            }
            // Nobody has seen it, and it may never have been done.
            Some(write) if write.ended.is_none() && reads().next().is_none() => continue,
            _ => {}
        }
        let ends = all.iter().filter_map(|done| done.ended).chain((value == 0).then_some(Duration::ZERO));
        let begins = all.iter().map(|done| done.begun);
        let (first_end, last_begin) = (ends.min().unwrap_or(Duration::MAX), begins.max().unwrap_or_default());
        zones.push(Zone { value, first_end, last_begin });
    }
    for (at, one) in zones.iter().enumerate().filter(|(_, zone)| zone.is_forward()) {
        for (_, other) in zones.iter().enumerate().filter(|(other, _)| *other != at) {
            // Two forward zones overlap, or a backward one, which goes from its last begin to its first end, lies within a forward one.
            let is_wrong = one.first_end < other.last_begin && other.first_end < one.last_begin;
            if is_wrong {
                let (one, other) =
                    ((one.value, one.first_end, one.last_begin), (other.value, other.first_end, other.last_begin));
                return Err(format!(
                    "{one:?} and {other:?}, each with the first end and the last begin, can't both be"
                ));
            }
        }
    }
    Ok(())
}

mod unit_tests {
    use super::*;

    fn done(is_write: bool, value: u64, begun: u64, ended: u64) -> Done {
        let ended = (ended > 0).then_some(Duration::from_secs(ended));
        Done { is_write, value, begun: Duration::from_secs(begun), ended }
    }

    #[test]
    fn histories_that_one_register_has_pass_and_others_dont() {
        let (write, read) = (|v, b, e| done(true, v, b, e), |v, b, e| done(false, v, b, e));
        for (history, is_one) in [
            (vec![write(1, 1, 2), read(1, 3, 4)], true),
            (vec![write(1, 1, 2), read(0, 3, 4)], false),
            (vec![write(1, 1, 9), read(0, 3, 4), read(1, 5, 6)], true),
            (vec![write(1, 1, 9), read(1, 3, 4), read(0, 5, 6)], false),
            (vec![write(1, 1, 9), write(2, 1, 9), read(1, 3, 4), read(2, 5, 6), read(1, 7, 8)], false),
            (vec![write(1, 1, 0), read(0, 5, 6), read(1, 7, 8)], true),
            (vec![write(1, 1, 0), read(1, 5, 6), read(0, 7, 8)], false),
            (vec![read(7, 5, 6)], false),
            (vec![read(1, 1, 2), write(1, 3, 4)], false),
            (vec![write(1, 1, 2), write(2, 3, 4), read(1, 5, 6)], false),
            (vec![write(1, 1, 2), write(2, 3, 0), read(1, 5, 6), read(2, 8, 9)], true),
        ] {
            assert_eq!(check(&history).is_ok(), is_one, "{history:?}");
        }
    }
}
