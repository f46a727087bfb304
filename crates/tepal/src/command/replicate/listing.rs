//! `tepal replicate ls`: replicas here, and replications that run.

use super::link::now_ms;
use crate::cli::Global;
use crate::command::CommandError;
use crate::locate;
use crate::output::{self, Outcome, Output};
use serde::Serialize;
use tepal_server::api::types::{Range, Replication, ReplicationRole, VolumeInfo, route};

#[derive(Debug, Serialize)]
struct Row {
    volume: String,
    role: ReplicationRole,
    /// The other volume.
    other: String,
    /// The newest whole snapshot here, if this is the replica.
    newest: Option<String>,
    as_of_unix_ms: Option<u64>,
    /// The age of what the replica holds.
    lag_seconds: Option<u64>,
    /// What was written to the source since then; none while no replication runs that says so.
    lag_bytes: Option<u64>,
    /// Whether a replication says that it runs: of the replica, only while it's written to.
    running: bool,
    bytes_per_second: u64,
    /// How far the round is, of so many bytes of the volume.
    round: Option<Range>,
    error: Option<String>,
}

pub fn list(global: &Global, output: Output, only: Option<&str>) -> Result<Outcome, CommandError> {
    let client = locate::client(global)?;
    let volumes: Vec<VolumeInfo> = client.get(route::VOLUMES)?;
    let running: Vec<Replication> = client.get(route::REPLICATIONS)?;
    let volumes = volumes.iter().filter(|volume| only.is_none_or(|only| volume.name == only));
    let rows: Vec<Row> = volumes.flat_map(|volume| rows(volume, &running, now_ms())).collect();
    output.show(&rows, |rows| table(rows))?;
    Ok(Outcome::Done)
}

fn rows(volume: &VolumeInfo, running: &[Replication], now: u64) -> Vec<Row> {
    let of_it = |role| running.iter().filter(move |it| it.volume_id == volume.id && it.role == role);
    let row = |role, other: String, as_of: u64, said: Option<&Replication>| {
        let as_of_unix_ms = Some(as_of).filter(|as_of| *as_of > 0);
        Row {
            volume: volume.name.clone(),
            role,
            other,
            newest: None,
            as_of_unix_ms,
            lag_seconds: as_of_unix_ms.map(|as_of| now.saturating_sub(as_of) / 1000),
            lag_bytes: said.and_then(|said| said.lag_bytes),
            running: said.is_some(),
            bytes_per_second: said.map_or(0, |said| said.bytes_per_second),
            round: said.and_then(|said| said.round),
            error: said.and_then(|said| said.error.clone()),
        }
    };
    let sources = of_it(ReplicationRole::Source)
        .map(|said| row(ReplicationRole::Source, said.other.clone(), said.as_of_unix_ms, Some(said)));
    let replica = volume.replica.as_ref().map(|replica| {
        let said = of_it(ReplicationRole::Replica).next();
        let newest = volume.snapshots.iter().find(|snapshot| Some(snapshot.epoch) == replica.base);
        let part = volume.incomplete.map(|part| Range { offset: part.done, length: volume.size });
        let row = row(ReplicationRole::Replica, replica.called.clone(), replica.as_of_unix_ms, said);
        Row { newest: newest.map(|it| it.name.clone()), round: row.round.or(part), ..row }
    });
    sources.chain(replica).collect()
}

fn table(rows: &[Row]) -> String {
    let row = |row: &Row| {
        let round = row.round.map(|round| {
            let percent = round.offset as f64 * 100.0 / round.length.max(1) as f64;
            format!("{percent:.0}% of {}", output::size(round.length))
        });
        vec![
            row.volume.clone(),
            match row.role {
                ReplicationRole::Source => "sent to".to_owned(),
                ReplicationRole::Replica => "replica of".to_owned(),
            },
            row.other.clone(),
            row.newest.clone().unwrap_or_default(),
            row.lag_seconds.map_or("-".to_owned(), |seconds| format!("{seconds} s")),
            row.lag_bytes.map_or("-".to_owned(), output::size),
            round.unwrap_or_default(),
            if row.bytes_per_second > 0 { output::size(row.bytes_per_second) + "/s" } else { String::new() },
            row.error.clone().unwrap_or_default(),
        ]
    };
    let columns = ["volume", "role", "other", "newest", ">lag", ">bytes", "round", ">rate", "error"];
    output::table(&columns, rows.iter().map(row))
}
