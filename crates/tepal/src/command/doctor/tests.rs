//! Each finding by itself: what makes it, how bad it is, and which advice comes with it.

use super::super::events::Event;
use super::findings::{Finding, Severity, findings};
use super::seen::Seen;
use super::{Report, page};
use serde_json::{Value, json};
use tepal_server::api::types::{DriveInfo, Health, ServerState, VolumeInfo, VolumeState};

const DAY_MS: u64 = 24 * 3600 * 1000;
const NOW: u64 = 100 * DAY_MS;
const GIB: u64 = 1 << 30;

fn server(number: u64, state: &str) -> Value {
    let is_up = state != "down";
    json!({
        "id": format!("s{number}"), "state": state, "api": if is_up { format!("127.0.0.1:{number}") } else { String::new() },
        "nbd": [], "drives": [{ "id": id(number), "path": "/d", "state": if is_up { "up" } else { "missing" } }],
        "pid": 7, "version": if is_up { "0.1.0" } else { "" }, "uptime_ms": 50 * DAY_MS, "data_threads": 1,
    })
}

fn id(number: u64) -> String {
    format!("{number:016x}")
}

fn drive(number: u64) -> Value {
    json!({
        "id": id(number), "server": format!("s{number}"), "pool": "default", "path": "/d", "state": "up", "reason": "",
        "use": "active", "copies": 8, "moving": 0, "capacity": 100 * GIB, "used": 10 * GIB,
        "open": {
            "backend": "plain", "backend_reason": "", "emulated": null, "log_length": 0, "log_used": 0, "map_memory": 0,
            "read_errors": 0, "block_errors": 0,
        },
    })
}

/// A cluster of three servers with a drive each, in which nothing is wrong.
fn healthy() -> Seen {
    let of = |value: Value| value;
    let servers: Vec<Value> = (1..=3).map(|number| server(number, "up")).collect();
    let status = json!({
        "health": "ok", "reason": [], "cluster": "home", "cluster_id": "0".repeat(32), "view": 9, "servers": servers,
        "volumes": 1, "capacity": 300 * GIB, "used": 30 * GIB, "version": "0.1.0",
    });
    let cluster = json!({
        "id": "0".repeat(32), "name": "home", "created_unix_ms": 0, "view": 9, "leader": "s1", "voters": ["s1", "s2", "s3"],
        "servers": 3, "drives": 3, "pools": 1, "volumes": 1, "capacity": 300 * GIB, "used": 30 * GIB, "lease_ms": 1500,
    });
    let volume = json!({
        "name": "v0", "id": 1, "size": GIB, "layout": "mirror:2", "domain": "server", "losses_left": 1, "state": "healthy",
        "reason": [], "allocated": 2 * GIB, "epoch": 1, "revision": 1, "pool": "default", "drives": [id(1), id(2)],
        "created_unix_ms": 90 * DAY_MS, "snapshots": [], "migration": null,
        "recovery": { "busy_regions": 0, "stale_regions": 0, "copied_bytes": 0 },
    });
    let pool = json!({
        "name": "default", "layout": null, "drives": [id(1), id(2), id(3)], "volumes": 1, "capacity": 300 * GIB, "used": 30 * GIB,
    });
    Seen {
        now_ms: NOW,
        status: read(of(status)),
        others: Vec::new(),
        silent: Vec::new(),
        cluster: Some(read(cluster)),
        drives: (1..=3).map(|number| read(drive(number))).collect(),
        pools: vec![read(pool)],
        volumes: vec![read(volume)],
        scrubs: Vec::new(),
        schedules: Vec::new(),
        replications: Vec::new(),
        usage: None,
        events: Vec::new(),
        not_told: Vec::new(),
        dev: None,
    }
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("as the API says it")
}

