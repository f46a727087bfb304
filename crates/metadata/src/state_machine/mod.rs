//! The state machine (`cluster.db`): what all applied entries came to, one transaction an entry.
//!
//! Invariants:
//! 1. What the database holds is exactly the state after the entry that it names as applied; [`State`] in memory is
//!    the same.
//! 2. An entry is answered, and its state published, only after its transaction is on stable media.
//! 3. How a command changes the state is decided by [`apply`] alone, which is a pure function.

pub mod access;
pub mod apply;
pub mod copy;
mod digest;
mod machine;
pub mod realm;
mod rows;
mod schedules;
mod schema;
mod snapshot;
#[cfg(test)]
pub mod tests;
mod upgrade;

pub use machine::{Content, Machine, create, create_with, read};
pub use schema::FILE;
#[cfg(test)]
pub use schema::KIND;
pub use snapshot::SnapshotFile;

use crate::consensus::{LogId, SnapshotMeta, StoredMembership, Types};
use crate::database::{StoreError, Task, Worker, task};
use crate::room::Room;
use crate::state::State;
use futures_util::{Stream, StreamExt};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::type_config::alias::SnapshotOf;
use openraft::{OptionalSend, RaftSnapshotBuilder};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::sync::Arc;
use tokio::sync::watch;

type Snapshot = SnapshotOf<Types, SnapshotFile>;

#[derive(Clone)]
pub struct StateMachine {
    worker: Worker<Task<Machine>>,
    room: Room,
    state: watch::Receiver<Arc<State>>,
}

impl StateMachine {
    /// `lock` is held until the database is closed.
    pub fn start(machine: Machine, lock: Arc<File>) -> io::Result<Self> {
        let state = machine.published.subscribe();
        let work = |(machine, _lock): &mut (Machine, Arc<File>), tasks: &mut VecDeque<Task<Machine>>| {
            if let Some(task) = tasks.pop_front() {
                task(machine);
            }
        };
        let worker = Worker::start("state-machine", (machine, lock), work)?;
        Ok(StateMachine { worker, room: Room::default(), state })
    }

    pub fn room(&self) -> &Room {
        &self.room
    }

    pub fn state(&self) -> watch::Receiver<Arc<State>> {
        self.state.clone()
    }

    pub async fn close(&self) {
        self.worker.stop().await;
    }

    async fn call<R: Send + 'static>(
        &self,
        mut body: impl FnMut(&mut Machine) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, io::Error> {
        let room = self.room.clone();
        let (task, answer) = task(move |machine| room.wait_for(|| body(machine)));
        self.worker.send(task)?;
        Ok(answer.await.map_err(|_| StoreError::Stopped)??)
    }
}

impl RaftStateMachine<Types> for StateMachine {
    type SnapshotData = SnapshotFile;
    type SnapshotBuilder = StateMachine;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        self.call(|machine| Ok((machine.content.applied, machine.content.membership.clone()))).await
    }

    async fn apply<Entries>(&mut self, mut entries: Entries) -> Result<(), io::Error>
    where
        Entries: Stream<Item = Result<EntryResponder<Types>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            let answer = self.call(move |machine| machine.apply(entry.log_id, &entry.payload)).await?;
            if let Some(responder) = responder {
                responder.send(answer);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> StateMachine {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, mut snapshot: SnapshotFile) -> Result<(), io::Error> {
        let meta = meta.clone();
        self.call(move |machine| machine.install_snapshot(&meta, &mut snapshot)).await
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot>, io::Error> {
        let found = self.call(Machine::current_snapshot).await?;
        Ok(found.map(|(meta, snapshot)| Snapshot { meta, snapshot }))
    }
}

impl RaftSnapshotBuilder<Types> for StateMachine {
    type SnapshotData = SnapshotFile;

    async fn build_snapshot(&mut self) -> Result<Snapshot, io::Error> {
        let (meta, snapshot) = self.call(Machine::build_snapshot).await?;
        Ok(Snapshot { meta, snapshot })
    }
}
