//! The dependency law: which crate may see which, and what the pure crates must never reach.
//!
//! [`LAW`] and [`OUTSIDE_WORLD`] are the law; docs/ARCHITECTURE.md explains it. Two things are checked:
//! 1. Between our own crates every dependency, also of tests and build scripts, is one that [`LAW`] names. So a new crate,
//!    or a new edge, is a decision that is made here and seen in review. (Tests may also run on the simulator's fakes.)
//! 2. A pure crate reaches nothing of the outside world, however indirectly: it runs under the simulator, where all of
//!    that is faked, and a run must be the same each time. (Tests of a pure crate may: proptest draws random numbers.)

use crate::failure::Failure;
use crate::workspace::answer;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What one of our crates may see of the others.
struct Room {
    name: &'static str,
    sees: &'static [&'static [&'static str]],
    /// Whether the injected world is all it knows of the machine.
    pure: bool,
}

/// What every crate that holds or moves data may know.
const GROUND: &[&str] = &["tepal-model", "tepal-codec", "tepal-placement"];
/// The same code in production and under the simulator.
const DISKS: &[&str] = &["tepal-drive", "tepal-engine"];

const LAW: &[Room] = &[
    Room { name: "tepal-model", sees: &[], pure: true },
    Room { name: "tepal-codec", sees: &[&["tepal-model"]], pure: true },
    Room { name: "tepal-placement", sees: &[&["tepal-model"]], pure: true },
    Room { name: "tepal-drive", sees: &[GROUND], pure: true },
    // What is said is the same over sockets and over the simulator's network. Drives are somebody else's business.
    Room { name: "tepal-wire", sees: &[&["tepal-model", "tepal-codec"]], pure: true },
    // Protocols are given servers, metadata, files and sockets; they never look for them.
    Room { name: "tepal-engine", sees: &[GROUND, &["tepal-drive", "tepal-wire"]], pure: true },
    // A gateway may run on a client's machine, where there are no drives.
    Room { name: "tepal-gateway", sees: &[&["tepal-model"]], pure: false },
    Room { name: "tepal-metadata", sees: &[GROUND], pure: false },
    Room {
        name: "tepal-server",
        sees: &[GROUND, DISKS, &["tepal-wire", "tepal-gateway", "tepal-metadata"]],
        pure: false,
    },
    // It asks a cluster over the API, and is given the way to it, and to this machine's devices, by the binary.
    Room { name: "tepal-csi", sees: &[&["tepal-model", "tepal-server"]], pure: false },
    // Nothing sees the binary: whatever others need of it belongs into a library crate.
    Room {
        name: "tepal",
        sees: &[GROUND, DISKS, &["tepal-gateway", "tepal-metadata", "tepal-server", "tepal-csi"]],
        pure: false,
    },
    // The simulator runs the very code of production, over fakes: so it sees that code, and no server.
    Room { name: "tepal-sim", sees: &[GROUND, DISKS, &["tepal-wire", "tepal-metadata"]], pure: false },
    // They see what users see: the binary, as a process.
    Room { name: "tepal-tests", sees: &[], pure: false },
    // Builds before everything else, and must work when nothing else compiles.
    Room { name: "xtask", sees: &[], pure: false },
];

impl Room {
    fn sees(&self) -> impl Iterator<Item = &'static str> {
        self.sees.iter().copied().flatten().copied()
    }
}

/// Packages that a pure crate must not reach, and why.
const OUTSIDE_WORLD: &[(&str, &str)] = &[
    ("async-io", "does I/O: take a Device"),
    ("chrono", "reads the wall clock: take a Clock"),
    ("getrandom", "draws true randomness, so no run could be repeated: take a Random"),
    ("io-uring", "does I/O: take a Device"),
    ("libc", "reaches the operating system: belongs into server"),
    ("mio", "does I/O: take a Device; sockets belong into gateway or server"),
    ("nix", "reaches the operating system: belongs into server"),
    ("openraft", "consensus stays inside metadata"),
    ("rand", "draws true randomness, so no run could be repeated: take a Random"),
    ("rayon", "starts threads: the order of work must be the executor's choice"),
    ("rusqlite", "opens files: databases stay inside metadata"),
    ("rustix", "reaches the operating system: belongs into server"),
    ("socket2", "does I/O: sockets belong into gateway or server"),
    ("time", "reads the wall clock: take a Clock"),
    ("tokio", "is one executor, with real time: drive and engine run on any, and await only the injected world"),
];

