//! Drives slowed to a stated latency, rate and bandwidth, so that a bench on a small machine shows the shapes that real
//! drives give.
//!
//! A drive is modelled as a queue. Each access occupies it for `max(1 / iops, length / bandwidth)`, and for a seek more
//! if it doesn't go on where the last one ended; accesses are served in the order of their coming. An access ends when it
//! has been served, but not before its latency has passed: so deep queues see the rates, and single requests the latency.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tepal_model::size::{Size, exact};
use tepal_model::text::{self, shown};

/// How slow a drive is. Reads from text: a name of [`NAMED`], or settings such as
/// `read=100us,write=20us,iops=100000,bandwidth=500M`, or a name and then settings that differ from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// How long a read takes at least.
    pub read: Duration,
    /// How long a write takes at least.
    pub write: Duration,
    /// How long a flush takes at least.
    pub flush: Duration,
    /// How long the drive is busy before an access that doesn't go on where the last one ended.
    pub seek: Duration,
    /// Accesses a second. None: as many as come.
    pub iops: Option<NonZeroU64>,
    /// Bytes a second. None: as many as come.
    pub bandwidth: Option<NonZeroU64>,
}

/// The models that have names. The seek times of disks include half a turn.
pub const NAMED: [(&str, &str); 4] = [
    ("hdd", "read=100us,write=100us,flush=8ms,seek=12700us,bandwidth=200M"),
    ("sata-ssd", "read=100us,write=50us,flush=1ms,iops=90000,bandwidth=520M"),
    ("nvme", "read=80us,write=20us,flush=20us,iops=500000,bandwidth=3G"),
    // DEC RZ29, the disk of Petal's servers: 4.3 GB, 9 ms average seek, 8.33 ms a turn.
    ("rz29", "read=500us,write=500us,flush=13ms,seek=13170us,bandwidth=6000000"),
];

const LONGEST: Duration = Duration::from_secs(60);

/// Why a text is no model. It's quoted as it was given, a long one by its beginning.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// No name, and no setting with a value.
    #[error("'{0}' is no drive model: use {names}, or settings such as read=100us,write=20us,iops=100000,bandwidth=500M", names = names())]
    Unknown(String),
    /// The setting's name.
    #[error("'{0}' is no setting of a drive model: there are read, write, flush, seek, iops and bandwidth")]
    UnknownSetting(String),
    /// Of `read`, `write`, `flush` or `seek`.
    #[error("{setting}={value} is not a duration: write a whole number and ns, us, ms or s, and at most 60s")]
    BadDuration {
        /// Which.
        setting: String,
        /// What was given for it.
        value: String,
    },
    /// Of `iops` or `bandwidth`.
    #[error("{setting}={value} is not a number above zero")]
    BadNumber {
        /// Which.
        setting: String,
        /// What was given for it.
        value: String,
    },
}

fn names() -> String {
    NAMED.map(|(name, _)| name).join(", ")
}

impl Model {
    const INSTANT: Model = Model {
        read: Duration::ZERO,
        write: Duration::ZERO,
        flush: Duration::ZERO,
        seek: Duration::ZERO,
        iops: None,
        bandwidth: None,
    };

    fn set(&mut self, setting: &str, value: &str) -> Result<(), ModelError> {
        let duration = || {
            let (setting, value) = (shown(setting), shown(value));
            duration(&value).ok_or(ModelError::BadDuration { setting, value })
        };
        let number = |number: Option<u64>| {
            let bad = || ModelError::BadNumber { setting: shown(setting), value: shown(value) };
            number.and_then(NonZeroU64::new).ok_or_else(bad)
        };
        match setting {
            "read" => self.read = duration()?,
            "write" => self.write = duration()?,
            "flush" => self.flush = duration()?,
            "seek" => self.seek = duration()?,
            "iops" => self.iops = Some(number(value.parse().ok())?),
            "bandwidth" => self.bandwidth = Some(number(value.parse().ok().map(|Size(bytes)| bytes))?),
            _ => return Err(ModelError::UnknownSetting(shown(setting))),
        }
        Ok(())
    }

    /// How long an access of `length` bytes occupies the drive, without its seek.
    fn service(&self, length: u64) -> Duration {
        let each = self.iops.map_or(0, |iops| 1_000_000_000 / iops.get());
        let moved = self.bandwidth.map_or(0, |bandwidth| {
            let nanos = u128::from(length) * 1_000_000_000 / u128::from(bandwidth.get());
            u64::try_from(nanos).unwrap_or(u64::MAX)
        });
        Duration::from_nanos(each.max(moved))
    }
}

