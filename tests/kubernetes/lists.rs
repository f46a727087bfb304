//! Names, sizes, parameters and lists.

use super::driver::{MIB, of_volume, refused, wanted};
use super::spec::{
    CapacityRange, CreateVolumeRequest, GetCapacityRequest, ListSnapshotsRequest, ListVolumesRequest, Topology,
    TopologyRequirement,
};
use super::stories::up;
use crate::filesystems::obstacle;
use crate::skip;
use std::collections::HashMap;
use tonic::Code;

fn parameters(said: &[(&str, &str)]) -> HashMap<String, String> {
    said.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn classes_say_where_volumes_are_and_unknown_words_are_refused() {
    let (cluster, driver) = up(&[]);
    let mut calls = driver.client();
    let with =
        |name: &str, said: &[(&str, &str)]| CreateVolumeRequest { parameters: parameters(said), ..wanted(name, MIB) };
    calls.create(with("three", &[("layout", "mirror:3"), ("domain", "drive")])).expect("made");
    assert_eq!(cluster.volume("csi-three")["layout"], "mirror:3;domain=drive");
    refused(calls.create(with("three", &[("layout", "mirror:2")])), Code::AlreadyExists, "mirror:3");
    refused(calls.create(with("x", &[("replicas", "3")])), Code::InvalidArgument, "'replicas'");
    refused(calls.create(with("x", &[("pool", "fast")])), Code::InvalidArgument, "fast");
    refused(calls.create(with("x", &[("layout", "mirror:2"), ("domain", "site")])), Code::InvalidArgument, "site");
    let id = calls.create(wanted("three", MIB)).expect("there").volume_id;
    let clone = of_volume(with("clone", &[("layout", "stripe")]), &id);
    refused(calls.create(clone), Code::InvalidArgument, "shares its source's data");
    let long = "N/am e".repeat(21) + "XY";
    let made = calls.create(wanted(&long, 1000)).expect("made");
    assert_eq!((made.capacity_bytes, calls.create(wanted(&long, 1000)).expect("there")), (1024, made.clone()));
    let limit = CapacityRange { required_bytes: 1000, limit_bytes: 1000 };
    refused(
        calls.create(CreateVolumeRequest { capacity_range: Some(limit), ..wanted("odd", 0) }),
        Code::OutOfRange,
        "1024",
    );
    refused(calls.create(wanted("three", 2 * MIB)), Code::AlreadyExists, "1048576");

    let mut capacity = |said: &[(&str, &str)]| {
        let asked = GetCapacityRequest { parameters: parameters(said), ..Default::default() };
        calls
            .wait(async |controller, _| controller.get_capacity(asked).await)
            .expect("an answer")
            .into_inner()
            .available_capacity
    };
    let (one, two) = (capacity(&[("layout", "stripe")]), capacity(&[]));
    assert!(one > 3 << 30 && two == one / 2, "{one} {two}");
}

#[test]
fn lists_come_in_pages_and_miss_nothing_made_meanwhile() {
    let (_cluster, driver) = up(&[]);
    let mut calls = driver.client();
    let ids: Vec<String> =
        ["c", "a", "b"].iter().map(|name| calls.create(wanted(name, MIB)).expect("made").volume_id).collect();
    let mut page = |token: &str, most| {
        let asked = ListVolumesRequest { max_entries: most, starting_token: token.to_owned() };
        let answer = calls.wait(async |controller, _| controller.list_volumes(asked).await)?.into_inner();
        let ids: Vec<String> = answer.entries.into_iter().filter_map(|entry| Some(entry.volume?.volume_id)).collect();
        Ok((ids, answer.next_token))
    };
    let (first, token) = page("", 2).expect("a page");
    assert_eq!(first, ids[..2]);
    let new = driver.client().create(wanted("0", MIB)).expect("made").volume_id;
    driver.client().delete(&ids[1]).expect("the last one of that page");
    assert_eq!(page(&token, 2).expect("a page"), (vec![ids[2].clone(), new], String::new()));
    refused(page("nonsense", 2), Code::Aborted, "nonsense");
    refused(page("", -1), Code::InvalidArgument, "0");

    let mut calls = driver.client();
    let made: Vec<String> = (0..3)
        .map(|number| calls.snapshot(&format!("s{number}"), &ids[number % 2 * 2]).expect("made").snapshot_id)
        .collect();
    let mut page = |token: &str, most, of: &str| {
        let (starting_token, source_volume_id) = (token.to_owned(), of.to_owned());
        let asked = ListSnapshotsRequest { max_entries: most, starting_token, source_volume_id, ..Default::default() };
        let answer =
            calls.wait(async |controller, _| controller.list_snapshots(asked).await).expect("a list").into_inner();
        let ids: Vec<String> =
            answer.entries.into_iter().filter_map(|entry| Some(entry.snapshot?.snapshot_id)).collect();
        (ids, answer.next_token)
    };
    let (first, token) = page("", 2, "");
    assert_eq!(first, [made[0].clone(), made[2].clone()], "those of one volume together");
    assert_eq!(page(&token, 2, ""), (vec![made[1].clone()], String::new()));
    assert_eq!(page("", 0, &ids[2]).0, [made[1].clone()]);
    assert!(page("", 0, "nonsense").0.is_empty());
}

#[test]
fn a_volume_is_made_on_drives_at_the_site_of_its_user() {
    if let Some(why) = obstacle() {
        skip!("{why}");
    }
    let ring = crate::servers::ring::Ring::up(3);
    ring.wait_until_all_are_up(1);
    ring.ask(1, &["pool", "create", "near"]).succeeded();
    let path = ring.data(2).join("more").display().to_string();
    ring.ask(1, &["drive", "add", "s2", &path, "--create", "64M", "--pool", "near"]).succeeded();
    let data = ring.data(1);
    let tepal = move || crate::cluster::command_for(&data);
    let driver = super::driver::Driver::start(&ring.scratch_file("driver"), tepal, &["--server", "s2"]);
    let mut calls = driver.client();
    let at = |server: &str| {
        let place = Topology { segments: parameters(&[("topology.csi.tepal/server", server)]) };
        TopologyRequirement { requisite: vec![place.clone()], preferred: vec![place] }
    };
    for (server, pool) in [("s1", "default"), ("s2", "near")] {
        let asked = CreateVolumeRequest { accessibility_requirements: Some(at(server)), ..wanted(server, MIB) };
        calls.create(asked).expect("made");
        assert_eq!(ring.json(1, &["volume", "show", &format!("csi-{server}")])["pool"], pool);
    }
    let asked = super::spec::NodeGetInfoRequest {};
    let info = calls.wait(async |_, node| node.node_get_info(asked).await).expect("an answer").into_inner();
    assert_eq!(info.accessible_topology.expect("a place").segments["topology.csi.tepal/server"], "s2");
}
