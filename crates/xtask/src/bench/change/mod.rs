//! `cargo xtask bench change`: what it costs a client when something is changed under it. Snapshots, the first writes after them, a
//! server that is added, another layout, and volumes that are far larger than their drives.

mod adding;
mod load;
mod record;
mod relayout;
mod small_writes;
mod snapshots;
mod sparse;
mod timeline;

use super::report::{self, Circumstances, Report};
use super::targets::Target;
use crate::failure::Failure;
use crate::workspace::Workspace;
use clap::{Args, ValueEnum};
use std::path::Path;
use std::time::Duration;

const TSV_HEAD: &str = "measurement\twhat\tat\tvalue\n";
/// For what a fill leaves to be done.
const SETTLE: Duration = Duration::from_secs(5);

#[derive(Args)]
pub struct Options {
    /// Seconds that are looked at before and after a change
    #[arg(long, default_value_t = 24)]
    runtime: u64,
    /// How often what can be repeated is
    #[arg(long, default_value_t = 5)]
    reps: u32,
    /// Only these measurements; then nothing is saved
    #[arg(long, value_enum, value_delimiter = ',')]
    tests: Vec<Measurement>,
    /// Print, save nothing
    #[arg(long)]
    dry: bool,
    /// End with status 1 if a target is missed
    #[arg(long)]
    strict: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Measurement {
    /// How long a snapshot takes, and what writers see of it
    Snapshots,
    /// The first small write to an extent after a snapshot
    SmallWrites,
    /// A fifth server
    Adding,
    /// Another layout
    Relayout,
    /// Volumes of a TiB
    Sparse,
}

/// What a measurement has found.
#[derive(Default)]
struct Found {
    targets: Vec<Target>,
    /// A section of the report.
    markdown: String,
    rows: Vec<Row>,
    /// SVG images by their files' names.
    plots: Vec<(String, String)>,
}

/// A figure as it was measured.
struct Row {
    measurement: &'static str,
    what: String,
    /// Which repetition, or when: seconds since the change began.
    at: f64,
    value: f64,
}

pub fn run(workspace: &Workspace, options: &Options) -> Result<(), Failure> {
    let program = workspace.binary("tepal")?;
    let wanted = |measurement: &Measurement| options.tests.is_empty() || options.tests.contains(measurement);
    let mut found = Found::default();
    print!("{TSV_HEAD}");
    for measurement in Measurement::value_variants().iter().filter(|measurement| wanted(measurement)) {
        let more = measurement.measure(&program, options)?;
        print!("{}", lines(&more.rows));
        found.add(more);
    }
    let mut text = report::head(&Circumstances::here(), "change", "Changes under load");
    text += &format!(
        "Four servers on one machine with a drive in /dev/shm each, and what their client sees while something is changed. The client is fio's NBD \
         engine through the cluster's gateway, and notes every I/O. Where something is repeated it is {} times; {} s are looked at before and \
         after a change. Every figure is in [change.tsv](change.tsv).\n\n",
        options.reps, options.runtime
    );
    text += &report::verdicts(&found.targets);
    text += &found.markdown;
    let mut files = vec![("change.tsv".to_owned(), TSV_HEAD.to_owned() + &lines(&found.rows))];
    files.extend(found.plots);
    let is_whole = options.tests.is_empty() && !options.dry;
    Report { name: "change", text, files, targets: found.targets }.publish(workspace, is_whole, options.strict)
}

impl Measurement {
    fn measure(self, program: &Path, options: &Options) -> Result<Found, Failure> {
        let runtime = Duration::from_secs(options.runtime);
        match self {
            Measurement::Snapshots => snapshots::measure(program, options.reps),
            Measurement::SmallWrites => small_writes::measure(program, options.reps),
            Measurement::Adding => adding::measure(program, runtime),
            Measurement::Relayout => relayout::measure(program, runtime),
            Measurement::Sparse => sparse::measure(program, options.reps),
        }
    }
}

impl Found {
    fn add(&mut self, other: Found) {
        self.targets.extend(other.targets);
        self.markdown += &other.markdown;
        self.rows.extend(other.rows);
        self.plots.extend(other.plots);
    }
}

impl Row {
    /// Repetitions, from 1.
    fn numbered(measurement: &'static str, what: &str, values: &[f64]) -> Vec<Row> {
        let row =
            |(place, &value): (usize, &f64)| Row { measurement, what: what.to_owned(), at: (place + 1) as f64, value };
        values.iter().enumerate().map(row).collect()
    }
}

fn lines(rows: &[Row]) -> String {
    let line = |Row { measurement, what, at, value }: &Row| format!("{measurement}\t{what}\t{at}\t{value:.3}\n");
    rows.iter().map(line).collect()
}

fn worst(values: &[f64]) -> Option<f64> {
    values.iter().copied().max_by(f64::total_cmp)
}

fn settle() {
    std::thread::sleep(SETTLE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_a_line() {
        let rows = Row::numbered("snapshots", "idle_ms", &[12.34567, 7.0]);
        assert_eq!(lines(&rows), "snapshots\tidle_ms\t1\t12.346\nsnapshots\tidle_ms\t2\t7.000\n");
    }

    #[test]
    fn nothing_has_no_worst() {
        assert_eq!(worst(&[1.0, 3.0, 2.0]), Some(3.0));
        assert_eq!(worst(&[]), None);
    }
}
