//! A single-threaded executor with virtual time, all of whose choices come from one seed (the style of FoundationDB's
//! simulation and TigerBeetle's VOPR).
//!
//! Invariants:
//! 1. Every step polls one ready task, drawn at random; nothing else decides the order.
//! 2. Virtual time moves only to the next timer: when no task is ready, and now and then (to a near one) while some still
//!    are, as if those tasks were on a slow processor.
//! 3. Every task belongs to a machine. Killing a machine drops its tasks at whatever await they are, and it never runs
//!    anything again: a restart is a new machine.
//! 4. A machine that is paused takes no step, while time goes on for it too: its timers fire, and what is sent to it arrives.
//! 5. The same seed gives the same steps: no address, hash seed, real clock or thread takes part.

use crate::random::{Stream, mix};
use futures_util::future::LocalBoxFuture;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::future::Future;
use std::io::Write;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// One life of a simulated process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Machine(u32);

/// Runs the scenario itself; it's never killed.
pub const SCENARIO: Machine = Machine(0);

/// How far a run may go before it counts as stuck.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub steps: u64,
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { steps: 6_000_000, time: Duration::from_secs(3_600) }
    }
}

/// Why a run ended without its result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error("deadlock at {now:?}: no task is ready and no timer is set; waiting: {tasks}")]
    Deadlock { now: Duration, tasks: Waiting },
    #[error("livelock: not done after {steps} steps, at {now:?}; alive: {tasks}")]
    Livelock { steps: u64, now: Duration, tasks: Waiting },
    #[error("stuck: not done after {now:?} of virtual time; alive: {tasks}")]
    Stuck { now: Duration, tasks: Waiting },
    #[error("at {now:?}: {story}")]
    Broken { now: Duration, story: String },
}

/// The names of the live tasks, each with its machine and their number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting(BTreeMap<String, usize>);

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<String> = self.0.iter().map(|(name, count)| format!("{name} x{count}")).collect();
        f.write_str(&shown.join(", "))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct TaskKey {
    slot: u32,
    generation: u32,
}

/// Wakers must be `Send`, hence the lock; only one thread ever comes here.
#[derive(Default)]
struct ReadyQueue(Mutex<Vec<TaskKey>>);

impl ReadyQueue {
    fn push(&self, key: TaskKey) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(key);
    }

    fn draw(&self, random: &mut Stream) -> Option<TaskKey> {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let drawn = if keys.is_empty() { return None } else { random.index(keys.len()) };
        Some(keys.swap_remove(drawn))
    }

    fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

struct TaskWaker {
    key: TaskKey,
    queued: AtomicBool,
    queue: Arc<ReadyQueue>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.queue.push(self.key);
        }
    }
}

struct Task {
    name: &'static str,
    machine: Machine,
    waker: Arc<TaskWaker>,
    /// Absent while it's being polled.
    future: Option<LocalBoxFuture<'static, ()>>,
}

#[derive(Default)]
struct Slots {
    tasks: Vec<(u32, Option<Task>)>,
    free: Vec<u32>,
}

impl Slots {
    fn live(&mut self, key: TaskKey) -> Option<&mut Task> {
        let (generation, task) = &mut self.tasks[key.slot as usize];
        if *generation == key.generation { task.as_mut() } else { None }
    }

    fn remove(&mut self, slot: u32) -> Option<Task> {
        let (generation, task) = &mut self.tasks[slot as usize];
        let removed = task.take();
        if removed.is_some() {
            *generation += 1;
            self.free.push(slot);
        }
        removed
    }
}

enum Alarm {
    Wake(Rc<SleepState>),
    Event(Box<dyn FnOnce()>),
}

struct Timer {
    at: Duration,
    sequence: u64,
    alarm: Alarm,
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}
impl Eq for Timer {}
impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Timer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

struct MachineState {
    name: &'static str,
    alive: bool,
    paused: bool,
    /// Tasks that became ready while it was paused.
    parked: Vec<TaskKey>,
}

impl MachineState {
    fn new(name: &'static str) -> Self {
        MachineState { name, alive: true, paused: false, parked: Vec::new() }
    }
}

/// Virtual time, for those that must be `Send`. Clones are the same.
#[derive(Clone, Default)]
pub struct SharedTime(Arc<AtomicU64>);

impl SharedTime {
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }

    fn set(&self, now: Duration) {
        self.0.store(now.as_nanos() as u64, Ordering::Relaxed);
    }
}

