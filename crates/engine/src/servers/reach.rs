//! How a volume reaches the primary of a column: here, or by asking other servers until one answers.

use super::peers::Question;
use super::seat::{Seat, Seated};
use super::slots::Ticket;
use crate::column::read::lost;
use crate::column::{Blocks, Group};
use crate::engine::Engine;
use crate::protocol::Led;
use crate::view::View;
use crate::volume::operation::Operation;
use crate::volume::{Map, Volume};
use futures_util::future::select;
use std::sync::Arc;
use std::time::Duration;
use tepal_drive::world::World;
use tepal_model::{IoError, ServerId};
use tepal_wire::message::{Answer, Request, Tag, VolumeAnswer, VolumeFailure, VolumeRequest};

/// How long to wait before a primary that didn't serve is asked again, if no news comes.
const AGAIN: Duration = Duration::from_millis(100);

/// Why a column's primary hasn't carried an operation out.
pub(crate) enum Undone {
    Io(IoError),
    /// Another map has some of the bytes by now.
    Migrated(Again),
}

impl From<IoError> for Undone {
    fn from(error: IoError) -> Self {
        Undone::Io(error)
    }
}

/// A request that goes on at another map: it keeps its number, and its doubt.
#[derive(Clone)]
pub(crate) struct Again {
    ticket: Option<Arc<Ticket>>,
    is_in_doubt: bool,
}

/// As [`Undone`], for a request whose number the caller keeps.
enum Stopped {
    Io(IoError),
    Migrated { is_in_doubt: bool },
}

impl From<IoError> for Stopped {
    fn from(error: IoError) -> Self {
        Stopped::Io(error)
    }
}

impl<W: World> Volume<W> {
    /// Has the column's primary carry an operation out. Waits while there's no primary, or until there's another one.
    pub(crate) async fn at_primary<O: Operation<W>>(
        &self,
        map: &Map<W>,
        column: usize,
        operation: &O,
        again: Option<&Again>,
    ) -> Result<O::Outcome, Undone> {
        if let Some(led) = map.by_gateways() {
            let outcome = self.by_gateways(map, (led, column), operation).await;
            return outcome.map_err(|error| in_volume(map, column, Undone::Io(error)));
        }
        let outcome = match map.is_among() || map.migration().is_some() {
            true => Box::pin(self.at_some_primary(map, column, operation, again)).await,
            false => match map.seats()[column].group() {
                Some(group) => self.at_group(&group, operation, |_| None, false).await.map_err(Undone::Io),
                None => Err(Undone::Io(IoError::Fenced)),
            },
        };
        match outcome {
            // The map was shared meanwhile, or the volume migrates, and nothing of this request had been begun.
            Err(Undone::Io(IoError::Fenced)) if self.may_be_elsewhere(map) && !self.is_cut_off() => {
                let outcome = Box::pin(self.at_some_primary(map, column, operation, again)).await;
                outcome.map_err(|error| in_volume(map, column, error))
            }
            outcome => outcome.map_err(|error| in_volume(map, column, error)),
        }
    }

    /// Carries an operation out where nobody leads the column.
    async fn by_gateways<O: Operation<W>>(
        &self,
        map: &Map<W>,
        (led, column): (&Led, usize),
        operation: &O,
    ) -> Result<O::Outcome, IoError> {
        if self.is_cut_off() {
            return Err(IoError::Fenced);
        }
        self.may_begin().await?;
        if let Some(end) = operation.end().filter(|&end| end > self.end_in(map, column)) {
            let (offset, size) = (map.striping().offset_of(column, end - 1), self.size());
            return Err(IoError::OutOfRange { offset, length: 1, size });
        }
        match self.by_gateway(map, led, column) {
            Some(column) => operation.by_gateway(&column).await,
            None => Err(IoError::Stopping),
        }
    }

    fn may_be_elsewhere(&self, map: &Map<W>) -> bool {
        map.is_among() || map.migration().is_some() || self.map().id() != map.id()
    }

