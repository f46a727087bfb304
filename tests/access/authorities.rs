//! Who signs certificates: authorities of others, and one of the cluster that takes the place of another.

use super::client::Door;
use super::rights::{cluster, identity, tcp};
use crate::cluster::Cluster;
use crate::nbd::Nbd;
use crate::need;
use crate::program;
use crate::servers::ring::Ring;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

/// An authority that isn't the cluster's.
struct Other {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// From which year to which certificates count that do now.
const COUNTS: (i32, i32) = (2020, 2090);

fn named(name: &str) -> DistinguishedName {
    let mut named = DistinguishedName::new();
    named.push(DnType::OrganizationName, "Example");
    named.push(DnType::CommonName, name);
    named
}

impl Other {
    fn new(name: &str) -> Other {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (params.not_before, params.not_after) = (date_time_ymd(COUNTS.0, 1, 1), date_time_ymd(COUNTS.1, 1, 1));
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Other { issuer: Issuer::new(params, key), pem }
    }

    /// One that it has certified, below it.
    fn intermediate(&self, name: &str) -> Other {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        (params.not_before, params.not_after) = (date_time_ymd(COUNTS.0, 1, 1), date_time_ymd(COUNTS.1, 1, 1));
        let key = KeyPair::generate().expect("a key");
        let pem = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Other { issuer: Issuer::new(params, key), pem }
    }

    /// The folder of somebody's files, of whom clients of this cluster know who its servers are.
    fn certify(
        &self,
        cluster: &Cluster,
        (folder, subject): (&str, &str),
        years: (i32, i32),
        purpose: ExtendedKeyUsagePurpose,
    ) -> PathBuf {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(subject);
        params.extended_key_usages = vec![purpose];
        (params.not_before, params.not_after) = (date_time_ymd(years.0, 1, 1), date_time_ymd(years.1, 1, 1));
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        let folder = cluster.folder().join(folder);
        std::fs::create_dir(&folder).expect("space");
        // QEMU looks who has signed the own certificate, too.
        let believed = std::fs::read_to_string(cluster.folder().join("own/ca-cert.pem")).expect("the cluster's");
        std::fs::write(folder.join("ca-cert.pem"), believed + &self.pem).expect("space");
        std::fs::write(folder.join("client-cert.pem"), certificate).expect("space");
        std::fs::write(folder.join("client-key.pem"), key.serialize_pem()).expect("space");
        folder
    }

