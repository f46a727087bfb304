//! The steps of one request, as they are gone through.
//!
//! A request is polled with its place in its trace at hand ([`current`]): whatever it's polled through adds steps below. What goes on as
//! a task of its own is seen no more.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Steps of one request that are kept.
const MOST_STEPS: usize = 500;

thread_local! {
    static CURRENT: RefCell<Option<Place>> = const { RefCell::new(None) };
}

/// What a step has to do with others, as OpenTelemetry says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Internal,
    /// It does what was asked for from elsewhere.
    Server,
    /// It waits for another server.
    Client,
}

/// What is known of a step besides its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    Text(String),
    Number(u64),
}

impl From<u64> for Note {
    fn from(number: u64) -> Self {
        Note::Number(number)
    }
}

impl From<String> for Note {
    fn from(text: String) -> Self {
        Note::Text(text)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub name: &'static str,
    pub kind: Kind,
    /// The step that it's a part of; none of the request itself, which is the first.
    pub within: Option<usize>,
    /// Since the request began.
    pub began: Duration,
    /// `None` while it goes on.
    pub took: Option<Duration>,
    pub notes: Vec<(&'static str, Note)>,
    pub error: Option<String>,
}

impl Step {
    pub fn new(name: &'static str, kind: Kind) -> Self {
        Step { name, kind, within: None, began: Duration::ZERO, took: None, notes: Vec::new(), error: None }
    }

    pub fn note(mut self, key: &'static str, note: impl Into<Note>) -> Self {
        self.notes.push((key, note.into()));
        self
    }

    /// The number that is noted under this key.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.notes.iter().find_map(|(noted, note)| match note {
            Note::Number(number) if *noted == key => Some(*number),
            _ => None,
        })
    }
}

/// One request.
#[derive(Debug)]
pub struct Trace {
    began: Instant,
    began_unix: Duration,
    steps: RefCell<Vec<Step>>,
    left_out: Cell<u64>,
}

impl Trace {
    /// The place of the request itself.
    pub fn begin(request: Step) -> Place {
        let began_unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (steps, left_out) = (RefCell::new(vec![request]), Cell::new(0));
        Place { trace: Rc::new(Trace { began: Instant::now(), began_unix, steps, left_out }), at: 0 }
    }

    /// Since 1970.
    pub fn began_unix(&self) -> Duration {
        self.began_unix
    }

    /// As far as they have come. Steps that go on still have no end.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = self.steps.borrow().clone();
        if self.left_out.get() > 0 {
            steps[0].notes.push(("tepal.steps_left_out", Note::Number(self.left_out.get())));
        }
        steps
    }
}

/// A step of a request.
#[derive(Clone)]
pub struct Place {
    trace: Rc<Trace>,
    at: usize,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {} of {}", self.at, self.trace.steps.borrow()[0].name)
    }
}

impl Place {
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// When the step began.
    pub fn began(&self) -> Instant {
        self.trace.began + self.trace.steps.borrow()[self.at].began
    }

    fn begin(&self, step: Step) -> Option<Place> {
        self.add(Step { began: self.trace.began.elapsed(), ..step })
    }

    /// Something that was seen from elsewhere is a part of this step.
    pub fn add_past(&self, step: Step, (began, took): (Instant, Duration)) {
        let began = began.saturating_duration_since(self.trace.began);
        let _ = self.add(Step { began, took: Some(took), ..step }); // or it's counted
    }

    fn add(&self, step: Step) -> Option<Place> {
        let mut steps = self.trace.steps.borrow_mut();
        if steps.len() >= MOST_STEPS {
            self.trace.left_out.set(self.trace.left_out.get() + 1);
            return None;
        }
        steps.push(Step { within: Some(self.at), ..step });
        Some(Place { trace: self.trace.clone(), at: steps.len() - 1 })
    }

