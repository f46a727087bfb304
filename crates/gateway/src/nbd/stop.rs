//! Asking connections and listeners, on whatever thread they are, to finish and go.

use tokio::sync::watch;

/// The side that asks. Once it is dropped nobody ever will.
#[derive(Debug)]
pub struct Stopper(watch::Sender<bool>);

/// The side that is asked. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

/// Both sides, before stopping was asked for.
pub fn stop_signal() -> (Stopper, Stop) {
    let (asker, asked) = watch::channel(false);
    (Stopper(asker), Stop(asked))
}

impl Stopper {
    /// Asks everybody. Once is enough.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Stop {
    /// Returns once stopping was asked for.
    pub async fn requested(&mut self) {
        if self.0.wait_for(|&asked| asked).await.is_err() {
            std::future::pending().await
        }
    }
}
