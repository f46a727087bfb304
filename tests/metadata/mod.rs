//! The cluster's metadata: read with standard SQL while the server runs and after, and when it can't be written.

mod without_room;

use crate::cluster::Plan;
use crate::need;
use crate::program::{command, run};
use serde_json::json;

#[test]
fn metadata_is_read_with_sqlite3_and_by_tepal_sql_and_changed_by_neither() {
    need!("sqlite3");
    let mut cluster = Plan::default().up();
    cluster.create("v0", "4M", "mirror:2");
    let query = "select name, size, layout from volumes";
    let database = format!("file:{}?mode=ro", cluster.data().join("cluster.db").display());
    let sqlite3 = || run(&mut command("sqlite3", ["-json", &database, query])).succeeded();
    let wanted = json!([{ "name": "v0", "size": 4 << 20, "layout": "mirror:2" }]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&sqlite3()).expect("JSON"), wanted);
    assert!(cluster.tepal(&["sql", query]).succeeded().contains("v0"));
    for hostile in [
        "delete from volumes",
        "drop table volumes",
        "update volumes set size = 1",
        "select 1; delete from volumes",
        "pragma journal_mode = delete",
        "attach '/dev/shm/x' as x",
        "select * from nowhere",
        "",
    ] {
        cluster.tepal(&["sql", hostile]).refused(1);
    }
    cluster.stop();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&sqlite3()).expect("JSON"), wanted);
}
