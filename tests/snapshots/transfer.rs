//! Volumes and snapshots as files: whole, or as what differs.

use crate::cluster::{Cluster, Plan};
use crate::nbd::noise;
use crate::program::{Ended, run};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

fn export(cluster: &Cluster, arguments: &[&str], to: &Path) {
    let ended = cluster
        .command()
        .args(["volume", "export"])
        .args(arguments)
        .stdout(File::create(to).expect("ours"))
        .stderr(Stdio::piped())
        .output()
        .expect("it runs");
    assert!(ended.status.success(), "{arguments:?}: {ended:?}");
}

fn import(cluster: &Cluster, arguments: &[&str], from: &Path) -> std::process::Output {
    let input = File::open(from).expect("ours");
    cluster.command().args(["volume", "import"]).args(arguments).stdin(input).output().expect("it runs")
}

/// What an import that succeeds remarks.
fn remarked(cluster: &Cluster, arguments: &[&str], from: &Path) -> String {
    let ended = import(cluster, arguments, from);
    assert!(ended.status.success(), "{ended:?}");
    String::from_utf8_lossy(&ended.stderr).into_owned()
}

fn refused(cluster: &Cluster, arguments: &[&str], from: &Path) -> String {
    let ended = import(cluster, arguments, from);
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.code() == Some(1) && said.lines().any(|line| line.starts_with("error: ")), "{ended:?}");
    said
}

fn cut_short_in_a_pipe(cluster: &Cluster, arguments: &[&str], input: &[u8]) -> String {
    let mut command = cluster.command();
    command.args(["volume", "import"]).args(arguments).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut importing = command.spawn().expect("it runs");
    importing.stdin.take().expect("a pipe").write_all(input).expect("it reads");
    let ended = importing.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    String::from_utf8_lossy(&ended.stderr).into_owned()
}

fn bytes(cluster: &Cluster, volume: &str) -> Vec<u8> {
    cluster.connect(volume).read(0, 8 << 20).expect("read")
}

/// A volume `v` of 8 MiB with two snapshots, and files of the first and of what differs.
fn with_differences() -> Cluster {
    let cluster = Plan::default().up();
    cluster.create("v", "8M", "mirror:2");
    let mut volume = cluster.connect("v");
    volume.write(0, &noise(1, 4 << 20)).expect("written");
    cluster.tepal(&["snapshot", "create", "v@a"]).succeeded();
    volume.write(1 << 20, &noise(2, 100_000)).expect("written");
    volume.trim(2 << 20, 1 << 20).expect("trimmed");
    volume.write(6 << 20, &noise(3, 1 << 20)).expect("written");
    cluster.tepal(&["snapshot", "create", "v@b"]).succeeded();
    volume.write(0, &noise(4, 8 << 20)).expect("written");
    export(&cluster, &["v@a"], &cluster.folder().join("a.img"));
    export(&cluster, &["v@b", "--since", "a"], &cluster.folder().join("a-b.diff"));
    cluster
}

#[test]
fn a_snapshot_and_what_differs_since_make_the_same_volume_elsewhere() {
    let cluster = with_differences();
    let [image, differences] = ["a.img", "a-b.diff"].map(|name| cluster.folder().join(name));
    assert!(std::fs::read(&image).expect("ours") == bytes(&cluster, "v@a"), "an image is the snapshot's bytes");
    let size = differences.metadata().expect("ours").len();
    assert!((1 << 20..2 << 20).contains(&size), "{size} bytes for little more than a MiB that differs");

    let elsewhere = Plan { drives: 2, ..Plan::default() }.up();
    assert!(import(&elsewhere, &["w", "--layout", "stripe"], &image).status.success());
    let ended = import(&elsewhere, &["w"], &differences);
    assert!(ended.status.success(), "{ended:?}");
    let remark = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(remark.contains("has no snapshot a"), "it's said that nothing could be compared: {remark}");
    assert!(bytes(&elsewhere, "w") == bytes(&cluster, "v@b"));

    // Through a pipe, and onto a volume that has the snapshot.
    elsewhere.tepal(&["volume", "rm", "w"]).succeeded();
    assert!(import(&elsewhere, &["w"], &image).status.success());
    elsewhere.tepal(&["snapshot", "create", "w@a"]).succeeded();
    let mut importing = elsewhere.command();
    let mut importing = importing.args(["volume", "import", "w"]).stdin(Stdio::piped()).spawn().expect("it runs");
    let mut input = importing.stdin.take().expect("a pipe");
    input.write_all(&std::fs::read(&differences).expect("ours")).expect("read");
    drop(input);
    assert!(importing.wait().expect("it ends").success());
    assert!(bytes(&elsewhere, "w") == bytes(&cluster, "v@b"));
    let listed = elsewhere.ask(&["snapshot", "diff", "w@a"]);
    assert_eq!(listed, cluster.ask(&["snapshot", "diff", "v@a", "v@b"]), "nothing else was changed");
}

