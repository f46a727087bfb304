//! Volumes that follow those of another cluster: two clusters, and a link between them that is counted, slowed and cut.

mod costs;
mod cut;
mod failover;
mod link;
mod rounds;

use crate::cluster::{Cluster, Plan};
use crate::nbd::noise;
use crate::program::{self, Ended};
use crate::transfers::bytes;
use link::Link;
use serde_json::Value;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const MIB: usize = 1 << 20;
/// For what takes a moment on an idle machine.
const SOON: Duration = Duration::from_secs(60);
/// For a round.
const LONG: Duration = Duration::from_secs(180);

/// Two clusters, each reached by a link of its own.
struct Pair {
    here: Cluster,
    there: Cluster,
    to_here: Link,
    to_there: Link,
}

impl Pair {
    fn up() -> Self {
        Self::of(Plan::default().up(), Plan::default().up())
    }

    fn of(here: Cluster, there: Cluster) -> Self {
        let (to_here, to_there) = (Link::to(&here.data()), Link::to(&there.data()));
        Pair { here, there, to_here, to_there }
    }

    /// With a volume `v` that has something.
    fn with_volume(size: &str, written: usize) -> Self {
        let pair = Self::up();
        pair.here.create("v", size, "stripe");
        fill(&pair.here, 0, 1, written);
        pair
    }

    /// `tepal replicate v TO ARGUMENTS`, over the links.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(crate::cluster::tepal());
        command.args(["-o", "json", "--cluster", &self.to_here.address]).env("TEPAL_TOKEN", token(&self.here));
        command.args(["replicate", "v", &self.to_there.address]).env("TEPAL_TO_TOKEN", token(&self.there));
        command.args(arguments);
        command
    }

    /// One round, or two if it goes on with one that was cut off: what each says.
    fn once(&self, arguments: &[&str]) -> Vec<Value> {
        let mut command = self.command(&["--once"]);
        said(&program::run_within(command.args(arguments), LONG).succeeded())
    }

    fn refused(&self, arguments: &[&str]) -> String {
        let ended = program::run_within(self.command(&["--once"]).args(arguments), LONG);
        assert_eq!(ended.status.code(), Some(1), "{ended}");
        ended.stderr.lines().last().unwrap_or_default().to_owned()
    }

    fn start(&self, arguments: &[&str]) -> Running {
        let mut command = self.command(arguments);
        Running(program::spawn(command.stdout(Stdio::null())))
    }

    /// Until so much of a round is noted there; how much it is then.
    fn wait_until_there(&self, least: usize) -> u64 {
        program::until("a part of a round to be noted", SOON, || {
            // It may not be made yet.
            let said = self.there.tepal(&["-o", "json", "volume", "show", "v"]);
            let done = serde_json::from_slice::<Value>(&said.stdout).ok()?["incomplete"]["done"].as_u64()?;
            (done >= least as u64).then_some(done)
        })
    }

    /// The newest snapshot that replication has made there.
    fn newest(&self) -> String {
        let snapshots = self.there.ask(&["snapshot", "ls", "v"]);
        let copies = snapshots.as_array().expect("a list").iter().filter(|it| !it["copy_of"].is_null());
        let newest = copies.max_by_key(|it| it["epoch"].as_u64()).expect("a copy");
        newest["name"].as_str().expect("a name").to_owned()
    }

    /// That the newest snapshot has the same bytes on both sides.
    fn is_equal(&self) {
        let newest = format!("v@{}", self.newest());
        assert!(bytes(&self.here, &newest) == bytes(&self.there, &newest), "{newest}");
    }
}

/// A replication that runs until it's killed.
struct Running(Child);

impl Running {
    /// SIGKILL.
    fn kill(mut self) {
        program::kill_group(&mut self.0);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        program::kill_group(&mut self.0);
    }
}

fn token(of: &Cluster) -> String {
    std::fs::read_to_string(of.data().join("token")).expect("a token").trim().to_owned()
}

/// Each JSON document of several.
fn said(text: &str) -> Vec<Value> {
    serde_json::Deserializer::from_str(text).into_iter().map(|one| one.expect("JSON")).collect()
}

fn fill(cluster: &Cluster, from: usize, seed: u64, length: usize) {
    let mut disk = cluster.connect("v");
    for (number, piece) in noise(seed, length).chunks(4 * MIB).enumerate() {
        disk.write((from + number * 4 * MIB) as u64, piece).expect("written");
    }
}

/// A command about replication that another cluster's token goes along with.
fn ask(cluster: &Cluster, other: &Cluster, arguments: &[&str]) -> Ended {
    program::run_within(cluster.command().args(arguments).env("TEPAL_TO_TOKEN", token(other)), LONG)
}
