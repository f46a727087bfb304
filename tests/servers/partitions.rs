//! Networks that are cut, both ways or one way, in the middle of work: whoever is cut off waits and serves nothing old, the others
//! go on, and after all is healed everything is whole.
//!
//! The servers are in network namespaces of their own, as `tepal dev up --isolate` makes them.

use super::ring::Ring;
use super::volumes::{BLOCKS, SOME, make, scrub_finds_nothing, wide};
use crate::nbd::{BLOCK, Ledger, Nbd, Writer, kind};
use crate::program::{self, command, run};
use crate::skip;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// So long a server that may answer nothing is watched.
const WATCHED: Duration = Duration::from_secs(3);
/// Others notice within seconds that one is cut off, also on a slow machine.
const NOTICED: Duration = Duration::from_secs(30);

/// Why this machine can't have such networks.
pub fn refusal() -> Option<&'static str> {
    static REFUSAL: OnceLock<Option<&str>> = OnceLock::new();
    *REFUSAL.get_or_init(|| {
        if !program::is_root() {
            return Some("only root can make network namespaces");
        }
        if program::find("ip").is_none() {
            return Some("ip is missing here");
        }
        let name = format!("tepal-test-{}", std::process::id());
        let ip = |arguments: &[&str]| run(&mut command("ip", arguments)).status.success();
        let made = ip(&["netns", "add", &name])
            && ip(&["-n", &name, "link", "add", "one", "type", "veth", "peer", "name", "other"])
            && ip(&["-n", &name, "link", "add", "bridge", "type", "bridge"]);
        ip(&["netns", "delete", &name]); // or there is none
        (!made).then_some("network namespaces, pairs of interfaces or bridges are refused here")
    })
}

macro_rules! need_namespaces {
    () => {
        if let Some(why) = refusal() {
            skip!("{why}");
        }
    };
}

impl Ring {
    /// Cuts what passes between these servers, or what the first send to the others.
    pub fn cut(&self, some: &str, others: &str, ways: &[&str]) {
        self.dev(&[&["partition", some, others], ways].concat()).succeeded();
    }

    pub fn heal(&self) {
        self.dev(&["heal"]).succeeded();
    }
}

/// All is as if nothing had been cut, and every gateway has the same.
fn is_whole(ring: &Ring, volume: &str, ledger: &mut Ledger) {
    ring.wait_until_all_are_up(1);
    ring.wait_until_drives_are_up(1);
    (1..=ring.servers).for_each(|server| ring.wait_until_healthy(server, volume));
    (1..=ring.servers).for_each(|server| ledger.compare(&mut ring.connect(server, volume)));
    scrub_finds_nothing(ring, volume);
}

/// Reads of single blocks all over the volume, all at once; what comes of them, one after the other.
fn read_blocks(mut volume: Nbd) -> Receiver<(usize, Vec<u8>)> {
    const APART: usize = 64;
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let asked: BTreeMap<u64, usize> = (0..BLOCKS)
            .step_by(APART)
            .map(|block| {
                let cookie = volume.send(kind::READ, 0, (block * BLOCK) as u64, BLOCK as u32, &[]);
                (cookie.expect("the server takes requests"), block)
            })
            .collect();
        for _ in 0..asked.len() {
            let (cookie, answer) = volume.answer().expect("the connection stays");
            answer.expect("no error");
            let block = asked[&cookie];
            if tell.send((block, volume.data(BLOCK).expect("a block"))).is_err() {
                return; // nobody wants to know any more
            }
        }
    });
    told
}

#[test]
fn a_server_that_is_cut_off_serves_nothing_while_the_others_go_on_and_is_whole_again_when_it_is_back() {
    need_namespaces!();
    let ring = Ring::isolated(3);
    wide(&ring);
    let cut_off = ring.connect(3, "v");
    let writer = Writer::start(ring.address(1), "v", Ledger::new(21, BLOCKS));
    writer.go_on_for(SOME);
    ring.cut("s3", "s1,s2", &[]);
    let since = Instant::now();
    ring.wait_for_state(1, 3, "down");
    writer.go_on_for(SOME);
    assert!(since.elapsed() < NOTICED, "the writer stood still for {:?}", since.elapsed());
    let mut ledger = writer.finish();

    // Most of what its own drive has is old by now.
    let answers = read_blocks(cut_off);
    assert_eq!(answers.recv_timeout(WATCHED), Err(RecvTimeoutError::Timeout), "an answer of one that is cut off");
    ring.heal();
    for (block, bytes) in answers {
        ledger.see(block, &bytes).expect("what was written without it");
    }
    is_whole(&ring, "v", &mut ledger);
}

