//! A fifth server is added to four, and gets its fair share of a volume that is in use. Petal (2.3): "the performance of the virtual disk
//! should gradually increase during reconfiguration from its level before reconfiguration to its level after".

use super::load::{Load, now_ms};
use super::timeline::{Timeline, WINDOW_MS};
use super::{Found, Row, settle};
use crate::bench::plot::lines::{Lines, Series};
use crate::bench::suite::{Job, Suite};
use crate::bench::systems::Tepal;
use crate::bench::targets::{Bound, Target};
use crate::failure::Failure;
use crate::workspace::answer;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

/// So slow that the drives are the limit, and not the processors that all servers share.
const DRIVE: &str = "read=4ms,write=4ms,iops=500,bandwidth=200M";
const SIZE: &str = "384M";
const DRIVE_SIZE: &str = "1G";
const LAYOUT: &str = "mirror:2";
const SERVERS: u32 = 5;

/// A client, and how what it has in a second is looked at.
struct Client {
    name: &'static str,
    /// Also in the names of targets.
    what: &'static str,
    job: Job,
    more: &'static [&'static str],
    /// Until throughput is even.
    warm_up: Duration,
    /// Windows of which a mean is taken.
    windows: usize,
}

const CLIENTS: [Client; 2] = [
    Client {
        name: "reads",
        what: "reads",
        job: Job { name: "randread-4k-q64", rw: "randread", block: "4k", depth: "64", clients: "1" },
        more: &[],
        warm_up: Duration::from_secs(5),
        windows: 1,
    },
    // Drives bring what was written to its place in bouts of some seconds, which a mean of ten evens out. At first logs take what
    // drives can't yet.
    Client {
        name: "mixed",
        what: "reads and writes 70:30",
        job: Job { name: "randrw-4k-q64", rw: "randrw", block: "4k", depth: "64", clients: "1" },
        more: &["--rwmixread=70"],
        warm_up: Duration::from_secs(40),
        windows: 5,
    },
];

/// Where copies are, and where they are on their way to.
const PLACES: &str = "SELECT map, \"column\", drive, 0 FROM map_columns \
                      UNION ALL SELECT map, \"column\", drive_to, 1 FROM map_joins";
const LOOK: Duration = Duration::from_millis(250);
/// When nothing has been moving for so long, all has moved.
const QUIET: Duration = Duration::from_secs(3);
const MOVED_WITHIN: Duration = Duration::from_secs(300);

const LOWEST: f64 = 0.85;
const AFTER: f64 = 1.15;
const MOVED: f64 = 1.1;

struct Measured {
    timeline: Timeline,
    took: Duration,
    moves: Moves,
    /// Bytes that all copies take, and those on the new server's drive.
    allocated: u64,
    arrived: u64,
}

pub fn measure(program: &Path, runtime: Duration) -> Result<Found, Failure> {
    let mut found = Found {
        markdown: format!(
            "\n## A fifth server\n\nFour servers with a drive each, slowed to {DRIVE}; 4 KiB requests at random, 64 at a time, on a `{LAYOUT}` volume \
             of {SIZE} that was filled before. Then `tepal dev up --servers {SERVERS}`; nothing else is said, so this is what moving does by \
             default. Petal's claim (2.3) is that performance goes up gradually from its level before to its level after.\n"
        ),
        ..Found::default()
    };
    for client in &CLIENTS {
        found.add(add_under(program, client, runtime)?.found(client));
    }
    Ok(found)
}

