//! A command ends on the thing that it began with.

use super::{AHEAD, MIB, Piped, bytes, fill};
use crate::cluster::{Cluster, Plan};
use crate::nbd::noise;
use crate::program::until;
use std::time::Duration;

const SIZE: usize = 48 * MIB;
const HALF: usize = SIZE / 2;
const SOON: Duration = Duration::from_secs(60);

/// With a volume `z` that holds noise.
fn with_volume(seed: u64) -> (Cluster, Vec<u8>) {
    let cluster = Plan::default().up();
    cluster.create("z", "48M", "mirror:2");
    let image = noise(seed, SIZE);
    fill(&mut cluster.connect("z"), &image);
    (cluster, image)
}

/// Story: `volume import z` asked by name for each piece. The volume was renamed after a few of them and another `z` made, and the
/// command said that all of the image was in `z`: a part of it was, and the rest in the other.
#[test]
fn an_import_goes_on_in_its_volume_when_another_gets_the_name() {
    let cluster = Plan::default().up();
    let image = noise(1, SIZE);
    let mut import = Piped::start(&cluster, &["volume", "import", "z", "--size", "48M", "--layout", "mirror:2"]);
    import.feed(&image[..HALF]).expect("it reads on");
    cluster.tepal(&["volume", "rename", "z", "old"]).succeeded();
    cluster.create("z", "48M", "mirror:2");
    import.feed(&image[HALF..]).expect("it reads on");
    let (said, _) = import.end().succeeded();
    let said = String::from_utf8(said).expect("text");
    assert!(said.contains("volume old, which was called z"), "{said}");
    assert!(bytes(&cluster, "old") == image);
    assert_eq!(cluster.volume("z")["allocated"], 0, "nothing of it is in another volume");
}

#[test]
fn an_import_into_a_removed_volume_fails_and_leaves_its_name_alone() {
    let cluster = Plan::default().up();
    let image = noise(2, SIZE);
    let mut import = Piped::start(&cluster, &["volume", "import", "z", "--size", "48M"]);
    import.feed(&image[..HALF]).expect("it reads on");
    cluster.tepal(&["volume", "rm", "z", "--force"]).succeeded();
    cluster.create("z", "48M", "mirror:2");
    let _ = import.feed(&image[HALF..]); // it may have ended
    let error = import.end().failed();
    assert!(error.contains("volume 'z' was removed when"), "{error}");
    assert_eq!(cluster.volume("z")["allocated"], 0);
}

/// Story: the rest of an image was written onto what a rollback had brought back, and the command said that all was there.
#[test]
fn an_import_into_a_volume_that_is_rolled_back_fails() {
    let (cluster, _) = with_volume(3);
    cluster.tepal(&["snapshot", "create", "z@a"]).succeeded();
    let image = noise(4, SIZE);
    let mut import = Piped::start(&cluster, &["volume", "import", "z"]);
    import.feed(&image[..HALF]).expect("it reads on");
    cluster.tepal(&["snapshot", "rollback", "z@a", "--force"]).succeeded();
    let _ = import.feed(&image[HALF..]); // it may have ended
    let error = import.end().failed();
    assert!(error.contains("rolled back") && !error.contains("--resume"), "{error}");
}

#[test]
fn a_snapshot_renamed_during_an_import_changes_nothing() {
    let (cluster, _) = with_volume(5);
    cluster.tepal(&["snapshot", "create", "z@a"]).succeeded();
    let image = noise(6, SIZE);
    let mut import = Piped::start(&cluster, &["volume", "import", "z"]);
    import.feed(&image[..HALF]).expect("it reads on");
    cluster.tepal(&["snapshot", "rename", "z@a", "b"]).succeeded();
    import.feed(&image[HALF..]).expect("it reads on");
    import.end().succeeded();
    assert!(bytes(&cluster, "z") == image);
}

#[test]
fn an_export_reads_its_volume_to_the_end_when_another_gets_the_name() {
    let (cluster, image) = with_volume(7);
    let mut export = Piped::start(&cluster, &["volume", "export", "z"]);
    let mut read = export.take(MIB);
    cluster.tepal(&["volume", "rename", "z", "old"]).succeeded();
    cluster.create("z", "48M", "mirror:2");
    fill(&mut cluster.connect("z"), &noise(8, SIZE));
    read.extend(export.end().succeeded().0);
    assert!(read == image);
}

