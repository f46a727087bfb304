//! Who answers what other servers and gateways ask: the engine.

use super::Answering;
use crate::world::ServerWorld;
use futures_util::future::LocalBoxFuture;
use tepal_engine::{Engine, Question, Reply};
use tepal_metadata::Metadata;
use tepal_model::ServerId;
use tepal_wire::handshake::{Sender, Standing};

/// The engine, as other servers ask it.
pub struct EngineAnswers {
    /// Has this server's drives and volumes.
    pub engine: Engine<ServerWorld>,
    /// Says which servers belong to the cluster.
    pub metadata: Metadata,
}

impl Answering for EngineAnswers {
    fn answer(&self, from: Sender, question: Question) -> LocalBoxFuture<'static, Reply> {
        match from {
            Sender::Server { server, .. } => self.engine.answer(server, question),
            // Only volumes are asked for in a client's lane.
            Sender::Client { .. } | Sender::Newcomer => self.engine.answer(ServerId(0), question),
        }
    }

    fn standing(&self, sender: &Sender) -> Standing {
        match sender {
            Sender::Server { server, .. } if self.metadata.state().servers.contains_key(server) => Standing::Member,
            Sender::Server { .. } | Sender::Newcomer => Standing::Unknown,
            Sender::Client { .. } => Standing::Member,
        }
    }
}