/// What tasks, devices and timers share. Everything is behind cells, and no borrow lasts while foreign code runs.
pub struct Core {
    limits: Limits,
    verbose: bool,
    now: SharedTime,
    steps: Cell<u64>,
    sequence: Cell<u64>,
    trace: Cell<u64>,
    order: RefCell<Stream>,
    draws: RefCell<Stream>,
    slots: RefCell<Slots>,
    ready: Arc<ReadyQueue>,
    timers: RefCell<BinaryHeap<Reverse<Timer>>>,
    step_alarms: RefCell<BTreeMap<(u64, u64), Rc<SleepState>>>,
    machines: RefCell<Vec<MachineState>>,
    broken: RefCell<Option<String>>,
}

/// A timer that is nearer than this may fire while tasks are still ready.
const NEAR: Duration = Duration::from_millis(1);

impl Core {
    pub fn now(&self) -> Duration {
        self.now.now()
    }

    pub fn time(&self) -> SharedTime {
        self.now.clone()
    }

    pub fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// A random number for whoever asks; the order of steps is drawn from another stream.
    pub fn draw(&self) -> u64 {
        self.draws.borrow_mut().draw()
    }

    pub fn fork(&self) -> Stream {
        self.draws.borrow_mut().fork()
    }

    /// Adds an event to the run's trace; the text is made only if somebody watches.
    pub fn note(&self, event: u64, text: impl FnOnce() -> String) {
        self.trace.set(mix(self.trace.get() ^ event).wrapping_add(self.now().as_nanos() as u64));
        if self.verbose {
            let _ = writeln!(std::io::stdout(), "{:>14?} {}", self.now(), text()); // who reads may have left
        }
    }

    /// Ends the run with this story; the first one counts.
    pub fn fail(&self, story: String) {
        self.broken.borrow_mut().get_or_insert(story);
    }

    pub fn is_alive(&self, machine: Machine) -> bool {
        self.machines.borrow()[machine.0 as usize].alive
    }

    pub fn boot(&self, name: &'static str) -> Machine {
        let mut machines = self.machines.borrow_mut();
        machines.push(MachineState::new(name));
        Machine(machines.len() as u32 - 1)
    }

    /// Drops every task of the machine where it is. Nothing of it ever runs again.
    pub fn kill(&self, machine: Machine) {
        assert!(machine != SCENARIO, "the scenario can't kill itself");
        {
            let state = &mut self.machines.borrow_mut()[machine.0 as usize];
            (state.alive, state.paused) = (false, false);
            state.parked.clear();
        }
        let doomed = {
            let mut slots = self.slots.borrow_mut();
            let of_machine = |slot: &u32, slots: &Slots| {
                slots.tasks[*slot as usize].1.as_ref().is_some_and(|task| task.machine == machine)
            };
            let chosen: Vec<u32> = (0..slots.tasks.len() as u32).filter(|slot| of_machine(slot, &slots)).collect();
            chosen.into_iter().filter_map(|slot| slots.remove(slot)).collect::<Vec<_>>()
        };
        self.note(0xdead, || format!("kill {} ({} tasks)", self.machine_name(machine), doomed.len()));
        drop(doomed); // may wake others, and may try to spawn, which a dead machine ignores
    }

    /// `SIGSTOP`: none of its tasks takes a step until it's resumed.
    pub fn pause(&self, machine: Machine) {
        assert!(machine != SCENARIO, "the scenario can't pause itself");
        self.machines.borrow_mut()[machine.0 as usize].paused = true;
        self.note(0x5709, || format!("pause {}", self.machine_name(machine)));
    }

    pub fn resume(&self, machine: Machine) {
        let parked = {
            let mut machines = self.machines.borrow_mut();
            let state = &mut machines[machine.0 as usize];
            state.paused = false;
            std::mem::take(&mut state.parked)
        };
        self.note(0xc047, || format!("resume {} ({} tasks are ready)", self.machine_name(machine), parked.len()));
        parked.into_iter().for_each(|key| self.ready.push(key));
    }

    pub fn is_paused(&self, machine: Machine) -> bool {
        self.machines.borrow()[machine.0 as usize].paused
    }

    fn machine_name(&self, machine: Machine) -> String {
        format!("{}#{}", self.machines.borrow()[machine.0 as usize].name, machine.0)
    }

