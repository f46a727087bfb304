//! Disks from and to Ceph. The folder `streams` has what `rbd` wrote of an image; `streams/make.py` made it.

use super::{MIB, Over, Piped, bytes};
use crate::cluster::{Cluster, Plan};
use crate::nbd::noise;
use crate::program::{self, run_within};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(120);

/// What was done to the image before each of its snapshots, as `streams/make.py` did it. A seed of 0 is zeros.
enum Did {
    Size(usize),
    Wrote(usize, usize, usize),
}
use Did::{Size, Wrote};

const NIGHTS: [(&str, &[Did]); 5] = [
    ("mon", &[Size(MIB + 1000), Wrote(0, 20_000, 1), Wrote(300_007, 100, 2), Wrote(700_000, 5000, 3)]),
    ("tue", &[Wrote(196_608, 8192, 4), Wrote(0, 65_536, 0), Wrote(700_000, 4096, 0)]),
    ("wed", &[Size(MIB + MIB / 2), Wrote(1_400_003, 7000, 5)]),
    ("thu", &[Size(400_001)]),
    ("fri", &[Size(MIB), Wrote(1_000_000, 4096, 6)]),
];

pub fn stream(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("transfers/streams").join(name);
    std::fs::read(path).expect("kept")
}

fn pattern(seed: usize, length: usize) -> Vec<u8> {
    let byte = |at: usize| if seed == 0 { 0 } else { ((at * seed + at / 251 + 1) % 256) as u8 };
    (0..length).map(byte).collect()
}

