//! `tepal gateway`: clients on other machines, who are told of no server's end.

use super::ring::Ring;
use super::volumes::SOME;
use crate::nbd::{Address, BLOCK, Ledger, Nbd, Writer, kind};
use crate::program;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const BLOCKS: usize = 2048;
const SOON: Duration = Duration::from_secs(60);

/// A gateway's process, which ends with the test.
pub struct Gateway {
    process: Child,
    socket: PathBuf,
}

impl Gateway {
    /// One that finds the cluster by its folder, and serves.
    pub fn start(ring: &Ring, name: &str) -> Gateway {
        Self::start_with(ring, name, &[])
    }

    pub fn start_with(ring: &Ring, name: &str, more: &[&str]) -> Gateway {
        let socket = ring.scratch_file(&format!("{name}.sock"));
        let listen = format!("unix:{}", socket.display());
        let log = std::fs::File::create(ring.scratch_file(&format!("{name}.log"))).expect("space");
        let mut command = ring.command(&[&["gateway", "--listen", &listen], more].concat());
        let process = command.stdin(Stdio::null()).stderr(log).spawn().expect("the binary");
        let gateway = Gateway { process, socket };
        program::until("the gateway to serve", SOON, || UnixStream::connect(&gateway.socket).ok());
        gateway
    }

    pub fn address(&self) -> Address {
        Address::Unix(self.socket.clone())
    }

    pub fn connect(&self, volume: &str) -> Nbd {
        Nbd::open(&self.address(), volume).expect("what servers have, the gateway serves")
    }

    /// Returns when it stands still.
    fn pause(&self) {
        self.signal("STOP");
        let stat = format!("/proc/{}/stat", self.process.id());
        let stands_still = || std::fs::read_to_string(&stat).expect("a process").contains(") T ");
        program::until("the gateway to stand still", SOON, || stands_still().then_some(()));
    }

    fn resume(&self) {
        self.signal("CONT");
    }

