//! `tepal trace`: what slow requests wait for.
//!
//! Servers note slow requests only while this command has them do so, and stop by themselves should it be gone. It asks again and again
//! for what they have noted, so that nothing of it is missed when they forget the oldest.

mod tree;

use super::CommandError;
use crate::cli::{Global, TraceCommand, TraceSlowArguments};
use crate::client::{Client, ClientError};
use crate::interrupt::Interrupt;
use crate::locate;
use crate::output::{Outcome, Output};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tepal_server::api::types::{
    Done, DriveInfo, ResourceSpans, ScopeSpans, SlowWatched, Span, TracesData, VolumeInfo, path, route,
};
use tree::Names;

/// Between two looks at what is new.
const LOOK: Duration = Duration::from_secs(1);
/// Servers go on for a little longer than the command, which ends them.
const LONGER: u64 = 10;
/// Servers take no more seconds.
const MOST: u64 = 24 * 3600;

#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("{}: the traces can't be written: {error}", file.display())]
    Write { file: PathBuf, error: io::Error },
    #[error("traces can't be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
}

pub fn run(global: &Global, output: Output, command: TraceCommand) -> Result<Outcome, CommandError> {
    let TraceCommand::Slow(arguments) = command;
    let client = locate::client(global)?;
    // Before anything has begun that must be ended.
    let interrupt = Interrupt::catch()?;
    let watching = Watching::begin(&client, output, &arguments)?;
    let seen = watching.until_over(&interrupt, output, &arguments)?;
    let traces = seen.traces();
    if let Some(file) = &arguments.out {
        let written = serde_json::to_vec(&traces).map_err(TraceError::Json)?;
        std::fs::write(file, written).map_err(|error| TraceError::Write { file: file.clone(), error })?;
    }
    output.show(&traces, |traces| {
        let names = names(&client);
        tree::summary(traces, &names, arguments.over)
    })?;
    Ok(Outcome::Done)
}

/// Servers note slow requests until this is gone.
struct Watching<'a> {
    client: &'a Client,
}

impl<'a> Watching<'a> {
    fn begin(client: &'a Client, output: Output, arguments: &TraceSlowArguments) -> Result<Self, CommandError> {
        let seconds = ((arguments.within / 1000).max(1) + LONGER).min(MOST);
        let mut query = format!("{}?over_micros={}&seconds={seconds}", route::SLOW, arguments.over * 1000);
        if let Some(name) = &arguments.volume {
            let volume: VolumeInfo = client.get(&path(route::VOLUME, name))?;
            query += &format!("&volume={}", volume.by_id());
        }
        let watched: SlowWatched = client.post_repeatable(&query, &())?;
        for server in &watched.not_by {
            output.say(&format!("{server} doesn't answer: its requests aren't noted"))?;
        }
        output.say(&format!("requests that take longer than {} ms are noted", arguments.over))?;
        Ok(Watching { client })
    }

    fn until_over(
        self,
        interrupt: &Interrupt,
        output: Output,
        arguments: &TraceSlowArguments,
    ) -> Result<Seen, CommandError> {
        let end = Instant::now() + Duration::from_millis(arguments.within);
        let mut seen = Seen::default();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let is_over = left.is_zero() || interrupt.wait(LOOK.min(left));
            let told: Result<TracesData, ClientError> = self.client.get(route::SLOW);
            match told {
                Ok(told) => seen.hear(told),
                Err(error) if error.is_no_answer() || error.is_unavailable() => {}
                Err(error) => return Err(error.into()),
            }
            if !output.is_json() {
                let names = if seen.has_news() { names(self.client) } else { Names::default() };
                for shown in seen.news(is_over) {
                    output.say(&tree::tree(&shown, &names))?;
                }
            }
            if is_over {
                return Ok(seen);
            }
        }
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        // Else it ends by itself.
        let _ = self.client.delete::<Done>(route::SLOW);
    }
}

/// As servers call things now; what can't be known goes by its number.
fn names(client: &Client) -> Names {
    let volumes: Vec<VolumeInfo> = client.get(route::VOLUMES).unwrap_or_default();
    let drives: Vec<DriveInfo> = client.get(route::DRIVES).unwrap_or_default();
    Names {
        volumes: volumes.into_iter().map(|volume| (volume.id.to_string(), volume.name)).collect(),
        drives: drives
            .into_iter()
            .map(|drive| (drive.id.to_string(), format!("{} of {}", drive.called(), drive.server)))
            .collect(),
    }
}

