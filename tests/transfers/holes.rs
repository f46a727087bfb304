//! Holes travel as holes.

use super::{MIB, Piped, bytes, pipe};
use crate::cluster::{Cluster, Plan};
use crate::nbd::noise;
use std::io::{Seek, SeekFrom, Write};
use std::process::Command;

const GIB: u64 = 1 << 30;
/// Where a large volume has a MiB of data each.
const PLACES: [u64; 4] = [0, 3 * GIB + 4096, 5 * GIB, 8 * GIB - MIB as u64];

/// With a volume `z` of this size, and a MiB of data at each of these places.
fn with_volume(size: &str, places: &[u64]) -> Cluster {
    let cluster = Plan::default().up();
    cluster.create("z", size, "mirror:2");
    let mut disk = cluster.connect("z");
    for &place in places {
        disk.write(place, &noise(place, MIB)).expect("written");
    }
    cluster
}

fn command(cluster: &Cluster, arguments: &[&str]) -> Command {
    let mut command = cluster.command();
    command.args(["volume"]).args(arguments);
    command
}

/// That `w` has just the data that `z` has.
fn holds_the_same(cluster: &Cluster, places: &[u64]) {
    let [one, other] = ["z", "w"].map(|name| cluster.volume(name));
    assert_eq!((&one["size"], &one["allocated"]), (&other["size"], &other["allocated"]), "holes stay holes");
    for &place in places {
        assert!(cluster.connect("w").read(place, MIB as u32).expect("read") == noise(place, MIB), "at {place}");
    }
}

/// Story: 64 GiB with 42 MiB in them took 70 s from one volume to another, as each hole was written to the pipe as zeros, read from it,
/// compared and sent to the server.
#[test]
fn a_stream_of_a_large_volume_is_as_long_as_what_it_holds() {
    let places = [0, 17 * GIB, 64 * GIB - MIB as u64];
    let cluster = with_volume("64G", &places);
    let (stdout, _) = Piped::start(&cluster, &["volume", "export", "z", "--as", "tepal"]).end().succeeded();
    assert!(stdout.len() < 4 * MIB, "{} bytes", stdout.len());
    pipe(
        command(&cluster, &["export", "z", "--as", "tepal"]),
        command(&cluster, &["import", "w", "--layout", "mirror:2"]),
    );
    holds_the_same(&cluster, &places);
}

#[test]
fn a_raw_image_through_a_pipe_leaves_holes() {
    let cluster = with_volume("8G", &PLACES);
    let import = command(&cluster, &["import", "w", "--size", "8G", "--layout", "mirror:2"]);
    pipe(command(&cluster, &["export", "z"]), import);
    holds_the_same(&cluster, &PLACES);
}

#[test]
fn a_sparse_file_is_imported_without_its_holes_being_read() {
    let cluster = with_volume("8G", &PLACES);
    let image = cluster.folder().join("image");
    let mut file = std::fs::File::create(&image).expect("ours");
    for place in PLACES {
        file.seek(SeekFrom::Start(place)).expect("ours");
        file.write_all(&noise(place, MIB)).expect("space");
    }
    let mut import = command(&cluster, &["import", "w", "--layout", "mirror:2"]);
    let ended = import.stdin(std::fs::File::open(&image).expect("ours")).output().expect("it runs");
    assert!(ended.status.success(), "{ended:?}");
    holds_the_same(&cluster, &PLACES);
}

#[test]
fn what_a_volume_held_where_a_stream_has_holes_is_gone() {
    let cluster = with_volume("24M", &[MIB as u64, 20 * MIB as u64]);
    let image = bytes(&cluster, "z");
    let (stream, _) = Piped::start(&cluster, &["volume", "export", "z", "--as", "tepal"]).end().succeeded();
    for (name, input, arguments) in [("w", &stream, &[][..]), ("x", &image, &["--raw"])] {
        cluster.create(name, "24M", "mirror:2");
        cluster.connect(name).write(0, &noise(7, 24 * MIB)).expect("written");
        let mut import = Piped::start(&cluster, &[&["volume", "import", name], arguments].concat());
        import.feed(input).expect("it reads on");
        import.end().succeeded();
        assert!(bytes(&cluster, name) == image, "{name}");
        assert_eq!(cluster.volume(name)["allocated"], cluster.volume("z")["allocated"], "{name}");
    }
}

#[test]
fn a_stream_that_is_cut_short_or_damaged_or_does_not_fit_is_refused() {
    let cluster = with_volume("24M", &[MIB as u64]);
    let (stream, _) = Piped::start(&cluster, &["volume", "export", "z", "--as", "tepal"]).end().succeeded();
    let attempt = |arguments: &[&str], input: &[u8]| {
        let mut import = Piped::start(&cluster, &[&["volume", "import"], arguments].concat());
        let _ = import.feed(input); // it may have ended
        import.end()
    };
    let error = attempt(&["w"], &stream[..stream.len() - 1]).failed();
    assert!(error.contains("only a part") && error.contains("cut short"), "{error}");
    let mut flipped = stream.clone();
    flipped[stream.len() / 2] ^= 1;
    let error = attempt(&["w"], &flipped).failed();
    assert!(error.contains("damaged"), "{error}");
    assert!(attempt(&["w", "--size", "24M"], &stream).failed().contains("leave out --size"));
    cluster.create("small", "8M", "stripe");
    cluster.create("large", "32M", "stripe");
    assert!(attempt(&["large"], &stream).failed().contains("--shrink"));
    attempt(&["large", "--shrink"], &stream).succeeded();
    for volume in ["w", "small"] {
        attempt(&[volume], &stream).succeeded();
    }
    for volume in ["w", "small", "large"] {
        assert!(bytes(&cluster, volume) == bytes(&cluster, "z"), "{volume}");
    }
}

/// Story: the image of a disk that holds differences from its first byte on could not be imported as an image.
#[test]
fn an_image_that_begins_as_a_stream_does_is_an_image_if_that_is_said() {
    let cluster = with_volume("24M", &[MIB as u64]);
    let (mut image, _) = Piped::start(&cluster, &["volume", "export", "z", "--as", "tepal"]).end().succeeded();
    image.resize(image.len().next_multiple_of(512), 0);
    let size = image.len().to_string();
    let mut import = Piped::start(&cluster, &["volume", "import", "w", "--raw", "--size", &size]);
    import.feed(&image).expect("it reads on");
    import.end().succeeded();
    assert!(bytes(&cluster, "w") == image);
}