/// The only finding of a healthy cluster in which this was changed.
fn only(change: impl FnOnce(&mut Seen)) -> Finding {
    let mut seen = healthy();
    change(&mut seen);
    let mut all = findings(&seen);
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

fn volume(seen: &mut Seen) -> &mut VolumeInfo {
    &mut seen.volumes[0]
}

fn of_drive(seen: &mut Seen) -> &mut DriveInfo {
    &mut seen.drives[1]
}

/// What it advises to run, and says of it.
fn advice(finding: &Finding) -> String {
    finding.steps.iter().map(|step| format!("{}: {}\n", step.text, step.run.as_deref().unwrap_or("-"))).collect()
}

fn check(finding: &Finding, severity: Severity, what: &[&str], advised: &[&str]) {
    assert_eq!(finding.severity, severity, "{finding:#?}");
    what.iter().for_each(|part| assert!(finding.what.contains(part), "{part}: {finding:#?}"));
    let advice = advice(finding);
    let mut rest = advice.as_str();
    for part in advised {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part} in this order: {advice}"));
        rest = &rest[at + part.len()..];
    }
}

#[test]
fn a_healthy_cluster_has_no_findings_and_says_what_was_looked_at() {
    let seen = healthy();
    assert_eq!(findings(&seen), []);
    let report = Report {
        cluster: "home".to_owned(),
        health: Health::Ok,
        healthy: true,
        findings: Vec::new(),
        looked_at: seen.looked_at(),
        not_looked_at: vec!["drives: no".to_owned()],
    };
    let text = page(&report);
    assert!(
        text.starts_with("cluster home: nothing is wrong\n\nlooked at: 3 servers, 3 drives, 1 pool, 1 volume"),
        "{text}"
    );
    assert!(text.ends_with("not looked at: drives: no\n"), "{text}");
}

#[test]
fn a_server_that_is_down_is_told_with_when_and_what_lacks_copies() {
    let down = |seen: &mut Seen| {
        seen.status.servers[1] = read(server(2, "down"));
        seen.drives[1].state = tepal_server::api::types::DriveState::Missing;
        seen.drives[1].open = None;
        seen.status.reason = vec!["server s2 is down".to_owned()];
        let event = |unix_ms, subject: &str, text: &str| Event {
            seq: 1,
            unix_ms,
            kind: "server".to_owned(),
            subject: subject.to_owned(),
            text: text.to_owned(),
            who: None,
        };
        seen.events = vec![event(0, "s2", "up -> down: old"), event(NOW - 90_000, "s2", "up -> down: silent")];
    };
    let finding = only(down);
    check(
        &finding,
        Severity::Warning,
        &["server s2 is down since 1970-04-10 23:58:30 (90 s ago)", "1 volume lacks a copy by it: v0"],
        &["tepal serve"],
    );
    assert!(finding.why.contains("no other may go"), "{}", finding.why);
    let of_dev = only(|seen| {
        down(seen);
        seen.dev = Some("/x".into());
    });
    check(&of_dev, Severity::Warning, &[], &["tepal --dir /x dev start s2"]);
}

#[test]
fn a_server_that_is_up_and_silent_is_asked_again_first() {
    let finding = only(|seen| seen.status.servers[2].version.clear());
    check(
        &finding,
        Severity::Warning,
        &["server s3 counts as up and doesn't answer"],
        &["tepal doctor", "tepal serve"],
    );
}

#[test]
fn an_address_without_server_is_told_unless_a_server_is_down() {
    let silent = |seen: &mut Seen| seen.silent = vec![("h:1".to_owned(), "refused".to_owned())];
    check(&only(silent), Severity::Warning, &["no server answers at h:1: refused"], &["tepal server ls"]);
    let finding = only(|seen| {
        silent(seen);
        seen.status.servers[2].version.clear();
    });
    assert_eq!(finding.subject, "server s3");
}

#[test]
fn unlike_versions_name_the_servers_that_are_behind() {
    let finding = only(|seen| seen.status.servers[0].version = "0.2.0".to_owned());
    check(&finding, Severity::Warning, &["0.1.0, 0.2.0", "s2, s3 not 0.2.0"], &["one at a time", "tepal doctor"]);
}

