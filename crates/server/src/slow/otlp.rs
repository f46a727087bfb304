//! Slow requests as OpenTelemetry's traces, those of several servers put together.

use super::trace::{Kind, Note, Step};
use super::{LINK, PEER, REQUEST, Slow};
use crate::api_types::{
    Attribute, AttributeValue, Resource, ResourceSpans, Scope, ScopeSpans, Span, SpanStatus, TracesData,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tepal_model::ServerId;

/// Its numbers of kinds and of what came of it.
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
const CLIENT: u8 = 3;
const ERROR: u8 = 2;

/// What one server has seen.
pub fn resource_spans(server: ServerId, slow: &[Arc<Slow>]) -> ResourceSpans {
    let attribute =
        |key: &str, text: String| Attribute { key: key.to_owned(), value: AttributeValue::StringValue(text) };
    let version = env!("CARGO_PKG_VERSION").to_owned();
    ResourceSpans {
        resource: Resource {
            attributes: vec![
                attribute("service.name", "tepal".to_owned()),
                attribute("service.instance.id", server.to_string()),
                attribute("service.version", version.clone()),
            ],
        },
        scope_spans: vec![ScopeSpans {
            scope: Scope { name: "tepal".to_owned(), version },
            spans: slow.iter().flat_map(|slow| spans(slow)).collect(),
        }],
    }
}

fn spans(slow: &Slow) -> impl Iterator<Item = Span> + '_ {
    let id = |step: usize| format!("{:016x}", slow.first_step + step as u64);
    let whole = slow.steps[0].took.unwrap_or_default();
    slow.steps.iter().enumerate().map(move |(number, step)| {
        let Step { name, kind, within, began, took, notes, error } = step;
        let start = slow.began + *began;
        // What goes on still ends with the request, as far as that is concerned.
        let end = slow.began + took.map_or(whole, |took| *began + took);
        Span {
            trace_id: format!("{:032x}", slow.id),
            span_id: id(number),
            parent_span_id: within.map(id).unwrap_or_default(),
            name: (*name).to_owned(),
            kind: match kind {
                Kind::Internal => INTERNAL,
                Kind::Server => SERVER,
                Kind::Client => CLIENT,
            },
            start_time_unix_nano: nanos(start),
            end_time_unix_nano: nanos(end.max(start)),
            attributes: notes.iter().map(|(key, note)| attribute(key, note)).collect(),
            status: match error {
                None => SpanStatus::default(),
                Some(error) => SpanStatus { code: ERROR, message: error.clone() },
            },
        }
    })
}

fn nanos(since_1970: Duration) -> String {
    since_1970.as_nanos().to_string()
}

fn attribute(key: &str, note: &Note) -> Attribute {
    let value = match note {
        Note::Text(text) => AttributeValue::StringValue(text.clone()),
        Note::Number(number) => AttributeValue::IntValue(number.to_string()),
    };
    Attribute { key: key.to_owned(), value }
}

/// Who asks over which lane, which server, and by what number.
type Link<'a> = (&'a str, &'a str, &'a str);

fn link<'a>(span: &'a Span, server: &'a str) -> Option<Link<'a>> {
    Some((span.attribute(LINK)?, server, span.attribute(REQUEST)?))
}

