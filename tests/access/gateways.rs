//! Gateways on other machines that serve clients over TLS.

use super::client::Door;
use super::rights::{cluster, identity};
use crate::cluster::{Cluster, tepal};
use crate::nbd::{Address, Nbd};
use crate::need;
use crate::program;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

struct Gateway {
    process: Child,
    address: Address,
    log: PathBuf,
}

impl Drop for Gateway {
    fn drop(&mut self) {
        program::kill_group(&mut self.process);
    }
}

fn api(cluster: &Cluster) -> String {
    let told: serde_json::Value =
        serde_json::from_slice(&std::fs::read(cluster.data().join("addresses.json")).expect("it runs")).expect("JSON");
    told["api"].as_str().expect("an address").to_owned()
}

fn command(cluster: &Cluster, identity: &Path, listen: &str) -> Command {
    let mut command = Command::new(tepal());
    command.env_remove("TEPAL_CLUSTER").env_remove("TEPAL_TOKEN").env_remove("TEPAL_IDENTITY");
    command.arg("--identity").arg(identity).args(["--cluster", &api(cluster)]);
    command.args(["gateway", "--require-tls", "--listen", listen]);
    command
}

impl Gateway {
    fn start(cluster: &Cluster, identity: &Path) -> Gateway {
        let address = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").to_string();
        let log = cluster.folder().join("gateway.log");
        let mut command = command(cluster, identity, &address);
        command.stderr(std::fs::File::create(&log).expect("space"));
        let gateway = Gateway { process: program::spawn(&mut command), address: Address::Tcp(address.clone()), log };
        program::until("the gateway to serve", SOON, || std::net::TcpStream::connect(&address).ok());
        gateway
    }

    fn list(&self, identity: &Path) -> Result<Vec<String>, String> {
        Door { address: &self.address, identity }.list()
    }
}

/// With a host `gate`, which may write to both volumes, and whose certificate names where its gateway is.
fn with_host() -> (Cluster, PathBuf) {
    let cluster = cluster();
    let gate = identity(&cluster, "gate", &["--address", "127.0.0.1"]);
    for volume in ["v", "w"] {
        cluster.tepal(&["volume", "grant", volume, "write", "gate"]).succeeded();
    }
    let address = super::rights::tcp(&cluster);
    program::until("the server to have a certificate", SOON, || {
        Door { address: &address, identity: &gate }.list().ok()
    });
    (cluster, gate)
}

#[test]
fn clients_of_a_gateway_have_their_own_rights_within_its_own() {
    need!("nbdinfo", "qemu-io", "qemu-nbd");
    let (cluster, gate) = with_host();
    cluster.create("hidden", "4M", "stripe");
    let [web, root] = [("web", &[][..]), ("root", &["--operator"])].map(|(name, more)| identity(&cluster, name, more));
    let gateway = Gateway::start(&cluster, &gate);
    assert_eq!(gateway.list(&root).expect("an operator has what the gateway has"), ["v", "w"]);
    gateway.list(&web).expect_err("it has no right to anything there");
    cluster.tepal(&["volume", "grant", "v", "read", "web"]).succeeded();
    cluster.tepal(&["volume", "grant", "hidden", "write", "web"]).succeeded();
    let told = program::until("the gateway to hear of it", SOON, || gateway.list(&web).ok());
    assert_eq!(told, ["v"]);
    let door = Door { address: &gateway.address, identity: &web };
    let written = format!("{}", door.io("v", &[], &["write -P 7 0 4k"]));
    assert!(!written.contains("wrote 4096/4096"), "{written}");
    cluster.tepal(&["volume", "grant", "v", "write", "web"]).succeeded();
    program::until("the gateway to hear of it", SOON, || {
        format!("{}", door.io("v", &[], &["write -P 7 0 4k"])).contains("wrote 4096/4096").then_some(())
    });
    assert_eq!(cluster.connect("v").read(0, 4096).expect("there"), [7; 4096]);
    let through = door.through_qemu("v", cluster.folder().join("qemu.sock"));
    let mut client = through.connect();
    client.write(4096, &[9; 4096]).expect("it may");
    cluster.tepal(&["identity", "revoke", "web"]).succeeded();
    program::until("the gateway to hear of it", SOON, || client.write(4096, &[1; 4096]).is_err().then_some(()));
    gateway.list(&web).expect_err("it's nobody any more");
    // What the gateway itself may not do any more, none of its clients may.
    let through =
        Door { address: &gateway.address, identity: &root }.through_qemu("w", cluster.folder().join("r.sock"));
    let mut client = through.connect();
    client.write(0, &[3; 4096]).expect("it may");
    cluster.tepal(&["volume", "revoke", "w", "gate"]).succeeded();
    assert!(client.write(0, &[4; 4096]).is_err());
    assert!(!std::fs::read_to_string(&gateway.log).expect("there").contains("panicked"));
}

#[test]
fn without_tls_a_gateway_that_wants_it_tells_nothing() {
    need!("nbdinfo");
    let (cluster, gate) = with_host();
    let gateway = Gateway::start(&cluster, &gate);
    for volume in ["v", "nothing", ""] {
        assert!(Nbd::open(&gateway.address, volume).is_err());
    }
    assert!(Nbd::list(&gateway.address).is_err());
    let stranger = super::rights::cluster();
    let other = identity(&stranger, "root", &["--operator"]);
    std::fs::copy(gate.join("ca-cert.pem"), other.join("ca-cert.pem")).expect("space");
    gateway.list(&other).expect_err("it's of another cluster");
}

#[test]
fn a_gateway_for_other_machines_must_be_known_by_its_certificate() {
    let (cluster, _) = with_host();
    let nameless = identity(&cluster, "nameless", &[]);
    let said = program::run(&mut command(&cluster, &nameless, "127.0.0.1:0"));
    assert!(!said.status.success() && format!("{said}").contains("--address"), "{said}");
    let mut open = Command::new(tepal());
    open.arg("--dir").arg(cluster.data()).args(["gateway", "--listen", "0.0.0.0:0"]);
    let said = program::run(&mut open);
    assert!(!said.status.success() && format!("{said}").contains("--insecure"), "{said}");
}
