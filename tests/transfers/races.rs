//! Each long command against each change of what it reads or writes to, at many moments: every byte is compared.
//!
//! `TEPAL_RACES=100` has each pair race a hundred times; four, if it isn't said.

use super::{MIB, Over, Piped, bytes, fill};
use crate::cluster::{Cluster, Plan};
use crate::nbd::{Nbd, noise};
use std::thread;

const SIZE: usize = 24 * MIB;
/// How far the command is when the change begins; then at others.
const MOMENTS: [usize; 4] = [1, MIB, 9 * MIB + 4096, SIZE - 1];

fn moments() -> impl Iterator<Item = usize> + Clone {
    let count = std::env::var("TEPAL_RACES").ok().and_then(|count| count.parse().ok()).unwrap_or(MOMENTS.len());
    // Odd steps through all bytes of the image.
    (0..count).map(|nth| MOMENTS.get(nth).copied().unwrap_or((nth * 7_654_321) % (SIZE - 1) + 1))
}

fn each_at_every_moment(changes: &[Change]) -> impl Iterator<Item = (Change, usize)> {
    changes.iter().flat_map(|&change| moments().map(move |moment| (change, moment)))
}

/// What is done to the volume `z`, or to its snapshot, meanwhile.
const RENAME: Change = &[&["volume", "rename", "z", "old"], &["volume", "create", "z", "--size", "24M"]];
const REMOVE: Change =
    &[&["volume", "rm", "z", "--snapshots", "--force", "--no-wait"], &["volume", "create", "z", "--size", "24M"]];
const ROLL_BACK: Change = &[&["snapshot", "rollback", "z@a", "--force"]];
const CUT_OFF: Change = &[&["volume", "resize", "z", "1M", "--shrink", "--force"], &["volume", "resize", "z", "24M"]];
const NEW_SNAPSHOT: Change = &[&["snapshot", "rm", "z@a", "--force"], &["snapshot", "create", "z@a"]];

