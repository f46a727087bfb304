use super::*;
use crate::apply::vinum;

const DRIVE: u64 = 1 << 30;

fn drive(id: u64, name: &str) -> DriveInfo {
    DriveInfo {
        id: DriveId(id),
        name: Some(name.to_owned()),
        server: ServerId(1),
        pool: "default".to_owned(),
        path: format!("/dev/{name}"),
        state: DriveState::Up,
        reason: String::new(),
        purpose: DriveUse::Active,
        copies: 0,
        moving: 0,
        stuck: None,
        capacity: DRIVE,
        used: 0,
        reclaiming: 0,
        open: None,
    }
}

/// Drives a to h, and these volumes as a plan made them.
fn now(plans: &[&Plan]) -> Now {
    let drives = ('a'..='h').zip(10..).map(|(name, id)| drive(id, &name.to_string())).collect();
    let steps = plans.iter().flat_map(|plan| &plan.steps);
    let volume = |step: &Step| match step {
        Step::CreateVolume { name, size, layout, .. } => Some(serde_json::json!({
            "name": name, "id": 1, "size": size, "layout": layout, "pool": "default", "state": "healthy", "reason": [],
            "allocated": 0, "epoch": 1, "snapshots": [], "revision": 1, "created_unix_ms": 0, "drives": [], "migration": null,
            "recovery": { "busy_regions": 0, "stale_regions": 0, "copied_bytes": 0 },
        })),
        _ => None,
    };
    let volumes = steps.filter_map(volume).map(|said| serde_json::from_value(said).expect("a volume")).collect();
    Now {
        drives,
        pools: Vec::new(),
        volumes,
        schedules: Vec::new(),
        servers: vec![ServerId(1)],
        server: Some(ServerId(1)),
    }
}

fn plan(text: &str, now: &Now) -> Result<Plan, Wrong> {
    Plan::of(&vinum::parse(text).expect(text), now)
}

fn told(plan: &Plan) -> Vec<String> {
    plan.steps.iter().map(ToString::to_string).collect()
}

#[test]
fn subdisks_are_cut_to_whole_stripes_as_many_on_each() {
    let plan = plan("volume v\nplex org striped 512k\nsd length 102480k drive a\nsd length 100m drive b\n", &now(&[]))
        .unwrap();
    assert_eq!(told(&plan), ["+ volume v: 200M, striped 512K (a:100M, b:100M)"]);
    assert!(plan.notes[0].text.contains("100M of 102480K are used"), "{:?}", plan.notes);
}

#[test]
fn unsaid_lengths_take_the_largest_piece_that_is_left() {
    let first = plan("volume v\nplex org concat\nsd length 300m drive a driveoffset 100m\n", &now(&[])).unwrap();
    let then =
        plan("volume w\nplex org concat\nsd drive a\nsd drive a\nsd length 0 drive b\n", &now(&[&first])).unwrap();
    assert_eq!(told(&then), ["+ volume w: 1.7G, concat (a:624M, a:100M, b:1G)"]);
    let refused = plan("volume w\nplex org concat\nsd length 700m drive a\n", &now(&[&first])).unwrap_err();
    assert!(refused.text.contains("no free piece of 700M: its largest is 624M") && refused.at.line == 3, "{refused}");
}

#[test]
fn a_file_applied_twice_changes_nothing() {
    for text in [
        "volume v\nplex org concat\nsd length 512m drive a\nplex org concat\nsd length 512m drive b\n",
        "volume v\nplex name left org striped 279k\nsd drive a\nsd drive b\n plex org concat\nsd name x drive c\n",
        "volume v\nplex org raid5 512k\nsd length 128m drive a\nsd length 128m drive b\nsd length 128m drive c\n",
    ] {
        let first = plan(text, &now(&[])).unwrap();
        let again = plan(text, &now(&[&first])).unwrap();
        assert_eq!(again.steps, [], "{text}");
    }
}

#[test]
fn a_plex_more_leaves_the_others_where_they_are() {
    let one = "volume v\nplex org concat\nsd length 512m drive a\n";
    let first = plan(one, &now(&[])).unwrap();
    let more =
        plan(&format!("{one}plex org striped 64k\nsd length 256m drive b\nsd length 256m drive c\n"), &now(&[&first]))
            .unwrap();
    let [Step::Relayout { layout, .. }] = &more.steps[..] else { panic!("{:?}", more.steps) };
    assert!(layout.starts_with("plexes:concat(000000000000000a:0+512M)|striped/64K("), "{layout}");
}

#[test]
fn a_longer_volume_goes_to_more_room_first() {
    let first = plan("volume v\nplex org concat\nsd length 512m drive a\n", &now(&[])).unwrap();
    let longer = "volume v\nplex org concat\nsd length 512m drive a\nsd length 512m drive b\n";
    let told = told(&plan(longer, &now(&[&first])).unwrap());
    assert_eq!(told[1], "~ volume v: 1G instead of 512M", "{told:?}");
    let second = plan(longer, &now(&[])).unwrap();
    let refused = plan("volume v\nplex org concat\nsd length 512m drive a\n", &now(&[&second])).unwrap_err();
    assert!(refused.text.contains("--shrink"), "{refused}");
}

