//! What it takes that copies are on several servers, and primaries.
//!
//! ```text
//! follow.rs   what is agreed, and which columns this server leads: engine/leading.rs
//! seat.rs     who leads a column, as far as is known here
//! reach.rs    a volume reaches its primaries    -- peers.rs -->  serve.rs   which answer gateways
//! remote.rs   a primary reaches drives of others -- peers.rs -->  answer.rs  whose servers answer primaries
//! slots.rs    numbers for the requests of this server as a gateway
//! ```
//!
//! Who is primary, how one takes over, and what is done about requests that come twice: docs/internals/primary-over-servers.md.

pub mod answer;
pub mod follow;
pub mod peers;
pub mod reach;
pub mod remote;
pub mod seat;
pub mod serve;
pub mod slots;