#[test]
fn differences_that_are_damaged_or_do_not_fit_change_nothing() {
    let cluster = with_differences();
    let [image, differences, wrong] = ["a.img", "a-b.diff", "wrong"].map(|name| cluster.folder().join(name));
    assert!(import(&cluster, &["w", "--layout", "stripe"], &image).status.success());
    cluster.tepal(&["snapshot", "create", "w@a"]).succeeded();
    let before = bytes(&cluster, "w");
    let whole = std::fs::read(&differences).expect("ours");
    let mut flipped = whole.clone();
    flipped[whole.len() - 100_000] ^= 1;
    for (bytes, said) in [
        (&whole[..whole.len() - 1], "cut short"),
        (&whole[..whole.len() / 2], "cut short"),
        (&whole[..9], "cut short"),
        (&flipped[..], "damaged"),
        (&[&whole[..], b"x"].concat()[..], "goes on after its end"),
    ] {
        std::fs::write(&wrong, bytes).expect("ours");
        let error = refused(&cluster, &["w"], &wrong);
        assert!(error.contains(said) && error.contains("as before"), "{error}");
    }
    assert!(bytes(&cluster, "w") == before);

    for (arguments, said) in
        [(&["x"][..], "no volume 'x'"), (&["w", "--size", "8M"], "--size"), (&["w", "--layout", "stripe"], "--layout")]
    {
        let error = refused(&cluster, arguments, &differences);
        assert!(error.contains(said), "{error}");
    }
    cluster.tepal(&["volume", "resize", "w", "16M"]).succeeded();
    assert!(refused(&cluster, &["w"], &differences).contains("--shrink"));
    assert_eq!(cluster.volume("w")["size"], 16 << 20);
    cluster.connect("w").write(0, &noise(9, 4096)).expect("written");
    let error = refused(&cluster, &["w"], &differences);
    assert!(error.contains("changed since its snapshot 'w@a'") && error.contains("rollback w@a"), "{error}");
    // Story: of a volume that was cut off since, nothing differed that it still had, and what it had lost was missing afterwards.
    cluster.tepal(&["snapshot", "rollback", "w@a"]).succeeded();
    cluster.tepal(&["volume", "resize", "w", "4M", "--shrink"]).succeeded();
    assert!(refused(&cluster, &["w"], &differences).contains("changed since its snapshot 'w@a'"));
    cluster.tepal(&["snapshot", "rollback", "w@a"]).succeeded();
    cluster.tepal(&["volume", "resize", "w", "16M"]).succeeded();
    // Story: differences of which nothing came but their header had the volume cut off, which was said to be as before.
    let error = cut_short_in_a_pipe(&cluster, &["w", "--shrink"], &whole[..120]);
    assert!(error.contains("which is cut off at 8M instead of 16M, and else as before"), "{error}");
    cluster.tepal(&["volume", "resize", "w", "16M"]).succeeded();
    let shrunk = remarked(&cluster, &["w", "--shrink"], &differences);
    assert!(shrunk.contains("made smaller"), "{shrunk}");
    assert!(bytes(&cluster, "w") == bytes(&cluster, "v@b"));
}

/// Story: whoever carried differences on every night found the import refused after the volume had grown.
#[test]
fn a_volume_that_has_grown_since_is_carried_on_to_its_new_size() {
    let cluster = with_differences();
    let [image, differences] = ["a.img", "grown.diff"].map(|name| cluster.folder().join(name));
    assert!(import(&cluster, &["w", "--layout", "stripe"], &image).status.success());
    cluster.tepal(&["volume", "resize", "v", "12M"]).succeeded();
    cluster.connect("v").write(10 << 20, &noise(7, 1 << 20)).expect("written");
    export(&cluster, &["v", "--since", "a"], &differences);
    let grown = remarked(&cluster, &["w"], &differences);
    assert!(grown.contains("made larger: 12M instead of 8M"), "{grown}");
    for at in [0, 8 << 20] {
        let read = |volume: &str| cluster.connect(volume).read(at, 4 << 20).expect("read");
        assert!(read("w") == read("v"), "from {at} on");
    }
}

/// Clients of others read them as any other disk.
#[test]
fn real_clients_copy_a_snapshot_and_may_not_write_to_it() {
    crate::need!("nbdcopy", "nbdinfo");
    let cluster = with_differences();
    let copy = cluster.folder().join("copy");
    let given = |program: &str, arguments: &[&str]| -> Ended { run(Command::new(program).args(arguments)) };
    let to = copy.display().to_string();
    given("nbdcopy", &[&cluster.uri("v@b"), &to]).succeeded();
    assert!(std::fs::read(&copy).expect("ours") == bytes(&cluster, "v@b"));
    let about = given("nbdinfo", &[&cluster.uri("v@b")]).succeeded();
    assert!(about.contains("is_read_only: true") && about.contains("can_multi_conn: true"), "{about}");
    let map = given("nbdinfo", &["--map", &cluster.uri("v@b")]).succeeded();
    assert!(map.contains("hole"), "what was trimmed is a hole: {map}");
    assert!(!given("nbdcopy", &[&to, &cluster.uri("v@b")]).status.success());
}