type Change = &'static [&'static [&'static str]];

/// One try: `z` holds `now`, its snapshot `z@a` holds `before`.
struct Round {
    cluster: Cluster,
    before: Vec<u8>,
    now: Vec<u8>,
    /// The volume's, under whatever name.
    id: String,
}

impl Round {
    fn new(cluster: Cluster) -> Self {
        for name in ["z", "old"] {
            cluster.tepal(&["volume", "rm", name, "--snapshots", "--no-wait"]); // of an earlier round
        }
        cluster.create("z", "24M", "mirror:2");
        let id = format!("id:{}", cluster.volume("z")["id"]);
        let (before, now) = (noise(1, SIZE), noise(2, SIZE));
        for (image, snapshot) in [(&before, Some("z@a")), (&now, None)] {
            fill(&mut cluster.connect("z"), image);
            snapshot.map(|name| cluster.tepal(&["snapshot", "create", name]).succeeded());
        }
        Round { cluster, before, now, id }
    }

    /// What follows the first step isn't always possible: what comes of it is to be right in any case.
    fn change(&self, change: Change) {
        let (first, then) = change.split_first().expect("a step");
        self.cluster.tepal(first).succeeded();
        for command in then {
            self.cluster.tepal(command);
        }
    }

    /// What the volume holds that the command began with, if it's there.
    fn bytes(&self) -> Option<Vec<u8>> {
        Nbd::open(&self.cluster.address(), &self.id).is_ok().then(|| bytes(&self.cluster, &self.id))
    }

    fn is_incomplete(&self) -> bool {
        let volumes = self.cluster.ask(&["volume", "ls"]);
        let mut volumes = volumes.as_array().expect("a list").iter();
        volumes.any(|volume| format!("id:{}", volume["id"]) == self.id && !volume["incomplete"].is_null())
    }

    fn export(&self, name: &str, moment: usize, change: Change) -> Over {
        let mut export = Piped::start(&self.cluster, &["volume", "export", name]);
        let mut read = export.take(moment);
        let mut over = thread::scope(|scope| {
            scope.spawn(|| self.change(change));
            export.end()
        });
        read.append(&mut over.stdout);
        Over { stdout: read, ..over }
    }
}

#[test]
fn an_import_is_whole_in_its_volume_or_fails_whatever_happens_meanwhile() {
    let mut cluster = Plan::default().up();
    let image = noise(3, SIZE);
    for (change, moment) in each_at_every_moment(&[RENAME, REMOVE, ROLL_BACK, CUT_OFF, NEW_SNAPSHOT]) {
        let round = Round::new(cluster);
        let mut import = Piped::start(&round.cluster, &["volume", "import", "z"]);
        import.feed(&image[..moment]).expect("it reads on");
        let over = thread::scope(|scope| {
            scope.spawn(|| round.change(change));
            let _ = import.feed(&image[moment..]); // it may have ended
            import.end()
        });
        let (found, what) = (round.bytes(), format!("{change:?} at {moment}: {}", over.stderr));
        let cut_off = [&image[..MIB], &vec![0; SIZE - MIB]].concat();
        let is_all = found.as_ref() == Some(&image);
        match over.status.success() {
            true if change == REMOVE => assert!(is_all || found.is_none(), "{what}"),
            true if change == ROLL_BACK => assert!(is_all || found.as_ref() == Some(&round.before), "{what}"),
            true if change == CUT_OFF => assert!(is_all || found == Some(cut_off), "{what}"),
            true => assert!(is_all, "{what}"),
            false if change == REMOVE => assert!(found.is_none(), "{what}"),
            false if change == CUT_OFF => assert!(round.is_incomplete(), "{what}"),
            // It looked for the volume when the name was nobody's, and began nothing.
            false if change == RENAME => {
                assert!(what.contains("there is no volume 'z'") && found.as_ref() == Some(&round.now), "{what}");
            }
            false => assert!(change == ROLL_BACK, "{what}"),
        }
        if change == RENAME {
            assert!(bytes(&round.cluster, "z").iter().all(|byte| *byte == 0), "{what}");
        }
        cluster = round.cluster;
    }
}

#[test]
fn an_exported_volume_is_of_one_moment_or_the_export_fails() {
    let mut cluster = Plan::default().up();
    for (change, moment) in each_at_every_moment(&[RENAME, REMOVE, ROLL_BACK, NEW_SNAPSHOT]) {
        let round = Round::new(cluster);
        let over = round.export("z", moment, change);
        let what = format!("{change:?} at {moment}: {}", over.stderr);
        let read = over.stdout.len();
        assert!(read == SIZE || !over.status.success(), "{what}");
        assert!(over.status.success() || change == REMOVE || change == ROLL_BACK, "{what}");
        assert!(over.stdout[..] == round.now[..read], "{what}");
        cluster = round.cluster;
    }
}

/// Story: after a rollback the gap in the volume's history was closed while an export went on, which read the rest of what the volume held
/// then; and where drives held nothing any more, it wrote zeros.
#[test]
fn an_export_fails_long_after_a_rollback_too() {
    let cluster = Plan::default().up();
    let round = Round::new(cluster);
    for moment in [1, 9 * MIB] {
        fill(&mut round.cluster.connect("z"), &round.now);
        let mut export = Piped::start(&round.cluster, &["volume", "export", "z"]);
        export.take(moment);
        round.change(ROLL_BACK);
        let is_closed = || {
            let sql = "SELECT lineage FROM volumes WHERE name = 'z'";
            let rows = round.cluster.ask(&["sql", sql]);
            (!rows["rows"][0][0].as_str()?.contains(',')).then_some(())
        };
        crate::program::until("the gap to be closed", crate::program::LIMIT, is_closed);
        let error = export.end().failed();
        assert!(error.contains("was rolled back meanwhile"), "{error}");
    }
}

/// Story: the volume was made smaller and as large again, and the export had zeros where something had been, and status 0.
#[test]
fn an_export_fails_when_its_volume_was_made_smaller_and_has_grown_again() {
    let cluster = Plan::default().up();
    let round = Round::new(cluster);
    let mut export = Piped::start(&round.cluster, &["volume", "export", "z"]);
    export.take(MIB);
    let size = round.cluster.volume("z")["size"].to_string();
    round.cluster.tepal(&["volume", "resize", "z", "1M", "--shrink", "--force"]).succeeded();
    round.cluster.tepal(&["volume", "resize", "z", &size]).succeeded();
    let error = export.end().failed();
    assert!(error.contains("was made smaller meanwhile"), "{error}");
}

#[test]
fn an_exported_snapshot_is_that_snapshot_or_the_export_fails() {
    let mut cluster = Plan::default().up();
    for (change, moment) in each_at_every_moment(&[RENAME, REMOVE, ROLL_BACK, CUT_OFF, NEW_SNAPSHOT]) {
        let round = Round::new(cluster);
        let over = round.export("z@a", moment, change);
        let what = format!("{change:?} at {moment}: {}", over.stderr);
        let read = over.stdout.len();
        assert!(read == SIZE || !over.status.success(), "{what}");
        assert!(over.status.success() || change == REMOVE || change == NEW_SNAPSHOT, "{what}");
        assert!(over.stdout[..] == round.before[..read], "{what}");
        cluster = round.cluster;
    }
}