    fn signal(&self, signal: &str) {
        let arguments = [format!("-{signal}"), self.process.id().to_string()];
        assert!(program::run(&mut program::command("kill", arguments)).status.success());
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// With a volume `v`.
pub fn up(servers: u32, size: &str) -> Ring {
    let ring = Ring::up(servers);
    ring.wait_until_all_are_up(1);
    ring.ask(2, &["volume", "create", "v", "--size", size, "--layout", "chained"]).succeeded();
    ring.wait_until_healthy(servers, "v");
    ring
}

#[test]
fn clients_of_a_gateway_only_wait_while_each_server_in_turn_is_killed_or_stands_still_and_nothing_is_lost() {
    let ring = up(4, "16M");
    let other = Gateway::start(&ring, "b");
    let writer = Writer::start(ring.gateway(), "v", Ledger::new(21, BLOCKS));
    writer.go_on_for(SOME);
    for round in 0..10 {
        let victim = round % 4 + 1;
        let seen_by = victim % 4 + 1;
        let name = format!("s{victim}");
        match round % 3 {
            0 => ring.kill(victim),
            1 => drop(ring.dev(&["pause", &name]).succeeded()),
            // Back before the others have gone on without it.
            _ => {
                ring.kill(victim);
                ring.start(&[victim]);
            }
        }
        if round % 3 != 2 {
            ring.wait_for_state(seen_by, victim, "down");
            writer.go_on_for(SOME);
        }
        match round % 3 {
            0 => ring.start(&[victim]),
            1 => drop(ring.dev(&["resume", &name]).succeeded()),
            _ => {}
        }
        ring.wait_until_drives_are_up(seen_by);
        writer.go_on_for(SOME);
    }
    let mut ledger = writer.finish();
    ring.wait_until_healthy(2, "v");
    ledger.compare(&mut other.connect("v"));
    (1..=4).for_each(|server| ledger.compare(&mut ring.connect(server, "v")));
}

/// Story: a gateway stood still when a client wrote by it, gave up, went on by another one, and wrote something newer there. When the first
/// one went on, it carried out what it found in the client's connection, over what was newer.
#[test]
fn what_a_client_left_at_a_gateway_that_stood_still_is_not_done_when_that_goes_on() {
    const WATCHED: Duration = Duration::from_millis(500);
    let ring = up(3, "16M");
    let (gateway, other) = (Gateway::start(&ring, "a"), Gateway::start(&ring, "b"));
    let mut then = other.connect("v");
    for round in 0..3 {
        let [before, left, newer] = [1, 2, 3].map(|byte| [10 * round + byte; BLOCK]);
        let mut first = gateway.connect("v");
        let blocks = || (0..16).map(|block| block << 20);
        blocks().for_each(|at| first.write(at, &before).expect("written"));
        gateway.pause();
        for at in blocks() {
            first.send(kind::WRITE, 0, at, BLOCK as u32, &left).expect("its socket has room");
        }
        drop(first);
        std::thread::sleep(Duration::from_millis(300)); // a shorter pause is no worse than a slow network
        blocks().for_each(|at| then.write(at, &newer).expect("written"));
        gateway.resume();
        let since = Instant::now();
        while since.elapsed() < WATCHED {
            blocks()
                .for_each(|at| assert_eq!(then.read(at, BLOCK as u32).expect("read")[0], newer[0], "round {round}"));
        }
        assert_eq!(gateway.connect("v").read(0, BLOCK as u32).expect("it serves again"), newer);
    }
}

#[test]
fn a_gateway_learns_of_volumes_as_they_are_made_grow_and_go() {
    let ring = up(3, "16M");
    let gateway = Gateway::start(&ring, "a");
    gateway.connect("v").write(0, &[7; BLOCK]).expect("written");
    ring.ask(1, &["volume", "create", "w", "--size", "8M", "--layout", "mirror:2"]).succeeded();
    assert_eq!(gateway.connect("w").size, 8 << 20);
    ring.ask(2, &["volume", "resize", "w", "24M"]).succeeded();
    ring.ask(3, &["volume", "rename", "w", "wide"]).succeeded();
    let mut wide = gateway.connect("wide");
    assert_eq!(wide.size, 24 << 20);
    ring.ask(1, &["volume", "rm", "wide", "--force"]).succeeded();
    program::until("the gateway to have its clients stop", SOON, || wide.read(0, BLOCK as u32).is_err().then_some(()));
    program::until("the gateway to forget it", SOON, || Nbd::open(&gateway.address(), "wide").is_err().then_some(()));
    assert_eq!(gateway.connect("v").read(0, BLOCK as u32).expect("read"), [7; BLOCK]);
}

/// Story: a clone had got another layout along with its origin. When the origin was removed, the gateway gave up the map that they had gone
/// to: the clone's requests were sent to where its columns had been led then, for ever.
#[test]
fn a_clone_that_has_gone_to_another_layout_with_its_origin_is_served_by_a_gateway_when_the_origin_is_removed() {
    let ring = up(3, "16M");
    let gateway = Gateway::start(&ring, "a");
    ring.ask(1, &["snapshot", "create", "v@a"]).succeeded();
    ring.ask(1, &["volume", "clone", "v@a", "c"]).succeeded();
    let mut clone = gateway.connect("c");
    let pattern = |round: u64| [round as u8 + 1; BLOCK];
    let blocks = || (0..16).map(|block| block << 20);
    blocks().for_each(|at| clone.write(at, &pattern(0)).expect("written"));
    ring.ask(2, &["volume", "relayout", "v", "--layout", "mirror:3"]).succeeded();
    ring.ask(1, &["volume", "rm", "v", "--snapshots", "--force"]).succeeded();
    program::until("the gateway to forget it", SOON, || Nbd::open(&gateway.address(), "v").is_err().then_some(()));
    for victim in 1..=3 {
        ring.kill(victim);
        ring.wait_for_state(victim % 3 + 1, victim, "down");
        let round = u64::from(victim);
        blocks().for_each(|at| assert_eq!(clone.read(at, BLOCK as u32).expect("read"), pattern(round - 1)));
        blocks().for_each(|at| clone.write(at, &pattern(round)).expect("written"));
        ring.start(&[victim]);
        ring.wait_until_healthy(victim, "c");
    }
}

#[test]
fn a_gateway_that_finds_no_server_or_may_not_listen_says_so_and_ends() {
    let ring = Ring::up(1);
    let refused = |arguments: &[&str], said: &str| {
        let error = ring.dev_client(&[&["gateway"], arguments].concat()).refused(1);
        assert!(error.contains(said), "{error}");
    };
    refused(&["--listen", "0.0.0.0:0"], "--insecure");
    refused(&["--listen", "x"], "unix:PATH");
    refused(&["--listen", "unix:/nowhere/at/all"], "/nowhere/at/all");
    refused(&["--cluster", "127.0.0.1:1", "--listen", "127.0.0.1:0"], "no server answers");
    ring.kill(1);
    refused(&["--listen", "127.0.0.1:0"], "no server answers");
}

/// Story: a client was told of an error for what was under way when all servers were killed: nobody knew whether it had been carried
/// out.
#[test]
fn what_is_under_way_when_all_servers_are_killed_at_once_is_done_when_they_are_back() {
    let ring = up(3, "16M");
    // Of this one, all copies are on one server.
    ring.ask(1, &["volume", "create", "w", "--size", "16M", "--layout", "stripe"]).succeeded();
    let writers = ["v", "w"].map(|volume| Writer::start(ring.gateway(), volume, Ledger::new(23, BLOCKS)));
    for _ in 0..4 {
        writers.iter().for_each(|writer| writer.go_on_for(SOME));
        (1..=3).for_each(|victim| ring.kill(victim));
        ring.start_all_that_are_down();
    }
    writers.iter().for_each(|writer| writer.go_on_for(SOME));
    for (writer, volume) in writers.into_iter().zip(["v", "w"]) {
        let mut ledger = writer.finish();
        ledger.compare(&mut Nbd::open(&ring.gateway(), volume).expect("it's there"));
    }
}

/// Story: a volume was removed, without `--force`, while a client of another server's gateway used it. So could it be cut short.
#[test]
fn a_volume_that_clients_of_any_gateway_use_is_removed_or_shrunk_by_force_only() {
    let ring = up(3, "1M");
    for address in [ring.address(3), ring.gateway()] {
        let mut client = Nbd::open(&address, "v").expect("it's there");
        let in_use = || (ring.json(2, &["volume", "show", "v"])["clients"] == 1).then_some(());
        program::until("s2 to know of its client", SOON, in_use);
        ring.ask(2, &["volume", "rm", "v"]).refused(1);
        let shrink = ring.ask(2, &["volume", "resize", "v", "512K", "--shrink"]).refused(1);
        assert!(shrink.contains("a client is connected"), "{shrink}");
        client.write(0, &[7; BLOCK]).expect("it's served");
    }
    ring.ask(1, &["volume", "rm", "v"]).succeeded();
}

/// Story: the tour made a volume, and the cluster's gateway hadn't heard of it yet.
#[test]
fn a_volume_that_was_just_made_is_there_through_every_gateway() {
    let ring = Ring::up(3);
    ring.wait_until_all_are_up(1);
    for round in 0..10 {
        let (name, maker) = (format!("v{round}"), round % 3 + 1);
        ring.ask(maker, &["volume", "create", &name, "--size", "1M", "--layout", "chained"]).succeeded();
        let gateways = (1..=3).map(|server| ring.address(server)).chain([ring.gateway()]);
        for address in gateways {
            assert!(Nbd::open(&address, &name).is_ok(), "{name}, made by s{maker}, at {address:?}");
        }
    }
    assert!(Nbd::open(&ring.gateway(), "nothing").is_err());
}
