//! One server has the authority's key, and all serve over TLS.

use super::client::Door;
use crate::need;
use crate::program;
use crate::servers::ring::Ring;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);

#[test]
fn rights_hold_on_every_server_wherever_they_were_granted() {
    need!("qemu-io");
    let ring = Ring::up(3);
    ring.wait_until_all_are_up(1);
    ring.ask(1, &["volume", "create", "v", "--size", "16M", "--layout", "chained"]).succeeded();
    let folder = ring.scratch_file("web");
    ring.ask(2, &["identity", "create", "web", "--to", folder.to_str().expect("text")]).succeeded();
    ring.ask(3, &["volume", "grant", "v", "write", "web"]).succeeded();
    let writes = |server: u32| {
        let said = Door { address: &ring.address(server), identity: &folder }.io("v", &[], &["write -P 5 0 64k"]);
        let text = format!("{said}");
        said.status.success() && text.contains("wrote") && !text.contains("failed")
    };
    for server in 1..=3 {
        program::until("the server to serve over TLS", SOON, || writes(server).then_some(()));
    }
    // The one that has the key is away: others go on, also after a restart, and say who it is.
    ring.kill(2);
    ring.wait_for_state(1, 2, "down");
    ring.stop(3);
    ring.dev(&["start", "s3"]).succeeded();
    program::until("the server to serve over TLS", SOON, || writes(3).then_some(()));
    let refused = ring.ask(1, &["identity", "create", "other"]).refused(1);
    assert!(refused.contains("s2"), "{refused}");
    ring.ask(1, &["volume", "revoke", "v", "web"]).succeeded();
    assert!(!writes(1) && !writes(3));
    ring.dev(&["start", "s2"]).succeeded();
    ring.wait_until_all_are_up(1);
    ring.ask(1, &["identity", "create", "other"]).succeeded();
}
