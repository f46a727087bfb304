//! How volumes are scrubbed one after another, so that each has been within a time.
//!
//! A volume is due when half of the time is over. In a quarter of it all volumes together are scrubbed, each in a part that goes by its
//! size; so whoever is due waits for others a quarter at most, and is done within another quarter.

use super::ScheduleTextError;
use super::calendar::DAY;
use super::period_text;

/// The shortest time, in seconds.
pub const SHORTEST_SCRUBS: u64 = 10;
/// The longest: ten years.
pub const LONGEST_SCRUBS: u64 = 3660 * DAY;
/// What is taken if nothing is said.
pub const SCRUBS_WITHIN: u64 = 30 * DAY;

/// Whether volumes can be scrubbed within so many seconds.
pub fn check_within(within_s: u64) -> Result<(), ScheduleTextError> {
    match (SHORTEST_SCRUBS..=LONGEST_SCRUBS).contains(&within_s) {
        true => Ok(()),
        false => Err(ScheduleTextError::Within { within: period_text(within_s) }),
    }
}

/// When a volume is to be scrubbed whose last scrub began then, in milliseconds since 1970.
pub fn scrub_due_ms(begun_ms: u64, within_s: u64) -> u64 {
    begun_ms.saturating_add(within_s.saturating_mul(500))
}

/// How long the scrub of a volume may take that has so many of all bytes, in milliseconds.
pub fn scrub_time_ms(within_s: u64, bytes: u64, of_all: u64) -> u64 {
    let all = within_s.saturating_mul(250);
    match of_all {
        0 => 0,
        _ => u64::try_from(u128::from(all) * u128::from(bytes.min(of_all)) / u128::from(of_all)).unwrap_or(all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_from_ten_seconds_to_ten_years() {
        for (within, is_one) in [(9, false), (10, true), (SCRUBS_WITHIN, true), (LONGEST_SCRUBS + 1, false)] {
            assert_eq!(check_within(within).is_ok(), is_one, "{within}");
        }
    }

    proptest! {
        /// One at a time, whoever has waited for the longest first.
        #[test]
        fn no_volume_stays_unscrubbed_for_longer(
            within in SHORTEST_SCRUBS..=LONGEST_SCRUBS,
            sizes in proptest::collection::vec(0..1u64 << 50, 1..20),
        ) {
            let all: u64 = sizes.iter().sum();
            let mut begun: Vec<u64> = vec![0; sizes.len()];
            let mut now = 0;
            for _ in 0..5 * sizes.len() {
                let first = (0..sizes.len()).min_by_key(|one| begun[*one]).expect("some");
                now = now.max(scrub_due_ms(begun[first], within));
                let end = now + scrub_time_ms(within, sizes[first], all);
                prop_assert!(end - begun[first] <= within * 1000);
                begun[first] = now;
                now = end;
            }
        }
    }
}
