//! Days of the calendar, and the names that times have. Time is UTC, or so much ahead of it; no zone changes its clocks in summer.

use super::ScheduleTextError;
use crate::text::shown;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Seconds of a day.
pub const DAY: u64 = 86_400;
/// Seconds of a week.
pub const WEEK: u64 = 7 * DAY;
/// The last second that has a name: in the year 9999. A clock that is past it is wrong.
pub const LAST: u64 = 253_402_300_799;
/// 1970 began on a Thursday: the first Monday came so many days later.
const FIRST_MONDAY: i64 = 4;

/// So far local time is ahead of UTC, in minutes; behind it if that's negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Ahead(i16);

impl Ahead {
    /// `None` if no place on earth is so far ahead or behind: more than 14 hours.
    pub fn new(minutes: i64) -> Option<Self> {
        (-840..=840).contains(&minutes).then_some(Ahead(minutes as i16))
    }

    /// Minutes.
    pub fn minutes(self) -> i64 {
        self.0.into()
    }

    /// What local clocks show, as seconds since 1970.
    pub(super) fn local(self, unix_s: u64) -> i64 {
        unix_s.min(LAST) as i64 + 60 * self.minutes()
    }
}

impl fmt::Display for Ahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, minutes) = (if self.0 < 0 { '-' } else { '+' }, self.0.unsigned_abs());
        match minutes {
            0 => f.write_str("UTC"),
            _ => write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60),
        }
    }
}

impl FromStr for Ahead {
    type Err = ScheduleTextError;

    fn from_str(text: &str) -> Result<Self, ScheduleTextError> {
        let wrong = || ScheduleTextError::Zone(shown(text));
        if ["UTC", "Z"].contains(&text) {
            return Ok(Ahead(0));
        }
        let (sign, rest) = match (text.strip_prefix('+'), text.strip_prefix('-')) {
            (Some(rest), _) => (1, rest),
            (_, Some(rest)) => (-1, rest),
            _ => return Err(wrong()),
        };
        let (hours, minutes) = rest.split_once(':').ok_or_else(wrong)?;
        let number = |part: &str, most: i64| {
            let is_plain = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
            part.parse::<i64>().ok().filter(|number| is_plain && *number <= most)
        };
        let (hours, minutes) = (number(hours, 14).ok_or_else(wrong)?, number(minutes, 59).ok_or_else(wrong)?);
        Ahead::new(sign * (60 * hours + minutes)).ok_or_else(wrong)
    }
}

impl From<Ahead> for String {
    fn from(ahead: Ahead) -> String {
        ahead.to_string()
    }
}

impl TryFrom<String> for Ahead {
    type Error = ScheduleTextError;

    fn try_from(text: String) -> Result<Self, ScheduleTextError> {
        text.parse()
    }
}

/// A second of a day, as local clocks show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct TimeOfDay(u32);

impl TimeOfDay {
    /// `None` if a day has no such second.
    pub fn new(second: u64) -> Option<Self> {
        (second < DAY).then_some(TimeOfDay(second as u32))
    }

    /// From midnight on.
    pub fn second(self) -> u64 {
        self.0.into()
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 3600, self.0 / 60 % 60)?;
        match self.0 % 60 {
            0 => Ok(()),
            second => write!(f, ":{second:02}"),
        }
    }
}

impl FromStr for TimeOfDay {
    type Err = ScheduleTextError;

    fn from_str(text: &str) -> Result<Self, ScheduleTextError> {
        let wrong = || ScheduleTextError::Time(shown(text));
        let parts: Vec<&str> = text.split(':').collect();
        let is_plain = |part: &&str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        if !(2..=3).contains(&parts.len()) || !parts.iter().all(is_plain) {
            return Err(wrong());
        }
        let numbers: Vec<u64> = parts.iter().filter_map(|part| part.parse().ok()).collect();
        let (hour, minute, second) = (numbers[0], numbers[1], numbers.get(2).copied().unwrap_or(0));
        match hour < 24 && minute < 60 && second < 60 {
            true => TimeOfDay::new(hour * 3600 + minute * 60 + second).ok_or_else(wrong),
            false => Err(wrong()),
        }
    }
}

