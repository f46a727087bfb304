//! The front-end as clients see it: a raw client on a real socket, and a disk in memory that fails and waits as told.

mod client;
mod commands;
mod disk;
mod faults;
mod handshake;
mod hostile;
mod limits;
mod listener;
mod tls;

use super::{Admission, ConnectionError, End, Limits, Protection, Stop, Stopper, serve_connection, stop_signal};
use client::Client;
use disk::{TestDisk, TestExports};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

/// Longer than any test takes, so that a hang fails.
const HANG: Duration = Duration::from_secs(60);

/// Runs a test on one thread, as a data thread would.
fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new()
        .block_on(&runtime, async { tokio::time::timeout(HANG, test).await })
        .expect("the test hangs")
}

/// A server of some exports.
struct Server {
    exports: TestExports,
    admission: Arc<Admission>,
    stopper: Stopper,
    stop: Stop,
    protection: Protection,
}

impl Server {
    fn new(exports: TestExports, limits: Limits) -> Self {
        let (stopper, stop) = stop_signal();
        Server { exports, admission: Admission::new(limits), stopper, stop, protection: Protection::default() }
    }

    /// With one export, `v0`.
    fn of(disk: &TestDisk) -> Self {
        Server::new(TestExports::of(&[("v0", disk)]), Limits::default())
    }

    /// A client, and how its connection ends.
    fn connect(&self) -> (Client, JoinHandle<Result<End, ConnectionError>>) {
        let (client, server) = UnixStream::pair().unwrap();
        let (exports, permit, stop) = (self.exports.clone(), self.admission.admit().unwrap(), self.stop.clone());
        let protection = self.protection.clone();
        let serving = async move { serve_connection(server, &exports, permit, stop, &protection).await };
        let end = tokio::task::spawn_local(serving);
        (Client::new(client), end)
    }

    /// A client in the transmission phase of `v0`.
    async fn attach(&self, mode: Mode) -> (Client, JoinHandle<Result<End, ConnectionError>>) {
        let (mut client, end) = self.connect();
        client.greet().await;
        if mode == Mode::Structured {
            client.structured("v0").await;
        }
        client.go("v0").await;
        (client, end)
    }
}

/// How the server's replies look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Simple,
    Structured,
}

const MODES: [Mode; 2] = [Mode::Simple, Mode::Structured];

/// Lets everything that can go on do so: in each turn the runtime looks at the sockets and runs every task that is ready, and
/// nothing here takes as many turns.
async fn settle() {
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
}
