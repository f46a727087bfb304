//! What the cluster says while requests wait: that they do, for which drive, and what can be done.

use crate::cluster::Plan;
use crate::nbd::{Ledger, Writer};

struct Case {
    layout: &'static str,
    /// Whether what is on the drive that is away can be read meanwhile.
    readable: bool,
    /// What is said of the volume.
    said: &'static [&'static str],
}

const CASES: [Case; 2] = [
    Case {
        layout: "mirror:2;min_copies=2",
        readable: true,
        said: &["writes wait, reads go on", "min_copies=2", "only 1 copy is here", "tepal volume export v0"],
    },
    Case {
        layout: "stripe",
        readable: false,
        said: &["reads and writes", "wait until it's back", "says what that costs"],
    },
];

#[test]
fn a_volume_whose_requests_wait_says_so_names_the_drive_and_tells_what_to_do() {
    for Case { layout, readable, said } in CASES {
        let cluster = Plan { drives: 2, ..Plan::default() }.up();
        cluster.create("v0", "4M", layout);
        let mut ledger = Ledger::new(14, 1024);
        ledger.fill(&mut cluster.connect("v0")).expect("written");
        let drive = cluster.drive(0).to_owned();
        let id = cluster.drive_id(&drive);
        let back = format!("put it back at {}", drive.display());
        let online = format!("`tepal drive online {id}`");
        let aside = drive.with_extension("aside");
        for (becomes, todo) in [("missing", &back), ("offline", &online)] {
            match becomes {
                "missing" => std::fs::rename(&drive, &aside).expect("ours"),
                _ => drop(cluster.tepal(&["drive", "offline", &id]).succeeded()),
            }
            cluster.wait_for_drive(&drive, becomes);
            let volume = cluster.volume("v0");
            assert_eq!(volume["state"], "unavailable", "{layout}: {volume}");
            let status = cluster.ask(&["status"]);
            assert_eq!(status["health"], "unavailable", "{layout}: {status}");
            for reason in [volume["reason"].to_string(), status["reason"].to_string()] {
                let state = format!("{id} ({becomes} at {})", drive.display());
                for part in said.iter().copied().chain([state.as_str(), todo]) {
                    assert!(reason.contains(part), "{layout}, {becomes}: '{part}' is not said: {reason}");
                }
                assert!(!reason.contains("--force"), "no advice loses what could be kept: {reason}");
            }
            if readable {
                ledger.compare(&mut cluster.connect("v0"));
            }
            match becomes {
                "missing" => std::fs::rename(&aside, &drive).expect("ours"),
                _ => drop(cluster.tepal(&["drive", "online", &id]).succeeded()),
            }
            cluster.wait_for_drive(&drive, "up");
            cluster.wait_until_healthy("v0");
            assert_eq!(cluster.volume("v0")["reason"], serde_json::json!([]));
        }
        let writer = Writer::start(cluster.address(), "v0", ledger);
        writer.go_on_for(200);
        writer.finish().compare(&mut cluster.connect("v0"));
        cluster.scrub_finds_nothing("v0");
    }
}