impl From<TimeOfDay> for String {
    fn from(time: TimeOfDay) -> String {
        time.to_string()
    }
}

impl TryFrom<String> for TimeOfDay {
    type Error = ScheduleTextError;

    fn try_from(text: String) -> Result<Self, ScheduleTextError> {
        text.parse()
    }
}

/// A day of the Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Date {
    pub year: i64,
    /// From 1.
    pub month: u64,
    /// From 1.
    pub day: u64,
}

impl Date {
    /// That of the second, in seconds since 1970.
    pub fn of(second: i64) -> Date {
        // Years that begin in March end with the day that not all have, and repeat after 400.
        let day = second.div_euclid(DAY as i64) + 719_468; // from 0000-03-01 on
        let (era, of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        Date { year, month: month as u64, day: day as u64 }
    }
}

/// Counts weeks, which begin on Mondays.
pub(super) fn week(second: i64) -> i64 {
    (second.div_euclid(DAY as i64) - FIRST_MONDAY).div_euclid(7)
}

/// When the first Monday began, as local clocks show it.
pub(super) fn first_monday() -> i64 {
    FIRST_MONDAY * DAY as i64
}

/// The name of a second: `2026-11-29T02-30Z`, with `-05` before the `Z` if it isn't a whole minute. In UTC, so that a name means one time.
pub fn stamp(unix_s: u64) -> String {
    let second = unix_s.min(LAST);
    let Date { year, month, day } = Date::of(second as i64);
    let (hour, minute, of_minute) = (second / 3600 % 24, second / 60 % 60, second % 60);
    let seconds = if of_minute == 0 { String::new() } else { format!("-{of_minute:02}") };
    format!("{year:04}-{month:02}-{day:02}T{hour:02}-{minute:02}{seconds}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_times_of_the_calendar() {
        for (second, text) in [
            (0, "1970-01-01T00-00Z"),
            (951_782_400, "2000-02-29T00-00Z"),
            (1_795_919_400, "2026-11-29T02-30Z"),
            (1_795_919_405, "2026-11-29T02-30-05Z"),
            (4_107_542_400, "2100-03-01T00-00Z"),
            (u64::MAX, "9999-12-31T23-59-59Z"),
        ] {
            assert_eq!(stamp(second), text);
        }
    }

    #[test]
    fn texts_read_back_as_they_print() {
        for text in ["UTC", "+02:00", "-05:30", "+14:00"] {
            assert_eq!(text.parse::<Ahead>().map(|ahead| ahead.to_string()).as_deref(), Ok(text));
        }
        for text in ["00:00", "02:30", "23:59:59"] {
            assert_eq!(text.parse::<TimeOfDay>().map(|time| time.to_string()).as_deref(), Ok(text));
        }
        assert_eq!(("Z".parse(), "+00:00".parse()), (Ok(Ahead(0)), Ok(Ahead(0))));
    }

    #[test]
    fn what_is_no_time_or_offset_is_refused() {
        for text in ["", "2", "+2", "02:00", "+14:01", "+15:00", "-99:00", "+02:60", "+2:00", "Europe/Berlin", "+é:00"]
        {
            assert!(text.parse::<Ahead>().is_err(), "{text}");
        }
        for text in ["", "2", "24:00", "02:60", "02:30:60", "2:30", "02:30:00:00", "-1:00", "02.30", "+2:+3"] {
            assert!(text.parse::<TimeOfDay>().is_err(), "{text}");
        }
    }

    #[test]
    fn weeks_begin_on_mondays() {
        // 2026-11-29 is a Sunday.
        let sunday = 1_795_910_400;
        assert_eq!(Date::of(sunday), Date { year: 2026, month: 11, day: 29 });
        assert_eq!(week(sunday - 1), week(sunday));
        assert_eq!(week(sunday) + 1, week(sunday + DAY as i64));
        assert_eq!(week(first_monday() - 1) + 1, week(first_monday()));
    }
}
