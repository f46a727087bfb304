//! What a command reads or writes to is in use.

use super::{MIB, Piped, fill};
use crate::cluster::{Cluster, Plan};
use crate::nbd::noise;
use crate::program::until;
use crate::servers::ring::Ring;
use std::time::Duration;

const SIZE: usize = 48 * MIB;
const SOON: Duration = Duration::from_secs(60);

/// With a volume `z` that holds noise, and a snapshot of it.
fn with_volume() -> Cluster {
    let cluster = Plan::default().up();
    cluster.create("z", "48M", "mirror:2");
    fill(&mut cluster.connect("z"), &noise(7, SIZE));
    cluster.tepal(&["snapshot", "create", "z@a"]).succeeded();
    cluster
}

/// An import that has written a half.
fn importing(cluster: &Cluster) -> Piped {
    let mut import = Piped::start(cluster, &["volume", "import", "z"]);
    import.feed(&noise(1, SIZE / 2)).expect("it reads on");
    import
}

const REMOVE: &[&str] = &["volume", "rm", "z", "--snapshots"];
const ROLL_BACK: &[&str] = &["snapshot", "rollback", "z@a"];
const SHRINK: &[&str] = &["volume", "resize", "z", "8M", "--shrink"];
const REMOVE_SNAPSHOT: &[&str] = &["snapshot", "rm", "z@a"];

#[test]
fn what_is_imported_or_exported_is_not_removed_rolled_back_or_cut_off() {
    let cluster = with_volume();
    let exporting = |name: &str| {
        let mut export = Piped::start(&cluster, &["volume", "export", name]);
        export.take(MIB);
        export
    };
    let of_snapshot = exporting("z@a");
    for refused in [REMOVE_SNAPSHOT, REMOVE] {
        let error = cluster.tepal(refused).refused(1);
        assert!(error.contains("is in use, an export or comparison reads it") && error.contains("--force"), "{error}");
    }
    of_snapshot.end().succeeded();
    let of_volume = exporting("z");
    for refused in [ROLL_BACK, SHRINK, REMOVE] {
        let error = cluster.tepal(refused).refused(1);
        assert!(error.contains("volume 'z' is in use, an export or comparison reads it"), "{error}");
    }
    of_volume.end().succeeded();
    let mut import = importing(&cluster);
    assert_eq!(cluster.volume("z")["imports"], 1);
    for refused in [ROLL_BACK, SHRINK, REMOVE] {
        let error = cluster.tepal(refused).refused(1);
        assert!(error.contains("volume 'z' is in use, an import writes to it"), "{error}");
    }
    import.feed(&noise(2, SIZE / 2)).expect("it reads on");
    import.end().succeeded();
    for done in [REMOVE_SNAPSHOT, SHRINK, REMOVE] {
        cluster.tepal(done).succeeded();
    }
}

#[test]
fn a_command_that_was_killed_holds_nothing_after_some_seconds() {
    let cluster = with_volume();
    let import = importing(&cluster);
    assert_eq!(cluster.volume("z")["imports"], 1);
    import.kill();
    until("its hold to end", SOON, || cluster.tepal(ROLL_BACK).status.success().then_some(()));
    let mut export = Piped::start(&cluster, &["volume", "export", "z@a"]);
    export.take(MIB);
    assert_eq!(cluster.ask(&["snapshot", "show", "z@a"])["exports"], 1);
    export.kill();
    until("its hold to end", SOON, || cluster.tepal(REMOVE_SNAPSHOT).status.success().then_some(()));
}

#[test]
fn an_import_into_a_volume_that_is_cut_off_by_force_fails() {
    let cluster = with_volume();
    let mut import = importing(&cluster);
    cluster.tepal(&[SHRINK, &["--force"]].concat()).succeeded();
    let _ = import.feed(&noise(2, SIZE / 2)); // it may have ended
    let error = import.end().failed();
    assert!(error.contains("the rest is not written"), "{error}");
}

/// Story: right after a server was started it knew of no import, and removed the volume that one was writing to.
#[test]
fn what_is_imported_stays_in_use_when_its_server_is_started_anew() {
    let ring = Ring::up(1);
    ring.ask(1, &["volume", "create", "z", "--size", "24M", "--layout", "stripe"]).succeeded();
    ring.ask(1, &["snapshot", "create", "z@a"]).succeeded();
    let mut import = Piped::of(ring.command(&["volume", "import", "z"]));
    import.feed(&noise(1, SIZE / 4)).expect("it reads on");
    ring.kill(1);
    ring.start(&[1]);
    for refused in [ROLL_BACK, SHRINK, REMOVE] {
        let error = ring.ask(1, refused).refused(1);
        assert!(error.contains("volume 'z' is in use, an import writes to it"), "{error}");
    }
    import.feed(&noise(2, SIZE / 4)).expect("it reads on");
    import.end().succeeded();
}

/// Story: the server was killed that knew of an export, and another one removed the snapshot at once.
#[test]
fn what_is_exported_stays_in_use_when_the_server_that_was_asked_is_killed() {
    let ring = Ring::up(3);
    ring.ask(1, &["volume", "create", "z", "--size", "24M", "--layout", "mirror:2"]).succeeded();
    fill(&mut ring.connect(1, "z"), &noise(7, SIZE / 2));
    ring.ask(1, &["snapshot", "create", "z@a"]).succeeded();
    let mut export = Piped::of(ring.command(&["volume", "export", "z@a"]));
    let mut exported = export.take(MIB);
    ring.kill(1);
    let refused = ring.ask(2, REMOVE_SNAPSHOT).refused(1);
    assert!(refused.contains("is in use, an export or comparison reads it"), "{refused}");
    let (rest, _) = export.end().succeeded();
    exported.extend(rest);
    assert!(exported == noise(7, SIZE / 2));
}