/// Names of snapshots, the oldest first, and what they hold.
pub type Nights = Vec<(&'static str, Vec<u8>)>;

/// What a volume holds as each of these snapshots, in whole sectors.
pub fn nights() -> Nights {
    let mut content = Vec::new();
    let after = |(name, done): &(&'static str, &[Did])| {
        for did in *done {
            match *did {
                Size(size) => content.resize(size, 0),
                Wrote(at, length, seed) => content[at..at + length].copy_from_slice(&pattern(seed, length)),
            }
        }
        let mut sectors = content.clone();
        sectors.resize(content.len().next_multiple_of(512), 0);
        (*name, sectors)
    };
    NIGHTS.iter().map(after).collect()
}

fn import(cluster: &Cluster, arguments: &[&str], stream: &[u8]) -> Over {
    let mut import = Piped::start(cluster, &[&["volume", "import"], arguments].concat());
    let _ = import.feed(stream); // it may have ended
    import.end()
}

/// From a file, which is read twice.
fn import_file(cluster: &Cluster, name: &str, stream: &[u8]) -> program::Ended {
    let path = cluster.folder().join("stream");
    std::fs::write(&path, stream).expect("space");
    cluster.tepal(&["volume", "import", name, "--from", path.to_str().expect("our own path")])
}

fn exported(cluster: &Cluster, arguments: &[&str]) -> Vec<u8> {
    Piped::start(cluster, &[&["volume"], arguments].concat()).end().succeeded().0
}

fn names(cluster: &Cluster, volume: &str) -> Vec<String> {
    let listed = cluster.ask(&["snapshot", "ls", volume]);
    let listed = listed.as_array().expect("a list").iter();
    listed.map(|snapshot| snapshot["name"].as_str().expect("a name").to_owned()).collect()
}

fn is_incomplete(cluster: &Cluster, volume: &str) -> bool {
    !cluster.volume(volume)["incomplete"].is_null()
}

/// That the volume has these snapshots and no others, with these bytes.
fn has_nights(cluster: &Cluster, volume: &str, nights: &[(&str, Vec<u8>)]) {
    for (night, content) in nights {
        assert!(bytes(cluster, &format!("{volume}@{night}")) == *content, "{volume}@{night}");
    }
    assert!(names(cluster, volume).iter().eq(nights.iter().map(|(night, _)| night)));
}

#[test]
fn an_image_from_ceph_arrives_with_all_its_snapshots() {
    let (cluster, nights) = (Plan::default().up(), nights());
    let image = stream("nights.image");
    let (said, _) = import(&cluster, &["v", "--layout", "mirror:2"], &image).succeeded();
    let said = String::from_utf8(said).expect("text");
    assert!(said.contains("5 snapshots are made, mon to fri"), "{said}");
    let mut now = nights[4].1.clone();
    now[..512].copy_from_slice(&pattern(7, 512));
    has_nights(&cluster, "v", &nights);
    assert!(bytes(&cluster, "v") == now && !is_incomplete(&cluster, "v"));
    // From a file, and over a volume that holds something else.
    cluster.create("w", "3M", "stripe");
    cluster.connect("w").write(0, &noise(1, 3 * MIB)).expect("written");
    let error = import_file(&cluster, "w", &image).refused(1);
    assert!(error.contains("--shrink"), "{error}");
    import(&cluster, &["w", "--shrink"], &image).succeeded();
    has_nights(&cluster, "w", &nights);
    let again = import_file(&cluster, "w", &image).refused(1);
    assert!(again.contains("snapshot 'w@mon' already"), "{again}");
}

#[test]
fn nightly_differences_from_ceph_are_applied() {
    let (cluster, nights) = (Plan::default().up(), nights());
    for (nth, (night, content)) in nights.iter().enumerate() {
        let stream = stream(&format!("{night}.diff"));
        let said = match nth % 2 {
            0 => String::from_utf8(import(&cluster, &["v"], &stream).succeeded().0).expect("text"),
            _ => import_file(&cluster, "v", &stream).succeeded(),
        };
        assert!(said.contains(&format!("snapshot {night} is made")), "{said}");
        assert!(bytes(&cluster, "v") == *content, "{night}");
    }
    has_nights(&cluster, "v", &nights);
}

/// With the first two nights in volume `v`, and what `rbd` wrote of the third.
fn with_two_nights() -> (Cluster, Nights, Vec<u8>) {
    let (cluster, nights) = (Plan::default().up(), nights());
    for (night, _) in &nights[..2] {
        import(&cluster, &["v"], &stream(&format!("{night}.diff"))).succeeded();
    }
    (cluster, nights, stream("wed.diff"))
}

/// As `rbd export-diff` writes it, of data of 4096 bytes each at multiples of 128 KiB.
fn differences(since: &str, to: &str, size: usize, blocks: &[Vec<u8>]) -> Vec<u8> {
    let mut stream = b"rbd diff v1\n".to_vec();
    for (tag, name) in [(b'f', since), (b't', to)] {
        stream.push(tag);
        stream.extend((name.len() as u32).to_le_bytes());
        stream.extend(name.as_bytes());
    }
    stream.push(b's');
    stream.extend((size as u64).to_le_bytes());
    for (block, at) in blocks.iter().zip((0u64..).step_by(128 << 10)) {
        stream.push(b'w');
        stream.extend([at.to_le_bytes(), (block.len() as u64).to_le_bytes()].concat());
        stream.extend(block);
    }
    stream.push(b'e');
    stream
}

/// Differences of which four of six blocks are in the volume once this returns, and what follows of them.
fn half_applied(cluster: &Cluster, size: usize) -> (Piped, Vec<u8>, usize) {
    let blocks: Vec<_> = (1..=6).map(|seed| noise(seed, 4096)).collect();
    let (stream, last) = (differences("tue", "half", size, &blocks), 3 * (128 << 10));
    let fed = stream.len() - 1 - 2 * (17 + 4096);
    let mut import = Piped::start(cluster, &["volume", "import", "v"]);
    import.feed(&stream[..fed]).expect("it reads on");
    program::until("a half to be there", LONG, || {
        let now = cluster.command().args(["volume", "export", "v", "--force"]).output().expect("it runs").stdout;
        (now.len() == size && now[last..last + 4096] == blocks[3]).then_some(())
    });
    assert!(is_incomplete(cluster, "v"));
    (import, stream, fed)
}

#[test]
fn a_killed_import_is_ended_by_itself_or_undone() {
    let (cluster, nights, _) = with_two_nights();
    for size in [MIB, 2 * MIB] {
        half_applied(&cluster, size).0.kill();
        let error = cluster.tepal(&["snapshot", "create", "v@x"]).refused(1);
        assert!(error.contains("incomplete"), "{error}");
        // Servers take it to be under way for some seconds more.
        program::until("the import to have gone", LONG, || {
            cluster.tepal(&["snapshot", "rollback", "v@tue"]).status.success().then_some(())
        });
        assert!(bytes(&cluster, "v") == nights[1].1 && !is_incomplete(&cluster, "v"));
        let (import, stream, _) = half_applied(&cluster, size);
        import.kill();
        let (_, said) = self::import(&cluster, &["v"], &stream).succeeded();
        assert!(said.contains("rolled back to v@tue"), "{said}");
        let mut content = nights[1].1.clone();
        content.resize(size, 0);
        for (nth, at) in (0..6).map(|nth| (nth, nth << 17)) {
            content[at..at + 4096].copy_from_slice(&noise(nth as u64 + 1, 4096));
        }
        assert!(bytes(&cluster, "v@half") == content && bytes(&cluster, "v") == content);
        cluster.tepal(&["snapshot", "rollback", "v@tue"]).succeeded();
        cluster.tepal(&["snapshot", "rm", "v@half"]).succeeded();
    }
    has_nights(&cluster, "v", &nights[..2]);
}

#[test]
fn a_broken_pipe_leaves_the_volume_as_it_was() {
    let (cluster, nights, _) = with_two_nights();
    for size in [MIB, 2 * MIB] {
        for rest in [&b""[..], b"e, and more"] {
            let (mut import, _, fed) = half_applied(&cluster, size);
            import.feed(rest).expect("it reads on");
            let error = import.end().failed();
            let at = if rest.is_empty() {
                format!("ends at byte {fed}")
            } else {
                format!("after its end, at byte {}", fed + 1)
            };
            assert!(error.contains("rolled back to 'v@tue'") && error.contains(&at), "{error}");
            assert!(bytes(&cluster, "v") == nights[1].1 && !is_incomplete(&cluster, "v"));
        }
    }
    has_nights(&cluster, "v", &nights[..2]);
}

/// As where an import was killed between its last write and its snapshot.
#[test]
fn a_snapshot_that_alone_is_missing_is_made() {
    let (cluster, nights, wed) = with_two_nights();
    for (nth, (night, stream)) in
        [("wed", wed), ("thu", stream("thu.diff")), ("fri", stream("fri.diff"))].iter().enumerate()
    {
        import(&cluster, &["v"], stream).succeeded();
        cluster.tepal(&["snapshot", "rm", &format!("v@{night}")]).succeeded();
        import(&cluster, &["v"], stream).succeeded();
        has_nights(&cluster, "v", &nights[..nth + 3]);
    }
}

#[test]
fn differences_that_are_no_good_change_nothing() {
    let (cluster, nights, wed) = with_two_nights();
    let changed = |at: usize, byte: u8| {
        let mut changed = wed.clone();
        changed[at] = byte;
        changed
    };
    let cases = [
        (wed[..20_000].to_vec(), "ends at byte 20000"),
        (wed[..wed.len() - 1].to_vec(), "ends at byte 30801"),
        ([&wed[..], b"e"].concat(), "goes on after its end, at byte 30802"),
        (changed(12, b'x'), "at byte 12 it has 'x'"),
        (changed(30_801, b'w'), "ends at byte 30802"),
        (changed(28 + 8, 0xff), "at byte 12 it says that the image has"),
        (changed(37 + 8, 0x7f), "at byte 37 is a record of"),
        (changed(37 + 16, 0x7f), "at byte 37 is a record of"),
        (changed(10, b'9'), "damaged or of a version that isn't known"),
    ];
    for (stream, said) in &cases {
        let error = import_file(&cluster, "v", stream).refused(1);
        assert!(error.contains(said), "{said}: {error}");
        let error = import(&cluster, &["v"], stream).failed();
        assert!(error.contains(said), "{said}: {error}");
        assert!(bytes(&cluster, "v") == nights[1].1 && !is_incomplete(&cluster, "v"), "{said}");
        has_nights(&cluster, "v", &nights[..2]);
    }
}

#[test]
fn differences_for_another_volume_are_refused() {
    let (cluster, nights, wed) = with_two_nights();
    let refused = |name: &str, stream: &[u8], said: &str| {
        for error in [import(&cluster, &[name], stream).failed(), import_file(&cluster, name, stream).refused(1)] {
            assert!(error.contains(said), "{said}: {error}");
        }
    };
    refused("y", &wed, "no volume 'y'");
    refused("v", &stream("fri.diff"), "goes on from snapshot 'v@thu', and there is none");
    refused("v", &stream("tue.diff"), "a snapshot 'v@tue' already");
    refused("v", &stream("mon.diff"), "a snapshot 'v@mon' already");
    refused("v", &stream("nights.image"), "a snapshot 'v@mon' already");
    cluster.connect("v").write(900_000, &noise(1, 512)).expect("written");
    refused("v", &wed, "`tepal snapshot rollback v@tue` first");
    let error = import(&cluster, &["v", "--force"], &wed).failed();
    assert!(error.contains("rollback v@tue"), "{error}");
    for option in [&["--size", "4M"][..], &["--layout", "stripe"], &["--from", "-", "--backing"]] {
        let error = import(&cluster, &[&["v"], option].concat(), &wed).failed();
        assert!(error.contains("leave out --"), "{error}");
    }
    assert!(bytes(&cluster, "v")[900_000..900_512] == noise(1, 512));
    has_nights(&cluster, "v", &nights[..2]);
}

#[test]
fn what_came_from_ceph_is_compared_on_request() {
    let (cluster, nights) = (Plan::default().up(), nights());
    let image = stream("nights.image");
    let same = "the same there as where it came from";
    let (said, _) = import(&cluster, &["v", "--from", "-", "--verify"], &image).succeeded();
    assert!(String::from_utf8_lossy(&said).contains(same));
    for (night, content) in &nights {
        let said = verified(&cluster, "w", &stream(&format!("{night}.diff")), &[]).succeeded();
        assert!(said.contains(same) && bytes(&cluster, "w") == *content, "{night}: {said}");
    }
    verified(&cluster, "v", &image, &["--resume"]).succeeded();
    // What is there already isn't written again, and is compared.
    for (night, seed, within) in [("mon", 1, 100), ("tue", 4, 7000), ("wed", 5, 0)] {
        let written = nights_of(night).iter().find_map(|did| match did {
            Wrote(at, length, with) if *with == seed => Some((*at, pattern(seed, *length))),
            _ => None,
        });
        let (at, written) = written.expect("it's one of that night");
        let place = image.windows(written.len()).position(|found| found == written).expect("all in one record");
        let mut other = image.clone();
        other[place + within] ^= 1;
        let error = verified(&cluster, "v", &other, &["--resume"]).refused(1);
        assert!(error.contains(&format!("snapshot 'v@{night}' differs")), "{error}");
        assert!(error.contains(&format!("from byte {} on", at + within)), "{error}");
    }
    has_nights(&cluster, "v", &nights);
}

fn nights_of(name: &str) -> &'static [Did] {
    NIGHTS.iter().find(|(night, _)| *night == name).expect("one of them").1
}

