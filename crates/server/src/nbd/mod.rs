//! NBD clients: accepted on the control runtime, served on the data threads, and told to go in two steps.

pub mod disk;
pub mod exports;
pub mod reader;

use crate::data_threads::DataThreads;
use crate::descriptors::Shares;
use crate::tasks;
use std::sync::Arc;
use std::time::Duration;
use tepal_gateway::disk::Exports;
use tepal_gateway::nbd::{Accepted, Admission, BindError, Endpoint, Limits, Listener, Permit, Protection};
use tepal_gateway::nbd::{Stop, Stopper, Surplus, accept_connections, serve_accepted, stop_signal};

/// How long connections may take to finish what is under way when the server stops.
const FINISH: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

pub struct Front {
    admission: Arc<Admission>,
    /// Asks connections to finish and go.
    finish: Stopper,
    /// Ends those that don't.
    end: Stopper,
    endpoints: Vec<Endpoint>,
}

/// What a connection takes to its data thread.
#[derive(Clone)]
struct Service<E> {
    exports: E,
    protection: Protection,
    finish: Stop,
    end: Stop,
}

impl Front {
    /// Listens at all addresses, and serves whoever comes.
    pub async fn open<E: Exports + Clone + Send + Sync>(
        listen: impl IntoIterator<Item = (&Endpoint, Protection)>,
        exports: E,
        threads: &Arc<DataThreads>,
    ) -> Result<Self, BindError> {
        let (mut listeners, mut endpoints) = (Vec::new(), Vec::new());
        for (endpoint, protection) in listen {
            let listener = Listener::bind(endpoint).await?;
            let failed = |error| BindError::Failed { endpoint: endpoint.clone(), error };
            endpoints.push(listener.endpoint().map_err(failed)?);
            listeners.push((listener, protection));
        }
        let limits = Limits { descriptors: Shares::now().clients, ..Limits::default() };
        let admission = Admission::new(limits);
        let ((finish, finishing), (end, ending)) = (stop_signal(), stop_signal());
        for (listener, protection) in listeners {
            let (finish, end) = (finishing.clone(), ending.clone());
            let service = Service { exports: exports.clone(), protection, finish, end };
            tasks::spawn(accept(listener, admission.clone(), service, threads.clone()));
        }
        Ok(Front { admission, finish, end, endpoints })
    }

    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Clients that were turned away.
    pub fn surplus(&self) -> &Arc<Surplus> {
        self.admission.surplus()
    }

    /// Accepts nobody any more, and returns when all connections have gone.
    pub async fn close(self) {
        self.finish.stop();
        if tokio::time::timeout(FINISH, self.all_gone()).await.is_ok() {
            return;
        }
        self.end.stop();
        if tokio::time::timeout(FINISH, self.all_gone()).await.is_err() {
            tracing::error!("NBD connections can't be ended: a data thread hangs");
        }
    }

    async fn all_gone(&self) {
        while self.admission.connections() > 0 {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

async fn accept<E: Exports + Clone + Send + Sync>(
    listener: Listener,
    admission: Arc<Admission>,
    service: Service<E>,
    threads: Arc<DataThreads>,
) {
    let hand = |accepted: Accepted, permit: Permit| {
        let seat = threads.seat();
        let service = service.clone();
        threads.spawn_on(seat.thread(), move || async move {
            let _seat = seat;
            service.serve(accepted, permit).await;
        });
    };
    accept_connections(&listener, &admission, service.finish.clone(), hand).await;
}

impl<E: Exports> Service<E> {
    async fn serve(mut self, accepted: Accepted, permit: Permit) {
        tokio::select! {
            biased;
            served = serve_accepted(accepted, &self.exports, permit, self.finish, &self.protection) => {
                if let Err(error) = served {
                    tracing::debug!(%error, "NBD connection ended");
                }
            }
            () = self.end.requested() => tracing::warn!("an NBD connection didn't finish in time and was ended"),
        }
    }
}