#[test]
fn what_cannot_be_is_refused_with_its_place() {
    let base = plan("volume v\nplex org concat\nsd length 512m drive a\n", &now(&[])).unwrap();
    for (text, line, said) in [
        ("volume w\nplex org concat\nsd length 1m drive z\n", 3, "there is no drive z"),
        ("drive a device /dev/b\n", 1, "drive a is /dev/a"),
        ("drive z device /dev/b\n", 1, "is drive b's already"),
        ("volume w\nplex org concat\nsd length 1m drive a driveoffset 1m\n", 3, "aren't free on drive a"),
        ("volume w\nplex org concat\nsd length 2g drive b\n", 3, "no free piece"),
        ("volume w\nplex org concat\nsd length 2k drive b\n", 3, "too short"),
        (
            "volume w\nplex org striped 1m\nsd length 2m drive b plexoffset 0\nsd length 2m drive c plexoffset 2m\n",
            4,
            "a stripe after",
        ),
        ("volume w\nplex org raid5 1m\nsd length 2m drive b\nsd length 2m drive c\n", 1, "3 to 17"),
        ("volume w\nplex org concat\nsd length 1m drive b plexoffset 1m\n", 1, "no plex has byte 0"),
    ] {
        let refused = plan(text, &now(&[&base])).expect_err(text);
        assert!(refused.at.line == line && refused.text.contains(said), "{text}: {refused}");
    }
}

#[test]
fn a_new_drive_is_added_named_and_used() {
    let text = "drive z device /dev/z hotspare\ndrive y device /dev/y\nvolume v\nplex org concat\nsd drive y\n";
    let plan = plan(text, &now(&[])).unwrap();
    assert_eq!(told(&plan)[..2], ["+ drive z: /dev/z of s1, a spare", "+ drive y: /dev/y of s1"]);
}

fn layout(plan: &Plan) -> &str {
    match &plan.steps[..] {
        [Step::CreateVolume { layout: Some(layout), .. } | Step::Relayout { layout, .. }, ..] => layout,
        other => panic!("{other:?}"),
    }
}

/// Story: the first plex was taken out of the printed file. Its mirror was matched with it by number, and its own place wasn't free.
#[test]
fn the_first_plex_goes_and_the_other_stays_where_it_is() {
    let both =
        "volume v\nplex org concat\nsd length 512m drive a\nplex org concat\nsd length 512m drive b driveoffset 64m\n";
    let first = plan(both, &now(&[])).unwrap();
    for line in ["sd length 512m drive b", "sd length 512m drive b driveoffset 64m", "sd drive b"] {
        let one = plan(&format!("volume v\nplex org concat\n{line}\n"), &now(&[&first])).unwrap();
        assert_eq!(layout(&one), "plexes:concat(000000000000000b:64M+512M)", "{line}");
    }
}

#[test]
fn a_subdisk_becomes_longer_where_it_is() {
    let first = plan("volume v\nplex org concat\nsd length 600m drive a\n", &now(&[])).unwrap();
    let longer = plan("volume v\nplex org concat\nsd length 800m drive a\n", &now(&[&first])).unwrap();
    assert_eq!(layout(&longer), "plexes:concat(000000000000000a:0+800M)");
}

/// Story: a clone has its origin's layout, so its subdisks were taken twice, and the unchanged file was refused.
#[test]
fn a_clone_is_no_obstacle() {
    let text = "volume v\nplex org concat\nsd length 512m drive a\n";
    let first = plan(text, &now(&[])).unwrap();
    let mut now = now(&[&first]);
    let clone = VolumeInfo { name: "c".to_owned(), ..now.volumes[0].clone() };
    now.volumes.push(clone);
    assert_eq!(plan(text, &now).unwrap().steps, []);
}

#[test]
fn what_a_volume_leaves_is_not_given_to_a_new_one() {
    let first = plan("volume v\nplex org concat\nsd length 900m drive a\n", &now(&[])).unwrap();
    let both = "volume v\nplex org concat\nsd length 900m drive b\nvolume w\nplex org concat\nsd length 900m drive a\n";
    let refused = plan(both, &now(&[&first])).unwrap_err();
    assert!(refused.at.line == 6 && refused.text.contains("no free piece of 900M"), "{refused}");
}

#[test]
fn a_volume_shorter_than_its_plexes_grows() {
    let text = "volume v\nplex org concat\nsd length 512m drive a\n";
    let first = plan(text, &now(&[])).unwrap();
    let mut now = now(&[&first]);
    now.volumes[0].size = 300 << 20;
    let grow = Step::Grow { name: "v".to_owned(), from: 300 << 20, to: 512 << 20 };
    assert_eq!(plan(text, &now).unwrap().steps, [grow]);
}

