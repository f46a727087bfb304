//! Wrong, huge, hostile and missing arguments of every command that the other tables don't cover.

use crate::cluster::{Cluster, Plan, tepal};
use crate::program::{Ended, run, run_within};
use crate::{need_root, skip};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// So much of an argument nobody reads.
const LONG: usize = 100_000;
/// Far more than any of these may need, and far less than one that reads a device to its end.
const LIMIT: Duration = Duration::from_secs(30);

/// For several that take turns.
const PATIENCE: Duration = Duration::from_secs(300);

fn long() -> String {
    "a".repeat(LONG)
}

/// Runs each, and complains of all that don't end with one readable line and their status.
fn all_refused(cases: &[(i32, Vec<&str>, &str)], mut give: impl FnMut(&[&str]) -> Ended) {
    let mut complaints = Vec::new();
    for (status, arguments, said) in cases {
        let ended = give(arguments);
        let line = ended.stderr.trim_end();
        let right = ended.status.code() == Some(*status)
            && line.starts_with("error: ")
            && !line.contains(|c: char| c.is_control())
            && line.chars().count() < 1000
            && line.contains(said);
        if !right {
            let shown: Vec<&str> = arguments.iter().map(|argument| &argument[..argument.len().min(60)]).collect();
            let line: String = line.chars().take(300).collect();
            complaints
                .push(format!("{shown:?}, which ought to end with {status} and '{said}': {}, {line}", ended.status));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn pools_benches_and_queries_that_make_no_sense_are_refused_and_change_nothing() {
    let cluster = Plan { drives: 2, ..Plan::default() }.up();
    cluster.create("v0", "4M", "mirror:2");
    let long = long();
    let endless = "with recursive c(x) as (select 1 union all select x + 1 from c) select x from c";
    let stolen = cluster.folder().join("stolen");
    let vacuum = format!("vacuum into '{}'", stolen.display());
    let cases: Vec<(i32, Vec<&str>, &str)> = vec![
        (2, vec!["pool", "show"], "NAME"),
        (1, vec!["pool", "show", "x"], "'x'"),
        (2, vec!["pool", "show", "a\nb"], "not a name"),
        (2, vec!["pool", "show", &long], "not a name"),
        (1, vec!["pool", "rm", "default"], "'default'"),
        (1, vec!["pool", "rm", "x"], "'x'"),
        (1, vec!["pool", "create", "default"], "exists already"),
        (2, vec!["pool", "create", ".."], "not a name"),
        (2, vec!["pool", "create", ""], "not a name"),
        (2, vec!["pool", "create", "p", "--layout", "raid9"], "raid9"),
        (2, vec!["pool", "create", "p", "--layout", &long], "layout"),
        (2, vec!["pool", "create", "p", "--drives"], "--drives"),
        (2, vec!["pool", "create", "p", "--drives", "x"], "SERVER:PATH"),
        (2, vec!["pool", "create", "p", "--drives", "s1:"], "SERVER:PATH"),
        (2, vec!["pool", "create", "p", "--drives", "x1:/x"], "SERVER:PATH"),
        (1, vec!["pool", "create", "p", "--drives", "s9:/dev/x"], "s9"),
        (1, vec!["pool", "create", "p", "--drives", "s1:/nowhere"], "/nowhere"),
        (1, vec!["pool", "create", "p", "--drives", "s1:relative"], "relative"),
        (1, vec!["bench", "x"], "'x'"),
        (2, vec!["bench", ""], "not a name"),
        (2, vec!["bench", "v0", "--layout", "stripe"], "--layout"),
        (1, vec!["bench", "--layout", "mirror:3", "--seconds", "1", "--size", "16M"], "mirror:3"),
        (2, vec!["bench", "--seconds", "0"], "1..=600"),
        (2, vec!["bench", "--seconds", "18446744073709551616"], "--seconds"),
        (2, vec!["bench", "--size", "1"], "16M"),
        (2, vec!["bench", "--size", "-1"], "not a size"),
        (1, vec!["bench", "--size", "7E", "--seconds", "1"], "7E"),
        (2, vec!["sql"], "QUERY"),
        (1, vec!["sql", " "], "empty"),
        (1, vec!["sql", " ; "], "empty"),
        (1, vec!["sql", "select"], "incomplete"),
        (1, vec!["sql", "insert into volumes values (1)"], "refused"),
        (1, vec!["sql", "select 1; drop table volumes"], "refused"),
        (1, vec!["sql", &vacuum], "refused"),
        (1, vec!["sql", "select load_extension('x')"], "refused"),
        (1, vec!["sql", endless], "limit"),
        (1, vec!["sql", "select zeroblob(1000000000)"], "limit"),
        (1, vec!["sql", &long], "100000 bytes"),
        (2, vec!["--cluster", "", "status"], "--cluster"),
        (2, vec!["--cluster", "x", "status"], "HOST:PORT"),
        (2, vec!["--cluster", "127.0.0.1:99999", "status"], "HOST:PORT"),
        (2, vec!["--cluster", &long, "status"], "HOST:PORT"),
        (1, vec!["--cluster", "127.0.0.1:1", "status"], "127.0.0.1:1"),
        (2, vec!["server", "show", "x"], "'x'"),
        (1, vec!["server", "show", "s2"], "s2"),
    ];
    let before = (cluster.volume("v0"), cluster.ask(&["pool", "ls"]), cluster.ask(&["drive", "ls"]));
    all_refused(&cases, |arguments| run_within(cluster.command().args(arguments), LIMIT));
    assert_eq!((cluster.volume("v0"), cluster.ask(&["pool", "ls"])), (before.0, before.1));
    assert_eq!(cluster.ask(&["volume", "ls"]).as_array().map(Vec::len), Some(1));
    assert_eq!(cluster.ask(&["drive", "ls"])[0]["id"], before.2[0]["id"]);
    assert!(!stolen.exists());
}

#[test]
fn a_pool_whose_later_drive_can_not_be_had_says_what_it_has() {
    let cluster = Plan { drives: 1, ..Plan::default() }.up();
    let new = cluster.folder().join("new");
    crate::cluster::make_drive(&new, 64 << 20);
    let place = format!("s1:{}", new.display());
    let refused = cluster.tepal(&["pool", "create", "p", "--drives", &place, "s1:/nowhere"]).refused(1);
    assert!(refused.contains("/nowhere") && refused.contains("with 1 drives"), "{refused}");
    assert_eq!(cluster.ask(&["pool", "show", "p"])["drives"].as_array().map(Vec::len), Some(1));
}

#[test]
fn development_clusters_that_make_no_sense_are_refused_and_leave_nothing() {
    let scratch = tempfile::tempdir().expect("space");
    let folder = scratch.path().join("dev");
    let file = scratch.path().join("file");
    std::fs::write(&file, "").expect("ours");
    let [dir, file, beneath] = [folder.clone(), file.clone(), file.join("x")].map(|path| path.display().to_string());
    let (long, long_path) = (long(), format!("/{}", long()));
    let up = |more: &[&'static str]| [&["--dir", &dir, "dev", "up", "--detach"], more].concat();
    let named = |option, value| vec!["--dir", dir.as_str(), "dev", "up", "--detach", option, value];
    let mut cases: Vec<(i32, Vec<&str>, &str)> = vec![
        (2, up(&["--servers", "0"]), "--servers"),
        (2, up(&["--servers", "4294967296"]), "--servers"),
        (2, up(&["--drives", "0"]), "--drives"),
        (2, up(&["--drives", "-1"]), "--drives"),
        (2, up(&["--drives", "99999"]), "--drives"),
        (2, up(&["--drive-size", "0"]), "8M"),
        (2, up(&["--drive-size", "1K"]), "8M"),
        (2, up(&["--drive-size", "8388609"]), "4096"),
        (2, up(&["--drive-size", "-8388608"]), "not a size"),
        (2, up(&["--drive-size", "99999E"]), "larger than"),
        (1, up(&["--drive-size", "7E"]), "no room"),
        (2, up(&["--volume", "x"]), "NAME=SIZE"),
        (2, up(&["--volume", "../x=1M"]), "not a name"),
        (2, up(&["--volume", "x=1M,layout=raid5"]), "raid5"),
        (2, up(&["--emulate", "warp"]), "warp"),
        (2, up(&["--emulate", "iops=0"]), "iops"),
        (2, named("--emulate", &long), "model"),
        (2, named("--volume", &long), "NAME=SIZE"),
        (2, up(&["--frob"]), "--frob"),
        (1, vec!["--dir", &file, "dev", "up", "--detach"], &file),
        (1, vec!["--dir", &beneath, "dev", "up", "--detach"], &file),
        (1, vec!["--dir", &long_path, "dev", "up", "--detach"], "too long"),
        (2, vec!["dev", "kill"], "SERVER"),
        (2, vec!["dev", "kill", "s99999999999"], "s99999999999"),
        (2, vec!["dev", "kill", "-1"], "-1"),
        (2, vec!["dev", "partition"], "A,B"),
        (2, vec!["dev", "partition", "s1,s2"], "C,D"),
        (2, vec!["dev", "partition", "", "s2"], "not a list of servers"),
        (2, vec!["dev", "partition", "s1", "s2,,s3"], "not a list of servers"),
        (2, vec!["dev", "partition", "s1", &long], "not a list of servers"),
        (1, vec!["--dir", &dir, "dev", "partition", "s1", "s2"], &dir),
        (1, vec!["--dir", &dir, "dev", "heal"], &dir),
    ];
    for verb in ["status", "down"] {
        cases.push((1, vec!["--dir", &dir, "dev", verb], &dir));
        cases.push((1, vec!["--dir", &long_path, "dev", verb], "no development cluster"));
    }
    for verb in ["kill", "start", "pause", "resume"] {
        cases.push((1, vec!["--dir", &dir, "dev", verb, "s1"], &dir));
    }
    all_refused(&cases, |arguments| run_within(Command::new(tepal()).args(arguments), LIMIT));
    assert!(!folder.exists(), "{:?}", std::fs::read_dir(&folder).map(Iterator::count));
}

#[test]
fn a_development_cluster_can_still_be_had_after_one_that_could_not() {
    let scratch = tempfile::tempdir().expect("space");
    let dir = scratch.path().join("dev").display().to_string();
    let dev = |arguments: &[&str]| run(Command::new(tepal()).args(["--dir", &dir, "dev"]).args(arguments));
    dev(&["up", "--detach", "--drive-size", "7E"]).refused(1);
    let one = ["up", "--detach", "--servers", "1", "--drives", "1", "--drive-size", "64M"];
    dev(&[&one[..], &["--volume", "v=4M,layout=mirror:2"]].concat()).refused(1);
    dev(&["up", "--detach", "--drives", "2", "--volume", "v=4M,layout=mirror:2"]).succeeded();
    let cases: Vec<(i32, Vec<&str>, &str)> = vec![
        (1, vec!["kill", "s2"], "s2"),
        (1, vec!["kill", "s1", "s2"], "s2"),
        (1, vec!["start", "s1"], "running already"),
        (1, vec!["resume", "s1"], "not paused"),
        (1, vec!["up", "--drives", "1"], "--drives 2"),
        (1, vec!["up", "--drive-size", "128M"], "64M"),
        (1, vec!["up", "--memory"], "--memory"),
        (1, vec!["up", "--isolate"], "--isolate off"),
        (1, vec!["partition", "s1", "s2"], "no server s2"),
        (1, vec!["partition", "s1", "s1"], "one side"),
        (1, vec!["heal"], "up --isolate"),
        (1, vec!["up", "--volume", "v=8M"], "'v'"),
        (1, vec!["down", "--purge", "/tmp"], "/tmp"),
        (2, vec!["down", "--purge"], "--purge"),
    ];
    all_refused(&cases, dev);
    let status = run(Command::new(tepal()).args(["--dir", &dir, "-o", "json", "status"])).succeeded();
    assert!(status.contains("\"health\": \"ok\""), "{status}");
    dev(&["down", "--purge", &dir]).succeeded();
}

/// A configuration file, and what is said of it.
const CONFIGURATIONS: [(&str, &str); 22] = [
    ("", "data is missing"),
    ("x", "line 1"),
    ("data = [", "line 1"),
    ("nonsense = 1", "nonsense"),
    ("data = 1", "line 1"),
    ("data = \"\"", "empty"),
    ("data = \"a\\u0000b\"", "zero byte"),
    ("data = \"d\"\ndata = \"e\"", "line 2"),
    ("data = \"d\"\ndata_threads = 0", "data_threads"),
    ("data = \"d\"\ndata_threads = -1", "data_threads"),
    ("data = \"d\"\ndata_threads = 99999999999999999999", "line 2"),
    ("data = \"d\"\ncreate = \"../x\"", "../x"),
    ("data = \"d\"\ncreate = \"a\\nb\"", "not a name"),
    ("data = \"d\"\nserver = \"x9\"", "x9"),
    ("data = \"d\"\npool = \"a/b\"", "a/b"),
    ("data = \"d\"\nlisten = [\"bogus\"]", "bogus"),
    ("data = \"d\"\nnames = [\"a b\"]", "no name or address"),
    ("data = \"d\"\napi = \"nowhere\"", "nowhere"),
    ("data = \"d\"\nemulate = \"warp\"", "warp"),
    ("data = \"d\"\njoin = [\"nowhere\"]", "join: 'nowhere'"),
    ("data = \"d\"\ndrives = [\"a\", \"a\"]", "given twice"),
    ("data = \"d\"\ndrives = [{ path = \"a\", size = 1 }]", "line 2"),
];

#[test]
fn a_server_with_a_configuration_that_makes_no_sense_does_not_start_and_makes_nothing() {
    let scratch = tempfile::tempdir().expect("space");
    let file = scratch.path().join("tepal.toml");
    let serve = |arguments: &[&str]| {
        run_within(Command::new(tepal()).arg("serve").args(arguments).current_dir(scratch.path()), LIMIT)
    };
    let config = ["--config", "tepal.toml"];
    let mut complaints = Vec::new();
    for (text, said) in CONFIGURATIONS {
        std::fs::write(&file, text).expect("space");
        let line = serve(&config).refused(1);
        if !line.contains(said) || line.len() > 1000 {
            complaints.push(format!("{text}: {line}"));
        }
    }
    assert_eq!(complaints, Vec::<String>::new());
    for (bytes, said) in [(&[0xff; 100][..], "UTF-8"), (&[b'#'; (1 << 20) + 1], "more than")] {
        std::fs::write(&file, bytes).expect("space");
        let line = serve(&config).refused(1);
        assert!(line.contains(said) && line.contains("tepal.toml"), "{line}");
    }
    let long = long();
    let listen = format!("unix:/{long}");
    let cases: Vec<(i32, Vec<&str>, &str)> = vec![
        (1, vec!["--config", "/nowhere/at/all"], "/nowhere/at/all"),
        (1, vec!["--config", "/"], "/"),
        (1, vec!["--config", "/dev/zero"], "/dev/zero"),
        (2, vec!["--config", ""], "--config"),
        (1, vec![], "data is missing"),
        (1, vec!["--data", "tepal.toml", "--create", "x"], "tepal.toml"),
        (1, vec!["--data", "d", "--create", "x", "--listen", ""], "listen"),
        (1, vec!["--data", "d", "--create", "x", "--listen", "unix:"], "listen"),
        (1, vec!["--data", "d", "--create", "x", "--listen", &listen], "listen"),
        (1, vec!["--data", "d", "--create", "x", "--listen", "127.0.0.1:99999"], "99999"),
        (1, vec!["--data", "d", "--create", "x", "--log-file", "/nowhere/at/all/log"], "/nowhere/at/all/log"),
        (2, vec!["--data", "d", "--create", "x", "--drive", ""], "--drive"),
        (2, vec!["--data", "d", "--create", &long], "not a name"),
        (2, vec!["--data", "d", "--data-threads", "x"], "--data-threads"),
        (1, vec!["--data", "d", "--data-threads", "-1"], "data_threads"),
    ];
    all_refused(&cases, serve);
    let mode = || scratch.path().metadata().expect("ours").permissions().mode() & 0o777;
    std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o755)).expect("ours");
    let occupied = serve(&["--data", ".", "--create", "x"]).refused(1);
    assert!(occupied.contains("other things") && mode() == 0o755, "{occupied}");
    let left: Vec<_> = std::fs::read_dir(scratch.path()).expect("ours").filter_map(Result::ok).collect();
    assert_eq!(left.len(), 1, "only the configuration: {left:?}");
}

/// Story: the reader of an export went away, and the export said that all was done.
#[test]
fn an_export_whose_reader_goes_away_is_not_done() {
    let cluster = Plan { drives: 2, ..Plan::default() }.up();
    cluster.create("v0", "16M", "mirror:2");
    let mut export = cluster.command();
    export.args(["volume", "export", "v0"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut export = export.spawn().expect("it starts");
    drop(export.stdout.take());
    let ended = export.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.starts_with("error: not all of volume 'v0'") && said.trim().lines().count() == 1, "{said}");
}

#[test]
fn completions_are_for_shells_that_there_are() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = run(Command::new(tepal()).args(["completions", shell])).succeeded();
        assert!(script.contains("tepal"), "{shell}");
    }
    let long = long();
    for wrong in ["", "nosh", "--", "a\nb", &long] {
        run(Command::new(tepal()).args(["completions", wrong])).refused(2);
    }
}

fn attach(cluster: &Cluster, run_folder: &Path, arguments: &[&str]) -> Command {
    let mut command = cluster.command();
    command.args(arguments).arg("--run-folder").arg(run_folder);
    command
}

#[test]
fn what_can_not_be_attached_or_detached_is_named_and_nothing_is_left() {
    need_root!();
    let cluster = Plan { drives: 2, ..Plan::default() }.up();
    cluster.create("v0", "8M", "mirror:2");
    let long = long();
    let run_folder = cluster.folder().join("run");
    let cases: Vec<(i32, Vec<&str>, &str)> = vec![
        (2, vec!["attach"], "VOLUME"),
        (1, vec!["attach", "x"], "'x'"),
        (2, vec!["attach", "a\nb"], "not a name"),
        (2, vec!["attach", ""], "not a name"),
        (2, vec!["attach", &long], "not a name"),
        (2, vec!["attach", "v0", "--method", "magic"], "magic"),
        (2, vec!["attach", "v0", "--list"], "--list"),
        (2, vec!["detach"], "VOLUME"),
        (1, vec!["detach", ""], "''"),
        (1, vec!["detach", "v0"], "'v0'"),
        (1, vec!["detach", "/dev/null"], "/dev/null"),
        (1, vec!["detach", "../../etc"], "../../etc"),
        (1, vec!["detach", &long], "nothing is attached"),
    ];
    all_refused(&cases, |arguments| run_within(&mut attach(&cluster, &run_folder, arguments), LIMIT));
    let attached = run(&mut attach(&cluster, &run_folder, &["-o", "json", "attach", "--list"])).succeeded();
    assert_eq!(attached.trim(), "[]");
    let file = cluster.folder().join("file");
    std::fs::write(&file, "").expect("ours");
    for arguments in [&["attach", "v0"][..], &["attach", "--list"], &["detach", "v0"]] {
        let refused = run(&mut attach(&cluster, &file, arguments)).refused(1);
        assert!(refused.contains("file"), "{refused}");
    }
    let nowhere = cluster.folder().join("nowhere");
    run(&mut attach(&cluster, &nowhere, &["detach", "v0"])).refused(1);
    assert!(!nowhere.exists(), "a detach makes no folder");
}

#[test]
fn of_several_attaches_at_once_one_succeeds_and_the_others_say_that_it_is_attached() {
    if let Some(why) = crate::filesystems::obstacle() {
        skip!("{why}");
    }
    let cluster = Plan { drives: 2, ..Plan::default() }.up();
    for volume in ["v0", "v1"] {
        cluster.create(volume, "8M", "mirror:2");
    }
    let run_folder = cluster.folder().join("run");
    let attaching = ["v0", "v1", "v0", "v1", "v0"].map(|volume| {
        let mut command = attach(&cluster, &run_folder, &["attach", volume]);
        (volume, std::thread::spawn(move || run_within(&mut command, PATIENCE)))
    });
    let mut devices = Vec::new();
    for (volume, attached) in attaching {
        let ended = attached.join().expect("it ends");
        if ended.status.success() {
            devices.push((volume, ended.succeeded().trim().to_owned()));
        } else {
            let refused = ended.refused(1);
            assert!(refused.contains(volume) && refused.contains("already attached"), "{refused}");
        }
    }
    devices.sort();
    assert!(devices.len() == 2 && devices[0].0 == "v0" && devices[1].0 == "v1", "{devices:?}");
    assert_ne!(devices[0].1, devices[1].1);
    let detach = |(volume, _): &(&str, String)| {
        let mut command = attach(&cluster, &run_folder, &["detach", volume]);
        std::thread::spawn(move || run_within(&mut command, PATIENCE))
    };
    let detaching: Vec<_> = devices.iter().map(detach).collect();
    for detached in detaching {
        detached.join().expect("it ends").succeeded();
    }
}
