//! Schedules: what is due when, which snapshots are kept, and how fast scrubs go. Pure functions of times that others have looked up.

mod calendar;
mod keep;
mod pace;
mod rhythm;

pub use calendar::{Ahead, DAY, TimeOfDay, WEEK, stamp};
pub use keep::{Keep, MOST_KEPT};
pub use pace::{LONGEST_SCRUBS, SCRUBS_WITHIN, SHORTEST_SCRUBS, check_within, scrub_due_ms, scrub_time_ms};
pub use rhythm::{Due, LONGEST, Rhythm, SHORTEST};

/// A text, or a number, that no schedule can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what it is")]
pub enum ScheduleTextError {
    #[error(
        "'{0}' is not an offset from UTC: write UTC, or as +02:00. Names of zones aren't known, nor when they change their clocks"
    )]
    Zone(String),
    #[error("'{0}' is not a time of the day: write HH:MM or HH:MM:SS, as 02:30")]
    Time(String),
    #[error("'{0}' is not a length of time: write a whole number and s, m, h, d or w, as 1h")]
    Period(String),
    #[error("every {every} can't be had: it's from 1s to 366d")]
    Every { every: String },
    #[error("scrubs within {within} can't be had: it's from 10s to 3660d")]
    Within { within: String },
    #[error(
        "'{0}' doesn't say what is kept: write last=N, hourly=N, daily=N, weekly=N, monthly=N or yearly=N, each once, with commas between"
    )]
    Keep(String),
    #[error("that would keep nothing: at least one snapshot has to be kept")]
    KeepsNothing,
    #[error("that would keep {total} snapshots of a volume, and at most {limit} are possible")]
    KeepsTooMany { total: u64, limit: u32 },
}

/// A length of time as people write it, in seconds: a whole number and `s`, `m`, `h`, `d` or `w`.
pub fn period(text: &str) -> Result<u64, ScheduleTextError> {
    let read = || {
        let unit = text.find(|c: char| !c.is_ascii_digit())?;
        let seconds = match &text[unit..] {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            "d" => DAY,
            "w" => WEEK,
            _ => return None,
        };
        text[..unit].parse::<u64>().ok()?.checked_mul(seconds)
    };
    read().ok_or_else(|| ScheduleTextError::Period(crate::text::shown(text)))
}

/// In the largest unit that divides it.
pub fn period_text(seconds: u64) -> String {
    let units = [(WEEK, "w"), (DAY, "d"), (3600, "h"), (60, "m")];
    let found = units.into_iter().find(|(unit, _)| seconds > 0 && seconds.is_multiple_of(*unit));
    let (unit, name) = found.unwrap_or((1, "s"));
    format!("{}{name}", seconds / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_read_back_as_they_print() {
        for (text, seconds) in [("1s", 1), ("90s", 90), ("10m", 600), ("1h", 3600), ("36h", 129_600), ("30d", 30 * DAY)]
        {
            assert_eq!((period(text), period_text(seconds)), (Ok(seconds), text.to_owned()));
        }
        assert_eq!((period("7d"), period_text(WEEK)), (Ok(WEEK), "1w".to_owned()));
        for text in ["", "1", "h", "1.5h", "-1h", "1 h", "1M", "99999999999999999999s", "18446744073709551615w"] {
            assert!(period(text).is_err(), "{text:?}");
        }
    }
}