fn verified(cluster: &Cluster, name: &str, stream: &[u8], options: &[&str]) -> program::Ended {
    let path = cluster.folder().join("stream");
    std::fs::write(&path, stream).expect("space");
    let from = ["volume", "import", name, "--verify", "--from", path.to_str().expect("our own path")];
    cluster.tepal(&[&from[..], options].concat())
}

#[test]
fn an_image_cut_off_anywhere_is_gone_on_with() {
    let (cluster, nights) = (Plan::default().up(), nights());
    let image = stream("nights.image");
    for cut in [5, 100, 150, 50_000, 107_843, 116_300, 147_026, 147_100, 168_300, image.len() - 1] {
        let error = import(&cluster, &["v"], &image[..cut]).failed();
        assert!(error.contains(&format!("byte {cut}")) || cut == 5, "{cut}: {error}");
        import(&cluster, &["v", "--resume"], &image).succeeded();
        has_nights(&cluster, "v", &nights);
        cluster.tepal(&["volume", "rm", "v", "--snapshots"]).succeeded();
    }
}

/// Story: an image of another machine, with snapshots of the same names and sizes, was taken for the one that was begun with, and its later
/// nights came behind the earlier ones of that.
#[test]
fn an_image_is_not_gone_on_with_by_another_one() {
    let (cluster, nights) = (Plan::default().up(), nights());
    let image = stream("nights.image");
    let (at, written) = (nights_of("mon").iter())
        .find_map(|did| match did {
            Wrote(at, length, seed) => Some((*at, pattern(*seed, *length))),
            _ => None,
        })
        .expect("something is written that night");
    let mut other = image.clone();
    let place = image.windows(written.len()).position(|found| found == written).expect("all in one record");
    other[place] ^= 1;
    import(&cluster, &["v"], &image[..116_300]).failed();
    let begun = names(&cluster, "v");
    assert!(!begun.is_empty() && begun.len() < nights.len(), "{begun:?}");
    let error = import(&cluster, &["v", "--resume"], &other).failed();
    let differs = format!("snapshot 'v@mon' differs from what the input has of it, from byte {at} on");
    assert!(error.contains(&differs) && error.contains("nothing of it is imported"), "{error}");
    assert_eq!(names(&cluster, "v"), begun);
    import(&cluster, &["v", "--resume"], &image).succeeded();
    has_nights(&cluster, "v", &nights);
}

