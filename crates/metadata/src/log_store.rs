//! The Raft log (`raft.db`): entries, the vote, and who this server is.
//!
//! Invariants:
//! 1. All writes go through one thread in the order that they were asked for; what was asked for is seen by every
//!    later read.
//! 2. An append is reported as flushed only after its commit is on stable media. Appends that wait together share a
//!    commit.
//! 3. What finds no room to be written waits for some (see [`Room`]), and all that comes after it.
//! 4. The entries are `purged + 1 ..= last` without a hole, and each has a checksum bound to its index.

mod table;
#[cfg(test)]
mod tests;

pub use table::{FILE, Identity, LogSummary, LogTable, create, create_after};

use crate::consensus::{Entry, LogId, Types, Vote};
use crate::database::{StoreError, Task, Worker, task};
use crate::room::Room;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};
use std::collections::VecDeque;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

enum Job {
    Append { entries: Vec<Entry>, flushed: IOFlushed<Types> },
    Task(Task<LogTable>),
}

#[derive(Clone)]
pub struct LogStore {
    worker: Worker<Job>,
    room: Room,
}

impl LogStore {
    /// `lock` is held until the database is closed.
    pub fn start(table: LogTable, lock: Arc<File>) -> io::Result<Self> {
        let room = Room::default();
        let here = room.clone();
        let worker = Worker::start("raft-log", (table, lock), move |(table, _lock), jobs| work(table, &here, jobs))?;
        Ok(LogStore { worker, room })
    }

    pub fn room(&self) -> &Room {
        &self.room
    }

    pub async fn close(&self) {
        self.worker.stop().await;
    }

    async fn call<R: Send + 'static>(
        &self,
        mut body: impl FnMut(&mut LogTable) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, io::Error> {
        let room = self.room.clone();
        let (task, answer) = task(move |table| room.wait_for(|| body(table)));
        self.worker.send(Job::Task(task))?;
        Ok(answer.await.map_err(|_| StoreError::Stopped)??)
    }
}

/// Does the first job, or the first few if all of them append.
fn work(table: &mut LogTable, room: &Room, jobs: &mut VecDeque<Job>) {
    let mut batch = Vec::new();
    let mut waiting = Vec::new();
    while let Some(job) = jobs.pop_front() {
        match job {
            Job::Append { entries, flushed } => {
                batch.extend(entries);
                waiting.push(flushed);
            }
            Job::Task(task) if waiting.is_empty() => return task(table),
            Job::Task(_) => {
                jobs.push_front(job);
                break;
            }
        }
    }
    let result = room.wait_for(|| table.append(&batch)).map_err(|error| error.to_string());
    for flushed in waiting {
        flushed.io_completed(result.clone().map_err(io::Error::other));
    }
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, io::Error> {
        let first = match range.start_bound() {
            Bound::Included(&index) => index,
            Bound::Excluded(&index) => index.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&index) => index.saturating_add(1),
            Bound::Excluded(&index) => index,
            Bound::Unbounded => u64::MAX,
        };
        self.call(move |table| table.entries(first, end)).await
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        self.call(|table| table.vote()).await
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = LogStore;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, io::Error> {
        let (purged, last) = self.call(|table| Ok((table.purged()?, table.last()?))).await?;
        Ok(LogState { last_purged_log_id: purged, last_log_id: last.or(purged) })
    }

    async fn get_log_reader(&mut self) -> LogStore {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let vote = *vote;
        self.call(move |table| table.save_vote(&vote)).await
    }

    async fn append<I>(&mut self, entries: I, flushed: IOFlushed<Types>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        Ok(self.worker.send(Job::Append { entries: entries.into_iter().collect(), flushed })?)
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        self.call(move |table| table.truncate_after(last.map(|id| id.index))).await
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        self.call(move |table| table.purge(&upto)).await
    }
}
