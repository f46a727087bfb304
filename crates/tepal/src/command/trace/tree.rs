//! A slow request as a tree of what it waited for.

use crate::output;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use tepal_server::api::types::{Span, TracesData};

/// Requests to other servers and drives that took less than this part of the request aren't worth a line.
const WORTH_A_LINE: u64 = 100;

/// What volumes and drives are called, by their numbers.
#[derive(Debug, Default)]
pub struct Names {
    pub volumes: BTreeMap<String, String>,
    pub drives: BTreeMap<String, String>,
}

impl Names {
    fn volume(&self, id: &str) -> String {
        self.volumes.get(id).map_or_else(|| format!("volume {id}"), |name| format!("'{name}'"))
    }

    fn drive(&self, id: &str) -> String {
        self.drives.get(id).cloned().unwrap_or_else(|| id.to_owned())
    }

    /// What a step is.
    fn step(&self, server: &str, span: &Span) -> String {
        let of = |key| span.attribute(key);
        let operation = of("tepal.operation").unwrap_or(&span.name);
        let mut what = match span.name.as_str() {
            "ask a server" => format!("ask {}: {operation}", of("tepal.peer.id").unwrap_or("a server")),
            "answer" => format!("{server}: {operation}"),
            name => name.to_owned(),
        };
        if let Some(column) = of("tepal.column") {
            let _ = write!(what, ", column {column}");
        }
        if let Some(drive) = of("tepal.drive.id") {
            let _ = write!(what, ", drive {}", self.drive(drive));
        }
        if let Some(bytes) = of("tepal.bytes").and_then(|bytes| bytes.parse().ok()).filter(|&bytes: &u64| bytes > 0) {
            let _ = write!(what, ", {}", output::size(bytes));
        }
        if !span.status.message.is_empty() {
            let _ = write!(what, " ({})", output::one_line(&span.status.message));
        }
        what
    }

    /// What a client has asked for.
    fn request(&self, server: &str, span: &Span) -> String {
        let number = |key| span.attribute(key).and_then(|text| text.parse().ok()).unwrap_or(0u64);
        let operation = span.attribute("tepal.operation").unwrap_or(&span.name);
        let volume = span.attribute("tepal.volume.id").map(|id| self.volume(id)).unwrap_or_default();
        let snapshot = span.attribute("tepal.snapshot").map(|name| format!("'{name}'"));
        let whose = snapshot.unwrap_or(volume);
        let bytes = match (number("tepal.bytes"), number("tepal.offset")) {
            (0, _) => String::new(),
            (bytes, offset) => format!(" {} at {}", output::size(bytes), output::size(offset)),
        };
        let by = span.attribute("tepal.gateway").map(|_| " by a gateway").unwrap_or_default();
        format!("{operation}{bytes} of {whose}{by}, at {server}")
    }
}

/// The steps of one request, each with its server.
pub struct Steps<'a> {
    all: Vec<(&'a str, &'a Span)>,
}

impl<'a> Steps<'a> {
    fn root(&self) -> Option<(&'a str, &'a Span)> {
        self.all.iter().copied().find(|(_, span)| span.parent_span_id.is_empty())
    }

    /// What a step consists of, in order.
    fn within(&self, span: &Span) -> Vec<(&'a str, &'a Span)> {
        let mut within: Vec<_> =
            self.all.iter().copied().filter(|(_, other)| other.parent_span_id == span.span_id).collect();
        within.sort_by_key(|(_, span)| span.time());
        within
    }

    /// The deepest step that took most of the time of what it's a part of.
    fn culprit(&self) -> Option<(&'a str, &'a Span)> {
        let mut at = self.root()?;
        loop {
            let longest = self.within(at.1).into_iter().max_by_key(|(_, span)| span.time().1);
            match longest.filter(|(_, span)| span.time().1 * 2 >= at.1.time().1) {
                Some(longest) => at = longest,
                None => return Some(at),
            }
        }
    }
}

/// The request and its steps, those below others indented, with how long each took. What took most of the time is marked.
pub fn tree(steps: &[(String, Span)], names: &Names) -> String {
    let steps = Steps { all: steps.iter().map(|(server, span)| (server.as_str(), span)).collect() };
    let (Some((server, root)), Some((_, culprit))) = (steps.root(), steps.culprit()) else { return String::new() };
    let (began, took) = root.time();
    let mut text = format!(
        "{}.{:03}  {}: {}\n",
        output::time(began / 1_000_000),
        began / 1_000_000 % 1000,
        names.request(server, root),
        milliseconds(took).trim_start()
    );
    let mut left: Vec<_> = steps.within(root).into_iter().rev().map(|step| (1, step)).collect();
    while let Some((depth, (server, span))) = left.pop() {
        let long = span.time().1;
        if long * WORTH_A_LINE < took {
            continue;
        }
        let mark = if std::ptr::eq(span, culprit) { "  <--" } else { "" };
        let indent = "  ".repeat(depth);
        let _ = writeln!(text, "{}{indent}{}{mark}", milliseconds(long), names.step(server, span));
        left.extend(steps.within(span).into_iter().rev().map(|step| (depth + 1, step)));
    }
    text
}

fn milliseconds(nanos: u64) -> String {
    format!("{:>9.1} ms", nanos as f64 / 1e6)
}

