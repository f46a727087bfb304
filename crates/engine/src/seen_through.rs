//! Work that is done to its end even if whoever asked for it goes away.
//!
//! It's polled by its asker, so that it costs no task of its own; only when the asker drops it unfinished, it goes on as
//! a task.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tepal_drive::world::Spawn;

/// Tells whether whoever asked for the work still waits for it.
#[derive(Clone, Debug)]
pub(crate) struct Asker(Rc<Cell<bool>>);

impl Asker {
    /// Who waits for as long as it takes.
    pub fn patient() -> Self {
        Asker(Rc::new(Cell::new(true)))
    }

    pub fn is_waiting(&self) -> bool {
        self.0.get()
    }
}

pub(crate) struct SeenThrough<S: Spawn, T: 'static> {
    spawn: S,
    waiting: Rc<Cell<bool>>,
    /// `None` when it's done.
    work: Option<Pin<Box<dyn Future<Output = T>>>>,
}

impl<S: Spawn, T: 'static> SeenThrough<S, T> {
    pub fn new<F: Future<Output = T> + 'static>(spawn: S, work: impl FnOnce(Asker) -> F) -> Self {
        let waiting = Rc::new(Cell::new(true));
        let work = Box::pin(work(Asker(waiting.clone())));
        SeenThrough { spawn, waiting, work: Some(work) }
    }
}

impl<S: Spawn, T: 'static> Future for SeenThrough<S, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // Work that panics stays out, and isn't polled again as a task.
        let mut work = self.work.take().expect("it isn't polled again once it's done");
        let output = work.as_mut().poll(cx);
        if output.is_pending() {
            self.work = Some(work);
        }
        output
    }
}

/// What is pinned is the work, in its box.
impl<S: Spawn, T: 'static> Unpin for SeenThrough<S, T> {}

impl<S: Spawn, T: 'static> Drop for SeenThrough<S, T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.waiting.set(false);
            self.spawn.spawn(Box::pin(async move {
                let _ = work.await; // nobody is there to be told
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_channel::oneshot;
    use futures_util::FutureExt;
    use futures_util::future::LocalBoxFuture;
    use std::cell::RefCell;

    #[derive(Clone, Default)]
    struct Tasks(Rc<RefCell<Vec<LocalBoxFuture<'static, ()>>>>);

    impl Spawn for Tasks {
        fn spawn(&self, work: LocalBoxFuture<'static, ()>) {
            self.0.borrow_mut().push(work);
        }

        fn give_way(&self) -> impl Future<Output = ()> {
            std::future::ready(())
        }
    }

    #[test]
    fn what_is_done_at_once_is_no_task() {
        let tasks = Tasks::default();
        let work = SeenThrough::new(tasks.clone(), |asker| async move { asker.is_waiting() });
        assert_eq!(work.now_or_never(), Some(true));
        assert!(tasks.0.borrow().is_empty());
    }

    #[test]
    fn what_is_dropped_goes_on_and_knows_it() {
        let tasks = Tasks::default();
        let (sender, receiver) = oneshot::channel::<()>();
        let seen = Rc::new(Cell::new(None));
        let mut work = SeenThrough::new(tasks.clone(), |asker| {
            let seen = seen.clone();
            async move {
                let _ = receiver.await;
                seen.set(Some(asker.is_waiting()));
            }
        });
        assert_eq!((&mut work).now_or_never(), None);
        drop(work);
        let mut task = tasks.0.borrow_mut().pop().expect("a task");
        assert_eq!((&mut task).now_or_never(), None);
        sender.send(()).expect("the work waits");
        assert_eq!(task.now_or_never(), Some(()));
        assert_eq!(seen.get(), Some(false));
    }
}
