//! A volume whose neighbour asks for all it can get: first alone, then beside it, then beside it with a limit.

use super::place::{NOISY, Place, QUIET};
use crate::bench::plot::lines::{Lines, Series};
use crate::bench::report::figure;
use crate::bench::suite::{Job, Suite, fio};
use crate::bench::targets::{Bound, Target};
use crate::failure::Failure;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SIZE: &str = "512M";
const VICTIM: Job = Job { name: "quiet", rw: "randread", block: "4k", depth: "1", clients: "1" };
const NEIGHBOUR: Job = Job { name: "noisy", rw: "randrw", block: "64k", depth: "32", clients: "1" };
/// What the neighbour may have then.
const LIMIT: [&str; 4] = ["--iops", "400", "--bandwidth", "25M"];
/// After a change, until it's as it will be.
const SETTLE: f64 = 2.0;

pub struct Noise {
    /// The 99th percentile of each second, in microseconds.
    seconds: Vec<(f64, f64)>,
    /// When the neighbour came, and when it got its limit.
    came: f64,
    limited: f64,
    alone: f64,
    beside: f64,
    held: f64,
}

impl Noise {
    pub fn make(place: &Place, part: u64) -> Result<Noise, Failure> {
        let suite = Suite { seconds: part, size: SIZE.to_owned(), program: None };
        for volume in [QUIET, NOISY] {
            suite.fill(&place.local(volume))?;
        }
        std::thread::sleep(Duration::from_secs(5));
        let log = place.file("quiet");
        let mut victim = fio(&VICTIM, &place.local(QUIET), SIZE);
        victim
            .args(["--time_based", &format!("--runtime={}", 3 * part)])
            .arg(format!("--write_lat_log={}", log.display()));
        let began = Instant::now();
        let mut victim = spawn(victim)?;
        let part = Duration::from_secs(part);
        std::thread::sleep(part);
        let came = began.elapsed().as_secs_f64();
        let mut neighbour = fio(&NEIGHBOUR, &place.local(NOISY), SIZE);
        neighbour.args(["--time_based", "--runtime=3600"]);
        let mut neighbour = spawn(neighbour)?;
        std::thread::sleep(part);
        let limited = began.elapsed().as_secs_f64();
        let managed = place.manage(&[&["volume", "limit", NOISY], &LIMIT[..]].concat());
        let ended = victim.wait();
        let _ = neighbour.kill();
        let _ = neighbour.wait();
        managed?;
        ended.map_err(|source| Failure::Start { program: "fio".into(), source })?;
        let file = place.file("quiet_clat.1.log");
        let text = std::fs::read_to_string(&file).map_err(Failure::file(&file))?;
        Ok(Noise::of(&latencies(&text), (came, limited)))
    }

    /// `latencies`: when each ended, in seconds, and how long it took, in microseconds.
    fn of(latencies: &[(f64, f64)], (came, limited): (f64, f64)) -> Noise {
        let within = |from: f64, to: f64| high(latencies.iter().filter(|(at, _)| (from..to).contains(at)));
        let end = latencies.last().map_or(limited, |(at, _)| *at);
        let second = |at: u32| (f64::from(at), within(f64::from(at), f64::from(at) + 1.0));
        Noise {
            seconds: (0..end as u32).map(second).collect(),
            came,
            limited,
            alone: within(SETTLE, came),
            beside: within(came + SETTLE, limited),
            held: within(limited + SETTLE, end),
        }
    }

    pub fn targets(&self) -> Vec<Target> {
        let what = "99th percentile of a volume beside a neighbour with a limit, in multiples of alone".to_owned();
        vec![Target { what, bound: Bound::AtMost(1.5), measured: Some(self.held / self.alone) }]
    }

    pub fn section(&self) -> String {
        format!(
            "\n## A noisy neighbour\n\nOne read of 4 KiB at a time of one volume; beside it another volume with 32 requests of 64 KiB at a \
             time, half of them writes, then with a limit ({}).\n\n| | 99th percentile |\n| --- | --- |\n| alone | {} us |\n| beside the \
             neighbour | {} us |\n| beside it with a limit | {} us |\n\n![The 99th percentile of each second](access-noisy.svg)\n",
            LIMIT.join(" "),
            figure(self.alone),
            figure(self.beside),
            figure(self.held)
        )
    }

    pub fn svg(&self, date: &str) -> String {
        Lines {
            title: "A read of 4 KiB, 99th percentile of each second, in microseconds",
            subtitle: date,
            across: "seconds",
            series: vec![Series { name: "a quiet volume", points: self.seconds.clone() }],
            moments: vec![(self.came, "the neighbour comes"), (self.limited, "it gets a limit")],
            levels: vec![(self.alone, "alone"), (self.alone * 1.5, "1.5 times that")],
        }
        .svg()
    }
}

fn spawn(mut command: Command) -> Result<Child, Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map_err(|source| Failure::Start { program: "fio".into(), source })
}

/// Lines of fio's log: milliseconds, nanoseconds, and more.
fn latencies(text: &str) -> Vec<(f64, f64)> {
    let line = |line: &str| {
        let mut cells = line.split(',').map(str::trim);
        let (at, took): (f64, f64) = (cells.next()?.parse().ok()?, cells.next()?.parse().ok()?);
        Some((at / 1000.0, took / 1000.0))
    };
    text.lines().filter_map(line).collect()
}

/// The 99th percentile.
fn high<'a>(latencies: impl Iterator<Item = &'a (f64, f64)>) -> f64 {
    let mut all: Vec<f64> = latencies.map(|(_, took)| *took).collect();
    all.sort_by(f64::total_cmp);
    let at = (all.len() * 99).div_ceil(100).saturating_sub(1);
    all.get(at).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_apart_by_when_requests_ended() {
        let lines: String = (0..90_000)
            .map(|at| {
                let took = if (30_000..60_000).contains(&at) { 900_000 } else { 100_000 + at % 100 };
                format!("{}, {took}, 0, 4096, 0\n", at / 3)
            })
            .collect();
        let noise = Noise::of(&latencies(&lines), (10.0, 20.0));
        assert!((noise.alone - 100.0).abs() < 1.0 && (noise.beside - 900.0).abs() < 1.0, "{}", noise.beside);
        assert!((noise.held - 100.0).abs() < 1.0 && noise.seconds.len() == 29, "{}", noise.seconds.len());
        assert_eq!(noise.targets()[0].verdict(), "ok");
        assert!(noise.svg("today").contains("it gets a limit"));
        assert_eq!(latencies("no number\n1, x\n"), vec![]);
    }
}
