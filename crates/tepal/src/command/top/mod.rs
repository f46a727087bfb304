//! `tepal top`: load and latency, from second to second.
//!
//! It asks servers for what they have counted (`/v1/counters`), as the console does, and shows what came in between two answers. Without a
//! terminal it's one round, for scripts.

mod rates;
mod screen;

use super::CommandError;
use super::status;
use crate::cli::{Global, Order, Shown, TopArguments};
use crate::client::{Client, ClientError};
use crate::interrupt::Interrupt;
use crate::locate;
use crate::output::{self, Outcome, Output, cut};
use rates::{Load, Round, Row, Rows};
use screen::{Key, Screen};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};
use tepal_server::api::types::{Counters, DriveInfo, Health, Status, VolumeInfo, route};

const EVERY: Duration = Duration::from_secs(1);
/// Names and states change seldom, and cost servers more than counters do.
const NAMES_EVERY: Duration = Duration::from_secs(5);
/// Lines of a screen that aren't rows: the cluster, what keeps it from being well, an empty one, the table's head, the keys.
const OTHER_LINES: usize = 6;

/// What is known besides the counters.
struct Known {
    at: Instant,
    status: Status,
    /// By id.
    volumes: BTreeMap<u64, String>,
    /// Name and server, by id.
    drives: BTreeMap<String, String>,
}

impl Known {
    fn ask(client: &Client) -> Result<Self, ClientError> {
        let volumes: Vec<VolumeInfo> = client.get(route::VOLUMES)?;
        let drives: Vec<DriveInfo> = client.get(route::DRIVES)?;
        Ok(Known {
            at: Instant::now(),
            status: client.get(route::STATUS)?,
            volumes: volumes.into_iter().map(|volume| (volume.id, volume.name)).collect(),
            drives: drives
                .into_iter()
                .map(|drive| (drive.id.to_string(), format!("{} on {}", drive.called(), drive.server)))
                .collect(),
        })
    }
}

/// What was counted until some moment.
struct Counted {
    at: Instant,
    counters: Counters,
}

impl Counted {
    fn ask(client: &Client) -> Result<Self, ClientError> {
        let counters = client.get(&format!("{}?each=true", route::COUNTERS))?;
        Ok(Counted { at: Instant::now(), counters })
    }

    fn since(&self, before: &Counted) -> Round {
        Round::between(&before.counters, &self.counters, self.at.duration_since(before.at))
    }
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Page<'a> {
    cluster: &'a str,
    health: Health,
    reason: &'a [String],
    #[serde(flatten)]
    round: Round,
}

pub fn run(global: &Global, output: Output, arguments: &TopArguments) -> Result<Outcome, CommandError> {
    let client = locate::client(global)?;
    let mut view = View { shown: arguments.show, order: arguments.by };
    let is_once = arguments.once || output.is_json() || !io::stdout().is_terminal() || !io::stdin().is_terminal();
    let (known, before) = (Known::ask(&client)?, Counted::ask(&client)?);
    if is_once {
        let interrupt = Interrupt::catch()?;
        if interrupt.wait(EVERY) {
            return Ok(Outcome::Done);
        }
        let mut round = named(Counted::ask(&client)?.since(&before), &known);
        for rows in [&mut round.volumes, &mut round.servers, &mut round.drives] {
            *rows = sorted(rows, view.order);
        }
        let Status { cluster, health, reason, .. } = &known.status;
        let page = Page { cluster, health: *health, reason, round };
        output.show(&page, |page| view.lines(&known.status, &page.round).join("\n"))?;
        return Ok(Outcome::Done);
    }
    live(&client, &mut view, known, before)
}

fn live(client: &Client, view: &mut View, mut known: Known, mut before: Counted) -> Result<Outcome, CommandError> {
    let interrupt = Interrupt::catch()?;
    let mut screen = Screen::open()?;
    let (mut round, mut trouble) = (Round::default(), None::<String>);
    let mut next = Instant::now() + EVERY;
    while !interrupt.is_raised() {
        let (height, width) = screen.size();
        let mut lines = view.lines(&known.status, &round);
        if let Some(trouble) = &trouble {
            lines.insert(1, format!("waiting: {}", output::one_line(trouble)));
        }
        lines.truncate(height.saturating_sub(2).max(OTHER_LINES));
        lines.push(String::new());
        lines.push(view.keys().to_owned());
        lines.truncate(height);
        screen.draw(lines.iter().map(|line| cut(line, width)))?;
        match screen.key(next.saturating_duration_since(Instant::now()))? {
            Some(Key::End) => break,
            Some(Key::Letter(letter)) => {
                view.heed(letter);
                continue;
            }
            None => {}
        }
        if Instant::now() < next {
            continue;
        }
        next = Instant::now() + EVERY;
        let told = refresh(client, &mut known).and_then(|()| Counted::ask(client));
        trouble = match told {
            Ok(counted) => {
                round = named(counted.since(&before), &known);
                before = counted;
                None
            }
            Err(error) if error.is_no_answer() || error.is_unavailable() => Some(error.to_string()),
            Err(error) => return Err(error.into()),
        };
    }
    Ok(Outcome::Done)
}

fn refresh(client: &Client, known: &mut Known) -> Result<(), ClientError> {
    if known.at.elapsed() >= NAMES_EVERY {
        *known = Known::ask(client)?;
    }
    Ok(())
}

