//! Images of other systems, and disks that NBD servers have.

use super::{MIB, Piped, bytes};
use crate::cluster::{Cluster, Plan};
use crate::nbd::noise;
use crate::program::{self, run_within};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SIZE: usize = 96 * MIB;
const LONG: Duration = Duration::from_secs(120);

/// With a raw image of two stretches of data in its folder.
fn with_image() -> (Cluster, PathBuf, Vec<u8>) {
    let cluster = Plan::default().up();
    let mut content = vec![0; SIZE];
    content[..5 * MIB].copy_from_slice(&noise(1, 5 * MIB));
    content[60 * MIB + 512..64 * MIB].copy_from_slice(&noise(2, 4 * MIB - 512));
    let path = cluster.folder().join("disk.raw");
    let file = File::create(&path).expect("space");
    file.set_len(SIZE as u64).expect("space");
    file.write_all_at(&content[..5 * MIB], 0).expect("space");
    file.write_all_at(&content[60 * MIB..64 * MIB], 60 << 20).expect("space");
    (cluster, path, content)
}

fn qemu_img(arguments: &[&str]) {
    run_within(&mut program::command("qemu-img", arguments), LONG).succeeded();
}

/// The image in another format, beside it.
fn converted(raw: &Path, name: &str, options: &[&str]) -> PathBuf {
    let to = raw.with_file_name(name);
    let (from, said) = (raw.to_str().expect("our own path"), to.to_str().expect("our own path"));
    qemu_img(&[&["convert", "-q", "-f", "raw"], options, &[from, said]].concat());
    to
}

fn import(cluster: &Cluster, name: &str, from: &str, options: &[&str]) -> program::Ended {
    let all = [&["volume", "import", name, "--from", from, "--layout", "stripe"], options].concat();
    std::fs::create_dir_all(temporary(cluster)).expect("space");
    run_within(cluster.command().args(all).env("TMPDIR", temporary(cluster)), LONG)
}

/// Where its imports keep what they need for a moment.
fn temporary(cluster: &Cluster) -> PathBuf {
    cluster.folder().join("temporary")
}

#[test]
fn images_of_each_format_arrive_whole_with_their_holes() {
    crate::need!("qemu-img", "qemu-nbd");
    let (cluster, raw, content) = with_image();
    let formats: [(&str, &[&str]); 8] = [
        ("a.qcow2", &["-O", "qcow2"]),
        ("c.qcow2", &["-O", "qcow2", "-c"]),
        ("x.qcow2", &["-O", "qcow2", "-o", "extended_l2=on,cluster_size=128k"]),
        ("a.vmdk", &["-O", "vmdk"]),
        ("s.vmdk", &["-O", "vmdk", "-o", "subformat=streamOptimized"]),
        ("a.vhdx", &["-O", "vhdx"]),
        ("a.vdi", &["-O", "vdi"]),
        ("a.img", &["-O", "raw"]),
    ];
    for (number, (name, options)) in formats.into_iter().enumerate() {
        let (volume, image) = (format!("v{number}"), converted(&raw, name, options));
        let said = import(&cluster, &volume, image.to_str().expect("our own path"), &["--verify"]).succeeded();
        assert!(said.contains("are the same there"), "{said}");
        assert!(bytes(&cluster, &volume) == content, "{name}");
        let allocated = cluster.volume(&volume)["allocated"].as_u64().expect("bytes");
        assert!(allocated <= 11 << 20, "{name}: {allocated} bytes of 9 MiB");
        cluster.tepal(&["volume", "rm", &volume]).succeeded();
    }
    assert_eq!(std::fs::read_dir(temporary(&cluster)).expect("a folder").count(), 0, "nothing is left behind");
}

#[test]
fn an_image_through_a_pipe_is_imported_whatever_its_format() {
    crate::need!("qemu-img", "qemu-nbd");
    let (cluster, raw, content) = with_image();
    let image = converted(&raw, "s.vmdk", &["-O", "vmdk", "-o", "subformat=streamOptimized"]);
    let mut piped = Piped::start(&cluster, &["volume", "import", "v", "--from", "-", "--layout", "stripe", "--verify"]);
    piped.feed(&std::fs::read(image).expect("readable")).expect("it's taken");
    piped.end().succeeded();
    assert!(bytes(&cluster, "v") == content);
}

/// Story: the size was too small for the file, and the error spoke of standard input, when all that fitted was written.
#[test]
fn a_size_that_is_too_small_is_refused_at_once() {
    let (cluster, raw, _) = with_image();
    let raw = raw.to_str().expect("our own path");
    let error = import(&cluster, "v", raw, &["--size", "64M"]).refused(1);
    assert!(error.contains(&format!("{raw} has {SIZE} bytes, and --size says 67108864")), "{error}");
    assert!(cluster.ask(&["volume", "ls"]).as_array().expect("a list").is_empty(), "nothing is made");
}

