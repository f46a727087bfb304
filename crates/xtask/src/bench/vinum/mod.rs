//! `cargo xtask bench vinum`: volumes of plexes on emulated drives, beside the drive by itself, and in the shapes of Vinum's paper (Lehey,
//! FREENIX 1999, figures 4 to 7); and how long `tepal apply` takes over many volumes.
//!
//! Each part is a run of its own and keeps to its own jobs, which begin with its name. What was saved of the other parts stays, so that a
//! part can be measured alone; ratios are within one part.

mod apply;
mod overhead;
mod page;
mod shapes;
mod volumes;

use super::report::{Report, tsv};
use super::suite::Run;
use crate::failure::Failure;
use crate::workspace::Workspace;
use clap::{Args, ValueEnum};
use std::path::Path;

#[derive(Args)]
pub struct Options {
    /// Seconds a job runs
    #[arg(long, default_value_t = 3)]
    runtime: u64,
    /// How often each job runs
    #[arg(long, default_value_t = 3)]
    reps: u32,
    /// Seconds each run of writes takes, and one before that isn't kept: then logs take no more than drives do
    #[arg(long, default_value_t = 15)]
    steady: u64,
    /// Only these parts: what was saved of the others stays
    #[arg(long, value_enum, value_delimiter = ',')]
    parts: Vec<Part>,
    /// Print, and save nothing
    #[arg(long)]
    dry: bool,
    /// End with status 1 if a target is missed
    #[arg(long)]
    strict: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// One drive, by itself and under a volume
    Overhead,
    /// Four drives, and mirrors, beside one drive
    Scale,
    /// Throughput against the size of stripes, striped and mirrored
    Stripes,
    /// Throughput against the size of requests
    Sizes,
    /// Throughput against the number of clients
    Clients,
    /// RAID-5 against the size of stripes
    Raid5,
    /// `tepal apply` of 1,000 volumes
    Apply,
}

impl Part {
    fn measure(self, program: &Path, options: &Options) -> Result<Vec<Run>, Failure> {
        match self {
            Part::Overhead => overhead::measure(program, options),
            Part::Scale => shapes::scale(program, options),
            Part::Stripes => shapes::stripes(program, options),
            Part::Sizes => shapes::sizes(program, options),
            Part::Clients => shapes::clients(program, options),
            Part::Raid5 => shapes::raid5(program, options),
            Part::Apply => apply::measure(program, options),
        }
    }

    fn has(self, run: &Run) -> bool {
        let name = self.to_possible_value();
        let part = run.job.split('-').next();
        name.is_some_and(|name| Some(name.get_name()) == part)
    }
}

pub fn run(workspace: &Workspace, options: &Options) -> Result<(), Failure> {
    let parts = if options.parts.is_empty() { Part::value_variants() } else { &options.parts };
    let program = workspace.binary("tepal")?;
    let saved = std::fs::read_to_string(workspace.root.join("bench/results/vinum.tsv")).unwrap_or_default();
    let saved: Vec<Run> = saved.lines().filter_map(Run::from_tsv).collect();
    let mut measured = Vec::new();
    for part in parts {
        measured.extend(part.measure(&program, options)?);
    }
    let mut runs = Vec::new();
    for part in Part::value_variants() {
        let of = if parts.contains(part) { &measured } else { &saved };
        runs.extend(of.iter().filter(|run| part.has(run)).cloned());
    }
    let targets = page::targets(&runs);
    let mut files = vec![("vinum.tsv".to_owned(), tsv(&runs))];
    files.extend(page::plots(&runs));
    let report = Report { name: "vinum", text: page::text(&runs, &targets, options), files, targets };
    report.publish(workspace, !options.dry, options.strict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_belongs_to_the_part_that_its_job_begins_with() {
        let run = Run::from_tsv("one\traid5-4k-read\t1\t1\t1\t1\t1").unwrap();
        let parts: Vec<_> = Part::value_variants().iter().filter(|part| part.has(&run)).collect();
        assert_eq!(parts, [&Part::Raid5]);
    }
}