    fn end(&self, error: Option<&str>) {
        let mut steps = self.trace.steps.borrow_mut();
        let step = &mut steps[self.at];
        if step.took.is_none() {
            step.took = Some(self.trace.began.elapsed().saturating_sub(step.began));
            step.error = step.error.take().or_else(|| error.map(str::to_owned));
        }
    }

    pub fn note(&self, key: &'static str, note: impl Into<Note>) {
        self.trace.steps.borrow_mut()[self.at].notes.push((key, note.into()));
    }

    pub fn fail(&self, error: &impl fmt::Display) {
        self.trace.steps.borrow_mut()[self.at].error = Some(error.to_string());
    }

    /// The step at hand while this is called.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        let _back = Back(CURRENT.replace(Some(self.clone())));
        work()
    }
}

/// Brings back what was at hand before.
struct Back(Option<Place>);

impl Drop for Back {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// The step that is being polled here, if its request is traced.
pub fn current() -> Option<Place> {
    CURRENT.with_borrow(Option::clone)
}

/// A step below the one at hand, if there's one.
pub fn begin(step: impl FnOnce() -> Step) -> Option<Place> {
    current()?.begin(step())
}

/// Work that is a step: it begins where the place was made, and ends with the work, or when it's given up.
pub struct Stepped<F> {
    place: Place,
    work: Pin<Box<F>>,
}

impl<F: Future> Stepped<F> {
    pub fn new(place: Place, work: F) -> Self {
        Stepped { place, work: Box::pin(work) }
    }
}

impl<F: Future> Future for Stepped<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let place = self.place.clone();
        let output = place.within(|| self.work.as_mut().poll(cx));
        if output.is_ready() {
            place.end(None);
        }
        output
    }
}

impl<F> Drop for Stepped<F> {
    fn drop(&mut self) {
        self.place.end(Some("given up"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use futures_util::future::join;

    fn step(name: &'static str) -> impl FnOnce() -> Step {
        move || Step::new(name, Kind::Internal)
    }

    fn stepped<F: Future>(name: &'static str, work: F) -> Stepped<F> {
        Stepped::new(begin(step(name)).expect("a request is traced here"), work)
    }

    fn told(trace: &Trace) -> Vec<(&'static str, Option<usize>, bool)> {
        trace.steps().iter().map(|step| (step.name, step.within, step.error.is_some())).collect()
    }

    #[test]
    fn steps_side_by_side_are_each_within_their_own() {
        let request = Trace::begin(step("request")());
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        let mut work = Box::pin(Stepped::new(request.clone(), async {
            let one = stepped("one", async {
                receiver.await.expect("it's sent");
                stepped("within one", async {}).await;
            });
            let other = stepped("other", async { stepped("within other", async {}).await });
            join(one, other).await;
        }));
        assert!((&mut work).now_or_never().is_none());
        assert!(current().is_none(), "nothing is at hand between polls");
        sender.send(()).expect("it waits");
        assert!((&mut work).now_or_never().is_some());
        let (one, other) = (Some(1), Some(2));
        let expected = [("request", None), ("one", Some(0)), ("other", Some(0)), ("within other", other)];
        let expected = expected.into_iter().chain([("within one", one)]);
        let expected: Vec<_> = expected.map(|(name, within)| (name, within, false)).collect();
        assert_eq!(told(request.trace()), expected);
        assert!(request.trace().steps().iter().all(|step| step.took.is_some()));
    }

    #[test]
    fn what_is_given_up_ends_with_an_error() {
        let request = Trace::begin(step("request")());
        drop(Stepped::new(request.clone(), std::future::pending::<()>()));
        assert_eq!(told(request.trace()), [("request", None, true)]);
    }

    #[test]
    fn steps_beyond_the_most_are_counted() {
        let request = Trace::begin(step("request")());
        request.within(|| (0..MOST_STEPS + 4).for_each(|_| drop(begin(step("one of many")))));
        let steps = request.trace().steps();
        assert_eq!(steps.len(), MOST_STEPS);
        assert_eq!(steps[0].notes, [("tepal.steps_left_out", Note::Number(5))]);
    }
}