#[test]
fn drives_that_are_away_are_to_be_brought_back() {
    use tepal_server::api::types::DriveState::{Behind, Failed, Missing, Offline};
    let of = |state, copies| {
        only(move |seen| {
            let drive = of_drive(seen);
            (drive.state, drive.open, drive.copies, drive.reason) = (state, None, copies, "a test".to_owned());
        })
    };
    let missing = of(Missing, 8);
    check(
        &missing,
        Severity::Warning,
        &["at /d on server s2 is missing: a test"],
        &["put the device back", "tepal drive scan", "tepal drive ls"],
    );
    assert!(missing.why.contains("v0"), "{}", missing.why);
    check(&of(Offline, 8), Severity::Warning, &["is offline"], &["tepal drive online 0000000000000002"]);
    check(
        &of(Failed, 8),
        Severity::Warning,
        &["has failed"],
        &["tepal drive ls", "0 copies: tepal drive rm 0000000000000002"],
    );
    check(&of(Failed, 0), Severity::Remark, &["has failed"], &["tepal drive rm 0000000000000002"]);
    check(&of(Behind, 8), Severity::Remark, &["catching up"], &["wait"]);
}

#[test]
fn what_has_no_second_copy_on_a_failed_drive_is_saved_first() {
    let finding = only(|seen| {
        volume(seen).losses_left = 0;
        let drive = of_drive(seen);
        (drive.state, drive.open) = (tepal_server::api::types::DriveState::Failed, None);
    });
    check(
        &finding,
        Severity::Warning,
        &[],
        &["tepal volume export v0 --keep-going > v0.img", "tepal drive ls", "tepal drive rm"],
    );
}

#[test]
fn full_drives_get_room_before_anything_is_removed() {
    let of = |used, reason: &str| {
        only(|seen| {
            seen.status.reason = [reason].iter().filter(|reason| !reason.is_empty()).map(ToString::to_string).collect();
            of_drive(seen).used = used;
            // Only this drive's room is looked at here.
            seen.volumes.clear();
        })
    };
    let advised = ["tepal drive add s2 /dev/NEW --pool default", "tepal snapshot ls"];
    check(&of(86 * GIB, ""), Severity::Remark, &["is filling: 14G of 100G are left"], &advised);
    let said = "drive 0000000000000002 of pool 'default' is nearly full, 4G of 100G are left: remove or trim something before writes fail";
    check(&of(96 * GIB, said), Severity::Warning, &["is nearly full"], &advised);
    let said = "drive 0000000000000002 of pool 'default' is full, 0 of 100G are left: writes that need new space fail";
    check(&of(100 * GIB, said), Severity::Critical, &["is full"], &advised);
}

#[test]
fn a_drive_that_rots_is_scrubbed_and_then_emptied() {
    let finding = only(|seen| {
        if let Some(open) = &mut of_drive(seen).open {
            open.block_errors = 3;
        }
    });
    check(
        &finding,
        Severity::Warning,
        &["3 blocks that were damaged"],
        &["tepal volume scrub v0", "tepal drive drain 0000000000000002"],
    );
}

#[test]
fn a_drive_that_can_not_be_emptied_gets_room() {
    let finding = only(|seen| of_drive(seen).stuck = Some("no drive has room".to_owned()));
    check(&finding, Severity::Warning, &["isn't emptied: no drive has room"], &["tepal drive add", "--cancel"]);
}

#[test]
fn volumes_not_served_are_critical_and_counted() {
    let finding = only(|seen| {
        let volume = volume(seen);
        (volume.state, volume.reason, volume.clients) = (VolumeState::Unavailable, vec!["reads wait".to_owned()], 2);
        let second = VolumeInfo { name: "v1".to_owned(), id: 2, ..volume.clone() };
        seen.volumes.push(second);
        seen.status.reason = vec!["volume 'v0': reads wait".to_owned()];
    });
    check(
        &finding,
        Severity::Critical,
        &["2 volumes can't all be read or written: v0, v1", "reads wait"],
        &["tepal status"],
    );
    assert!(finding.why.contains("4 clients"), "{}", finding.why);
}

#[test]
fn what_is_lost_is_saved_before_anything_is_given_up() {
    let finding = only(|seen| {
        let volume = volume(seen);
        (volume.state, volume.reason) =
            (VolumeState::Unavailable, vec!["some of it is lost, and requests for that fail".to_owned()]);
    });
    check(
        &finding,
        Severity::Critical,
        &["volume v0 has lost something"],
        &["tepal drive ls", "tepal volume export v0 --keep-going", "tepal snapshot ls v0"],
    );
}

