//! Ctrl-C and its kin, as something that a command can look at and wait for.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Whether the user wants the command to end. Clones look at the same.
#[derive(Clone, Default)]
pub struct Interrupt {
    shared: Arc<(Mutex<bool>, Condvar)>,
}

impl Interrupt {
    /// From now on SIGINT, SIGTERM and SIGHUP don't end the process, but show here. Once is enough for a process.
    pub fn catch() -> io::Result<Self> {
        let interrupt = Interrupt::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let guard = runtime.enter();
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [int, term, hup] = kinds.map(signal);
        let (mut int, mut term, mut hup) = (int?, term?, hup?);
        drop(guard);
        let told = interrupt.clone();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            runtime.block_on(async {
                tokio::select! { biased;
                    _ = int.recv() => {}
                    _ = term.recv() => {}
                    _ = hup.recv() => {}
                }
            });
            told.raise();
        })?;
        Ok(interrupt)
    }

    pub fn raise(&self) {
        *self.shared.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.1.notify_all();
    }

    pub fn is_raised(&self) -> bool {
        *self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for so long, or less if the user wants to end. Says whether that is so.
    pub fn wait(&self, time: Duration) -> bool {
        let raised = self.shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.shared.1.wait_timeout_while(raised, time, |raised| !*raised);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_when_the_user_wants_to_end() {
        let interrupt = Interrupt::default();
        assert!(!interrupt.wait(Duration::from_millis(1)));
        let other = interrupt.clone();
        let waiter = std::thread::spawn(move || other.wait(Duration::from_secs(60)));
        interrupt.raise();
        assert!(waiter.join().expect("no panic"));
        assert!(interrupt.is_raised());
    }
}
