//! What was done in a second, from what was counted before and after it.
//!
//! Counts begin anew when a server or gateway is started, a drive is opened or a volume is served anew. A count that is less than before
//! tells only what came since then.

use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tepal_server::api::types::{Counters, OperationCounters, OperationSum};

/// Operations of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Speed {
    /// In a second.
    pub iops: f64,
    /// In a second.
    #[serde(rename = "bytes_per_second")]
    pub bytes: f64,
    /// How long one took, on average; 0 if there was none.
    #[serde(rename = "latency_micros")]
    pub micros: f64,
}

/// All operations of one thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Load {
    pub reads: Speed,
    pub writes: Speed,
    pub flushes: Speed,
    pub discards: Speed,
    /// Of all kinds, in a second.
    #[serde(rename = "errors_per_second")]
    pub errors: f64,
}

impl Load {
    fn all(&self) -> [&Speed; 4] {
        [&self.reads, &self.writes, &self.flushes, &self.discards]
    }

    pub fn iops(&self) -> f64 {
        self.all().iter().map(|speed| speed.iops).sum()
    }

    pub fn bytes(&self) -> f64 {
        self.reads.bytes + self.writes.bytes
    }

    pub fn longest_micros(&self) -> f64 {
        self.all().iter().map(|speed| speed.micros).fold(0.0, f64::max)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What it is: a volume's or drive's id until it's replaced by a name.
    pub name: String,
    #[serde(flatten)]
    pub load: Load,
}

pub type Rows = Vec<Row>;

/// What was done between two answers. Who wasn't there before has no row yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Round {
    pub seconds: f64,
    /// Of all clients.
    pub cluster: Load,
    pub volumes: Rows,
    /// By where clients are connected: `gateways` are all those outside servers.
    pub servers: Rows,
    pub drives: Rows,
}

/// What was counted of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    count: u64,
    micros: u64,
    bytes: u64,
    errors: u64,
}

impl Count {
    fn add(&mut self, other: Count) {
        self.count += other.count;
        self.micros += other.micros;
        self.bytes += other.bytes;
        self.errors += other.errors;
    }

    fn since(self, before: Count) -> Count {
        let has_begun_anew = self.count < before.count;
        let before = if has_begun_anew { Count::default() } else { before };
        Count {
            count: self.count - before.count,
            micros: self.micros.saturating_sub(before.micros),
            bytes: self.bytes.saturating_sub(before.bytes),
            errors: self.errors.saturating_sub(before.errors),
        }
    }
}

/// By operation.
type Counts = BTreeMap<String, Count>;

fn of_sums(sums: &[OperationSum]) -> Counts {
    let count = |sum: &OperationSum| {
        let OperationSum { count, micros, bytes, errors, .. } = *sum;
        (sum.operation.clone(), Count { count, micros, bytes, errors })
    };
    sums.iter().map(count).collect()
}

fn of_counters(counters: &[OperationCounters]) -> Counts {
    let count = |of: &OperationCounters| {
        let count = Count { count: of.buckets.iter().sum(), micros: of.micros, bytes: of.bytes, errors: of.errors };
        (of.operation.clone(), count)
    };
    counters.iter().map(count).collect()
}

/// By who counted and what was counted: what each has done since is added up afterwards, as each may begin anew by itself.
type Counted = BTreeMap<(String, String), Counts>;

fn volumes(counters: &Counters) -> Counted {
    let servers = counters.servers.iter().map(|one| (one.server.to_string(), &one.volumes));
    let gateways = counters.gateways.iter().map(|one| (format!("gateway {}", one.gateway), &one.volumes));
    let each = servers.chain(gateways).flat_map(|(who, volumes)| {
        volumes.iter().map(move |of| ((who.clone(), of.volume_id.to_string()), of_sums(&of.requests)))
    });
    each.collect()
}

fn servers(counters: &Counters) -> Counted {
    let of = |who: String, name: String, requests: &[OperationCounters]| ((who, name), of_counters(requests));
    let servers = counters.servers.iter().map(|one| of(one.server.to_string(), one.server.to_string(), &one.requests));
    let gateways = counters
        .gateways
        .iter()
        .map(|one| of(format!("gateway {}", one.gateway), "gateways".to_owned(), &one.requests));
    servers.chain(gateways).collect()
}

fn drives(counters: &Counters) -> Counted {
    let each = counters
        .servers
        .iter()
        .flat_map(|one| one.drives.iter().map(|of| ((one.server.to_string(), of.drive.to_string()), of_sums(&of.io))));
    each.collect()
}