#[test]
fn volumes_with_fewer_copies_say_whether_one_more_may_go() {
    let of = |losses_left| {
        only(move |seen| {
            let volume = volume(seen);
            (volume.state, volume.losses_left) = (VolumeState::Degraded, losses_left);
        })
    };
    check(&of(1), Severity::Warning, &["1 volume has fewer copies than asked for: v0"], &["tepal status"]);
    assert!(of(1).why.contains("each outlives one more loss"));
    assert!(of(0).why.contains("one more loss may be the end of data of v0"));
}

#[test]
fn damaged_blocks_are_looked_for_on_drives_that_are_away() {
    let finding = only(|seen| {
        let volume = volume(seen);
        (volume.state, volume.damaged_blocks) = (VolumeState::Degraded, 1);
        volume.uncounted_drives = volume.drives.clone();
    });
    check(
        &finding,
        Severity::Critical,
        &["1 block that no copy here has right"],
        &["tepal drive ls", "tepal volume scrub v0", "tepal volume export v0"],
    );
}

#[test]
fn what_recovers_is_only_remarked() {
    let finding = only(|seen| {
        let volume = volume(seen);
        (volume.state, volume.recovery.stale_regions) = (VolumeState::Recovering, 5);
    });
    check(&finding, Severity::Remark, &["1 volume is being brought up to date: v0; 5 MiB are left"], &["wait"]);
}

#[test]
fn a_migration_that_rests_or_is_stuck_can_go_on_or_back() {
    let of = |state: &str, lacks_room: bool| {
        let way = json!({
            "to": "mirror:3", "done_bytes": GIB, "total_bytes": 2 * GIB, "state": state, "reason": ["full"], "lacks_room": lacks_room,
        });
        only(|seen| volume(seen).migration = Some(read(way)))
    };
    check(
        &of("paused", false),
        Severity::Warning,
        &["is paused, 1G of 2G done"],
        &["tepal volume resume v0", "tepal volume cancel v0"],
    );
    check(
        &of("blocked", true),
        Severity::Warning,
        &["is stuck", "full"],
        &["tepal drive add", "tepal volume cancel v0"],
    );
    check(&of("blocked", false), Severity::Warning, &["is stuck"], &["tepal status"]);
}

#[test]
fn half_an_import_is_gone_on_with() {
    let part = json!({ "import": 7, "done": GIB });
    let finding = only(|seen| volume(seen).incomplete = Some(read(part)));
    check(&finding, Severity::Warning, &["has the first 1G of an import"], &["tepal volume import v0 --resume"]);
}

#[test]
fn a_replica_that_is_behind_is_told_with_its_error() {
    let replica = |as_of: u64| {
        let of = format!("{}.3", "0".repeat(32));
        json!({ "of": of, "called": "far/v0", "as_of_unix_ms": as_of, "base": 1, "receives": null })
    };
    let finding = only(|seen| volume(seen).replica = Some(read(replica(NOW - 3 * DAY_MS))));
    check(
        &finding,
        Severity::Warning,
        &["volume v0, a replica of far/v0, is 3 days behind"],
        &["tepal replicate ls", "tepal replicate VOLUME TO"],
    );
    let sent = json!({
        "volume_id": 1, "role": "source", "other": "far/v0", "as_of_unix_ms": NOW - 1000, "lag_bytes": null, "every_ms": 60_000,
        "round": null, "bytes_per_second": 0, "error": "no server answers",
    });
    let finding = only(|seen| seen.replications = vec![read(sent)]);
    check(
        &finding,
        Severity::Warning,
        &["the replica of volume v0 at far/v0", "no server answers"],
        &["tepal replicate ls"],
    );
    let mut seen = healthy();
    volume(&mut seen).replica = Some(read(replica(NOW - 1000)));
    assert_eq!(findings(&seen), []);
}

