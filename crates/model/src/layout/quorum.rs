//! Layouts whose clients keep the data consistent by themselves, as Ursa Minor's protocol family does (Abd-El-Malek and others, FAST
//! 2005, section 3.2): written as `quorum:M/N,t=T,b=B,sync|async`.
//!
//! Each block is N fragments on N drives, of which any M give the block back. Up to T of the drives may be faulty at once, B of which
//! may do and answer whatever they like; the others are silent. [`Quorum::thresholds`] says how many answers a write and a read need
//! so that, whichever drives are faulty,
//!
//! 1. a read never returns data that only faulty drives know of,
//! 2. a read sees each write that was complete before, and can decode it,
//! 3. neither waits for a faulty drive.

use super::{MAX_CODE, MAX_COPIES, MAX_DATA};
use std::fmt;
use std::str::FromStr;

/// Who may be faulty in which way. All rules of [`QuorumError`] hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quorum {
    data: u8,
    count: u8,
    faults: u8,
    liars: u8,
    timing: Timing,
}

/// What is known of drives that don't answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Timing {
    /// A drive that has failed is known to have failed: all servers agree on that, once the drive's server can't serve any more.
    Sync,
    /// A drive that doesn't answer may have failed, or may be slow.
    Async,
}

/// Numbers of drives, each for one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// A write or read goes on with so many answers. In a synchronous layout that's the fewest: it waits for all drives that aren't
    /// known to have failed.
    pub answers: u8,
    /// If so many drives say that they have a write, the write is complete: each later read sees it. In a synchronous layout it's
    /// complete if all drives say so that aren't known to have failed.
    pub complete: u8,
    /// A write that fewer of the answering drives have isn't complete, and may not even be one.
    pub repairable: u8,
}

/// The rule that the numbers break.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message states the rule")]
pub enum QuorumError {
    #[error("it's written as quorum:M/N,t=T,b=B,sync or quorum:M/N,t=T,b=B,async, as in quorum:1/3,t=1,async")]
    Form,
    #[error("{0} is said twice")]
    Twice(&'static str),
    #[error("b={liars} drives that lie are among the t={faults} faulty ones, so b is at most t")]
    Liars { faults: u8, liars: u8 },
    #[error(
        "t={faults},b={liars},{timing} needs N >= {bound} = {fewest} drives, and N is {count}",
        bound = match timing { Timing::Sync => "t+b+1", Timing::Async => "2t+2b+1" }
    )]
    Count { faults: u8, liars: u8, timing: Timing, count: u8, fewest: u16 },
    #[error(
        "with N={count},t={faults},b={liars},{timing} a complete write may be seen on {most} drives only, so M <= {bound} = {most}, and M is {data}",
        bound = match timing { Timing::Sync => "N-t", Timing::Async => "N-2t-b" }
    )]
    Data { count: u8, faults: u8, liars: u8, timing: Timing, data: u8, most: u8 },
    #[error("N is at most {MAX_COPIES} where each drive has a copy (M=1), and {count} is more")]
    Copies { count: u8 },
    #[error("with an erasure code M is at most {MAX_DATA} and N at most M+{MAX_CODE}, and {data}/{count} isn't so")]
    Code { data: u8, count: u8 },
}

impl Quorum {
    /// # Errors
    ///
    /// The first rule that these numbers break.
    pub fn new(data: u8, count: u8, faults: u8, liars: u8, timing: Timing) -> Result<Self, QuorumError> {
        if data == 0 || count < data {
            return Err(QuorumError::Form);
        }
        if liars > faults {
            return Err(QuorumError::Liars { faults, liars });
        }
        let (t, b) = (u16::from(faults), u16::from(liars));
        let fewest = match timing {
            Timing::Sync => t + b + 1,
            Timing::Async => 2 * t + 2 * b + 1,
        };
        if u16::from(count) < fewest {
            return Err(QuorumError::Count { faults, liars, timing, count, fewest });
        }
        let most = match timing {
            Timing::Sync => count - faults,
            Timing::Async => count - 2 * faults - liars,
        };
        match data {
            _ if data > most => Err(QuorumError::Data { count, faults, liars, timing, data, most }),
            1 if count > MAX_COPIES => Err(QuorumError::Copies { count }),
            2.. if data > MAX_DATA || count - data > MAX_CODE => Err(QuorumError::Code { data, count }),
            _ => Ok(Quorum { data, count, faults, liars, timing }),
        }
    }

    /// M: so many fragments give a block back.
    pub const fn data(self) -> u8 {
        self.data
    }

    /// N: so many drives have a fragment of a block.
    pub const fn count(self) -> u8 {
        self.count
    }

    /// T: so many of the drives may be faulty at once.
    pub const fn faults(self) -> u8 {
        self.faults
    }

    /// B: so many of the faulty drives may lie.
    pub const fn liars(self) -> u8 {
        self.liars
    }

    /// What is known of drives that don't answer.
    pub const fn timing(self) -> Timing {
        self.timing
    }

    /// How many answers decide.
    ///
    /// A complete write is on N - T drives at least, of which B may lie. Of these, a read of an asynchronous layout, which waits for N - T
    /// answers, may miss T more. So N - 2T - B honest drives tell it of the write, at least; and they are enough to be told from B liars.
    pub const fn thresholds(self) -> Thresholds {
        let answers = self.count - self.faults;
        let repairable = if self.liars + 1 > self.data { self.liars + 1 } else { self.data };
        Thresholds { answers, complete: answers, repairable }
    }
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Timing::Sync => "sync",
            Timing::Async => "async",
        })
    }
}

