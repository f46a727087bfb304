//! Which snapshots of a schedule are kept: the newest ones, and one of each of the latest hours, days, weeks, months and years
//! (grandfather, father, son).
//!
//! It goes by the times at which they were due, and by no clock: a clock that is wrong has nothing removed.
//!
//! Invariants:
//! 1. Of each kind, the newest of each of the latest `n` hours (days, ...) that have any is kept: so who has removed all others, again and
//!    again, has one of each of the latest `n` in which there ever was one.
//! 2. The newest is always kept, and no more than `n` of each kind besides.

use super::ScheduleTextError;
use super::calendar::{Ahead, Date, week};
use crate::text::shown;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// So many are kept of all kinds together at most: a volume has at most 1024 snapshots.
pub const MOST_KEPT: u32 = 1000;

/// How many are kept of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Keep {
    /// The newest.
    pub last: u32,
    /// One of each of so many hours.
    pub hourly: u32,
    /// One of each of so many days.
    pub daily: u32,
    /// One of each of so many weeks, from Monday on.
    pub weekly: u32,
    /// One of each of so many months.
    pub monthly: u32,
    /// One of each of so many years.
    pub yearly: u32,
}

/// A kind: its name, how many, and which hour, day and so on a local time belongs to.
type Kind = (&'static str, u32, fn(i64) -> i64);

impl Keep {
    fn kinds(&self) -> [Kind; 6] {
        [
            ("last", self.last, |second| second),
            ("hourly", self.hourly, |second| second.div_euclid(3600)),
            ("daily", self.daily, |second| second.div_euclid(86_400)),
            ("weekly", self.weekly, week),
            ("monthly", self.monthly, |second| {
                let date = Date::of(second);
                12 * date.year + date.month as i64
            }),
            ("yearly", self.yearly, |second| Date::of(second).year),
        ]
    }

    /// How many are kept of all kinds together.
    pub fn total(&self) -> u64 {
        self.kinds().iter().map(|(_, count, _)| u64::from(*count)).sum()
    }

    /// Whether it can be had: from 1 to [`MOST_KEPT`] of all kinds together.
    pub fn check(&self) -> Result<(), ScheduleTextError> {
        match self.total() {
            0 => Err(ScheduleTextError::KeepsNothing),
            total if total > MOST_KEPT.into() => Err(ScheduleTextError::KeepsTooMany { total, limit: MOST_KEPT }),
            _ => Ok(()),
        }
    }

    /// Which of these times, in seconds since 1970, are kept.
    pub fn of(&self, times: &BTreeSet<u64>, ahead: Ahead) -> BTreeSet<u64> {
        let mut kept: BTreeSet<u64> = times.last().copied().into_iter().collect();
        for (_, count, bucket) in self.kinds() {
            let mut before = None;
            let newest_of_each = times.iter().rev().filter(|time| {
                let own = bucket(ahead.local(**time));
                before.replace(own) != Some(own)
            });
            kept.extend(newest_of_each.take(count as usize));
        }
        kept
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = self.kinds();
        let said = kinds.iter().filter(|(_, count, _)| *count > 0).map(|(name, count, _)| format!("{name}={count}"));
        f.write_str(&said.collect::<Vec<_>>().join(","))
    }
}

impl FromStr for Keep {
    type Err = ScheduleTextError;

    fn from_str(text: &str) -> Result<Self, ScheduleTextError> {
        let wrong = |part: &str| ScheduleTextError::Keep(shown(part));
        let (mut keep, mut seen) = (Keep::default(), BTreeSet::new());
        for part in text.split(',') {
            let (name, count) = part.split_once('=').ok_or_else(|| wrong(part))?;
            let count = Some(count).filter(|count| count.bytes().all(|byte| byte.is_ascii_digit()));
            let count = count.and_then(|count| count.parse().ok()).ok_or_else(|| wrong(part))?;
            let field = match name {
                "last" => &mut keep.last,
                "hourly" => &mut keep.hourly,
                "daily" => &mut keep.daily,
                "weekly" => &mut keep.weekly,
                "monthly" => &mut keep.monthly,
                "yearly" => &mut keep.yearly,
                _ => return Err(wrong(part)),
            };
            if !seen.insert(name) {
                return Err(wrong(part));
            }
            *field = count;
        }
        keep.check()?;
        Ok(keep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::calendar::stamp;
    use proptest::prelude::*;

    fn keep(text: &str) -> Keep {
        text.parse().expect(text)
    }

    const HOUR: u64 = 3600;

    #[test]
    fn a_year_of_hours_leaves_grandfather_father_and_son() {
        let begin = 1_767_225_600; // 2026-01-01
        let rules = keep("hourly=3,daily=2,weekly=2,monthly=3,yearly=1");
        let mut there = BTreeSet::new();
        for hour in 0..365 * 24 {
            there.insert(begin + hour * HOUR);
            there = rules.of(&there, Ahead::default());
        }
        let left: Vec<String> = there.into_iter().map(stamp).collect();
        let expected = ["10-31T23-00Z", "11-30T23-00Z", "12-27T23-00Z", "12-30T23-00Z", "12-31T21-00Z", "12-31T22-00Z"];
        let expected = expected.iter().chain(&["12-31T23-00Z"]).map(|stamp| format!("2026-{stamp}"));
        assert_eq!(left, expected.collect::<Vec<_>>());
    }

    #[test]
    fn days_are_those_of_local_clocks() {
        let midnight = 1_795_910_400;
        let times: BTreeSet<u64> = [midnight - HOUR, midnight + HOUR].into();
        let daily = keep("daily=2");
        assert_eq!(daily.of(&times, Ahead::default()).len(), 2);
        let ahead = "+02:00".parse().expect("an offset");
        assert_eq!(daily.of(&times, ahead), [midnight + HOUR].into(), "local days differ");
    }

    #[test]
    fn what_is_kept_reads_back_as_it_prints() {
        for text in ["last=1", "hourly=24,daily=7,weekly=4,monthly=12", "last=2,yearly=998"] {
            assert_eq!(keep(text).to_string(), text);
        }
        assert_eq!(keep("daily=7,yearly=0").to_string(), "daily=7");
    }

    #[test]
    fn what_keeps_nothing_or_too_many_is_refused() {
        for text in ["", "daily", "daily=", "daily=-1", "daily=+1", "daily=1,daily=2", "minutely=3", "daily=4294967296"]
        {
            assert!(matches!(text.parse::<Keep>(), Err(ScheduleTextError::Keep(_))), "{text}");
        }
        assert_eq!("daily=0".parse::<Keep>(), Err(ScheduleTextError::KeepsNothing));
        assert!("last=500,hourly=500".parse::<Keep>().is_ok());
        let refused = "last=500,hourly=501".parse::<Keep>();
        assert_eq!(refused, Err(ScheduleTextError::KeepsTooMany { total: 1001, limit: MOST_KEPT }));
    }

    fn keeps() -> impl Strategy<Value = Keep> {
        let count = || 0..4u32;
        (count(), count(), count(), count(), count(), count()).prop_map(
            |(last, hourly, daily, weekly, monthly, yearly)| Keep { last, hourly, daily, weekly, monthly, yearly },
        )
    }

    /// At distances of minutes to months, also back.
    fn times() -> impl Strategy<Value = Vec<u64>> {
        let step = prop_oneof![60..7200i64, 3600..200_000i64, 100_000..5_000_000i64, -500_000..0i64];
        proptest::collection::vec(step, 1..120).prop_map(|steps| {
            let mut now = 1_767_225_600i64;
            let mut next = |step: i64| {
                now += step;
                now as u64
            };
            steps.into_iter().map(&mut next).collect()
        })
    }

    proptest! {
        #[test]
        fn what_was_promised_stays_however_often_the_rest_is_removed(
            rules in keeps(), times in times(), ahead in -840..=840i64
        ) {
            let ahead = Ahead::new(ahead).expect("on earth");
            let (mut ever, mut there) = (BTreeSet::new(), BTreeSet::new());
            for time in times {
                ever.insert(time);
                there.insert(time);
                there = rules.of(&there, ahead);
                prop_assert!(there.contains(ever.last().expect("one")), "the newest");
                prop_assert!(there.len() as u64 <= 1 + rules.total());
                for (name, count, bucket) in rules.kinds() {
                    let buckets = |times: &BTreeSet<u64>| -> BTreeSet<i64> {
                        times.iter().map(|time| bucket(ahead.local(*time))).collect()
                    };
                    let (of_all, of_there) = (buckets(&ever), buckets(&there));
                    for promised in of_all.iter().rev().take(count as usize) {
                        prop_assert!(of_there.contains(promised), "{name}: {promised}");
                    }
                }
                prop_assert_eq!(&rules.of(&there, ahead), &there, "a second time removes nothing");
            }
        }
    }
}