#[test]
fn volumes_not_scrubbed_for_long_are_told() {
    let scrub = |state: &str, done: Option<u64>| {
        json!({
            "volume": "v0", "volume_id": 1, "state": state, "checked_bytes": 0, "total_bytes": 0, "repaired_blocks": 0,
            "checked_drives": [], "unchecked_drives": [], "damaged": [], "error": null, "done_unix_ms": done,
        })
    };
    let of = |scrub: Value| {
        let mut seen = healthy();
        volume(&mut seen).created_unix_ms = 0;
        seen.scrubs = vec![read(scrub)];
        findings(&seen)
    };
    for (scrub, is_told) in [
        (scrub("never", None), true),
        (scrub("done", Some(NOW - 41 * DAY_MS)), true),
        (scrub("done", Some(NOW - 39 * DAY_MS)), false),
        (scrub("running", None), false),
    ] {
        assert_eq!(of(scrub.clone()).len(), usize::from(is_told), "{scrub}");
    }
    check(
        &of(scrub("never", None))[0],
        Severity::Warning,
        &["1 volume was not verified for 40 days: v0"],
        &["tepal volume scrub v0"],
    );
}

#[test]
fn a_scrub_on_record_counts_after_a_restart() {
    let mut seen = healthy();
    volume(&mut seen).created_unix_ms = 0;
    let recorded = |days: u64| {
        json!({
            "volume": "v0", "volume_id": 1, "state": "never", "checked_bytes": 0, "total_bytes": 0, "repaired_blocks": 0,
            "checked_drives": [], "unchecked_drives": [], "damaged": [], "error": null, "recorded_unix_ms": NOW - days * DAY_MS,
        })
    };
    for (days, told) in [(39, 0), (41, 1)] {
        seen.scrubs = vec![read(recorded(days))];
        assert_eq!(findings(&seen).len(), told, "{days}");
    }
}

#[test]
fn schedules_that_go_wrong_or_miss_times_are_told() {
    let of = |facts: Value| {
        let mut schedule = json!({
            "name": "daily", "work": "snapshots", "volume": "v0", "every_s": 86_400, "paused": false, "created_unix_ms": 0,
            "next_unix_ms": NOW, "last_run_unix_ms": null, "missed": 0, "last_missed_unix_ms": null, "error": null, "snapshots": 3,
            "held": [], "oldest": null,
        });
        let (Some(all), Some(facts)) = (schedule.as_object_mut(), facts.as_object()) else { panic!("objects") };
        all.extend(facts.clone());
        let mut seen = healthy();
        seen.schedules = vec![read(schedule)];
        findings(&seen)
    };
    assert_eq!(of(json!({})), []);
    assert_eq!(of(json!({ "missed": 2, "last_missed_unix_ms": NOW - 2 * DAY_MS })), []);
    let held = json!({ "name": "v0@daily-x", "reason": "it's in use, a client is connected" });
    let oldest = |days: u64| json!({ "volume": "v0", "since_unix_ms": NOW - days * DAY_MS });
    let scrubs = |days| json!({ "work": "scrubs", "within_s": 30 * 86_400, "oldest": oldest(days), "paused": true });
    assert_eq!(of(scrubs(30)), []);
    for (facts, severity, said, advised) in [
        (json!({ "error": "it's full" }), Severity::Warning, "it's full", "tepal schedule run daily"),
        (
            json!({ "missed": 2, "last_missed_unix_ms": NOW - 9 }),
            Severity::Remark,
            "has missed 2 times",
            "tepal events",
        ),
        (json!({ "held": [held] }), Severity::Remark, "can't remove 1 snapshot: v0@daily-x", "a client is connected"),
        (scrubs(31), Severity::Warning, "volume v0 wasn't scrubbed for 31 days", "tepal schedule resume daily"),
    ] {
        let all = of(facts);
        assert_eq!(all.len(), 1, "{all:?}");
        check(&all[0], severity, &[said], &[advised]);
    }
}

