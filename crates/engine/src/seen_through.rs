//! Work that is done to its end even if whoever asked for it goes away.
//!
//! It's polled by its asker, so that it costs no task of its own; only when the asker drops it unfinished, or is let go, it goes on as
//! a task.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tepal_drive::world::Spawn;
use tepal_model::IoError;

/// Tells whether whoever asked for the work still waits for it.
#[derive(Clone, Debug)]
pub(crate) struct Asker(Rc<Cell<Asking>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asking {
    Waits,
    /// It's told that the work goes on.
    LetGo,
    Gone,
}

impl Asker {
    /// One of whom nothing is heard: it waits.
    pub fn present() -> Self {
        Asker(Rc::new(Cell::new(Asking::Waits)))
    }

    /// Also one that has been let go: it will ask again.
    pub fn is_waiting(&self) -> bool {
        self.0.get() != Asking::Gone
    }

    /// The work goes on by itself the next time that it has to wait.
    pub fn let_go(&self) {
        if self.0.get() == Asking::Waits {
            self.0.set(Asking::LetGo);
        }
    }
}

type Work<T> = Pin<Box<dyn Future<Output = Result<T, IoError>>>>;

pub(crate) struct SeenThrough<S: Spawn, T: 'static> {
    spawn: S,
    asker: Asker,
    /// `None` when it's done, or goes on by itself.
    work: Option<Work<T>>,
}

impl<S: Spawn, T: 'static> SeenThrough<S, T> {
    pub fn new<F>(spawn: S, work: impl FnOnce(Asker) -> F) -> Self
    where
        F: Future<Output = Result<T, IoError>> + 'static,
    {
        let asker = Asker::present();
        let work = Box::pin(work(asker.clone()));
        SeenThrough { spawn, asker, work: Some(work) }
    }

    fn go_on(&self, work: Work<T>) {
        self.spawn.spawn(Box::pin(async move {
            let _ = work.await; // nobody is there to be told
        }));
    }
}

impl<S: Spawn, T: 'static> Future for SeenThrough<S, T> {
    type Output = Result<T, IoError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Work that panics stays out, and isn't polled again as a task.
        let mut work = self.work.take().expect("it isn't polled again once it's done");
        let output = work.as_mut().poll(cx);
        if output.is_pending() {
            if self.asker.0.get() == Asking::LetGo {
                self.go_on(work);
                return Poll::Ready(Err(IoError::Unsure));
            }
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
            self.asker.0.set(Asking::Gone);
            self.go_on(work);
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
        let work = SeenThrough::new(tasks.clone(), |asker| async move { Ok(asker.is_waiting()) });
        assert_eq!(work.now_or_never(), Some(Ok(true)));
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
                Ok(())
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

    #[test]
    fn who_is_let_go_hears_of_it_as_soon_as_the_work_has_to_wait() {
        let tasks = Tasks::default();
        let (sender, receiver) = oneshot::channel::<()>();
        let seen = Rc::new(Cell::new(None));
        let work = SeenThrough::new(tasks.clone(), |asker| {
            let seen = seen.clone();
            async move {
                asker.let_go();
                let _ = receiver.await;
                seen.set(Some(asker.is_waiting()));
                Ok(())
            }
        });
        assert_eq!(work.now_or_never(), Some(Err(IoError::Unsure)));
        sender.send(()).expect("the work waits");
        let task = tasks.0.borrow_mut().pop().expect("a task");
        assert_eq!(task.now_or_never(), Some(()));
        assert_eq!(seen.get(), Some(true), "what has begun is done");
    }
}
