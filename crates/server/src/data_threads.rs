//! The data threads: one for each core, each a runtime of its own that a connection never leaves (architecture, data path).
//!
//! Invariants:
//! 1. What was spawned on a data thread is polled, and dropped, by that thread alone.
//! 2. A data thread without work uses no CPU: it sleeps in the kernel.
//! 3. Once [`DataThreads::stop`] has returned, nothing of the threads runs any more, and no operation of theirs is with a drive.

use futures_util::FutureExt;
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{LocalSet, spawn_local};

/// Threads of a runtime for what waits in the kernel: plain drives and discards.
const MOST_BLOCKING_THREADS: usize = 32;

type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    static RUNS_TASKS: Cell<bool> = const { Cell::new(false) };
}

/// Whether this is a data thread, whose tasks can spawn others.
pub fn is_here() -> bool {
    RUNS_TASKS.get()
}

/// The threads. Dropping them stops them too.
pub struct DataThreads {
    threads: Vec<DataThread>,
    seats: Arc<Mutex<Vec<usize>>>,
}

struct DataThread {
    jobs: mpsc::UnboundedSender<Job>,
    thread: JoinHandle<()>,
}

/// Why there are no data threads. Those that had been started are stopped.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system has no thread, or no runtime for it: most often a limit of the process.
    #[error("data thread {thread} could not be started: {reason}")]
    Thread {
        /// Which one, counted from 0.
        thread: usize,
        /// The system's.
        reason: io::Error,
    },
    /// Ask for one at least.
    #[error("at least one data thread is needed")]
    None,
}

/// The work was not done to its end: its thread has stopped, or it panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("data thread {thread} has stopped, or the work that it was given has panicked")]
pub struct Stopped {
    /// Which one, counted from 0.
    pub thread: usize,
}

/// A data thread that counts one connection more, until this is dropped.
#[derive(Debug)]
pub struct Seat {
    thread: usize,
    seats: Arc<Mutex<Vec<usize>>>,
}

impl Seat {
    /// Which one, counted from 0.
    pub fn thread(&self) -> usize {
        self.thread
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)[self.thread] -= 1;
    }
}

impl DataThreads {
    /// As many threads as this process may use cores.
    pub fn one_for_each_core() -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    /// Starts `count` threads, at least one. They wait for work.
    pub fn start(count: usize) -> Result<Self, StartError> {
        if count == 0 {
            return Err(StartError::None);
        }
        let threads = (0..count)
            .map(|thread| DataThread::start(thread).map_err(|reason| StartError::Thread { thread, reason }))
            .collect::<Result<_, _>>()?;
        Ok(DataThreads { threads, seats: Arc::new(Mutex::new(vec![0; count])) })
    }

    /// At least one. Threads are numbered from 0.
    pub fn count(&self) -> usize {
        self.threads.len()
    }

    /// The thread with the fewest connections, the first of them if there are more.
    pub fn seat(&self) -> Seat {
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        let (thread, _) =
            seats.iter().enumerate().min_by_key(|(_, taken)| **taken).expect("there is at least one thread");
        seats[thread] += 1;
        Seat { thread, seats: self.seats.clone() }
    }

    /// Runs a future on a data thread. If the thread is stopping, `work` is dropped.
    pub fn spawn_on<F>(&self, thread: usize, work: impl FnOnce() -> F + Send + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        let job: Job = Box::new(move || {
            // Called inside the task, so that a panic is the task's own. In a box, so that a task is compiled once.
            spawn_local(async move { work().await }.boxed_local());
        });
        // The thread ends only with this object, or by a panic of its own; then nobody is left to do the work.
        let _ = self.threads[thread].jobs.send(job);
    }

    /// Runs a future on a data thread and gives its result to whoever awaits it, on any runtime.
    pub fn run_on<W, F, T>(
        &self,
        thread: usize,
        work: W,
    ) -> impl Future<Output = Result<T, Stopped>> + Send + use<W, F, T>
    where
        W: FnOnce() -> F + Send + 'static,
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let (result, answer) = oneshot::channel();
        self.spawn_on(thread, move || async move {
            // Nobody may wait for it any more.
            let _ = result.send(work().await);
        });
        async move { answer.await.map_err(|_| Stopped { thread }) }
    }

    /// The same, but the work is dropped if nobody awaits its result any more.
    pub fn run_while_awaited<W, F, T>(
        &self,
        thread: usize,
        work: W,
    ) -> impl Future<Output = Result<T, Stopped>> + Send + use<W, F, T>
    where
        W: FnOnce() -> F + Send + 'static,
        F: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let (mut result, answer) = oneshot::channel();
        self.spawn_on(thread, move || async move {
            let outcome = tokio::select! {
                biased;
                outcome = work() => outcome,
                () = result.closed() => return,
            };
            let _ = result.send(outcome); // nobody may wait for it any more
        });
        async move { answer.await.map_err(|_| Stopped { thread }) }
    }

    /// Drops everything that still runs on the threads, waits for what their drives were asked, and ends them. Blocks.
    pub fn stop(self) {}
}

