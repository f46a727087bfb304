//! A volume gets another layout while it's used: what that costs the client and how long it takes, by how fast it's to go (Ursa Minor
//! 4.4, Figure 7).

use super::load::{Load, now_ms};
use super::timeline::{Timeline, WINDOW_MS};
use super::{Found, Row, settle};
use crate::bench::plot::bars::{Bar, Bars, Group};
use crate::bench::plot::lines::{Lines, Series};
use crate::bench::suite::{Job, Suite};
use crate::bench::systems::Tepal;
use crate::bench::targets::{Bound, Target};
use crate::failure::Failure;
use std::path::Path;
use std::time::{Duration, Instant};

/// As when a server is added: the drives are the limit.
const DRIVE: &str = "read=4ms,write=4ms,iops=500,bandwidth=200M";
const SIZE: &str = "192M";
const DRIVE_SIZE: &str = "2G";
/// From extents of two of the client's requests to those of one, as there.
const FROM: &str = "mirror:2;extent=128K";
const TO: &str = "mirror:2";
/// By default, in the median while it goes, of before: as while copies are moved.
const MEANWHILE: f64 = 0.85;
/// The paper's workload: blocks of 64 KiB at random, one read to two writes.
const CLIENT: Job = Job { name: "randrw-64k-q16", rw: "randrw", block: "64k", depth: "16", clients: "1" };
const MIX: &[&str] = &["--rwmixread=33"];
const WARM_UP: Duration = Duration::from_secs(10);
/// How aggressive: bytes a second, and what is done if nothing is said.
const RATES: [Option<&str>; 4] = [Some("4M"), Some("8M"), Some("32M"), None];
/// What that is called.
const DEFAULT: &str = "default";
const LOOK: Duration = Duration::from_millis(250);
const DONE_WITHIN: Duration = Duration::from_secs(300);
const COMMAND: [&str; 2] = ["volume", "relayout"];

struct Measured {
    rate: &'static str,
    timeline: Timeline,
    took: Duration,
}

pub fn measure(program: &Path, runtime: Duration) -> Result<Found, Failure> {
    let shape = ["--servers", "4", "--drives", "1", "--emulate", DRIVE];
    let tepal = Tepal::start(program, &shape, DRIVE_SIZE, &[])?;
    if !tepal.knows(&COMMAND) {
        let why = format!("skipped: `tepal {}` isn't known", COMMAND.join(" "));
        println!("relayout {why}");
        let markdown = format!("\n## Another layout\n\n{why}.\n");
        return Ok(Found { markdown, ..Found::default() });
    }
    let mut measured = Vec::new();
    for rate in RATES {
        measured.push(at_rate(&tepal, rate, runtime)?);
    }
    Ok(found(&measured))
}

fn at_rate(tepal: &Tepal, rate: Option<&'static str>, runtime: Duration) -> Result<Measured, Failure> {
    tepal.manage(&["volume", "create", "v0", "--size", SIZE, "--layout", FROM])?;
    Suite { seconds: 0, size: SIZE.into(), program: None }.fill(&tepal.disk("v0"))?;
    settle();
    let load = Load::start(&CLIENT, &tepal.disk("v0"), SIZE, MIX)?;
    std::thread::sleep(WARM_UP);
    let seen = now_ms();
    std::thread::sleep(runtime);
    let began = now_ms();
    let to_rate = rate.map_or(Vec::new(), |rate| vec!["--rate", rate]);
    tepal.manage(&[&COMMAND[..], &["v0", "--layout", TO, "--no-wait"], &to_rate].concat())?;
    let limit = Instant::now() + DONE_WITHIN;
    while !tepal.ask(&["volume", "show", "v0"])?["migration"].is_null() {
        if Instant::now() > limit {
            let (what, seconds) = ("a change of layout".into(), DONE_WITHIN.as_secs());
            return Err(Failure::TooLong { what, seconds, output: String::new() });
        }
        std::thread::sleep(LOOK);
    }
    let ended = now_ms();
    std::thread::sleep(Duration::from_millis(2 * WINDOW_MS));
    let until = now_ms();
    let timeline = Timeline::of(&load.stop()?, &(began..ended), &(seen..until), 1);
    tepal.manage(&["volume", "rm", "v0", "--force"])?;
    Ok(Measured { rate: rate.unwrap_or(DEFAULT), timeline, took: Duration::from_millis(ended - began) })
}