/// Story: `apply` was killed while a volume's only subdisk grew in place. The next run took the bytes that the volume was leaving for
/// somebody else's, wanted other ones, and was refused as the volume was on its way.
#[test]
fn an_interrupted_growth_in_place_goes_on() {
    let of = |length: &str| format!("volume v\nplex org concat\nsd length {length} drive a\n");
    let (short, long) = (plan(&of("40m"), &now(&[])).unwrap(), plan(&of("80m"), &now(&[])).unwrap());
    let (mut now, longer) = (now(&[&short]), now(&[&long]));
    let going = serde_json::json!({
        "to": longer.volumes[0].layout, "done_bytes": 0, "total_bytes": 40 << 20, "state": "running",
    });
    now.volumes[0].migration = serde_json::from_value(going).expect("a migration");
    let plan = plan(&of("80m"), &now).unwrap();
    assert_eq!(plan.steps, [Step::Grow { name: "v".to_owned(), from: 40 << 20, to: 80 << 20 }]);
    assert_eq!(plan.under_way, ["v"]);
}

#[test]
fn options_beside_the_plexes_stay() {
    let text = "volume v\nplex org concat\nsd length 512m drive a\nplex org concat\nsd length 512m drive b\n";
    let first = plan(text, &now(&[])).unwrap();
    let mut now = now(&[&first]);
    now.volumes[0].layout += ";durability=flush;domain=drive;min_copies=2";
    assert_eq!(plan(text, &now).unwrap().steps, []);
}

#[test]
fn subdisks_printed_in_another_order_are_the_same() {
    let text = "volume v\nplex org striped 279k\nsd length 2790k drive a\nsd length 2790k drive b\nplex org concat\nsd length 1001s drive c\nsd length 8m drive c\n";
    let first = plan(text, &now(&[])).unwrap();
    let printed = "volume v\nplex org striped 558s\nsd len 5040s drive b plexoffset 558s\nsd len 5040s drive a plexoffset 0s\n\
        plex org concat\nsd len 16384s drive c plexoffset 1001s\nsd len 1001s drive c plexoffset 0\n";
    assert_eq!(plan(printed, &now(&[&first])).unwrap().steps, []);
}

#[test]
fn drives_that_take_nothing_new_are_refused() {
    let text = "volume v\nplex org concat\nsd length 1m drive a\n";
    let with = |change: fn(&mut DriveInfo)| {
        let mut now = now(&[]);
        change(&mut now.drives[0]);
        plan(text, &now).unwrap_err().text
    };
    assert!(with(|drive| drive.purpose = DriveUse::Spare).contains("drive a is spare"));
    assert!(with(|drive| drive.state = DriveState::Offline).contains("drive a is offline"));
    assert!(with(|drive| drive.pool = "other".to_owned()).contains("is in pool other, not in default"));
    let spare = "drive z device /dev/z hotspare\nvolume v\nplex org concat\nsd length 1m drive z\n";
    assert!(plan(spare, &now(&[])).unwrap_err().text.contains("drive z is a spare"));
    let mut gone = now(&[]);
    gone.drives[0].purpose = DriveUse::Removed;
    assert!(plan("drive a device /dev/a\n", &gone).unwrap_err().text.contains("give the new one another name"));
    assert_eq!(told(&plan("drive z device /dev/a\n", &gone).unwrap()), ["+ drive z: /dev/a of s1"]);
}

#[test]
fn too_many_combinations_are_refused_before_anything_is_done() {
    let plex = |count: u64, drive: &str| {
        let disks = (0..count).map(|_| format!("sd length 8m drive {drive}\n")).collect::<String>();
        format!("plex org striped 64k\n{disks}")
    };
    let text = format!("volume v\n{}{}", plex(31, "a"), plex(37, "b"));
    let refused = plan(&text, &now(&[])).unwrap_err();
    assert!(refused.text.contains("1147 combinations"), "{refused}");
}

#[test]
fn a_plex_that_a_new_drive_extends_isnt_cut_by_it() {
    let first =
        plan("volume v\nplex org striped 512k\nsd length 128m drive a\nsd length 128m drive b\n", &now(&[])).unwrap();
    let more = "drive z device /dev/z\nvolume v\nplex org striped 512k\nsd length 128m drive a\nsd length 128m drive b\nsd drive z\n";
    let more = plan(more, &now(&[&first])).unwrap();
    assert_eq!(told(&more)[0], "+ drive z: /dev/z of s1");
}

#[test]
fn with_several_servers_a_new_drive_says_its_own() {
    let mut several = now(&[]);
    (several.server, several.servers) = (None, vec![ServerId(1), ServerId(2)]);
    assert!(plan("drive z device /dev/z\n", &several).unwrap_err().text.contains("say which one, as in s2:/dev/z"));
    assert_eq!(told(&plan("drive z device s2:/dev/z\n", &several).unwrap()), ["+ drive z: /dev/z of s2"]);
    let unknown = plan("drive z device s9:/dev/z\n", &several).unwrap_err();
    assert!(unknown.text.contains("there is no server s9"), "{unknown}");
    assert_eq!(plan("drive a device /dev/a\n", &several).unwrap().steps, []);
}
