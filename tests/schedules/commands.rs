//! `tepal schedule`, and schedules in a file.

use super::{made, times, wait_until};
use crate::cluster::{Cluster, Plan};
use crate::nbd::{BLOCK, noise};
use serde_json::{Value, json};

fn names(cluster: &Cluster) -> Vec<String> {
    let listed = cluster.ask(&["snapshot", "ls", "v0"]);
    let named = listed.as_array().expect("a list").iter().filter_map(|snapshot| snapshot["name"].as_str());
    named.map(str::to_owned).collect()
}

#[test]
fn due_snapshots_appear_and_only_what_is_kept_stays() {
    let cluster = Plan { drives: 2, ..Plan::default() }.up();
    cluster.create("v0", "4M", "mirror:2");
    cluster.connect("v0").write(0, &noise(1, BLOCK)).expect("written");
    // By its name it could be one of the schedule's.
    cluster.tepal(&["snapshot", "create", "v0@s-2020-01-01T00-00Z"]).succeeded();
    let args = ["schedule", "create", "s", "--snapshot", "v0", "--every", "1s", "--keep", "last=3"];
    let made = cluster.ask(&args);
    assert_eq!((&made["work"], &made["every_s"], &made["keep"]["last"]), (&json!("snapshots"), &json!(1), &json!(3)));
    let ask = |arguments: &[&str]| cluster.ask(arguments);
    wait_until("a first snapshot", || !times(ask).is_empty());
    let first = *times(ask).first().expect("one");
    wait_until("it to be removed", || !times(ask).contains(&first));
    cluster.tepal(&["schedule", "pause", "s"]).succeeded();
    wait_until("the three newest to be left", || times(ask).len() == 3);
    let left = times(ask);
    // It rests: nothing comes, nothing goes.
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(times(ask), left);
    let all = names(&cluster);
    assert_eq!((all.len(), &*all[0]), (4, "s-2020-01-01T00-00Z"), "{all:?}");
    let newest = format!("v0@{}", all[3]);
    assert!(cluster.connect(&newest).read(0, BLOCK as u32).expect("read") == noise(1, BLOCK));
    let shown = cluster.ask(&["schedule", "show", "s"]);
    assert_eq!((&shown["snapshots"], &shown["next_unix_ms"]), (&json!(3), &Value::Null), "{shown}");
    let events = cluster.ask(&["events", "--who", "schedule s", "--limit", "1000"]);
    let said = events.to_string();
    assert!(said.contains("made: 4M") && said.contains("removed"), "{said}");
    cluster.tepal(&["schedule", "resume", "s"]).succeeded();
    wait_until("it to go on", || times(ask).last() > left.last());
    cluster.tepal(&["schedule", "rm", "s"]).succeeded();
    let left = names(&cluster);
    assert!(left.len() >= 4, "they stay: {left:?}");
    assert_eq!(times(ask).len(), 0);
    assert_eq!(cluster.ask(&["schedule", "ls"]), json!([]));
}

