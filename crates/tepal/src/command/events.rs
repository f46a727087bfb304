//! `tepal events`: what has happened, and who asked for it.

use super::CommandError;
use super::replicate::now_ms;
use crate::cli::{EventsArguments, Global};
use crate::client::{Client, ClientError};
use crate::interrupt::Interrupt;
use crate::locate;
use crate::output::{self, Outcome, Output, one_line};
use serde::Serialize;
use serde_json::Value;
use std::io::{self, Write};
use std::time::Duration;
use tepal_server::api::types::{SqlQuery, SqlRows, route};

/// Between two looks at what is new.
const LOOK: Duration = Duration::from_millis(500);
/// What one answer may bring of news.
const MOST_NEWS: u64 = 10_000;

/// What happened once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Counts them, from 1.
    pub seq: u64,
    /// By the clock of the server that said it, in milliseconds since 1970.
    pub unix_ms: u64,
    /// To what: `server`, `drive`, `volume` and so on.
    pub kind: String,
    /// To which one.
    pub subject: String,
    pub text: String,
    /// Who asked for it; none if it came by itself.
    pub who: Option<String>,
}

/// Which events are wanted.
#[derive(Clone, Debug, Default)]
pub struct Wanted<'a> {
    pub who: Option<&'a str>,
    pub kind: Option<&'a str>,
    pub subject: Option<&'a str>,
    /// Not those before, in milliseconds since 1970.
    pub from_unix_ms: Option<u64>,
    /// Only those that count higher.
    pub after: Option<u64>,
}

impl Wanted<'_> {
    /// Of those that are wanted, so many of the newest, the newest first.
    fn query(&self, limit: u64) -> String {
        let texts = [("who", self.who), ("kind", self.kind), ("subject", self.subject)];
        let texts = texts.into_iter().filter_map(|(column, text)| Some(format!("{column} = {}", quoted(text?))));
        let numbers = [("unix_ms >=", self.from_unix_ms), ("seq >", self.after)];
        let numbers = numbers.into_iter().filter_map(|(compared, number)| Some(format!("{compared} {}", number?)));
        let all: Vec<String> = texts.chain(numbers).collect();
        let which = if all.is_empty() { String::new() } else { format!(" where {}", all.join(" and ")) };
        format!("select seq, unix_ms, kind, subject, text, who from events{which} order by seq desc limit {limit}")
    }

    /// The newest last.
    pub fn ask(&self, client: &Client, limit: u64) -> Result<Vec<Event>, ClientError> {
        let rows: SqlRows = client.post_repeatable(route::SQL, &SqlQuery { query: self.query(limit) })?;
        Ok(rows.rows.iter().rev().filter_map(|row| event(row)).collect())
    }
}

/// As a text of SQL, whatever is in it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn event(row: &[Value]) -> Option<Event> {
    let [seq, unix_ms, kind, subject, text, who] = row else { return None };
    let said = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Some(Event {
        seq: seq.as_u64()?,
        unix_ms: unix_ms.as_u64()?,
        kind: said(kind),
        subject: said(subject),
        text: said(text),
        who: who.as_str().map(str::to_owned),
    })
}

pub fn run(global: &Global, output: Output, arguments: &EventsArguments) -> Result<Outcome, CommandError> {
    let client = locate::client(global)?;
    let mut wanted = Wanted {
        who: arguments.who.as_deref(),
        kind: arguments.kind.as_deref(),
        subject: arguments.subject.as_deref(),
        from_unix_ms: arguments.since.map(|since| now_ms().saturating_sub(since)),
        after: None,
    };
    if !arguments.follow {
        let events = wanted.ask(&client, arguments.limit)?;
        output.show(&events, |events| table(events))?;
        return Ok(Outcome::Done);
    }
    let interrupt = Interrupt::catch()?;
    let client = client.patient();
    let mut newest = Wanted::default().ask(&client, 1)?.last().map_or(0, |event| event.seq);
    print(output, &wanted.ask(&client, arguments.limit)?)?;
    while !interrupt.wait(LOOK) {
        wanted.after = Some(newest);
        let events = wanted.ask(&client, MOST_NEWS)?;
        newest = events.last().map_or(newest, |event| event.seq);
        print(output, &events)?;
    }
    Ok(Outcome::Done)
}

/// Line by line, as nobody knows what comes.
fn print(output: Output, events: &[Event]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for event in events {
        match output.is_json() {
            true => serde_json::to_writer(&mut out, event)?,
            false => {
                let [time, kind, subject, text, who] = cells(event);
                let who = if who == "-" { String::new() } else { format!(" (by {who})") };
                write!(out, "{}", one_line(&format!("{time}  {kind} {subject}: {text}{who}")))?;
            }
        }
        writeln!(out)?;
    }
    out.flush()
}

fn cells(event: &Event) -> [String; 5] {
    let who = event.who.clone().unwrap_or_else(|| "-".to_owned());
    [output::time(event.unix_ms), event.kind.clone(), event.subject.clone(), event.text.clone(), who]
}

fn table(events: &[Event]) -> String {
    output::table(&["time", "kind", "subject", "what", "who"], events.iter().map(|event| cells(event).to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_is_wanted_is_asked_for() {
        let all = Wanted::default().query(5);
        assert_eq!(all, "select seq, unix_ms, kind, subject, text, who from events order by seq desc limit 5");
        let wanted = Wanted { who: Some("o'hara"), kind: Some("drive"), after: Some(7), ..Wanted::default() };
        let query = wanted.query(1);
        assert!(query.contains(" where who = 'o''hara' and kind = 'drive' and seq > 7 order"), "{query}");
    }

    #[test]
    fn an_event_without_asker_is_shown_with_none() {
        let row = json!([3, 1_795_395_121_000u64, "server", "s2", "up -> down\nit's silent", null]);
        let found = event(row.as_array().expect("a list")).expect("an event");
        let line = table(std::slice::from_ref(&found));
        assert!(line.contains("2026-11-23 00:52:01  server  s2       up -> down; it's silent  -"), "{line}");
        assert_eq!(event(&[json!(3)]), None);
    }
}
