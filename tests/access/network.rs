//! A cluster on a network with others on it: everything over TCP is encrypted, and nobody is let in without an identity.

use super::client::Door;
use crate::cluster::{make_drive, tepal};
use crate::nbd::{Address, BLOCK, Nbd};
use crate::need;
use crate::program::{self, Ended};
use serde_json::Value;
use std::fs::DirBuilder;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(90);

/// Servers that want TLS of everybody who comes by TCP, also on loopback.
struct Network {
    scratch: TempDir,
    peers: Vec<String>,
    servers: Vec<Child>,
}

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").to_string()
}

impl Network {
    fn new() -> Network {
        let scratch = tempfile::Builder::new().prefix("tepal-test-").tempdir().expect("space");
        Network { scratch, peers: vec![], servers: vec![] }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn data(&self, server: usize) -> PathBuf {
        self.file(&format!("s{server}"))
    }

    fn serve(&self, server: usize, peers: &str, more: &[&str]) -> Command {
        let (data, drive) = (self.data(server), self.file(&format!("drive{server}")));
        if !drive.exists() {
            make_drive(&drive, 64 << 20);
        }
        let log = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.file(&format!("log{server}")))
            .expect("space");
        let mut command = Command::new(tepal());
        command.arg("serve").arg("--data").arg(&data).arg("--drive").arg(&drive).args([
            "--peers",
            peers,
            "--require-tls",
        ]);
        command
            .arg("--listen")
            .arg(format!("unix:{}", self.socket(server).display()))
            .args(["--listen", "127.0.0.1:0"]);
        command.env_remove("TEPAL_IDENTITY").args(more).stdout(log.try_clone().expect("a handle")).stderr(log);
        command
    }

    fn socket(&self, server: usize) -> PathBuf {
        self.file(&format!("nbd{server}.sock"))
    }

    /// Starts the next one, and returns when it serves.
    fn start(&mut self, more: &[&str]) {
        let (server, peers) = (self.servers.len() + 1, free_address());
        self.servers.push(program::spawn(&mut self.serve(server, &peers, more)));
        self.peers.push(peers);
        self.wait(server);
    }

    fn wait(&mut self, server: usize) {
        let (addresses, log) = (self.data(server).join("addresses.json"), self.file(&format!("log{server}")));
        let child = &mut self.servers[server - 1];
        program::until("the server to serve", SOON, || {
            if let Ok(Some(status)) = child.try_wait() {
                panic!("s{server} ended: {status}\n{}", std::fs::read_to_string(&log).unwrap_or_default());
            }
            addresses.exists().then_some(())
        });
    }

    /// One that has the folder of an identity, and the cluster's token.
    fn join(&mut self) {
        let (server, identity) =
            (self.servers.len() + 1, self.identity(&format!("n{}", self.servers.len() + 1), &["--server"]));
        DirBuilder::new().mode(0o700).create(self.data(server)).expect("space");
        std::fs::copy(self.data(1).join("token"), self.data(server).join("token")).expect("a token");
        let through = self.peers[0].clone();
        self.start(&["--join", &through, "--identity", identity.to_str().expect("text")]);
    }

    fn identity(&self, name: &str, more: &[&str]) -> PathBuf {
        let folder = self.file(name);
        let to = folder.to_str().expect("text").to_owned();
        self.ask(1, &[&["identity", "create", name, "--to", &to], more].concat()).succeeded();
        folder
    }

    fn tepal(&self) -> Command {
        let mut command = Command::new(tepal());
        command.env_remove("TEPAL_CLUSTER").env_remove("TEPAL_TOKEN").env_remove("TEPAL_IDENTITY");
        command
    }

    fn ask(&self, server: usize, arguments: &[&str]) -> Ended {
        program::run(self.tepal().arg("--dir").arg(self.data(server)).args(arguments))
    }

    fn json(&self, server: usize, arguments: &[&str]) -> Value {
        let said = self.ask(server, &[&["-o", "json"], arguments].concat()).succeeded();
        serde_json::from_str(&said).expect("JSON")
    }

    fn addresses(&self, server: usize) -> Value {
        serde_json::from_slice(&std::fs::read(self.data(server).join("addresses.json")).expect("there")).expect("JSON")
    }

