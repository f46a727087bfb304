//! The console in a real browser, Debian's Chromium, against real servers. The stories are in `console/tests`: this starts their
//! cluster, and does to its servers what a story asks for.

use crate::program;
use crate::servers::ring::Ring;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// For a program of stories.
const LIMIT: Duration = Duration::from_secs(300);
/// A stream that is followed doesn't hold up the server's end for longer. Requests that don't end are given 5 s.
const STOPS_WITHIN: Duration = Duration::from_secs(4);

fn sources() -> PathBuf {
    let tests = std::env::var_os("CARGO_MANIFEST_DIR").map_or(env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    tests.parent().expect("the root").join("console")
}

/// Ends a test where no browser can be driven.
macro_rules! need_browser {
    () => {
        crate::need!("node", "chromium");
        if !sources().join("node_modules/playwright-core").is_dir() {
            crate::skip!("console/node_modules is missing here: npm ci");
        }
    };
}

/// Servers with volumes, for pages to show.
fn ring() -> Ring {
    let ring = Ring::up(3);
    ring.wait_until_all_are_up(1);
    ring
}

/// The stories of this file, asking the cluster.
fn browse(ring: &Ring, file: &str) -> Command {
    let status = ring.dev_status();
    let servers = status["servers"].as_array().expect("a list").iter();
    let apis: Vec<&str> = servers.filter_map(|server| server["api"].as_str()).collect();
    let mut node = program::command("node", [Path::new("tests").join(file)]);
    node.current_dir(sources()).env("TEPAL", crate::cluster::tepal()).env("DIR", ring.dir());
    node.env("APIS", apis.join(",")).env("CHROMIUM", program::find("chromium").expect("it's here"));
    node.env("TOKEN", status["token_file"].as_str().expect("a path")).env("XDG_RUNTIME_DIR", ring.scratch_file(""));
    node.env_remove("TEPAL_CLUSTER").env_remove("TEPAL_TOKEN");
    node
}

#[test]
fn all_pages_are_reached_by_eye_ear_finger_and_key() {
    need_browser!();
    let ring = ring();
    // Called so that the others' names come first, and are in view.
    let volumes = (0..110).map(|number| format!("row-{number:03}"));
    let table = |name: String| format!("[[volume]]\nname = \"{name}\"\nsize = \"1M\"\nlayout = \"stripe\"\n");
    let file = ring.scratch_file("volumes.toml");
    std::fs::write(&file, volumes.map(table).collect::<String>()).expect("space");
    // On a busy machine servers may lose each other for a moment: what is done is done, and it goes on.
    ring.wait_until("volumes to be made", || ring.ask(1, &["apply", file.to_str().expect("a path")]).status.success());
    let plain = ["volume", "create", "plain", "--size", "64M", "--layout", "mirror:2"];
    ring.wait_until("drives of two servers to be up", || ring.ask(1, &plain).status.success());
    ring.ask(1, &["snapshot", "create", "plain@first"]).succeeded();
    ring.ask(1, &["volume", "clone", "plain@first", "twin"]).succeeded();
    ring.ask(1, &["schedule", "create", "scrubs", "--scrub"]).succeeded();
    print!("{}", program::run_within(&mut browse(&ring, "pages.mjs"), LIMIT).succeeded());
}

#[test]
fn ten_thousand_volumes_and_a_thousand_drives_scroll_smoothly() {
    need_browser!();
    let ring = ring();
    ring.ask(1, &["volume", "create", "v", "--size", "16M", "--layout", "mirror:2"]).succeeded();
    print!("{}", program::run_within(&mut browse(&ring, "large.mjs"), LIMIT).succeeded());
}

#[test]
fn changes_in_the_browser_are_what_commands_see() {
    need_browser!();
    crate::need!("qemu-nbd");
    let ring = ring();
    print!("{}", program::run_within(&mut browse(&ring, "changes.mjs"), LIMIT).succeeded());
}

#[test]
fn a_killed_server_is_shown_with_the_reason() {
    need_browser!();
    let ring = ring();
    ring.ask(1, &["volume", "create", "v0", "--size", "16M", "--layout", "mirror:2"]).succeeded();
    ring.wait_until_healthy(2, "v0");
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Through another server than those that are killed.
            let mut volume = ring.connect(2, "v0");
            while !ends.load(Ordering::Relaxed) {
                volume.write(0, &[7; 4096]).expect("written");
            }
        });
        watch(&ring);
        ends.store(true, Ordering::Relaxed);
    });
}

/// Runs the stories that ask for servers to be killed and started.
fn watch(ring: &Ring) {
    let mut node = browse(ring, "failures.mjs");
    let mut child = program::spawn_with(node.stdout(Stdio::piped()), Stdio::piped());
    let mut asked = child.stdin.take().expect("a pipe");
    let mut said = String::new();
    for line in BufReader::new(child.stdout.take().expect("a pipe")).lines() {
        let line = line.expect("text");
        match line.strip_prefix("please: ").and_then(|words| words.split_once(" s")) {
            Some((verb, server)) => {
                let server = server.parse().expect("a number");
                let began = Instant::now();
                match verb {
                    "kill" => ring.kill(server),
                    "start" => ring.start(&[server]),
                    _ => ring.stop(server),
                }
                let took = began.elapsed();
                assert!(verb != "stop" || took < STOPS_WITHIN, "a console that follows it holds it up: {took:?}");
                // If it has gone, its status says so below.
                let _ = writeln!(asked, "done");
            }
            None => said += &format!("{line}\n"),
        }
    }
    let status = program::wait(&mut child, LIMIT).expect("it ends when it has said all");
    assert!(status.success(), "{said}");
    print!("{said}");
}

/// As `console/pack.mjs` writes it.
#[test]
fn the_committed_console_is_what_its_sources_build() {
    need_browser!();
    let out = tempfile::tempdir().expect("space");
    let version = program::run(&mut program::command("node", ["--version"])).succeeded();
    let mut parts = version.trim().trim_start_matches('v').split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    if (parts.next(), parts.next()) < (Some(20), Some(19)) {
        crate::skip!("node {} is too old for Vite", version.trim());
    }
    let mut npm = program::command("npm", ["run", "build"]);
    program::run_within(npm.current_dir(sources()).env("OUT", out.path()), LIMIT).succeeded();
    let committed = sources().parent().expect("the root").join("crates/server/console");
    for name in ["index.html", "console.js", "console.css", "sources.txt"] {
        let [built, here] = [out.path(), &committed].map(|folder| std::fs::read(folder.join(name)).expect("a file"));
        assert!(built == here, "{name} isn't what console/ builds: npm run build");
    }
}