/// All that was told, each step once.
#[derive(Default)]
struct Seen {
    /// By server.
    servers: BTreeMap<String, ResourceSpans>,
    known: BTreeSet<(String, String)>,
    /// Requests that were first told the last time: another server may tell of its part only the next time.
    fresh: Vec<String>,
    waiting: Vec<String>,
}

impl Seen {
    fn hear(&mut self, told: TracesData) {
        self.waiting.append(&mut self.fresh);
        for server in told.resource_spans {
            let ResourceSpans { resource, scope_spans } = &server;
            let kept = self.servers.entry(server.server().to_owned()).or_insert_with(|| ResourceSpans {
                resource: resource.clone(),
                scope_spans: scope_spans.iter().map(|one| ScopeSpans { spans: Vec::new(), ..one.clone() }).collect(),
            });
            for (kept, told) in kept.scope_spans.iter_mut().zip(scope_spans) {
                for span in &told.spans {
                    if !self.known.insert((span.trace_id.clone(), span.span_id.clone())) {
                        continue;
                    }
                    if span.parent_span_id.is_empty() {
                        self.fresh.push(span.trace_id.clone());
                    }
                    kept.spans.push(span.clone());
                }
            }
        }
    }

    fn has_news(&self) -> bool {
        !self.waiting.is_empty() || !self.fresh.is_empty()
    }

    /// Requests that are to be shown now, each with the server of each step.
    fn news(&mut self, all: bool) -> Vec<Vec<(String, Span)>> {
        if all {
            self.waiting.append(&mut self.fresh);
        }
        let wanted = std::mem::take(&mut self.waiting);
        let of = |trace: String| {
            let spans = self.servers.iter().flat_map(|(name, server)| server.spans().map(move |span| (name, span)));
            spans.filter(|(_, span)| span.trace_id == trace).map(|(name, span)| (name.clone(), span.clone())).collect()
        };
        wanted.into_iter().map(of).collect()
    }

    fn traces(self) -> TracesData {
        TracesData { resource_spans: self.servers.into_values().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A step's request, its number, and that of what it's a part of.
    type Step<'a> = (&'a str, &'a str, &'a str);

    fn told(servers: &[(&str, &[Step<'_>])]) -> TracesData {
        let spans = |spans: &[Step<'_>]| -> Vec<_> {
            let span = |&(trace, id, parent): &Step<'_>| {
                json!({ "traceId": trace, "spanId": id, "parentSpanId": parent, "name": "read", "kind": 1, "attributes": [],
                    "startTimeUnixNano": "1", "endTimeUnixNano": "2", "status": { "code": 0 } })
            };
            spans.iter().map(span).collect()
        };
        let server = |(name, of): &(&str, &[_])| {
            json!({ "resource": { "attributes": [{ "key": "service.instance.id", "value": { "stringValue": name } }] },
                "scopeSpans": [{ "scope": { "name": "tepal", "version": "1" }, "spans": spans(of) }] })
        };
        let all: Vec<_> = servers.iter().map(server).collect();
        serde_json::from_value(json!({ "resourceSpans": all })).expect("it's OTLP")
    }

    fn shown(news: &[Vec<(String, Span)>]) -> Vec<Vec<(&str, &str)>> {
        news.iter()
            .map(|one| one.iter().map(|(server, span)| (server.as_str(), span.span_id.as_str())).collect())
            .collect()
    }

    #[test]
    fn a_request_is_shown_once_with_what_other_servers_tell_a_moment_later() {
        let mut seen = Seen::default();
        seen.hear(told(&[("s1", &[("a", "1", "")]), ("s2", &[])]));
        assert!(seen.news(false).is_empty());
        seen.hear(told(&[("s1", &[("a", "1", "")]), ("s2", &[("a", "2", "1")])]));
        assert_eq!(shown(&seen.news(false)), [[("s1", "1"), ("s2", "2")]]);
        seen.hear(told(&[("s1", &[("b", "3", "")])]));
        assert_eq!(shown(&seen.news(true)), [[("s1", "3")]]);
        let all = seen.traces();
        assert_eq!(all.resource_spans.iter().flat_map(ResourceSpans::spans).count(), 3);
    }
}