impl FromStr for Model {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        let mut model = Model::INSTANT;
        for (place, part) in text.split(',').enumerate() {
            match part.split_once('=') {
                Some((setting, value)) => model.set(setting, value)?,
                None => {
                    let named = NAMED.iter().find(|(name, _)| place == 0 && *name == part);
                    let (_, settings) = named.ok_or_else(|| ModelError::Unknown(shown(part)))?;
                    model = settings.parse()?;
                }
            }
        }
        Ok(model)
    }
}

fn duration(text: &str) -> Option<Duration> {
    text::duration(text).filter(|duration| *duration <= LONGEST)
}

/// A duration as it's read.
struct Exact(Duration);

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us")];
        let unit = units.into_iter().find(|(length, _)| nanos > 0 && nanos.is_multiple_of(*length));
        let (length, unit) = unit.unwrap_or((1, "ns"));
        write!(f, "{}{unit}", nanos / length)
    }
}

/// As it's read.
impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [read, write, flush, seek] = [self.read, self.write, self.flush, self.seek].map(Exact);
        write!(f, "read={read},write={write},flush={flush},seek={seek}")?;
        if let Some(iops) = self.iops {
            write!(f, ",iops={iops}")?;
        }
        if let Some(bandwidth) = self.bandwidth {
            write!(f, ",bandwidth={}", exact(bandwidth.get()))?;
        }
        Ok(())
    }
}

