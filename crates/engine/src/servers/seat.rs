//! The primary of a column, as far as is known here, and the way to reach it.

use crate::bell::Bell;
use crate::column::Group;
use crate::view::View;
use futures_channel::oneshot;
use std::sync::{Arc, Mutex, MutexGuard};
use tepal_drive::world::World;
use tepal_model::ServerId;

/// The leadership of a column.
pub(crate) struct Seat<W: World>(Mutex<Inner<W>>);

struct Inner<W: World> {
    taken: Seated<W>,
    /// Groups that this server led before, and that may still do something.
    ending: Vec<Group<W>>,
    bell: Bell,
}

/// The server that has the seat.
pub(crate) enum Seated<W: World> {
    Here(Group<W>),
    There(ServerId, View),
    /// No server now.
    Vacant,
}

impl<W: World> Seated<W> {
    pub fn is_vacant(&self) -> bool {
        matches!(self, Seated::Vacant)
    }
}

impl<W: World> Clone for Seated<W> {
    fn clone(&self) -> Self {
        match self {
            Seated::Here(group) => Seated::Here(group.clone()),
            Seated::There(server, view) => Seated::There(*server, *view),
            Seated::Vacant => Seated::Vacant,
        }
    }
}

impl<W: World> Default for Seat<W> {
    fn default() -> Self {
        Seat(Mutex::new(Inner { taken: Seated::Vacant, ending: Vec::new(), bell: Bell::default() }))
    }
}

impl<W: World> Seat<W> {
    fn lock(&self) -> MutexGuard<'_, Inner<W>> {
        self.0.lock().expect("nothing panics while it holds a seat")
    }

    pub fn now(&self) -> Seated<W> {
        self.lock().taken.clone()
    }

    /// The group, if the seat is this server's.
    pub fn group(&self) -> Option<Group<W>> {
        match &self.lock().taken {
            Seated::Here(group) => Some(group.clone()),
            Seated::There(..) | Seated::Vacant => None,
        }
    }

    /// Gives the seat to another, unless the other is known to have had it only earlier. A group of this server that
    /// had the seat serves nobody any more.
    pub fn take(&self, taken: Seated<W>) {
        {
            let mut inner = self.lock();
            let known = match &inner.taken {
                Seated::Here(group) => group.shared.view,
                Seated::There(_, view) => *view,
                Seated::Vacant => 0,
            };
            if matches!(taken, Seated::There(_, view) if view < known) {
                return;
            }
            if let Seated::Here(group) = std::mem::replace(&mut inner.taken, taken) {
                group.cut_off();
                inner.ending.push(group);
            }
        }
        self.ring();
    }

    /// Wakes everything that waits for the seat to be taken.
    pub fn ring(&self) {
        let bell = std::mem::take(&mut self.lock().bell);
        bell.ring();
    }

    pub fn ending(&self) -> Vec<Group<W>> {
        self.lock().ending.clone()
    }

    pub fn group_ended(&self, group: &Group<W>) {
        self.lock().ending.retain(|ending| !Arc::ptr_eq(&ending.shared, &group.shared));
    }

    pub fn is_still(&self, group: &Group<W>) -> bool {
        self.group().is_some_and(|now| Arc::ptr_eq(&now.shared, &group.shared))
    }

    /// Rings when another has the seat.
    pub fn change(&self) -> oneshot::Receiver<()> {
        self.lock().bell.listen()
    }
}