    async fn at_some_primary<O: Operation<W>>(
        &self,
        map: &Map<W>,
        column: usize,
        operation: &O,
        again: Option<&Again>,
    ) -> Result<O::Outcome, Undone> {
        let Some(engine) = self.engine() else { return Err(Undone::Io(IoError::Stopping)) };
        if let Some(Again { ticket, is_in_doubt }) = again {
            let tag = |is_in_doubt| ticket.as_ref().map(|ticket| Tag { origin: ticket.origin, is_in_doubt });
            let outcome = self.ask_until_answered(map, (column, operation), tag, *is_in_doubt).await;
            return outcome.map_err(|stopped| match stopped {
                Stopped::Io(error) => Undone::Io(error),
                Stopped::Migrated { is_in_doubt } => Undone::Migrated(Again { ticket: ticket.clone(), is_in_doubt }),
            });
        }
        let ticket = O::IS_NUMBERED.then(|| engine.shared.slots.take(engine.followed()));
        let tag = |is_in_doubt| ticket.as_ref().map(|ticket| Tag { origin: ticket.origin, is_in_doubt });
        match self.ask_until_answered(map, (column, operation), tag, false).await {
            Ok(outcome) => Ok(outcome),
            Err(Stopped::Io(error)) => Err(Undone::Io(error)),
            Err(Stopped::Migrated { is_in_doubt }) => {
                Err(Undone::Migrated(Again { ticket: ticket.map(Arc::new), is_in_doubt }))
            }
        }
    }

    /// `is_in_doubt`: whether the request may have been carried out.
    async fn ask_until_answered<O: Operation<W>>(
        &self,
        map: &Map<W>,
        (column, operation): (usize, &O),
        tag: impl Fn(bool) -> Option<Tag>,
        mut is_in_doubt: bool,
    ) -> Result<O::Outcome, Stopped> {
        let seat = &map.seats()[column];
        loop {
            if self.is_cut_off() {
                return Err(IoError::Fenced.into());
            }
            self.may_begin().await?;
            if map.has_migrated() && !self.is_asked_there(map, column, operation) {
                return Err(Stopped::Migrated { is_in_doubt });
            }
            if let Some(end) = operation.end().filter(|&end| end > self.end_in(map, column)) {
                let (offset, size) = (map.striping().offset_of(column, end - 1), self.size());
                return Err(IoError::OutOfRange { offset, length: 1, size }.into());
            }
            let change = match seat.now() {
                Seated::Here(group) => {
                    let change = map.has_migrated().then(|| seat.change());
                    let outcome = self.at_group(&group, operation, &tag, is_in_doubt).await;
                    let is_fenced = matches!(outcome, Err(IoError::Fenced));
                    // The migration may have begun while the request was under way.
                    let change = change.or_else(|| (is_fenced && map.has_migrated()).then(|| seat.change()));
                    match change.filter(|_| is_fenced && group.serves(self.id())) {
                        // The group doesn't know yet what is known here, or the other way round; else another map has
                        // the bytes.
                        Some(change) => {
                            is_in_doubt |= O::COMES_IN_STEPS && group.shared.view > 0;
                            change
                        }
                        None => {
                            let is_void = is_fenced && !seat.is_still(&group);
                            if !is_void && map.may_tell(seat, &group).await {
                                return Ok(outcome?);
                            }
                            // A request that was refused for sharing the map hasn't begun.
                            is_in_doubt |= group.shared.view > 0;
                            continue;
                        }
                    }
                }
                Seated::Vacant if map.is_lost(column) => {
                    let bytes = operation.bytes().unwrap_or(0..self.end_in(map, column));
                    return Err(lost(Blocks::touched(bytes.start, bytes.end)).into());
                }
                Seated::Vacant => seat.change(),
                Seated::There(server, view) => {
                    let change = seat.change();
                    match self.ask((server, view), (map, column), operation, tag(is_in_doubt)).await? {
                        Asked::Answered(outcome) => return Ok(outcome),
                        Asked::Refused => {}
                        Asked::Unknown => is_in_doubt = true,
                    }
                    change
                }
            };
            if map.has_migrated() && !self.is_asked_there(map, column, operation) {
                continue;
            }
            let Some(engine) = self.engine() else { return Err(IoError::Stopping.into()) };
            let news = select(Box::pin(engine.world().sleep(AGAIN)), change);
            engine.world().seen("wait for the column's primary", news).await;
        }
    }