/// What is asked of the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Takes the latency of a read, or longer behind others.
    Read {
        /// Bytes from the drive's start.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Takes the latency of a write, or longer behind others.
    Write {
        /// Bytes from the drive's start.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Ends no earlier than all that came before it.
    Flush,
}

/// The drive's queue: pure arithmetic on times since some start.
#[derive(Debug, Default)]
pub struct Queue {
    /// When all that came so far has been served.
    served: Duration,
    /// Where the last access ended.
    head: Option<u64>,
}

impl Queue {
    /// When an access that comes `now` ends.
    pub fn admit(&mut self, model: &Model, now: Duration, access: Access) -> Duration {
        let (offset, length, latency) = match access {
            Access::Read { offset, length } => (offset, length, model.read),
            Access::Write { offset, length } => (offset, length, model.write),
            Access::Flush => return self.served.max(now.saturating_add(model.flush)),
        };
        let seek = if self.head == Some(offset) { Duration::ZERO } else { model.seek };
        let begins = self.served.max(now);
        self.head = Some(offset.saturating_add(length));
        self.served = begins.saturating_add(seek).saturating_add(model.service(length));
        self.served.max(now.saturating_add(latency))
    }
}

/// The queue of a drive that is in use.
#[derive(Debug)]
pub(super) struct Pace {
    model: Model,
    started: Instant,
    queue: Mutex<Queue>,
}

impl Pace {
    pub fn new(model: Model) -> Self {
        Pace { model, started: Instant::now(), queue: Mutex::default() }
    }

    pub fn model(&self) -> &Model {
        &self.model
    }

    /// When an access that comes now ends.
    pub fn admit(&self, access: Access) -> Instant {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.started.elapsed();
        self.started + queue.admit(&self.model, now, access)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn model(text: &str) -> Model {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    fn read(offset: u64, length: u64) -> Access {
        Access::Read { offset, length }
    }

    #[test]
    fn models_read_as_people_write_them() {
        for (name, settings) in NAMED {
            assert_eq!(model(name), model(settings), "{name}");
        }
        let custom = model("read=100us,write=20us,iops=100000,bandwidth=500M,flush=2ms,seek=5ns");
        assert_eq!(
            custom,
            Model {
                read: micros(100),
                write: micros(20),
                flush: micros(2000),
                seek: Duration::from_nanos(5),
                iops: NonZeroU64::new(100_000),
                bandwidth: NonZeroU64::new(500 << 20),
            }
        );
        assert_eq!(model("nvme,read=1s").read, Duration::from_secs(1));
        assert_eq!(model("nvme,read=1s").write, model("nvme").write);
        for text in ["hdd", "nvme", "rz29", "read=1500us,write=61ns,seek=1s,bandwidth=6000001"] {
            assert_eq!(model(&model(text).to_string()), model(text), "it's printed as it's read");
        }
    }

    #[test]
    fn what_is_no_model_is_refused_with_the_part_at_fault() {
        for text in ["", "floppy", "read=1ms,nvme", "nvme,,", "∞"] {
            let error = text.parse::<Model>().unwrap_err();
            assert!(matches!(error, ModelError::Unknown(_)), "{text}");
            assert!(error.to_string().contains("hdd, sata-ssd, nvme, rz29"), "{error}");
        }
        for value in ["", "1", "-1us", "1.5ms", "61s", "us", "99999999999999999999s", "1 ms", "1µs"] {
            let error = format!("read={value}").parse::<Model>();
            assert!(matches!(error, Err(ModelError::BadDuration { .. })), "{value}");
        }
        for text in ["iops=0", "iops=-1", "iops=1K", "bandwidth=0", "bandwidth=fast", "bandwidth="] {
            assert!(matches!(text.parse::<Model>(), Err(ModelError::BadNumber { .. })), "{text}");
        }
        assert!(matches!("speed=1".parse::<Model>(), Err(ModelError::UnknownSetting(_))));
    }

    #[test]
    fn one_request_at_a_time_sees_the_latency() {
        let model = model("read=100us,write=30us,flush=2ms,iops=100000");
        let mut queue = Queue::default();
        let mut now = Duration::ZERO;
        for (access, latency) in [(read(0, 4096), 100), (Access::Write { offset: 0, length: 4096 }, 30)] {
            let end = queue.admit(&model, now, access);
            assert_eq!(end - now, micros(latency));
            now = end;
        }
        assert_eq!(queue.admit(&model, now, Access::Flush) - now, micros(2000));
    }

    #[test]
    fn a_disk_seeks_unless_it_goes_on_where_it_was() {
        let model = model("seek=10ms,bandwidth=4096");
        let mut queue = Queue::default();
        for (offset, end) in [(0, 1_010), (4096, 2_010), (0, 3_020), (65536, 4_030)] {
            assert_eq!(queue.admit(&model, Duration::ZERO, read(offset, 4096)), Duration::from_millis(end), "{offset}");
        }
    }

    #[test]
    fn a_flush_waits_for_what_came_before_it() {
        let model = model("bandwidth=4096,flush=1ms");
        let mut queue = Queue::default();
        let write = queue.admit(&model, Duration::ZERO, Access::Write { offset: 0, length: 8192 });
        assert_eq!(queue.admit(&model, Duration::ZERO, Access::Flush), write);
    }

    fn accesses() -> impl Strategy<Value = Vec<(u64, Access)>> {
        let access = (0u64..1000, 0u64..64, 1u64..300, 0u8..5).prop_map(|(gap, block, blocks, kind)| {
            let (offset, length) = (block * 4096, blocks * 4096);
            let access = match kind {
                0 => Access::Flush,
                1 | 2 => Access::Write { offset, length },
                _ => Access::Read { offset, length },
            };
            (gap, access)
        });
        prop::collection::vec(access, 1..200)
    }

    proptest! {
        /// Over any run of accesses, the drive gives no more than its rates, and nothing before its latency.
        #[test]
        fn no_load_gets_more_than_the_model_gives(
            accesses in accesses(), iops in 1u64..1_000_000, bandwidth in 4096u64..1 << 32, latency in 0u64..1000,
        ) {
            let model = Model {
                read: micros(latency), write: micros(latency), flush: micros(latency), seek: Duration::ZERO,
                iops: NonZeroU64::new(iops), bandwidth: NonZeroU64::new(bandwidth),
            };
            let mut queue = Queue::default();
            let (mut now, mut count, mut bytes, mut last) = (Duration::ZERO, 0u64, 0u64, Duration::ZERO);
            for (gap, access) in accesses {
                now += micros(gap);
                let end = queue.admit(&model, now, access);
                prop_assert!(end >= now + micros(latency));
                if let Access::Read { length, .. } | Access::Write { length, .. } = access {
                    (count, bytes, last) = (count + 1, bytes + length, last.max(end));
                }
            }
            // A nanosecond an access is lost to rounding down.
            let seconds = (last + Duration::from_nanos(count)).as_secs_f64();
            prop_assert!(count as f64 <= seconds * iops as f64 * 1.000_001);
            prop_assert!(bytes as f64 <= seconds * bandwidth as f64 * 1.000_001);
        }

        /// A drive that has work serves all the time: it is done no later than the sum of all services after the last coming.
        #[test]
        fn no_time_is_wasted_while_work_waits(accesses in accesses()) {
            let model = model("read=1us,write=1us,seek=1ms,iops=1000,bandwidth=64M");
            let mut queue = Queue::default();
            let (mut now, mut work) = (Duration::ZERO, Duration::ZERO);
            for (gap, access) in accesses {
                now += micros(gap);
                let end = queue.admit(&model, now, access);
                if let Access::Read { length, .. } | Access::Write { length, .. } = access {
                    work += model.service(length) + model.seek;
                }
                prop_assert!(end <= now + work.max(micros(1)));
            }
        }
    }
}