fn add_under(program: &Path, client: &Client, runtime: Duration) -> Result<Measured, Failure> {
    let before = (SERVERS - 1).to_string();
    let shape = ["--servers", &before, "--drives", "1", "--emulate", DRIVE];
    let tepal = Tepal::start(program, &shape, DRIVE_SIZE, &[format!("v0={SIZE},layout={LAYOUT}")])?;
    Suite { seconds: 0, size: SIZE.into(), program: None }.fill(&tepal.disk("v0"))?;
    settle();
    let mut moves = Moves::of(&places(&tepal)?);
    let load = Load::start(&client.job, &tepal.disk("v0"), SIZE, client.more)?;
    std::thread::sleep(client.warm_up);
    let seen = now_ms();
    std::thread::sleep(runtime);
    let began = now_ms();
    tepal.grow(SERVERS)?;
    let ended = watch(&tepal, &mut moves)?;
    std::thread::sleep(runtime.saturating_sub(QUIET));
    let until = now_ms();
    let ios = load.stop()?;
    let timeline = Timeline::of(&ios, &(began..ended), &(seen..until), client.windows);
    let number = |value: &Value| value.as_u64().ok_or(answer("tepal", "bytes"));
    let drives = tepal.ask(&["drive", "ls"])?;
    let newest = format!("s{SERVERS}");
    let drives = drives.as_array().into_iter().flatten().filter(|drive| drive["server"] == *newest);
    Ok(Measured {
        timeline,
        took: Duration::from_millis(ended - began),
        moves,
        allocated: number(&tepal.ask(&["volume", "show", "v0"])?["allocated"])?,
        arrived: drives.map(|drive| number(&drive["used"])).sum::<Result<u64, Failure>>()?,
    })
}

/// Until all has moved: when that was, in milliseconds since 1970.
fn watch(tepal: &Tepal, moves: &mut Moves) -> Result<u64, Failure> {
    let began = Instant::now();
    let mut quiet: Option<(Instant, u64)> = None;
    loop {
        let is_moving = moves.look(&places(tepal)?);
        match quiet {
            _ if is_moving || moves.arrivals.is_empty() => quiet = None,
            None => quiet = Some((Instant::now(), now_ms())),
            Some((since, ended)) if since.elapsed() >= QUIET => return Ok(ended),
            Some(_) => {}
        }
        if began.elapsed() > MOVED_WITHIN {
            let (what, seconds) = ("moving copies to a new server".into(), MOVED_WITHIN.as_secs());
            return Err(Failure::TooLong { what, seconds, output: String::new() });
        }
        std::thread::sleep(LOOK);
    }
}

/// A column's copy on a drive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct HeldColumn {
    map: u64,
    column: u64,
    drive: String,
    /// It's on its way there.
    joins: bool,
}

fn places(tepal: &Tepal) -> Result<Vec<HeldColumn>, Failure> {
    parse(&tepal.ask(&["sql", PLACES])?).ok_or(answer("tepal sql", "rows of places"))
}

fn parse(answer: &Value) -> Option<Vec<HeldColumn>> {
    let place = |row: &Value| {
        let drive = row[2].as_str()?.to_owned();
        Some(HeldColumn { map: row[0].as_u64()?, column: row[1].as_u64()?, drive, joins: row[3].as_u64()? == 1 })
    };
    answer["rows"].as_array()?.iter().map(place).collect()
}

/// Copies that went to other drives, of all that there are. One counts for each drive that it went to, also if it went on from there
/// or never came to be.
struct Moves {
    first: BTreeSet<(u64, u64, String)>,
    arrivals: BTreeSet<(u64, u64, String)>,
}

impl Moves {
    fn of(places: &[HeldColumn]) -> Moves {
        let first = places.iter().map(|place| (place.map, place.column, place.drive.clone())).collect();
        Moves { first, arrivals: BTreeSet::new() }
    }

    /// Whether any is on its way.
    fn look(&mut self, places: &[HeldColumn]) -> bool {
        for place in places {
            let copy = (place.map, place.column, place.drive.clone());
            if !self.first.contains(&copy) {
                self.arrivals.insert(copy);
            }
        }
        places.iter().any(|place| place.joins)
    }

    /// In multiples of the new server's fair share, which is the least that can be moved. All copies are of one size.
    fn of_fair_share(&self) -> f64 {
        self.arrivals.len() as f64 * f64::from(SERVERS) / self.first.len() as f64
    }
}

