//! A part never passes for a whole.

use super::{MIB, Piped, bytes};
use crate::cluster::{Cluster, Plan};
use crate::nbd::noise;
use crate::program::until;
use std::time::Duration;

const SIZE: usize = 48 * MIB;

/// With a volume `z` of which an import was killed when a half was there.
fn with_a_half(image: &[u8]) -> Cluster {
    let cluster = Plan::default().up();
    let mut import = Piped::start(&cluster, &["volume", "import", "z", "--size", "48M", "--layout", "mirror:2"]);
    import.feed(&image[..SIZE / 2]).expect("it reads on");
    // Several pieces are on their way when it's killed.
    let begins = || (bytes(&cluster, "z")[..MIB] == image[..MIB]).then_some(());
    until("the beginning to be there", Duration::from_secs(30), begins);
    import.kill();
    cluster
}

fn is_incomplete(cluster: &Cluster) -> bool {
    !cluster.volume("z")["incomplete"].is_null()
}

/// Story: an import was killed, and what was there of the image was exported, attached and kept as a snapshot, as if it were all.
#[test]
fn what_a_killed_import_has_written_is_not_taken_for_all() {
    let image = noise(1, SIZE);
    let mut cluster = with_a_half(&image);
    cluster.kill();
    cluster.start();
    assert!(is_incomplete(&cluster), "also for a server that was started anew");
    for refused in [&["volume", "export", "z"][..], &["attach", "z"], &["snapshot", "create", "z@a"]] {
        let error = cluster.tepal(refused).refused(1);
        assert!(error.contains("volume 'z' is incomplete") && error.contains("--resume"), "{refused:?}: {error}");
    }
    let (part, _) = Piped::start(&cluster, &["volume", "export", "z", "--force"]).end().succeeded();
    assert!(part[..MIB] == image[..MIB] && part.len() == SIZE);
    for arguments in [&["--resume"][..], &[]] {
        let mut import = Piped::start(&cluster, &[&["volume", "import", "z"], arguments].concat());
        import.feed(&image).expect("it reads on");
        import.end().succeeded();
        assert!(!is_incomplete(&cluster) && bytes(&cluster, "z") == image);
    }
    let (all, _) = Piped::start(&cluster, &["volume", "export", "z"]).end().succeeded();
    assert!(all == image);
    cluster.tepal(&["snapshot", "create", "z@a"]).succeeded();
    let error = Piped::start(&cluster, &["volume", "import", "z", "--resume"]);
    assert!(feed_and_fail(error, &image).contains("is whole"));
}

fn feed_and_fail(mut import: Piped, input: &[u8]) -> String {
    let _ = import.feed(input); // it may have ended
    import.end().failed()
}

/// Story: what wrote to the pipe failed, and the import took the end of the pipe for that of the image.
#[test]
fn a_pipe_that_ends_before_the_size_is_an_error() {
    let cluster = Plan::default().up();
    let import = Piped::start(&cluster, &["volume", "import", "z", "--size", "48M"]);
    let error = feed_and_fail(import, &noise(2, 20 * MIB));
    assert!(error.contains("ended after 20971520 of 50331648 bytes"), "{error}");
    assert!(is_incomplete(&cluster));
}

/// Story: what wrote to the pipe failed, and the volume, which there was already, was whole: with a part of the image, and the rest of
/// what it had held before.
#[test]
fn a_pipe_shorter_than_volume_and_size_is_an_error() {
    let cluster = Plan::default().up();
    cluster.create("z", "48M", "mirror:2");
    let image = noise(7, 20 * MIB);
    let import = |arguments: &[&str]| Piped::start(&cluster, &[&["volume", "import", "z"], arguments].concat());
    let error = feed_and_fail(import(&[]), &image);
    assert!(error.contains("ended after 20971520 of 50331648 bytes") && error.contains("--size"), "{error}");
    assert!(is_incomplete(&cluster));
    for (size, said) in [("24M", "ended after 20971520 of 25165824 bytes"), ("16M", "goes on after the 16777216 bytes")]
    {
        let error = feed_and_fail(import(&["--size", size]), &image);
        assert!(error.contains(said), "{error}");
        assert!(is_incomplete(&cluster));
    }
    let mut whole = import(&["--size", "20M"]);
    whole.feed(&image).expect("it reads on");
    whole.end().succeeded();
    assert!(!is_incomplete(&cluster) && bytes(&cluster, "z")[..20 * MIB] == image);
    assert_eq!(cluster.volume("z")["size"], SIZE);
}