/// Story: a client was gone, and had written something newer by another gateway, when the network between its first gateway and a primary
/// was whole again. What the kernel there still had to send was done then, over what was newer.
#[test]
fn what_a_client_left_behind_at_a_gateway_that_was_cut_off_is_not_done_when_the_network_is_back() {
    need_namespaces!();
    const WRITES: u64 = 64;
    /// From one to the next: so they are all over the columns.
    const APART: u64 = 256 << 10;
    /// A kernel sends again after some 0.2, 0.6 and 1.4 s. Before the last of these the client gives up, and what it left is forgotten
    /// here; it goes on elsewhere, and the network is back.
    const GIVES_UP: Duration = Duration::from_millis(700);
    const GOES_ON: Duration = Duration::from_millis(1_000);
    const BACK: Duration = Duration::from_millis(1_200);
    let ring = Ring::isolated(4);
    wide(&ring);
    let send = |volume: &mut Nbd, byte: u8| {
        for nth in 0..WRITES {
            let sent = volume.send(kind::WRITE, 0, nth * APART, BLOCK as u32, &[byte; BLOCK]);
            sent.expect("the gateway takes requests");
        }
    };
    let answers = |volume: &mut Nbd| {
        for _ in 0..WRITES {
            volume.answer().expect("the connection stays").1.expect("no error");
        }
    };
    for round in 0..3 {
        let [before, left, newer] = [1, 2, 3].map(|byte| 10 * round + byte);
        let (mut first, mut then) = (ring.connect(1, "v"), ring.connect(3, "v"));
        send(&mut first, before);
        answers(&mut first);
        ring.cut("s1", "s2", &[]);
        send(&mut first, left);
        let sent = Instant::now();
        let until = |time: Duration| std::thread::sleep(time.saturating_sub(sent.elapsed()));
        until(GIVES_UP);
        drop(first);
        until(GOES_ON);
        send(&mut then, newer);
        until(BACK);
        ring.heal();
        answers(&mut then);
        let since = Instant::now();
        while since.elapsed() < WATCHED {
            for nth in 0..WRITES {
                let block = then.read(nth * APART, BLOCK as u32).expect("it can be read");
                assert!(block.iter().all(|&byte| byte == newer), "round {round}, block {nth}: {}", block[0]);
            }
        }
    }
}

#[test]
fn what_is_lost_one_way_only_makes_clients_wait_at_most_and_all_is_right_afterwards() {
    need_namespaces!();
    let ring = Ring::isolated(3);
    wide(&ring);
    let writer = Writer::start(ring.address(1), "v", Ledger::new(22, BLOCKS));
    for (from, to) in [("s1", "s2"), ("s2", "s1"), ("s2", "s3"), ("s3", "s2")] {
        writer.go_on_for(SOME);
        ring.cut(from, to, &["--one-way"]);
        // Both servers still reach the third one. Whether they can do without each other is not promised.
        let (before, since) = (writer.answered(), Instant::now());
        ring.wait_until("the writer to go on, or to have had its time", || {
            writer.answered() > before + SOME || since.elapsed() > 3 * WATCHED
        });
        ring.heal();
        writer.go_on_for(SOME);
    }
    is_whole(&ring, "v", &mut writer.finish());
}

