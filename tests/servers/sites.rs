//! Servers that say where they are: copies at different sites.

use super::ring::Ring;
use serde_json::{Value, json};

fn move_to(ring: &Ring, server: u32, site: &str) {
    ring.kill(server);
    ring.start_with(server, &["--site", site]);
    ring.wait_until_all_are_up(1);
    ring.wait_until("all to know", || site_of(ring, 1, server) == site && site_of(ring, 3, server) == site);
}

fn site_of(ring: &Ring, seen_by: u32, server: u32) -> Value {
    ring.json(seen_by, &["server", "show", &format!("s{server}")])["site"].clone()
}

fn create(ring: &Ring, volume: &str, layout: &str) -> crate::program::Ended {
    ring.ask(2, &["volume", "create", volume, "--size", "8M", "--layout", layout])
}

#[test]
fn servers_say_at_their_start_where_they_are_and_copies_are_put_at_different_sites() {
    let ring = Ring::up(4);
    ring.wait_until_all_are_up(1);
    let refused = create(&ring, "v", "mirror:2;domain=site").refused(1);
    assert!(refused.contains("--site"), "{refused}");
    for (server, site) in [(1, "attic"), (2, "attic"), (3, "cellar"), (4, "cellar")] {
        move_to(&ring, server, site);
    }
    ring.wait_until_drives_are_up(1);
    let refused = create(&ring, "v", "mirror:3;domain=site").refused(1);
    assert!(refused.contains("keeps 3 copies on different sites, and there are 2"), "{refused}");
    create(&ring, "v", "mirror:2;domain=site").succeeded();
    let volume = ring.json(3, &["volume", "show", "v"]);
    assert_eq!(volume["domain"], "site", "{volume}");
    let shown = ring.ask(1, &["volume", "show", "v"]).succeeded();
    assert!(shown.contains("on different sites"), "{shown}");
    let columns = "SELECT count(DISTINCT site) AS sites, count(*) AS copies FROM map_columns
        JOIN drives ON drives.id = drive JOIN servers ON servers.id = drives.server GROUP BY map, \"column\"";
    let columns = ring.json(2, &["sql", columns]);
    let columns = columns["rows"].as_array().expect("a list");
    assert!(columns.len() >= 4, "{columns:?}");
    assert!(columns.iter().all(|column| *column == json!([2, 2])), "{columns:?}");

    // One that isn't told again is where it was.
    ring.kill(4);
    ring.start(&[4]);
    ring.wait_until_all_are_up(1);
    assert_eq!(site_of(&ring, 1, 4), "cellar");
    move_to(&ring, 4, "attic");
    ring.wait_until("the volume to say so", || ring.json(1, &["volume", "show", "v"])["domain"] == "server");
}
