//! A volume far larger than all drives together: what it takes to make one, keep it, clone it and remove it, in time and memory.

use super::{Found, Row, settle, worst};
use crate::bench::footprint;
use crate::bench::suite::{Job, fio};
use crate::bench::systems::Tepal;
use crate::bench::targets::{Bound, Target, median};
use crate::failure::Failure;
use crate::process;
use std::path::Path;
use std::time::Duration;

const SIZE: &str = "1T";
const DRIVE_SIZE: &str = "1G";
/// It isn't empty: so many blocks lie scattered over it.
const SCATTERED: Job = Job { name: "scattered", rw: "randwrite", block: "4k", depth: "32", clients: "1" };
const BLOCKS: &str = "1000";
const SCATTER_LIMIT: Duration = Duration::from_secs(120);
/// As many volumes of this size are put through the same before: what they take too isn't held against large ones.
const SMALL: &str = "64M";

const SECONDS: f64 = 1.0;
const GROWTH_MIB: f64 = 16.0;

/// Seconds that each command took.
#[derive(Default)]
struct Measured {
    create: Vec<f64>,
    snapshot: Vec<f64>,
    clone: Vec<f64>,
    delete: Vec<f64>,
    /// Resident in all servers, in MiB.
    before: f64,
    with_all: f64,
    after: f64,
}

pub fn measure(program: &Path, repetitions: u32) -> Result<Found, Failure> {
    let shape = ["--servers", "4", "--drives", "1"];
    let tepal = Tepal::start(program, &shape, DRIVE_SIZE, &[])?;
    let mut warm_up = Measured::default();
    for number in 1..=repetitions {
        warm_up.make(&tepal, SMALL, number)?;
    }
    for number in 1..=repetitions {
        warm_up.remove(&tepal, number)?;
    }
    settle();
    let servers = tepal.processes();
    let resident = || footprint::resident(&servers) as f64 / f64::from(1 << 20);
    let mut measured = Measured { before: resident(), ..Measured::default() };
    for number in 1..=repetitions {
        measured.make(&tepal, SIZE, number)?;
    }
    measured.with_all = resident();
    for number in 1..=repetitions {
        measured.remove(&tepal, number)?;
    }
    settle();
    measured.after = resident();
    Ok(measured.found())
}

impl Measured {
    fn make(&mut self, tepal: &Tepal, size: &str, number: u32) -> Result<(), Failure> {
        let (volume, clone) = (format!("v{number}"), format!("c{number}"));
        let snapshot = format!("{volume}@s");
        let took = |arguments: &[&str]| Ok::<_, Failure>(tepal.manage(arguments)?.as_secs_f64());
        self.create.push(took(&["volume", "create", &volume, "--size", size, "--layout", "chained"])?);
        let mut scatter = fio(&SCATTERED, &tepal.disk(&volume), size);
        scatter.args(["--norandommap", &format!("--number_ios={BLOCKS}")]);
        process::succeed(&mut scatter, SCATTER_LIMIT)?;
        self.snapshot.push(took(&["snapshot", "create", &snapshot])?);
        self.clone.push(took(&["volume", "clone", &snapshot, &clone])?);
        Ok(())
    }

    fn remove(&mut self, tepal: &Tepal, number: u32) -> Result<(), Failure> {
        let (volume, clone) = (format!("v{number}"), format!("c{number}"));
        let took = |arguments: &[&str]| Ok::<_, Failure>(tepal.manage(arguments)?.as_secs_f64());
        self.delete.push(took(&["volume", "rm", &clone])?);
        self.delete.push(took(&["snapshot", "rm", &format!("{volume}@s")])?);
        self.delete.push(took(&["volume", "rm", &volume])?);
        Ok(())
    }

    fn found(&self) -> Found {
        let Measured { create, snapshot, clone, delete, before, with_all, after } = self;
        let commands = [("create", create), ("snapshot", snapshot), ("clone", clone), ("delete", delete)];
        let mut targets: Vec<Target> = commands
            .iter()
            .map(|(name, seconds)| Target {
                what: format!("sparse volume of 1 TiB: {name}, s, worst of {}", seconds.len()),
                bound: Bound::AtMost(SECONDS),
                measured: worst(seconds),
            })
            .collect();
        targets.push(Target {
            what: format!(
                "MiB that {} such volumes, each with a snapshot and a clone, add to all servers' memory, after as many of {SMALL}",
                create.len()
            ),
            bound: Bound::AtMost(GROWTH_MIB),
            measured: Some(with_all - before),
        });
        let shown = |seconds: &Vec<f64>| {
            let ms = |value: Option<f64>| value.map_or("-".into(), |seconds| format!("{:.0}", seconds * 1000.0));
            format!("{} | {}", ms(median(seconds.clone())), ms(worst(seconds)))
        };
        let lines = commands.iter().map(|(name, seconds)| format!("| {name} | {} |\n", shown(seconds)));
        let markdown = format!(
            "\n## A TiB, sparse\n\n`chained` volumes of {SIZE} on four drives of {DRIVE_SIZE}, with {BLOCKS} blocks scattered over each. Deletes \
             are those of the clone, the snapshot and the volume.\n\n| | median, ms | worst, ms |\n| --- | --- | --- |\n{}\nResident memory of \
             all server processes: {before:.0} MiB before, {with_all:.0} MiB with all of them, {after:.0} MiB when they were removed.\n",
            lines.collect::<String>(),
        );
        let mut rows = Vec::new();
        for (name, seconds) in commands {
            rows.extend(Row::numbered("sparse", &format!("{name}_s"), seconds));
        }
        rows.extend(Row::numbered("sparse", "resident_mib", &[*before, *with_all, *after]));
        Found { targets, markdown, rows, plots: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_command_of_each_kind_decides() {
        let found = Measured {
            create: vec![0.1, 0.2],
            snapshot: vec![0.1],
            clone: vec![1.5, 0.1],
            delete: vec![0.3],
            before: 400.0,
            with_all: 410.0,
            after: 405.0,
        }
        .found();
        let verdicts: Vec<_> = found.targets.iter().map(|target| (target.measured, target.verdict())).collect();
        let expected =
            [(Some(0.2), "ok"), (Some(0.1), "ok"), (Some(1.5), "MISSED"), (Some(0.3), "ok"), (Some(10.0), "ok")];
        assert_eq!(verdicts, expected);
        assert!(found.markdown.contains("| clone | 800 | 1500 |"), "{}", found.markdown);
    }
}