/// A volume `z` with the snapshots `a` to `e`, which differ by writes, trims, growth, shrinking, and a rollback in between.
fn with_history(cluster: &Cluster) -> Vec<(String, Vec<u8>)> {
    cluster.create("z", "24M", "mirror:2");
    let write = |at: usize, seed: u64, length: usize| {
        cluster.connect("z").write(at as u64, &noise(seed, length)).expect("written");
    };
    let ask = |arguments: &[&str]| drop(cluster.tepal(arguments).succeeded());
    write(0, 1, 3 * MIB);
    write(20 * MIB + 512, 2, 12 * 512);
    ask(&["snapshot", "create", "z@a"]);
    write(MIB, 3, 64 << 10);
    cluster.connect("z").trim(20 << 20, 1 << 20).expect("trimmed");
    cluster.connect("z").write_zeroes(4096, 200_704).expect("written");
    ask(&["volume", "resize", "z", "32M"]);
    write(30 * MIB, 4, MIB);
    ask(&["snapshot", "create", "z@b"]);
    ask(&["snapshot", "rollback", "z@a"]);
    write(2 * MIB, 5, 4096);
    ask(&["snapshot", "create", "z@c"]);
    ask(&["volume", "resize", "z", "1M", "--shrink"]);
    write(512, 6, 512);
    ask(&["snapshot", "create", "z@d"]);
    // What was cut off is zeros.
    ask(&["volume", "resize", "z", "8M"]);
    write(7 * MIB, 7, 4096);
    ask(&["snapshot", "create", "z@e"]);
    let all = ["a", "b", "c", "d", "e"];
    all.iter().map(|name| ((*name).to_owned(), bytes(cluster, &format!("z@{name}")))).collect()
}