/// Story: an import was begun while another one wrote to the same volume, by mistake; both wrote, and a write of the first that had been
/// waiting landed on what the second had written.
#[test]
fn a_second_import_is_refused_or_takes_over_by_force() {
    let image = noise(3, SIZE);
    let cluster = with_a_half(&image);
    let other = noise(4, SIZE);
    let mut first = Piped::start(&cluster, &["volume", "import", "z"]);
    first.feed(&image[..SIZE / 2]).expect("it reads on");
    let error = feed_and_fail(Piped::start(&cluster, &["volume", "import", "z"]), &other);
    assert!(error.contains("is in use, an import writes to it") && error.contains("--force"), "{error}");
    let mut second = Piped::start(&cluster, &["volume", "import", "z", "--force"]);
    second.feed(&other[..SIZE / 2]).expect("it reads on");
    let error = feed_and_fail(first, &image[SIZE / 2..]);
    assert!(error.contains("another import has begun since"), "{error}");
    second.feed(&other[SIZE / 2..]).expect("it reads on");
    second.end().succeeded();
    assert!(bytes(&cluster, "z") == other);
}

/// Story: a volume was cut off and grown again between two pieces of an import, and what was lost in between was missed by nobody.
#[test]
fn an_import_notices_that_its_volume_was_cut_off_and_grew_again() {
    let image = noise(5, SIZE);
    let cluster = with_a_half(&image);
    let mut import = Piped::start(&cluster, &["volume", "import", "z"]);
    import.feed(&image[..SIZE / 2]).expect("it reads on");
    cluster.tepal(&["volume", "resize", "z", "1M", "--shrink", "--force"]).succeeded();
    cluster.tepal(&["volume", "resize", "z", "48M"]).succeeded();
    let error = feed_and_fail(import, &image[SIZE / 2..]);
    assert!(error.contains("cut off"), "{error}");
    assert!(is_incomplete(&cluster), "what is left is still no image");
}

#[test]
fn what_is_rolled_back_is_whole_again() {
    let image = noise(6, SIZE);
    let cluster = Plan::default().up();
    cluster.create("z", "48M", "mirror:2");
    cluster.connect("z").write(0, &image[..MIB]).expect("written");
    cluster.tepal(&["snapshot", "create", "z@a"]).succeeded();
    let before = bytes(&cluster, "z");
    let mut import = Piped::start(&cluster, &["volume", "import", "z"]);
    import.feed(&image[..SIZE / 2]).expect("it reads on");
    import.kill();
    assert!(is_incomplete(&cluster));
    cluster.tepal(&["snapshot", "rollback", "z@a", "--force"]).succeeded();
    assert!(!is_incomplete(&cluster) && bytes(&cluster, "z") == before);
}

/// Story: an import was gone on with by an image of another day, and the volume, half of each, was whole by what the command said.
#[test]
fn an_import_resumed_with_another_image_holds_that_image() {
    const LARGE: usize = 1400 * MIB;
    let cluster = Plan { drive_size: 2 << 30, ..Plan::default() }.up();
    let piece = |seed: u64| noise(seed, MIB);
    // Of a GiB and more, so that a part of it is noted; mostly holes, but for a MiB in each 100.
    let feed = |import: &mut Piped, seed: u64, length: usize| {
        for _ in (0..length).step_by(100 * MIB) {
            import.feed(&piece(seed))?;
            import.feed(&vec![0; 99 * MIB])?;
        }
        Ok::<(), std::io::Error>(())
    };
    let mut import = Piped::start(&cluster, &["volume", "import", "z", "--size", "1400M", "--layout", "mirror:2"]);
    feed(&mut import, 1, 1100 * MIB).expect("it reads on");
    std::thread::sleep(std::time::Duration::from_millis(1_100)); // of so little data, a part is noted once a second at most
    feed(&mut import, 1, 200 * MIB).expect("it reads on");
    crate::program::until("a part to be noted", crate::program::LIMIT, || {
        (cluster.volume("z")["incomplete"]["done"].as_u64()? > 0).then_some(())
    });
    import.kill();
    let mut resumed = Piped::start(&cluster, &["volume", "import", "z", "--resume"]);
    feed(&mut resumed, 2, LARGE).expect("it reads on");
    resumed.end().succeeded();
    let mut disk = cluster.connect("z");
    for at in (0..LARGE).step_by(100 * MIB) {
        assert!(disk.read(at as u64, MIB as u32).expect("read") == piece(2), "from {at} on");
    }
}