    fn api(&self, server: usize) -> String {
        self.addresses(server)["api"].as_str().expect("an address").to_owned()
    }

    /// One of this identity, which knows of volume `v`.
    fn gateway(&self, identity: &PathBuf) -> (Child, Address) {
        let socket = self.file("gateway.sock");
        let mut gateway = self.tepal();
        gateway.args(["--cluster", &self.api(1), "--identity"]).arg(identity);
        gateway.arg("gateway").arg("--listen").arg(format!("unix:{}", socket.display()));
        gateway.stderr(std::fs::File::create(self.file("gateway.log")).expect("space"));
        let gateway = program::spawn(&mut gateway);
        let address = Address::Unix(socket.clone());
        program::until("the gateway to serve", SOON, || UnixStream::connect(&socket).ok());
        let knows = || (Nbd::list(&address).ok()? == ["v"]).then_some(());
        program::until("the gateway to know of the volume", SOON, knows);
        (gateway, address)
    }

    /// As somebody on another machine asks: with no folder of a server, and no token.
    fn ask_from_elsewhere(&self, identity: Option<&PathBuf>, arguments: &[&str]) -> Ended {
        let mut command = self.tepal();
        command.args(["--cluster", &self.api(1)]).env("XDG_RUNTIME_DIR", self.scratch.path());
        identity.map(|folder| command.arg("--identity").arg(folder));
        program::run(command.args(arguments))
    }

    fn wait_until_healthy(&self, volume: &str) {
        let is_healthy = || (self.json(1, &["volume", "show", volume])["state"] == "healthy").then_some(());
        program::until("the volume to be healthy", SOON, is_healthy);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for server in 1..=self.servers.len() {
                let log = std::fs::read_to_string(self.file(&format!("log{server}"))).unwrap_or_default();
                let tail: Vec<&str> = log.lines().rev().take(15).collect();
                eprintln!("s{server}:\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
            }
        }
        self.servers.iter_mut().for_each(program::kill_group);
    }
}

fn up(servers: usize) -> Network {
    let mut network = Network::new();
    network.start(&["--create", "test"]);
    program::until("s1 to have a certificate", SOON, || {
        network.data(1).join("certificate.json").exists().then_some(())
    });
    (1..servers).for_each(|_| network.join());
    network
}

#[test]
fn servers_that_want_tls_are_one_cluster_and_outlive_one_another() {
    let mut network = up(3);
    network.ask(2, &["volume", "create", "v", "--size", "16M", "--layout", "mirror:2"]).succeeded();
    network.wait_until_healthy("v");
    let connect =
        |network: &Network, server| Nbd::open(&Address::Unix(network.socket(server)), "v").expect("it's served");
    let (mut one, mut other) = (connect(&network, 2), connect(&network, 3));
    for (number, length) in [(1u8, BLOCK), (2, 3 * BLOCK), (3, 1 << 20), (4, 4 << 20)] {
        let offset = u64::from(number) << 20;
        one.write(offset, &vec![number; length]).expect("written");
        assert!(other.read(offset, length as u32).expect("there") == vec![number; length], "{length} bytes");
    }
    // One dies, and comes back by the certificate that it has.
    program::kill_group(&mut network.servers[0]);
    one.write(8 << 20, &[9; BLOCK]).expect("the others go on");
    let peers = network.peers[0].clone();
    let _ = std::fs::remove_file(network.data(1).join("addresses.json"));
    network.servers[0] = program::spawn(&mut network.serve(1, &peers, &[]));
    network.wait(1);
    network.wait_until_healthy("v");
    assert_eq!(connect(&network, 1).read(8 << 20, BLOCK as u32).expect("there"), [9; BLOCK]);
    let identities = network.json(1, &["identity", "ls"]);
    let names: Vec<&str> =
        identities.as_array().expect("a list").iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(names, ["n2", "n3", "server-s1", "server-s2", "server-s3"]);
}

