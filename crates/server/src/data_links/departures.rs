//! What a data thread has put in line is sent when all of its tasks that were ready have run: a system call then takes many
//! requests. Elsewhere it's sent at once.

use super::link::Link;
use crate::data_threads;
use std::cell::RefCell;
use std::sync::Arc;
use std::task::{Poll, Waker};

#[derive(Default)]
struct Departures {
    links: Vec<Arc<Link>>,
    /// Of the task that sends, if this thread has one.
    task: Option<Waker>,
    begun: bool,
}

thread_local! {
    static HERE: RefCell<Departures> = RefCell::default();
}

/// Sends what is in line at this link, soon.
pub fn depart(link: &Arc<Link>) {
    if !data_threads::is_here() {
        while link.send() {}
        return;
    }
    let begins = HERE.with_borrow_mut(|here| {
        if here.links.iter().any(|known| Arc::ptr_eq(known, link)) {
            return false;
        }
        here.links.push(link.clone());
        match &here.task {
            Some(task) => task.wake_by_ref(), // behind all tasks that are ready now
            None => return !std::mem::replace(&mut here.begun, true),
        }
        false
    });
    if begins {
        tokio::task::spawn_local(send_all());
    }
}

/// Begins anew when the thread's tasks have ended: tests run several data threads on one.
struct Ends;

impl Drop for Ends {
    fn drop(&mut self) {
        let ended = HERE.try_with(|here| here.take()); // a thread that ends has nothing to send
        drop(ended);
    }
}

async fn send_all() {
    let _ends = Ends;
    let mut links = Vec::new();
    std::future::poll_fn(|cx| {
        HERE.with_borrow_mut(|here| {
            if !here.task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
                here.task = Some(cx.waker().clone());
            }
            std::mem::swap(&mut here.links, &mut links);
        });
        for link in links.drain(..) {
            if link.send() {
                depart(&link); // others have put more in line meanwhile: it's their turn to be run
            }
        }
        Poll::Pending
    })
    .await
}
