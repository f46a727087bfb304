use super::*;
use crate::consensus::Types;
use crate::scratch::Scratch;
use crate::state_machine::{self, Machine, StateMachine};
use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use tepal_model::{ClusterId, ServerId};

pub fn identity() -> Identity {
    Identity {
        cluster: ClusterId(7),
        name: "c".to_owned(),
        server: ServerId(1),
        incarnation: 0,
        history: 0,
        folder: 0,
        address: "127.0.0.1:1".to_owned(),
        created_unix_ms: 1,
        joined: None,
    }
}

struct Builder;

impl StoreBuilder<Types, LogStore, StateMachine, Scratch> for Builder {
    async fn build(&self) -> Result<(Scratch, LogStore, StateMachine), StorageError<Types>> {
        let scratch = Scratch::new();
        let lock = Arc::new(File::open(scratch.path()).unwrap());
        state_machine::create(scratch.path()).unwrap();
        create(scratch.path(), &identity()).unwrap();
        let log = LogStore::start(LogTable::open(scratch.path()).unwrap(), lock.clone()).unwrap();
        let machine = StateMachine::start(Machine::open(scratch.path()).unwrap(), lock).unwrap();
        Ok((scratch, log, machine))
    }
}

#[test]
fn the_consensus_library_s_storage_suite_passes() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(Suite::test_all(Builder)).unwrap();
}