#[test]
fn of_two_that_lose_each_other_but_not_the_leader_neither_is_down_and_the_leader_serves_all_of_it() {
    need_namespaces!();
    let ring = Ring::isolated(3);
    wide(&ring);
    let show = ring.json(1, &["cluster", "show"]);
    let leader: u32 = (1..=3).find(|server| show["leader"] == format!("s{server}")).expect("somebody leads");
    let [one, other] = [leader % 3 + 1, (leader + 1) % 3 + 1];
    let writer = Writer::start(ring.address(leader), "v", Ledger::new(25, BLOCKS));
    writer.go_on_for(SOME);
    ring.cut(&format!("s{one}"), &format!("s{other}"), &[]);
    let since = Instant::now();
    writer.go_on_for(SOME);
    let mut ledger = writer.finish();
    ledger.compare(&mut ring.connect(leader, "v"));
    assert!(since.elapsed() < NOTICED, "it took {:?}", since.elapsed());
    for seen_by in 1..=3 {
        let states = ring.states(seen_by); // one of the two catches up, for as long as it can't
        assert!(states.iter().all(|state| state != "down"), "as s{seen_by} sees it: {states:?}");
    }

    // Through the gateways of the two as well, once all is healed.
    ring.heal();
    for server in [one, other] {
        let writer = Writer::start(ring.address(server), "v", ledger);
        writer.go_on_for(SOME);
        ledger = writer.finish();
    }
    is_whole(&ring, "v", &mut ledger);
}

#[test]
fn of_two_halves_only_the_one_with_most_voters_goes_on() {
    need_namespaces!();
    let ring = Ring::isolated(4);
    // A copy of everything is in each half.
    make(&ring, "v", "mirror:3");
    make(&ring, "w", "mirror:3");
    let voters = ring.json(1, &["cluster", "show"])["voters"].clone();
    let voters: Vec<String> = serde_json::from_value(voters).expect("ids");
    assert_eq!(voters.len(), 3, "{voters:?}");
    let (mut most, mut fewest) = ((1, "s1,s2"), (3, "s3,s4"));
    if voters.iter().filter(|id| ["s3", "s4"].contains(&id.as_str())).count() == 2 {
        (most, fewest) = (fewest, most);
    }
    let goes_on = Writer::start(ring.address(most.0), "v", Ledger::new(23, BLOCKS));
    let waits = Writer::start(ring.address(fewest.0), "w", Ledger::new(24, BLOCKS));
    goes_on.go_on_for(SOME);
    waits.go_on_for(SOME);
    ring.cut(most.1, fewest.1, &[]);
    (0..2).for_each(|next| ring.wait_for_state(most.0, fewest.0 + next, "down"));
    let answered = waits.answered();
    goes_on.go_on_for(SOME);
    assert_eq!(waits.settled(), answered, "the half with the fewest voters has answered");
    ring.heal();
    goes_on.go_on_for(SOME);
    waits.go_on_for(SOME);
    is_whole(&ring, "v", &mut goes_on.finish());
    is_whole(&ring, "w", &mut waits.finish());
}

/// Story: a leader that was cut off took commands, and their client had no answer in a minute. Once the network was back, a volume and a
/// snapshot were gone that the others had kept all the while. And a resize was refused for a change that nobody had made.
#[test]
fn what_a_leader_that_is_cut_off_refuses_is_not_done_when_it_is_back() {
    need_namespaces!();
    let ring = Ring::isolated(3);
    ["v", "w"].into_iter().for_each(|volume| make(&ring, volume, "mirror:2"));
    ring.ask(1, &["snapshot", "create", "w@s"]).succeeded();
    let show = ring.json(1, &["cluster", "show"]);
    let leader: u32 = (1..=3).find(|server| show["leader"] == format!("s{server}")).expect("somebody leads");
    let [one, other] = [leader % 3 + 1, (leader + 1) % 3 + 1];
    let size = ring.json(one, &["volume", "show", "v"])["size"].clone();
    ring.cut(&format!("s{leader}"), &format!("s{one},s{other}"), &[]);
    ring.wait_for_state(one, leader, "down");
    std::thread::scope(|scope| {
        let ring = &ring;
        let asked = [&["volume", "rm", "v"][..], &["snapshot", "rm", "w@s"], &["volume", "resize", "v", "32M"]];
        let asking =
            asked.map(|command| scope.spawn(move || (Instant::now(), ring.ask(leader, command), Instant::now())));
        for (command, asking) in asked.iter().zip(asking) {
            let (began, answer, ended) = asking.join().expect("it's answered");
            let refused = answer.refused(1);
            assert!(
                refused.contains("no majority") && refused.contains("nothing was changed"),
                "{command:?}: {refused}"
            );
            assert!(ended - began < NOTICED, "{command:?} was answered after {:?}", ended - began);
        }
    });
    ring.heal();
    ring.wait_until_all_are_up(leader);
    // Whatever the server still had to ask for, it asked for before.
    ring.ask(leader, &["pool", "create", "the-last"]).succeeded();
    for server in 1..=3 {
        ring.wait_until("the server to know all", || ring.pools(server).contains(&"the-last".to_owned()));
        assert_eq!(ring.json(server, &["volume", "show", "w"])["snapshots"].as_array().map(Vec::len), Some(1));
        assert_eq!(ring.json(server, &["volume", "show", "v"])["size"], size);
    }
}