/// Without `quorum:`. Nobody lies unless `b` is said.
impl fmt::Display for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{},t={}", self.data, self.count, self.faults)?;
        if self.liars > 0 {
            write!(f, ",b={}", self.liars)?;
        }
        write!(f, ",{}", self.timing)
    }
}

impl FromStr for Quorum {
    type Err = QuorumError;

    fn from_str(text: &str) -> Result<Self, QuorumError> {
        let number = |text: &str| {
            let is_plain = !text.is_empty() && text.len() <= 3 && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u8>().ok().filter(|_| is_plain).ok_or(QuorumError::Form)
        };
        let mut parts = text.split(',');
        let (data, count) = parts.next().and_then(|part| part.split_once('/')).ok_or(QuorumError::Form)?;
        let (data, count) = (number(data)?, number(count)?);
        let (mut faults, mut liars, mut timing) = (None, None, None);
        let once = |is_new: bool, name: &'static str| if is_new { Ok(()) } else { Err(QuorumError::Twice(name)) };
        for part in parts {
            match part.split_once('=') {
                Some(("t", value)) => once(faults.replace(number(value)?).is_none(), "t")?,
                Some(("b", value)) => once(liars.replace(number(value)?).is_none(), "b")?,
                None if part == "sync" => once(timing.replace(Timing::Sync).is_none(), "the timing")?,
                None if part == "async" => once(timing.replace(Timing::Async).is_none(), "the timing")?,
                _ => return Err(QuorumError::Form),
            }
        }
        match (faults, timing) {
            (Some(faults), Some(timing)) => Quorum::new(data, count, faults, liars.unwrap_or(0), timing),
            _ => Err(QuorumError::Form),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = Quorum> {
        let numbers = (1..=6u8).flat_map(|data| (data..=9u8).map(move |count| (data, count)));
        let faults = numbers.flat_map(|(data, count)| (0..=4u8).map(move |t| (data, count, t)));
        let liars = faults.flat_map(|(data, count, t)| (0..=t).map(move |b| (data, count, t, b)));
        liars.flat_map(|(data, count, t, b)| {
            [Timing::Sync, Timing::Async]
                .into_iter()
                .filter_map(move |timing| Quorum::new(data, count, t, b, timing).ok())
        })
    }

    #[test]
    fn quorums_read_and_print_the_same() {
        for text in
            ["1/2,t=1,sync", "2/5,t=1,b=1,async", "1/3,t=1,async", "3/5,t=1,async", "2/4,t=2,sync", "1/1,t=0,sync"]
        {
            assert_eq!(text.parse::<Quorum>().map(|quorum| quorum.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("1/3,async,b=0,t=1".parse::<Quorum>(), "1/3,t=1,async".parse());
        let kept = all().inspect(|quorum| assert_eq!(quorum.to_string().parse(), Ok(*quorum))).count();
        assert!(kept > 100, "{kept}");
    }

    #[test]
    fn impossible_numbers_are_refused_with_the_bound() {
        for (text, said) in [
            ("", "written as"),
            ("1/3", "written as"),
            ("1/3,t=1", "written as"),
            ("1/3,t=x,async", "written as"),
            ("1/3,t=+1,async", "written as"),
            ("1/300,t=1,async", "written as"),
            ("0/3,t=1,async", "written as"),
            ("3/2,t=0,async", "written as"),
            ("1/3,t=1,t=1,async", "t is said twice"),
            ("1/3,t=1,async,sync", "the timing is said twice"),
            ("1/5,t=1,b=2,async", "b is at most t"),
            ("1/2,t=1,async", "N >= 2t+2b+1 = 3 drives, and N is 2"),
            ("1/4,t=1,b=1,async", "N >= 2t+2b+1 = 5 drives, and N is 4"),
            ("1/2,t=1,b=1,sync", "N >= t+b+1 = 3 drives, and N is 2"),
            ("3/5,t=1,b=1,async", "M <= N-2t-b = 2, and M is 3"),
            ("3/4,t=2,sync", "M <= N-t = 2, and M is 3"),
            ("1/9,t=1,async", "at most 8"),
            ("2/9,t=1,async", "at most M+4"),
            ("1/255,t=254,b=254,sync", "= 509 drives"),
        ] {
            let error = text.parse::<Quorum>().expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    /// Every way in which faulty drives, silent or lying, can stand between a complete write and a read.
    #[test]
    fn every_read_sees_a_complete_write_whichever_drives_are_faulty() {
        for quorum in all() {
            let Thresholds { answers, complete, repairable } = quorum.thresholds();
            let Quorum { count, faults, liars, .. } = quorum;
            for lying in 0..=liars {
                // The write has so many answers, some of them lies.
                let fewest_honest = complete - lying;
                // The faulty drives that don't lie have failed since; in an asynchronous layout honest ones may be slow besides.
                let failed = faults - lying;
                let unheard = match quorum.timing {
                    Timing::Sync => failed,
                    Timing::Async => count - answers,
                };
                // In a synchronous layout drives that had failed by then aren't among those that were waited for.
                let honest_holders = match quorum.timing {
                    Timing::Sync => count - lying - failed,
                    Timing::Async => fewest_honest.saturating_sub(unheard),
                };
                assert!(honest_holders >= repairable, "{quorum}: with {lying} liars the write looks like none");
                assert!(honest_holders >= quorum.data, "{quorum}: with {lying} liars the write can't be decoded");
            }
            assert!(repairable > liars, "{quorum}: liars can invent a write");
            assert!(answers + faults <= count, "{quorum}: a write waits for a faulty drive");
        }
    }
}
