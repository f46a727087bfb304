//! The number of an agreed state.

/// Number of an agreed status of servers and drives.
pub type View = u64;