#[test]
fn a_chain_for_ceph_comes_back_the_same() {
    let cluster = Plan::default().up();
    let history = with_history(&cluster);
    let mut since: Option<&str> = None;
    for (name, content) in &history {
        let source = format!("z@{name}");
        let based: Vec<&str> = since.iter().flat_map(|since| ["--since", since]).collect();
        let stream = exported(&cluster, &[&["export", &source, "--as", "rbd-diff"], &based[..]].concat());
        import(&cluster, &["w"], &stream).succeeded();
        assert!(bytes(&cluster, "w") == *content, "{name}");
        since = Some(name);
    }
    let image = exported(&cluster, &["send", "z", "--as", "rbd"]);
    import(&cluster, &["x"], &image).succeeded();
    for volume in ["w", "x"] {
        for (name, content) in &history {
            assert!(bytes(&cluster, &format!("{volume}@{name}")) == *content, "{volume}@{name}");
        }
    }
    // Holes aren't sent, and what is written once more is no difference.
    let whole = exported(&cluster, &["export", "z@a", "--as", "rbd-diff"]);
    assert!(whole.len() < 4 * MIB, "{}", whole.len());
    let error = cluster.tepal(&["volume", "send", "z", "--since", "a", "--as", "rbd"]).refused(2);
    assert!(error.contains("--as rbd-diff"), "{error}");
    cluster.tepal(&["volume", "export", "z", "--since", "a", "--as", "tepal"]).refused(2);
}

