//! The cluster's state, replicated: a Raft log (`raft.db`) and the state machine it feeds (`cluster.db`), both
//! SQLite, in the server's data folder. Anyone may read `cluster.db` with standard SQL while the server runs.
//!
//! [`Metadata`] is the way in. A [`Command`] proposed there is answered once it has been applied; [`State`] is what
//! all applied commands came to. The consensus library's types stay inside.

#![warn(missing_docs)]

mod access;
#[cfg(test)]
mod cluster_tests;
mod command;
mod conditions;
mod consensus;
mod database;
mod facade;
mod folder;
mod format;
mod leases;
mod log_store;
mod member;
mod members;
mod meta_table;
mod peers;
mod proposals;
mod query;
mod realm;
mod rebuild;
mod record;
mod refusal;
mod room;
mod schedule;
#[cfg(test)]
mod scratch;
mod state;
mod state_machine;
mod timing;

pub use access::{
    Access, AccessNameError, AuthorityRecord, GROUP, GrantRecord, IdentityRecord, JoinTokenRecord, KeyHash,
    LONGEST_WRAPPED, Limited, LimitsRecord, LiveRecord, LiveStage, ReservationRecord, Right, Role, VolumeKeyRecord,
};
pub use command::{ColumnCopies, Command, LiveCommand, Reply};
pub use conditions::{Versioned, volume_tag};
pub use facade::propose::{ProposeError, asked_by};
pub use facade::{Cause, Metadata, OpenError, StateLimit};
pub use leases::held::Lease;
pub use leases::{Term, Tick};
pub use members::join::{JoinError, JoinRequest};
pub use peers::{Caller, Calling, MAX_MESSAGE, NoTransport, Transport, TransportError};
pub use query::{QueryError, QueryLimits, Rows, Value};
pub use realm::{LeavingRecord, OutsideAuthorityRecord, PoolKeyRecord, Scope, ScopeGrantRecord, SubjectRecord};
pub use rebuild::{FoundDrive, Rebuild, RebuildError};
pub use record::{
    BY_ID, Cleared, ClusterRecord, ColumnRecord, CopyRecord, CopyStatus, DEFAULT_POOL, DriveRecord, DriveState,
    DriveUse, EVENTS_KEPT, EventRecord, HolderRecord, ImportRecord, JoinRecord, LONGEST_WINDOW, MapRecord,
    MigrationRecord, PoolRecord, RebuildRecord, ReplicaRecord, ReplicaSource, SERVER_IS_DOWN, ServerRecord,
    ServerState, SnapshotId, SnapshotRecord, StateNameError, VolumeRecord, VolumeState,
};
pub use refusal::{Refusal, Thing};
pub use schedule::{
    Covered, LONGEST_SCHEDULE_NAME, MOST_SCHEDULES, MadeRecord, ScheduleCommand, ScheduleRecord, ScheduleRefusal,
    Schedules, ScrubRecord, Work, WorkKind, WorkKindError,
};
pub use state::State;
pub use state_machine::apply::check_size;
pub use state_machine::copy::StateCopyError;
pub use timing::{Clock, Surroundings, Timing};