/// By names, where these are known. A volume that was just made has its number until it's looked for again, and one that nobody asks for
/// anything has a row too.
fn named(mut round: Round, known: &Known) -> Round {
    let asked: BTreeSet<&String> = round.volumes.iter().map(|row| &row.name).collect();
    let quiet = known.volumes.keys().map(ToString::to_string).filter(|id| !asked.contains(id));
    let quiet: Rows = quiet.map(|name| Row { name, load: Load::default() }).collect();
    round.volumes.extend(quiet);
    for row in &mut round.volumes {
        let found = row.name.parse().ok().and_then(|id: u64| known.volumes.get(&id));
        row.name = found.map_or_else(|| format!("id:{}", row.name), Clone::clone);
    }
    for row in &mut round.drives {
        row.name = known.drives.get(&row.name).unwrap_or(&row.name).clone();
    }
    round
}

/// What is shown, and in which order.
struct View {
    shown: Shown,
    order: Order,
}

impl View {
    fn heed(&mut self, letter: char) {
        match letter {
            'v' => self.shown = Shown::Volumes,
            's' => self.shown = Shown::Servers,
            'd' => self.shown = Shown::Drives,
            'i' => self.order = Order::Iops,
            'b' => self.order = Order::Bandwidth,
            'l' => self.order = Order::Latency,
            _ => {}
        }
    }

    fn keys(&self) -> &'static str {
        "v volumes  s servers  d drives | i IOPS  b bandwidth  l latency | q end"
    }

    fn lines(&self, status: &Status, round: &Round) -> Vec<String> {
        let up = status.servers.iter().filter(|server| status::is_up(server.state)).count();
        let mut lines = vec![format!(
            "{}  {}  servers {up} of {} up  used {} of {}  {}",
            status.cluster,
            status::health(status.health),
            status.servers.len(),
            output::size(status.used),
            output::size(status.capacity),
            in_short(&round.cluster),
        )];
        lines.extend(status.reason.first().map(|reason| {
            let more = status.reason.len() - 1;
            let more = if more > 0 { format!(" (and {more} more: `tepal doctor`)") } else { String::new() };
            format!("{}{more}", output::one_line(reason))
        }));
        lines.push(String::new());
        let (what, rows) = match self.shown {
            Shown::Volumes => ("volume", &round.volumes),
            Shown::Servers => ("server", &round.servers),
            Shown::Drives => ("drive", &round.drives),
        };
        lines.extend(table(what, &sorted(rows, self.order)).lines().map(str::to_owned));
        lines
    }
}

fn in_short(load: &Load) -> String {
    let rate = |bytes: f64| output::rate(bytes as u64, EVERY);
    format!(
        "{:.0} reads/s {}  {:.0} writes/s {}",
        load.reads.iops,
        rate(load.reads.bytes),
        load.writes.iops,
        rate(load.writes.bytes)
    )
}

fn sorted(rows: &Rows, order: Order) -> Rows {
    let weight = |load: &Load| match order {
        Order::Iops => load.iops(),
        Order::Bandwidth => load.bytes(),
        Order::Latency => load.longest_micros(),
    };
    let mut rows = rows.clone();
    rows.sort_by(|one, other| {
        weight(&other.load).total_cmp(&weight(&one.load)).then_with(|| one.name.cmp(&other.name))
    });
    rows
}

fn table(what: &str, rows: &Rows) -> String {
    let rate = |bytes: f64| output::rate(bytes as u64, EVERY);
    let latency = |micros: f64| if micros > 0.0 { format!("{micros:.0} us") } else { "-".to_owned() };
    let row = |row: &Row| {
        let Load { reads, writes, flushes, discards, errors } = &row.load;
        vec![
            row.name.clone(),
            format!("{:.0}", reads.iops),
            format!("{:.0}", writes.iops),
            format!("{:.0}", flushes.iops + discards.iops),
            rate(reads.bytes),
            rate(writes.bytes),
            latency(reads.micros),
            latency(writes.micros),
            format!("{errors:.0}"),
        ]
    };
    let columns =
        [what, ">reads/s", ">writes/s", ">others/s", ">read", ">written", ">read takes", ">write takes", ">errors/s"];
    output::table(&columns, rows.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rates::Speed;

    fn row(name: &str, iops: f64, bytes: f64, micros: f64) -> Row {
        Row { name: name.to_owned(), load: Load { reads: Speed { iops, bytes, micros }, ..Load::default() } }
    }

    #[test]
    fn rows_are_sorted_by_what_is_asked_for() {
        let rows = vec![row("a", 1.0, 50.0, 7.0), row("b", 3.0, 10.0, 9.0), row("c", 2.0, 70.0, 8.0)];
        for (order, names) in [(Order::Iops, "bca"), (Order::Bandwidth, "cab"), (Order::Latency, "bca")] {
            assert_eq!(sorted(&rows, order).iter().map(|row| row.name.as_str()).collect::<String>(), names);
        }
    }

    #[test]
    fn keys_choose_what_is_shown() {
        let mut view = View { shown: Shown::Volumes, order: Order::Iops };
        "dl?".chars().for_each(|letter| view.heed(letter));
        assert_eq!((view.shown, view.order), (Shown::Drives, Order::Latency));
    }

    #[test]
    fn nothing_done_takes_no_time() {
        let text = table("volume", &vec![row("v0", 0.0, 0.0, 0.0)]);
        assert!(text.contains("v0") && text.contains(" - "), "{text}");
    }
}