#[test]
fn other_files_are_read_only_where_that_is_said() {
    crate::need!("qemu-img", "qemu-nbd");
    let (cluster, raw, mut content) = with_image();
    let base = converted(&raw, "base.qcow2", &["-O", "qcow2"]);
    let over = raw.with_file_name("over.qcow2");
    let (base, over) = (base.to_str().expect("our own path"), over.to_str().expect("our own path"));
    qemu_img(&["create", "-q", "-f", "qcow2", "-b", base, "-F", "qcow2", over]);
    let write = ["-f", "qcow2", "-c", "write -P 7 70M 1M", over];
    run_within(&mut program::command("qemu-io", write), LONG).succeeded();
    content[70 * MIB..71 * MIB].fill(7);
    let error = import(&cluster, "v", over, &[]).refused(1);
    assert!(error.contains("base.qcow2") && error.contains("--backing"), "{error}");
    import(&cluster, "v", over, &["--backing", "--verify"]).succeeded();
    assert!(bytes(&cluster, "v") == content);
    let flat = converted(&raw, "flat.vmdk", &["-O", "vmdk", "-o", "subformat=monolithicFlat"]);
    let error = import(&cluster, "w", flat.to_str().expect("our own path"), &[]).refused(1);
    assert!(error.contains("flat-flat.vmdk") && error.contains("--backing"), "{error}");
}

/// QEMU's tools read zeros where the rest of a cut off image was, and say nothing.
#[test]
fn an_image_of_which_the_end_is_missing_is_refused() {
    crate::need!("qemu-img", "qemu-nbd");
    let (cluster, raw, _) = with_image();
    // The check of QEMU passes the last three: what they hold is past their ends.
    for (name, format) in [
        ("a.qcow2", &["-O", "qcow2"][..]),
        ("a.vmdk", &["-O", "vmdk"]),
        ("a.vhdx", &["-O", "vhdx"]),
        ("a.vdi", &["-O", "vdi"]),
        ("a.qcow", &["-O", "qcow"]),
        ("x.qcow2", &["-O", "qcow2", "-o", "extended_l2=on,cluster_size=128k"]),
    ] {
        let image = converted(&raw, name, format);
        let length = std::fs::metadata(&image).expect("there").len();
        File::options().write(true).open(&image).expect("there").set_len(length / 3 * 2).expect("shorter");
        let error = import(&cluster, "v", image.to_str().expect("our own path"), &[]).refused(1);
        assert!(error.contains(name) && error.contains("can't be read as an image"), "{error}");
    }
    assert_eq!(cluster.ask(&["volume", "ls"]).as_array().map(Vec::len), Some(0), "nothing was made");
}

#[test]
fn what_an_nbd_server_has_is_imported_and_gone_on_with() {
    crate::need!("qemu-img", "qemu-nbd");
    let (cluster, raw, content) = with_image();
    let image = converted(&raw, "a.qcow2", &["-O", "qcow2"]);
    let socket = cluster.folder().join("nbd.source");
    let mut server = program::command("qemu-nbd", ["-r", "-t", "-f", "qcow2", "-x", "one"]);
    let mut server = program::spawn(server.arg("-k").arg(&socket).arg(image));
    program::until("the server to listen", LONG, || socket.exists().then_some(()));
    let of = |export: &str| format!("nbd+unix:///{export}?socket={}", socket.display());
    import(&cluster, "v", &of("one"), &["--verify"]).succeeded();
    assert!(bytes(&cluster, "v") == content);
    let error = import(&cluster, "w", &of("two"), &[]).refused(1);
    assert!(error.contains("export 'two'") && error.contains("none of that name"), "{error}");
    // From another volume of the cluster itself, too.
    let own = format!("nbd+unix:///v?socket={}", cluster.socket().display());
    import(&cluster, "own", &own, &["--verify"]).succeeded();
    assert!(bytes(&cluster, "own") == content);
    program::kill_group(&mut server);
    let error = import(&cluster, "w", &of("one"), &[]).refused(1);
    assert!(error.contains("nbd+unix:///one"), "{error}");
    for wrong in ["nbd:x", "nbds://host/x", "/no/such.qcow2"] {
        import(&cluster, "w", wrong, &[]).refused(1);
    }
    assert_eq!(cluster.ask(&["volume", "ls"]).as_array().map(Vec::len), Some(2), "nothing was made for what failed");
}

#[test]
fn zeros_of_an_image_take_the_place_of_what_the_volume_had() {
    crate::need!("qemu-img", "qemu-nbd");
    let (cluster, raw, content) = with_image();
    let image = converted(&raw, "a.qcow2", &["-O", "qcow2"]);
    cluster.create("v", "96M", "stripe");
    cluster.connect("v").write(80 << 20, &noise(3, MIB)).expect("written");
    let all = ["volume", "import", "v", "--verify", "--from", image.to_str().expect("our own path")];
    run_within(cluster.command().args(all), LONG).succeeded();
    assert!(bytes(&cluster, "v") == content);
}
