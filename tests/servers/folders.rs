//! Data folders that are lost, copied, or put back from a copy: what a voter once promised must not be forgotten.

use super::ring::Ring;
use crate::program;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Whether the file has something of what a server agreed to.
fn is_memory(name: &str) -> bool {
    ["raft.db", "cluster.db", "snapshot.db", "JOINING"].iter().any(|file| name.starts_with(file))
}

fn copy(from: &Path, to: &Path, wanted: impl Fn(&str) -> bool) {
    fs::create_dir_all(to).expect("ours");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        if entry.file_type().expect("a type").is_file() && wanted(&entry.file_name().to_string_lossy()) {
            fs::copy(entry.path(), to.join(entry.file_name())).expect("space");
        }
    }
}

fn wipe(folder: &Path) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        if is_memory(&entry.file_name().to_string_lossy()) {
            fs::remove_file(entry.path()).expect("ours");
        }
    }
}

#[test]
fn a_server_whose_folder_was_wiped_comes_back_as_itself_with_its_drives_and_its_old_folder_is_void() {
    let ring = Ring::up(3);
    let old = ring.data(2).with_file_name("old");
    ring.ask(1, &["pool", "create", "p2"]).succeeded();
    let path = ring.data(2).join("more").display().to_string();
    ring.ask(1, &["drive", "add", "s2", &path, "--create", "64M", "--pool", "p2"]).succeeded();
    ring.ask(1, &["volume", "create", "v", "--size", "8M", "--layout", "stripe", "--pool", "p2"]).succeeded();
    let bytes = crate::nbd::noise(3, 1 << 20);
    ring.connect(2, "v").write_through(0, &bytes).expect("written");
    ring.kill(2);
    copy(&ring.data(2), &old, is_memory);
    wipe(&ring.data(2));
    fs::remove_file(ring.data(2).join("token")).expect("it was there");
    ring.start(&[2]);
    ring.wait_until_all_are_up(1);
    ring.wait_until_healthy(1, "v");
    assert_eq!(ring.connect(2, "v").read(0, 1 << 20).expect("there"), bytes);
    ring.ask(2, &["pool", "create", "after"]).succeeded();
    assert_eq!(ring.pools(3), ["after", "default", "p2"]);
    // The old folder must not vote any more, whoever puts it back.
    ring.kill(2);
    let newer = ring.data(2).with_file_name("newer");
    copy(&ring.data(2), &newer, is_memory);
    wipe(&ring.data(2));
    copy(&old, &ring.data(2), is_memory);
    let refused = ring.dev(&["start", "s2"]).refused(1);
    assert!(refused.contains("another data folder"), "{refused}");
    wipe(&ring.data(2));
    copy(&newer, &ring.data(2), is_memory);
    ring.start(&[2]);
    ring.wait_until_all_are_up(1);
}

#[test]
fn the_first_server_joins_the_cluster_that_it_began_if_its_folder_was_wiped() {
    let ring = Ring::up(3);
    ring.ask(2, &["pool", "create", "before"]).succeeded();
    ring.kill(1);
    wipe(&ring.data(1));
    ring.start(&[1]);
    ring.wait_until_all_are_up(2);
    assert_eq!(ring.pools(1), ["before", "default"]);
}

#[test]
fn a_server_whose_folder_was_put_back_from_an_older_copy_is_refused_and_the_others_go_on() {
    let ring = Ring::up(3);
    let old = ring.data(2).with_file_name("old");
    ring.kill(2);
    copy(&ring.data(2), &old, is_memory);
    ring.start(&[2]);
    ring.wait_until_all_are_up(2);
    for n in 0..5 {
        ring.ask(2, &["pool", "create", &format!("p{n}")]).succeeded();
    }
    ring.kill(2);
    wipe(&ring.data(2));
    copy(&old, &ring.data(2), is_memory);
    let refused = ring.dev(&["start", "s2"]).refused(1);
    assert!(refused.contains("older copy") && refused.contains("join anew"), "{refused}");
    ring.wait_for_state(1, 2, "down");
    ring.ask(3, &["pool", "create", "p5"]).succeeded();
    // As it says.
    wipe(&ring.data(2));
    ring.start(&[2]);
    ring.wait_until_all_are_up(1);
    assert_eq!(ring.pools(2), ["default", "p0", "p1", "p2", "p3", "p4", "p5"]);
}

/// A second process as s2, with this data folder; its log goes beside that.
fn second(data: &Path) -> Child {
    let log = fs::File::create(data.with_extension("log")).expect("a log");
    let mut command = Command::new(crate::cluster::tepal());
    command.arg("serve").arg("--data").arg(data).args(["--server", "s2"]);
    program::spawn(command.stdout(Stdio::null()).stderr(log))
}

fn ended_with(mut child: Child, data: &Path) -> String {
    let status = program::wait(&mut child, program::LIMIT);
    program::kill_group(&mut child);
    let log = fs::read_to_string(data.with_extension("log")).expect("a log");
    let status = status.unwrap_or_else(|| panic!("it goes on:\n{log}"));
    assert_eq!(status.code(), Some(1), "{log}");
    log.lines().rev().find(|line| line.starts_with("error: ")).expect("it says why").to_owned()
}

#[test]
fn a_server_runs_once_also_if_its_folder_was_copied() {
    let ring = Ring::up(3);
    let data = ring.data(2);
    let said = ended_with(second(&data), &data);
    assert!(said.contains("in use by another process"), "{said}");
    ring.kill(2);
    let copied = data.with_file_name("copied");
    copy(&data, &copied, |_| true);
    ring.start(&[2]);
    ring.wait_until_all_are_up(1);
    let mut twin = second(&copied);
    // Either of them may be told that the other one was heard last. Started once more, the server itself is.
    program::until("one of them to end", program::LIMIT, || {
        let twin_ended = twin.try_wait().expect("a child of ours").is_some();
        (twin_ended || !ring.runs(2)).then_some(())
    });
    if !ring.runs(2) {
        ring.start(&[2]);
    }
    let said = ended_with(twin, &copied);
    // What the server itself has agreed to since, the copy lacks.
    let found_out = said.contains("another process runs as server s2") || said.contains("is an older copy");
    assert!(found_out, "{said}");
    ring.wait_until_all_are_up(1);
    ring.ask(2, &["pool", "create", "after"]).succeeded();
}
