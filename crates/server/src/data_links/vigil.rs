//! Whether a connection still brings anything while something is asked over it.
//!
//! A request may take as long as its drive does, so silence alone says nothing. After a while of it a ping is sent, which is answered at
//! once; if that isn't either, the connection is dead, whatever the kernel believes of it. One coarse timer looks, and only while
//! something isn't answered: it costs requests nothing.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// Pings that may be unanswered for a while: so many looks after the first that found nothing, the connection is dead.
const LOOKS: u32 = 2;

/// How long servers may be silent.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Between two looks.
    pub look: Duration,
    /// A server that is up and from which nothing was heard for that long can't be reached from here. By then the metadata would
    /// have declared it down, had it died, also if it led (`tepal_metadata::Timing`).
    pub cut: Duration,
}

/// So long after the end of its lease a server is down at the latest that was also the leader.
const ELECTED: Duration = Duration::from_millis(4_500);

impl Default for Patience {
    fn default() -> Self {
        Patience::of_lease(Duration::from_millis(1_500))
    }
}

impl Patience {
    /// Where servers may be silent for so long until others take over.
    pub fn of_lease(lease: Duration) -> Self {
        Patience { look: Duration::from_secs(1), cut: lease + ELECTED }
    }

    /// A connection that was found dead has brought nothing for that long.
    pub fn until_dead(&self) -> Duration {
        self.look * LOOKS
    }
}

pub struct Vigil {
    look: Duration,
    timer: Pin<Box<Sleep>>,
    begun: bool,
    heard: bool,
    /// Looks that found nothing.
    silent: u32,
}

/// What a look has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Something,
    /// Nothing: it's time for a ping.
    Silence,
    /// Nor an answer to that.
    Death,
}

impl Vigil {
    pub fn new(patience: Patience) -> Self {
        Vigil { look: patience.look, timer: Box::pin(sleep(patience.look)), begun: false, heard: false, silent: 0 }
    }

    /// Something has come.
    pub fn heard(&mut self) {
        self.heard = true;
    }

    /// Ready when it's time to look.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.begun {
            (self.begun, self.heard, self.silent) = (true, false, 0);
            self.wind_up();
        }
        self.timer.as_mut().poll(cx)
    }

    pub fn look(&mut self) -> Found {
        self.wind_up();
        self.silent = if std::mem::replace(&mut self.heard, false) { 0 } else { self.silent + 1 };
        match self.silent {
            0 => Found::Something,
            1..=LOOKS => Found::Silence,
            _ => Found::Death,
        }
    }

    /// Nothing is asked any more.
    pub fn end(&mut self) {
        self.begun = false;
    }

    fn wind_up(&mut self) {
        self.timer.as_mut().reset(Instant::now() + self.look);
    }
}
