//! What a test program said: counts, skips with their reasons, and what to show of a failure.
//!
//! The test harness knows no skip at run time: a test that can't run on this machine prints a line `skipped: REASON` and
//! returns. It's counted as skipped then, not as passed, and the reason is shown.

use std::fmt;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub passed: u32,
    pub failed: u32,
    pub skipped: u32,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

/// A test that didn't run, and why.
#[derive(Debug, PartialEq, Eq)]
pub struct Skip {
    pub test: String,
    pub reason: String,
}

#[derive(Debug, Default)]
pub struct Summary {
    pub counts: Counts,
    pub skips: Vec<Skip>,
}

/// Reads what a test program wrote to standard output under `--show-output`. `succeeded` is what its status said.
pub fn read(stdout: &str, succeeded: bool) -> Summary {
    let mut summary = Summary::default();
    let mut told = false;
    let mut test = None;
    for line in stdout.lines() {
        if let Some(counts) = counts_in(line) {
            summary.counts += counts;
            told = true;
            test = None;
        } else if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            test = Some(name.to_owned());
        } else if let (Some(reason), Some(_)) = (line.trim_start().strip_prefix("skipped: "), &test) {
            let test = test.take().unwrap_or_default(); // once for each test, however often it says so
            summary.skips.push(Skip { test, reason: reason.trim_end().to_owned() });
        }
    }
    let skips = (summary.skips.len() as u32).min(summary.counts.passed);
    summary.counts.passed -= skips;
    summary.counts.skipped += skips;
    // A program that crashed, or failed without saying which test did, is a failure of its own.
    if !told || (!succeeded && summary.counts.failed == 0) {
        summary.counts.failed += 1;
    }
    summary
}

/// The part of a failed program's output that helps: from the failures on, or the end of all of it after a crash.
pub fn of_interest(stdout: &str, stderr: &str) -> String {
    const LAST_LINES: usize = 100;
    let lines: Vec<&str> = stdout.lines().chain(stderr.lines()).collect();
    let from = match lines.iter().position(|line| *line == "failures:") {
        Some(failures) => failures,
        None => lines.len().saturating_sub(LAST_LINES),
    };
    lines[from..].join("\n")
}

/// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s`
fn counts_in(line: &str) -> Option<Counts> {
    let (_, numbers) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let number = |what: &str| {
        let part = numbers.split(';').find_map(|part| part.trim().strip_suffix(what))?;
        part.trim().parse().ok()
    };
    Some(Counts { passed: number("passed")?, failed: number("failed")?, skipped: number("ignored")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
running 3 tests
test a ... ok
test b ... ok
test c ... ignored

successes:

---- a stdout ----
skipped: fio is missing
skipped: and so is nbdkit

---- b stdout ----
not skipped: at all

successes:
    a
    b

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    const BAD: &str = "
running 2 tests
test a ... FAILED
test b ... ok

successes:

---- b stdout ----
chatter

failures:

---- a stdout ----
assertion failed
skipped: not really, it failed

failures:
    a

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s
";

    #[test]
    fn a_skip_is_counted_once_and_not_as_passed() {
        let summary = read(GOOD, true);
        assert_eq!(summary.counts, Counts { passed: 1, failed: 0, skipped: 2 });
        assert_eq!(summary.skips, [Skip { test: "a".into(), reason: "fio is missing".into() }]);
        assert_eq!(summary.counts.to_string(), "1 passed, 0 failed, 2 skipped");
    }

    #[test]
    fn a_program_that_ends_without_a_result_is_a_failure() {
        let cases = [("", false), ("running 1 test\n", false), ("", true)];
        for (stdout, succeeded) in cases {
            assert_eq!(read(stdout, succeeded).counts, Counts { passed: 0, failed: 1, skipped: 0 });
        }
    }

    #[test]
    fn a_status_that_contradicts_the_counts_is_a_failure() {
        assert_eq!(read("test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured", false).counts.failed, 1);
        assert_eq!(read("test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured", true).counts.failed, 0);
    }

    #[test]
    fn of_a_failure_only_the_failures_are_shown() {
        assert_eq!(read(BAD, false).counts.failed, 1);
        let shown = of_interest(BAD, "");
        assert!(shown.contains("assertion failed") && !shown.contains("chatter"), "{shown}");
        assert_eq!(of_interest("running 1 test\n", "stack overflow\n"), "running 1 test\nstack overflow");
    }

    #[test]
    fn sums_are_one_plain_line() {
        let mut sum = Counts { passed: 1, failed: 2, skipped: 0 };
        sum += Counts { passed: 10, failed: 0, skipped: 0 };
        assert_eq!(sum.to_string(), "11 passed, 2 failed");
    }
}
