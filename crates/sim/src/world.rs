//! The injected world of one simulated process.

use crate::device::SimDevice;
use crate::executor::{Core, Machine, Sleep};
use futures_util::future::LocalBoxFuture;
use std::future::Future;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use tepal_drive::world::{Clock, Random, Spawn, Tick, World};

/// What one machine sees. When the machine is killed its sleeps never end and what it spawns is dropped.
#[derive(Clone)]
pub struct SimWorld {
    core: Rc<Core>,
    machine: Machine,
}

impl SimWorld {
    /// Starts a process.
    pub fn boot(core: &Rc<Core>, name: &'static str) -> Self {
        SimWorld { core: core.clone(), machine: core.boot(name) }
    }

    pub fn core(&self) -> &Rc<Core> {
        &self.core
    }

    /// `kill -9`: every task of this process is dropped where it is.
    pub fn kill(&self) {
        self.core.kill(self.machine);
    }

    /// `SIGSTOP`.
    pub fn pause(&self) {
        self.core.pause(self.machine);
    }

    /// `SIGCONT`.
    pub fn resume(&self) {
        self.core.resume(self.machine);
    }

    pub fn is_alive(&self) -> bool {
        self.core.is_alive(self.machine)
    }

    pub fn is_paused(&self) -> bool {
        self.core.is_paused(self.machine)
    }

    pub fn spawn_named(&self, name: &'static str, work: impl Future<Output = ()> + 'static) {
        self.core.spawn(self.machine, name, Box::pin(work));
    }
}

impl Clock for SimWorld {
    fn now(&self) -> Tick {
        Tick(self.core.now())
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> {
        match self.core.is_alive(self.machine) {
            true => Sleep::until(&self.core, self.core.now() + duration),
            false => Sleep::forever(&self.core),
        }
    }
}

impl Random for SimWorld {
    fn next_u64(&self) -> u64 {
        self.core.draw()
    }
}

impl Spawn for SimWorld {
    fn spawn(&self, work: LocalBoxFuture<'static, ()>) {
        self.core.spawn(self.machine, "background", work);
    }

    /// Which of the others go first is drawn, as always.
    async fn give_way(&self) {
        let mut given = false;
        std::future::poll_fn(|cx| {
            if given {
                return Poll::Ready(());
            }
            given = true;
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

impl World for SimWorld {
    type Device = SimDevice;
}
