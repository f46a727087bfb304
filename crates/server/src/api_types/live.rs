//! What is followed live: counters, how full the cluster becomes, and the stream that tells of changes.

use super::{Status, described};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tepal_model::{DriveId, ServerId};

/// The answer of the list of volumes has, in this header, how many there are in all pages.
pub const TOTAL: &str = "tepal-total";

/// A request that says [`LATEST`] in this header is answered by all that was agreed before it was sent, or as unavailable: never by what a
/// server knows that is cut off from the others.
pub const READ: &str = "tepal-read";
/// What [`READ`] says.
pub const LATEST: &str = "latest";

/// The query of the list of volumes. Pages are of one order, by name: what changes between two requests may be missed or come twice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VolumesQuery {
    /// So many of the first ones are left out. 0, if not said.
    #[serde(default)]
    pub offset: u64,
    /// At most so many; all, if not said.
    #[serde(default)]
    pub limit: Option<u64>,
    /// Only those whose names contain this.
    #[serde(default)]
    pub contains: Option<String>,
}

/// The query of the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CountersQuery {
    /// Also of each volume and each drive. False, if not said.
    #[serde(default)]
    pub each: bool,
}

/// What servers, and gateways that aren't servers, have counted since they were started. Who doesn't answer within a second is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counters {
    /// Upper bounds of [`OperationCounters::buckets`], in microseconds; the last bucket has none.
    pub bounds_micros: Vec<u64>,
    /// By id.
    pub servers: Vec<ServerCounters>,
    /// By their numbers.
    pub gateways: Vec<GatewayCounters>,
}

/// What one server has counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerCounters {
    /// Which one.
    #[schemars(with = "described::ServerText")]
    pub server: ServerId,
    /// Milliseconds since it was started. What was counted begins anew when this is less than before.
    pub uptime_ms: u64,
    /// Requests of NBD clients of this server. They become fewer when a volume is removed.
    pub requests: Vec<OperationCounters>,
    /// I/O of this server's drives. It becomes less when a drive is closed.
    pub drive_io: Vec<OperationCounters>,
    /// The same of each volume that was asked for something, by id; only if [`CountersQuery::each`] is said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeCounters>,
    /// The same of each drive, by id; only if [`CountersQuery::each`] is said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drives: Vec<DriveCounters>,
}

/// Requests of one volume, as one server or gateway has counted them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeCounters {
    /// As [`VolumeInfo::id`](super::VolumeInfo::id).
    pub volume_id: u64,
    /// Of operations of which there were any.
    pub requests: Vec<OperationSum>,
}

/// I/O of one drive, since it was opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DriveCounters {
    /// Which one.
    #[schemars(with = "described::DriveText")]
    pub drive: DriveId,
    /// Of operations of which there were any.
    pub io: Vec<OperationSum>,
}

/// As [`OperationCounters`], but for how long each took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OperationSum {
    /// As [`OperationCounters::operation`].
    pub operation: String,
    /// How many there were.
    pub count: u64,
    /// As [`OperationCounters::micros`].
    pub micros: u64,
    /// As [`OperationCounters::bytes`].
    pub bytes: u64,
    /// As [`OperationCounters::errors`].
    pub errors: u64,
}

/// What one gateway has counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayCounters {
    /// As [`GatewayNews::gateway`](super::GatewayNews::gateway).
    pub gateway: u64,
    /// Requests of its NBD clients.
    pub requests: Vec<OperationCounters>,
    /// As [`ServerCounters::volumes`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeCounters>,
}

/// Operations of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OperationCounters {
    /// `read`, `write`, `flush` or `discard`.
    pub operation: String,
    /// How many took at most as long as each bound, and longer than the bound before; then the rest.
    pub buckets: Vec<u64>,
    /// How long all of them took together, in microseconds.
    pub micros: u64,
    /// What those that didn't fail moved.
    pub bytes: u64,
    /// How many failed.
    pub errors: u64,
}

/// How much of the drives is used, how that has changed, and when they are full if it goes on. Servers that don't answer are missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// As [`Status::capacity`].
    pub capacity: u64,
    /// As [`Status::used`].
    pub used: u64,
    /// Since when all servers that answer have noted their use: up to 1,024 moments of the last 28 days, the oldest first.
    pub samples: Vec<UsageSample>,
    /// By how much the use grows in a day, in bytes: the slope of the line that fits each server's last week best. None while no server
    /// has been noted for a minute.
    pub growth_per_day: Option<i64>,
    /// Until `used` is `capacity`, if it goes on like that; none if it doesn't come to that within ten years.
    pub full_in_seconds: Option<u64>,
    /// For how long the use has been noted on the server that was started last, in seconds.
    pub noted_seconds: u64,
}

/// How much was used at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsageSample {
    /// Seconds since 1970, by the servers' clocks.
    pub unix_s: u64,
    /// As [`Status::used`].
    pub used: u64,
    /// As [`Status::capacity`].
    pub capacity: u64,
}

/// What the stream of `live` tells: `event:` has the name, `data:` the JSON of what is inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", content = "data", rename_all = "snake_case")]
pub enum LiveEvent {
    /// What servers agree on has changed: at once, and then at most five times a second.
    Changed {
        /// It only rises.
        number: u64,
    },
    /// The cluster's status, when it's another one than was told last; looked at every two seconds, and after each change.
    Status(Status),
    /// Every second.
    Counters(Counters),
}