#[test]
fn a_schedule_follows_its_volume_under_another_name_and_ends_with_it() {
    let cluster = Plan { drives: 2, ..Plan::default() }.up();
    cluster.create("v0", "1M", "mirror:2");
    cluster.create("v1", "1M", "mirror:2");
    cluster.tepal(&["schedule", "create", "d", "--snapshot", "v0", "--every", "1d", "--at", "02:30"]).succeeded();
    cluster.tepal(&["schedule", "create", "all", "--pool", "default", "--every", "1w"]).succeeded();
    cluster.tepal(&["volume", "rename", "v0", "w"]).succeeded();
    let run = made(cluster.tepal(&["schedule", "run", "d"]));
    assert!(run.len() == 1 && run[0].starts_with("w@d-20"), "{run:?}");
    let run = made(cluster.tepal(&["schedule", "run", "all"]));
    assert!(run.len() == 2 && run[0].starts_with("w@all-") && run[1].starts_with("v1@all-"), "{run:?}");
    let shown = cluster.ask(&["schedule", "show", "d"]);
    assert_eq!(shown["volume"], "w");
    assert_eq!(shown["keep"], json!({ "last": 0, "hourly": 24, "daily": 7, "weekly": 4, "monthly": 12, "yearly": 0 }));
    assert_eq!(shown["next_unix_ms"].as_u64().expect("it's due") % 86_400_000, 9_000_000, "at 02:30 UTC");
    assert!(shown["last_run_unix_ms"].is_u64(), "{shown}");
    let set = cluster.ask(&["schedule", "set", "d", "--timezone", "-05:30", "--keep", "daily=2"]);
    assert_eq!(set["next_unix_ms"].as_u64().expect("it's due") % 86_400_000, 28_800_000, "at 08:00 UTC");
    assert_eq!((&set["at"], &set["keep"]["daily"], &set["keep"]["hourly"]), (&json!("02:30"), &json!(2), &json!(0)));
    let table = cluster.tepal(&["schedule", "ls"]).succeeded();
    assert!(table.contains("snapshots of volume w every 1d at 02:30 -05:30, keeping daily=2"), "{table}");
    cluster.tepal(&["volume", "rm", "w", "--snapshots"]).succeeded();
    let left = cluster.ask(&["schedule", "ls"]);
    assert_eq!((left.as_array().map(Vec::len), &left[0]["name"]), (Some(1), &json!("all")), "{left}");
    let events = cluster.ask(&["events", "--kind", "schedule", "--subject", "d"]).to_string();
    assert!(events.contains("removed with volume w"), "{events}");
}