impl Measured {
    fn found(&self, client: &Client) -> Found {
        let Measured { timeline, took, moves, allocated, arrived } = self;
        let Client { name, what, windows, .. } = client;
        let lowest = timeline.of_before(timeline.lowest_meanwhile());
        let after = timeline.of_before(timeline.after());
        let usual = timeline.of_before(timeline.lowest_before());
        let target =
            |about: &str, bound, measured| Target { what: format!("a fifth server, {what}: {about}"), bound, measured };
        let targets = vec![
            target("lowest while copies move, of the median before", Bound::AtLeast(LOWEST), lowest),
            target("median after, of that before", Bound::AtLeast(AFTER), after),
            target("bytes moved, of the new server's fair share", Bound::AtMost(MOVED), Some(moves.of_fair_share())),
        ];
        let file = format!("change-adding-{name}.svg");
        let seconds = *windows as u64 * WINDOW_MS / 1000;
        let times = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
        let markdown = format!(
            "\n![{what} while a server is added]({file})\n\nClient of {what}, means over {seconds} s: {:.0} I/Os a second before (median; the lowest \
             was {} of it), at least {} of it until all had moved, which took {:.1} s from the command on, and {} after. {} of {} copies moved, \
             {:.0} of {:.0} MiB; the new drive has {:.0} MiB.\n",
            timeline.before().unwrap_or_default(),
            times(usual),
            times(lowest),
            took.as_secs_f64(),
            times(after),
            moves.arrivals.len(),
            moves.first.len(),
            mebibytes(*allocated) * moves.arrivals.len() as f64 / moves.first.len() as f64,
            mebibytes(*allocated),
            mebibytes(*arrived),
        );
        let levels = [(timeline.before(), "median before"), (timeline.after(), "median after")];
        let plot = Lines {
            title: &format!("A fifth server joins four: {what}"),
            subtitle: &format!("I/Os a second, means over {seconds} s; drives of {DRIVE}"),
            across: "seconds since the server was added",
            series: vec![Series { name, points: timeline.points.clone() }],
            moments: vec![(0.0, "added"), (took.as_secs_f64(), "all has moved")],
            levels: levels.into_iter().filter_map(|(value, name)| Some((value?, name))).collect(),
        };
        let mut rows = timeline.rows("adding", &format!("{name}_iops"));
        rows.push(Row { measurement: "adding", what: format!("{name}_moved_s"), at: 0.0, value: took.as_secs_f64() });
        Found { targets, markdown, rows, plots: vec![(file, plot.svg())] }
    }
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn place(column: u64, drive: &str, joins: bool) -> HeldColumn {
        HeldColumn { map: 1, column, drive: drive.into(), joins }
    }

    #[test]
    fn places_are_read_from_the_answer() {
        let answer = json!({ "columns": ["map", "column", "drive", "0"], "rows": [[1, 7, "ab", 0], [1, 7, "cd", 1]] });
        assert_eq!(parse(&answer), Some(vec![place(7, "ab", false), place(7, "cd", true)]));
        assert_eq!(parse(&json!({ "rows": [[1, null, "ab", 0]] })), None);
        assert_eq!(parse(&json!({})), None);
    }

    #[test]
    fn each_copy_counts_once_for_each_drive_that_it_went_to() {
        let mut moves = Moves::of(&(0..10).map(|column| place(column, "a", false)).collect::<Vec<_>>());
        assert!(!moves.look(&[place(0, "a", false)]));
        assert_eq!(moves.of_fair_share(), 0.0);
        assert!(moves.look(&[place(0, "a", false), place(0, "b", true)]));
        assert!(!moves.look(&[place(0, "b", false)]));
        assert_eq!(moves.of_fair_share(), 0.5);
        // It goes on to another one, which is moving too much.
        moves.look(&[place(0, "c", true)]);
        moves.look(&[place(0, "c", false), place(1, "b", false)]);
        assert_eq!(moves.of_fair_share(), 1.5);
    }
}
