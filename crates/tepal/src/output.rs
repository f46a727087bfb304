//! What is printed: tables for people, one JSON document for programs, progress on standard error, errors on one line.
//!
//! Whoever reads standard output may stop reading at any time; then the command ends quietly.

use crate::cli::Format;
use crate::command::CommandError;
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tepal_model::size::Size;

/// Characters of an error.
const LONGEST_LINE: usize = 800;

/// Standard output, in the format that was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    format: Format,
}

/// How a command ended that didn't fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// It did its work, and what it found is bad; that is printed already.
    Bad,
    /// Nobody could be asked what it wanted to know; that is printed already.
    Unasked,
}

/// The exit status of the process; an error is printed first, on one line.
pub fn conclude(result: Result<Outcome, CommandError>) -> ExitCode {
    match result {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Bad) => ExitCode::FAILURE,
        Ok(Outcome::Unasked) => ExitCode::from(2),
        Err(CommandError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            tell(&error);
            ExitCode::FAILURE
        }
    }
}

/// The one line of an error.
pub fn tell(error: &CommandError) {
    // If standard error is closed too, there is nobody to tell.
    let _ = writeln!(io::stderr(), "error: {}", readable(&one_line(&error.to_string())));
}

/// As much of a text as fits, for a terminal's line; what is cut off is shown by a mark.
pub fn cut(text: &str, width: usize) -> Cow<'_, str> {
    match text.chars().count() <= width {
        true => text.into(),
        false => {
            text.chars().take(width.saturating_sub(1)).chain((width > 0).then_some('…')).collect::<String>().into()
        }
    }
}

/// A length of time as people say it: `5 s`, `3 min`, `2 h`, `4 days`.
pub fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..=119 => format!("{seconds} s"),
        seconds @ ..=7199 => format!("{} min", seconds / 60),
        seconds @ ..=172_799 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

/// The text without line ends and other control characters, which could forge lines or move a terminal's cursor.
pub fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ").chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// As much of a line as a reader takes in: whoever types a megabyte gets back its beginning and what was said of it.
fn readable(line: &str) -> Cow<'_, str> {
    let characters = line.chars().count();
    if characters <= LONGEST_LINE {
        return line.into();
    }
    let beginning: String = line.chars().take(LONGEST_LINE / 2).collect();
    let end: String = line.chars().skip(characters - LONGEST_LINE / 2).collect();
    format!("{beginning} ... {end}").into()
}

impl Output {
    pub fn new(format: Format) -> Self {
        Output { format }
    }

    pub fn is_json(self) -> bool {
        self.format == Format::Json
    }

    /// The value as JSON, or whatever `people` make of it.
    pub fn show<T: Serialize + ?Sized>(self, value: &T, people: impl FnOnce(&T) -> String) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match self.format {
            Format::Json => {
                serde_json::to_writer_pretty(&mut out, value)?;
                writeln!(out)?;
            }
            Format::Table => {
                let text = people(value);
                write!(out, "{text}{}", if text.is_empty() || text.ends_with('\n') { "" } else { "\n" })?;
            }
        }
        out.flush()
    }

    /// A remark for people, on standard output; nothing with JSON, which has one document only.
    pub fn say(self, text: &str) -> io::Result<()> {
        if self.is_json() {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")?;
        out.flush()
    }
}

