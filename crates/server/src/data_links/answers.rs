//! Who answers what other servers and gateways ask: the engine.

use super::Answering;
use crate::access::{Claims, Identified};
use crate::authority::MetadataAuthority;
use crate::drives::Parts;
use crate::throttle::Throttle;
use crate::world::ServerWorld;
use futures_util::future::LocalBoxFuture;
use std::sync::Arc;
use tepal_engine::{Authority, Engine, Question, Reply};
use tepal_metadata::{KeyHash, Metadata, Right};
use tepal_model::{IoError, ServerId};
use tepal_wire::handshake::{Sender, Standing};
use tepal_wire::message::{Answer, Request, VolumeAnswer, VolumeFailure, VolumeOperation};

/// The engine, as other servers ask it.
pub struct EngineAnswers {
    /// Has this server's drives and volumes.
    engine: Engine<ServerWorld>,
    /// Says which servers belong to the cluster.
    metadata: Metadata,
    /// What callers may do that aren't servers.
    claims: Claims,
    /// Says whether what this server knows of claims still counts.
    authority: MetadataAuthority,
}

impl EngineAnswers {
    pub(crate) fn of(parts: &Parts) -> Self {
        let Parts { engine, metadata, claims, authority, .. } = parts.clone();
        EngineAnswers { engine, metadata, claims, authority }
    }
}

impl Answering for EngineAnswers {
    fn answer(&self, from: Sender, question: Question) -> LocalBoxFuture<'static, Reply> {
        match from {
            Sender::Server { server, .. } => self.engine.answer(server, question),
            // Only volumes are asked for in a client's lane.
            Sender::Client { .. } | Sender::Newcomer => self.engine.answer(ServerId(0), question),
        }
    }

    fn refuses(&self, sender: &Sender, caller: Option<&Identified>, request: &Request) -> Option<Answer> {
        if !matches!(sender, Sender::Client { .. }) {
            return None;
        }
        let refused = |error| Some(failed(VolumeFailure::Io(error)));
        let Request::Volume(request) = request else { return refused(IoError::NotAllowed) };
        let state = self.metadata.state();
        let limited = caller.and_then(Identified::limited);
        if limited.is_none() && caller.is_some_and(|caller| caller.is_revoked(&state.access)) {
            return refused(IoError::NotAllowed);
        }
        // A gateway can't be the one that alone may write.
        if state.access.reserved(request.volume).0.is_some() && !is_of_snapshot(&request.operation) {
            return refused(IoError::Fenced);
        }
        let right = match needed(&request.operation) {
            Some(right) => right,
            None if limited.is_none() => return None,
            None => return refused(IoError::NotAllowed),
        };
        let claim = limited.map(|key| self.claims.of(key, request.volume))?;
        let error = claim.check(right).err()?;
        // While others go on without this server, more may have been granted than it knows.
        if self.authority.may_serve() { refused(error) } else { Some(failed(VolumeFailure::Busy)) }
    }

    fn throttle(&self, by: &KeyHash) -> Option<Arc<Throttle>> {
        self.claims.throttle_by(by)
    }

    fn standing(&self, sender: &Sender) -> Standing {
        match sender {
            Sender::Server { server, .. } if self.metadata.state().servers.contains_key(server) => Standing::Member,
            Sender::Server { .. } | Sender::Newcomer => Standing::Unknown,
            Sender::Client { .. } => Standing::Member,
        }
    }
}

fn failed(failure: VolumeFailure) -> Answer {
    Answer::Volume(VolumeAnswer::Failed(failure))
}

/// What a client must be allowed for this; none: servers alone ask each other that.
fn needed(operation: &VolumeOperation) -> Option<Right> {
    match operation {
        VolumeOperation::Read { .. }
        | VolumeOperation::Flush
        | VolumeOperation::Status { .. }
        | VolumeOperation::Changed { .. } => Some(Right::Read),
        VolumeOperation::Write { .. } | VolumeOperation::Zero { .. } | VolumeOperation::Repair { .. } => {
            Some(Right::Write)
        }
        VolumeOperation::Node { operation, .. } if operation.only_reads() => Some(Right::Read),
        VolumeOperation::Node { .. } => Some(Right::Write),
        VolumeOperation::Clear { .. }
        | VolumeOperation::Fill { .. }
        | VolumeOperation::HandOver { .. }
        | VolumeOperation::Holding { .. }
        | VolumeOperation::Release { .. } => None,
    }
}

fn is_of_snapshot(operation: &VolumeOperation) -> bool {
    use VolumeOperation::{Changed, Read, Status};
    matches!(operation, Read { at: Some(_), .. } | Status { at: Some(_), .. } | Changed { at: Some(_), .. })
}
