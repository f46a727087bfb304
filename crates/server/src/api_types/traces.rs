//! Slow requests, as OpenTelemetry writes traces in files (OTLP JSON): Jaeger and OpenTelemetry's collector read it. Names and numbers
//! are those of its protocol, so keys are in camelCase here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The query that has slow requests watched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WatchSlowQuery {
    /// Only requests that take longer, in microseconds.
    pub over_micros: u64,
    /// Only those of this volume, by its name or as `id:N`; of all, if not said.
    #[serde(default)]
    pub volume: Option<String>,
    /// For how long, in seconds: 1 to 86,400.
    pub seconds: u64,
}

/// Who watches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlowWatched {
    /// Servers that don't watch, as they are down or didn't answer.
    pub not_by: Vec<String>,
}

/// Slow requests of all servers that answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TracesData {
    /// One for each server.
    pub resource_spans: Vec<ResourceSpans>,
}

/// What one server has seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSpans {
    /// The server.
    pub resource: Resource,
    /// One.
    pub scope_spans: Vec<ScopeSpans>,
}

/// A server, by its attributes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Resource {
    /// `service.name` is `tepal`; `service.instance.id` says which server.
    pub attributes: Vec<Attribute>,
}

/// The steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScopeSpans {
    /// What has recorded them.
    pub scope: Scope,
    /// Of one request after the other.
    pub spans: Vec<Span>,
}

/// What has recorded steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Scope {
    /// `tepal`
    pub name: String,
    /// Of Tepal.
    pub version: String,
}

/// A request, or a step of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Span {
    /// Which request: 32 hexadecimal digits.
    pub trace_id: String,
    /// 16 hexadecimal digits.
    pub span_id: String,
    /// The step that it's a part of; not there for a client's request itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub parent_span_id: String,
    /// What was done.
    pub name: String,
    /// 1: a step; 2: what was asked for by a client or another server; 3: what another server was asked for.
    pub kind: u8,
    /// Nanoseconds since 1970 by the server's clock, in decimal digits.
    pub start_time_unix_nano: String,
    /// The same.
    pub end_time_unix_nano: String,
    /// More about it.
    pub attributes: Vec<Attribute>,
    /// What came of it.
    pub status: SpanStatus,
}

/// What came of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpanStatus {
    /// 0: nothing went wrong; 2: something did.
    pub code: u8,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// One thing that is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Attribute {
    /// Its name, as `tepal.drive.id`.
    pub key: String,
    /// What it is.
    pub value: AttributeValue,
}

/// A text or a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum AttributeValue {
    /// A text.
    StringValue(String),
    /// A number, in decimal digits.
    IntValue(String),
}

impl Span {
    /// An attribute as text; `None` if it has none of this name.
    pub fn attribute(&self, key: &str) -> Option<&str> {
        attribute(&self.attributes, key)
    }

    /// Nanoseconds since 1970, and for how many it went on. 0 where that can't be read.
    pub fn time(&self) -> (u64, u64) {
        let [start, end] = [&self.start_time_unix_nano, &self.end_time_unix_nano].map(|text| text.parse().unwrap_or(0));
        (start, u64::saturating_sub(end, start))
    }
}

impl ResourceSpans {
    /// Which server has seen it.
    pub fn server(&self) -> &str {
        attribute(&self.resource.attributes, "service.instance.id").unwrap_or_default()
    }

    /// All its steps.
    pub fn spans(&self) -> impl Iterator<Item = &Span> {
        self.scope_spans.iter().flat_map(|scope| &scope.spans)
    }
}

fn attribute<'a>(attributes: &'a [Attribute], key: &str) -> Option<&'a str> {
    attributes.iter().find(|attribute| attribute.key == key).map(|attribute| match &attribute.value {
        AttributeValue::StringValue(text) | AttributeValue::IntValue(text) => text.as_str(),
    })
}