    fn person(&self, cluster: &Cluster, folder: &str, subject: &str) -> PathBuf {
        self.certify(cluster, (folder, subject), COUNTS, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn add(&self, cluster: &Cluster, name: &str) {
        let file = cluster.folder().join(format!("{name}.pem"));
        std::fs::write(&file, &self.pem).expect("space");
        cluster.tepal(&["identity", "ca", "add", name, file.to_str().expect("text")]).succeeded();
    }
}

/// One that serves over TLS, to which the identity in `own` comes.
fn serving() -> Cluster {
    let cluster = cluster();
    let own = identity(&cluster, "own", &[]);
    program::until("the server to have a certificate", SOON, || listed(&cluster, &own).ok());
    cluster
}

fn listed(cluster: &Cluster, identity: &Path) -> Result<Vec<String>, String> {
    Door { address: &tcp(cluster), identity }.list()
}

#[test]
fn a_person_of_another_authority_has_the_rights_of_its_subject() {
    need!("nbdinfo", "qemu-io");
    let cluster = serving();
    let corp = Other::new("Example authority");
    let (ann, eve) = (corp.person(&cluster, "ann", "Ann Example"), corp.person(&cluster, "eve", "Eve Example"));
    listed(&cluster, &ann).expect_err("nobody believes that authority");
    corp.add(&cluster, "corp");
    listed(&cluster, &ann).expect_err("nobody is Ann yet");
    let known = ["--authority", "corp", "--subject", "Ann Example", "--group", "lab"];
    cluster.tepal(&[&["identity", "create", "ann"], &known[..]].concat()).succeeded();
    assert_eq!(listed(&cluster, &ann).expect("she's known"), Vec::<String>::new());
    cluster.tepal(&["volume", "grant", "v", "write", "@lab"]).succeeded();
    assert_eq!(listed(&cluster, &ann).expect("she's known"), ["v"]);
    let written = Door { address: &tcp(&cluster), identity: &ann }.io("v", &[], &["write -P 7 0 4k"]);
    assert!(format!("{written}").contains("wrote 4096/4096"), "{written}");
    listed(&cluster, &eve).expect_err("another subject of the same authority");
    let shown = cluster.ask(&["identity", "ls"]);
    let ann_shown = shown.as_array().and_then(|all| all.iter().find(|one| one["name"] == "ann")).expect("listed");
    assert_eq!(ann_shown["outside"], serde_json::json!({"authority": "corp", "subject": "Ann Example"}));
    cluster.tepal(&["identity", "renew", "ann"]).refused(1);
    cluster.tepal(&["identity", "revoke", "ann"]).succeeded();
    listed(&cluster, &ann).expect_err("she's revoked");
}

#[test]
fn certificates_that_do_not_count_are_refused_whoever_they_name() {
    need!("nbdinfo");
    let cluster = serving();
    let (corp, other) = (Other::new("Example authority"), Other::new("Example authority"));
    corp.add(&cluster, "corp");
    cluster.tepal(&["identity", "create", "ann", "--authority", "corp", "--subject", "Ann"]).succeeded();
    cluster.tepal(&["volume", "grant", "v", "read", "ann"]).succeeded();
    let client = || ExtendedKeyUsagePurpose::ClientAuth;
    listed(&cluster, &corp.person(&cluster, "right", "Ann")).expect("this one counts");
    for (told, folder) in [
        ("expired", corp.certify(&cluster, ("expired", "Ann"), (2020, 2021), client())),
        ("not yet valid", corp.certify(&cluster, ("early", "Ann"), (2089, 2090), client())),
        ("of another authority of the same name", other.person(&cluster, "wrong", "Ann")),
        ("for a server", corp.certify(&cluster, ("server", "Ann"), COUNTS, ExtendedKeyUsagePurpose::ServerAuth)),
    ] {
        listed(&cluster, &folder).expect_err(told);
    }
    // Its authority makes nobody a server, nor an identity of the cluster.
    let claims = corp.person(&cluster, "claims", "server-s1");
    listed(&cluster, &claims).expect_err("a name alone is nobody");
    cluster.tepal(&["identity", "create", "s9", "--server", "--authority", "corp", "--subject", "x"]).refused(2);
}

#[test]
fn a_chain_through_an_authority_between_counts() {
    need!("nbdinfo");
    let cluster = serving();
    let root = Other::new("Example root");
    let between = root.intermediate("Example department");
    root.add(&cluster, "root");
    cluster.tepal(&["identity", "create", "ann", "--operator", "--authority", "root", "--subject", "Ann"]).succeeded();
    let ann = between.person(&cluster, "ann", "Ann");
    listed(&cluster, &ann).expect_err("nothing leads to the root");
    let own = std::fs::read_to_string(ann.join("client-cert.pem")).expect("there");
    std::fs::write(ann.join("client-cert.pem"), own + &between.pem).expect("space");
    assert_eq!(listed(&cluster, &ann).expect("it leads to the root"), ["v", "w"]);
}

#[test]
fn an_authority_that_is_removed_takes_its_people_along() {
    need!("nbdinfo");
    let mut cluster = serving();
    let corp = Other::new("Example authority");
    corp.add(&cluster, "corp");
    cluster.tepal(&["identity", "create", "ann", "--operator", "--authority", "corp", "--subject", "Ann"]).succeeded();
    let ann = corp.person(&cluster, "ann", "Ann");
    listed(&cluster, &ann).expect("she's known");
    cluster.kill();
    cluster.start();
    program::until("the server to serve her after a restart", SOON, || listed(&cluster, &ann).ok());
    cluster.tepal(&["identity", "ca", "rm", "corp"]).succeeded();
    listed(&cluster, &ann).expect_err("her authority is gone");
    assert!(!cluster.tepal(&["identity", "ls"]).succeeded().contains("ann"));
    listed(&cluster, &cluster.folder().join("own")).expect("others go on");
    let file = cluster.folder().join("no.pem");
    std::fs::write(&file, "no certificate").expect("space");
    cluster.tepal(&["identity", "ca", "add", "x", file.to_str().expect("text")]).refused(1);
}

/// Over several servers, with a client that writes all the time by the certificate that it had, and one that comes again and again.
#[test]
fn an_authority_takes_the_place_of_another_and_nobody_waits() {
    need!("qemu-io", "qemu-nbd");
    let ring = Ring::up(3);
    ring.wait_until_all_are_up(1);
    ring.ask(1, &["volume", "create", "v", "--size", "16M", "--layout", "chained"]).succeeded();
    let made = |command: &str, to: &str| {
        let folder = ring.scratch_file(to);
        ring.ask(2, &["identity", command, "web", "--to", folder.to_str().expect("text")]).succeeded();
        folder
    };
    let old = made("create", "old");
    ring.ask(1, &["volume", "grant", "v", "write", "web"]).succeeded();
    let reads = |server: u32, identity: &Path| {
        let said = Door { address: &ring.address(server), identity }.io("v", &["-r"], &["read 0 4k"]);
        said.status.success() && format!("{said}").contains("read 4096/4096")
    };
    for server in 1..=3 {
        program::until("the server to serve over TLS", SOON, || reads(server, &old).then_some(()));
    }
    let address = ring.address(1);
    let through = Door { address: &address, identity: &old }.through_qemu("v", ring.scratch_file("qemu.sock"));
    let mut client = through.connect();
    let (is_over, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let come = |client: &mut Nbd| {
        while !is_over.load(Ordering::Relaxed) {
            client.write(written.load(Ordering::Relaxed) % 1024 * 4096, &[7; 4096]).expect("it may write");
            written.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| come(&mut client));
        ring.ask(3, &["identity", "ca", "rotate"]).succeeded();
        for server in 1..=3 {
            assert!(reads(server, &old), "both authorities count");
        }
        let new = made("renew", "new");
        for server in 1..=3 {
            assert!(reads(server, &new), "whoever has the new one is let in, by a server of the old");
        }
        ring.ask(1, &["identity", "ca", "finish"]).succeeded();
        for server in 1..=3 {
            assert!(reads(server, &new), "servers are of the new one");
            assert!(!reads(server, &old), "the old one counts no more");
        }
        let before = written.load(Ordering::Relaxed);
        program::until("it to write on", SOON, || (written.load(Ordering::Relaxed) > before + 100).then_some(()));
        is_over.store(true, Ordering::Relaxed);
    });
    // The servers know each other by it too, also after a restart.
    ring.stop(2);
    ring.dev(&["start", "s2"]).succeeded();
    ring.wait_until_all_are_up(1);
    ring.ask(2, &["identity", "create", "more"]).succeeded();
    ring.ask(1, &["identity", "ca", "finish"]).refused(1);
}

#[test]
fn an_authority_stays_while_a_server_has_no_other_certificate() {
    let ring = Ring::up(3);
    ring.wait_until_all_are_up(1);
    ring.ask(1, &["identity", "create", "web"]).succeeded();
    ring.ask(1, &["identity", "ca", "rotate"]).succeeded();
    ring.kill(3);
    ring.wait_for_state(1, 3, "down");
    let said = ring.ask(1, &["identity", "ca", "finish"]).refused(1);
    assert!(said.contains("s3"), "{said}");
    ring.dev(&["start", "s3"]).succeeded();
    ring.wait_until_all_are_up(1);
    program::until("the server to have another one", SOON, || {
        ring.ask(1, &["identity", "ca", "finish"]).status.success().then_some(())
    });
}
