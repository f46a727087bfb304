//! Who belongs to the cluster: joining, being vouched for at every start, and who votes.
//!
//! Invariants:
//! 1. Nobody votes, asks for votes or acknowledges entries before a majority has vouched for what its folder remembers.
//! 2. An empty folder is another member for the consensus than any before it, also of the same server.
//! 3. What the members should be is a pure function of the state and of who is there ([`plan`]); the leader takes one
//!    step at a time towards it, so it doesn't matter at which step a leader fails.

pub mod begin;
pub mod housekeeping;
pub mod join;
pub mod plan;
