//! A server with emulated drives, and volumes of plexes on them, made by a configuration file as Vinum had it.

use super::Options;
use crate::bench::suite::{Job, Run, Suite};
use crate::bench::systems::{MEMORY, Scratch, Tepal};
use crate::failure::Failure;
use crate::workspace::answer;
use std::fmt::Write;
use std::path::Path;

/// As long as it takes for what a fill leaves to be done.
const SETTLE: std::time::Duration = std::time::Duration::from_secs(8);

/// One plex, on drives by their numbers.
pub struct Plex<'a> {
    /// As `striped 256k`.
    pub organization: &'a str,
    pub drives: &'a [usize],
}

pub struct Volumes<'a> {
    pub tepal: Tepal,
    /// The drives' ids.
    pub drives: Vec<String>,
    folder: Scratch,
    options: &'a Options,
    runs: Vec<Run>,
}

impl<'a> Volumes<'a> {
    /// Of drives of that size, slowed or not.
    pub fn start(
        program: &Path,
        options: &'a Options,
        (drives, size): (usize, &str),
        model: &[&str],
    ) -> Result<Self, Failure> {
        let number = drives.to_string();
        let shape = [&["--servers", "1", "--drives", &number], model].concat();
        let tepal = Tepal::start(program, &shape, size, &[])?;
        let listed = tepal.ask(&["drive", "ls"])?;
        let ids = listed.as_array().into_iter().flatten().filter_map(|drive| drive["id"].as_str().map(str::to_owned));
        let drives: Vec<String> = ids.collect();
        if drives.len().to_string() != number {
            return Err(answer("tepal", "a drive for each that was asked for"));
        }
        Ok(Volumes { tepal, drives, folder: Scratch::new(Path::new(MEMORY))?, options, runs: Vec::new() })
    }

    /// Makes a volume whose subdisks have so many MiB each, and fills it.
    pub fn add(&self, name: &str, mebibytes: u64, plexes: &[Plex<'_>]) -> Result<(), Failure> {
        let mut text = format!("volume {name}\n");
        for plex in plexes {
            let _ = writeln!(text, "  plex org {}", plex.organization);
            for &drive in plex.drives {
                let _ = writeln!(text, "    sd length {mebibytes}m drive {}", self.drives[drive]);
            }
        }
        self.apply(&text)?;
        let size = self.tepal.ask(&["volume", "show", name])?["size"].to_string();
        Suite { seconds: 0, size, program: None }.fill(&self.tepal.disk(name))
    }

    fn apply(&self, text: &str) -> Result<(), Failure> {
        let file = self.folder.file("configuration");
        std::fs::write(&file, text).map_err(Failure::file(&file))?;
        self.tepal.manage(&["apply", &file.to_string_lossy()]).map(drop)
    }

    pub fn settle(&self) {
        std::thread::sleep(SETTLE);
    }

    /// Runs a job on a volume, as often as the options say, and keeps the runs under that name. Logs take writes in bursts, so these have
    /// a run before that isn't kept, and all are long.
    pub fn run(&mut self, volume: &str, name: &str, job: &Job) -> Result<(), Failure> {
        let size = self.tepal.ask(&["volume", "show", volume])?["size"].to_string();
        let disk = self.tepal.disk(volume);
        let (seconds, first) = match job.rw.contains("write") {
            true => (self.options.steady, 0),
            false => (self.options.runtime, 1),
        };
        let suite = Suite { seconds, size, program: None };
        for repetition in first..=self.options.reps {
            let run = suite.run(volume, &disk, job, repetition, &[])?;
            if repetition > 0 {
                self.keep(Run { job: name.to_owned(), ..run });
            }
        }
        Ok(())
    }

    /// Each run begins when the drives are at rest: writes that logs can take are taken.
    pub fn run_rested(&mut self, volume: &str, name: &str, job: &Job) -> Result<(), Failure> {
        for repetition in 1..=self.options.reps {
            self.settle();
            let size = self.tepal.ask(&["volume", "show", volume])?["size"].to_string();
            let suite = Suite { seconds: self.options.runtime, size, program: None };
            let run = suite.run(volume, &self.tepal.disk(volume), job, repetition, &[])?;
            self.keep(Run { job: name.to_owned(), ..run });
        }
        Ok(())
    }

    pub fn keep(&mut self, run: Run) {
        println!("{}", run.tsv());
        self.runs.push(run);
    }

    pub fn runs(self) -> Vec<Run> {
        self.runs
    }
}