/// Columns whose names begin with `>` are numbers, aligned to the right.
pub fn table(columns: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(columns.iter().map(|name| one_line(&name.trim_start_matches('>').to_uppercase())));
    for row in rows {
        table.add_row(row.iter().map(|cell| one_line(cell)));
    }
    for (index, name) in columns.iter().enumerate() {
        if let Some(column) = table.column_mut(index) {
            column.set_padding((0, 2));
            if name.starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Names and values, one a line.
pub fn facts(facts: &[(&str, String)]) -> String {
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    facts.iter().map(|(name, value)| format!("{name:width$}  {}\n", one_line(value))).collect()
}

pub fn size(bytes: u64) -> String {
    Size(bytes).to_string()
}

/// To the second, as `2026-11-23 17:05:09`, in UTC. `unix_ms` are milliseconds since 1970.
pub fn time(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March end with the day that not all have, and repeat after 400.
    let day = days + 719_468; // from 0000-03-01 on
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

/// Bytes a second, as `1.2G/s`.
pub fn rate(bytes: u64, time: Duration) -> String {
    let seconds = time.as_secs_f64().max(1e-9);
    // Rounded to MiB, where that loses nothing that anybody reads.
    let per_second = (bytes as f64 / seconds) as u64;
    let coarse = if per_second >= 10 << 20 { per_second >> 20 << 20 } else { per_second };
    format!("{}/s", Size(coarse))
}

/// How far long work is: a bar on a terminal, lines on a pipe. On standard error, so that standard output stays clean.
pub struct Progress {
    what: String,
    unit: Unit,
    way: Way,
}

enum Unit {
    Bytes,
    /// By this name.
    Pieces(&'static str),
}

enum Way {
    Bar(ProgressBar),
    Lines { last: Instant, told: Option<u64> },
}

const BETWEEN_LINES: Duration = Duration::from_secs(2);

impl Progress {
    /// Of bytes.
    pub fn new(what: impl Into<String>) -> Self {
        Self::in_units(what.into(), Unit::Bytes)
    }

    /// Of something that is counted, as copies.
    pub fn counting(what: impl Into<String>, name: &'static str) -> Self {
        Self::in_units(what.into(), Unit::Pieces(name))
    }

    fn in_units(what: String, unit: Unit) -> Self {
        let way = if io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            let style = match unit {
                Unit::Bytes => {
                    "{msg} [{bar:30}] {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left".to_owned()
                }
                Unit::Pieces(name) => format!("{{msg}} [{{bar:30}}] {{pos}} of {{len}} {name}, {{eta}} left"),
            };
            if let Ok(style) = ProgressStyle::with_template(&style) {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.set_message(what.clone());
            Way::Bar(bar)
        } else {
            Way::Lines { last: Instant::now(), told: None }
        };
        Progress { what, unit, way }
    }

    pub fn set(&mut self, done: u64, total: u64) {
        match &mut self.way {
            Way::Bar(bar) => {
                bar.set_length(total);
                bar.set_position(done);
            }
            // What is no news isn't told again.
            Way::Lines { last, told } if last.elapsed() >= BETWEEN_LINES && *told != Some(done) => {
                (*last, *told) = (Instant::now(), Some(done));
                let percent = (done as f64 * 100.0 / total.max(1) as f64).min(100.0);
                let parts = match self.unit {
                    Unit::Bytes => format!("{} of {}", size(done), size(total)),
                    Unit::Pieces(name) => format!("{done} of {total} {name}"),
                };
                let _ = writeln!(io::stderr(), "{}: {percent:.0}% ({parts})", self.what);
            }
            Way::Lines { .. } => {}
        }
    }

    /// A line beside it.
    pub fn say(&self, text: &str) {
        let line = format!("{}: {text}", self.what);
        match &self.way {
            Way::Bar(bar) => bar.println(line),
            Way::Lines { .. } => {
                let _ = writeln!(io::stderr(), "{line}");
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Way::Bar(bar) = &self.way {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_whatever_is_in_it() {
        assert_eq!(one_line("a\nerror: b\x1b[2J\n"), "a; error: b\u{fffd}[2J");
    }

    #[test]
    fn tables_align_numbers_to_the_right_and_leave_no_space_at_the_end() {
        let text = table(&["name", ">size"], [vec!["v0".into(), "2G".into()], vec!["long".into(), "100M".into()]]);
        assert_eq!(text, "NAME  SIZE\nv0      2G\nlong  100M\n");
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (951_868_800, "2000-03-01 00:00:00"),
            (1_795_395_121, "2026-11-23 00:52:01"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(time(seconds * 1000 + 999), text);
        }
        assert!(!time(u64::MAX).is_empty(), "whatever a server says");
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_with_a_mark() {
        for (width, cut_to) in [(0, ""), (1, "…"), (3, "äb…"), (4, "äbcd"), (9, "äbcd")] {
            assert_eq!(cut("äbcd", width), cut_to);
        }
    }

    #[test]
    fn spans_have_one_unit() {
        for (seconds, text) in [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (172_800, "2 days")] {
            assert_eq!(span(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn rates_are_readable() {
        assert_eq!(rate(1 << 30, Duration::from_secs(1)), "1G/s");
        assert_eq!(rate(1000, Duration::from_secs(1)), "1000/s");
    }
}