#[test]
fn nobody_joins_a_cluster_without_a_servers_identity() {
    let network = up(1);
    let through = network.peers[0].clone();
    let host = network.identity("web", &[]);
    let refused = |server: usize, more: &[&str]| {
        let mut joining = network.serve(server, &free_address(), &[&["--join", &through], more].concat());
        let ended = program::run(&mut joining);
        assert!(!ended.status.success(), "{ended}");
        ended.stderr
    };
    let without = refused(7, &[]);
    assert!(without.contains("identity create"), "{without}");
    let as_host = refused(8, &["--identity", host.to_str().expect("text")]);
    assert!(as_host.contains("is no server"), "{as_host}");
    // A host's certificate is for serving too, if it has a gateway, and still no server's.
    let gate = network.identity("gate", &["--address", "127.0.0.1"]);
    let as_gateway = refused(10, &["--identity", gate.to_str().expect("text")]);
    assert!(as_gateway.contains("is no server"), "{as_gateway}");
    let revoked = network.identity("n9", &["--server"]);
    network.ask(1, &["identity", "revoke", "n9"]).succeeded();
    let as_revoked = refused(9, &["--identity", revoked.to_str().expect("text")]);
    assert!(as_revoked.to_lowercase().contains("revoked"), "{as_revoked}");
    assert_eq!(network.json(1, &["server", "ls"]).as_array().map(Vec::len), Some(1));
}

#[test]
fn what_comes_without_tls_is_told_nothing() {
    let network = up(1);
    let listening = [network.peers[0].clone(), network.api(1)];
    let data = network.addresses(1)["nbd"].as_array().expect("a list")[1].as_str().expect("TCP").to_owned();
    for address in [&listening[0], &data] {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(SOON)).expect("a time");
        let _ = stream.write_all(&[0; 512]);
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        assert!(said.len() <= 18, "but for NBD's greeting nothing: {} bytes", said.len());
    }
    let token = std::fs::read_to_string(network.data(1).join("token")).expect("there");
    let mut stream = TcpStream::connect(&listening[1]).expect("it listens");
    write!(stream, "GET /v1/volumes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n")
        .expect("sent");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("an answer");
    assert!(said.starts_with("HTTP/1.1 403") && said.contains("TLS"), "{said}");
}

#[test]
fn an_operator_elsewhere_does_everything_and_a_host_nothing_but_its_volumes() {
    let network = up(1);
    let (operator, host) = (network.identity("ann", &["--operator"]), network.identity("web", &[]));
    let create = ["volume", "create", "v", "--size", "8M", "--layout", "stripe"];
    network.ask_from_elsewhere(None, &create).refused(1);
    let refused = network.ask_from_elsewhere(Some(&host), &create).refused(1);
    assert!(refused.contains("web") && refused.contains("operator"), "{refused}");
    network.ask_from_elsewhere(Some(&operator), &create).succeeded();
    let absent = network.ask_from_elsewhere(Some(&host), &["volume", "show", "v"]).refused(1);
    assert!(absent.contains("there is no volume 'v'"), "{absent}");
    network.ask_from_elsewhere(Some(&operator), &["volume", "grant", "v", "read", "web"]).succeeded();
    network.ask_from_elsewhere(Some(&host), &["volume", "show", "v"]).succeeded();
    let resize = ["volume", "resize", "v", "16M"];
    let refused = network.ask_from_elsewhere(Some(&host), &resize).refused(1);
    assert!(refused.contains("admin"), "{refused}");
    network.ask(1, &["volume", "grant", "v", "admin", "web"]).succeeded();
    network.ask_from_elsewhere(Some(&host), &resize).succeeded();
    network.ask_from_elsewhere(Some(&host), &["snapshot", "create", "v@s"]).succeeded();
    network.ask_from_elsewhere(Some(&operator), &["volume", "create", "hidden", "--size", "8M"]).succeeded();
    let listed = network.ask_from_elsewhere(Some(&host), &["volume", "ls"]).succeeded();
    assert!(listed.contains('v') && !listed.contains("hidden"), "{listed}");
    for asked in [&["snapshot", "create", "hidden@s"], &["snapshot", "ls", "hidden"], &["server", "rm", "s1"][..]] {
        network.ask_from_elsewhere(Some(&host), asked).refused(1);
    }
    let events = network.json(1, &["sql", "select who from events where subject = 'v' order by seq"]);
    assert_eq!(events["rows"], serde_json::json!([["ann"], ["ann"], ["token"], ["web"]]));
    network.ask(1, &["identity", "revoke", "ann"]).succeeded();
    network.ask_from_elsewhere(Some(&operator), &["volume", "ls"]).refused(1);
}

