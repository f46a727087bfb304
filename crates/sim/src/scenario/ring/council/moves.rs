//! Drives that take others' places in columns.

use super::{Council, State};
use std::sync::Arc;
use tepal_engine::{Agreed, CopyChange, DriveStatus, Placed, Placing, View};
use tepal_model::{DriveId, MapId, ServerId};

impl Council {
    /// A drive is to take another's place in a column, if it's up and has none there: whether that is agreed.
    pub fn begin_move(&self, of: (MapId, usize), copy: usize, to: DriveId) -> bool {
        let mut state = self.lock();
        let placed = &state.now.places[&of.0].columns[of.1];
        let is_up = matches!(state.now.drives[&to].status, DriveStatus::Up(_));
        if !is_up || placed.joins.is_some() || placed.has(to) {
            return false;
        }
        let from = placed.holders[copy].drive;
        state.moving.insert(of, from);
        state.place(of, |placed, since| {
            (placed.joins, placed.in_place_of) = (Some(Placing { drive: to, since }), copy);
        });
        true
    }

    /// The move of a column is called off.
    pub fn end_move(&self, of: (MapId, usize)) {
        let mut state = self.lock();
        if state.moving.remove(&of).is_some() {
            state.place(of, |placed, _| placed.joins = None);
        }
    }

    /// A server has another drive, which is open soon.
    pub fn add_drive(&self, drive: DriveId, server: ServerId) {
        let mut state = self.lock();
        state.now.view += 1;
        let status = DriveStatus::Away(state.now.view);
        state.now.drives.insert(drive, Agreed { server, status });
    }

    /// Moves all places of a drive that never returns to another one. Whether that is done: then nobody knows the old drive any more.
    pub fn replace(&self, old: DriveId, new: DriveId) -> bool {
        let places = self.now().places;
        let columns =
            places.iter().flat_map(|(&map, table)| (0..).zip(&table.columns).map(move |(at, of)| ((map, at), of)));
        let mut named = columns.filter(|(_, placed)| placed.all().any(|drive| drive == old)).peekable();
        if named.peek().is_none() {
            self.lock().forget(old);
            return true;
        }
        for (of, placed) in named {
            match placed.holders.iter().position(|holder| holder.drive == old) {
                _ if placed.joins.is_some_and(|joins| joins.drive == old) => self.end_move(of),
                Some(copy) => drop(self.begin_move(of, copy, new)),
                None => {}
            }
        }
        false
    }

    /// Whether a drive joins any column.
    pub fn moves_anything(&self) -> bool {
        !self.lock().moving.is_empty()
    }
}

impl State {
    fn forget(&mut self, drive: DriveId) {
        if self.now.drives.remove(&drive).is_some() {
            self.now.view += 1;
        }
    }

    /// In a new view.
    pub(super) fn place(&mut self, (map, column): (MapId, usize), change: impl Fn(&mut Placed, View)) {
        self.now.view += 1;
        let view = self.now.view;
        let table = self.now.places.get_mut(&map).expect("its copies move");
        let table = Arc::make_mut(table);
        change(&mut table.columns[column], view);
        let holders: Vec<DriveId> = table.columns[column].drives().collect();
        table.incomplete.retain(|(of, drive), _| *of != column || holders.contains(drive));
    }

    /// Whether that is agreed: what is passed over isn't up, and a complete copy stays.
    pub(super) fn count(&mut self, (map, column): (MapId, usize), change: &CopyChange) -> bool {
        let is_up = |drive: &DriveId| matches!(self.now.drives[drive].status, DriveStatus::Up(_));
        let Some(table) = self.now.places.get(&map) else { return false };
        let have_place = change.passed.iter().chain(&change.complete).all(|drive| table.columns[column].has(*drive));
        if !have_place || change.passed.iter().any(is_up) {
            return false;
        }
        let needed = self.now.laid.get(&map).map_or(1, |laid| usize::from(laid.layout.fragments().data));
        let view = self.now.view;
        Arc::make_mut(self.now.places.get_mut(&map).expect("it was just found")).count(column, change, view, needed)
    }

    /// A drive that is up is complete again where others can tell it what it misses.
    pub(super) fn is_up_again(&mut self, drive: DriveId) {
        let drives = &self.now.drives;
        let has_failed = |id: DriveId| matches!(drives[&id].status, DriveStatus::Retired(_));
        for table in self.now.places.values_mut().filter(|table| table.drives().contains(&drive)) {
            Arc::make_mut(table).is_up_again(drive, has_failed);
        }
    }

    /// Whether that drive still joins the column, since then.
    pub(super) fn joins(&self, (map, column): (MapId, usize), joins: Placing) -> bool {
        self.now.places.get(&map).is_some_and(|table| table.columns[column].joins == Some(joins))
    }
}