/// What each thing has done since, whoever counted it.
fn done(before: &Counted, after: &Counted) -> BTreeMap<String, Counts> {
    let mut all: BTreeMap<String, Counts> = BTreeMap::new();
    for (key, counts) in after {
        let sum = all.entry(key.1.clone()).or_default();
        for (operation, count) in counts {
            // What appears with its first operations had none before. Whoever comes with a past isn't known well enough.
            let earlier = before.get(key).and_then(|counts| counts.get(operation)).copied();
            let who_is_new = !before.keys().any(|known| known.0 == key.0);
            let earlier = earlier.unwrap_or(if who_is_new { *count } else { Count::default() });
            sum.entry(operation.clone()).or_default().add(count.since(earlier));
        }
    }
    all
}

fn load(counts: &Counts, seconds: f64) -> Load {
    let speed = |operation: &str| {
        let Count { count, micros, bytes, .. } = counts.get(operation).copied().unwrap_or_default();
        let micros = if count > 0 { micros as f64 / count as f64 } else { 0.0 };
        Speed { iops: count as f64 / seconds, bytes: bytes as f64 / seconds, micros }
    };
    Load {
        reads: speed("read"),
        writes: speed("write"),
        flushes: speed("flush"),
        discards: speed("discard"),
        errors: counts.values().map(|count| count.errors).sum::<u64>() as f64 / seconds,
    }
}

impl Round {
    pub fn between(before: &Counters, after: &Counters, time: Duration) -> Round {
        let seconds = time.as_secs_f64().max(1e-3);
        let rows = |of: fn(&Counters) -> Counted| {
            let all = done(&of(before), &of(after));
            all.into_iter().map(|(name, counts)| Row { name, load: load(&counts, seconds) }).collect()
        };
        let mut all = Counts::new();
        for counts in done(&servers(before), &servers(after)).into_values() {
            counts.into_iter().for_each(|(operation, count)| all.entry(operation).or_default().add(count));
        }
        Round {
            seconds,
            cluster: load(&all, seconds),
            volumes: rows(volumes),
            servers: rows(servers),
            drives: rows(drives),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tepal_model::ServerId;
    use tepal_server::api::types::{GatewayCounters, ServerCounters, VolumeCounters};

    fn sum(count: u64) -> OperationSum {
        OperationSum { operation: "write".to_owned(), count, micros: count * 100, bytes: count * 4096, errors: 0 }
    }

    fn counters(server: Option<u64>, gateway: Option<u64>) -> Counters {
        let volumes = |count: u64| vec![VolumeCounters { volume_id: 7, requests: vec![sum(count)] }];
        let requests = |count: u64| {
            vec![OperationCounters {
                operation: "write".to_owned(),
                buckets: vec![count],
                micros: count * 100,
                bytes: count * 4096,
                errors: 0,
            }]
        };
        Counters {
            bounds_micros: Vec::new(),
            servers: server
                .map(|count| ServerCounters {
                    server: ServerId(1),
                    uptime_ms: 0,
                    requests: requests(count),
                    drive_io: Vec::new(),
                    volumes: volumes(count),
                    drives: Vec::new(),
                })
                .into_iter()
                .collect(),
            gateways: gateway
                .map(|count| GatewayCounters { gateway: 9, requests: requests(count), volumes: volumes(count) })
                .into_iter()
                .collect(),
        }
    }

    #[test]
    fn what_servers_and_gateways_counted_is_added_up() {
        let (before, after) = (counters(Some(10), Some(100)), counters(Some(30), Some(140)));
        let round = Round::between(&before, &after, Duration::from_secs(2));
        let writes = Speed { iops: 30.0, bytes: 30.0 * 4096.0, micros: 100.0 };
        assert_eq!((round.cluster.writes, round.volumes[0].load.writes), (writes, writes));
        let names: Vec<&str> = round.servers.iter().map(|row| row.name.as_str()).collect();
        assert_eq!((names, round.volumes[0].name.as_str()), (vec!["gateways", "s1"], "7"));
    }

    #[test]
    fn counts_of_a_restarted_server_begin_anew() {
        let round = Round::between(&counters(Some(1000), None), &counters(Some(5), None), Duration::from_secs(1));
        assert_eq!(round.volumes[0].load.writes.iops, 5.0);
    }

    #[test]
    fn whoever_appears_with_a_past_did_nothing_yet() {
        let round = Round::between(&counters(Some(1), None), &counters(Some(1), Some(500)), Duration::from_secs(1));
        assert_eq!((round.cluster.iops(), round.volumes[0].load.iops()), (0.0, 0.0));
    }
}
