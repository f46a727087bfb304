//! Says to the cluster that this command goes on to read or write something, so that it's in use as by an NBD client.

use crate::client::Client;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
pub use tepal_server::api::types::HoldUse;
use tepal_server::api::types::{Done, Hold as Said, Replication, route};

/// Between two times that it's said. Servers wait for several.
const EVERY: Duration = Duration::from_secs(1);

/// Ends with its owner.
pub struct Hold {
    goes_on: Option<Sender<()>>,
    saying: Option<JoinHandle<()>>,
}

impl Hold {
    /// `of` is what stands for the name of a volume or snapshot. Servers that can't be told now are told later: a hold guards from
    /// mistakes, nothing relies on it.
    pub fn begin(client: &Client, of: String, by: HoldUse) -> Self {
        Self::with_news(client, of, by, || None)
    }

    /// The same, which also says how far a replication is.
    pub fn with_news(
        client: &Client,
        of: String,
        by: HoldUse,
        news: impl Fn() -> Option<Replication> + Send + 'static,
    ) -> Self {
        let client = client.another().impatient();
        let id = random();
        let say = move |by| {
            let said = Said { id, of: of.clone(), by, replication: news() };
            drop(client.post_repeatable::<Done>(route::HOLDS, &said));
        };
        say(by);
        let (goes_on, ends) = channel();
        let saying = std::thread::spawn(move || {
            while let Err(RecvTimeoutError::Timeout) = ends.recv_timeout(EVERY) {
                say(by);
            }
            say(HoldUse::Ended);
        });
        Hold { goes_on: Some(goes_on), saying: Some(saying) }
    }
}

/// A number that nobody else has.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.goes_on.take();
        // Whoever does something next isn't refused because of it.
        let _ = self.saying.take().map(JoinHandle::join);
    }
}