/// `rbd` parses what it merges, and needs no cluster for that.
#[test]
fn rbd_merges_differences_of_volumes() {
    crate::need!("rbd");
    let cluster = Plan::default().up();
    let history = with_history(&cluster);
    let file = |name: &str| cluster.folder().join(name);
    let of = |source: &str, since: &str| {
        let stream = exported(&cluster, &["export", source, "--as", "rbd-diff", "--since", since]);
        std::fs::write(file(source), stream).expect("space");
    };
    let ask = |volume: &str, stream: &[u8]| drop(import(&cluster, &[volume], stream).succeeded());
    of("z@b", "a");
    of("z@c", "b");
    let mut merge = program::command("rbd", ["merge-diff"]);
    run_within(merge.args([file("z@b"), file("z@c"), file("merged")]), LONG).succeeded();
    ask("w", &exported(&cluster, &["export", "z@a", "--as", "rbd-diff"]));
    ask("w", &std::fs::read(file("merged")).expect("written"));
    assert!(bytes(&cluster, "w@c") == history[2].1);
}

/// Of a cluster that the environment's CEPH_CONF names, if there is one.
fn rbd(arguments: &[&str]) -> Command {
    program::command("rbd", arguments)
}

#[test]
fn volumes_go_to_a_real_ceph_and_back() {
    crate::need!("rbd");
    if std::env::var_os("CEPH_CONF").is_none() {
        crate::skip!("CEPH_CONF names no cluster of Ceph");
    }
    let cluster = Plan::default().up();
    let history = with_history(&cluster);
    let file = |name: &str| cluster.folder().join(name);
    let run = |command: &mut Command| drop(run_within(command, LONG).succeeded());
    let (one, all) = (format!("tepal-{}", std::process::id()), format!("tepal-{}-all", std::process::id()));
    run(&mut rbd(&["create", &one, "--size", "1M"]));
    let mut since: Option<&str> = None;
    for (name, content) in &history {
        let source = format!("z@{name}");
        let based: Vec<&str> = since.iter().flat_map(|since| ["--since", since]).collect();
        let stream = exported(&cluster, &[&["export", &source, "--as", "rbd-diff"], &based[..]].concat());
        std::fs::write(file("out"), stream).expect("space");
        run(rbd(&["import-diff"]).arg(file("out")).arg(&one));
        let there = format!("{one}@{name}");
        run(rbd(&["export", &there]).arg(file(name)));
        assert!(std::fs::read(file(name)).expect("there") == *content, "{name}");
        let based: Vec<&str> = since.iter().flat_map(|since| ["--from-snap", since]).collect();
        let back = file(&format!("{name}.back"));
        run(rbd(&["export-diff", &there]).args(based).arg(&back));
        import(&cluster, &["w", "--from", "-", "--verify"], &std::fs::read(&back).expect("there")).succeeded();
        assert!(bytes(&cluster, "w") == *content, "{name}");
        since = Some(name);
    }
    std::fs::write(file("image"), exported(&cluster, &["send", "z", "--as", "rbd"])).expect("space");
    run(rbd(&["import", "--export-format", "2"]).arg(file("image")).arg(&all));
    run(rbd(&["export", "--export-format", "2", &all]).arg(file("image.back")));
    import(&cluster, &["x", "--from", "-", "--verify"], &std::fs::read(file("image.back")).expect("there")).succeeded();
    for volume in ["w", "x"] {
        for (name, content) in &history {
            assert!(bytes(&cluster, &format!("{volume}@{name}")) == *content, "{volume}@{name}");
        }
    }
    for image in [one, all] {
        run(&mut rbd(&["snap", "purge", &image]));
        run(&mut rbd(&["rm", &image]));
    }
}
