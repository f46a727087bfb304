//! How the document of the API describes types of other crates, which know nothing of it.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::borrow::Cow;

/// Types that are texts of one form. They have no values: they stand for others in `#[schemars(with = ...)]`.
macro_rules! texts {
    ($($stand_in:ident: $name:literal, $pattern:literal, $description:literal;)*) => {
        $(
            pub enum $stand_in {}

            impl JsonSchema for $stand_in {
                fn schema_name() -> Cow<'static, str> {
                    Cow::Borrowed($name)
                }

                fn json_schema(_: &mut SchemaGenerator) -> Schema {
                    json_schema!({ "type": "string", "pattern": $pattern, "description": $description })
                }
            }
        )*
    };
}

texts! {
    ServerText: "ServerId", "^s(0|[1-9][0-9]{0,9})$", "A server, as `s1`.";
    DriveText: "DriveId", "^[0-9a-f]{16}$", "A drive: 16 hexadecimal digits.";
    ClusterText: "ClusterId", "^[0-9a-f]{32}$", "A cluster: 32 hexadecimal digits.";
    ReplicaText: "ReplicaOf", "^[0-9a-f]{32}\\.[0-9]+$", "A volume of another cluster, as `CLUSTER.VOLUME` with their ids.";
    TimeText: "TimeOfDay", "^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?$", "A time of the day, as `02:30`.";
    ZoneText: "Zone", "^(UTC|[+-](0[0-9]|1[0-3]):[0-5][0-9]|[+-]14:00)$", "How far local time is ahead of UTC, as `UTC` or `+02:00`.";
}

/// Types that are one of a few words.
macro_rules! words {
    ($($stand_in:ident: $name:literal, $of:ty, [$($word:literal),*], $description:literal;)*) => {
        $(
            pub enum $stand_in {}

            impl JsonSchema for $stand_in {
                fn schema_name() -> Cow<'static, str> {
                    Cow::Borrowed($name)
                }

                fn json_schema(_: &mut SchemaGenerator) -> Schema {
                    json_schema!({ "type": "string", "enum": [$($word),*], "description": $description })
                }
            }
        )*

        #[cfg(test)]
        #[test]
        fn words_are_those_that_are_read_and_written() {
            $(
                for word in [$($word),*] {
                    let text = format!("\"{word}\"");
                    let value: $of = serde_json::from_str(&text).expect(word);
                    assert_eq!(serde_json::to_string(&value).expect(word), text);
                }
                let error = serde_json::from_str::<$of>("\"no such word\"").expect_err("no such word").to_string();
                let all = [$($word),*].len();
                assert_eq!(error.matches('`').count(), 2 * (all + 1), "{}: {error}", $name);
            )*
        }
    };
}

words! {
    DriveStateText: "DriveState", tepal_metadata::DriveState, ["up", "behind", "missing", "offline", "failed"],
        "Whether a drive is in use.";
    DriveUseText: "DriveUse", tepal_metadata::DriveUse, ["active", "draining", "spare", "removed"], "What a drive is for.";
    RoleText: "Role", tepal_metadata::Role, ["host", "operator", "server", "revoked"], "What an identity is.";
    RightText: "Right", tepal_metadata::Right, ["read", "write", "admin"], "What an identity may do with a volume.";
    WorkText: "WorkKind", tepal_metadata::WorkKind, ["snapshots", "scrubs"], "What a schedule does.";
}

/// How many snapshots stay of each kind.
#[derive(JsonSchema)]
#[schemars(rename = "Keep", deny_unknown_fields)]
#[expect(dead_code, reason = "it has no values")]
pub struct KeepCounts {
    /// The newest.
    #[schemars(default)]
    last: u32,
    /// One of each of so many hours.
    #[schemars(default)]
    hourly: u32,
    /// One of each of so many days.
    #[schemars(default)]
    daily: u32,
    /// One of each of so many weeks, from Monday on.
    #[schemars(default)]
    weekly: u32,
    /// One of each of so many months.
    #[schemars(default)]
    monthly: u32,
    /// One of each of so many years.
    #[schemars(default)]
    yearly: u32,
}

/// A steady rate, and how much may come at once after a pause.
#[derive(JsonSchema)]
#[schemars(rename = "Rate", deny_unknown_fields)]
#[expect(dead_code, reason = "it has no values")]
pub struct RateShape {
    /// How much a second.
    #[schemars(range(min = 1, max = 1_125_899_906_842_624_u64))]
    per_second: u64,
    /// How much may come at once; 0 stands for what a tenth of a second allows.
    #[schemars(default, range(max = 1_125_899_906_842_624_u64))]
    burst: u64,
}

/// How much may be asked for. What isn't said has no limit.
#[derive(JsonSchema)]
#[schemars(rename = "Limits", deny_unknown_fields)]
#[expect(dead_code, reason = "it has no values")]
pub struct LimitsShape {
    /// Requests.
    iops: Option<RateShape>,
    /// Bytes, of reads and writes together.
    bandwidth: Option<RateShape>,
    /// Connections at a time; of identities only.
    #[schemars(range(min = 1))]
    connections: Option<u32>,
}