/// The workspace's crates and all they reach, as cargo resolved them.
#[derive(Default)]
pub struct Graph {
    /// Our own crates: name and the names of all direct dependencies, of every kind.
    pub own: BTreeMap<String, BTreeSet<String>>,
    /// Of every package: the packages it links, without tests' and build scripts'. Keyed by cargo's package id.
    pub links: BTreeMap<String, BTreeSet<String>>,
    /// Package id to name.
    pub names: BTreeMap<String, String>,
}

impl Graph {
    pub fn from_metadata(metadata: &Value) -> Result<Graph, Failure> {
        let missing = |what| answer("cargo metadata", what);
        let mut graph = Graph::default();
        let text = |value: &Value, what| value.as_str().map(str::to_owned).ok_or(missing(what));
        let list = |value: &Value, what| value.as_array().cloned().ok_or(missing(what));
        let members: BTreeSet<String> = list(&metadata["workspace_members"], "workspace_members")?
            .iter()
            .filter_map(|id| id.as_str().map(str::to_owned))
            .collect();
        for package in list(&metadata["packages"], "packages")? {
            let (id, name) = (text(&package["id"], "id")?, text(&package["name"], "name")?);
            if members.contains(&id) {
                let direct = list(&package["dependencies"], "dependencies")?;
                let direct = direct.iter().filter(|dependency| !is_fakes_for_tests(dependency));
                let names = direct.filter_map(|dependency| dependency["name"].as_str().map(str::to_owned));
                graph.own.insert(name.clone(), names.collect());
            }
            graph.names.insert(id, name);
        }
        for node in list(&metadata["resolve"]["nodes"], "resolve.nodes")? {
            let mut links = BTreeSet::new();
            for dependency in list(&node["deps"], "deps")? {
                // A null kind is an ordinary dependency; the others are "dev" and "build".
                if list(&dependency["dep_kinds"], "dep_kinds")?.iter().any(|kind| kind["kind"].is_null()) {
                    links.insert(text(&dependency["pkg"], "pkg")?);
                }
            }
            graph.links.insert(text(&node["id"], "id")?, links);
        }
        Ok(graph)
    }

    /// The chain of packages by which `from` links the package named `to`, if it does.
    fn chain(&self, from: &str, to: &str) -> Option<Vec<&str>> {
        let start = self.names.iter().find(|(_, name)| *name == from)?.0;
        let mut came_from: BTreeMap<&String, &String> = BTreeMap::new();
        let mut queue = vec![start];
        while let Some(id) = queue.pop() {
            if self.names.get(id).is_some_and(|name| name == to) {
                let mut chain = vec![id];
                while let Some(&before) = came_from.get(chain[chain.len() - 1]) {
                    chain.push(before);
                }
                return Some(chain.iter().rev().map(|id| self.names[*id].as_str()).collect());
            }
            for next in self.links.get(id).into_iter().flatten() {
                if next != start && !came_from.contains_key(next) {
                    came_from.insert(next, id);
                    queue.push(next);
                }
            }
        }
        None
    }
}

/// Tests of any crate may run on the simulator's fakes.
fn is_fakes_for_tests(dependency: &Value) -> bool {
    dependency["kind"] == "dev" && dependency["name"] == "tepal-sim"
}

/// Every breach of the law, as a sentence each.
pub fn breaches(graph: &Graph) -> Vec<String> {
    let mut breaches = Vec::new();
    for (name, dependencies) in &graph.own {
        let Some(room) = LAW.iter().find(|room| room.name == name) else {
            breaches.push(format!(
                "{name}: a crate that the law doesn't know; add it to LAW in crates/xtask/src/check/law.rs"
            ));
            continue;
        };
        for seen in dependencies.iter().filter(|dependency| graph.own.contains_key(*dependency)) {
            if room.sees().all(|allowed| allowed != seen) {
                breaches.push(format!("{name} sees {seen}, which the law doesn't allow"));
            }
        }
        for (banned, reason) in OUTSIDE_WORLD.iter().filter(|_| room.pure) {
            if let Some(chain) = graph.chain(name, banned) {
                breaches.push(format!("{}: {banned} {reason}", chain.join(" -> ")));
            }
        }
    }
    breaches
}