#[test]
fn reasons_of_the_status_get_their_advice() {
    for (reason, severity, advised) in [
        (
            "server s2 may not serve volumes over several servers, their clients on it wait: it has no lease",
            Severity::Critical,
            "tepal cluster show",
        ),
        ("the cluster's state can't be written: the disk is full: free some space there", Severity::Critical, "df -h"),
        (
            "server s1 can't reach server s2: the network between them is cut, and requests that need both wait",
            Severity::Warning,
            "tepal cluster show",
        ),
        (
            "server s1: other machines reach it without encryption (--insecure): any NBD client",
            Severity::Remark,
            "tepal identity create",
        ),
        ("server s1: its certificate can't be made anew: nobody signs", Severity::Warning, "tepal cluster show"),
        ("/dev/sdb is not used: of another cluster", Severity::Warning, "tepal drive scan"),
        ("drive 0000000000000002 may have lost data: it was cut short", Severity::Warning, "wait for the scrub"),
        ("snapshot 'v0@a': 1 block is damaged", Severity::Critical, "tepal volume export"),
        (
            "volume 'v0' has no second copy: what is on a drive is lost with it",
            Severity::Remark,
            "tepal volume relayout",
        ),
        ("something new that no rule knows", Severity::Warning, "tepal status"),
    ] {
        let finding = only(|seen| seen.status.reason = vec![reason.to_owned()]);
        check(&finding, severity, &[reason], &[advised]);
    }
}

#[test]
fn a_server_that_is_cut_off_is_told_by_itself() {
    let finding = only(|seen| {
        let mut other = seen.status.clone();
        other.reason = vec![
            "server s3 may not serve volumes over several servers, their clients on it wait: it has no lease"
                .to_owned(),
            "server s1 doesn't answer".to_owned(),
        ];
        seen.others = vec![other];
    });
    check(&finding, Severity::Critical, &["server s3 may not serve"], &["tepal cluster show"]);
}

#[test]
fn a_cluster_without_leader_is_critical() {
    let finding = only(|seen| {
        if let Some(cluster) = &mut seen.cluster {
            cluster.leader = None;
        }
    });
    check(&finding, Severity::Critical, &["no server leads: of s1, s2, s3"], &["--peers", "tepal cluster show"]);
}

#[test]
fn a_pool_without_room_for_the_largest_loss_is_told() {
    let finding = only(|seen| seen.drives.iter_mut().for_each(|drive| drive.used = 70 * GIB));
    let what = ["pool default has too little room", "has 70G, and 60G are free elsewhere"];
    check(&finding, Severity::Warning, &what, &["add 10G or more", "tepal drive add SERVER"]);
}

#[test]
fn drives_full_soon_are_told_if_enough_is_known() {
    let usage = |full: u64, noted: u64| json!({ "capacity": 300 * GIB, "used": 30 * GIB, "samples": [], "growth_per_day": 1, "full_in_seconds": full, "noted_seconds": noted });
    let finding = only(|seen| seen.usage = Some(read(usage(7 * 86_400, 86_400))));
    check(&finding, Severity::Warning, &["will be full in 7 days"], &["tepal volume ls", "tepal drive add"]);
    for (full, noted) in [(15 * 86_400, 7 * 86_400), (7 * 86_400, 3600)] {
        let mut seen = healthy();
        seen.usage = Some(read(usage(full, noted)));
        assert_eq!(findings(&seen), [], "{full} {noted}");
    }
}

#[test]
fn the_worst_comes_first_and_nothing_given_up_is_advised() {
    let mut seen = healthy();
    seen.status.servers[2].state = ServerState::Down;
    seen.status.reason = vec![
        "volume 'v0' has no second copy: x".to_owned(),
        "server s2 may not serve volumes over several servers, their clients on it wait".to_owned(),
    ];
    let volume = volume(&mut seen);
    (volume.state, volume.reason) = (VolumeState::Unavailable, vec!["some of it is lost".to_owned()]);
    let all = findings(&seen);
    assert!(all.len() >= 4 && all.is_sorted_by_key(|finding| finding.severity), "{all:#?}");
    for part in ["--force", "wipe", "accept-loss", "volume rm"] {
        assert!(all.iter().all(|finding| !advice(finding).contains(part)), "{part}: {all:#?}");
    }
}
