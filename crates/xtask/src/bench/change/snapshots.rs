//! What a snapshot costs: how long it takes until there is one, and what other clients see of it meanwhile.

use super::load::{Load, now_ms};
use super::record::{Io, latencies, percentile};
use super::{Found, Row, settle, worst};
use crate::bench::suite::{Disk, Job, Suite};
use crate::bench::systems::Tepal;
use crate::bench::targets::{Bound, Target, median};
use crate::failure::Failure;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

/// Small enough that a snapshot's every extent is written to in a second, so that nothing of the cost is spread over minutes.
const SIZE: &str = "256M";
/// What each snapshot keeps is once more as much; only what was written takes memory.
const DRIVE_SIZE: &str = "8G";
const ON_IDLE: u32 = 20;
const LOAD: Job = Job { name: "randwrite-4k-q32", rw: "randwrite", block: "4k", depth: "32", clients: "1" };
const WARM: Duration = Duration::from_secs(3);
const SLICE: Duration = Duration::from_secs(3);
const EVERY: Duration = Duration::from_millis(500);

const IDLE_MS: f64 = 100.0;
const BUSY_MS: f64 = 1000.0;
const TAIL: f64 = 3.0;

/// Milliseconds that commands took, and microseconds that the client's writes did.
#[derive(Default)]
struct Measured {
    idle_ms: Vec<f64>,
    busy_ms: Vec<f64>,
    /// p99.9 in a slice without snapshots, and in the one after it, with some.
    tails_us: Vec<(f64, f64)>,
}

pub fn measure(program: &Path, repetitions: u32) -> Result<Found, Failure> {
    let shape = ["--servers", "4", "--drives", "1"];
    let volumes = ["idle", "busy"].map(|name| format!("{name}={SIZE},layout=chained"));
    let tepal = Tepal::start(program, &shape, DRIVE_SIZE, &volumes)?;
    let suite = Suite { seconds: 0, size: SIZE.into(), program: None };
    for volume in ["idle", "busy"] {
        suite.fill(&tepal.disk(volume))?;
    }
    settle();
    let mut measured = Measured::default();
    for number in 0..ON_IDLE {
        measured.idle_ms.push(create(&tepal, "idle", number)?);
    }
    under_load(&tepal, &tepal.disk("busy"), repetitions, &mut measured)?;
    Ok(measured.found())
}

fn create(tepal: &Tepal, volume: &str, number: u32) -> Result<f64, Failure> {
    let took = tepal.manage(&["snapshot", "create", &format!("{volume}@{number}")])?;
    Ok(took.as_secs_f64() * 1000.0)
}

/// Slices without snapshots and with them, in turn, under one client that doesn't stop.
fn under_load(tepal: &Tepal, disk: &Disk, repetitions: u32, measured: &mut Measured) -> Result<(), Failure> {
    let load = Load::start(&LOAD, disk, SIZE, &[])?;
    std::thread::sleep(WARM);
    let mut slices: Vec<(Range<u64>, Range<u64>)> = Vec::new();
    for _ in 0..repetitions {
        let began = now_ms();
        std::thread::sleep(SLICE);
        let middle = now_ms();
        let slice = Instant::now();
        while slice.elapsed() < SLICE {
            let next = Instant::now() + EVERY;
            measured.busy_ms.push(create(tepal, "busy", measured.busy_ms.len() as u32)?);
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        slices.push((began..middle, middle..now_ms()));
    }
    let ios = load.stop()?;
    measured.tails_us = slices.iter().filter_map(|(without, with)| tails(&ios, without, with)).collect();
    Ok(())
}

fn tails(ios: &[Io], without: &Range<u64>, with: &Range<u64>) -> Option<(f64, f64)> {
    let tail = |slice| percentile(latencies(ios, slice), 0.999);
    Some((tail(without)?, tail(with)?))
}

impl Measured {
    fn found(&self) -> Found {
        let Measured { idle_ms, busy_ms, tails_us } = self;
        let target = |what: &str, bound, measured| Target { what: what.into(), bound: Bound::AtMost(bound), measured };
        let ratios = tails_us.iter().map(|(without, with)| with / without).collect();
        let targets = vec![
            target("snapshot of an idle volume: ms, median of 20", IDLE_MS, median(idle_ms.clone())),
            target("snapshot of an idle volume: ms, worst of 20", IDLE_MS, worst(idle_ms)),
            target("snapshot under 4K random writes at depth 32: ms, worst", BUSY_MS, worst(busy_ms)),
            target(
                "those writes' p99.9 while a snapshot is taken twice a second, of that without",
                TAIL,
                median(ratios),
            ),
        ];
        let figure = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.0}"));
        let side = |side: fn(&(f64, f64)) -> f64| figure(median(tails_us.iter().map(side).collect()));
        let markdown = format!(
            "\n## Snapshots\n\nOf a `chained` volume of {SIZE} on four servers, as whoever gives the command sees it: on an idle volume \
             {} ms (median) and {} ms (worst), under random writes {} ms and {} ms. In turn, {slice} s without snapshots and {slice} s with one \
             each {} ms: the writes' p99.9 was {} us without and {} us with them (medians of {} slices; the target is of the median of \
             the ratios of neighbours). All snapshots are kept.\n",
            figure(median(idle_ms.clone())),
            figure(worst(idle_ms)),
            figure(median(busy_ms.clone())),
            figure(worst(busy_ms)),
            EVERY.as_millis(),
            side(|(without, _)| *without),
            side(|(_, with)| *with),
            tails_us.len(),
            slice = SLICE.as_secs(),
        );
        let mut rows = Row::numbered("snapshots", "idle_ms", idle_ms);
        rows.extend(Row::numbered("snapshots", "busy_ms", busy_ms));
        let (without, with): (Vec<f64>, Vec<f64>) = tails_us.iter().copied().unzip();
        rows.extend(Row::numbered("snapshots", "p999_us_without", &without));
        rows.extend(Row::numbered("snapshots", "p999_us_with", &with));
        Found { targets, markdown, rows, plots: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ios(span: Range<u64>, took_us: f64) -> impl Iterator<Item = Io> {
        span.map(move |ended_ms| Io { ended_ms, took_us, wrote: true })
    }

    #[test]
    fn the_tail_of_a_slice_is_that_of_its_own_writes() {
        let all: Vec<Io> = ios(0..1000, 10.0).chain(ios(1000..1990, 20.0)).chain(ios(1990..2000, 500.0)).collect();
        assert_eq!(tails(&all, &(0..1000), &(1000..2000)), Some((10.0, 500.0)));
        assert_eq!(tails(&all, &(0..1000), &(5000..6000)), None);
    }

    #[test]
    fn one_bad_neighbour_does_not_decide() {
        let measured = Measured {
            idle_ms: vec![10.0; 20],
            busy_ms: vec![100.0, 1200.0],
            tails_us: vec![(100.0, 150.0), (100.0, 900.0), (200.0, 400.0)],
        };
        let found = measured.found();
        let verdicts: Vec<_> = found.targets.iter().map(|target| (target.measured, target.verdict())).collect();
        assert_eq!(verdicts[1..], [(Some(10.0), "ok"), (Some(1200.0), "MISSED"), (Some(2.0), "ok")]);
    }
}