    pub fn spawn(&self, machine: Machine, name: &'static str, future: LocalBoxFuture<'static, ()>) {
        if !self.is_alive(machine) {
            return;
        }
        let mut slots = self.slots.borrow_mut();
        let slot = slots.free.pop().unwrap_or_else(|| {
            slots.tasks.push((0, None));
            slots.tasks.len() as u32 - 1
        });
        let key = TaskKey { slot, generation: slots.tasks[slot as usize].0 };
        let waker = Arc::new(TaskWaker { key, queued: AtomicBool::new(false), queue: self.ready.clone() });
        waker.wake_by_ref();
        slots.tasks[slot as usize].1 = Some(Task { name, machine, waker, future: Some(future) });
    }

    /// Runs `event` at this time; it belongs to no machine.
    pub fn at(&self, at: Duration, event: impl FnOnce() + 'static) {
        self.set_timer(at, Alarm::Event(Box::new(event)));
    }

    fn set_timer(&self, at: Duration, alarm: Alarm) {
        let at = at.max(self.now());
        self.timers.borrow_mut().push(Reverse(Timer { at, sequence: self.next_sequence(), alarm }));
    }

    fn next_sequence(&self) -> u64 {
        let sequence = self.sequence.get();
        self.sequence.set(sequence + 1);
        sequence
    }

    fn waiting(&self) -> Waiting {
        let mut names = BTreeMap::new();
        for task in self.slots.borrow().tasks.iter().filter_map(|(_, task)| task.as_ref()) {
            *names.entry(format!("{}/{}", self.machine_name(task.machine), task.name)).or_default() += 1;
        }
        Waiting(names)
    }

    /// The time of the next timer that somebody still waits for.
    fn next_timer(&self) -> Option<Duration> {
        let mut timers = self.timers.borrow_mut();
        while let Some(Reverse(timer)) = timers.peek() {
            match &timer.alarm {
                Alarm::Wake(state) if state.dropped.get() => drop(timers.pop()),
                _ => return Some(timer.at),
            }
        }
        None
    }

    fn fire(&self) {
        let Some(Reverse(timer)) = self.timers.borrow_mut().pop() else { return };
        self.now.set(timer.at);
        match timer.alarm {
            Alarm::Wake(state) => state.fire(),
            Alarm::Event(event) => event(),
        }
    }

    fn fire_step_alarms(&self, up_to: u64) {
        loop {
            let mut alarms = self.step_alarms.borrow_mut();
            let Some(entry) = alarms.first_entry().filter(|entry| entry.key().0 <= up_to) else { return };
            let state = entry.remove();
            drop(alarms);
            state.fire();
        }
    }

    fn poll_one(&self, key: TaskKey) {
        let (waker, mut future) = {
            let mut slots = self.slots.borrow_mut();
            let Some(task) = slots.live(key) else { return };
            let machine = &mut self.machines.borrow_mut()[task.machine.0 as usize];
            if machine.paused {
                return machine.parked.push(key);
            }
            let Some(future) = task.future.take() else { return };
            task.waker.queued.store(false, Ordering::Relaxed);
            (Waker::from(task.waker.clone()), future)
        };
        self.steps.set(self.steps.get() + 1);
        self.trace.set(mix(self.trace.get() ^ u64::from(key.slot)).wrapping_add(self.now().as_nanos() as u64));
        let done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let finished = {
            let mut slots = self.slots.borrow_mut();
            match slots.live(key) {
                Some(task) if !done => {
                    task.future = Some(future);
                    return;
                }
                Some(_) => slots.remove(key.slot),
                None => None, // its machine was killed while it ran
            }
        };
        drop((future, finished)); // may wake, spawn or kill others
    }

    /// One step. False when nothing can happen any more.
    fn step(&self) -> bool {
        self.fire_step_alarms(self.steps.get());
        let next = self.next_timer();
        let near = next.is_some_and(|at| at <= self.now() + NEAR) && self.order.borrow_mut().one_in(16);
        if !near {
            let drawn = self.ready.draw(&mut self.order.borrow_mut());
            if let Some(key) = drawn {
                self.poll_one(key);
                return true;
            }
        }
        if next.is_some() {
            self.fire();
            return true;
        }
        let last = self.step_alarms.borrow().first_key_value().map(|(&(step, _), _)| step);
        match last {
            Some(step) => self.fire_step_alarms(step),
            None => return !self.ready.is_empty(),
        }
        true
    }
}

/// Waits for a time or for a number of steps.
pub struct Sleep {
    core: Rc<Core>,
    until: Until,
    state: Option<Rc<SleepState>>,
}

