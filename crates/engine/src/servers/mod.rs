//! Copies and primaries on several servers.
//!
//! ```text
//! follow.rs   the agreed state, and which columns this server leads: engine/leading.rs
//! seat.rs     the primary of a column, as far as is known here
//! reach.rs    a volume reaches its primaries    -- peers.rs -->  serve.rs   which answer gateways
//! remote.rs   a primary reaches drives of others -- peers.rs -->  answer.rs  whose servers answer primaries
//! slots.rs    numbers for the requests of this server as a gateway
//! ```
//!
//! How the primary is chosen, how another one takes over, and what is done about retried requests:
//! docs/internals/primary-over-servers.md.

pub mod answer;
pub mod follow;
pub mod peers;
pub mod reach;
pub mod remote;
pub mod seat;
pub mod serve;
pub mod slots;
