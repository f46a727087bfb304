//! `cargo xtask bench cluster`: four servers with a drive in memory each and a `chained` volume, side by side with nbdkit on one
//! file in memory and, where a script can start it, with a Ceph of four OSDs and two copies.

use super::report::Subject;
use super::systems::{Ceph, Nbdkit, Tepal};
use super::targets::{self, CEPH, CHAINED, NBDKIT};
use super::{JobOptions, Measured};
use super::{returning, shapes};
use crate::failure::Failure;
use crate::workspace::Workspace;
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    jobs: JobOptions,
    /// Starts a Ceph: SCRIPT FOLDER makes one with the image rbd/bench and FOLDER/ceph.conf, SCRIPT FOLDER down removes it
    #[arg(long, value_name = "SCRIPT")]
    ceph: Option<PathBuf>,
    /// Only the jobs, without the shapes on emulated drives; then nothing is saved
    #[arg(long)]
    jobs_only: bool,
}

pub fn run(workspace: &Workspace, options: &Options) -> Result<(), Failure> {
    let jobs = &options.jobs;
    let ceph = options.ceph.as_deref().map(Ceph::start).transpose()?;
    let nbdkit = Nbdkit::start(&jobs.size)?;
    let volume = format!("v0={},layout=chained", jobs.size);
    let shape = ["--servers", "4", "--drives", "1"];
    let tepal = Tepal::start(&workspace.binary("tepal")?, &shape, &jobs.drive_size, &[volume])?;
    let mut systems = vec![
        Measured { name: NBDKIT, disk: nbdkit.disk(), processes: Vec::new() },
        Measured { name: CHAINED, disk: tepal.disk("v0"), processes: tepal.processes() },
    ];
    systems.extend(ceph.as_ref().map(|ceph| Measured { name: CEPH, disk: ceph.disk(), processes: ceph.processes() }));
    let names: Vec<&'static str> = systems.iter().map(|system| system.name).collect();
    let runs = jobs.measure(systems)?;
    drop((tepal, nbdkit));
    let mut targets = targets::of_a_ring(&runs);
    let mut remark = String::new();
    if !options.jobs_only {
        let returning = returning::measure(&workspace.binary("tepal")?)?;
        let shapes = shapes::measure(&workspace.binary("tepal")?, jobs.runtime, jobs.reps)?;
        targets.push(returning.target());
        targets.extend(shapes.targets());
        remark = shapes.markdown() + &returning.markdown();
    }
    if ceph.is_none() {
        remark += "\nWithout Ceph beside it: `--ceph SCRIPT` names what starts one.\n";
    }
    let subject = Subject {
        name: "cluster",
        title: "Four servers: Tepal beside Ceph and nbdkit",
        setting: "Four servers with a drive in /dev/shm each and a `chained` volume, through one of them; nbdkit's file plugin on \
                  one file in /dev/shm; and a Ceph of four OSDs in /dev/shm with two copies, through librbd",
        systems: &names,
        seconds: jobs.runtime,
        repetitions: jobs.reps,
        size: &jobs.size,
    };
    jobs.conclude(workspace, &subject, &runs, targets, (&remark, !options.jobs_only))
}
