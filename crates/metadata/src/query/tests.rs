use super::*;
use crate::database;
use crate::scratch::Scratch;
use std::path::PathBuf;

fn scratch() -> (Scratch, PathBuf) {
    let scratch = Scratch::new();
    state_machine::create(scratch.path()).unwrap();
    let file = scratch.path().join(state_machine::FILE);
    let writer = database::open(&file, state_machine::KIND).unwrap();
    writer.execute_batch("INSERT INTO pools VALUES ('a', NULL), ('b', 'mirror:2')").unwrap();
    // Stays in WAL mode, with its files there, as beside a running server.
    std::mem::forget(writer);
    (scratch, file)
}

/// The time is one that no machine is too slow for.
fn limits() -> QueryLimits {
    QueryLimits { rows: 100, bytes: 100_000, time: Duration::from_secs(600) }
}

#[test]
fn a_query_gives_columns_and_typed_values() {
    let (_scratch, file) = scratch();
    let rows = run(&file, "SELECT name, layout, 1 AS one, 0.5, x'ff' FROM pools ORDER BY name", limits()).unwrap();
    assert_eq!(rows.columns, ["name", "layout", "one", "0.5", "x'ff'"]);
    let row = |name: &str, layout| {
        vec![Value::Text(name.to_owned()), layout, Value::Integer(1), Value::Real(0.5), Value::Blob(vec![255])]
    };
    assert_eq!(rows.rows, [row("a", Value::Null), row("b", Value::Text("mirror:2".to_owned()))]);
}

#[test]
fn tables_can_be_described() {
    let (_scratch, file) = scratch();
    for sql in ["PRAGMA table_info(volumes)", "SELECT name FROM pragma_table_info('volumes')", "PRAGMA table_list"] {
        let rows = run(&file, sql, limits()).unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert!(!rows.rows.is_empty(), "{sql}");
    }
}

#[test]
fn what_is_not_reading_these_tables_is_refused() {
    let (scratch, file) = scratch();
    let copy = scratch.path().join("copy").display().to_string();
    for sql in [
        "DELETE FROM pools",
        "INSERT INTO pools VALUES ('c', NULL)",
        "CREATE TEMP TABLE t (a)",
        "DROP TABLE pools",
        "BEGIN IMMEDIATE",
        "PRAGMA journal_mode=DELETE",
        "PRAGMA query_only=OFF",
        "PRAGMA writable_schema=ON",
        "PRAGMA wal_checkpoint",
        "PRAGMA database_list",
        "ATTACH '/etc/passwd' AS other",
        "SELECT load_extension('x')",
        "SELECT 1; DELETE FROM pools",
        "REINDEX",
        "ANALYZE",
        &format!("VACUUM INTO '{copy}'"),
    ] {
        let outcome = run(&file, sql, limits());
        assert!(matches!(outcome, Err(QueryError::NotReading)), "{sql}: {outcome:?}");
    }
    assert!(!scratch.path().join("copy").exists());
    assert_eq!(run(&file, "SELECT * FROM pools", limits()).unwrap().rows.len(), 2);
}

#[test]
fn a_query_that_is_not_right_says_why() {
    let (_scratch, file) = scratch();
    for sql in ["SELEC 1", "SELECT * FROM nothing", "SELECT 'open", "", "  -- nothing", "\0", "SELECT é FROM"] {
        let outcome = run(&file, sql, limits());
        assert!(matches!(outcome, Err(QueryError::Invalid(_))), "{sql}: {outcome:?}");
    }
}

#[test]
fn a_query_uses_no_more_than_its_limits() {
    let (_scratch, file) = scratch();
    let count = |n: u64| format!("WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c WHERE n < {n}) ");
    for sql in [
        count(101) + "SELECT n FROM c",
        count(50) + "SELECT hex(zeroblob(2000)) FROM c",
        "SELECT zeroblob(1000000000)".to_owned(),
        count(100_000) + "SELECT group_concat(n) FROM c",
    ] {
        let outcome = run(&file, &sql, limits());
        assert!(matches!(outcome, Err(QueryError::TooMuch { .. })), "{sql}: {outcome:?}");
    }
    assert_eq!(run(&file, &(count(100) + "SELECT n FROM c"), limits()).unwrap().rows.len(), 100);

    // This one would take years.
    let short = QueryLimits { time: Duration::from_millis(20), ..limits() };
    let outcome = run(&file, &(count(u64::MAX >> 1) + "SELECT count(*) FROM c"), short);
    assert!(matches!(outcome, Err(QueryError::TooLong(_))), "{outcome:?}");
}