#[test]
fn a_gateway_has_the_rights_of_its_identity_alone() {
    need!("qemu-io");
    let network = up(2);
    for volume in ["v", "w"] {
        network.ask(1, &["volume", "create", volume, "--size", "8M", "--layout", "mirror:2"]).succeeded();
        network.wait_until_healthy(volume);
    }
    let host = network.identity("web", &[]);
    network.ask(1, &["volume", "grant", "v", "read", "web"]).succeeded();
    let (mut gateway, address) = network.gateway(&host);
    assert!(Nbd::open(&address, "w").is_err());
    let mut client = Nbd::open(&address, "v").expect("granted");
    assert_eq!(client.read(0, BLOCK as u32).expect("granted"), [0; BLOCK]);
    assert!(client.write(0, &[7; BLOCK]).is_err(), "reading was granted");
    network.ask(1, &["volume", "grant", "v", "write", "web"]).succeeded();
    client.write(0, &[7; BLOCK]).expect("granted");
    // A server that stood still while the right came back has requests for it repeated, until it knows.
    network.ask(1, &["volume", "grant", "v", "read", "web"]).succeeded();
    let mut clients: Vec<Nbd> = (0..8).map(|_| Nbd::open(&address, "v").expect("granted")).collect();
    program::signal_group(&network.servers[1], libc::SIGSTOP);
    network.ask(1, &["volume", "grant", "v", "write", "web"]).succeeded();
    std::thread::scope(|scope| {
        for (number, client) in clients.iter_mut().enumerate() {
            let offset = (number as u64) << 20;
            scope.spawn(move || client.write(offset, &[7; BLOCK]).expect("granted"));
        }
        // Until its lease is over: before, it may act by the rights that it knows.
        let is_down = || String::from_utf8_lossy(&network.ask(1, &["server", "ls"]).stdout).contains("down");
        program::until("the others to go on without it", SOON, || is_down().then_some(()));
        program::signal_group(&network.servers[1], libc::SIGCONT);
    });
    network.ask(1, &["volume", "revoke", "v", "web"]).succeeded();
    assert!(client.write(0, &[8; BLOCK]).is_err() && client.read(0, BLOCK as u32).is_err());
    let mut direct = Nbd::open(&Address::Unix(network.socket(2)), "v").expect("it's served");
    assert_eq!(direct.read(0, BLOCK as u32).expect("there"), [7; BLOCK]);
    program::kill_group(&mut gateway);
    let tcp = Address::Tcp(network.addresses(1)["nbd"][1].as_str().expect("TCP").to_owned());
    assert_eq!(Door { address: &tcp, identity: &host }.list().expect("it's known"), Vec::<String>::new());
}

/// Story: an operator has every right until he is revoked, and his gateway's connections were looked at when they came, and never again.
#[test]
fn of_a_revoked_operators_gateway_nothing_is_applied() {
    let network = up(2);
    network.ask(1, &["volume", "create", "v", "--size", "8M", "--layout", "mirror:2"]).succeeded();
    network.wait_until_healthy("v");
    let operator = network.identity("boss", &["--operator"]);
    let (mut gateway, address) = network.gateway(&operator);
    let mut client = Nbd::open(&address, "v").expect("an operator's");
    client.write(0, &[7; BLOCK]).expect("an operator's");
    network.ask(1, &["identity", "revoke", "boss"]).succeeded();
    assert!(client.write(0, &[8; BLOCK]).is_err());
    let mut direct = Nbd::open(&Address::Unix(network.socket(2)), "v").expect("it's served");
    assert_eq!(direct.read(0, BLOCK as u32).expect("there"), [7; BLOCK]);
    program::kill_group(&mut gateway);
}