    fn is_asked_there<O: Operation<W>>(&self, map: &Map<W>, column: usize, operation: &O) -> bool {
        match operation.bytes() {
            Some(bytes) => self.is_served_by(map, column, &bytes),
            None => self.has(map.id()),
        }
    }

    async fn ask<O: Operation<W>>(
        &self,
        (server, view): (ServerId, View),
        (map, column): (&Map<W>, usize),
        operation: &O,
        tag: Option<Tag>,
    ) -> Result<Asked<O::Outcome>, IoError> {
        let Some(engine) = self.engine() else { return Err(IoError::Stopping) };
        let (asked, payload) = operation.message(tag);
        let request = VolumeRequest { volume: self.id(), map: map.id(), column: column as u32, operation: asked };
        // The volume's revision may be later by now. Requests by that revision must not be overtaken by this one.
        let revision = self.asked_as_of();
        let question = Question { view, revision, request: Request::Volume(request), payload };
        let reply = match engine.shared.peers.ask(server, question).await {
            Ok(reply) => reply,
            Err(unreachable) if unreachable.was_sent => return Ok(Asked::Unknown),
            Err(_) => return Ok(Asked::Refused),
        };
        match reply.answer {
            Answer::Volume(VolumeAnswer::Failed(failure)) => match failure {
                VolumeFailure::Io(error) => Err(error),
                VolumeFailure::Unsure => Ok(Asked::Unknown),
                VolumeFailure::Stale { .. } | VolumeFailure::NotPrimary { .. } | VolumeFailure::Busy => {
                    Ok(Asked::Refused)
                }
            },
            _ => match operation.outcome(reply) {
                Some(outcome) => Ok(Asked::Answered(outcome)),
                None => {
                    let reason = format!("the answer of server {server} makes no sense");
                    Err(IoError::Unavailable { reason })
                }
            },
        }
    }
}

impl<W: World> Map<W> {
    /// Waits until it's certain that no other server had taken this server's seat when the request was done; `false` if
    /// one has.
    pub(crate) async fn may_tell(&self, seat: &Seat<W>, group: &Group<W>) -> bool {
        loop {
            let Some(engine) = self.engine() else { return false };
            // In this order: a server that has lost its seat lets the seat go by a later view before it has a lease of
            // that view.
            let may_serve = engine.shared.authority.may_serve();
            if !seat.is_still(group) {
                return false;
            }
            if may_serve {
                return true;
            }
            engine.world().sleep(AGAIN).await;
        }
    }
}

/// An error of a group, which names a place in its column, with the place in the volume instead.
fn in_volume<W: World>(map: &Map<W>, column: usize, undone: Undone) -> Undone {
    match undone {
        Undone::Io(error) => Undone::Io(map.in_volume(column, error)),
        migrated => migrated,
    }
}

/// The outcome of a request to another server.
enum Asked<T> {
    Answered(T),
    /// The server doesn't serve the column now, and has done nothing.
    Refused,
    Unknown,
}

impl<W: World> Engine<W> {
    /// Asks the primary of another map's column once. `None` if it hasn't answered.
    pub(crate) async fn ask_primary_once(
        &self,
        (server, view): (ServerId, View),
        request: VolumeRequest,
    ) -> Option<super::peers::Reply> {
        let question =
            Question { view, revision: 0, request: Request::Volume(request), payload: tepal_wire::Payload::none() };
        self.shared.peers.ask(server, question).await.ok()
    }
}
