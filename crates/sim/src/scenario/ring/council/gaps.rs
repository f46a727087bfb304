//! Gaps in what volumes see, and what is to be known before they are closed.

use super::{Council, State};
use std::collections::{BTreeMap, BTreeSet};
use tepal_engine::{DriveStatus, View};
use tepal_model::history::Span;
use tepal_model::{DriveId, MapId, ServerId, VolumeId};

/// Of one map, as of one view.
#[derive(Clone, Debug)]
pub struct OpenGaps {
    pub map: MapId,
    pub gaps: Vec<Span>,
    pub view: View,
    /// Columns that somebody leads.
    pub columns: BTreeSet<u32>,
    /// Drives that take writes, and where they are.
    pub drives: BTreeMap<DriveId, ServerId>,
}

impl Council {
    /// Of each map that has some which may be closed.
    pub fn open_gaps(&self) -> Vec<OpenGaps> {
        let state = self.lock();
        let maps = state.now.places.keys().map(|&map| state.open_gaps(map));
        maps.filter(|open| !open.gaps.is_empty()).collect()
    }

    /// No drive that took writes then has anything of these: whether they are closed.
    pub fn close_gaps(&self, closed: &OpenGaps) -> bool {
        let mut state = self.lock();
        let Some(places) = state.now.places.get(&closed.map).cloned() else { return false };
        let came = |id: &DriveId| match state.now.drives[id].status {
            DriveStatus::Up(since) | DriveStatus::Behind(_, since) => since,
            DriveStatus::Away(_) | DriveStatus::Retired(_) => state.away[id],
        };
        let placed = places.columns.iter().flat_map(|placed| placed.holders.iter().chain(&placed.joins));
        let is_known = placed.into_iter().all(|placing| placing.since.max(came(&placing.drive)) <= closed.view);
        let open = state.open_gaps(closed.map).gaps;
        let gaps: Vec<Span> = closed.gaps.iter().copied().filter(|gap| open.contains(gap)).collect();
        if !state.has_majority() || !is_known || gaps.is_empty() {
            return false;
        }
        let mut readers = state.readers.clone();
        readers.close(&gaps, |id| state.now.volumes.get(&id) == Some(&closed.map));
        state.readers = readers;
        state.now.view += 1;
        state.tell_epochs();
        true
    }
}

impl State {
    fn open_gaps(&self, map: MapId) -> OpenGaps {
        let columns = &self.now.places[&map].columns;
        let takes_writes = |id: &DriveId| !self.away.contains_key(id);
        let is_led = |number: &u32| columns[*number as usize].all().any(|id| takes_writes(&id));
        let all: BTreeSet<DriveId> = columns.iter().flat_map(|placed| placed.all()).collect();
        let away = all.iter().filter_map(|id| self.away.get(id)).max().copied().unwrap_or(0);
        let has_it = |id: VolumeId| self.now.volumes.get(&id) == Some(&map);
        let migrates = self.now.migrations.values().any(|agreed| agreed.is_about(map))
            || self.now.ranges.values().any(|ranges| ranges.has(map));
        let mut gaps = if migrates { Vec::new() } else { self.readers.gaps_of(has_it) };
        gaps.retain(|gap| View::from(gap.0) > away);
        OpenGaps {
            map,
            gaps,
            view: self.now.view,
            columns: (0..columns.len() as u32).filter(is_led).collect(),
            drives: all.into_iter().filter(takes_writes).map(|id| (id, self.now.drives[&id].server)).collect(),
        }
    }
}