/// Whatever runs on the host: the servers that have the data hold the limits.
#[test]
fn a_gateway_is_held_to_the_limits_of_its_identity() {
    let network = up(1);
    network.ask(1, &["volume", "create", "v", "--size", "16M", "--layout", "stripe"]).succeeded();
    let host = network.identity("host", &[]);
    network.ask(1, &["volume", "grant", "v", "write", "host"]).succeeded();
    let (mut gateway, address) = network.gateway(&host);
    let mut volume = Nbd::open(&address, "v").expect("granted");
    let mut twenty = || {
        let began = std::time::Instant::now();
        (0..20).for_each(|_| volume.write(0, &[5; BLOCK]).expect("granted"));
        began.elapsed()
    };
    twenty();
    network.ask(1, &["identity", "limit", "host", "--iops", "10", "--iops-burst", "1"]).succeeded();
    let by_identity = twenty();
    assert!(by_identity >= Duration::from_millis(1900), "20 requests at 10 a second: {by_identity:?}");
    network.ask(1, &["identity", "limit", "host", "--iops", "none"]).succeeded();
    // The gateway itself holds the volume's.
    network.ask(1, &["volume", "limit", "v", "--iops", "10", "--iops-burst", "1"]).succeeded();
    program::until("the gateway to hold the limit", SOON, || (twenty() >= Duration::from_millis(1900)).then_some(()));
    network.ask(1, &["volume", "limit", "v", "--iops", "none"]).succeeded();
    program::until("the gateway to hold it no more", SOON, || (twenty() < Duration::from_millis(1900)).then_some(()));
    program::kill_group(&mut gateway);
}

/// A word in a file is all that a new machine needs.
#[test]
fn a_token_has_one_server_join_and_no_other() {
    let mut network = Network::new();
    network.start(&["--create", "t"]);
    let made = network.json(1, &["server", "token", "create", "--hours", "1"]);
    let token = made["token"].as_str().expect("a word").to_owned();
    let file = network.file("token");
    std::fs::write(&file, &token).expect("space");
    let by_token = ["--join-token".to_owned(), file.display().to_string()];
    let by_token: Vec<&str> = by_token.iter().map(String::as_str).collect();

    network.start(&by_token);
    let servers = || network.json(1, &["server", "ls"]);
    program::until("both to be up", SOON, || {
        servers().as_array()?.iter().all(|server| server["state"] == "up").then_some(())
    });
    assert_eq!(servers().as_array().map(Vec::len), Some(2));
    network.ask(1, &["volume", "create", "v", "--size", "16M", "--layout", "mirror:2"]).succeeded();
    let listed = network.json(1, &["server", "token", "ls"]);
    assert_eq!((&listed[0]["used"], listed.to_string().contains(&token)), (&Value::Bool(true), false));

    // The same server again, and another one.
    program::kill_group(&mut network.servers[1]);
    let peers = network.peers[1].clone();
    let _ = std::fs::remove_file(network.data(2).join("addresses.json"));
    network.servers[1] = program::spawn(&mut network.serve(2, &peers, &by_token));
    network.wait(2);
    assert!(!network.data(2).join("joining").exists(), "it has a certificate of its own");
    let (rest, secret) = token.rsplit_once('/').expect("a secret");
    let (servers, authority) = rest.rsplit_once('/').expect("an authority");
    let refused = |network: &Network, server: usize| {
        let ended = program::run(&mut network.serve(server, &free_address(), &by_token));
        assert!(!ended.stderr.contains(secret), "a secret in an error");
        ended.refused(1)
    };
    let said = refused(&network, 3);
    assert!(said.contains("another server has joined by this token"), "{said}");

    network.ask(1, &["server", "token", "rm", made["id"].as_str().expect("text")]).succeeded();
    let said = refused(&network, 4);
    assert!(said.contains("no server may join by this token"), "{said}");
    let other: String = authority.chars().map(|digit| if digit == '0' { '1' } else { '0' }).collect();
    std::fs::write(&file, format!("{servers}/{other}/{secret}")).expect("space");
    let said = refused(&network, 5);
    assert!(said.contains("isn't of the cluster that made the token"), "{said}");
    for server in 1..=2 {
        let log = std::fs::read_to_string(network.file(&format!("log{server}"))).expect("there");
        assert!(!log.contains(secret), "a secret in a log");
    }
}
