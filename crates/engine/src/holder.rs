//! What holds a copy of a group.
//!
//! Whatever it's asked is an operation with an answer, so that it makes no difference where it is. Operations that change
//! anything begin there in the order in which they were asked for: not in that in which their futures are polled.

use crate::servers::remote::Remote;
use futures_util::future::Either;
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use tepal_drive::world::World;
use tepal_drive::{Change, Drive, DriveError, Loss, Mark, Prepared, Refused, Write};
use tepal_model::{DriveId, Epoch, Fate, Lineage, MapId, Origin, Segments, Taken, Taking};

/// Cheap to clone; clones are the same opening of the same drive.
pub(crate) enum Holder<W: World> {
    /// A drive of this server.
    Here(Drive<W>),
    /// One of another.
    There(Remote),
}

/// A write that has its place, and isn't begun.
pub(crate) enum Reserved {
    Here(Prepared),
    /// Whether there's space is found out there.
    There,
}

impl<W: World> Clone for Holder<W> {
    fn clone(&self) -> Self {
        match self {
            Holder::Here(drive) => Holder::Here(drive.clone()),
            Holder::There(remote) => Holder::There(remote.clone()),
        }
    }
}

/// Read errors after which a drive isn't trusted any more.
const MOST_READ_ERRORS: u64 = 64;

/// What is known of it without asking.
impl<W: World> Holder<W> {
    pub fn id(&self) -> DriveId {
        match self {
            Holder::Here(drive) => drive.id(),
            Holder::There(remote) => remote.id(),
        }
    }

    /// The drive, if it's one of this server.
    pub fn local(&self) -> Option<&Drive<W>> {
        match self {
            Holder::Here(drive) => Some(drive),
            Holder::There(_) => None,
        }
    }

    pub fn is_same(&self, other: &Holder<W>) -> bool {
        match (self, other) {
            (Holder::Here(one), Holder::Here(other)) => one.is_same(other),
            (Holder::There(one), Holder::There(other)) => one.is_same(other),
            _ => false,
        }
    }

    /// Its marks, as they were when it was opened or began to answer here.
    pub fn marks(&self) -> Vec<Mark> {
        match self {
            Holder::Here(drive) => drive.marks(),
            Holder::There(remote) => remote.marks(),
        }
    }

    /// See [`Drive::dropped_tail`].
    pub fn dropped_tail(&self) -> bool {
        match self {
            Holder::Here(drive) => drive.dropped_tail(),
            Holder::There(remote) => remote.dropped_tail(),
        }
    }

    /// See [`Drive::newest_found`].
    pub fn newest_found(&self) -> u64 {
        match self {
            Holder::Here(drive) => drive.newest_found(),
            Holder::There(_) => u64::MAX, // what was acknowledged there is stable
        }
    }

    /// See [`Drive::unflushed`].
    pub fn unflushed(&self) -> Option<u64> {
        match self {
            Holder::Here(drive) => drive.unflushed(),
            Holder::There(_) => None,
        }
    }

    /// How many reads are under way there, as far as is known.
    pub fn reading(&self) -> usize {
        match self {
            Holder::Here(drive) => drive.reading(),
            Holder::There(remote) => remote.reading(),
        }
    }

    /// A read went to another copy.
    pub fn passed_over(&self) {
        if let Holder::There(remote) = self {
            remote.passed_over();
        }
    }

    /// Whether it has made too many mistakes to be trusted, if others have all of its data.
    pub fn is_unreadable(&self) -> bool {
        match self {
            Holder::Here(drive) => drive.usage().read_errors >= MOST_READ_ERRORS,
            Holder::There(_) => false, // its own server looks
        }
    }

    /// Takes it out of use; how it was lost, if it wasn't before.
    pub fn retire(&self, reason: &str) -> Option<Arc<Loss>> {
        match self {
            Holder::Here(drive) => {
                drive.retire(reason);
                drive.loss()
            }
            Holder::There(remote) => Some(remote.lose(Loss::Retired { drive: remote.id(), reason: reason.to_owned() })),
        }
    }
}