/// Story: a snapshot was removed and made again under its name while it was exported, and the image was of both.
#[test]
fn an_export_of_a_snapshot_never_mixes_it_with_its_successor() {
    let (cluster, image) = with_volume(9);
    cluster.tepal(&["snapshot", "create", "z@a"]).succeeded();
    let mut export = Piped::start(&cluster, &["volume", "export", "z@a"]);
    let mut read = export.take(MIB);
    fill(&mut cluster.connect("z"), &noise(10, SIZE));
    cluster.tepal(&["snapshot", "rm", "z@a", "--force"]).succeeded();
    cluster.tepal(&["snapshot", "create", "z@a"]).succeeded();
    let over = export.end();
    read.extend(&over.stdout);
    assert!(read.len() < MIB + AHEAD && read[..] == image[..read.len()], "what was written is of the first");
    let error = over.failed();
    assert!(error.contains("snapshot 'z@a' was removed when"), "{error}");
}

#[test]
fn an_export_of_a_volume_that_is_rolled_back_fails() {
    let (cluster, _) = with_volume(11);
    cluster.tepal(&["snapshot", "create", "z@a"]).succeeded();
    fill(&mut cluster.connect("z"), &noise(12, SIZE));
    let mut export = Piped::start(&cluster, &["volume", "export", "z"]);
    export.take(MIB);
    cluster.tepal(&["snapshot", "rollback", "z@a", "--force"]).succeeded();
    let error = export.end().failed();
    assert!(error.contains("rolled back") && !error.contains("--resume"), "{error}");
}

#[test]
fn differences_are_of_one_volume_though_its_names_go_over_to_another() {
    let (cluster, image) = with_volume(13);
    cluster.tepal(&["snapshot", "create", "z@a"]).succeeded();
    let after = noise(14, SIZE);
    fill(&mut cluster.connect("z"), &after);
    cluster.tepal(&["snapshot", "create", "z@b"]).succeeded();
    let mut export = Piped::start(&cluster, &["volume", "export", "z@b", "--since", "a"]);
    let mut differences = export.take(MIB);
    cluster.tepal(&["snapshot", "rename", "z@b", "c"]).succeeded();
    cluster.tepal(&["snapshot", "rename", "z@a", "d"]).succeeded();
    cluster.tepal(&["volume", "rename", "z", "old"]).succeeded();
    cluster.create("z", "48M", "mirror:2");
    cluster.tepal(&["snapshot", "create", "z@a"]).succeeded();
    cluster.tepal(&["snapshot", "create", "z@b"]).succeeded();
    differences.extend(export.end().succeeded().0);
    fill(&mut cluster.connect("z"), &image);
    let mut import = Piped::start(&cluster, &["volume", "import", "z", "--force"]);
    import.feed(&differences).expect("it reads on");
    import.end().succeeded();
    assert!(bytes(&cluster, "z") == after);
}

/// A command that waits for `z` to get another layout, which takes its time.
fn moving(cluster: &Cluster) -> Piped {
    let waiting = Piped::start(cluster, &["volume", "relayout", "z", "--layout", "mirror:3", "--rate", "4M"]);
    until("it to be on its way", SOON, || (!cluster.volume("z")["migration"].is_null()).then_some(()));
    waiting
}

#[test]
fn a_change_of_layout_is_waited_for_whatever_the_volume_is_called_by_then() {
    let (cluster, image) = with_volume(15);
    let waiting = moving(&cluster);
    cluster.tepal(&["volume", "rename", "z", "old"]).succeeded();
    cluster.create("z", "48M", "stripe");
    cluster.tepal(&["volume", "rate", "old", "auto"]).succeeded();
    let (said, _) = waiting.end().succeeded();
    assert_eq!(String::from_utf8(said).expect("text"), "volume old has mirror:3 now\n");
    assert!(bytes(&cluster, "old") == image);
}

#[test]
fn who_waits_for_a_removed_volume_is_told_of_it() {
    let (cluster, _) = with_volume(16);
    let waiting = moving(&cluster);
    cluster.tepal(&["volume", "rm", "z", "--no-wait"]).succeeded();
    cluster.create("z", "48M", "mirror:3");
    let error = waiting.end().failed();
    assert!(error.contains("volume 'z' was removed while it was being moved"), "{error}");
}