#[derive(Clone, Copy)]
enum Until {
    Time(Duration),
    Step(u64),
    Never,
}

#[derive(Default)]
struct SleepState {
    fired: Cell<bool>,
    dropped: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl SleepState {
    fn fire(&self) {
        self.fired.set(true);
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Sleep {
    pub fn until(core: &Rc<Core>, at: Duration) -> Self {
        Sleep { core: core.clone(), until: Until::Time(at), state: None }
    }

    /// Until the executor has made so many steps more, or nothing else can happen: a crash between any two polls.
    pub fn steps(core: &Rc<Core>, steps: u64) -> Self {
        Sleep { core: core.clone(), until: Until::Step(core.steps() + steps), state: None }
    }

    /// For what a dead machine still asks for.
    pub fn forever(core: &Rc<Core>) -> Self {
        Sleep { core: core.clone(), until: Until::Never, state: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let state = match &self.state {
            Some(state) => state.clone(),
            None => {
                let state = Rc::new(SleepState::default());
                match self.until {
                    Until::Time(at) => self.core.set_timer(at, Alarm::Wake(state.clone())),
                    Until::Step(step) => {
                        let key = (step, self.core.next_sequence());
                        self.core.step_alarms.borrow_mut().insert(key, state.clone());
                    }
                    Until::Never => {}
                }
                self.state = Some(state.clone());
                state
            }
        };
        if state.fired.get() {
            return Poll::Ready(());
        }
        *state.waker.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(state) = &self.state {
            state.dropped.set(true);
            state.waker.borrow_mut().take();
        }
    }
}

/// Owns a run: dropping it drops every task.
pub struct Executor {
    core: Rc<Core>,
}

impl Executor {
    /// `verbose` prints the trace as it happens.
    pub fn new(seed: u64, limits: Limits, verbose: bool) -> Self {
        let mut random = Stream::new(seed);
        let core = Core {
            limits,
            verbose,
            now: SharedTime::default(),
            steps: Cell::new(0),
            sequence: Cell::new(0),
            trace: Cell::new(seed),
            order: RefCell::new(random.fork()),
            draws: RefCell::new(random.fork()),
            slots: RefCell::default(),
            ready: Arc::default(),
            timers: RefCell::default(),
            step_alarms: RefCell::default(),
            machines: RefCell::new(vec![MachineState::new("scenario")]),
            broken: RefCell::default(),
        };
        Executor { core: Rc::new(core) }
    }

    pub fn core(&self) -> &Rc<Core> {
        &self.core
    }

    /// A number that differs, almost surely, whenever two runs took different steps.
    pub fn trace_hash(&self) -> u64 {
        self.core.trace.get()
    }

    /// Runs until `main` is done, on the machine [`SCENARIO`].
    pub fn run<T: 'static>(&self, main: impl Future<Output = T> + 'static) -> Result<T, Failure> {
        let result = Rc::new(Cell::new(None));
        let slot = result.clone();
        self.core.spawn(SCENARIO, "main", Box::pin(async move { slot.set(Some(main.await)) }));
        loop {
            if let Some(story) = self.core.broken.borrow_mut().take() {
                return Err(Failure::Broken { now: self.core.now(), story });
            }
            if let Some(result) = result.take() {
                return Ok(result);
            }
            let (now, steps, tasks) = (self.core.now(), self.core.steps(), || self.core.waiting());
            if steps > self.core.limits.steps {
                return Err(Failure::Livelock { steps, now, tasks: tasks() });
            }
            if now > self.core.limits.time {
                return Err(Failure::Stuck { now, tasks: tasks() });
            }
            if !self.core.step() {
                return Err(Failure::Deadlock { now, tasks: tasks() });
            }
        }
    }
}

impl Drop for Executor {
    /// Tasks hold the core and the core holds the tasks: this is where the circle is cut.
    fn drop(&mut self) {
        for machine in self.core.machines.borrow_mut().iter_mut() {
            machine.alive = false;
        }
        let slots = std::mem::take(&mut *self.core.slots.borrow_mut());
        let timers = std::mem::take(&mut *self.core.timers.borrow_mut());
        if std::thread::panicking() {
            // A second panic in some task's drop would end the process before the seed is told.
            std::mem::forget((slots, timers));
        }
    }
}

#[cfg(test)]
#[path = "executor_tests.rs"]
mod tests;