/// The crates in which clippy bans real time, randomness, threads and I/O.
pub fn pure_crates() -> impl Iterator<Item = &'static str> {
    LAW.iter().filter(|room| room.pure).map(|room| room.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A package and what it depends on.
    type Edges<'a> = (&'a str, &'a [&'a str]);

    /// A graph in which each package's id is its name. Packages whose names start with "tepal" are ours.
    fn graph(edges: &[Edges]) -> Graph {
        let mut graph = Graph::default();
        for (name, sees) in edges {
            let sees: BTreeSet<String> = sees.iter().map(|seen| seen.to_string()).collect();
            if name.starts_with("tepal") {
                graph.own.insert(name.to_string(), sees.clone());
            }
            for id in sees.iter().cloned().chain([name.to_string()]) {
                graph.names.insert(id.clone(), id);
            }
            graph.links.insert(name.to_string(), sees);
        }
        graph
    }

    #[test]
    fn each_breach_is_named_and_nothing_else_is() {
        let model: Edges = ("tepal-model", &["bytes"]);
        let engine: Edges = ("tepal-engine", &["tepal-model"]);
        let cases: &[(&[Edges], &[&str])] = &[
            (&[model, engine], &[]),
            (
                &[model, ("tepal-metadata", &[]), ("tepal-engine", &["tepal-metadata"])],
                &["tepal-engine sees tepal-metadata"],
            ),
            (&[("tepal-server", &["tepal-engine"]), engine, model], &[]),
            (&[model, ("tepal", &["tepal-model"]), ("tepal-sim", &["tepal"])], &["tepal-sim sees tepal,"]),
            (&[engine, model, ("tepal-gateway", &["tepal-engine"])], &["tepal-gateway sees tepal-engine"]),
            (&[model, ("tepal-novelty", &[])], &["tepal-novelty: a crate that the law doesn't know"]),
            (&[("tepal-drive", &["tokio"])], &["tepal-drive -> tokio: tokio is one executor"]),
            (
                &[("tepal-drive", &["a"]), ("a", &["b"]), ("b", &["a", "rand"])],
                &["tepal-drive -> a -> b -> rand: rand draws"],
            ),
            (&[("tepal-server", &["tokio"])], &[]),
        ];
        for (edges, expected) in cases {
            let found = breaches(&graph(edges));
            assert_eq!(found.len(), expected.len(), "{found:?}");
            for (breach, start) in found.iter().zip(*expected) {
                assert!(breach.starts_with(start), "{breach}");
            }
        }
    }

    #[test]
    fn tests_of_a_pure_crate_may_draw_random_numbers_and_run_on_fakes_but_may_not_see_more_crates() {
        let metadata: Value = serde_json::from_str(
            r#"{"workspace_members": ["d", "s", "v"],
                "packages": [
                  {"id": "d", "name": "tepal-drive", "dependencies": [
                    {"name": "rand", "kind": "dev"},
                    {"name": "tepal-sim", "kind": "dev"},
                    {"name": "tepal-server", "kind": "dev"}]},
                  {"id": "s", "name": "tepal-sim", "dependencies": []},
                  {"id": "v", "name": "tepal-server", "dependencies": []},
                  {"id": "r", "name": "rand", "dependencies": []}],
                "resolve": {"nodes": [
                  {"id": "d", "deps": [{"pkg": "r", "dep_kinds": [{"kind": "dev"}]}, {"pkg": "s", "dep_kinds": [{"kind": "dev"}]}]},
                  {"id": "s", "deps": []},
                  {"id": "v", "deps": []},
                  {"id": "r", "deps": []}]}}"#,
        )
        .unwrap();
        let found = breaches(&Graph::from_metadata(&metadata).unwrap());
        assert_eq!(found, ["tepal-drive sees tepal-server, which the law doesn't allow"]);
    }

    #[test]
    fn the_law_has_no_cycle_and_names_only_rooms_above_each_room() {
        let mut above = vec![];
        for room in LAW {
            for seen in room.sees() {
                assert!(above.contains(&seen), "{} sees {seen}, which isn't listed before it", room.name);
            }
            above.push(room.name);
        }
    }

    #[test]
    fn a_pure_room_sees_only_pure_rooms() {
        for room in LAW.iter().filter(|room| room.pure) {
            assert!(room.sees().all(|seen| pure_crates().any(|pure| pure == seen)), "{}", room.name);
        }
    }
}