impl Drop for DataThreads {
    fn drop(&mut self) {
        let threads: Vec<_> = self.threads.drain(..).map(|thread| (thread.jobs, thread.thread)).collect();
        let (jobs, threads): (Vec<_>, Vec<_>) = threads.into_iter().unzip();
        drop(jobs); // all of them stop at the same time
        for thread in threads {
            let name = thread.thread().name().unwrap_or_default().to_owned();
            let own = thread.thread().id() == std::thread::current().id();
            if !own && thread.join().is_err() {
                tracing::error!("{name} has panicked");
            }
        }
    }
}

impl DataThread {
    fn start(thread: usize) -> io::Result<Self> {
        let runtime = runtime()?;
        let (jobs, queue) = mpsc::unbounded_channel();
        let thread = std::thread::Builder::new()
            .name(format!("data-{thread}"))
            .spawn(move || run(&runtime, take_jobs(queue)))?;
        Ok(DataThread { jobs, thread })
    }
}

/// Runs a future on this thread as a data thread would.
#[cfg(test)]
pub fn run_here<T>(work: impl Future<Output = T>) -> io::Result<T> {
    Ok(run(&runtime()?, work))
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().max_blocking_threads(MOST_BLOCKING_THREADS).build()
}

fn run<T>(runtime: &Runtime, work: impl Future<Output = T>) -> T {
    let tasks = LocalSet::new();
    RUNS_TASKS.set(true);
    let result = tasks.block_on(runtime, work);
    RUNS_TASKS.set(false);
    // The tasks end before the runtime: their rings need it until the last answer.
    let _inside = runtime.enter();
    drop(tasks);
    result
}

async fn take_jobs(mut jobs: mpsc::UnboundedReceiver<Job>) {
    while let Some(job) = jobs.recv().await {
        job();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::ThreadId;
    use std::time::Duration;

    fn wait<T>(future: impl Future<Output = T>) -> T {
        Builder::new_current_thread().build().expect("a runtime").block_on(future)
    }

    #[test]
    fn each_thread_does_its_own_work_and_has_a_name() {
        let threads = DataThreads::start(3).expect("threads");
        let whoami = || async {
            tokio::task::yield_now().await;
            let thread = std::thread::current();
            (thread.id(), thread.name().map(str::to_owned))
        };
        let seen: Vec<(ThreadId, _)> =
            (0..3).map(|i| wait(threads.run_on(i, whoami)).expect("the thread runs")).collect();
        for (i, (id, name)) in seen.iter().enumerate() {
            assert_eq!(name.as_deref(), Some(format!("data-{i}").as_str()));
            assert_eq!(wait(threads.run_on(i, whoami)).expect("the thread runs").0, *id);
        }
    }

    #[test]
    fn a_new_connection_goes_where_the_fewest_are() {
        let threads = DataThreads::start(3).expect("threads");
        let mut seats: Vec<Seat> = (0..7).map(|_| threads.seat()).collect();
        assert_eq!(seats.iter().map(Seat::thread).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2, 0]);
        seats.retain(|seat| seat.thread() != 1);
        assert_eq!(threads.seat().thread(), 1);
        seats.clear();
        assert_eq!(threads.seat().thread(), 0, "alone, a connection is on the first thread");
    }

    struct SetOnDrop(Arc<AtomicBool>);

    impl Drop for SetOnDrop {
        fn drop(&mut self) {
            std::thread::sleep(Duration::from_millis(20)); // noticed by a stop that doesn't wait
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn what_nobody_awaits_any_more_is_dropped() {
        let threads = DataThreads::start(1).expect("threads");
        let dropped = Arc::new(AtomicBool::new(false));
        let set = dropped.clone();
        let answer = threads.run_while_awaited(0, move || async move {
            let _held = SetOnDrop(set);
            std::future::pending::<()>().await
        });
        wait(threads.run_on(0, || async {})).expect("the thread runs");
        assert!(!dropped.load(Ordering::SeqCst), "it's awaited");
        drop(answer);
        while !dropped.load(Ordering::SeqCst) {
            wait(threads.run_on(0, tokio::task::yield_now)).expect("the thread runs");
        }
        assert_eq!(wait(threads.run_while_awaited(0, || async { 7 })), Ok(7));
    }

    #[test]
    fn stopping_drops_what_still_runs_and_waits_for_it() {
        let dropped = Arc::new(AtomicBool::new(false));
        let threads = DataThreads::start(1).expect("threads");
        let set = dropped.clone();
        threads.spawn_on(0, move || async move {
            let _held = SetOnDrop(set);
            std::future::pending().await
        });
        wait(threads.run_on(0, || async {})).expect("the thread runs");
        threads.stop();
        assert!(dropped.load(Ordering::SeqCst));
    }

    #[test]
    fn a_panic_ends_its_own_work_and_no_other() {
        let threads = DataThreads::start(1).expect("threads");
        let panics = || async { panic!("as the test wants") };
        assert_eq!(wait(threads.run_on::<_, _, ()>(0, panics)), Err(Stopped { thread: 0 }));
        assert_eq!(wait(threads.run_on(0, || async { 7 })), Ok(7));
    }

    #[test]
    fn no_thread_at_all_is_refused() {
        assert!(matches!(DataThreads::start(0), Err(StartError::None)));
    }

    #[test]
    fn an_idle_thread_never_wakes() {
        let threads = DataThreads::start(1).expect("threads");
        let id = wait(threads.run_on(0, || async { rustix::thread::gettid() })).expect("the thread runs");
        crate::idle::assert_sleeps(id.as_raw_nonzero().get());
    }
}