fn cuts(ring: &Ring) -> Value {
    ring.dev_status()["cuts"].clone()
}

#[test]
fn cuts_add_up_stay_through_a_kill_and_are_mended_all_at_once_also_while_a_server_waits_for_that() {
    need_namespaces!();
    let ring = Ring::isolated(3);
    ring.wait_until_all_are_up(1);
    assert_eq!(cuts(&ring), json!([]));
    for (arguments, said) in [
        (["partition", "s1", "s4"], "no server s4"),
        (["partition", "s1,s2", "s2"], "s2 can't be cut off from itself"),
        (["up", "--detach", "--servers=254"], "at most 253 servers"),
    ] {
        let refused = ring.dev(&arguments).refused(1);
        assert!(refused.contains(said), "{refused}");
    }
    ring.cut("s3", "s1", &["--one-way"]);
    ring.cut("s2", "s3", &[]);
    ring.cut("s3", "s1", &["--one-way"]); // again, which changes nothing
    let all = json!([{ "from": "s2", "to": "s3" }, { "from": "s3", "to": "s1" }, { "from": "s3", "to": "s2" }]);
    assert_eq!(cuts(&ring), all);
    let told = ring.dev(&["status"]).succeeded();
    assert!(told.contains("s2 <-> s3, s3 -> s1"), "{told}");
    ring.kill(3);
    assert_eq!(cuts(&ring), all);
    std::thread::scope(|scope| {
        let starting = scope.spawn(|| ring.start(&[3]));
        ring.wait_until("its process to run", || ring.runs(3));
        assert_eq!(cuts(&ring), all);
        ring.heal();
        starting.join().expect("it has started");
    });
    assert_eq!(cuts(&ring), json!([]));
    ring.wait_until_all_are_up(3);
    assert!(ring.dev(&["heal"]).succeeded().contains("nothing was cut"));
}

#[test]
fn an_isolated_cluster_comes_back_as_it_was_also_when_its_namespaces_are_gone_and_leaves_none_behind() {
    need_namespaces!();
    let ring = Ring::isolated(2);
    wide(&ring);
    let before = ring.dev_status();
    let bytes = crate::nbd::noise(5, 1 << 20);
    ring.connect(1, "v").write_through(0, &bytes).expect("written");
    let namespace = before["servers"][0]["namespace"].as_str().expect("its name");
    let tag = namespace.strip_suffix("-s1").expect("named after its server");
    let left = || run(&mut command("ip", ["netns", "list"])).succeeded().contains(tag);
    assert!(left());

    // As after a restart of the machine.
    [1, 2].into_iter().for_each(|server| ring.kill(server));
    let lose = |of: &str| {
        run(&mut command("ip", ["netns", "delete", &format!("{tag}-{of}")])).succeeded();
    };
    ["net", "s1", "s2"].into_iter().for_each(lose);
    for way in ["gone", "down"] {
        if way == "down" {
            ring.dev(&["down"]).succeeded();
            assert!(!left());
            let refused = ring.dev(&["partition", "s1", "s2"]).refused(1);
            assert!(refused.contains("dev up"), "{refused}");
        }
        ring.dev(&["up", "--detach"]).succeeded();
        let now = ring.dev_status();
        assert_eq!((&now["network"], &now["api"]), (&before["network"], &before["api"]), "{way}");
        ring.wait_until_healthy(2, "v");
        assert_eq!(ring.connect(2, "v").read(0, 1 << 20).expect("there"), bytes);
    }
    // What is missing already is in nobody's way.
    lose("net");
    ring.dev(&["down"]).succeeded();
    assert!(!left());
}