/// What is asked of it.
impl<W: World> Holder<W> {
    /// See [`Drive::read`].
    pub async fn read(&self, map: MapId, first: u64, count: u64, seen: &Lineage) -> Result<Segments, DriveError> {
        match self {
            Holder::Here(drive) => drive.read(map, first, count, seen).await,
            Holder::There(remote) => remote.read(first, count, seen).await,
        }
    }

    /// See [`Drive::crcs`] and [`Drive::requests`].
    pub async fn content(
        &self,
        map: MapId,
        first: u64,
        count: u64,
        seen: &Lineage,
    ) -> Result<(Vec<Option<u32>>, Vec<Taken>), DriveError> {
        match self {
            Holder::Here(drive) => Ok((drive.crcs(map, first, count, seen).await?, drive.requests(map, first, count))),
            Holder::There(remote) => remote.content(first, count, seen).await,
        }
    }

    /// See [`Drive::fate`].
    pub async fn fate(&self, origin: Origin, map: MapId, first: u64, count: u64) -> Result<Fate, DriveError> {
        match self {
            Holder::Here(drive) => Ok(drive.fate(origin, map, first, count)),
            Holder::There(remote) => remote.fate(origin, first, count).await,
        }
    }

    /// See [`Drive::adopt`].
    pub async fn adopt(&self, map: MapId, (first, count): (u64, u64), requests: Vec<Taken>) -> Result<(), DriveError> {
        match self {
            Holder::Here(drive) => drive.adopt(map, (first, count), requests).await,
            Holder::There(remote) => remote.adopt(first, count, requests).await,
        }
    }

    /// See [`Drive::present`].
    pub async fn present(
        &self,
        map: MapId,
        first: u64,
        count: u64,
        seen: &Lineage,
    ) -> Result<Vec<(u64, bool)>, DriveError> {
        match self {
            Holder::Here(drive) => Ok(drive.present(map, first, count, u64::MAX, seen)),
            Holder::There(remote) => remote.present(first, count, seen).await,
        }
    }

    /// Those of the blocks that hold something, numbered from the first one.
    pub async fn held(&self, map: MapId, first: u64, count: u64, seen: &Lineage) -> Result<BTreeSet<u64>, DriveError> {
        let (mut held, mut at) = (BTreeSet::new(), 0);
        for (run, holds) in self.present(map, first, count, seen).await? {
            held.extend((at..at + run).filter(|_| holds));
            at += run;
        }
        Ok(held)
    }

    /// Whether none of the blocks hold anything.
    pub async fn is_empty(&self, map: MapId, first: u64, count: u64, seen: &Lineage) -> Result<bool, DriveError> {
        match self {
            Holder::Here(drive) => Ok(drive.is_empty(map, first, count, seen)),
            Holder::There(remote) => Ok(remote.present(first, count, seen).await?.iter().all(|&(_, holds)| !holds)),
        }
    }

    /// Whether it's here and surely holds nothing of these blocks, in whatever epoch. Asks nobody.
    pub fn is_bare(&self, map: MapId, first: u64, count: u64) -> bool {
        match self {
            Holder::Here(drive) => drive.is_bare(map, first, count),
            Holder::There(_) => false,
        }
    }

    /// See [`Drive::epochs_of`].
    pub async fn epochs_of(&self, map: MapId, first: u64, count: u64) -> Result<Vec<Epoch>, DriveError> {
        match self {
            Holder::Here(drive) => Ok(drive.epochs_of(map, first, count)),
            Holder::There(remote) => remote.epochs_of(first, count).await,
        }
    }

    /// Bytes that it holds of a map, in whole extents.
    pub async fn allocated_of(&self, map: MapId) -> Result<u64, DriveError> {
        match self {
            Holder::Here(drive) => Ok(drive.allocated_of(map)),
            Holder::There(remote) => remote.allocated().await,
        }
    }