fn found(measured: &[Measured]) -> Found {
    let (file, over_time) = ("change-relayout.svg".to_owned(), "change-relayout-default.svg".to_owned());
    let mut markdown = format!(
        "\n## Another layout\n\nFrom `{FROM}` to `{TO}`, {SIZE} on four drives of {DRIVE}, under requests of 64 KiB at random, 16 at a time, one \
         read to two writes as in Ursa Minor's Figure 7, by the rate that `relayout` is kept to. The paper's claim (4.4) is that changing a \
         distribution bit by bit has hardly any effect on the foreground, and is done in reasonable time.\n\n\
         ![Throughput meanwhile, and how long it takes, by rate]({file})\n\n![Throughput meanwhile, by default]({over_time})\n\n\
         | rate | took, s | I/Os a second before | meanwhile, of before | lowest of 2 s |\n| --- | --- | --- | --- | --- |\n"
    );
    let times = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
    let mut rows = Vec::new();
    for Measured { rate, timeline, took } in measured {
        markdown += &format!(
            "| {rate} | {:.1} | {:.0} | {} | {} |\n",
            took.as_secs_f64(),
            timeline.before().unwrap_or_default(),
            times(timeline.of_before(timeline.meanwhile())),
            times(timeline.of_before(timeline.lowest_meanwhile())),
        );
        rows.extend(timeline.rows("relayout", &format!("{rate}_iops")));
        rows.push(Row { measurement: "relayout", what: format!("{rate}_s"), at: 0.0, value: took.as_secs_f64() });
    }
    let longest = measured.iter().map(|measured| measured.took.as_secs_f64()).fold(0.0, f64::max);
    let group = |Measured { rate, timeline, took }: &Measured| {
        let of_before = timeline.of_before(timeline.meanwhile());
        let meanwhile = of_before.map(|height| Bar { height, label: format!("{height:.2}") });
        let took = took.as_secs_f64();
        let duration = Bar { height: took / longest, label: format!("{took:.0} s") };
        Group { name: (*rate).to_owned(), remark: String::new(), bars: vec![meanwhile, Some(duration)] }
    };
    let plot = Bars {
        title: "Another layout, by rate",
        subtitle: "throughput meanwhile, of that before; duration, of the longest",
        series: &["throughput", "duration"],
        groups: measured.iter().map(group).collect(),
    };
    let mut plots = vec![(file, plot.svg())];
    let by_default = measured.iter().find(|measured| measured.rate == DEFAULT);
    plots.extend(by_default.map(|measured| (over_time, measured.over_time().svg())));
    let lasting = by_default.and_then(|Measured { timeline, .. }| timeline.of_before(timeline.meanwhile()));
    let what = "another layout, by default: median while it goes, of that before".to_owned();
    let targets = vec![Target { what, bound: Bound::AtLeast(MEANWHILE), measured: lasting }];
    Found { targets, markdown, rows, plots }
}

impl Measured {
    fn over_time(&self) -> Lines<'_> {
        let levels = [(self.timeline.before(), "median before"), (self.timeline.after(), "median after")];
        Lines {
            title: "Another layout, by default",
            subtitle: "I/Os a second of 64 KiB, means over 2 s",
            across: "seconds since it was asked for",
            series: vec![Series { name: "client", points: self.timeline.points.clone() }],
            moments: vec![(0.0, "asked for"), (self.took.as_secs_f64(), "all has gone")],
            levels: levels.into_iter().filter_map(|(value, name)| Some((value?, name))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::change::record::Io;

    #[test]
    fn each_rate_has_its_cost_and_its_duration() {
        let io = |ended_ms| Io { ended_ms, took_us: 1.0, wrote: true };
        let ios: Vec<Io> = (0..4000).map(io).chain((2000..4000).map(|at| io(at * 2))).collect();
        let timeline = || Timeline::of(&ios, &(4000..8000), &(0..8000), 1);
        let measured = |rate, seconds| Measured { rate, timeline: timeline(), took: Duration::from_secs(seconds) };
        let found = found(&[measured("4M", 40), measured("default", 4)]);
        for line in ["| 4M | 40.0 | 1000 | 0.50 | 0.50 |", "| default | 4.0 | 1000 | 0.50 | 0.50 |"] {
            assert!(found.markdown.contains(line), "{}", found.markdown);
        }
        assert!(found.plots[0].1.contains(">40 s<") && found.plots[0].1.contains(">0.50<"));
    }
}