/// What the requests waited for the longest, how often.
pub fn summary(traces: &TracesData, names: &Names, over_ms: u64) -> String {
    let mut requests: BTreeMap<&str, Vec<(&str, &Span)>> = BTreeMap::new();
    for (server, span) in traces.resource_spans.iter().flat_map(|one| one.spans().map(|span| (one.server(), span))) {
        requests.entry(&span.trace_id).or_default().push((server, span));
    }
    let count = requests.len();
    let mut culprits: BTreeMap<String, usize> = BTreeMap::new();
    for steps in requests.into_values().map(|all| Steps { all }) {
        if let Some((server, span)) = steps.culprit() {
            // The same device, whatever it did: what it's a part of says whose it is.
            let whole = steps.all.iter().find(|(_, other)| other.span_id == span.parent_span_id);
            let named =
                |(server, span): (&str, &Span)| names.step(server, &Span { attributes: named(span), ..span.clone() });
            let what = match whole.filter(|_| span.name.starts_with("device ")) {
                Some(&whole) => format!("{}: {}", named(whole), named((server, span))),
                None if span.parent_span_id.is_empty() => format!("{server} itself"),
                None => named((server, span)),
            };
            *culprits.entry(what).or_default() += 1;
        }
    }
    let requests = if count == 1 { "1 request".to_owned() } else { format!("{count} requests") };
    let mut text = format!("{requests} took longer than {over_ms} ms\n");
    let mut culprits: Vec<_> = culprits.into_iter().collect();
    culprits.sort_by(|(one, of_one), (other, of_other)| of_other.cmp(of_one).then(one.cmp(other)));
    for (what, times) in culprits {
        let _ = writeln!(text, "{times:>6}  mostly {what}");
    }
    text
}

/// What of a step is the same for many requests.
fn named(span: &Span) -> Vec<tepal_server::api::types::Attribute> {
    let keys = ["tepal.operation", "tepal.peer.id", "tepal.drive.id"];
    span.attributes.iter().filter(|one| keys.contains(&one.key.as_str())).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tepal_server::api::types::{Attribute, AttributeValue};

    fn span(id: &str, parent: &str, name: &str, (start, end): (u64, u64), attributes: &[(&str, &str)]) -> Span {
        let attribute = |&(key, value): &(&str, &str)| Attribute {
            key: key.to_owned(),
            value: AttributeValue::StringValue(value.to_owned()),
        };
        let nanos = |millis: u64| (1_795_395_121_000_000_000 + millis * 1_000_000).to_string();
        Span {
            attributes: attributes.iter().map(attribute).collect(),
            ..serde_json::from_value(json!({
                "traceId": "a", "spanId": id, "parentSpanId": parent, "name": name, "kind": 1, "attributes": [],
                "startTimeUnixNano": nanos(start), "endTimeUnixNano": nanos(end), "status": { "code": 0 },
            }))
            .expect("it's a span")
        }
    }

    fn slow_write() -> Vec<(String, Span)> {
        let of = |server: &str, span| (server.to_owned(), span);
        vec![
            of("s2", span("5", "3", "answer", (2, 99), &[("tepal.operation", "write"), ("tepal.drive.id", "d7")])),
            of("s1", span("1", "", "write", (0, 100), &[("tepal.volume.id", "7"), ("tepal.bytes", "4096")])),
            of("s1", span("2", "1", "wait for a limit", (0, 1), &[])),
            of("s1", span("4", "1", "drive write", (1, 9), &[("tepal.drive.id", "d1")])),
            of(
                "s1",
                span("3", "1", "ask a server", (1, 100), &[("tepal.peer.id", "s2"), ("tepal.operation", "write")]),
            ),
            of("s2", span("6", "5", "drive write", (2, 98), &[("tepal.drive.id", "d7")])),
            of("s2", span("7", "6", "device write", (3, 4), &[("tepal.bytes", "4096")])),
            of("s2", span("8", "6", "device flush", (4, 98), &[])),
            of("s2", span("9", "6", "device read", (4, 4), &[])),
        ]
    }

    fn names() -> Names {
        Names {
            volumes: [("7".to_owned(), "data".to_owned())].into(),
            drives: [("d7".to_owned(), "shelf3 of s2".to_owned())].into(),
        }
    }

    #[test]
    fn a_tree_marks_the_step_that_took_most_of_the_time() {
        let expected = "\
2026-11-23 00:52:01.000  write 4K at 0 of 'data', at s1: 100.0 ms
      1.0 ms  wait for a limit
      8.0 ms  drive write, drive d1
     99.0 ms  ask s2: write
     97.0 ms    s2: write, drive shelf3 of s2
     96.0 ms      drive write, drive shelf3 of s2
      1.0 ms        device write, 4K
     94.0 ms        device flush  <--
";
        assert_eq!(tree(&slow_write(), &names()), expected);
    }

    #[test]
    fn a_summary_says_what_requests_waited_for_and_how_often() {
        let resource = |server: &str| {
            let spans: Vec<_> = slow_write().into_iter().filter(|(of, _)| of == server).map(|(_, span)| span).collect();
            json!({ "resource": { "attributes": [{ "key": "service.instance.id", "value": { "stringValue": server } }] },
                "scopeSpans": [{ "scope": { "name": "tepal", "version": "1" }, "spans": spans }] })
        };
        let traces = serde_json::from_value(json!({ "resourceSpans": [resource("s1"), resource("s2")] }));
        let text = summary(&traces.expect("it's OTLP"), &names(), 20);
        assert_eq!(
            text,
            "1 request took longer than 20 ms\n     1  mostly drive write, drive shelf3 of s2: device flush\n"
        );
        assert_eq!(summary(&TracesData::default(), &names(), 20), "0 requests took longer than 20 ms\n");
    }

    #[test]
    fn a_request_without_longer_steps_is_its_servers_own() {
        let only = [("s1".to_owned(), span("1", "", "read", (0, 50), &[("tepal.volume.id", "8")]))];
        assert_eq!(tree(&only, &Names::default()), "2026-11-23 00:52:01.000  read of volume 8, at s1: 50.0 ms\n");
    }
}
