//! Server-sent events: what changes, told to whoever follows, until the server stops.
//!
//! However many follow, the servers are asked once: one task looks at the status and one at the counters, only while somebody follows. A
//! follower that reads slowly misses what was told in between, and costs no memory.

use super::failure::Failure;
use super::types::{CountersQuery, ErrorKind, LiveEvent, Status};
use super::{Context, Shared, cluster, counters, usage};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tepal_metadata::State as Agreed;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};

/// Who may follow at a time, on one server.
const MOST: usize = 64;
const COUNTERS_EVERY: Duration = Duration::from_secs(1);
const STATUS_EVERY: Duration = Duration::from_secs(2);
/// Between two looks at the status, and between two words of what is agreed.
const GAP: Duration = Duration::from_millis(200);

/// What was seen last, for all followers.
pub struct Live {
    places: Arc<Semaphore>,
    status: watch::Sender<Option<Arc<Status>>>,
    counters: watch::Sender<Option<Bytes>>,
    /// Somebody has begun to follow.
    wanted: Notify,
}

impl Default for Live {
    fn default() -> Self {
        Live {
            places: Arc::new(Semaphore::new(MOST)),
            status: watch::Sender::new(None),
            counters: watch::Sender::new(None),
            wanted: Notify::new(),
        }
    }
}

/// Begins to look; ends with the server.
pub fn watch_over(context: &Shared) {
    tokio::spawn(until_it_stops(context.stopping.clone(), watch_counters(Arc::downgrade(context))));
    tokio::spawn(until_it_stops(context.stopping.clone(), watch_status(Arc::downgrade(context))));
}

async fn until_it_stops(mut stopping: watch::Receiver<bool>, work: impl Future<Output = ()>) {
    tokio::select! {
        // An error means that the server is gone already.
        _ = stopping.wait_for(|&stop| stop) => {}
        () = work => {}
    }
}

async fn watch_counters(context: Weak<Context>) {
    let mut ticks = interval(COUNTERS_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(context) = context.upgrade() else { return };
        usage::note(&context);
        if context.live.counters.receiver_count() > 0 {
            let event = LiveEvent::Counters(counters::of_cluster(&context, CountersQuery::default()).await);
            context.live.counters.send_replace(Some(written(&event)));
        }
    }
}

async fn watch_status(context: Weak<Context>) {
    loop {
        let Some(strong) = context.upgrade() else { return };
        if strong.live.status.receiver_count() > 0 {
            let axum::Json(status) = cluster::status(State(strong.clone()), super::relay::Scope::Cluster).await;
            strong.live.status.send_replace(Some(Arc::new(status)));
        }
        sleep(GAP).await;
        let mut states = strong.parts.metadata.watch();
        states.mark_unchanged();
        let news = async {
            tokio::select! {
                _ = states.changed() => {}
                () = strong.live.wanted.notified() => {}
            }
        };
        // Nothing new is no reason to look less often: not all that the status says is agreed on.
        let _ = timeout(STATUS_EVERY, news).await;
    }
}

/// One who follows.
struct Follower {
    _place: OwnedSemaphorePermit,
    stopping: watch::Receiver<bool>,
    states: watch::Receiver<Arc<Agreed>>,
    status: watch::Receiver<Option<Arc<Status>>>,
    counters: watch::Receiver<Option<Bytes>>,
    /// As it was told last, but for how long servers have been up.
    told: Option<Status>,
    /// When it may be told again what is agreed.
    changes_from: Instant,
}

pub async fn follow(State(context): State<Shared>) -> Result<Response, Failure> {
    let place = context.live.places.clone().try_acquire_owned().map_err(|_| {
        let text = format!("{MOST} follow server {} already: ask another server, or close a console", context.server);
        Failure::new(ErrorKind::Unavailable, text)
    })?;
    let mut states = context.parts.metadata.watch();
    states.mark_changed();
    let follower = Follower {
        _place: place,
        stopping: context.stopping.clone(),
        states,
        status: context.live.status.subscribe(),
        counters: context.live.counters.subscribe(),
        told: None,
        changes_from: Instant::now(),
    };
    context.live.wanted.notify_one();
    let events = futures_util::stream::unfold(follower, |mut follower| async move {
        let event = follower.next().await?;
        Some((Ok::<_, Infallible>(event), follower))
    });
    let head = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Ok((head, Body::from_stream(events)).into_response())
}

impl Follower {
    /// None when the server stops.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let from = self.changes_from;
            let states = &mut self.states;
            let agreed = async move {
                sleep_until(from).await;
                states.changed().await
            };
            let Follower { stopping, status, counters, .. } = self;
            let stop = async move { stopping.wait_for(|&stop| stop).await.is_ok() };
            tokio::select! {
                biased;
                _ = stop => return None,
                changed = agreed => {
                    changed.ok()?;
                    self.changes_from = Instant::now() + GAP;
                    let number = self.states.borrow_and_update().happenings();
                    return Some(written(&LiveEvent::Changed { number }));
                }
                changed = status.changed() => {
                    changed.ok()?;
                    let status = self.status.borrow_and_update().clone();
                    if let Some(status) = status.filter(|status| self.is_new(status)) {
                        return Some(written(&LiveEvent::Status(Status::clone(&status))));
                    }
                }
                changed = counters.changed() => {
                    changed.ok()?;
                    if let Some(counters) = self.counters.borrow_and_update().clone() {
                        return Some(counters);
                    }
                }
            }
        }
    }

    fn is_new(&mut self, status: &Status) -> bool {
        let mut lasting = status.clone();
        lasting.servers.iter_mut().for_each(|server| server.uptime_ms = 0);
        let is_new = self.told.as_ref() != Some(&lasting);
        self.told = Some(lasting);
        is_new
    }
}

/// As a server-sent event. JSON has no line breaks but those that it writes as `\n`.
fn written(event: &LiveEvent) -> Bytes {
    let (name, data) = match event {
        LiveEvent::Changed { number } => ("changed", serde_json::to_string(&serde_json::json!({ "number": number }))),
        LiveEvent::Status(status) => ("status", serde_json::to_string(status)),
        LiveEvent::Counters(counters) => ("counters", serde_json::to_string(counters)),
    };
    let data = data.unwrap_or_default(); // of plain numbers and texts: it can't fail
    format!("event: {name}\ndata: {data}\n\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_of_data() {
        let event = written(&LiveEvent::Changed { number: 7 });
        assert_eq!(event, "event: changed\ndata: {\"number\":7}\n\n");
    }
}