/// What a server was asked becomes a part of the step that asked it, however many servers that goes through. What was asked by a request
/// that wasn't slow is left out.
pub fn put_together(servers: Vec<ResourceSpans>) -> TracesData {
    let all = || servers.iter().flat_map(ResourceSpans::spans);
    // Each link counts its requests by itself, and a new link to the same server begins anew.
    let mut asking: BTreeMap<Link<'_>, Vec<&Span>> = BTreeMap::new();
    for span in all().filter(|span| span.kind == CLIENT) {
        if let Some(link) = span.attribute(PEER).and_then(|server| link(span, server)) {
            asking.entry(link).or_default().push(span);
        }
    }
    let asked_by = |span: &Span, server: &str| {
        let asking = asking.get(&link(span, server)?)?.iter().copied();
        asking.min_by_key(|asking| asking.time().0.abs_diff(span.time().0))
    };
    // By its own trace, what asked for it.
    let served: BTreeMap<&str, Option<&Span>> = servers
        .iter()
        .flat_map(|server| server.spans().map(move |span| (server.server(), span)))
        .filter(|(_, span)| span.kind == SERVER && span.parent_span_id.is_empty())
        .filter(|(_, span)| span.attribute(LINK).is_some())
        .map(|(server, span)| (span.trace_id.as_str(), asked_by(span, server)))
        .collect();
    // Servers ask only on behalf of others: no more often than there are servers.
    let root = |trace: &str| {
        let mut trace = trace.to_owned();
        for _ in 0..=servers.len() {
            match served.get(trace.as_str()) {
                None => return Some(trace),
                Some(asked) => trace = (*asked)?.trace_id.clone(),
            }
        }
        None
    };
    let roots: BTreeMap<&str, Option<String>> =
        all().map(|span| span.trace_id.as_str()).map(|trace| (trace, root(trace))).collect();
    let placed = |span: &Span| {
        let trace_id = roots.get(span.trace_id.as_str()).cloned().flatten()?;
        let asked = served.get(span.trace_id.as_str()).copied().flatten().filter(|_| span.parent_span_id.is_empty());
        let parent_span_id = asked.map_or_else(|| span.parent_span_id.clone(), |asked| asked.span_id.clone());
        Some(Span { trace_id, parent_span_id, ..span.clone() })
    };
    let of_server = |server: &ResourceSpans| {
        let scope = |scope: &ScopeSpans| ScopeSpans {
            scope: scope.scope.clone(),
            spans: scope.spans.iter().filter_map(placed).collect(),
        };
        ResourceSpans { resource: server.resource.clone(), scope_spans: server.scope_spans.iter().map(scope).collect() }
    };
    TracesData { resource_spans: servers.iter().map(of_server).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn step(name: &'static str, kind: Kind, within: Option<usize>, link: Option<u64>) -> Step {
        let (began, took) = (Duration::from_nanos(within.map_or(0, |_| 5)), Some(Duration::from_nanos(70)));
        let step = Step { within, began, took, ..Step::new(name, kind) };
        match link {
            Some(request) => step.note(LINK, "s1 Drives".to_owned()).note(REQUEST, request),
            None => step,
        }
    }

    fn slow(id: u128, steps: Vec<Step>) -> Slow {
        Slow { began: Duration::new(1_700_000_000, 5), steps, id, first_step: (id as u64) << 16 }
    }

    /// The names are those of opentelemetry-proto, in its JSON form.
    #[test]
    fn a_request_is_written_as_opentelemetry_reads_it() {
        let mut failed = step("drive write", Kind::Internal, Some(0), None).note("tepal.bytes", 4096u64);
        failed.error = Some("it's gone".to_owned());
        let slow = [slow(0xab, vec![step("write", Kind::Server, None, None), failed]).into()];
        let said = serde_json::to_value(resource_spans(ServerId(3), &slow)).expect("it's JSON");
        let spans = &said["scopeSpans"][0]["spans"];
        let expected = json!([
            { "traceId": "000000000000000000000000000000ab", "spanId": "0000000000ab0000", "name": "write", "kind": 2,
              "startTimeUnixNano": "1700000000000000005", "endTimeUnixNano": "1700000000000000075",
              "attributes": [], "status": { "code": 0 } },
            { "traceId": "000000000000000000000000000000ab", "spanId": "0000000000ab0001",
              "parentSpanId": "0000000000ab0000", "name": "drive write", "kind": 1,
              "startTimeUnixNano": "1700000000000000010", "endTimeUnixNano": "1700000000000000080",
              "attributes": [{ "key": "tepal.bytes", "value": { "intValue": "4096" } }],
              "status": { "code": 2, "message": "it's gone" } },
        ]);
        assert_eq!(*spans, expected);
        let name = json!({ "key": "service.name", "value": { "stringValue": "tepal" } });
        assert_eq!(said["resource"]["attributes"][0], name);
    }

    /// Story: each link counts its requests from 1, so what one server did was shown as what another was asked.
    #[test]
    fn what_servers_have_asked_each_other_is_one_trace() {
        let client =
            |link, peer: u32| step("ask", Kind::Client, Some(0), Some(link)).note(PEER, ServerId(peer).to_string());
        let server = |link| step("read", Kind::Server, None, Some(link));
        let first = slow(1, vec![step("read", Kind::Server, None, None), client(7, 2), client(7, 3)]);
        let second = slow(2, vec![server(7), client(8, 0)]);
        let third = slow(3, vec![server(8), step("drive read", Kind::Internal, Some(0), None)]);
        let strange = slow(4, vec![server(99)]);
        let of_same_number = slow(5, vec![server(7)]);
        let servers = [vec![third], vec![first], vec![second, strange], vec![of_same_number]];
        let numbered = servers.into_iter().enumerate();
        let told = |(n, slow): (usize, Vec<Slow>)| {
            let slow: Vec<Arc<Slow>> = slow.into_iter().map(Arc::new).collect();
            resource_spans(ServerId(n as u32), &slow)
        };
        let together = put_together(numbered.map(told).collect());
        let mut told: Vec<(&str, &str, &str)> = together
            .resource_spans
            .iter()
            .flat_map(ResourceSpans::spans)
            .map(|span| (&span.trace_id[31..], &span.span_id[11..], span.parent_span_id.get(11..).unwrap_or_default()))
            .collect();
        told.sort_unstable();
        let expected = [
            ("1", "10000", ""),
            ("1", "10001", "10000"),
            ("1", "10002", "10000"),
            ("1", "20000", "10001"),
            ("1", "20001", "20000"),
            ("1", "30000", "20001"),
            ("1", "30001", "30000"),
            ("1", "50000", "10002"),
        ];
        assert_eq!(told, expected);
    }
}
