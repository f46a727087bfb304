//! How a volume reaches the primary of a column: here, or by asking another server, again until one answers.

use super::peers::Question;
use super::seat::{Seat, Taken};
use crate::authority::View;
use crate::protocol::primary::Group;
use crate::volume::Volume;
use crate::volume::operation::Operation;
use futures_util::future::select;
use std::time::Duration;
use tepal_drive::world::World;
use tepal_model::{IoError, ServerId};
use tepal_wire::message::{Answer, Request, Tag, VolumeAnswer, VolumeFailure, VolumeRequest};

/// How long to wait until a primary is asked again that didn't serve, if nothing new is heard.
const AGAIN: Duration = Duration::from_millis(100);

impl<W: World> Volume<W> {
    /// Has the column's primary do something. Waits while nobody is it, or until somebody else is.
    pub(crate) async fn at_primary<O: Operation<W>>(
        &self,
        column: usize,
        operation: &O,
    ) -> Result<O::Outcome, IoError> {
        let outcome = match self.is_among() {
            true => Box::pin(self.at_some_primary(column, operation)).await,
            false => match self.seats()[column].group() {
                Some(group) => operation.at(&group, self.id(), None).await,
                None => Err(IoError::Fenced),
            },
        };
        match outcome {
            // It was shared meanwhile, and nothing of this had been begun.
            Err(IoError::Fenced) if self.is_among() && !self.is_cut_off() => {
                let outcome = Box::pin(self.at_some_primary(column, operation)).await;
                outcome.map_err(|error| self.in_volume(column, error))
            }
            outcome => outcome.map_err(|error| self.in_volume(column, error)),
        }
    }

    async fn at_some_primary<O: Operation<W>>(&self, column: usize, operation: &O) -> Result<O::Outcome, IoError> {
        let Some(engine) = self.engine() else { return Err(IoError::Stopping) };
        let ticket = O::IS_NUMBERED.then(|| engine.shared.slots.take(engine.followed()));
        let tag = |is_in_doubt| ticket.as_ref().map(|ticket| Tag { origin: ticket.origin, is_in_doubt });
        self.ask_until_answered(column, operation, tag).await
    }

    async fn ask_until_answered<O: Operation<W>>(
        &self,
        column: usize,
        operation: &O,
        tag: impl Fn(bool) -> Option<Tag>,
    ) -> Result<O::Outcome, IoError> {
        let seat = &self.seats()[column];
        // Whether it may have been carried out.
        let mut is_in_doubt = false;
        loop {
            if self.is_cut_off() {
                return Err(IoError::Fenced);
            }
            if let Some(end) = operation.end().filter(|&end| end > self.end_of(column)) {
                let (offset, size) = (self.striping().offset_of(column, end - 1), self.size());
                return Err(IoError::OutOfRange { offset, length: 1, size });
            }
            let change = match seat.now() {
                Taken::Here(group) => {
                    let outcome = operation.at(&group, self.id(), tag(is_in_doubt)).await;
                    let is_void = matches!(outcome, Err(IoError::Fenced)) && !seat.is_still(&group);
                    if !is_void && self.may_tell(seat, &group).await {
                        return outcome;
                    }
                    // What ends for being shared hasn't begun.
                    is_in_doubt |= group.shared.view > 0;
                    continue;
                }
                Taken::Vacant => seat.change(),
                Taken::There(server, view) => {
                    let change = seat.change();
                    match self.ask((server, view), column, operation, tag(is_in_doubt)).await? {
                        Asked::Answered(outcome) => return Ok(outcome),
                        Asked::Refused => {}
                        Asked::Unknown => is_in_doubt = true,
                    }
                    change
                }
            };
            let Some(engine) = self.engine() else { return Err(IoError::Stopping) };
            select(Box::pin(engine.world().sleep(AGAIN)), change).await;
        }
    }

    /// Waits until it's sure that nobody had taken this server's place when it did something; `false` if somebody has.
    pub(super) async fn may_tell(&self, seat: &Seat<W>, group: &Group<W>) -> bool {
        loop {
            let Some(engine) = self.engine() else { return false };
            if !seat.is_still(group) {
                return false;
            }
            if engine.shared.authority.may_serve() {
                return true;
            }
            engine.world().sleep(AGAIN).await;
        }
    }

    async fn ask<O: Operation<W>>(
        &self,
        (server, view): (ServerId, View),
        column: usize,
        operation: &O,
        tag: Option<Tag>,
    ) -> Result<Asked<O::Outcome>, IoError> {
        let Some(engine) = self.engine() else { return Err(IoError::Stopping) };
        let (asked, payload) = operation.message(tag);
        let request = Request::Volume(VolumeRequest { volume: self.id(), column: column as u32, operation: asked });
        let question = Question { view, revision: self.revision(), request, payload };
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

/// What became of a request to another server.
enum Asked<T> {
    Answered(T),
    /// It doesn't serve the column now, and has done nothing.
    Refused,
    Unknown,
}
