//! Keeping copies of the cluster's state on a drive in use.
//!
//! There are two places for it, written in turn. Invariants:
//! 1. The place that has the newest whole copy isn't written to: whatever becomes of a write, that copy stays readable.
//! 2. A copy is never followed by one of an earlier state. Of two of one order, which can say different things, the first place's counts,
//!    and it's the later one once that is kept.
//! 3. What is in it is nothing to the drive.

use crate::drive::Drive;
use crate::error::Loss;
use crate::identity::state_copy::{Header, Places, StateCopy, StateOrder, Stored, TOGETHER, read_place};
use crate::world::{Device, DeviceError, Gather, World};
use std::sync::Arc;
use tepal_model::BLOCK;

/// Why a state wasn't kept. The one before it is still there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeepError {
    /// It was labelled by an earlier version, or nothing may be written.
    #[error(
        "it has no place for a copy of the cluster's state, as it's of format 4 or opened for reading: drain it, remove it and add it anew"
    )]
    NoPlace,
    /// Of use is only a larger drive.
    #[error(
        "a copy of the cluster's state takes {needed} bytes, and its place for that has {room}: remove volumes or snapshots, or put a \
         larger drive in its place"
    )]
    TooLong {
        /// Bytes.
        needed: u64,
        /// Bytes.
        room: u64,
    },
    /// What is agreed here isn't all that was.
    #[error(
        "it keeps a later state of the cluster ({kept}) than this server has ({given}): the data folder seems to be an older copy; put the \
         newest one back, or empty it and have the server join anew"
    )]
    Later {
        /// That state.
        kept: StateOrder,
        /// The one that it was to keep.
        given: StateOrder,
    },
    /// The drive takes part in nothing any more.
    #[error("{0}")]
    Lost(Arc<Loss>),
}

impl From<Arc<Loss>> for KeepError {
    fn from(loss: Arc<Loss>) -> Self {
        KeepError::Lost(loss)
    }
}

/// The place that the next copy goes to, and what is in the other one.
fn next_place(places: &Places) -> (usize, Option<Header>) {
    let order = |place: usize| places[place].map(|header| header.order);
    let newest = if order(1) > order(0) { 1 } else { 0 };
    match places[newest] {
        Some(header) => (1 - newest, Some(header)),
        None => (0, None),
    }
}

impl<W: World> Drive<W> {
    /// Keeps a state in place of those before it: when this returns, it's on stable media. One at a time.
    pub async fn keep_state(&self, copy: &StateCopy) -> Result<(), KeepError> {
        let shared = &self.shared;
        let room = shared.geometry.state_length;
        if room == 0 || shared.options.read_only {
            return Err(KeepError::NoPlace);
        }
        if copy.room() > room {
            return Err(KeepError::TooLong { needed: copy.room(), room });
        }
        let mut known = shared.kept.lock().await;
        let places = match *known {
            Some(places) => places,
            None => {
                let found = self.read_kept().await?;
                // What the last run wrote may not be on stable media.
                shared.flush_slots().await.map_err(|error| shared.lose(error))?;
                found
            }
        };
        *known = Some(places);
        let (place, newest) = next_place(&places);
        match newest {
            Some(newest) if newest == copy.header() => return Ok(()),
            Some(newest) if newest.order > copy.order() => {
                return Err(KeepError::Later { kept: newest.order, given: copy.order() });
            }
            _ => {}
        }
        *known = None; // until it's known what came of this
        let mut places = places;
        let has_order = newest.is_some_and(|newest| newest.order == copy.order());
        let again = (place == 1 && has_order).then_some(0);
        for place in [Some(place), again].into_iter().flatten() {
            shared.lock().alive()?;
            let start = shared.geometry.state_start + room * place as u64;
            let written = self.write_state(start, copy).await;
            written.map_err(|error| shared.lose(error))?;
            places[place] = Some(copy.header());
        }
        *known = Some(places);
        Ok(())
    }

    /// The latest state that the drive keeps whole.
    pub async fn kept_order(&self) -> Result<Option<StateOrder>, Arc<Loss>> {
        let places = self.read_kept().await?;
        Ok(next_place(&places).1.map(|header| header.order))
    }

    async fn read_kept(&self) -> Result<Places, Arc<Loss>> {
        let mut places = Places::default();
        let (label, geometry) = (&self.shared.label, &self.shared.geometry);
        for (start, found) in geometry.state_places().zip(&mut places) {
            let read = read_place(&self.shared.device, label, start).await.map_err(|gone| self.shared.lose(gone))?;
            if let Stored::Whole(copy) = read {
                *found = Some(copy.header());
            }
        }
        Ok(places)
    }

    async fn write_state(&self, start: u64, copy: &StateCopy) -> Result<(), DeviceError> {
        let shared = &self.shared;
        let header = copy.header().encode(shared.label.cluster, shared.label.drive);
        shared.device.write(start, Gather::from_iter([header])).await?;
        let mut written = 0;
        while written < copy.content.len() {
            let end = copy.content.len().min(written + TOGETHER);
            let piece = copy.content.slice(written..end);
            shared.device.write(start + BLOCK + written as u64, Gather::from_iter([piece])).await?;
            written = end;
            shared.world.give_way().await;
        }
        shared.flush_slots().await
    }
}