    /// See [`Drive::extents_of`].
    pub async fn extents_of(
        &self,
        map: MapId,
        (first, count): (u64, u64),
        noted: bool,
    ) -> Result<Vec<u64>, DriveError> {
        match self {
            Holder::Here(drive) => Ok(drive.extents_of(map, first, count, noted)),
            Holder::There(remote) => remote.extents(first, count, noted).await,
        }
    }

    /// See [`Drive::prepare`].
    pub fn prepare(&self, write: &Write<'_>) -> Result<Reserved, Refused> {
        match self {
            Holder::Here(drive) => drive.prepare(write).map(Reserved::Here),
            Holder::There(_) => Ok(Reserved::There),
        }
    }

    /// See [`Drive::cancel`].
    pub fn cancel(&self, place: Reserved) {
        if let (Holder::Here(drive), Reserved::Here(prepared)) = (self, place) {
            drive.cancel(prepared);
        }
    }

    /// See [`Drive::commit`].
    pub async fn commit(&self, place: Reserved, write: Write<'_>) -> Result<(), DriveError> {
        match (self, place) {
            (Holder::Here(drive), Reserved::Here(prepared)) => drive.commit(prepared, write).await,
            (Holder::Here(drive), Reserved::There) => drive.write(write).await,
            (Holder::There(remote), _) => remote.write(&write).await,
        }
    }

    /// See [`Drive::give_back`].
    pub async fn give_back(&self) -> Result<(), Arc<Loss>> {
        match self {
            Holder::Here(drive) => drive.give_back().await,
            Holder::There(_) => Ok(()),
        }
    }

    /// Prepares and commits.
    pub async fn write(&self, write: Write<'_>) -> Result<(), DriveError> {
        match self {
            Holder::Here(drive) => drive.write(write).await,
            Holder::There(remote) => remote.write(&write).await,
        }
    }

    /// See [`Drive::may_clear`]. Another server's is asked when it's done.
    pub fn may_clear(&self, (map, first, count): (MapId, u64, u64), seen: &Lineage) -> bool {
        match self {
            Holder::Here(drive) => drive.may_clear(map, (first, count), seen),
            Holder::There(_) => true,
        }
    }

    /// See [`Drive::clear`].
    pub async fn clear(
        &self,
        (map, first, count): (MapId, u64, u64),
        marks: Vec<Change>,
        taking: Taking,
        seen: &Lineage,
    ) -> Result<(), DriveError> {
        match self {
            Holder::Here(drive) => drive.clear(map, (first, count), marks, taking, seen).await,
            Holder::There(remote) => remote.clear(first, count, marks, taking, seen).await,
        }
    }

    /// See [`Drive::uncover`].
    pub async fn uncover(
        &self,
        (map, first, count): (MapId, u64, u64),
        taking: Taking,
        seen: &Lineage,
    ) -> Result<(), DriveError> {
        match self {
            Holder::Here(drive) => drive.uncover(map, (first, count), taking, seen).await,
            Holder::There(remote) => remote.uncover(first, count, taking, seen).await,
        }
    }

    /// See [`Drive::record`].
    pub fn record(&self, changes: Vec<Change>, durable: bool) -> impl Future<Output = Result<(), DriveError>> + use<W> {
        match self {
            Holder::Here(drive) => Either::Left(drive.record(changes, durable)),
            Holder::There(remote) => Either::Right(remote.record(changes, durable)),
        }
    }

    /// See [`Drive::flush`].
    pub async fn flush(&self) -> Result<(), Arc<Loss>> {
        match self {
            Holder::Here(drive) => drive.flush().await,
            Holder::There(remote) => match remote.flush().await {
                Err(DriveError::Lost(loss)) => Err(loss),
                Err(error) => Err(remote.lose(Loss::Gone { drive: remote.id(), reason: error.to_string() })),
                Ok(()) => Ok(()),
            },
        }
    }
}