#[test]
fn what_makes_no_sense_is_refused_by_name_and_changes_nothing() {
    let cluster = Plan { drives: 2, ..Plan::default() }.up();
    cluster.create("v0", "1M", "mirror:2");
    cluster.tepal(&["schedule", "create", "d", "--snapshot", "v0", "--every", "1d"]).succeeded();
    cluster.tepal(&["schedule", "create", "s", "--scrub"]).succeeded();
    let before = cluster.ask(&["schedule", "ls"]);
    let long = "a".repeat(101);
    let create = |more: &[&'static str]| [&["schedule", "create", "n"], more].concat();
    let cases: Vec<(i32, Vec<&str>, &str)> = vec![
        (2, vec!["schedule"], "missing"),
        (2, create(&[]), "--snapshot"),
        (2, create(&["--snapshot", "v0"]), "--every"),
        (2, create(&["--snapshot", "v0", "--pool", "default", "--every", "1h"]), "--pool"),
        (2, create(&["--snapshot", "v0", "--scrub", "--every", "1h"]), "--scrub"),
        (2, create(&["--snapshot", "v0", "--every", "1h", "--within", "1d"]), "--within"),
        (2, create(&["--scrub", "--every", "1h"]), "--every"),
        (2, create(&["--scrub", "--keep", "last=1"]), "--keep"),
        (2, create(&["--scrub", "--within", "9s"]), "from 10s to 3660d"),
        (2, create(&["--scrub", "--within", "3661d"]), "from 10s to 3660d"),
        (2, create(&["--snapshot", "v0", "--every", "0s"]), "from 1s to 366d"),
        (2, create(&["--snapshot", "v0", "--every", "367d"]), "from 1s to 366d"),
        (2, create(&["--snapshot", "v0", "--every", "500ms"]), "not a length of time"),
        (2, create(&["--snapshot", "v0", "--every", "-1h"]), "'-1'"),
        (2, create(&["--snapshot", "v0", "--every", "1h", "--at", "24:00"]), "not a time of the day"),
        (2, create(&["--snapshot", "v0", "--every", "1h", "--timezone", "Europe/Berlin"]), "not an offset from UTC"),
        (2, create(&["--snapshot", "v0", "--every", "1h", "--timezone", "+15:00"]), "not an offset from UTC"),
        (2, create(&["--snapshot", "v0", "--every", "1h", "--keep", "daily=0"]), "keep nothing"),
        (2, create(&["--snapshot", "v0", "--every", "1h", "--keep", "last=1001"]), "at most 1000"),
        (2, create(&["--snapshot", "v0", "--every", "1h", "--keep", "minutely=1"]), "doesn't say what is kept"),
        (2, vec!["schedule", "create", "../x", "--scrub"], "not a name"),
        (1, vec!["schedule", "create", &long, "--scrub"], "at most 100 characters"),
        (1, vec!["schedule", "create", "d", "--scrub"], "'d' exists already"),
        (1, create(&["--snapshot", "x", "--every", "1h"]), "no volume 'x'"),
        (1, create(&["--pool", "x", "--every", "1h"]), "no pool 'x'"),
        (1, create(&["--scrub", "--pool", "x"]), "no pool 'x'"),
        (1, vec!["schedule", "show", "x"], "no schedule 'x'"),
        (1, vec!["schedule", "rm", "x"], "no schedule 'x'"),
        (1, vec!["schedule", "run", "x"], "no schedule 'x'"),
        (1, vec!["schedule", "pause", "x"], "no schedule 'x'"),
        (1, vec!["schedule", "set", "x", "--every", "1h"], "no schedule 'x'"),
        (1, vec!["schedule", "set", "d"], "nothing is to be changed"),
        (1, vec!["schedule", "set", "d", "--within", "1d"], "'d' makes snapshots"),
        (1, vec!["schedule", "set", "s", "--keep", "last=1"], "'s' scrubs"),
        (2, vec!["schedule", "set", "s", "--keep", "last=x"], "doesn't say what is kept"),
    ];
    for (status, arguments, said) in cases {
        let line = cluster.tepal(&arguments).refused(status);
        assert!(line.len() < 1000 && line.contains(said), "{arguments:?}: {line}");
    }
    assert_eq!(cluster.ask(&["schedule", "ls"]), before);
}

#[test]
fn a_file_says_schedules_and_is_printed_back() {
    let cluster = Plan { drives: 2, ..Plan::default() }.up();
    let file = cluster.folder().join("all.toml");
    let path = file.to_str().expect("our own path");
    let write = |keep: &str| {
        let text = format!(
            "[[volume]]\nname = \"v0\"\nsize = \"1M\"\n\n[[schedule]]\nname = \"d\"\nsnapshot = \"v0\"\nevery = \"1d\"\nat = \"02:30\"\n\
             keep = \"{keep}\"\n\n[[schedule]]\nname = \"s\"\nscrub = true\nwithin = \"2w\"\n"
        );
        std::fs::write(&file, text).expect("space");
    };
    write("daily=7");
    let dry = cluster.tepal(&["apply", path, "--dry-run"]).succeeded();
    assert!(dry.contains("+ schedule d: snapshots of volume v0 every 1d at 02:30, keeping daily=7"), "{dry}");
    cluster.tepal(&["apply", path]).succeeded();
    assert_eq!(cluster.ask(&["apply", path])["steps"], json!([]), "it is so already");
    write("daily=9");
    let steps = cluster.ask(&["apply", path])["steps"].to_string();
    assert!(steps.contains("~ schedule d") && !steps.contains("schedule s"), "{steps}");
    let printed = cluster.tepal(&["show", "--as", "toml"]).succeeded();
    std::fs::write(&file, &printed).expect("space");
    assert_eq!(cluster.ask(&["apply", path])["steps"], json!([]), "{printed}");
    std::fs::write(&file, "[[schedule]]\nname = \"d\"\nscrub = true\n").expect("space");
    let refused = cluster.tepal(&["apply", path]).refused(1);
    assert!(refused.contains("line 1") && refused.contains("remove it first"), "{refused}");
    assert_eq!(cluster.ask(&["schedule", "show", "s"])["within_s"], 14 * 86_400);
}
